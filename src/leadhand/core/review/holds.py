"""Holds: steps that must not start until a person releases them.

A hold is a question like any other: it appears in the inbox, and its answer releases the steps or
ends the run. It has one of four causes: a person ("stop before step-3"), an expired approval, a
worker that changed since its approval, and an invalid approval in the log.

Steps held for a missing approval need what an approval would need: as many different people as the
rules ask for, only approvers, and their signatures if they have keys. A hold placed by a person,
while the approval still counts, is lifted by one person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, able_workers
from leadhand.core.decide.effects import Effect, Notify
from leadhand.core.review.approval import release_binding
from leadhand.core.review.decisions import expiry_of, refuse_second_approval, reopen_review
from leadhand.core.review.ruling import Ruling, current_envelope, envelope_without, reach_of, ruling
from leadhand.core.state.model import SETTLED
from leadhand.core.wording import did_you_mean, listed
from leadhand.errors import Conflict, NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.plan.model import Doc
    from leadhand.core.review.decisions import ApprovalWords
    from leadhand.core.state.model import Now, State, StepState
    from leadhand.core.state.records import Question


Moves = tuple[list[ev.Event], list[Effect]]
POLICY = "policy"
CHOICES = ["release", "abort"]


def _held(
    state: State,
    steps: list[StepState],
    reason: str,
    actor: str,
    catalog: Catalog | None = None,
) -> Moves:
    """Hold steps under a question of their own."""
    ident = f"q{state.asked + 1}"
    names = [step.id for step in steps]
    people = max(1, people_needed(state, steps, catalog).people) if actor == POLICY else 1
    several = f"; {people} different people must release it" if people > 1 else ""
    text = f"Held: {listed(names)}: {reason}{several}. Answer release to start."
    held = ev.StepsHeld(names, reason, actor, ident)
    asked = ev.QuestionAsked(id=ident, kind="hold", text=text, choices=CHOICES, people=people)
    return [held, asked], [Notify("waiting", text)]


def people_needed(
    state: State, steps: Iterable[StepState], catalog: Catalog | None = None
) -> Ruling:
    """Return how many people must allow steps again, regardless of earlier approvals; or a refusal.

    As many as the rules ask for now, and no fewer than when the steps were reviewed.
    """
    several = list(steps)
    found = ruling(state, reach_of(state, [step.doc for step in several], catalog), None)
    before = max((step.people for step in several), default=0)
    return found._replace(people=max(found.people, before))


def hold(state: State, names: Iterable[str], actor: str, reason: str) -> list[ev.Event]:
    """Hold steps on request of a person. Raise `UsageError` for an unknown step."""
    steps = []
    for name in dict.fromkeys(names):
        step = state.follow(name)
        if step is None:
            raise UsageError(
                f"there is no step {name} in run {state.run}. {did_you_mean(name, state.steps)}"
            )
        if step.status in SETTLED or step.id in state.in_flight:
            status = "running" if step.id in state.in_flight else step.status
            raise Conflict(f"step {name} is {status}: only a step that has not started can be held")
        if step.held:
            raise Conflict(f"step {name} is held already ({step.held})")
        steps.append(step)
    if not steps:
        raise UsageError("name the steps to hold")
    return _held(state, steps, reason or f"held by {actor}", actor)[0]


def questions(state: State, names: Iterable[str]) -> list[str]:
    """Return the questions that hold steps, each once. Raise `UsageError` for an unknown step."""
    found = []
    for name in names:
        step = state.follow(name)
        if step is None:
            raise UsageError(
                f"there is no step {name} in run {state.run}. {did_you_mean(name, state.steps)}"
            )
        if not step.held:
            raise Conflict(f"step {name} is not held: it is {step.status}")
        found.append(step.held)
    if not found:
        raise UsageError("name the steps to release")
    return list(dict.fromkeys(found))


def hold_again(state: State, actor: str) -> Moves:
    """Ask again about steps that were held when a person ended the run, which is now reopened."""
    held = [
        step
        for ident, step in state.steps.items()
        if step.held
        and step.held not in state.end_snapshot.questions
        and not state.end_snapshot.given_up(ident, step.question)
    ]
    # Steps held for a missing approval still need one.
    by = POLICY if any(step.held_by == POLICY or step.void for step in held) else actor
    return _held(state, held, "held when the run ended", by) if held else ([], [])


def held_steps(state: State, ident: str) -> list[str]:
    """Return the steps that a question holds."""
    return [name for name, step in state.steps.items() if step.held == ident]


def release(
    state: State, question: Question, actor: str, reason: str, now: Now, said: ApprovalWords
) -> list[ev.Event]:
    """Record a person's release of held steps. They go on once enough people have done so."""
    steps, wanted = held_steps(state, question.id), people_for(state, question)
    if wanted.refused:
        raise NotAllowed(f"{listed(steps)} cannot start: {wanted.reason}")
    people, given = wanted.people, standing_releases(state, question)
    refuse_second_approval(state, given, actor, said.key, people, "released")
    expires = expiry_of(state, said.expires, now)
    own = ev.ReleaseGiven(
        question=question.id,
        actor=actor,
        binding=bound_release(state, question.id, expires),
        expires=expires,
        reason=reason,
        key=said.key,
        signature=said.signature,
    )
    everybody = [*given, own]
    if len(everybody) < people:
        return [own]
    names = ", ".join(each.actor for each in everybody)
    until = min((each.expires for each in everybody if each.expires), default=0)
    answered = ev.QuestionAnswered(id=question.id, choice="release", actor=names, text=reason)
    return [own, answered, ev.StepsReleased(steps, names, reason, until)]


def people_for(state: State, question: Question) -> Ruling:
    """Return how many people must release the steps of a question, or the policy's refusal."""
    steps = [state.steps[name] for name in held_steps(state, question.id)]
    if not any(step.held_by == POLICY or step.void for step in steps):
        return Ruling(question.people, "held by a person")
    wanted = people_needed(state, steps)
    return wanted._replace(people=max(1, question.people, wanted.people))


def standing_releases(state: State, question: Question) -> list[ev.ReleaseGiven]:
    """Return the releases that are of exactly the steps the question holds now."""
    return [each for each in question.releases if each.binding == _release_binding(state, each)]


def bound_release(state: State, question: str, expires: int) -> str:
    """Return the hash of what a release of the steps held by a question allows."""
    if state.started is None:
        return ""
    docs = [state.steps[name].doc for name in held_steps(state, question)]
    return release_binding(state.started, question, docs, state.catalog, expires)


def _release_binding(state: State, given: ev.ReleaseGiven) -> str:
    return bound_release(state, given.question, given.expires)


def no_longer_allowed(state: State, step: StepState, now: Now) -> Moves | None:
    """Return the move that holds a step which may not start now; None if it may."""
    if step.expires and now.latest >= step.expires:
        return expire_approval(state, step)
    if not step.void:
        return None
    if not step.approved:
        found = ruling(
            state, reach_of(state, [step.doc]), current_envelope(state.permits, now.latest)
        )
        if not found.people and not found.refused:
            return None
    return _held(state, [step], step.void, POLICY)


def void_approval(state: State, voided: ev.ApprovalVoided) -> Moves:
    """Hold the steps that rest on an approval found invalid in the log."""
    steps = [step for step in state.steps.values() if step.revision in voided.revisions]
    open_ = [
        step
        for step in steps
        if step.status not in SETTLED and step.id not in state.in_flight and step.held_by != POLICY
    ]
    events: list[ev.Event] = [voided]
    effects: list[Effect] = []
    if open_:
        held, effects = _held(state, open_, voided.reason, POLICY)
        events += held
    revision = state.pending
    if revision is not None and revision.number in voided.revisions:
        found = ruling(state, reach_of(state, revision.add), None)
        asked, more = reopen_review(state, revision, found, voided.reason)
        events, effects = [*events, *asked], [*effects, *more]
    return events, effects


def expire_approval(state: State, first: StepState) -> Moves:
    """Hold the steps not yet started whose approval has expired."""
    over = [
        step
        for step in state.steps.values()
        if step.expires == first.expires and step.status not in SETTLED and not step.held
    ]
    waiting = [step for step in over if step.id not in state.in_flight]
    return _held(state, waiting, "its approval has expired", POLICY)


def workers_changed(state: State, specs: list[WorkerSpec], wall: int = 0) -> Moves:
    """Void permissions for changed workers.

    This affects steps, a pending revision, and the envelope. Steps approved by the policy continue
    only if it would approve the new worker too. A worker new to the run is available from now on,
    without any permission.
    """
    added = [spec.name for spec in specs if spec.name not in state.catalog.workers]
    events: list[ev.Event] = [ev.WorkersChanged(specs, added)]
    effects: list[Effect] = []
    names = {spec.name for spec in specs} - set(added)
    if not names:
        return events, effects
    for moved, more in (_void(state, specs, names, wall), _reopen_review(state, specs, wall)):
        events += moved
        effects += more
    return events, effects


def _changed(docs: Iterable[Doc], specs: list[WorkerSpec], catalog: Catalog, when: str) -> str:
    """Name the changed workers among those that may do these steps, and when they changed."""
    used = {name for doc in docs for name in able_workers(doc, catalog.workers)}
    names = sorted(spec.name for spec in specs if spec.name in used)
    return f"{listed(names)} changed {when}"


def _void(state: State, specs: list[WorkerSpec], names: set[str], wall: int) -> Moves:
    """Hold the steps affected by a change of workers."""
    # A step held by a person is held for this instead: that person alone cannot lift it.
    touched = [
        step
        for step in state.steps.values()
        if step.status not in SETTLED
        and step.held_by != POLICY
        and not names.isdisjoint(able_workers(step.doc, state.catalog.workers))
    ]
    docs = [step.doc for step in touched if not step.approved]
    if docs:
        found = _ruling(state, docs, specs, wall)
        if not found.people and not found.refused:
            touched = [step for step in touched if step.approved]
    new = Catalog({**state.catalog.workers, **{spec.name: spec for spec in specs}}.values())
    docs_held = (step.doc for step in touched)
    what = _changed(docs_held, specs, state.catalog, "after the approval")
    return _held(state, touched, what, POLICY, new) if touched else ([], [])


def _reopen_review(state: State, specs: list[WorkerSpec], wall: int) -> Moves:
    """Ask again about a pending revision whose workers changed since reviewers saw it."""
    revision = state.pending
    if revision is None:
        return [], []
    names = {name for doc in revision.add for name in able_workers(doc, state.catalog.workers)}
    asked = f"review-{revision.number}" in state.questions
    if not asked or names.isdisjoint(spec.name for spec in specs):
        return [], []
    what = _changed(revision.add, specs, state.catalog, "while the question was open")
    return reopen_review(state, revision, _ruling(state, revision.add, specs, wall), what)


def _ruling(state: State, docs: list[Doc], specs: list[WorkerSpec], wall: int) -> Ruling:
    """Return the approvals required for steps with workers as they are now."""
    catalog = Catalog({**state.catalog.workers, **{s.name: s for s in specs}}.values())
    envelope = envelope_without(
        current_envelope(state.permits, wall), {spec.name for spec in specs}
    )
    return ruling(state, reach_of(state, docs, catalog), envelope)
