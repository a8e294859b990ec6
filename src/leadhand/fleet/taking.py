"""Making a tree of the files an agent left, whatever it did to them.

Git says which files differ from the base and which are new, by our index and by the project's
rules for what is ignored. Then each name is looked at: what cannot be taken is named with its
reason, the rest is put into a copy of the index, and that is the tree.

Two traps are handled here. The copy keeps the time stamp of the index, since git relies on it to
look again at files that were written within the same moment. And a file whose bytes are those of
the base is unchanged, even if the project's attributes would have git store it differently: a
line-end rule that the base itself does not follow must not turn into a change nobody made.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from leadhand.fleet.finishing import to_the_end
from leadhand.fleet.git import GitFailed, Said, lines_of, raw_of
from leadhand.fleet.hub import Hub
from leadhand.fleet.salvage import find_elsewhere
from leadhand.fleet.scrubbing import open_all

IGNORED_MAX = 50
TAKE_S = 900.0
GITLINK = "160000"
UNREADABLE = "could not open directory"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an agent may leave behind."""

    file_bytes: int = 20 << 20
    total_bytes: int = 200 << 20
    files: int = 20_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What an agent left: a commit on the base (empty: nothing differs), and what is not in it."""

    head: str
    tree: str
    changed: Mapping[str, str]
    left_out: Mapping[str, str]
    ignored: tuple[str, ...]
    elsewhere: Mapping[str, str]


Mark = tuple[int, int, int]
"""Size, time of change and place on the disk: a file that has the same ones is the same."""


class Allowed(Protocol):
    """What counts when a slot is read."""

    @property
    def limits(self) -> Limits: ...
    @property
    def prepared(self) -> dict[str, Mark]: ...


@dataclass(slots=True)
class Read:
    """What was found while reading."""

    left_out: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)


async def read_files(
    hub: Hub, slot: Path, index: Path, base: str, allowed: Allowed
) -> tuple[str, Read]:
    """The tree of the slot's files, and what is not in it."""
    read = Read()
    with _copied(index) as copy:
        reader = _Reader(hub, slot, copy, allowed.limits, read, allowed.prepared)
        try:
            tree = await reader.tree()
        except PermissionError:  # folders that somebody closed, with files in them
            await to_the_end(asyncio.to_thread(open_all, slot))
            tree = await reader.tree()
    read.elsewhere = await find_elsewhere(hub, slot / ".git", base, tree)
    return tree, read


async def marks(hub: Hub, slot: Path, index: Path, allowed: Allowed) -> dict[str, Mark]:
    """The files that differ from the base now, so that they can be told from later work."""
    with _copied(index) as copy:
        names = await _Reader(hub, slot, copy, allowed.limits, Read(), {}).names()
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[name] = _mark(_path(slot, name).lstat())
    return found


@contextlib.contextmanager
def _copied(index: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=index.parent, prefix="take-") as folder:
        copy = Path(folder) / "index"
        shutil.copy2(index, copy)
        yield copy


@dataclass(slots=True)
class _Reader:
    hub: Hub
    slot: Path
    index: Path
    limits: Limits
    read: Read
    prepared: Mapping[str, Mark]

    async def names(self) -> list[str]:
        return [*await self._changed(), *await self._new(self.slot)]

    async def tree(self) -> str:
        changed = await self._changed()
        new = await self._new(self.slot)
        count, most = len(changed) + len(new), self.limits.files
        if count > most:
            first = (*changed, *new)[most]
            self.read.left_out[first] = f"{count} files differ, and at most {most} are taken"
            changed = dict(list(changed.items())[:most])
            new = new[: most - len(changed)]
        take, drop = await asyncio.to_thread(self._sort, changed, new)
        if drop:
            zero = "0" * len(self.hub.main())
            lines = b"".join(f"0 {zero}\t".encode() + raw_of(name) + b"\0" for name in drop)
            await self._git("update-index", "-z", "--index-info", stdin=lines)
        await self._add(take)
        self.read.ignored = await self._ignored()
        return (await self._git("write-tree")).text

    async def _git(self, *arguments: str, stdin: bytes = b"", files: Path | None = None) -> Said:
        return await self.hub.git(
            *arguments, stdin=stdin, files=files or self.slot, index=self.index, time_s=TAKE_S
        )

    async def _changed(self) -> dict[str, tuple[str, str]]:
        """Mode and blob in the base of each file that is not as it was, or not there."""
        said = await self._git("ls-files", "-z", "--modified", "--stage")
        found = {}
        for line in said.names():
            about, _, name = line.partition("\t")
            mode, blob, _ = about.split(" ")
            if mode != GITLINK:
                found[name] = (mode, blob)
        return found

    async def _new(self, folder: Path) -> list[str]:
        """Files that are neither of the base nor ignored; a repository in the slot is files too."""
        listing = ("ls-files", "-z", "--others", "--exclude-standard")
        said = await self._git(*listing, files=folder)
        if UNREADABLE in said.err:
            await to_the_end(asyncio.to_thread(open_all, folder))
            said = await self._git(*listing, files=folder)
        if UNREADABLE in said.err:  # too deep for a path
            self.read.left_out[f"{folder.name}/…"] = "a folder in it cannot be opened"
        names = said.names()
        for nested in [name for name in names if name.endswith("/")]:
            names.remove(nested)
            inner = _path(folder, nested)
            empty = self.index.with_name("empty")  # the inner folder has no base
            reader = _Reader(self.hub, inner, empty, self.limits, self.read, {})
            names += [nested + name for name in await reader._new(inner)]
        return names

    def _sort(
        self, changed: Mapping[str, tuple[str, str]], new: list[str]
    ) -> tuple[list[str], list[str]]:
        """What is to be taken, and what is gone."""
        take, drop, total = [], [], 0
        for name in (*changed, *new):
            mode, blob = changed.get(name, ("", ""))
            path = _path(self.slot, name)
            try:
                found = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                if blob:
                    drop.append(name)
                continue
            if self.prepared.get(name) == _mark(found):
                continue
            if stat.S_ISDIR(found.st_mode):
                drop.append(name)  # what is in it counts among the new ones
            elif not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                self.read.left_out[name] = "neither a file nor a link"
                drop += [name] * bool(blob)
            elif stat.S_ISREG(found.st_mode) and found.st_size > self.limits.file_bytes:
                self.read.left_out[name] = f"{found.st_size} bytes are too many for one file"
            elif blob and _same(path, found, mode, blob):
                continue
            elif total + found.st_size > self.limits.total_bytes:
                self.read.left_out[name] = "too many bytes in all"
            else:
                total += found.st_size
                take.append(name)
        return take, drop

    async def _add(self, names: list[str]) -> None:
        """Put files into the index; halves are tried apart, so one bad file is found and named."""
        if not names:
            return
        try:
            await self._git(
                "update-index", "--add", "--remove", "--replace", "-z", "--stdin",
                stdin=lines_of(names),
            )  # fmt: skip
        except GitFailed as error:
            if error.full or error.code is None:
                raise
            if len(names) == 1:
                self.read.left_out[names[0]] = error.err.strip().splitlines()[0][:200]
                return
            middle = len(names) // 2
            await self._add(names[:middle])
            await self._add(names[middle:])

    async def _ignored(self) -> tuple[str, ...]:
        listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        return tuple((await self._git(*listing)).names()[:IGNORED_MAX])


def _path(folder: Path, name: str) -> Path:
    return Path(os.fsdecode(os.fsencode(folder) + b"/" + raw_of(name.rstrip("/"))))


def _mark(found: os.stat_result) -> Mark:
    return found.st_size, found.st_mtime_ns, found.st_ino


def _same(path: Path, found: os.stat_result, mode: str, blob: str) -> bool:
    """Whether a file has the very bytes and the mode that the base has."""
    executable = "100755" if found.st_mode & stat.S_IXUSR else "100644"
    if not stat.S_ISREG(found.st_mode) or mode != executable:
        return False
    try:
        data = path.read_bytes()
    except OSError:
        return False
    digest = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == blob
