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

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from leadhand.codec.tables import KeyVariable, Price, TableSchema, Text, read_table
from leadhand.core.wording import closest, listed, shown
from leadhand.errors import UsageError
from leadhand.models.names import BY_ADDRESS, PROVIDERS, ModelName, checked_address, parse_model

Schema = Annotated[
    Literal["", "native", "tool", "prompted"], Meta(description="one of native, tool, prompted")
]


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
    return ModelName(**msgspec.structs.asdict(read_table(place, value, ModelTable)))


class ModelTable(TableSchema):
    """The keys of `[models.NAME]`."""

    provider: Text
    """The provider, or the protocol of an address of your own: `chat`, `responses`, `anthropic`."""
    model: Text
    """The name of the model at its provider."""
    url: str = ""
    """The address, if it is one of your own."""
    key: KeyVariable = ""
    """The environment variable that holds the key. Default: the provider's usual variable."""
    price_in: Price | None = None
    """US dollars for a million input tokens. Default: the published price; 0 for an address of your
    own."""
    price_out: Price | None = None
    """US dollars for a million output tokens. Default: the published price; 0 for an address of
    your own."""
    max_tokens: Annotated[int, Meta(ge=1)] = 0
    """The longest answer, in tokens. Default: as each request says."""
    schema: Schema = ""
    """How the model is asked for data. Default: the way that is known to work with it."""
    cache: bool = True
    """Whether cache marks are sent to providers that cache prompts."""

    def __post_init__(self) -> None:
        """Raise ValueError, a sentence, for a provider or an address that cannot be asked."""
        if self.provider in BY_ADDRESS:
            url, key = BY_ADDRESS[self.provider]
            fix = f'provider = "chat", url = "{url}", key = "{key}"'
            raise ValueError(
                f"{self.provider} is asked by its address, in OpenAI's Chat Completions. "
                f"Fix: write {fix}."
            )
        if self.provider not in PROVIDERS:
            meant = _meant(self.provider, sorted(PROVIDERS))
            raise ValueError(f"no provider is called {shown(self.provider)}. {meant}")
        if self.url:
            try:
                self.url = checked_address(self.url, self.provider, "")
            except UsageError as error:
                raise ValueError(str(error).removeprefix(": ")) from None
        elif self.provider in ("chat", "responses"):
            raise ValueError(f'{self.provider} needs an address. Fix: write url = "http://…/v1".')


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
