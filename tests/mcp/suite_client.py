"""The client of the official conformance suite: our MCP client, through a run of a plan.

    python -m tests.mcp.suite_client URL

The suite starts it with the address of one of its servers. Every tool of the server that our
client can use is called once, with the arguments of the scenario or with plain ones. Where a
server wants a sign-in, the person signs in as with `leadhand mcp login`, at most three times;
what a tool asks is answered "yes" in the inbox.
"""

import asyncio
import functools
import json
import os
import sys
import tempfile
import threading
import urllib.request

from leadhand import Lead
from leadhand.errors import UsageError, WorkerFailure
from leadhand.stores.memory import MemoryStore
from leadhand.workers.mcp.server import McpServer
from tests.support.oauth_trial import sign_in

PLAIN = {"string": "x", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}
METADATA = "https://conformance-test.local/client-metadata.json"
"""The client ID metadata document of the suite."""
SIGN_INS_MAX = 3
AT_ONCE = 3


def arguments(context, tool, schema):
    """What a tool is called with: as the scenario says, else a value for each property."""
    for call in context.get("toolCalls", ()):
        if call["name"] == tool:  # an argument without a value is left out
            return {name: each for name, each in call["arguments"].items() if each is not None}
    needed = schema.get("required", [])
    found = schema.get("properties", {})
    return {name: PLAIN.get(found[name].get("type"), "x") for name in needed if name in found}


def auth_of(scenario, context, url):
    """The `auth` table of a scenario, as its user would write it."""
    table = {"allow": ["localhost:*"], "client_metadata_url": METADATA}
    if "client_id" not in context:
        return table
    issuer = context.get("issuer") or named_issuer(url)
    table = {"allow": ["localhost:*"], "client_id": context["client_id"], "issuer": issuer}
    if "client-credentials" in scenario:
        table["grant"] = "client_credentials"
    if "private_key_pem" in context:
        os.environ["SUITE_KEY"] = context["private_key_pem"]
        return table | {"private_key": "SUITE_KEY", "algorithm": context["signing_algorithm"]}
    os.environ["SUITE_SECRET"] = context["client_secret"]
    return table | {"client_secret": "SUITE_SECRET"}


def named_issuer(url):
    """The authorization server that a user would read in the documents of the server."""
    place = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    with urllib.request.urlopen(place, timeout=10) as answer:
        return json.load(answer)["authorization_servers"][0]


class Client:
    """One client of the suite: what it said, and whether it reached its end."""

    def __init__(self, url, scenario, context):
        self.url, self.scenario, self.context = url, scenario, context
        self.said = []

    async def patiently(self, server, work):
        """Do the work; where it needs a sign-in, sign in and do it again."""
        for _ in range(SIGN_INS_MAX):
            try:
                done = await work()
            except (UsageError, WorkerFailure) as error:
                done, text = None, str(error)
            else:
                text = getattr(done, "text", "")
            self.said.append(text or "done")
            if "leadhand mcp login" not in text:
                return done
            try:
                await sign_in(server)
            except WorkerFailure as error:
                self.said.append(str(error))
        return None

    async def run(self):
        """Sign in if need be and call every tool; return whether the server could be used."""
        is_auth = self.scenario.startswith("auth/")
        auth = (
            await asyncio.to_thread(auth_of, self.scenario, self.context, self.url)
            if is_auth
            else None
        )
        with tempfile.TemporaryDirectory() as tokens:
            server = McpServer(
                name="suite", url=self.url, auth=auth, tokens=tokens, connect_timeout=120
            )
            listed = await self.patiently(server, lambda: asyncio.to_thread(server.listing))
            if listed is None:
                return False
            tools = [server.tool(name, effects=(), risk="low") for name in listed.tools]
            lead = Lead(tools, store=MemoryStore())
            async with lead.hosting():
                for tool in tools:
                    given = arguments(self.context, tool.tool, listed.tools[tool.tool].parameters)
                    if "schema" in given:  # the scenario wants to see what the client saw
                        given = {"schema": listed.tools[tools[0].tool].parameters}
                    elif self.scenario == "json-schema-2020-12-preservation":
                        continue
                    await self.patiently(server, functools.partial(self.call, lead, tool, given))
        return True

    async def call(self, lead, tool, given):
        """Call a tool through a run. A question in the inbox is answered by "yes"."""
        step = {"id": "call", "worker": tool.spec.name, "parameters": given}
        outcome = await lead.run({"goal": f"call {tool.tool}", "steps": [step]})
        for row in outcome.waiting_for:
            if "leadhand mcp login" in row.text:
                return row
            await lead.answer(outcome.run, row.id, "retry", text="yes")
            outcome = await lead.resume(outcome.run)
        waits = (each.text for each in outcome.waiting_for)
        self.said.append(" ".join((tool.tool, outcome.status, outcome.reason, *waits)))
        return outcome


class Clients(threading.Thread):
    """Clients in one process, a few at a time, for `suite_forward.py`, which the suite starts.

    What an import costs is then paid once for all scenarios, and none of them meets a machine on
    which forty interpreters start at once.
    """

    def __init__(self, place):
        super().__init__(daemon=True)
        self._place = place
        self._ready = threading.Event()
        self._loop = self._over = None

    def __enter__(self):
        self.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(60)

    def run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        turns = asyncio.Semaphore(AT_ONCE)

        async def serve(reader, writer):
            given = json.loads(await reader.read())
            client = Client(given["url"], given["scenario"], given["context"])
            async with turns:
                try:
                    is_good = await client.run()
                except Exception as error:  # it is the suite that judges
                    is_good, _ = False, client.said.append(repr(error))
            writer.write(json.dumps({"code": 0 if is_good else 1, "said": client.said}).encode())
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(serve, self._place)
        async with server:
            self._ready.set()
            await self._over.wait()


if __name__ == "__main__":
    one = Client(
        sys.argv[-1],
        os.environ.get("MCP_CONFORMANCE_SCENARIO", ""),
        json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"),
    )
    is_good = asyncio.run(one.run())
    print("\n".join(one.said))
    sys.exit(0 if is_good else 1)
