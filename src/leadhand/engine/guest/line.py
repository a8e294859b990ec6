"""The line between a host and a process that drives a run beside it: documents, both ways.

It is a connection to the host's socket whose first request was `join`. From then on each side sends
frames: four bytes that say how long, then a JSON document. Either side may ask (`ask` has a number,
and `answer` the same one) or only tell.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand import errors
from leadhand.codec.events import escaped
from leadhand.errors import Conflict, LeadhandError, PlanInvalid
from leadhand.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.core.plan.model import Doc


FRAME_BYTES_MAX = 1 << 30
HEAD_BYTES = 4


class GuestLine:
    """One end of the line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self.closed = False

    def tell(self, kind: str, **details: Any) -> None:
        """Send something that has no answer; nothing happens once the line is closed."""
        self._send({"kind": kind, **details})

    async def ask(self, kind: str, *, wait_s: float | None = None, **details: Any) -> Any:
        """Send a request and wait for its answer, for ever or for `wait_s`.

        Raises the error that the other side answered with; Conflict when the line ends first, or
        nothing comes in time.
        """
        try:
            async with asyncio.timeout(wait_s):
                return await self.request(kind, **details)
        except TimeoutError:
            raise Conflict(
                "the process that drives the run does not answer. What was said may still be "
                "carried out"
            ) from None

    def request(self, kind: str, **details: Any) -> asyncio.Future[Any]:
        """Send a request; the future gives its answer."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_exception(_cut())
            return future
        self._asked[number] = future
        self._send({"kind": kind, "ask": number, **details})
        return future

    def answer(self, number: int, result: Any = None, error: BaseException | None = None) -> None:
        """Answer a request of the other side."""
        if error is None:
            self._send({"kind": "answer", "answer": number, "ok": result})
            return
        known = isinstance(error, LeadhandError)
        text = str(error) if known else f"cannot be done: {error!r}"
        name = type(error).__name__ if known else "UsageError"
        self._send({"kind": "answer", "answer": number, "error": text, "name": name})

    async def receive(self) -> Doc | None:
        """The next frame that is no answer; None at the end of the line."""
        while True:
            try:
                size = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
                if size > FRAME_BYTES_MAX:
                    return None
                frame: Doc = msgspec.json.decode(await self._reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError):
                return None
            if frame.get("kind") != "answer":
                return frame
            self._answered(frame)

    def _answered(self, frame: Doc) -> None:
        future = self._asked.pop(frame["answer"], None)
        if future is None or future.done():
            return
        if "error" in frame:
            future.set_exception(rebuilt(str(frame["name"]), str(frame["error"])))
        else:
            future.set_result(frame["ok"])

    def close(self) -> None:
        """End the line; whoever waits for an answer is told."""
        self.closed = True
        for future in self._asked.values():
            if not future.done():
                future.set_exception(_cut())
        self._asked.clear()
        with suppress(RuntimeError):  # the loop may be over
            self._writer.close()

    async def ended(self) -> None:
        """Wait until nothing of it is left, once it is closed."""
        with suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, doc: Doc) -> None:
        if self.closed:
            return
        data = msgspec.json.encode(escaped(doc))
        self._writer.write(len(data).to_bytes(HEAD_BYTES, "big") + data)


def rebuilt(name: str, message: str) -> LeadhandError:
    """The error that the other side met, by its name; a plain one when that is not known."""
    if name == PlanInvalid.__name__:
        return PlanInvalid([message])
    kind = getattr(errors, name, None)
    known = isinstance(kind, type) and issubclass(kind, LeadhandError)
    return kind(message) if kind is not None and known else LeadhandError(message)


def _cut() -> Conflict:
    return Conflict(
        "the process at the other end ended before it answered. What was said may still be "
        "carried out"
    )


def packed(entries: Sequence[Entry]) -> list[list[Any]]:
    """Entries of one run as a frame holds them."""
    return [[e.seq, e.at, e.version, e.body.decode(), e.hash.hex()] for e in entries]


def unpacked(run: str, rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """Entries of one run, out of a frame."""
    return [
        Entry(run, seq, at, version, body.encode(), bytes.fromhex(digest))
        for seq, at, version, body, digest in rows
    ]
