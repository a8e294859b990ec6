"""How a reply goes out: whole or streamed, at what pace, and where it is cut.

The wrapping replies are taken off from the outside, each leaving its mark; what is inside is
then an answer in the protocol's shape, an error, or bytes that are neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from leadhand.testing.endpoint import anthropic, chat, http, responses
from leadhand.testing.endpoint.answers import Answer, Event, answer_of
from leadhand.testing.endpoint.replies import (
    Cut,
    Fail,
    Garbage,
    Hang,
    Loop,
    Reply,
    Say,
    Slow,
    Wellformed,
)
from leadhand.testing.endpoint.request import Parsed, Request

JSON = {"content-type": "application/json"}
STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Dialect(Protocol):
    """What each protocol's module has."""

    def read(self, body: Mapping[str, Any]) -> Parsed: ...

    def whole(self, request: Request, answer: Answer) -> dict[str, Any]: ...

    def events(self, request: Request, answer: Answer) -> Iterator[Event]: ...

    def error(self, fail: Fail, request: Request | None = None) -> dict[str, Any]: ...

    def error_events(self, fail: Fail, request: Request, answer: Answer) -> Iterator[Event]: ...

    def headers(self, request: Request | None) -> dict[str, str]: ...

    def models(self, names: list[str]) -> dict[str, Any]: ...


DIALECTS: dict[str, Dialect] = {"anthropic": anthropic, "chat": chat, "responses": responses}


@dataclass(frozen=True)
class Manner:
    """What the wrapping replies ask for."""

    pace_s: float = 0.0
    cut: Cut | None = None


class Delivery:
    """One reply on one connection."""

    def __init__(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._request = request
        self._dialect = DIALECTS[request.protocol]
        self._reader = reader
        self._writer = writer
        self._headers = self._dialect.headers(request)

    async def send(self, reply: Reply, manner: Manner = Manner()) -> bool:  # noqa: B008 - frozen
        """Send a reply; whether the connection can be used again."""
        match reply:
            case Loop(reply=inner):
                return await self.send(inner, manner)
            case Slow(reply=inner, seconds_per_event=pace_s):
                return await self.send(inner, replace(manner, pace_s=pace_s))
            case Cut(reply=inner):
                return await self.send(inner, replace(manner, cut=reply))
            case Hang(seconds=seconds, then=then):
                gone = await http.hung_up(self._reader, seconds)
                return False if gone or then is None else await self.send(then, manner)
            case Garbage(content=content):
                kind = STREAM if self._request.stream else JSON
                return await self._whole(200, http.encode(content), kind, manner)
            case Fail():
                return await self._fail(reply, manner)
            case _:
                return await self._answer(reply, manner)

    async def _answer(self, reply: Wellformed, manner: Manner) -> bool:
        answer = answer_of(reply, self._request)
        if self._request.stream:
            return await self._stream(self._dialect.events(self._request, answer), manner)
        body = http.encode(self._dialect.whole(self._request, answer))
        return await self._whole(200, body, JSON, manner)

    async def _fail(self, fail: Fail, manner: Manner) -> bool:
        if fail.streamed and self._request.stream:
            answer = answer_of(Say(""), self._request)
            events = self._dialect.error_events(fail, self._request, answer)
            return await self._stream(events, manner)
        body = self._dialect.error(fail, self._request) if fail.body is None else fail.body
        more = dict(fail.headers)
        if fail.retry_after_s is not None:
            more["retry-after"] = f"{fail.retry_after_s:g}"
        return await self._whole(fail.status, http.encode(body), {**JSON, **more}, manner)

    async def _whole(
        self, status: int, body: bytes, headers: Mapping[str, str], manner: Manner
    ) -> bool:
        headers = {**self._headers, **headers}
        if manner.pace_s and await http.hung_up(self._reader, manner.pace_s):
            return False
        cut = manner.cut
        if cut is None:
            await http.write_whole(self._writer, status, body, headers)
            return True
        size = _size(cut, len(body))
        if cut.how == "end":
            await http.write_whole(self._writer, status, body[:size], headers)
            return True
        await http.write_whole(self._writer, status, body, headers, stop_at=size)
        return await self._broken(cut)

    async def _stream(self, events: Iterable[Event], manner: Manner) -> bool:
        cut = manner.cut
        chunks = [event.encode() for event in events] if cut is None else _kept(cut, list(events))
        ended = cut is None or cut.how == "end"
        headers = {**self._headers, **STREAM}
        paced = self._paced(chunks, manner.pace_s)
        await http.write_chunks(self._writer, headers, paced, ended=ended)
        return ended if cut is None or ended else await self._broken(cut)

    async def _paced(self, chunks: list[bytes], pace_s: float) -> AsyncIterator[bytes]:
        for chunk in chunks:
            if pace_s and await http.hung_up(self._reader, pace_s):
                raise ConnectionResetError("the client went away")
            yield chunk

    async def _broken(self, cut: Cut) -> bool:
        if cut.how == "hang":
            await http.hung_up(self._reader, None)
        return False


def _size(cut: Cut, whole: int) -> int:
    """How many bytes are kept; never all of them."""
    size = int(whole * cut.after) if cut.size is None else cut.size
    return max(0, min(size, whole - 1))


def _kept(cut: Cut, events: list[Event]) -> list[bytes]:
    chunks = [event.encode() for event in events]
    if cut.events is not None:
        return chunks[: cut.events]
    if cut.at:
        places = [index for index, event in enumerate(events) if event.part == cut.at]
        if places:
            return chunks[: places[0 if cut.at == "end" else len(places) // 2]]
    left, kept = _size(cut, sum(map(len, chunks))), []
    for chunk in chunks:
        kept.append(chunk[:left])
        left -= len(kept[-1])
    return kept
