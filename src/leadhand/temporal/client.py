"""Speaking to runs that Temporal hosts: what the application does with a host, from outside.

A `Distant` stands where the embedded host stands: it starts runs and finds them, and what it
knows of them it reads from the log, as every view does. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from leadhand import errors
from leadhand.codec.events import decode
from leadhand.core import host as hosting
from leadhand.core.evolve import evolve
from leadhand.core.rollback import rollback_id
from leadhand.core.state import Now, State
from leadhand.core.views import ENDED, run_status
from leadhand.core.words import Word
from leadhand.engine import shelf
from leadhand.engine.approvals import admit
from leadhand.engine.secrets import secrets_of
from leadhand.errors import (
    Bug,
    Conflict,
    LeadhandError,
    PlanInvalid,
    Unreachable,
    UsageError,
)
from leadhand.temporal.hands import engine_queue
from leadhand.temporal.looking import hosted_runs, missing, served_by, workflow_id
from leadhand.temporal.orders import RUN, SAY, Begin, Place, Ways
from leadhand.temporal.payloads import Shelf, converter

if TYPE_CHECKING:
    from leadhand.core import events as ev
    from leadhand.core.plan import Doc
    from leadhand.ports import Entry, Planner, Store, Workers

LOOK_S = 0.05
LOOK_MAX_S = 0.5
SPOKEN = ("stop_all", "lift")
ENGINE_WAIT_S = 10.0
"""How long a word may go unanswered before it is looked who should hear it."""
BEGIN_WAIT_S = 60.0
"""The same for the first event of a run: an engine may be about to start."""


async def connect(address: str, namespace: str = "default", shelf: Shelf | None = None) -> Client:
    """A client of a Temporal server; UsageError when nobody is there, or not this namespace."""
    try:
        client = await Client.connect(address, namespace=namespace, data_converter=converter(shelf))
    except (RuntimeError, ValueError, RPCError) as error:
        words = str(error).partition(": tonic")[0].partition(": Status {")[0].rstrip(".")
        raise UsageError(
            f"no Temporal server at {address}: {words[:200]}. "
            "Fix: start one, or name another with --temporal or [temporal] address"
        ) from None
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=namespace)
        )
    except RPCError as error:  # others are heard of when something is asked for
        if error.status is RPCStatusCode.NOT_FOUND:
            raise UsageError(
                f"the Temporal server at {address} has no namespace {namespace}. Fix: name another "
                f"as [temporal] namespace, or temporal operator namespace create {namespace}"
            ) from None
    return client


class Distant:
    """The host of runs that live elsewhere."""

    def __init__(
        self, client: Client, store: Store, ways: Ways | None = None, *, lent: bool = True
    ) -> None:
        """`lent`: the store is somebody else's, and stays open."""
        self.client = client
        self.store = store
        self.ways = ways or Ways()
        self._lent = lent
        self.runs: dict[str, DistantRun] = {}
        self.failed: BaseException | None = None
        self.draining = False
        self.owner = self.in_flight = 0

    @property
    def shared(self) -> hosting.HostState:
        """What belongs to no single run."""
        return _shared(self.store.read(hosting.HOST_STREAM))

    def time(self) -> Now:
        """This machine's clock: for showing, never for deciding."""
        wall = time.time_ns() // 1000
        return Now(wall, wall)

    async def start(self, started: ev.RunStarted, workers: Workers, planner: Planner) -> DistantRun:
        """Begin a run; returns once its start is in the log."""
        proposal = getattr(planner, "proposal", None)
        secrets = secrets_of(started, workers)
        if secrets is not None:
            secrets.refuse([started], proposal)
        if started.approvals and not hasattr(self.store, "append"):
            raise UsageError(
                "an approval is good for one run, and that is written down in the log, which only "
                "the engine can write while it is a file. Fix: keep the log in PostgreSQL, or run "
                "the plan and approve it with `leadhand review RUN approve`"
            )
        await admit(self, started, proposal)  # type: ignore[arg-type]
        stopped = self.shared.stopped
        begin = Begin(started.run, self.ways, started, proposal, stopped=stopped)
        try:
            await self._launch(begin, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            raise Conflict(f"there is a run {started.run} already; take another id") from None
        run = DistantRun(self, started.run)
        await run.until(1)
        self.runs[run.id] = run
        return run

    async def engines(self) -> list[str]:
        """Who serves runs here; nobody: what is begun waits."""
        try:
            return await served_by(self.client, engine_queue(self.ways.prefix), workflows=True)
        except RPCError as error:
            raise unanswered(error) from None

    async def _launch(self, begin: Begin, reuse: WorkflowIDReusePolicy) -> None:
        try:
            await self.client.start_workflow(
                RUN,
                begin,
                id=workflow_id(self.ways.prefix, begin.run),
                task_queue=engine_queue(self.ways.prefix),
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            )
        except RPCError as error:
            raise unanswered(error) from None

    def load(self, ident: str, _workers: Workers | None = None) -> DistantRun:
        """A run, as its log tells."""
        run = self.runs.get(ident) or DistantRun(self, ident)
        run.refresh()
        if run.state.started is None:
            raise UsageError(f"there is no run {ident}")
        self.runs[ident] = run
        return run

    async def adopt(self, ident: str, _workers: Workers, _planner: Planner | None) -> DistantRun:
        """See to it that a run is hosted; one that nobody hosts goes on from its log."""
        run = self.load(ident)
        if run.state.ended is None and not await run.hosted():
            await self._take_up(run)
        return run

    async def _take_up(self, run: DistantRun) -> None:
        place = Place(run.state.seq, run.head)
        hosted, stopped = run.state.ended is None, self.shared.stopped
        begin = Begin(run.id, self.ways, place=place, hosted=hosted, stopped=stopped)
        try:
            await self._launch(begin, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        except WorkflowAlreadyStartedError:
            return

    async def say(self, ident: str, verb: str, actor: str, details: Doc) -> Doc:
        """Say something to a run, or to all of them; in the log when it returns."""
        word = Word(verb, actor, details)
        if verb in shelf.VERBS:
            return await shelf.word(self, verb, actor, details)  # type: ignore[arg-type]
        if verb in SPOKEN:
            await self._tell_host(word)
            try:
                for each in sorted(await hosted_runs(self.client, self.ways.prefix)):
                    await DistantRun(self, each).updated(word, gone_is_fine=True)
            except RPCError as error:
                raise unanswered(error) from None
            return {"stopped": verb == "stop_all"}
        run = self.runs.get(ident) or DistantRun(self, ident)
        run.refresh()
        if verb == "redo":
            if self.store.header(rollback_id(ident)) is not None:
                raise Conflict(f"what run {ident} did was taken back by {rollback_id(ident)}")
            if run.state.ended is not None:
                word(run.state, self.time())  # refused here rather than after a start
                await self._take_up(run)
        return await run.speak(word)

    async def _tell_host(self, word: Word) -> None:
        """Record what goes for all runs, where this process can write."""
        if not hasattr(self.store, "append"):
            return
        reason = str(word.details.get("reason", ""))
        event: ev.Event = hosting.StopAllLifted(word.actor)
        if word.verb == "stop_all":
            event = hosting.StopAllRequested(word.actor, reason)
        await self.tell_host(event)

    async def tell_host(self, event: ev.Event) -> None:
        """Record what belongs to no single run; an approval is used once, whoever else begins."""

        def decide(entries: list[Entry]) -> ev.Event:
            if isinstance(event, hosting.ApprovalUsed):
                hosting.refuse_used(_shared(entries), event.id, event.actor)
            return event

        await shelf.append_to(self, hosting.HOST_STREAM, decide)  # type: ignore[arg-type]

    def fail(self, error: BaseException) -> None:
        """It cannot go on."""
        self.failed = error

    def forget(self, run: DistantRun) -> None:
        """A run that ended needs no attention."""
        self.runs.pop(run.id, None)

    async def drain(self) -> None:
        """Nothing runs here, and nothing new is begun."""
        self.draining = True

    async def close(self) -> None:
        """Let go of the log; the connection goes with the process."""
        if not self._lent:
            await self.store.close()


class DistantRun:
    """A run that lives elsewhere, as its log tells."""

    def __init__(self, host: Distant, ident: str) -> None:
        self.host = host
        self.id = ident
        self.state = State()
        self.head = ""
        self.progress: dict[str, tuple[str, float | None]] = {}
        self.driven = True

    @property
    def _handle(self) -> WorkflowHandle[Any, Any]:
        ident = workflow_id(self.host.ways.prefix, self.id)
        return self.host.client.get_workflow_handle(ident)

    def refresh(self) -> State:
        """Read what is new in the log."""
        for entry in self.host.store.read(self.id, self.state.seq):
            evolve(self.state, decode(entry.version, entry.body), entry.at)
            self.head = entry.hash.hex()
        return self.state

    async def hosted(self) -> bool:
        """Whether a workflow drives it."""
        try:
            told = await self._handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise unanswered(error) from None
        return told.status is WorkflowExecutionStatus.RUNNING

    async def until(self, seq: int) -> None:
        """Wait until the log has so many events; Unreachable when nobody could write them."""
        wait, look_at = LOOK_S, time.monotonic() + BEGIN_WAIT_S
        while self.refresh().seq < seq:
            await asyncio.sleep(wait)
            wait = min(LOOK_MAX_S, wait * 1.5)
            if time.monotonic() > look_at:
                await self._look_for_engine()
                look_at = time.monotonic() + BEGIN_WAIT_S

    async def _look_for_engine(self) -> None:
        try:
            gone = await missing(self.host.client, self.host.ways.prefix, ())
        except RPCError as error:
            raise unanswered(error) from None
        if gone:
            raise Unreachable(f"run {self.id} begins when an engine is there; {gone[0]}")

    async def said(self, what: Any) -> None:
        """Say something that was meant for a host here: a word, or what becomes one."""
        if not isinstance(what, Word):
            make = getattr(what, "word", None)
            if make is None:
                raise Bug("what is said to a run elsewhere must be data")
            what = make(self.refresh(), self.host.time())
        await self.speak(what)

    async def speak(self, word: Word) -> Doc:
        """Say a word; it is in the log when this returns."""
        try:
            told = await self.updated(word)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise self._unheard() from None
            raise unanswered(error) from None
        self.refresh()
        return told

    async def updated(self, word: Word, *, gone_is_fine: bool = False) -> Doc:
        """Say a word to the workflow, and wait for its answer as long as there may be one.

        `gone_is_fine`: a run that has just ended needs not hear it.
        """
        task = asyncio.ensure_future(
            self._handle.execute_update(SAY, word, result_type=dict[str, Any])
        )
        try:
            while not (await asyncio.wait([task], timeout=ENGINE_WAIT_S))[0]:
                if gone := await missing(self.host.client, self.host.ways.prefix, ()):
                    raise Unreachable(
                        f"nobody has taken it yet, and it may still be carried out: {gone[0]}"
                    )
            told: Doc = task.result()
            return told
        except RPCError as error:
            if not gone_is_fine or error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return {}
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                raise rebuilt(cause.type or "", cause.message) from None
            again = "Fix: look again, and say it again"
            raise Conflict(f"it was not taken: {cause}. {again}") from None
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise Unreachable(
                f"the Temporal server was lost before it answered ({error}), and what was said may "
                "still be carried out. Fix: look again, and say it again if it was not"
            ) from None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _unheard(self) -> LeadhandError:
        """Why nobody hears what is said to this run."""
        state = self.refresh()
        if state.started is None:
            return UsageError(f"there is no run {self.id}")
        if state.ended is not None:
            return Conflict(f"run {self.id} has ended ({state.ended.status})")
        return Conflict(f"nobody hosts run {self.id}. Fix: leadhand resume {self.id}")

    async def settled(self) -> str:
        """Wait until the run ended, or goes on only when a person says so."""
        wait = LOOK_S
        while not self._rests():
            await asyncio.sleep(wait)
            before = self.state.seq
            wait = LOOK_S if self.refresh().seq > before else min(LOOK_MAX_S, wait * 1.5)
        return run_status(self.state)

    def _rests(self) -> bool:
        state = self.refresh()
        status = run_status(state)
        if status in ENDED:
            return True
        busy = state.in_flight or state.planner.epoch
        return not busy and status in ("waiting", "paused")


def _shared(entries: list[Entry]) -> hosting.HostState:
    state = hosting.HostState()
    for entry in entries:
        hosting.evolve_host(state, decode(entry.version, entry.body))
    return state


def unanswered(error: RPCError) -> Unreachable:
    """What is said when the server does not do what it was asked for."""
    return Unreachable(
        f"the Temporal server does not answer: {str(error)[:200].rstrip('.')}. "
        "Fix: say it again when it does"
    )


def rebuilt(name: str, message: str) -> LeadhandError:
    """The error that a workflow refused with."""
    if name == PlanInvalid.__name__:
        return PlanInvalid([message])
    kind = getattr(errors, name, None)
    fits = isinstance(kind, type) and issubclass(kind, LeadhandError)
    return kind(message) if kind is not None and fits else LeadhandError(message)
