"""Guests, the host's side: processes that drive a run of their own beside the host.

A guest has its own interpreter, folder, environment and settings; its workers, planner and
reviewers are loaded there and nowhere else, so a broken module harms no other run. The host does
for it what only the owner of the database can do: append to the log, number its owners, keep the
`$host` stream, and forward commands of people. `process.py` is the other side.

Laws of this file
1. A run has one writer. While a guest has a run, the host appends nothing to it on its own:
   commands of people go through the guest's loop, as they would through the host's.
2. A guest writes to runs that it has taken, and to no other.
3. A guest that is gone leaves its run as its log says; `leadhand resume` takes it up again.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leadhand.codec.events import decode
from leadhand.core import host_events as hosting
from leadhand.core.commands import Command
from leadhand.core.events import DECIDE_VERSION, EVENT_VERSION
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import IllegalEvent, State
from leadhand.core.views.run import run_status
from leadhand.engine.fold import NoWorkers
from leadhand.engine.guest.connection import GuestLine, unpack_entries
from leadhand.engine.run import Run
from leadhand.errors import Bug, Conflict, Fenced, LeadhandError, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.events import Event, GuestProcess
    from leadhand.core.plan.model import Doc
    from leadhand.engine.host import EmbeddedHost


TOLD = (hosting.ApprovalUsed, hosting.CircuitOpened, hosting.CircuitClosed)
"""Events of the `$host` stream that a guest may append."""
NOTES = ("note_progress",)
"""Notes to a run that are shown and not logged, by the names of its methods.

A method of `Run` that is listed here calls `host.noted(run, name, details)`; a guest forwards that,
and the host's `GuestRun` gets the same call.
"""
FORMS = [EVENT_VERSION, DECIDE_VERSION]
"""Both sides must read and decide alike."""
LOOK_S = 0.1
WORD_WAIT_S = 25.0
"""How long a guest may take for a command of a person: a hanging guest blocks no other."""
LIVE_WAIT_S = 5.0
"""The same for the output of one of its steps."""


class GuestRun(Run):
    """A run that a guest drives, as its host knows it: by its log, and by the guest's notes."""

    def __init__(self, host: EmbeddedHost, ident: str, line: GuestLine, pid: int) -> None:
        self._kept = State()
        self._notes: dict[str, tuple[str, float | None]] = {}
        super().__init__(host, ident, NoWorkers(), None)
        self.driven = True
        self.pid = pid
        self._line = line

    @property
    def state(self) -> State:
        """The state by the log now; a guest that writes an unreadable log is disconnected."""
        try:
            for entry in self.host.store.read(self.id, self._kept.seq):
                evolve(self._kept, decode(entry.version, entry.body), entry.at)
        except (IllegalEvent, StoreError):
            self._line.close()
        return self._kept

    @state.setter
    def state(self, _state: State) -> None:
        """Ignored: only the log determines the state."""

    @property
    def progress(self) -> dict[str, tuple[str, float | None]]:
        """The progress of steps in flight, as reported by their workers."""
        busy = self.state.in_flight
        self._notes = {step: note for step, note in self._notes.items() if step in busy}
        return dict(self._notes)

    @progress.setter
    def progress(self, _notes: dict[str, tuple[str, float | None]]) -> None:
        """Ignored: only the guest determines the progress."""

    def note_progress(self, step: str, message: str, fraction: float | None) -> None:
        """Store the progress that a worker reported."""
        self._notes[step] = (message[:500], fraction)

    async def submit_and_wait(self, what: Any) -> None:
        """Submit a command, or a function that makes one, to the guest."""
        if not isinstance(what, Command):
            make = getattr(what, "word", None)
            if make is None:
                raise Bug("what is said to a run of another process must be data")
            what = make(self.state, self.host.time())
        await self.speak(what.verb, what.actor, what.details)

    async def speak(self, verb: str, actor: str, details: Doc) -> Doc:
        """Have the guest carry out a command; return once it is durable."""
        said = {"run": self.id, "verb": verb, "actor": actor, "details": details}
        told: Doc = await self._line.ask("word", wait_s=WORD_WAIT_S, **said)
        return told

    async def live(self, step: str) -> Doc | None:
        """Return the progress of a step in flight from the guest; None if the guest is gone."""
        try:
            found: Doc | None = await self._line.ask(
                "live", wait_s=LIVE_WAIT_S, run=self.id, step=step
            )
        except LeadhandError:
            return None
        return found

    async def wait_idle(self) -> str:
        """Wait until the run has ended or waits for a person."""
        while (status := run_status(self.state)) not in ("waiting", "paused"):
            if self.state.ended is not None:
                break
            await asyncio.sleep(LOOK_S)
        return status

    async def wait_durable(self) -> None:
        """Return at once: no inputs are queued here."""

    def is_idle(self) -> bool:
        """Return False: while its guest is connected, the host must not unload it."""
        return False

    def poke(self) -> None:
        """Do nothing: its guest drives it."""


class Guests:
    """The guests of one host."""

    def __init__(self, host: EmbeddedHost) -> None:
        self._host = host
        self._all: set[_Guest] = set()
        self.gone: Callable[[str], None] = lambda _run: None
        """Called with a run that has not ended and whose guest is gone."""
        self.came: Callable[[str], None] = lambda _run: None
        """Called with a run that a guest drives from now on."""
        self.lives: Callable[[GuestProcess], bool] = lambda _process: False
        """Returns whether a process named in a log is still alive."""
        self.noticed: Callable[[str, str], None] = lambda _kind, _run: None
        """Called when a guest's run waits for a person, or has ended."""

    async def attend(
        self, hello: Doc, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one guest, from its first request until it disconnects."""
        line = GuestLine(reader, writer)
        guest = _Guest(self._host, self, line, int(hello.get("pid", 0)))
        if (refusal := self._refusal(hello)) is not None:
            line.tell("refused", error=str(refusal), name=type(refusal).__name__)
            line.close()
            return
        self._all.add(guest)
        line.tell("welcome", pid=os.getpid())
        try:
            while (frame := await line.receive()) is not None:
                guest.heard(frame)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # a malformed frame: the guest is disconnected
        finally:
            self._all.discard(guest)
            guest.leave_all()
            line.close()
            guest.over.set()

    def _refusal(self, hello: Doc) -> LeadhandError | None:
        host = self._host
        if host.closing or host.draining or host.failed is not None:
            return Fenced("the host is about to end")
        if hello.get("forms") != FORMS:
            return Conflict(
                f"the host of this database (process {os.getpid()}) runs another version of "
                "Leadhand, so this run cannot be written through it. Fix: run it with the host's "
                "version, or start the host again with this one"
            )
        return None

    def tell_shared(self) -> None:
        """Tell all guests that the `$host` stream has a new event."""
        for guest in self._all:
            guest.line.tell("shared")

    async def close(self) -> None:
        """Disconnect all guests; they look for the next host."""
        guests = list(self._all)
        for guest in guests:
            guest.line.close()
        for guest in guests:
            await guest.over.wait()


class _Guest:
    """One guest."""

    def __init__(self, host: EmbeddedHost, guests: Guests, line: GuestLine, pid: int) -> None:
        self.line = line
        self._host = host
        self._guests = guests
        self._pid = pid
        self._runs: dict[str, GuestRun] = {}
        self.over = asyncio.Event()
        """Set once the guest is disconnected and handled."""

    def heard(self, frame: Doc) -> None:
        """Handle one frame."""
        number = frame.get("ask")
        match frame.get("kind"):
            case "append":
                self._append(number or 0, frame)
            case "take":
                self._host.spawn(self._answered(number or 0, self._take(frame)))
            case "share":
                self._host.spawn(self._answered(number or 0, self._share(frame)))
            case "note":
                self._note(frame)
            case "notice":
                self._guests.noticed(str(frame["what"]), str(frame["run"]))
            case "leave":
                self._leave(str(frame["run"]))
            case _:
                self.line.close()

    async def _answered(self, number: int, work: Any) -> None:
        try:
            self.line.answer(number, await work)
        except Exception as error:  # noqa: BLE001 - whatever is asked gets an answer
            self.line.answer(number, error=error)

    def _append(self, number: int, frame: Doc) -> None:
        run = str(frame["run"])
        if run not in self._runs:
            self.line.answer(number, error=Fenced(f"run {run} is not this process's to write"))
            return
        summary = frame.get("summary")
        future = self._host.store.append(
            run,
            int(frame["expected"]),
            unpack_entries(run, frame["entries"]),
            None if summary is None else summary.encode(),
        )
        future.add_done_callback(lambda done: self._appended(number, done))

    def _appended(self, number: int, done: asyncio.Future[None]) -> None:
        error = Conflict("the host ended") if done.cancelled() else done.exception()
        self.line.answer(number, error=error)

    async def _take(self, frame: Doc) -> int:
        """Give a run to the guest; return the number of its owner.

        A number in the request is the one the guest got from an earlier host.
        """
        host, ident, had = self._host, str(frame["run"]), int(frame.get("owner", 0))
        if ident.startswith("$"):
            raise UsageError(f"{ident} is not a run")
        hosted = host.runs.get(ident)
        if hosted is not None and hosted.driven and ident not in self._runs:
            pid = hosted.pid if isinstance(hosted, GuestRun) else os.getpid()
            raise Conflict(f"run {ident} is hosted by process {pid} already")
        if hosted is not None and not hosted.driven:
            await hosted.wait_durable()
            host.runs.pop(ident, None)
        run = GuestRun(host, ident, self.line, self._pid)
        if had:
            # Lower: the event of the takeover is not written yet, and comes with the guest's
            # entries.
            if run.state.owner > had:
                raise Fenced(f"another process has taken over run {ident}")
        else:
            self._refuse_driven(run.state)
        host.asleep.pop(ident, None)
        host.runs[ident] = self._runs[ident] = run
        self._guests.came(ident)
        if had:
            return had
        owner = host.store.claim()
        await host.tell_host(hosting.RunJoined(ident, owner, self._pid))
        return owner

    def _refuse_driven(self, state: State) -> None:
        """Raise `Conflict` if the run sleeps here, or its own process is only between two hosts."""
        own = state.process
        if own is None and state.run in self._host.asleep and state.owner == self._host.owner:
            raise Conflict(f"run {state.run} is hosted by process {os.getpid()} already")
        if own is None or own.pid == self._pid or not self._guests.lives(own):
            return
        raise Conflict(f"run {state.run} is driven by process {own.pid} already")

    async def _share(self, frame: Doc) -> None:
        event: Event = decode(EVENT_VERSION, str(frame["event"]).encode())
        if not isinstance(event, TOLD):
            raise UsageError(f"{type(event).__name__} is not for a guest to say")
        if isinstance(event, hosting.ApprovalUsed):
            # Another run may have used it since the guest checked.
            hosting.refuse_used(self._host.shared, event.id, event.actor)
        await self._host.tell_host(event)

    def _note(self, frame: Doc) -> None:
        run, what = self._runs.get(str(frame["run"])), frame["what"]
        if run is not None and what in NOTES:
            getattr(run, what)(*frame["details"])

    def _leave(self, ident: str) -> None:
        run = self._runs.pop(ident, None)
        if run is None:
            return
        if self._host.runs.get(ident) is run:
            del self._host.runs[ident]
        if self._host.closing:
            return
        with suppress(LeadhandError):
            if run.state.started is not None and run.state.ended is None:
                self._guests.gone(ident)

    def leave_all(self) -> None:
        """Release all its runs: the guest is gone."""
        for ident in list(self._runs):
            self._leave(ident)
