"""Whether a value has the form a JSON Schema asks for, and everything that is wrong with it.

The validators at hand either stop at the first problem (msgspec) or are heavy to import
(jsonschema). A plan with ten mistakes should get ten messages that a person can act on, and the
parameters of each step are checked at every start, so this one is small and quick. It knows
the part of JSON Schema 2020-12 that plans and workers use; keywords it does not know are
ignored, as the standard says. Differences to know:

- `format` is a note for editors, as in the standard's default.
- An integer is an int, or a float without a fraction; a boolean is neither.
- A failed `anyOf` reports the problems of the branch that came closest, not those of all.
- Work is bounded: DEPTH_MAX levels, CHECKS_MAX branches, and `pattern` takes only texts of
  up to PATTERN_LENGTH_MAX characters, because Python's `re` can be made to take for ever.

Before a plan runs, some values are still unknown. A `Hole` stands for a reference whose value
will come later, a `PartText` for a text with references inside. Both are accepted wherever
they could turn out right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.shape_holes import misfit
from leadhand.core.shape_keywords import (
    KEYWORDS,
    PROBLEMS_MAX,
    Hole,
    PartText,
    Problem,
    Schema,
    either,
    is_type,
)
from leadhand.core.wording import closest, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leadhand.core.plan import Json

__all__ = ["Hole", "PartText", "Problem", "Schema", "problems"]

DEPTH_MAX = 200
CHECKS_MAX = 2_000_000
GUESSES_MAX = 20
PREPARED_MAX = 5000


def problems(
    value: Json, schema: Schema, path: str = "", *, guesses: int = GUESSES_MAX
) -> list[Problem]:
    """Everything that is wrong with a value, nearest to the root first.

    `guesses` bounds how many misspelt names are compared with the known ones.
    """
    walk = Walk(schema, guesses)
    walk.visit(value, schema, path, walk.out, 0)
    return walk.out


_Prepared = tuple[dict[str, Any], Any, tuple[tuple["Callable[..., None]", Any], ...]]

_PREPARED: dict[int, _Prepared] = {}
"""Schemas by identity, taken apart once: they are constants, and each is met at every start.
An entry holds its schema, so an identity cannot come to mean another one."""


def _prepare(schema: dict[str, Any]) -> _Prepared:
    checks = tuple((KEYWORDS[word], schema[word]) for word in schema if word in KEYWORDS)
    if len(_PREPARED) >= PREPARED_MAX:
        _PREPARED.clear()
    found = _PREPARED[id(schema)] = (schema, schema.get("type"), checks)
    return found


class Walk:
    """One validation: what it is against, what it found, what it may still spend."""

    __slots__ = ("checks_left", "guesses_left", "out", "root")

    def __init__(self, root: Schema, guesses: int) -> None:
        self.root = root
        self.guesses_left = guesses
        self.out: list[Problem] = []
        self.checks_left = CHECKS_MAX

    def visit(self, value: Json, schema: Schema, path: str, out: list[Problem], depth: int) -> None:
        """Check a value against a schema; problems go to `out`."""
        if type(schema) is not dict:
            if schema is False:
                out.append(Problem(path, "is not allowed here", "unknown"))
            return
        if depth > DEPTH_MAX:
            out.append(Problem(path, "is nested too deeply", "depth"))
            return
        if type(value) is Hole:
            wrong = misfit(value, schema)
            if wrong is not None:
                message = f"must be {wrong.wanted}, and {value.text} gives {wrong.given}"
                out.append(Problem(path, message, "hole" if value.result else "type"))
            return
        prepared = _PREPARED.get(id(schema))
        if prepared is None:
            prepared = _prepare(schema)
        _, wanted, checks = prepared
        if wanted is not None and not is_type(value, wanted):
            out.append(Problem(path, f"must be {either(wanted)}, is {named(value)}", "type"))
            return  # What it should hold is beside the point when it is something else.
        for check, argument in checks:
            check(self, value, argument, schema, path, out, depth)
            if len(out) > PROBLEMS_MAX:
                return

    def guess(self, word: object, candidates: Iterable[str]) -> str:
        """What a misspelt word was probably meant to be."""
        self.guesses_left -= 1
        meant = closest(word, candidates) if self.guesses_left >= 0 else ""
        return f'Did you mean "{meant}"?' if meant else ""

    def spend(self, path: str, out: list[Problem]) -> bool:
        """Whether there is work left for one more branch; a schema can ask for endless work."""
        self.checks_left -= 1
        if self.checks_left <= 0:
            out.append(Problem(path, "takes too long to check against its schema", "depth"))
        return self.checks_left > 0
