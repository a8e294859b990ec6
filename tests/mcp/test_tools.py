"""An agent drives Leadhand by its tools, over the real server process."""

import asyncio

import pytest
from mcp.shared.exceptions import MCPError

from tests.mcp.conftest import HELLO, SETTINGS, SHIP

pytestmark = pytest.mark.real


async def test_a_plan_is_started_once_and_its_verified_result_comes_back(project):
    """The same request is the same run, also for another server process; other keys are others."""
    async with project.process() as call:
        first = await call("start_run", plan=HELLO, labels=["from=mcp"])
        done = await call.ended(first["run"])
        assert (done["status"], done["steps"][0]["status"]) == ("succeeded", "succeeded")
        again = await call("start_run", plan=HELLO)
        assert (again["run"], again["new"]) == (first["run"], False)
        keyed = await call("start_run", plan=HELLO, request_key="k1")
        assert keyed["run"] != first["run"]
        other = await call.refused("start_run", plan=SHIP, request_key="k1")
        assert "was used for another request" in other["error"]
        log = await call("read_log", run=first["run"], limit=1)
        assert log["entries"][0]["text"].startswith("Run started by agent:tester")
        assert log["next"] == 1
        none = await call.refused("read_artifact", ref=f"sha256:{'0' * 64}")
        assert (none["kind"], "there is no artifact" in none["error"]) == ("UsageError", True)
        listed = await call("list_runs")
        assert {row["actor"] for row in listed["runs"]} == {"agent:tester"}
    async with project.client() as call:
        assert (await call("start_run", plan=HELLO))["run"] == first["run"]
    async with project.client(name="another") as call:
        assert (await call("start_run", plan=HELLO))["run"] != first["run"]
    shown = project.run("show", first["run"], "--json").doc
    assert shown["plan"]["untrusted"] is True
    assert shown["plan"]["caller"] == {"protocol": "mcp", "client": "tester", "version": "1"}
    assert project.run("verify", "--all").code == 0


async def test_an_agent_cannot_approve_its_own_plan_and_a_person_can(project):
    async with project.client() as call:
        found = await call("propose_plan", plan=SHIP)
        run, (pause,) = found["run"], found["input_required"]
        assert (found["status"], pause["yours"]) == ("waiting", ["reject"])
        approve = f"leadhand review {run} approve --digest {pause['digest']}"
        read = f"outside of this session: `leadhand review {run} approve` shows the plan and asks"
        assert pause["for_person"] == f"{read}; where nothing can be asked, `{approve}`"
        assert "agent:tester proposed it for review" in pause["reason"]
        shown = await call("show_plan", run=run)
        assert shown["digest"] == pause["digest"]
        yes = {"choice": "approve", "digest": pause["digest"]}
        no = await call.refused("answer", question=pause["question"], **yes)
        assert "agent:tester is an agent, and approves nothing here" in no["error"]
        assert no["for_person"] == pause["for_person"]
        assert (await call("get_run", run=run))["status"] == "waiting"
        assert (await call("list_inbox", run=run))["total"] == 1
        approved = project.run("review", run, "approve", "--digest", pause["digest"])
        assert approved.code == 0, approved
        assert (await call.ended(run))["status"] == "succeeded"
        assert (await call("propose_plan", plan=SHIP))["run"] == run
    assert project.run("verify", "--all").code == 0


async def test_an_agent_that_may_not_approve_is_told_so_before_a_digest_is_asked(project):
    """What it lacks is permission: no digest would help, and asking for one would say otherwise."""
    async with project.client() as call:
        (pause,) = (await call("propose_plan", plan=SHIP))["input_required"]
        for digest in ({}, {"digest": pause["digest"][:12]}, {"digest": "0" * 64}):
            no = await call.refused(
                "answer", question=pause["question"], choice="approve", **digest
            )
            assert (no["kind"], "approves nothing here" in no["error"]) == ("NotAllowed", True)
    project.write("leadhand.toml", f'{SETTINGS}\n[review]\nagent_risk = "high"\n')
    async with project.client(name="trusted") as call:
        (pause,) = (await call("propose_plan", plan=SHIP))["input_required"]
        ask = {"question": pause["question"], "choice": "approve"}
        no = await call.refused("answer", **ask)
        assert (no["kind"], "names what it approves" in no["error"]) == ("UsageError", True)
        no = await call.refused("answer", **ask, digest=pause["digest"][:12])
        assert "the whole digest" in no["error"]
        last = "0" if pause["digest"][-1] != "0" else "1"
        no = await call.refused("answer", **ask, digest=pause["digest"][:-1] + last)
        assert (no["kind"], "not the one that was shown" in no["error"]) == ("Conflict", True)
        done = await call("answer", **ask, digest=pause["digest"])
        assert (await call.ended(done["run"]))["status"] == "succeeded"


async def test_a_call_waits_until_a_person_has_answered(project):
    """In place of being asked again and again; unless it is told not to."""
    async with project.client() as call:
        run = (await call("propose_plan", plan=SHIP))["run"]
        now = await call("wait_for_run", run=run, seconds=600, return_if_waiting=True)
        assert now["status"] == "waiting"
        late = await call("wait_for_run", run=run, seconds=0.3)
        assert (late["status"], late["input_required"][0]["kind"]) == ("waiting", "review")
        waits = asyncio.create_task(call("wait_for_run", run=run, seconds=600))
        done = await asyncio.to_thread(project.run, "review", run, "approve", "--yes")
        assert done.code == 0, done
        assert (await waits)["status"] == "succeeded"


async def test_an_agent_is_told_what_it_does_next_and_what_failed(project):
    """In a plan whose steps are its own: after the approval, and after an unmet report."""
    mine = {"id": "mine", "worker": "caller", "success_criteria": "data.n > 2"}
    plan = {"goal": "count", "steps": [mine | {"retry": {"attempts": 2, "backoff": 0}}]}
    async with project.client() as call:
        found = await call("propose_plan", plan=plan)
        assert (
            found["next"]
            == "When this is answered, you are the worker of its steps: call next_step."
        )
        run = found["run"]
        assert project.run("review", run, "approve", "--yes").code == 0
        found = await call("wait_for_run", run=run)
        assert (found["awaiting"], found["next"]) == (
            "caller",
            "You are the worker of its steps: call next_step.",
        )
        step = (await call("next_step", run=run))["step"]
        told = await call("report_step", run=run, step="mine", attempt=1, data={"n": "two"})
        why = "data.n is a text, 2 is a number"
        assert (told["met"], why in told["findings"][0]) == (False, True)
        (pause,) = (await call("next_step", run=run))["input_required"]
        assert why in pause["reason"]
        retry = f"leadhand answer {pause['question']} retry"
        assert pause["for_person"].startswith(f"outside of this session: `{retry}`")
        assert project.run("answer", pause["question"], "retry").code == 0
        step = (await call("next_step", run=run))["step"]
        assert (step["attempt"], why in step["failures"][0]["message"]) == (2, True)
        told = await call("report_step", run=run, step="mine", attempt=2, data={"n": 3})
        assert (told["met"], told["status"]) == (True, "succeeded")


async def test_mistakes_come_back_with_their_place_and_fix(project):
    async with project.client() as call:
        wrong = await call("lint_plan", plan={"steps": [{"id": "a", "worker": "nope"}]})
        assert (wrong["valid"], wrong["findings"][0]["rule"]) == (False, "worker-unknown")
        no = await call.refused("start_run", plan={"steps": [{"id": "a", "worker": "nope"}]})
        assert (no["kind"], no["findings"][0]["id"]) == ("PlanInvalid", "LH106")
        fine = await call("lint_plan", plan=SHIP)
        assert (fine["approvals"], fine["risk"]) == ("one person", "high")
        no = await call.refused("get_run", run="nothing")
        assert "there are no runs yet" in no["error"]
        no = await call.refused("get_run", runs="x")
        assert "the arguments of get_run are wrong" in no["error"]
        assert no["error"].endswith("it takes run (required)")
        no = await call.refused("wait_for_run", run="x", seconds="soon")
        assert "$.seconds" in no["error"]
        assert "run (required), seconds, return_if_waiting" in no["error"]
        no = await call.refused("start_run", plan=HELLO, library="x")
        assert "exactly one of" in no["error"]
        with pytest.raises(MCPError, match="there is no tool approve"):
            await call("approve")
        workers = (await call("list_workers"))["workers"]
        assert {row["worker"] for row in workers} >= {"hello", "deploy", "nap"}
        new = {**SHIP, "goal": "ship it"}
        assert (await call("diff_plans", old=SHIP, new=new))["changes"]


async def test_a_run_is_cancelled_by_the_agent_that_started_it(project):
    project.plan({"id": "a", "worker": "deploy"})
    assert project.run("run", "plan.json", "--detach").code == 0
    persons = project.latest()["run"]
    async with project.client() as call:
        mine = (await call("propose_plan", plan=SHIP))["run"]
        no = await call.refused("cancel_run", run=persons)
        assert "only runs that it has started" in no["error"]
        assert (await call("cancel_run", run=mine))["status"] == "cancelled"
        step = await call("get_step", run=mine, step="a", output=True)
        assert step["worker"] == "deploy"
    assert project.run("show", persons, "--json").doc["status"] == "waiting"
