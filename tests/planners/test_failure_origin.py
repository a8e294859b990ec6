"""Who failed: planning or execution, at every door; and what was refused can be read."""

import json

import pytest

from leadhand import Goal, Lead, Permanent, Policy, worker
from leadhand.app.reader import Reader
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.core.report import GiveUp, Propose
from leadhand.core.views.failure_origin import refusals
from leadhand.models import call_record
from leadhand.models.recordings import recording
from leadhand.planners.model.planner import ModelPlanner
from leadhand.testing import ScriptedModel
from tests.planners.test_model_planner import GOAL, PLAN, WORKERS
from tests.support.cli import Folder
from tests.support.plans import call

ALONE = Policy(**({"no_input": True} if "no_input" in Policy.__struct_fields__ else {}))
WRONG = {"kind": "propose", "because": "at once", "steps": [call("a", "nobody", city="Oslo")]}


@worker(effects=())
async def broken() -> str:
    raise Permanent("the page is gone")


class Lost:
    """Tries once, and then sees no way on."""

    name = "lost"
    consult = "on_surprise"
    replans = True
    splits = False

    async def decide(self, view):
        if view.failed_attempts:
            return GiveUp("there is no other page")
        return Propose(({"id": "a", "worker": "broken"},))


class Raises:
    name = "raises"
    consult = "on_surprise"
    replans = True
    splits = False

    async def decide(self, view):
        raise KeyError("x")


def log(path, run):
    reader = Reader(path)
    try:
        return [(entry.at, event) for entry, event in reader.events(run)]
    finally:
        reader.store.close_reader()


async def ended(path, planner, **more):
    """A run to its end: no person is asked."""
    lead = Lead([broken], planner, path, policy=ALONE, **more)
    return await lead.run(Goal(text="Read the page"))


@pytest.mark.parametrize(
    ("planner", "origin", "why"),
    [
        (Lost(), "planning", "there is no other page"),
        (Raises(), "planning", "KeyError"),
        (None, "execution", "the page is gone"),
    ],
)
async def test_every_door_says_who_failed(planner, origin, why, tmp_path):
    path = tmp_path / "runs.db"
    if planner is None:
        plan = {"steps": [{"id": "a", "worker": "broken", "failure_action": "abort"}]}
        outcome = await Lead([broken], store=path).run(plan)
    else:
        outcome = await ended(path, planner)
    assert (outcome.status, outcome.origin) == ("failed", origin), outcome
    assert check(log(path, outcome.run)) == []
    doc = told("show", outcome.run, "--json", store=path)
    shown = json.loads(doc)
    assert (shown["origin"], shown["fault"]["where"]) == (origin, origin)
    assert why in shown["fault"]["why"]
    text = told("show", outcome.run, store=path)
    assert f"failed ({origin})" in text
    assert f"The {origin} failed: " in text
    assert f"Run failed ({origin})" in told("logs", outcome.run, store=path)
    assert f"1 {origin}" in told("metrics", store=path)
    assert json.loads(told("metrics", "--json", store=path))["origins"] == {origin: 1}


def told(*words, store):
    """What a command prints."""
    done = Folder(store.parent).run(*words, "--store", store.name)
    assert done.code == 0, done
    return done.out if "--json" in words else done.out + done.err


async def test_what_a_model_planner_refused_is_in_the_log(tmp_path):
    """With its reason, its contents and the digest of the answer that it came in."""
    path = tmp_path / "runs.db"
    model = ScriptedModel([WRONG, PLAN, {"kind": "finish", "because": "done", "result": "x"}])
    outcome = await Lead(WORKERS, ModelPlanner(model), path).run(GOAL)
    assert outcome.status == "succeeded", outcome.reason
    entries = log(path, outcome.run)
    assert check(entries) == []
    (draft,) = [event for _, event in entries if isinstance(event, ev.DraftRefused)]
    assert draft.draft["steps"] == WRONG["steps"]
    assert "nobody" in draft.findings[0]
    calls = [event for _, event in entries if isinstance(event, ev.ModelCalled)]
    assert draft.answer == calls[0].answer
    assert len({call.answer for call in calls}) == len({call.asked for call in calls}) == 3
    assert all(call.contents is None for call in calls), "contents are not asked for"
    assert 'a = nobody(city="Oslo")' in told("logs", outcome.run, "--intent", store=path)
    shown = told("show", outcome.run, store=path)
    assert "Refused proposals: 1" in shown
    doc = json.loads(told("show", outcome.run, "--json", store=path))
    assert doc["refused"][0]["by"] == "planner"
    assert doc["refused"][0]["proposal"]["steps"] == WRONG["steps"]


async def test_what_the_run_refused_can_be_read(tmp_path):
    """The answer of a planner that is no model, whole."""

    class Once:
        name = "once"
        consult = "on_surprise"
        replans = True
        splits = False

        async def decide(self, view):
            worker_ = "broken" if view.findings else "nobody"
            return Propose(({"id": "a", "worker": worker_},))

    path = tmp_path / "runs.db"
    outcome = await ended(path, Once())
    found = refusals(event for _, event in log(path, outcome.run))
    assert found[0].by == "run"
    assert found[0].proposal["steps"] == [{"id": "a", "worker": "nobody"}]
    assert "nobody" in found[0].findings[0]


async def test_contents_are_in_the_log_where_they_are_recorded(tmp_path, monkeypatch):
    """Without what looks like a secret, and cut where they are very long."""
    monkeypatch.setattr(call_record._switch, "contents", True)
    path = tmp_path / "runs.db"
    secret = "sk-ant-" + "a1" * 20
    said = {"kind": "finish", "because": f"{secret} " + "x" * 30_000, "result": "x"}
    goal = Goal(text=f"How warm? {secret}", want=GOAL.want, have=GOAL.have)
    outcome = await Lead(WORKERS, ModelPlanner(ScriptedModel([PLAN, said])), path).run(goal)
    calls = [event for _, event in log(path, outcome.run) if isinstance(event, ev.ModelCalled)]
    assert "never do it yourself" in calls[0].contents["asked"]
    assert "How warm?" in calls[0].contents["asked"]
    assert secret not in json.dumps([call.contents for call in calls])
    assert len(calls[1].contents["answer"]) < 21_000
    assert "more characters" in calls[1].contents["answer"]


async def test_a_log_and_a_tape_know_a_question_by_the_same_name(tmp_path):
    path = tmp_path / "runs.db"
    done = {"kind": "finish", "because": "done", "result": "x"}
    with recording(tmp_path / "tape.json") as tape:
        outcome = await Lead(
            WORKERS, "lead", path, tiers={"lead": ScriptedModel([PLAN, done])}
        ).run(GOAL)
    calls = [event for _, event in log(path, outcome.run) if isinstance(event, ev.ModelCalled)]
    assert calls
    assert [call.asked for call in calls] == [each.key for each in tape.exchanges]
