"""What a step may count for, as the log checker sees it: no more than its worker says.

Whatever a step says of itself, its worker was described when the run started. A step counts for
more than that only where a person wrote it, people allowed the revision, and each of them was
shown the claim. Nothing here is shared with `core/promises.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.hashing import canonical, digest
from leadhand.core.invariants_book import several

if TYPE_CHECKING:
    from leadhand.core.catalog import Offer
    from leadhand.core.events import ApprovalGiven, RevisionApproved, RevisionProposed
    from leadhand.core.invariants_book import Book, Pending
    from leadhand.core.plan import Doc

ADDED = ("needs", "drops", "reads", "writes")
"""What a worker says is so, a step can only add to."""


def written_by_person(book: Book, event: RevisionProposed) -> bool:
    """Whether a revision is by a person: an amendment, or the document that the run began with."""
    start = book.start
    if event.author and event.author not in (start.planner, "document", "goal"):
        return True
    by_planner = start.plan.get("planner")
    if by_planner not in (None, "", "goal") or event.number > 1:
        return False
    given = start.planner == "document" or by_planner
    return bool(given) and digest(canonical(event.add)) == start.linted


def beyond(book: Book, add: list[Doc]) -> dict[str, dict[str, list[str]]]:
    """In what steps say more of themselves than a worker that may do them: step, field, names."""
    found: dict[str, dict[str, list[str]]] = {}
    for doc in add:
        more: dict[str, set[str]] = {}
        for worker in _able(book, doc):
            offer = book.offer(worker, doc.get("action", ""))
            for field, names in _more(doc, offer) if offer is not None else ():
                more.setdefault(field, set()).update(names)
        if more:
            found[str(doc["id"])] = {field: sorted(names) for field, names in more.items()}
    return found


def _able(book: Book, doc: Doc) -> list[str]:
    """The workers that may do a step: those it names, and the stronger ones behind each."""
    found: list[str] = []
    for named in (doc["worker"], *doc.get("alternatives", ())):
        name: str = named
        while name and name not in found:
            found.append(name)
            spec = book.catalog.get(name)
            name = spec.stronger if spec else ""
    return found


def _more(doc: Doc, offer: Offer) -> list[tuple[str, set[str]]]:
    found: list[tuple[str, set[str]]] = []
    if doc.get("idempotent") is True and not offer.idempotent:
        found.append(("idempotent", set()))
    claimed = set(several(doc.get("gives"))) - set(offer.gives)
    if claimed:
        found.append(("gives", claimed))
    for field in ADDED:
        if doc.get(field) is None:
            continue
        left_out = set(getattr(offer, field)) - set(several(doc[field]))
        if field == "needs":
            left_out -= set(doc.get("parameters") or ())
        if field == "drops":
            left_out -= set(several(doc["gives"]) if "gives" in doc else offer.gives)
        if left_out:
            found.append((field, left_out))
    return found


def bound(book: Book, pending: Pending, event: ApprovalGiven) -> dict[str, dict[str, list[str]]]:
    """The claims that an approval covers; a violation when it covers what it cannot."""
    claimed = beyond(book, pending.add) if pending.by_person else {}
    if event.widens and sorted(event.widens) != sorted(claimed):
        who = f"{event.actor} allowed claims of {', '.join(event.widens)}"
        book.wrong("L13", f"{who}, and revision {event.number} has others, or no person's")
    return claimed if event.widens else {}


def check_widened(book: Book, pending: Pending, event: RevisionApproved) -> None:
    """Steps count for more than their workers only where each who allowed it was shown that."""
    for ident in event.widens:
        if not pending.by_person:
            book.wrong("L13", f"{ident} counts for more than its worker, and no person wrote it")
        unseen = [actor for actor, each in pending.allowed.items() if ident not in each.widens]
        if unseen or not pending.allowed:
            who = ", ".join(unseen) or "nobody"
            book.wrong("L13", f"{ident} counts for more than its worker, allowed unseen by {who}")
