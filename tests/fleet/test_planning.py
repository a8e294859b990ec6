"""Epics without tasks: planned in waves by scripts and models, carried out by real processes."""

import asyncio

import pytest

from leadhand.core import events as ev
from leadhand.core.state.model import State, StepState
from leadhand.fleet.planning.record import SizeRecord, by_size, finished_tasks
from leadhand.fleet.status.evidence import Evidence
from leadhand.fleet.status.figures import facts_of
from leadhand.fleet.status.ladder import ladder as counted_ladder
from leadhand.fleet.status.ladder import totals
from tests.fleet.planned import (
    Script,
    done,
    epic,
    landed,
    result,
    revisions,
    say,
    settled,
    task,
    there,
    wave,
)


async def test_an_epic_in_words_is_planned_in_two_waves_and_lands(planned, tmp_path):
    script = Script(
        wave(task("a"), task("b", depends_on=["a"]), outlook=["then c"]),
        wave(task("c", depends_on=["b"])),
        done(changelog="Modules a, b and c."),
    )
    async with planned(script) as at_work:
        run = await settled(at_work, epic(tmp_path, there("a.py", "b.py", "c.py")))
        plans = revisions(at_work, run)
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded", run.state.ended
    assert landed(commits) == ["a", "b", "c"]
    assert [[step["id"] for step in plan.add] for plan in plans] == [
        ["a", "b"],
        ["c"],
        ["acceptance-1"],
    ]
    assert plans[0].because.startswith("wave 1")
    assert plans[0].outlook[0]["description"] == "then c"
    told = result(run)
    assert told["achieved"] is True
    assert told["summary"] == "Modules."
    assert told["changelog"] == "Modules a, b and c."
    assert [each["task"] for each in told["commits"]] == ["a", "b", "c"]
    assert told["acceptance"]["commit"] == commits[-1].sha
    first, second, third = script.told
    assert first["why"] == "start"
    assert "We want modules." in first["epic"]["text"]
    assert {each["path"] for each in first["repository"]["map"]} == {"a.txt", "src/b.txt"}
    assert first["repository"]["history"][0]["subject"] == "The beginning"
    assert [each["status"] for each in second["tasks"]] == ["landed", "landed"]
    assert third["record"] == [{"size": "1 path", "tasks": 3, "landed": 3, "first_pass": 3}]
    assert first["past"] == {}
    counted = {name: number for name, number in third["past"].items() if number}
    assert counted == {"tasks": 3, "landed": 3, "first_pass": 3, "proposals": 2}
    assert third["repository"]["areas"][0]["sizes"] == {"1 path": [3, 3]}


NONSENSE = {
    "overlap": (wave(task("a", "x.py"), task("b", "x.py")), "may write the same"),
    "outside": (wave(task("a", "../x.py")), "outside the repository"),
    "git": (wave(task("a", ".GIT/hooks/x")), "git's own"),
    "whole": (wave(task("a", ".")), "the whole repository"),
    "shell line": (wave(task("a", acceptance=["make && true"])), "needs a shell"),
    "shell": (wave(task("a", acceptance=[["sh", "-ec", "true"]])), "a shell's words"),
    "program": (wave(task("a", acceptance=[["no-such-program"]])), "there is no program"),
    "no acceptance": (wave(task("a", acceptance=[])), "has no acceptance"),
    "dependency": (wave(task("a", depends_on=["z"])), "which is no task"),
    "circle": (
        wave(task("a", depends_on=["b"]), task("b", depends_on=["a"])),
        "in a circle",
    ),
    "protected": (wave(task("a", "ci/run.py")), "is protected"),
    "tier": (wave(task("a", tier="huge")), "is none of: strong"),
    "too many": (wave(*[task(f"t{n}") for n in range(21)]), "20 is the most"),
    "budget": (wave(task("a", budget=9.0)), "is left of the epic's budget"),
    "nothing": (wave(), "proposes nothing"),
    "early": ({"kind": "done", "because": "x", "tasks": "y"}, "does not fit"),
    "unknown": ({"kind": "merge", "because": "x"}, "kind is one of"),
    "replaces": (wave(task("a", replaces="q")), "which is unknown"),
}


PAIRS = list(zip([*NONSENSE][::2], [*NONSENSE][1::2], strict=True))
"""Two rounds may go wrong; after a third a person is asked."""


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
async def test_what_cannot_stand_is_sent_back_before_anybody_is_sent(planned, tmp_path, pair):
    bad, findings = zip(*(NONSENSE[what] for what in pair), strict=True)
    script = Script(*bad, wave(task("good")), done())
    path = epic(tmp_path)
    path.write_text(path.read_text().replace("acceptance: []", "budget: 5.0"))
    async with planned(script, protected=("ci",)) as at_work:
        run = await settled(at_work, path)
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded"
    assert landed(commits) == ["good"]
    for number, (answer, finding) in enumerate(zip(bad, findings, strict=True), 1):
        assert finding in " ".join(script.told[number]["findings"])
        assert script.told[number]["last"] == answer
        assert script.told[number]["round"] == number + 1


async def test_who_insists_on_nonsense_is_replaced_by_a_person(planned, tmp_path):
    answers = [wave(task(name, "../x.py")) for name in ("a", "b", "c")]
    script = Script(*answers, wave(task("d")), done())
    async with planned(script) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert len(script.told) == 3
        assert "outside the repository" in question.text
        assert question.choices == ["again", "give up"]
        assert await at_work.shop.hub.commits() == []
        await say(run, question, "again", "stay inside")
        async with asyncio.timeout(60):
            await at_work.idle()
        assert run.state.ended.status == "succeeded"
    assert script.told[3]["answers"][-1]["text"] == "stay inside"


async def test_a_task_that_always_fails_is_split_and_lands(planned, tmp_path):
    def split(told):
        (matter,) = told["matters"]
        assert (matter["kind"], matter["task"], matter["wanted"]) == ("failed", "big", "split")
        return wave(task("one", replaces="big"), task("two", replaces="big"))

    script = Script(
        wave(task("big", "one.py", "two.py"), task("after", depends_on=["big"])), split, done()
    )
    async with planned(script, {"big": ["nothing"]}) as at_work:
        run = await settled(at_work, epic(tmp_path, there("one.py", "two.py", "after.py")))
        commits = await at_work.shop.hub.commits()
        log = at_work.events(run.id)
        events = [event for _, event in log]
        facts = facts_of(run.state, log)
    assert run.state.ended.status == "succeeded", run.state.ended
    assert sorted(landed(commits)) == ["after", "one", "two"]
    assert sorted(facts.tasks) == ["after", "big", "one", "two"], "a look at main is no task"
    assert landed(commits)[-1] == "after", "who waited for the whole waits for both parts"
    ladder = [(e.strategy, e.worker) for e in events if isinstance(e, ev.RecoveryDecided)]
    assert ladder == [
        ("retry", "coder"),
        ("reroute", "coder@fresh"),
        ("retry", "coder@fresh"),
        ("reroute", "coder@strong"),
        ("retry", "coder@strong"),
        ("simplify", ""),
    ]
    counted = {row["task"]: row for row in counted_ladder(events)}
    assert counted["big"] == {
        "task": "big",
        "attempts": 8,
        "first": 3,
        "same_conversation": 3,
        "fresh": 1,
        "stronger": 1,
        "split": 1,
    }
    assert counted["after"] == {"task": "after", "attempts": 1, "first": 1}
    assert totals(counted.values())["first"] == 4
    row = next(row for row in result(run)["ladder"] if row["task"] == "big")
    assert row["attempts"] == 8
    assert row["same_conversation"] == 3
    assert row["split"] == 1
    assert script.told[1]["record"][-1] == {
        "size": "2-3 paths",
        "tasks": 1,
        "landed": 0,
        "first_pass": 0,
    }


async def test_the_ladder_ends_at_a_person_and_goes_on_from_there(planned, tmp_path):
    script = Script(
        wave(task("x")),
        wave(task("x1", replaces="x"), task("x2", "y.py", replaces="x")),
        wave(task("x3", "x1.py", replaces="x1")),
        done(),
    )
    wrong = {name: ["nothing"] for name in ("x", "x1", "x3")}
    async with planned(script, wrong) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert "Task x3 cannot be done" in question.text
        assert [told["matters"][0]["wanted"] for told in script.told[1:]] == ["split", "replan"]
        board = (await Evidence(at_work.config.folder).document())["board"]
        (blocked,) = (each for each in board["cards"] if each["column"] == "blocked")
        assert (blocked["task"], blocked["question"]) == ("x3", question.id)
        assert "changed nothing" in blocked["reason"]
        (lane,) = board["lanes"]
        assert [each["names"] for each in lane["waves"]] == [["x"], ["x1", "x2"], ["x3"]]
        assert lane["text"].startswith("# Modules")
        assert lane["waiting"] == [], "the question is about the task"
        (tmp_path / "told" / "tricks.json").write_text("{}")
        await say(run, question, "again", "use words")
        async with asyncio.timeout(60):
            await at_work.idle()
        assert run.state.ended.status == "succeeded", run.state.ended
        commits = await at_work.shop.hub.commits()
    assert sorted(landed(commits)) == ["x-2", "x2"]
    assert "A person says: use words" in (tmp_path / "told" / "brief-x-2-1.md").read_text()
    row = next(row for row in result(run)["ladder"] if row["task"] == "x")
    assert (row["split"], row["replan"], row["asked"]) == (1, 1, 1)


def test_an_attempt_whose_host_was_killed_is_no_failure_of_its_size():
    """Nobody came to an end: the next one is the first pass. An agent that crashed did fail."""
    killed = {"class": "lost", "message": "its host ended before it reported"}
    crashed = {"class": "lost", "message": "it ended", "details": {"by": "coder"}}
    state = State()
    for name, failures in {"a": [killed, killed], "b": [killed, crashed], "c": []}.items():
        step = StepState({"id": name, "writes": ["x"]}, 0, "coder@big", status="succeeded")
        step.failures, step.attempts = tuple(failures), len(failures) + 1
        state.steps[name] = step
    rows = by_size(finished_tasks(state))
    assert rows == [SizeRecord("1 path", tasks=3, landed=3, first_pass=2)]
