"""Current model names of every provider that we claim, and a way to ask them without leaving here.

Names come from the lists of the packages themselves, at test time: genai-prices for what is sold,
pydantic-ai and the provider's package for what is spoken to and what is going away. FLOOR is kept
by hand: a list that has lost one of these is not the list that we take it for. Providers of which
no list exists have a name or two in BY_HAND.

`redirected` sends whatever the providers' own packages send to a scripted endpoint instead: names,
addresses, headers and bodies are those of the real thing up to the socket.
"""

import re
from contextlib import contextmanager
from typing import get_args

import httpx2
from anthropic.resources.messages.messages import DEPRECATED_MODELS
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.models import KnownModelName

from leadhand.models.names import PROVIDERS

CONTEXT_MIN = 100_000
"""Models of today read at least so much."""
NO_CHAT = re.compile(
    r"audio|realtime|transcribe|tts|image|embed|search|deep-research|computer-use|moderation"
    r"|whisper|live|guard|vision|omni|rosalind|cyber|ft:|:free|instruct"
)
"""Models that do something else than plan and call tools, or for few."""

FLOOR = {
    "anthropic": {"claude-opus-4-5", "claude-opus-5-5", "claude-sonnet-5", "claude-haiku-4-5"},
    "openai": {"gpt-5", "gpt-5-mini", "gpt-5.6-sol", "gpt-6.1-sol"},
    "deepseek": {"deepseek-v4-pro"},
    "moonshotai": {"kimi-k3"},
    "openrouter": {"anthropic/claude-opus-4.5"},
}
BY_HAND = {
    "alibaba": ["qwen3-max"],
    "azure": ["gpt-5-mini"],
    "chat": ["qwen3"],
    "heroku": ["claude-opus-4-5"],
    "litellm": ["gpt-5-mini"],
    "nebius": ["Qwen/Qwen3-235B-A22B"],
    "ollama": ["qwen3"],
    "responses": ["gpt-oss-120b"],
    "vercel": ["anthropic/claude-opus-4.5"],
    "vllm": ["qwen3"],
}
WHOLE = ("anthropic", "openai")
"""Providers of which every current model is tried, not some."""
SOME = 3
AS = {"openai-chat": "openai", "openai-responses": "openai"}
ENVIRONMENT = {
    "ALIBABA_API_KEY": "k",
    "ANTHROPIC_API_KEY": "k",
    "AZURE_OPENAI_API_KEY": "k",
    "AZURE_OPENAI_ENDPOINT": "https://ours.openai.azure.com",
    "OPENAI_API_VERSION": "2025-04-01-preview",
    "CEREBRAS_API_KEY": "k",
    "DEEPSEEK_API_KEY": "k",
    "FIREWORKS_API_KEY": "k",
    "HEROKU_INFERENCE_KEY": "k",
    "LITELLM_API_KEY": "k",
    "MOONSHOTAI_API_KEY": "k",
    "NEBIUS_API_KEY": "k",
    "OLLAMA_BASE_URL": "https://ollama.com/v1",
    "OPENAI_API_KEY": "k",
    "OPENROUTER_API_KEY": "k",
    "TOGETHER_API_KEY": "k",
    "VERCEL_AI_GATEWAY_API_KEY": "k",
    "VLLM_BASE_URL": "https://ours.example/v1",
    "ZAI_API_KEY": "k",
}
PATHS = re.compile(r".*(/messages|/chat/completions|/responses)$")


def _published(provider):
    """What genai-prices says is sold now, by its own word for each."""
    wanted = AS.get(provider, provider)
    found = [each for each in get_snapshot().providers if each.id == wanted]
    return [
        model.id
        for each in found
        for model in each.models
        if not model.deprecated and (model.context_window or 0) >= CONTEXT_MIN
    ]


def _known(provider):
    """What pydantic-ai knows of a provider."""
    names = get_args(KnownModelName.__value__)
    return {model for who, _, model in (name.partition(":") for name in names) if who == provider}


def current(provider):
    """The model names of a provider that are asked here."""
    if provider in BY_HAND:
        return BY_HAND[provider]
    sold = [
        name
        for name in _published(provider)
        if not NO_CHAT.search(name) and name not in DEPRECATED_MODELS
    ]
    known = _known(provider)
    found = [name for name in sold if name in known] or sold
    missing = FLOOR.get(provider, set()) - set(found)
    assert not missing, f"{provider}: the list has no {sorted(missing)}"
    assert found, f"{provider}: the list is empty"
    if provider in WHOLE:
        return found
    first = sorted(FLOOR.get(provider, ()))
    return [*first, *(name for name in reversed(found) if name not in first)][:SOME]


def all_names():
    """Every provider that we claim, with its models, as people write them."""
    return [f"{who}:{name}" for who in sorted(PROVIDERS) for name in current(who)]


def one_each():
    """One model of each provider."""
    return [f"{who}:{current(who)[0]}" for who in sorted(PROVIDERS)]


@contextmanager
def redirected(endpoint, monkeypatch):
    """Whatever is sent by HTTP goes to the endpoint; yields the addresses that were meant."""
    meant = []
    sent = httpx2.AsyncHTTPTransport.handle_async_request
    place = httpx2.URL(endpoint.url)

    async def handle(self, request):
        meant.append(str(request.url))
        path = PATHS.sub(r"/v1\1", request.url.path)
        request.url = place.copy_with(path=path)
        request.headers["host"] = f"{place.host}:{place.port}"
        return await sent(self, request)

    with monkeypatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", handle)
        yield meant


def addressed(name, endpoint):
    """A name, with the address where the provider needs one."""
    provider = name.partition(":")[0]
    return f"{name}@{endpoint.url}/v1" if provider in ("chat", "responses") else name
