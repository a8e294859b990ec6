"""The client of the official conformance suite: our MCP client, through a run of a plan.

    python -m tests.mcp.suite_client URL

The suite starts it with the address of one of its servers. Every tool of the server that our
client can use is called once, with the arguments of the scenario or with plain ones.
"""

import asyncio
import json
import os
import sys

from leadhand import Lead
from leadhand.stores.memory import MemoryStore
from leadhand.workers.mcp.server import McpServer

PLAIN = {"string": "x", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}


def arguments(tool, schema):
    """What a tool is called with: as the scenario says, else a value for each property."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    for call in context.get("toolCalls", ()):
        if call["name"] == tool:  # an argument without a value is left out
            return {name: each for name, each in call["arguments"].items() if each is not None}
    needed = schema.get("required", [])
    found = schema.get("properties", {})
    return {name: PLAIN.get(found[name].get("type"), "x") for name in needed if name in found}


async def main(url):
    server = McpServer(name="suite", url=url)
    listed = await asyncio.to_thread(server.listing)
    tools = [server.tool(name, effects=(), risk="low") for name in listed.tools]
    lead = Lead(tools, store=MemoryStore())
    async with lead.hosting():
        for tool in tools:
            given = arguments(tool.tool, listed.tools[tool.tool].parameters)
            await call(lead, tool, given)


async def call(lead, tool, given):
    """Call a tool through a run. A question in the inbox is answered by "yes", as by a person."""
    step = {"id": "call", "worker": tool.spec.name, "parameters": given}
    outcome = await lead.run({"goal": f"call {tool.tool}", "steps": [step]})
    if outcome.status == "waiting":
        (asked,) = outcome.waiting_for
        await lead.answer(outcome.run, asked.id, "retry", text="yes")
        outcome = await lead.resume(outcome.run)
    print(tool.tool, outcome.status, outcome.reason, *(each.text for each in outcome.waiting_for))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
