"""Names of artifacts: `sha256:` and the hash of the bytes, in hexadecimal."""

from __future__ import annotations

import re
from hashlib import sha256

from leadhand.errors import UsageError

_REF = re.compile(r"sha256:([0-9a-f]{64})")


def ref_of(data: bytes) -> str:
    """The name of some bytes."""
    return f"sha256:{sha256(data).hexdigest()}"


def is_ref(text: str) -> bool:
    """Whether a text could be a name."""
    return _REF.fullmatch(text) is not None


def digest_in(ref: str) -> str:
    """The hash in a name; UsageError when it is not one, so that no name can be a path."""
    found = _REF.fullmatch(ref)
    if found is None:
        raise UsageError(f"{ref[:100]!r} is not the name of an artifact")
    return found[1]
