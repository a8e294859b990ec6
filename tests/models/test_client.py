"""Fallbacks, prices, budgets and the record of every call."""

import asyncio
import math

import pytest

from leadhand.models import prices
from leadhand.models.client import Client
from leadhand.models.failures import ELSEWHERE, ModelFailure
from leadhand.models.messages import ModelAnswer, ModelRequest, Usage, UserMessage
from leadhand.models.meter import payer
from leadhand.models.names import ModelName
from leadhand.models.registry import ModelRegistry
from leadhand.testing import ScriptedModel
from leadhand.testing.models import Price

ASKED = ModelRequest(system="s", turns=(UserMessage("hello"),), max_tokens=1000)


class Purse:
    """A budget that counts."""

    def __init__(self, budget=math.inf):
        self.budget, self.calls, self.aside, self.peak = budget, [], 0.0, 0.0

    async def reserve(self, wanted, least):
        left = self.budget - self.aside - sum(call.cost for call in self.calls)
        if left < least:
            raise ModelFailure("budget", "spent")
        reserved = min(wanted, left)
        self.aside += reserved
        return reserved

    def settle(self, reserved, call):
        self.aside -= reserved
        self.calls.append(call)


@pytest.fixture
def purse():
    made = Purse()
    token = payer.set(made)
    yield made
    payer.reset(token)


async def test_a_call_is_written_down(purse):
    model = ScriptedModel(["hi"], price=Price(1.0, 2.0), usage=Usage(1_000_000, 500_000))
    answer = await Client([model], "hand").ask(ASKED, prompt="abc")
    assert answer.cost == 2.0
    (call,) = purse.calls
    assert (call.model, call.tier, call.cost, call.failure) == ("scripted", "hand", 2.0, "")
    assert (call.usage.input, call.usage.output, call.prompt) == (1_000_000, 500_000, "abc")


@pytest.mark.parametrize("kind", sorted(ELSEWHERE))
async def test_the_next_model_is_asked_when_one_is_down(purse, kind):
    first = ScriptedModel([ModelFailure(kind, "down")], name="first")
    second = ScriptedModel(["hi"], name="second")
    answer = await Client([first, second]).ask(ASKED)
    assert (answer.text, answer.model) == ("hi", "second")
    assert [(call.model, call.failure) for call in purse.calls] == [("first", kind), ("second", "")]


@pytest.mark.parametrize("kind", ["policy", "invalid_output", "context_overflow", "budget"])
async def test_nobody_else_is_asked_when_the_question_is_at_fault(purse, kind):
    first = ScriptedModel([ModelFailure(kind, "no")], name="first")
    second = ScriptedModel(["hi"], name="second")
    with pytest.raises(ModelFailure) as caught:
        await Client([first, second]).ask(ASKED)
    assert caught.value.failure_class == kind
    assert second.requests == []


async def test_the_last_failure_is_the_one_that_is_told(purse):
    models = [ScriptedModel([ModelFailure("transient", f"{i}")], name=f"{i}") for i in range(3)]
    with pytest.raises(ModelFailure, match="2"):
        await Client(models).ask(ASKED)
    assert len(purse.calls) == 3


async def test_an_answer_is_kept_as_short_as_there_is_money_for():
    purse = Purse(budget=0.01)
    token = payer.set(purse)
    model = ScriptedModel(["hi", "hi"], price=Price(0.0, 20.0), usage=Usage(10, 10))
    await Client([model]).ask(ASKED)
    assert model.requests[0].max_tokens == 500
    purse.budget = 0.0002
    with pytest.raises(ModelFailure) as caught:
        await Client([model]).ask(ASKED)
    assert caught.value.failure_class == "budget"
    assert len(model.requests) == 1, "it was not asked"
    payer.reset(token)


async def test_a_call_that_is_broken_off_is_written_down_too(purse):
    async def never(_request):
        await asyncio.sleep(60)

    model = ScriptedModel(never, price=Price(1.0, 1.0))
    task = asyncio.create_task(Client([model]).ask(ASKED))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (call,) = purse.calls
    assert call.failure == "lost"
    assert call.cost > 0, "its question was read by somebody"
    assert purse.aside == 0


def test_prices():
    published = ModelName("anthropic", "claude-sonnet-4-5")
    assert prices.cost(published, Usage(1000, 100)) == pytest.approx(0.0045)
    assert prices.cost(ModelName("anthropic", "claude-unheard-of"), Usage(1, 1)) is None
    assert prices.cost(ModelName("chat", "m", "http://127.0.0.1/v1"), Usage(9, 9)) == 0.0
    own = ModelName("chat", "m", "http://127.0.0.1/v1", price_in=3.0, price_out=15.0)
    assert prices.cost(own, Usage(1000, 100)) == pytest.approx(0.0045)


async def test_a_model_without_a_known_price_is_not_asked_on_a_budget():
    purse = Purse(budget=100.0)
    token = payer.set(purse)
    model = ScriptedModel(["hi"])
    model.known = ModelName("openai", "gpt-unheard-of")
    with pytest.raises(ModelFailure):
        await Client([model]).ask(ASKED)
    assert model.requests == []
    payer.reset(token)


def test_a_bound_is_no_less_than_the_cost():
    name = ModelName("chat", "m", "x", price_in=1.0, price_out=2.0)
    text = "words and numbers, 12 of them; ÄÖÜ 漢字かな交じり文 " * 200
    request = ModelRequest(system=text, turns=(UserMessage(text),), max_tokens=100)
    asked, each = prices.bound(name, request)
    assert asked >= prices.cost(name, Usage(len(text), 0))
    assert each == pytest.approx(2e-6)


def test_tiers_and_names():
    book = ModelRegistry(
        {"hand": ("small", "anthropic:claude-haiku-4-5")},
        {"small": ModelName("chat", "qwen", "http://127.0.0.1:1/v1")},
    )
    client = book.client("hand")
    assert [model.name for model in client.models] == [
        "chat:qwen@http://127.0.0.1:1/v1",
        "anthropic:claude-haiku-4-5",
    ]
    assert client.tier == "hand"
    assert book.client(client) is client
    assert book.client(ScriptedModel([])).name == "scripted"
    assert book.knows("small")
    assert book.knows("openai:gpt-5")
    assert not book.knows("plan.py:next_step")


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("strong", "has no model"),
        ("smal", "Did you mean small"),
        ("anthropc:claude", "Did you mean anthropic"),
        ("chat:qwen", "needs an address"),
        ("zai:x@http://127.0.0.1/v1", "an address of its own"),
        ("google:gemini-3.8-flash", 'provider = "chat", model = "gemini-3.8-flash", url = "https'),
        ("chat:x@http:///v1", "is no address"),
        ("chat:x@http://me:pw@host/v1", "no password"),
        ("openai:", "names no model"),
    ],
)
def test_a_wrong_name_is_told_with_a_fix(word, words):
    from leadhand.errors import UsageError

    book = ModelRegistry(
        {"hand": ("small",)}, {"small": ModelName("chat", "q", "http://127.0.0.1:1/v1")}
    )
    with pytest.raises(UsageError, match=words):
        book.client(word)


def test_an_answer_goes_on_as_a_turn():
    assert ModelAnswer(text="x").turn().text == "x"
    assert Usage(1, 2, 3, 4) + Usage(1, 1, 1, 1) == Usage(2, 3, 4, 5)


def test_without_the_package_no_price_is_known(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "genai_prices", None)
    prices._published.cache_clear()
    assert prices.cost(ModelName("anthropic", "claude-sonnet-4-5"), Usage(1, 1)) is None
    prices._published.cache_clear()


def test_what_is_missing_is_said_before_anything_begins(monkeypatch):
    from leadhand.errors import UsageError
    from leadhand.models import registry as books

    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    book = ModelRegistry({"lead": ("anthropic:claude-opus-4-5",)})
    with pytest.raises(UsageError, match="set ANTHROPIC_API_KEY"):
        book.refuse_unready("lead")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    book.refuse_unready("lead")
    book.refuse_unready("chat:m@http://127.0.0.1:1/v1")
    monkeypatch.setattr(books, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="pip install"):
        book.refuse_unready("lead")
