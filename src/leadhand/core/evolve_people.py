"""The part of `evolve` for what people do to steps: hold, release, redo. Laws in `evolve.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, doers
from leadhand.core.evolve_steps import close_question, known, make_ready, settle_dependents
from leadhand.core.graph import dependencies
from leadhand.core.records import Cut
from leadhand.core.review import ENDS_SINCE, without
from leadhand.core.state import SETTLED, IllegalEvent
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.state import State, StepState

POLICY = "policy"
"""Who holds steps for want of an approval."""
REDOABLE = frozenset({"failed", "asking", "backing_off", "ready"})
"""How a step stands that failed, and was not done since."""
REOPENS_SINCE = 5
"""The version of decisions that first lets a run that failed go on."""


def _steps_held(state: State, event: ev.StepsHeld, _at: int) -> None:
    steps = [state.steps.get(ident) for ident in event.steps]
    if any(step is None or step.status in SETTLED for step in steps):
        raise IllegalEvent(f"a step that is held is not there, or is settled: {event.steps}")
    before = {step.held for step in steps if step is not None and step.held}
    for step in steps:
        if step is not None:
            step.held, step.held_by = event.question, event.actor
            step.ticket = 0
            state.held.add(step.id)
            if event.actor == POLICY:
                step.void = event.reason
    for question in before - {state.steps[ident].held for ident in state.held}:
        state.questions.pop(question, None)  # Nothing waits for its answer any more.


def _release_given(state: State, event: ev.ReleaseGiven, _at: int) -> None:
    question = state.questions.get(event.question)
    if question is None or question.kind != "hold":
        raise IllegalEvent(f"{event.question} holds nothing that could be released")
    question.releases.append(event)


def _steps_released(state: State, event: ev.StepsReleased, _at: int) -> None:
    if any(ident not in state.held for ident in event.steps):
        raise IllegalEvent(f"a step that is released is not held: {event.steps}")
    for ident in event.steps:
        step = state.steps[ident]
        if step.held_by == POLICY or step.void:
            # People allow it anew; a hold that a person put there ends, and nothing else does.
            step.expires, step.approved, step.void = event.expires, True, ""
        step.held = step.held_by = ""
        state.held.discard(ident)
        if step.status == "ready":
            state.offer(step)
        elif step.status == "backing_off":
            state.add_timer(step.until, "retry", ident, 0)


def _workers_changed(state: State, event: ev.WorkersChanged, _at: int) -> None:
    specs = {**state.catalog.workers, **{spec.name: spec for spec in event.specs}}
    names = {spec.name for spec in event.specs}
    for step in state.steps.values():
        if step.status != "succeeded":
            changed = names.intersection(doers(step.doc, state.catalog.workers))
            if changed:
                step.void = f"{listed(sorted(changed))} changed since it was allowed"
    state.catalog = Catalog(specs.values())
    state.limits.clear()
    if state.started is not None and state.started.decide_version >= ENDS_SINCE:
        permits = state.permits
        permits.envelope = without(permits.envelope, names)
        permits.untrusted |= {spec.name for spec in event.specs if not spec.trusted}


def _approval_voided(state: State, event: ev.ApprovalVoided, _at: int) -> None:
    state.permits.voided.add(event.entry)
    concerned = {
        step.id
        for step in state.steps.values()
        if step.revision in event.revisions and step.status != "succeeded"
    }
    for ident in concerned:
        state.steps[ident].void = event.reason
    # No worker is told of an approval of its protected change any more: the change is asked about
    # again, by this question or by another.
    for question in state.questions.values():
        if question.step in concerned:
            question.approvals = []
    for place, answer in enumerate(state.answers):
        if answer["step"] in concerned and "commit" in answer:
            rest = {key: value for key, value in answer.items() if key not in ("commit", "by")}
            state.answers[place] = rest
    if state.permits.envelope is not None:
        state.permits.envelope = {}  # Nothing is inside of what nobody is known to have allowed.


def _run_reopened(state: State, event: ev.RunReopened, _at: int) -> None:
    """The run stands as it stood before it ended, and nothing stops it any more.

    A step that failed has failed, and whoever waits for it hears so now; but not for the one
    that is done again.
    """
    if state.ended is None or state.ended.status != "failed":
        raise IllegalEvent("only a run that failed can be reopened")
    cut, state.cut = state.cut, Cut()
    state.questions = cut.questions
    state.ended = state.stopping = state.finish = state.goal_met = None
    state.ended_at = 0
    state.goal_findings = []
    state.sleep()
    for ident, (status, reason) in cut.steps.items():
        step = state.steps[ident]
        if cut.given_up(ident, step.question):
            state.unsettled -= 1
            state.bad += 1
            state.let_go(step)
        else:
            step.status, step.reason, step.ended = status, reason, 0
    for step in state.steps.values():
        if step.status == "failed" and step.id not in (event.step, *state.forsaken):
            settle_dependents(state, step)
    _ask_again(state)


def _ask_again(state: State) -> None:
    """The planner starts over; it looks at surprises, since others wait until it has."""
    planner = state.planner
    planner.answer, planner.rounds, planner.findings = None, 0, []
    waits = planner.surprising
    planner.due = f"surprise: step {waits[0]} succeeded otherwise than expected" if waits else ""


def _redo_requested(state: State, event: ev.RedoRequested, _at: int) -> None:
    step = known(state, event.step, REDOABLE)
    if step.failure is None:
        raise IllegalEvent(f"step {event.step} has not failed")
    if step.status in SETTLED:
        state.unsettled += 1
        state.bad -= state.is_bad(step)
    if step.question:
        close_question(state, step)
    step.tolerated = False
    step.dropped = ""
    step.tries = None
    step.forgiven = len(step.failures)
    step.ended = 0
    state.backing_off.pop(event.step, None)
    state.finish = state.goal_met = None  # The plan goes on, whatever its planner had called done.
    state.goal_asked = False
    for failed in (state.forsaken, state.unanswered):
        if event.step in failed:
            failed.remove(event.step)
    if state.started is not None and state.started.decide_version >= REOPENS_SINCE:
        _revive(state, step)
    else:
        _revive_as_before(state, step)
    make_ready(state, step)


def _revive(state: State, redone: StepState) -> None:
    """Steps that are skipped because of it, or will be, wait for it again: unless something
    else keeps them from running, or a person skipped them."""
    redone.status = "waiting"
    causes = {redone.id}
    while found := [step for step in state.steps.values() if _lives_again(state, step, causes)]:
        for step in found:
            causes.add(step.id)
            if step.status == "skipped":
                state.unsettled += 1
                state.bad -= 1
            else:
                state.doomed.remove(step.id)
            step.status, step.doomed, step.reason, step.ended = "waiting", "", "", 0
    for ident in causes - {redone.id}:
        _wait_again(state, state.steps[ident])


def _lives_again(state: State, step: StepState, causes: set[str]) -> bool:
    lost = step.status == "skipped" or (step.status == "waiting" and step.doomed)
    if not lost or step.tolerated:
        return False
    minded = [name for name, tolerant in dependencies(step.doc).items() if not tolerant]
    others = [other for name in minded if (other := state.follow(name)) is not None]
    if not any(other.id in causes for other in others):
        return False
    return all(other.status not in SETTLED or other.status == "succeeded" for other in others)


def _revive_as_before(state: State, redone: StepState) -> None:
    """As `_revive`, for older logs: one look, in the order of the plan."""
    causes = {redone.id}
    for step in state.steps.values():
        if step.status == "skipped" and step.doomed in causes:
            causes.add(step.id)
            state.unsettled += 1
            state.bad -= state.is_bad(step)
            step.status, step.doomed, step.reason, step.ended = "waiting", "", "", 0
            step.tolerated = False
    redone.status = "waiting"
    for ident in causes - {redone.id}:
        _wait_again(state, state.steps[ident])


def _wait_again(state: State, step: StepState) -> None:
    step.blockers = 0
    for name, tolerant in dependencies(step.doc).items():
        other = state.follow(name)
        if other is None or other.status in SETTLED:
            continue
        step.blockers += 1
        pair = (step.id, tolerant)
        if pair not in other.dependents:
            other.dependents = [*other.dependents, pair]


PEOPLE_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.StepsHeld: _steps_held,
    ev.ReleaseGiven: _release_given,
    ev.StepsReleased: _steps_released,
    ev.ApprovalVoided: _approval_voided,
    ev.WorkersChanged: _workers_changed,
    ev.RunReopened: _run_reopened,
    ev.RedoRequested: _redo_requested,
}
