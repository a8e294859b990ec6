"""How far ahead to plan: direct, next_step, whole, auto; in the log, and after a restart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand import (
    Finish,
    Goal,
    Hybrid,
    Lead,
    Permanent,
    Policy,
    Propose,
    ScriptPlanner,
    TooComplex,
    method,
    worker,
)
from leadhand.errors import UsageError
from leadhand.stores.memory import MemoryStore
from tests.support.cli import Folder

HAVE = {"topic": "tides"}


@worker(gives="raw", cost=1)
async def near(topic: str) -> list[int]:
    """The cheap source, which is gone."""
    raise Permanent("gone")


@worker(gives="raw", cost=3)
async def far(topic: str) -> list[int]:
    """The dear one."""
    return [3, 1, 2]


@worker(gives="table")
async def clean(raw: list[int]) -> list[int]:
    """Sorted."""
    return sorted(raw)


@worker(gives="summary")
async def summarise(table: list[int]) -> str:
    """In words."""
    return f"{len(table)} rows"


def events(lead, kind):
    """All events of a kind in the one run of a store, as documents."""
    import msgspec

    (run,) = [each.run for each in lead._store.runs() if each.run != "$host"]
    docs = [msgspec.json.decode(entry.body) for entry in lead._store.read(run)]
    return [doc for doc in docs if doc["type"] == kind]


def pursued(workers, goal, mode="", planner=None):
    """An outcome, and the lead that got it."""
    lead = Lead(workers, planner, MemoryStore())
    return lead.run_sync(goal, mode=mode), lead


def test_whole_is_one_final_revision_and_keeps_what_still_fits_after_a_surprise():
    """Two revisions: all three steps, then one that takes the failed one's place."""
    goal = Goal(want="summary", have=HAVE)
    outcome, lead = pursued([near, far, clean, summarise], goal, "whole")
    assert outcome.result == "3 rows"
    first, second = events(lead, "RevisionProposed")
    assert [step["id"] for step in first["add"]] == ["near", "clean", "summarise"]
    assert [(step["id"], step["supersedes"]) for step in second["add"]] == [("far", "near")]
    assert "final" not in first and "final" not in second  # noqa: PT018 - both: the default is True
    assert [each["why"].partition(":")[0] for each in events(lead, "PlannerAsked")] == [
        "start",
        "surprise",
    ]


def test_whole_writes_the_rest_anew_where_it_does_not_fit():
    """Another way of another shape: what had not begun gives way to it."""

    @worker(gives="table", cost=9)
    async def buy(topic: str) -> list[int]:
        return [1]

    goal = Goal(want="summary", have=HAVE)
    outcome, lead = pursued([near, clean, summarise, buy], goal, "whole")
    assert outcome.result == "1 rows"
    second = events(lead, "RevisionProposed")[1]
    assert sorted(second["cancel"]) == ["clean", "summarise"]
    assert [step["id"] for step in second["add"]] == ["buy", "summarise-2"]


def test_whole_splits_what_is_too_complex():
    """A method goes stage by stage; what had not begun is planned again after it."""

    @worker(gives="table")
    async def at_once(raw: list[int]) -> list[int]:
        raise TooComplex("too many")

    @worker(gives="parts")
    async def split(raw: list[int]) -> list[list[int]]:
        return [[each] for each in raw]

    @worker(gives="done_part")
    async def part(one: list[int]) -> list[int]:
        return one

    @worker(gives="table")
    async def merge(pieces: list[list[int]]) -> list[int]:
        return sorted(row for rows in pieces for row in rows)

    @method("table")
    def in_parts():
        return ["split", "part*", "merge"]

    workers = [far, at_once, split, part, merge, in_parts, summarise]
    outcome, _ = pursued(workers, Goal(want="summary", have=HAVE), "whole")
    assert (outcome.status, outcome.result) == ("succeeded", "3 rows")


def test_next_step_asks_after_every_report():
    """Four revisions' worth of looking: the frontier, never final."""
    outcome, lead = pursued([far, clean, summarise], Goal(want="summary", have=HAVE), "next_step")
    assert outcome.ok
    assert len(events(lead, "PlannerAsked")) == 4
    assert all(each["final"] is False for each in events(lead, "RevisionProposed"))


@pytest.mark.parametrize("mode", ["", "auto", "direct"])
def test_one_worker_that_can_do_it_does_it_without_planning(mode):
    """Recorded all the same: one revision of one step, and no further look."""
    outcome, lead = pursued([clean, summarise], Goal(want="summary", have={"table": [1, 2]}), mode)
    assert outcome.result == "2 rows"
    (revision,) = events(lead, "RevisionProposed")
    assert [step["id"] for step in revision["add"]] == ["summarise"]
    assert revision["because"].startswith("one worker can do it: no plan")
    assert len(events(lead, "PlannerAsked")) == 1


def test_auto_plans_around_the_one_worker_when_it_fails():
    """Direct is where it begins, not where it ends: a method takes over."""

    @worker(gives="table")
    async def at_once(raw: list[int]) -> list[int]:
        raise TooComplex("too many")

    @worker(gives="half")
    async def halve(raw: list[int]) -> list[int]:
        return raw[:1]

    @worker(gives="table")
    async def join(piece: list[int]) -> list[int]:
        return piece

    @method("table")
    def in_parts():
        return ["halve", "join"]

    outcome, _ = pursued([at_once, halve, join, in_parts], Goal(want="table", have={"raw": [7]}))
    assert outcome.result == [7]


def test_auto_takes_a_first_answer_of_one_step_for_the_last_word():
    """The cheapest of several: nobody needs to look again."""

    @worker(gives="summary", cost=5)
    async def dear(table: list[int]) -> str:
        return "dear"

    goal = Goal(want="summary", have={"table": [1]})
    outcome, lead = pursued([summarise, dear], goal)
    assert outcome.result == "1 rows"
    assert len(events(lead, "PlannerAsked")) == 1


def test_direct_leaves_a_failure_to_the_ladder_and_then_to_a_person():
    """Nobody plans: the question says what is left."""
    outcome, _ = pursued([near], Goal(want="raw", have=HAVE), "direct")
    assert outcome.status == "waiting"
    assert outcome.waiting_for[0].answers == ["retry", "skip", "abort"]


def test_direct_says_why_it_is_not_for_this_goal():
    """Several, or nobody."""
    with pytest.raises(UsageError, match="far, near can give it"):
        pursued([near, far], Goal(want="raw", have=HAVE), "direct")
    with pytest.raises(UsageError, match="no worker can give it"):
        pursued([clean], Goal(want="table", have=HAVE), "direct")


def test_an_unknown_mode_and_a_mode_for_a_plan_are_refused():
    """Before anything begins."""
    with pytest.raises(UsageError, match="'some' is no mode"):
        pursued([far], Goal(want="raw", have=HAVE), "some")
    with pytest.raises(UsageError, match="goes with a goal"):
        pursued([far], {"steps": [{"id": "a", "worker": "far"}]}, "whole")


def test_a_mode_says_when_a_planner_of_ones_own_is_asked():
    """The goal may carry it; `whole` is asked at the start, and no more when all goes well."""

    def plan(_view):
        step = {"id": "a", "worker": "far", "parameters": {"topic": "x"}}
        return Propose([step], final=True)

    planner = ScriptPlanner(plan)
    assert planner.consult == "every_report"
    outcome, lead = pursued([far], Goal(text="x", mode="whole"), planner=planner)
    assert outcome.ok
    assert events(lead, "RunStarted")[0].get("consult", "on_surprise") == "on_surprise"


WORKERS = """
from leadhand import NeedsInfo, Context, worker

@worker(gives="greeting")
def greet(name: str, context: Context) -> str:
    if not context.answers:
        raise NeedsInfo("in which language?")
    return f"{context.answers[-1]['text']} {name}"
"""


@pytest.mark.slow
def test_direct_is_taken_up_again(tmp_path):
    """Through the command line: asked, answered with no host alive, resumed."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    words = ("--workers", "workers.py", "--have", "name=Ann", "--want", "greeting")
    assert folder.run("run", "greet", "--mode", "direct", *words).code == 5
    run = folder.latest()["run"]
    assert folder.run("answer", f"{run}/q1", "retry", "--text", "Moin").code == 0
    done = folder.run("resume", run)
    assert done.code == 0, done
    assert done.out == "Moin Ann\n"
    assert folder.run("verify", run).code == 0
    wrong = folder.run("run", "plan.yaml", "--mode", "whole")
    assert wrong.code == 2
    assert "--mode goes with a goal" in wrong.err


@worker(gives="summary", cost=1000)
async def oracle(topic: str) -> str:
    """One worker that knows it all, at a price."""
    return "dear"


@worker(gives="raw", cost=1)
async def cheap_raw(topic: str) -> list[int]:
    return [3]


@worker(gives="summary", cost=1)
async def cheap_summary(raw: list[int]) -> str:
    return "cheap"


@worker(gives="summary", cost=2)
async def fair(topic: str) -> str:
    """As dear as the two cheap ones together."""
    return "fair"


@pytest.mark.parametrize("mode", ["", "auto", "next_step", "whole"])
@pytest.mark.parametrize("budget", [None, 10.0, 2.0])
def test_the_cheapest_way_is_taken_in_every_mode(mode, budget):
    """One worker of 1,000 against two of 1; the plan says the same as the run."""
    goal = Goal(want="summary", have=HAVE)
    lead = Lead(
        [oracle, cheap_raw, cheap_summary], None, MemoryStore(), policy=Policy(budget=budget)
    )
    plan = lead.plan_sync(goal)
    assert [step.worker for step in plan.steps] == ["cheap_raw", "cheap_summary"]
    outcome = lead.run_sync(goal, mode=mode)
    assert (outcome.status, outcome.result, outcome.cost) == ("succeeded", "cheap", 2.0)


@pytest.mark.parametrize("mode", ["", "auto", "next_step", "whole"])
def test_among_equals_the_direct_way_is_taken(mode):
    """In one step, by plan and by run."""
    goal = Goal(want="summary", have=HAVE)
    lead = Lead([fair, cheap_raw, cheap_summary], None, MemoryStore())
    assert [step.worker for step in lead.plan_sync(goal).steps] == ["fair"]
    outcome = lead.run_sync(goal, mode=mode)
    assert (outcome.result, outcome.cost) == ("fair", 2.0)


@worker(gives=["x", "y"])
async def both(topic: str) -> dict[str, int]:
    """Two artefacts at once."""
    return {"x": 1, "y": 2}


@worker(gives=["total", "ok:total"])
async def add(x: int, y: int) -> int:
    """One artefact and a flag."""
    return x + y


@worker(gives="long")
async def lengthen(total: int) -> list[int]:
    """So much that it is stored apart."""
    return list(range(total * 8_000))


@worker(gives=["wide", "deep"])
async def widen(long: list[int]) -> dict[str, list[int]]:
    """Two of them."""
    return {"wide": long, "deep": long[:2]}


WANTED = {
    "x": 1,
    "y": 2,
    "total": 3,
    "ok:total": True,
    "topic": "tides",
    "long": list(range(24_000)),
    "wide": list(range(24_000)),
    "deep": [0, 1],
}
FACTORY = [both, add, lengthen, widen]


def document(want):
    """The same as a plan that a person wrote."""
    steps = [
        {"id": "a", "worker": "both", "parameters": {"topic": "tides"}},
        {
            "id": "b",
            "worker": "add",
            "parameters": {"x": "${{ steps.a.data.x }}", "y": "${{ steps.a.data.y }}"},
        },
        {"id": "c", "worker": "lengthen", "parameters": {"total": "${{ steps.b.data }}"}},
        {"id": "d", "worker": "widen", "parameters": {"long": "${{ steps.c.data }}"}},
    ]
    return {"goal": {"text": "all", "want": want, "have": HAVE}, "steps": steps}


@pytest.mark.slow
@given(st.lists(st.sampled_from(sorted(WANTED)), min_size=1, max_size=4, unique=True))
@settings(max_examples=15)
def test_the_result_is_the_wanted_facts_whatever_the_mode(want):
    """The value itself of one, an object by name of several: for goals, scripts and documents."""
    expected = {fact: WANTED[fact] for fact in want}
    result = expected[want[0]] if len(want) == 1 else expected
    goal = Goal(text="all", want=want, have=HAVE)
    for mode in ("", "auto", "next_step", "whole"):
        assert pursued(FACTORY, goal, mode)[0].result == result
    steps = document(want)["steps"]

    def script(view):
        return Propose(steps) if not view.steps else Finish(None if len(want) > 1 else "a lie")

    for planner in (script, Hybrid(script)):
        assert pursued(FACTORY, goal, "", planner)[0].result == result
    final = Hybrid(ScriptPlanner(lambda _view: Propose(steps, final=True)))
    assert pursued(FACTORY, goal, "", final)[0].result == result
    assert Lead(FACTORY, None, MemoryStore()).run_sync(document(want)).result == result


def test_the_result_of_the_direct_mode_is_the_wanted_fact():
    """Not all that the one worker gives."""
    for mode in ("direct", "auto", "next_step", "whole"):
        assert pursued([both], Goal(want="x", have=HAVE), mode)[0].result == 1
        two = pursued([both], Goal(want=["y", "topic"], have=HAVE), mode)[0]
        assert two.result == {"y": 2, "topic": "tides"}
