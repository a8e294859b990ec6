"""Coders that are programs: what all of them have in common.

An adapter says what to start (`launch`) and how to read what it prints (`reading`). The rest is
here: the private home of each task, the sandbox, stopping, and messages.

A message to an agent at work ends its process, and the same conversation goes on with the
message in a new one: the one way that every agent with conversations has, with nobody waiting
on a standard input that stays open. The clocks and limits go on as they were.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from leadhand.fleet.agents.base import (
    AgentOutput,
    Assignment,
    CoderResult,
    Ended,
    Ending,
    Heard,
    Launch,
    Workspace,
)
from leadhand.fleet.agents.supervision import GRACE_S, TERM_S, Attendance
from leadhand.fleet.gate.gate import OURS
from leadhand.fleet.workspace.clean_up import remove
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.processes import Processes
from leadhand.workers.processes.supervision import SpawnError
from leadhand.workers.sandbox.sandbox import NoSandbox, Sandbox

GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
"""Git ends at once where it may not read the machine's configuration, as in a sandbox."""


@dataclass(slots=True)
class _Working:
    """One assignment at work, for whoever wants to stop it or tell it something."""

    attendance: Attendance | None = None
    messages: list[str] = field(default_factory=list)
    stopped: bool = False


class ProcessCoder:
    """A coder that is a program, one process for each assignment."""

    talks = True
    """Whether a conversation can be gone on with."""
    plain = False
    """Whether to end with 0 is a result."""

    def __init__(
        self,
        name: str,
        *,
        processes: Processes,
        homes: Path,
        env: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        term_s: float = TERM_S,
    ) -> None:
        self.name = name
        self._processes, self._homes = processes, homes
        self._env = dict(env or {})
        self._grace_s, self._term_s = grace_s, term_s
        self._working: dict[tuple[str, str, int], _Working] = {}

    def launch(self, assignment: Assignment, slot: Path, home: Path, sandbox: Sandbox) -> Launch:
        """What to start for an assignment."""
        raise NotImplementedError

    def reading(self, assignment: Assignment) -> AgentOutput:
        """How to read what it prints."""
        raise NotImplementedError

    async def work(
        self,
        assignment: Assignment,
        slot: Workspace,
        sandbox: Sandbox,
        heard: Heard,
        *,
        ending: Ending | None = None,
    ) -> CoderResult:
        """Carry out one assignment; returns when nothing of the coder is left."""
        key, working = _key(assignment), _Working()
        if key in self._working:
            raise RuntimeError(f"{assignment.task} is being worked on already")
        self._working[key] = working
        sandbox = sandbox.through(self.name)
        begun, done = time.monotonic(), CoderResult(ended="stopped")
        try:
            while not working.stopped:
                done = _sum(done, await self._once(assignment, slot, sandbox, heard, ending))
                if not (done.ended == "stopped" and working.messages and done.session):
                    break
                assignment = replace(
                    assignment,
                    session=done.session,
                    brief="\n\n".join(working.messages),
                    time_s=max(1.0, assignment.time_s - done.seconds),
                    turns=max(1, assignment.turns - done.turns) if assignment.turns else 0,
                    cost=max(0.01, assignment.cost - done.cost) if assignment.cost else 0.0,
                )
                working.messages.clear()
        finally:
            del self._working[key]
        return replace(done, seconds=time.monotonic() - begun)

    async def _once(
        self,
        assignment: Assignment,
        slot: Workspace,
        sandbox: Sandbox,
        heard: Heard,
        ending: Ending | None,
    ) -> CoderResult:
        home = self.home(assignment)
        attendance = Attendance(
            assignment,
            self.reading(assignment),
            heard,
            ending=ending,
            plain=self.plain,
            grace_s=self._grace_s,
            term_s=self._term_s,
        )
        self._working[_key(assignment)].attendance = attendance
        try:
            launch = self.launch(assignment, slot.path.resolve(), home, sandbox)
            attendance.session = launch.session or attendance.session
            wrapped = sandbox.wrap(
                launch.argv,
                slot.path,
                home=home,
                network=launch.network,
                env={**GIT, **launch.env, **self._env},
                readable=launch.readable,
            )
            return await attendance.attend(self._processes, wrapped, launch.stdin)
        except (NoSandbox, OSError, SpawnError) as error:
            number = getattr(error, "errno", None)
            if number in OURS and not attendance.started:
                raise OSError(number, str(error)) from error  # whoever comes next fares no better
            return _trouble(attendance, "failed", "unavailable", error)
        except ProcessError as error:
            # The supervisor was lost and nothing lives on; or something could not be killed.
            return _trouble(attendance, "crashed", "lost", error)

    def stop(self, assignment: Assignment) -> bool:
        """End the work on an assignment soon; false if there is none."""
        working = self._working.get(_key(assignment))
        if working is None:
            return False
        working.stopped = True
        if working.attendance is not None:
            working.attendance.stop("stopped", "transient", "stopped by request")
        return True

    def message(self, assignment: Assignment, text: str) -> bool:
        """Tell the agent something while it works; false if it cannot be told."""
        working = self._working.get(_key(assignment))
        attendance = working.attendance if working else None
        if not self.talks or working is None or attendance is None or not attendance.session:
            return False
        working.messages.append(text)
        attendance.stop("stopped", "transient", "there is a message for it")
        return True

    def home(self, assignment: Assignment) -> Path:
        """The private home of a task: its conversations are there, from attempt to attempt."""
        return self._folder(assignment) / "home"

    def given(self, assignment: Assignment) -> Path:
        """What we write for the agent, and it can only read.

        Never into its home: it may have put a link there, to where it cannot write and we can.
        """
        given = self._folder(assignment) / "given"
        given.mkdir(exist_ok=True)
        return given

    def _folder(self, assignment: Assignment) -> Path:
        folder = self._place(assignment)
        (folder / "home").mkdir(parents=True, exist_ok=True)
        return folder

    def _place(self, assignment: Assignment) -> Path:
        named = f"{assignment.run}\0{assignment.task}\0{self.name}"
        return self._homes / sha256(named.encode()).hexdigest()[:20]

    def forget(self, assignment: Assignment) -> None:
        """Its task is over: nothing of its conversations is kept."""
        remove(self._place(assignment))


def _trouble(attendance: Attendance, ended: Ended, failure: str, error: Exception) -> CoderResult:
    """An end that the agent did not choose; what it has cost until then was paid."""
    return CoderResult(
        ended=ended,
        failure=failure,
        why=str(error),
        session=attendance.session,
        cost=attendance.cost,
        turns=attendance.turns,
    )


def _key(assignment: Assignment) -> tuple[str, str, int]:
    return assignment.run, assignment.task, assignment.attempt


def _sum(before: CoderResult, after: CoderResult) -> CoderResult:
    return replace(
        after,
        cost=before.cost + after.cost,
        tokens_in=before.tokens_in + after.tokens_in,
        tokens_out=before.tokens_out + after.tokens_out,
        turns=before.turns + after.turns,
        changed=before.changed or after.changed,
    )
