"""The planner of a given plan: it proposes the document as it stands, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.report import GiveUp, Propose, decision_doc

if TYPE_CHECKING:
    from leadhand.core.plan import Doc
    from leadhand.core.report import Decision, PlannerView


class DocumentPlanner:
    """A plan somebody wrote. It cannot plan around a failure; a person is asked instead."""

    name = "document"
    replans = False
    splits = False
    consult = "on_surprise"

    def __init__(self, doc: Doc | None = None) -> None:
        """Without a document: for a run that is taken up again, whose log holds its plan."""
        self.proposal = None if doc is None else _proposal(doc)

    async def decide(self, _view: PlannerView) -> Decision:
        """Everything it had to say was said when the run started."""
        return GiveUp("the plan is a given document, and there is nothing to add to it")


def _proposal(doc: Doc) -> Doc:
    return decision_doc(
        Propose(
            steps=tuple(doc["steps"]),
            final=doc.get("final", True),
            outlook=tuple(doc.get("outlook") or ()),
            because=f"plan {doc['plan_id']}" if doc.get("plan_id") else "",
        )
    )
