"""The fields of a step that a reviewer may edit, typed by the schema of its worker. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from leadhand.core.durations import text
from leadhand.core.plan.model import FAILURE_ACTIONS, Doc, Json
from leadhand.core.plan.references import find

if TYPE_CHECKING:
    from leadhand.core.catalog import Catalog

CHOICES_MAX = 200
SCALARS = {"integer": "number", "number": "number", "boolean": "boolean", "string": "text"}


class StepField(Struct, kw_only=True):
    """One field of a step, for a form."""

    path: str
    """The path for an amendment."""
    label: str
    """The name of the parameter, or of the field."""
    kind: str
    """`text`, `number`, `boolean`, `choice`, `list` (of texts), `steps` or `json`."""
    value: Json
    """The present value; null: not set."""
    choices: list[Json]
    """What can be chosen, for `choice`, `boolean` and `steps`."""
    required: bool
    """Whether it must be set."""
    hint: str
    """An example, or what it means."""


class StepForm(Struct, kw_only=True):
    """The fields of a step that can be edited."""

    step: str
    """The id of the step."""
    fields: list[StepField]
    """The parameters of the step first, then the fields that every step has."""


def step_form(step: Doc, others: list[str], catalog: Catalog, timeout_s: float) -> StepForm:
    """Return the form of a step; `others` are the ids of the other steps of the plan.

    `timeout_s` is the timeout of steps that have none of their own.
    """
    ident, action = str(step["id"]), str(step.get("action", ""))
    root = f"steps[{json.dumps(ident)}]"
    offer = catalog.offer(str(step.get("worker", "")), action)
    schema = (offer.parameters if offer else None) or {}
    given, forms = step.get("parameters") or {}, schema.get("properties") or {}
    required = schema.get("required") or ()
    fields = [
        _parameter(f"{root}.parameters[{json.dumps(name)}]", name, forms.get(name), given, required)
        for name in dict.fromkeys([*forms, *given])
    ]
    able = [name for name, spec in catalog.workers.items() if spec.offer(action) is not None]
    workers = [*dict.fromkeys([step.get("worker"), *sorted(able)])][:CHOICES_MAX]
    before = list(step.get("depends_on") or ())
    named = [each if isinstance(each, str) else each.get("step") for each in before]
    waits = [*before, *(each for each in others if each not in named)][:CHOICES_MAX]
    limit = text(offer.timeout_s if offer and offer.timeout_s else timeout_s)
    general = [
        ("worker", "choice", workers, ""),
        ("depends_on", "steps", waits, ""),
        ("not_before", "text", [], "such as 02:00 Europe/Berlin"),
        ("timeout", "text", [], f"default: {limit}"),
        ("retry", "json" if isinstance(step.get("retry"), dict) else "text", [], "such as 3"),
        ("failure_action", "choice", [*FAILURE_ACTIONS], ""),
    ]
    fields += [
        StepField(
            path=f"{root}.{name}",
            label=name.replace("_", " "),
            kind=kind,
            value=step.get(name),
            choices=_with(choices, step.get(name)) if kind == "choice" else choices,
            required=name == "worker",
            hint=hint,
        )
        for name, kind, choices, hint in general
    ]
    return StepForm(step=ident, fields=fields)


def _with(choices: list[Json], value: Json) -> list[Json]:
    """Return the choices, with the present value among them."""
    return choices if value is None or value in choices else [value, *choices]


def _parameter(path: str, name: str, form: Any, given: Doc, required: Any) -> StepField:
    schema, value = form if isinstance(form, dict) else {}, given.get(name)
    kind = _kind(schema, value)
    choices = [True, False] if kind == "boolean" else list(schema.get("enum") or ())
    return StepField(
        path=path,
        label=name,
        kind=kind,
        value=value,
        choices=_with(choices, value) if kind == "choice" else choices,
        required=name in required,
        hint=str(schema.get("description") or ""),
    )


def _kind(schema: Doc, value: Json) -> str:
    """Return how a value is edited: by the schema, else by what it is; a reference is a text."""
    if isinstance(value, str) and find(value):
        return "text"
    if schema.get("enum"):
        return "choice"
    if isinstance(value, dict):
        return "json"
    declared = schema.get("type")
    if isinstance(declared, str) and declared in SCALARS:
        return SCALARS[declared]
    texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
    inner = (schema.get("items") or {}).get("type")
    if (declared == "array" and inner == "string" and value is None) or texts:
        return "list"
    if declared is None and isinstance(value, bool):
        return "boolean"
    return "text" if declared is None and isinstance(value, str) else "json"
