"""Direct mode: a goal that one worker can reach from the given facts is one step.

It is a revision all the same: recorded, reviewed if its risk requires it, and bounded. When the
step fails, the ladder applies; after it a person is asked, since there is no planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.catalog import stronger_workers
from leadhand.core.facts import initial_facts as given_beforehand
from leadhand.core.report import GiveUp, Propose, decision_doc
from leadhand.planners.goal.operators import Operator, operators_of
from leadhand.planners.goal.steps import StepIds, document, tidy
from leadhand.planners.goal.world import have

if TYPE_CHECKING:
    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Goal
    from leadhand.core.report import Decision, PlannerView


class DirectPlanner:
    """Its one proposal is known before it is asked."""

    name = "direct"
    replans = False
    splits = False
    consult = "on_surprise"

    def __init__(self, proposal: Doc | None = None) -> None:
        """Take the proposal; None for a resumed run, whose log holds its step."""
        self.proposal = proposal

    async def decide(self, _view: PlannerView) -> Decision:
        """Give up: the whole plan was part of the start."""
        return GiveUp("mode direct plans one step, and that step is done")


def able(catalog: Catalog, goal: Goal) -> list[Operator]:
    """Return the operators that give all wanted facts from the facts that are there."""
    wanted, there = set(goal.want), {*given_beforehand(goal.have)}
    if wanted <= there:
        return []
    return [
        each
        for each in operators_of(catalog).by_name.values()
        if wanted <= {*each.gives, *(there - {*each.drops})} and set(each.needs) <= there
    ]


def agents_of(catalog: Catalog) -> list[str]:
    """Return the names of the agents, without those that are fallbacks of another."""
    behind = stronger_workers(catalog.workers)
    return [
        name
        for name, spec in catalog.workers.items()
        if spec.kind == "agent" and name not in behind
    ]


def one_step_plan(agent: str, goal: Goal) -> Doc:
    """Return a plan of one step: the goal's text as the task of one agent."""
    step: Doc = {
        "id": StepIds(()).take(Operator(name=agent, worker=agent)),
        "worker": agent,
        "parameters": {"task": goal.text, **goal.have},
        "because": f"{agent} is asked to do it as it was said",
    }
    because = "a goal in words, and one agent: no planning"
    return decision_doc(Propose((step,), final=True, because=because))


def one_step(operator: Operator, goal: Goal) -> Doc:
    """Return a plan of one step by `operator`."""
    facts = {name: have(name, value) for name, value in goal.have.items()}
    step = tidy(document(operator, StepIds(()).take(operator), facts))
    step["because"] = f"{operator.name} gives {', '.join(goal.want)} from what is there"
    return decision_doc(Propose((step,), final=True, because="one worker can do it: no planning"))
