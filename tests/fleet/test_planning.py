"""Epics without tasks: planned in waves by scripts and models, carried out by real processes."""

import asyncio
import json
import sys
import textwrap

import pytest

from leadhand.app.fleet import Fleet, FleetConfig
from leadhand.core import control
from leadhand.core import events as ev
from leadhand.core.policy import Policy
from leadhand.fleet.coder.template import TemplateCoder
from leadhand.fleet.gate import GateRules
from leadhand.fleet.planning.rules import PlanRules
from leadhand.fleet.worker import Limits

AGENT = textwrap.dedent(
    """
    import json, pathlib, re, sys
    task, attempt, brief = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]).read_text()
    told = json.loads(pathlib.Path(sys.argv[4]).read_text())
    pathlib.Path(sys.argv[4]).parent.joinpath(f"brief-{task}-{attempt}.md").write_text(brief)
    tricks = told.get(task, [])
    trick = tricks[min(attempt, len(tricks)) - 1] if tricks else "good"
    block = re.search(r"# You may change\\n((?:- .*\\n)+)", brief)
    paths = [line[2:] for line in block[1].splitlines()]
    if trick == "nothing":
        print("Done.")
    elif trick.startswith("asks") and "blue" not in brief:
        print("I do not know.\\nneeds: which colour?")
    else:
        for path in paths:
            place = pathlib.Path(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"name = {path!r}\\n")
        if trick.startswith("remarks"):
            print(trick.partition(" ")[2])
    """
)
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('.').glob('*.py')]"
EPIC = "# Modules\n\nWe want modules.\n\n```yaml\nacceptance: {0}\n```\n"
TRUE = [sys.executable, "-c", "pass"]


def there(*names):
    """A command that succeeds when files are there."""
    code = f"import os, sys; sys.exit(not all(map(os.path.exists, {list(names)!r})))"
    return [sys.executable, "-c", code]


def task(ident, *writes, **more):
    writes = list(writes or [f"{ident}.py"])
    base = {"id": ident, "goal": f"write the module {ident}", "writes": writes}
    return {**base, "acceptance": [there(*writes)], **more}


def wave(*tasks, **more):
    return {"kind": "wave", "because": "next", "tasks": list(tasks), **more}


def done(**more):
    return {"kind": "done", "because": "all is there", "summary": "Modules.", **more}


class Script:
    """A planner that answers from a list, and remembers what it was told."""

    def __init__(self, *answers):
        self.answers, self.told = list(answers), []

    def __call__(self, told):
        self.told.append(told)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(told) if callable(answer) else answer


@pytest.fixture
def fleet(tmp_path, user):
    agent, tricks = tmp_path / "agent.py", tmp_path / "told" / "tricks.json"
    agent.write_text(AGENT)
    tricks.parent.mkdir()
    command = [sys.executable, str(agent), "{task}", "{attempt}", "{brief_file}", str(tricks)]

    def coders(processes):
        homes = tmp_path / "homes"
        talks = [*command, "{session}"]
        return [
            ("coder", TemplateCoder("small", talks, processes=processes, homes=homes), "s"),
            ("coder@strong", TemplateCoder("big", talks, processes=processes, homes=homes), "l"),
        ]

    def made(planner, wrong=(), *, rules=None, **more):
        tricks.write_text(json.dumps(dict(wrong)))
        config = FleetConfig(
            repo=user,
            folder=tmp_path / "fleet",
            gate=GateRules(commands=((sys.executable, "-c", GATE),)),
            agents=4,
            sandbox="none",
            limits=Limits(time_s=30, silence_s=20),
            policy=Policy(backoff_s=0.01, jitter=0.0),
            stagger_s=0.0,
            planner=planner,
            planning=rules or PlanRules(),
            **more,
        )
        return Fleet(config, coders)

    return made


def epic(folder, *acceptance, name="modules", words=""):
    path = folder / f"{name}.md"
    path.write_text(EPIC.format(json.dumps([list(each) for each in acceptance])) + words)
    return path


async def settled(fleet, path):
    """Hand an epic in, and wait until it is over or waits for a person."""
    ident = fleet.submit(path)
    async with asyncio.timeout(90):
        await fleet.idle()
    return fleet._runs[ident]


async def say(run, question, choice, text=""):
    """What a person answers."""
    await run.said(
        lambda state, now: control.answer(state, question.id, choice, "ann", now, text=text)
    )


def result(run):
    return run.state.ended.result


def revisions(fleet, run):
    return [e for _, e in fleet.events(run.id) if isinstance(e, ev.RevisionProposed)]


def landed(commits):
    return [each.trailers["Leadhand-Task"] for each in commits]


async def test_an_epic_in_words_is_planned_in_two_waves_and_lands(fleet, tmp_path):
    script = Script(
        wave(task("a"), task("b", depends_on=["a"]), outlook=["then c"]),
        wave(task("c", depends_on=["b"])),
        done(changelog="Modules a, b and c."),
    )
    async with fleet(script) as at_work:
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
    assert {each["path"] for each in first["repository"]["tree"]} == {"a.txt", "src/b.txt"}
    assert first["repository"]["history"][0]["subject"] == "The beginning"
    assert [each["status"] for each in second["tasks"]] == ["landed", "landed"]
    assert third["record"] == [{"size": "1 path", "tasks": 3, "landed": 3, "first_pass": 3}]


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


@pytest.mark.parametrize("what", NONSENSE)
async def test_what_cannot_stand_is_sent_back_before_anybody_is_sent(fleet, tmp_path, what):
    bad, finding = NONSENSE[what]
    script = Script(bad, wave(task("good")), done())
    path = epic(tmp_path)
    path.write_text(path.read_text().replace("acceptance: []", "budget: 5.0"))
    async with fleet(script, protected=("ci",)) as at_work:
        run = await settled(at_work, path)
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded"
    assert landed(commits) == ["good"]
    assert finding in " ".join(script.told[1]["findings"])
    assert script.told[1]["last"] == bad
    assert script.told[1]["round"] == 2


async def test_who_insists_on_nonsense_is_replaced_by_a_person(fleet, tmp_path):
    answers = [wave(task(name, "../x.py")) for name in ("a", "b", "c")]
    script = Script(*answers, wave(task("d")), done())
    async with fleet(script) as at_work:
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


async def test_a_task_that_always_fails_is_split_and_lands(fleet, tmp_path):
    def split(told):
        (matter,) = told["matters"]
        assert (matter["kind"], matter["task"], matter["wanted"]) == ("failed", "big", "split")
        return wave(task("one", replaces="big"), task("two", replaces="big"))

    script = Script(
        wave(task("big", "one.py", "two.py"), task("after", depends_on=["big"])), split, done()
    )
    async with fleet(script, {"big": ["nothing"]}) as at_work:
        run = await settled(at_work, epic(tmp_path, there("one.py", "two.py", "after.py")))
        commits = await at_work.shop.hub.commits()
        events = [event for _, event in at_work.events(run.id)]
    assert run.state.ended.status == "succeeded", run.state.ended
    assert sorted(landed(commits)) == ["after", "one", "two"]
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


async def test_the_ladder_ends_at_a_person_and_goes_on_from_there(fleet, tmp_path):
    script = Script(
        wave(task("x")),
        wave(task("x1", replaces="x"), task("x2", "y.py", replaces="x")),
        wave(task("x3", "x1.py", replaces="x1")),
        done(),
    )
    wrong = {name: ["nothing"] for name in ("x", "x1", "x3")}
    async with fleet(script, wrong) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert "Task x3 cannot be done" in question.text
        assert [told["matters"][0]["wanted"] for told in script.told[1:]] == ["split", "replan"]
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
