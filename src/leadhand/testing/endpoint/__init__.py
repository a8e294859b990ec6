"""A local endpoint that answers as a script says, correctly or not: see `server`, `replies`.

    from leadhand.testing.endpoint import Endpoint, Say, Use

`python -m leadhand.testing.endpoint SCRIPT.json` runs one as a process of its own.
"""

from leadhand.testing.endpoint.replies import (
    Cut,
    Data,
    Fail,
    Garbage,
    Hang,
    Huge,
    Loop,
    Refuse,
    Reply,
    Say,
    Slow,
    Truncated,
    Usage,
    Use,
    Uses,
    Wrong,
)
from leadhand.testing.endpoint.request import Message, Request, Tool, ToolCall, ToolResult
from leadhand.testing.endpoint.server import Endpoint

__all__ = [
    "Cut",
    "Data",
    "Endpoint",
    "Fail",
    "Garbage",
    "Hang",
    "Huge",
    "Loop",
    "Message",
    "Refuse",
    "Reply",
    "Request",
    "Say",
    "Slow",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Truncated",
    "Usage",
    "Use",
    "Uses",
    "Wrong",
]
