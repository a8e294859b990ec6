"""Failures of models as failure classes: one table for all providers.

    rate limited (429)                      rate_limited, with the wait that was asked for
    overloaded, 5xx, connection, cut off    transient
    no answer in time                       timeout; nothing outside was changed by a question
    quota or credit used up, unknown model  unavailable: another model might do it
    key refused                             denied
    too long for the model                  context_overflow
    refused by the model                    policy
    no JSON, wrong form, empty              invalid_output
    cut at the token limit                  invalid_output, saying so
    the same tool call again and again      too_complex (see `workers/agent`)
    the money is spent                      budget

A question to a model has no effect outside, so all of these are failures with effect "none";
what an agent's tools did is the agent's to say.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.errors import WorkerFailure
from leadhand.models.messages import Usage
from leadhand.models.reset_times import wait_s

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError

MESSAGE_CHARS_MAX = 500
TOO_LARGE = 413
REDIRECTS = range(300, 400)

ELSEWHERE = frozenset({"rate_limited", "transient", "timeout", "unavailable", "denied"})
"""Failures of this model, not of the question: the next one in line may answer."""


class ModelFailure(WorkerFailure):
    """A model did not answer, or not with a usable answer."""

    failure_class: str = "unavailable"  # type: ignore[misc]  # here it belongs to the instance

    def __init__(
        self,
        failure_class: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        usage: Usage = Usage(),  # noqa: B008 - frozen
        text: str = "",
    ) -> None:
        assert failure_class in FAILURE_CLASSES, failure_class
        super().__init__(message, retry_after_s=retry_after_s)
        self.failure_class = failure_class
        self.usage = usage
        """The tokens used all the same."""
        self.text = text
        """The answer, if it could not be used."""


LIMITS = frozenset({"rate_limited", "unavailable", "transient"})
"""Failures whose messages may tell when they end."""


def of_provider(error: ModelAPIError, name: str) -> ModelFailure:
    """Return the failure, with its class, that an error of a provider stands for."""
    from pydantic_ai import exceptions as ex

    table: tuple[tuple[type[BaseException], str, str], ...] = (
        (ex.ModelRateLimitError, "rate_limited", "too many calls"),
        (ex.ModelQuotaExceededError, "unavailable", "its quota is used up"),
        (ex.ModelUnavailableError, "transient", "it is overloaded"),
        (ex.ModelServerError, "transient", "its server failed"),
        (ex.ModelTimeoutError, "timeout", "no answer in time"),
        (ex.ModelRequestTimeout, "timeout", "no answer in time"),
        (ex.ModelConnectionError, "transient", "the connection failed"),
        (ex.ModelContextWindowExceededError, "context_overflow", "the question is too long"),
        (ex.ModelAuthenticationError, "denied", "it refuses the key"),
        (ex.ModelNotFoundError, "unavailable", "there is no such model at that address"),
        (ex.ModelRequestRejectedError, "permanent", "it rejects the request"),
    )
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    if status in REDIRECTS:
        words = f"{name}: it sends us elsewhere (HTTP {status}), which is not followed"
        return ModelFailure("unavailable", words)
    if status == TOO_LARGE:
        return ModelFailure("context_overflow", f"{name}: the question is too long (HTTP 413)")
    for kind, failure_class, words in table:
        if isinstance(error, kind):
            seen = f" (HTTP {status})" if status else ""
            detail = _detail(error)
            text = f"{name}: {words}{seen}{f': {detail}' if detail else ''}"
            wait = error.retry_after
            if wait is None and failure_class in LIMITS:
                wait = wait_s(str(error.body or ""), time.time())
            # A quota that comes back at a stated time is a rate limit.
            returns = kind is ex.ModelQuotaExceededError and wait
            return ModelFailure(
                "rate_limited" if returns else failure_class, text, retry_after_s=wait
            )
    failure_class = "transient" if status is None or status >= 500 else "permanent"
    return ModelFailure(failure_class, f"{name}: {_detail(error) or type(error).__name__}")


def _detail(error: ModelAPIError) -> str:
    """Return the provider's message, without our key and without the rest of a long page."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = inner.get("message") if isinstance(inner, dict) else inner
        return str(said or "")[:MESSAGE_CHARS_MAX]
    if body is None and error.__cause__ is not None:
        return f"{type(error.__cause__).__name__}"
    return ""
