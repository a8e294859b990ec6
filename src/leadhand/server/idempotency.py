"""Idempotency keys: a repeated request is not carried out again.

A start keeps its key for ever: the run's id is derived from the key and its sender, and the digest
of the body is in the run's first event. So the same key finds the same run also after a restart,
and with another body it is refused. Other responses are kept in memory for a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from leadhand.engine.host import new_run_id
from leadhand.server.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEEP_S = 24 * 3600
KEPT_MAX = 10_000
_FORM = re.compile(r"[\x21-\x7e]{1,200}")


class StoredResponse(NamedTuple):
    """A response that was given."""

    at: float
    digest: str
    status: int
    body: bytes


class Keyed(NamedTuple):
    """A request with a key."""

    name: str
    """The person, the route, and the key itself."""
    digest: str
    """The digest of the body."""

    @property
    def run_id(self) -> str:
        """The id of a run started with it: always the same."""
        seed = hashlib.sha256(self.name.encode()).digest()
        return new_run_id(lambda size: seed[:size])


def keyed(key: str | None, person: str, route: str, body: bytes) -> Keyed | None:
    """Return a request's key, or None. Raise `RequestRefused` if it is malformed."""
    if key is None:
        return None
    if not _FORM.fullmatch(key):
        raise RequestRefused(400, "Idempotency-Key has 1 to 200 visible ASCII characters")
    return Keyed(f"{person}\n{route}\n{key}", hashlib.sha256(body).hexdigest())


def other_body() -> RequestRefused:
    """Return the refusal for a key that was used with another body."""
    return RequestRefused(422, "this Idempotency-Key was used with another body", kind="key-reused")


class Keys:
    """Responses by key, and the keys in progress."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()
        self._busy: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, given: Keyed | None) -> AsyncGenerator[StoredResponse | None, None]:
        """Serialize requests with the same key; yield the earlier response, if any."""
        if given is None:
            yield None
            return
        lock = self._busy.setdefault(given.name, asyncio.Lock())
        async with lock:
            try:
                yield self._found(given)
            finally:
                if not lock._waiters:  # noqa: SLF001 - no public way
                    self._busy.pop(given.name, None)

    def keep(self, given: Keyed | None, status: int, body: bytes) -> None:
        """Store a response under its key."""
        if given is not None:
            self._kept[given.name] = StoredResponse(time.monotonic(), given.digest, status, body)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)

    def _found(self, given: Keyed) -> StoredResponse | None:
        found = self._kept.get(given.name)
        if found is None or time.monotonic() - found.at > KEEP_S:
            return None
        if found.digest != given.digest:
            raise other_body()
        return found
