"""Edits as people write them: `PATH=VALUE` on a command line, YAML in an editor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.codec.documents import is_json, read_document, read_value, write_yaml
from leadhand.core.amend import edit, look
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.plan import Doc, Json

_SPLIT = re.compile(
    r"""((?:[^="'\[\]]|\[[^\]"']*\]|\["(?:[^"\\]|\\.)*"\]|\['[^']*'\])+)=(.*)""", re.DOTALL
)
_NOTE = "# "


def amended(
    plan: Doc,
    sets: Iterable[str] = (),
    unsets: Iterable[str] = (),
    *,
    heirs: Mapping[str, str] | None = None,
) -> Doc:
    """A plan with `PATH=VALUE` texts put in; an empty value takes the path out.

    A value is JSON where it is JSON, else a text. Where a text stands already, numbers and the
    like stay texts too: version 1.10 does not become 1.1; quotes say so explicitly ("1.10").
    """
    found, taken_out = plan, list(unsets)
    for text in sets:
        path, value = split(text)
        if value == "":
            found = edit(found, unset=[path], heirs=heirs)
        else:
            there = look(found, path, heirs)
            found = edit(found, [(path, _value(path, value, there))], heirs=heirs)
    return edit(found, unset=taken_out, heirs=heirs)


def split(text: str) -> tuple[str, str]:
    """`PATH=VALUE` as its two parts."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text[:100]!r}: write it as PATH=VALUE, as in steps.ID.timeout=5m")
    return match[1].strip(), match[2]


def _value(path: str, text: str, there: Json) -> Json:
    if not is_json(text):
        return text
    value = read_value(text, path)
    plain = not isinstance(value, str | list | dict)
    return text if plain and isinstance(there, str) else value


def editable(plan: Doc, notes: Iterable[str] = ()) -> str:
    """A plan as YAML for an editor, with notes above it."""
    head = "".join(f"{_NOTE}{line}\n" for note in notes for line in note.splitlines() or [""])
    return head + write_yaml(plan)


def edited(text: str, name: str = "the edited plan") -> Doc:
    """What a person made of it; DocumentError says what is wrong and where."""
    return read_document(text.encode(), name=f"{name}.yaml" if "." not in name else name)
