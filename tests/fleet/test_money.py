"""The day's money: who may spend it, what is counted, and when."""

import asyncio
import json
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.claude import ClaudeCoder
from leadhand.fleet.budget import DAY_S, DailyBudget
from leadhand.fleet.status import journal
from leadhand.models.failures import ModelFailure
from leadhand.models.messages import Usage
from leadhand.testing.models import Price, ScriptedModel
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import Sandbox
from tests.fleet.planned import done, epic, settled, task, there, wave
from tests.fleet.standing import epic as given_epic
from tests.fleet.standing import noted, standing


def spent_before(folder, cost):
    (folder / "fleet").mkdir()
    note = {"at": time.time_ns() // 1000, "what": "agent ended", "cost": cost}
    (folder / "fleet" / journal.NAME).write_text(json.dumps(note) + "\n")


async def until(so):
    async with asyncio.timeout(60):
        while not so():
            await asyncio.sleep(0.05)


async def test_a_model_is_not_asked_to_plan_when_the_days_money_is_spent(planned, tmp_path):
    spent_before(tmp_path, 5.0)
    model = ScriptedModel([wave(task("a")), done()])
    async with planned(model, daily=4.0) as at_work:
        ident = at_work.submit(epic(tmp_path))
        await until(lambda: at_work.held_back.endswith("midnight UTC"))
        assert (await at_work.status())["held_back"].startswith("5.00 of 4.00 dollars")
        assert model.requests == []
        state = at_work._runs[ident].state
        assert state.policy.planner_timeout_s > DAY_S, "a new day comes before its time is over"
        assert state.catalog.offer("coder", "").timeout_s > DAY_S, "as it does for an agent"


async def test_while_the_fleet_is_stopped_no_model_is_asked_and_then_it_goes_on(planned, tmp_path):
    model = ScriptedModel([wave(task("a")), done()])
    async with planned(model) as at_work:
        at_work.shop.governor.stop()
        ident = at_work.submit(epic(tmp_path, there("a.py")))
        await until(lambda: at_work.held_back == "stopped")
        assert model.requests == []
        at_work.shop.governor.go_on()
        async with asyncio.timeout(60):
            await at_work.idle()
        assert at_work._runs[ident].state.ended.status == "succeeded"
        assert at_work.held_back == ""


async def test_answers_that_cannot_be_used_count_for_the_day_too(planned, tmp_path, monkeypatch):
    monkeypatch.setattr("leadhand.fleet.planning.backends.PAUSES_S", (0.0,))
    cut = ModelFailure("transient", "cut off", usage=Usage(700, 10))
    answers = ["no JSON at all", cut, wave(task("a")), done()]
    model = ScriptedModel(answers, price=Price(1000.0, 1000.0))
    async with planned(model) as at_work:
        run = await settled(at_work, epic(tmp_path, there("a.py")))
    assert run.state.ended.status == "succeeded"
    costs = [note["cost"] for note in noted(tmp_path, "planned")]
    assert costs == pytest.approx([0.15, 0.71, 0.15, 0.15])
    assert sum(costs) == pytest.approx(run.state.spent)


async def test_a_reviewer_waits_for_the_days_money(tmp_path, user):
    more = {"protected": ("guarded/**",), "reviewer": "big", "daily": 2.0}
    tricks = json.dumps({"cost": 3.0, "a": ["guarded"]})
    async with standing(tmp_path, user, tricks, **more)() as fleet:
        ident = fleet.submit(given_epic(tmp_path, "first", "a"))
        await until(lambda: fleet.held_back.endswith("midnight UTC"))
        assert not fleet.shop.governor.waiting, "it is no agent that waits"
        assert fleet.held_back.startswith("3.00 of 2.00")
        assert not fleet.shop.hub.landed(ident, "a")
    assert noted(tmp_path, "reviewed") == []


async def test_a_reviewer_that_is_cut_off_has_cost_what_it_said(tmp_path, user):
    more = {"protected": ("guarded/**",), "reviewer": "big"}
    tricks = json.dumps({"a": ["guarded"], "review cost": 1.5, "review slow": 60})
    async with standing(tmp_path, user, tricks, **more)() as fleet:
        fleet.submit(given_epic(tmp_path, "first", "a"))
        await until(lambda: fleet.running_cost() == 1.5)
    (note,) = noted(tmp_path, "reviewed")
    assert (note["task"], note["coder"], note["cost"]) == ("a", "big", 1.5)


async def test_a_purse_is_shut_for_as_long_as_something_speaks_against_it():
    against = ["no money"]
    purse = DailyBudget(lambda: against[0], look_s=0.01)
    assert purse.held_back == "", "nobody waits"
    waiting = asyncio.create_task(purse.open())
    await asyncio.sleep(0.05)
    assert (waiting.done(), purse.held_back) == (False, "no money")
    against[0] = ""
    await asyncio.wait_for(waiting, 60)
    with purse.bill() as bill:
        bill.heard(2.0)
        bill.heard(None)
        assert purse.running == 2.0
    assert purse.running == 0.0


CLAUDE = textwrap.dedent(
    """\
    #!{python}
    import json, time
    for number in range(1000):
        usage = dict(input_tokens=1000, output_tokens=10)
        message = dict(id=str(number), content=[dict(type="text", text="hm")], usage=usage)
        print(json.dumps(dict(type="assistant", message=message)), flush=True)
        time.sleep(0.05 if number < 3 else 600)
    """
)


@pytest.mark.real
@pytest.mark.parametrize(("most", "ended"), [(0.0025, "limit"), (0.0, "stopped")])
async def test_claude_is_ended_by_its_cost_and_has_cost_something_when_it_is(tmp_path, most, ended):
    program = tmp_path / "claude"
    program.write_text(CLAUDE.replace("{python}", sys.executable))
    program.chmod(0o755)
    slot = SimpleNamespace(path=tmp_path / "slot")
    slot.path.mkdir()
    async with Processes("test-money") as processes:
        coder = ClaudeCoder(
            "claude",
            program,
            price=lambda _model, used: used.input / 1e6,
            processes=processes,
            homes=tmp_path / "homes",
            term_s=0.3,
        )
        assignment = Assignment(run="r", task="t", brief="Do it.", cost=most)

        def heard(event):
            if (event.cost or 0.0) > 0.0035:
                coder.stop(assignment)

        result = await coder.work(assignment, slot, Sandbox(kind="none"), heard)
    assert result.ended == ended
    assert 0.0025 < result.cost < 0.0045
