"""Edits as people write them: `PATH=VALUE` on a command line or in a form.

There is one reading of a typed value, for the command line, the page and the API: see `typed`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from leadhand.codec.documents import is_json, read_value
from leadhand.core.jsonschema import follow
from leadhand.core.plan.amend import MISSING, edit, step_at, value_at
from leadhand.core.plan.references import find
from leadhand.core.plan.schema import PLAN_SCHEMA
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc, Json

_SPLIT = re.compile(
    r"""((?:[^="'\[\]]|\[[^\]"']*\]|\["(?:[^"\\]|\\.)*"\]|\['[^']*'\])+)=(.*)""", re.DOTALL
)
_BRANCHES = ("anyOf", "oneOf", "allOf")
DEPTH_MAX = 20
"""The maximum depth of schema references."""


def apply_edits(
    plan: Doc,
    sets: Iterable[str] = (),
    unsets: Iterable[str] = (),
    *,
    heirs: Mapping[str, str] | None = None,
    catalog: Catalog | None = None,
) -> Doc:
    """Return a plan with the `PATH=VALUE` texts of `sets` applied and `unsets` removed.

    `heirs` maps superseded steps to their successors; `catalog` gives the types of parameters.
    """
    found = plan
    for text in sets:
        path, value = split_assignment(text)
        found = edit(found, [(path, typed_value(found, path, value, heirs, catalog))], heirs=heirs)
    return edit(found, unset=unsets, heirs=heirs)


def split_assignment(text: str) -> tuple[str, str]:
    """Split `PATH=VALUE` into its two parts. Raise `UsageError` if it is malformed."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text[:100]!r}: write it as PATH=VALUE, as in steps.ID.timeout=5m")
    return match[1].strip(), match[2]


def typed_value(
    plan: Doc,
    path: str,
    text: str,
    heirs: Mapping[str, str] | None = None,
    catalog: Catalog | None = None,
) -> Json:
    """Return the value that a person means by typing `text` at a path of a plan.

    Text that is not JSON, or is quoted, is a text. Otherwise the declaration of the place decides:
    the plan's schema, or that of the step's worker. If it allows texts among other types, or if
    nothing is declared, the current value decides. A number that would be written differently
    (1.10, 007, 1e3) stays a text, unless a number is declared or is the current value.
    """
    if not is_json(text):
        return text
    value, there = read_value(text, path), value_at(plan, path, heirs)
    if isinstance(value, str | list | dict):
        return value
    unknown = there is MISSING or bool(find(there))
    step, kinds = _declared(plan, path, heirs, catalog)
    if kinds and "string" not in kinds:
        return value
    if kinds == {"string"} or (not unknown and isinstance(there, str) and (step or not kinds)):
        return text
    if kinds and not step:  # a field of the plan: a duration is a text or a number
        return value
    if unknown:
        return text if kinds else _lossless(value, text)
    return value


def _lossless(value: Json, text: str) -> Json:
    return value if json.dumps(value) == text.strip() else text


def _declared(
    plan: Doc, path: str, heirs: Mapping[str, str] | None, catalog: Catalog | None
) -> tuple[bool, set[str]]:
    """Return whether a path leads to a parameter of a worker, and the declared types there."""
    step, rest = step_at(plan, path, heirs)
    defs = PLAN_SCHEMA["$defs"]
    if step is None:
        return False, _kinds(defs["plan"], rest, PLAN_SCHEMA)
    if not rest or rest[0] != "parameters":
        return False, _kinds(defs["step"], rest, PLAN_SCHEMA)
    offer = (
        catalog.offer(str(step.get("worker", "")), str(step.get("action", ""))) if catalog else None
    )
    if offer is None or offer.parameters is None:
        return True, set()
    return True, _kinds(offer.parameters, rest[1:], offer.parameters)


def _kinds(schema: Any, parts: Sequence[str | int], root: Doc, depth: int = 0) -> set[str]:
    """Return the types that a schema allows at a place; empty if it does not say."""
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return set()
    found: set[str] = set()
    if "$ref" in schema:
        found |= _kinds(follow(root, str(schema["$ref"])), parts, root, depth + 1)
    for each in (branch for word in _BRANCHES for branch in schema.get(word) or ()):
        found |= _kinds(each, parts, root, depth + 1)
    if not parts:
        kinds = schema.get("type", [])
        found |= {kinds} if isinstance(kinds, str) else set(kinds)
        found |= {"string" for each in schema.get("enum", ()) if isinstance(each, str)}
        return found
    first = parts[0]
    if isinstance(first, int):
        return found | _kinds(schema.get("items"), parts[1:], root, depth + 1)
    inner = (schema.get("properties") or {}).get(first, schema.get("additionalProperties"))
    return found | _kinds(inner, parts[1:], root, depth + 1)
