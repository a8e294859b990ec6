"""How far ahead to plan: a goal's mode, and the planner that it comes to.

direct      one worker can do it from what is there: planning is skipped
next_step   what can start now, and another look after every report
whole       the whole plan as one revision, and another look only at a surprise
auto        direct where exactly one worker can do it, else as the planner likes
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leadhand.core.facts import is_flag
from leadhand.core.plan import MODES
from leadhand.errors import UsageError
from leadhand.planners.direct import DirectPlanner, able, one_step
from leadhand.planners.goal.planner import GoalPlanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan import Doc, Goal
    from leadhand.ports import Planner

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


def planner_in(goal: Goal, catalog: Catalog, known: Callable[[Goal], Planner]) -> Planner:
    """The planner of a goal by its mode; `known` gives the one that plans."""
    if goal.mode == "direct":
        return _direct(goal, catalog)
    planner = known(goal)
    if goal.mode in (None, "auto") and type(planner) is GoalPlanner:
        found = able(catalog, goal)
        if len(found) == 1 and not any(map(is_flag, goal.want)):
            return planner.starting_with(one_step(found[0], goal))
    return planner


def _direct(goal: Goal, catalog: Catalog) -> Planner:
    found = able(catalog, goal)
    if len(found) == 1:
        return DirectPlanner(one_step(found[0], goal))
    wanted = ", ".join(goal.want) or "nothing"
    names = ", ".join(each.name for each in found) or "nobody"
    raise UsageError(
        f"mode direct is for a goal that exactly one worker reaches from what is there; wanted is "
        f"{wanted}, and {names} can give it. Fix: say --want and --have, or take mode auto."
    )
