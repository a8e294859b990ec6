"""A guest: a process that drives a run of its own, and writes through the host of the database.

It is a host in everything but the database: the same loop, with workers, planner, reviewers and
clocks of this process. Its appends go to the owner of the database over a connection
(`host_side.py` is the other end); it reads the database itself.

Hosts come and go, and a guest outlives them. When its connection is cut it looks for the next host
and tells it which runs it has; when the database has no host any more it becomes the host, and
other guests write through it. Attempts in flight do not notice: only their reports wait to be
written. A host that is asked to (`leadhand serve` is about to open the database) goes the other
way, and becomes a guest again.

    guest ── line cut ──► looks for a host ── found ──► guest
                               │                          ▲
                               └─ nobody ──► host ── asked to step back

Requests sent and not answered when the connection was cut are looked up in the log, and sent again
only if they are not there.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from leadhand.codec.events import decode, encode
from leadhand.core import host_events as hosting
from leadhand.core.events import RunHosted
from leadhand.engine.guest.connection import GuestLine, error_from, pack_entries
from leadhand.engine.guest.host_side import FORMS
from leadhand.engine.host import VERSION, EmbeddedHost, SystemClock
from leadhand.engine.host_socket import perform_command
from leadhand.errors import Conflict, Fenced, LeadhandError, UsageError

if TYPE_CHECKING:
    from leadhand.core.events import Event, GuestProcess
    from leadhand.core.plan.model import Doc
    from leadhand.ports import Entry, RunHandle, RunHeader, RunQuery, RunSlice, Store


LOOK_S = 0.1
"""The interval at which a guest without a host looks for one."""
GRACE_S = 1.0
"""How long a guest leaves the database to others when its host is gone: it may restart."""
STEP_BACK_S = 15.0
"""The same after a request for the database: the requester should get it."""
FIRST_WAIT_S = 30.0
"""How long an existing host may take to answer a new guest."""
NOTE_S = 0.05
"""The minimum interval of forwarded progress."""
UNWRITTEN_BYTES_MAX = 64 << 20
"""Nothing new is started while more than this waits to be written."""


class LogReader(Protocol):
    """The log for reading."""

    @property
    def database_id(self) -> str:
        """Return the unique id of this database."""

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's entries with a seq above `after`, in order."""

    def runs(self) -> list[RunHeader]:
        """Return all runs, oldest first."""

    def header(self, run: str) -> RunHeader | None:
        """Return the header of one run, or None."""

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for."""

    def last_change(self) -> int:
        """Return when the last entry of any run was written; 0 if there is none."""

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact."""

    def close_reader(self) -> None:
        """Close the connection of the reader."""


@dataclass(slots=True)
class _Append:
    future: asyncio.Future[None]
    run: str
    expected: int
    entries: Sequence[Entry]
    summary: bytes | None
    size: int


class SharedStore:
    """The store of a guest: read here; written by its host, or here while this is the host."""

    def __init__(self, reading: LogReader, put: Callable[[bytes], str]) -> None:
        """Create it for a reader of the log; `put` stores an artifact."""
        self._reading = reading
        self._put = put
        self.own: Store | None = None
        """The store itself, while this process is the host."""
        self._line: GuestLine | None = None
        self._unwritten: list[_Append] = []
        self.path: Any = getattr(reading, "path", None)

    # Reading.

    @property
    def database_id(self) -> str:
        """The unique id of this database."""
        return self._reading.database_id

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return a run's entries with a seq above `after`, in order."""
        return self._reading.read(run, after)

    def runs(self) -> list[RunHeader]:
        """Return all runs, oldest first."""
        return self._reading.runs()

    def header(self, run: str) -> RunHeader | None:
        """Return the header of one run, or None."""
        return self._reading.header(run)

    def find_runs(self, query: RunQuery) -> RunSlice:
        """Return one page of the runs that `query` is for."""
        return self._reading.find_runs(query)

    def last_change(self) -> int:
        """Return when the last entry of any run was written; 0 if there is none."""
        return self._reading.last_change()

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they do not match its name."""
        return self._reading.get_artifact(ref)

    def put_artifact(self, data: bytes) -> str:
        """Store bytes durably; return their name, `sha256:…`."""
        return self._put(data)

    def follow(self, after: int = 0) -> Any:
        """Not available: only the owner of the database serves this."""
        raise NotImplementedError

    # Writing.

    def room(self) -> bool:
        """Return whether new work may start."""
        if self.own is not None:
            return self.own.room()
        return sum(each.size for each in self._unwritten) < UNWRITTEN_BYTES_MAX

    def claim(self) -> int:
        """Return a new owner number for a guest, while this process is the host."""
        if self.own is None:
            raise Fenced("this process is not the host of the database")
        return self.own.claim()

    def append(
        self,
        run: str,
        expected: int,
        entries: Sequence[Entry],
        summary: bytes | None = None,
        *,
        alone: bool = False,
    ) -> asyncio.Future[None]:
        """Append entries to a run's log; the future resolves once they are durable."""
        if self.own is not None and not self._unwritten:
            return self.own.append(run, expected, entries, summary, alone=alone)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        size = sum(len(entry.body) + 200 for entry in entries)
        append = _Append(future, run, expected, entries, summary, size)
        self._unwritten.append(append)
        if self._line is not None:
            self._send(append)
        return future

    def write_through(self, line: GuestLine) -> None:
        """Write through a host from now on: send all unwritten entries."""
        self.own, self._line = None, line
        for append in self._missing():
            self._send(append)

    def write_here(self, store: Store) -> None:
        """Write as the host from now on: append all unwritten entries."""
        self.own, self._line = store, None
        missing, self._unwritten = self._missing(), []
        for append in missing:
            done = store.append(append.run, append.expected, append.entries, append.summary)
            done.add_done_callback(partial(_pass_on, append.future))

    def wait(self) -> None:
        """Keep new entries while there is no host."""
        self.own = self._line = None

    def _send(self, append: _Append) -> None:
        assert self._line is not None
        line = self._line
        answer = line.request(
            "append",
            run=append.run,
            expected=append.expected,
            entries=pack_entries(append.entries),
            summary=None if append.summary is None else append.summary.decode(),
        )
        answer.add_done_callback(lambda done: self._answered(line, append, done))

    def _answered(self, line: GuestLine, append: _Append, done: asyncio.Future[Any]) -> None:
        error = done.exception() if not done.cancelled() else None
        if line.closed and error is not None:
            return  # unknown: it is looked up in the log once there is a host again
        if append in self._unwritten:
            self._unwritten.remove(append)
        if not append.future.done():
            append.future.set_exception(error) if error else append.future.set_result(None)

    def give_up(self, error: BaseException) -> None:
        """Fail all waiters: nothing more is written."""
        unwritten, self._unwritten = self._unwritten, []
        for append in unwritten:
            if not append.future.done():
                append.future.set_exception(error)

    def _missing(self) -> list[_Append]:
        """Return the unwritten appends that are not in the log; resolve the others."""
        missing = []
        for append in self._unwritten:
            last = append.entries[-1]
            there = [e for e in self._reading.read(append.run, last.seq - 1) if e.seq == last.seq]
            if not there:
                missing.append(append)
            elif not append.future.done():
                if there[0].hash == last.hash:
                    append.future.set_result(None)
                else:
                    taken = Fenced(f"another process has taken over run {append.run}")
                    append.future.set_exception(taken)
        self._unwritten = missing
        return list(missing)

    async def close(self) -> None:
        """Close the store and the reader."""
        own, self.own = self.own, None
        if own is not None:
            await own.close()
        self._reading.close_reader()


def _pass_on(to: asyncio.Future[None], done: asyncio.Future[None]) -> None:
    if to.done():
        return
    if done.cancelled():
        to.cancel()
    elif (error := done.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAccess:
    """A guest's access to the database, provided by the application."""

    connect: Callable[[Doc], Awaitable[GuestLine | None]]
    """Opens a connection to the host with this first request; None if no host listens."""
    inherit: Callable[[Guest], Awaitable[bool]]
    """Becomes the host; False if another process is."""
    step_back: Callable[[], Awaitable[None]]
    """Releases what `inherit` took."""


class Guest(EmbeddedHost):
    """Drives runs of this process on a database that another process may own."""

    def __init__(
        self, store: SharedStore, ways: DatabaseAccess, process: GuestProcess, **more: Any
    ) -> None:
        super().__init__(store, **more)
        self._shared_store = store
        self._ways = ways
        self._process = process
        self._line: GuestLine | None = None
        self._listening: asyncio.Task[None] | None = None
        self._taken: dict[str, int] = {}
        self._found = asyncio.Event()
        """Set while there is a host to write through, or this process is it."""
        self._notes: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def presides(self) -> bool:
        """Whether this process is the host of the database now."""
        return self._shared_store.own is not None

    async def open(self) -> None:
        """Join the host of the database, or become it if there is none."""
        if self._clock is None:
            latest = self.store.last_change()
            self._clock = SystemClock(not_before=max(latest, self.not_before))
        await self._find_host(grace_s=0.0, limit_s=FIRST_WAIT_S)

    async def preside(self, store: Store) -> None:
        """Continue as the host: the lock is ours, and `store` is the log to write to."""
        self._fold()
        self.owner = store.claim()
        self._line = None
        self._shared_store.write_here(store)
        self._found.set()
        await EmbeddedHost.tell_host(
            self, hosting.HostOpened(self.owner, os.getpid(), VERSION, self._max_concurrency)
        )
        self.breakers.watch_all()

    async def step_back(self) -> None:
        """Let another process become the host, and continue as its guest."""
        if not self.presides:
            raise Conflict("this process is not the host any more")
        self._found.clear()
        self.spawn(self._stepped_back())

    async def _stepped_back(self) -> None:
        self._shared_store.wait()
        await self._ways.step_back()
        await self._find_host(grace_s=STEP_BACK_S)

    def fail(self, error: BaseException) -> None:
        """Stop at once; fail all who wait for a host."""
        super().fail(error)
        self._shared_store.give_up(error)
        self._found.set()

    # The line.

    async def _find_host(self, *, grace_s: float, limit_s: float | None = None) -> None:
        began = time.monotonic()
        while not self.closing and self.failed is None:
            try:
                if await self._joined():
                    return
                late = time.monotonic() - began >= grace_s
                if late and await self._ways.inherit(self):
                    return
            except LeadhandError as error:
                if limit_s is not None:
                    raise
                self.fail(error)
                return
            if limit_s is not None and time.monotonic() - began > limit_s:
                raise Conflict("the host of this database does not answer")
            await asyncio.sleep(LOOK_S)

    async def _joined(self) -> bool:
        """Join the listening host, if any; return False if there is none or it is about to end."""
        hello = {"verb": "join", "pid": self._process.pid, "forms": FORMS}
        line = await self._ways.connect(hello)
        if line is None:
            return False
        first = await line.receive()
        if first is None or first["kind"] == "refused":
            line.close()
            error = error_from(first["name"], first["error"]) if first is not None else None
            if error is None or isinstance(error, Fenced):
                return False
            raise error
        self._fold()
        self._listening = asyncio.get_running_loop().create_task(self._listen(line))
        try:
            for run, owner in list(self._taken.items()):  # ended ones too: maybe unwritten
                await line.ask("take", run=run, owner=owner)
        except LeadhandError:
            if line.closed:
                return False  # the connection was cut again
            line.close()
            raise
        self._line = line
        self._shared_store.write_through(line)
        self._found.set()
        self.breakers.watch_all()
        self.poke_all()
        return True

    async def _listen(self, line: GuestLine) -> None:
        while (frame := await line.receive()) is not None:
            match frame["kind"]:
                case "shared":
                    self._refresh_shared()
                case "word":
                    self.spawn(self._carry_out(line, frame))
                case "live":
                    self.spawn(self._show(line, frame))
                case _:
                    pass  # a host of the same version sends nothing else
        line.close()
        if self._line is line:
            self._line = None
            self._found.clear()
            self._shared_store.wait()
            if not self.closing:
                self.spawn(self._find_host(grace_s=GRACE_S))

    async def _carry_out(self, line: GuestLine, frame: Doc) -> None:
        try:
            run = self.runs.get(str(frame["run"]))
            if run is None:
                raise UsageError(f"there is no run {frame['run']} in this process")
            details = frame.get("details") or {}
            told = await perform_command(
                self, run, str(frame["verb"]), str(frame["actor"]), details
            )
            line.answer(frame["ask"], told)
        except Exception as error:  # noqa: BLE001 - whatever is asked gets an answer
            line.answer(frame["ask"], error=error)

    async def _show(self, line: GuestLine, frame: Doc) -> None:
        run = self.runs.get(str(frame["run"]))
        line.answer(frame["ask"], None if run is None else await run.live(str(frame["step"])))

    def _refresh_shared(self) -> None:
        for entry in self.store.read(hosting.HOST_STREAM, self.shared.seq):
            hosting.evolve_host(self.shared, decode(entry.version, entry.body))
        self.poke_all()

    async def _host_line(self) -> GuestLine | None:
        """Return the connection to the host, once there is one; None if this is the host."""
        await self._found.wait()
        if self.failed is not None:
            raise self.failed
        return self._line

    # Duties of a host, through another process.

    async def tell_host(self, event: Event) -> None:
        """Append one event to the `$host` stream; return once it is durable."""
        while (line := await self._host_line()) is not None:
            try:
                await line.ask("share", event=encode(event).decode())
                self._refresh_shared()
                return
            except LeadhandError:
                if not line.closed:
                    raise
            await self._host_line()
            if isinstance(event, hosting.ApprovalUsed) and self._used_here(event):
                return  # it was written, and only the answer was lost
        await EmbeddedHost.tell_host(self, event)

    def _used_here(self, event: hosting.ApprovalUsed) -> bool:
        return self.shared.used.get(event.id) == event.run

    def tell_host_later(self, event: Event) -> None:
        """Append one event to the `$host` stream without waiting; it may be lost."""
        if self._line is None:
            if self.presides:
                EmbeddedHost.tell_host_later(self, event)
            return
        hosting.evolve_host(self.shared, event)  # known here at once; the log repeats it
        self.shared.seq -= 1
        self._line.tell("share", event=encode(event).decode())

    async def take(self, run: str) -> None:
        """Take a run for this process, before it is started or resumed."""
        while (line := await self._host_line()) is not None:
            try:
                self.owner = self._taken[run] = int(await line.ask("take", run=run))
                break
            except LeadhandError:
                if not line.closed:
                    raise
        else:
            self._taken[run] = self.owner
        if (loaded := self.runs.get(run)) is not None:
            loaded.load_from(self.store.read(run))

    def hosted_event(self) -> RunHosted:
        """Return the event that records that a run is started or resumed here, with its process."""
        return RunHosted(self.owner, self._process)

    def forget(self, run: RunHandle) -> None:
        """Unload a run that has ended."""
        super().forget(run)
        if run.state.ended is not None:
            self._taken.pop(run.id, None)
            self._leave(run.id)

    def notice(self, kind: str, run: str, text: str) -> None:
        """Notify the listener, and the host, which anchors important changes."""
        super().notice(kind, run, text)
        if self._line is not None and run:
            self._line.tell("notice", what=kind, run=run)

    def noted(self, run: str, what: str, details: tuple[Any, ...]) -> None:
        """Forward notes that are not logged: for each step, the last of each kind per interval."""
        if not self._notes:
            asyncio.get_running_loop().call_later(NOTE_S, self._tell_notes)
        self._notes[run, what, details[0]] = details

    def _tell_notes(self) -> None:
        notes, self._notes = self._notes, {}
        for (run, what, _step), details in notes.items() if self._line is not None else ():
            assert self._line is not None
            self._line.tell("note", run=run, what=what, details=list(details))

    def _leave(self, run: str) -> None:
        if self._line is not None:
            self._line.tell("leave", run=run)

    async def close(self) -> None:
        """Stop all attempts, wait until they are gone, and disconnect."""
        self.closing = True
        await super().close()
        if self._line is not None:
            line, self._line = self._line, None
            line.close()
            await line.ended()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
