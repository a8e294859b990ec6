"""The folder of epics: submitting an epic as a file, with or without a fleet at work."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from leadhand.errors import LeadhandError, UsageError
from leadhand.fleet.background import LOOK_S
from leadhand.fleet.epics import EPIC_BYTES_MAX, Epic, parse_epic, text_of
from leadhand.fleet.product_log import EPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leadhand.fleet.epics import Epic


SETTLED_S = 5.0
STEM_BYTES = 200
"""What is kept of a long name, so that there is room for a digest."""
_BLOCK = re.compile(r"^```ya?ml\n", re.MULTILINE)
_PRIORITY = re.compile(r"^priority:.*$", re.MULTILINE)


class HandedIn(NamedTuple):
    """An epic in the folder."""

    run: str
    epic: Epic
    place: Path


def submit(
    folder: Path,
    path: Path,
    priority: int | None = None,
    taken: Callable[[str], object] = lambda _run: False,
) -> HandedIn:
    """Put an epic into the folder; return its run, its content and its file.

    The same content under the same name is the same epic, and is not done twice. Another epic that
    waits there under that name, and is not `taken` yet, stays: this one goes beside it.
    """
    data = data_of(path)
    if path.suffix != ".md":
        raise UsageError(f"{path}: an epic is a Markdown file. Fix: call it {path.stem}.md")
    if path.name.startswith("."):  # a file that is being written is called so
        raise UsageError(f"{path}: hidden files are ignored. Fix: rename it to {path.name[1:]}")
    try:
        text = text_of(data)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 ({error.reason})") from None
    if priority is not None:
        text = with_priority(text, priority)
    return _put(folder, path.name, text, parse_epic(text, path.stem, str(path)), taken)


def submit_text(
    folder: Path,
    text: str,
    name: str,
    priority: int | None = None,
    taken: Callable[[str], object] = lambda _run: False,
    *,
    planner: bool,
) -> HandedIn:
    """Put an epic into the folder that is given as a text, with the name of its file if it has one.

    The checks are those of `submit`, and of a fleet without a `planner`.
    """
    if len(text.encode()) > EPIC_BYTES_MAX:
        raise UsageError(f"an epic has at most {EPIC_BYTES_MAX:,} bytes")
    text = text_of(text.encode())
    if priority is not None:
        text = with_priority(text, priority)
    place = name or "the epic"
    epic = parse_epic(text, "epic", place)
    refuse_unplanned(epic, place, planner=planner)
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", (name or epic.title).removesuffix(".md").lower())
    file = f"{stem.strip('-')[:60] or 'epic'}.md"
    return _put(folder, file, text, epic, taken)


def refuse_unplanned(epic: Epic, place: str, *, planner: bool) -> None:
    """Raise `UsageError` for an epic without tasks in a fleet without a planner."""
    if not epic.tasks and not planner:
        raise UsageError(
            f"{place}: names no tasks, and this fleet has no planner. "
            "Fix: write its tasks, or [fleet] planner"
        )


def _put(
    folder: Path, name: str, text: str, epic: Epic, taken: Callable[[str], object]
) -> HandedIn:
    """Write a complete file, beside another epic of that name which is not taken yet."""
    stem = name.removesuffix(".md")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f".{os.getpid()}.new"
    fresh.write_text(text, encoding="utf-8")
    before = time.time() - SETTLED_S
    os.utime(fresh, (before, before))  # it is complete: no need to wait
    run = run_of(stem, text.encode())
    place = folder / name
    if _waits(place, run, taken):
        place = folder / f"{os.fsdecode(os.fsencode(stem)[:STEM_BYTES])}-{digest_of(text)}.md"
    fresh.replace(place)
    return HandedIn(run, epic, place)


def _waits(place: Path, run: str, taken: Callable[[str], object]) -> bool:
    """Return whether a file holds another epic that was not taken yet."""
    try:
        other = run_of(place.stem, data_of(place))
    except UnicodeDecodeError:
        return True
    except UsageError:
        return place.exists()
    return other != run and not taken(other)


def data_of(path: Path) -> bytes:
    """Return the bytes of an epic's file. Raise `UsageError` if it is no file, or too long."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{path}: is not a file")
        if about.st_size > EPIC_BYTES_MAX:
            raise UsageError(f"{path}: an epic has at most {EPIC_BYTES_MAX:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


def run_of(name: str, data: bytes) -> str:
    """Return the run id of an epic: the same name with the same content is the same epic.

    Neither its priority nor the digest that distinguishes epics of one name makes it another one.
    """
    digest = digest_of(text_of(data))
    name = name.removesuffix(f"-{digest}")
    letters = (each if each.isascii() and each.isalnum() else "-" for each in name)
    plain = "".join(letters)[:40].strip("-")
    return f"{EPIC}{plain or 'x'}-{digest}".lower()


def digest_of(text: str) -> str:
    """Return a digest that distinguishes the content of one epic from another's."""
    return hashlib.sha256(_without_priority(text).encode()).hexdigest()[:8]


def _without_priority(text: str) -> str:
    block = _BLOCK.search(text)
    end = text.find("\n```", block.end()) if block is not None else -1
    if block is None or end < 0:
        return text.rstrip()
    head = _PRIORITY.sub("", text[block.end() : end]).strip("\n")
    if not head:
        return f"{text[: block.start()].rstrip()}{text[end + 4 :].rstrip()}"
    return f"{text[: block.end()]}{head}{text[end:]}".rstrip()


def with_priority(text: str, priority: int) -> str:
    """Return the same epic with another priority."""
    block = _BLOCK.search(text)
    if block is None:
        return f"{text.rstrip()}\n\n```yaml\npriority: {priority}\n```\n"
    end = text.find("\n```", block.end())
    head = text[block.end() : end]
    if _PRIORITY.search(head):
        head = _PRIORITY.sub(f"priority: {priority}", head)
    else:
        head = f"priority: {priority}\n{head}"
    return text[: block.end()] + head + text[end:]


# Taking epics from the folder: each once, when its file is complete.


Mark = tuple[int, int]
"""Size and time of change: a file that has the same ones is the same."""


class Intake:
    """Watches the folder, and begins what is new there."""

    def __init__(
        self,
        folder: Path,
        known: Callable[[str], bool],
        begin: Callable[[str, Path, Epic], Awaitable[None]],
    ) -> None:
        """`known` says whether a run was begun already, by this fleet or an earlier one."""
        self._folder, self._known, self._begin = folder, known, begin
        self._seen: dict[str, Mark] = {}
        self._taken: dict[str, Mark] = {}
        self.refused: dict[str, str] = {}
        """Files that are no epics, and why."""

    async def look(self) -> None:
        """Begin new files; a file that was begun is not read again until it changes."""
        paths = [path for path in sorted(self._folder.glob("*.md")) if path.name[0] != "."]
        for path in paths:
            mark = self._whole(path)
            if mark is not None and self._taken.get(path.name) != mark:
                await self._take(path, mark)
        names = {path.name for path in paths}
        for kept in (self._seen, self._taken, self.refused):
            for gone in kept.keys() - names:
                kept.pop(gone)

    async def _take(self, path: Path, mark: Mark) -> None:
        try:
            data = await asyncio.to_thread(data_of, path)
            ident = run_of(path.stem, data)
            if not self._known(ident):
                await self._begin(ident, path, parse_epic(text_of(data), path.stem, str(path)))
        except (OSError, UnicodeDecodeError, LeadhandError) as error:
            self.refused[path.name] = str(error)
        else:
            self.refused.pop(path.name, None)
            self._taken[path.name] = mark

    def _whole(self, path: Path) -> Mark | None:
        """Return the mark of a file, or None while it is still being written.

        Half an epic would be another epic.
        """
        try:
            about = path.stat()
        except OSError:
            return None
        mark = (about.st_size, about.st_mtime_ns)
        before, self._seen[path.name] = self._seen.get(path.name), mark
        return mark if mark == before or time.time() - about.st_mtime > LOOK_S else None
