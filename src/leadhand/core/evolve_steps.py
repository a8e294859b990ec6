"""The half of `evolve` that speaks of steps and attempts. The laws stand in `evolve.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.ready import uses_of
from leadhand.core.records import Question
from leadhand.core.state import (
    DROPPABLE,
    MOVABLE,
    STARTABLE,
    IllegalEvent,
    State,
    StepState,
    tried_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

STRATEGIES = frozenset(
    {
        "retry",
        "reroute",
        "park",
        "simplify",
        "ask",
        "probe",
        "replan",
        "continue",
        "abort",
        "abandon",
    }
)
UNDECIDED = frozenset({"undecided"})


def known(state: State, ident: str, allowed: Collection[str]) -> StepState:
    """A step that must be there, and stand in one of some ways."""
    step = state.steps.get(ident)
    if step is None or step.status not in allowed:
        raise IllegalEvent(f"step {ident} is {step.status if step else 'not in the plan'}")
    return step


def make_ready(state: State, step: StepState) -> None:
    """All it waited for is settled."""
    step.status = "ready"
    if state.awake:
        state.offer(step)


def _attempt_started(state: State, event: ev.AttemptStarted, at: int) -> None:
    step = known(state, event.step, STARTABLE)
    epoch = event.epoch
    if event.attempt != step.attempts + 1 or epoch != state.epoch + 1:
        raise IllegalEvent(f"attempt {event.attempt} of {event.step} is out of order")
    step.status = "running"
    step.ticket = 0
    step.answered = False
    step.attempts = event.attempt
    step.worker = event.worker
    state.backing_off.pop(step.id, None)
    if not step.started:
        step.started = at
        if state.started is not None and state.started.replans:
            state.tried.add(tried_key(step.doc))
    _occupy(state, step, epoch, event.deadline, at)


def _occupy(state: State, step: StepState, epoch: int, deadline: int, at: int) -> None:
    if not state.in_flight:
        state.busy_since = at
    state.epoch = step.epoch = state.in_flight[step.id] = epoch
    step.deadline = deadline
    busy = state.busy_workers
    busy[step.worker] = busy.get(step.worker, 0) + 1
    if "uses" in step.doc:
        for name, amount in uses_of(step.doc):
            state.busy_resources[name] = state.busy_resources.get(name, 0) + amount
    if state.policy.budget is not None:
        state.reserved += state.price(step)
    if state.awake:
        state.add_timer(deadline, step.status, step.id, epoch)


def _release(state: State, step: StepState, at: int) -> None:
    epoch = state.in_flight.pop(step.id)
    if not state.in_flight:
        state.worked += at - state.busy_since
    if state.orphans and state.orphans[0] == (step.id, epoch):
        state.orphans.popleft()
    step.epoch = 0
    state.busy_workers[step.worker] -= 1
    parked = state.ready.parked
    if parked:
        state.ready.freed(f"worker {step.worker}")
    if "uses" in step.doc:
        for name, amount in uses_of(step.doc):
            state.busy_resources[name] -= amount
            if parked:
                state.ready.freed(f"resource {name}")
    if state.policy.budget is not None:
        state.reserved -= state.price(step)


def _current(state: State, ident: str, epoch: int, status: str) -> StepState:
    step = state.steps.get(ident)
    if step is None or step.status != status or step.epoch != epoch:
        raise IllegalEvent(f"epoch {epoch} is not the current one of step {ident}")
    return step


def _attempt_spawned(state: State, event: ev.AttemptSpawned, _at: int) -> None:
    if state.in_flight.get(event.step) != event.epoch:
        raise IllegalEvent(f"epoch {event.epoch} is not the current one of step {event.step}")


def _attempt_reported(state: State, event: ev.AttemptReported, at: int) -> None:
    step = _current(state, event.step, event.epoch, "running")
    _release(state, step, at)
    step.report = event
    if event.cost:
        state.spent += event.cost
        step.cost += event.cost
    if event.recommendations:
        state.recommendations.extend(event.recommendations)
        state.recommenders.extend([event.step] * len(event.recommendations))
    if step.worker in state.permits.untrusted:
        state.permits.tainted = True
    if event.met:
        step.data = event.data
        step.data_ref = event.data_ref
        surprising = bool(event.surprise) and state.surprises_wait
        succeed(state, step, at, settle=not surprising)
        if surprising:
            state.planner.surprising.append(event.step)
        if event.surprise and state.started is not None and state.started.replans:
            state.planner.due = f"surprise: step {event.step}: {event.surprise}"
    else:
        _fail_attempt(state, step, event.failure or {})


def succeed(state: State, step: StepState, at: int, *, settle: bool = True) -> None:
    step.failure = None
    state.succeeded += 1
    state.undoable += "undo" in step.doc
    state.revisions_idle = 0
    end(state, step, "succeeded", at, "", settle=settle)


def _fail_attempt(state: State, step: StepState, failure: dict[str, Any]) -> None:
    step.tries = {**(step.tries or {}), step.worker: step.tried(step.worker) + 1}
    _fail(state, step, failure)


def _fail(state: State, step: StepState, failure: dict[str, Any]) -> None:
    step.status = "undecided"
    step.failure = failure
    step.failures = (*step.failures, failure)
    state.failed_attempts.append((step.id, step.attempts, step.worker, failure))
    state.undecided.append(step.id)


def _report_ignored(state: State, event: ev.ReportIgnored, _at: int) -> None:
    state.spent += event.cost


def _attempt_lost(state: State, event: ev.AttemptLost, at: int) -> None:
    step = _current(state, event.step, event.epoch, "running")
    _release(state, step, at)
    failure = {"class": event.failure_class, "message": event.reason, "effect": "unknown"}
    _fail_attempt(state, step, failure)
    step.answered = state.is_for_people(step)  # what they did and said is not lost


def _step_refused(state: State, event: ev.StepRefused, at: int) -> None:
    step = known(state, event.step, STARTABLE)
    step.ticket = 0
    step.started = step.started or at
    state.backing_off.pop(step.id, None)
    failure = {"class": event.failure_class, "message": event.reason, "effect": "none"}
    if event.failure_class == "unavailable":
        _fail_attempt(state, step, failure)  # as good as a try: that worker is not asked again
    else:
        _fail(state, step, failure)


def _probe_started(state: State, event: ev.ProbeStarted, at: int) -> None:
    step = known(state, event.step, UNDECIDED)
    if event.epoch != state.epoch + 1:
        raise IllegalEvent(f"probe {event.epoch} of {event.step} is out of order")
    step.status = "probing"
    _occupy(state, step, event.epoch, event.deadline, at)


def _probe_reported(state: State, event: ev.ProbeReported, at: int) -> None:
    step = _current(state, event.step, event.epoch, "probing")
    _release(state, step, at)
    if event.outcome == "done" and event.met:
        step.data = event.data
        step.data_ref = event.data_ref
        succeed(state, step, at)
        return
    failure = dict(step.failure or {})
    failure["probed"] = event.outcome != "lost"
    failure["effect"] = {"done": "done", "not_done": "none"}.get(event.outcome, "unknown")
    if event.outcome == "done":
        failure["class"] = "criteria_unmet"
    if event.reason:
        failure["message"] = f"{failure.get('message', '')}; probe: {event.reason}"
    step.status = "undecided"
    step.failure = failure
    step.failures = (*step.failures[:-1], failure)
    state.undecided.append(step.id)


def _recovery_decided(state: State, event: ev.RecoveryDecided, at: int) -> None:
    if not state.undecided or state.undecided[0] != event.step:
        raise IllegalEvent(f"step {event.step} is not the one to be decided")
    if event.strategy not in STRATEGIES:
        raise IllegalEvent(f"unknown strategy {event.strategy}")
    state.undecided.popleft()
    step = state.steps[event.step]
    step.reason = event.reason
    match event.strategy:
        case "retry" | "reroute" | "park":
            if event.strategy == "park":
                step.parked_s += (event.until - at) / 1e6
                step.tries = {**(step.tries or {}), step.worker: step.tried(step.worker) - 1}
            step.worker = event.worker
            step.status = "backing_off"
            step.until = event.until
            state.backing_off[step.id] = None
            state.add_timer(event.until, "retry", event.step, 0)
        case "ask" | "probe":
            pass
        case "replan" | "simplify":
            leave_to_planner(state, step, event.reason, at, split=event.strategy == "simplify")
        case "continue":
            step.tolerated = True
            end(state, step, "failed", at, event.reason)
        case _:
            end(state, step, "failed", at, event.reason, settle=False)


def leave_to_planner(
    state: State, step: StepState, reason: str, at: int, *, split: bool = False
) -> None:
    """The planner decides how to go on without it, or how to do it in parts."""
    end(state, step, "failed", at, reason, settle=False)
    step.depth += split
    state.forsaken.append(step.id)
    state.unanswered.append(step.id)
    why = "split: step {} is too much at once: {}" if split else "surprise: step {} failed: {}"
    state.planner.due = why.format(step.id, reason)


def _step_skipped(state: State, event: ev.StepSkipped, at: int) -> None:
    step = known(state, event.step, MOVABLE)
    if state.doomed and state.doomed[0] == event.step:
        state.doomed.popleft()
    step.tolerated = event.tolerated
    end(state, step, "skipped", at, event.reason)


def _step_cancelled(state: State, event: ev.StepCancelled, at: int) -> None:
    cancel_step(state, event.step, event.reason, at)


def end(
    state: State, step: StepState, status: str, at: int, reason: str, *, settle: bool = True
) -> None:
    """Settle a step. A success unblocks its dependents, anything else dooms those who mind."""
    step.status = status
    step.reason = reason
    step.ended = at
    step.ticket = 0
    state.unsettled -= 1
    if state.backing_off:
        state.backing_off.pop(step.id, None)
    if step.doomed and step.id in state.doomed:
        state.doomed.remove(step.id)
    if state.consults_reports and not state.planner.due and status != "cancelled":
        state.planner.due = "report"
    succeeded = status == "succeeded"
    if not succeeded and state.is_bad(step):
        state.bad += 1
    if step.question:
        close_question(state, step)
    if step.held:
        state.let_go(step)
    if settle and step.dependents:
        settle_dependents(state, step)


def settle_dependents(state: State, step: StepState) -> None:
    """Those who wait for a step hear how it ended."""
    succeeded = step.status == "succeeded"
    dependents, step.dependents = step.dependents, ()
    for ident, tolerant in dependents:
        dependent = state.steps[ident]
        if dependent.status != "waiting":
            continue
        dependent.blockers -= 1
        if not succeeded and not tolerant:
            doom(state, dependent, step.id)
        elif not dependent.blockers and not dependent.doomed:
            make_ready(state, dependent)


def doom(state: State, step: StepState, dependency: str) -> None:
    if not step.doomed:
        step.doomed = dependency
        state.doomed.append(step.id)


def cancel_step(state: State, ident: str, reason: str, at: int) -> None:
    step = known(state, ident, MOVABLE)
    step.dropped = reason
    end(state, step, "cancelled", at, reason)


def drop_step(state: State, ident: str, reason: str, at: int) -> None:
    """Give a step up by name, and with it the steps that wait for it and mind."""
    _give_up(state, known(state, ident, DROPPABLE), reason, at)
    stack = [state.steps[ident]]
    while stack:
        gone = stack.pop()
        dependents, gone.dependents = gone.dependents, ()
        for name, tolerant in dependents:
            step = state.steps[name]
            if step.status != "waiting":
                continue
            step.blockers -= 1
            if not tolerant:
                because = f"{gone.id}, which it depends on, was dropped: {reason}"
                _give_up(state, step, because, at)
                stack.append(step)
            elif not step.blockers and not step.doomed:
                make_ready(state, step)


def _give_up(state: State, step: StepState, reason: str, at: int) -> None:
    step.dropped = reason
    if step.status in MOVABLE:
        end(state, step, "cancelled", at, reason, settle=False)
        return
    state.bad -= state.is_bad(step)
    step.tolerated = True
    if step.id in state.forsaken:
        state.forsaken.remove(step.id)


def close_question(state: State, step: StepState) -> None:
    state.questions.pop(step.question, None)
    step.question = ""


# Questions.


def _question_asked(state: State, event: ev.QuestionAsked, at: int) -> None:
    standing = STARTABLE if event.kind == "task" else UNDECIDED
    step = known(state, event.step, standing) if event.step else None
    if event.id in state.questions:
        raise IllegalEvent(f"question {event.id} is open already")
    state.asked += 1
    if event.kind in ("planner", "planning"):
        state.planner.answer = None
    if event.kind == "planning":
        state.planner.due = ""
    state.questions[event.id] = Question(
        event.id,
        event.kind,
        event.text,
        event.choices,
        event.step,
        at,
        default=event.default,
        until=event.until,
        facts=event.facts,
        people=event.people,
    )
    if event.until:
        state.add_timer(event.until, "question", event.id, 0)
    if step is not None:
        step.status = "asking"
        step.ticket = 0
        step.question = event.id


def _change_approved(state: State, event: ev.ChangeApproved, _at: int) -> None:
    question = state.questions.get(event.question)
    if question is None or question.step != event.step:
        raise IllegalEvent(f"question {event.question} is not open about {event.step}")
    question.approvals.append(event)


def _question_answered(state: State, event: ev.QuestionAnswered, at: int) -> None:
    question = state.questions.pop(event.id, None)
    if question is None:
        raise IllegalEvent(f"question {event.id} is not open")
    state.answers.append(
        {
            "question": question.text,
            "step": question.step,
            "choice": event.choice,
            "text": event.text,
            "data": event.data,
            "actor": event.actor,
            "facts": list(question.facts) if event.choice == "give" else [],
            "at": at,
            **_approved(question),
        }
    )
    if question.kind == "planner":
        state.planner.due = "answer"
    if question.kind == "planning":
        _planner_told(state, event)
    if not question.step:
        return
    step = state.steps[question.step]
    step.question = ""
    if question.kind == "task":
        _task_answered(state, step, event)
    elif event.choice in ("retry", "approve", "send_back"):
        step.tries = None
        step.forgiven = len(step.failures)
        make_ready(state, step)
    elif event.choice == "replan":
        because = f"{event.actor} wants another way" + (f": {event.text}" if event.text else "")
        step.forgiven = len(step.failures)  # They have looked.
        leave_to_planner(state, step, because, at)
    elif event.choice == "done":
        step.data = event.data
        succeed(state, step, at)


def _approved(question: Question) -> dict[str, Any]:
    """What people approved with an answer: the commit, and who."""
    given = question.approvals
    return {"commit": given[0].commit, "by": [each.actor for each in given]} if given else {}


def _planner_told(state: State, event: ev.QuestionAnswered) -> None:
    """A person said how to go on where the planner had no idea: it starts over, or another does."""
    planner = state.planner
    planner.rounds, state.revisions_idle = 0, 0
    if event.choice == "hand_over":
        planner.handed, planner.notes, planner.findings = "goal", None, []
        state.consults_reports = True
    if event.choice not in ("abort", "rollback"):
        planner.due = "answer"


def _task_answered(state: State, step: StepState, event: ev.QuestionAnswered) -> None:
    """A person did it, which is judged as any report is; or cannot."""
    if event.choice == "done":
        step.answered = True
        make_ready(state, step)
    elif event.choice == "cannot":
        message = event.text or f"{event.actor} cannot do it"
        failure = {"class": "permanent", "message": message, "effect": "none", "by": event.actor}
        _fail(state, step, failure)


STEP_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.AttemptStarted: _attempt_started,
    ev.AttemptSpawned: _attempt_spawned,
    ev.AttemptReported: _attempt_reported,
    ev.ReportIgnored: _report_ignored,
    ev.AttemptLost: _attempt_lost,
    ev.ProbeStarted: _probe_started,
    ev.ProbeReported: _probe_reported,
    ev.StepRefused: _step_refused,
    ev.RecoveryDecided: _recovery_decided,
    ev.StepSkipped: _step_skipped,
    ev.StepCancelled: _step_cancelled,
    ev.QuestionAsked: _question_asked,
    ev.ChangeApproved: _change_approved,
    ev.QuestionAnswered: _question_answered,
}
