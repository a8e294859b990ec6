"""Consequences of the required approvals, and of what people decide about a revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev
from leadhand.core.calendar import iso, next_instant
from leadhand.core.catalog import Catalog
from leadhand.core.decide.effects import Effect, Notify
from leadhand.core.hashing import canonical, digest
from leadhand.core.promises import claim_lines, may_widen, widenings
from leadhand.core.review.agents import refuse_agent_approval
from leadhand.core.review.approval import (
    Approval,
    binding,
    claims_of_revision,
    plan_digest,
    refuse_partial,
    versions,
    was_shown,
)
from leadhand.core.review.comments import COMMENT_CHARS, COMMENTS_MAX, comment_line
from leadhand.core.review.identity import namesake, odd_name, same_person_key
from leadhand.core.review.ruling import (
    PlanReach,
    Ruling,
    current_envelope,
    reach_of,
    ruling,
    widened_envelope,
)
from leadhand.core.review.subject import name_of_run, request_text
from leadhand.core.state.records import Revision
from leadhand.core.views.failure_origin import origin_of
from leadhand.core.visible import visible, visible_name
from leadhand.errors import Conflict, NotAllowed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import Now, State, StepState
    from leadhand.core.state.records import Question


# Consequences of an answer to a question, by a person or by default.


STOPS = ("abort", "rollback")
"""Answers that end the run; the second also undoes completed steps."""
NOBODY = "nobody"
"""The actor of an answer by default, when no person answered in time."""


def answer_events(
    state: State,
    question: Question,
    choice: str,
    actor: str,
    text: str,
    data: Json = None,
) -> list[ev.Event]:
    """Return the answer to a question that is neither a review nor a release, and its effects."""
    events: list[ev.Event] = [
        ev.QuestionAnswered(id=question.id, choice=choice, actor=actor, text=text, data=data)
    ]
    who = "default" if actor == NOBODY else actor
    said = f": {text}" if text else ""
    if question.step and choice == "skip":
        events.append(ev.StepSkipped(question.step, f"skipped by {who}{said}", tolerated=True))
    elif question.kind != "planner" and choice in STOPS and not state.stopping:
        back, step = choice == "rollback", state.steps.get(question.step)
        origin = "person" if step is None else origin_of(step)
        if question.kind == "planning":
            origin = "planning"
        reason = f"aborted by {who}{_after(question, step)}" + (
            f" (comment: {text})" if text else ""
        )
        events.append(ev.StopDecided("failed", reason, rollback=back, origin=origin))
    return events


def _after(question: Question, step: StepState | None) -> str:
    """Return what happened before a person ended the run."""
    if question.kind == "planning":
        text = question.text.partition(". Answer ")[0]
        return f": {text[:1].lower()}{text[1:]}"
    if step is None:
        return " while it was held"
    message = str((step.failure or {}).get("message", ""))
    return f" after step {step.id} failed" + (f": {message}" if message else "")


def overdue_events(state: State, ident: str) -> list[ev.Event]:
    """Return the events of a question that was not answered in time: its default counts."""
    question, data = state.questions[ident], None
    if question.kind == "task":
        step = state.steps[question.step]
        offer = state.catalog.offer(step.worker, step.action)
        data = offer.silence if offer else None
    text = "no answer came in time"
    return answer_events(state, question, question.default, NOBODY, text, data)


Moves = tuple[list[ev.Event], list[Effect]]
Given = ev.ApprovalGiven | ev.ReleaseGiven | ev.ChangeApproved
"""The permission of one person."""
NO_PERSON = ("", "policy", "nobody")
"""Actors in the log that are not persons."""
CLAIMS_TOLD = 20
"""The number of uncounted claims that a reason lists."""


def apply_ruling(
    state: State,
    revision: ev.RevisionProposed | Revision,
    wanted: PlanReach,
    findings: list[str],
    now: Now,
) -> Moves:
    """Apply the policy to a revision: approve it, ask people, or refuse it."""
    number, hash_, add = revision.number, revision.hash, revision.add
    envelope = current_envelope(state.permits, now.latest)
    planners = (state.started.planner, state.planner_name) if state.started is not None else ()
    by_hand = bool(planners) and revision.author not in planners
    if by_hand and envelope:
        envelope = {}  # No envelope covers an amendment: writing is not allowing.
    found = ruling(state, wanted, envelope, findings, planned=not by_hand)
    if found.refused:
        return [
            ev.RevisionRejected(number, hash_, "policy", found.reason),
            *_told(state, found.reason),
        ], []
    given = _beforehand(state, number, add, now) if not findings else []
    if given:
        return _approved_beforehand(state, revision, given, found, now)
    if add and found.people:
        text = _request(state, number, add, wanted, found.people, found.reason)
        requested = ev.ReviewRequested(number, hash_, text, found.people)
        return [requested], [Notify("waiting", text)]
    ends = envelope.get("expires", 0) if found.inside and envelope else 0
    when, why = calendar_instants(add, now), _with_uncounted(found.reason, state, revision)
    return [ev.RevisionApproved(number, hash_, "policy", why, when, expires=ends)], []


def _with_uncounted(
    reason: str,
    state: State,
    revision: ev.RevisionProposed | Revision,
    allowed: Iterable[str] = (),
) -> str:
    """Return the reason, with the claims beyond workers that no person has allowed."""
    claimed = widenings(revision.add, state.catalog)
    left = claim_lines({step: each for step, each in claimed.items() if step not in allowed})
    if not left:
        return reason
    persons = may_widen(state.started, revision)
    why = "no approver has seen it" if persons else f"{revision.author} is a planner"
    told = f"not counted, since {why}: {'; '.join(left[:CLAIMS_TOLD])}"
    return f"{reason}; {told}" if reason else told


def _request(
    state: State, number: int, add: list[Doc], wanted: PlanReach, people: int, reason: str
) -> str:
    """Return the text that asks people to approve a revision, with its subject and the reason."""
    several = f"{people} people must approve it; " if people > 1 else ""
    name = name_of_run(state.started)
    return request_text(name, number, len(add), wanted, f"{several}{reason}")


def reopen_review(state: State, revision: Revision, found: Ruling, why: str) -> Moves:
    """Ask all reviewers again: a pending revision is no longer what they looked at."""
    number, hash_ = revision.number, revision.hash
    if found.refused:
        refused = ev.RevisionRejected(number, hash_, "policy", found.reason)
        return [refused, *_told(state, found.reason)], []
    people = max(found.people, revision.people)
    add = revision.add
    text = _request(state, number, add, reach_of(state, add), people, why)
    return [ev.ReviewRequested(number, hash_, text, people)], [Notify("waiting", text)]


def _beforehand(state: State, number: int, add: list[Doc], now: Now) -> list[Approval]:
    """Return the approvals given before the run, if this revision is the approved plan."""
    started = state.started
    if started is None or number != 1 or not started.approvals or not add:
        return []
    if digest(canonical(add)) != started.linted:
        return []
    if versions(add, state.catalog) != versions(add, Catalog(started.catalog)):
        return []  # Workers have changed since: the approved plan is not what would run.
    found = [Approval.from_doc(each) for each in started.approvals]
    return [each for each in found if not each.expires or each.expires > now.latest]


def _approved_beforehand(
    state: State,
    revision: ev.RevisionProposed | Revision,
    given: list[Approval],
    found: Ruling,
    now: Now,
) -> Moves:
    people = max(found.people, 1)
    names = ", ".join(each.actor for each in given)
    text = f"revision {revision.number} was approved before the run by {names}"
    if people > len(given):
        text += f"; {people} people must approve it; {found.reason}"
    waiting = Revision(
        revision.number,
        revision.hash,
        revision.add,
        revision.cancel,
        revision.final,
        revision.author,
        revision.risk,
        people,
    )
    events: list[ev.Event] = [ev.ReviewRequested(revision.number, revision.hash, text, people)]
    for each in given[:people]:
        shown = binding(state, waiting, 0) if each.widens else ""
        said = approve(
            state,
            waiting,
            each.actor,
            each.reason,
            now,
            ApprovalWords(each.expires, each.key, each.signature, shown, approval=each.id),
            _shown_before(state, revision, each),
        )
        waiting.approvals += [event for event in said if isinstance(event, ev.ApprovalGiven)]
        events += said
    return events, [Notify("waiting", text)] if people > len(given) else []


def _shown_before(state: State, revision: ev.RevisionProposed | Revision, given: Approval) -> str:
    """Return the digest of the plan that a person was shown before the run."""
    assert state.started is not None
    return plan_digest(state.started, revision.add, state.outlook, given)


def _told(state: State, reason: str) -> list[ev.Event]:
    """Tell a planner that can replan the reason; otherwise stop, as nothing is left to run."""
    if state.stopping is not None:
        return []
    if state.started is not None and state.started.replans:
        return [ev.ProposalRefused(state.planner.calls, [reason])]
    return [ev.StopDecided("rejected", reason, origin="planning")]


def calendar_instants(add: Iterable[Doc], now: Now) -> dict[str, int]:
    """Return the instants of the calendar times of a revision at its approval."""
    return {
        step["id"]: next_instant(step["not_before"], now.wall)
        for step in add
        if step.get("not_before")
    }


def record_examination(
    state: State, number: int, findings: list[str], failed: str, now: Now
) -> Moves:
    """Record the findings of the automatic reviewers; a failed reviewer counts as a finding."""
    revision = state.pending
    if revision is None or revision.number != number or revision.examined:
        return [], []
    told = ev.RevisionExamined(number, revision.hash, findings, failed)
    all_found = [*findings, *([f"a reviewer failed: {failed}"] if failed else [])]
    events, effects = apply_ruling(state, revision, reach_of(state, revision.add), all_found, now)
    return [told, *events], effects


# Commands of people.


class ApprovalWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The details given with an approval."""

    expires: int = 0
    key: str = ""
    signature: str = ""
    shown: str = ""
    """The digest of what the approver saw: if another revision is pending by now, that one is not
    approved.

    An approval covers claims beyond the workers only with this digest.
    """
    approval: str = ""
    """The id of the plan approval that this is."""


def approve(
    state: State,
    revision: Revision,
    actor: str,
    reason: str,
    now: Now,
    said: ApprovalWords,
    digest: str = "",
) -> list[ev.Event]:
    """Record a person's approval of a revision. It is approved once enough people have done so.

    `digest` is the digest of a plan shown before the run. Raise `Conflict` if another revision is
    pending, `NotAllowed` for an actor who may not approve.
    """
    expires, shown = said.expires, said.shown
    refuse_partial(shown)
    claimed, seen = claims_of_revision(state, revision), was_shown(state, revision, shown)
    if shown and not seen and binding(state, revision, 0, widens=False) != shown:
        raise Conflict(
            "the revision that waits is not the one that was shown: its plan digest is "
            f"not {shown}. Fix: review it again with `leadhand review {state.run}`"
        )
    refuse_agent_approval(state, revision.people, reach_of(state, revision.add), actor)
    refuse_second_approval(state, revision.approvals, actor, said.key, revision.people)
    expires = expiry_of(state, expires, now)
    given = ev.ApprovalGiven(
        number=revision.number,
        hash=revision.hash,
        actor=actor,
        binding=binding(state, revision, expires, widens=seen),
        digest=digest or binding(state, revision, 0, widens=seen),
        expires=expires,
        reason=reason,
        key=said.key,
        signature=said.signature,
        approval=said.approval,
        widens=list(claimed) if seen else [],
    )
    everybody = [*revision.approvals, given]
    if len(everybody) < revision.people:
        return [given]
    ends = [each.expires for each in everybody if each.expires]
    until = min(ends, default=0)
    allowed = [step for step in claimed if all(step in each.widens for each in everybody)]
    approved = ev.RevisionApproved(
        revision.number,
        revision.hash,
        ", ".join(each.actor for each in everybody),
        _with_uncounted(reason, state, revision, allowed),
        calendar_instants(revision.add, now),
        _envelope(state, revision, until, now),
        until,
        allowed,
    )
    return [given, approved]


def refuse_second_approval(
    state: State, given: Sequence[Given], actor: str, key: str, people: int, done: str = "approved"
) -> None:
    """Raise unless a person may allow this, and has not yet done so under any name.

    `NotAllowed` as `refuse_non_approver`; `Conflict` for a person who has already allowed it (by
    name, by a name that looks the same, or by key), and for the person who started the run, who may
    be the first of several approvers but not a later one.
    """
    refuse_non_approver(state, actor, "approve" if done == "approved" else "release")
    approvers = state.policy.approvers
    needs = f"it needs {people} different people"
    if (same := _same_key(given, actor, key, approvers)) is not None:
        raise Conflict(f"{same} has {done} it already with the key of {actor}; {needs}")
    same = namesake(actor, (each.actor for each in given))
    if same == actor:
        raise Conflict(f"{actor} has {done} it already; {needs}")
    if same is not None:
        both = f"{visible(same)} and {visible(actor)} count as one person"
        raise Conflict(f"{same} has {done} it already, and {both}; {needs}")
    starter = state.started.actor if state.started else ""
    if people > 1 and given and namesake(actor, (starter,)) is not None:
        raise Conflict(
            f"{actor} started the run, and cannot be its second approver; {needs}. "
            "Fix: let another person approve it"
        )


def refuse_non_approver(state: State, actor: str, verb: str) -> None:
    """Raise `NotAllowed` for an actor that is no person, or no approver if there are approvers.

    `verb` is the requested action: approve, release.
    """
    approvers = state.policy.approvers
    if same_person_key(actor) in NO_PERSON:
        raise NotAllowed(f"{visible(actor)} is not a person, and cannot {verb} anything")
    if wrong := odd_name(actor):
        raise NotAllowed(f"{visible(actor)} cannot be the name of a person: {wrong}")
    if approvers and actor not in approvers:
        near = namesake(actor, approvers)
        hint = f". It is not {visible(near)}, which looks the same" if near is not None else ""
        raise NotAllowed(
            f"{visible_name(actor)} is not an approver. Approvers: "
            f"{', '.join(sorted(approvers))}{hint}"
        )


def expiry_of(state: State, expires: int, now: Now) -> int:
    """Return when a permission given now expires, in UTC microseconds.

    Raise `UsageError` if it has expired already.
    """
    if not expires and state.policy.approval_s is not None:
        expires = now.latest + int(state.policy.approval_s * 1e6)
    if expires and expires <= now.latest:
        late = f": the newest time in the log is {iso(now.at)}" if expires > now.wall else ""
        raise UsageError(f"the expiry of the approval is in the past{late}")
    return expires


def _same_key(
    given: Sequence[Given], actor: str, key: str, approvers: Mapping[str, str]
) -> str | None:
    """Return another approver with the same key: one person under two names."""
    own = approvers.get(actor, key)
    others = (each for each in given if each.actor != actor)
    return next((e.actor for e in others if own and own == approvers.get(e.actor, e.key)), None)


def _envelope(state: State, revision: Revision, until: int, now: Now) -> Doc:
    """Return the envelope that people allow with a revision, joined with the earlier one."""
    started = state.started
    asked = started.plan.get("envelope") if started else None
    before, wanted = current_envelope(state.permits, now.latest), reach_of(state, revision.add)
    return widened_envelope(before, wanted, asked, until)


def reject(state: State, revision: Revision, actor: str, reason: str) -> list[ev.Event]:
    """Reject a revision, and with it the run."""
    events: list[ev.Event] = [ev.RevisionRejected(revision.number, revision.hash, actor, reason)]
    if state.stopping is None:
        why = f"{actor} rejected revision {revision.number}" + (f": {reason}" if reason else "")
        events.append(ev.StopDecided("rejected", why, origin="planning"))
    return events


def request_changes(
    state: State, revision: Revision, actor: str, text: str, comments: Sequence[Doc] = ()
) -> list[ev.Event]:
    """Send a revision back to the planner, with comments on single steps and in general.

    Raise `UsageError` if no planner can act on it, or if a comment is about an unknown step.
    """
    if state.feedback_refusal:
        raise UsageError(
            f"changes cannot be requested: {state.feedback_refusal}. Fix: amend the plan, "
            "or reject it"
        )
    known = {*(str(doc["id"]) for doc in revision.add), *state.steps}
    if len(comments) > COMMENTS_MAX:
        raise UsageError(f"{len(comments)} comments at once. Fix: at most {COMMENTS_MAX}")
    given = [{"text": text}, *comments] if text else [*comments]
    found: list[ev.StepComment] = []
    for number, each in enumerate(given, len(state.comments) + 1):
        step, said = str(each.get("step") or ""), str(each.get("text") or "").strip()
        if step and step not in known:
            raise UsageError(f"revision {revision.number} has no step {step[:100]}")
        if not said:
            raise UsageError(f"the comment on {step or 'the plan'} has no text")
        if len(said) > COMMENT_CHARS:
            raise UsageError(
                f"the comment on {step or 'the plan'} has {len(said):,} characters. "
                f"Fix: at most {COMMENT_CHARS:,}"
            )
        found.append(ev.StepComment(f"c{number}", said, step))
    words = text if len(found) == 1 and text else "; ".join(map(comment_line, found))
    told = words or "no changes were named"
    return [ev.ChangesRequested(revision.number, revision.hash, actor, told, found)]
