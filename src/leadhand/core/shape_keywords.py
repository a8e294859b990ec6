"""The keywords of `core/shape.py`: for each what it asks of a value, and how it says so."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.wording import TYPE_WORDS, kind_of, listed, named, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan import Json
    from leadhand.core.shape import Walk

PROBLEMS_MAX = 1000
PATTERN_LENGTH_MAX = 2000

Schema = dict[str, Any] | bool


class Problem(NamedTuple):
    """One thing that is wrong. `kind` is type, missing, unknown, value, size or depth."""

    path: str
    message: str
    kind: str = "value"
    fix: str = ""


class Hole:
    """A value that is not known yet; `schema` says what is known of it."""

    __slots__ = ("result", "schema", "text")

    def __init__(self, text: str, schema: Schema | None = None, *, result: bool = False) -> None:
        self.text = text
        self.schema = schema
        self.result = result
        """Whether it is the result of a step."""

    def types(self) -> frozenset[str]:
        """The types it may turn out to have; empty when anything is possible."""
        declared = self.schema.get("type") if isinstance(self.schema, dict) else None
        return frozenset([declared] if isinstance(declared, str) else declared or ())


class PartText(str):
    """A text with references inside: certainly a string, but which one is not known yet."""

    __slots__ = ()


def either(wanted: str | list[str]) -> str:
    return (
        TYPE_WORDS.get(wanted, wanted)
        if isinstance(wanted, str)
        else " or ".join(TYPE_WORDS.get(w, w) for w in wanted)
    )


def is_type(value: Json, wanted: str | list[str]) -> bool:
    kind = kind_of(value)
    if type(wanted) is not str:
        return kind in wanted or any(is_type(value, each) for each in wanted)
    if kind == wanted:
        return True
    if wanted == "number":
        return kind == "integer"
    return wanted == "integer" and isinstance(value, float) and value.is_integer()


def _same(one: Json, other: Json) -> bool:
    """Equality as JSON sees it: true is not 1, but 1.0 is."""
    if isinstance(one, (dict, list)) or isinstance(other, (dict, list)):
        return bool(_frozen(one) == _frozen(other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _frozen(value: Json) -> Any:
    """A hashable stand-in with JSON's idea of equality; depth is bounded by the documents'."""
    if isinstance(value, dict):
        return ("object", frozenset((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_frozen(item) for item in value))
    return (isinstance(value, bool), value if not isinstance(value, Hole) else id(value))


def _enum(
    walk: Walk, value: Json, allowed: Any, _s: Any, path: str, out: list[Problem], _d: int
) -> None:
    if type(value) is PartText or any(_same(value, each) for each in allowed):
        return
    fix = walk.guess(value, allowed)
    choices = listed(shown(each) for each in allowed)
    out.append(Problem(path, f"must be one of {choices}, is {shown(value)}", "value", fix))


def _const(
    _w: Walk, value: Json, wanted: Any, _s: Any, path: str, out: list[Problem], _d: int
) -> None:
    if type(value) is not PartText and not _same(value, wanted):
        out.append(Problem(path, f"must be {shown(wanted)}, is {shown(value)}"))


def _properties(
    walk: Walk, value: Json, known: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    if type(value) is not dict:
        return
    for key, item in value.items():
        if key in known:
            walk.visit(item, known[key], f"{path}.{key}" if path else key, out, depth + 1)


def _required(
    _w: Walk, value: Json, names: Any, _s: Any, path: str, out: list[Problem], _d: int
) -> None:
    if type(value) is dict:
        out += (
            Problem(path, f'has no "{name}"', "missing", f'Add "{name}".')
            for name in names
            if name not in value
        )


def _additional(
    walk: Walk, value: Json, rest: Any, schema: Any, path: str, out: list[Problem], depth: int
) -> None:
    if type(value) is not dict or rest is True:
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, item in value.items():
        if key in known or any(_matches(pattern, key) for pattern in patterns):
            continue
        here = f"{path}.{key}" if path else str(key)
        if rest is not False:
            walk.visit(item, rest, here, out, depth + 1)
            continue
        if len(out) > PROBLEMS_MAX:
            return
        # A name that is there already was not meant.
        fix = walk.guess(key, [name for name in known if name not in value])
        fix = fix or (f"Known: {listed(known, 40)}." if known else "")
        out.append(Problem(here, f"{shown(key)} is not a known name here", "unknown", fix))


def _pattern_properties(
    walk: Walk, value: Json, patterns: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    if type(value) is dict:
        for key, item in value.items():
            for pattern, schema in patterns.items():
                if _matches(pattern, key):
                    walk.visit(item, schema, f"{path}.{key}" if path else key, out, depth + 1)


def _property_names(
    walk: Walk, value: Json, schema: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    if type(value) is dict:
        for key in value:
            walk.visit(key, schema, f"{path}.{key}" if path else str(key), out, depth + 1)


def _items(
    walk: Walk, value: Json, schema: Any, whole: Any, path: str, out: list[Problem], depth: int
) -> None:
    if type(value) is list:
        for i in range(len(whole.get("prefixItems", ())), len(value)):
            if len(out) > PROBLEMS_MAX:
                return
            walk.visit(value[i], schema, f"{path}[{i}]", out, depth + 1)


def _prefix_items(
    walk: Walk, value: Json, schemas: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    if type(value) is list:
        for i, (item, schema) in enumerate(zip(value, schemas, strict=False)):
            walk.visit(item, schema, f"{path}[{i}]", out, depth + 1)


def _size(kind: type[Any], sign: int, words: str) -> Callable[..., None]:
    """A check of a length: `sign` is 1 for a minimum and -1 for a maximum."""

    def check(
        _w: Walk, value: Json, limit: Any, _s: Any, path: str, out: list[Problem], _d: int
    ) -> None:
        if (
            isinstance(value, kind)
            and type(value) is not PartText
            and sign * (len(value) - limit) < 0
        ):
            out.append(Problem(path, f"{words.format(limit)}, has {len(value)}", "size"))

    return check


def _bound(sign: int, words: str, *, open_: bool = False) -> Callable[..., None]:
    """A check of a number's size."""

    def check(
        _w: Walk, value: Json, limit: Any, _s: Any, path: str, out: list[Problem], _d: int
    ) -> None:
        if type(value) is int or type(value) is float:
            distance = sign * (value - limit)
            if distance < 0 or (open_ and distance == 0):
                out.append(Problem(path, f"must be {words} {limit}, is {shown(value)}"))

    return check


def _multiple_of(
    _w: Walk, value: Json, unit: Any, _s: Any, path: str, out: list[Problem], _d: int
) -> None:
    if (type(value) is int or type(value) is float) and not float(value / unit).is_integer():
        out.append(Problem(path, f"must be a multiple of {unit}, is {shown(value)}"))


def _pattern(
    _w: Walk, value: Json, pattern: Any, schema: Any, path: str, out: list[Problem], _d: int
) -> None:
    if type(value) is not str or _matches(pattern, value):
        return
    hint = schema.get("patternErrorMessage") or f"must match {pattern}"
    if len(value) > PATTERN_LENGTH_MAX:
        hint = f"may have at most {PATTERN_LENGTH_MAX} characters, because it has a pattern"
    out.append(Problem(path, f"{hint}, is {shown(value)}"))


def _matches(pattern: str, text: object) -> bool:
    return (
        isinstance(text, str)
        and len(text) <= PATTERN_LENGTH_MAX
        and bool(_compiled(pattern).search(text))
    )


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    # In JSON Schema `$` is the end; Python's would let a line break follow.
    strict = (
        pattern[:-1] + r"\Z" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern
    )
    try:
        return re.compile(strict)
    except (re.error, OverflowError, RecursionError):
        return re.compile("")  # A pattern in another dialect cannot be held against the value.


def _unique(
    _w: Walk, value: Json, wanted: Any, _s: Any, path: str, out: list[Problem], _d: int
) -> None:
    if type(value) is not list or not wanted:
        return
    seen = set()
    for i, item in enumerate(value):
        frozen = _frozen(item)
        if frozen in seen:
            out.append(Problem(f"{path}[{i}]", f"{shown(item)} stands twice in the list"))
        seen.add(frozen)


def _ref(
    walk: Walk, value: Json, name: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    if walk.spend(path, out):
        walk.visit(value, _target(walk.root, name), path, out, depth + 1)


def _target(root: Schema, name: str) -> Schema:
    """The schema a local reference names. One that cannot be followed allows anything."""
    if isinstance(root, dict) and name.startswith("#/$defs/"):
        found: Schema = root.get("$defs", {}).get(name[8:].replace("~1", "/"), True)
        return found
    return root if name == "#" else True


def _any_of(
    walk: Walk, value: Json, branches: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    found = []
    for branch in branches:
        if not walk.spend(path, out):
            return
        problems_: list[Problem] = []
        walk.visit(value, branch, path, problems_, depth + 1)
        if not problems_:
            return
        found.append(problems_)
    out += _closest_branch(walk, value, branches, path, found)


def _one_of(
    walk: Walk, value: Json, branches: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    found = []
    for branch in branches:
        if not walk.spend(path, out):
            return
        problems_: list[Problem] = []
        walk.visit(value, branch, path, problems_, depth + 1)
        found.append(problems_)
    fitting = sum(not each for each in found)
    if fitting == 0:
        out += _closest_branch(walk, value, branches, path, found)
    elif fitting > 1 and type(value) is not Hole:
        out.append(
            Problem(path, f"fits {fitting} of the forms it may have, and must fit exactly one")
        )


def _closest_branch(
    walk: Walk, value: Json, branches: list[Any], path: str, found: list[list[Problem]]
) -> list[Problem]:
    """The problems a person should see: those of the branch the value was probably meant for."""
    if not found:
        return []
    fitting = [each for each in found if not any(p.path == path and p.kind == "type" for p in each)]
    if fitting:
        return min(
            fitting,
            key=lambda each: (any(p.path == path and p.kind == "value" for p in each), len(each)),
        )
    words: dict[str, None] = {}
    for branch in branches:
        for kind in _types_of(walk.root, branch):
            words[TYPE_WORDS.get(kind, kind)] = None
    return (
        [Problem(path, f"must be {' or '.join(words)}, is {named(value)}", "type")]
        if words
        else found[0]
    )


def _types_of(root: Schema, branch: Any) -> list[str]:
    for _ in range(8):
        if isinstance(branch, dict) and "$ref" in branch:
            branch = _target(root, branch["$ref"])
    if not isinstance(branch, dict):
        return []
    kinds = branch.get("type", ())
    found = [kinds] if isinstance(kinds, str) else list(kinds)
    return found or [kind for each in branch.get("anyOf", ()) for kind in _types_of(root, each)]


def _all_of(
    walk: Walk, value: Json, branches: Any, _s: Any, path: str, out: list[Problem], depth: int
) -> None:
    for branch in branches:
        if walk.spend(path, out):
            walk.visit(value, branch, path, out, depth + 1)


KEYWORDS: dict[str, Callable[..., None]] = {
    "enum": _enum,
    "const": _const,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "items": _items,
    "prefixItems": _prefix_items,
    "minItems": _size(list, 1, "must have at least {} items"),
    "maxItems": _size(list, -1, "may have at most {} items"),
    "minLength": _size(str, 1, "must have at least {} characters"),
    "maxLength": _size(str, -1, "may have at most {} characters"),
    "minProperties": _size(dict, 1, "must have at least {} entries"),
    "maxProperties": _size(dict, -1, "may have at most {} entries"),
    "minimum": _bound(1, "at least"),
    "maximum": _bound(-1, "at most"),
    "exclusiveMinimum": _bound(1, "more than", open_=True),
    "exclusiveMaximum": _bound(-1, "less than", open_=True),
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "uniqueItems": _unique,
    "$ref": _ref,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
}
