"""The parameters of a plan: they make it a template.

A parameter is declared in one of two ways:

    params:
      version: {type: string, description: "what to deploy"}     # has no default: must be given
      replicas: 3                                                # a default; its type follows

An object is a declaration when all its keys are words of a declaration (type, default, ...); any
other object is itself a default value. A parameter without a default must be given, unless it says
`required: false`: then it is null.

A secret is declared and given by its source; its value never enters the core:

      token: {type: secret, env: API_TOKEN}        # or keyring: service/user
      other: {type: secret}                        # given as env:NAME or keyring:service/user
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.jsonschema import unusable
from leadhand.core.lint.findings import Finding, Findings
from leadhand.core.plan.references import Secret
from leadhand.core.wording import TYPE_WORDS, kind_of, listed, shown, type_with_article

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc, Json


_SCHEMA_WORDS = frozenset(
    {
        "type",
        "enum",
        "const",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    }
    | {"minLength", "maxLength", "pattern", "items", "minItems", "maxItems", "uniqueItems"}
    | {"properties", "additionalProperties", "anyOf", "oneOf", "format"}
)
_TYPED_WORDS = frozenset(
    {"not", "allOf", "if", "then", "else", "contains", "minContains", "maxContains", "prefixItems"}
    | {"minProperties", "maxProperties", "patternProperties", "propertyNames"}
    | {"dependentRequired", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"}
    | {"$ref", "$dynamicRef", "$defs", "definitions"}
)
"""Schema words that could also be keys of a default; beside `type` they are schema words."""
_WORDS = _SCHEMA_WORDS | {"default", "description", "title", "required", "examples"}
_NO_DEFAULT = object()
_SECRET_WORDS = frozenset({"type", "env", "keyring", "description", "title", "required"})
_SOURCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}|keyring:[^/\s]{1,200}/\S{1,200}")
_AS_SOURCE = "is a secret: give where it is, as in env:NAME, never the value itself"


class Declared(NamedTuple):
    """The declaration of one parameter."""

    schema: Doc
    default: Json
    has_default: bool
    required: bool
    secret: bool = False


def declaration(entry: Json) -> Declared:
    """Return the declaration of one parameter, whose entry may also be a plain default."""
    if is_secret(entry):
        source = _source(entry)
        required = bool(entry.get("required", True)) and not source
        return Declared({"type": "string"}, source or None, bool(source), required, secret=True)
    if not _declares(entry):
        kind = kind_of(entry)
        schema = {} if kind == "null" else {"type": kind}
        return Declared(schema, entry, has_default=True, required=False)
    schema = {word: entry[word] for word in entry if word in _SCHEMA_WORDS | _TYPED_WORDS}
    if "enum" in schema and "type" not in schema and isinstance(schema["enum"], list):
        kinds = sorted({kind_of(each) for each in schema["enum"]})
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    default = entry.get("default", _NO_DEFAULT)
    has_default = default is not _NO_DEFAULT
    required = bool(entry.get("required", not has_default)) and not has_default
    return Declared(schema, default if has_default else None, has_default, required)


class ParameterRow(msgspec.Struct, kw_only=True):
    """A parameter of a plan, as a field that a person fills in."""

    name: str
    """The name of the parameter."""
    type: str
    """string, integer, number, boolean, array, object, secret; several with `or`; or any."""
    required: bool
    """Whether it must be given."""
    default: Any
    """Its value if it is not given; null without a default."""
    has_default: bool
    """Whether it has a default."""
    choices: list[Any] | None
    """The values it may have, if they are listed."""
    description: str
    """What it is for."""


def parameter_rows(declared: Any) -> list[ParameterRow]:
    """Return the parameters of a plan; a declaration that makes no sense is left out."""
    if not isinstance(declared, dict):
        return []
    return [
        _parameter_row(str(name), entry)
        for name, entry in declared.items()
        if not _wrong_declaration(entry)
    ]


def _parameter_row(name: str, entry: Json) -> ParameterRow:
    found = declaration(entry)
    kind = found.schema.get("type", "any")
    told = entry.get("description", "") if isinstance(entry, dict) and _described(entry) else ""
    choices = found.schema.get("enum")
    return ParameterRow(
        name=name,
        type="secret" if found.secret else kind if isinstance(kind, str) else " or ".join(kind),
        required=found.required,
        default=found.default,
        has_default=found.has_default,
        choices=choices if isinstance(choices, list) else None,
        description=str(told),
    )


def _described(entry: Doc) -> bool:
    return is_secret(entry) or _declares(entry)


def _declares(entry: Json) -> bool:
    """Return whether an entry is a declaration rather than a default."""
    if not isinstance(entry, dict):
        return False
    return set(entry) <= _WORDS or ("type" in entry and set(entry) <= _WORDS | _TYPED_WORDS)


def check_declared(
    declared: Mapping[str, Json], out: Findings, prefix: str = ""
) -> dict[str, Declared]:
    """Return all declarations by name, and add what is wrong with them to `out`."""
    found = {}
    for name, entry in declared.items():
        place = f"{prefix}params.{name}"
        wrong = _wrong_declaration(entry)
        if wrong:
            out.add("param-wrong", place, wrong)
            found[name] = Declared({}, None, has_default=True, required=False)
            continue
        each = declaration(entry)
        found[name] = each
        if each.has_default and not each.secret:
            for problem in out.problems(each.default, each.schema, f"{place}.default"):
                out.add(
                    "param-wrong",
                    problem.path,
                    f"the default of {name} {problem.message}",
                    problem.fix,
                )
    return found


def is_secret(entry: Json) -> bool:
    """Return whether a declaration is of a secret."""
    return isinstance(entry, dict) and entry.get("type") == "secret"


def is_source(value: Json) -> bool:
    """Return whether a value names the source of a secret: env:NAME or keyring:service/user."""
    return isinstance(value, str) and _SOURCE.fullmatch(value) is not None


def with_secrets(plan: Doc, params: Doc) -> Doc:
    """Return the parameters of a run, with a placeholder for each parameter declared a secret."""
    declared = plan.get("params")
    if not isinstance(declared, dict) or not any(map(is_secret, declared.values())):
        return params
    return {
        name: Secret(name, value) if is_source(value) and is_secret(declared.get(name)) else value
        for name, value in params.items()
    }


def _source(entry: Doc) -> str:
    for word in ("env", "keyring"):
        if word in entry:
            return f"{word}:{entry[word]}"
    return ""


def _wrong_secret(entry: Doc) -> str:
    if unknown := sorted(set(map(str, entry)) - _SECRET_WORDS):
        return f"a secret has no {shown(unknown[0])}: its value stands nowhere in a plan"
    if "env" in entry and "keyring" in entry:
        return "a secret is in one place: env or keyring"
    if (source := _source(entry)) and not is_source(source):
        return 'env is the name of a variable, keyring a "service/user"'
    if not isinstance(entry.get("required", False), bool):
        return "required must be true or false"
    return ""


def _wrong_declaration(entry: Json) -> str:
    if is_secret(entry):
        return _wrong_secret(entry)
    if not _declares(entry):
        return ""
    kinds = entry.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not all(
        isinstance(kind, str) and kind in TYPE_WORDS for kind in kinds
    ):
        return f"{shown(entry['type'])} is not a type; the types are {listed(TYPE_WORDS)}"
    if not isinstance(entry.get("required", False), bool):
        return "required must be true or false"
    if not isinstance(entry.get("enum", []), list):
        return f"enum must be a list, is {type_with_article(entry['enum'])}"
    if any(not isinstance(entry.get(word, ""), str) for word in ("pattern", "description")):
        return "pattern and description must be strings"
    if any(
        kind_of(entry.get(word, 0)) not in ("integer", "number")
        for word in _SCHEMA_WORDS & _NUMERIC
    ):
        return "a limit must be a number"
    schema = declaration(entry).schema
    reason = "" if set(schema) <= {"type"} else unusable(schema)
    return f"its declaration judges nothing: {reason}" if reason else ""


_NUMERIC = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems"}
)


def bind_params(
    declared: Mapping[str, Json], given: Mapping[str, Json]
) -> tuple[Doc, list[Finding]]:
    """Return the value of every parameter (given, or its default), and all findings at once."""
    out = Findings()
    values = bind(check_declared(declared, out), given, out)
    return values, out.done()


def bind(declared: Mapping[str, Declared], given: Mapping[str, Json], out: Findings) -> Doc:
    """Return the values for declarations that are already read; add findings to `out`."""
    values: Doc = {}
    for name, each in declared.items():
        if name not in given:
            if not each.required:
                values[name] = each.default
            else:
                kind = each.schema.get("type")
                what = f" ({kind})" if isinstance(kind, str) else ""
                fix = f"Give it with --set {name}=VALUE, or add a default."
                if each.secret:
                    what, fix = " (secret)", f"Say where it is: --set {name}=env:VARIABLE."
                out.add(
                    "param-missing", f"params.{name}", f'parameter "{name}"{what} has no value', fix
                )
            continue
        optional = not each.required and not each.has_default
        if given[name] is None and optional:
            values[name] = None
            continue
        if each.secret:
            if not is_source(given[name]):  # never show the value: it may be the secret
                out.add("param-wrong", f"params.{name}", f'parameter "{name}" {_AS_SOURCE}')
                continue
            values[name] = given[name]
            continue
        for problem in out.problems(given[name], each.schema, f"params.{name}"):
            out.add(
                "param-wrong", problem.path, f'parameter "{name}" {problem.message}', problem.fix
            )
        values[name] = given[name]
    for name in given:
        if name not in declared:
            known = (
                f"The plan has: {listed(declared)}." if declared else "The plan has no parameters."
            )
            out.add(
                "param-unknown",
                f"params.{str(name)[:60]}",
                f"the plan has no parameter {shown(name)}",
                out.guess(name, declared) or known,
            )
    return values


def bind_texts(
    declared: Mapping[str, Json], texts: Mapping[str, str], more: Mapping[str, Json] | None = None
) -> tuple[Doc, list[Finding]]:
    """Bind values typed on a command line: each text is read by its declared type.

    `more` holds values that are already read and may belong to another plan; texts take precedence.
    """
    out = Findings()
    read = check_declared(declared, out)
    given: Doc = {name: value for name, value in (more or {}).items() if name in declared}
    for name, text in texts.items():
        try:
            given[name] = parse_param(text, declared.get(name))
        except ValueError as error:
            out.add("param-wrong", f"params.{name}", f'parameter "{name}" {error}')
            read.pop(name, None)  # Reported as malformed, so not as missing too.
    return bind(read, given, out), out.done()


def parse_param(text: str, declared: Json) -> Json:
    """Read `text` by the declared type. Raise `ValueError` if it does not fit.

    Without a declared type it stays a text: guessing would turn version 1.10 into 1.1.
    """
    kinds = _kinds(declared)
    if "string" in kinds:
        return text
    for kind in kinds:
        value = _read(text.strip(), kind)
        if value is not _NO_DEFAULT:
            return value
    words = " or ".join(TYPE_WORDS.get(kind, kind) for kind in kinds)
    as_json = " (as JSON)" if {"array", "object"} & set(kinds) else ""
    raise ValueError(f"must be {words}{as_json}, is {shown(text)}")


def is_text(declared: Json) -> bool:
    """Return whether text typed for a parameter is taken literally."""
    return "string" in _kinds(declared)


def _kinds(declared: Json) -> list[str]:
    kinds = declaration(declared).schema.get("type") if declared is not None else None
    return [kinds] if isinstance(kinds, str) else kinds or ["string"]


def _read(text: str, kind: str) -> Any:
    if kind == "boolean":
        return {"true": True, "yes": True, "false": False, "no": False}.get(
            text.lower(), _NO_DEFAULT
        )
    if kind == "null":
        return None if text in ("null", "") else _NO_DEFAULT
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return _NO_DEFAULT
    found = kind_of(value)
    return value if found == kind or (kind == "number" and found == "integer") else _NO_DEFAULT
