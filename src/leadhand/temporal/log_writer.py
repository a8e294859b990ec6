"""The writer of a workflow's log: in order, once, off the critical path.

The workflow gives every event its number, its time and its hash. Events gather for a moment and are
sent together; one batch is in flight at a time, and no step ever waits for it. A repeated append
finds what it wrote before and is done; a log with other content is a fork: it is never written to
again, and the run is parked until a person has looked.

Only users of the log itself wait for it: a planner, which is shown the whole run, the sender of a
command, and the end.

A batch is identified by the hash of its last event, which a replay compares: a core that produces
other events than those written stops there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.state.model import State
    from leadhand.temporal.messages import HostingOptions


with workflow.unsafe.imports_passed_through():
    import msgspec

    from leadhand.audit.chain import GENESIS, link
    from leadhand.codec.events import encode
    from leadhand.core import events as ev
    from leadhand.core.views.run import run_status, summary
    from leadhand.temporal.messages import FORK, PROJECT, LogBatch, LogLine, LogPosition

BATCH_LINES_MAX = 2000
BATCH_BYTES_MAX = 4 << 20
"""Before compression."""
GATHERED_MAX = 400
"""The number of events that are sent at once, however short they have gathered."""
TRY_S = 60.0
AGAIN = RetryPolicy(
    initial_interval=timedelta(seconds=0.2),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=10),
)
"""An unreachable log is waited for, for ever: no part of a run depends on the wait."""


class LogWriter:
    """The unwritten events of a run, and the position of its log."""

    def __init__(self, run: str, ways: HostingOptions, queue: str) -> None:
        self._run = run
        self._ways = ways
        self._queue = queue
        self._head = GENESIS
        self._lines: list[LogLine] = []
        self._notices: list[tuple[str, str]] = []
        self._status = ""
        self._waiting = 0
        self._waiting = 0
        self.seq = 0
        self.written = 0
        self.fork = ""
        """Why the log differs from what was written, once that was found."""

    @property
    def place(self) -> LogPosition:
        """The position of the run, written or not."""
        return LogPosition(self.seq, self._head.hex())

    @property
    def empty(self) -> bool:
        """Whether everything is in the log, and all notices were sent."""
        return self.written == self.seq and not self._lines and not self._notices

    def go_on(self, place: LogPosition, state: State) -> None:
        """Continue after the existing content of the log."""
        self.seq = self.written = place.seq
        self._head = bytes.fromhex(place.head)
        self._status = run_status(state)

    def add(self, event: ev.Event, at: int) -> None:
        """Number, date and chain an event."""
        body = encode(event)
        self.seq += 1
        self._head = link(self._head, self._run, self.seq, at, ev.EVENT_VERSION, body)
        line = LogLine(self.seq, at, ev.EVENT_VERSION, msgspec.Raw(body), self._head.hex())
        self._lines.append(line)

    def tell(self, kind: str, text: str) -> None:
        """Send a notice, once its events are in the log."""
        self._notices.append((kind, text))

    async def until_written(self, seq: int = 0) -> None:
        """Wait until the log holds everything up to here."""
        seq = seq or self.seq
        self._waiting += 1
        try:
            await workflow.wait_condition(lambda: self.written >= seq or bool(self.fork))
        finally:
            self._waiting -= 1
        if self.fork:
            raise ApplicationError(self.fork, type=FORK, non_retryable=True)

    async def drive(self, state: Callable[[], State], resting: Callable[[], bool]) -> None:
        """Write for ever; cancelled when the run continues as new or ends."""

        def due() -> bool:
            first = not self.written  # the starter of a run waits for it
            return first or len(self._lines) >= GATHERED_MAX or self._waiting > 0 or resting()

        while True:
            await workflow.wait_condition(lambda: bool(self._lines or self._notices))
            if not due():
                with suppress(asyncio.TimeoutError):
                    await workflow.wait_condition(due, timeout=self._ways.linger_s)
            await self._write(self._batch(state()))
            if self.fork:
                return

    def _batch(self, state: State) -> LogBatch:
        size = count = 0
        for line in self._lines[:BATCH_LINES_MAX]:
            size += len(bytes(line.body)) + 150
            if count and size > BATCH_BYTES_MAX:
                break
            count += 1
        lines, self._lines = self._lines[:count], self._lines[count:]
        if self._lines:
            return LogBatch(self._run, lines, heartbeat_s=self._ways.heartbeat_s)
        status, told = run_status(state), msgspec.Raw(b"null")
        changed = status != self._status or len(state.questions) != self._waiting
        if lines and (changed or lines[0].seq == 1 or state.ended is not None):
            told = msgspec.Raw(msgspec.json.encode(summary(state)))
            self._status, self._waiting = status, len(state.questions)
        notices, self._notices = self._notices, []
        return LogBatch(self._run, lines, told, notices, self._ways.heartbeat_s)

    async def _write(self, batch: LogBatch) -> None:
        ident = f"log {batch.lines[-1].seq} {batch.lines[-1].hash}" if batch.lines else "notices"
        try:
            await workflow.execute_activity(
                PROJECT,
                batch,
                activity_id=ident,
                task_queue=self._queue,
                start_to_close_timeout=timedelta(seconds=TRY_S),
                heartbeat_timeout=timedelta(seconds=self._ways.heartbeat_s),
                retry_policy=AGAIN,
            )
        except ActivityError as error:
            cause = error.cause
            if not isinstance(cause, ApplicationError) or cause.type != FORK:
                raise
            self.fork = cause.message
            return
        if batch.lines:
            self.written = batch.lines[-1].seq
