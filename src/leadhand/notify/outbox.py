"""The outbox: messages are repeated with growing pauses until they arrive, and sent once.

Nothing here blocks or harms a run. With a file, a restart loses no message: what was to be sent and
what was sent are lines of JSON, and what was not sent is sent by the next process. The file holds
no signed link, since a message is made anew for each try: what is no longer asked is not sent.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.notify.channels import LIMIT_S, NotDelivered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leadhand.notify.channels import Channel
    from leadhand.notify.message import Message

    Make = Callable[["Delivery"], Awaitable[Message | None]]

PAUSES_S = (2.0, 10.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0)
"""The pauses before further tries: in all about four hours."""
AT_ONCE = 8
WAITING_MAX = 2_000
KEPT_MAX = 5_000
"""The number of sent messages that a new file remembers."""


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message to one address, by what it is about."""

    id: str
    """The same for each repetition; a sent one is not sent again."""
    channel: str
    to: str
    kind: str
    run: str
    text: str = ""
    question: str = ""
    item: str = ""
    """The digest of the item that a person is asked about."""
    person: str = ""
    """The person whose own address it is; empty: an address of `[notify]`."""


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the file."""

    put: Delivery | None = None
    sent: str = ""
    """The id of a delivery that arrived, or that is given up."""


class DeliveryFailure(NamedTuple):
    """The last failure of a channel."""

    channel: str
    text: str


class Outbox:
    """Delivers messages in the background."""

    def __init__(
        self,
        channels: dict[str, Channel],
        make: Make,
        say: Callable[[str], None],
        file: Path | None = None,
        pauses_s: tuple[float, ...] = PAUSES_S,
    ) -> None:
        """Create an outbox.

        - `make`: returns the message of a delivery, or None if it is not to be sent any more.
        - `say`: told of failures.
        - `file`: keeps deliveries across restarts; None: in memory only.
        """
        self.channels = channels
        self.failures: dict[str, DeliveryFailure] = {}
        """By channel, the failure that was not followed by a success."""
        self._make = make
        self._say = say
        self._file = file
        self._pauses_s = pauses_s
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(AT_ONCE)

    def load(self) -> None:
        """Take up what an earlier process left; call in the loop."""
        if self._file is None:
            return
        left: dict[str, Delivery] = {}
        sent: list[str] = []
        for line in _lines(self._file):
            if line.put is not None:
                left[line.put.id] = line.put
            elif line.sent:
                left.pop(line.sent, None)
                sent.append(line.sent)
        sent = sent[-KEPT_MAX:]
        self._known.update(sent)
        self._rewrite([_Line(sent=each) for each in sent])
        for each in left.values():
            self.put(each)

    def put(self, delivery: Delivery) -> None:
        """Deliver a message unless it is under way or was sent; returns at once."""
        if delivery.id in self._known or delivery.channel not in self.channels:
            return
        if len(self._tasks) >= WAITING_MAX:
            self._say(f"notify: too many messages wait; one about run {delivery.run} is not sent")
            return
        self._known.add(delivery.id)
        self._write(_Line(put=delivery))
        task = asyncio.get_running_loop().create_task(self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def finish(self, limit_s: float = LIMIT_S + 1) -> None:
        """Wait for deliveries in progress, then stop; a file keeps what is left."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        await self.close()

    async def close(self) -> None:
        """Stop at once; a file keeps what is left."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"notify: {type(error).__name__}: {error}")

    async def _deliver(self, delivery: Delivery) -> None:
        channel = self.channels[delivery.channel]
        for pause_s in (*self._pauses_s, None):
            try:
                async with self._gate:
                    message = await self._make(delivery)
                    if message is not None:
                        await channel.send(delivery.to, message)
            except NotDelivered as error:
                if not self._again(delivery, error, pause_s):
                    break
                await asyncio.sleep(max(pause_s or 0.0, error.after_s))
                continue
            if message is not None:
                self.failures.pop(delivery.channel, None)
            self._write(_Line(sent=delivery.id))
            return
        self._known.discard(delivery.id)  # the next process tries again
        if delivery.kind == "ended" or not delivery.person:
            self._write(_Line(sent=delivery.id))

    def _again(self, delivery: Delivery, error: NotDelivered, pause_s: float | None) -> bool:
        """Say that a try failed; return whether there will be another."""
        more = pause_s is not None and not error.final
        whom = f"{delivery.channel} to {delivery.person}: " if delivery.person else ""
        said = "it is tried again" if more else "it is given up"
        # A channel that stays down is named once.
        if delivery.channel not in self.failures or not more:
            self._say(f"notify: {whom}{error}; {said}")
        self.failures[delivery.channel] = DeliveryFailure(delivery.channel, str(error))
        return more

    def _write(self, line: _Line) -> None:
        if self._file is None:
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with os.fdopen(os.open(self._file, flags, 0o600), "wb") as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            self._say(f"notify: {self._file}: cannot be written: {error.strerror}")

    def _rewrite(self, lines: list[_Line]) -> None:
        assert self._file is not None
        beside = self._file.with_name(f".{self._file.name}.new")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            os.replace(beside, self._file)  # noqa: PTH105 - the one that replaces on every system
        except OSError as error:
            self._say(f"notify: {self._file}: cannot be written: {error.strerror}")


def _lines(file: Path) -> list[_Line]:
    """Return the readable lines; a line torn by a crash is ignored."""
    try:
        data = file.read_bytes()
    except OSError:
        return []
    found = []
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=_Line))
        except msgspec.DecodeError:
            continue
    return found
