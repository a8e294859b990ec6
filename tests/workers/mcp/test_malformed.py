"""Servers that say malformed things: what is malformed is left out or fails alone."""

import json
import random
import sys
from pathlib import Path

import pytest

from leadhand import McpServer
from tests.support.attempts import FakeContext, task
from tests.support.cli import Folder

pytestmark = pytest.mark.real
PROGRAM = Path(__file__).parents[2] / "support" / "mcp_malformed.py"
GOOD = {"name": "good", "description": "Fine.", "inputSchema": {"type": "object"}}
SAID = json.dumps({"content": [{"type": "text", "text": "fine"}]})

MALFORMED = {
    "a schema that is a text": {"inputSchema": "object"},
    "a schema that is a list": {"inputSchema": [1, 2]},
    "no schema": {"inputSchema": None},
    "a schema of a text": {"inputSchema": {"type": "string"}},
    "a description that is a number": {"description": 5},
    "a result schema that is a text": {"outputSchema": "object"},
    "annotations that are a list": {"annotations": ["readOnlyHint"]},
    "a hint that is an object": {"annotations": {"readOnlyHint": {}}},
    "icons that are a number": {"icons": 7},
    "a required that is a number": {"inputSchema": {"type": "object", "required": 5}},
}


def command(tmp_path, tools, answers=None):
    """How to start a server that lists these tools."""
    file = tmp_path / "said.json"
    file.write_text(json.dumps({"tools": tools, "answers": answers or {}}))
    return [sys.executable, str(PROGRAM), str(file)]


async def called(tmp_path, answer, timeout=60):
    """The report of a call that is answered with this text, and of the call after it."""
    tools = [GOOD, {**GOOD, "name": "odd"}]
    reach = command(tmp_path, tools, {"good": SAID, "odd": answer})
    server = McpServer(name="m", command=reach, timeout=timeout)
    try:
        await server.load()
        odd = await server.tool("odd", effects=()).perform(task(), FakeContext())
        good = await server.tool("good", effects=()).perform(task(), FakeContext())
        return odd, good
    finally:
        await server.close()


async def test_one_malformed_tool_leaves_only_itself_out(tmp_path):
    """Each in its own way, all in one list with one that is fine."""
    odd = [{**GOOD, "name": name, **change} for name, change in MALFORMED.items()]
    tools = [*odd[:5], GOOD, *odd[5:], {"inputSchema": {}}, "a text", None, 7, {**GOOD, "name": 5}]
    server = McpServer(name="m", command=command(tmp_path, tools))
    await server.load()
    listing = server.listing()
    assert set(listing.tools) == {"good"}
    assert set(MALFORMED) <= set(listing.unusable)
    assert all(listing.unusable.values())


async def test_a_list_of_random_rubbish_leaves_the_good_tool(tmp_path):
    """Any value in any place of a definition."""
    chance = random.Random(7)
    values = [None, True, -1, 1.5, "", "x", [], [[]], {}, {"type": 5}, {"$ref": "#/x"}, "\ud800"]
    keys = [*GOOD, "outputSchema", "annotations", "icons", "execution", "_meta", "title"]
    odd = []
    for number in range(200):
        tool = {**GOOD, "name": f"odd{number}"}
        for key in chance.sample(keys, 3):
            tool[key] = chance.choice(values)
        odd.append(tool)
    server = McpServer(name="m", command=command(tmp_path, [*odd, GOOD]))
    await server.load()
    assert "good" in server.listing().tools
    assert server.tool("good").spec.name == "m.good"


@pytest.mark.parametrize(
    "answer",
    [
        '{"content": [], "structuredContent": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"content": [], "structuredContent": ' + '{"a":' * 5000 + "1" + "}" * 5001,
        '{"content": "a text"}',
        '{"content": [{"type": "odd"}]}',
        '{"content": [{"type": "text", "text": 5}]}',
        '"a text"',
        "[]",
        "null",
        "NaN",
        "{",
        '{"content": [], "structuredContent": {"a": 1e999}}',
    ],
    ids=lambda answer: answer[:40],
)
async def test_a_malformed_answer_is_invalid_output_at_once(tmp_path, answer):
    """It is not waited for until the time is up, and the next call is as good as ever."""
    odd, good = await called(tmp_path, answer)
    assert odd.error is not None
    assert odd.error.failure_class == "invalid_output", odd.error
    assert good.data == "fine"


def test_what_is_left_out_is_noted(tmp_path):
    """In `ls workers`, `mcp` and `doctor`; whatever else the server has can be used."""
    folder = Folder(tmp_path)
    reach = json.dumps(command(tmp_path, [{**GOOD, "name": "odd", "inputSchema": "x"}, GOOD]))
    folder.write("leadhand.toml", f"[mcp.m]\ncommand = {reach}\n")
    listed = folder.run("ls", "workers")
    assert (listed.code, "m.good" in listed.out) == (0, True), listed
    assert "left out: m.odd: inputSchema" in listed.err
    shown = folder.run("ls", "workers", "--json").doc
    assert "inputSchema" in shown["left_out"]["m.odd"]
    assert "left out: odd" in folder.run("mcp", "tools").err
    assert "the tool odd is left out" in folder.run("doctor").out
    folder.write("leadhand.toml", f'[mcp.m]\ncommand = {reach}\ntools = ["good", "odd"]\n')
    assert "left out: m.odd" in folder.run("ls", "workers").err
