"""The library in a store: reading it, and appending to it as the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leadhand.audit.chain import GENESIS, link, verify
from leadhand.codec.events import decode, encode, refuse_unreadable
from leadhand.core import events as ev
from leadhand.core import library as books
from leadhand.core.library import LIBRARY_STREAM, LibraryState, SavedPlan
from leadhand.errors import Conflict, Fenced, LeadhandError, StoreCorrupt, StoreFull, UsageError
from leadhand.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import Now
    from leadhand.ports import Store


VERBS = ("save_plan", "remove_plan")
TRIES_MAX = 5
"""How often an append is tried if another writer was first."""


class Readable(Protocol):
    """The reading part of a store."""

    def read(self, run: str, after: int = 0) -> list[Entry]:
        """Return the entries of a stream with a seq above `after`."""


class StreamWriter(Protocol):
    """As much of a host as appending to a stream of its own takes."""

    @property
    def store(self) -> Store:
        """The log."""

    @property
    def in_flight(self) -> int:
        """Attempts under way: with none, an append need not be batched."""

    def time(self) -> Now:
        """Return both clocks."""

    def fail(self, error: BaseException) -> None:
        """Stop: the outcome of an append is not known."""


def library_of(store: Readable) -> LibraryState:
    """Return the library of a store. Raise `StoreCorrupt` if its stream does not verify."""
    return _folded(store.read(LIBRARY_STREAM))


def find(store: Readable, name: str) -> SavedPlan:
    """Return the plan of a `NAME` or `NAME@VERSION`. Raise `UsageError` if there is none."""
    return books.find(library_of(store), name)


async def perform_library_command(host: StreamWriter, verb: str, actor: str, details: Doc) -> Doc:
    """Save or remove a plan on command of a person; return once it is durable."""
    name = str(details.get("name", ""))
    if verb == "remove_plan":
        await _append(host, lambda state: books.remove(state, name, actor))
        return {"name": name, "removed": True}
    document = details.get("document")
    if not isinstance(document, dict):
        raise UsageError("a plan is an object with steps")
    source = str(details.get("source", ""))
    event = await _append(host, lambda state: books.save(state, name, document, actor, source))
    saved = find(host.store, name)
    return {"name": name, "version": saved.version, "hash": saved.hash, "new": event is not None}


async def _append(
    host: StreamWriter, decide: Callable[[LibraryState], ev.Event | None]
) -> ev.Event | None:
    return await append_to(host, LIBRARY_STREAM, lambda entries: decide(_folded(entries)))


async def append_to(
    host: StreamWriter, stream: str, decide: Callable[[list[Entry]], ev.Event | None]
) -> ev.Event | None:
    """Append the event that `decide` returns for a stream, even if others write to it too."""
    for _ in range(TRIES_MAX):
        entries = host.store.read(stream)
        event = decide(entries)
        if event is None:
            return None
        refuse_unreadable([event])
        before = entries[-1].hash if entries else GENESIS
        body, seq, at = encode(event), len(entries) + 1, host.time().at
        hash_ = link(before, stream, seq, at, ev.EVENT_VERSION, body)
        entry = Entry(stream, seq, at, ev.EVENT_VERSION, body, hash_)
        try:
            await host.store.append(stream, seq - 1, [entry], alone=not host.in_flight)
            return event
        except LeadhandError as error:
            if isinstance(error, Conflict) and not isinstance(error, Fenced):
                continue  # another writer was first: read again
            if not isinstance(error, StoreFull):
                host.fail(error)
            raise
    raise Conflict("it keeps changing; try again")


def _folded(entries: Sequence[Entry]) -> LibraryState:
    problems = verify(entries)
    if problems:
        raise StoreCorrupt(
            f"the library was changed or damaged: {problems[0].message} (event {problems[0].seq})"
        )
    state = LibraryState()
    for entry in entries:
        books.evolve_library(state, decode(entry.version, entry.body), entry.at)
    return state
