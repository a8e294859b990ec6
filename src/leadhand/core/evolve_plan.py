"""The half of `evolve` that speaks of planner and revisions. The laws stand in `evolve.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.durations import seconds
from leadhand.core.evolve_steps import (
    cancel_step,
    close_question,
    doom,
    drop_step,
    known,
    make_ready,
    settle_dependents,
)
from leadhand.core.graph import dependencies
from leadhand.core.records import Question, Revision
from leadhand.core.rehearsal import urgency
from leadhand.core.review import ENDS_SINCE
from leadhand.core.state import (
    DROPPABLE,
    MOVABLE,
    REPLACEABLE,
    SETTLED,
    IllegalEvent,
    State,
    StepState,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Waits = dict[str, dict[str, bool]]
"""For each new step the ids it waits for, each with whether it minds how that one ends."""


def _planner_asked(state: State, event: ev.PlannerAsked, _at: int) -> None:
    planner = state.planner
    if planner.epoch or event.call != planner.calls + 1 or event.epoch != state.epoch + 1:
        raise IllegalEvent(f"planner call {event.call} does not follow call {planner.calls}")
    state.epoch = planner.epoch = event.epoch
    planner.calls = event.call
    planner.due = ""
    planner.deadline = event.deadline
    state.add_timer(event.deadline, "planner", "", event.epoch)


def _planner_answered(state: State, event: ev.PlannerAnswered, _at: int) -> None:
    _planner_done(state, event.epoch)
    decision = event.decision
    if "revision" not in decision:
        state.planner.answer = decision
    if "notes" in decision:
        state.planner.notes = decision["notes"]
    state.spent += event.cost


def _planner_failed(state: State, event: ev.PlannerFailed, _at: int) -> None:
    _planner_done(state, event.epoch)
    planner = state.planner
    planner.findings = [event.reason]
    if planner.due in ("", "report"):
        planner.due = "the last call failed"
    if not event.lost:
        planner.rounds += 1


def _planner_done(state: State, epoch: int) -> None:
    if not epoch or state.planner.epoch != epoch:
        raise IllegalEvent(f"planner epoch {epoch} is not the current one")
    state.planner.epoch = 0
    if state.orphans and state.orphans[0] == ("", epoch):
        state.orphans.popleft()


def _proposal_refused(state: State, event: ev.ProposalRefused, _at: int) -> None:
    planner = state.planner
    planner.answer = None
    planner.findings = event.findings
    if not event.early:
        planner.rounds += 1
        planner.due = "the last proposal was refused"


def _planner_waits(state: State, _event: ev.PlannerWaits, _at: int) -> None:
    planner = state.planner
    answer, planner.answer = planner.answer or {}, None
    state.outlook = answer.get("outlook", state.outlook)
    planner.findings = []
    planner.rounds = 0
    _release_surprises(state)


def _release_surprises(state: State) -> None:
    """The planner has looked at successes that surprised: what waits for them goes on."""
    for ident in state.planner.surprising:
        settle_dependents(state, state.steps[ident])
    state.planner.surprising.clear()


def _finish_accepted(state: State, event: ev.FinishAccepted, at: int) -> None:
    planner = state.planner
    if planner.answer is None or planner.answer.get("kind") != "finish":
        raise IllegalEvent("no finish of the planner waits to be accepted")
    for ident in event.drop:
        known(state, ident, DROPPABLE)
    state.finish, planner.answer = planner.answer, None
    planner.due = ""
    for ident, reason in event.drop.items():
        if not state.steps[ident].dropped:  # else it went with another one
            drop_step(state, ident, reason, at)


def _revision_proposed(state: State, event: ev.RevisionProposed, _at: int) -> None:
    following = event.number in (state.revision + 1, state.planner.proposed + 1)
    if not following or event.base != state.head or state.pending:
        raise IllegalEvent(f"revision {event.number} does not follow revision {state.revision}")
    state.planner.proposed = event.number
    planner = state.planner
    planner.answer = None
    if event.add or event.cancel or not state.goal_findings:
        planner.rounds = 0  # else it answers an unmet goal with nothing
    planner.findings = []
    state.outlook = event.outlook
    state.pending = Revision(
        event.number,
        event.hash,
        event.add,
        event.cancel,
        event.final,
        event.author,
        event.risk,
        examined=not (state.policy.reviewers and event.add),
        drop=event.drop,
        because=event.because,
    )


def _revision_examined(state: State, event: ev.RevisionExamined, _at: int) -> None:
    _pending(state, event.number, event.hash).examined = True


def _review_requested(state: State, event: ev.ReviewRequested, at: int) -> None:
    revision = _pending(state, event.number, event.hash)
    revision.people = event.people
    revision.approvals, revision.given = [], []  # Asked anew: it is not what they allowed.
    ident = f"review-{event.number}"
    choices = ["approve", "reject"]
    if not state.no_words:
        choices.append("request_changes")
    state.questions[ident] = Question(ident, "review", event.reason, choices, "", at, event.number)


def _approval_given(state: State, event: ev.ApprovalGiven, at: int) -> None:
    revision = _pending(state, event.number, event.hash)
    if any(each.actor == event.actor for each in revision.approvals):
        raise IllegalEvent(f"{event.actor} has allowed revision {event.number} already")
    revision.approvals.append(event)
    revision.given.append(at)


def _changes_requested(state: State, event: ev.ChangesRequested, _at: int) -> None:
    _pending(state, event.number, event.hash)
    state.questions.pop(f"review-{event.number}", None)
    state.pending = None
    state.planner.findings = [event.text]
    state.planner.due = f"changes: {event.actor} asks for them: {event.text}"


def _revision_rejected(state: State, event: ev.RevisionRejected, _at: int) -> None:
    _pending(state, event.number, event.hash)
    state.questions.pop(f"review-{event.number}", None)
    state.pending = None


def _revision_approved(state: State, event: ev.RevisionApproved, at: int) -> None:
    revision = _pending(state, event.number, event.hash)
    waits = {doc["id"]: dependencies(doc) for doc in revision.add}
    _fits(state, revision, waits)
    state.questions.pop(f"review-{event.number}", None)
    state.pending = None
    state.revision = revision.number
    if event.envelope:
        state.permits.envelope = event.envelope
        state.permits.approved_by = event.actor
    state.head = revision.hash
    state.final = revision.final
    _count_idle(state, revision)
    if revision.add:  # The plan goes on, whatever its planner had called done.
        state.finish = state.goal_met = None
        state.goal_asked = False
    for ident in revision.cancel:
        why = f": {revision.because}" if revision.because else ""
        cancel_step(state, ident, f"revision {revision.number} took it out{why}", at)
    _install(state, revision, event, waits)
    for ident, reason in revision.drop.items():
        if not state.steps[ident].dropped:  # else it went with another one
            drop_step(state, ident, reason, at)
    _release_surprises(state)
    if revision.add or revision.final:
        state.unanswered.clear()
    for ident in [q.id for q in state.questions.values() if q.kind == "planning"]:
        del state.questions[ident]  # The plan was changed, which answers it.
        state.planner.rounds = 0


def _count_idle(state: State, revision: Revision) -> None:
    """Count revisions that try nothing new, while nothing else is open that may bring something."""
    if not (revision.add or revision.cancel):
        return
    if state.tries_new(revision.add):
        state.revisions_idle = 0
    elif not (state.in_flight or state.backing_off or state.questions):
        state.revisions_idle += 1


def _pending(state: State, number: int, digest: str) -> Revision:
    revision = state.pending
    if revision is None or revision.number != number or revision.hash != digest:
        raise IllegalEvent(f"revision {number} {digest[:12]} is not the one that waits")
    return revision


def _fits(state: State, revision: Revision, waits: Waits) -> None:
    """Whether the plan as it stands can be changed so: looked at before anything is."""
    steps, number = state.steps, revision.number
    old = [doc["supersedes"] for doc in revision.add if doc.get("supersedes")]
    again = any(ident in steps for ident in waits) or len(waits) < len(revision.add)
    if again or len({*revision.cancel, *old}) < len(revision.cancel) + len(old):
        raise IllegalEvent(f"revision {number} adds, cancels or supersedes a step twice")
    for ident in revision.cancel:
        known(state, ident, MOVABLE)
    for ident in revision.drop:
        known(state, ident, DROPPABLE)
    for ident in old:
        known(state, ident, REPLACEABLE)
    for names in waits.values():
        if any(name not in waits and name not in steps for name in names):
            raise IllegalEvent(f"revision {number} depends on a step that is not in the plan")


def _install(state: State, revision: Revision, event: ev.RevisionApproved, waits: Waits) -> None:
    steps = state.steps
    tail = _tails(state, revision.add, waits)
    depth = max((steps[ident].depth for ident in state.unanswered), default=0)
    for doc in revision.add:
        ident = doc["id"]
        steps[ident] = StepState(
            doc,
            len(steps),
            doc["worker"],
            tail.get(ident, 0.0),
            depth=depth,
            not_before=event.instants.get(ident, 0),
            revision=revision.number,
            approved=bool(revision.approvals),
            people=revision.people if revision.approvals else 0,
            widened=ident in event.widens,
            expires=event.expires,
        )
    state.unsettled += len(revision.add)
    for doc in revision.add:
        old = doc.get("supersedes")
        if old:
            _supersede(state, steps[old], steps[doc["id"]])
    for ident, names in waits.items():
        _wire(state, steps[ident], names)


def _tails(state: State, docs: list[dict[str, Any]], waits: Waits) -> dict[str, float]:
    """How urgent steps are, from what they say they take, or else what their workers say."""
    est = {doc["id"]: seconds(doc["est"]) for doc in docs if "est" in doc}
    specs = state.catalog.workers.values()
    if any(offer.est_s is not None for spec in specs for offer in spec.offers.values()):
        for doc in docs:
            offer = state.catalog.offer(doc["worker"], doc.get("action", ""))
            if offer is not None and offer.est_s is not None:
                est.setdefault(doc["id"], offer.est_s)
    return urgency(docs, waits, est, state.policy, state.worker_limit) if est else {}


def _wire(state: State, step: StepState, names: dict[str, bool]) -> None:
    for ident, tolerant in names.items():
        dependency = state.steps[ident]
        while dependency.superseded_by:
            dependency = state.steps[dependency.superseded_by]
        dependency.used = True
        if dependency.status not in SETTLED:
            _depend(dependency, [(step.id, tolerant)])
            step.blockers += 1
        elif dependency.status != "succeeded" and not tolerant:
            doom(state, step, dependency.id)
    if not step.blockers and not step.doomed:
        make_ready(state, step)


def _depend(step: StepState, dependents: list[tuple[str, bool]]) -> None:
    if step.dependents:
        step.dependents += dependents
    else:
        step.dependents = dependents


def _supersede(state: State, old: StepState, new: StepState) -> None:
    waiting = [pair for pair in old.dependents if state.steps[pair[0]].status == "waiting"]
    _depend(new, waiting)
    new.used = old.used
    old.dependents = ()
    if old.status not in SETTLED:
        state.unsettled -= 1
        close_question(state, old)
    elif state.is_bad(old):
        state.bad -= 1
    if old.id in state.forsaken:
        state.forsaken.remove(old.id)
    state.backing_off.pop(old.id, None)
    if old.void and not new.approved:
        new.void = old.void
    if old.held:
        _pass_hold(state, old, new)
    old.status = "superseded"
    old.ticket = 0
    old.superseded_by = new.id


def _pass_hold(state: State, old: StepState, new: StepState) -> None:
    """Whoever takes the place of a held step is held as well: another name opens no door.

    Unless it was the policy that held it, for want of an approval, and a person has given one.
    """
    since = state.started.decide_version if state.started is not None else 0
    if since < ENDS_SINCE or (old.held_by == "policy" and new.approved):
        state.let_go(old)
        return
    new.held, new.held_by = old.held, old.held_by
    state.held.add(new.id)
    state.let_go(old)


PLAN_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.PlannerAsked: _planner_asked,
    ev.PlannerAnswered: _planner_answered,
    ev.PlannerFailed: _planner_failed,
    ev.PlannerWaits: _planner_waits,
    ev.FinishAccepted: _finish_accepted,
    ev.ProposalRefused: _proposal_refused,
    ev.RevisionProposed: _revision_proposed,
    ev.RevisionExamined: _revision_examined,
    ev.ReviewRequested: _review_requested,
    ev.ApprovalGiven: _approval_given,
    ev.ChangesRequested: _changes_requested,
    ev.RevisionApproved: _revision_approved,
    ev.RevisionRejected: _revision_rejected,
}
