"""The activities of a workflow: attempts on machines, and the tasks of the engine's processes.

Machines carry out attempts and probes; each heartbeats while it works, so that a dead or frozen
machine is noticed, and so that a stop reaches commands and agents. The engine's processes ask
planners and reviewers, check goals, and write the log.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.exceptions import ApplicationError, TemporalError
from temporalio.service import RPCError

from leadhand.audit.chain import GENESIS, verify
from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.decide.effects import CallPlanner, StartAttempt, StartProbe
from leadhand.core.state.model import Now
from leadhand.engine import perform
from leadhand.engine import reviewers as examining
from leadhand.engine.fold import fold
from leadhand.errors import Conflict, Fenced, StoreCorrupt, StoreError, UsageError
from leadhand.models.failures import ModelFailure
from leadhand.ports import Entry
from leadhand.temporal.messages import (
    ATTEMPT,
    EXAMINE,
    FORK,
    LOG,
    MORE,
    PLAN,
    PROBE,
    PROJECT,
    VERIFY,
    AttemptOrder,
    Examined,
    Judged,
    LogBatch,
    LogLine,
    LogPosition,
    More,
    PlannerReply,
    StateRequest,
    attach,
    parked_s,
)
from leadhand.temporal.remote import RemoteHost, RemoteRun, state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from leadhand.core.state.model import State, StepState
    from leadhand.ports import Planner, Reviewer, Store, Workers
    from leadhand.temporal.remote import Ask

T = TypeVar("T")
READERS = ThreadPoolExecutor(8, "leadhand-log")
"""Threads that read the log and results: their server may be unavailable for minutes."""
FETCHED_BYTES_MAX = 64 << 20
"""The size of large results that are loaded in advance."""
BEATS = 4
"""Heartbeats in the time after which silence means death."""


def _now() -> Now:
    wall = time.time_ns() // 1000
    return Now(wall, wall)


@asynccontextmanager
async def beating(heartbeat_s: float, deputy: RemoteRun | None = None) -> AsyncIterator[None]:
    """Send heartbeats with the progress of `deputy` until the block ends."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(heartbeat_s / BEATS)
            notes = list(deputy.progress.values()) if deputy is not None else []
            activity.heartbeat(notes[-1] if notes else None)

    task = asyncio.get_running_loop().create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def stoppable(work: Coroutine[Any, Any, None], stopped: Callable[[], None]) -> None:
    """Run `work` to completion even if the activity is cancelled, and report its own outcome.

    `stopped` is called when the cancellation arrives.
    """
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                break
            stopped()
            task.cancel()
    if not task.cancelled():
        task.result()


async def refuse_stale(heartbeat_s: float) -> None:
    """Refuse to start an activity that was already given up: this process may have been frozen.

    Asking the server costs a round trip, so it is asked only if the start was some time ago.
    """
    info = activity.info()
    age_s = abs(time.time() - info.started_time.timestamp())
    if age_s < heartbeat_s / BEATS:
        return
    try:
        await activity.client().get_async_activity_handle(task_token=info.task_token).heartbeat()
    except (AsyncActivityCancelledError, RPCError) as error:
        raise ApplicationError(
            f"it was given up before it began: {error}", non_retryable=True
        ) from error


async def aside(store: Store, call: Callable[..., T], *args: Any) -> T:
    """Read from a store without blocking the loop, so that heartbeats continue."""
    if not getattr(store, "remote", False):
        return call(*args)
    return await asyncio.get_running_loop().run_in_executor(READERS, call, *args)


async def fetch_results(store: Store, state: State, names: Iterable[str]) -> None:
    """Load large results of a private state in advance.

    An unreadable result is left to its reader.
    """
    if getattr(store, "remote", False):
        steps = [step for name in names if (step := state.steps[name]).data_ref]
        with suppress(StoreError):
            await aside(store, _fetch, store, steps)


def _fetch(store: Store, steps: list[StepState]) -> None:
    size = 0
    for step in steps:
        if size < FETCHED_BYTES_MAX:
            raw = store.get_artifact(step.data_ref)
            size += len(raw)
            step.data, step.data_ref = msgspec.json.decode(raw), ""


def asking(step: str, epoch: int) -> Ask:
    """Return the function by which this activity asks its workflow for more budget."""
    info, client = activity.info(), activity.client()
    assert info.workflow_id is not None
    handle = client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)

    async def ask(used: float, least: float, wanted: float) -> float:
        want = More(step, epoch, used, least, wanted)
        try:
            quota: float = await handle.execute_update(MORE, want, result_type=float)
        except TemporalError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None
            raise ModelFailure(
                "rate_limited", f"the run could not be asked for money: {error}", retry_after_s=5.0
            ) from error
        return quota

    return ask


class StepActivities:
    """The activities of a machine that carries out steps."""

    def __init__(self, workers: Workers, store: Store) -> None:
        self._workers = workers
        self._store = store
        self.busy = 0

    @activity.defn(name=ATTEMPT)
    async def attempt(self, order: AttemptOrder) -> Judged:
        """Carry out one attempt and judge its report."""
        parameters = _parameters(order)
        effect = StartAttempt(
            order.step,
            order.attempt,
            order.epoch,
            order.worker,
            order.action,
            parameters,
            order.deadline,
        )
        deputy = self._deputy(order)
        refused = self._refused(order)
        if refused is not None:
            return Judged(report=refused)
        await refuse_stale(order.heartbeat_s)
        context = perform.context_of(deputy, effect)
        work = perform.attempt(deputy, effect, context, None)
        return await self._watched(order, deputy, context, work)

    @activity.defn(name=PROBE)
    async def probe(self, order: AttemptOrder) -> Judged:
        """Determine whether an attempt of unknown outcome took effect."""
        effect = StartProbe(
            order.step, order.attempt, order.epoch, order.worker, order.action, _parameters(order)
        )
        deputy = self._deputy(order)
        context = perform.context_of(deputy, effect)
        work = perform.probe(deputy, effect, context, None)
        return await self._watched(order, deputy, context, work)

    def _deputy(self, order: AttemptOrder) -> RemoteRun:
        more = None if order.quota is None else asking(order.step, order.epoch)
        host = RemoteHost(self._store)
        return RemoteRun(state_of(order), self._workers, host, order.quota, more=more)

    async def _watched(
        self, order: AttemptOrder, deputy: RemoteRun, context: Any, work: Coroutine[Any, Any, None]
    ) -> Judged:
        def stopped() -> None:
            context.cancelled = True

        self.busy += 1
        try:
            async with beating(order.heartbeat_s, deputy):
                await stoppable(self._supplied(deputy, order, work), stopped)
        finally:
            self.busy -= 1
        if deputy.host.failed is not None:
            raise deputy.host.failed
        return deputy.judged(_now())

    async def _supplied(
        self, deputy: RemoteRun, order: AttemptOrder, work: Coroutine[Any, Any, None]
    ) -> None:
        with suppress(asyncio.CancelledError):  # the context is marked, and `work` looks there
            await fetch_results(self._store, deputy.state, list(order.results))
        await work

    def _refused(self, order: AttemptOrder) -> ev.AttemptReported | None:
        """Return a refusal if this machine has another version of the worker than was allowed."""
        known = Catalog(order.started.catalog).workers.get(order.worker)
        spec = examining.changed_spec(state_of(order), self._workers, order.worker)
        if spec is None or known is None:
            return None
        message = (
            f"the machine has {order.worker} in version {spec.version}, and the run was "
            f"started with {known.version}"
        )
        failure: dict[str, Any] = {"class": "unavailable", "message": message, "effect": "none"}
        failure["retry_after"] = parked_s(order.started.policy)
        return ev.AttemptReported(
            order.step, order.attempt, order.epoch, met=False, failure=failure
        )


def _parameters(order: AttemptOrder) -> Any:
    if order.parameters is None:
        return order.doc.get("parameters") or {}
    return attach(order.parameters, order.holes)


class EngineActivities:
    """The activities of the engine's processes: planners, reviewers, goals, the log."""

    def __init__(
        self,
        store: Store,
        workers: Workers,
        *,
        planner: Callable[[State], Planner | None],
        reviewers: dict[str, Reviewer] | None = None,
        on_notice: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """Create the activities; `planner` returns the planner of a run from its state."""
        self._store = store
        self._workers = workers
        self._planner = planner
        self._reviewers = reviewers or {}
        self.machine = StepActivities(workers, store)
        """For steps done by a person: their answer is a report like any other."""
        self._on_notice = on_notice or (lambda _kind, _run, _text: None)

    @activity.defn(name=PLAN)
    async def plan(self, look: StateRequest) -> PlannerReply:
        """Ask the planner of a run for its next decision."""
        async with beating(look.heartbeat_s):
            deputy = await self._deputy(look)
            await fetch_results(self._store, deputy.state, reversed(deputy.state.steps))
            try:
                deputy.planner = self._planner(deputy.state)
            except UsageError as error:  # this engine does not have it: the run gets the reason
                return PlannerReply(reason=str(error))
        answers: list[PlannerReply] = []

        def heard(answer: dict[str, Any] | None, reason: str) -> None:
            answers.append(PlannerReply(answer, reason))

        effect = CallPlanner(look.call, look.epoch, look.why)
        async with beating(look.heartbeat_s, deputy):
            work = perform.ask(deputy, effect, heard)
            await stoppable(work, lambda: None)
        said_so = (ev.ModelCalled, ev.DraftRefused)
        calls = tuple(e for e in deputy.events(_now()) if isinstance(e, said_so))
        said = answers[0] if answers else PlannerReply(reason="it was stopped")
        return msgspec.structs.replace(said, calls=calls)

    @activity.defn(name=EXAMINE)
    async def examine(self, look: StateRequest) -> Examined:
        """Let the automatic reviewers examine a revision."""
        async with beating(look.heartbeat_s):
            deputy = await self._deputy(look)
            found, failed = await examining.findings_of(deputy)
        return Examined(found, failed)

    @activity.defn(name=VERIFY)
    async def verify_goal(self, look: StateRequest) -> list[str]:
        """Check the acceptance criteria of a goal."""
        async with beating(look.heartbeat_s):
            deputy = await self._deputy(look)
            found = await aside(self._store, perform.unmet, deputy, look.result)
        return deputy.secrets.value(found) if deputy.secrets is not None else found

    @activity.defn(name=LOG)
    async def log(self, look: StateRequest) -> list[LogLine]:
        """Return a run's log up to a position, as it was written."""
        async with beating(look.heartbeat_s):
            entries = await self._read(look.run, look.place)
        return [
            LogLine(each.seq, each.at, each.version, msgspec.Raw(each.body), each.hash.hex())
            for each in entries
        ]

    @activity.defn(name=PROJECT)
    async def project(self, batch: LogBatch) -> None:
        """Write a batch to the log: exactly once and in order, however often this is tried."""
        entries = [
            Entry(batch.run, e.seq, e.at, e.version, bytes(e.body), bytes.fromhex(e.hash))
            for e in batch.lines
        ]
        told = bytes(batch.summary)
        if entries:
            async with beating(batch.heartbeat_s):
                await self._append(batch.run, entries, None if told == b"null" else told)
        for kind, text in batch.notices:
            self._on_notice(kind, batch.run, text)

    async def _append(self, run: str, entries: list[Entry], told: bytes | None) -> None:
        first, last = entries[0].seq, entries[-1].seq
        header = await aside(self._store, self._store.header, run)
        seq = header.seq if header is not None else 0
        if seq >= first:
            stored = await aside(self._store, self._store.read, run, first - 1)
            here = [(each.seq, each.hash) for each in stored if each.seq <= last]
            meant = [(each.seq, each.hash) for each in entries]
            if here != meant[: len(here)]:
                raise _fork(run, f"event {first} and what follows is not what was written")
            entries = entries[len(here) :]
        elif seq < first - 1:
            raise _fork(run, f"it ends at event {seq}, and {first - 1} was written")
        if not entries:
            return
        try:
            await self._store.append(run, entries[0].seq - 1, entries, told)
        except Fenced:
            raise
        except Conflict as error:  # another try of this batch was first: the next one compares
            raise StoreError(f"another process is writing: {error}") from error

    async def _deputy(self, look: StateRequest) -> RemoteRun:
        state = fold(await self._read(look.run, look.place))
        host = RemoteHost(self._store, self._reviewers)
        more = None if look.quota is None else asking("", look.epoch)
        return RemoteRun(state, self._workers, host, look.quota, more=more)

    async def _read(self, run: str, place: LogPosition) -> list[Entry]:
        stored = await aside(self._store, self._store.read, run)
        entries = [each for each in stored if each.seq <= place.seq]
        head = entries[-1].hash.hex() if entries else GENESIS.hex()
        problems = verify(entries)
        if problems or len(entries) != place.seq or head != place.head:
            what = problems[0] if problems else "it does not end in the hash that was written"
            raise StoreCorrupt(f"the log of run {run} is not its workflow's: {what}")
        return entries


def _fork(run: str, why: str) -> ApplicationError:
    message = f"the log of run {run} is not what its workflow wrote: {why}"
    return ApplicationError(message, type=FORK, non_retryable=True)
