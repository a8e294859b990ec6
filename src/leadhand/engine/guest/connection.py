"""The connection between a host and a guest: documents in both directions.

It is a connection to the host's socket whose first request was `join`. From then on each side sends
frames: four bytes of length, then a JSON document. Either side may ask (`ask` has a number, and
`answer` the same one) or only tell.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand import errors
from leadhand.codec.events import escape_surrogates
from leadhand.errors import Conflict, LeadhandError, PlanInvalid
from leadhand.ports import Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.core.plan.model import Doc


FRAME_BYTES_MAX = 1 << 30
HEAD_BYTES = 4


class GuestLine:
    """One end of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self.closed = False

    def tell(self, kind: str, **details: Any) -> None:
        """Send a message without an answer; do nothing once the connection is closed."""
        self._send({"kind": kind, **details})

    async def ask(self, kind: str, *, wait_s: float | None = None, **details: Any) -> Any:
        """Send a request and wait for its answer, for ever or for `wait_s` seconds.

        Raise the error that the other side answered with, or `Conflict` if the connection ends
        first or no answer comes in time.
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
        """Send a request; return the future of its answer."""
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
        """Return the next frame that is no answer; None at the end of the connection."""
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
            future.set_exception(error_from(str(frame["name"]), str(frame["error"])))
        else:
            future.set_result(frame["ok"])

    def close(self) -> None:
        """Close the connection; fail all pending requests."""
        self.closed = True
        for future in self._asked.values():
            if not future.done():
                future.set_exception(_cut())
        self._asked.clear()
        with suppress(RuntimeError):  # the loop may have ended
            self._writer.close()

    async def ended(self) -> None:
        """Wait until a closed connection is completely gone."""
        with suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, doc: Doc) -> None:
        if self.closed:
            return
        data = msgspec.json.encode(escape_surrogates(doc))
        self._writer.write(len(data).to_bytes(HEAD_BYTES, "big") + data)


def error_from(name: str, message: str) -> LeadhandError:
    """Return the other side's error by its name; a `LeadhandError` if the name is unknown."""
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


def pack_entries(entries: Sequence[Entry]) -> list[list[Any]]:
    """Return entries of one run in the form of a frame."""
    return [[e.seq, e.at, e.version, e.body.decode(), e.hash.hex()] for e in entries]


def unpack_entries(run: str, rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """Return the entries of one run from a frame."""
    return [
        Entry(run, seq, at, version, body.encode(), bytes.fromhex(digest))
        for seq, at, version, body, digest in rows
    ]
