"""Reading a table of the settings: each value has a type, each mistake a place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from leadhand.codec import expressions
from leadhand.core import durations
from leadhand.core.catalog import Offer
from leadhand.core.jsonschema import unusable
from leadhand.core.plan.model import RISKS
from leadhand.workers.template import TemplateSlot, parameters_of


class DeclarationTable:
    """One table; what is wrong with it is added to `problems`, and a harmless value returned."""

    def __init__(self, place: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self.place = place
        self.values = dict(values)
        self.problems = problems

    def problem(self, key: str, message: str) -> None:
        """Note what is wrong with a key."""
        text = f"{self.place}.{key}: {message}" if key else f"{self.place}: {message}"
        if text not in self.problems:
            self.problems.append(text)

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            self.problem(key, "must be a text")
            return None
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single one stands for a list of one."""
        value = self.values.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(each, str) and each for each in items):
            self.problem(key, "must be a list of texts")
            return ()
        return tuple(items)

    def mapping(self, key: str) -> dict[str, Any]:
        """A table inside."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.problem(key, "must be a table")
            return {}
        return dict(value)

    def text_map(self, key: str) -> dict[str, str]:
        """A table of texts."""
        value = self.mapping(key)
        if not all(isinstance(each, str) for each in value.values()):
            self.problem(key, "must be a table of texts")
            return {}
        return value

    def choice(self, key: str, choices: Iterable[str]) -> str | None:
        """One of a few words."""
        value = self.values.get(key)
        known = tuple(choices)
        if value is not None and value not in known:
            self.problem(key, f"must be one of {', '.join(known)}")
            return None
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.problem(key, "must be true or false")
            return default
        return value

    def count(self, key: str) -> int | None:
        """A whole number from 1."""
        value = self.values.get(key)
        if value is not None and (type(value) is not int or value < 1):
            self.problem(key, "must be a whole number from 1")
            return None
        return value

    def number(self, key: str) -> float:
        """A number that is not negative; 0 if it is not given."""
        value = self.values.get(key, 0.0)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < math.inf
        ):
            self.problem(key, "must be a number that is not negative")
            return 0.0
        return float(value)

    def seconds(self, key: str) -> float:
        """A duration; 0 if it is not given."""
        if key not in self.values:
            return 0.0
        try:
            return durations.seconds(self.values[key])
        except ValueError as problem:
            self.problem(key, str(problem))
            return 0.0

    def expression(self, key: str, text: str) -> None:
        """Check an expression over a report."""
        try:
            expressions.check(text)
        except expressions.ExpressionError as problem:
            self.problem(key, f"{text!r}: {problem}")


# What the tables of all declared workers have in common: parameters, checks, the offer.


NOT_SCALAR = {"array", "object"}
PLAIN = {"type", "default", "description"}
"""Words that need no look: a schema of these alone judges."""
TYPES = ("string", "integer", "number", "boolean", "array", "object")


def read_parameters(
    table: DeclarationTable,
    holes: Mapping[str, TemplateSlot],
    any_json: frozenset[str],
    *,
    open_ended: bool,
) -> dict[str, Any]:
    """The schema of an action's parameters, from its holes and what is declared of them."""
    declared: dict[str, dict[str, Any]] = {}
    for name, value in table.mapping("parameters").items():
        schema = {"type": value} if isinstance(value, str) else value
        kind = schema.get("type", "string") if isinstance(schema, Mapping) else None
        kinds = kind if isinstance(kind, list) else [kind]
        if not isinstance(schema, Mapping) or not all(each in TYPES for each in kinds):
            table.problem(f"parameters.{name}", f"must be a type: {', '.join(TYPES)}")
            continue
        if name not in holes and not open_ended:
            table.problem(f"parameters.{name}", "is declared, and no placeholder uses it")
        elif name in holes and name not in any_json:
            wrong = set(kinds) != {"array"} if holes[name].splat else set(kinds) & NOT_SCALAR
            if wrong:
                message = "a placeholder {name} takes one value, and {name...} an array"
                table.problem(f"parameters.{name}", message)
        declared[name] = dict(schema)
        if not set(schema) <= PLAIN and (reason := unusable(declared[name])):
            table.problem(f"parameters.{name}", f"judges nothing: {reason}")
    if "parameters" in table.values:
        for name in holes:
            if name not in table.mapping("parameters"):
                table.problem("parameters", f"{{{name}}} is used, and not declared here")
    extra = {name: TemplateSlot(name) for name in declared if name not in holes}
    return parameters_of({**holes, **extra}, declared, any_json=any_json)


def read_checks(table: DeclarationTable) -> tuple[dict[str, str], str | None]:
    checks = table.text_map("checks")
    for name, expression in checks.items():
        table.expression(f"checks.{name}", expression)
    check = table.text("check")
    if check is not None:
        table.expression("check", check)
    return checks, check


def read_offer(
    table: DeclarationTable,
    schema: dict[str, Any],
    checks: Mapping[str, str],
    check: str | None,
    *,
    probe: bool,
    idempotent: bool,
) -> Offer:
    return Offer(
        parameters=schema,
        returns=_returns(table),
        checks=tuple(checks),
        result_check=check is not None,
        risk=table.choice("risk", RISKS),
        effects=table.texts("effects") if "effects" in table.values else None,
        reads=table.texts("reads"),
        writes=table.texts("writes"),
        idempotent=table.flag("idempotent", default=idempotent),
        probe=probe,
        timeout_s=table.seconds("timeout") or None,
        est_s=table.seconds("est") or None,
        cost=table.number("cost"),
        needs=table.texts("needs") if "needs" in table.values else _required(schema),
        gives=table.texts("gives"),
        drops=table.texts("drops"),
    )


def _returns(table: DeclarationTable) -> dict[str, Any] | None:
    """The schema of the data, if one is declared."""
    if "returns" not in table.values:
        return None
    schema = table.mapping("returns")
    if reason := unusable(schema):
        table.problem("returns", f"judges nothing: {reason}")
    return schema


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """What it needs unless it says otherwise: the parameters that must be given."""
    return tuple(str(name) for name in schema.get("required", ()))
