"""A request as the script sees it: the same form for every provider.

`body` keeps what was really sent. Headers hide their secrets when they are shown, so that a
failing test does not print a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Protocol = Literal["anthropic", "chat", "responses"]

SECRET_HEADERS = frozenset(
    {"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key", "x-goog-api-key"}
)


class Headers(Mapping[str, str]):
    """Headers by name, without regard to case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def __getitem__(self, name: str) -> str:
        return self._given[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def shown(self) -> dict[str, str]:
        """Return all headers with secrets removed."""
        return {k: "(hidden)" if k in SECRET_HEADERS else v for k, v in self._given.items()}

    def __repr__(self) -> str:
        return f"Headers({self.shown()})"


@dataclass(frozen=True)
class Tool:
    """A tool that the request offers."""

    name: str
    description: str = ""
    schema: Any = field(default=None, repr=False)
    custom: bool = False
    """It takes a text as it stands, no JSON."""
    namespace: str = ""
    """The group that the request offers it in; `name` begins with it, as in `GROUP__NAME`."""


@dataclass(frozen=True)
class ToolCall:
    """A call that the model made earlier in the conversation."""

    id: str
    tool: str
    arguments: Any


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call."""

    id: str
    text: str
    failed: bool = False


@dataclass(frozen=True)
class Message:
    """One message of the conversation."""

    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True)
class Parsed:
    """The content of a request, independent of the protocol."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    forced: str
    """The tool that must be called; `*` for any of them; empty for none."""
    schema: Any
    """The schema that the answer's text must keep to; `{}` for any JSON; None for words."""


@dataclass(frozen=True)
class Request(Parsed):
    """A request for an answer of a model."""

    number: int
    """How many came before it."""
    protocol: Protocol
    path: str
    model: str
    stream: bool
    headers: Headers
    body: Mapping[str, Any] = field(repr=False)
    size: int
    """Bytes of the body."""
    at: float = 0.0
    """When it had arrived, on the monotonic clock of the event loop."""

    @property
    def text(self) -> str:
        """Return the text of the last message."""
        return self.messages[-1].text if self.messages else ""

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Return the tools' results since the model's last answer."""
        found: list[ToolResult] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            found[:0] = message.results
        return tuple(found)

    @property
    def turns(self) -> int:
        """Return how many answers of the model this conversation holds."""
        return sum(message.role == "assistant" for message in self.messages)


def text_of(content: Any) -> str:
    """Return the text of a content: a string, or the text parts of a list."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return str(content.get("text", content.get("refusal", "")))
    return "\n".join(filter(None, map(text_of, content)))


def json_or_text(value: Any) -> Any:
    """Return the value of a JSON text, or the text itself if it is no JSON."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
