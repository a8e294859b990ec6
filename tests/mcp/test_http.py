"""The server over HTTP: tokens, roles, hosts and origins, sessions of accounts."""

import json
import socket
import subprocess
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import Implementation

from tests.mcp.conftest import HELLO, SETTINGS, SHIP
from tests.mcp.test_pauses import TASKS, User, ask, called
from tests.support.cli import PROGRAM, environment

pytestmark = pytest.mark.real

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
def served(project):
    """The server in a process of its own; gives its address and the owner's token."""
    command = [*PROGRAM, "mcp", "serve", "--http", "--port", "0", "--json"]
    with subprocess.Popen(
        command,
        cwd=project.path,
        env=environment(project.path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = ""
            while not said.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, process.stderr.read()
                said += line
            found = json.loads(said)
            yield (
                found["url"],
                (project.path / ".leadhand" / "leadhand.db.token").read_text().strip(),
            )
        finally:
            process.terminate()
            _out, said = process.communicate()
            assert "Traceback" not in said, said


@asynccontextmanager
async def client_of(url, token, **more):
    info = Implementation(name="remote", version="1")
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        streams = streamable_http_client(url, http_client=http)
        async with Client(streams, client_info=info, **more) as client:
            client.http = http
            yield client


def added(project, name, role):
    """The token of a new account."""
    return project.run("serve", "token", "add", name, "--role", role).out.strip().split()[-1]


def status(url, **headers):
    return httpx2.post(url, json=LIST, headers={**HEADERS, **headers}).status_code


async def test_only_accounts_are_served_and_a_role_decides_on_tools(project, served):
    url, token = served
    assert status(url) == 401
    assert status(url, Authorization="Bearer lh_wrong") == 401
    assert status(url, Authorization=f"Basic {token}") == 401
    refused = httpx2.post(url, json=LIST, headers=HEADERS)
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert token not in refused.text
    good = {"Authorization": f"Bearer {token}"}
    for wrong in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        assert status(url, **good, **wrong) in (403, 421)
    for wrong in (
        {"Host": "localhost:80@evil.example"},
        {"Host": "127.0.0.1:evil.example"},
        {"Origin": "http://localhost:80@evil.example"},
        {"Origin": "http://localhost:x"},
        {"Origin": "null"},
    ):
        assert status(url, **good, **wrong) == 400, wrong
    for number in range(12):  # whatever address they claim
        last = status(
            url,
            Authorization=f"Bearer lh_guess{number}",
            **{"X-Forwarded-For": f"192.0.2.{number}"},
        )
    assert last == 429

    viewer = added(project, "vic", "viewer")
    for era in ("legacy", "auto"):
        async with client_of(url, token, mode=era) as client:
            names = {each.name for each in (await client.list_tools()).tools}
            assert {"propose_plan", "start_run", "get_run"} <= names
        async with client_of(url, viewer, mode=era) as client:
            names = {each.name for each in (await client.list_tools()).tools}
            assert "get_run" in names
            assert not names & {"propose_plan", "start_run", "answer", "cancel_run", "wait_for_run"}


async def test_a_run_names_client_and_account_and_sessions_are_an_accounts_own(project, served):
    url, token = served
    async with client_of(url, token) as client:
        found = (await client.call_tool("start_run", {"plan": HELLO})).structured_content
    shown = project.run("show", found["run"], "--json").doc
    owner = shown["plan"]["caller"]["account"]
    assert shown["actor"] == f"agent:remote of {owner}"

    other = (
        project.run("serve", "token", "add", "opa", "--role", "operator").out.strip().split()[-1]
    )
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    }
    auth = {"Authorization": f"Bearer {token}"}
    begun = httpx2.post(url, json=hello, headers={**HEADERS, **auth})
    session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
    assert status(url, **session, Authorization=f"Bearer {other}") in (403, 404)


async def test_a_viewer_answers_and_cancels_no_task(project, served):
    """Tasks are no way around the tools that a viewer does not have."""
    project.write("leadhand.toml", f'{SETTINGS}\n[review]\nagent_risk = "high"\n')
    url, token = served
    viewer = added(project, "vic", "viewer")
    async with client_of(url, token, elicitation_callback=User(), **TASKS) as client:
        ident = (await called(client, "propose_plan", plan=SHIP))["taskId"]
    async with client_of(url, viewer, elicitation_callback=User(), **TASKS) as client:
        found = await task(client, "tasks/get", ident)
        (key,) = found["inputRequests"]
        yes = {key: {"action": "accept", "content": {"decision": "approve"}}}
        for method, more in (("tasks/update", {"inputResponses": yes}), ("tasks/cancel", {})):
            with pytest.raises(MCPError, match="may only look at runs"):
                await task(client, method, ident, **more)
        assert (await task(client, "tasks/get", ident))["status"] == "input_required"


ODD = {
    "a batch": json.dumps([LIST, LIST]),
    "an empty batch": "[]",
    "no JSON": "\xff",
    "deep": json.dumps({**LIST, "params": {"a": 0}}).replace("0}", "[" * 9**5 + "]" * 9**5 + "}"),
    "no session": json.dumps(LIST),
    "half a character": '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":"\\ud800"}}',
}


def test_odd_requests_are_refused_and_the_server_goes_on(project, served):
    """Batches, which newer versions do not have; depth, size, versions; and a client that leaves.

    Nothing is told but what was wrong: no traceback stands on the server's own output either.
    """
    url, token = served
    good = {**HEADERS, "Authorization": f"Bearer {token}"}
    with httpx2.Client(headers=good, timeout=60) as web:
        for name, body in ODD.items():
            found = web.post(url, content=body.encode("latin-1"))
            assert found.status_code == 400, (name, found.text)
            assert json.loads(found.text)["error"]["code"] < 0
        assert web.post(url, content=b'"' + b"x" * (5 << 20) + b'"').status_code == 413
        version = {"MCP-Protocol-Version": "2099-01-01"}
        assert web.post(url, json=LIST, headers=version).status_code == 400
        session = {"Mcp-Session-Id": "of-nobody"}
        assert web.post(url, json=LIST, headers=session).status_code == 404
    host, port = url.split("/")[2].split(":")
    head = f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 100\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in good.items())
    with socket.create_connection((host, int(port))) as leaves:
        leaves.sendall(f"{head}\r\n{{".encode())
    assert status(url, Authorization="Bearer lh_wrong") == 401


async def task(client, method, ident, **more):
    """A request about a task, with the header that it needs over HTTP."""
    client.http.headers["mcp-name"] = ident
    try:
        return await ask(client, method, taskId=ident, **more)
    finally:
        del client.http.headers["mcp-name"]
