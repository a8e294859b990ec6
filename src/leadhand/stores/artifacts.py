"""Large results, kept as files named by their own hash beside the database.

    <database>.artifacts/ab/cdef…    the file whose SHA-256 is abcdef…

The order of `put` makes a reference safe: write a temporary file, sync it, rename it, sync the
folder; only then is the name returned, to be appended to a log. So a name in a log always has its
bytes; after a crash there may be bytes that no log names.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

from leadhand.errors import StoreCorrupt, UsageError
from leadhand.stores.sqlite.connection import explain_os, make_folder, sync_folder

# Names of artifacts: `sha256:` and the hash of the bytes, in hexadecimal.


_REF = re.compile(r"sha256:([0-9a-f]{64})")


def ref_of(data: bytes) -> str:
    """Return the name of some bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


def is_ref(text: str) -> bool:
    """Return whether a text could be a name of an artifact."""
    return _REF.fullmatch(text) is not None


def digest_in(ref: str) -> str:
    """Return the hash in a name.

    Raise `UsageError` if it is malformed, so that no name can be a path.
    """
    found = _REF.fullmatch(ref)
    if found is None:
        raise UsageError(f"{ref[:100]!r} is not the name of an artifact")
    return found[1]


TEMPORARY = ".new-"


class ArtifactFolder:
    """A folder of artifacts. May be used from several threads and processes at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Store bytes durably; return their name. Equal bytes have equal names."""
        ref = ref_of(data)
        path = self._path(ref)
        try:
            make_folder(path.parent)
            if not _holds(path, data):
                _write(path, data)
            # Also if it already existed: the process that renamed it may have died before this.
            sync_folder(path.parent)
        except OSError as error:
            raise explain_os(error, path) from error
        return ref

    def get(self, ref: str) -> bytes:
        """Return the bytes of an artifact. Raise `StoreCorrupt` if they are missing or altered."""
        path = self._path(ref)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreCorrupt(f"{path}: the artifact is missing") from None
        except OSError as error:
            raise explain_os(error, path) from error
        if ref_of(data) != ref:
            raise StoreCorrupt(f"{path}: the artifact's bytes do not match its name")
        return data

    def names(self) -> list[str]:
        """Return the names of all artifacts, sorted."""
        found = [f"sha256:{path.parent.name}{path.name}" for path in self._folder.glob("??/*")]
        return sorted(name for name in found if is_ref(name))

    def remove(self, ref: str) -> None:
        """Remove an artifact, which an archive holds."""
        path = self._path(ref)
        try:
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
        except OSError as error:
            raise explain_os(error, path) from error

    def _path(self, ref: str) -> Path:
        digest = digest_in(ref)
        return self._folder / digest[:2] / digest[2:]


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _write(path: Path, data: bytes) -> None:
    with NamedTemporaryFile(prefix=TEMPORARY, dir=path.parent, delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            temporary.rename(path)
        except BaseException:
            temporary.unlink()
            raise
