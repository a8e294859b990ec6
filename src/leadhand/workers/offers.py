"""What the tables of all declared workers have in common: parameters, checks, the offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadhand.core.catalog import Offer
from leadhand.core.jsonschema import unusable
from leadhand.core.plan.model import RISKS
from leadhand.workers.tables import Table
from leadhand.workers.template import Hole, parameters_of

NOT_SCALAR = {"array", "object"}
PLAIN = {"type", "default", "description"}
"""Words that need no look: a schema of these alone judges."""
TYPES = ("string", "integer", "number", "boolean", "array", "object")


def read_parameters(
    table: Table, holes: Mapping[str, Hole], any_json: frozenset[str], *, open_ended: bool
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
    extra = {name: Hole(name) for name in declared if name not in holes}
    return parameters_of({**holes, **extra}, declared, any_json=any_json)


def read_checks(table: Table) -> tuple[dict[str, str], str | None]:
    checks = table.text_map("checks")
    for name, expression in checks.items():
        table.expression(f"checks.{name}", expression)
    check = table.text("check")
    if check is not None:
        table.expression("check", check)
    return checks, check


def read_offer(
    table: Table,
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


def _returns(table: Table) -> dict[str, Any] | None:
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
