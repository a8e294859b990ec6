"""Commits an agent made that its files do not show: on another branch, in a stash.

Its ``.git`` is read as data: names of commits out of small files, and object files, which are
copied to a folder of ours. Only then does git look, in that folder beside the hub's objects, and
puts what those names reach into the hub, checked as it would be on receipt. Nothing the agent
configured, linked or borrowed plays a part.
"""

import asyncio
import contextlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from leadhand.fleet.repository.git import GitFailed, name_of
from leadhand.fleet.repository.hub import Hub

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
    """Commits by the name they had, whose files are not those taken; they are in the hub now."""
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
    """The folder itself: what is in it is reached from here, by no path that a link could bend.

    The agent may still be at work, so to look for links first and open by name later would not do.
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
    """A small file of a folder; links, pipes and large files are nothing."""
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
