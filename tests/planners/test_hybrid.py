"""Hybrid: a first planner leads until it goes wrong; then the goal planner, for good."""

import asyncio

import pytest

from leadhand import (
    Ask,
    Finish,
    GiveUp,
    Goal,
    GoalPlanner,
    Hybrid,
    Lead,
    Policy,
    Propose,
    TooComplex,
    method,
    worker,
)
from leadhand.core import events as ev
from leadhand.errors import UsageError
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedPlanner, simulate
from tests.support.cli import Folder


@worker(gives="raw", idempotent=True)
async def fetch(topic: str) -> list[int]:
    """The data."""
    return [3, 1, 2]


@worker(needs=["raw"], gives=["table", "tidy:table"], idempotent=True)
async def clean(raw: list[int]) -> list[int]:
    """In order."""
    return sorted(raw)


@worker(needs=["table", "tidy:table"], gives="report", idempotent=True)
async def write(table: list[int]) -> str:
    """What is wanted."""
    return f"{table}"


@worker(needs=["table"], gives="aside", drops=["tidy:table"])
async def scribble() -> str:
    """It leaves a mess."""
    return "done"


ALL = [fetch, clean, write, scribble]
GOAL = Goal(text="A report", want="report", have={"topic": "prices"})
FETCH = {"id": "one", "worker": "fetch", "parameters": {"topic": "prices"}}
CLEAN = {"id": "two", "worker": "clean", "parameters": {"raw": "${{ steps.one.data }}"}}
WRITE = {"id": "three", "worker": "write", "parameters": {"table": "${{ steps.two.data }}"}}
INVENTED = {**WRITE, "parameters": {"table": [1]}}
UNMET = (
    "write needs table, tidy:table, which are not true (data that you write yourself does not "
    "make it true)"
)


def when_done(view):
    """Finish once nothing is left to do."""
    left = [step.id for step in view.timeline if step.status != "succeeded"]
    return Propose(()) if left else Finish("mine")


def run(*decisions, then=None, goal=GOAL, **more):
    """A first planner that says these things, then the last for ever."""
    first = ScriptedPlanner(list(decisions), **more.pop("first", {}))
    done = simulate(goal, ALL, Hybrid(first, then), **more)
    assert not done.violations
    return done, first


def handed(done):
    """Why it was handed over, as the log says."""
    notes = [e.decision.get("notes") for _, e in done.events if isinstance(e, ev.PlannerAnswered)]
    return next((each["handed"] for each in notes if each and each.get("handed")), "")


def test_a_first_planner_that_goes_right_is_left_alone():
    """Step by step to the end; nothing is handed over, its own notes come back to it."""
    clean_ = {**CLEAN, "depends_on": ["one"]}
    write_ = {**WRITE, "parameters": {"table": "${{ steps.two.data }}"}, "depends_on": ["two"]}
    done, first = run(
        Propose([FETCH], notes={"n": 1}), Propose([clean_]), Propose([write_]), Finish("mine")
    )
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "[1, 2, 3]")
    assert handed(done) == ""
    assert [view.notes for view in first.views] == [None, {"n": 1}, {"n": 1}, {"n": 1}]


def test_the_first_unmet_need_hands_over():
    """The reason names the step, the need, and who goes on; what was done is kept."""
    done, first = run(Propose([FETCH]), Propose([INVENTED]))
    assert (done.outcome.status, done.outcome.result) == ("succeeded", "[1, 2, 3]")
    assert handed(done) == f"step 2 {UNMET}"
    said = [e.because for _, e in done.events if isinstance(e, ev.RevisionProposed)]
    assert said[1].startswith(f"step 2 {UNMET}; the goal planner goes on from here; ")
    assert "goes on from here" not in said[2]
    assert [step.id for step in done.outcome.steps] == ["one", "clean", "write"]
    assert len(first.views) == 2


def test_needs_that_earlier_steps_of_the_proposal_give_are_met():
    """A whole plan is followed from its start, along what each step waits for."""
    whole = [FETCH, {**CLEAN, "depends_on": ["one"]}, {**WRITE, "depends_on": ["two"]}]
    done, _ = run(Propose(whole), when_done)
    assert (handed(done), done.outcome.result) == ("", "[1, 2, 3]")
    done, _ = run(Propose([FETCH, {**CLEAN, "depends_on": ["one"]}, INVENTED]))
    assert handed(done) == f"step 3 {UNMET}"


def test_a_need_that_may_be_taken_away_is_not_met():
    """Neither by a step before it, nor by one that may run beside it."""
    start = [FETCH, {**CLEAN, "depends_on": ["one"]}]
    mess = {"id": "mess", "worker": "scribble", "depends_on": ["two"]}
    for after in (["two"], ["two", "mess"]):
        done, _ = run(Propose([*start, mess, {**WRITE, "depends_on": after}]))
        assert handed(done) == "step 4 write needs tidy:table, which is not true"
        assert done.outcome.result == "[1, 2, 3]"
    done, _ = run(Propose(start), Propose([mess]), Propose([WRITE]))
    assert handed(done) == "step 4 write needs tidy:table, which is not true"
    assert done.outcome.ok
    mess["depends_on"] = ["three"]
    done, _ = run(Propose([*start, {**WRITE, "depends_on": ["two"]}, mess], final=True))
    assert handed(done) == ""


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (ValueError("no idea"), "scripted failed (ValueError: no idea)"),
        (lambda _view: "nonsense", "scripted failed (TypeError: str is no decision)"),
        (lambda _view: Propose([{1, 2}]), "scripted failed (ValueError: decision.steps[0]"),
        (GiveUp("too hard"), "scripted gave up (too hard)"),
        (Finish("done!"), "scripted says that it is done, and report is not true"),
        (Propose([{"id": "x", "worker": "nobody"}]), "scripted proposes what cannot be run ("),
        (Propose([{"id": "x"}]), "scripted proposes what cannot be run ("),
        (Propose([]), "scripted proposes again what was refused (it proposes nothing, and"),
    ],
)
def test_whatever_goes_wrong_hands_over(decision, why):
    """At the start and in the middle: the goal planner goes on, and the log says why."""
    for before in ([], [Propose([FETCH])]):
        done, _ = run(*before, decision)
        assert (done.outcome.status, done.outcome.result) == ("succeeded", "[1, 2, 3]")
        assert handed(done).startswith(why)


def test_what_the_engine_refuses_again_and_again_hands_over():
    """Another proposal each time, each refused for what only the engine knows."""
    done, first = run(*(Propose([], cancel=[f"x{i}"]) for i in range(9)))
    assert done.outcome.result == "[1, 2, 3]"
    assert handed(done).startswith("scripted was refused 2 times (it cancels x1, which is not in")
    assert len(first.views) == 3


def test_one_refusal_is_told_to_the_first_planner():
    """It may do better with what was found."""
    whole = [FETCH, {**CLEAN, "depends_on": ["one"]}, {**WRITE, "depends_on": ["two"]}]
    done, first = run(Propose([]), Propose(whole), when_done)
    assert (handed(done), done.outcome.result) == ("", "[1, 2, 3]")
    assert "proposes nothing" in first.views[1].findings[0]


def test_a_final_plan_that_leaves_the_goal_open_hands_over():
    """All steps are done, and what is wanted is not there."""
    done, _ = run(Propose([FETCH], final=True))
    assert done.outcome.result == "[1, 2, 3]"
    assert handed(done) == "all steps of scripted are done, and report is not true"


def test_a_first_planner_that_takes_too_long_hands_over():
    """The engine ends the call; the next one goes to the other."""

    async def sleeps(_view):
        await asyncio.sleep(10_000)

    done = simulate(GOAL, ALL, Hybrid(sleeps), policy=Policy(planner_timeout_s=5))
    assert done.outcome.result == "[1, 2, 3]"
    assert handed(done) == "sleeps took too long"


def test_one_that_wants_to_be_asked_on_surprises_only_is():
    """Its steps run to the end before it is asked again."""
    slow = [FETCH, {**CLEAN, "depends_on": ["one"]}]
    done, first = run(Propose(slow), first={"consult": "on_surprise"})
    assert [view.call for view in first.views] == [1, 3]
    assert handed(done).startswith("scripted proposes what cannot be run (")
    assert done.outcome.result == "[1, 2, 3]"


def test_questions_of_the_first_planner_reach_people():
    """And its next decision follows the answer."""
    said = []

    def people(question):
        said.append(question.text)
        return "yes"

    done, first = run(Ask("Go on?", ("yes", "no")), GiveUp("no idea"), answers=people)
    assert said == ["Go on?"]
    assert first.views[1].answers[0]["choice"] == "yes"
    assert done.outcome.result == "[1, 2, 3]"


def test_what_is_impossible_ends_with_both_reasons():
    """Why the first was left, and why there is no way."""
    goal = Goal(want=["tidy:table", "aside"], have={"table": [1]})
    first = Propose([{"id": "x", "worker": "write", "parameters": {"table": [1]}}])
    done, _ = run(first, goal=goal)
    assert done.outcome.status != "succeeded"
    text = done.outcome.reason or done.outcome.waiting_for[0].text
    assert "raw" in text
    assert handed(done).startswith("step 1 write needs tidy:table")


@pytest.mark.parametrize("crash", range(1, 9))
def test_a_restart_goes_on_with_whoever_led(crash):
    """Wherever the host is killed: the same steps, each succeeds once, handed over at most once."""
    done, _ = run(Propose([FETCH]), Propose([WRITE]), crash_after=[crash])
    assert (done.hosts, done.outcome.result) == (2, "[1, 2, 3]")
    told = [e for _, e in done.events if isinstance(e, ev.RevisionProposed) and e.because]
    assert sum("goes on from here" in each.because for each in told) <= 1


async def test_functions_are_wrapped():
    """As a Lead does it for a planner alone; a goal that only the first can read is refused."""
    hybrid = Hybrid(lambda _view: GiveUp("no"))
    assert isinstance(hybrid.then, GoalPlanner)
    outcome = await Lead(ALL, hybrid, store=MemoryStore()).run(GOAL)
    assert outcome.result == "[1, 2, 3]"
    with pytest.raises(UsageError, match="names no facts"):
        await Lead(ALL, hybrid, store=MemoryStore()).run(Goal(text="Something nice"))
    other = ScriptedPlanner([Finish(7)])
    assert (await Lead(ALL, Hybrid(other, other), store=MemoryStore()).run(Goal(text="x"))).ok


async def test_methods_come_with_the_workers():
    """The goal planner in it knows how to split what is too complex."""

    @worker(gives="sum")
    async def add(raw: list[int]) -> int:
        raise TooComplex("too many")

    @worker(gives="part")
    async def split(raw: list[int]) -> list[int]:
        return raw

    @worker(gives="sum")
    async def merge(part: list[int]) -> int:
        return sum(part)

    @method("sum")
    def in_parts():
        return ["split", "merge"]

    goal = Goal(want="sum", have={"raw": [1, 2]})
    planner = Hybrid(lambda _view: GiveUp("no"))
    outcome = await Lead([add, split, merge, in_parts], planner, MemoryStore()).run(goal)
    assert outcome.result == 3


PLANNING = """
from leadhand import Hybrid, Propose

def next_step(view):
    if not view.steps:
        return Propose([{"id": "one", "worker": "fetch", "parameters": {"topic": "x"}}])
    return Propose([{"id": "w", "worker": "write", "parameters": {"table": [1]}}])

both = Hybrid(next_step)
"""
WORKERS = """
import os
from leadhand import worker

@worker(gives="raw")
def fetch(topic: str) -> list[int]:
    return [3, 1, 2]

@worker(gives=["table", "tidy:table"], idempotent=True)
def clean(raw: list[int]) -> list[int]:
    if os.environ.get("DIE"):
        os._exit(9)
    return sorted(raw)

@worker(needs=["table", "tidy:table"], gives="report")
def write(table: list[int]) -> str:
    return f"{table}"
"""


@pytest.mark.real
def test_from_the_command_line_and_again_after_a_crash(tmp_path):
    """`--planner planning:both`; a resume finds it without being told."""
    folder = Folder(tmp_path)
    folder.write("planning.py", PLANNING)
    folder.write("workers.py", WORKERS)
    options = ["--workers", "workers.py", "--planner", "planning:both", "--want", "report"]
    done = folder.run("run", "A report", *options, DIE="1")
    assert done.code == 9, done
    run = folder.latest()["run"]
    done = folder.run("resume", run)
    assert (done.code, "[1, 2, 3]" in done.out) == (0, True), done
    log = folder.run("logs", run, "--intent").out
    assert f"step 2 {UNMET}; the goal planner goes on from here" in log
