"""What a coder's provider was seen to answer, which no agent can make up.

What a program prints is no proof of a usage limit: its agent runs code of others, and that may
print whatever it likes. The door that adds the credentials sees every answer of the provider. A
limit is what the provider answered there, and it ends when the provider said so.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from leadhand.models.reset_times import reset_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.workers.sandbox.proxy import ServiceAnswer

TOO_MANY = 429
BAD_REQUEST = 400
SPENT = "You have reached your specified API usage limits"
"""How Anthropic's answer of status 400 begins when the limit of an organisation is reached. Others
of that status repeat words of the request, so that nothing else in them is believed."""
WORDS_CHARS = 500
_UNIFIED = "anthropic-ratelimit-unified-reset"
_EPOCH = re.compile(r"\d{10}")


class ProviderRefusal(NamedTuple):
    """One refusal: too many requests, or a limit that is reached."""

    at: float
    until: float | None
    """When the provider takes requests again, in seconds since the epoch; None: it was not told."""
    words: str


class ProviderAnswers:
    """The last refusal of one coder's provider."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last: ProviderRefusal | None = None

    def heard(self, answer: ServiceAnswer) -> None:
        """Take an answer of the provider."""
        refusal = refusal_in(answer, self._clock())
        if refusal is None:
            return
        last = self._last
        # Of two at once the one that holds longer counts: a limit of requests within a limit of
        # days does not end it.
        if last is None or (refusal.until or 0.0) >= (last.until or 0.0) or self._over(last):
            self._last = refusal

    def since(self, at: float) -> ProviderRefusal | None:
        """Return the refusal that was heard since then, or that still holds; None: there is none.

        One that still holds was told to another agent of the same coder.
        """
        last = self._last
        return last if last is not None and (last.at >= at or not self._over(last)) else None

    def _over(self, refusal: ProviderRefusal) -> bool:
        return self._clock() >= (refusal.until or refusal.at)


def refusal_in(answer: ServiceAnswer, now: float) -> ProviderRefusal | None:
    """Return the refusal in an answer, if it is one of those that pass."""
    text = answer.body.decode("utf-8", "replace")
    words = _words(text)
    if answer.status == BAD_REQUEST:
        if not words.startswith(SPENT):
            return None
    elif answer.status != TOO_MANY:
        return None
    return ProviderRefusal(now, _until(answer, text, now), words[:WORDS_CHARS])


def _until(answer: ServiceAnswer, text: str, now: float) -> float | None:
    unified = answer.headers.get(_UNIFIED, "")
    if answer.headers.get("anthropic-ratelimit-unified-status") == "rejected" and _EPOCH.fullmatch(
        unified
    ):
        return float(unified)
    if after := answer.headers.get("retry-after", ""):
        return reset_time(f"retry-after: {after}", now)
    return reset_time(text, now)


def _words(text: str) -> str:
    """Return the message of a refusal's document, or all of its text."""
    begin = text.find("{")
    try:
        found = msgspec.json.decode(text[max(0, begin) :].partition("\r\n")[0])
        error = found["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (msgspec.DecodeError, LookupError, TypeError):
        return " ".join(text.split())
