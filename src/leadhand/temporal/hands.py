"""The workflow's hands: effects of the core as activities, and what comes of them as inputs.

Each activity is attempted once. Whether to try again, where, and when is the core's decision; an
activity that Temporal retried would be a second mechanism, and would run a step twice.

    machine silent, or killed      heartbeat time-out        lost: nobody knows, as law 6 has it
    nobody serves the queue        schedule-to-start         unavailable, nothing happened
    stopped                        cancelled                 the report that the attempt was stopped
    an activity that breaks        an error                  lost, too

An activity's id names what it is for (step and epoch; the place in the log). A replay compares ids,
so a decision that comes out otherwise than it did stops the workflow rather than forking the run.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutError, TimeoutType  # noqa: A004 - Temporal's
from temporalio.exceptions import CancelledError as Cancelled

with workflow.unsafe.imports_passed_through():
    import msgspec

    from leadhand.core import control
    from leadhand.core import events as ev
    from leadhand.core.effects import (
        CallPlanner,
        Effect,
        Examine,
        Notify,
        StartAttempt,
        StartProbe,
        StopAttempt,
        VerifyGoal,
    )
    from leadhand.core.moves import Move
    from leadhand.core.revise import answered
    from leadhand.core.state import Now, State
    from leadhand.errors import Bug
    from leadhand.temporal.orders import (
        ATTEMPT,
        EXAMINE,
        PLAN,
        PROBE,
        VERIFY,
        Answer,
        Examined,
        Given,
        Hole,
        Judged,
        Look,
        Order,
        detach,
    )

if TYPE_CHECKING:
    from leadhand.temporal.flow import RunFlow

ONCE = RetryPolicy(maximum_attempts=1)
NET_S = 60.0
"""How long after its deadline an activity is given up, should the core's own timer not do it."""
PATIENCE = 0.9
"""The share of its time that an attempt may wait for a machine. Then it has not begun."""
SLICE = 0.5
"""The share of what is left of a budget that one attempt may spend while there are others."""


def queue_of(prefix: str, worker: str) -> str:
    """The task queue of a worker."""
    return f"{prefix}.worker.{worker}"


def engine_queue(prefix: str) -> str:
    """The task queue of workflows, planners and the log."""
    return f"{prefix}.engine"


class Hands:
    """Performs effects for one workflow."""

    def __init__(self, flow: RunFlow) -> None:
        self._flow = flow
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._under_way: dict[str, tuple[int, workflow.ActivityHandle[Any] | None]] = {}
        self._slim: dict[str, ev.RunStarted] = {}
        self._quotas: dict[str, float] = {}

    @property
    def busy(self) -> bool:
        """Whether an activity is under way."""
        return any(not task.done() for task in self._tasks.values())

    def perform(self, effect: Effect) -> None:
        """Carry out one effect; its events are part of the same workflow task."""
        match effect:
            case StartAttempt() | StartProbe():
                self._begin(effect.step, effect.epoch, self._attempt(effect))
            case StopAttempt():
                self._stop(effect)
            case CallPlanner():
                self._begin("", effect.epoch, self._ask(effect))
            case Examine():
                self._begin(f"$examine {effect.number}", 0, self._examine(effect))
            case VerifyGoal():
                self._begin("$goal", 0, self._verify(effect))
            case Notify():
                self._flow.pipe.tell(effect.kind, effect.text)
            case _:
                raise Bug(f"nobody performs {type(effect).__name__}")

    def _begin(self, key: str, epoch: int, work: Any) -> None:
        before = self._tasks.get(key)
        self._under_way[key] = (epoch, None)
        self._tasks[key] = asyncio.create_task(self._after(key, before, work))

    async def _after(self, key: str, before: asyncio.Task[None] | None, work: Any) -> None:
        """What ran for a step before is really over when the next begins."""
        if before is not None and not before.done():
            await asyncio.wait([before])
        await work
        if self._tasks.get(key) is asyncio.current_task():
            del self._tasks[key]
            self._under_way.pop(key, None)

    def _stop(self, effect: StopAttempt) -> None:
        epoch, handle = self._under_way.get(effect.step, (0, None))
        if epoch == effect.epoch and handle is not None:
            handle.cancel()

    async def _call(
        self, key: str, epoch: int, name: str, argument: Any, result: type, **more: Any
    ) -> Any:
        handle = workflow.start_activity(
            name,
            argument,
            result_type=result,
            retry_policy=ONCE,
            heartbeat_timeout=timedelta(seconds=self._flow.ways.heartbeat_s),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            **more,
        )
        if self._under_way.get(key, (0, None))[0] == epoch:
            self._under_way[key] = (epoch, handle)
        return await handle

    # Attempts and probes.

    async def _attempt(self, effect: StartAttempt | StartProbe) -> None:
        is_probe = isinstance(effect, StartProbe)
        now = self._flow.now().at
        deadline = now if is_probe else effect.deadline  # type: ignore[union-attr]
        probe_us = int(self._flow.state.policy.probe_timeout_s * 1e6)
        left_s = max(1.0, (deadline + (probe_us if is_probe else 0) - now) / 1e6)
        order = self._order(effect, deadline)
        try:
            judged: Judged = await self._call(
                effect.step,
                effect.epoch,
                PROBE if is_probe else ATTEMPT,
                order,
                Judged,
                activity_id=f"{'probe ' if is_probe else ''}{effect.step} {effect.epoch}",
                task_queue=self._queue(effect.worker),
                start_to_close_timeout=timedelta(seconds=left_s + NET_S),
                schedule_to_start_timeout=timedelta(seconds=max(0.5, left_s * PATIENCE)),
            )
        except ActivityError as error:
            self._flow.hand_in(self._broken(effect, error.cause))
        else:
            self._flow.hand_in(lambda state, _now: _heard(state, effect, judged))
        finally:
            self._quotas.pop(f"{effect.step} {effect.epoch}", None)

    def _queue(self, worker: str) -> str:
        """Where a worker is served; what a person has done is judged by the engine."""
        spec, prefix = self._flow.state.catalog.workers.get(worker), self._flow.ways.prefix
        by_hand = spec is not None and spec.kind == "human"
        return engine_queue(prefix) if by_hand else queue_of(prefix, worker)

    def _order(self, effect: StartAttempt | StartProbe, deadline: int) -> Order:
        state = self._flow.state
        step = state.steps[effect.step]
        planned = step.doc.get("parameters") or {}
        parameters: Any = None
        holes: tuple[Hole, ...] = ()
        if effect.parameters is not planned and effect.parameters != planned:
            parameters, holes = detach(effect.parameters)
        named = step.doc.get("context") or ()
        return Order(
            run=state.run,
            step=effect.step,
            attempt=effect.attempt,
            epoch=effect.epoch,
            worker=effect.worker,
            action=effect.action,
            deadline=deadline,
            heartbeat_s=self._flow.ways.heartbeat_s,
            doc=step.doc,
            started=self._started(effect.worker),
            parameters=parameters,
            holes=holes,
            failures=step.failures,
            answers=tuple(each for each in state.answers if each["step"] == effect.step),
            results=_results(state, [named] if isinstance(named, str) else list(named)),
            quota=self._quota(effect),
        )

    def _started(self, worker: str) -> ev.RunStarted:
        """The start of the run as a machine needs it: the same for all attempts of a worker."""
        if worker not in self._slim:
            started = self._flow.state.started
            assert started is not None
            specs = [spec for spec in started.catalog if spec.name == worker]
            self._slim[worker] = msgspec.structs.replace(
                started, catalog=specs, approvals=[], workers=()
            )
        return self._slim[worker]

    def _quota(self, effect: StartAttempt | StartProbe) -> float | None:
        """What an attempt may spend on models: set aside, so that no two spend the same money."""
        state = self._flow.state
        if state.policy.budget is None:
            return None
        own = state.price(state.steps[effect.step])
        left = state.policy.budget - state.spent - state.reserved + own
        left = max(0.0, left - sum(self._quotas.values()))
        quota = left if state.unsettled <= 1 else left * SLICE
        self._quotas[f"{effect.step} {effect.epoch}"] = quota
        return quota

    def _broken(self, effect: StartAttempt | StartProbe, cause: BaseException | None) -> Any:
        """What an activity that gave no result comes to."""
        unserved = isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START
        never = unserved or isinstance(cause, Cancelled)
        if isinstance(cause, TimeoutError):
            reason = f"no machine took it: nobody serves {effect.worker}, or all are busy"
            reason = reason if unserved else "the machine that carried it out fell silent"
        else:
            reason = "it was stopped before it began" if never else f"its machine failed: {cause}"

        def broken(state: State, _now: Now) -> Move:
            if not control.is_current(state, effect.step, effect.epoch):
                return Move([], [])
            step, attempt, epoch = effect.step, effect.attempt, effect.epoch
            if isinstance(effect, StartProbe):
                return Move([ev.ProbeReported(step, attempt, epoch, "lost", reason=reason)], [])
            kind, done = "unavailable" if unserved else "lost", "none" if never else "unknown"
            failure = {"class": kind, "message": reason[:4000], "effect": done}
            reported = ev.AttemptReported(step, attempt, epoch, met=False, failure=failure)
            return Move([reported], [])

        return broken

    # What needs to see the whole run.

    def _look(self, **more: Any) -> Look:
        flow = self._flow
        return Look(flow.state.run, flow.pipe.place, flow.ways.heartbeat_s, **more)

    async def _see(self, key: str, epoch: int, name: str, look: Look, result: type) -> Any:
        """Have something done with the state as it was when it was asked for."""
        flow = self._flow
        await flow.pipe.until_written(look.place.seq)
        limit_s = flow.state.policy.planner_timeout_s + NET_S
        return await self._call(
            key,
            epoch,
            name,
            look,
            result,
            activity_id=f"{name} {look.place.seq}",
            task_queue=engine_queue(flow.ways.prefix),
            start_to_close_timeout=timedelta(seconds=limit_s),
        )

    async def _ask(self, effect: CallPlanner) -> None:
        state = self._flow.state
        budget = state.policy.budget
        quota = None if budget is None else max(0.0, budget - state.spent - state.reserved)
        look = self._look(call=effect.call, epoch=effect.epoch, why=effect.why, quota=quota)
        said = Answer(reason="it was stopped")
        try:
            said = await self._see("", effect.epoch, PLAN, look, Answer)
        except ActivityError as error:
            said = Answer(reason=f"nobody heard from it: {error.cause}"[:2000])

        def heard(state: State, now: Now) -> Move:
            calls: list[ev.Event] = [] if state.ended is not None else list(said.calls)
            if said.answer is not None:
                events, effects = answered(state, effect.call, effect.epoch, said.answer, now)
                return Move([*calls, *events], effects)
            if state.planner.epoch == effect.epoch:
                calls.append(ev.PlannerFailed(effect.call, effect.epoch, said.reason))
            return Move(calls, [])

        self._flow.hand_in(heard)

    async def _examine(self, effect: Examine) -> None:
        number = effect.number
        try:
            seen = await self._see("", 0, EXAMINE, self._look(number=number), Examined)
        except ActivityError as error:
            seen = Examined(failed=f"the reviewers could not be asked: {error.cause}"[:500])
        self._flow.hand_in(
            lambda state, now: control.examined(state, number, seen.found, seen.failed, now)
        )

    async def _verify(self, effect: VerifyGoal) -> None:
        try:
            look = self._look(result=effect.result)
            findings = await self._see("", 0, VERIFY, look, list[str])
        except ActivityError as error:
            findings = [f"the results could not be read: {error.cause}"]
        event = ev.GoalChecked(not findings, findings)
        self._flow.hand_in(lambda state, _now: Move([event] if state.goal_asked else [], []))


def _heard(state: State, effect: StartAttempt | StartProbe, judged: Judged) -> Move:
    current = control.is_current(state, effect.step, effect.epoch)
    events: list[ev.Event] = []
    if current:
        for each in judged.spawns:
            spawned = (each.pid, each.start_time, each.boot_id)
            events.append(ev.AttemptSpawned(effect.step, effect.epoch, *spawned))
    if state.ended is None:
        events += judged.calls
    if judged.probe is not None and current:
        events.append(judged.probe)
    if judged.report is not None:
        events += control.report(state, judged.report).events
    return Move(events, [])


def _results(state: State, names: list[str]) -> dict[str, Given]:
    found = {}
    for name in names:
        step = state.follow(name)
        if step is not None and step.status == "succeeded":
            found[name] = Given(None if step.data_ref else step.data, step.data_ref)
    return found
