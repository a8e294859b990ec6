"""Answers from replies, which each protocol then writes in its own form.

An answer is words, calls, why it stopped, and what it cost. Its text and its calls' arguments
are cut into pieces for streaming; pieces are many enough to be a stream and few enough that a
huge answer is quick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from leadhand.testing.endpoint.replies import (
    Data,
    Huge,
    Refuse,
    Say,
    Truncated,
    Usage,
    Use,
    Uses,
    Wellformed,
)
from leadhand.testing.endpoint.request import Request

PIECE_CHARS = 12
PIECES_MAX = 100
OUTPUT_TOOL = "final_result"
WORDS = "all work and no play makes a long answer, and "


@dataclass(frozen=True)
class Call:
    """A call of a tool; its arguments are a text."""

    id: str
    tool: str
    arguments: str
    custom: bool = False
    namespace: str = ""
    """The group of the tool, which its name begins with."""


@dataclass(frozen=True)
class Answer:
    """The model's answer, independent of the protocol."""

    text: str
    calls: tuple[Call, ...]
    stop: Literal["end", "tools", "length", "refusal"]
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    written_tokens: int = 0


@dataclass(frozen=True)
class Event:
    """One event of a stream, and which part of the answer it carries."""

    part: Literal["start", "text", "arguments", "end"]
    data: Any
    name: str = ""

    def encode(self) -> bytes:
        """Return the event as bytes of a stream."""
        data = self.data if isinstance(self.data, str) else dumps(self.data)
        name = f"event: {self.name}\n" if self.name else ""
        return f"{name}data: {data}\n\n".encode(errors="replace")


def answer_of(reply: Wellformed, request: Request) -> Answer:
    """Return the answer to `request` that a reply stands for."""
    match reply:
        case Say(text=text, usage=usage):
            return _answer(request, usage, text)
        case Use():
            return _answer(request, reply.usage, reply.text, (reply,))
        case Uses():
            return _answer(request, reply.usage, reply.text, tuple(reply.calls))
        case Data():
            return _structured(reply, request)
        case Huge(n_chars=n_chars, usage=usage):
            text = (WORDS * (n_chars // len(WORDS) + 1))[:n_chars]
            return _answer(request, usage, text)
        case Refuse(text=text, usage=usage):
            return _answer(request, usage, text, stop="refusal")
        case Truncated():
            calls: tuple[Use, ...] = ()
            if reply.call is not None:
                whole = _arguments(reply.call)
                calls = (Use(reply.call.tool, whole[: len(whole) // 2]),)
            return _answer(request, reply.usage, reply.text, calls, stop="length")
        case _:
            assert_never(reply)


def _structured(reply: Data, request: Request) -> Answer:
    tool = reply.tool or _output_tool(request)
    if tool:
        value = reply.value if isinstance(reply.value, dict) else dumps(reply.value)
        return _answer(request, reply.usage, "", (Use(tool, value),))
    return _answer(request, reply.usage, dumps(reply.value))


def _output_tool(request: Request) -> str:
    if request.schema is not None:
        return ""
    if request.forced and request.forced != "*":
        return request.forced
    names = [tool.name for tool in request.tools]
    if request.forced and len(names) == 1:
        return names[0]
    return OUTPUT_TOOL if OUTPUT_TOOL in names else ""


def _answer(
    request: Request,
    usage: Usage,
    text: str,
    uses: tuple[Use, ...] = (),
    *,
    stop: Literal["end", "length", "refusal"] = "end",
) -> Answer:
    offered = {tool.name: tool for tool in request.tools}
    calls = tuple(
        Call(
            f"call_{request.number:04d}_{index}",
            use.tool,
            _arguments(use),
            custom=use.tool in offered and offered[use.tool].custom,
            namespace=offered[use.tool].namespace if use.tool in offered else "",
        )
        for index, use in enumerate(uses)
    )
    said = len(text) + sum(len(call.tool) + len(call.arguments) for call in calls)
    return Answer(
        text=text,
        calls=calls,
        stop="tools" if calls and stop == "end" else stop,
        input_tokens=tokens(request.size) if usage.input is None else usage.input,
        output_tokens=tokens(said) if usage.output is None else usage.output,
        cached_tokens=usage.cached,
        written_tokens=usage.written,
    )


def _arguments(use: Use) -> str:
    return use.arguments if isinstance(use.arguments, str) else dumps(use.arguments)


def tokens(chars: int) -> int:
    """About how many tokens so many characters are."""
    return max(1, chars // 4)


def pieces(text: str) -> Iterator[str]:
    """Yield a text in the pieces in which it is streamed."""
    size = max(PIECE_CHARS, -(-len(text) // PIECES_MAX))
    return (text[at : at + size] for at in range(0, len(text), size))


def dumps(value: Any) -> str:
    """JSON on one line, as an event wants it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
