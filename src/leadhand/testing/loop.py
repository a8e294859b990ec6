"""An event loop without time, sockets or threads: the base of every simulation.

Laws of this file
1. Time is virtual. When nothing is ready the clock jumps to the next timer; nothing waits.
2. Everything that happens is drawn from one seed: the same seed gives the same schedule.
3. Nothing leaves: threads, sockets, signals and processes raise `Escaped`.
4. A handle belongs to the simulated process that scheduled it. A process that was killed
   never runs again, not even its `finally` blocks: that is what a crash is.

The order. asyncio promises that callbacks run in the order they were scheduled. With `shuffle`
the loop keeps that promise only among the callbacks of one object (a task, a run) and
otherwise picks at random, so that nothing comes to rely on the order by accident.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

T = TypeVar("T")

PROCESS: contextvars.ContextVar[int] = contextvars.ContextVar("simulated_process", default=0)
"""The simulated process that is running; 0 is the world outside."""


class Escaped(RuntimeError):
    """Something tried to leave the simulation: a thread, a socket, a process, real time."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, although the awaited task is not done."""


class _Entry(NamedTuple):
    process: int
    lane: int
    handle: asyncio.Handle


class SimLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time, a seeded order and several simulated processes.

    `random` is the source of the order; `shuffle` enables it.
    """

    def __init__(self, random: Random, *, shuffle: bool = True) -> None:
        self._over = False
        super().__init__()
        self.steps = 0
        self.troubles: list[str] = []
        """Uncaught exceptions: in callbacks, and in tasks that are not awaited."""
        self.escaped: list[str] = []
        """Attempts to leave the simulation: a run that went on after one proves nothing."""
        self._random = random
        self._shuffle = shuffle
        self._time = 0.0
        self._queue: deque[_Entry] = deque()
        self._heap: list[tuple[float, int, _Entry]] = []
        self._count = 0
        self._dead: set[int] = set()
        self._stalled: dict[int, list[_Entry]] = {}
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {}
        self._thread = threading.get_ident()

    # What asyncio calls.

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._time

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback as soon as its turn comes."""
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(self._entry(callback, handle, context))
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a moment of virtual time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heappush(self._heap, (when, self._count, self._entry(callback, handle, context)))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after some virtual time."""
        return self.call_at(self._time + max(0.0, delay), callback, *args, context=context)

    def _entry(
        self,
        callback: Callable[..., object],
        handle: asyncio.Handle,
        context: contextvars.Context | None,
    ) -> _Entry:
        process = PROCESS.get() if context is None else context.get(PROCESS, 0)
        return _Entry(process, id(getattr(callback, "__self__", None)), handle)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Create a task of the current process, or of the process whose context is given."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS, 0)
        self._tasks.setdefault(process, []).append(task)
        return task

    def is_running(self) -> bool:
        """Return whether the loop is running a handle."""
        return asyncio._get_running_loop() is self  # noqa: SLF001 - the way loops ask

    def get_debug(self) -> bool:
        """Never: it would slow every task down."""
        return False

    def is_closed(self) -> bool:
        """Return whether the loop is closed."""
        return self._over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an exception that no task caught."""
        error = context.get("exception")
        self.troubles.append(f"{context.get('message', '')}: {error!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they surface."""

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, **more: Any
    ) -> asyncio.Handle:
        """There are no threads but ours."""
        if threading.get_ident() != self._thread:
            raise Escaped("a thread tried to speak to the simulated loop")
        return self.call_soon(callback, *args, **more)

    # What a simulation does.

    def step(self) -> bool:
        """Run one handle, at the next moment there is one; False when nothing is left at all."""
        while True:
            self._wake()
            if not self._queue:
                if not self._heap:
                    return False
                self._time = max(self._time, self._heap[0][0])
                continue
            entry = self._pick()
            if entry.process in self._dead or entry.handle.cancelled():
                continue
            if entry.process in self._stalled:
                self._stalled[entry.process].append(entry)
                continue
            self.steps += 1
            asyncio._set_running_loop(self)  # noqa: SLF001 - the way loops say that they run
            try:
                entry.handle._run()  # noqa: SLF001 - the way loops run handles
            finally:
                asyncio._set_running_loop(None)  # noqa: SLF001
            return True

    def _wake(self) -> None:
        """Make due timers ready, and drop cancelled ones from the top of the heap."""
        timers = self._heap
        while timers:
            when, _, entry = timers[0]
            gone = entry.handle.cancelled() or entry.process in self._dead
            if when > self._time and not gone:
                return
            heappop(timers)
            if not gone:
                self._queue.append(entry)

    def _pick(self) -> _Entry:
        ready = self._queue
        if not self._shuffle or len(ready) == 1:
            return ready.popleft()
        lane = ready[self._random.randrange(len(ready))].lane
        for index, entry in enumerate(ready):
            if entry.lane == lane:
                del ready[index]
                return entry
        return ready.popleft()

    def run_until_complete(self, future: Any) -> Any:
        """Drive the loop until something is done, and nothing further."""
        task = future if asyncio.isfuture(future) else self.create_task(future)
        while not task.done():
            if not self.step():
                raise Deadlock(f"nothing is left to do at {self._time:.3f} s")
        return task.result()

    def run_in(self, process: int, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start the coroutine `work` in the simulated `process`; return its task."""
        context = contextvars.Context()
        context.run(PROCESS.set, process)
        task = self.create_task(work, context=context)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.troubles.append(f"{task.get_coro()!r:.60}: {error!r}")

    def skip(self, seconds: float) -> None:
        """Let `seconds` pass while nothing runs: the whole machine stood still."""
        self._time += seconds

    def kill(self, process: int) -> None:
        """Kill `process`: drop everything that it had scheduled."""
        self._dead.add(process)
        self._stalled.pop(process, None)

    def stall(self, process: int) -> None:
        """Suspend `process`; the others go on."""
        self._stalled.setdefault(process, [])

    def resume(self, process: int) -> None:
        """Resume the suspended `process` where it stopped."""
        self._queue.extend(self._stalled.pop(process, ()))

    def alive(self, process: int) -> bool:
        """Return whether `process` was not killed."""
        return process not in self._dead

    def unfinished(self, process: int) -> list[asyncio.Task[Any]]:
        """Return the tasks of `process` that are not done."""
        return [task for task in self._tasks.get(process, ()) if not task.done()]

    def close(self) -> None:
        """Let everything go. Tasks of killed processes end here, unheard."""
        self._over = True
        self._queue.clear()
        self._heap.clear()
        self._stalled.clear()
        for task in [task for tasks in self._tasks.values() for task in tasks if not task.done()]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
            work = task.get_coro()
            if work is not None:
                with contextlib.suppress(BaseException):  # no caller is left
                    work.close()
        self._tasks.clear()


def _escape(name: str) -> Callable[..., Any]:
    def escape(loop: SimLoop, *_args: Any, **_more: Any) -> Any:
        error = Escaped(f"{name}: a simulation has no threads, sockets or processes; be async")
        loop.escaped.append(str(error))
        raise error

    return escape


for _name in (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "run_in_executor",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_sendall",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(SimLoop, _name, _escape(_name))
