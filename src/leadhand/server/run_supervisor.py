"""The runs of a server: resumed when it starts, started through it, followed to their end.

The host drives runs; this module says which, with which workers, and what follows when one ends. A
run that cannot be resumed (its workers are gone) stays as it is, with the reason.

An idle run (it waits for a person, or for 02:00) does not stay in memory. It sleeps: only the time
of its next timer is kept. A command for it, or that timer, loads it from its log again. So memory
grows with the active runs, not with the waiting ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from leadhand.app.composition import planner_name, planner_of, registry_of, reviewers_of
from leadhand.app.contexts import goal_registry
from leadhand.app.documents import process_of, resume_command
from leadhand.app.hosting_service import hosting_service
from leadhand.app.lead import Lead
from leadhand.app.resumable_run import load_resumable
from leadhand.app.rollback import roll_back
from leadhand.codec.events import decode
from leadhand.core.events import RunEnded
from leadhand.core.rollback import rollback_id, to_roll_back
from leadhand.engine.fold import NoWorkers
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import LeadhandError, StoreError, UsageError
from leadhand.models.names import TIERS
from leadhand.settings import Settings, load_settings
from leadhand.settings.trust import require
from leadhand.stores.location import spelled
from leadhand.workers.functions.snapshot import SOURCES
from leadhand.workers.processes.machine import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.events import GuestProcess
    from leadhand.core.host_events import HostState
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.core.state.model import State
    from leadhand.ports import Entry, Host, RunHandle
    from leadhand.server.cached_reader import CachedReader, CachedReaders
    from leadhand.stores.log import KeptStore, Log
    from leadhand.workers.registry import Registry


ENDING = b'"RunEnded"'
SWEEP_S = 2.0
"""The interval of looks for runs that got a command and are not driven, or that may sleep."""
IDLE_S = 10.0
"""How long a run must be idle before it is unloaded."""
AHEAD_S = 60.0
"""A run with a nearer timer stays in memory."""
EARLY_S = 10.0
"""How long before its timer a sleeping run is resumed."""
OPENED_TOGETHER = 100
"""The number of runs resumed at the start before idle ones are unloaded."""


class RunSupervisor:
    """Starts runs, resumes them, and follows them to their end."""

    def __init__(
        self,
        settings: Settings,
        actor: str,
        tell: Callable[[str], None],
        lead: Lead | None = None,
        store: KeptStore | None = None,
    ) -> None:
        """Create a supervisor; `lead` is one that already hosts its runs, such as a fleet's.

        `store` is the log, if it is already open: a service elsewhere hosts the runs, and an engine
        of this process writes it.
        """
        self.settings = settings
        self.registry = registry_of(settings) if lead is None else lead.registry
        self.lead = lead or Lead(
            self.registry,
            None,
            settings.store if store is None else store,
            policy=settings.policy,
            actor=actor,
            on_notice=self.noticed,
            service=hosting_service(settings) if store is not None else None,
            anchoring=settings.anchoring,
            reviewers=reviewers_of(settings),
            models=settings.book,
            environment=settings.environment,
        )
        self.lead.presides = True
        self.began = 0
        """The end of the log before an engine of this process started: later ends are reported."""
        self.unhosted: dict[str, str] = {}
        """Open runs that could not be resumed, and why."""
        self._joining: dict[str, GuestProcess] = {}
        """The own processes of unhosted runs, as last seen."""
        self.listeners: list[Callable[[str, str, str], None]] = []
        self.tell = tell
        self._host: Host | None = None
        self._embedded: EmbeddedHost | None = None
        """The same host where it drives the runs in this process."""
        self._ended: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._places: dict[str, tuple[Settings, Registry]] = {}
        self._resting: set[str] = set()
        self._idle: dict[str, tuple[int, float]] = {}
        """Idle runs: the end of their logs, and since when."""
        self._cached_readers: CachedReaders | None = None
        self._sleeps = lead is None and store is None
        """Whether runs may be unloaded: the provider of a Lead may hold references to its runs."""

    @property
    def host(self) -> Host:
        """The host of the database."""
        assert self._host is not None
        return self._host

    async def open(self, host: Host, cached_readers: CachedReaders) -> None:
        """Resume every open run, and start to supervise all of them."""
        self._host = host
        if isinstance(host, EmbeddedHost):
            self._embedded = host
            host.guests.came = self._came
            host.guests.gone = self._gone
        self._cached_readers = cached_readers
        for number, run in enumerate(await cached_readers.read(_open_runs)):
            if number % OPENED_TOGETHER == OPENED_TOGETHER - 1:
                self._put_aside(0.0)
            if run in host.runs and host.runs[run].driven:
                continue  # by the process that opened the host
            try:
                await self.take_up(run, await cached_readers.read(partial(_state, run)))
            except LeadhandError as error:
                self.unhosted[run] = str(error)
                self.tell(f"run {run} cannot be resumed: {error}")
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._see_to_ends()),
            loop.create_task(self._hear_of_ends() if self._embedded is None else self._sweep()),
        ]

    async def close(self) -> None:
        """Stop supervising."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Beginning.

    def place(self, context: str) -> tuple[Settings, Registry]:
        """Return the settings and workers of a context; the server's own for none."""
        if not context:
            return self.settings, self.registry
        if context not in self._places:
            store = {"project.store": spelled(self.settings.store)}
            settings = load_settings(store, folder=self.settings.root, context=context)
            if self.settings.trust is not None:  # the files may name more than at the start
                settings = require(settings, self.settings.trust)
            self._places[context] = (settings, goal_registry(settings))
        return self._places[context]

    def lead_for(
        self, actor: str, planner: str, policy: Policy, registry: Registry, settings: Settings
    ) -> Lead:
        """Return a Lead that acts for a person, on the same host."""
        made = planner_of(planner, settings) if planner else None
        return Lead(
            registry,
            made,
            settings.store,
            policy=policy,
            actor=actor,
            reviewers=reviewers_of(settings),
            models=settings.book,
            environment=settings.environment,
            planners={planner: made} if made is not None else None,
        )

    def planner_named(self, name: str | None, settings: Settings) -> str:
        """Return the requested planner. Code is named by settings, never by a request."""
        if not name:
            return planner_name(settings)
        book = settings.book
        if name in ("goal", planner_name(settings), *TIERS, *(book.names if book else ())):
            return name
        raise UsageError(
            f"{name[:100]!r} is no planner of this server. Fix: take goal, a tier or a model that "
            "leadhand.toml names, or the planner of [project]"
        )

    # Going on.

    async def take_up(self, run: str, state: State) -> RunHandle:
        """Drive a run again, with its own workers and planner.

        Raise `UsageError` for a run that a process of its own drove: its interpreter, folder,
        environment and settings may differ from the server's, which must not replace them silently.
        """
        if state.process is not None:
            raise UsageError(self._own_process(state, state.process))
        found = load_resumable(self.settings, state, shared=self.registry)
        hosted = await self.host.resume(run, found.registry, found.planner)
        self.unhosted.pop(run, None)
        return hosted

    def _own_process(self, state: State, own: GuestProcess) -> str:
        """Explain why the server does not drive a run that has a process of its own."""
        if process_of(state):
            self._joining[state.run] = own
            return f"run {state.run} is driven by process {own.pid}, which has not joined yet"
        return (
            f"run {state.run} was driven by a process of its own, which has ended. Fix: resume "
            f"it where it was started: {resume_command(state.run, own, self.settings.store)}"
        )

    def _came(self, run: str) -> None:
        self.unhosted.pop(run, None)
        self._joining.pop(run, None)

    def _gone(self, run: str) -> None:
        """Record how to continue a run whose process is gone."""
        state = self.host.load(run, self.registry).state
        if state.process is not None:
            self.unhosted[run] = self._own_process(state, state.process)
            self.tell(self.unhosted[run])

    def _look_for_processes(self) -> None:
        """Record how to continue runs whose own process ended before it joined.

        A dying process closes its connection a moment before it is gone.
        """
        for run in [run for run, own in self._joining.items() if not is_alive(own)]:
            del self._joining[run]
            if run in self.unhosted:
                self._gone(run)

    async def find(self, run: str) -> RunHandle:
        """Return a run from any host; its log may be remote."""
        return await self.host.find(run, self.registry)

    async def shared(self) -> HostState:
        """Return the state shared by all runs."""
        return await self.host.look_shared()

    async def send_command(self, run: str, verb: str, actor: str, details: Doc) -> Doc:
        """Submit a command of a person; durable on return, and then the run is driven."""
        told = await self.host.send_command(run, verb, actor, details, self.registry)
        if run and self._embedded is not None:
            await self.drive(self._embedded.load(run, self.registry))
        return told

    async def reload(self) -> None:
        """Reload workers whose files have changed, for all runs that use them.

        Not during an attempt: it would import the new files. If files cannot be loaded, everything
        stays as it was, and the reason is reported.
        """
        host = self._embedded
        if host is None or host.in_flight or not SOURCES.stale():
            return
        try:
            with SOURCES.reloading():
                registry = registry_of(self.settings)
                found = {
                    run: load_resumable(self.settings, run.state, shared=registry).registry
                    for run in list(host.runs.values())
                    if run.driven
                    and run.state.ended is None
                    and not isinstance(run.workers, NoWorkers)  # another process drives it
                }
        except LeadhandError as error:
            self.tell(f"changed workers cannot be reloaded: {error}")
            return
        self.registry = self.lead.registry = registry
        self._places.clear()
        for run, workers in found.items():
            await host.update_workers(run, workers)

    async def update_workers(self, run: RunHandle) -> None:
        """Update a run to the current workers, before it continues on command of a person."""
        if self._embedded is not None:
            await self.reload()
            await self._embedded.update_workers(self._embedded.load(run.id, self.registry))

    async def drive(self, run: RunHandle) -> None:
        """Drive an open run; a run whose workers are gone waits for them."""
        if run.driven or run.state.ended is not None:
            return
        try:
            await self.take_up(run.id, run.state)
        except LeadhandError as error:
            self.unhosted[run.id] = str(error)
            self.tell(f"run {run.id} cannot be resumed: {error}")

    async def roll_back(self, run: str, actor: str, state: State, reason: str = "") -> RunHandle:
        """Start the rollback of a run, or resume it."""
        if state.process is not None:
            way = resume_command(run, state.process, self.settings.store, "rollback")
            raise UsageError(
                f"run {run} was driven by a process of its own, and is rolled back where it was "
                f"started. Fix: {way}"
            )
        found = load_resumable(self.settings, state, shared=self.registry)
        sources = state.started.workers if state.started else ()
        policy = msgspec.structs.replace(self.settings.policy)
        lead = self.lead_for(actor, "", policy, found.registry, self.settings)
        return await roll_back(lead, self.host, run, sources, reason)

    # Ends.

    def noticed(self, kind: str, run: str, text: str) -> None:
        """Handle a notice: a person is awaited, or a run has ended."""
        if kind == "ended":
            self._ended.put_nowait(run)
        for listener in self.listeners:
            listener(kind, run, text)

    async def _see_to_ends(self) -> None:
        while True:
            ident = await self._ended.get()
            try:
                await self._see_to_end(ident)
            except LeadhandError as error:  # other ends are handled all the same
                self.tell(f"the follow-up of run {ident} failed: {error}")

    async def _see_to_end(self, ident: str) -> None:
        is_elsewhere = self._embedded is None
        run = await self.find(ident) if is_elsewhere else self.host.runs.get(ident)
        if run is None or run.state.ended is None:
            return
        with contextlib.suppress(LeadhandError):
            await self._follow_up(run)
        if run.state.ended is not None:
            self.host.forget(run)

    async def _follow_up(self, run: RunHandle) -> None:
        """Start the rollback of a failed run, if it wants one."""
        if not to_roll_back(run.state) or rollback_id(run.id) in self.host.runs:
            return
        try:
            await self.roll_back(run.id, self.lead.actor, run.state)
        except LeadhandError as error:
            self.tell(f"run {run.id} cannot be rolled back: {error}")

    async def _hear_of_ends(self) -> None:
        """Follow the log for ends of runs hosted elsewhere, which any engine may write."""
        log, after, said = cast("Log", self.host.store), self.began, ""
        while True:
            try:
                async for position, entry in log.follow(after):
                    after, said = position, ""
                    self._hear_of(entry)
            except StoreError as error:
                if str(error) != said:
                    said = str(error)
                    self.tell(f"ends of runs are not received at present: {error}")
            await asyncio.sleep(SWEEP_S)

    def _hear_of(self, entry: Entry) -> None:
        if ENDING in entry.body:
            event = decode(entry.version, entry.body)
            if isinstance(event, RunEnded) and event.rollback:
                self._ended.put_nowait(entry.run)
        for run in list(self.host.runs):
            self.host.discard(run)  # it is read again

    async def _sweep(self) -> None:
        """Drive open runs that came in through the socket; unload those that ended."""
        while True:
            await asyncio.sleep(SWEEP_S)
            resting: set[str] = set()
            for run in list(self.host.runs.values()):
                if run.state.ended is not None:
                    if run.id in self._resting:
                        self.host.forget(run)
                    resting.add(run.id)
                elif not run.driven and run.id not in self.unhosted:
                    await self.drive(run)
            self._resting = resting
            self._put_aside(IDLE_S)
            self._look_for_processes()
            await self._wake()

    def _put_aside(self, idle_s: float) -> None:
        """Unload the runs that were idle for `idle_s` seconds."""
        idle: dict[str, tuple[int, float]] = {}
        now = time.monotonic()
        host = self._embedded
        if host is None or not self._sleeps:
            return
        for run in list(host.runs.values()):
            if not run.is_idle() or not (run.driven or run.id in self.unhosted):
                continue
            seq, since = self._idle.get(run.id, (run.state.seq, now))
            since = since if seq == run.state.seq else now
            if now - since < idle_s or not host.unload(run, ahead_s=AHEAD_S):
                idle[run.id] = (run.state.seq, since)
        self._idle = idle

    async def _wake(self) -> None:
        """Resume the sleeping runs whose timers are near."""
        host = self._embedded
        assert host is not None
        now = host.time()
        for ident in [run for run, each in host.asleep.items() if each.due(now, EARLY_S)]:
            assert self._cached_readers is not None
            try:
                await self.take_up(ident, await self._cached_readers.read(partial(_state, ident)))
            except LeadhandError as error:
                host.asleep.pop(ident, None)
                self.unhosted[ident] = str(error)
                self.tell(f"run {ident} cannot be resumed: {error}")


def _state(run: str, desk: CachedReader) -> State:
    return desk.state(run)


def _open_runs(desk: CachedReader) -> list[str]:
    """Return the runs that have not ended."""
    return [header.run for header in desk.open_runs()]
