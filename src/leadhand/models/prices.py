"""Prices of tokens, and the highest cost of a call.

Prices come from genai-prices, or from the configuration, which takes precedence. An address of
one's own is free unless the configuration has a price. An unknown price is None: with a budget such
a model is not called, since its cost could not be counted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.models.messages import Usage

if TYPE_CHECKING:
    from leadhand.models.messages import ModelAnswer, ModelRequest
    from leadhand.models.names import ModelName

MILLION = 1_000_000
TOKEN_BYTES = 2.0
"""The least bytes of text per token: a bound, so lower than usual (about 4)."""
OVERHEAD_TOKENS = 400
"""The tokens that a provider adds around a request and its tools."""


def cost(name: ModelName, usage: Usage) -> float | None:
    """Return the price of `usage` in dollars, or None if the price is unknown."""
    if name.price_in is not None or name.price_out is not None:
        into, out = name.price_in or 0.0, name.price_out or 0.0
        return (usage.input * into + usage.output * out) / MILLION
    if name.url:
        return 0.0
    found = _published(name.provider, name.model, usage)
    return None if found is None else float(found)


def has_price(name: ModelName) -> bool:
    """Return whether the price of a model is known."""
    return cost(name, Usage(1, 1)) is not None


def bound(name: ModelName, request: ModelRequest) -> tuple[float, float]:
    """Return the highest cost of a call: of the question, and of each token of the answer."""
    tokens = question_tokens(request)
    asked = cost(name, Usage(tokens, 0)) or 0.0
    # Some answers cost more after a long question.
    both = cost(name, Usage(tokens, MILLION)) or 0.0
    # A cached question can cost a quarter more to write.
    return asked * 1.25, max(0.0, both - asked) / MILLION


def question_tokens(request: ModelRequest) -> int:
    """Return an upper bound on the tokens of a question."""
    return int(len(msgspec.json.encode(request)) / TOKEN_BYTES) + OVERHEAD_TOKENS


def answer_tokens(answer: ModelAnswer) -> int:
    """Return an estimate of an answer's tokens, for providers that do not count them."""
    said = msgspec.json.encode([answer.text, [[c.tool, c.arguments] for c in answer.calls]])
    return max(1, len(said) // 4)


PUBLISHED_AS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""What providers are called in the list of prices, where that differs."""


@lru_cache(maxsize=1024)
def _published(provider: str, model: str, usage: Usage) -> Any:
    try:
        from genai_prices import Usage as Used
        from genai_prices import calc_price
    except ImportError:  # A tape plays without it, and then nothing costs anything.
        return None

    used = Used(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read or None,
        cache_write_tokens=usage.cache_write or None,
    )
    who = PUBLISHED_AS.get(provider, provider)
    try:
        return calc_price(used, model, provider_id=who).total_price
    except (LookupError, ValueError):
        return None
