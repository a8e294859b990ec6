"""Whether a value that is not known yet can turn out right.

Its giver may declare a type, or the kind of text it is (`contentMediaType`). Only when every
value of that kind would be wrong is it held against the plan. What is not declared on both ends
is not known, and lets pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.wording import TYPE_WORDS

if TYPE_CHECKING:
    from leadhand.core.shape_keywords import Hole

DEPTH_MAX = 8


class Misfit(NamedTuple):
    """Why a value cannot be right: what is taken, and what is given."""

    wanted: str
    given: str


def misfit(hole: Hole, schema: Any, depth: int = 0) -> Misfit | None:
    """Why nothing that may fill the hole fits the schema, or None."""
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return None
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        found = [misfit(hole, branch, depth + 1) for branch in branches]
        wrong = [each for each in found if each is not None]
        if len(wrong) == len(found):
            wanted = " or ".join(dict.fromkeys(each.wanted for each in wrong))
            return Misfit(wanted, wrong[0].given)
    return _medium(hole, schema) or _type(hole, schema)


def _medium(hole: Hole, schema: dict[str, Any]) -> Misfit | None:
    declared = hole.schema if isinstance(hole.schema, dict) else {}
    wanted, given = schema.get("contentMediaType"), declared.get("contentMediaType")
    if not isinstance(wanted, str) or not isinstance(given, str) or _same(wanted, given):
        return None
    return Misfit(wanted[:60], given[:60])


def _same(one: str, other: str) -> bool:
    """Whether two media types can be the same; `image/*` is any image."""
    kinds = [text.lower().partition(";")[0].strip().split("/") for text in (one, other)]
    return all(a == b or "*" in (a, b) for a, b in zip(*kinds, strict=False))


def _type(hole: Hole, schema: dict[str, Any]) -> Misfit | None:
    wanted, possible = schema.get("type"), hole.types()
    if wanted is None or not possible:
        return None
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    allowed = set(words)
    if "number" in allowed or ("integer" in allowed and "number" in possible):
        allowed |= {"number", "integer"}
    if possible & allowed:
        return None
    return Misfit(_said(words), _said(sorted(possible)))


def _said(kinds: list[str]) -> str:
    return " or ".join(TYPE_WORDS.get(kind, kind) for kind in kinds)
