"""The planner of a given plan: it proposes the document as it stands, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.report import GiveUp, Propose

if TYPE_CHECKING:
    from leadhand.core.plan import Doc
    from leadhand.core.report import Decision, PlannerView


class DocumentPlanner:
    """A plan somebody wrote. It cannot plan around a failure; a person is asked instead."""

    name = "document"
    replans = False
    splits = False
    consult = "on_surprise"

    def __init__(self, doc: Doc) -> None:
        self._doc = doc

    async def decide(self, view: PlannerView) -> Decision:
        """Propose the whole plan the first time; there is nothing to add later."""
        if view.steps:
            return GiveUp("the plan is a given document, and its steps are all done")
        doc = self._doc
        return Propose(
            steps=tuple(doc["steps"]),
            final=doc.get("final", True),
            outlook=tuple(doc.get("outlook") or ()),
            because=f"plan {doc['plan_id']}" if doc.get("plan_id") else "",
        )
