"""Approvals of plans that this account has used, in a file outside of every database.

A database remembers which approvals its runs have used up. A second database, or an older copy of
the same one, does not: so each use is also recorded in `$XDG_STATE_HOME/leadhand/approvals.used`
(mode 0600, one JSON document per line) before the run starts. Uses by another account or another
machine are not known here.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadhand.errors import Conflict
from leadhand.settings.trust import state_folder

if TYPE_CHECKING:
    from leadhand.core.review.approval import Approval

FILE = "approvals.used"


class ApprovalUse(msgspec.Struct, frozen=True):
    """One approval, and the run that used it."""

    approval: str
    run: str
    database: str


def used_file() -> Path:
    """Return the file of uses."""
    return state_folder(os.environ) / FILE


class UsedApprovals:
    """The uses of one account, for one database."""

    def __init__(self, database: str, file: Path | None = None) -> None:
        self._database = database
        self._file = file or used_file()

    def claim(self, approval: Approval, run: str) -> None:
        """Record a use durably.

        Raise `Conflict` if another run, in any database, has used the approval.

        If the file cannot be written, only the database knows of the use.
        """
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError:
            return
        with os.fdopen(descriptor, "r+b", buffering=0) as opened:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            data = opened.read()
            before = next((each for each in _uses(data) if each.approval == approval.id), None)
            if before is None:
                use = msgspec.json.encode(ApprovalUse(approval.id, run, self._database))
                torn = b"" if not data or data.endswith(b"\n") else b"\n"
                os.write(descriptor, torn + use + b"\n")
                os.fsync(descriptor)
            elif (before.run, before.database) != (run, self._database):
                raise Conflict(
                    f"{approval.actor}'s approval {approval.id} was used by run {before.run} of "
                    "another database, or of a newer copy of this one, and is good for one. Fix: "
                    "approve the plan again: `leadhand review PLAN approve -o FILE`"
                )


def _uses(data: bytes) -> list[ApprovalUse]:
    """Return the readable lines; a line torn by a power cut is ignored."""
    found = []
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=ApprovalUse))
        except msgspec.DecodeError:
            continue
    return found
