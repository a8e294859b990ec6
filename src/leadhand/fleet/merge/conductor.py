"""The conductor: carries out what the train decides; nothing else moves main.

`land` returns when a change is on main, or when it has to go back to its owner. In between the
change is merged onto those before it, in memory, commit by commit; the tip of each prefix that the
train wants tested goes through the gate; and main moves by compare-and-swap to a commit that was
tested, the very one.

Laws
    1. Nothing needed for recovery is held in memory. Who was waiting when the process died asks
       again; a change that has landed is then found by its trailers, and is not landed twice.
    2. A conflict is never resolved here, and no side is picked: programs that the project names
       may settle it (`resolution.py`), else the owner gets the paths, both differences and both
       goals.
    3. A change touches what it may touch: outside its paths it is foreign, and protected paths
       need somebody's leave. A merge that is not the change is a conflict (`same_change.py`).
    4. Trouble of git or of the gate is nobody's fault: it is tried again after a while, and when it
       does not pass, those who wait are told of the trouble (an exception), not of a verdict.
    5. A newer attempt of a task takes the place of an older one.
    6. Only a bug of ours stops the train, and then it says so (`ended`): a fleet whose changes
       wait for nobody must not look alive.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from leadhand.errors import Bug, LeadhandError
from leadhand.fleet.boundaries import outside, within
from leadhand.fleet.gate.gate import Command, GateVerdict
from leadhand.fleet.merge import train
from leadhand.fleet.merge.resolution import ConflictResolution
from leadhand.fleet.merge.train import Kind, Rules, Train
from leadhand.fleet.repository.git import GitFailed, printable_name
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.review import digest_of

# A change in the queue, and its possible outcomes.


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedChange:
    """One commit (`head`) on its base, that wants to be on main."""

    run: str
    task: str
    attempt: int
    base: str
    head: str
    goal: str
    paths: tuple[str, ...] = ()
    """What it may write; nothing said: anything."""
    cleared: tuple[str, ...] = ()
    """Protected paths it may write all the same."""
    bound: str = ""
    """What was approved of it, hashed (`reviewing.digest_of`): what lands must be the same."""
    waived: tuple[str, ...] = ()
    """Tests of main that it may remove or change, as a person has seen."""
    acceptance: tuple[Command, ...] = ()
    trailers: Mapping[str, str] = field(default_factory=dict)
    author: str = ""
    joins: bool = False
    """Whether `head` is history to be kept, and becomes a parent: what people did themselves."""
    forward: bool = False
    """With `joins`: whether main becomes `head` itself, where `head` comes after main."""
    also: str = ""
    """Another commit that becomes a parent: what a pull request showed of the same change."""

    @property
    def about(self) -> dict[str, Any]:
        """Return its task and attempt, for notes."""
        return {"run": self.run, "task": self.task, "attempt": self.attempt}


@dataclass(frozen=True, slots=True)
class Landed:
    """On main: its commit, and the tip that was gated with it."""

    sha: str
    tip: str
    waited_s: float
    tests: str = ""
    """How many tests ran on the tip, in words."""
    flaky: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ejected:
    """Back to its owner, and why."""

    kind: Kind
    log: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def over(cls, kind: Kind, why: str, paths: Sequence[str]) -> Ejected:
        """For the sake of these paths."""
        named = [printable_name(path) for path in paths[:100]]
        return cls(kind, f"{why}: {', '.join(named)}", {"paths": named})


PATIENCE_S = 120.0
PAUSE_S = 0.5
LOG_MAX = 60_000
LOGS_MAX = 500
SHOWN = 20
"""The most changes of a batch that a view names."""


class Checks(Protocol):
    """The gate, as far as the conductor knows it."""

    async def check(
        self, sha: str, acceptance: Sequence[Command] = (), waived: Collection[str] | None = ()
    ) -> GateVerdict: ...


@dataclass(slots=True)
class _Waiting:
    change: QueuedChange
    since: float
    answer: asyncio.Future[Landed | Ejected]
    merged: dict[str, str | Ejected] = field(default_factory=dict)
    """By the commit it was put on: the commit that came out, or why none did."""
    landing: bool = False


class Conductor:
    """Open it with `async with`; `land` from as many tasks as you like."""

    def __init__(
        self,
        hub: Hub,
        gate: Checks,
        rules: Rules | None = None,
        *,
        protected: Sequence[str] = (),
        pause_s: float = PAUSE_S,
        patience_s: float = PATIENCE_S,
        note: Callable[..., None] = lambda _what, **_more: None,
        resolution: ConflictResolution | None = None,
    ) -> None:
        """`note` is told what is tested, lands and goes back (`journal.py`)."""
        self._resolution = resolution
        self._note = note
        self.train = Train(rules or Rules())
        self._hub, self._gate, self._protected = hub, gate, tuple(protected)
        self._pause_s, self._patience_s = pause_s, patience_s
        self._main = hub.main()
        self._waiting: dict[str, _Waiting] = {}
        self._events: asyncio.Queue[train.Event] = asyncio.Queue()
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._logs: dict[int, Ejected] = {}
        self._passed: dict[int, GateVerdict] = {}
        self._merging = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._trouble_since: float | None = None
        self._count = 0
        self.counts: dict[str, int] = {}
        self.trouble = ""
        """What keeps git or the gate from answering, while something does."""

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._serving, *self._probes.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up(LeadhandError("the train has stopped"), list(self._waiting))

    # --- for those who wait ----------------------------------------------------------------

    async def land(self, change: QueuedChange) -> Landed | Ejected:
        """Wait until it is on main, or has to go back. Cancelling the wait withdraws it."""
        began = time.monotonic()
        told = self._before(change) or await self._refusal(change) or self._replaced(change)
        if told is not None:
            return self._counted(told, change, 0.0)
        if self._serving is None or self._serving.done():
            raise Bug("the conductor is not running")
        self._count += 1
        name = f"{self._count}"
        answer: asyncio.Future[Landed | Ejected] = asyncio.get_running_loop().create_future()
        self._waiting[name] = _Waiting(change, time.monotonic(), answer)
        self._events.put_nowait(train.Added(name))
        self._note("queued", **change.about)
        try:
            told = await answer
        except BaseException:  # the caller was cancelled, or told of trouble: leave the queue
            self._note("withdrawn", **change.about)
            raise
        finally:
            if name in self._waiting:
                self._events.put_nowait(train.Withdrawn(name))
        return self._counted(told, change, time.monotonic() - began)

    async def ended(self) -> None:
        """Wait until the train has stopped. Raise the error that stopped it."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    @property
    def waiting(self) -> int:
        """Return how many changes are on the train."""
        return len(self._waiting)

    def status(self) -> dict[str, Any]:
        """Return the present train, for views."""
        now = time.monotonic()
        oldest = min((waiting.since for waiting in self._waiting.values()), default=now)
        return {
            "waiting": len(self._waiting),
            "oldest_s": now - oldest,
            "gates": len(self._probes),
            "gate_runs": self.train.tests,
            "batch": self.train.batch,
            "window": self.train.window,
            "failure_rate": self.train.failure_rate,
            "batches": self._batches(),
            **self.counts,
        }

    def _batches(self) -> list[dict[str, Any]]:
        """Return the queue as batches: each prefix under test adds its own changes to the last."""
        queue, begin = self.train.queue, 0
        found: list[tuple[str, list[str]]] = []
        ends = dict.fromkeys(self.train.running.values(), "testing")
        for size, (green, _test) in self.train.verdicts.items():
            ends[size] = "passed" if green else "failed"
        for end in sorted(ends):
            found.append((ends[end], queue[begin:end]))
            begin = max(begin, end)
        found += [("testing alone", [each]) for each in self.train.suspects.values()]
        found.append(("waiting", queue[begin:]))
        aside = [*self.train.doubted, *(each.change for each in self.train.parked)]
        found.append(("set aside", aside))
        return [
            {"state": state, "size": len(names), "changes": list(map(self._about, names[:SHOWN]))}
            for state, names in found
            if names
        ]

    def _about(self, name: str) -> dict[str, Any]:
        waiting = self._waiting.get(name)
        if waiting is None:
            return {"task": "", "goal": ""}
        change = waiting.change
        return {"run": change.run, "task": change.task, "goal": change.goal[:120]}

    def _before(self, change: QueuedChange) -> Landed | Ejected | None:
        """Return the known outcome of a change: it has landed, or a later attempt has."""
        found = self._hub.landing(change.run, change.task)
        attempt = int(found.trailers.get("Leadhand-Attempt", "0")) if found else 0
        if found is None or attempt < change.attempt:
            return None
        if attempt == change.attempt:
            return Landed(found.sha, self._hub.main(), 0.0)
        return Ejected("stale", f"attempt {attempt} of this task has landed already")

    def _replaced(self, change: QueuedChange) -> Ejected | None:
        """Eject the earlier of two attempts of a task; the later one stays."""
        for waiting in list(self._waiting.values()):
            other = waiting.change
            if (other.run, other.task) != (change.run, change.task):
                continue
            if other.attempt > change.attempt:
                return Ejected("stale", f"attempt {other.attempt} of this task took its place")
            if not (waiting.landing or waiting.answer.done()):
                told = Ejected("stale", f"attempt {change.attempt} of this task took its place")
                waiting.answer.set_result(told)
        return None

    async def _refusal(self, change: QueuedChange) -> Ejected | None:
        """Return why a change may not enter the train, independent of main."""
        paths = list(await self._hub.changed(change.base, change.head))
        if change.joins:
            return None
        if not paths:
            return Ejected("empty", "nothing differs from the base")
        foreign = outside(paths, change.paths) if change.paths else []
        if foreign:
            return Ejected.over("foreign", "it touches what is not its own", foreign)
        kept = [path for path in outside(paths, change.cleared) if within(path, self._protected)]
        return Ejected.over("protected", "it touches what is protected", kept) if kept else None

    def _counted(
        self, told: Landed | Ejected, change: QueuedChange, waited_s: float
    ) -> Landed | Ejected:
        kind = told.kind if isinstance(told, Ejected) else "landed"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        more = {"kind": kind} if isinstance(told, Ejected) else {"sha": told.sha}
        what = "ejected" if isinstance(told, Ejected) else "landed"
        self._note(what, **change.about, waited_s=round(waited_s, 3), **more)
        return told

    # --- what the train wants --------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            event = await self._events.get()
            try:
                await self._do(self.train.step(event))
                if isinstance(event, train.Withdrawn):
                    self._waiting.pop(event.change, None)
            except Exception as error:  # noqa: BLE001 - it is told, and ends the train
                bug = Bug.behind(error)
                self._give_up(bug, list(self._waiting))
                raise bug from bug.__cause__

    async def _do(self, actions: Sequence[train.Action]) -> None:
        for action in actions:
            match action:
                case train.Probe(test, names):
                    probe = self._probe(test, names, self._main)
                    self._probes[test] = asyncio.create_task(probe)
                case train.Cancel(test):
                    self._logs.pop(test, None)
                    self._passed.pop(test, None)
                    if test in self._probes:
                        self._probes.pop(test).cancel()
                case train.Land(names, test):
                    await self._move_main(names, self._passed.pop(test, None))
                case train.Eject(name, kind, test):
                    told = self._logs.pop(test, None) or Ejected(kind, "")
                    self._answer(name, told)

    def _answer(self, name: str, told: Landed | Ejected) -> None:
        """Settle a change, and forget it here, so that it is not withdrawn later."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(told)

    def _give_up(self, error: Exception, names: Sequence[str]) -> None:
        """Report trouble to the waiting callers, and remove their changes from the train."""
        for name in names:
            waiting = self._waiting.get(name)
            if waiting is not None and not waiting.answer.done():
                waiting.answer.set_exception(error)

    async def _probe(self, test: int, names: Sequence[str], main: str) -> None:
        """Build a prefix and gate its tip."""
        try:
            event = await self._verdict(test, names, main)
            self._trouble_since, self.trouble = None, ""
        except Exception as error:  # noqa: BLE001 — any error, but no verdict
            event = train.Trouble(test)
            await self._endure(error, names)
        self._probes.pop(test, None)
        self._events.put_nowait(event)

    async def _endure(self, error: Exception, names: Sequence[str]) -> None:
        """Wait a little; after a long time without a verdict, report to the waiting callers."""
        since = self._trouble_since = self._trouble_since or time.monotonic()
        self.trouble = str(error) or type(error).__name__
        if time.monotonic() - since >= self._patience_s:
            self._give_up(error, names)
        await asyncio.sleep(self._pause_s)

    async def _verdict(self, test: int, names: Sequence[str], main: str) -> train.Event:
        tip = main
        for name in names:
            made = await self._merged(name, tip)
            if isinstance(made, Ejected):
                alone = made if tip == main else await self._merged(name, self._main)
                final = isinstance(alone, Ejected)
                told = alone if isinstance(alone, Ejected) else made
                self._keep(test, told)
                return train.Unmerged(test, name, told.kind, final)
            tip = made
        waiting = [self._waiting[name] for name in names if name in self._waiting]
        wanted = [command for each in waiting for command in each.change.acceptance]
        commands = list(dict.fromkeys(wanted))
        waived = [name for each in waiting for name in each.change.waived]
        if any(each.change.joins for each in waiting):
            verdict = await self._gate.check(tip, commands, None)
        elif waived:
            verdict = await self._gate.check(tip, commands, waived)
        else:
            verdict = await self._gate.check(tip, commands)
        green = verdict.ok and not verdict.altered
        searching = any(not green for green, _test in self.train.verdicts.values())
        took = round(verdict.seconds, 3)
        about = {"size": len(names), "ok": green, "seconds": took, "search": searching}
        if verdict.reused:
            about["reused"] = True
        self._note("tested", **about, tests=verdict.tests)
        if not green:
            failed = verdict.failed or "tests of main that it changed"
            log = verdict.log[-LOG_MAX:]
            tests = [*verdict.removed, *verdict.altered]
            self._keep(test, Ejected("red", log, {"failed": failed, "tip": tip, "tests": tests}))
        else:
            self._passed[test] = replace(verdict, log="")
        return train.TrainVerdict(test, green)

    def _keep(self, test: int, told: Ejected) -> None:
        self._logs[test] = told
        if len(self._logs) > LOGS_MAX:
            del self._logs[next(iter(self._logs))]

    async def _merged(self, name: str, onto: str) -> str | Ejected:
        """Return the commit that puts a change on top of another commit, made once."""
        async with self._merging:
            waiting = self._waiting.get(name)
            if waiting is None:
                raise Bug(f"the merge queue holds a change that no task waits for: {name}")
            if onto not in waiting.merged:
                waiting.merged[onto] = await self._merge(waiting.change, onto)
            return waiting.merged[onto]

    async def _merge(self, change: QueuedChange, onto: str) -> str | Ejected:
        if change.forward and change.base == onto:
            return change.head
        merged = await self._hub.merge(onto, change.head, change.base)
        if self._resolution is not None and not change.joins:
            merged = await self._resolution.settled(merged, onto, change.head, change.base)
        if merged.tree is None:
            told = await self.conflict(change, onto, merged.conflicts)
            return replace(told, log=f"{told.log}\n{merged.why}".rstrip())
        if merged.tree == await self._hub.tree(onto) and not change.joins:
            return Ejected("empty", "all of it is on main already")
        if change.bound and await digest_of(self._hub, onto, merged.tree) != change.bound:
            words = "it would not be the change that was approved: main has moved"
            return Ejected("protected", words, {"onto": onto})
        trailers = {} if self.train.rules.strict else {"Leadhand-Gate": "tip"}
        if not change.joins:
            trailers |= {
                "Assisted-by": "unknown",
                **change.trailers,
                "Leadhand-Task": change.task,
                "Leadhand-Run": change.run,
                "Leadhand-Attempt": str(change.attempt),
            }
        author = {"author": change.author} if change.author else {}
        joined = change.head if change.joins else change.also
        parents = (onto, joined) if joined else (onto,)
        return await self._hub.commit(merged.tree, parents, change.goal, trailers, **author)

    async def conflict(self, change: QueuedChange, onto: str, paths: tuple[str, ...]) -> Ejected:
        """Eject a change in conflict, with both differences and both goals for its resolver."""
        hub, base, named = self._hub, change.base, [printable_name(path) for path in paths]
        others = await hub.commits_between(base, onto, paths)
        details = {
            "paths": named,
            "onto": onto,
            "goal": change.goal,
            "yours": await hub.patch(base, change.head, paths, LOG_MAX // 2),
            "theirs": await hub.patch(base, onto, paths, LOG_MAX // 2),
            "others": [
                {
                    "sha": other.sha,
                    "task": other.trailers.get("Leadhand-Task", ""),
                    "goal": other.message,
                }
                for other in others[-20:]
            ],
        }
        return Ejected("conflict", "in conflict: " + ", ".join(named), details)

    async def _move_main(self, names: Sequence[str], passed: GateVerdict | None) -> None:
        old = tip = self._main
        commits = {}
        try:
            for name in names:
                if name in self._waiting:
                    self._waiting[name].landing = True
                made = await self._merged(name, tip)
                if isinstance(made, Ejected):
                    raise Bug(f"what was tested cannot be built again: {made.log}")
                commits[name] = tip = made
            moved = await self._advance(tip, old)
        except (LeadhandError, OSError) as error:
            self._give_up(error, names)
            moved = False
        self._main = self._hub.main()
        if not moved:
            # Main moved, or there was trouble: no earlier verdict holds now.
            for waiting in self._waiting.values():
                waiting.landing = False
            await self._do(self.train.step(train.MainMoved(tuple(names))))
            return
        self._note("moved", size=len(names), tip=tip)
        for name in names:
            waited = time.monotonic() - self._waiting[name].since if name in self._waiting else 0.0
            tests = (passed.tests, passed.flaky) if passed is not None else ("", ())
            self._answer(name, Landed(commits[name], tip, waited, *tests))

    async def _advance(self, new: str, old: str) -> bool:
        until = time.monotonic() + self._patience_s
        while True:
            try:
                moved = await self._hub.advance(new, old)
            except (GitFailed, OSError) as error:
                self.trouble = str(error)
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(self._pause_s)
            else:
                self.trouble = ""
                return moved


# Following the user's branch: commits of people come to the fleet's main as well.
#
# It goes the way of every change: merged onto main, gated, and joined to it with its history when
# green, so that main stays green and the fleet's result can be given back without force. What is in
# conflict, or red, is not taken: nobody but its author can say what was meant. It is shown with the
# reason, the fleet goes on with the main it has, and the next commit of theirs is tried again.


LOG_CHARS = 2000


class Following:
    """Watches the user's branch, and brings its commits to main."""

    def __init__(self, hub: Hub, conductor: Conductor) -> None:
        self._hub, self._conductor = hub, conductor
        self._seen = ""
        self.refused = ""
        """Why the user's last commits are not on main, if so."""

    @property
    def told(self) -> dict[str, str]:
        """Return the message, by its subject."""
        return {"your branch": self.refused} if self.refused else {}

    async def look(self) -> None:
        """Bring the user's new commits to main; return when they are on main or refused."""
        tip = await self._hub.user_tip()
        if tip == self._seen:
            return
        found = await self._hub.fetch_user()
        self.refused = ""
        if found.relation in ("ahead", "diverged"):
            self.refused = await self._take(found.tip, found.base)
        self._seen = found.tip

    async def _take(self, tip: str, base: str) -> str:
        if not base:
            return f"{tip[:12]} has no commit in common with main"
        change = QueuedChange(
            run="",
            task="",
            attempt=0,
            base=base,
            head=tip,
            goal=f"Merge {tip[:12]} of the user's branch",
            joins=True,
        )
        told = await self._conductor.land(change)
        if isinstance(told, Ejected):
            return f"{tip[:12]} was not merged ({told.kind}): {told.log[-LOG_CHARS:]}"
        return ""
