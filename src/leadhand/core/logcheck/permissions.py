"""Rules about permissions: their expiry, and the release of held steps.

Keeps its own record of permissions: their expiry, their workers, and the number of people required.
Nothing here is shared with `core/review/holds.py` and `core/review/decisions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, able_workers
from leadhand.core.plan.model import RISKS, worst
from leadhand.core.review.approval import release_binding
from leadhand.core.review.ruling import PlanReach, reach

if TYPE_CHECKING:
    from leadhand.core.logcheck.book import Book, Pending
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Rule


_PEOPLE = {"allow": 0, "one": 1, "two": 2}


def allow(book: Book, pending: Pending, event: ev.RevisionApproved) -> None:
    """Record for each step of a revision the expiry of its permission and the people required."""
    people = pending.people[0] if pending.people and pending.allowed else 0
    for doc in pending.add:
        ident = doc["id"]
        book.permits.until[ident], book.permits.reviewed[ident] = event.expires, people
        book.permits.part_of[ident] = event.number


def check_start(book: Book, ident: str) -> None:
    """Report I27 unless the permission of a starting step counts."""
    until = book.permits.until.get(ident, 0)
    if until and book.at >= until:
        book.wrong("I27", f"{ident} started {book.at - until} us after its approval had ended")
    if ident in book.permits.void:
        book.wrong(
            "I27", f"{ident} started, and what was allowed is void: {book.permits.void[ident]}"
        )


def change(book: Book, event: ev.WorkersChanged) -> None:
    """Void the permissions that people gave for workers which changed."""
    names = {spec.name for spec in event.specs}
    for step in book.steps.values():
        allowed = book.permits.reviewed.get(step.id) and step.status != "succeeded"
        if allowed and not names.isdisjoint(able_workers(step.doc, book.catalog)):
            book.permits.void[step.id] = "its worker has changed"


def hold(book: Book, event: ev.StepsHeld) -> None:
    """Record the steps that a question holds."""
    for ident in event.steps:
        book.permits.held_under[ident] = event.question
        if event.actor == "policy":
            book.permits.void[ident] = event.reason


def distrust(book: Book, event: ev.ApprovalVoided) -> None:
    """Void an invalid approval: nothing rests on it, and no envelope is left.

    Steps of these revisions that have not started need a release. Running steps need one only if
    they required people. Approvals of a change that is still asked about no longer count.
    """
    for ident, step in book.steps.items():
        rests = book.permits.part_of.get(ident) in event.revisions and step.status != "succeeded"
        idle = not step.settled and ident not in book.live
        if rests and (idle or book.permits.reviewed.get(ident) or _least(book, [step.doc])):
            book.permits.void[ident] = event.reason
    for question in book.questions.values():
        if book.permits.part_of.get(question.step) in event.revisions:
            book.allowed.pop(question.id, None)
    if book.envelope is not None:
        book.envelope = {}


def give_release(book: Book, event: ev.ReleaseGiven) -> None:
    """Record a person's release of the steps of a question."""
    check_giver(book, event, event.question, "released")
    book.permits.releases.setdefault(event.question, []).append(event)


def check_giver(
    book: Book, event: ev.ApprovalGiven | ev.ReleaseGiven | ev.ChangeApproved, what: str, did: str
) -> None:
    """Report I26 unless a person gave this permission, and an approver if there are approvers.

    Releases and approvals of changes must then be signed as well. The signature of a plan approval
    is checked with the keys (`audit/signatures.py`), as it may be in a file of its own.
    """
    approvers = book.policy.approvers
    if event.actor in ("", "policy", "nobody"):
        book.wrong("I26", f"{what} was {did} by {event.actor or 'an empty name'}")
    agent = fold_name(event.actor).startswith("agent:")
    if agent and not isinstance(event, ev.ApprovalGiven):
        book.wrong("I26", f"{event.actor} is an agent, and {did} {what}")
    if approvers and event.actor not in approvers:
        book.wrong("I26", f"{event.actor} {did} {what}, and may not")
    if approvers and not isinstance(event, ev.ApprovalGiven) and not event.signature:
        book.wrong("I26", f"{event.actor} {did} {what}, and did not sign it")


def check_agent(book: Book, event: ev.ApprovalGiven, pending: Pending) -> None:
    """Report I26 for an agent that allowed more than the policy lets agents allow."""
    if not fold_name(event.actor).startswith("agent:"):
        return
    most, catalog = book.policy.agent_risk, Catalog(book.catalog.values())
    wanted = reach(pending.add, catalog, book.start.plan.get("risk_level"))
    above = not most or RISKS.index(wanted.risk) > RISKS.index(worst(most))
    if above or (pending.people and pending.people[0] > 1):
        book.wrong("I26", f"{event.actor} is an agent, and allowed revision {event.number}")


def release(book: Book, event: ev.StepsReleased) -> None:
    """Report I28 unless enough different people have released exactly these held steps."""
    questions = {book.permits.held_under.get(ident, "") for ident in event.steps}
    if len(questions) != 1:
        book.wrong("I28", f"{', '.join(event.steps)} were released, and not held together")
        return
    docs = [book.steps[ident].doc for ident in event.steps if ident in book.steps]
    given = _counting(book, questions.pop(), docs)
    anew = any(book.barred.get(i) == "policy" or i in book.permits.void for i in event.steps)
    needed = 1
    if anew:
        before = max((book.permits.reviewed.get(ident, 0) for ident in event.steps), default=0)
        needed = max(1, before, _least(book, docs))
    if len({fold_name(each.actor) for each in given}) < needed:
        who = f"{len(given)} of {needed} people"
        book.wrong("I28", f"{', '.join(event.steps)} went on, released by {who}")
    if event.expires != min((each.expires for each in given if each.expires), default=0):
        book.wrong("I28", f"{', '.join(event.steps)} may run for another time than was allowed")
    for ident in event.steps if anew else ():
        book.permits.until[ident] = event.expires
        book.permits.void.pop(ident, None)
        book.permits.reviewed[ident] = max(book.permits.reviewed.get(ident, 0), 1)


def _counting(book: Book, question: str, docs: list[Doc]) -> list[ev.ReleaseGiven]:
    """Return the releases of a question that are of exactly these steps and workers."""
    catalog = Catalog(book.catalog.values())
    return [
        each
        for each in book.permits.releases.get(question, ())
        if each.binding == release_binding(book.start, question, docs, catalog, each.expires)
    ]


def fold_name(name: str) -> str:
    """Return a name in one spelling, as to case and spaces."""
    return "".join(name.casefold().split())


def _least(book: Book, docs: list[Doc]) -> int:
    """Return the least number of people who must allow steps: findings of reviewers are unknown."""
    start, policy = book.start, book.policy
    catalog = Catalog(book.catalog.values())
    wanted = reach(docs, catalog, start.plan.get("risk_level"))
    perhaps: list[int] = []
    for rule in policy.rules:
        if not _fits(rule, wanted):
            continue
        perhaps.append(_PEOPLE.get(rule.then, 1))
        if not (rule.findings or rule.untrusted):
            return min(perhaps)
    high = RISKS.index(wanted.risk) > RISKS.index(worst(policy.auto_risk))
    return min([*perhaps, int(policy.review or high)])


def _fits(rule: Rule, wanted: PlanReach) -> bool:
    """Return whether a rule may match; untrusted data and findings are not known here."""
    if rule.risk and RISKS.index(wanted.risk) < RISKS.index(worst(rule.risk)):
        return False
    if rule.workers and not wanted.workers & set(rule.workers):
        return False
    if rule.effects and not wanted.effects & set(rule.effects):
        return False
    return rule.cost_over is None or wanted.cost > rule.cost_over
