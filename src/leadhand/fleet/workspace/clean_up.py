"""Clean-up of a slot: removing any kind of file, and making a plain ``.git`` from nothing.

Nothing is followed: a link is removed, not what it points to. Folders that were made read-only are
made writable first.
"""

import contextlib
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from leadhand.fleet.repository.git import raw_of

CONFIGURATION = """\
[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
[gc]
\tauto = 0
[user]
\tname = Leadhand agent
\temail = agent@localhost
"""
EXTENSION = """\
[extensions]
\tobjectformat = sha256
"""


RULES = frozenset({b".gitignore", b".gitattributes", b".gitmodules"})


def remove(path: Path | bytes) -> None:
    """Remove a file, a link, a pipe, or a folder with its content, if it exists."""
    raw = path if isinstance(path, bytes) else os.fsencode(path)
    try:
        mode = os.lstat(raw).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        os.unlink(raw)  # noqa: PTH108 — bytes
        return
    _open_up(raw)
    top = os.open(raw, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(raw)  # noqa: PTH106 — bytes


def _empty(top: int) -> None:
    """Empty a folder of any depth: nested folders are moved up, so that no path is ever long."""
    moved = itertools.count()
    waiting = _unlinked(top)
    while waiting:
        name = waiting.pop()
        os.chmod(name, stat.S_IRWXU, dir_fd=top)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        inside = os.open(name, flags, dir_fd=top)
        try:
            for inner in _unlinked(inside):
                os.chmod(inner, stat.S_IRWXU, dir_fd=inside)
                fresh = f".leadhand-{next(moved)}-{secrets.token_hex(4)}"
                os.rename(inner, fresh, src_dir_fd=inside, dst_dir_fd=top)
                waiting.append(fresh)
        finally:
            os.close(inside)
        os.rmdir(name, dir_fd=top)


def _unlinked(folder: int) -> list[str]:
    """Remove everything in a folder except folders, and return their names."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def open_folder(folder: Path) -> None:
    """Make one folder readable and writable again."""
    _open_up(os.fsencode(folder))


def open_all(folder: Path | bytes) -> None:
    """Make folders readable and writable again, except those too deep for a path."""
    raw = folder if isinstance(folder, bytes) else os.fsencode(folder)
    _open_up(raw)
    for place, folders, _ in os.walk(raw):  # top down, and links are not walked into
        for inner in folders:
            with contextlib.suppress(OSError):
                _open_up(os.path.join(place, inner))  # noqa: PTH118 — bytes


def unblock(folder: Path) -> None:
    """Remove pipes that git would open, and then wait for ever for a writer.

    Such pipes have the names of git's rule files, or lie in a repository within the folder. No pipe
    is ever captured. Git does not read folders too deep for a path.
    """
    top = os.fsencode(folder)
    left = [top]
    while left:
        path = left.pop()
        inner = b"/.git/" in path[len(top) :] + b"/"
        with contextlib.suppress(OSError), _opened(path) as here, os.scandir(here) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    left += [path + b"/" + name] * (path != top or name != b".git")
                elif (inner or name in RULES) and not (entry.is_symlink() or entry.is_file()):
                    os.unlink(name, dir_fd=here)


@contextlib.contextmanager
def _opened(folder: bytes) -> Iterator[int]:
    """Open a folder and make it readable and writable. Raise `OSError` if it is none."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        here = os.open(folder, flags)
    except PermissionError:
        _open_up(folder)
        here = os.open(folder, flags)
    try:
        mode = stat.S_IMODE(os.fstat(here).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(here, mode | stat.S_IRWXU)
        yield here
    finally:
        os.close(here)


def remove_foreign(root: Path, tracked: Collection[str], keep: Sequence[str]) -> None:
    """Remove everything that is not `tracked`, except `.git` at the top and `keep`."""
    wanted = {raw_of(name) for name in tracked}
    kept = {raw_of(name.strip("/")) for name in keep}
    folders = {parent for name in wanted | kept for parent in _parents(name)}
    top = os.fsencode(root)
    left = [b""]
    while left:
        inside = left.pop()
        here = top + b"/" + inside if inside else top
        _open_up(here)
        with os.scandir(here) as entries:
            found = list(entries)
        for entry in found:
            name = inside + b"/" + entry.name if inside else entry.name
            if name in kept or name == b".git":
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and (name in folders):
                left.append(name)
            elif is_folder and name in wanted:  # the place of a submodule: empty
                remove(entry.path)
                os.mkdir(entry.path)  # noqa: PTH102 — bytes
            elif name not in wanted or is_folder:
                remove(entry.path)


def make_git_folder(slot: Path, hub: Path, base: str, index: Path) -> None:
    """Make what `git clone --shared` would, without a remote: refs, configuration, an index."""
    folder = slot / ".git"
    for inner in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (folder / inner).mkdir(parents=True)
    sha256 = len(base) > 40
    configuration = CONFIGURATION.format(version=int(sha256)) + (EXTENSION if sha256 else "")
    (folder / "config").write_text(configuration)
    (folder / "objects/info/alternates").write_bytes(os.fsencode(hub / "objects") + b"\n")
    (folder / "refs/heads/main").write_text(base + "\n")
    (folder / "HEAD").write_text(base + "\n")
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(hub / "shallow", folder / "shallow")
    shutil.copyfile(index, folder / "index")


def _parents(name: bytes) -> list[bytes]:
    parts = name.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]


def _open_up(folder: bytes) -> None:
    mode = os.stat(folder, follow_symlinks=False).st_mode  # noqa: PTH116 — bytes
    if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101 — bytes
