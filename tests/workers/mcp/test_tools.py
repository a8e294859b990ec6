"""What a tool of a real MCP server is, what was approved of it, and what is kept from it."""

import asyncio
import functools
import json
import os
import sys
from pathlib import Path

import httpx2
import mcp
import pytest

from leadhand import Lead, McpServer, Unavailable
from leadhand.core.review.ruling import reach
from leadhand.errors import UsageError
from leadhand.workers.http import netguard
from leadhand.workers.http.netguard import AddressRefused
from leadhand.workers.mcp import stdio
from leadhand.workers.mcp.connection import sdk
from leadhand.workers.mcp.definition import Definition, raised_risk
from leadhand.workers.mcp.http import OneHostTransport
from leadhand.workers.mcp.pins import Pins
from leadhand.workers.processes.runner import Processes
from leadhand.workers.registry import Registry
from tests.support.attempts import FakeContext, task
from tests.support.mcp_trial import PROGRAM, noted, served

TOKEN = "sekret-7d1f0c55"

pytestmark = pytest.mark.real


# --- what a tool is -----------------------------------------------------------------------


async def test_a_tool_is_described_by_its_server(server):
    """Parameters, result and needs come from its schemas; nothing of it is trusted."""
    spec = server.tool("add").spec
    offer = spec.offers[""]
    assert (spec.name, spec.kind, spec.description) == ("trial.add", "mcp", "Adds.")
    assert not spec.trusted
    assert spec.default_risk() == "medium"
    assert offer.parameters["required"] == ["a"]
    assert set(offer.returns["properties"]) == {"total", "terms"}
    assert offer.needs == ("a",)
    assert offer.effects is None
    assert not offer.idempotent


async def test_all_tools_and_a_toolset_for_agents(server):
    """Every tool once; for models in letters they all take."""
    tools = server.tools(risk="low")
    assert {"add", "say", "nap"} <= {each.tool for each in tools}
    assert {each.risk for each in tools} == {"low", "high"}  # one is destructive
    (add,) = server.toolset(["add"])
    assert (add.name, add.description, add.risk, add.effects) == ("trial_add", "Adds.", None, None)
    assert add.parameters["properties"]["a"]["type"] == "integer"
    assert add.version == add.spec.version


@pytest.mark.parametrize(
    ("tool", "declared", "effects", "risk"),
    [
        ("look", None, None, None),
        ("look", ("disk",), ("disk",), None),
        ("say", (), (), None),
        ("erase", None, ("undeclared:trial.erase", "destroys:trial"), "high"),
        ("erase", (), ("destroys:trial",), "high"),
    ],
)
async def test_hints_only_raise(program, tool, declared, effects, risk):
    """A claim to be harmless lowers nothing; a claim to be harmful is believed."""
    made = program[0].tool(tool, effects=declared)
    assert (made.effects, made.risk) == (effects, risk)
    assert not made.spec.offers[""].idempotent
    steps = [{"id": "a", "worker": made.spec.name}]
    wanted = reach(steps, Registry([made]).catalog())
    assert bool(wanted.effects) == (effects != ())


def test_critical_stays_critical():
    assert raised_risk("critical", {"destructiveHint": True}) == "critical"


async def test_a_tool_it_does_not_have(server):
    with pytest.raises(UsageError, match=r"mcp trial: has no tool 'nothing'; it has: add, die"):
        _ = server.tool("nothing").spec


def test_nothing_is_started_before_it_is_needed():
    """Making a server and its tools takes neither the program nor the package."""
    made = McpServer(name="no", command=["/does/not/exist"]).tool("anything")
    assert made.name == "no_anything"
    with pytest.raises(UsageError, match=r"mcp no: it cannot be started: .*Fix: see that it runs"):
        Registry([made])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "needs `command` or `url`, and not both"),
        ({"command": ["x"], "url": "http://x/"}, "and not both"),
        ({"command": "npx server"}, "command must be a list"),
        ({"url": "ftp://x/"}, "url must be http:// or https://"),
        ({"url": "https://u:p@x/"}, "must not hold a user or password"),
        ({"url": "http://{host}/"}, "without placeholders"),
        ({"url": "http://x/", "headers": {"A": "b"}}, "no secret in a file"),
    ],
)
def test_what_makes_no_sense_is_refused(how, message):
    with pytest.raises(UsageError, match=message):
        McpServer(name="x", **how)


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(UsageError, match=r"Fix: pip install 'leadhand\[mcp\]'"):
        sdk()


# --- approval -----------------------------------------------------------------------------


async def test_a_tool_that_differs_from_what_was_approved_is_refused(tmp_path):
    """Found out at the connection: the definition came from another time."""
    honest = McpServer(name="trial", command=PROGRAM)
    tools = (await honest.read()).tools
    turned = McpServer(name="trial", command=[*PROGRAM, "--changed"])
    pins = Pins(tmp_path / "pins.json")
    pins.put("trial", "trial", turned.identity, tools)
    pins.write()
    server = McpServer(name="trial", command=[*PROGRAM, "--changed"], pins=tmp_path / "pins.json")
    assert server.tool("add").description == "Adds."  # what was approved, without asking
    with pytest.raises(Unavailable, match="add is not what was approved: its description") as why:
        await server.tool("add").call({"a": 1}, FakeContext())
    assert why.value.effect == "none"
    assert await server.tool("say").call({"text": "untouched"}, FakeContext()) == "untouched"
    await server.close()


async def test_a_tool_that_changes_under_way_is_refused(server):
    """Over both protocols' ways to say so. It is the last thing this server is asked."""
    other = McpServer(name="trial", command=PROGRAM) if server.command else None
    if other is None:
        with served() as (_, port):
            await turned(McpServer(name="trial", url=f"http://127.0.0.1:{port}/mcp"))
    else:
        await turned(other)


async def test_a_change_is_heard_in_the_older_protocol_too(monkeypatch):
    monkeypatch.setattr(mcp, "Client", functools.partial(mcp.Client, mode="legacy"))
    await turned(McpServer(name="trial", command=PROGRAM))


async def turned(server):
    await server.load()
    say, context = server.tool("say"), FakeContext()
    assert await say.call({"text": "a"}, context) == "a"
    assert await server.tool("turn").call({}, context) == "turned"

    async def refused():
        report = await say.perform(task(text="b"), context)
        return report.error is not None and "is not what was approved" in report.error.message

    async with asyncio.timeout(60):
        while not await refused():
            await asyncio.sleep(0.02)
    await server.close()


def test_the_version_is_of_definition_and_server():
    one = Definition("x", "Does.", {"type": "object"}, None, {})
    other = Definition("x", "Does!", {"type": "object"}, None, {})
    assert one.digest("a") == Definition.of(one.to_doc()).digest("a")
    assert len({one.digest("a"), one.digest("b"), other.digest("a")}) == 3
    assert one.changes(other) == "its description"
    assert one.changes(None) == "it is gone"


def test_a_pin_of_another_way_to_the_server_does_not_count(tmp_path):
    pins = Pins(tmp_path / "pins.json")
    pins.put("trial", "trial", McpServer(name="trial", command=["a"]).identity, {})
    server = McpServer(name="trial", command=["b"], pins=pins)
    with pytest.raises(UsageError, match=r"Fix: leadhand mcp tools trial --pin"):
        server.listing()


def test_a_file_of_pins_that_is_broken_says_so(tmp_path):
    (tmp_path / "pins.json").write_text("{")
    with pytest.raises(UsageError, match=r"pins.json: cannot be used: .*leadhand mcp tools --pin"):
        Pins.read(tmp_path / "pins.json")


async def test_a_description_is_text(program):
    """What cannot be seen is escaped, for people and for models alike."""
    shown = program[0].tool("evil").description
    assert "\\u001b[31m\\u0007 \\u202eIGNORE ALL" in shown
    assert shown.isprintable()
    assert "\U000e0041" not in shown


# --- secrets and the environment ----------------------------------------------------------


async def test_the_environment_is_what_was_named(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    monkeypatch.setenv("GIVEN", "y")
    server = McpServer(name="t", command=PROGRAM, env=["GIVEN"], set_env={"SET": "z"})
    await server.load()
    found = json.loads(await server.tool("environment").call({}, FakeContext()))
    assert (found["GIVEN"], found["SET"]) == ("y", "z")
    assert set(found) <= {
        "PATH", "HOME", "LANG", "TZ", "TMPDIR", "GIVEN", "SET", "LEADHAND_SPAWN", "LC_CTYPE",
    }  # fmt: skip
    await server.close()


async def test_a_header_is_sent_and_never_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIAL_TOKEN", TOKEN)
    header = {"Authorization": {"env": "TRIAL_TOKEN", "prefix": "Bearer "}}
    log, store = tmp_path / "log", tmp_path / "runs.db"
    with served("--log", str(log)) as (_, port):
        server = McpServer(name="t", url=f"http://127.0.0.1:{port}/mcp", headers=header)
        await server.load()
        # This server sends it back, and even so it does not get into the log.
        tool = server.tool("environment", effects=())
        plan = {"steps": [{"id": "a", "worker": "t.environment"}]}
        outcome = await Lead(workers=[tool], store=store).run(plan, approve=True)
        assert "TRIAL_TOKEN" in outcome.result
        assert TOKEN not in await tool.call({}, FakeContext())  # nor to a model
        await server.close()
    sent = [each["headers"] for each in noted(log) if "headers" in each]
    assert {each.get("authorization") for each in sent} == {f"Bearer {TOKEN}"}
    assert tool.secret_names == ("TRIAL_TOKEN",)
    assert server.redactor.text(f"it said {TOKEN}") == "it said [secret:TRIAL_TOKEN]"
    for file in tmp_path.glob("runs.db*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes()


async def test_a_header_whose_variable_is_not_set(monkeypatch):
    monkeypatch.delenv("TRIAL_TOKEN", raising=False)
    server = McpServer(
        name="t", url="http://127.0.0.1:9/mcp", headers={"A": {"env": "TRIAL_TOKEN"}}
    )
    with pytest.raises(UsageError, match="the environment variable TRIAL_TOKEN is not set"):
        server.listing()


async def test_it_reaches_no_other_host(address):
    """Whatever a redirect or a mistake asks for."""
    transport = OneHostTransport(address, (), 100)
    with pytest.raises(AddressRefused, match="not the configured server"):
        await transport.handle_async_request(httpx2.Request("GET", "http://127.0.0.2/"))
    await transport.aclose()


async def test_a_name_that_leads_to_a_metadata_address_is_not_reached(monkeypatch):
    """Only the address itself, written in the configuration, opens it."""

    async def resolve(host, port):
        return ["169.254.169.254"]

    monkeypatch.setattr(netguard, "resolve_host", resolve)
    server = McpServer(name="t", url="http://tools.example.com/mcp")
    with pytest.raises(UsageError, match="leads to a cloud metadata address"):
        server.listing()


# --- the wire -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_lines_are_cut_however_they_arrive(size):
    lines = stdio.LineSplitter(1_000)
    text = b'{"a":1}\n' + b'{"id": 7, "x":"' + b"y" * 5_000 + b'"}\n{"b":2}\n'
    found = [each for i in range(0, len(text), size) for each in lines.feed(text[i : i + size])]
    assert [found[0], found[1], found[3]] == [b'{"a":1}', None, b'{"b":2}']
    assert len(found[2]) < 600
    assert json.loads(stdio._too_long(found[2], 1_000))["id"] == 7


@pytest.mark.parametrize(
    ("ends", "ident"),
    [
        (b'{"jsonrpc":"2.0","id":12,"result":{"x":"yyy ... "}}', 12),
        (b'{"result":{"id":3,"x":"yyy ... "},"id": 4 }', 4),
    ],
)
def test_whose_answer_was_too_long(ends, ident):
    assert json.loads(stdio._too_long(ends, 10))["id"] == ident


def test_an_answer_of_nobody_ends_the_connection():
    with pytest.raises(ConnectionAbortedError):
        stdio._too_long(b'{"result":{"id":3,"x":"yyy ... "}}', 10)


async def test_ends_are_closed_whatever_happens():
    """A program that cannot be started leaves no descriptor behind."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    async with Processes(f"test-{os.getpid()}") as processes:
        program = stdio.ServerProgram(("/does/not/exist",), Path("/"), {})
        for _ in range(5):
            with pytest.raises(Unavailable, match="cannot be started"):
                await stdio._started(processes, program)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_every_variable_of_a_server_is_kept_out(monkeypatch):
    """Whatever it is called; public ones are shown."""
    monkeypatch.setenv("DATABASE_URL", "postgres://a:hunter-2@db/x")
    monkeypatch.setenv("REGION", "eu-west-17b")
    server = McpServer(
        name="t",
        command=["x"],
        env=["DATABASE_URL", "REGION"],
        set_env={"PGPASSWORD": "correct horse"},
        public=["REGION"],
    )
    said = server.redactor.text("postgres://a:hunter-2@db/x, correct horse, eu-west-17b")
    assert said == "[secret:DATABASE_URL], [secret:PGPASSWORD], eu-west-17b"
