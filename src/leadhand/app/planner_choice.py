"""The choice of the planner: from a person's input to the planner of a goal.

None, "goal"            the goal planner
a function              called as it is
"anthropic:…", "lead"   a model; behind it the goal planner, if the goal names wanted facts
a planner               itself
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadhand.core.plan.model import MODES, Goal
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.planners.direct import DirectPlanner, able, agents_of, one_step, one_step_plan
from leadhand.planners.document import DocumentPlanner
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.planners.hybrid import Hybrid
from leadhand.planners.script import ScriptPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.core.catalog import Catalog, Method
    from leadhand.core.plan.model import Doc, Goal, Json
    from leadhand.models.registry import ModelRegistry
    from leadhand.ports import Planner
    from leadhand.workers.registry import Registry


# How far ahead to plan: a goal's mode, and the planner that follows from it.
#
# direct      one worker can do it from the given facts: planning is skipped; a goal that is only
#             text goes to the only agent, or to one with the registered functions as its tools
# next_step   the steps that can start now, and the planner again after every report
# whole       the whole plan as one revision, and the planner again only at a surprise
# auto        one step if one worker is the cheapest way within the budget, which the goal planner
#             determines; direct if the goal is only text, there is no planner and exactly one
#             agent; else as the planner decides


CONSULT = {"next_step": "every_report", "whole": "on_surprise"}


def with_consult_mode(goal: Goal) -> Doc:
    """Return when the planner is asked again, if the mode says; else the planner decides."""
    return {"consult": CONSULT[goal.mode]} if goal.mode in CONSULT else {}


def in_mode(goal: Goal, mode: str) -> Goal:
    """Return the goal with `mode` set. Raise `UsageError` if the mode is unknown."""
    mode = mode or goal.mode or ""
    if mode and mode not in MODES:
        raise UsageError(f"{mode!r} is no mode. Fix: take one of {', '.join(MODES)}.")
    return replace(goal, mode=mode or None)


def planner_in(
    goal: Goal, registry: Registry, known: Callable[[Goal], Planner], *, given: bool
) -> Planner:
    """Return the planner of a goal by its mode.

    `known` returns the planner that plans; `given`: whether the caller chose one.
    """
    direct = direct_in(goal, registry, given=given)
    return known(goal) if direct is None else direct


def direct_in(goal: Goal, registry: Registry, *, given: bool) -> DirectPlanner | None:
    """Return the planner that skips planning, if the mode asks for it or there is only an agent."""
    words = bool(goal.text) and not goal.want
    if goal.mode == "direct":
        return _asked(goal, registry) if words else _direct(goal, registry.catalog())
    if goal.mode in (None, "auto") and words and not given:
        agents = agents_of(registry.catalog())
        return DirectPlanner(one_step_plan(agents[0], goal)) if len(agents) == 1 else None
    return None


def _asked(goal: Goal, registry: Registry) -> DirectPlanner:
    agents = agents_of(registry.catalog())
    if not agents and registry.direct() is not None:
        agents = agents_of(registry.catalog())
    if len(agents) == 1:
        return DirectPlanner(one_step_plan(agents[0], goal))
    if agents:
        raise UsageError(
            f"mode direct gives a goal in words to the only agent, and there are several: "
            f"{listed(agents)}. Fix: run a plan that names one, or give --planner."
        )
    raise UsageError(
        "mode direct gives a goal in words to an agent, and there is neither an agent nor a model "
        'for one. Fix: name a model in leadhand.toml, as in [tiers] hand = "anthropic:…", or say '
        "which facts are wanted with --want."
    )


def _direct(goal: Goal, catalog: Catalog) -> DirectPlanner:
    found = able(catalog, goal)
    if len(found) == 1:
        return DirectPlanner(one_step(found[0], goal))
    wanted = ", ".join(goal.want) or "nothing"
    names = ", ".join(each.name for each in found) or "no worker"
    raise UsageError(
        f"mode direct is for a goal that exactly one worker reaches from what is there; wanted is "
        f"{wanted}, and {names} can give it. Fix: say --want and --have, or take mode auto."
    )


def as_planner(
    given: Planner | Callable[..., object] | str | None,
    methods: Sequence[Method],
    book: ModelRegistry | None,
) -> Planner | None:
    """Return the planner for an input; None if nothing was given."""
    if given == GoalPlanner.name:
        return GoalPlanner(methods)
    if isinstance(given, str):
        return model_planner(given, book).with_methods(methods)
    if isinstance(given, (GoalPlanner, Hybrid)):
        return given.with_methods(methods)
    if given is None or hasattr(given, "decide"):
        return given  # type: ignore[return-value]
    return ScriptPlanner(given)


def model_planner(name: str, book: ModelRegistry | None = None, **more: Any) -> Hybrid:
    """Return a planner for a model by name, with the goal planner behind it."""
    from leadhand.models.registry import ModelRegistry
    from leadhand.planners.model.planner import ModelPlanner

    known = book or ModelRegistry()
    if not known.knows(name):
        raise UsageError(
            f"{name!r} is no planner: pass a function, a planner, 'goal', or a model as in "
            "'anthropic:claude-opus-4-5'"
        )
    made = Hybrid(ModelPlanner(name, book=known, asks=False, **more))
    made.source = name
    return made


def planner_for(given: Planner | None, goal: Goal, methods: Sequence[Method]) -> Planner:
    """Return the planner of a goal: the given one, else the goal planner."""
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
    """Return the name by which a plan document can refer to a planner; "" for none."""
    if planner is None:
        return ""
    if isinstance(planner, GoalPlanner):
        return GoalPlanner.name
    own = getattr(planner, "label", "") or getattr(planner, "source", "")
    if not own and isinstance(planner, Hybrid):
        return planner_label(planner.first)
    return str(own or planner.name)


def goal_of_document(doc: Doc) -> Json:
    """Return the goal of a document that a planner may revise: planned whole by default."""
    goal = Goal.from_doc(doc.get("goal"))
    whole = "whole" if doc.get("final", True) else None
    return replace(goal, mode=goal.mode or doc.get("mode") or whole).to_doc()


def successor(workers: Any) -> GoalPlanner:
    """Return the planner of a run that is handed over: the goal planner, with the run's methods."""
    return GoalPlanner(getattr(workers, "methods", ()))


def resumed_planner(
    planned_by: str, given: Planner | None, methods: Sequence[Method]
) -> Planner | None:
    """Return the planner of a resumed run, by the name in its log."""
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
