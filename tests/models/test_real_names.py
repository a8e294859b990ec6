"""Every provider that we claim, with the model names that it sells today, by the way users go.

From `Lead`, an agent or a fleet's planner through pydantic-ai and the providers' own packages to
the request that arrives at a scripted endpoint, and back to the decision. Nothing is named here by
hand that a list knows (see tests/support/real_names.py), so that a newer package in the lock, a new
model or one that went away shows itself.
"""

import re
from pathlib import Path

import pytest
from genai_prices import Usage as Used
from genai_prices import calc_price

from leadhand import Agent, Goal, Lead, worker
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.fleet.planning.backends import ModelBackend
from leadhand.fleet.planning.reply import SCHEMA as EPIC
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import ModelRequest, UserMessage
from leadhand.models.names import PROVIDERS, ModelName, parse_model
from leadhand.models.provider import is_open
from leadhand.models.registry import ModelRegistry
from leadhand.planners.model.answers import SCHEMA
from leadhand.stores.memory import MemoryStore
from leadhand.testing.endpoint import Data, Endpoint, Say, Use
from leadhand.testing.endpoint import Usage as Tokens
from tests.support.real_names import addressed, all_names, current, one_each, redirected

pytestmark = pytest.mark.filterwarnings("ignore:Sampling parameters:UserWarning")

NAMES = all_names()
ROOT = Path(__file__).resolve().parents[2]
FORM = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "free": {"type": "object"}},
    "required": ["a"],
}


@worker(gives="prices", effects=())
async def fetch(firm: str) -> dict:
    """What a firm asks."""
    return {"firm": firm, "price": 9.9}


@worker(gives="report", effects=())
async def write(prices: dict) -> str:
    """A report on prices."""
    return f"{prices['firm']}: {prices['price']}"


GOAL = Goal(text="What does Kestrel ask?", want="report")
PLAN = {
    "kind": "propose",
    "because": "the price first",
    "steps": [
        {"id": "get", "worker": "fetch", "parameters": {"firm": "Kestrel"}},
        {
            "id": "tell",
            "worker": "write",
            "parameters": {"prices": "${{ steps.get.data }}"},
            "depends_on": ["get"],
        },
    ],
}
DONE = {"kind": "finish", "because": "it is written", "result": "Kestrel asks 9.90."}


TOLD = {
    "epic": {"title": "tidy up", "text": "Tidy the house up.", "acceptance": []},
    "limits": {"wave": 3},
    "repository": {"guides": [], "files": 0, "map": [], "history": []},
    "why": "start",
    **{key: [] for key in ("matters", "tasks", "record", "past", "answers")},
    "notes": "",
}


def wire_of(name):
    """Which protocol a provider's requests are in."""
    provider = name.partition(":")[0]
    if provider in ("openai", "openai-responses", "responses"):
        return "responses"
    return "anthropic" if provider == "anthropic" else "chat"


def answered(*values, usage=Tokens()):  # noqa: B008 - frozen
    """A script: each value in the way in which the request asks for data."""
    left = list(values)

    def script(request):
        tool = "answer" if any(each.name == "answer" for each in request.tools) else ""
        return Data(left.pop(0), tool=tool, usage=usage)

    return script


def form_of(request):
    """The form that a request asks for, wherever it stands."""
    tools = [tool for tool in request.tools if tool.name == "answer"]
    return tools[0].schema if tools else request.schema


def stricts(value):
    """Every `strict` that a body holds."""
    if isinstance(value, dict):
        own = [value["strict"]] if "strict" in value else []
        return own + [each for inner in value.values() for each in stricts(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in stricts(inner)]
    return []


def marks(value):
    """How many marks for a cache a body holds."""
    found = value if isinstance(value, list) else list(value.values())
    own = "cache_control" in value if isinstance(value, dict) else False
    return own + sum(marks(each) for each in found if isinstance(each, dict | list))


def names_of(properties):
    """The names in a form, at any depth: what a provider may reorder and annotate."""
    found = set()
    for name, form in properties.get("properties", {}).items():
        found |= {name} | names_of(form)
    return found | (
        names_of(properties["items"]) if isinstance(properties.get("items"), dict) else set()
    )


def test_no_provider_is_claimed_without_a_model():
    """And none is asked that is not claimed."""
    assert {name.partition(":")[0] for name in NAMES} == PROVIDERS
    assert len(NAMES) >= 60
    assert len(current("anthropic")) >= 10
    assert len(current("openai")) >= 20


@pytest.mark.parametrize("name", NAMES)
async def test_it_plans(name, monkeypatch):
    async with Endpoint(answered(PLAN, DONE)) as endpoint:
        with redirected(endpoint, monkeypatch) as meant:
            store = MemoryStore()
            lead = Lead([fetch, write], planner=addressed(name, endpoint), store=store)
            outcome = await lead.run(GOAL)
    assert (outcome.status, outcome.result) == ("succeeded", "Kestrel: 9.9"), outcome.reason
    assert len(endpoint.requests) == len(meant) == 2
    first, second = endpoint.requests
    assert (first.protocol, first.stream) == (wire_of(name), True)
    assert first.model == name.partition(":")[2]
    assert "never do it yourself" in first.system
    # The form arrives whole and open: parameters take whatever a worker takes.
    assert names_of(form_of(first)) == names_of(SCHEMA)
    assert is_open(form_of(first)["properties"]["steps"])
    assert True not in stricts(first.body)
    assert "tell: write: succeeded" in second.text
    calls = [each for each in events(store, outcome.run) if isinstance(each, ev.ModelCalled)]
    assert [(call.model, call.failure) for call in calls] == [(addressed(name, endpoint), "")] * 2
    assert all(call.input and call.output and call.asked and call.answer for call in calls)


def events(store, run):
    return [decode(entry.version, entry.body) for entry in store.read(run)]


@pytest.mark.parametrize("name", NAMES)
async def test_it_works_as_an_agent_with_tools(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []

    @worker(effects=())
    async def look_up(firm: str) -> str:
        """The price of a firm."""
        seen.append(firm)
        return "9.90"

    def script(request):
        if not request.results:
            return Use("look_up", {"firm": "Kestrel"})
        return Use("finish", {"result": {"price": request.results[-1].text[-40:]}})

    async with Endpoint(script) as endpoint:
        with redirected(endpoint, monkeypatch):
            returns = {
                "type": "object",
                "properties": {"price": {"type": "string"}},
                "required": ["price"],
            }
            agent = Agent(
                "helper", addressed(name, endpoint), tools=[look_up], returns=returns, gives="price"
            )
            # Direct: one worker can do it, and nobody plans.
            outcome = await Lead([agent]).run(Goal(text="Its price?", want="price", mode="direct"))
    assert outcome.status == "succeeded", outcome.reason
    assert seen == ["Kestrel"]
    first, second = endpoint.requests
    assert {"look_up", "finish", "needs_info", "too_complex"} <= {tool.name for tool in first.tools}
    offered = next(tool for tool in first.tools if tool.name == "look_up")
    assert offered.schema["properties"]["firm"]["type"] == "string"
    assert True not in stricts(first.body)
    assert "9.90" in second.results[0].text
    assert second.messages[1].calls[0].tool == "look_up"


@pytest.mark.parametrize("name", NAMES)
async def test_it_plans_for_a_fleet(name, monkeypatch):
    wave = {"kind": "done", "because": "all landed", "summary": "nothing to do"}
    async with Endpoint(answered(wave)) as endpoint:
        with redirected(endpoint, monkeypatch):
            backend = ModelBackend(ModelRegistry().client(addressed(name, endpoint)))
            answer = await backend.answer(TOLD, [])
    assert answer == wave
    (request,) = endpoint.requests
    assert names_of(form_of(request)) == names_of(EPIC)
    # A closed form is held to natively where that can be had.
    if name.startswith("anthropic:"):
        assert request.schema is not None
        assert request.schema["additionalProperties"] is False


@pytest.mark.parametrize("name", NAMES)
async def test_it_streams(name, monkeypatch):
    pieces = []
    async with Endpoint([Say("it is coming piece by piece, and then it is here")]) as endpoint:
        with redirected(endpoint, monkeypatch):
            asked = ModelRequest(system="be brief", turns=(UserMessage("hello"),))
            answer = (
                await ModelRegistry().client(addressed(name, endpoint)).ask(asked, pieces.append)
            )
    assert "".join(pieces) == answer.text
    assert len(pieces) > 1


NATIVE = {
    "anthropic",
    "azure",
    "cerebras",
    "chat",
    "fireworks",
    "heroku",
    "litellm",
    "openai",
    "openai-chat",
    "openai-responses",
    "openrouter",
    "responses",
    "vllm",
}
"""Providers whose first model can be held to a form natively; the others say that they cannot."""


@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
@pytest.mark.parametrize("name", [*one_each(), *(f"anthropic:{n}" for n in current("anthropic"))])
async def test_each_way_to_ask_for_data(name, mode, monkeypatch):
    known = parse_model(name if "@" in name else addressed(name, Endpoint([])))
    value = {"a": 1, "free": {"b": 2}}

    def script(request):
        if mode == "native" and name.startswith("anthropic:"):
            return Data({"a": 1, "free": '{"b": 2}'})  # Open parts are texts where it is strict.
        return Data(value, tool="answer" if mode == "tool" else "")

    async with Endpoint(script) as endpoint:
        with redirected(endpoint, monkeypatch):
            url = f"{endpoint.url}/v1" if known.url else ""
            book = ModelRegistry(
                models={"it": ModelName(known.provider, known.model, url, schema=mode)}
            )
            asked = ModelRequest(system="be brief", turns=(UserMessage("hello"),), schema=FORM)
            if mode == "native" and known.provider not in NATIVE:
                with pytest.raises(ModelFailure, match="not supported by this model"):
                    await book.client("it").ask(asked)
                return
            answer = await book.client("it").ask(asked)
    assert answer.data == value
    (request,) = endpoint.requests
    assert [tool.name for tool in request.tools] == (["answer"] if mode == "tool" else [])
    assert (request.schema is not None) == (mode == "native")
    assert ("JSON Schema" in request.system) == (mode == "prompted")


@pytest.mark.parametrize("name", [f"anthropic:{name}" for name in current("anthropic")])
async def test_claude_is_told_what_to_cache_and_cached_tokens_cost_less(name, monkeypatch):
    used = Tokens(10_000, 50, cached=8_000, written=1_000)
    async with Endpoint(answered(PLAN, DONE, usage=used)) as endpoint:
        with redirected(endpoint, monkeypatch):
            store = MemoryStore()
            lead = Lead([fetch, write], planner=name, store=store)
            outcome = await lead.run(Goal(text="Kestrel?", want="report", budget=5))
    assert outcome.status == "succeeded", outcome.reason
    first, second = endpoint.requests
    # System text, tool, what is stable of the question; and the whole, for the next round.
    assert first.body["system"][-1]["cache_control"]["type"] == "ephemeral"
    assert first.body["tools"][-1]["cache_control"]["type"] == "ephemeral"
    assert "cache_control" in first.body
    assert marks(first.body) <= 4, "Anthropic takes four"
    stable, *rest = first.body["messages"][0]["content"]
    assert stable["cache_control"]["type"] == "ephemeral"
    assert "fetch: What a firm asks." in stable["text"]
    assert not any("cache_control" in block for block in rest)
    # The next question begins as the first did, byte for byte.
    assert second.body["system"] == first.body["system"]
    assert second.body["tools"] == first.body["tools"]
    assert second.body["messages"][0]["content"][0] == stable
    call = next(each for each in events(store, outcome.run) if isinstance(each, ev.ModelCalled))
    assert (call.input, call.cached, call.written) == (10_000, 8_000, 1_000)
    price = calc_price(
        Used(
            input_tokens=10_000,
            cache_read_tokens=8_000,
            cache_write_tokens=1_000,
            output_tokens=50,
        ),
        name.partition(":")[2],
        provider_id="anthropic",
    )
    assert call.cost == pytest.approx(float(price.total_price))
    full = calc_price(Used(input_tokens=10_000, output_tokens=50), name.partition(":")[2])
    assert call.cost < float(full.total_price) / 2


@pytest.mark.parametrize("name", [f"openai:{name}" for name in current("openai")])
async def test_gpt_reads_the_same_beginning_again_and_cached_tokens_cost_less(name, monkeypatch):
    used = Tokens(10_000, 50, cached=8_000)
    async with Endpoint(answered(PLAN, DONE, usage=used)) as endpoint:
        with redirected(endpoint, monkeypatch):
            store = MemoryStore()
            lead = Lead([fetch, write], planner=name, store=store)
            outcome = await lead.run(GOAL)
    assert outcome.status == "succeeded", outcome.reason
    first, second = endpoint.requests
    assert first.system == second.system
    same = first.text.partition("# So far")[0]
    assert "fetch: What a firm asks." in same
    assert second.text.startswith(same)
    calls = [each for each in events(store, outcome.run) if isinstance(each, ev.ModelCalled)]
    assert [call.cached for call in calls] == [8_000, 8_000]
    model = name.partition(":")[2]
    price = calc_price(
        Used(input_tokens=10_000, cache_read_tokens=8_000, output_tokens=50),
        model,
        provider_id="openai",
    )
    assert calls[0].cost == pytest.approx(float(price.total_price))


async def test_no_marks_where_they_are_not_wanted():
    async with Endpoint([Say("yes")]) as endpoint:
        name = ModelName("anthropic", "claude-opus-4-5", f"{endpoint.url}/v1", cache=False)
        asked = ModelRequest(system="be brief", turns=(UserMessage("hello, you", stable=5),))
        await ModelRegistry(models={"it": name}).client("it").ask(asked)
    assert "cache_control" not in str(endpoint.requests[0].body)


NAMED = re.compile(rf"\b({'|'.join(sorted(PROVIDERS))}):([A-Za-z][\w./-]*[\w])(@\S+)?")
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted(
        each for kind in ("md", "toml", "py") for each in (ROOT / "examples").glob(f"**/*.{kind}")
    ),
    *sorted((ROOT / "src").glob("**/*.py")),
]
"""What people read and copy; error messages of the program too."""
SHOWN = sorted(
    {
        f"{provider}:{model}"
        for path in DOCUMENTS
        for provider, model, at in NAMED.findall(path.read_text())
        if provider not in ("chat", "responses") and not at
    }
)


def test_the_documents_name_models():
    """The regular expression would else find nothing for ever."""
    assert {"anthropic:claude-opus-4-5", "anthropic:claude-haiku-4-5"} <= set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
async def test_what_the_documents_show_can_be_asked(name, monkeypatch):
    assert name in NAMES, "a document shows a model that is not sold any more, or never was"
    await test_it_plans(name, monkeypatch)
