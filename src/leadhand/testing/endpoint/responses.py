"""OpenAI Responses: requests read, answers written.

An answer is a list of items: a message, calls. A stream names each item when it is added, gives
its parts in deltas and again as a whole, and ends with the whole response: completed,
incomplete or failed. Every event carries the next number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from leadhand.testing.endpoint import chat
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

CALLS = ("function_call", "custom_tool_call")
RESULTS = ("function_call_output", "custom_tool_call_output")
SYSTEM = ("system", "developer")

error = chat.error
headers = chat.headers
models = chat.models


def read(body: Mapping[str, Any]) -> Parsed:
    """Parse the body of a request."""
    given = body.get("input") or ()
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    spoken = [text_of(each.get("content")) for each in items if each.get("role") in SYSTEM]
    return Parsed(
        system="\n".join(filter(None, [text_of(body.get("instructions")), *spoken])),
        messages=tuple(_messages(each for each in items if each.get("role") not in SYSTEM)),
        tools=tuple(tool for each in body.get("tools") or () for tool in _tools(each)),
        forced=_forced(body.get("tool_choice")),
        schema=_schema((body.get("text") or {}).get("format") or {}),
    )


def _tools(given: Mapping[str, Any], namespace: str = "") -> Iterator[Tool]:
    """Yield a tool that a request offers, or the tools of a group: of an MCP server, say."""
    name = given.get("name", given["type"])
    if given["type"] == "namespace":
        for each in given.get("tools") or ():
            yield from _tools(each, name)
        return
    yield Tool(
        f"{namespace}__{name}" if namespace else name,
        given.get("description", ""),
        given.get("parameters"),
        custom=given["type"] == "custom",
        namespace=namespace,
    )


def _messages(items: Iterator[Mapping[str, Any]]) -> Iterator[Message]:
    """Items that the model gave one after the other are one message of it."""
    said: Message | None = None
    for item in items:
        kind = item.get("type", "message")
        if kind in CALLS or (kind == "message" and item.get("role") == "assistant"):
            said = _joined(said or Message("assistant"), item)
            continue
        if said is not None:
            yield said
            said = None
        if kind == "message":
            yield Message(item["role"], text_of(item.get("content")))
        elif kind in RESULTS:
            yield Message("tool", "", (), (ToolResult(item["call_id"], text_of(item["output"])),))
    if said is not None:
        yield said


def _joined(said: Message, item: Mapping[str, Any]) -> Message:
    if item.get("type") not in CALLS:
        return replace(said, text=said.text + text_of(item.get("content")))
    given = item.get("arguments", item.get("input"))
    return replace(
        said, calls=(*said.calls, ToolCall(item["call_id"], item["name"], json_or_text(given)))
    )


def _forced(choice: Any) -> str:
    match choice:
        case "required":
            return "*"
        case {"type": "function" | "custom", "name": name}:
            return str(name)
        case {"type": "allowed_tools", "mode": "required", "tools": tools}:
            return str(tools[0]["name"]) if len(tools) == 1 else "*"
        case _:
            return ""


def _schema(wanted: Mapping[str, Any]) -> Any:
    match wanted.get("type"):
        case "json_schema":
            return wanted.get("schema", {})
        case "json_object":
            return {}
        case _:
            return None


def whole(request: Request, answer: Answer) -> dict[str, Any]:
    """Return an answer as one document."""
    status = "incomplete" if answer.stop == "length" else "completed"
    output = [_message(request, answer, status)] if answer.text else []
    output += [_call(call, call.arguments, status) for call in answer.calls]
    return {
        **_envelope(request, status),
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": output,
        "usage": _usage(answer),
    }


def events(request: Request, answer: Answer) -> Iterator[Event]:
    """Yield an answer as the events of a stream."""
    for number, event in enumerate(_events(request, answer)):
        yield _numbered(event, number)


def _events(request: Request, answer: Answer) -> Iterator[Event]:
    begun = {**_envelope(request, "in_progress"), "output": [], "usage": None}
    yield _event("start", "response.created", response=begun)
    yield _event("start", "response.in_progress", response=begun)
    ended = whole(request, answer)
    index = 0
    if answer.text:
        yield from _message_events(answer, ended["output"][0])
        index = 1
    for at, call in enumerate(answer.calls, start=index):
        yield from _call_events(call, at, ended["output"][at])
    yield _event("end", f"response.{ended['status']}", response=ended)


def _message_events(answer: Answer, item: dict[str, Any]) -> Iterator[Event]:
    begun = {**item, "status": "in_progress", "content": []}
    yield _event("start", "response.output_item.added", output_index=0, item=begun)
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    refused = answer.stop == "refusal"
    name, key = ("refusal", "refusal") if refused else ("output_text", "text")
    more: dict[str, Any] = {} if refused else {"logprobs": []}
    part = item["content"][0]
    yield _event("start", "response.content_part.added", **place, part={**part, key: ""})
    for piece in pieces(answer.text):
        yield _event("text", f"response.{name}.delta", **place, delta=piece, **more)
    yield _event("start", f"response.{name}.done", **place, **{key: answer.text}, **more)
    yield _event("start", "response.content_part.done", **place, part=part)
    yield _event("start", "response.output_item.done", output_index=0, item=item)


def _call_events(call: Call, index: int, item: dict[str, Any]) -> Iterator[Event]:
    begun = _call(call, "", "in_progress")
    yield _event("start", "response.output_item.added", output_index=index, item=begun)
    place = {"item_id": item["id"], "output_index": index}
    name = "custom_tool_call_input" if call.custom else "function_call_arguments"
    for piece in pieces(call.arguments):
        yield _event("arguments", f"response.{name}.delta", **place, delta=piece)
    given = {"input" if call.custom else "arguments": call.arguments}
    yield _event("start", f"response.{name}.done", **place, **given)
    yield _event("start", "response.output_item.done", output_index=index, item=item)


def error_events(fail: Fail, request: Request, answer: Answer) -> Iterator[Event]:
    """Yield the events of an error that comes after the stream has begun."""
    said = error(fail, request)["error"]
    failed = {
        **_envelope(request, "failed"),
        "output": [],
        "usage": None,
        "error": {"code": said["code"] or said["type"], "message": said["message"]},
    }
    yield next(events(request, answer))
    yield _numbered(_event("end", "response.failed", response=failed), 1)


def _event(part: Any, name: str, /, **data: Any) -> Event:
    return Event(part, {"type": name, **data}, name)


def _numbered(event: Event, number: int) -> Event:
    return replace(event, data={**event.data, "sequence_number": number})


def _envelope(request: Request, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{request.number:06d}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": request.model,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }


def _message(request: Request, answer: Answer, status: str) -> dict[str, Any]:
    part: dict[str, Any] = {
        "type": "output_text",
        "text": answer.text,
        "annotations": [],
        "logprobs": [],
    }
    if answer.stop == "refusal":
        part = {"type": "refusal", "refusal": answer.text}
    return {
        "id": f"msg_{request.number:06d}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [part],
    }


def _call(call: Call, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": f"{'ctc' if call.custom else 'fc'}_{call.id}",
        "type": "custom_tool_call" if call.custom else "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.tool.removeprefix(f"{call.namespace}__") if call.namespace else call.tool,
        **({"namespace": call.namespace} if call.namespace else {}),
        "input" if call.custom else "arguments": arguments,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {
            "cached_tokens": answer.cached_tokens,
            "cache_write_tokens": answer.written_tokens,
        },
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
