"""Pauses travel through the client: forms, addresses and tasks; and what they cannot decide."""

import json

import pytest
from mcp import types
from mcp.client import advertise
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from leadhand.mcp.tasks import EXTENSION
from tests.mcp.conftest import HELLO, SETTINGS, SHIP

pytestmark = pytest.mark.real

ERAS = ("legacy", "auto")
"""With a connection, where the server asks; and without, where the client comes again."""


class User:
    """The user of a client: keeps what was asked, and answers the same each time."""

    def __init__(self, action="accept", **content):
        self.asked = []
        self.answer = types.ElicitResult(action=action, content=content or None)

    async def __call__(self, _context, params):
        self.asked.append(params)
        return self.answer


def approvals(project, run):
    log = project.run("logs", run, "--json").out.splitlines()
    events = [json.loads(line) for line in log]
    return [each for each in events if "ApprovalGiven" in json.dumps(each)]


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_through_the_client_decides_where_the_policy_lets_agents(project, era):
    project.write("leadhand.toml", f'{SETTINGS}\n[review]\nagent_risk = "high"\n')
    user = User(decision="approve", comment="fine")
    async with project.client(mode=era, elicitation_callback=user) as call:
        found = await call("propose_plan", plan=SHIP)
        (asked,) = user.asked
        assert (await call.ended(found["run"]))["status"] == "succeeded"
    assert "ship" in asked.message
    assert "Plan digest: " in asked.message
    assert asked.requested_schema["properties"]["decision"]["enum"][0] == "approve"
    (given,) = approvals(project, found["run"])
    assert "agent:tester" in json.dumps(given)
    assert project.run("verify", found["run"]).code == 0


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_reserved_for_people_is_not_decided_by_a_form(project, era):
    """Whatever the client says that its user said: the form decides nothing, and says so."""
    user = User(decision="approve", seen=True)
    async with project.client(mode=era, elicitation_callback=user) as call:
        found = await call("propose_plan", plan=SHIP)
        assert (found["status"], found["input_required"][0]["yours"]) == ("waiting", ["reject"])
        again = await call("wait_for_run", run=found["run"], seconds=0.2)
        assert again["status"] == "waiting"
    assert len(user.asked) == 2
    assert list(user.asked[0].requested_schema["properties"]) == ["seen"]
    assert f"leadhand review {found['run']}" in user.asked[0].message
    assert approvals(project, found["run"]) == []


async def test_a_person_is_sent_to_the_page_which_needs_a_sign_in(project):
    """The address has no authority in it: a place on the page, and nothing else."""
    project.write("leadhand.toml", f'{SETTINGS}\n[server]\naddress = "https://lead.example"\n')
    user = User()
    async with project.client(elicitation_callback=user) as call:
        found = await call("propose_plan", plan=SHIP)
        address = f"https://lead.example/#/runs/{found['run']}/plan"
        assert user.asked[0].url == address
        (pause,) = found["input_required"]
        assert pause["for_person"] == f"sign in and decide at {address}"
        yes = {"choice": "approve", "digest": pause["digest"]}
        no = await call.refused("answer", question=pause["question"], **yes)
        assert no["for_person"].endswith(address)
    assert approvals(project, found["run"]) == []


async def test_a_user_who_declines_leaves_the_run_waiting(project):
    project.write("leadhand.toml", f'{SETTINGS}\n[review]\nagent_risk = "high"\n')
    for action in ("decline", "cancel"):
        async with project.client(elicitation_callback=User(action)) as call:
            assert (await call("propose_plan", plan=SHIP))["status"] == "waiting"
    async with project.client(elicitation_callback=User(decision="reject")) as call:
        found = await call("propose_plan", plan=SHIP)
        assert (await call.ended(found["run"]))["status"] == "rejected"


# Tasks.


async def ask(client, method, **params):
    """A request of an extension, as it is on the wire."""
    request = types.Request[dict, str](method=method, params=params)
    return await client.session.send_request(request, TypeAdapter(dict))


async def called(client, tool, **arguments):
    return await ask(client, "tools/call", name=tool, arguments=arguments)


TASKS = {"extensions": [advertise(EXTENSION)], "mode": "2026-07-28"}


async def test_a_run_is_a_task_that_outlives_its_client(project):
    project.write("leadhand.toml", f'{SETTINGS}\n[review]\nagent_risk = "high"\n')
    user = User()
    async with project.client(elicitation_callback=user, **TASKS) as call:
        made = await called(call.client, "propose_plan", plan=SHIP)
        assert (made["resultType"], made["ttlMs"]) == ("task", None)
        assert "inputRequests" not in made
    async with project.client(elicitation_callback=user, **TASKS) as call:
        ident = made["taskId"]
        found = await ask(call.client, "tasks/get", taskId=ident)
        assert (found["status"], found["resultType"]) == ("input_required", "complete")
        ((key, asked),) = found["inputRequests"].items()
        assert asked["params"]["mode"] == "form"
        answer = {"action": "accept", "content": {"decision": "approve"}}
        await ask(call.client, "tasks/update", taskId=ident, inputResponses={"other": answer})
        assert (await ask(call.client, "tasks/get", taskId=ident))["status"] == "input_required"
        await ask(call.client, "tasks/update", taskId=ident, inputResponses={key: answer})
        assert (await call.ended_task(ident))["result"]["structuredContent"][
            "status"
        ] == "succeeded"
        same = await called(call.client, "propose_plan", plan=SHIP)
        assert same["structuredContent"]["run"] == ident
    assert user.asked == []


async def test_a_task_waits_for_a_person_and_can_be_cancelled(project):
    async with project.client(elicitation_callback=User(), **TASKS) as call:
        made = await called(call.client, "start_run", plan=SHIP)
        ident = made["taskId"]
        found = await ask(call.client, "tasks/get", taskId=ident)
        ((key, asked),) = found["inputRequests"].items()
        assert "A person decides" in asked["params"]["message"]
        yes = {"action": "accept", "content": {"decision": "approve", "seen": True}}
        await ask(call.client, "tasks/update", taskId=ident, inputResponses={key: yes})
        found = await ask(call.client, "tasks/get", taskId=ident)
        assert (found["status"], found.get("inputRequests")) == ("working", None)
        assert f"leadhand review {ident}" in found["statusMessage"]
        await ask(call.client, "tasks/cancel", taskId=ident)
        assert (await call.ended_task(ident))["status"] == "cancelled"
        with pytest.raises(MCPError, match="there is no task nothing"):
            await ask(call.client, "tasks/get", taskId="nothing")
    async with project.client(name="other", **TASKS) as call:
        mine = (await called(call.client, "start_run", plan=HELLO | {"goal": "x"})).get("taskId")
        assert mine != ident
    async with project.client(mode="2026-07-28") as call:
        with pytest.raises(MCPError, match="the client must support tasks"):
            await ask(call.client, "tasks/get", taskId=ident)
