"""Threads for functions that block.

A thread cannot be killed. When the attempt it works for is cancelled it is *abandoned*: nobody
waits for it any more, but it still runs, and may still have effects. The laws that follow:

1. Our own threads, never the loop's executor: a stuck worker must not block name resolution
   or whatever else shares that executor.
2. They are daemons: an abandoned thread cannot keep the host from ending.
3. A slot is held until the thread really ends, so a worker with `max_concurrency=1` never
   runs twice at once, not even beside a call that was given up long ago.
4. Outcomes travel as values. An exception set on a future would, if it were SystemExit,
   end the event loop.

Nothing here belongs to an event loop: a pool may serve several, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

LIMIT = 256
IDLE_S = 30.0


class CallOutcome(NamedTuple):
    """The outcome of a call: a value, or the exception it raised."""

    value: Any = None
    error: BaseException | None = None


class Lane:
    """The slots of one worker."""

    __slots__ = ("abandoned", "limit", "running", "waiting")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.running = 0
        self.abandoned = 0
        """Abandoned calls whose threads still run."""
        self.waiting: deque[_Job] = deque()


class _Job:
    __slots__ = ("abandoned", "call", "context", "future", "lane", "loop", "started")

    def __init__(
        self, lane: Lane, call: Callable[[], Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.lane = lane
        self.call = call
        self.context = contextvars.copy_context()
        self.loop = loop
        self.future: asyncio.Future[CallOutcome] = loop.create_future()
        self.started = False
        self.abandoned = False

    def deliver(self, outcome: CallOutcome) -> None:
        def set_result() -> None:
            if not self.future.done():
                self.future.set_result(outcome)

        # A closed loop raises: then no caller is left.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(set_result)


class Threads:
    """A pool that grows on demand and keeps idle threads for a while."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._ready: deque[_Job] = deque()
        """Jobs that have a slot of their lane and wait for a thread."""
        self._idle: list[queue.SimpleQueue[_Job | None]] = []
        self._size = 0
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """Return how many threads still run for attempts that were given up."""
        return self._abandoned

    async def run(self, lane: Lane, call: Callable[[], Any]) -> CallOutcome:
        """Run a call in a thread; when cancelled, the call is abandoned and may run on."""
        job = _Job(lane, call, asyncio.get_running_loop())
        with self._lock:
            if lane.limit is not None and lane.running >= lane.limit:
                lane.waiting.append(job)
            else:
                lane.running += 1
                self._place(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def _place(self, job: _Job) -> None:
        """Give a job to a thread, under the lock."""
        if self._idle:
            self._idle.pop().put(job)
        elif self._size < self.limit:
            name = f"leadhand-worker-{self._size + 1}"
            try:
                threading.Thread(target=self._work, args=(job,), name=name, daemon=True).start()
            except RuntimeError:  # The system has no more of them.
                if not self._size:
                    job.lane.running -= 1
                    raise
                self._ready.append(job)
            else:
                self._size += 1
        else:
            self._ready.append(job)

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            job.abandoned = True
            if job.started:
                job.lane.abandoned += 1
                self._abandoned += 1

    def _work(self, job: _Job | None) -> None:
        """Run one thread: a job, then the next that waits, then a while of idleness."""
        inbox: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        while job is not None:
            outcome = self._run(job)
            # Reported only after the slot is free: the caller finds this thread idle.
            following = self._next(job, inbox)
            job.deliver(outcome)
            del job, outcome  # An idle thread holds on to nothing.
            job = following or self._rest(inbox)

    def _run(self, job: _Job) -> CallOutcome:
        with self._lock:
            job.started = not job.abandoned
        if not job.started:
            return CallOutcome()
        try:
            return CallOutcome(job.context.run(job.call))
        except BaseException as error:  # noqa: BLE001 - law 4
            return CallOutcome(error=error)

    def _next(self, done: _Job, inbox: queue.SimpleQueue[_Job | None]) -> _Job | None:
        """Give back the slot of a job that really ended, and take the next."""
        with self._lock:
            lane = done.lane
            lane.running -= 1
            if done.started and done.abandoned:
                lane.abandoned -= 1
                self._abandoned -= 1
            done.started = False
            if lane.waiting:
                lane.running += 1
                self._ready.append(lane.waiting.popleft())
            if self._ready:
                return self._ready.popleft()
            self._idle.append(inbox)
            return None

    def _rest(self, inbox: queue.SimpleQueue[_Job | None]) -> _Job | None:
        try:
            return inbox.get(timeout=IDLE_S)
        except queue.Empty:
            pass
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                self._size -= 1
                return None
        return inbox.get()

    def close(self) -> None:
        """End idle threads; running ones end with their calls."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._size -= len(idle)
        for inbox in idle:
            inbox.put(None)
