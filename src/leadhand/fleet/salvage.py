"""Commits an agent made that its files do not show: on another branch, in a stash.

Its ``.git`` is read as data: names of commits out of small files, and object files, which are
copied to a folder of ours. Only then does git look, in that folder beside the hub's objects, and
puts what those names reach into the hub, checked as it would be on receipt. Nothing the agent
configured, linked or borrowed plays a part.
"""

import asyncio
import os
import re
import stat
import tempfile
from pathlib import Path

from leadhand.fleet.git import GitFailed, name_of
from leadhand.fleet.hub import Hub

NAMES_MAX = 50
FILES_MAX = 20_000
BYTES_MAX = 50 << 20
SMALL = 4 << 10
PACKED_MAX = 1 << 20

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
    for sha in shas:  # one by one: what is broken in one history spoils no other
        wanted = f"{sha}\n^{hub.main()}\n".encode()
        try:
            pack = await hub.git("pack-objects", "--revs", "--stdout", "-q", stdin=wanted, env=env)
            await hub.git("index-pack", "--stdin", "--strict", "--fix-thin", stdin=pack.out)
        except GitFailed as error:
            if error.full:
                raise


def _names(folder: bytes) -> dict[str, str]:
    """HEAD, branches, tags and stashes, with the commits they name."""
    found: dict[str, str] = {}
    if os.path.islink(folder) or not os.path.isdir(folder):  # noqa: PTH112, PTH114 — bytes
        return found
    for line in _read(folder + b"/packed-refs", PACKED_MAX).splitlines():
        sha, _, name = line.partition(b" ")
        if _SHA.fullmatch(sha) and len(found) < NAMES_MAX:
            found[name_of(name)] = sha.decode()
    loose = [b"HEAD"]
    for place, folders, files in os.walk(folder + b"/refs"):
        folders.sort()
        inside = place[len(folder) + 1 :]
        loose += [inside + b"/" + name for name in sorted(files)]
        if len(loose) > NAMES_MAX:
            break
    for name in loose[:NAMES_MAX]:
        sha = _read(folder + b"/" + name, SMALL).strip()
        if _SHA.fullmatch(sha):
            found[name_of(name)] = sha.decode()
    return found


def _read(path: bytes, limit: int) -> bytes:
    """A small file; links, pipes and large files are nothing."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            return b""
        return file.read(limit)


def _copy_objects(folder: bytes, place: str) -> int:
    """Object files into a folder of ours, as far as they are plain files and not too many."""
    top, copied, total = folder + b"/objects", 0, 0
    for here, _, files in os.walk(top):
        for name in files:
            inside = here[len(top) + 1 :] + b"/" + name
            if not _OBJECT.fullmatch(inside) or copied >= FILES_MAX:
                continue
            data = _read(top + b"/" + inside, BYTES_MAX - total)
            if not data:
                continue
            target = Path(place) / inside.decode()
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            copied, total = copied + 1, total + len(data)
    return copied
