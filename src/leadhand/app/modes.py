"""How far ahead to plan: a goal's mode, and the planner that it comes to.

direct      one worker can do it from what is there: planning is skipped; a goal in words alone
            goes to the only agent, or to one that has the registered functions as its tools
next_step   what can start now, and another look after every report
whole       the whole plan as one revision, and another look only at a surprise
auto        one step where one worker is the cheapest way and affordable, which the goal planner
            finds out; direct where the goal is words alone, nobody plans and there is exactly one
            agent; else as the planner likes
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leadhand.core.plan.model import MODES
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.planners.direct import DirectPlanner, able, agents_of, asked, one_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Goal
    from leadhand.ports import Planner
    from leadhand.workers.registry import Registry

CONSULT = {"next_step": "every_report", "whole": "on_surprise"}


def consulting(goal: Goal) -> Doc:
    """When the planner is asked again, where the mode says so; else that is the planner's word."""
    return {"consult": CONSULT[goal.mode]} if goal.mode in CONSULT else {}


def in_mode(goal: Goal, mode: str) -> Goal:
    """The goal with a mode that was asked for, which is one."""
    mode = mode or goal.mode or ""
    if mode and mode not in MODES:
        raise UsageError(f"{mode!r} is no mode. Fix: take one of {', '.join(MODES)}.")
    return replace(goal, mode=mode or None)


def planner_in(
    goal: Goal, registry: Registry, known: Callable[[Goal], Planner], *, given: bool
) -> Planner:
    """The planner of a goal by its mode; `known` gives the one that plans, `given` if one was."""
    direct = direct_in(goal, registry, given=given)
    return known(goal) if direct is None else direct


def direct_in(goal: Goal, registry: Registry, *, given: bool) -> DirectPlanner | None:
    """The planner that skips planning, where the mode asks for it or an agent is all there is."""
    words = bool(goal.text) and not goal.want
    if goal.mode == "direct":
        return _asked(goal, registry) if words else _direct(goal, registry.catalog())
    if goal.mode in (None, "auto") and words and not given:
        agents = agents_of(registry.catalog())
        return DirectPlanner(asked(agents[0], goal)) if len(agents) == 1 else None
    return None


def _asked(goal: Goal, registry: Registry) -> DirectPlanner:
    agents = agents_of(registry.catalog())
    if not agents and registry.direct() is not None:
        agents = agents_of(registry.catalog())
    if len(agents) == 1:
        return DirectPlanner(asked(agents[0], goal))
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
    names = ", ".join(each.name for each in found) or "nobody"
    raise UsageError(
        f"mode direct is for a goal that exactly one worker reaches from what is there; wanted is "
        f"{wanted}, and {names} can give it. Fix: say --want and --have, or take mode auto."
    )
