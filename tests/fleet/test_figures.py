"""The fleet's figures: each from its source, the same after a restart, and differences shown."""

import asyncio
import json
import random
import shutil

from leadhand.core import commands
from leadhand.fleet.budget import Spending
from leadhand.fleet.status.evidence import Evidence
from leadhand.fleet.status.figures import (
    HOUR,
    SECOND,
    EpicFacts,
    Landing,
    Sources,
    TaskFacts,
    figures,
    intervals,
    peak,
)
from tests.fleet.places import run_git
from tests.fleet.planned import Script, wave
from tests.fleet.planned import epic as planned_epic
from tests.fleet.planned import settled as planned_settled
from tests.fleet.planned import task as given
from tests.fleet.standing import epic, standing

RUN = "epic-a"


def note(at, what, task="t", attempt=1, **more):
    return {"at": at * SECOND, "what": what, "run": RUN, "task": task, "attempt": attempt, **more}


def landing(task, at, sha="f" * 40):
    return Landing(sha, RUN, task, 1, at * SECOND, "scripted", f"write {task}")


def task(name, status="succeeded", **more):
    return TaskFacts(run=RUN, task=name, status=status, attempts=1, **more)


def sources(tasks=(), notes=(), landings=(), now=10_000, **more):
    facts = EpicFacts(run=RUN, started=1, tasks={each.task: each for each in tasks})
    facts.attempts = {(each.task, 1): (1, 2) for each in tasks}
    return Sources([facts], list(notes), list(landings), now * SECOND, **more)


def test_the_peak_is_that_of_the_intervals_whatever_they_are():
    """Against a count of every second, for many random lives."""
    draw = random.Random(7)
    for _ in range(200):
        spans = []
        for number in range(draw.randrange(1, 12)):
            began = draw.randrange(0, 30)
            spans.append((began, began + draw.randrange(1, 10), str(number)))
        each = [sum(a <= second < b for a, b, _name in spans) for second in range(45)]
        assert peak(spans)[0] == max(each)


def test_agents_of_a_fleet_that_was_killed_end_when_it_was_last_heard_of():
    notes = [
        note(1, "opened"),
        note(2, "agent", "a"),
        note(3, "agent", "b"),
        note(5, "agent ended", "b"),
        note(6, "tested", size=1, ok=True),
        note(100, "opened"),
        note(101, "agent", "c"),
    ]
    spans = intervals(notes, 200 * SECOND)
    lives = {name.split("/")[1]: (a // SECOND, b // SECOND) for a, b, name in spans}
    assert lives == {"a": (2, 6), "b": (3, 5), "c": (101, 200)}
    known = [task(name) for name in "abc"]
    at_work = figures(sources(known, notes, now=200, alive=True))["agents"]
    assert (at_work["now"], at_work["peak"], at_work["runs"]) == (1, 2, 3)
    assert figures(sources(known, notes, now=200))["agents"]["now"] == 0, "nobody without a fleet"
    late = figures(sources(known, notes, now=200, since=90 * SECOND))["agents"]
    assert late["peak"] == 1


def test_landings_are_counted_by_the_commits_times():
    now = 400_000
    ages = (10, 3500, 3700, 90_000, 700_000)
    found = figures(
        sources(landings=[landing(f"t{a}", now - a) for a in sorted(ages)[::-1]], now=now)
    )
    landed = found["landed"]
    assert (landed["total"], landed["last_hour"], landed["last_day"]) == (5, 2, 3)
    assert landed["last_week"] == 4
    assert sum(number for _hour, number in landed["by_hour"]) == 4
    recent = sources(landings=[landing("a", now - 60)], now=now, since=(now * SECOND - 2 * HOUR))
    assert figures(recent)["landed"]["per_hour"] == 0.5
    young = sources(landings=[landing("a", now - 60)], now=now, since=(now * SECOND - HOUR // 2))
    assert figures(young)["landed"]["per_hour"] is None, "no rate from less than an hour"


def test_the_trains_figures_are_those_of_the_journal():
    notes = [
        note(1, "queued", "a"),
        note(1, "queued", "b"),
        note(2, "tested", size=2, ok=False, seconds=1.0),
        note(3, "tested", size=1, ok=True, seconds=2.0, search=True),
        note(3, "checked", "c", ok=False, seconds=9.0),
        note(3, "looked", ok=True),
        note(3, "tested", size=1, ok=True, seconds=0.0, reused=True),
        note(4, "moved", size=1),
        note(4, "landed", "a", waited_s=3.0),
        note(5, "ejected", "b", kind="conflict"),
        note(6, "queued", "c"),
    ]
    found = figures(sources(notes=notes, now=16, alive=True))
    train, queue = found["train"], found["queue"]
    assert (train["tests"], train["red"], train["bisections"], train["conflicts"]) == (2, 1, 1, 1)
    assert (train["reused"], train["batch_mean"]) == (1, 1.0)
    assert train["ejected"] == {"conflict": 1}
    assert found["gate"] == {"runs": 4, "failed": 2, "seconds": {"p50": 2.0, "p95": 9.0}}
    assert (queue["waiting"], queue["oldest_s"], queue["wait_s"]["p50"]) == (1, 10.0, 3.0)


def test_a_change_that_was_withdrawn_waits_no_more():
    """By whoever ended its attempt, or for trouble of the gate."""
    notes = [note(1, "queued", "a"), note(2, "queued", "b"), note(9, "withdrawn", "a")]
    known = [task("a", "running"), task("b", "running")]
    found = figures(sources(known, notes, now=16, alive=True))
    assert (found["queue"]["waiting"], found["queue"]["oldest_s"]) == (1, 14.0)
    assert found["queue"]["names"] == [f"{RUN}/b/1"]
    assert (found["flow"]["train"], found["flow"]["gate"]) == (1, 1)


def test_what_nobody_is_waited_for_is_no_dead_letter():
    tasks = [
        task("dropped", "failed", settled=True),
        task("asked", "waiting_for_person", question="q1", settled=True),
        task("dead", "failed"),
    ]
    found = figures(sources(tasks))
    assert [letter["task"] for letter in found["dead_letters"]] == ["dead"]
    assert (found["flow"]["dead"], found["flow"]["dropped"]) == (1, 2)
    assert found["tasks"]["blocked"] == 1


def test_a_question_of_the_planner_is_counted_though_no_task_is_dead():
    found = sources([task("a")])
    found.epics[0].questions = ["q1"]
    assert (figures(found)["questions"], figures(found)["dead_letters"]) == (1, [])


def test_what_was_spent_is_what_the_days_limit_counts():
    """The log knows nothing of what lost, cancelled and broken attempts cost; the journal does."""
    notes = [
        note(10, "opened"),
        note(19, "agent ended", cost=2.0),
        note(21, "reviewed", cost=0.5),
        note(30, "agent ended", attempt=2, cost=0.75),
        note(40, "lost", attempt=3, cost=0.25),
        {"at": 41 * SECOND, "what": "planned", "cost": 4.0},
        note(42, "agent", attempt=4, cost=100.0),
    ]
    given = sources([task("t")], notes, now=50)
    facts = given.epics[0]
    facts.spent = [(5 * SECOND, 1.0), (22 * SECOND, 2.5), (41 * SECOND, 4.0)]
    facts.paid = {("t", 1)}
    found = figures(given)
    assert found["spend"]["total"] == 1.0 + 2.0 + 0.5 + 0.75 + 0.25 + 4.0
    clock = lambda: 50.0  # noqa: E731
    assert found["spend"]["total"] - 1.0 == Spending(notes, clock).today()
    assert found["epics"][0]["cost"] == 1.0 + 2.5 + 4.0 + 0.75 + 0.25
    assert figures(given._replace(notes=[]))["spend"]["total"] == 7.5, "without a journal, the log"


def test_a_task_is_recovered_when_it_landed_and_no_person_was_needed():
    late = 9 * SECOND
    tasks = [
        task("well", failures=[(late, "timeout"), (late, "lost")]),
        task("helped", failures=[(late, "timeout")], person=True),
        task("asked", "waiting_for_person", failures=[(late, "lost")], question="q1", person=True),
        task("going", "retrying", failures=[(late, "timeout")]),
        task("plain"),
    ]
    landings = [landing(name, 20) for name in ("well", "helped", "plain")]
    found = figures(sources(tasks, landings=landings))
    recovery = found["recovery"]
    assert (recovery["failed"], recovery["recovered"], recovery["people"]) == (4, 1, 2)
    assert (recovery["rate"], recovery["open"]) == (0.3333, 1)
    names = ("tasks", "recovered", "open")
    rows = {row["class"]: tuple(map(row.get, names)) for row in recovery["by_class"]}
    assert rows == {"timeout": (3, 1, 1), "lost": (1, 0, 0)}
    assert [letter["task"] for letter in found["dead_letters"]] == ["asked"]
    assert found["flow"]["landed"] == 3
    assert found["flow"]["again"] == 1


def test_a_fleet_that_ended_while_a_task_stood_in_line_is_no_failure_of_it():
    lost = {"failures": [(20 * SECOND, "lost")], "lost": {1: 20 * SECOND}, "ended": 30 * SECOND}
    stood, died = task("stood", **lost), task("died", **lost)
    notes = [note(1, "opened"), note(2, "agent", "died"), note(19, "opened")]
    notes += [note(21, "agent", "stood", 2), note(21, "agent", "died", 2)]
    recovery = figures(sources([stood, died], notes))["recovery"]
    assert (recovery["failed"], recovery["recovered"]) == (1, 1)
    assert recovery["first_pass"] == 0.5
    older = figures(sources([stood, died], [note(25, "opened")]))["recovery"]
    assert older["failed"] == 2, "of what no journal is left, the log is believed"
    rows = [{"task": name, "attempts": 2, "first": 1, "fresh": 1} for name in ("stood", "died")]
    given = sources([stood, died], notes)
    given.epics[0].ladder = rows
    ladder = figures(given)["ladder"]
    assert (ladder["first"], ladder["fresh"]) == (2, 1), "standing in line is on no rung"


def test_a_task_whose_place_others_took_is_recovered_when_all_of_them_landed():
    late = [(9 * SECOND, "too_complex")]

    def recovery(*parts):
        split = task("big", "superseded", failures=late)
        found = figures(sources([split, *parts]))
        row = found["recovery"]
        assert found["epics"][0]["tasks"] == len(parts), "a task that was replaced is not one more"
        assert (found["flow"]["again"], found["flow"]["planned"]) == (0, 0)
        return row["failed"], row["recovered"], row["people"]

    one, two = task("one", root="big"), task("two", root="big")
    assert recovery(one, two) == (1, 1, 0)
    assert recovery(one, task("two", "running", root="big")) == (1, 0, 0)
    assert recovery(one, task("two", "cancelled", root="big")) == (1, 0, 1)
    assert recovery(one, task("two", root="big", person=True)) == (1, 0, 1)


def test_each_way_to_disagree_is_said():
    def said(*given, **more):
        return figures(sources(*given, **more))["disagreements"]

    done = [task("a", commit="f" * 40)]
    assert said(done, landings=[landing("a", 20)]) == []
    assert "is not on main" in said(done)[0]
    assert "on main 2 times" in said(done, landings=[landing("a", 20), landing("a", 30)])[0]
    assert said(done, older=[landing("a", 20)]) == [], "an earlier fleet's, in the history"
    assert "by the log, and" in said(done, landings=[landing("a", 20, "0" * 40)])[0]
    assert "knows no such task" in said([], landings=[landing("a", 20)])[0]
    assert "the log says failed" in said([task("a", "failed")], landings=[landing("a", 20)])[0]
    assert said([task("a", "failed")], landings=[landing("a", 9_990)]) == [], "git may be ahead"
    assert said([task("a", person=True)]) == [], "a person did it elsewhere"
    assert "knows no such attempt" in said(done, [note(1, "agent", "a", 2)], [landing("a", 20)])[0]


async def test_a_real_fleets_figures_are_the_same_after_a_restart(tmp_path, user):
    tricks = {"b": ["red"], "c": ["nothing"] * 20, "cost": 0.5}
    opened = standing(tmp_path, user, json.dumps(tricks))
    async with opened() as fleet:
        fleet.submit(epic(tmp_path, "first", "a", "b", "c"))
        async with asyncio.timeout(60):
            await fleet.idle()
        peak_in_memory = fleet.shop.governor.peak
    before = await Evidence(tmp_path / "fleet").document()
    assert before["tasks"] == {"blocked": 1, "landed": 2}
    assert before["agents"]["peak"] == peak_in_memory
    assert before["landed"]["total"] == 2
    assert before["recovery"]["recovered"] == 1
    assert before["spend"]["total"] == before["agents"]["runs"] * 0.5
    assert before["disagreements"] == []
    async with opened():
        pass
    after = await Evidence(tmp_path / "fleet").document()
    for changing in ("at", "queue"):
        before.pop(changing), after.pop(changing)
    assert after == before
    async with opened() as fleet:
        (run,) = fleet._runs.values()
        await run.submit_and_wait(lambda state, now: commands.cancel(state, "ann", "enough", now))
        async with asyncio.timeout(60):
            await fleet.idle()
    ended = await Evidence(tmp_path / "fleet").document()
    assert (ended["dead_letters"], ended["flow"]["dead"]) == ([], 0), "its epic has ended"
    assert ended["disagreements"] == []


async def test_a_task_that_was_dropped_is_no_dead_letter(planned, tmp_path):
    """Also while its epic goes on."""
    ask = {"kind": "ask", "because": "not known", "question": "What else is wanted?"}
    script = Script(wave(given("a"), given("b")), wave(given("c"), drop=["a"]), ask)
    async with planned(script, {"a": ["asks"]}) as at_work:
        await planned_settled(at_work, planned_epic(tmp_path))
        assert at_work.open_epics == 1
    found = await Evidence(tmp_path / "fleet").document()
    assert (found["dead_letters"], found["flow"]["dropped"]) == ([], 1)
    assert found["landed"]["total"] == 2


async def test_what_an_earlier_fleet_landed_agrees_with_a_new_ones_log(tmp_path, user):
    """Its folder is gone, its commits are in the user's history: nothing is done again."""
    opened = standing(tmp_path, user, publish="leadhand/main")
    for _ in range(2):
        async with opened() as fleet:
            fleet.submit(epic(tmp_path, "first", "a"))
            async with asyncio.timeout(60):
                await fleet.idle()
        found = await Evidence(tmp_path / "fleet").document()
        assert (found["tasks"], found["disagreements"]) == ({"landed": 1}, [])
        run_git(user, "merge", "-q", "--ff-only", "leadhand/main")
        shutil.rmtree(tmp_path / "fleet")
    assert found["landed"]["total"] == 0
    assert found["agents"]["runs"] == 0
