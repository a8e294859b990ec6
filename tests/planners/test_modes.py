"""How far ahead to plan: direct, next_step, whole, auto; in the log, and after a restart."""

import pytest

from leadhand import Goal, Lead, Permanent, Propose, ScriptPlanner, TooComplex, method, worker
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

    @worker(gives="merged")
    async def merge(parts: list[list[int]]) -> list[int]:
        return sorted(row for rows in parts for row in rows)

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
    assert revision["because"] == "one worker can do it: no planning"
    assert len(events(lead, "PlannerAsked")) == 1


def test_auto_plans_around_the_one_worker_when_it_fails():
    """Direct is where it begins, not where it ends: a method takes over."""

    @worker(gives="table")
    async def at_once(raw: list[int]) -> list[int]:
        raise TooComplex("too many")

    @worker(gives="half")
    async def halve(raw: list[int]) -> list[int]:
        return raw[:1]

    @worker(gives="joined")
    async def join(half: list[int]) -> list[int]:
        return half

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
    assert outcome.waiting_for[0]["choices"] == ["retry", "skip", "abort"]


def test_direct_says_why_it_is_not_for_this_goal():
    """Several, or nobody."""
    with pytest.raises(UsageError, match="far, near can give it"):
        pursued([near, far], Goal(want="raw", have=HAVE), "direct")
    with pytest.raises(UsageError, match="nobody can give it"):
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
