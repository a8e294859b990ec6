"""Dispatch: effects of the core as activities, and their outcomes as inputs.

Each activity is attempted once. Whether to retry, where, and when is the core's decision; an
activity that Temporal retried would be a second mechanism, and would run a step twice.

    machine silent, or killed      heartbeat time-out        lost: the outcome is unknown (law 6)
    no machine serves the queue    schedule-to-start         unavailable, nothing happened: it parks
    stopped                        cancelled                 the report that the attempt was stopped
    stopped, or over, before it began                        nothing happened, and nothing will
    an activity that breaks        an error                  lost, too

The previous activity of a step is over before the next begins: its machine has reported, or the
server has given it up. A step that may be repeated waits for that no longer than for a silent
machine, and for a fraction of its own time; any other step does wait, and is parked if that takes
long.

An activity's id names its purpose (step and epoch; the position in the log). A replay compares ids,
so a decision that differs stops the workflow rather than forking the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutType
from temporalio.exceptions import CancelledError as Cancelled
from temporalio.exceptions import TimeoutError as TimedOut

from leadhand.temporal.attempt_messages import Orders
from leadhand.temporal.budget import WorkflowBudget
from leadhand.temporal.log_writer import AGAIN

with workflow.unsafe.imports_passed_through():
    from leadhand.core import commands
    from leadhand.core import events as ev
    from leadhand.core.decide.effects import (
        CallPlanner,
        Effect,
        Examine,
        Move,
        Notify,
        StartAttempt,
        StartProbe,
        StopAttempt,
        VerifyGoal,
    )
    from leadhand.core.decide.planner_answer import record_answer
    from leadhand.core.decide.recovery import idempotent
    from leadhand.core.state.model import Now, State
    from leadhand.errors import Bug
    from leadhand.temporal.messages import (
        ATTEMPT,
        EXAMINE,
        PLAN,
        PROBE,
        VERIFY,
        Examined,
        Judged,
        PlannerReply,
        StateRequest,
        parked_s,
    )

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.temporal.workflow import RunFlow

    Said = Callable[[State, Now], Move]

ONCE = RetryPolicy(maximum_attempts=1)
NET_S = 60.0
"""How long after its deadline an activity is given up, in case the core's own timer fails."""
PATIENCE = 0.9
"""The share of its time that an attempt may wait for a machine. Then it has not started."""
BESIDE = 0.25
"""The share of its time that a repeatable attempt waits for the previous one."""
PROBES_MAX = 5
"""The number of probes of one attempt whose machines may fall silent."""
UNREADABLE = RetryPolicy(
    initial_interval=AGAIN.initial_interval,
    backoff_coefficient=AGAIN.backoff_coefficient,
    maximum_interval=AGAIN.maximum_interval,
    non_retryable_error_types=["StoreCorrupt"],
)
"""For reads: an engine that dies, and an unreachable log, are waited out."""


def queue_of(prefix: str, worker: str) -> str:
    """Return the task queue of a worker."""
    return f"{prefix}.worker.{worker}"


def engine_queue(prefix: str) -> str:
    """Return the task queue of workflows, planners and the log."""
    return f"{prefix}.engine"


class _Call:
    """The last request for a step or the planner, and its activity once there is one."""

    __slots__ = ("barred", "epoch", "handle", "stopped")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.handle: workflow.ActivityHandle[Any] | None = None
        self.stopped = False
        self.barred = False
        """Whether the previous one may still run, and this one must not run beside it."""


class Dispatch:
    """Performs effects for one workflow."""

    def __init__(self, flow: RunFlow) -> None:
        self._flow = flow
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._under_way: dict[str, _Call] = {}
        self._unheard: Counter[tuple[str, int]] = Counter()
        self.orders = Orders(flow)
        self.money = WorkflowBudget(flow)
        self.busy = 0
        """The number of activities in flight, including those told to stop that have not ended."""

    def perform(self, effect: Effect) -> None:
        """Carry out one effect; its events are part of the same workflow task."""
        match effect:
            case StartAttempt() | StartProbe():
                self._begin(effect.step, effect.epoch, self._attempt, effect)
            case StopAttempt():
                self._stop(effect)
            case CallPlanner():
                self._begin("", effect.epoch, self._ask, effect)
            case Examine():
                self._begin(f"$examine {effect.number}", 0, self._examine, effect)
            case VerifyGoal():
                self._begin("$goal", 0, self._verify, effect)
            case Notify():
                self._flow.pipe.tell(effect.kind, effect.text)
            case _:
                raise Bug(f"no handler for effect {type(effect).__name__}")

    def _begin(self, key: str, epoch: int, work: Any, effect: Any) -> None:
        before = list(self._tasks.get(key, ()))
        call = self._under_way[key] = _Call(epoch)
        task = asyncio.create_task(self._after(key, call, before, work, effect))
        self._tasks.setdefault(key, []).append(task)
        self.busy += 1

    async def _after(
        self, key: str, call: _Call, before: list[asyncio.Task[None]], work: Any, effect: Any
    ) -> None:
        try:
            await self._over(call, before, effect)
            await work(effect, call)
        finally:
            self.busy -= 1
            mine = asyncio.current_task()
            others = [each for each in self._tasks.pop(key) if each is not mine]
            if others:
                self._tasks[key] = others
            if self._under_way.get(key) is call:
                del self._under_way[key]

    async def _over(self, call: _Call, before: list[asyncio.Task[None]], effect: Any) -> None:
        """Wait until the previous activity of a step is over, within the patience."""

        def over() -> bool:
            return call.stopped or all(task.done() for task in before)

        if over():
            return
        try:
            await workflow.wait_condition(over, timeout=self._patience_s(effect))
        except TimeoutError:
            call.barred = not self._twice(effect)

    def _patience_s(self, effect: Any) -> float | None:
        """Return how long to wait for the previous activity; None: until one of both is over."""
        heartbeat_s = self._flow.ways.heartbeat_s
        if isinstance(effect, CallPlanner):
            return heartbeat_s
        if not isinstance(effect, StartAttempt):
            return None
        left_s = max(0.0, (effect.deadline - self._flow.now().at) / 1e6)
        return min(heartbeat_s, left_s * BESIDE) if self._twice(effect) else left_s * PATIENCE

    def _twice(self, effect: Any) -> bool:
        """Return whether it may run beside an activity that does not answer."""
        if not isinstance(effect, StartAttempt):
            return True
        state = self._flow.state
        offer = state.catalog.offer(effect.worker, effect.action)
        return idempotent(state.steps[effect.step], offer)

    def _stop(self, effect: StopAttempt) -> None:
        call = self._under_way.get(effect.step)
        if call is not None and call.epoch == effect.epoch:
            call.stopped = True
            if call.handle is not None:
                call.handle.cancel()

    async def _call(self, call: _Call, name: str, argument: Any, result: type, **more: Any) -> Any:
        call.handle = workflow.start_activity(
            name,
            argument,
            result_type=result,
            heartbeat_timeout=timedelta(seconds=self._flow.ways.heartbeat_s),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            **more,
        )
        return await call.handle

    # Attempts and probes.

    async def _attempt(self, effect: StartAttempt | StartProbe, call: _Call) -> None:
        if call.stopped or call.barred or not self._counts(effect):
            self._flow.hand_in(self._unbegun(effect, barred=call.barred and not call.stopped))
            return
        is_probe = isinstance(effect, StartProbe)
        now = self._flow.now().at
        deadline = now if is_probe else effect.deadline  # type: ignore[union-attr]
        probe_us = int(self._flow.state.policy.probe_timeout_s * 1e6)
        left_s = max(1.0, (deadline + (probe_us if is_probe else 0) - now) / 1e6)
        quota = self.money.give(effect.step, effect.epoch)
        order = self.orders.order(effect, deadline, quota)
        try:
            judged: Judged = await self._call(
                call,
                PROBE if is_probe else ATTEMPT,
                order,
                Judged,
                retry_policy=ONCE,
                activity_id=f"{'probe ' if is_probe else ''}{effect.step} {effect.epoch}",
                task_queue=self._queue(effect.worker),
                start_to_close_timeout=timedelta(seconds=left_s + NET_S),
                schedule_to_start_timeout=timedelta(seconds=max(0.5, left_s * PATIENCE)),
            )
        except ActivityError as error:
            self._paid_in(effect, self._broken(effect, error.cause))
        else:
            self._paid_in(effect, lambda state, _now: _heard(state, effect, judged))

    def _paid_in(self, effect: StartAttempt | StartProbe, what: Said) -> None:
        """Submit an outcome; its quota is free once the log has recorded the cost."""

        def said(state: State, now: Now) -> Move:
            self.money.back(effect.step, effect.epoch)
            return what(state, now)

        self._flow.hand_in(said)

    def _counts(self, effect: StartAttempt | StartProbe) -> bool:
        """Return whether it is still wanted: the log may say that it is over."""
        return commands.is_current(self._flow.state, effect.step, effect.epoch)

    def _queue(self, worker: str) -> str:
        """Return the queue of a worker; a person's work is judged by the engine."""
        spec, prefix = self._flow.state.catalog.workers.get(worker), self._flow.ways.prefix
        by_hand = spec is not None and spec.kind == "human"
        return engine_queue(prefix) if by_hand else queue_of(prefix, worker)

    def _broken(self, effect: StartAttempt | StartProbe, cause: BaseException | None) -> Said:
        """Return the outcome of an activity without a result."""
        if isinstance(cause, TimedOut) and cause.type is TimeoutType.SCHEDULE_TO_START:
            reason = f"no machine took it: none serves {effect.worker}, or all are busy"
            return self._failed(effect, "unavailable", reason, "none")
        if isinstance(cause, Cancelled):
            return self._unbegun(effect, barred=False)
        reason = f"its machine failed: {cause}"
        if isinstance(cause, TimedOut):
            reason = "the machine that carried it out fell silent"
        return self._failed(effect, "lost", reason, "unknown")

    def _unbegun(self, effect: StartAttempt | StartProbe, *, barred: bool) -> Said:
        """Return the outcome of an activity that never started."""
        if not barred:
            return self._failed(effect, "lost", "it was stopped before it began", "none")
        reason = "what was tried before may be at work still, on a machine that does not answer"
        return self._failed(effect, "unavailable", reason, "none")

    def _failed(self, effect: StartAttempt | StartProbe, kind: str, reason: str, done: str) -> Said:
        def failed(state: State, _now: Now) -> Move:
            if not commands.is_current(state, effect.step, effect.epoch):
                return Move([], [])
            step, attempt, epoch = effect.step, effect.attempt, effect.epoch
            if isinstance(effect, StartProbe):
                told = self._unheard_of(effect)
                return Move([ev.ProbeReported(step, attempt, epoch, told, reason=reason)], [])
            failure: dict[str, Any] = {"class": kind, "message": reason[:4000], "effect": done}
            if kind == "unavailable":
                failure["retry_after"] = parked_s(state.policy)
            reported = ev.AttemptReported(step, attempt, epoch, met=False, failure=failure)
            return Move([reported], [])

        return failed

    def _unheard_of(self, probe: StartProbe) -> str:
        """Return the outcome of a silent probe: repeated, and after too many left to a person."""
        self._unheard[probe.step, probe.attempt] += 1
        often = self._unheard[probe.step, probe.attempt] >= PROBES_MAX
        return "unknown" if often else "lost"

    # Requests that need the whole run.

    def _look(self, **more: Any) -> StateRequest:
        flow = self._flow
        return StateRequest(flow.state.run, flow.pipe.place, flow.ways.heartbeat_s, **more)

    async def _see(
        self, call: _Call, name: str, look: StateRequest, result: type, policy: RetryPolicy = ONCE
    ) -> Any:
        """Run an activity with the state as it was when it was requested."""
        flow = self._flow
        await flow.pipe.until_written(look.place.seq)
        if call.stopped:
            return None
        limit_s = flow.state.policy.planner_timeout_s + NET_S
        return await self._call(
            call,
            name,
            look,
            result,
            retry_policy=policy,
            activity_id=f"{name} {look.place.seq}",
            task_queue=engine_queue(flow.ways.prefix),
            start_to_close_timeout=timedelta(seconds=limit_s),
        )

    async def _ask(self, effect: CallPlanner, call: _Call) -> None:
        said = PlannerReply(reason="it was stopped")
        wanted = not call.stopped and self._flow.state.planner.epoch == effect.epoch
        if wanted:
            quota = self.money.give("", effect.epoch)
            look = self._look(call=effect.call, epoch=effect.epoch, why=effect.why, quota=quota)
            try:
                said = await self._see(call, PLAN, look, PlannerReply) or said
            except ActivityError as error:
                said = PlannerReply(reason=f"no answer was received: {error.cause}"[:2000])

        def heard(state: State, now: Now) -> Move:
            self.money.back("", effect.epoch)
            calls: list[ev.Event] = [] if state.ended is not None else list(said.calls)
            if said.answer is not None:
                events, effects = record_answer(state, effect.call, effect.epoch, said.answer, now)
                return Move([*calls, *events], effects)
            if state.planner.epoch == effect.epoch:
                calls.append(ev.PlannerFailed(effect.call, effect.epoch, said.reason))
            return Move(calls, [])

        self._flow.hand_in(heard)

    async def _examine(self, effect: Examine, call: _Call) -> None:
        number = effect.number
        try:
            seen = await self._see(call, EXAMINE, self._look(number=number), Examined)
        except ActivityError as error:
            seen = Examined(failed=f"the reviewers could not be asked: {error.cause}"[:500])
        self._flow.hand_in(
            lambda state, now: commands.record_examination(
                state, number, seen.found, seen.failed, now
            )
        )

    async def _verify(self, effect: VerifyGoal, call: _Call) -> None:
        try:
            look = self._look(result=effect.result)
            findings = await self._see(call, VERIFY, look, list[str], UNREADABLE)
        except ActivityError as error:
            findings = [f"the results could not be read: {error.cause}"]
        event = ev.GoalChecked(not findings, findings)
        self._flow.hand_in(lambda state, _now: Move([event] if state.goal_asked else [], []))


def _heard(state: State, effect: StartAttempt | StartProbe, judged: Judged) -> Move:
    current = commands.is_current(state, effect.step, effect.epoch)
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
        events += commands.report(state, judged.report).events
    return Move(events, [])
