"""`leadhand plan-gate`: tools pass while a person's approval counts, and never by accident."""

import asyncio
import json

import pytest

from leadhand import Lead, worker
from leadhand.connect.plan_gate import CURSORS, OUR_TOOLS, OURS, TOWARDS_APPROVAL, refusal
from leadhand.mcp.runs import Workplace
from leadhand.mcp.service import parts_of
from tests.support.cli import Folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder whose runs are in its own database."""
    (tmp_path / "leadhand.toml").write_text('[project]\nstore = "runs.db"\n')
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    return tmp_path


def call(project, tool="Bash"):
    return {"tool_name": tool, "tool_input": {"command": "ls"}, "cwd": str(project)}


@worker(name="wait", risk="high", effects=())
async def wait() -> str:
    await asyncio.sleep(3600)
    return "done"


@worker(name="harmless", risk="low", effects=())
async def harmless() -> str:
    await asyncio.sleep(3600)
    return "done"


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def passes(project):
    return refusal(call(project)) == ""


async def begun(lead, worker):
    """A run of one step, going on in this process; gives back its id."""
    step = {"id": "a", "worker": worker, "success_criteria": ["data == 1"]}
    risk = "low" if worker == "harmless" else "high"
    task = asyncio.create_task(lead.run({"steps": [step], "risk_level": risk}))
    await until(lead.list)
    return lead.list()[0].run, task


async def test_a_tool_passes_from_the_approval_of_a_person_to_the_end_of_the_run(project):
    assert "no run yet" in refusal(call(project))
    lead = Lead([wait], store=project / "runs.db", actor="agent:claude-code")
    async with lead.hosting():
        run, task = await begun(lead, "wait")
        await until(lambda: f"run {run} waits for approval" in refusal(call(project)))
        said = ("answer", f"{run}/review-1", "approve")
        assert (await asyncio.to_thread(Folder(project).run, *said)).code == 0
        await until(lambda: passes(project))
        await lead.cancel(run)
        await until(lambda: not passes(project))
        assert "no plan is approved" in refusal(call(project))
        await task


async def test_a_tool_passes_while_an_approved_plan_waits_for_its_caller(project):
    """Also between two steps; not while it is paused, and not after its end."""
    lead = Lead([], store=project / "runs.db")
    async with lead.hosting():
        run, task = await begun(lead, "caller")
        await until(lambda: f"run {run} waits for approval" in refusal(call(project)))
        await lead.answer(run, "review-1", "approve")
        await until(lambda: passes(project))
        await lead.pause(run)
        assert not passes(project)
        await lead.cancel(run)
        await until(lambda: lead.list()[0].status == "cancelled")
        assert not passes(project)
        await task


async def test_a_run_of_other_people_opens_no_gate(project):
    """A release that goes on for hours beside the agent was not approved for it."""
    lead = Lead([wait], store=project / "runs.db", actor="ann")
    async with lead.hosting():
        run, task = await begun(lead, "wait")
        await until(lambda: lead.list()[0].status == "waiting")
        await lead.answer(run, "review-1", "approve")
        await until(lambda: lead.list()[0].status == "running")
        assert "no plan is approved" in refusal(call(project))
        await lead.cancel(run)
        await task


async def test_a_plan_that_only_the_policy_let_through_is_no_approval(project):
    lead = Lead([harmless], store=project / "runs.db", actor="agent:claude-code")
    async with lead.hosting():
        run, task = await begun(lead, "harmless")
        await until(lambda: lead.list()[0].status == "running")
        assert "no plan is approved" in refusal(call(project))
        await lead.cancel(run)
        await task


@pytest.mark.parametrize(
    "tool",
    [
        *("Read", "Grep", "view_image"),
        *(f"{own}propose_plan" for own in OURS),
        *(f"{CURSORS}{each}" for each in sorted(TOWARDS_APPROVAL)),
    ],
)
def test_tools_that_only_read_and_our_own_pass(project, tool):
    assert refusal(call(project, tool)) == ""


@pytest.mark.parametrize(
    "tool",
    [
        *("Bash", "Write", "Edit", "apply_patch", "Shell", "mcp__other__x", "WebFetch", "New"),
        # Servers and tools that are called nearly as ours.
        *("mcp__leadhand__x__propose_plan", "mcp__leadhand__evil", "mcp__leadhand__", "leadhand"),
        *("mcp__other__propose_plan", "MCP:start_run", "MCP:evil", "MCP:leadhand:evil", "read"),
    ],
)
def test_every_other_tool_needs_a_plan(project, tool):
    assert "no plan is approved" in refusal(call(project, tool))


def test_all_of_our_tools_are_known(project, monkeypatch):
    monkeypatch.chdir(project)
    assert {tool.name for tool in parts_of(Workplace()).tools} == OUR_TOOLS


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({"skill": "leadhand:plan", "args": "x"}, True),
        ({"skill": "leadhand"}, True),
        ({"skill": "deploy"}, False),
        ({"skill": "leadhand:deploy"}, False),
        ({"skill": ["leadhand"]}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_skill_of_others_may_run_a_shell(project, given, passes):
    """Claude Code runs the commands in its text without a hook of their own."""
    asked = {**call(project, "Skill"), "tool_input": given}
    assert (refusal(asked) == "") is passes


@pytest.mark.parametrize("agent", ["claude", "cursor"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("{}", "tool_name must be a text"),
        ("no json", "must be one JSON object"),
        ("[]", "must be one JSON object"),
        ('{"tool_name": "Bash"}', "cwd must be the project's folder"),
        ('{"tool_name": "Bash", "cwd": "/no/such"}', "does not exist: /no/such"),
        ('{"tool_name": 5, "cwd": "."}', "tool_name must be a text"),
        ('{"tool_name": "Bash", "cwd": "FOLDER"}', "leadhand.toml"),
    ],
)
def test_a_gate_that_cannot_find_out_denies(project, agent, given, reason):
    """Exit code 2 denies in every agent; Cursor reads the reason from a document."""
    (project / "leadhand.toml").write_text("[project\n")
    done = Folder(project).run("plan-gate", agent, text=given.replace("FOLDER", str(project)))
    assert done.code == 2
    assert reason in done.err
    if agent == "cursor":
        assert json.loads(done.out)["permission"] == "deny"


def test_a_damaged_database_denies(project):
    (project / "runs.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    done = Folder(project).run("plan-gate", "claude", text=json.dumps(call(project)))
    assert (done.code, "Leadhand denied this tool" in done.err) == (2, True)
