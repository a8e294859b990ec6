"""Names of models, as people write them in flags, plans and `leadhand.toml`.

anthropic:claude-sonnet-5         a provider that pydantic-ai knows, its key from where it looks
chat:qwen3@http://127.0.0.1:8080/v1 any address that speaks OpenAI's Chat Completions
responses:…@…, anthropic:…@…        the same for the other two protocols
small                               `[models.small]` of the configuration
lead, hand, strong                  tiers: `[tiers]`, one model, or several to fall back on
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from leadhand.core.wording import closest
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

TIERS = ("hand", "lead", "strong")
"""The tiers that every configuration knows, weakest first for workers: hand, then strong."""

STRONGER = {"hand": "strong"}
"""The next tier, asked when a task was too much for a worker of this one."""

PROTOCOLS = ("anthropic", "chat", "responses")
"""What an address may speak."""

PROVIDERS = frozenset(
    [
        "alibaba",
        "anthropic",
        "azure",
        "cerebras",
        "chat",
        "deepseek",
        "fireworks",
        "heroku",
        "litellm",
        "moonshotai",
        "nebius",
        "ollama",
        "openai",
        "openai-chat",
        "openai-responses",
        "openrouter",
        "responses",
        "together",
        "vercel",
        "vllm",
        "zai",
    ]
)
"""What may stand before the colon; so `plan.py:next_step` is not taken for a model.

Each is tested with its own model names, through the package that `leadhand[models]` brings
(tests/models/test_real_names.py): no provider stands here without that.
"""

BY_ADDRESS = {
    "cohere": ("https://api.cohere.ai/compatibility/v1", "CO_API_KEY"),
    "github": ("https://models.github.ai/inference", "GITHUB_TOKEN"),
    "google": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": ("https://router.huggingface.co/v1", "HF_TOKEN"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}
"""Providers whose own packages we do not speak through, where they speak Chat Completions, and the
variable that mostly holds their key."""


class ModelName(NamedTuple):
    """One model: its provider, its name there, and the address to ask."""

    provider: str
    model: str
    url: str = ""
    key: str = ""
    """The environment variable that holds the key; the provider's own when empty."""
    price_in: float | None = None
    price_out: float | None = None
    """Dollars for a million tokens; None: as published, or zero for an own address."""
    max_tokens: int = 0
    """The longest answer; 0: as the request says."""
    schema: str = ""
    """How it is asked for data: native, tool, prompted; empty: as is known of it."""
    cache: bool = True
    """Whether marks for a cache of prompts are sent, to those that take them."""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" + (f"@{self.url}" if self.url else "")


KEY_VARIABLES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
    "heroku": "HEROKU_INFERENCE_KEY",
    "moonshotai": "MOONSHOTAI_API_KEY",
    "nebius": "NEBIUS_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "together": "TOGETHER_API_KEY",
    "zai": "ZAI_API_KEY",
}
"""Where pydantic-ai looks for a provider's key, for those with one variable and nothing else."""


def key_variable(name: ModelName) -> str:
    """Return the variable that holds the key; empty if there is none or it is unknown."""
    return name.key or ("" if name.url else KEY_VARIABLES.get(name.provider, ""))


def has_key(name: ModelName) -> bool:
    """Return whether the key that a model needs is set, as far as that is known."""
    variable = key_variable(name)
    return not variable or bool(os.environ.get(variable))


def is_model_name(text: str, known: Collection[str] = TIERS) -> bool:
    """Return whether `text` names a model, a tier, or one of the `known` names."""
    provider, colon, _ = text.partition(":")
    return text in known or (bool(colon) and (provider in PROVIDERS or provider in BY_ADDRESS))


def parse_model(text: str, place: str = "model") -> ModelName:
    """Return the model that `text` names.

    Raise `UsageError`, which names `place`, if there is none.
    """
    provider, colon, rest = text.partition(":")
    if not colon or not rest:
        raise UsageError(
            f"{place}: {text!r} names no model. Fix: write provider:model, as in "
            "anthropic:claude-sonnet-5, or a tier or a model of leadhand.toml."
        )
    if provider in BY_ADDRESS:
        url, key = BY_ADDRESS[provider]
        raise UsageError(
            f"{place}: {provider} is asked by its address, in OpenAI's Chat Completions. Fix: "
            f'[models.NAME] provider = "chat", model = "{rest}", url = "{url}", key = "{key}".'
        )
    if provider not in PROVIDERS:
        like = closest(provider, sorted(PROVIDERS))
        hint = f" Did you mean {like}?" if like else ""
        raise UsageError(f"{place}: no provider is called {provider!r}.{hint}")
    model, at, url = rest.partition("@http")
    if not at:
        if provider in ("chat", "responses"):
            raise UsageError(f"{place}: {text!r} needs an address: {provider}:MODEL@http://…/v1")
        return ModelName(provider, rest)
    return ModelName(provider, model, checked_address("http" + url, provider, place))


def checked_address(url: str, provider: str, place: str) -> str:
    """Return `url` without its final slash.

    Raise `UsageError`, which names `place`, if it is malformed.

    Also raise it for a password in the address, and for a provider that has an address of its own.
    """
    if provider not in (*PROTOCOLS, "openai"):
        raise UsageError(
            f"{place}: {provider} has an address of its own. Fix: for an address that you name, "
            f"take {', '.join(PROTOCOLS)} as provider."
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{place}: {url!r} is no address. Fix: write http://HOST:PORT/v1.")
    if parts.username or parts.password:
        raise UsageError(f"{place}: no password in an address; name a variable with key = …")
    return url.rstrip("/")
