"""`[tiers]` and `[models]`: the language models, and their uses.

    [tiers]
    lead = "anthropic:claude-opus-4-5"
    hand = ["small", "openai:gpt-5-mini"]

    [models.small]
    provider = "chat"
    model = "qwen3"
    url = "http://127.0.0.1:8080/v1"
    key = "SMALL_KEY"
    price_in = 0.1
    price_out = 0.4

A tier is one model, or several that are tried in turn when the one before is down. `key` names the
environment variable with the key: no key is in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from leadhand.core.wording import closest, listed, shown
from leadhand.errors import UsageError
from leadhand.models.names import BY_ADDRESS, PROVIDERS, ModelName, checked_address, parse_model

FIELDS = ModelName._fields
NEEDED = ("provider", "model")
SCHEMAS = ("native", "tool", "prompted")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def tier(value: Any) -> tuple[str, ...]:
    """Read the models of a tier. Raise `ValueError` with the end of a sentence."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(w, str) and w for w in words):
        raise ValueError('must be a model, as in "anthropic:claude-sonnet-5", or a list of them')
    return tuple(words)


def read_model(origin: str, name: str, value: Any) -> ModelName:
    """Read a `[models.NAME]` table, or a text `provider:model@url`. Raise `UsageError`.

    The message does not show its content, which may contain a key by mistake.
    """
    place = f"{origin}: [models.{name}]"
    if isinstance(value, str):
        return parse_model(value, place)
    if not isinstance(value, dict):
        raise UsageError(f"{place} must be a table, or a text as in chat:qwen3@http://HOST/v1")
    for key in value:
        if key not in FIELDS:
            raise UsageError(f"{place} has no key {shown(key)}. {_meant(key, FIELDS)}")
    for key in NEEDED:
        if not isinstance(value.get(key), str) or not value[key]:
            raise UsageError(f"{place}: {key} must be a text. Fix: write {_EXAMPLES[key]}.")
    wrong = next(_wrong(value), "")
    if wrong:
        raise UsageError(f"{place}: {wrong}")
    provider, url = value["provider"], value.get("url", "")
    if url:
        url = checked_address(url, provider, place)
    elif provider in ("chat", "responses"):
        raise UsageError(f'{place}: {provider} needs an address. Fix: write url = "http://…/v1".')
    return ModelName(**{**value, "url": url})


_EXAMPLES = {"provider": 'provider = "anthropic"', "model": 'model = "claude-sonnet-5"'}


def _wrong(table: Mapping[str, Any]) -> Iterator[str]:
    provider = table["provider"]
    if provider in BY_ADDRESS:
        url, key = BY_ADDRESS[provider]
        fix = f'provider = "chat", url = "{url}", key = "{key}"'
        yield f"{provider} is asked by its address, in OpenAI's Chat Completions. Fix: write {fix}."
    elif provider not in PROVIDERS:
        yield f"no provider is called {shown(provider)}. {_meant(provider, sorted(PROVIDERS))}"
    if not isinstance(table.get("url", ""), str):
        yield "url must be a text"
    key = table.get("key", "")
    if not isinstance(key, str) or (key and not VARIABLE.fullmatch(key)):
        yield (
            "key must name the environment variable that holds the key, never the key itself. "
            'Fix: write key = "MY_KEY" and set that variable.'
        )
    for name in ("price_in", "price_out"):
        price = table.get(name, 0)
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 1e9:
            yield f"{name} must be dollars for a million tokens"
    most = table.get("max_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        yield "max_tokens must be a whole number from 1"
    if table.get("schema", "") not in ("", *SCHEMAS):
        yield f"schema must be one of {', '.join(SCHEMAS)}"
    if not isinstance(table.get("cache", True), bool):
        yield "cache must be true or false"


def check_tiers(
    tiers: Mapping[str, tuple[str, ...]], models: Mapping[str, ModelName], origin: Mapping[str, str]
) -> None:
    """Raise `UsageError` unless every word of a tier names a model."""
    for name, words in tiers.items():
        place = f"{origin.get(f'tiers.{name}', '')}: [tiers] {name}"
        for word in words:
            if word in models:
                continue
            if ":" not in word:
                known = _meant(word, sorted(models)) if models else "There is no [models] table."
                raise UsageError(f"{place}: no model is called {shown(word)}. {known}")
            parse_model(word, place)


def _meant(word: str, known: Any) -> str:
    meant = closest(word, known)
    return f'Did you mean "{meant}"?' if meant else f"There are: {listed(known, 40)}."
