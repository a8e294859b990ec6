"""The outbox: messages are repeated with growing pauses until they arrive, and sent once.

Nothing here blocks or harms a run. With a file, a restart loses no message: what was to be sent and
what was sent are lines of JSON, and what was not sent is sent by the next process. The file holds
no signed link, since a message is made anew for each try: what is no longer asked is not sent.

Several servers may share the file. Each try begins with a claim, written under a lock: while a
claim lasts, and once the message was sent, no other process sends it. A process that dies in the
middle of a try leaves its claim behind; when that ends, another process sends the message again,
with the same id, since the first may not have arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.notify.channels import LIMIT_S, NotDelivered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
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
TRY_S = LIMIT_S * 4
"""A try that takes longer has failed: the message is made and sent within it."""
LOOK_S = 0.5
"""How often a message that another process is sending is looked at."""
CLAIM_S = TRY_S * 2
"""How long the claim of a process that has died keeps others from sending the message."""


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


class _Claim(msgspec.Struct, frozen=True):
    """A process that is sending a delivery."""

    id: str
    by: str
    until: float
    """Seconds since the epoch; 0: the try is over."""


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the file."""

    put: Delivery | None = None
    claim: _Claim | None = None
    sent: str = ""
    """The id of a delivery that arrived, or that is given up."""


class _DeliveryFile:
    """The file of an outbox, which other processes may use at the same time."""

    def __init__(self, path: Path, claim_s: float) -> None:
        self.left: dict[str, Delivery] = {}
        """What was put and not sent."""
        self.sent: dict[str, None] = {}
        """What was sent or given up, the oldest first."""
        self._path = path
        self._claim_s = claim_s
        self._by = secrets.token_hex(8)
        self._claims: dict[str, _Claim] = {}
        self._inode, self._read = -1, 0

    def put(self, delivery: Delivery) -> None:
        """Keep what is to be sent, once."""
        with self._locked():
            if delivery.id not in self.left and delivery.id not in self.sent:
                self._append(_Line(put=delivery))

    def claim(self, ident: str) -> float | None:
        """Claim a delivery for one try, and return 0; None if it was sent.

        If another process is sending it, return after how many seconds its claim ends.
        """
        with self._locked():
            if ident in self.sent:
                return None
            other, now = self._claims.get(ident), time.time()
            # A claim that lasts longer than any claim is of a clock that was set back since.
            if other is not None and other.by != self._by and 0 < other.until - now <= CLAIM_S:
                return other.until - now
            self._append(_Line(claim=_Claim(ident, self._by, now + self._claim_s)))
            return 0.0

    def release(self, ident: str) -> None:
        """End the claim of a try that failed."""
        with self._locked():
            self._append(_Line(claim=_Claim(ident, self._by, 0.0)))

    def finish(self, ident: str) -> None:
        """Keep that a delivery was sent, or is given up."""
        with self._locked():
            self._append(_Line(sent=ident))

    def compact(self) -> None:
        """Write the file anew, without what is no longer needed."""
        with self._locked():
            lines = [_Line(sent=each) for each in [*self.sent][-KEPT_MAX:]]
            lines += [_Line(put=each) for each in self.left.values()]
            lines += [_Line(claim=self._claims[each]) for each in self.left if each in self._claims]
            beside = self._path.with_name(f".{self._path.name}.new")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            os.replace(beside, self._path)  # noqa: PTH105 - the one that replaces on every system

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file, and know all that other processes wrote."""
        beside = self._path.with_name(f"{self._path.name}.lock")
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._catch_up()
            yield
        finally:
            os.close(lock)

    def _catch_up(self) -> None:
        """Read what is new in the file; all of it if another process has written it anew."""
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._read = inode, 0
                    self.left, self.sent, self._claims = {}, {}, {}
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        self._read += len(data)
        for line in _lines(data):
            self._take(line)

    def _take(self, line: _Line) -> None:
        if line.put is not None and line.put.id not in self.sent:
            self.left[line.put.id] = line.put
        elif line.claim is not None:
            self._claims[line.claim.id] = line.claim
        elif line.sent:
            self.left.pop(line.sent, None)
            self._claims.pop(line.sent, None)
            self.sent[line.sent] = None

    def _append(self, line: _Line) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            torn = b""
            if end:
                file.seek(end - 1)
                torn = b"" if file.read(1) == b"\n" else b"\n"
            file.write(torn + msgspec.json.encode(line) + b"\n")
            found = os.fstat(file.fileno())
        self._inode, self._read = found.st_ino, found.st_size
        self._take(line)


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
        claim_s: float = CLAIM_S,
    ) -> None:
        """Create an outbox.

        - `make`: returns the message of a delivery, or None if it is not to be sent any more.
        - `say`: told of failures.
        - `file`: keeps deliveries across restarts, also for other processes; None: in memory only.
        - `claim_s`: how long a try keeps other processes from sending the same message.
        """
        self.channels = channels
        self.failures: dict[str, DeliveryFailure] = {}
        """By channel, the failure that was not followed by a success."""
        self._make = make
        self._say = say
        self._file = _DeliveryFile(file, claim_s) if file is not None else None
        self._path = file
        self._pauses_s = pauses_s
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(AT_ONCE)

    def load(self) -> None:
        """Take up what an earlier process left; call in the loop."""
        if self._file is None:
            return
        with self._says_trouble():
            self._file.compact()
        self._known.update(self._file.sent)
        for each in list(self._file.left.values()):
            self.put(each)

    def put(self, delivery: Delivery) -> None:
        """Deliver a message unless it is under way or was sent; returns at once."""
        if delivery.id in self._known or delivery.channel not in self.channels:
            return
        if len(self._tasks) >= WAITING_MAX:
            self._say(f"notify: too many messages wait; one about run {delivery.run} is not sent")
            return
        self._known.add(delivery.id)
        if self._file is not None:
            with self._says_trouble():
                self._file.put(delivery)
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
        for pause_s in (*self._pauses_s, None):
            try:
                await self._send_once(delivery)
            except NotDelivered as error:
                if not self._again(delivery, error, pause_s):
                    break
                await asyncio.sleep(max(pause_s or 0.0, error.after_s))
                continue
            return
        self._known.discard(delivery.id)  # the next process tries again
        if delivery.kind == "ended" or not delivery.person:
            self._finish(delivery)

    async def _send_once(self, delivery: Delivery) -> None:
        """Send a message, unless another process has; wait while another process tries to."""
        while True:
            async with self._gate:
                wait_s = self._claim(delivery)
                if wait_s is None:
                    return
                if not wait_s:
                    await self._try(delivery)
                    return
            await asyncio.sleep(min(wait_s, LOOK_S))

    async def _try(self, delivery: Delivery) -> None:
        sent = False
        try:
            async with asyncio.timeout(TRY_S):
                message = await self._make(delivery)
                if message is not None:
                    await self.channels[delivery.channel].send(delivery.to, message)
            sent = True
        except TimeoutError:
            raise NotDelivered(f"{delivery.channel}: no end within {TRY_S:g} s") from None
        finally:
            if not sent and self._file is not None:
                with self._says_trouble():
                    self._file.release(delivery.id)
        if message is not None:
            self.failures.pop(delivery.channel, None)
        self._finish(delivery)

    def _claim(self, delivery: Delivery) -> float | None:
        """Return 0 if the message may be sent now; see `_DeliveryFile.claim`."""
        if self._file is not None:
            with self._says_trouble():
                return self._file.claim(delivery.id)
        return 0.0  # a file that cannot be written stops no message

    def _finish(self, delivery: Delivery) -> None:
        if self._file is not None:
            with self._says_trouble():
                self._file.finish(delivery.id)

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

    @contextlib.contextmanager
    def _says_trouble(self) -> Iterator[None]:
        """Say what the file cannot do; the messages are sent all the same."""
        try:
            yield
        except OSError as error:
            self._say(f"notify: {self._path}: cannot be used: {error.strerror}")


def _lines(data: bytes) -> list[_Line]:
    """Return the readable lines; a line torn by a crash is ignored."""
    found = []
    for line in data.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=_Line))
        except msgspec.DecodeError:
            continue
    return found
