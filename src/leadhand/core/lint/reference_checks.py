"""References before the run: whether the target exists, and of which type it is.

The worker behind a result may declare its result schema. A reference into the result is then
checked like any other value: an impossible key is found when the plan is written, not when it runs.
Unknown values are never reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.jsonschema import PartText, UnknownValue, follow
from leadhand.core.plan import references
from leadhand.core.wording import TYPE_WORDS, listed, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.core.lint.findings import Findings
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.plan.parameters import Declared
    from leadhand.core.plan.references import Ref


_OPEN = ("anyOf", "oneOf", "allOf", "if", "patternProperties", "unevaluatedProperties")
_NOT_IN_TEXT = frozenset({"object", "array", "null"})


class KnownNames(NamedTuple):
    """The targets that the references of one plan may name."""

    params: Mapping[str, Declared]
    values: Mapping[str, Json] | None
    """The values of the parameters, if known."""
    returns: Callable[[str], Doc | None]
    """Returns the declared result schema of a step's worker, or None."""
    taken_back: TakenBack | None = None
    """In a rollback plan: the plan of the run being rolled back."""


class TakenBack(NamedTuple):
    """The targets in the run being rolled back that a rollback plan may refer to."""

    steps: Mapping[str, Doc]
    returns: Callable[[str], Doc | None]


def fill(value: Json, names: KnownNames, depth: int = 0) -> Json:
    """Return a parameter value with known references filled in and placeholders for the rest."""
    if isinstance(value, str):
        return _fill_text(value, names) if references.MARK in value else value
    if depth > references.DEPTH_MAX:
        return UnknownValue("…")  # Reported by `references.find`.
    if isinstance(value, dict):
        return {key: fill(item, names, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, names, depth + 1) for item in value]
    return value


def _fill_text(text: str, names: KnownNames) -> Json:
    parts = references.pieces(text)
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    if len(parts) > 1 or not isinstance(parts[0], references.Ref):
        return PartText(text)
    ref = parts[0]
    if is_secret(ref, names):
        return UnknownValue(ref.text, {"type": "string"})
    if ref.kind == "params" and names.values is not None and ref.name in names.values:
        try:
            return references.follow(names.values[ref.name], ref)
        except references.Unresolved:
            return UnknownValue(ref.text)  # Reported by `check_ref`.
    return UnknownValue(ref.text, _follow(_schema(ref, names), ref)[0], result=ref.kind != "params")


def check_ref(ref: Ref, names: KnownNames, place: str, out: Findings) -> None:
    """Report problems of a well-formed reference to an existing target."""
    if is_secret(ref, names):
        if ref.path:
            message = f"{ref.text} has no value: a secret has no parts"
            out.add("reference-unresolved", place, message)
        return
    if ref.kind == "params" and names.values is not None and ref.name in names.values:
        try:
            value = references.follow(names.values[ref.name], ref)
        except references.Unresolved as error:
            out.add("reference-unresolved", place, error.message)
            return
        if not ref.whole and (value is None or isinstance(value, (dict, list))):
            out.add(
                "reference-wrong",
                place,
                f"{ref.text} {references.describe(value)}, which cannot stand in a text",
            )
        return
    schema, problem = _follow(_schema(ref, names), ref)
    if problem:
        out.add("reference-unresolved", place, problem)
        return
    kinds = UnknownValue("", schema).types()
    if not ref.whole and kinds and kinds <= _NOT_IN_TEXT:
        words = " or ".join(TYPE_WORDS[kind] for kind in sorted(kinds))
        fix = "Let the reference be the whole value, or refer to a part of it."
        out.add(
            "reference-wrong", place, f"{ref.text} gives {words}, which cannot stand in a text", fix
        )


def is_secret(ref: Ref, names: KnownNames) -> bool:
    """Return whether a reference is to a secret parameter."""
    if ref.kind != "params":
        return False
    declared = names.params.get(ref.name)
    if declared is not None:
        return declared.secret
    return names.values is not None and type(names.values.get(ref.name)) is references.Secret


def _schema(ref: Ref, names: KnownNames) -> Doc | None:
    if ref.kind == "steps":
        return names.returns(ref.name)
    if ref.kind == "run":
        return names.taken_back.returns(ref.name) if names.taken_back is not None else None
    declared = names.params.get(ref.name)
    return declared.schema if declared else None


def _follow(root: Doc | None, ref: Ref) -> tuple[Doc | None, str]:
    """Return the schema of the place a reference names, or the reason why there is none."""
    schema: Any = _target(root, root)
    here = ref.root
    for part in ref.path:
        if not isinstance(schema, dict) or any(word in schema for word in _OPEN):
            return None, ""
        kinds = UnknownValue("", schema).types()
        wanted = "array" if isinstance(part, int) else "object"
        if kinds and wanted not in kinds:
            words = " or ".join(TYPE_WORDS.get(kind, kind) for kind in sorted(kinds))
            return None, f"{ref.text} has no value: {here} is {words}"
        if isinstance(part, int):
            first = schema.get("prefixItems", ())
            schema = first[part] if part < len(first) else schema.get("items")
            here = f"{here}[{part}]"
        else:
            known = schema.get("properties", {})
            if part not in known and schema.get("additionalProperties") is False:
                keys = f"it has keys: {listed(known)}" if known else "it has no keys"
                return None, f"{ref.text} has no value: {here} has no key {shown(part)}; {keys}"
            schema = known.get(part, schema.get("additionalProperties"))
            here = references.join(here, part)
        schema = _target(root, schema)
    return (schema if isinstance(schema, dict) else None), ""


def _target(root: Doc | None, schema: Any) -> Any:
    """Follow local `$ref`s to the schema they stand for."""
    for _ in range(8):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        schema = follow(root, str(schema["$ref"]))
    return None
