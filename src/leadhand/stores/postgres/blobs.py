"""Results by the hash of their bytes: small ones in the database, large ones in a shared folder.

A database is a poor place for files of hundreds of megabytes, and a good one for everything
else: backed up with the log, read wherever the log is read. So what is larger than
`IN_DATABASE_MAX` goes to the folder that the address names (`?artifacts=/mnt/shared`), through
the one small port below; an address without one keeps all in the database.

A name that stands in a log always has its bytes: they are durable before the name is given
out. After a crash there may be bytes that no log names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leadhand.errors import StoreCorrupt, StoreError
from leadhand.stores.artifacts import Artifacts
from leadhand.stores.postgres.session import Session
from leadhand.stores.refs import digest_in, ref_of

if TYPE_CHECKING:
    from leadhand.stores.postgres.address import Address

IN_DATABASE_MAX = 1 << 20
ROW_MAX = 512 << 20
"""What a row of PostgreSQL can hold in hexadecimal, and then some."""


class Shared(Protocol):
    """Where large results are, for all machines. A folder is one; an object store could be."""

    def put(self, data: bytes) -> str:
        """Keep bytes durably; the same bytes always have the same name."""

    def get(self, ref: str) -> bytes:
        """The bytes behind a name; StoreCorrupt when they are missing or others."""


class Blobs:
    """All results of one log. May be used from several threads."""

    def __init__(self, address: Address, shared: Shared | None = None) -> None:
        self._address = address
        self._session = Session(address, "artifacts")
        folder = address.artifacts
        self._shared = shared or (Artifacts(folder) if folder is not None else None)

    def put(self, data: bytes) -> str:
        """Keep bytes durably; gives back their name."""
        if self._shared is not None and len(data) > IN_DATABASE_MAX:
            return self._shared.put(data)
        if len(data) > ROW_MAX:
            raise StoreError(
                f"{self._address}: a result of {len(data)} bytes is too large for the database. "
                "Fix: name a shared folder in the store's address: ?artifacts=/mnt/leadhand"
            )
        ref = ref_of(data)
        self._session.rows("put_artifact", (bytes.fromhex(digest_in(ref)), data))
        return ref

    def get(self, ref: str) -> bytes:
        """The bytes behind a name."""
        digest = bytes.fromhex(digest_in(ref))
        rows = self._session.rows("get_artifact", (digest,))
        if not rows:
            if self._shared is not None:
                return self._shared.get(ref)
            raise StoreCorrupt(f"{self._address}: the artifact {ref} is missing")
        data = bytes(rows[0][0])
        if ref_of(data) != ref:
            raise StoreCorrupt(f"{self._address}: the bytes of {ref} do not match its name")
        return data

    def close(self) -> None:
        """Let go."""
        self._session.close()
