"""A planner looks again: at questions, drift, remarks, a red acceptance, and after being killed."""

import asyncio
import contextlib
import os
import sys
import textwrap
from pathlib import Path

import pytest

from leadhand.app.reader import Reader
from leadhand.core import events as ev
from leadhand.core.policy import Policy
from leadhand.core.state.model import State
from leadhand.fleet.epic_folder import run_of
from leadhand.fleet.planning.lint import PlanRules
from leadhand.fleet.planning.survey import survey
from leadhand.fleet.repository.git import GitFailed
from leadhand.fleet.status.evidence import Evidence
from tests.fleet.places import commit_all, run_git, write
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

ROOT = Path(__file__).resolve().parents[2]


def brief(folder, name):
    return (folder / "told" / f"brief-{name}.md").read_text()


async def test_an_agents_question_is_answered_by_the_planner(planned, tmp_path):
    def answered(told):
        (matter,) = told["matters"]
        assert (matter["kind"], matter["said"]) == ("question", "which colour?")
        return {"kind": "wave", "because": "known", "answers": [{"task": "a", "text": "blue"}]}

    script = Script(wave(task("a"), task("b", depends_on=["a"])), answered, done())
    async with planned(script, {"a": ["asks"]}) as at_work:
        run = await settled(at_work, epic(tmp_path, there("a.py")))
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded", run.state.ended
    assert landed(commits) == ["a-2", "b"]
    told = brief(tmp_path, "a-2-1")
    assert "asked: which colour?" in told
    assert "Answer: blue" in told
    row = next(row for row in result(run)["ladder"] if row["task"] == "a")
    assert row["answered"] == 1
    assert "split" not in row


async def test_a_question_nobody_here_can_answer_goes_to_a_person(planned, tmp_path):
    ask = {"kind": "ask", "because": "not known", "question": "Which colour shall it be?"}

    def heard(told):
        text = told["answers"][-1]["text"]
        return {"kind": "wave", "because": "said", "answers": [{"task": "a", "text": text}]}

    script = Script(wave(task("a")), ask, heard, done())
    async with planned(script, {"a": ["asks"]}) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert question.text == "Which colour shall it be?"
        await say(run, question, "", "blue, of course")
        async with asyncio.timeout(60):
            await at_work.idle()
        assert run.state.ended.status == "succeeded", run.state.ended
    assert "blue, of course" in brief(tmp_path, "a-2-1")


async def test_who_asks_again_and_again_is_answered_by_a_person(planned, tmp_path):
    def answered(told):
        names = [each["task"] for each in told["matters"]]
        answers = [{"task": name, "text": "any"} for name in names]
        return {"kind": "wave", "because": "?", "answers": answers}

    asks = {name: ["asks"] for name in ("a", "a-2", "a-3")}
    script = Script(wave(task("a")), answered, answered, done())
    async with planned(script, asks) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert "Task a-3 asks: which colour?" in question.text
        await say(run, question, "again", "blue")
        async with asyncio.timeout(60):
            await at_work.idle()
        assert run.state.ended.status == "succeeded", run.state.ended
        assert landed(await at_work.shop.hub.commits()) == ["a-4"]


async def test_each_of_two_questions_that_wait_is_answered_by_its_own_answer(planned, tmp_path):
    def answered(told):
        answers = [{"task": each["task"], "text": "any"} for each in told["matters"]]
        return {"kind": "wave", "because": "?", "answers": answers}

    asks = {name: ["asks"] for name in ("a", "a-2", "a-3", "b-2", "b-3")} | {"b": ["asks later"]}
    script = Script(wave(task("a"), task("b")), *[answered] * 4, done())
    async with planned(script, asks) as at_work:
        ident = at_work.submit(epic(tmp_path, there("a.py", "b.py")))
        async with asyncio.timeout(90):
            while len(getattr(at_work._runs.get(ident), "state", State()).questions) < 1:
                await asyncio.sleep(0.05)
            (tmp_path / "told" / "go").touch()
            await at_work.idle()
            run = at_work._runs[ident]
            first, second = run.state.questions.values()
            assert "Task a-3 asks" in first.text
            assert "Task b-3 asks" in second.text
            await say(run, first, "again", "blue")
            await at_work.idle()
            assert landed(await at_work.shop.hub.commits()) == ["a-4"]
            assert [each.id for each in run.state.questions.values()] == [second.id]
            await say(run, second, "again", "blue")
            await at_work.idle()
        assert run.state.ended.status == "succeeded", run.state.ended
        assert landed(await at_work.shop.hub.commits()) == ["a-4", "b-4"]


async def test_a_repository_that_cannot_be_read_for_a_while_is_waited_for(
    planned, tmp_path, monkeypatch
):
    monkeypatch.setattr("leadhand.fleet.planning.backends.PAUSES_S", (0.0,) * 4)
    troubles = [OSError("no room"), GitFailed(["ls-tree"], 128, "killed")] * 2
    script = Script(wave(task("a")), done())
    async with planned(script) as at_work:
        with _broken(monkeypatch, troubles):
            run = await settled(at_work, epic(tmp_path, there("a.py")))
            events = [event for _, event in at_work.events(run.id)]
        assert run.state.ended.status == "succeeded", run.state.ended
        assert not any(isinstance(event, ev.PlannerFailed) for event in events)
    assert troubles == []


async def test_a_repository_that_stays_unreadable_is_a_question(planned, tmp_path, monkeypatch):
    monkeypatch.setattr("leadhand.fleet.planning.backends.PAUSES_S", (0.0,) * 4)
    async with planned(Script(wave(task("a")), done())) as at_work:
        with _broken(monkeypatch, [GitFailed(["ls-tree"], 128, "bad object")] * 99):
            run = await settled(at_work, epic(tmp_path, there("a.py")))
            (question,) = run.state.questions.values()
            assert "bad object" in question.text
        await say(run, question, "again")
        async with asyncio.timeout(60):
            await at_work.idle()
        assert run.state.ended.status == "succeeded", run.state.ended


@contextlib.contextmanager
def _broken(monkeypatch, troubles):
    """Looking at the repository ends with these troubles, one after the other."""

    async def looks(hub, cache):
        if troubles:
            raise troubles.pop(0)
        return await survey(hub, cache)

    with monkeypatch.context() as patch:
        patch.setattr("leadhand.fleet.planning.planner.survey", looks)
        yield


async def test_what_others_changed_meanwhile_goes_back_to_the_planner(planned, tmp_path, user):
    def revised(told):
        (matter,) = told["matters"]
        assert (matter["kind"], matter["task"]) == ("drift", "b")
        assert matter["changed"][0]["subject"] == "Ann was quicker"
        return wave(task("b2", "b.py", replaces="b", goal="go on with what Ann made of b"))

    script = Script(wave(task("a"), task("b", depends_on=["a"])), revised, done())
    async with planned(script, {"a": ["waits"]}) as at_work:
        ident = at_work.submit(epic(tmp_path, there("a.py", "b.py")))
        async with asyncio.timeout(60):
            while not (tmp_path / "told" / "brief-a-1.md").exists():
                await asyncio.sleep(0.05)
            write(user, {"b.py": "made = 'by Ann'\n"})
            commit_all(user, "Ann was quicker")
            before = at_work.shop.hub.main()
            while at_work.shop.hub.main() == before:
                await asyncio.sleep(0.05)
            (tmp_path / "told" / "go").touch()
            await at_work.idle()
        run = at_work._runs[ident]
        assert run.state.ended.status == "succeeded", run.state.ended
        commits = await at_work.shop.hub.commits()
    assert landed(each for each in commits if "Leadhand-Task" in each.trailers) == ["a", "b2"]
    assert not (tmp_path / "told" / "brief-b-1.md").exists(), "nobody was sent"
    (row,) = result(run)["ladder"]
    assert (row["task"], row["attempts"], row["drift"]) == ("b", 2, 1)


async def test_an_agents_remark_is_told_and_may_change_the_plan(planned, tmp_path):
    script = Script(
        wave(task("a"), task("old", depends_on=["a"])),
        wave(task("new", replaces="old")),
        done(),
    )
    tricks = {"a": ["remarks replan: old is not needed, new is"]}
    async with planned(script, tricks) as at_work:
        run = await settled(at_work, epic(tmp_path))
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded", run.state.ended
    assert script.told[1]["matters"] == [
        {"kind": "handoff", "said": "replan: old is not needed, new is"}
    ]
    assert landed(commits) == ["a", "new"]


async def test_an_acceptance_that_is_red_brings_another_wave(planned, tmp_path):
    script = Script(wave(task("a")), done(), wave(task("z")), done())
    async with planned(script) as at_work:
        run = await settled(at_work, epic(tmp_path, there("a.py"), there("z.py")))
        plans = [[step["id"] for step in plan.add] for plan in revisions(at_work, run)]
    assert run.state.ended.status == "succeeded", run.state.ended
    assert plans == [["a"], ["acceptance-1"], ["z"], ["acceptance-2"]]
    (matter,) = script.told[2]["matters"]
    assert matter["kind"] == "acceptance"
    assert "fails on main" in matter["said"]
    assert result(run)["acceptance"]["looks"] == 2


async def test_an_acceptance_that_stays_red_is_not_achieved(planned, tmp_path):
    names = iter("abcdefgh")

    def next_one(told):
        finished = told["why"] == "nothing is left"
        return done() if finished else wave(task(next(names)))

    async with planned(next_one) as at_work:
        run = await settled(at_work, epic(tmp_path, there("never.py")))
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "failed"
    assert "not achieved" in run.state.ended.reason
    assert landed(commits) == ["a", "b", "c"]


async def test_done_again_with_nothing_new_is_no_answer(planned, tmp_path):
    script = Script(wave(task("a")), done(), done(because="really"), wave(task("z")), done())
    async with planned(script) as at_work:
        run = await settled(at_work, epic(tmp_path, there("z.py")))
    assert run.state.ended.status == "succeeded"
    assert "nothing is new since" in script.told[3]["findings"][0]


async def test_given_tasks_are_achieved_only_with_the_epics_acceptance(planned, tmp_path):
    tasks = "tasks: [{id: a, goal: write the module a, writes: [a.py]}]\n"
    good = epic(tmp_path, there("a.py"), name="good")
    good.write_text(good.read_text().replace("acceptance:", f"{tasks}acceptance:"))
    bad = epic(tmp_path, there("b.py"), name="bad")
    bad.write_text(
        bad.read_text().replace("acceptance:", f"{tasks}acceptance:").replace("a.py", "c.py")
    )
    async with planned(None) as at_work:
        run = await settled(at_work, good)
        assert run.state.ended.status == "succeeded"
        run = await settled(at_work, bad)
        assert run.state.ended is None
        assert at_work.questions(run.id) == ["acceptance-1"]


async def test_tasks_of_an_epic_are_its_first_wave(planned, tmp_path):
    path = epic(tmp_path, there("a.py", "b.py"))
    tasks = "tasks: [{id: a, goal: write the module a, writes: [a.py], tier: strong}]\n"
    path.write_text(path.read_text().replace("acceptance:", f"{tasks}acceptance:"))
    script = Script(wave(task("b")), done())
    async with planned(script) as at_work:
        run = await settled(at_work, path)
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded"
    assert landed(commits) == ["a", "b"]
    assert commits[0].trailers["Assisted-by"] == "big:big"
    assert [each["id"] for each in script.told[0]["tasks"]] == ["a"]


async def test_the_changelog_is_one_more_task_where_that_is_wanted(planned, tmp_path):
    script = Script(wave(task("a")), done(changelog="There is a module a now."))
    async with planned(script, rules=PlanRules(changelog="CHANGES.md")) as at_work:
        run = await settled(at_work, epic(tmp_path, there("a.py", "CHANGES.md")))
        commits = await at_work.shop.hub.commits()
    assert run.state.ended.status == "succeeded"
    assert landed(commits) == ["a", "changelog-1"]
    assert "There is a module a now." in brief(tmp_path, "changelog-1-1")


async def test_a_wave_waits_for_review_where_the_policy_says_so(planned, tmp_path):
    script = Script(wave(task("a")), done())
    policy = Policy(review=True, backoff_s=0.01)
    async with planned(script, policy=policy) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert question.kind == "review"
        (lane,) = (await Evidence(at_work.config.folder).document())["board"]["lanes"]
        assert [each["kind"] for each in lane["waiting"]] == ["review"]
        assert not (tmp_path / "told" / "brief-a-1.md").exists()
        await say(run, question, "request_changes", "call it b")
        said = {"comment": "c1", "addressed": True, "reason": "it is b now"}
        script.answers.insert(0, {**wave(task("b")), "comments": [said]})
        async with asyncio.timeout(60):
            await at_work.idle()
        assert "call it b" in script.told[-1]["why"]
        (comment,) = script.told[-1]["comments"]
        assert (comment["id"], comment["text"]) == ("c1", "call it b")
        (answered,) = run.state.comments
        assert (answered.answer.status, answered.answer.reason) == ("addressed", "it is b now")
        (question,) = run.state.questions.values()
        await say(run, question, "approve")
        async with asyncio.timeout(60):
            await at_work.idle()
        assert landed(await at_work.shop.hub.commits()) == ["b"]


async def test_a_planner_that_breaks_ends_with_a_person_who_gives_up(planned, tmp_path):
    def broken(told):
        raise ValueError("no idea")

    async with planned(broken) as at_work:
        run = await settled(at_work, epic(tmp_path))
        (question,) = run.state.questions.values()
        assert "ValueError: no idea" in question.text
        await say(run, question, "give up", "not worth it")
        async with asyncio.timeout(60):
            await at_work.idle()
    assert run.state.ended.status == "failed"
    assert "ann gave it up: not worth it" in run.state.ended.reason


async def test_a_planner_may_give_up_with_a_reason(planned, tmp_path):
    script = Script({"kind": "give_up", "because": "-", "reason": "no such thing"})
    async with planned(script) as at_work:
        run = await settled(at_work, epic(tmp_path))
    assert run.state.ended.status == "failed"
    assert "no such thing" in run.state.ended.reason


DRIVER = textwrap.dedent(
    """
    import asyncio, pathlib, sys, time
    from tests.fleet.planned import open_fleet, task, wave, done
    folder, user = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

    def plan(told):
        with (folder / "calls").open("a") as file:
            file.write(told["why"] + "\\n")
        if not (folder / "told" / "go").exists():
            time.sleep(0.5)
        if not told["tasks"]:
            return wave(task("a"), task("b"), task("c", depends_on=["a"]))
        if len(told["tasks"]) == 3:
            return wave(task("d"))
        return done()

    async def main():
        async with open_fleet(folder, user, plan, {"b": ["waits"]}) as fleet:
            fleet.submit(folder / "modules.md")
            async with asyncio.timeout(90):
                await fleet.idle()
    asyncio.run(main())
    """
)


@pytest.mark.parametrize("moment", ["asked", "brief-b-1.md", "landed"])
async def test_killed_in_the_middle_nothing_is_planned_or_landed_twice(tmp_path, user, moment):
    path = epic(tmp_path, there("a.py", "b.py", "c.py", "d.py"))
    (tmp_path / "driver.py").write_text(DRIVER)
    argv = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path), str(user)]
    around = {"cwd": ROOT, "env": {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}}
    process = await asyncio.create_subprocess_exec(*argv, **around)
    hub = tmp_path / "fleet" / "hub" / "hub.git"
    async with asyncio.timeout(60):
        while not _reached(tmp_path, hub, moment):
            assert process.returncode is None
            await asyncio.sleep(0.02)
    process.kill()
    await process.wait()
    (tmp_path / "told").mkdir(exist_ok=True)
    (tmp_path / "told" / "go").touch()
    again = await asyncio.create_subprocess_exec(*argv, **around)
    async with asyncio.timeout(90):
        assert await again.wait() == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    lost = ["the last call failed"] if moment == "asked" else []
    assert calls == ["start", *lost, "nothing is left", "nothing is left"]
    form = "--format=%(trailers:key=Leadhand-Task,valueonly,separator=)"
    assert sorted(run_git(hub, "log", form, "main").split()) == ["a", "b", "c", "d"]
    reader = Reader(tmp_path / "fleet" / "fleet.db")
    events = [event for _, event in reader.events(run_of("modules", path.read_bytes()))]
    await reader.close()
    plans = [event.add for event in events if isinstance(event, ev.RevisionProposed)]
    names = [[step["id"] for step in plan] for plan in plans]
    assert names == [["a", "b", "c"], ["d"], ["acceptance-1"]]
    assert events[-1].status == "succeeded"


def _reached(folder, hub, moment):
    if moment == "asked":
        return (folder / "calls").exists()
    if moment != "landed":
        return (folder / "told" / moment).exists()
    with contextlib.suppress(FileNotFoundError):
        return (hub / "refs/heads/main").read_text() != (hub / "refs/leadhand/start").read_text()
    return False
