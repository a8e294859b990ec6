"""Payloads: values cross to Temporal and back as JSON, and nothing else.

Every payload is JSON by our own codec. A large one is compressed; one that is still large is stored
beside the log as an artifact, and its reference crosses. That happens outside the workflow, and an
artifact is named by its content, so a replay sees the same. Nothing above the limit ever reaches
the server, which refuses payloads of 2 MB.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    BinaryNullPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
    PayloadCodec,
)

from leadhand.codec.events import escape_surrogates
from leadhand.errors import StoreCorrupt, UsageError

INLINE_BYTES_MAX = 16 << 10
"""Above this a payload is compressed."""
CROSSING_BYTES_MAX = 512 << 10
"""Above this, compressed, it is an artifact. A message may hold several, and at most 4 MB."""
WHOLE_BYTES_MAX = 256 << 20
"""The maximum size of a payload, however well it compresses."""

DEFLATED = b"binary/leadhand-deflated"
APART = b"binary/leadhand-artifact"


class Shelf(Protocol):
    """Storage for large payloads; a store has this interface."""

    def put_artifact(self, data: bytes) -> str:
        """Store bytes; return their name."""

    def get_artifact(self, ref: str) -> bytes:
        """Return the bytes of an artifact."""


class JsonConverter(EncodingPayloadConverter):
    """Converts values to JSON and back, by msgspec; the type determines what is read."""

    @property
    def encoding(self) -> str:
        """The encoding that payloads declare."""
        return "json/plain"

    def to_payload(self, value: Any) -> Payload:
        """Return a value as JSON, with lone surrogates escaped."""
        try:
            data = msgspec.json.encode(value)
        except UnicodeEncodeError:
            data = msgspec.json.encode(escape_surrogates(msgspec.to_builtins(value)))
        return Payload(metadata={"encoding": b"json/plain"}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Return the value as the expected type; anything else is refused."""
        return msgspec.json.decode(payload.data, type=Any if type_hint is None else type_hint)


class LeadhandPayloads(CompositePayloadConverter):
    """Null, or JSON."""

    def __init__(self) -> None:
        super().__init__(BinaryNullPayloadConverter(), JsonConverter())


class Sized(PayloadCodec):
    """Keeps payloads small: compressed, or stored separately."""

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return payloads that the server accepts."""
        return [await self._smaller(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return the original payloads."""
        return [await self._whole(payload) for payload in payloads]

    async def _smaller(self, payload: Payload) -> Payload:
        if len(payload.data) <= INLINE_BYTES_MAX:
            return payload
        raw = payload.SerializeToString()
        if len(raw) > WHOLE_BYTES_MAX:
            raise UsageError(f"a payload of {len(raw)} bytes; at most {WHOLE_BYTES_MAX} can cross")
        small = await asyncio.to_thread(zlib.compress, raw, 1)
        if len(small) <= CROSSING_BYTES_MAX:
            return Payload(metadata={"encoding": DEFLATED}, data=small)
        if self._shelf is None:
            raise UsageError(
                f"a payload of {len(small)} bytes, deflated, needs a store to be put into. "
                "Fix: give --store, the same one that the others have"
            )
        ref = await asyncio.to_thread(self._shelf.put_artifact, small)
        return Payload(metadata={"encoding": APART}, data=ref.encode())

    async def _whole(self, payload: Payload) -> Payload:
        kind = payload.metadata.get("encoding")
        if kind not in (DEFLATED, APART):
            return payload
        small = payload.data
        if kind == APART:
            if self._shelf is None:
                raise UsageError("a payload was put into a store, and none is given here")
            small = await asyncio.to_thread(self._shelf.get_artifact, payload.data.decode())
        return Payload.FromString(await asyncio.to_thread(_inflated, small))


def _inflated(small: bytes) -> bytes:
    work = zlib.decompressobj()
    raw = work.decompress(small, WHOLE_BYTES_MAX)
    if work.unconsumed_tail:
        raise StoreCorrupt("a payload is larger than any that was written")
    return raw


def converter(shelf: Shelf | None = None) -> DataConverter:
    """Return the data converter of clients and workers that share a store."""
    return DataConverter(payload_converter_class=LeadhandPayloads, payload_codec=Sized(shelf))
