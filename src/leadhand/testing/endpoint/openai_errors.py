"""Errors of OpenAI, which Chat Completions and Responses share."""

from __future__ import annotations

from typing import Any

from leadhand.testing.endpoint.replies import Fail
from leadhand.testing.endpoint.request import Request

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
    """The body of an error."""
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
    """What its servers add to every response."""
    return {"x-request-id": f"req_{request.number:06d}" if request else "req_none"}


def models(names: list[str]) -> dict[str, Any]:
    """The models there are."""
    data = [
        {"id": name, "object": "model", "created": 1735689600, "owned_by": "script"}
        for name in names
    ]
    return {"object": "list", "data": data}
