"""The canonical form of a plan: its meaning, independent of spelling.

`normal` returns equal documents for plans with the same meaning: steps by id, lists that are sets
sorted and without repeats, one name as a list of one, dependencies in their shortest spelling, and
no field that repeats its default. Numbers keep their type: a worker given 1 is not given 1.0.

Any document is accepted. Malformed parts are left unchanged, so that differences in them show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.hashing import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.plan.model import Doc, Json


STEP_SETS = frozenset(
    {"depends_on", "effects", "reads", "writes", "needs", "gives", "drops", "context"}
    | {"success_criteria", "expect"}
)
GOAL_SETS = frozenset({"want", "acceptance"})
_STEP_DEFAULTS: Doc = {
    **dict.fromkeys(("action", "description", "because"), ""),
    "parameters": {},
    "alternatives": [],
    "depends_on": [],
}
_PLAN_DEFAULTS: Doc = {
    **dict.fromkeys(("plan_id", "description", "goal"), ""),
    "params": {},
    "resources": {},
    "limits": {},
    "final": True,
    "outlook": [],
}

Heirs = dict[str, str]
"""Superseded steps: old id to new id."""


def same_json(one: Json, other: Json) -> bool:
    """Return whether two values are identical as canonical JSON: 1 is neither 1.0 nor true."""
    return canonical(one) == canonical(other)


def named_steps(value: Json) -> dict[str, Doc] | None:
    """Return the steps by id, or None if `value` is not a list of steps with distinct ids."""
    if not isinstance(value, list):
        return None
    found = {
        step["id"]: step
        for step in value
        if isinstance(step, dict) and isinstance(step.get("id"), str)
    }
    return found if len(found) == len(value) else None


def heirs_of(plan: Doc) -> Heirs:
    """Return the ids missing from `plan` that exactly one of its steps supersedes, with its id."""
    steps = named_steps(plan.get("steps")) or {}
    found: dict[str, list[str]] = {}
    for ident, step in steps.items():
        old = step.get("supersedes")
        if isinstance(old, str) and old not in steps:
            found.setdefault(old, []).append(ident)
    return {old: heirs[0] for old, heirs in found.items() if len(heirs) == 1}


def follow(name: str, heirs: Mapping[str, str]) -> str:
    """Return the step that now stands for `name`, following chains of heirs."""
    seen = {name}
    while name in heirs and heirs[name] not in seen:
        name = heirs[name]
        seen.add(name)
    return name


def canonical_plan(plan: Doc, more_heirs: Mapping[str, str] | None = None) -> Doc:
    """Return `plan` in canonical form, with its steps by id.

    `more_heirs` adds superseded ids that the plan itself does not mention.
    """
    heirs = heirs_of(plan) | dict(more_heirs or {})
    found = {
        key: value
        for key, value in plan.items()
        if key != "$schema" and not _is_default(key, value, _PLAN_DEFAULTS)
    }
    if isinstance(found.get("goal"), dict):
        found["goal"] = _goal(found["goal"])
    if isinstance(found.get("rollback_plan"), dict):
        found["rollback_plan"] = canonical_plan(found["rollback_plan"])
    steps = named_steps(plan.get("steps"))
    if steps is not None:
        found["steps"] = {ident: canonical_step(step, heirs) for ident, step in steps.items()}
    return found


def canonical_step(step: Doc, heirs: Mapping[str, str] | None = None) -> Doc:
    """Return `step` in canonical form.

    `heirs` maps superseded ids in its references to new ones.
    """
    found = {
        key: _entries(key, value, heirs or {}) if key in STEP_SETS else value
        for key, value in step.items()
        if not _is_default(key, value, _STEP_DEFAULTS)
    }
    found.setdefault("depends_on", [])
    if isinstance(found.get("uses"), str | list):
        uses = found["uses"]
        found["uses"] = sorted([uses] if isinstance(uses, str) else uses, key=canonical)
    if isinstance(found.get("undo"), dict):
        undo = canonical_step(found["undo"], heirs)
        found["undo"] = {key: value for key, value in undo.items() if key != "depends_on"}
    return found


def sorted_unique(items: Iterable[Json]) -> list[Json]:
    """Return the items sorted by their canonical JSON, without duplicates."""
    return [value for _, value in sorted({canonical(each): each for each in items}.items())]


def _is_default(key: str, value: Json, defaults: Doc) -> bool:
    return key in defaults and same_json(value, defaults[key])


def _goal(goal: Doc) -> Json:
    found = {
        key: _entries(key, value, {}) if key in GOAL_SETS else value for key, value in goal.items()
    }
    found = {key: value for key, value in found.items() if not same_json(value, [])}
    return found["text"] if set(found) == {"text"} else found


def _entries(key: str, value: Any, heirs: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return value
    if key == "depends_on":
        value = [_dependency(each, heirs) for each in value]
    elif key == "context":
        value = [_told(each, heirs) for each in value]
    return sorted_unique(value)


def _told(entry: Json, heirs: Mapping[str, str]) -> Json:
    if isinstance(entry, str):
        return follow(entry, heirs)
    if not isinstance(entry, dict) or not isinstance(entry.get("step"), str):
        return entry
    found = {**entry, "step": follow(entry["step"], heirs)}
    plain = set(found) <= {"step", "as"} and found.get("as", "result") == "result"
    return found["step"] if plain else found


def _dependency(entry: Json, heirs: Mapping[str, str]) -> Json:
    if isinstance(entry, str):
        return follow(entry, heirs)
    if not isinstance(entry, dict) or not isinstance(entry.get("step"), str):
        return entry
    found = {**entry, "step": follow(entry["step"], heirs)}
    plain = set(found) <= {"step", "if"} and found.get("if", "succeeded") == "succeeded"
    return found["step"] if plain else found
