"""What a step promises: what its worker declares, narrowed by the plan, never widened by it.

A worker's `Offer` says which facts it needs, gives and drops, what it reads and writes, what it
changes, and whether doing it twice is the same as doing it once. A step may speak of the same.
The law: **a plan may narrow what a worker promises; only a person may widen it.**

    field                         what counts                        widening is to
    needs, drops, reads, writes   the worker's and the step's        leave out one of the worker's
    gives                         the step's that the worker gives   name one it does not give
    idempotent                    worker's; false if the step says   say true where it does not
    effects, risk_level           the worker's and the step's        (cannot be: they add up)
    success_criteria              with the worker's own check        (cannot be: they add up)

A widening counts for a step whose state says `widened`, and only there: a person's document or
amendment holds it, and everybody who had to approve that revision was shown it. The approval binds
it (`core/review/approval.py`), `RevisionApproved.widens` records it, and the log checker follows it
in its own words (`core/logcheck/plan.py`). Planners never widen, whatever kind they are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.catalog import doers
from leadhand.core.hashing import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.catalog import Catalog, Offer
    from leadhand.core.events import RevisionProposed, RunStarted
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.records import Revision

DOCUMENT = "document"
"""The name of the planner that proposes a given plan."""
GOAL = "goal"
"""The planner that a document may name and still be a person's: it writes only what workers
declare. Any other may be, or ask, a model."""

WIDENING = ("idempotent", "gives", "needs", "drops", "reads", "writes")
"""Fields of a step that can claim more than its worker promises."""


def names(value: Json) -> tuple[str, ...]:
    """Return the facts or places of a field that holds one or several."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def given(step: Doc, offer: Offer | None, *, widened: bool = False) -> tuple[str, ...]:
    """Return the facts that are true once the step has succeeded."""
    theirs = offer.gives if offer else ()
    if "gives" not in step:
        return theirs
    own = names(step["gives"])
    return own if widened else tuple(fact for fact in own if fact in theirs)


def beside(step: Doc, offer: Offer | None, fact: str) -> tuple[str, ...]:
    """Return all facts that come in one result with a fact that a step gives.

    They tell where it is: of one artefact the data is all of it, of several each is a field. A
    step that gives fewer than its worker does not change what its worker returns.
    """
    theirs = offer.gives if offer else ()
    return theirs if fact in theirs else names(step.get("gives"))


def joined(step: Doc, offer: Offer | None, field: str, *, widened: bool = False) -> tuple[str, ...]:
    """Return what a step needs, drops, reads or writes: its worker's, and its own besides."""
    theirs: tuple[str, ...] = getattr(offer, field) if offer else ()
    if step.get(field) is None:
        return theirs
    own = names(step[field])
    return own if widened else tuple(dict.fromkeys((*theirs, *own)))


def is_idempotent(step: Doc, offer: Offer | None, *, widened: bool = False) -> bool:
    """Whether doing the step twice is the same as doing it once."""
    own = step.get("idempotent")
    if own is not None and (widened or not own):
        return bool(own)
    return offer.idempotent if offer else False


def effects(step: Doc, offer: Offer | None) -> tuple[str, ...] | None:
    """Return what the step changes in the world; None when its worker does not say.

    A step can add to what its worker declares. It cannot speak for a worker that declares nothing.
    """
    theirs = offer.effects if offer else None
    own = names(step.get("effects"))
    if theirs is None:
        return own or None
    return tuple(dict.fromkeys((*theirs, *own)))


# Who may widen, and what it says.


def may_widen(started: RunStarted | None, revision: Revision | RevisionProposed) -> bool:
    """Whether a revision is a person's word, if a person approves it.

    It is when a person amended the plan, or when it is the plan document that the run was started
    with and that document is a person's.
    """
    if started is None or not revision.author:
        return False
    if revision.author not in (started.planner, DOCUMENT, GOAL):
        return True
    if revision.number != 1 or not (started.planner == DOCUMENT or "planner" in started.plan):
        return False
    return is_persons(started.plan) and digest(canonical(revision.add)) == started.linted


def is_persons(plan: Doc) -> bool:
    """Whether a plan document may be a person's word: it names no planner but the goal planner.

    `planner` names the planner that wrote a plan, or may revise it.
    """
    return plan.get("planner") in (None, "", GOAL)


Claims = dict[str, list[str]]
"""In which fields a step claims more than its workers promise: the facts or places of each."""


def widenings(steps: Iterable[Doc], catalog: Catalog) -> dict[str, Claims]:
    """Return what steps claim beyond their workers, by step; steps that claim nothing are absent.

    Every worker that may do a step counts, alternatives and stronger ones included.
    """
    found: dict[str, Claims] = {}
    for step in steps:
        if not any(field in step for field in WIDENING):
            continue
        action, several = step.get("action", ""), doers(step, catalog.workers)
        each = [claims(step, catalog.offer(name, action)) for name in several]
        fields = [field for field in WIDENING if any(field in one for one in each)]
        if fields:
            found[str(step["id"])] = {
                field: sorted({name for one in each for name in one.get(field, ())})
                for field in fields
            }
    return found


def claims(step: Doc, offer: Offer | None) -> Claims:
    """Return what a step claims beyond one worker; nothing of a worker that is not there."""
    if offer is None:
        return {}
    found: Claims = {}
    if step.get("idempotent") and not offer.idempotent:
        found["idempotent"] = []
    more = [fact for fact in names(step.get("gives")) if fact not in offer.gives]
    if more:
        found["gives"] = more
    anyway = {
        "needs": step.get("parameters") or (),  # what it is given, it need not find
        "drops": given(step, offer, widened=True),  # what it gives again, it does not take away
    }
    for field in ("needs", "drops", "reads", "writes"):
        if step.get(field) is None:
            continue
        left = [n for n in getattr(offer, field) if n not in names(step[field])]
        if left := [name for name in left if name not in anyway.get(field, ())]:
            found[field] = left
    return found


CLAIMED = {
    "idempotent": "the plan says it is idempotent; its worker does not",
    "gives": "the plan says it gives {}; its worker does not",
    "needs": "the plan says it does not need {}; its worker does",
    "drops": "the plan says it does not drop {}; its worker does",
    "reads": "the plan says it does not read {}; its worker does",
    "writes": "the plan says it does not write {}; its worker does",
}
"""Each kind of claim in words."""


def in_words(widened: dict[str, Claims]) -> list[str]:
    """Return one line for each claim of a step beyond its workers, complete."""
    return [
        f"step {ident}: {CLAIMED[field].format(', '.join(several))}"
        for ident, found in widened.items()
        for field, several in found.items()
    ]
