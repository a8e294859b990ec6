"""The promises of a step: those its worker declares, narrowed by the plan, never widened by it.

The `Offer` of a worker declares which facts it needs, gives and drops, which paths it reads and
writes, its effects, and whether it is idempotent. A step may declare the same. The law: **a plan
may narrow what a worker promises; only a person may widen it.**

    field                         what counts                        widening is to
    needs, drops, reads, writes   the worker's and the step's        leave out one of the worker's
    gives                         the step's that the worker gives   name one it does not give
    idempotent                    worker's; false if the step says   say true where it does not
    effects, risk_level           the worker's and the step's        (cannot be: they add up)
    success_criteria              with the worker's own check        (cannot be: they add up)

A widening counts for a step whose state says `widened`, and only there: it is in a person's
document or amendment, and all approvers of that revision were shown it. The approval binds it
(`core/review/approval.py`), `RevisionApproved.widens` records it, and the log checker verifies it
independently (`core/logcheck/plan.py`). Planners of any kind never widen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.catalog import CALLER, NOT_CALLED, able_workers
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.expressions import reads
from leadhand.core.plan.graph import dependencies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.catalog import Catalog, Offer, WorkerSpec
    from leadhand.core.events import RevisionProposed, RunStarted
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import State, StepState
    from leadhand.core.state.records import Revision

DOCUMENT = "document"
"""The name of the planner that proposes a given plan."""
GOAL = "goal"
"""The only planner that may be named in a person's document: it writes only what workers declare.
Any other planner may be, or call, a model."""

WIDENING = ("idempotent", "gives", "needs", "drops", "reads", "writes")
"""Fields of a step that can claim more than its worker promises."""
_WIDENING = frozenset(WIDENING)


def as_names(value: Json) -> tuple[str, ...]:
    """Return the facts or paths of a field that holds one or several."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def facts_given(step: Doc, offer: Offer | None, *, widened: bool = False) -> tuple[str, ...]:
    """Return the facts that are true once the step has succeeded."""
    theirs = offer.gives if offer else ()
    if "gives" not in step:
        return theirs
    own = as_names(step["gives"])
    return own if widened else tuple(fact for fact in own if fact in theirs)


def facts_beside(step: Doc, offer: Offer | None, fact: str) -> tuple[str, ...]:
    """Return all facts that come in the same result as `fact`.

    They determine its place: a single artefact is the whole data, one of several is a field. A step
    that gives fewer facts than its worker does not change what its worker returns.
    """
    theirs = offer.gives if offer else ()
    return theirs if fact in theirs else as_names(step.get("gives"))


def combined_field(
    step: Doc, offer: Offer | None, field: str, *, widened: bool = False
) -> tuple[str, ...]:
    """Return what a step needs, drops, reads or writes: its worker's entries and its own."""
    theirs: tuple[str, ...] = getattr(offer, field) if offer else ()
    if step.get(field) is None:
        return theirs
    own = as_names(step[field])
    return own if widened else tuple(dict.fromkeys((*theirs, *own)))


def is_idempotent(step: Doc, offer: Offer | None, *, widened: bool = False) -> bool:
    """Return whether running the step twice has the same effect as running it once."""
    own = step.get("idempotent")
    if own is not None and (widened or not own):
        return bool(own)
    return offer.idempotent if offer else False


def effects(step: Doc, offer: Offer | None) -> tuple[str, ...] | None:
    """Return the effects of a step; None if neither worker nor step declares any.

    A step can add to the effects its worker declares, and cannot declare a worker free of effects.
    """
    theirs = offer.effects if offer else None
    own = as_names(step.get("effects"))
    if theirs is None:
        return own or None
    return tuple(dict.fromkeys((*theirs, *own)))


# What tells that a step is done, besides the word of its worker.

CONSTANT = frozenset({"status", "error", "true", "false", "null"})
"""Names of a report that are the same in every report of success."""


def is_checked(step: Doc, offer: Offer | None) -> bool:
    """Return whether a check looks at the result: a criterion, or a declaration of the worker."""
    if offer is not None and (offer.result_check or offer.returns):
        return True
    named = offer.checks if offer is not None else ()
    criteria = as_names(step.get("success_criteria"))
    return any(each in named or reads(each) - CONSTANT for each in criteria)


def checks_others(step: Doc, kind: str, offer: Offer | None) -> bool:
    """Return whether a step can tell that the steps before it are done.

    It can if Leadhand runs it, and its own success is judged: by criteria, by the check of its
    worker, or by the exit code of a command.
    """
    if kind in NOT_CALLED:
        return False
    own = bool(step.get("success_criteria")) or (offer is not None and offer.result_check)
    return own or kind == "command"


def only_claimed(state: State, step: StepState) -> bool:
    """Return whether only the agent that did a step says that it is done.

    No criterion looked at its report, and no step that depends on it checked it since.
    """
    workers = state.catalog.workers
    if step.status != "succeeded" or not _is_callers(workers.get(step.worker)):
        return False
    if is_checked(step.doc, state.catalog.offer(step.worker, step.action)):
        return False
    return not any(
        each.status == "succeeded"
        and each.worker in workers
        and checks_others(
            each.doc, workers[each.worker].kind, state.catalog.offer(each.worker, each.action)
        )
        and step.id in dependencies(each.doc)
        for each in state.steps.values()
    )


def _is_callers(spec: WorkerSpec | None) -> bool:
    return spec is not None and spec.kind == CALLER


# The right to widen, and its wording.


def may_widen(started: RunStarted | None, revision: Revision | RevisionProposed) -> bool:
    """Return whether a revision, once approved by a person, may widen promises.

    It may if a person amended the plan, or if it is the plan document the run was started with and
    that document is a person's.
    """
    if started is None or not revision.author:
        return False
    if revision.author not in (started.planner, DOCUMENT, GOAL):
        return True
    if revision.number != 1 or not (started.planner == DOCUMENT or "planner" in started.plan):
        return False
    return is_persons(started.plan) and digest(canonical(revision.add)) == started.linted


def is_persons(plan: Doc) -> bool:
    """Return whether a plan document may be a person's: it names no planner but the goal planner.

    `planner` names the planner that wrote a plan, or may revise it; `caller` is the agent that
    proposed it.
    """
    return plan.get("planner") in (None, "", GOAL) and "caller" not in plan


Claims = dict[str, list[str]]
"""Claims of a step beyond its workers: field to the facts or paths claimed."""


def widenings(steps: Iterable[Doc], catalog: Catalog) -> dict[str, Claims]:
    """Return the claims of steps beyond their workers, by step; steps without claims are absent.

    Every worker that may do a step counts, including alternatives and stronger ones.
    """
    found: dict[str, Claims] = {}
    for step in steps:
        if _WIDENING.isdisjoint(step):
            continue
        action, several = step.get("action", ""), able_workers(step, catalog.workers)
        each = [claims(step, catalog.offer(name, action)) for name in several]
        fields = [field for field in WIDENING if any(field in one for one in each)]
        if fields:
            found[str(step["id"])] = {
                field: sorted({name for one in each for name in one.get(field, ())})
                for field in fields
            }
    return found


def claims(step: Doc, offer: Offer | None) -> Claims:
    """Return the claims of a step beyond one worker; none for an unknown worker."""
    if offer is None:
        return {}
    found: Claims = {}
    if step.get("idempotent") and not offer.idempotent:
        found["idempotent"] = []
    more = [fact for fact in as_names(step.get("gives")) if fact not in offer.gives]
    if more:
        found["gives"] = more
    anyway = {
        "needs": step.get("parameters") or (),  # a given parameter need not be found
        "drops": facts_given(step, offer, widened=True),  # a fact given again is not dropped
    }
    for field in ("needs", "drops", "reads", "writes"):
        if step.get(field) is None:
            continue
        left = [n for n in getattr(offer, field) if n not in as_names(step[field])]
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
"""The wording of each kind of claim."""


def claim_lines(widened: dict[str, Claims]) -> list[str]:
    """Return one line for each claim of a step beyond its workers, complete."""
    return [
        f"step {ident}: {CLAIMED[field].format(', '.join(several))}"
        for ident, found in widened.items()
        for field, several in found.items()
    ]
