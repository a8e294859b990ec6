"""`[tiers]`, `[models]` and `[agents]` of leadhand.toml: what is read, and what is refused."""

import pytest

from leadhand.app.composition import registry_of
from leadhand.errors import UsageError
from leadhand.models.names import ModelName
from leadhand.settings import load_settings

WORKERS = """
from leadhand import worker

@worker(effects=())
async def look(at: str) -> str:
    "Look at something."
    return at

@worker(name="desk", action="open", effects="desk")
async def open_desk() -> None: ...

@worker(name="desk", action="shut", effects="desk")
async def shut_desk() -> None: ...
"""


def load(folder, text, **env):
    (folder / "leadhand.toml").write_text(text)
    (folder / "workers.py").write_text(WORKERS)
    return load_settings(environ={"HOME": str(folder / "home"), **env}, folder=folder)


def test_tiers_and_models_make_a_book(tmp_path):
    found = load(
        tmp_path,
        """
        [tiers]
        lead = "anthropic:claude-opus-4-5"
        hand = ["small", "openai:gpt-5-mini"]
        [models]
        big = "chat:qwen@http://127.0.0.1:1/v1"
        [models.small]
        provider = "chat"
        model = "qwen3"
        url = "http://127.0.0.1:8080/v1/"
        key = "SMALL_KEY"
        price_in = 0.1
        price_out = 1
        max_tokens = 2000
        schema = "prompted"
        """,
    )
    small = ModelName(
        "chat", "qwen3", "http://127.0.0.1:8080/v1", "SMALL_KEY", 0.1, 1, 2000, "prompted"
    )
    assert found.models["small"] == small
    client = found.book.client("hand")
    assert [model.name for model in client.models] == [str(small), "openai:gpt-5-mini"]
    assert client.models[0].known == small
    assert found.book.client("big").name == "chat:qwen@http://127.0.0.1:1/v1"


def test_a_tier_can_stand_in_a_variable(tmp_path):
    found = load(tmp_path, "", LEADHAND_TIERS__HAND="anthropic:claude-haiku-4-5")
    assert found.tiers == {"hand": ("anthropic:claude-haiku-4-5",)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tiers]\nhnad = "openai:x"', r'\[tiers\] has no key "hnad". Did you mean "hand"\?'),
        ("[tiers]\nhand = 3", "hand must be a model"),
        ('[tiers]\nhand = "smal"\n[models.small]\nprovider="openai"\nmodel="x"', '"small"'),
        ('[tiers]\nhand = "antropic:x"', "Did you mean anthropic"),
        ('[tiers]\nhand = "chat:x"', "needs an address"),
        ("[models.a]\nmodel = 'x'", "provider is missing; it must be a text"),
        ("[models.a]\nprovider = 'openai'", "model is missing; it must be a text"),
        ("[models.a]\nprovider='openai'\nmodle='x'", "modle is not known; did you mean model"),
        ("[models.a]\nprovider='opnai'\nmodel='x'", 'Did you mean "openai"'),
        ("[models.a]\nprovider='chat'\nmodel='x'", "needs an address"),
        ("[models.a]\nprovider='zai'\nmodel='x'\nurl='http://h'", "has an address of its own"),
        ("[models.a]\nprovider='openai'\nmodel='x'\nkey='sk-1 2'", "never the key itself"),
        ("[models.a]\nprovider='openai'\nmodel='x'\nprice_in=-1", "dollars for a million"),
        ("[models.a]\nprovider='openai'\nmodel='x'\nmax_tokens=0", "whole number from 1"),
        ("[models.a]\nprovider='openai'\nmodel='x'\nschema='best'", "schema must be one of"),
        ("[models]\na = 3", "must be a table, or a text"),
        ("[agents]\na = 3", r"written \[agents.a\]"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(tmp_path, text, words):
    with pytest.raises(UsageError, match=words) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "leadhand.toml") in str(caught.value)
    assert "sk-1" not in str(caught.value)


HEAD = "[project]\nworkers = ['workers.py']\n[tiers]\nhand = 'chat:m@http://127.0.0.1:1'\n"


def test_an_agent_is_declared_with_workers_as_tools(tmp_path):
    (tmp_path / "clerk.md").write_text("Be brief.\nAlways.")
    found = load(
        tmp_path,
        HEAD
        + """
        [agents.clerk]
        tier = "hand"
        tools = ["look", "desk:open"]
        instructions = "clerk.md"
        returns = {type = "string"}
        gives = "note"
        needs = ["topic"]
        timeout = "2 minutes"
        max_turns = 5
        """,
    )
    spec = registry_of(found).get("clerk").spec
    offer = spec.offers[""]
    assert (spec.kind, spec.description) == ("agent", "Be brief.")
    assert offer.effects == ("desk",)
    assert (offer.gives, offer.needs, offer.timeout_s) == (("note",), ("topic",), 120.0)
    assert offer.returns == {"type": "string"}
    assert not spec.stronger


def test_commands_and_files(tmp_path):
    (tmp_path / "form.json").write_text('{"type": "integer"}')
    text = "[agents.clerk]\ncommands = [['git', 'log']]\nreturns = 'form.json'\n"
    spec = registry_of(load(tmp_path, HEAD + text)).get("clerk").spec
    assert spec.offers[""].effects is None
    assert spec.offers[""].returns == {"type": "integer"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tools = ['lok']", "no worker is called 'lok'; did you mean look?"),
        ("tools = ['desk:burn']", "desk offers no 'burn'"),
        ("tier = 'hand'\nmodel = 'x'", "a tier or a model, not both"),
        ("instruction = 'x'", "did you mean instructions?"),
        ("instructions = 'gone.md'", "cannot be read"),
        ("returns = 'gone.json'", "gone.json cannot be read"),
        ("commands = ['git']", "must be lists of arguments"),
        ("max_turns = 'many'", "max_turns: must be a whole number"),
    ],
)
def test_an_agent_that_makes_no_sense_is_refused_with_its_place(tmp_path, text, words):
    found = load(tmp_path, f"{HEAD}[agents.clerk]\n{text}")
    with pytest.raises(UsageError, match=r"leadhand\.toml: agents\.clerk") as caught:
        registry_of(found)
    assert words in str(caught.value)


def test_behind_a_declared_agent_stands_the_stronger_one(tmp_path):
    text = HEAD + "strong = 'chat:big@http://127.0.0.1:1'\n[agents.clerk]\n"
    registry = registry_of(load(tmp_path, text))
    assert registry.get("clerk").spec.stronger == "clerk@strong"
    assert registry.get("clerk@strong").spec.kind == "agent"
