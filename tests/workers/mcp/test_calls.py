"""Calls to a real MCP server, over stdio and over HTTP: results, limits, deaths, orphans."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand import Lead, McpServer
from leadhand.errors import InvalidOutput, Permanent, Transient, UsageError, WorkerFailure
from tests.support.attempts import FakeContext, task
from tests.support.commands import running, until
from tests.support.mcp_trial import PROGRAM, noted, served

pytestmark = pytest.mark.real


# --- calls --------------------------------------------------------------------------------


async def test_structured_content_is_the_data(server):
    assert await server.tool("add").call({"a": 2}, FakeContext()) == {"total": 3, "terms": [2, 1]}
    assert await server.tool("say").call({"text": "hö"}, FakeContext()) == "hö"
    report = await server.tool("add").perform(task(a=1, b=5), FakeContext())
    assert (report.status, report.data["total"]) == ("succeeded", 6)


async def test_a_tools_own_error_is_permanent(server):
    """It has spoken: it is there, and the same words will get the same answer."""
    report = await server.tool("fail").perform(task(), FakeContext())
    assert report.error.failure_class == "permanent"
    assert report.error.effect == "none"
    assert report.error.message.startswith("trial: the tool failed: ")
    with pytest.raises(Permanent):
        await server.tool("add").call({"a": "no number"}, FakeContext())


async def test_one_connection_is_shared(program):
    """However many call at once, first or later, one program serves them."""
    server, _ = program
    tools = [server.tool("environment") for _ in range(20)]
    answers = await asyncio.gather(*(each.call({}, FakeContext()) for each in tools))
    marks = {json.loads(each)["LEADHAND_SPAWN"] for each in answers}
    assert len(marks) == 1


async def test_progress_is_passed_on(server):
    context = FakeContext()
    assert await server.tool("nap").call({"seconds": 0.01}, context) == "slept"
    assert context.said == [("dozing", 0.25)]


async def test_a_call_out_of_time_is_cancelled_on_the_server(program):
    server, log = program
    await server.tool("say").call({"text": "warm"}, FakeContext())
    report = await server.tool("nap", timeout=0.3).perform(task(), FakeContext())
    assert (report.error.failure_class, report.error.effect) == ("timeout", "unknown")
    await until(lambda: {"tool": "nap", "state": "cancelled"} in noted(log), 20)
    harmless = await server.tool("nap", timeout=0.3, effects=()).perform(task(), FakeContext())
    assert (harmless.error.failure_class, harmless.error.effect) == ("timeout", "none")


async def test_a_call_over_http_out_of_time_is_cancelled_on_the_server(tmp_path):
    log = tmp_path / "log"
    with served("--log", str(log)) as (_, port):
        server = McpServer(name="trial", url=f"http://127.0.0.1:{port}/mcp")
        await server.load()
        with pytest.raises(WorkerFailure) as raised:
            await server.tool("nap", timeout=1).call({}, FakeContext())
        assert raised.value.failure_class == "timeout"
        await until(lambda: {"tool": "nap", "state": "cancelled"} in noted(log), 20)
        await server.close()


async def test_cancelling_a_step_cancels_the_call(program):
    server, log = program
    call = asyncio.ensure_future(server.tool("nap").call({}, FakeContext()))
    await until(lambda: any(each.get("state") == "started" for each in noted(log)), 20)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: {"tool": "nap", "state": "cancelled"} in noted(log), 20)
    assert await server.tool("say").call({"text": "still here"}, FakeContext()) == "still here"


async def test_a_result_that_is_too_large_fails_its_call_alone(server):
    """The others, and the connection, go on."""
    nap = asyncio.ensure_future(server.tool("nap").call({"seconds": 0.5}, FakeContext()))
    with pytest.raises(InvalidOutput, match="larger than 100,000 bytes") as raised:
        await server.tool("huge").call({"size": 300_000}, FakeContext())
    assert raised.value.effect == "done"
    assert await nap == "slept"
    assert len(await server.tool("huge").call({"size": 50_000}, FakeContext())) == 50_000


# --- death --------------------------------------------------------------------------------


async def test_a_server_that_dies_in_a_call(program):
    """What it did is unknown; how it died is said; the next call starts it again."""
    server, _ = program
    report = await server.tool("die").perform(task(), FakeContext())
    assert (report.error.failure_class, report.error.effect) == ("lost", "unknown")
    assert "it exited with 3" in report.error.message
    assert "a last word" in report.error.message
    assert await server.tool("say").call({"text": "back"}, FakeContext()) == "back"
    with pytest.raises(Transient) as raised:
        await server.tool("die", effects=()).call({}, FakeContext())
    assert raised.value.effect == "none"


async def test_a_server_that_is_killed_in_a_call(program):
    server, log = program
    call = asyncio.ensure_future(server.tool("nap").perform(task(), FakeContext()))
    await until(lambda: any(each.get("state") == "started" for each in noted(log)), 20)
    os.kill(noted(log)[-1]["pid"], signal.SIGKILL)
    report = await call
    assert (report.error.failure_class, report.error.effect) == ("lost", "unknown")
    assert "signal 9" in report.error.message


async def test_a_server_over_http_that_dies_and_comes_back():
    with served() as (process, port):
        server = McpServer(name="trial", url=f"http://127.0.0.1:{port}/mcp")
        await server.load()
        report = await server.tool("die").perform(task(), FakeContext())
        assert (report.error.failure_class, report.error.effect) == ("lost", "unknown")
        process.wait()
        report = await server.tool("say").perform(task(text="x"), FakeContext())
        assert (report.error.failure_class, report.error.effect) == ("transient", "none")
        with served(port=port):
            assert await server.tool("say").call({"text": "back"}, FakeContext()) == "back"
        await server.close()


@pytest.mark.parametrize(
    ("status", "kind", "wait"),
    [(401, "denied", None), (429, "rate_limited", 7.0), (503, "transient", 7.0)],
)
async def test_a_status_has_its_class(tmp_path, status, kind, wait):
    with served() as (_, port):
        pinned = McpServer(name="trial", url=f"http://127.0.0.1:{port}/mcp")
        await pinned.load()
    with served("--status", str(status), port=port):
        report = await pinned.tool("say").perform(task(text="x"), FakeContext())
    assert report.error.failure_class == kind
    assert f"answered {status}: not now" in report.error.message
    await pinned.close()


def test_a_server_that_never_answers_is_given_up(tmp_path):
    """Whether it is silent, says nonsense, or leaves; and nothing of it is left."""
    mark = f"{tmp_path}/alive"
    silent = ["sh", "-c", f"echo hello; echo $$ > {mark}; exec sleep 1000"]
    with pytest.raises(UsageError, match=r"did not answer within 1 s.*it printed 'hello'"):
        McpServer(name="x", command=silent, connect_timeout=1).listing()
    assert not running(int(Path(mark).read_text()))
    leaves = McpServer(name="x", command=["sh", "-c", "echo wrong arguments >&2; exit 2"])
    with pytest.raises(UsageError, match="it exited with 2: wrong arguments"):
        leaves.listing()


# --- orphans ------------------------------------------------------------------------------

HOST = """
import asyncio, json, sys
from leadhand import Lead, McpServer

server = McpServer(name="trial", command=sys.argv[2:])
plan = {"steps": [{"id": "a", "worker": "trial.nap"}]}
asyncio.run(Lead(workers=[server.tool("nap")], store=sys.argv[1]).run(plan, approve=True))
"""


async def test_no_orphan_after_the_host_is_killed(tmp_path):
    log = tmp_path / "log"
    command = [*PROGRAM, "--log", str(log)]
    with subprocess.Popen([sys.executable, "-c", HOST, tmp_path / "runs.db", *command]) as host:
        await until(lambda: any(each.get("state") == "started" for each in noted(log)), 30)
        pid = noted(log)[-1]["pid"]
        assert running(pid)
        host.kill()
    await until(lambda: not running(pid), 10)


async def test_it_leaves_with_its_host(tmp_path):
    """A Lead that is done leaves nothing running, and can be used again."""
    server = McpServer(name="trial", command=PROGRAM)
    await server.load()
    lead = Lead(workers=[server.tool("environment", effects=())], store=tmp_path / "runs.db")
    plan = {"steps": [{"id": "a", "worker": "trial.environment"}]}
    for _ in range(2):
        outcome = await lead.run(plan, approve=True)
        mark = json.loads(outcome.result)["LEADHAND_SPAWN"].encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                assert mark not in entry.read_bytes()
            except OSError:
                continue
