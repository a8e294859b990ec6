"""What else the server offers: resources, prompts, suggestions, and steps for the agent itself."""

import json

import pytest
from mcp import types
from mcp.shared.exceptions import MCPError

from tests.mcp.conftest import HELLO

pytestmark = pytest.mark.real

OWN = {
    "goal": "write a haiku",
    "steps": [
        {
            "id": "write",
            "worker": "caller",
            "description": "write three lines",
            "success_criteria": ["len(data.lines) == 3"],
        }
    ],
}


async def test_runs_and_plans_can_be_read_by_address(project):
    async with project.client() as call:
        client = call.client
        assert (await client.list_resources()).resources == []
        run = (await call("start_run", plan=HELLO))["run"]
        await call.ended(run)
        (listed,) = (await client.list_resources()).resources
        assert (listed.uri, listed.name) == (f"leadhand://runs/{run}", run)
        templates = (await client.list_resource_templates()).resource_templates
        assert "leadhand://runs/{run}/plan" in [each.uri_template for each in templates]
        (held,) = (await client.read_resource(listed.uri)).contents
        assert json.loads(held.text)["status"] == "succeeded"
        (held,) = (await client.read_resource(f"{listed.uri}/plan")).contents
        assert json.loads(held.text)["steps"] == HELLO["steps"]
        for uri in ("leadhand://runs/nothing", "leadhand://library/no", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(uri)
        ref = types.ResourceTemplateReference(uri="leadhand://runs/{run}")
        found = await client.complete(ref, {"name": "run", "value": run[:4]})
        assert found.completion.values == [run]


async def test_a_prompt_turns_a_request_into_a_reviewed_plan(project):
    """It names the workers that there are, and tells the agent not to approve."""
    async with project.client() as call:
        client = call.client
        names = [each.name for each in (await client.list_prompts()).prompts]
        assert names == ["plan", "report"]
        told = await client.get_prompt("plan", {"request": "ship {it}"})
        text = told.messages[0].content.text
        assert "ship {it}" in text
        assert '"worker":"deploy"' in text
        assert "Do not approve it yourself" in text
        with pytest.raises(MCPError, match="the prompt needs request"):
            await client.get_prompt("plan", {})
        with pytest.raises(MCPError, match="there is no prompt"):
            await client.get_prompt("other", {})


async def test_the_agent_is_the_worker_and_its_reports_are_verified(project):
    """It gets one step at a time; what it claims counts only if the criteria hold."""
    async with project.client() as call:
        run = (await call("propose_plan", plan=OWN))["run"]
        none = await call("next_step", run=run, seconds=0)
        assert none.get("step") is None
        assert none["input_required"][0]["kind"] == "review"
        digest = none["input_required"][0]["digest"]
        assert project.run("review", run, "approve", "--digest", digest).code == 0
        step = (await call("next_step", run=run, seconds=30))["step"]
        assert (step["id"], step["attempt"], step["caller"]) == ("write", 1, "agent:tester")
        longer = await call("extend_step", run=run, step="write", attempt=1, lease=1800)
        assert longer["attempt"] == 1
        lines = {"lines": ["one", "two", "three"]}
        told = await call("report_step", run=run, step="write", attempt=1, data=lines)
        assert told["met"] is True
        assert (await call.ended(run))["status"] == "succeeded"
        other = (await call("start_run", plan=OWN, request_key="unmet"))["run"]
        step = (await call("next_step", run=other, seconds=30))["step"]
        few = {"attempt": step["attempt"], "data": {"lines": ["one"]}}
        told = await call("report_step", run=other, step="write", **few)
        assert told["met"] is False
        assert told["findings"]
    assert project.run("verify", run).code == 0


async def test_an_epic_needs_a_fleet(project):
    async with project.client() as call:
        no = await call.refused("submit_epic", text="# Search\n\nAdd a search.")
        assert "this project has no fleet. Fix: leadhand fleet init" in no["error"]
