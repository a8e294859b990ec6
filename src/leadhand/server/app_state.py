"""The shared state of all routes, and the encoding of responses."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request, Response

from leadhand.codec.events import escape_surrogates
from leadhand.core.state.model import Now
from leadhand.server.gate import PERSON
from leadhand.server.prometheus import EventCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leadhand.app.overview import KnownFailures
    from leadhand.app.usage import OpenTotals
    from leadhand.app.worker_use import UseCache
    from leadhand.ports import Host
    from leadhand.server.accounts import Accounts, Person
    from leadhand.server.cached_reader import CachedReader, CachedReaders
    from leadhand.server.fleet_station import FleetStation
    from leadhand.server.gate import RequestGate
    from leadhand.server.idempotency import Keys
    from leadhand.server.links import Links
    from leadhand.server.run_supervisor import RunSupervisor
    from leadhand.server.slack import SlackAnswers
    from leadhand.server.stream import StreamHub
    from leadhand.settings import Settings
    from leadhand.stores.group_commit import CommitDurations


JSON = "application/json"


@dataclass
class AppState:
    """Everything behind the gate."""

    settings: Settings
    people: Accounts
    cached_readers: CachedReaders
    supervisor: RunSupervisor
    hub: StreamHub
    keys: Keys
    version: str
    links: Links
    secure: bool = False
    gate: RequestGate | None = None
    station: FleetStation | None = None
    """The fleet that works in this process, if any."""
    book: EventCounts = field(default_factory=EventCounts)
    worker_use: UseCache = field(default_factory=dict)
    open_totals: OpenTotals = field(default_factory=dict)
    editing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the settings file is changed."""
    known_failures: KnownFailures = field(default_factory=dict)

    @functools.cached_property
    def slack(self) -> SlackAnswers:
        """Takes answers from Slack."""
        from leadhand.server.slack import SlackAnswers

        return SlackAnswers(self, self.supervisor.tell)

    @property
    def host(self) -> Host:
        """The host of the database."""
        return self.supervisor.host

    def took(self) -> CommitDurations | None:
        """Return the histogram of commit times, if the store has one."""
        return getattr(self.host.store, "took", None)


def app_state_of(request: Request) -> AppState:
    """Return the state of the application a request belongs to."""
    found: AppState = request.app.state.app_state
    return found


def person_of(request: Request) -> Person:
    """Return the person of a request; the gate has made sure that there is one."""
    found: Person = request.scope[PERSON]
    return found


def now() -> Now:
    """Return both clocks, for documents."""
    wall = time.time_ns() // 1000
    return Now(wall, wall)


def encoded(doc: Any) -> bytes:
    """Return a document in bytes; lone surrogates are escaped."""
    try:
        return msgspec.json.encode(doc)
    except UnicodeEncodeError:
        return msgspec.json.encode(escape_surrogates(msgspec.to_builtins(doc)))


def answer(doc: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a response."""
    return Response(encoded(doc), status, dict(headers or {}), JSON)


async def seen(
    request: Request,
    version: Callable[[CachedReader], str],
    make: Callable[[CachedReader], Any],
) -> Response:
    """Return a document with its ETag; `version` tells cheaply whether it could have changed."""
    known = request.headers.get("if-none-match", "")
    query = str(request.url.query)

    def look(desk: CachedReader) -> tuple[str, bytes | None]:
        words = f"{version(desk)} {desk.driver.owner} {request.url.path} {query}"
        tag = f'W/"{hashlib.sha256(words.encode()).hexdigest()[:20]}"'
        # Weak comparison, as RFC 9110 asks: with or without the W/ that a cache may have removed.
        return tag, None if tag.removeprefix("W/") in known else encoded(make(desk))

    tag, body = await app_state_of(request).cached_readers.read(look)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if body is None:
        return Response(None, 304, headers)
    return Response(body, 200, headers, JSON)


def of_database(desk: CachedReader) -> str:
    """Return a version that changes with every commit."""
    return f"all {desk.store.last_position()}"


def of_run(run: str) -> Callable[[CachedReader], str]:
    """Return a version function that changes with every event of a run, and of its rollback."""
    from leadhand.core.rollback import rollback_id

    def version(desk: CachedReader) -> str:
        back = desk.store.header(rollback_id(run))
        return f"run {desk.header(run).seq} {back.seq if back else 0}"

    return version
