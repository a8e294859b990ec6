"""One way to turn values into bytes and bytes into names.

`canonical` gives equal bytes for equal JSON-like values whatever the order of their keys, so
that a hash speaks of the content and not of its spelling. It trusts its input: msgspec writes
NaN as null and a set as a list, so whatever comes from outside passes `codec.values.plain` or
`codec.documents` first.

`digest` puts the length before each part. Without it ("ab", "c") and ("a", "bc") would have
one name, and an approval of the first would cover the second.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces."""
    return _ENCODER.encode(value)


def digest(*parts: bytes | str) -> str:
    """The SHA-256 of several parts, none of which can run into the next."""
    data = [part.encode() if isinstance(part, str) else part for part in parts]
    sized = b"".join([b"%016d%b" % (len(each), each) for each in data])
    return hashlib.sha256(sized).hexdigest()
