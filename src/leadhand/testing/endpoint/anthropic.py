"""Anthropic Messages: requests read, answers and errors written, as its own servers do.

A stream is message_start, then for each block its start, its deltas and its stop, then
message_delta with the reason and the tokens, then message_stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadhand.testing.endpoint.answers import Answer, Call, Event, pieces
from leadhand.testing.endpoint.replies import Fail
from leadhand.testing.endpoint.request import (
    Message,
    Parsed,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    json_or_text,
    text_of,
)

STOPS = {"end": "end_turn", "tools": "tool_use", "length": "max_tokens", "refusal": "refusal"}

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def read(body: Mapping[str, Any]) -> Parsed:
    """Parse the body of a request."""
    return Parsed(
        system=text_of(body.get("system")),
        messages=tuple(_message(each) for each in body.get("messages", ())),
        tools=tuple(
            Tool(each.get("name", ""), each.get("description", ""), each.get("input_schema"))
            for each in body.get("tools") or ()
        ),
        forced=_forced(body.get("tool_choice") or {}),
        schema=_schema(body),
    )


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        return Message(message["role"], content)
    blocks = list(content or ())
    return Message(
        message["role"],
        text_of([each for each in blocks if each.get("type") == "text"]),
        tuple(
            ToolCall(each["id"], each["name"], each["input"])
            for each in blocks
            if each.get("type") == "tool_use"
        ),
        tuple(
            ToolResult(
                each["tool_use_id"], text_of(each.get("content")), bool(each.get("is_error"))
            )
            for each in blocks
            if each.get("type") == "tool_result"
        ),
    )


def _forced(choice: Mapping[str, Any]) -> str:
    match choice.get("type"):
        case "tool":
            return str(choice["name"])
        case "any":
            return "*"
        case _:
            return ""


def _schema(body: Mapping[str, Any]) -> Any:
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format")
    return wanted.get("schema", {}) if wanted else None


def whole(request: Request, answer: Answer) -> dict[str, Any]:
    """Return an answer as one document."""
    content: list[Any] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [_block(call, _input(call)) for call in answer.calls]
    return {
        **_envelope(request),
        "content": content,
        "stop_reason": STOPS[answer.stop],
        "stop_details": _details(answer),
        "usage": _usage(answer, answer.output_tokens),
    }


def events(request: Request, answer: Answer) -> Iterator[Event]:
    """Yield an answer as the events of a stream."""
    message = {
        **_envelope(request),
        "content": [],
        "stop_reason": None,
        "usage": _usage(answer, 1),
    }
    yield _event("start", "message_start", message=message)
    yield _event("start", "ping")
    blocks: list[Call | None] = [None] if answer.text else []
    blocks += answer.calls
    for index, call in enumerate(blocks):
        if call is None:
            yield from _text(index, answer.text)
        else:
            yield from _call(index, call)
    ended = {
        "stop_reason": STOPS[answer.stop],
        "stop_sequence": None,
        "stop_details": _details(answer),
    }
    usage = _usage(answer, answer.output_tokens)
    yield _event("end", "message_delta", delta=ended, usage=usage)
    yield _event("end", "message_stop")


def _text(index: int, text: str) -> Iterator[Event]:
    block = {"type": "text", "text": ""}
    yield _event("start", "content_block_start", index=index, content_block=block)
    for piece in pieces(text):
        delta = {"type": "text_delta", "text": piece}
        yield _event("text", "content_block_delta", index=index, delta=delta)
    yield _event("start", "content_block_stop", index=index)


def _call(index: int, call: Call) -> Iterator[Event]:
    block = _block(call, {})
    yield _event("start", "content_block_start", index=index, content_block=block)
    for piece in ("", *pieces(call.arguments)):
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield _event("arguments", "content_block_delta", index=index, delta=delta)
    yield _event("start", "content_block_stop", index=index)


def error(fail: Fail, request: Request | None = None) -> dict[str, Any]:
    """Return the body of an error."""
    kind, message = ERRORS.get(fail.status, "api_error"), fail.message
    if fail.kind == "context_length":
        message = message or "prompt is too long: 214001 tokens > 200000 maximum"
    elif fail.kind == "quota":
        kind = "billing_error"
        message = message or "Your credit balance is too low to access this service."
    return {
        "type": "error",
        "error": {"type": kind, "message": message or _MESSAGES.get(fail.status, "scripted error")},
        "request_id": _request_id(request),
    }


_MESSAGES = {
    401: "invalid x-api-key",
    413: "Request exceeds the maximum size",
    429: "This request would exceed your rate limit",
    500: "Internal server error",
    529: "Overloaded",
}


def error_events(fail: Fail, request: Request, answer: Answer) -> Iterator[Event]:
    """Yield the events of an error that comes after the stream has begun."""
    yield next(events(request, answer))
    yield Event("end", error(fail, request), "error")


def headers(request: Request | None) -> dict[str, str]:
    """Return the headers that Anthropic's servers add to every response."""
    return {"request-id": _request_id(request)}


def models(names: list[str]) -> dict[str, Any]:
    """Return the list of models as a document."""
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2025-01-01T00:00:00Z",
        }
        for name in names
    ]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}


def _envelope(request: Request) -> dict[str, Any]:
    return {
        "id": f"msg_{request.number:06d}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "stop_sequence": None,
    }


def _usage(answer: Answer, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": answer.input_tokens - answer.cached_tokens - answer.written_tokens,
        "cache_creation_input_tokens": answer.written_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "output_tokens": output_tokens,
    }


def _details(answer: Answer) -> dict[str, Any] | None:
    if answer.stop != "refusal":
        return None
    return {"type": "refusal", "category": None, "explanation": answer.text or None}


def _block(call: Call, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.tool, "input": arguments}


def _input(call: Call) -> Any:
    """Whole answers hold an object here; half an object is none."""
    value = json_or_text(call.arguments)
    return value if isinstance(value, dict) else {}


def _event(part: Any, name: str, /, **data: Any) -> Event:
    return Event(part, {"type": name, **data}, name)


def _request_id(request: Request | None) -> str:
    return f"req_{request.number:06d}" if request else "req_none"
