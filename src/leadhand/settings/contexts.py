"""`[context.NAME]`: the same plan in another context.

    [context.staging]
    workers.k8s-deployer = "staging-deployer"
    params.environment = "staging"
    policy.auto_risk = "low"

It binds the names of workers in plans to those of this context, gives values to parameters, and
overrides the policy of the files. Flags and variables take precedence over it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadhand.core.wording import closest, listed, shown
from leadhand.errors import UsageError
from leadhand.settings.schema import PolicyTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from leadhand.core.plan.model import Doc

PARTS = ("workers", "params", "policy")


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """A context in which plans can run."""

    name: str
    workers: Mapping[str, str] = field(default_factory=dict)
    """The worker named in a plan, to the worker that does the step here."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Values for parameters, for plans that declare them."""


def check_context(path: Path, name: str, table: Any) -> Doc:
    """Check a context's table of a file. Raise `UsageError`, which names the problem."""
    place = f"{path}: [context.{name}]"
    if not isinstance(table, dict):
        raise UsageError(f"{path}: context.{name} must be a table, written [context.{name}]")
    for part, content in table.items():
        if part not in PARTS:
            raise UsageError(f"{place} has no key {shown(part)}. {_meant(part, PARTS)}")
        if not isinstance(content, dict):
            raise UsageError(f"{place}: {part} must be a table, as in {part}.NAME = ...")
    for worker, other in table.get("workers", {}).items():
        if not isinstance(other, str) or not other:
            raise UsageError(f"{place}: workers.{worker} must be the name of a worker")
    for key in table.get("policy", {}):
        if key not in PolicyTable.__struct_encode_fields__:
            meant = _meant(key, PolicyTable.__struct_encode_fields__)
            raise UsageError(f"{place} policy has no key {shown(key)}. {meant}")
    for key, value in table.get("params", {}).items():
        if not _is_json(value):
            raise UsageError(f"{place}: params.{key} must be a value that JSON has; quote a date")
    return table


def find_context(tables: Mapping[str, Doc], name: str) -> ContextSettings:
    """Return the context of a name. Raise `UsageError`, which lists the known ones."""
    if name not in tables:
        there = _meant(name, tables) if tables else "Fix: add [context.NAME] to leadhand.toml."
        raise UsageError(f"there is no context {shown(name)}. {there}")
    table = tables[name]
    return ContextSettings(name, table.get("workers", {}), table.get("params", {}))


def _meant(word: str, known: Iterable[str]) -> str:
    known = tuple(known)
    meant = closest(word, known)
    return f'Did you mean "{meant}"?' if meant else f"There are: {listed(known, 40)}."


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    return value is None or isinstance(value, str | bool | int)
