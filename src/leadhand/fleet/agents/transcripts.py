"""Transcripts of agents, one file for each attempt: readable while it runs, kept for later.

A line is one event, without what looks like a secret. Files are bounded: when one is full, it
becomes the older half and a new one begins, so the newest words are always there. The number of
files is bounded too; the oldest go first.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leadhand.fleet.agents.base import CoderEvent


BYTES_MAX = 1 << 20
FILES_MAX = 5_000
TEXT_CHARS = 4_000
LIVE = ".jsonl"
OLDER = ".older"


class Transcript:
    """One attempt's words."""

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX) -> None:
        self.path, self._bytes_max = path, bytes_max
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def heard(self, event: CoderEvent) -> None:
        """Add an event of the agent."""
        text = scrub(event.text[:TEXT_CHARS])
        about = {"text": text, "tool": event.tool, "path": scrub(event.path), "cost": event.cost}
        if any(value not in (None, "") for value in about.values()):
            self.note(event.kind, **{k: v for k, v in about.items() if v not in (None, "")})

    def note(self, kind: str, **more: Any) -> None:
        """Add a line."""
        line = json.dumps({"at": time.time_ns() // 1000, "kind": kind, **more}, ensure_ascii=False)
        try:
            self._file.write(line.encode("utf-8", "replace").decode() + "\n")
            self._file.flush()
            if self._file.tell() > self._bytes_max:
                self._file.close()
                self.path.replace(self.path.with_suffix(OLDER))
                self._file = self.path.open("a", encoding="utf-8")
        except (OSError, ValueError):
            return  # a full disk must not stop the work

    def close(self) -> None:
        """Mark the transcript as ended, and close it."""
        self._file.close()


def place(folder: Path, run: str, task: str, attempt: int) -> Path:
    """Return the file of an attempt."""
    return folder / _part(run) / _part(task) / f"{attempt}{LIVE}"


def _part(name: str) -> str:
    """Return a name as one part of a path, which leads nowhere else."""
    return quote(name, safe="").replace(".", "%2E") if not name.strip(".") else quote(name, safe="")


def attempts(folder: Path, run: str, task: str) -> list[Path]:
    """Return the files of a task, by attempt."""
    try:
        found = [*(folder / _part(run) / _part(task)).glob(f"*{LIVE}")]
    except OSError:  # a name that no file can have
        return []
    return sorted((path for path in found if path.stem.isdigit()), key=lambda path: int(path.stem))


def is_over(path: Path) -> bool:
    """Return whether a later attempt of the same task exists: then this one has ended."""
    others = (each.stem for each in path.parent.glob(f"*{LIVE}"))
    return any(stem.isdigit() and int(stem) > int(path.stem) for stem in others)


def lines(path: Path, start: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Whole lines from a place in a file on, and where they end."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except OSError:
        return [], start
    whole = data[: data.rfind(b"\n") + 1]
    return list(_documents(whole)), start + len(whole)


def all_lines(path: Path) -> list[dict[str, Any]]:
    """Return all kept lines of an attempt."""
    return lines(path.with_suffix(OLDER))[0] + lines(path)[0]


def _documents(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def prune(folder: Path, most: int = FILES_MAX) -> int:
    """Remove the oldest files beyond the most that are kept; how many."""
    files = sorted(folder.glob(f"*/*/*{LIVE}"), key=lambda path: path.stat().st_mtime)
    gone = files[: max(0, len(files) - most)]
    for path in gone:
        path.unlink(missing_ok=True)
        path.with_suffix(OLDER).unlink(missing_ok=True)
    return len(gone)
