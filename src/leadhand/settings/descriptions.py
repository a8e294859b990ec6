"""What each setting means, and its value as people read it: from the schemas of the tables."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.codec.field_docs import field_texts
from leadhand.codec.tables import keys, type_words
from leadhand.core import durations
from leadhand.settings.schema import SCHEMAS
from leadhand.settings.sections import sections

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = {
    "approvers": "The public key of a person: an approval counts only with such a signature.",
    "workers": "A worker that is declared in the settings.",
    "models": "A language model, by a name of your own.",
    "agents": "A worker that is a model with tools.",
    "mcp": "A server of tools by the Model Context Protocol.",
    "coders": "A coding agent of the fleet.",
}
"""The meaning of tables whose keys are names."""


class SettingDescription(NamedTuple):
    """A setting, for people."""

    meaning: str = ""
    type: str = ""
    duration: bool = False
    """Whether a number is in seconds."""


def description_of(key: str) -> SettingDescription:
    """Return the description of a setting by its dotted key; empty for one that has none."""
    found = _described().get(key)
    if found is None:
        return SettingDescription(NAMED.get(key.partition(".")[0], ""))
    return found


def value_text(key: str, value: Any) -> str:
    """Return a value as people read it: a duration with its units, a list with commas."""
    if value is None or (isinstance(value, (str, list, tuple, dict)) and not value):
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        told = description_of(key)
        if told.duration:
            return durations.written(value)
        return str(value) if "port" in told.type else f"{value:,}".removesuffix(".0")
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, dict) and all(isinstance(each, (str, int)) for each in value.values()):
        return ", ".join(f"{name}: {each}" for name, each in value.items())
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@functools.cache
def _described() -> dict[str, SettingDescription]:
    return dict(_descriptions())


def _descriptions() -> Iterator[tuple[str, SettingDescription]]:
    tables: dict[str, Any] = dict(SCHEMAS)
    for section in sections():
        tables.update(section.tables)
    for table, schema in tables.items():
        if not isinstance(schema, type) or not issubclass(schema, msgspec.Struct):
            continue
        texts = field_texts(schema)
        for key, field in keys(schema).items():
            kind = type_words(field.type)
            meaning = " ".join(texts.get(field.name, "").split())
            found = SettingDescription(meaning, kind, "duration" in kind)
            yield f"{table}.{key}", found
