"""What a worker's version covers, in a form that people can read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan import Doc

VERSION_CHARS = 32


@dataclass(frozen=True, slots=True)
class Coverage:
    """Files with their digests, and values with theirs, by the names people know them by."""

    files: Mapping[str, str] = field(default_factory=dict)
    """By where they lie, seen from the worker's folder."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Everything else. Values themselves stand nowhere: a variable may hold a secret."""
    declared: str = ""
    """The version that its author gave it: then nothing else counts."""

    @property
    def version(self) -> str:
        """The version: as declared, or one digest of all of it."""
        if self.declared:
            return self.declared
        parts = [sorted(self.files.items()), sorted(self.values.items())]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:VERSION_CHARS]

    def to_doc(self) -> Doc:
        """As `ls workers -v --json` shows it; digests of values are not for showing."""
        if self.declared:
            return {"declared": self.declared, "files": {}, "values": []}
        files = dict(sorted(self.files.items()))
        return {"declared": "", "files": files, "values": sorted(self.values)}

    def changed(self, other: Coverage) -> list[str]:
        """Name what differs from another coverage."""
        found: list[str] = []
        for mine, theirs in ((self.files, other.files), (self.values, other.values)):
            names = sorted({*mine, *theirs})
            found += [name for name in names if mine.get(name) != theirs.get(name)]
        return found
