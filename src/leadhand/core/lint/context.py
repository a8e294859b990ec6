"""A plan as a whole, for checks that need more than one step.

Everything here is computed on first use: a plan that declares no facts and no files costs nothing.
A step's own declarations count, also where it claims more than its worker (`promise-widened`
reports that): a person who approves the plan approves the claim. In a plan written by a planner
(its `planner` field says so) no approval makes such a claim count: see `core/promises.py`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from leadhand.core import durations
from leadhand.core.catalog import CALLER
from leadhand.core.lint.document_form import join
from leadhand.core.plan import graph
from leadhand.core.promises import (
    as_names,
    checks_others,
    combined_field,
    effects,
    facts_given,
    is_checked,
    is_persons,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.catalog import Catalog, Offer
    from leadhand.core.plan.model import Doc, Json


class LintContext:
    """One plan and the catalogue it is checked against; its fields are well formed."""

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
        """Whether claims of its steps beyond their workers may count."""

    @cached_property
    def steps(self) -> dict[str, Doc]:
        """The steps by id, in document order; for a duplicate id, the first."""
        found: dict[str, Doc] = {}
        for _, step in self.numbered:
            if "id" in step:
                found.setdefault(step["id"], step)
        return found

    @cached_property
    def edges(self) -> dict[str, tuple[str, ...]]:
        """The ids each step waits for, in document order."""
        return graph.edges(self.steps.values())

    @cached_property
    def order(self) -> graph.StepOrder:
        """The order of the steps."""
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
        """Return the place in the document of a step, or of one of its fields."""
        here = join(self.prefix, f"steps[{self._index[ident]}]")
        return f"{here}.{field}" if field else here

    def offer(self, step: Doc) -> Offer | None:
        """Return the offer of the step's worker for its action, if known."""
        if self.catalog is None:
            return None
        return self.catalog.offer(step.get("worker", ""), step.get("action", ""))

    def touched(self, step: Doc, field: str) -> tuple[str, ...]:
        """Return the paths a step reads or writes (`field`)."""
        return combined_field(step, self.offer(step), field, widened=self.persons)

    def effects(self, step: Doc) -> tuple[str, ...] | None:
        """Return the effects of a step; None if neither step nor worker declares them."""
        own, offer = tuple(step.get("effects") or ()), self.offer(step)
        if "effects" in step and (offer is None or offer.effects is None):
            return own  # for advice, the plan's own declaration is enough
        return effects(step, offer)

    def facts(self, step: Doc, field: str) -> tuple[str, ...]:
        """Return the facts a step needs, gives or drops (`field`)."""
        if self.catalog is None:
            return as_names(step.get(field))
        if field == "gives":
            return facts_given(step, self.offer(step), widened=self.persons)
        return combined_field(step, self.offer(step), field, widened=self.persons)

    def est(self, step: Doc) -> float | None:
        """Return the expected duration of a step in seconds, if step or worker gives one."""
        offer = self.offer(step)
        return seconds(step.get("est"), offer.est_s if offer is not None else None)

    def timeout(self, step: Doc) -> float | None:
        """Return the time limit of an attempt in seconds, if step or worker gives one."""
        offer = self.offer(step)
        return seconds(step.get("timeout"), offer.timeout_s if offer is not None else None)

    def judged(self, step: Doc) -> bool:
        """Return whether success is checked: by criteria, a check, a schema or an exit code.

        A step of a caller may also be checked by a step after it.
        """
        if self.catalog is None:
            return True
        if self.is_callers(step):
            return is_checked(step, self.offer(step)) or self._checked_after(step)
        if step.get("success_criteria"):
            return True
        spec, offer = self.catalog.workers.get(step.get("worker", "")), self.offer(step)
        if spec is None or offer is None:
            return True  # Reported as unknown; no further claims about it.
        return spec.kind != "function" or offer.result_check or bool(offer.returns)

    def is_callers(self, step: Doc) -> bool:
        """Return whether the agent that drives the run carries out a step."""
        workers = self.catalog.workers if self.catalog is not None else {}
        spec = workers.get(step.get("worker", ""))
        return spec is not None and spec.kind == CALLER

    def _checked_after(self, step: Doc) -> bool:
        """Return whether a step that depends on this one tells whether it is done."""
        workers = self.catalog.workers if self.catalog is not None else {}
        after = [self.steps[name] for name, waits in self.edges.items() if step["id"] in waits]
        return any(
            each.get("worker") in workers
            and checks_others(each, workers[each["worker"]].kind, self.offer(each))
            for each in after
        )


def seconds(value: Json, default: float | None = None) -> float | None:
    """Return a duration in seconds, or `default` if absent or malformed (reported elsewhere)."""
    if value is None:
        return default
    try:
        return durations.seconds(value)
    except ValueError:
        return default
