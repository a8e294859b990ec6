"""What a tool gave back, as a model is shown it: data between two marks.

The mark is a digest of the data itself, so nobody can write data that holds its own end mark. It
is the same for the same data: what was recorded can be replayed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.codec.values import plain
from leadhand.core.hashing import digest
from leadhand.models.secret_patterns import scrub

RESULT_CHARS_MAX = 20_000
"""What a model is shown of one result; the rest is left out, and that is said."""
READ_CHARS_MAX = 1_000_000
"""What is looked through for secrets of one result: far more than is shown."""
MARK_CHARS = 16


def as_text(value: Any) -> str:
    """A tool's result as text: itself, or its JSON."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(plain(value)).decode()
    except (ValueError, TypeError):
        return str(value)


def shortened(text: str, most: int) -> str:
    """A text of at most that length, its middle left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def marked(source: str, text: str, most: int = RESULT_CHARS_MAX) -> str:
    """A text from outside, without what looks like a secret, between marks it cannot know."""
    data = shortened(scrub(shortened(text, READ_CHARS_MAX)), most)
    mark = digest("untrusted", source, data)[:MARK_CHARS]
    return f'<data from="{source}" mark="{mark}">\n{data}\n</data mark="{mark}">'
