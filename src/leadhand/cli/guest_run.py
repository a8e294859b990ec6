"""A run beside the host of its database: started in a process of its own, and followed from here.

The process has this one's interpreter, folder, environment and settings, and outlives it. The
output and the exit codes are those of `leadhand run` for a run that it hosts itself.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leadhand.app.commands import send_command
from leadhand.cli.approval_prompt import ApprovalPrompt
from leadhand.cli.background import launch
from leadhand.cli.commands.watch import Follower
from leadhand.cli.foreground import print_end
from leadhand.cli.signals import Signals
from leadhand.core.rollback import rollback_id, to_roll_back
from leadhand.core.views.run import ENDED, exit_code, run_status
from leadhand.engine.results import result_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.app.reader import Reader
    from leadhand.cli.console import Console
    from leadhand.cli.foreground import HostedJob
    from leadhand.core.events import Event
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.settings import Settings


LOOK_S = 0.1


def hand_over(console: Console, job: HostedJob) -> int:
    """Start a run in a process of its own and follow it; return the exit code."""
    assert job.request is not None
    with _interrupt_noted() as came:  # the run may have started: its id is printed before this ends
        started = launch(job.settings, job.request)
    following = _Following(
        console, job.settings, started.run, started.pid, quiet=job.quiet, why=job.why
    )
    following.asks_as = "" if job.approve_as else job.actor
    return following.shown(job.after, announced=not job.quiet, interrupted=bool(came))


@contextmanager
def _interrupt_noted() -> Iterator[list[int]]:
    """Note the first Ctrl-C instead of raising KeyboardInterrupt; the second raises it."""
    came: list[int] = []

    def note(number: int, _frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):  # None: a handler that Python cannot restore
        yield came
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def follow(
    console: Console,
    settings: Settings,
    run: str,
    pid: int,
    *,
    after: int = 0,
    quiet: bool = False,
    why: bool = False,
    asks_as: str = "",
) -> int:
    """Show a run that another process drives until it ends or waits; return its exit code.

    `after`: events up to this seq were already shown. `asks_as`: the person at the terminal, who is
    asked about approvals. Ctrl-C only ends the display.
    """
    following = _Following(console, settings, run, pid, quiet=quiet, why=why)
    following.asks_as = asks_as
    return following.shown(after)


class _Asked:
    """A run that another process drives, for the prompt."""

    def __init__(self, settings: Settings, run: str, follower: Follower, actor: str) -> None:
        self._settings = settings
        self._ident = run
        self._follower = follower
        self._actor = actor

    @property
    def state(self) -> State:
        return self._follower.newest()

    def log(self) -> list[Event]:
        """Return the events of the run."""
        return self._follower.events()

    def stale(self) -> str:
        """Return "": the process that drives the run has loaded what was shown."""
        return ""

    async def send(self, verb: str, details: Doc) -> Doc:
        """Send a command of the person to the run."""
        place, anchoring = self._settings.store, self._settings.anchoring
        return await send_command(
            place, self._ident, verb, actor=self._actor, anchoring=anchoring, **details
        )


class _Following:
    def __init__(
        self, console: Console, settings: Settings, run: str, pid: int, *, quiet: bool, why: bool
    ) -> None:
        self._console = console
        self._settings = settings
        self._ident = run
        self._pid = pid
        self._quiet = quiet
        self._why = why
        self.asks_as = ""
        """The person at the terminal who is asked about approvals; empty: no person is there."""
        self._signals: Signals | None = None
        self._follower: Follower | None = None
        self._code: int | None = None
        """The exit code, once the run has ended or waits and that was printed."""

    def shown(self, after: int, *, announced: bool = False, interrupted: bool = False) -> int:
        """Follow the run; return its exit code, or 130 after Ctrl-C, which leaves it running."""
        try:
            if announced:
                where = "beside the host of the database"
                self._console.say(f"run {self._ident} is driven by process {self._pid}, {where}")
            if not interrupted:
                return asyncio.run(self.run(after))
        except KeyboardInterrupt:  # before `Signals` handles signals, or after it
            if self._code is not None:
                return self._code
        self._say_it_goes_on()
        return 128 + signal.SIGINT

    async def run(self, after: int) -> int:
        """Show the run until it ends, waits for a person, or a signal comes."""
        from leadhand.app.reader import Reader

        reader = Reader(self._settings.store)
        try:
            with Signals(self._let_go, lambda: None) as signals:
                self._signals = signals
                follow = asyncio.create_task(self._followed(reader, after))
                told = asyncio.create_task(signals.came.wait())
                await asyncio.wait([follow, told], return_when=asyncio.FIRST_COMPLETED)
                told.cancel()
                if not follow.done():
                    follow.cancel()
                    await asyncio.gather(follow, return_exceptions=True)
                    self._say_it_goes_on()
                    return 128 + signals.number
                return follow.result()
        finally:
            await reader.close()

    async def _followed(self, reader: Reader, after: int) -> int:
        state, hosted = await self._seen(reader, self._ident, after)
        result = result_of(reader.store, state)
        back = await self._taken_back(reader, state)
        print_end(self._console, state, result, back, hosted=hosted)
        self._code = exit_code(state)
        return self._code

    async def _seen(self, reader: Reader, ident: str, after: int) -> tuple[State, bool]:
        """Show a run until it ends, or waits for a person, or nothing drives it."""
        follower = self._follower = Follower(
            self._console, self._settings, reader, ident, after=after
        )
        follower.records = False
        if self.asks_as:
            prompt = ApprovalPrompt(self._console, self._settings, self.asks_as)
            signals = self._signals

            async def ask(followed: Follower) -> None:
                await prompt.ask(_Asked(self._settings, ident, followed, self.asks_as), signals)

            follower.ask, follower.wants = ask, prompt.wants
        hosted = await follower.follow(leave_when_asked=True, quiet=self._quiet, why=self._why)
        return follower.state, hosted

    async def _taken_back(self, reader: Reader, state: State) -> State | None:
        """Show the rollback that a failed run asks for, like the run."""
        if run_status(state) not in ENDED or not to_roll_back(state):
            return None
        ident = rollback_id(state.run)
        while reader.store.header(ident) is None:
            if not self._driven(state):
                return None
            await asyncio.sleep(LOOK_S)
        self._console.say(f"Taking back what was done, in run {ident}")
        return (await self._seen(reader, ident, 0))[0]

    def _driven(self, state: State) -> bool:
        from leadhand.app.documents import process_of

        return bool(process_of(state))

    def _let_go(self, number: int) -> None:
        word = "Ctrl-C" if number == 2 else "SIGTERM"
        view = self._follower.view if self._follower is not None else None
        (view.note if view is not None else self._console.say)(f"{word}: no longer following.")

    def _say_it_goes_on(self) -> None:
        run, pid = self._ident, self._pid
        follow, cancel = (self._console.command(f"{verb} {run}") for verb in ("watch", "cancel"))
        self._console.say(f"run {run} goes on in process {pid}. Follow it with: {follow}")
        self._console.say(f"Cancel it with: {cancel}")
