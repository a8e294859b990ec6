"""OpenAI Chat Completions: requests read, answers written; many other servers speak it too.

A stream is chunks, each with a delta; the reason to stop comes with an empty delta, the tokens
in a chunk of their own if they were asked for, and the word [DONE] ends it.
"""

from __future__ import annotations

import time
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

# Errors of OpenAI, which Chat Completions and Responses share.


ERRORS: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", None, "You are not allowed to do that."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    413: ("invalid_request_error", None, "The request is too large."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    503: ("service_unavailable_error", "server_is_overloaded", "The engine is overloaded."),
}
SERVER_ERROR = ("server_error", "server_error", "The server had an error.")


def error(fail: Fail, request: Request | None = None) -> dict[str, Any]:
    """Return the body of an error."""
    kind, code, message = ERRORS.get(fail.status, SERVER_ERROR)
    param = None
    if fail.kind == "context_length":
        code, param = "context_length_exceeded", "messages"
        message = "This model's maximum context length is 128000 tokens; you sent 140022."
        if request is not None and request.protocol == "responses":
            param, message = "input", "Your input exceeds the context window of this model."
    elif fail.kind == "quota":
        kind = code = "insufficient_quota"
        message = "You exceeded your current quota; check your plan and billing details."
    return {
        "error": {"message": fail.message or message, "type": kind, "param": param, "code": code}
    }


def headers(request: Request | None) -> dict[str, str]:
    """Return the headers that OpenAI's servers add to every response."""
    return {"x-request-id": f"req_{request.number:06d}" if request else "req_none"}


def models(names: list[str]) -> dict[str, Any]:
    """Return the list of models as a document."""
    data = [
        {"id": name, "object": "model", "created": 1735689600, "owned_by": "script"}
        for name in names
    ]
    return {"object": "list", "data": data}


STOPS = {"end": "stop", "tools": "tool_calls", "length": "length", "refusal": "content_filter"}
SYSTEM = ("system", "developer")


def read(body: Mapping[str, Any]) -> Parsed:
    """Parse the body of a request."""
    messages = body.get("messages") or ()
    system = [text_of(each.get("content")) for each in messages if each["role"] in SYSTEM]
    return Parsed(
        system="\n".join(system),
        messages=tuple(_message(each) for each in messages if each["role"] not in SYSTEM),
        tools=tuple(_tool(each) for each in body.get("tools") or ()),
        forced=_forced(body.get("tool_choice")),
        schema=_schema(body.get("response_format") or {}),
    )


def _message(message: Mapping[str, Any]) -> Message:
    text = text_of(message.get("content")) or text_of(message.get("refusal"))
    if message["role"] == "tool":
        return Message("tool", "", (), (ToolResult(message["tool_call_id"], text),))
    calls = [
        ToolCall(
            each["id"], each["function"]["name"], json_or_text(each["function"].get("arguments"))
        )
        for each in message.get("tool_calls") or ()
        if each.get("type", "function") == "function"
    ]
    return Message(message["role"], text, tuple(calls))


def _tool(tool: Mapping[str, Any]) -> Tool:
    known = tool.get(str(tool.get("type"))) or {}
    return Tool(known.get("name", ""), known.get("description", ""), known.get("parameters"))


def _forced(choice: Any) -> str:
    match choice:
        case "required":
            return "*"
        case {"type": "function", "function": {"name": name}}:
            return str(name)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}:
            return str(tools[0]["function"]["name"]) if len(tools) == 1 else "*"
        case _:
            return ""


def _schema(wanted: Mapping[str, Any]) -> Any:
    match wanted.get("type"):
        case "json_schema":
            return wanted["json_schema"].get("schema", {})
        case "json_object":
            return {}
        case _:
            return None


def whole(request: Request, answer: Answer) -> dict[str, Any]:
    """Return an answer as one document."""
    refused = answer.stop == "refusal"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused else answer.text or None,
        "refusal": answer.text if refused else None,
    }
    if answer.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in answer.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": STOPS[answer.stop],
    }
    return {
        **_envelope(request, "chat.completion"),
        "choices": [choice],
        "usage": _usage(answer),
    }


def events(request: Request, answer: Answer) -> Iterator[Event]:
    """Yield an answer as the chunks of a stream."""
    refused = answer.stop == "refusal"
    yield _chunk(request, "start", {"role": "assistant", "content": None if refused else ""})
    for piece in pieces(answer.text):
        yield _chunk(request, "text", {"refusal" if refused else "content": piece})
    for index, call in enumerate(answer.calls):
        begun = {"index": index, **_call(call, "")}
        yield _chunk(request, "start", {"tool_calls": [begun]})
        for piece in pieces(call.arguments):
            delta = {"index": index, "function": {"arguments": piece}}
            yield _chunk(request, "arguments", {"tool_calls": [delta]})
    yield _chunk(request, "end", {}, STOPS[answer.stop])
    if (request.body.get("stream_options") or {}).get("include_usage"):
        envelope = _envelope(request, "chat.completion.chunk")
        yield Event("end", {**envelope, "choices": [], "usage": _usage(answer)})
    yield Event("end", "[DONE]")


def error_events(fail: Fail, request: Request, answer: Answer) -> Iterator[Event]:
    """Yield the events of an error that comes after the stream has begun."""
    yield next(events(request, answer))
    yield Event("end", error(fail, request))


def _chunk(request: Request, part: Any, delta: dict[str, Any], stop: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
    return Event(part, {**_envelope(request, "chat.completion.chunk"), "choices": [choice]})


def _envelope(request: Request, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.number:06d}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
    }


def _call(call: Call, arguments: str) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": arguments},
    }


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
