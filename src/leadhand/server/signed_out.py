"""Sessions that were ended before their time, kept across restarts.

A session needs no memory of ours: its cookie says who and until when. So one that was signed out
must be remembered until it would have ended by itself, or a copy of its cookie would be good again
after a restart. Each is a line in a file beside the database: a hash of the cookie, and when it
ends. A line that cannot be written is no sign-out: whoever asked is told.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from leadhand.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

SIGNED_OUT_MAX = 10_000


class SignedOut:
    """The sessions that are over though their time is not; without a path, in memory only."""

    def __init__(self, path: Path | None = None, now: float = 0.0) -> None:
        self._path = path
        self._ends: dict[str, int] = {}
        if path is not None:
            self._load(path, now)

    def __contains__(self, cookie: str) -> bool:
        return _name(cookie) in self._ends

    def add(self, cookie: str, ends: int, now: float) -> None:
        """This one is over; durable when it returns."""
        if cookie in self:
            return
        if self._path is not None:
            self._write(self._path, f"{_name(cookie)} {ends}\n", os.O_APPEND)
        kept = {name: until for name, until in self._ends.items() if until > now}
        while len(kept) >= SIGNED_OUT_MAX:
            kept.pop(next(iter(kept)))
        self._ends = kept | {_name(cookie): ends}

    def _load(self, path: Path, now: float) -> None:
        try:
            lines = path.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
        pairs = (line.split(" ") for line in lines)
        found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        self._ends = {name: ends for name, ends in found.items() if ends > now}
        if len(self._ends) < len(lines):
            spare = path.with_name(f"{path.name}.new")
            text = "".join(f"{name} {ends}\n" for name, ends in self._ends.items())
            self._write(spare, text, os.O_TRUNC)
            spare.replace(path)

    def _write(self, path: Path, text: str, how: int) -> None:
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            try:
                os.write(file, text.encode("ascii"))
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror})") from None


def _name(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()
