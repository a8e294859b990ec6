"""A project that an MCP server serves, and clients of it."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.types import Implementation
from pydantic import TypeAdapter

from leadhand.mcp.runs import Workplace
from leadhand.mcp.service import project_server
from tests.support.cli import PROGRAM, Folder, environment

SETTINGS = """\
[workers.hello]
command = ["true"]
effects = []
risk = "low"

[workers.deploy]
command = ["true"]
effects = ["deploys"]
risk = "high"

[workers.nap]
command = ["sh", "-c", "echo nap >> naps.txt; sleep 4"]
effects = []
risk = "low"
idempotent = true
"""
HELLO = {"goal": "greet", "steps": [{"id": "a", "worker": "hello"}]}
SHIP = {"goal": "ship", "steps": [{"id": "a", "worker": "deploy"}]}


class Project(Folder):
    """A project folder, and clients of its server."""

    @asynccontextmanager
    async def process(self, name="tester", **more):
        """A client that speaks with a server process of its own."""
        command, *args = [*PROGRAM, "mcp", "serve"]
        params = StdioServerParameters(
            command=command, args=args, cwd=self.path, env=environment(self.path)
        )
        async with _client(stdio_client(params), name, **more) as caller:
            yield caller

    def client(self, name="tester", **more):
        """A client of a server in this process; runs still get processes of their own."""
        return _client(project_server(Workplace()), name, **more)


@asynccontextmanager
async def _client(server, name, **more):
    info = Implementation(name=name, version="1")
    async with Client(server, client_info=info, cache=None, **more) as client:
        yield Caller(client)


class Caller:
    """A client whose calls give back documents."""

    def __init__(self, client):
        self.client = client

    async def __call__(self, tool, **arguments):
        """The result of a call that succeeded."""
        done = await self.client.call_tool(tool, arguments)
        assert not done.is_error, done
        assert json.loads(done.content[0].text) == done.structured_content
        return done.structured_content

    async def refused(self, tool, **arguments):
        """The result of a call that failed."""
        done = await self.client.call_tool(tool, arguments)
        assert done.is_error, done
        return done.structured_content

    async def ended(self, run):
        """The run, once it has ended or waits."""
        for _ in range(20):
            found = await self("wait_for_run", run=run, seconds=30)
            if found["status"] not in ("running", "stopping"):
                return found
        raise AssertionError(found)

    async def ended_task(self, ident):
        """The task, once it has ended."""
        request = types.Request[dict, str](method="tasks/get", params={"taskId": ident})
        async with asyncio.timeout(120):
            while True:
                found = await self.client.session.send_request(request, TypeAdapter(dict))
                if found["status"] not in ("working", "input_required"):
                    return found
                await asyncio.sleep(0.1)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project folder, which this process works in; its hosts are ended afterwards."""
    made = Project(tmp_path)
    made.write("leadhand.toml", SETTINGS)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield made
    made.end_host()
