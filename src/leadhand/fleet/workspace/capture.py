"""Making a tree of the files an agent left, whatever it did to them.

Git says which files differ from the base and which are new, by our index and by the project's
rules for what is ignored. Then each name is looked at: what cannot be taken is named with its
reason, the rest is copied to a folder of ours and put into a copy of the index from there, and
that is the tree. Nothing is read by a path that a link could bend (`safe_files.py`), also while the
agent is still at work: what is outside of the slot plays no part in what is taken.

Two traps are handled here. The copy keeps the time stamp of the index, since git relies on it to
look again at files that were written within the same moment. And a file whose bytes are those of
the base is unchanged, even if the project's attributes would have git store it differently: a
line-end rule that the base itself does not follow must not turn into a change nobody made.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from leadhand.fleet.repository.git import GitFailed, GitResult, lines_of, raw_of
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.shielded import to_the_end
from leadhand.fleet.workspace.clean_up import open_all, remove, unblock
from leadhand.fleet.workspace.recover_commits import find_elsewhere
from leadhand.fleet.workspace.safe_files import Within, chunks

IGNORED_MAX = 50
RULES_BYTES = 1 << 20
TAKE_S = 900.0
GITLINK = ":160000"
FULL = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE}
)
"""Trouble of ours, and not of the file."""
DENIED = "Permission denied"
REFUSED = "Ignoring path "
UNREADABLE = "could not open directory"


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """How much an agent may leave behind."""

    file_bytes: int = 20 << 20
    total_bytes: int = 200 << 20
    files: int = 20_000


@dataclass(frozen=True, slots=True)
class CapturedWork:
    """What an agent left: a commit on the base (empty: nothing differs), and what is not in it."""

    head: str
    tree: str
    changed: Mapping[str, str]
    left_out: Mapping[str, str]
    ignored: tuple[str, ...]
    elsewhere: Mapping[str, str]


Mark = tuple[int, int, int]
"""Size, time of change and place on the disk: a file that has the same ones is the same."""


class CaptureRules(Protocol):
    """What counts when a slot is read."""

    @property
    def limits(self) -> CaptureLimits: ...
    @property
    def prepared(self) -> dict[str, Mark]: ...


@dataclass(slots=True)
class Read:
    """What was found while reading."""

    left_out: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)


async def read_files(
    hub: Hub, slot: Path, index: Path, base: str, allowed: CaptureRules
) -> tuple[str, Read]:
    """The tree of the slot's files, and what is not in it."""
    read = Read()
    await to_the_end(asyncio.to_thread(unblock, slot))
    with _copied(index) as copy:
        reader = _Reader(hub, slot, copy, allowed.limits, read, allowed.prepared)
        try:
            tree = await reader.tree()
        except PermissionError:  # folders that somebody closed, with files in them
            await to_the_end(asyncio.to_thread(open_all, slot))
            tree = await reader.tree()
    read.elsewhere = await find_elsewhere(hub, slot / ".git", base, tree)
    return tree, read


async def marks(hub: Hub, slot: Path, index: Path, allowed: CaptureRules) -> dict[str, Mark]:
    """The files that differ from the base now, so that they can be told from later work."""
    with _copied(index) as copy:
        names = await _Reader(hub, slot, copy, allowed.limits, Read(), {}).names()
    found = {}
    with Within(slot) as within:
        for name in names:
            with contextlib.suppress(OSError):
                found[name] = _mark(within.lstat(raw_of(name)))
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
    limits: CaptureLimits
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
        self.read.ignored = await self._ignored()
        sizes = await self._sizes(sorted({blob for _mode, blob in changed.values()}))
        stage = self.index.with_name("stage")
        stage.mkdir()
        try:
            sorting = _Sorting(self, stage, sizes)
            take, drop = await to_the_end(asyncio.to_thread(sorting.sort, changed, new))
            if drop:
                zero = "0" * len(self.hub.main())
                lines = b"".join(f"0 {zero}\t".encode() + raw_of(name) + b"\0" for name in drop)
                await self._git("update-index", "-z", "--index-info", stdin=lines)
            await self._add(take, stage)
        finally:
            await to_the_end(asyncio.to_thread(remove, stage))
        return (await self._git("write-tree")).text

    async def _git(
        self, *arguments: str, stdin: bytes = b"", files: Path | None = None
    ) -> GitResult:
        return await self.hub.git(
            *arguments, stdin=stdin, files=files or self.slot, index=self.index, time_s=TAKE_S
        )

    async def _changed(self) -> dict[str, tuple[str, str]]:
        """Mode and blob in the base of each file that is not as it was, or not there."""
        listing = ("diff-files", "-z", "--raw", "--no-abbrev", "--ignore-submodules=all")
        said = await self._git(*listing)
        if DENIED in said.err:  # git passes over what is in a closed folder
            await to_the_end(asyncio.to_thread(open_all, self.slot))
            said = await self._git(*listing)
        names, found = said.names(), {}
        for about, name in zip(names[::2], names[1::2], strict=True):
            mode, _now, blob, *_ = about.split(" ")
            if mode != GITLINK:
                found[name] = (mode.removeprefix(":"), blob)
        return found

    async def _sizes(self, blobs: list[str]) -> dict[str, int]:
        if not blobs:
            return {}
        wanted = "".join(f"{blob}\n" for blob in blobs).encode()
        said = await self._git("cat-file", "--batch-check=%(objectsize)", stdin=wanted)
        return {blob: int(size) for blob, size in zip(blobs, said.text.split(), strict=True)}

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
            try:
                names += [nested + name for name in await reader._new(inner)]
            except (OSError, GitFailed):
                if inner.is_dir():
                    raise  # else it has just been removed
        return names

    async def _add(self, names: list[str], stage: Path) -> None:
        """Put files into the index; halves are tried apart, so one bad file is found and named."""
        if not names:
            return
        try:
            said = await self._git(
                "update-index", "--add", "--remove", "--replace", "-z", "--stdin",
                stdin=lines_of(names), files=stage,
            )  # fmt: skip
        except GitFailed as error:
            if error.full or error.code is None:
                raise
            if len(names) == 1:
                self.read.left_out[names[0]] = error.err.strip().splitlines()[0][:200]
                return
            middle = len(names) // 2
            await self._add(names[:middle], stage)
            await self._add(names[middle:], stage)
        else:
            self.read.left_out |= {
                name: "git takes no file of this name"
                for name in (names if REFUSED in said.err else ())
                if f"{REFUSED}{name}\n" in f"{said.err}\n"
            }

    async def _ignored(self) -> tuple[str, ...]:
        listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        return tuple((await self._git(*listing)).names()[:IGNORED_MAX])


@dataclass(slots=True)
class _Sorting:
    """Looks at each file once; what is to be taken is in the stage afterwards."""

    reader: _Reader
    stage: Path
    sizes: Mapping[str, int]
    """Of the blobs that the base has."""
    total: int = 0

    def sort(
        self, changed: Mapping[str, tuple[str, str]], new: list[str]
    ) -> tuple[list[str], list[str]]:
        """What is to be taken, and what is gone."""
        take, drop, left_out = [], [], self.reader.read.left_out
        with Within(self.reader.slot) as within:
            for name in (*changed, *new):
                mode, blob = changed.get(name, ("", ""))
                try:
                    found = within.lstat(raw_of(name))
                except FileNotFoundError:
                    drop += [name] * bool(blob)
                    continue
                if self.reader.prepared.get(name) == _mark(found):
                    continue
                try:
                    if stat.S_ISREG(found.st_mode):
                        take += [name] * self._staged(within, name, mode, blob)
                    elif stat.S_ISLNK(found.st_mode):
                        self._target(name).symlink_to(os.fsdecode(within.link(raw_of(name))))
                        take.append(name)
                    else:  # what is in a folder counts among the new ones
                        drop += [name] * bool(blob)
                        if not stat.S_ISDIR(found.st_mode):
                            left_out[name] = "neither a file nor a link"
                except FileNotFoundError:
                    drop += [name] * bool(blob)
                except OSError as error:
                    if error.errno in FULL:
                        raise
                    left_out[name] = error.strerror or str(error)
            self._stage_rules(within, take)
        return take, drop

    def _stage_rules(self, within: Within, names: list[str]) -> None:
        """Attributes that hold for what is taken, also where they are not taken themselves."""
        folders = {name[: at + 1] for name in names for at, sign in enumerate(name) if sign == "/"}
        for name in (f"{folder}.gitattributes" for folder in ("", *sorted(folders))):
            with (
                contextlib.suppress(OSError),
                within.file(raw_of(name)) as file,
                self._target(name).open("xb") as copy,
            ):
                copy.writelines(chunks(file, RULES_BYTES))

    def _staged(self, within: Within, name: str, mode: str, blob: str) -> bool:
        """Whether a file is to be taken: it is not the very bytes and mode that the base has."""
        limits, left_out = self.reader.limits, self.reader.read.left_out
        with within.file(raw_of(name)) as file:
            found = os.fstat(file.fileno())
            executable = "100755" if found.st_mode & stat.S_IXUSR else "100644"
            alike = mode == executable and self.sizes.get(blob) == found.st_size
            if alike and _blob_of(file, found.st_size, len(blob)) == blob:
                return False
            if found.st_size > limits.file_bytes:
                left_out[name] = f"{found.st_size} bytes are too many for one file"
                return False
            if self.total + found.st_size > limits.total_bytes:
                left_out[name] = "too many bytes in all"
                return False
            self.total += found.st_size
            file.seek(0)
            target = self._target(name)
            with target.open("xb") as copy:
                copy.writelines(chunks(file, found.st_size))
            target.chmod(0o700 if executable == "100755" else 0o600)
        return True

    def _target(self, name: str) -> Path:
        target = _path(self.stage, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _path(folder: Path, name: str) -> Path:
    return Path(os.fsdecode(os.fsencode(folder) + b"/" + raw_of(name.rstrip("/"))))


def _mark(found: os.stat_result) -> Mark:
    return found.st_size, found.st_mtime_ns, found.st_ino


def _blob_of(file: IO[bytes], size: int, digits: int) -> str:
    """The name that git gives to the bytes of a file."""
    algorithm = hashlib.sha1 if digits == 40 else hashlib.sha256
    digest = algorithm(b"blob %d\0" % size, usedforsecurity=False)
    for chunk in chunks(file, size):
        digest.update(chunk)
    return digest.hexdigest()
