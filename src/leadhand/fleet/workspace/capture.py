"""Capture of an agent's work: a tree of the files in its slot, whatever their state.

Git says which files differ from the base and which are new, by our index and by the project's
rules for what is ignored. Then each name is looked at: what cannot be taken is named with its
reason, the rest is copied to a folder of ours and put into a copy of the index from there, and
that is the tree. Nothing is read by a path that a link could bend (`Within`), also while the
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
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol, Self

from leadhand.fleet.background import finish_despite_cancel
from leadhand.fleet.repository.git import GitFailed, GitResult, lines_of, name_of, raw_of
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.repository.toolchain import DOWNLOADS
from leadhand.fleet.workspace.clean_up import open_all, remove, unblock

# Safe access to files of a folder that an agent may change: no link is followed.
#
# A path is looked up by the kernel from its beginning, and any folder of it that has become a link
# leads elsewhere: to another slot, to a secret, to a device that never answers. So each part is
# opened from the folder before it, and a link among them means that there is no such file. A file
# that is open is then the one that was meant, whatever becomes of its name.


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
BESIDE = frozenset({errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.ENXIO})
"""A part of the way is no folder, or a link, or gone; or a pipe stands there."""
CHUNK = 1 << 20


class Within:
    """Open it with `with`; names are relative, in bytes, as git says them."""

    def __init__(self, folder: Path) -> None:
        self._top = os.open(folder, FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._top)

    def lstat(self, name: bytes) -> os.stat_result:
        """Return the status of the file or link itself.

        Raise `FileNotFoundError` if a link lies on the way.
        """
        with self._parent(name) as (folder, last):
            return os.stat(last, dir_fd=folder, follow_symlinks=False)

    def link(self, name: bytes) -> bytes:
        """Return the target of a link."""
        with self._parent(name) as (folder, last):
            return os.readlink(last, dir_fd=folder)

    @contextlib.contextmanager
    def file(self, name: bytes) -> Iterator[IO[bytes]]:
        """Open a plain file for reading. Raise `FileNotFoundError` for anything else."""
        with self._parent(name) as (folder, last):
            file = os.fdopen(os.open(last, FILE, dir_fd=folder), "rb", buffering=0)
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a plain file")
            yield file

    @contextlib.contextmanager
    def _parent(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        *folders, last = name.split(b"/")
        here = self._top
        try:
            for part in folders:
                inner = os.open(part, FOLDER, dir_fd=here)
                if here != self._top:
                    os.close(here)
                here = inner
            yield here, last
        except OSError as error:
            if error.errno in BESIDE:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
            raise
        finally:
            if here != self._top:
                os.close(here)


def chunks(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Yield at most the first `most` bytes of a file, even if it grows meanwhile."""
    while most > 0 and (chunk := file.read(min(CHUNK, most))):
        most -= len(chunk)
        yield chunk


# Recovery of an agent's commits that its files do not show: on a branch, in a stash.
#
# Its ``.git`` is read as data: names of commits out of small files, and object files, which are
# copied to a folder of ours. Only then does git look, in that folder beside the hub's objects, and
# puts what those names reach into the hub, checked as it would be on receipt. Nothing the agent
# configured, linked or borrowed plays a part.


NAMES_MAX = 50
FILES_MAX = 20_000
BYTES_MAX = 50 << 20
SMALL = 4 << 10
RECEIVE_S_MAX = 60.0
PACK = ("pack-objects", "--revs", "--stdout", "-q", "--window=0", "--threads=1")
"""Without a search for likeness: objects can be made to keep that busy for as long as it may."""
RECEIVE = ("index-pack", "--stdin", "--strict", "--fix-thin", "--threads=1")
STREAMED = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.bigFileThreshold",
    "GIT_CONFIG_VALUE_0": "1m",
}
"""Nor is a large one held in memory: a few bytes can stand for very many."""
PACKED_MAX = 1 << 20
REFS_DEPTH_MAX = 20

_SHA = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_OBJECT = re.compile(rb"(?:[0-9a-f]{2}/[0-9a-f]{38,62}|pack/pack-[0-9a-f]+\.(?:pack|idx))")


async def find_elsewhere(hub: Hub, folder: Path, base: str, tree: str) -> dict[str, str]:
    """Return commits by their names whose files were not captured; put them into the hub."""
    names = await asyncio.to_thread(_names, os.fsencode(folder))
    names = {name: sha for name, sha in names.items() if sha != base}
    if not names:
        return {}
    with tempfile.TemporaryDirectory(dir=hub.path, prefix="found-") as place:
        if await asyncio.to_thread(_copy_objects, os.fsencode(folder), place):
            await _receive(hub, place, sorted(set(names.values())))
    found = {}
    for name, sha in names.items():
        try:
            theirs = await hub.tree(sha)
        except GitFailed:
            found[name] = ""  # it was there, and could not be kept
            continue
        told = await hub.git("merge-base", "--is-ancestor", sha, base, codes=(0, 1))
        if theirs != tree and told.code:
            found[name] = sha
    return found


async def _receive(hub: Hub, place: str, shas: list[str]) -> None:
    env = {
        "GIT_OBJECT_DIRECTORY": place,
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(hub.git.folder / "objects"),
    }
    until = time.monotonic() + RECEIVE_S_MAX
    for sha in shas:  # one by one: what is broken in one history spoils no other
        left = max(1.0, until - time.monotonic())
        wanted = f"{sha}\n^{hub.main()}\n".encode()
        try:
            pack = await hub.git(*PACK, stdin=wanted, env={**env, **STREAMED}, time_s=left)
            await hub.git(*RECEIVE, stdin=pack.out, env=STREAMED, time_s=left)
        except GitFailed as error:
            if error.full:
                raise


def _names(folder: bytes) -> dict[str, str]:
    """HEAD, branches, tags and stashes, with the commits they name."""
    found: dict[str, str] = {}
    with _opened(folder) as top:
        if top is None:
            return found
        for line in _read(b"packed-refs", top, PACKED_MAX).splitlines():
            sha, _, name = line.partition(b" ")
            if _SHA.fullmatch(sha) and len(found) < NAMES_MAX:
                found[name_of(name)] = sha.decode()
        said = {b"HEAD": _read(b"HEAD", top, SMALL)}
        for place, files, here in _walk(b"refs", top, REFS_DEPTH_MAX):
            for name in sorted(files)[: NAMES_MAX - len(said)]:
                said[place + b"/" + name] = _read(name, here, SMALL)
            if len(said) >= NAMES_MAX:
                break
    for name, text in said.items():
        if _SHA.fullmatch(text.strip()):
            found[name_of(name)] = text.strip().decode()
    return found


@contextlib.contextmanager
def _opened(folder: bytes) -> Iterator[int | None]:
    """Open the folder itself: its files are reached from here, by no path that a link could bend.

    The agent may still be at work, so checking for links first and opening by name later would be
    unsafe.
    """
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield top
    finally:
        os.close(top)


def _walk(name: bytes, top: int, depth: int) -> Iterator[tuple[bytes, list[bytes], int]]:
    """Folders with the files in them; one that is a link, or lies deeper, is not entered."""
    with contextlib.suppress(OSError):
        for place, folders, files, here in os.fwalk(name, dir_fd=top):
            folders.sort()
            if place.count(b"/") >= depth:
                folders.clear()
            yield place, files, here


def _read(name: bytes, here: int, limit: int) -> bytes:
    """Return a small file of a folder; links, pipes and large files count as empty."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, dir_fd=here)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return b""
        return file.read(limit)


def _copy_objects(folder: bytes, place: str) -> int:
    """Object files into a folder of ours, as far as they are plain files and not too many."""
    copied, total = 0, 0
    with _opened(folder) as top:
        if top is None:
            return 0
        for path, files, here in _walk(b"objects", top, 1):
            for name in files:
                inside = path[len(b"objects/") :] + b"/" + name
                if not _OBJECT.fullmatch(inside) or copied >= FILES_MAX:
                    continue
                data = _read(name, here, BYTES_MAX - total)
                if not data:
                    continue
                target = Path(place) / inside.decode()
                target.parent.mkdir(exist_ok=True)
                target.write_bytes(data)
                copied, total = copied + 1, total + len(data)
    return copied


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
    """An agent's work: a commit on the base (empty: nothing differs), and what is not in it."""

    head: str
    tree: str
    changed: Mapping[str, str]
    left_out: Mapping[str, str]
    ignored: tuple[str, ...]
    elsewhere: Mapping[str, str]


Mark = tuple[int, int, int]
"""Size, time of change and place on the disk: a file that has the same ones is the same."""


class CaptureRules(Protocol):
    """The rules for reading a slot."""

    @property
    def limits(self) -> CaptureLimits: ...
    @property
    def prepared(self) -> dict[str, Mark]: ...


@dataclass(slots=True)
class Read:
    """The findings of reading a slot."""

    left_out: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)


async def read_files(
    hub: Hub, slot: Path, index: Path, base: str, allowed: CaptureRules
) -> tuple[str, Read]:
    """Return the tree of the slot's files, and what is not in it."""
    read = Read()
    await finish_despite_cancel(asyncio.to_thread(unblock, slot))
    with _copied(index) as copy:
        reader = _Reader(hub, slot, copy, allowed.limits, read, allowed.prepared)
        try:
            tree = await reader.tree()
        except PermissionError:  # closed folders with files in them
            await finish_despite_cancel(asyncio.to_thread(open_all, slot))
            tree = await reader.tree()
    read.elsewhere = await find_elsewhere(hub, slot / ".git", base, tree)
    return tree, read


async def marks(hub: Hub, slot: Path, index: Path, allowed: CaptureRules) -> dict[str, Mark]:
    """Return the files that differ from the base now, to distinguish them from later work."""
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
            take, drop = await finish_despite_cancel(asyncio.to_thread(sorting.sort, changed, new))
            if drop:
                zero = "0" * len(self.hub.main())
                lines = b"".join(f"0 {zero}\t".encode() + raw_of(name) + b"\0" for name in drop)
                await self._git("update-index", "-z", "--index-info", stdin=lines)
            await self._add(take, stage)
        finally:
            await finish_despite_cancel(asyncio.to_thread(remove, stage))
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
            await finish_despite_cancel(asyncio.to_thread(open_all, self.slot))
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
        listing = ("ls-files", "-z", "--others", "--exclude-standard", f"--exclude=/{DOWNLOADS}/")
        said = await self._git(*listing, files=folder)
        if UNREADABLE in said.err:
            await finish_despite_cancel(asyncio.to_thread(open_all, folder))
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
    """Looks at each file once; files to be captured are in the stage afterwards."""

    reader: _Reader
    stage: Path
    sizes: Mapping[str, int]
    """Of the blobs that the base has."""
    total: int = 0

    def sort(
        self, changed: Mapping[str, tuple[str, str]], new: list[str]
    ) -> tuple[list[str], list[str]]:
        """Return the files to capture, and those that are gone."""
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
        """Stage the attributes that apply to captured files, even if they are not captured."""
        folders = {name[: at + 1] for name in names for at, sign in enumerate(name) if sign == "/"}
        for name in (f"{folder}.gitattributes" for folder in ("", *sorted(folders))):
            with (
                contextlib.suppress(OSError),
                within.file(raw_of(name)) as file,
                self._target(name).open("xb") as copy,
            ):
                copy.writelines(chunks(file, RULES_BYTES))

    def _staged(self, within: Within, name: str, mode: str, blob: str) -> bool:
        """Return whether a file is to be captured: its bytes or mode differ from the base."""
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
    """Return git's name for the bytes of a file."""
    algorithm = hashlib.sha1 if digits == 40 else hashlib.sha256
    digest = algorithm(b"blob %d\0" % size, usedforsecurity=False)
    for chunk in chunks(file, size):
        digest.update(chunk)
    return digest.hexdigest()
