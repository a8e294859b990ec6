"""Failures of MCP calls, as failure classes.

A tool that answers "this is an error" (`isError`) has spoken: it is there, it did not do the
task, and the same words will get the same answer. That is permanent. A server that dies, hangs
or breaks off has not spoken: what it did is unknown, unless the user declared that the tool
changes nothing. Nothing is ever read out of prose.

Our own edges (`stdio`, `http`) answer for a server that cannot: with a JSON-RPC error of code
`EDGE`, whose data says class and effect. A server could forge one and would only mislead about
itself, which it can do anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from leadhand.errors import (
    Denied,
    InvalidOutput,
    NeedsInfo,
    Permanent,
    RateLimited,
    Transient,
    Unavailable,
    WorkerFailure,
)
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from mcp import MCPError

EDGE = -32099
"""The code of errors that our side of the wire makes in place of an answer."""
CLOSED, TIMEOUT, UNREADABLE = -32000, -32001, -32700
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, ELICITATION = -32600, -32601, -32602, -32042


class ServerLost(WorkerFailure):
    """The server broke off before it answered: the effect is unknown."""

    failure_class: ClassVar[str] = "lost"


class Overdue(WorkerFailure):
    """No answer in time; the server was told to stop."""

    failure_class: ClassVar[str] = "timeout"


class ResultTooLarge(InvalidOutput):
    """The result exceeds the size limit."""


_CLASSES: dict[str, type[WorkerFailure]] = {
    "transient": Transient,
    "rate_limited": RateLimited,
    "unavailable": Unavailable,
    "denied": Denied,
    "permanent": Permanent,
}
_STATUS = {401: "denied", 403: "denied", 408: "transient", 425: "transient", 429: "rate_limited"}
_STATUS |= {502: "transient", 503: "transient", 504: "transient", 529: "transient"}


def edge_error(
    failure_class: str,
    message: str,
    *,
    sent: bool = True,
    retry_after_s: float | None = None,
    status: int = 0,
) -> dict[str, Any]:
    """Return the error object of a JSON-RPC answer that our side gives."""
    data = {
        "class": failure_class,
        "sent": sent,
        "retry_after_s": retry_after_s,
        "status": status,
    }
    return {"code": EDGE, "message": message, "data": data}


def status_class(status: int) -> str:
    """Return the failure class of an HTTP status without a JSON-RPC error."""
    return _STATUS.get(status, "unavailable" if status in (404, 405) or status >= 500 else "denied")


def failure_of(error: MCPError, *, harmless: bool) -> WorkerFailure:
    """Return the failure that a JSON-RPC error stands for; `harmless`: the tool changes nothing."""
    text = bounded_text(error.message, 1_000)
    unknown = "none" if harmless else "unknown"
    if error.code == EDGE and isinstance(error.data, dict):
        return _at_the_edge(text, error.data, unknown)
    if error.code == CLOSED:
        return _broken(text, harmless=harmless)
    if error.code == TIMEOUT:
        return Overdue(text, effect=unknown)
    if error.code == UNREADABLE:  # what the SDK makes of an answer that it cannot read
        return InvalidOutput(f"the answer cannot be read: {text}", effect=unknown)
    if error.code == INVALID_PARAMS:
        return Permanent(f"the server refuses the parameters: {text}")
    if error.code == ELICITATION:
        return NeedsInfo(f"the tool wants to ask a person, which it cannot here: {text}")
    if error.code in (NO_METHOD, INVALID_REQUEST):
        return Unavailable(f"the server refuses the call: {text}")
    return Unavailable(f"the server failed ({error.code}): {text}", effect=unknown)


def ends_session(error: MCPError) -> bool:
    """Return whether the connection can carry nothing more after this error."""
    if error.code == EDGE and isinstance(error.data, dict):
        return error.data.get("class") in ("lost", "transient") or error.data.get("status") == 404
    return error.code in (CLOSED, INVALID_REQUEST)


def _at_the_edge(text: str, data: dict[str, Any], unknown: str) -> WorkerFailure:
    kind = str(data.get("class"))
    if kind == "lost":
        return _broken(text, harmless=unknown == "none")
    if kind == "invalid_output":  # it answered, so what it does is done
        return ResultTooLarge(text, effect="none" if unknown == "none" else "done")
    sent, status = bool(data.get("sent", True)), data.get("status") or 0
    # A status below 500 refuses; after one above, or a malformed answer, the effect is unknown.
    effect = unknown if sent and not 400 <= status < 500 else "none"
    wait = data.get("retry_after_s")
    usable = wait if isinstance(wait, int | float) else None
    return _CLASSES.get(kind, Unavailable)(text, effect=effect, retry_after_s=usable)


def _broken(text: str, *, harmless: bool) -> WorkerFailure:
    message = f"the server broke off before it answered: {text}"
    return Transient(message) if harmless else ServerLost(message, effect="unknown")
