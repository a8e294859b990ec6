"""Settings tables of a product: `[fleet]` with `[coders.NAME]`, or those of a plugin.

A product registers each of its tables under the entry-point group `leadhand.settings`; all name the
same `Section`. It is imported when a file, a variable or a listing needs the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand import plugins
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings

GROUP = "settings"

NamedReader = Callable[[str, str, Any], Any]
"""Reads one table of a table of tables: by the file, the name and the content."""
Trusted = Iterator[tuple[str, str, str, str]]
"""Everything a section executes or contacts: kind, key of the settings, name, detail."""


class Section(NamedTuple):
    """A product's tables in the settings."""

    name: str
    tables: Mapping[str, type[msgspec.Struct] | NamedReader]
    """For each table its schema (see `codec.tables`), or the reader of its named tables."""
    make: Callable[[Doc, Mapping[str, Path]], Any]
    """Makes the product's settings from values by dotted key, and the folder of each value's
    file."""
    rows: Callable[[Any], Doc]
    """The settings as they are listed, by dotted key."""
    trusted: Callable[[Settings, Any], Trusted]
    """Yields everything that must be trusted before it is used."""
    without: Callable[[Any, Mapping[str, set[str]]], Any]
    """Returns the settings without untrusted entries, by kind and name."""
    private: Callable[[Any], list[Path]] = lambda _made: []
    """Files hidden from workers, such as keys of people."""
    has_workers: Callable[[Any], bool] = lambda _made: False
    """Whether these settings configure workers of their own."""

    def of(self, settings: Settings) -> Any:
        """Return the product's part of the settings, the defaults where nothing is set."""
        found = settings.sections.get(self.name)
        return self.make({}, {}) if found is None else found


def section_of(table: str) -> Section | None:
    """Return the section that owns a table, or None if no installed package does."""
    part = plugins.part(GROUP, table)
    if part is None:
        return None
    found = part.load()
    if not isinstance(found, Section) or table not in found.tables:
        raise UsageError(
            f"{part.module}:{part.attribute} of the package {part.package} is no Section for "
            f"[{table}]. Fix: install {part.package} again, or remove it"
        )
    return found


def sections() -> list[Section]:
    """Return all sections of installed packages, each once, in the order of their names."""
    found = {}
    for table in tables():
        section = section_of(table)
        if section is not None:
            found[section.name] = section
    return [found[name] for name in sorted(found)]


def detail_text(detail: Doc) -> str:
    """Return the text by which an entry of folder trust is compared."""
    return json.dumps(detail, sort_keys=True, default=str)


def tables() -> tuple[str, ...]:
    """Return the names of the tables that installed packages own."""
    return tuple(plugins.parts(GROUP))
