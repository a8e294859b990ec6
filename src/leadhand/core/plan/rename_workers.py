"""Rename the workers of a plan: the same plan for another context."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc, Json


def workers_of(plan: Json) -> set[str]:
    """Return every worker a plan names, also in undo tasks and in an inner plan."""
    found: set[str] = set()
    if not isinstance(plan, dict):
        return found
    steps = plan.get("steps")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict):
            undo = step.get("undo")
            task = undo.get("worker") if isinstance(undo, dict) else None
            others = step.get("alternatives")
            names = [step.get("worker"), task, *(others if isinstance(others, list) else ())]
            found.update(name for name in names if isinstance(name, str))
    return found | workers_of(plan.get("rollback_plan"))


def rename_workers(plan: Doc, names: Mapping[str, str]) -> Doc:
    """Return the plan with its workers renamed by `names`; malformed parts are left unchanged."""
    found = dict(plan)
    if isinstance(plan.get("steps"), list):
        found["steps"] = [_step(step, names) for step in plan["steps"]]
    limits = plan.get("limits")
    if isinstance(limits, dict) and isinstance(limits.get("workers"), dict):
        mine = {_named(name, names): most for name, most in limits["workers"].items()}
        found["limits"] = {**limits, "workers": mine}
    if isinstance(plan.get("rollback_plan"), dict):
        found["rollback_plan"] = rename_workers(plan["rollback_plan"], names)
    return found


def _step(step: Json, names: Mapping[str, str]) -> Json:
    if not isinstance(step, dict):
        return step
    found = dict(step)
    if "worker" in step:
        found["worker"] = _named(step["worker"], names)
    if isinstance(step.get("alternatives"), list):
        found["alternatives"] = [_named(name, names) for name in step["alternatives"]]
    if isinstance(step.get("undo"), dict):
        found["undo"] = _step(step["undo"], names)
    return found


def _named(name: Json, names: Mapping[str, str]) -> Json:
    return names.get(name, name) if isinstance(name, str) else name
