"""Canonical bytes of values, and digests of bytes.

`canonical` returns equal bytes for equal JSON-like values in any order of keys, so that a hash
covers the content and not its spelling. It trusts its input: msgspec writes NaN as null and a set
as a list, so values from outside pass `codec.values.plain` or `codec.documents` first.

`digest` puts the length before each part. Without it ("ab", "c") and ("a", "bc") would have the
same digest, and an approval of the first would cover the second.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(value: Any) -> bytes:
    """Return `value` as JSON with sorted keys and no spaces."""
    return _ENCODER.encode(value)


def digest(*parts: bytes | str) -> str:
    """Return the SHA-256 of several parts, with their boundaries."""
    sized = b""
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sized += b"%016d%b" % (len(data), data)
    return hashlib.sha256(sized).hexdigest()
