"""Messages in which providers and tools say that a limit is reached, with what each one means.

`limit_messages.json` has for each the thread or project in which it was seen, the instant at which
it was said, the zone of the machine that said it, the message, and the instant at which the limit
ends (null: the message does not tell it to the minute, so it must be refused).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Said(NamedTuple):
    """One message."""

    source: str
    now: str
    zone: str
    message: str
    ends: str | None


MESSAGES = tuple(
    Said(**each)
    for each in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
)
