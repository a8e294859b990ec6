"""The one thread that commits the appends of all runs, whatever the database.

    event loop                        writer thread
    append() ── request ──► queue ──► take all that waits
                                      commit it together            (a store's own part)
    futures  ◄── one call per loop ── outcomes
                                      what is due after the answers (a store's own part)

What is queued while a group is being committed makes up the next: nobody waits longer for it,
and a burst pays for one commit. `ask` has something else done by the same thread, in turn.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from leadhand.stores.group import Request

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from leadhand.errors import LeadhandError

C = TypeVar("C")
GROUP_ROWS_MAX = 65_536
GROUP_BYTES_MAX = 64 * 1024 * 1024


class _Errand(NamedTuple):
    """Something else the writer's thread is asked to do, between two groups."""

    do: Callable[[Any], Any]
    done: Future[Any]
    last: bool


class Committer(ABC, Generic[C]):
    """Owns the writing connection and the thread that uses it."""

    def __init__(self, connection: C) -> None:
        self._connection = connection
        self._queue: SimpleQueue[Request | _Errand] = SimpleQueue()
        self._busy = threading.Lock()
        """Held by whoever uses the connection."""
        self.settled_bytes = 0
        """Of all requests that have left the queue. Changed only by whoever holds the lock."""
        self.refusal: LeadhandError | None = None
        """Why no append is taken, if so."""
        self.delivered: Callable[[], None] = lambda: None
        """Called in the event loop after each group."""

    def start(self) -> None:
        """Begin to take requests, once everything is in place."""
        threading.Thread(target=self._work, name="leadhand-writer", daemon=True).start()

    def put(self, request: Request) -> None:
        """Queue an append. From the event loop's thread."""
        self._queue.put(request)

    def ask(self, do: Callable[[C], Any], *, last: bool = False) -> Future[Any]:
        """Have something done by the writer's thread, after what is queued; `last` ends it."""
        done: Future[Any] = Future()
        self._queue.put(_Errand(do, done, last))
        return done

    def commit_together(self, requests: list[Request]) -> None:
        """One commit of exactly these, for a copy that keeps the commits as they were."""
        for outcome in self.ask(lambda _connection: self._commit(requests)).result():
            if outcome is not None:
                raise outcome

    @abstractmethod
    def _commit(self, requests: list[Request]) -> list[LeadhandError | None]:
        """Write a group; for each request why it failed, or None."""

    def _rest(self) -> None:
        """What is due after the answers are out."""

    # All below runs in the writer's thread, but for _deliver.

    def _work(self) -> None:
        errand: _Errand | None = None
        while errand is None or not errand.last:
            requests, errand = self._take()
            if requests:
                with self._busy:
                    outcomes = self._commit(requests)
                self._settle(requests, outcomes)
                with self._busy:
                    self._rest()
            if errand is not None:
                with self._busy:
                    self._run(errand)

    def _run(self, errand: _Errand) -> None:
        try:
            errand.done.set_result(errand.do(self._connection))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked
            errand.done.set_exception(error)

    def _take(self) -> tuple[list[Request], _Errand | None]:
        """Wait for work; then take all that is there."""
        requests: list[Request] = []
        rows = size = 0
        item = self._queue.get()
        while isinstance(item, Request):
            requests.append(item)
            rows += len(item.entries)
            size += item.size
            if rows >= GROUP_ROWS_MAX or size >= GROUP_BYTES_MAX:
                return requests, None
            try:
                item = self._queue.get_nowait()
            except Empty:
                return requests, None
        return requests, item

    def _settle(self, requests: list[Request], outcomes: list[LeadhandError | None]) -> None:
        """Answer everybody, with one call for each event loop."""
        answers: dict[asyncio.AbstractEventLoop, list[tuple[Request, LeadhandError | None]]] = {}
        for request, outcome in zip(requests, outcomes, strict=True):
            answers.setdefault(request.loop, []).append((request, outcome))
        for loop, answered in answers.items():
            try:
                loop.call_soon_threadsafe(self._deliver, answered)
            except RuntimeError:  # the loop is closed, and with it everyone who waited
                continue

    def _deliver(self, answers: list[tuple[Request, LeadhandError | None]]) -> None:
        """In the event loop."""
        for request, outcome in answers:
            if request.future.done():
                continue
            if outcome is None:
                request.future.set_result(None)
            else:  # one exception each: raising adds to its traceback
                request.future.set_exception(type(outcome)(*outcome.args))
        self.delivered()
