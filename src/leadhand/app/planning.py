"""Which planner: from what a person wrote to the one that plans a goal.

None, "goal"            the goal planner
a function              asked as it is
"anthropic:…", "lead"   a model; behind it the goal planner, where the goal names wanted facts
a planner               itself
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadhand.core.plan.model import Goal
from leadhand.errors import UsageError
from leadhand.planners.direct import DirectPlanner
from leadhand.planners.document import DocumentPlanner
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.planners.hybrid import Hybrid
from leadhand.planners.script import ScriptPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.core.catalog import Method
    from leadhand.core.plan.model import Doc, Json
    from leadhand.models.registry import Book
    from leadhand.ports import Planner


def as_planner(
    given: Planner | Callable[..., object] | str | None,
    methods: Sequence[Method],
    book: Book | None,
) -> Planner | None:
    """The planner that was meant; None when nothing was said."""
    if given == GoalPlanner.name:
        return GoalPlanner(methods)
    if isinstance(given, str):
        return model_planner(given, book).with_methods(methods)
    if isinstance(given, (GoalPlanner, Hybrid)):
        return given.with_methods(methods)
    if given is None or hasattr(given, "decide"):
        return given  # type: ignore[return-value]
    return ScriptPlanner(given)


def model_planner(name: str, book: Book | None = None, **more: Any) -> Hybrid:
    """A model by name, with the goal planner behind it."""
    from leadhand.models.registry import Book
    from leadhand.planners.model.planner import ModelPlanner

    known = book or Book()
    if not known.knows(name):
        raise UsageError(
            f"{name!r} is no planner: pass a function, a planner, 'goal', or a model as in "
            "'anthropic:claude-opus-4-5'"
        )
    made = Hybrid(ModelPlanner(name, book=known, asks=False, **more))
    made.source = name
    return made


def planner_for(given: Planner | None, goal: Goal, methods: Sequence[Method]) -> Planner:
    """The planner of a goal: the one that was given, else the goal planner."""
    planner = given or GoalPlanner(methods)
    in_the_end = planner.then if isinstance(planner, Hybrid) else planner
    if not isinstance(in_the_end, GoalPlanner) or goal.want:
        return planner
    if isinstance(planner, Hybrid) and hasattr(planner.first, "asking"):
        return planner.first.asking()  # type: ignore[no-any-return]
    raise UsageError(
        "the goal names no facts, and the goal planner cannot read sentences. "
        "Fix: name the facts that are wanted (`want`), or a planner that reads sentences."
    )


def planner_label(planner: Planner | None) -> str:
    """The name under which a plan document can name a planner; empty for none."""
    if planner is None:
        return ""
    if isinstance(planner, GoalPlanner):
        return GoalPlanner.name
    own = getattr(planner, "label", "") or getattr(planner, "source", "")
    if not own and isinstance(planner, Hybrid):
        return planner_label(planner.first)
    return str(own or planner.name)


def goal_of_document(doc: Doc) -> Json:
    """The goal of a document that a planner may revise: planned whole, unless it says otherwise."""
    goal = Goal.from_doc(doc.get("goal"))
    whole = "whole" if doc.get("final", True) else None
    return replace(goal, mode=goal.mode or doc.get("mode") or whole).to_doc()


def successor(workers: Any) -> GoalPlanner:
    """The planner of a run that a person hands over: the goal planner, with the run's methods."""
    return GoalPlanner(getattr(workers, "methods", ()))


def taken_up(planned_by: str, given: Planner | None, methods: Sequence[Method]) -> Planner | None:
    """The planner of a run that is driven again, by the name in its log."""
    match planned_by:
        case DocumentPlanner.name:
            return DocumentPlanner()
        case DirectPlanner.name:
            return DirectPlanner()
        case GoalPlanner.name if given is None:
            return GoalPlanner(methods)
        case "model" if isinstance(given, Hybrid) and hasattr(given.first, "asking"):
            return given.first.asking()  # type: ignore[no-any-return]
        case _:
            return given
