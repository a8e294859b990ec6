"""The board: every task has a column and a reason, and the whole stays small."""

import json

import pytest

from leadhand.fleet.status import journal
from leadhand.fleet.status.board import BUCKETS, CARDS, board, series
from leadhand.fleet.status.figures import (
    HOUR,
    SECOND,
    EpicFacts,
    Landing,
    Sources,
    TaskFacts,
    ask_about,
    figures,
)

RUN = "epic-a"


def note(at, what, task, attempt=1, **more):
    return {"at": at * SECOND, "what": what, "run": RUN, "task": task, "attempt": attempt, **more}


def task(name, status="waiting", **more):
    given = {"attempts": int(status not in ("waiting", "ready")), **more}
    return TaskFacts(run=RUN, task=name, goal=f"write {name}", status=status, **given)


def sources(*tasks, notes=(), landings=(), now=10_000, **epic):
    facts = EpicFacts(run=RUN, started=1, tasks={each.task: each for each in tasks}, **epic)
    return Sources([facts], list(notes), list(landings), now * SECOND, alive=True)


def live(*agents, **more):
    found = [
        {"run": RUN, "task": name, "coder": "c", "model": "m", "words": "make check", "cost": 0.5}
        for name in agents
    ]
    return {"agents": found, "held_back": "", "locked": {}, **more}


def cards(found):
    return {each["task"]: each for each in found["cards"]}


def test_each_task_is_in_the_column_that_it_has_reached():
    notes = [
        note(1, "agent", "old"),
        {"at": 2 * SECOND, "what": "opened"},
        note(3, "agent", "works", coder="c", model="m"),
        note(3, "agent", "tested"),
        note(4, "agent ended", "tested", cost=0.1),
        note(3, "agent", "queued"),
        note(4, "agent ended", "queued"),
        note(5, "queued", "queued"),
    ]
    found = board(
        sources(
            task("works", "running", cost=0.25),
            task("tested", "running"),
            task("queued", "running"),
            task("old", "running"),
            task("done", "succeeded", ended=9 * SECOND, commit="f" * 40),
            task("stuck", "failed", failures=[(7 * SECOND, "permanent")], why="no such\nlog"),
            task("replaced", "superseded"),
            task("dropped", "cancelled", settled=True),
            notes=notes,
        ),
        live("works"),
    )
    columns = {name: each["column"] for name, each in cards(found).items()}
    assert columns == {
        "works": "working",
        "tested": "gate",
        "queued": "merge_queue",
        "old": "planned",
        "done": "merged",
        "stuck": "blocked",
        "dropped": "ended",
    }
    works = cards(found)["works"]
    assert (works["coder"], works["model"], works["words"]) == ("c", "m", "make check")
    assert (works["cost"], works["running_cost"]) == (0.25, 0.5), "counted when it has ended"
    assert works["since"][:19] == "1970-01-01T00:00:03"
    assert cards(found)["stuck"]["reason"] == "no such"
    assert found["columns"]["merged"] == found["columns"]["blocked"] == 1
    assert cards(found)["dropped"]["reason"] == "Cancelled."
    assert cards(found)["tested"]["cost"] == 0.1, "its agent has ended, and its attempt has not"
    assert sum(found["columns"].values()) == 7, "all but the one that was replaced"
    assert found["lanes"][0]["columns"]["planned"] == 1


@pytest.mark.parametrize(
    ("given", "told", "reason"),
    [
        ({"waits": ["a", "b"]}, {}, "Depends on a, b."),
        ({"waits": ["stuck"]}, {}, "Depends on stuck (stuck is blocked)."),
        ({"status": "running"}, {}, "Waiting for a slot."),
        (
            {"status": "running"},
            {"held_back": "300 MB of memory are left"},
            "Waiting for a slot: 300 MB of memory are left.",
        ),
        (
            {"status": "running"},
            {"locked": {f"{RUN}/t": [f"{RUN}/a", "epic-b/x"]}},
            "Waiting for paths that a, epic-b/x may change.",
        ),
        (
            {"status": "backing_off", "until": 9, "failures": [(5, "transient")], "why": "cut off"},
            {},
            "Tries again: cut off",
        ),
        ({"status": "ready"}, {}, "Ready."),
    ],
)
def test_a_planned_task_says_what_it_waits_for(given, told, reason):
    stuck = task("stuck", "failed")
    found = board(sources(task("t", **given), stuck), live(**told))
    card = cards(found)["t"]
    assert (card["column"], card["reason"]) == ("planned", reason)


def test_a_blocked_task_says_why_and_what_unblocks_it():
    asks = task("asks", "asking", question="q-1", why="which colour?")
    held = task("held", "ready", held="q-2", held_by="ada")
    failed = task("failed", "failed", why="2 tests fail")
    found = cards(board(sources(asks, held, failed, planning=True), live()))
    assert {each["column"] for each in found.values()} == {"blocked"}
    assert (found["asks"]["question"], found["asks"]["reason"]) == ("q-1", "which colour?")
    assert (found["held"]["held_by"], found["held"]["reason"]) == ("ada", "Held by ada.")
    assert found["failed"]["reason"] == "The planner decides how to continue: 2 tests fail"


def test_a_task_at_work_again_says_why_it_is():
    """What the last attempt failed for; a merged one has no reason any more."""
    failed = {"attempts": 2, "failures": [(5, "timeout")], "why": "\nno output for 300 s\nmore"}
    again = task("again", status="running", **failed)
    done = task("done", status="succeeded", **failed)
    first = task("first", status="running", attempts=1, why="asked")
    at_work = [note(6, "agent", "again", 2), note(6, "agent", "first")]
    found = cards(board(sources(again, done, first, notes=at_work), live()))
    assert (found["again"]["column"], found["again"]["reason"]) == (
        "working",
        "The last attempt failed: no output for 300 s",
    )
    assert "reason" not in found["done"]
    assert "reason" not in found["first"]


def test_a_failed_task_says_what_it_holds_up_and_what_a_person_is_asked_about_it():
    """A program plans: its question names the task, with what a program printed in between."""
    text = "Task rank failed: 1 test fails:\n$ test\nF\nexit 1. What should an agent know?"
    facts = sources(
        task("rank", "failed", why="1 test fails:\n$ test\nF"),
        task("find", waits=["rank"]),
        task("ran", "failed", why="it broke"),
        asked={"q-1": ("planner", text), "q-2": ("planner", "Which epic is first?")},
    )
    ask_about(facts.epics[0])
    found = board(facts, live())
    card = cards(found)["rank"]
    assert card["question"] == "q-1"
    assert card["reason"] == (
        "1 test fails. find cannot start before. A person is asked: "
        "Task rank failed: 1 test fails. What should an agent know?"
    )
    assert "question" not in cards(found)["ran"]  # no part of a name is a name
    assert [each["question"] for each in found["lanes"][0]["waiting"]] == ["q-2"]


def test_a_question_about_the_epic_itself_is_told_with_its_lane():
    facts = sources(
        task("a", "asking", question="q-1"),
        asked={"q-1": ("task", "what?"), "q-2": ("review", "approve the plan")},
        waves=[{"revision": 1, "at": SECOND, "because": "wave 1: begin", "tasks": 1, "names": []}],
    )
    lane = board(facts, live())["lanes"][0]
    assert [each["question"] for each in lane["waiting"]] == ["q-2"]
    assert lane["waves"][0]["because"] == "wave 1: begin"


def test_a_board_of_a_hundred_agents_and_1200_tasks_is_bounded():
    tasks = [task(f"w{n}", "running", why="x" * 500) for n in range(100)]
    tasks += [task(f"p{n}", waits=["w1"], why="x" * 500) for n in range(500)]
    tasks += [task(f"m{n}", "succeeded", ended=n, commit="f" * 40) for n in range(600)]
    notes = [note(3, "agent", f"w{n}", coder="c", model="m") for n in range(100)]
    found = board(sources(*tasks, notes=notes), live(*(f"w{n}" for n in range(100))))
    assert found["columns"]["working"] == 100
    assert (found["columns"]["planned"], found["columns"]["merged"]) == (500, 600)
    shown = [each for each in found["cards"] if each["column"] == "merged"]
    assert len(shown) == CARDS["merged"]
    assert shown[0]["task"] == "m599", "the newest first"
    assert len(json.dumps(found)) < 120_000


def test_what_happened_is_counted_in_stretches_of_the_chosen_time():
    now = 100 * 3600
    landings = [Landing("f" * 40, RUN, f"t{n}", 1, n * HOUR, "c", "s") for n in (60, 99, 99)]
    failed = task("a", "succeeded", failures=[(98 * HOUR, "transient")], ended=99 * HOUR)
    facts = sources(failed, landings=landings, now=now)._replace(since=76 * HOUR)
    found = series(facts, [(99 * HOUR, 0.5), (99 * HOUR + 1, 0.25), (5 * HOUR, 7.0)])
    assert len(found["times"]) <= BUCKETS + 1
    assert (sum(found["merged"]), sum(found["failures"]), sum(found["recovered"])) == (2, 1, 1)
    assert sum(found["spend"]) == 0.75


def test_the_journal_is_read_on_from_where_it_was_left(tmp_path):
    tail = journal.Tail(tmp_path)
    assert tail.read() == []
    with journal.Journal(tmp_path, bytes_max=500) as kept:
        kept.note("queued", task="a")
        assert tail.read() == journal.read(tmp_path)
        for number in range(40):  # the file is replaced meanwhile
            kept.note("queued", task=str(number))
            assert tail.read() == journal.read(tmp_path)
    with (tmp_path / journal.NAME).open("a") as file:
        file.write('{"at": 1, "what": "cut')
    assert tail.read()[-1]["what"] == "closed"


def test_a_task_that_a_person_has_is_in_their_hands_and_says_how_it_goes_on():
    """Its agent has ended, so by the journal alone it would stand at the gate."""
    notes = [
        note(3, "agent", "t", coder="c", model="m"),
        note(4, "agent ended", "t", cost=0.1),
        note(3, "agent", "other"),
    ]
    row = {"run": RUN, "task": "t", "by": "ann", "at": "2026-11-18T20:00:00Z", "refused": ""}
    given = {"given": "", **row}
    tasks = [task("t", "running"), task("other", "running"), task("done", "succeeded", ended=9)]

    def shown(row):
        found = board(sources(*tasks, notes=notes), live(taken=[row]))
        assert sum(found["columns"].values()) == 3
        return cards(found)

    card = shown(given)["t"]
    assert (card["column"], card["taken_by"], card["since"]) == ("working", "ann", given["at"])
    assert card["reason"] == "Taken over by ann. It goes on with: leadhand fleet give t"
    assert "coder" not in card
    assert "taken_by" not in shown(given)["other"]
    card = shown({**given, "refused": "the gate is red\nmore"})["t"]
    assert card["reason"].startswith("Taken over by ann. Not merged: the gate is red. It goes")
    card = shown({**given, "given": "main"})["t"]
    assert (card["column"], card["reason"]) == ("gate", "Given back by ann.")
    assert "taken_by" not in shown({**given, "task": "done"})["done"]


def test_issues_and_pull_requests_are_known_by_epic_and_task():
    """The last one counts; one of a whole epic, by a command of the user, is not a task's."""
    url = "https://code.example/shop/pull/"
    notes = [
        {"at": 1, "what": "issue taken", "run": RUN, "said": "https://code.example/shop/issues/3"},
        {"at": 2, "what": "pull request", "run": RUN, "task": "t", "code": 0, "said": f"{url}4"},
        {"at": 3, "what": "pull request", "run": RUN, "task": "t", "code": 0, "said": f"{url}5"},
    ]
    whole = {"at": 4, "what": "pull request", "run": RUN, "code": 0, "said": f"{url}6"}
    found = board(sources(task("t"), task("u"), notes=[*notes, whole]), live())
    assert found["lanes"][0]["issue"] == "https://code.example/shop/issues/3"
    assert cards(found)["t"]["pull_request"] == f"{url}5"
    assert "pull_request" not in cards(found)["u"]
    epics = figures(sources(task("t"), notes=notes))["epics"]
    assert epics[0]["pull_request"] is None
    epics = figures(sources(task("t"), notes=[*notes, whole]))["epics"]
    assert epics[0]["pull_request"] == f"{url}6"
