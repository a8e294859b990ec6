"""Parameters and result of a function, read from its signature.

The parameters become a JSON Schema, so that a plan is checked before it runs; at the start of
an attempt the values become what the annotations say (a dataclass parameter arrives as that
dataclass), so that a value which came through a reference is checked as well.

A parameter annotated `Context` gets the attempt's context and is no part of the schema.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from leadhand.core.jsonschema import unusable
from leadhand.core.report import Report
from leadhand.errors import UsageError
from leadhand.ports import Context

_REFERENCE = "#/$defs/{name}"
_SIMPLE = (str, int, float, bool, type(None))


class BadParameters(ValueError):
    """Values that a function cannot be called with; the message names the parameter."""


class FunctionParameter(NamedTuple):
    """One parameter."""

    type: Any
    required: bool
    positional: bool


class Signature:
    """The signature of one function: its schemas, and how to call it."""

    def __init__(
        self, function: Callable[..., Any], names: Mapping[str, Any] | None = None
    ) -> None:
        """Read a signature; `names` are those of the scope in which the function was written."""
        self.taken: dict[str, FunctionParameter] = {}
        self.context = ""
        """The parameter that gets the context."""
        self.open = False
        """Whether it takes more parameters than it names."""
        self._where = _place(function)
        try:
            signature = inspect.signature(function)
        except (ValueError, TypeError):
            raise UsageError(f"{self._where}: its parameters cannot be read") from None
        scope = {**getattr(function, "__globals__", {}), **(names or {})}
        defaults: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            self._read(parameter, _evaluated(parameter.annotation, scope), defaults)
        self.required = frozenset(name for name, each in self.taken.items() if each.required)
        self.parameters = self._schema(defaults)
        returned = _evaluated(signature.return_annotation, scope)
        self.returns = _returned(returned)
        self.needs = tuple(name for name, each in self.taken.items() if each.required)
        """The facts it needs unless it says otherwise: the parameters that must be given."""
        self.gives = _given(returned)
        """The fact it gives unless it says otherwise: the class it returns, if it is the user's."""
        self.bare = not (self.taken or self.context or self.open)

    def _read(self, parameter: inspect.Parameter, kind: Any, defaults: dict[str, Any]) -> None:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            self.open = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            if _is_context(kind):
                if self.context:
                    raise UsageError(f"{self._where}: takes the context twice")
                self.context = name
                return
            required = parameter.default is parameter.empty
            kind = Any if isinstance(kind, str) or kind is object else kind
            if _schema(kind) is None:
                if required:
                    raise UsageError(
                        f"{self._where}: parameter {name}: {_shown(kind)} cannot be made from "
                        "JSON data; use plain types, dataclasses, or give it a default"
                    )
                return  # Not settable from a plan: its default stands.
            if not required and isinstance(parameter.default, _SIMPLE):
                defaults[name] = parameter.default
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            self.taken[name] = FunctionParameter(kind, required, positional)

    def _schema(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        components: dict[str, Any] = {}
        for name, each in self.taken.items():
            found = _schema(each.type)
            assert found is not None
            properties[name], extra = found
            components |= extra
            if name in defaults:
                properties[name] = {**properties[name], "default": defaults[name]}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": [name for name, each in self.taken.items() if each.required],
            "additionalProperties": self.open,
        }
        return {**schema, "$defs": components} if components else schema

    def bind(
        self, values: Mapping[str, Any], context: Any = None, *, lenient: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments; `lenient` drops unknown values."""
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, value in values.items():
            each = self.taken.get(name)
            if each is None:
                if self.open and name != self.context:
                    keywords[name] = value
                elif not lenient:
                    raise BadParameters(f"parameter {name}: is not known")
            else:
                keywords[name] = value if each.type is Any else _converted(name, value, each.type)
        if not self.required <= values.keys():
            missing = next(name for name in self.taken if name in self.required - values.keys())
            raise BadParameters(f"parameter {missing}: is missing")
        if self.context:
            keywords[self.context] = context
        for name, each in self.taken.items():
            if each.positional and name in keywords:
                arguments.append(keywords.pop(name))
        return arguments, keywords


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else name


def _evaluated(annotation: Any, scope: dict[str, Any]) -> Any:
    """Return an annotation as a type, or its text if only type checkers know its names."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - any expression may stand in an annotation
        return annotation if isinstance(annotation, str) else Any


def _is_context(kind: Any) -> bool:
    if isinstance(kind, str):
        parts = [part.strip().rpartition(".")[2] for part in kind.split("|")]
        return "Context" in parts and set(parts) <= {"Context", "None"}
    return kind is Context or (_is_union(kind) and Context in typing.get_args(kind))


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _shown(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _schema_hook(kind: Any) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, Path):
        return {"type": "string"}
    raise NotImplementedError


def _schema(kind: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the JSON Schema of a type and the definitions it refers to; None if there is none."""
    try:
        (schema,), components = msgspec.json.schema_components(
            [kind], schema_hook=_schema_hook, ref_template=_REFERENCE
        )
    except (TypeError, RuntimeError, NotImplementedError, msgspec.MsgspecError):
        if not _is_union(kind):
            return None
    else:
        return schema, dict(components)
    # msgspec refuses unions it could not tell apart quickly; their parts may be fine.
    parts = [_schema(each) for each in typing.get_args(kind)]
    if not all(parts):
        return None
    found = [each for each in parts if each]
    every = {key: value for _, extra in found for key, value in extra.items()}
    return {"anyOf": [schema for schema, _ in found]}, every


def _decode_hook(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Path) and isinstance(value, str):
        return kind(value)
    raise NotImplementedError


def _converted(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as problem:
        raise BadParameters(f"parameter {name}: {problem}") from None
    except (TypeError, NotImplementedError):
        if not _is_union(kind):
            raise BadParameters(f"parameter {name}: needs {_shown(kind)}") from None
    for part in typing.get_args(kind):
        try:
            return _converted(name, value, part)
        except BadParameters:
            continue
    raise BadParameters(f"parameter {name}: needs {_shown(kind)}")


def _returned(kind: Any) -> dict[str, Any] | None:
    """Return the schema of a function's result; None if it is unknown."""
    parts = typing.get_args(kind) if _is_union(kind) else (kind,)
    if isinstance(kind, str) or kind in (Any, object, typing.NoReturn) or Report in parts:
        return None
    found = _schema(kind)
    if found is None or not found[0]:
        return None
    schema, components = found
    return {**schema, "$defs": components} if components else schema


def schema_of(kind: Any, place: str) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the JSON Schema of a type or schema, and the fact that its result gives."""
    if kind is None:
        return None, ()
    if isinstance(kind, dict):
        if reason := unusable(kind):
            raise UsageError(f"{place}: returns: judges nothing: {reason}")
        return kind, ()
    found = _returned(kind)
    if found is None:
        raise UsageError(
            f"{place}: returns: {_shown(kind)} has no form that JSON knows. "
            "Fix: give a JSON Schema, or a type made of plain types and dataclasses."
        )
    return found, _given(kind)


def _given(kind: Any) -> tuple[str, ...]:
    """Return the name of the user's own class that a function returns, as a fact; else nothing."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if _is_union(kind):
        parts = [each for each in typing.get_args(kind) if each is not type(None)]
        return _given(parts[0]) if len(parts) == 1 else ()
    named = isinstance(kind, type) or hasattr(kind, "__supertype__")
    home = str(getattr(kind, "__module__", "")).partition(".")[0]
    if not named or home == "leadhand" or home in sys.stdlib_module_names - {"__main__"}:
        return ()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__)
    return (words.lower().strip("_"),)
