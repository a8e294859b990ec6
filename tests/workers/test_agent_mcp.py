"""An agent with the tools of a real MCP server, over stdio and over HTTP."""

import pytest

from leadhand import Agent, Lead, McpServer
from leadhand.models.messages import Result
from leadhand.stores.memory import MemoryStore
from tests.support.commands import bounded
from tests.support.mcp_trial import PROGRAM, served
from tests.support.scripts import calls
from tests.support.scripts import model as scripted

pytestmark = pytest.mark.real


@pytest.fixture(params=["stdio", "http"])
def how(request):
    with bounded():
        if request.param == "stdio":
            yield {"command": PROGRAM}
        else:
            with served() as (_, port):
                yield {"url": f"http://127.0.0.1:{port}/mcp"}


@pytest.mark.parametrize("whole", [True, False])
async def test_an_agent_calls_tools_of_a_server(how, whole):
    server = McpServer(name="trial", **how)
    await server.load()
    tools = [server] if whole else server.toolset(["add"])
    agent = Agent("clerk", tools=tools)
    add = next(each.name for each in agent._tools.shown if each.name.endswith("add"))
    model = scripted([calls(add, a="two"), calls(add, a=2), "three"])
    lead = Lead([agent], store=MemoryStore(), tiers={"hand": model})
    plan = {"goal": "g", "steps": [{"id": "one", "worker": "clerk"}]}
    outcome = await lead.run(plan, approve=True)
    await server.close()
    assert outcome.result == "three"
    wrong, right = [each.text for each in model.requests[-1].turns if isinstance(each, Result)]
    assert "the tool was not called" in wrong
    assert '"total":3' in right
    assert agent.spec.offers[""].risk == ("high" if whole else "medium")
