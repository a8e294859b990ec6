"""A plan as a whole, for the checks that need more than one step of it.

Everything here is worked out when it is first asked for: a plan that declares no facts and no
files costs nothing. What a step promises is what counts once a person has approved the plan: its
own word, also where it claims more than its worker (`promise-widened` says so). In a plan that a
planner wrote, and that says so in `planner`, no approval makes that count: see `core/promises.py`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from leadhand.core import durations
from leadhand.core.lint.form import join
from leadhand.core.plan import graph
from leadhand.core.promises import effects, given, is_persons, joined, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.catalog import Catalog, Offer
    from leadhand.core.plan.model import Doc, Json


class Whole:
    """One plan with what it is checked against; its fields are well formed."""

    def __init__(
        self,
        plan: Doc,
        steps: list[tuple[int, Doc]],
        catalog: Catalog | None,
        resources: Mapping[str, int],
        prefix: str,
    ) -> None:
        self.plan, self.catalog, self.resources, self.prefix = plan, catalog, resources, prefix
        self.numbered = steps
        self.persons = is_persons(plan)
        """Whether what its steps claim beyond their workers may count."""

    @cached_property
    def steps(self) -> dict[str, Doc]:
        """The steps by id, in the order of the document; of two with one id, the first."""
        found: dict[str, Doc] = {}
        for _, step in self.numbered:
            if "id" in step:
                found.setdefault(step["id"], step)
        return found

    @cached_property
    def edges(self) -> dict[str, tuple[str, ...]]:
        """What each step waits for, in the order of the document."""
        return graph.edges(self.steps.values())

    @cached_property
    def order(self) -> graph.StepOrder:
        """Who comes before whom."""
        return graph.StepOrder(self.edges)

    @cached_property
    def goal(self) -> Doc:
        """The goal as an object; empty when it is a sentence."""
        goal = self.plan.get("goal")
        return goal if isinstance(goal, dict) else {}

    @cached_property
    def _index(self) -> dict[str, int]:
        return {step["id"]: i for i, step in reversed(self.numbered) if "id" in step}

    def place(self, ident: str, field: str = "") -> str:
        """Where a step, or a field of it, stands in the document."""
        here = join(self.prefix, f"steps[{self._index[ident]}]")
        return f"{here}.{field}" if field else here

    def offer(self, step: Doc) -> Offer | None:
        """What the step's worker says of itself."""
        if self.catalog is None:
            return None
        return self.catalog.offer(step.get("worker", ""), step.get("action", ""))

    def touched(self, step: Doc, field: str) -> tuple[str, ...]:
        """What a step reads or writes."""
        return joined(step, self.offer(step), field, widened=self.persons)

    def effects(self, step: Doc) -> tuple[str, ...] | None:
        """What a step changes in the world; None when nobody says."""
        own, offer = tuple(step.get("effects") or ()), self.offer(step)
        if "effects" in step and (offer is None or offer.effects is None):
            return own  # for advice, the plan's word will do
        return effects(step, offer)

    def facts(self, step: Doc, field: str) -> tuple[str, ...]:
        """The facts a step needs, gives or drops."""
        if self.catalog is None:
            return names(step.get(field))
        if field == "gives":
            return given(step, self.offer(step), widened=self.persons)
        return joined(step, self.offer(step), field, widened=self.persons)

    def est(self, step: Doc) -> float | None:
        """How long a step is expected to take, in seconds."""
        offer = self.offer(step)
        return seconds(step.get("est"), offer.est_s if offer is not None else None)

    def timeout(self, step: Doc) -> float | None:
        """How long an attempt may take, as far as step and worker say."""
        offer = self.offer(step)
        return seconds(step.get("timeout"), offer.timeout_s if offer is not None else None)

    def judged(self, step: Doc) -> bool:
        """Whether something tells if the step is done: criteria, a check, a form, an exit code."""
        if step.get("success_criteria") or self.catalog is None:
            return True
        spec, offer = self.catalog.workers.get(step.get("worker", "")), self.offer(step)
        if spec is None or offer is None:
            return True  # Reported as unknown; nothing is known of it.
        return spec.kind != "function" or offer.result_check or bool(offer.returns)


def seconds(value: Json, default: float | None = None) -> float | None:
    """A duration where there is one; a wrong one is reported elsewhere."""
    if value is None:
        return default
    try:
        return durations.seconds(value)
    except ValueError:
        return default
