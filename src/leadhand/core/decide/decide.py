"""`decide`: the next move of a run, from its state and the time.

    while (move := decide(state, now, room)) is not None:
        evolve every event of the move; keep its effects until the events are durable

Each call returns one small move, the most urgent one, or None if there is nothing to do before an
input arrives or a timer is due. Events and effects of a move belong together: the engine commits
the events, then performs the effects.

Order of urgency: lost or overdue attempts; failures that wait for a decision; steps that can no
longer run; the planner's answer; stopping; starting; asking the planner; the end.

`room` is how many attempts the host grants across all its runs. Everything else is in the state,
the policy constants included: they were recorded when the run started.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import window_open
from leadhand.core.decide import recovery
from leadhand.core.decide.circuit_breaker import circuit_reason
from leadhand.core.decide.effects import (
    SECOND,
    CallPlanner,
    Move,
    Notify,
    StartAttempt,
    StartProbe,
    StopAttempt,
    VerifyGoal,
    stop_failed,
)
from leadhand.core.decide.planner_answer import NO_INPUT, answer_moves, handle_stuck_planner
from leadhand.core.durations import seconds, text
from leadhand.core.facts import gates, missing_facts, true_facts
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.references import Unresolved, resolve
from leadhand.core.report import TOO_LATE
from leadhand.core.review import protected_change
from leadhand.core.review.decisions import overdue_events
from leadhand.core.review.holds import no_longer_allowed
from leadhand.core.rollback import can_roll_back
from leadhand.core.state.model import STARTABLE
from leadhand.core.views.failure_origin import origin_of
from leadhand.core.views.run import (
    acceptance,
    goal_of,
    goes_on,
    question_text,
    run_result,
    task_text,
)

if TYPE_CHECKING:
    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now, State, StepState


# The most urgent part of `decide`: attempts lost with their host, and overdue ones.


def _allowed_s(state: State, step: StepState) -> float:
    """Return the time limit of an attempt: the step's own timeout, its worker's, or the run's."""
    own = step.doc.get("timeout")
    offer = state.catalog.offer(step.worker, step.action)
    limit_s = seconds(own) if own is not None else offer.timeout_s if offer else None
    return state.policy.timeout_s if limit_s is None else limit_s


def lost(state: State) -> Move | None:
    """Return the move for the first attempt, probe or planner call lost with its host."""
    reason = "its host ended before it reported"
    while state.lost_in_flight:
        ident, epoch = state.lost_in_flight[0]
        if not ident and state.planner.epoch == epoch:
            failed = ev.PlannerFailed(state.planner.calls, epoch, reason, lost=True)
            return Move([failed], [])
        step = state.steps.get(ident)
        if step is not None and state.in_flight.get(ident) == epoch:
            if step.status == "probing":
                probe = ev.ProbeReported(ident, step.attempts, epoch, "lost", reason=reason)
                return Move([probe], [])
            return Move([ev.AttemptLost(ident, step.attempts, epoch, "lost", reason)], [])
        state.lost_in_flight.popleft()
    return None


def overdue(state: State, now: Now) -> Move | None:
    """Return the move for the first timer that is due, or None."""
    if not state.agenda_built:
        state.build_agenda()
    calendar = state.calendar
    while calendar and calendar[0][0] <= now.wall:
        step = state.steps[heappop(calendar)[1]]
        if step.status in STARTABLE and not step.ticket:
            state.enqueue(step)
    timers = state.timers
    while timers and timers[0][0] <= now.at:
        state.tidy_timers()
        if not timers or timers[0][0] > now.at:
            return None
        _, kind, ident, epoch = timers[0]
        if kind != "retry":
            return _expire(state, kind, ident, epoch)
        heappop(timers)
        state.enqueue(state.steps[ident])
    return None


def _expire(state: State, kind: str, ident: str, epoch: int) -> Move:
    if kind == "question":
        return Move(overdue_events(state, ident), [])
    if kind == "planner":
        failed = ev.PlannerFailed(state.planner.calls, epoch, TOO_LATE)
        return Move([failed], [StopAttempt("", state.planner.calls, epoch, "timeout")])
    if kind == "run" and ident == "wall":
        return stop_failed("the run reached its time limit", "wall time")
    if kind == "run":
        ident, epoch = next(iter(state.in_flight.items()))
    step = state.steps[ident]
    stop = StopAttempt(ident, step.attempts, epoch, "timeout")
    if step.status == "probing":
        reason = "the probe timed out"
        probe = ev.ProbeReported(ident, step.attempts, epoch, "unknown", reason=reason)
        return Move([probe], [stop])
    if kind == "run":
        reason = "it did not stop in time when the run was cancelled"
        return Move([ev.AttemptLost(ident, step.attempts, epoch, "lost", reason)], [stop])
    reason = f"no report within {text(_allowed_s(state, step))}, its timeout"
    if step.with_caller and step.deadline < step.limit:
        reason = f"{step.caller} neither reported nor extended its lease in time"
    return Move([ev.AttemptLost(ident, step.attempts, epoch, "timeout", reason)], [stop])


UNLIMITED = 1 << 30


def decide(state: State, now: Now, room: int = UNLIMITED) -> Move | None:
    """Return the next move, or None. `room` is the number of attempts the host grants."""
    if state.started is None or state.ended is not None:
        return None
    move = lost(state) if state.lost_in_flight else None
    if move is None:
        move = overdue(state, now)
    if move is None and state.undecided:
        move = _recover(state, now)
    if move is None and state.to_skip:
        move = _skip(state)
    if move is not None:
        return move
    if state.stopping is not None:
        return _stop(state)
    if state.planner.answer is not None:
        return Move(*answer_moves(state, now))
    if state.paused:
        return None
    return _start(state, now, room) or _consult(state, now) or _conclude(state, now, room)


def next_wake(state: State) -> tuple[int | None, int | None]:
    """Return when to call `decide` again without input: on the run clock, and on the calendar."""
    state.tidy_timers()
    return (
        state.timers[0][0] if state.timers else None,
        state.calendar[0][0] if state.calendar else None,
    )


# Failures.


def _recover(state: State, now: Now) -> Move:
    step = state.steps[state.undecided[0]]
    failure = step.failure or {}
    choice = recovery.choose(state, step)
    until = 0
    if choice.strategy in ("retry", "reroute", "park"):
        until = now.at + int(choice.wait_s * SECOND)
    decided = ev.RecoveryDecided(
        step=step.id,
        attempt=step.attempts,
        failure_class=str(failure.get("class", "unavailable")),
        strategy=choice.strategy,
        reason=choice.reason,
        until=until,
        worker=choice.worker,
    )
    match choice.strategy:
        case "abort":
            then = "roll back" if choice.rollback else "abort"
            reason = f"step {step.id} failed and the plan says to {then}: {choice.reason}"
            stop = ev.StopDecided(
                "failed", reason, rollback=choice.rollback, origin=origin_of(step)
            )
            return Move([decided, stop], [])
        case "probe":
            return _probe(state, step, decided, now)
        case "ask" if state.policy.no_input:
            reason = f"step {step.id} failed: {choice.reason}; {NO_INPUT}"
            stop = ev.StopDecided("failed", reason, origin=origin_of(step))
            return Move([msgspec.structs.replace(decided, strategy="abort"), stop], [])
        case "ask":
            replans = state.started is not None and state.started.replans
            back = can_roll_back(state)
            text, choices = question_text(step, choice.reason, replans=replans, rollback=back)
            kind, people = "unseen" if failure.get("effect") == "unknown" else "failure", 1
            if failure.get("change"):
                kind = protected_change.KIND
                text, choices, people = protected_change.change_question(state, step)
            asked = ev.QuestionAsked(
                id=f"q{state.asked + 1}",
                kind=kind,
                text=text,
                choices=choices,
                step=step.id,
                attempt=step.attempts,
                people=people,
            )
            return Move([decided, asked], [Notify("waiting", text)])
        case _:
            return Move([decided], [])


def _probe(state: State, step: StepState, decided: ev.RecoveryDecided, now: Now) -> Move:
    try:
        parameters = resolve(step.doc.get("parameters", {}), state.lookup)
    except Unresolved:
        parameters = {}
    deadline = now.at + int(state.policy.probe_timeout_s * SECOND)
    started = ev.ProbeStarted(step.id, step.attempts, state.epoch + 1, deadline)
    effect = StartProbe(step.id, step.attempts, started.epoch, step.worker, step.action, parameters)
    return Move([decided, started], [effect])


def _skip(state: State) -> Move | None:
    while state.to_skip:
        step = state.steps[state.to_skip[0]]
        if step.status == "waiting":
            cause = state.steps[step.lost_dependency]
            reason = f"step {cause.id}, which it depends on, {_said(cause.status)}"
            return Move([ev.StepSkipped(step.id, reason)], [])
        state.to_skip.popleft()
    return None


def _said(status: str) -> str:
    return "failed" if status == "failed" else f"was {status}"


# Starting.


class Claim(NamedTuple):
    """A caller that asks for a step."""

    caller: str
    lease_s: float
    """How long it may work before it must report or extend its lease."""


def hand_out(state: State, now: Now, claim: Claim) -> Move | None:
    """Return the move that starts the next step for a caller, or None if there is none now.

    Other moves that come first are returned in its place, such as one that holds a step whose
    approval expired: ask again then.
    """
    if state.started is None or state.ended is not None or state.stopping is not None:
        return None
    if state.paused or state.planner.answer is not None or state.undecided or state.lost_in_flight:
        return None
    return overdue(state, now) or _start(state, now, UNLIMITED, claim)


def _start(state: State, now: Now, room: int, claim: Claim | None = None) -> Move | None:
    policy = state.policy
    if room <= 0 or len(state.in_flight) >= policy.max_concurrency or state.finish is not None:
        return None
    following = state.next_ready if claim is None else state.next_offered
    step = following()
    while step is not None and (later := _too_early(step, now.wall)):
        step.ticket = 0
        state.add_calendar(later, step.id)
        step = following()
    if step is None:
        return None
    if barred := no_longer_allowed(state, step, now):
        return Move(*barred)
    if policy.budget is not None and _over_budget(state, step, policy.budget):
        if state.in_flight:
            return None
        return stop_failed(f"step {step.id} would pass the budget of {policy.budget}", "budget")
    return _attempt(state, step, now, claim)


def _too_early(step: StepState, wall: int) -> int:
    """Return when a step may start by the calendar, 0 for now; a clock set back counts."""
    if step.not_before > wall:
        return step.not_before
    if "window" not in step.doc:
        return 0
    is_open, opens = window_open(step.doc["window"], wall)
    return 0 if is_open else opens


def _over_budget(state: State, step: StepState, budget: float) -> bool:
    committed = round(state.spent + state.reserved, 9)  # Three times 0.1 must be within 0.3.
    return committed >= budget or round(committed + state.price(step), 9) > budget


def _attempt(state: State, step: StepState, now: Now, claim: Claim | None) -> Move:
    doc = step.doc
    spec = state.catalog.workers.get(step.worker)
    offer = spec.offer(step.action) if spec else None
    if spec is None or offer is None:
        reason = f"worker {step.worker} does not offer {step.action or 'this'} in this run"
        return Move([ev.StepRefused(step.id, "unavailable", reason)], [])
    if step.worker in state.open_circuits:
        reason = f"worker {step.worker} {circuit_reason(state.open_circuits, step.worker)}"
        return Move([ev.StepRefused(step.id, "unavailable", reason)], [])
    if (needed := gates(doc, offer, widened=step.widened)) and (closed := _closed(state, needed)):
        reason = f"it needs {', '.join(closed)}, which is not true: a step before it, or a person, "
        reason += "must give that"
        return Move([ev.StepRefused(step.id, "permanent", reason)], [])
    template = doc.get("parameters") or {}
    try:
        parameters = resolve(template, state.lookup)
    except Unresolved as error:
        return Move([ev.StepRefused(step.id, "permanent", str(error))], [])
    timeout = doc.get("timeout")
    limit_s = seconds(timeout) if timeout is not None else offer.timeout_s
    if spec.kind == "human" and not step.answered:
        return _task(state, step, spec, parameters, now.at, limit_s)
    deadline = now.at + int((state.policy.timeout_s if limit_s is None else limit_s) * SECOND)
    spec_hash = digest(canonical(doc), spec.name, spec.version)
    exec_hash = "" if parameters is template else digest(spec_hash, canonical(parameters))
    attempt, epoch = step.attempts + 1, state.epoch + 1
    started = ev.AttemptStarted(
        step.id, attempt, epoch, step.worker, deadline, spec_hash, exec_hash
    )
    if claim is not None:
        lease = min(deadline, now.at + int(claim.lease_s * SECOND))
        handed = msgspec.structs.replace(
            started, caller=claim.caller, deadline=lease, limit=deadline
        )
        return Move([handed], [])
    effect = StartAttempt(step.id, attempt, epoch, step.worker, step.action, parameters, deadline)
    return Move([started], [effect])


def _closed(state: State, needed: list[str]) -> list[str]:
    """Return the flags among `needed` that are not true now."""
    true = true_facts(state, goal_of(state))
    return [flag for flag in needed if flag not in true]


def _task(
    state: State,
    step: StepState,
    spec: WorkerSpec,
    parameters: Doc,
    at: int,
    limit_s: float | None,
) -> Move:
    """Ask a person to do the step; the answer is its report."""
    text = task_text(step, spec, parameters, limit_s)
    offer = spec.offer(step.action)
    otherwise = "cannot" if offer is None or offer.silence is None else "done"
    asked = ev.QuestionAsked(
        id=f"q{state.asked + 1}",
        kind="task",
        text=text,
        choices=["done", "cannot"],
        step=step.id,
        attempt=step.attempts + 1,
        default="" if limit_s is None else otherwise,
        until=0 if limit_s is None else at + int(limit_s * SECOND),
    )
    return Move([asked], [Notify("waiting", text)])


# The planner, and the end.


def _consult(state: State, now: Now) -> Move | None:
    planner = state.planner
    why = planner.due
    if not why or planner.epoch or state.pending is not None or state.finish is not None:
        return None
    if why == "report" and state.final:
        return None
    if any(question.kind == "planning" for question in state.questions.values()):
        return None  # A person is already asked what the planner should do.
    failing = planner.rounds >= state.policy.planner_rounds_max
    if failing and state.unsettled and goes_on(state):
        return None  # A person is asked once nothing else is in progress.
    return _ask_planner(state, why, now.at)


def _ask_planner(state: State, why: str, at: int) -> Move:
    planner, policy = state.planner, state.policy
    if planner.rounds >= policy.planner_rounds_max:
        last = "; ".join(planner.findings[:3])
        times = f" {planner.rounds} times in a row" if planner.rounds > 1 else ""
        reason = f"the planner failed{times}: {last}"
        return Move(*handle_stuck_planner(state, reason))
    if planner.calls >= policy.planner_calls_max:
        reason = f"the limit of {planner.calls} planner calls is reached"
        return stop_failed(reason, "planner calls", "planning")
    deadline = at + int(policy.planner_timeout_s * SECOND)
    asked = ev.PlannerAsked(planner.calls + 1, state.epoch + 1, deadline, why)
    return Move([asked], [CallPlanner(asked.call, asked.epoch, why)])


def _stop(state: State) -> Move | None:
    stopping = state.stopping
    if stopping is None or state.in_flight:
        return None
    ended = ev.RunEnded(
        stopping.status,
        stopping.reason,
        limit=stopping.limit,
        rollback=stopping.rollback,
        origin=stopping.origin,
    )
    return _ending(ended)


def _end(status: str, reason: str, *, result: object = None, origin: str = "") -> Move:
    return _ending(ev.RunEnded(status, reason, result, origin=origin))


def _ending(ended: ev.RunEnded) -> Move:
    status, reason = ended.status, ended.reason
    return Move([ended], [Notify("ended", f"{status}: {reason}" if reason else status)])


def _conclude(state: State, now: Now, room: int) -> Move | None:
    planner = state.planner
    if state.in_flight or planner.epoch or state.pending is not None:
        return None
    if state.finish is not None:
        return _succeed(state, state.finish.get("result"))
    if state.unsettled:
        return _stalled(state, now, room)
    if state.questions or not state.revision:
        return None
    if not state.final:
        return _ask_planner(state, "nothing is left", now.at)
    if state.blocking and state.started is not None and state.started.replans:
        why = f"surprise: {_what_failed(state)}, and nothing has replaced it"
        return _ask_planner(state, why, now.at)
    if state.blocking:
        return _end("failed", _what_failed(state), origin=_blamed(state))
    return _succeed(state, None)


def _succeed(state: State, result: object) -> Move | None:
    wanted = acceptance(state)
    if not state.goal_asked:
        absent = missing_facts(state, goal_of(state))
        if absent:
            return Move([ev.GoalCheckStarted(), ev.GoalChecked(False, absent)], [])
    if wanted and state.goal_met is None:
        if state.goal_asked:
            return None
        whole = run_result(state) if result is None or goal_of(state).want else result
        return Move([ev.GoalCheckStarted()], [VerifyGoal(whole)])
    if state.goal_met is False:
        reason = "the goal is not met: " + "; ".join(state.goal_findings)
        return _end("failed", reason, origin="planning")
    # Wanted facts are in their steps: the result is read from there, not from a planner's claim.
    return _end("succeeded", "", result=None if goal_of(state).want else result)


def _stalled(state: State, now: Now, room: int) -> Move | None:
    """Resolve a stall: the rest waits for a failed step the planner has not dealt with.

    The final case is a safety net: no plan that passed the checks should reach it.
    """
    if state.questions or room <= 0 or goes_on(state):
        return None
    if state.awaiting_planner:
        why = f"surprise: step {state.awaiting_planner[0]} failed, and nothing else is left to do"
        return _ask_planner(state, why, now.at)
    if state.planner.surprising:
        odd = state.planner.surprising[0]
        why = f"surprise: step {odd} succeeded otherwise than expected, and others wait for it"
        return _ask_planner(state, why, now.at)
    reason = f"{state.unsettled} steps wait for something that cannot come"
    return stop_failed(reason, origin="planning")


def _blamed(state: State) -> str:
    """Return the origin of the failure when failed steps end a run: the last failure decides."""
    failed = [step for step in state.steps.values() if state.is_blocking(step) and step.failure]
    return origin_of(max(failed, key=lambda step: step.ended)) if failed else "execution"


def _what_failed(state: State) -> str:
    names = [f"{s.id} {s.status}" for s in state.steps.values() if state.is_blocking(s)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
