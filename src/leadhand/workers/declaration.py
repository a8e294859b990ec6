"""What the `[workers.NAME]` tables of all kinds have in common, and what a kind of worker is.

A kind is an entry point of the group `leadhand.workers`. Its name is the key that a table of this
kind has: `command`, `url`, or one of another package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from leadhand import plugins
from leadhand.codec import expressions
from leadhand.codec.tables import (
    Count,
    Number,
    Seconds,
    Table,
    TableSchema,
    Text,
    Texts,
    keys,
    reader,
)
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.jsonschema import unusable
from leadhand.core.plan.model import Doc, Risk
from leadhand.errors import UsageError
from leadhand.ports import Worker
from leadhand.workers.reports import holds
from leadhand.workers.template import TemplateSlot, parameters_of

GROUP = "workers"

NOT_SCALAR = {"array", "object"}
PLAIN = {"type", "default", "description"}
"""Words that need no look: a schema of these alone judges."""
TYPES = ("string", "integer", "number", "boolean", "array", "object")


def _parameter(value: Any) -> Doc:
    """Read what is declared of one parameter: a type, or a JSON Schema."""
    schema = {"type": value} if isinstance(value, str) else value
    kind = schema.get("type", "string") if isinstance(schema, Mapping) else None
    kinds = kind if isinstance(kind, list) else [kind]
    if not isinstance(schema, Mapping) or not all(each in TYPES for each in kinds):
        raise ValueError(f"must be a type: {', '.join(TYPES)}")
    if not set(schema) <= PLAIN and (reason := unusable(dict(schema))):
        raise ValueError(f"judges nothing: {reason}")
    return dict(schema)


def _json_schema(value: Any) -> Doc:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table")  # noqa: TRY004 - the end of a sentence
    if reason := unusable(dict(value)):
        raise ValueError(f"judges nothing: {reason}")
    return dict(value)


def _expression(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a text")
    try:
        expressions.check(value)
    except expressions.ExpressionError as problem:
        raise ValueError(f"{value!r}: {problem}") from None
    return value


if TYPE_CHECKING:
    Parameter: TypeAlias = Doc
    JsonSchema: TypeAlias = Doc
    Expression: TypeAlias = str
else:
    Parameter = reader(_parameter, "a type")
    JsonSchema = reader(_json_schema, "a JSON Schema")
    Expression = reader(_expression, "an expression over a report")


class WorkerTable(TableSchema):
    """The keys that a worker has once, whatever its actions are."""

    description: str = ""
    """What the worker does, for people and planners."""
    version: str = ""
    """The version to which approvals are bound. Default: a digest of the declaration."""
    max_concurrency: Count | None = None
    """The number of calls at once. Default: no limit."""
    trusted: bool = False
    """Whether results are trusted: a plan that is proposed after untrusted data was read can need
    an approval."""
    action: Text | None = None
    """The name of its only action. Default: the worker takes any action."""
    actions: dict[str, Any] | None = None
    """Several actions by name, each a table with the keys of an action."""


class ActionTable(TableSchema):
    """The keys of every action, whatever its kind; the base of the tables of kinds."""

    parameters: dict[str, Parameter] | None = None
    """The type or JSON Schema of each parameter, by name. Default: strings, as the placeholders
    name them."""
    returns: JsonSchema | None = None
    """The JSON Schema of the result."""
    timeout: Seconds = 0.0
    """The longest that one attempt may take. Default: `policy.timeout`."""
    est: Seconds = 0.0
    """How long an attempt usually takes."""
    idempotent: bool | None = None
    """Whether running it twice has the same effect as running it once."""
    risk: Risk | None = None
    """The risk level. Default: medium."""
    effects: Texts | None = None
    """What it changes in the world; an empty list: nothing."""
    reads: Texts = ()
    """Paths and places that it reads."""
    writes: Texts = ()
    """Paths and places that it writes."""
    needs: Texts | None = None
    """Facts that must be true before it. Default: its required parameters."""
    gives: Texts = ()
    """Facts that are true after it."""
    drops: Texts = ()
    """Facts that are no longer true after it."""
    cost: Number = 0.0
    """What one attempt may cost, in cost units; it is reserved in the budget while the attempt
    runs."""
    checks: dict[str, Expression] = msgspec.field(default_factory=dict)
    """Expressions over the report by name, for the success criteria of steps."""
    check: Expression | None = None
    """The expression that every report must satisfy."""
    probe: Any = None
    """How to find out whether an attempt without a report took effect; its form depends on the kind
    of worker."""

    def offer(self, schema: Doc, *, idempotent: bool = False, probe: bool = False) -> Offer:
        """Return what the action offers.

        Args:
            schema: of its parameters, an object's JSON Schema; what it requires, the action needs,
                unless the table says otherwise.
            idempotent: whether it can be repeated, where the table does not say so.
            probe: whether the kind has a probe of its own.
        """
        required = tuple(str(name) for name in schema.get("required", ()))
        return Offer(
            parameters=schema,
            returns=self.returns,
            checks=tuple(self.checks),
            result_check=self.check is not None,
            risk=self.risk,
            effects=self.effects,
            reads=self.reads,
            writes=self.writes,
            idempotent=idempotent if self.idempotent is None else self.idempotent,
            probe=probe or bool(self.probe),
            timeout_s=self.timeout or None,
            est_s=self.est or None,
            cost=self.cost,
            needs=required if self.needs is None else self.needs,
            gives=self.gives,
            drops=self.drops,
        )

    def holds(self, name: str, data: Any) -> bool:
        """Return whether the check `name` of the table, or its result check, holds for `data`.

        Raise `LookupError` if the table has no such check.
        """
        return holds(self.checks.get(name) if name else self.check, name, data)


class ActionDeclaration(NamedTuple):
    """One action of a declared worker."""

    table: Table
    """Where it stands; `problem` notes what is wrong with it."""
    values: Any
    """The table by the kind's schema."""


class WorkerDeclaration(NamedTuple):
    """A declared worker, read by the schema of its kind."""

    spec: WorkerSpec
    """Without offers; its version is the author's, or empty."""
    actions: Mapping[str, ActionDeclaration]
    folder: Path
    """Of the file that declares it."""
    table: bytes
    """The whole table as JSON, with sorted keys: what a version can follow."""
    problems: list[str]

    def spec_with(self, offers: Mapping[str, Offer], version: str = "") -> WorkerSpec:
        """Return the description of the worker, with a version where the author gave none."""
        return msgspec.structs.replace(
            self.spec, offers=dict(offers), version=self.spec.version or version
        )


class WorkerKind(NamedTuple):
    """A kind of declared workers."""

    name: str
    """What the catalog calls it: `command`, `http`."""
    schema: type[ActionTable]
    """The keys of its actions."""
    make: Callable[[WorkerDeclaration], Worker | None]
    """Makes the worker and starts nothing. What is wrong it notes, and returns None."""


def kind_keys() -> tuple[str, ...]:
    """Return the keys that stand for a kind of worker; no package takes a key of all workers."""
    common = {*ActionTable.__struct_fields__, *WorkerTable.__struct_fields__}
    return tuple(key for key in plugins.parts(GROUP) if key not in common)


def kind_of(key: str) -> WorkerKind:
    """Return the kind of worker that a key stands for. Raise UsageError if it is no kind."""
    part = plugins.parts(GROUP)[key]
    found = part.load()
    schema = found.schema if isinstance(found, WorkerKind) else None
    is_table = isinstance(schema, type) and issubclass(schema, ActionTable)
    if not is_table or key not in keys(schema):
        raise UsageError(
            f"{part.module}:{part.attribute} of the package {part.package} is no WorkerKind with "
            f"a table that has the key {key!r}. Fix: install {part.package} again, or remove it"
        )
    kind: WorkerKind = found
    return kind


def parameter_schema(
    table: Table,
    values: ActionTable,
    holes: Mapping[str, TemplateSlot],
    any_json: frozenset[str] = frozenset(),
    *,
    open_ended: bool = False,
) -> Doc:
    """Return the schema of an action's parameters, from its placeholders and its declarations.

    Args:
        table: notes what does not fit.
        values: the action.
        holes: the placeholders, by name.
        any_json: those of them that take any value.
        open_ended: whether parameters may be declared that no placeholder uses.
    """
    declared = values.parameters or {}
    for name, schema in declared.items():
        kind = schema.get("type", "string")
        kinds = set(kind) if isinstance(kind, list) else {kind}
        if name not in holes and not open_ended:
            table.problem(f"parameters.{name}", "is declared, and no placeholder uses it")
        elif name in holes and name not in any_json:
            wrong = kinds != {"array"} if holes[name].splat else kinds & NOT_SCALAR
            if wrong:
                message = "a placeholder {name} takes one value, and {name...} an array"
                table.problem(f"parameters.{name}", message)
    if values.parameters is not None:
        for name in holes:
            if name not in declared:
                table.problem("parameters", f"{{{name}}} is used, and not declared here")
    extra = {name: TemplateSlot(name) for name in declared if name not in holes}
    return parameters_of({**holes, **extra}, declared, any_json=any_json)
