"""Request bodies: JSON of bounded size and depth, read in bounded time, before any use.

The loop belongs to the engine. A thread does not keep long work away from it while that holds the
interpreter's lock, so the content of a body is bounded before it is parsed (values, keys of one
object), and large bodies are processed one at a time (`apart`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from leadhand.codec.documents import count_values, read_value
from leadhand.errors import DocumentError
from leadhand.server.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from leadhand.server.rules import RouteRule

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]

T = TypeVar("T")
BODY_S = 20.0
THREAD_BYTES = 64 << 10
"""Larger bodies are parsed in a thread."""
VALUES_MAX = 300_000
"""The number of values of one body, and of a plan sent as a text: some 50,000 steps."""
KEYS_MAX = 20_000
"""The number of keys of one object."""
FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 20
_APART = ThreadPoolExecutor(1, thread_name_prefix="leadhand-documents")


async def apart(work: Callable[..., T], *args: Any) -> T:
    """Run slow work on a document outside of the loop, one piece after the other.

    Several at once would only compete for the interpreter's lock, and each takes it from the loop.
    """
    return await asyncio.get_running_loop().run_in_executor(_APART, partial(work, *args))


def check_form(rule: RouteRule, headers: dict[bytes, bytes], limit: int) -> None:
    """Raise `RequestRefused` unless the headers fit the rule: a JSON body, form fields, or none."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise RequestRefused(400, "Content-Length is not a number")
    if not rule.has_body:
        if int(length) or b"transfer-encoding" in headers:
            raise RequestRefused(400, f"{rule.method} takes no body on this route")
        return
    kind, _, more = headers.get(b"content-type", b"").decode("latin-1").lower().partition(";")
    wanted = FORM if rule.form else "application/json"
    if kind.strip() != wanted or more.strip() not in ("", "charset=utf-8"):
        raise RequestRefused(415, f"the body must be {wanted}")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestRefused(415, "the body must not be compressed")
    if int(length) > limit:
        raise RequestRefused(413, f"the body is larger than {limit:,} bytes")


async def read_body(receive: Receive, rule: RouteRule, limit: int) -> bytes:
    """Return the whole body, once it is known to be acceptable: JSON, or form fields."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise RequestRefused(400, "the body ended early")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise RequestRefused(413, f"the body is larger than {limit:,} bytes")
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise RequestRefused(408, "the body took too long") from None
    body = b"".join(parts)
    if rule.form:
        form_fields(body)
    elif size > THREAD_BYTES:  # parsing blocks the loop, and the loop belongs to the engine
        await apart(_check_json, body)
    else:
        _check_json(body)
    return body


def _check_json(body: bytes) -> None:
    """Raise `RequestRefused` unless it is JSON of acceptable depth, keys and numbers."""
    if count_values(body, VALUES_MAX) > VALUES_MAX:
        raise RequestRefused(413, f"the body holds more than {VALUES_MAX:,} values")
    try:
        _check_keys(read_value(body.decode(), "body"))
        msgspec.json.decode(body)  # detects lone surrogates
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(400, f"the body is not JSON: {error}") from None
    except DocumentError as error:
        raise RequestRefused(400, str(error)) from None


def form_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form. Raise `RequestRefused` if they are malformed or repeated."""
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except (UnicodeDecodeError, ValueError):
        raise RequestRefused(400, "the body is no list of form fields") from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RequestRefused(400, "a field of the form was given twice")
    return found


def _check_keys(value: Any) -> None:
    """Raise `RequestRefused` if an object has too many keys."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if len(each) > KEYS_MAX:
                raise RequestRefused(413, f"an object of the body has more than {KEYS_MAX:,} keys")
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def check_text(text: str) -> None:
    """Raise `RequestRefused` if the text of a plan, YAML or JSON, may hold too many values."""
    if text.count("\n") + text.count(",") + text.count("{") + text.count("[") > VALUES_MAX:
        raise RequestRefused(413, f"the plan holds more than {VALUES_MAX:,} values")


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that replays a body already read."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
