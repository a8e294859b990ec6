"""The coverage of a worker's version, in a form that people can read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.plan.model import Doc

VERSION_CHARS = 32
INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
"""Variables of the machine: every worker gets them, and no version covers their values."""
_MACHINE = {
    *INHERITED,
    *("USER", "LOGNAME", "HOSTNAME", "SHELL", "PWD"),
    *("TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    "PYTEST_CURRENT_TEST",  # differs within one test
}
_MACHINE_PREFIXES = ("LC_", "LEADHAND_")


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
        """Return the declared version, or one digest of everything that is covered."""
        if self.declared:
            return self.declared
        parts = [sorted(self.files.items()), sorted(self.values.items())]
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:VERSION_CHARS]

    def to_doc(self) -> Doc:
        """Return the document of `ls workers -v --json`, without digests of values."""
        if self.declared:
            return {"declared": self.declared, "files": {}, "values": []}
        files = dict(sorted(self.files.items()))
        return {"declared": "", "files": files, "values": sorted(self.values)}


def is_machine_variable(name: str) -> bool:
    """Return whether a variable tells of machine, account, terminal or Leadhand's own settings.

    These differ between an approver's shell and a host, and between hosts of one run, so a version
    does not cover them where code reads them. `env` of a command names its variables on purpose.
    """
    return name in _MACHINE or name.startswith(_MACHINE_PREFIXES)


def variables_covered(names: Iterable[str], values: Any) -> dict[str, str]:
    """Return the entry of a coverage for variables: their names, and one digest of their values.

    The values may be secrets and the digest is recorded in logs, so it covers all values together
    and is too slow to try out many guesses.
    """
    text = json.dumps(values, sort_keys=True).encode()  # msgspec refuses what is not UTF-8
    return {f"values of {', '.join(sorted(names))}": _slow_digest(text)}


@lru_cache(maxsize=1024)
def _slow_digest(text: bytes) -> str:
    salt = b"leadhand variables"
    return hashlib.scrypt(text, salt=salt, n=1 << 14, r=8, p=1, dklen=32).hex()
