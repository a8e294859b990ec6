"""`evolve`: apply one event to the state.

Laws of this file
1. No policy. A handler never chooses; it records the choice in its event.
2. An event that does not fit the state raises IllegalEvent before anything is changed: a log that
   folds is a consistent log.
3. A handler touches the steps its event names and their direct dependents, nothing more. (Two
   exceptions cost one pass over the plan: approving a revision, and the end of a run, which a
   person may revert.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.carried import carried_results
from leadhand.core.catalog import CALLER, Catalog, able_workers
from leadhand.core.durations import seconds
from leadhand.core.plan.graph import dependencies
from leadhand.core.plan.parameters import with_secrets
from leadhand.core.review.comments import comment_line
from leadhand.core.review.ruling import envelope_without
from leadhand.core.state.model import (
    DROPPABLE,
    MOVABLE,
    REPLACEABLE,
    SETTLED,
    STARTABLE,
    IllegalEvent,
    State,
    StepState,
    task_key,
)
from leadhand.core.state.ready import uses_of
from leadhand.core.state.records import Comment, EndSnapshot, Question, Revision, Tally
from leadhand.core.state.rehearsal import urgency
from leadhand.core.state.tally import TALLIES
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from leadhand.core.state.model import State, StepState


# Model calls: sums by model, by step, for the planner and for the run.


def _model_called(state: State, event: ev.ModelCalled, _at: int) -> None:
    step = state.steps.get(event.step)
    if event.step and step is None:
        raise IllegalEvent(f"a model was called for step {event.step}, which is not in the plan")
    state.spent += event.cost
    if step is not None:
        step.cost += event.cost
    calls = state.models
    calls.by_model.setdefault(f"{event.tier} {event.model}", Tally()).add(event)
    calls.by_step.setdefault(event.step, Tally()).add(event)


def _draft_refused(state: State, event: ev.DraftRefused, _at: int) -> None:
    """Check the call number only: a draft the planner itself refused changes nothing in the run."""
    if event.call > state.planner.calls:
        raise IllegalEvent(f"a draft of planner call {event.call}, which was not made")


MODEL_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.ModelCalled: _model_called,
    ev.DraftRefused: _draft_refused,
}


# --- what people do to steps: hold, release, redo -------------------------------------------


POLICY = "policy"
"""The actor of holds placed for a missing approval."""
REDOABLE = frozenset({"failed", "asking", "backing_off", "ready"})
"""Statuses of a step that failed and was not done since."""


def _steps_held(state: State, event: ev.StepsHeld, _at: int) -> None:
    steps = [state.steps[ident] for ident in event.steps if ident in state.steps]
    if len(steps) < len(event.steps) or any(step.settled for step in steps):
        raise IllegalEvent(f"a step that is held is not there, or is settled: {event.steps}")
    before = {step.held for step in steps}
    for step in steps:
        step.held, step.held_by = event.question, event.actor
        step.ticket = 0
        state.held.add(step.id)
        if event.actor == POLICY:
            step.void = event.reason
    for question in before - {state.steps[ident].held for ident in state.held}:
        state.questions.pop(question, None)  # The question is obsolete.


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
            # The step is approved again. That ends a hold by a person, and nothing else does.
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
            changed = names.intersection(able_workers(step.doc, state.catalog.workers))
            if changed:
                step.void = f"{listed(sorted(changed))} changed after the approval"
    state.catalog = Catalog(specs.values())
    state.limits.clear()
    permits = state.permits
    permits.envelope = envelope_without(permits.envelope, names)
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
    # Approvals of a protected change no longer count for the worker: the change is asked about
    # again, by this question or another.
    for question in state.questions.values():
        if question.step in concerned:
            question.approvals = []
    for place, answer in enumerate(state.answers):
        if answer["step"] in concerned:
            rest = {key: value for key, value in answer.items() if key not in ("commit", "by")}
            state.answers[place] = rest
    if state.permits.envelope is not None:
        state.permits.envelope = {}  # It may rest on the voided approval.


def _run_reopened(state: State, event: ev.RunReopened, _at: int) -> None:
    """Restore the run as it was before it ended, with nothing left to stop it.

    A failed step has failed, and its dependents are settled now; except for the step that is
    retried.
    """
    if state.ended is None or state.ended.status != "failed":
        raise IllegalEvent("only a run that failed can be reopened")
    cut, state.end_snapshot = state.end_snapshot, EndSnapshot()
    state.questions = cut.questions
    state.ended = state.stopping = state.finish = state.goal_met = None
    state.ended_at = 0
    state.goal_findings = []
    state.drop_agenda()
    for ident, (status, reason) in cut.steps.items():
        step = state.steps[ident]
        if cut.given_up(ident, step.question):
            state.unsettled -= 1
            state.blocking += 1
            state.drop_hold(step)
        else:
            step.status, step.reason, step.ended = status, reason, 0
    for step in state.steps.values():
        if step.status == "failed" and step.id not in (event.step, *state.awaiting_planner):
            settle_dependents(state, step)
    _ask_again(state)


def _ask_again(state: State) -> None:
    """Let the planner start over. It looks at surprises first, since dependents wait for that."""
    planner = state.planner
    planner.answer, planner.rounds, planner.findings = None, 0, []
    waits = planner.surprising
    planner.due = f"surprise: step {waits[0]} succeeded otherwise than expected" if waits else ""


def _redo_requested(state: State, event: ev.RedoRequested, _at: int) -> None:
    step = require_step(state, event.step, REDOABLE)
    if step.failure is None:
        raise IllegalEvent(f"step {event.step} has not failed")
    if step.status in SETTLED:
        state.unsettled += 1
        state.blocking -= state.is_blocking(step)
    if step.question:
        close_question(state, step)
    step.tolerated = False
    step.dropped = ""
    step.tries = None
    step.forgiven = len(step.failures)
    step.ended = 0
    state.backing_off.pop(event.step, None)
    state.finish = state.goal_met = None  # The plan continues, even if its planner had finished.
    state.goal_asked = False
    for failed in (state.awaiting_planner, state.unanswered):
        if event.step in failed:
            failed.remove(event.step)
    _revive(state, step)
    make_ready(state, step)


def _revive(state: State, redone: StepState) -> None:
    """Let steps skipped because of `redone`, or about to be, wait for it again.

    Except steps that another cause keeps from running, and steps skipped by a person.
    """
    redone.status = "waiting"
    causes = {redone.id}
    while found := [step for step in state.steps.values() if _lives_again(state, step, causes)]:
        for step in found:
            causes.add(step.id)
            if step.status == "skipped":
                state.unsettled += 1
                state.blocking -= 1
            else:
                state.to_skip.remove(step.id)
            step.status, step.lost_dependency, step.reason, step.ended = "waiting", "", "", 0
    for ident in causes - {redone.id}:
        _wait_again(state, state.steps[ident])


def _lives_again(state: State, step: StepState, causes: set[str]) -> bool:
    lost = step.status == "skipped" or (step.status == "waiting" and step.lost_dependency)
    if not lost or step.tolerated:
        return False
    minded = [name for name, tolerant in dependencies(step.doc).items() if not tolerant]
    others = [other for name in minded if (other := state.follow(name)) is not None]
    if not any(other.id in causes for other in others):
        return False
    return all(other.status not in SETTLED or other.status == "succeeded" for other in others)


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


# --- planner and revisions ------------------------------------------------------------------


Waits = dict[str, dict[str, bool]]
"""For each new step its dependencies, each with whether it tolerates their failure."""


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
    if state.lost_in_flight and state.lost_in_flight[0] == ("", epoch):
        state.lost_in_flight.popleft()


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
    """Unblock the dependents of surprising successes, now that the planner has looked at them."""
    for ident in state.planner.surprising:
        settle_dependents(state, state.steps[ident])
    state.planner.surprising.clear()


def _finish_accepted(state: State, event: ev.FinishAccepted, at: int) -> None:
    planner = state.planner
    if planner.answer is None or planner.answer.get("kind") != "finish":
        raise IllegalEvent("no finish of the planner waits to be accepted")
    for ident in event.drop:
        require_step(state, ident, DROPPABLE)
    state.finish, planner.answer = planner.answer, None
    planner.due = ""
    for ident, reason in event.drop.items():
        if not state.steps[ident].dropped:  # else it was dropped along with another step
            drop_step(state, ident, reason, at)


def _revision_proposed(state: State, event: ev.RevisionProposed, _at: int) -> None:
    following = event.number in (state.revision + 1, state.planner.proposed + 1)
    if not following or event.base != state.head or state.pending:
        raise IllegalEvent(f"revision {event.number} does not follow revision {state.revision}")
    state.planner.proposed = event.number
    planner = state.planner
    planner.answer = None
    if event.add or event.cancel or not state.goal_findings:
        planner.rounds = 0  # else this is an empty answer to an unmet goal
    planner.findings = []
    given = {each.comment: each for each in event.answers}
    for comment in state.comments:
        if not comment.answered_in:
            comment.answered_in, comment.answer = event.number, given.get(comment.id)
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
    revision.approvals, revision.given = [], []  # Asked again: it is no longer what they allowed.
    ident = f"review-{event.number}"
    choices = ["approve", "reject"]
    if not state.feedback_refusal:
        choices.append("request_changes")
    state.questions[ident] = Question(ident, "review", event.reason, choices, "", at, event.number)


def _approval_given(state: State, event: ev.ApprovalGiven, at: int) -> None:
    revision = _pending(state, event.number, event.hash)
    if any(each.actor == event.actor for each in revision.approvals):
        raise IllegalEvent(f"{event.actor} has allowed revision {event.number} already")
    revision.approvals.append(event)
    revision.given.append(at)


def _changes_requested(state: State, event: ev.ChangesRequested, at: int) -> None:
    revision = _pending(state, event.number, event.hash)
    docs = {doc["id"]: doc for doc in revision.add}
    for each in event.comments:
        known = state.steps.get(each.step)
        doc = docs.get(each.step) or (known.doc if known else None)
        state.comments.append(
            Comment(
                id=each.id,
                step=each.step,
                text=each.text,
                actor=event.actor,
                revision=event.number,
                hash=event.hash,
                at=at,
                doc=doc,
            )
        )
    state.questions.pop(f"review-{event.number}", None)
    state.pending = None
    state.planner.findings = [
        comment_line(each) if each.step else each.text for each in event.comments
    ] or [event.text]
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
    if revision.add:  # The plan continues, even if its planner had finished.
        state.finish = state.goal_met = None
        state.goal_asked = False
    for ident in revision.cancel:
        why = f": {revision.because}" if revision.because else ""
        cancel_step(state, ident, f"revision {revision.number} took it out{why}", at)
    _install(state, revision, event, waits)
    for ident, reason in revision.drop.items():
        if not state.steps[ident].dropped:  # else it was dropped along with another step
            drop_step(state, ident, reason, at)
    _release_surprises(state)
    if revision.add or revision.final:
        state.unanswered.clear()
    for ident in [q.id for q in state.questions.values() if q.kind == "planning"]:
        del state.questions[ident]  # The change of the plan answers it.
        state.planner.rounds = 0


def _count_idle(state: State, revision: Revision) -> None:
    """Count revisions in a row that try nothing new while nothing else is pending."""
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
    """Raise `IllegalEvent` if a revision does not fit the plan, before anything is changed."""
    steps, number = state.steps, revision.number
    old = [doc["supersedes"] for doc in revision.add if doc.get("supersedes")]
    again = any(ident in steps for ident in waits) or len(waits) < len(revision.add)
    if again or len({*revision.cancel, *old}) < len(revision.cancel) + len(old):
        raise IllegalEvent(f"revision {number} adds, cancels or supersedes a step twice")
    for ident in revision.cancel:
        require_step(state, ident, MOVABLE)
    for ident in revision.drop:
        require_step(state, ident, DROPPABLE)
    for ident in old:
        require_step(state, ident, REPLACEABLE)
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
    if not state.has_callers:
        workers = state.catalog.workers
        named = {
            name for doc in revision.add for name in (doc["worker"], *doc.get("alternatives", ()))
        }
        state.has_callers = any(name in workers and workers[name].kind == CALLER for name in named)
    for doc in revision.add:
        old = doc.get("supersedes")
        if old:
            _supersede(state, steps[old], steps[doc["id"]])
    for ident, names in waits.items():
        _wire(state, steps[ident], names)


def _tails(state: State, docs: list[dict[str, Any]], waits: Waits) -> dict[str, float]:
    """Return the urgency of steps, from their own estimates or those of their workers."""
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
            mark_to_skip(state, step, dependency.id)
    if not step.blockers and not step.lost_dependency:
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
    elif state.is_blocking(old):
        state.blocking -= 1
    if old.id in state.awaiting_planner:
        state.awaiting_planner.remove(old.id)
    state.backing_off.pop(old.id, None)
    if not new.approved:
        new.void = old.void
    if old.held:
        _pass_hold(state, old, new)
    old.status = "superseded"
    old.ticket = 0
    old.superseded_by = new.id


def _pass_hold(state: State, old: StepState, new: StepState) -> None:
    """Hold the successor of a held step as well: a rename must not circumvent a hold.

    Except if the policy held it for a missing approval, and a person has given one.
    """
    if not (old.held_by == "policy" and new.approved):
        new.held, new.held_by = old.held, old.held_by
        state.held.add(new.id)
    state.drop_hold(old)


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


# --- steps and attempts ---------------------------------------------------------------------


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


def require_step(state: State, ident: str, allowed: Collection[str]) -> StepState:
    """Return step `ident`. Raise `IllegalEvent` unless its status is one of `allowed`."""
    step = state.steps.get(ident)
    if step is None or step.status not in allowed:
        raise IllegalEvent(f"step {ident} is {step.status if step else 'not in the plan'}")
    return step


def make_ready(state: State, step: StepState) -> None:
    """Make a step ready: all its dependencies are settled."""
    step.status = "ready"
    state.offer(step)


def _attempt_started(state: State, event: ev.AttemptStarted, at: int) -> None:
    step = require_step(state, event.step, STARTABLE)
    epoch = event.epoch
    if event.attempt != step.attempts + 1 or epoch != state.epoch + 1:
        raise IllegalEvent(f"attempt {event.attempt} of {event.step} is out of order")
    step.status = "running"
    step.ticket = 0
    step.answered = False
    step.attempts = event.attempt
    step.worker = event.worker
    step.caller, step.limit = event.caller, event.limit
    if event.caller:
        state.handed_out += 1
    state.backing_off.pop(step.id, None)
    if not step.started:
        step.started = at
        if state.started is not None and state.started.replans:
            state.tried.add(task_key(step.doc))
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
    if state.agenda_built:
        state.add_timer(deadline, step.status, step.id, epoch)


def _release(state: State, step: StepState, at: int) -> None:
    epoch = state.in_flight.pop(step.id)
    if not state.in_flight:
        state.worked += at - state.busy_since
    if state.lost_in_flight and state.lost_in_flight[0] == (step.id, epoch):
        state.lost_in_flight.popleft()
    step.epoch = 0
    if step.with_caller:
        state.handed_out -= 1
    state.busy_workers[step.worker] -= 1
    parked = state.ready.parked or state.offered.parked
    if parked:
        state.unpark(f"worker {step.worker}")
    if "uses" in step.doc:
        for name, amount in uses_of(step.doc):
            state.busy_resources[name] -= amount
            if parked:
                state.unpark(f"resource {name}")
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


def _lease_extended(state: State, event: ev.LeaseExtended, _at: int) -> None:
    step = _current(state, event.step, event.epoch, "running")
    step.deadline = event.deadline
    state.add_timer(event.deadline, step.status, step.id, event.epoch)


def _attempt_reported(state: State, event: ev.AttemptReported, at: int) -> None:
    step = _current(state, event.step, event.epoch, "running")
    _release(state, step, at)
    step.report = event
    if event.said:
        step.said = {**(step.said or {}), str(event.attempt): event.said}
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
    """Settle a step as succeeded; with `settle`, unblock its dependents."""
    step.failure = None
    state.succeeded += 1
    state.undoable += "undo" in step.doc
    state.revisions_idle = 0
    end(state, step, "succeeded", at, "", settle=settle)


def _fail_attempt(state: State, step: StepState, failure: dict[str, Any]) -> None:
    step.tries = {**(step.tries or {}), step.worker: step.failures_by(step.worker) + 1}
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
    step.answered = state.is_for_people(step)  # the person's work and report are not lost


def _step_refused(state: State, event: ev.StepRefused, at: int) -> None:
    step = require_step(state, event.step, STARTABLE)
    step.ticket = 0
    step.started = step.started or at
    state.backing_off.pop(step.id, None)
    failure = {"class": event.failure_class, "message": event.reason, "effect": "none"}
    if event.failure_class == "unavailable":
        _fail_attempt(state, step, failure)  # a failed attempt: that worker is not asked again
    else:
        _fail(state, step, failure)


def _probe_started(state: State, event: ev.ProbeStarted, at: int) -> None:
    step = require_step(state, event.step, UNDECIDED)
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
                step.tries = {**(step.tries or {}), step.worker: step.failures_by(step.worker) - 1}
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
    """End a step as failed and leave it to the planner: to plan around it, or to split it."""
    end(state, step, "failed", at, reason, settle=False)
    step.depth += split
    state.awaiting_planner.append(step.id)
    state.unanswered.append(step.id)
    why = "split: step {} is too much at once: {}" if split else "surprise: step {} failed: {}"
    state.planner.due = why.format(step.id, reason)


def _step_skipped(state: State, event: ev.StepSkipped, at: int) -> None:
    step = require_step(state, event.step, MOVABLE)
    step.tolerated = event.tolerated
    end(state, step, "skipped", at, event.reason)


def _step_cancelled(state: State, event: ev.StepCancelled, at: int) -> None:
    cancel_step(state, event.step, event.reason, at)


def end(
    state: State, step: StepState, status: str, at: int, reason: str, *, settle: bool = True
) -> None:
    """Settle a step. A success unblocks its dependents; any other end dooms those that mind."""
    step.status = status
    step.reason = reason
    step.ended = at
    step.ticket = 0
    state.unsettled -= 1
    if state.backing_off:
        state.backing_off.pop(step.id, None)
    if step.lost_dependency and step.id in state.to_skip:
        state.to_skip.remove(step.id)
    if state.consults_reports and not state.planner.due and status != "cancelled":
        state.planner.due = "report"
    if state.is_blocking(step):
        state.blocking += 1
    if step.question:
        close_question(state, step)
    if step.held:
        state.drop_hold(step)
    if settle:
        settle_dependents(state, step)


def settle_dependents(state: State, step: StepState) -> None:
    """Tell the dependents of a step how it ended."""
    succeeded = step.status == "succeeded"
    dependents, step.dependents = step.dependents, ()
    for ident, tolerant in dependents:
        dependent = state.steps[ident]
        if dependent.status != "waiting":
            continue
        dependent.blockers -= 1
        if not succeeded and not tolerant:
            mark_to_skip(state, dependent, step.id)
        elif not dependent.blockers and not dependent.lost_dependency:
            make_ready(state, dependent)


def mark_to_skip(state: State, step: StepState, dependency: str) -> None:
    """Mark a step as unable to run because `dependency` will never succeed."""
    if not step.lost_dependency:
        step.lost_dependency = dependency
        state.to_skip.append(step.id)


def cancel_step(state: State, ident: str, reason: str, at: int) -> None:
    """Remove a step from the plan."""
    step = require_step(state, ident, MOVABLE)
    step.dropped = reason
    end(state, step, "cancelled", at, reason)


def drop_step(state: State, ident: str, reason: str, at: int) -> None:
    """Drop a step, and with it the steps that wait for it and mind."""
    _give_up(state, require_step(state, ident, DROPPABLE), reason, at)
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
            elif not step.blockers and not step.lost_dependency:
                make_ready(state, step)


def _give_up(state: State, step: StepState, reason: str, at: int) -> None:
    step.dropped = reason
    if step.status in MOVABLE:
        end(state, step, "cancelled", at, reason, settle=False)
        return
    state.blocking -= state.is_blocking(step)
    step.tolerated = True
    if step.id in state.awaiting_planner:
        state.awaiting_planner.remove(step.id)


def close_question(state: State, step: StepState) -> None:
    """Close the question about a step, if any."""
    state.questions.pop(step.question, None)
    step.question = ""


# Questions.


def _question_asked(state: State, event: ev.QuestionAsked, at: int) -> None:
    standing = STARTABLE if event.kind == "task" else UNDECIDED
    step = require_step(state, event.step, standing) if event.step else None
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
        step.forgiven = len(step.failures)  # A person has seen these failures.
        leave_to_planner(state, step, because, at)
    elif event.choice == "done":
        step.data = event.data
        succeed(state, step, at)


def _approved(question: Question) -> dict[str, Any]:
    """Return the approval given with an answer: the commit, and the approvers."""
    given = question.approvals
    return {"commit": given[0].commit, "by": [each.actor for each in given]} if given else {}


def _planner_told(state: State, event: ev.QuestionAnswered) -> None:
    """Apply a person's answer to a planner without ideas: it starts over, or another takes over."""
    planner = state.planner
    planner.rounds, state.revisions_idle = 0, 0
    if event.choice == "hand_over":
        planner.handed, planner.notes, planner.findings = "goal", None, []
        state.consults_reports = True
    if event.choice not in ("abort", "rollback"):
        planner.due = "answer"


def _task_answered(state: State, step: StepState, event: ev.QuestionAnswered) -> None:
    """Apply a person's answer to a task: done (verified like any report), or cannot."""
    if event.choice == "done":
        step.answered = True
        make_ready(state, step)
    elif event.choice == "cannot":
        message = event.text or f"{event.actor} cannot do it"
        failure = {"class": "permanent", "message": message, "effect": "none", "by": event.actor}
        _fail(state, step, failure)


STEP_HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.AttemptStarted: _attempt_started,
    ev.LeaseExtended: _lease_extended,
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


def evolve(state: State, event: ev.Event, at: int) -> None:
    """Apply one event to the state. Raise `IllegalEvent` if it does not fit."""
    if state.ended is not None and type(event) is not ev.RunReopened:
        raise IllegalEvent(f"{type(event).__name__} after the run ended")
    handler = HANDLERS.get(type(event))
    if handler is None:
        raise IllegalEvent(f"unknown event {type(event).__name__}")
    if state.started is None and handler is not _run_started:
        raise IllegalEvent(f"{type(event).__name__} before the run started")
    handler(state, event, at)
    tally = TALLIES.get(type(event))
    if tally is not None:
        tally(state, event, at)
    state.seq += 1
    state.last_at = at


def evolve_all(state: State, events: Iterable[tuple[int, ev.Event]]) -> None:
    """Fold a whole log, given as (at, event): the fast equivalent of `evolve` for each."""
    handlers, tallies, seq, last = HANDLERS, TALLIES, state.seq, state.last_at
    for at, event in events:
        kind = type(event)
        handler = handlers.get(kind)
        if handler is None or state.ended is not None or state.started is None:
            evolve(state, event, at)
        else:
            handler(state, event, at)
            tally = tallies.get(kind)
            if tally is not None:
                tally(state, event, at)
        seq, last = seq + 1, at
    state.seq, state.last_at = seq, last


# The run as a whole.


def _run_started(state: State, event: ev.RunStarted, at: int) -> None:
    if state.started is not None:
        raise IllegalEvent("the run started twice")
    state.run = event.run
    state.started = event
    state.started_at = at
    state.policy = event.policy
    state.consults_reports = event.consult == "every_report"
    state.catalog = Catalog(event.catalog)
    state.permits.untrusted = frozenset(spec.name for spec in event.catalog if not spec.trusted)
    carried = carried_results(event.plan).values()
    state.permits.tainted = event.plan.get("untrusted") is True or any(
        each.untrusted for each in carried
    )
    state.params = with_secrets(event.plan, event.params)


def _run_hosted(state: State, event: ev.RunHosted, _at: int) -> None:
    if event.owner <= state.owner:
        raise IllegalEvent(f"host {event.owner} came after host {state.owner}")
    state.owner = event.owner
    state.process = event.process
    state.goal_asked = state.goal_met is not None
    # A caller does not end with the host: its attempt is lost when its lease ends.
    ended = [(s, e) for s, e in state.in_flight.items() if not state.steps[s].with_caller]
    state.lost_in_flight.extend(ended)
    if state.planner.epoch:
        state.lost_in_flight.append(("", state.planner.epoch))


def _link_used(state: State, event: ev.LinkUsed, _at: int) -> None:
    if event.id in state.links:
        raise IllegalEvent(f"link {event.id} was used twice")
    state.links.add(event.id)


def _run_paused(state: State, _event: ev.RunPaused, _at: int) -> None:
    state.paused = True


def _run_resumed(state: State, _event: ev.RunResumed, _at: int) -> None:
    state.paused = False


def _cancel_requested(state: State, event: ev.CancelRequested, _at: int) -> None:
    reason = f"cancelled by {event.actor}" + (f": {event.reason}" if event.reason else "")
    state.stopping = ev.StopDecided("cancelled", reason, origin="person")
    state.cancel_deadline = event.deadline
    state.add_timer(event.deadline, "run", "cancel", 0)


def _stop_decided(state: State, event: ev.StopDecided, _at: int) -> None:
    if state.stopping is not None:
        raise IllegalEvent("the run is stopping already")
    state.stopping = event


def _goal_check_started(state: State, _event: ev.GoalCheckStarted, _at: int) -> None:
    state.goal_asked = True


def _goal_checked(state: State, event: ev.GoalChecked, _at: int) -> None:
    if not state.goal_asked:
        raise IllegalEvent("no check of the goal was requested")
    state.goal_findings = event.findings
    if event.met or state.started is None or not state.started.replans:
        state.goal_met = event.met
        return
    state.goal_asked = False
    state.finish = None
    state.planner.rounds += 1
    state.planner.findings = event.findings
    state.planner.due = "surprise: the goal is not met: " + "; ".join(event.findings)


def _run_ended(state: State, event: ev.RunEnded, at: int) -> None:
    if state.in_flight:
        raise IllegalEvent(f"the run ended with attempts in flight: {sorted(state.in_flight)}")
    state.ended = event
    state.ended_at = at
    state.planner.epoch = 0
    state.goal_asked = False
    state.end_snapshot, state.questions = EndSnapshot(questions=state.questions), {}
    for step in state.steps.values():
        if step.status not in SETTLED:
            state.end_snapshot.steps[step.id] = (step.status, step.reason)
            step.status = "failed" if step.failure else "cancelled"
            step.reason = step.reason or event.reason
            step.ended = at


HANDLERS: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    **STEP_HANDLERS,
    **PLAN_HANDLERS,
    **PEOPLE_HANDLERS,
    **MODEL_HANDLERS,
    ev.RunStarted: _run_started,
    ev.RunHosted: _run_hosted,
    ev.LinkUsed: _link_used,
    ev.RunPaused: _run_paused,
    ev.RunResumed: _run_resumed,
    ev.CancelRequested: _cancel_requested,
    ev.StopDecided: _stop_decided,
    ev.GoalCheckStarted: _goal_check_started,
    ev.GoalChecked: _goal_checked,
    ev.RunEnded: _run_ended,
}
