"""Requests to a model and its answers, in one form for all providers: plain, frozen, JSON.

A conversation is a system text and turns. The last turn is ours: a text, or the results of tools
that the model called. The answer is a text, tool calls, or data in the requested form, never part
of one: a truncated answer is a failure, not an answer.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class ToolDef(msgspec.Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of its arguments object."""


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool that a model asks for. `arguments` is JSON as the model wrote it."""

    id: str
    tool: str
    arguments: Any


class UserMessage(msgspec.Struct, frozen=True, tag="told", omit_defaults=True):
    """A text of ours."""

    text: str
    stable: int = 0
    """How many of its first characters come again in later questions: a cache may end there."""


class AssistantMessage(msgspec.Struct, frozen=True, tag="said", omit_defaults=True):
    """An earlier answer of the model."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The result of a tool call as text: data, never an instruction."""

    id: str
    tool: str
    text: str


Turn = UserMessage | AssistantMessage | Result


class ModelRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One question."""

    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolDef, ...] = ()
    schema: dict[str, Any] | None = None
    """JSON Schema of the data wanted; goes with no tools."""
    must_call: bool = False
    """Whether it has to call one of the tools."""
    max_tokens: int = 4096
    temperature: float | None = None
    timeout_s: float = 120.0


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one call, as the provider counted them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


class ModelAnswer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One complete answer of a model."""

    text: str = ""
    data: Any = None
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    """Which model answered, by the name it is known by here."""
    cost: float = 0.0

    def turn(self) -> AssistantMessage:
        """Return the answer as a turn of the conversation."""
        return AssistantMessage(self.text, self.calls)


class Listener(Protocol):
    """Hears the text of an answer while it comes."""

    def __call__(self, piece: str, /) -> None: ...


class Model(Protocol):
    """Anything that can be asked: a provider's model, a script, a tape."""

    name: str

    async def ask(self, request: ModelRequest, heard: Listener | None = None) -> ModelAnswer:
        """Return the complete answer. Raise `ModelFailure` if there is none."""
