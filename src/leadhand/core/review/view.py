"""The review: everything a person is shown before an approval, exactly as it will run.

Nothing is shortened or reordered: steps appear as their author wrote them, and the hash covers
exactly what is printed from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from leadhand.core.calendar import iso
from leadhand.core.catalog import able_workers, declared_risk, highest
from leadhand.core.plan.diff import ChangeRow, differences, lines, path_text
from leadhand.core.plan.model import Doc, Json
from leadhand.core.plan.parameters import with_secrets
from leadhand.core.plan.references import resolve_known
from leadhand.core.plan.revisions import head_of, held_by, origin_of, plan_of
from leadhand.core.promises import claim_lines, is_persons, may_widen, widenings
from leadhand.core.review.approval import ApprovalRow, approval_row, binding, plan_binding, versions
from leadhand.core.review.assessment import Assessment, assess
from leadhand.core.review.checklist import TIMEOUT_S, ReviewCheck, Reviewed, checks
from leadhand.core.review.comments import CommentRow, comment_rows
from leadhand.core.review.consequences import (
    Approved,
    Consequence,
    StepFacts,
    consequence_line,
    consequences,
    in_short,
    step_facts,
)
from leadhand.core.review.decisions import calendar_instants
from leadhand.core.review.limits import limits_of
from leadhand.core.review.ruling import outside_envelope, reach, reach_of, widened_envelope
from leadhand.core.review.subject import name_of_run, plan_name, reason_in
from leadhand.core.state.model import SETTLED
from leadhand.core.views.inbox import AnswerChoice, inbox_row
from leadhand.core.visible import has_marks, visible, visible_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.references import Ref
    from leadhand.core.promises import Claims
    from leadhand.core.review.ruling import PlanReach
    from leadhand.core.state.model import Now, State
    from leadhand.core.state.records import Question, Revision


Path = tuple[str | int, ...]


class Revisable(Struct, kw_only=True):
    """The planner that may revise a plan, and the envelope within which it may."""

    planner: str
    """The planner that may revise the plan."""
    envelope: Doc
    """The limits within which a revision needs no new approval."""


class FullAssessment(Assessment, kw_only=True):
    """Steps in short, what an approval of them leads to, and the checklist."""

    in_short: str
    """What happens when it is approved, in a few short sentences."""
    consequences: list[Consequence]
    """The same in lines by topic: missing approvals, order of the steps, side effects, rollback,
    failure, cost, questions, what is covered, and what a rejection leads to."""
    checks: list[ReviewCheck]
    """The checklist: what is in order, and what to consider."""
    step_facts: dict[str, StepFacts]
    """By step: side effects, undo, whether a person carries it out."""


class ReviewDocument(FullAssessment, kw_only=True):
    """What is pending in a run, as `leadhand review RUN --json`."""

    run: str
    """The id of the run."""
    name: str
    """The plan's id, else the goal in words."""
    started_by: str
    """The person who started the run."""
    why: str
    """Why an approval is required: the last part of `reason`."""
    since: str | None
    """When the approval was requested; null where nothing waits."""
    waiting: bool
    """Whether the revision waits for an approval."""
    question: str | None
    """The id of the question that an approval answers."""
    reason: str
    """Why an approval is needed."""
    choices: list[AnswerChoice]
    """What can be answered: approve, reject, and request_changes where the planner reads words."""
    revision: int
    """The number of the revision."""
    revision_hash: str
    """The hash of the revision."""
    author: str
    """The planner or person who proposed it."""
    because: str
    """Why it was proposed, as its author says: the reason of a re-plan or of an amendment."""
    binding: str
    """One hash of everything that an approval covers."""
    digest: str
    """The same as `binding`: what an approval is of."""
    people: int
    """How many must approve it."""
    approvals: list[ApprovalRow]
    """The approvals so far."""
    plan: Doc
    """The whole plan."""
    params: Doc
    """The values of the plan's parameters."""
    origin: Doc
    """Where the plan comes from: library or context."""
    limits: Doc
    """The limits of the run."""
    final: bool
    """Whether no further steps follow."""
    cancel: list[str]
    """The ids of the steps that the revision removes."""
    drop: dict[str, str]
    """The abandoned steps, each with the reason."""
    risk: str
    """A level, or `not declared`."""
    policy_risk: str
    """The level that policies count it as."""
    effects: list[str]
    """What the plan changes in the world."""
    writes: list[str]
    """The paths and places that it writes."""
    workers: dict[str, str]
    """The version of each worker."""
    sandboxes: dict[str, str]
    """By step, the walls that its worker runs behind, in words; empty: none."""
    cost: float
    """In cost units, as workers declare them."""
    risks: dict[str, str]
    """By step."""
    steps: list[Doc]
    """The steps that the revision adds."""
    resolved: dict[str, Doc]
    """By step: the value at each place that holds a reference whose value is known."""
    unresolved: dict[str, list[str]]
    """By step: the places whose values are known only when the step starts."""
    instants: dict[str, str]
    """By step: when it starts at the earliest."""
    widens: list[str]
    """What steps claim beyond their workers, in words: an approval allows it too."""
    overclaims: list[str]
    """The same of a planner's steps, where it does not count."""
    lookalikes: list[str]
    """Texts that cannot be told by looking, each with its path, escaped as `\\u....`."""
    envelope: Doc | None
    """The limits within which later revisions need no new approval."""
    revisable: Revisable | None
    """The planner that may revise the plan, and its envelope once approved; null if none."""
    outside: list[str]
    """What is outside the envelope, in words."""
    untrusted: bool
    """Whether results of a worker that is declared untrusted were read before it was proposed."""
    approved_before: bool
    """Whether an earlier revision of the run was approved."""
    changes: list[ChangeRow]
    """The differences from the approved revision, one by one."""
    difference: list[str]
    """The same differences as lines of text."""
    comments: list[CommentRow]
    """The comments on earlier revisions since the last approval, each with its answer."""


class PlanReview(FullAssessment, kw_only=True):
    """A plan that does not run yet, as `leadhand review PLAN --json`."""

    name: str
    """The plan's id, else its goal in words."""
    plan: Doc
    params: Doc
    risk: str
    """A level, or `not declared`."""
    policy_risk: str | None
    """The level that policies count it as; null where workers are not loaded."""
    effects: list[str]
    writes: list[str]
    workers: dict[str, str]
    """The version of each worker."""
    sandboxes: dict[str, str]
    """By step, the walls that its worker runs behind, in words; empty: none."""
    cost: float
    """In cost units, as workers declare them."""
    risks: dict[str, str]
    """By step."""
    steps: list[Doc]
    resolved: dict[str, Doc]
    """By step: the value at each place that holds a reference whose value is known."""
    unresolved: dict[str, list[str]]
    """By step: the places whose values are known only when the step starts."""
    instants: dict[str, str]
    """By step: when it starts at the earliest."""
    lookalikes: list[str]
    """Texts that cannot be told by looking, each with its path, escaped as `\\u....`."""
    revisable: Revisable | None
    """The planner that may revise the plan, and its envelope once it is approved; null if none."""
    widens: list[str]
    """What steps claim beyond their workers, in words: an approval allows it too."""
    overclaims: list[str]
    """The same of a planner's steps, where it does not count."""
    context: str
    limits: Doc
    not_loaded: list[str]
    """Workers that are not loaded, so that the plan cannot be approved here."""
    binding: str | None
    """What an approval is of; null where workers are not loaded."""


def review_document(state: State, now: Now) -> ReviewDocument:
    """Return the review of what is pending in a run, or of its remaining steps."""
    revision = state.pending
    add = revision.add if revision else _to_come(state)
    before, _ = plan_of(state, pending=False)
    after, heirs = plan_of(state)
    changes = differences(before, after, heirs, held_by(state))
    wanted = reach_of(state, add)
    envelope = state.permits.envelope
    question = state.questions.get(f"review-{revision.number}") if revision else None
    shown = binding(state, revision, 0) if revision else ""
    head, budget, name = head_of(state.started), state.policy.budget, name_of_run(state.started)
    planned = state.started is not None and state.started.planner != "document"
    known = assess(list(add), head, after, state.catalog, wanted, budget, planned=planned)
    claims = _claims_of(state, add)
    odd = lookalikes({"plan": head, "params": state.params}, add)
    outside = outside_envelope(envelope, wanted, state.spent) if envelope is not None else []
    revisable = _revisable(state, wanted, envelope)
    approved = _approved(state, list(add), wanted, revisable, now)
    facts = step_facts(approved)
    reviewed = _reviewed(state, approved, facts, claims, odd, outside)
    return ReviewDocument(
        **structs.asdict(known),
        in_short=in_short(approved, facts),
        consequences=consequences(approved, facts),
        checks=checks(known.findings, reviewed),
        step_facts=facts,
        run=state.run,
        name=name,
        started_by=state.started.actor if state.started else "",
        why=_reason(question, revision, name, wanted),
        since=iso(question.at) if question else None,
        waiting=question is not None,
        question=f"{state.run}/{question.id}" if question else None,
        reason=question.text if question else "",
        choices=inbox_row(state, question.id).choices if question else [],
        revision=revision.number if revision else state.revision,
        revision_hash=revision.hash if revision else state.head,
        author=revision.author if revision else "",
        because=revision.because if revision else "",
        binding=shown,
        digest=shown,
        people=revision.people if revision else 0,
        approvals=[
            approval_row(e, at, e.digest, e.key)
            for e, at in (zip(revision.approvals, revision.given, strict=True) if revision else ())
        ],
        plan=head,
        params=state.params,
        origin=origin_of(state.started),
        limits=limits_of(state.policy),
        final=revision.final if revision else state.final,
        cancel=revision.cancel if revision else [],
        drop=revision.drop if revision else {},
        **_reach_doc(add, state.catalog, wanted, head),
        steps=list(add),
        **_resolved_doc(add, state.lookup),
        instants=_instants(add, now),
        **claims,
        lookalikes=odd,
        envelope=envelope,
        revisable=revisable,
        outside=outside,
        untrusted=state.permits.tainted,
        approved_before=bool(state.revision),
        changes=[each.document() for each in changes],
        difference=[f"{line.mark} {line.text}" for line in lines(changes)],
        comments=comment_rows(state),
    )


def amended_assessment(state: State, add: list[Doc], after: Doc) -> Assessment:
    """Return what to know of the steps that an amendment would leave to be approved."""
    started = state.started
    planned = started is not None and started.planner != "document"
    wanted, budget = reach_of(state, add), state.policy.budget
    return assess(add, head_of(started), after, state.catalog, wanted, budget, planned=planned)


def amended_starts(state: State, add: list[Doc], now: Now) -> list[str]:
    """Return when the steps that an amendment would leave to be approved would start, in words."""
    known = _approved(state, add, reach_of(state, add), None, now)
    found = consequences(known, step_facts(known))
    return [consequence_line(each) for each in found if each.topic == "start"]


def _approved(
    state: State, add: list[Doc], wanted: PlanReach, revisable: Revisable | None, now: Now
) -> Approved:
    """Return what is known of the steps of a revision that would run."""
    revision = state.pending
    after, heirs = plan_of(state)
    names = {str(step["id"]) for step in add}
    to_come = {str(step["id"]) for step in _to_come(state)} - names
    return Approved(
        steps=add,
        plan=head_of(state.started),
        catalog=state.catalog,
        instants=calendar_instants(add, now),
        cost=wanted.cost,
        budget=state.policy.budget,
        now=now.latest,
        settled={ident for ident, step in state.steps.items() if step.status in SETTLED},
        cancel=revision.cancel if revision else (),
        spent=state.spent,
        planner=revisable.planner if revisable else "",
        final=revision.final if revision else state.final,
        kept=[step for step in after.get("steps", ()) if str(step["id"]) in to_come],
        heirs=heirs,
        people=revision.people if revision else 0,
        given=[each.actor for each in revision.approvals] if revision else (),
        approvers=sorted(state.policy.approvers or ()),
        starter=state.started.actor if state.started else "",
        approval_s=state.policy.approval_s,
        done=sum(step.status == "succeeded" for step in state.steps.values()),
    )


def _reviewed(
    state: State,
    approved: Approved,
    facts: dict[str, StepFacts],
    claims: Doc,
    odd: list[str],
    outside: list[str],
) -> Reviewed:
    """Return what the checklist of a run's revision is made of."""
    revision = state.pending
    return Reviewed(
        facts=facts,
        budget=approved.budget,
        rollback_plan=bool(approved.plan.get("rollback_plan")),
        untrusted=state.permits.tainted,
        outside=outside,
        lookalikes=odd,
        people=revision.people if revision else 0,
        approved_by=[each.actor for each in revision.approvals] if revision else [],
        approval_s=state.policy.approval_s,
        timeout_s=state.policy.timeout_s,
        instants=approved.instants,
        now=approved.now,
        **claims,
    )


def _reviewed_plan(
    approved: Approved, facts: dict[str, StepFacts], claims: Doc, odd: list[str], limits: Doc
) -> Reviewed:
    """Return what the checklist of a plan that does not run yet is made of."""
    return Reviewed(
        facts=facts,
        budget=approved.budget,
        rollback_plan=bool(approved.plan.get("rollback_plan")),
        lookalikes=odd,
        approval_s=approved.approval_s,
        timeout_s=limits.get("timeout_s", TIMEOUT_S),
        instants=approved.instants,
        now=approved.now,
        **claims,
    )


def _reason(
    question: Question | None, revision: Revision | None, name: str, wanted: PlanReach
) -> str:
    """Return why a revision needs an approval; "" if none waits."""
    if question is None or revision is None:
        return ""
    return reason_in(question.text, name, revision.number, len(revision.add), wanted)


def _revisable(state: State, wanted: PlanReach, envelope: Doc | None) -> Revisable | None:
    """Return the planner that may revise a run, with the envelope after approval; or None."""
    started = state.started
    if started is None or not started.replans or state.ended is not None:
        return None
    asked, name = started.plan.get("envelope"), started.plan.get("planner") or started.planner
    return Revisable(planner=name, envelope=widened_envelope(envelope, wanted, asked))


def plan_review(
    plan: Doc,
    params: Mapping[str, Json],
    catalog: Catalog,
    now: Now,
    *,
    context: str,
    limits: Doc,
    not_loaded: list[str],
) -> PlanReview:
    """Return the review of a plan that does not run yet.

    It has no binding where workers are `not_loaded`: an approval is of the workers too.
    """
    steps = plan.get("steps", [])
    head = {key: value for key, value in plan.items() if key != "steps"}
    wanted = reach(steps, catalog, plan.get("risk_level"))
    reached = _reach_doc(steps, catalog, wanted, plan)
    revisable = None
    if plan.get("planner"):
        envelope = widened_envelope(None, wanted, plan.get("envelope"))
        revisable = Revisable(planner=plan["planner"], envelope=envelope)
    budget = limits.get("budget")
    known = assess(list(steps), head, plan, catalog, wanted, budget)
    claims = _claims_doc(widenings(steps, catalog), lambda _: is_persons(plan))
    odd = lookalikes({"plan": head, "params": dict(params)}, steps)
    instants, planner = calendar_instants(steps, now), str(plan.get("planner") or "")
    approved = Approved(
        list(steps),
        head,
        catalog,
        instants,
        wanted.cost,
        budget,
        now.latest,
        planner=planner,
        approval_s=limits.get("approval_s"),
    )
    facts = step_facts(approved)
    found = PlanReview(
        **structs.asdict(known),
        in_short=in_short(approved, facts),
        consequences=consequences(approved, facts),
        checks=checks(known.findings, _reviewed_plan(approved, facts, claims, odd, limits)),
        step_facts=facts,
        name=plan_name(plan),
        plan=head,
        params=dict(params),
        **reached,
        steps=list(steps),
        **_resolved_doc(steps, in_params(with_secrets(plan, dict(params)))),
        instants=_instants(steps, now),
        lookalikes=odd,
        revisable=revisable,
        **claims,
        context=context,
        limits=limits,
        not_loaded=not_loaded,
        binding=None,
    )
    if not_loaded:
        found.policy_risk = None
    else:
        found.binding = plan_binding(plan, params, catalog, 0, context, limits)
    return found


def _instants(steps: list[Doc], now: Now) -> dict[str, str]:
    return {step: iso(at) for step, at in calendar_instants(steps, now).items()}


def resolved_steps(
    steps: list[Doc], lookup: Callable[[Ref], Json]
) -> tuple[list[Doc], dict[str, Doc], dict[str, list[str]]]:
    """Return the steps as they would run, as far as known now.

    Also return, by step, the value at each place that held a reference, and the places that still
    hold one (`${{ steps.x.data }}` of a step that has not succeeded).
    """
    found: list[Doc] = []
    resolved: dict[str, Doc] = {}
    later: dict[str, list[str]] = {}
    for step in steps:
        made, ident = dict(step), str(step.get("id", ""))
        for field in ("parameters", "undo"):
            known = resolve_known(step.get(field), lookup, field)
            if known.resolved or known.later:
                made[field] = known.value
            if known.resolved:
                resolved.setdefault(ident, {}).update(known.resolved)
            if known.later:
                later.setdefault(ident, []).extend(known.later)
        found.append(made)
    return found, resolved, later


def _resolved_doc(steps: list[Doc], lookup: Callable[[Ref], Json]) -> Doc:
    _steps, resolved, later = resolved_steps(steps, lookup)
    return {"resolved": resolved, "unresolved": later}


def in_params(params: Mapping[str, Json]) -> Callable[[Ref], Json]:
    """Return a lookup for plans that do not run yet: only parameters have values."""

    def lookup(ref: Ref) -> Json:
        if ref.kind != "params" or ref.name not in params:
            raise LookupError(f"{ref.root} is not known yet")
        return params[ref.name]

    return lookup


def _claims_of(state: State, steps: list[Doc]) -> Doc:
    revision, claimed = state.pending, widenings(steps, state.catalog)
    if revision is None:
        return _claims_doc(claimed, lambda step: state.steps[step].widened)
    return _claims_doc(claimed, lambda _: may_widen(state.started, revision))


def _claims_doc(claimed: dict[str, Claims], counts: Callable[[str], bool]) -> Doc:
    """Return the claims beyond workers: those that count once approved, and the rest."""
    widens = {step: each for step, each in claimed.items() if counts(step)}
    rest = {step: each for step, each in claimed.items() if step not in widens}
    return {"widens": claim_lines(widens), "overclaims": claim_lines(rest)}


def _reach_doc(steps: list[Doc], catalog: Catalog, wanted: PlanReach, plan: Doc) -> Doc:
    reached, least = wanted.to_doc(), plan.get("risk_level")
    risks = {step["id"]: declared_risk(least, step, catalog) for step in steps}
    return {
        "risk": highest(risks.values()),
        "policy_risk": reached["risk"],
        "effects": reached["effects"],
        "writes": reached["scope"],
        "workers": versions(steps, catalog),
        "sandboxes": {step["id"]: _sandbox(step, catalog) for step in steps},
        "cost": wanted.cost,
        "risks": risks,
    }


def _sandbox(step: Doc, catalog: Catalog) -> str:
    """Return the sandbox of a step's workers, in words; empty: none."""
    found = {}
    for name in able_workers(step, catalog.workers):
        offer = catalog.offer(name, step.get("action", ""))
        found[name] = offer.sandbox if offer else ""
    if len(found) <= 1 or not any(found.values()):
        return next(iter(found.values()), "")
    return "; ".join(f"{name}: {text or 'none'}" for name, text in found.items())


def _to_come(state: State) -> list[Doc]:
    return [step.doc for step in state.steps.values() if step.status not in SETTLED]


def lookalikes(rest: Doc, steps: list[Doc]) -> list[str]:
    """Return a line for each deceptive text to be approved, escaped.

    For readers that show texts unescaped: a page, a program.
    """
    found: list[str] = []
    for doc in (rest, *({"steps": {step["id"]: step}} for step in steps)):
        for path, text in _texts(doc):
            if has_marks(text):
                found.append(f"{path_text(path)}: {visible(text)}")
    return list(dict.fromkeys(found))


def _texts(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[Path, str]]:
    """Yield every text in a value, keys too, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key), key
            yield from _texts(each, (*path, key))
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _texts(each, (*path, place))


def lines_of(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[str]:
    """Yield a line for each leaf of a value with its path; invisible characters are escaped."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from lines_of(each, (*path, key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, each in enumerate(value):
            yield from lines_of(each, (*path, place))
    else:
        yield f"{path_text(path)}: {visible_value(value)}"
