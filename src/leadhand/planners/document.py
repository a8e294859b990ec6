"""The planner of a given plan: it proposes the document as it stands, once.

A document that names a planner is a `RevisableDocument`: when a step fails or surprises, that
planner is asked with the partial results. Any other is a `DocumentPlanner`: only people change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.report import GiveUp, Propose, decision_doc

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.core.report import Decision, PlannerView
    from leadhand.ports import Planner


class DocumentPlanner:
    """The planner of a given plan document.

    It cannot plan around a failure: a person is asked instead.
    """

    name = "document"
    replans = False
    splits = False
    consult = "on_surprise"

    def __init__(self, doc: Doc | None = None) -> None:
        """Take the document; None for a resumed run, whose log holds its plan."""
        self.proposal = None if doc is None else _proposal(doc)

    async def decide(self, _view: PlannerView) -> Decision:
        """Give up: the whole plan was part of the start."""
        return GiveUp("the plan is a given document, and there is nothing to add to it")


class RevisableDocument:
    """A plan document first; then the planner that the document names."""

    def __init__(self, doc: Doc, planner: Planner, source: str = "") -> None:
        """`source` is where `planner` is found again, where it does not say so itself.

        A final plan is looked at again only at a surprise; any other as the planner wants it.
        """
        self.proposal = _proposal(doc)
        self.planner = planner
        self.name, self.replans, self.splits = planner.name, planner.replans, planner.splits
        self.deaf = getattr(planner, "deaf", False)
        self.consult = "on_surprise" if doc.get("final", True) else planner.consult
        self.source = getattr(planner, "source", "") or source

    @property
    def budget(self) -> float | None:
        """Return the default budget of a run in dollars; see `app/run_limits.py`."""
        return getattr(self.planner, "budget", None)

    @property
    def calls(self) -> int | None:
        """Return the default limit of planner calls; None if the planner asks no model."""
        return getattr(self.planner, "calls", None)

    async def decide(self, view: PlannerView) -> Decision:
        """Ask the planner that the document names."""
        return await self.planner.decide(view)


def _proposal(doc: Doc) -> Doc:
    return decision_doc(
        Propose(
            steps=tuple(doc["steps"]),
            final=doc.get("final", True),
            outlook=tuple(doc.get("outlook") or ()),
            because=f"plan {doc['plan_id']}" if doc.get("plan_id") else "",
        )
    )
