"""Controlling runs that Temporal hosts: the application's host, from outside.

A `TemporalHost` takes the place of the embedded host: it starts runs and finds them, and reads
their state from the log, as every view does. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from leadhand.app.callers import ELSEWHERE
from leadhand.codec.events import decode, refuse_start
from leadhand.core import host_events as hosting
from leadhand.core.catalog import CALLER, able_workers
from leadhand.core.commands import Command
from leadhand.core.review.agents import refuse_agent_host_command
from leadhand.core.rollback import rollback_id
from leadhand.core.state.model import Now
from leadhand.engine import library_store
from leadhand.engine.approvals import admit
from leadhand.engine.secrets import secrets_of
from leadhand.errors import Conflict, LeadhandError, UsageError
from leadhand.temporal.cluster import Cluster, security_of
from leadhand.temporal.cluster_status import hosted_runs, pollers, workflow_id
from leadhand.temporal.dispatch import engine_queue
from leadhand.temporal.messages import RUN, Begin, HostingOptions, LogPosition, newest
from leadhand.temporal.payloads import Shelf, converter
from leadhand.temporal.run import TemporalRun, unanswered

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core import events as ev
    from leadhand.core.plan.model import Doc
    from leadhand.core.review.approval import Approval
    from leadhand.ports import Entry, Planner, RunHandle, Store, Workers


T = TypeVar("T")
SPOKEN = ("stop_all", "lift")
TELL_S = 10.0
"""How long one run may take to receive a command to all of them."""


@cache
def _quiet() -> Runtime:
    """Return a runtime without the SDK's messages about each try: we report that once ourselves."""
    levels = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels)))


async def connect(
    server: str | Cluster, namespace: str = "default", shelf: Shelf | None = None
) -> Client:
    """Connect to a Temporal server.

    `server`: its address, or its settings, including the namespace. Raise `UsageError` if it does
    not answer or lacks the namespace.
    """
    cluster = Cluster(server, namespace) if isinstance(server, str) else server
    address, namespace = cluster.address, cluster.namespace
    security = security_of(cluster)
    if isinstance(security.get("tls"), dict):
        security["tls"] = TLSConfig(**security["tls"])
    try:
        client = await Client.connect(
            address,
            namespace=namespace,
            data_converter=converter(shelf),
            runtime=_quiet(),
            **security,
        )
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
    except RPCError as error:  # others show when a request is made
        if error.status is RPCStatusCode.NOT_FOUND:
            raise UsageError(
                f"the Temporal server at {address} has no namespace {namespace}. Fix: name another "
                f"as [temporal] namespace, or temporal operator namespace create {namespace}"
            ) from None
    return client


class TemporalHost:
    """The host of runs on a Temporal server."""

    def __init__(
        self, client: Client, store: Store, ways: HostingOptions | None = None, *, lent: bool = True
    ) -> None:
        """Create the host; `lent`: the store belongs to the caller, and stays open."""
        self.client = client
        self.store = store
        self.ways = ways or HostingOptions()
        self._lent = lent
        self.runs: dict[str, TemporalRun] = {}
        self.asleep: dict[str, object] = {}
        """Empty: runs sleep in their workflows."""
        self.claim_approval: Callable[[Approval, str], None] | None = None
        """Records outside of the database that a run uses an approval; raises if another has used
        it."""
        self.failed: BaseException | None = None
        self.draining = False
        self.launched: Callable[[str], None] = lambda _run: None
        """Called with the id of a run when the server has it: an engine may start it much later."""
        self.owner = self.in_flight = 0
        self.waiting = 0
        """The number of runs that are waited for."""

    @property
    def shared(self) -> hosting.HostState:
        """The state shared by all runs."""
        return _shared(self.store.read(hosting.HOST_STREAM))

    async def look_shared(self) -> hosting.HostState:
        """Return the shared state without blocking the loop if the log's server is slow."""
        return _shared(await self.aside(self.store.read, hosting.HOST_STREAM))

    async def aside(self, call: Callable[..., T], *args: Any) -> T:
        """Read the log without blocking the loop, if it is remote."""
        if not getattr(self.store, "remote", False):
            return call(*args)
        return await asyncio.to_thread(call, *args)

    def time(self) -> Now:
        """Return this machine's clock: for display, never for decisions."""
        wall = time.time_ns() // 1000
        return Now(wall, wall)

    async def start(
        self, started: ev.RunStarted, workers: Workers, planner: Planner
    ) -> TemporalRun:
        """Start a run; return once its start is in the log."""
        proposal = getattr(planner, "proposal", None)
        started = _without_callers(started, proposal)
        secrets = secrets_of(started, workers)
        if secrets is not None:
            secrets.refuse([started], proposal)
        refuse_start(started, proposal)
        if started.approvals and not hasattr(self.store, "append"):
            raise UsageError(
                "an approval is good for one run, and that is written down in the log, which only "
                "the engine can write while it is a file. Fix: keep the log in PostgreSQL, or run "
                "the plan and approve it with `leadhand review RUN approve`"
            )
        if started.approvals:
            await self.engines()  # an unreachable server uses none of them up
        await admit(self, started, proposal)
        stopped = (await self.look_shared()).stopped
        begin = Begin(started.run, self.ways, started, proposal, stopped=stopped)
        try:
            await self._launch(begin, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            raise Conflict(f"run {started.run} exists already. Fix: use another id") from None
        self.launched(started.run)
        run = TemporalRun(self, started.run)
        await self._tell_late(run, stopped=stopped)
        await run.until(1)
        self.runs[run.id] = run
        return run

    async def _tell_late(self, run: TemporalRun, *, stopped: bool) -> None:
        """Repeat a stop-all to a run that started while it was sent to the others."""
        now = await self.look_shared()
        if now.stopped and not stopped:
            await self._tell(run.id, Command("stop_all", now.stopped_by, {}))

    async def engines(self) -> list[str]:
        """Return the processes that serve runs here; without one, started runs wait."""
        try:
            return await pollers(self.client, engine_queue(self.ways.prefix), workflows=True)
        except RPCError as error:
            raise unanswered(error) from None

    async def _launch(self, begin: Begin, reuse: WorkflowIDReusePolicy) -> None:
        try:
            await self.client.start_workflow(
                RUN,
                newest(begin),
                id=workflow_id(self.ways.prefix, begin.run),
                task_queue=engine_queue(self.ways.prefix),
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            )
        except RPCError as error:
            raise unanswered(error) from None

    def load(self, ident: str, _workers: Workers | None = None) -> TemporalRun:
        """Return a run, from its log."""
        run = self.runs.get(ident) or TemporalRun(self, ident)
        run.refresh()
        return self._known(run)

    async def find(self, ident: str, _workers: Workers | None = None) -> TemporalRun:
        """Return a run, from its log, without blocking the loop."""
        run = self.runs.get(ident) or TemporalRun(self, ident)
        await run.look()
        return self._known(run)

    def _known(self, run: TemporalRun) -> TemporalRun:
        if run.state.started is None:
            raise UsageError(f"there is no run {run.id}")
        self.runs[run.id] = run
        return run

    async def resume(self, ident: str, _workers: Workers, _planner: Planner | None) -> TemporalRun:
        """Make sure that a run is hosted; without a workflow it continues from its log."""
        run = await self.find(ident)
        if run.state.ended is None and not await run.hosted():
            await self._take_up(run)
        return run

    async def give_up(self, ident: str, reason: str) -> None:
        """End the workflow of a run; `adopt` starts another, from the log."""
        run = await self.find(ident)
        if run.state.ended is None:
            await run.give_up(reason)

    async def withdraw(self, ident: str, reason: str) -> bool:
        """Withdraw a run that no engine has started; return False if the server has none."""
        return await TemporalRun(self, ident).withdraw(reason)

    async def _take_up(self, run: TemporalRun) -> None:
        place = LogPosition(run.state.seq, run.head)
        hosted, stopped = run.state.ended is None, (await self.look_shared()).stopped
        begin = Begin(run.id, self.ways, place=place, hosted=hosted, stopped=stopped)
        try:
            await self._launch(begin, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        except WorkflowAlreadyStartedError:
            return

    async def send_command(
        self, ident: str, verb: str, actor: str, details: Doc, _workers: Workers | None = None
    ) -> Doc:
        """Send a command to a run, or to all of them; in the log on return."""
        word = Command(verb, actor, details)
        if verb in library_store.VERBS or verb in SPOKEN:
            refuse_agent_host_command(verb, actor)
        if verb in library_store.VERBS:
            return await library_store.perform_library_command(self, verb, actor, details)
        if verb in SPOKEN:
            await self._tell_host(word)
            unreached = await self._tell_all(word)
            return {"stopped": verb == "stop_all"} | ({"unreached": unreached} if unreached else {})
        run = self.runs.get(ident) or TemporalRun(self, ident)
        await run.look()
        if verb == "redo":
            if self.store.header(rollback_id(ident)) is not None:
                raise Conflict(f"run {ident} was rolled back by {rollback_id(ident)}")
            if run.state.ended is not None:
                word(run.state, self.time())  # refused here rather than after a start
                await self._take_up(run)
        return await run.speak(word)

    async def _tell_all(self, word: Command) -> list[str]:
        """Send a command to all runs at once; return those that have not confirmed it in time."""
        try:
            runs = sorted(await hosted_runs(self.client, self.ways.prefix))
        except RPCError as error:
            raise unanswered(error) from None
        heard = await asyncio.gather(*(self._tell(each, word) for each in runs))
        return [run for run, took in zip(runs, heard, strict=True) if not took]

    async def _tell(self, run: str, word: Command) -> bool:
        """Send a command to one run; a run that cannot answer must not delay the others."""
        try:
            said = TemporalRun(self, run).updated(word, gone_is_fine=True)
            await asyncio.wait_for(said, TELL_S)
        except (TimeoutError, LeadhandError, RPCError):
            return False
        return True

    async def _tell_host(self, word: Command) -> None:
        """Record a command to all runs, if this process can write."""
        if not hasattr(self.store, "append"):
            return
        reason = str(word.details.get("reason", ""))
        event: ev.Event = hosting.StopAllLifted(word.actor)
        if word.verb == "stop_all":
            event = hosting.StopAllRequested(word.actor, reason)
        await self.tell_host(event)

    async def tell_host(self, event: ev.Event) -> None:
        """Append an event to the `$host` stream; an approval is used once, despite other starts."""

        def decide(entries: list[Entry]) -> ev.Event:
            if isinstance(event, hosting.ApprovalUsed):
                hosting.refuse_used(_shared(entries), event.id, event.actor)
            return event

        await library_store.append_to(self, hosting.HOST_STREAM, decide)

    def fail(self, error: BaseException) -> None:
        """Record that the host cannot continue."""
        self.failed = error

    def forget(self, run: RunHandle) -> None:
        """Unload a run that has ended."""
        self.discard(run.id)

    def discard(self, ident: str) -> None:
        """Drop what is known of a run; it is read again when it is needed."""
        self.runs.pop(ident, None)

    async def drain(self) -> None:
        """Start nothing new; nothing runs here."""
        self.draining = True

    async def close(self) -> None:
        """Close the log; the connection ends with the process."""
        if not self._lent:
            await self.store.close()


def _without_callers(started: ev.RunStarted, proposal: Doc | None) -> ev.RunStarted:
    """Return the start of a run without workers that ask for their steps.

    Raise `UsageError` if its plan uses one: a workflow hands nothing out.
    """
    known = {spec.name: spec for spec in started.catalog}
    for step in (proposal or {}).get("steps", ()):
        undo = step.get("undo")
        named = {*able_workers(step, known), undo.get("worker") if isinstance(undo, dict) else ""}
        if any(name in known and known[name].kind == CALLER for name in named):
            raise UsageError(f"step {step['id']}: {ELSEWHERE}")
    kept = [spec for spec in started.catalog if spec.kind != CALLER]
    return structs.replace(started, catalog=kept)


def _shared(entries: list[Entry]) -> hosting.HostState:
    state = hosting.HostState()
    for entry in entries:
        hosting.evolve_host(state, decode(entry.version, entry.body))
    return state
