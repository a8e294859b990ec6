"""Through the engine and the command line: the same planner, a real log, restarts included."""

import pytest

from leadhand import Goal, GoalPlanner, Lead, Permanent, TooComplex, method, worker
from leadhand.app.reader import Reader
from leadhand.core.views.rows import rows_document
from leadhand.errors import NoPlan, UsageError
from leadhand.stores.memory import MemoryStore
from tests.support.cli import Folder

WORKERS = """
from leadhand import Permanent, worker

@worker(gives="raw", cost=1)
def api_a(topic: str) -> list[int]:
    raise Permanent("page not found")

@worker(gives="raw", cost=3)
def api_b(topic: str) -> list[int]:
    return [3, 1, 2]

@worker(gives="table")
def clean(raw: list[int], extra: list[int] = []) -> list[int]:
    return sorted(raw)

@worker(gives="report")
def write(table: list[int], title: str) -> str:
    return f"{title}: {table}"
"""


@worker(gives="raw", cost=1)
async def api_a(topic: str) -> list[int]:
    """The cheap one, which is broken."""
    raise Permanent("page not found", recommendations=("use api_b",))


@worker(gives="raw", cost=3)
async def api_b(topic: str) -> list[int]:
    """The dear one."""
    return [3, 1, 2]


@worker(gives="table")
async def clean(raw: list[int]) -> list[int]:
    """It is too much for it."""
    raise TooComplex("too many rows")


@worker(gives="parts")
async def split(raw: list[int]) -> list[list[int]]:
    """Into single rows."""
    return [[row] for row in raw]


@worker(gives="row")
async def clean_part(part: list[int]) -> list[int]:
    """One of them."""
    return part


@worker(gives="table")
async def merge(cleaned: list[list[int]]) -> list[int]:
    """Together again."""
    return sorted(row for part in cleaned for row in part)


@method("table")
def in_parts():
    """How."""
    return ["split", "clean_part*", "merge"]


ALL = [api_a, api_b, clean, split, clean_part, merge, in_parts]
TABLE = Goal(text="A table", want="table", have={"topic": "prices"})


async def test_a_goal_without_a_planner_is_planned_by_needs_and_gives():
    """Around a dead end, and in parts where one step was too much."""
    outcome = await Lead(ALL, store=MemoryStore()).run(TABLE)
    assert (outcome.status, outcome.result) == ("succeeded", [1, 2, 3])
    assert outcome.steps["api_b"].status == "succeeded"
    assert outcome.steps["clean_part-3"].status == "succeeded"


async def test_a_step_of_the_first_outlook_is_expected_and_others_say_why_they_came(tmp_path):
    """The plan and its execution tell apart what was foreseen from what was not."""
    store = tmp_path / "runs.db"
    outcome = await Lead(ALL, store=store).run(TABLE)
    log = Reader(store).events(outcome.run)
    doc = rows_document((entry.at, event) for entry, event in log)
    assert doc.expected == ["clean"]
    added = {row.id: row.added for row in doc.rows if row.added}
    assert [ident for ident, each in added.items() if each.expected] == ["clean"]
    told = [each for each in doc.deviations if each.kind == "revision"]
    assert sorted(ident for each in told for ident in each.steps) == sorted(
        added.keys() - {"clean"}
    )
    texts = {each.steps[0]: each.text for each in told}
    assert "page not found" in texts["api_b"]
    parts = "the method in_parts splits what was too complex, to give table"
    for first in ("split", "clean_part", "merge"):
        assert f"because: {parts}" in texts[first]
    assert "too many rows" in texts["split"]
    # The rule that let a revision pass is told once.
    assert sum("runs without approval" in each.text for each in told) == 1


async def test_the_planner_can_be_named():
    """By its name and as an object; the methods come with the workers either way."""
    for planner in ("goal", GoalPlanner()):
        outcome = await Lead(ALL, planner, MemoryStore()).run(TABLE)
        assert outcome.ok
    with pytest.raises(UsageError, match="is no planner"):
        Lead(ALL, "gaol")


@worker(gives="both", needs=["left", "right"])
async def pair(left: int, right: int) -> list[int]:
    return [left, right]


async def test_a_goal_without_facts_is_refused():
    """The built-in planner cannot read sentences."""
    lead = Lead(ALL, store=MemoryStore())
    with pytest.raises(UsageError, match="names no facts"):
        await lead.run(Goal(text="A table, please"))
    with pytest.raises(NoPlan, match="no worker gives magic"):
        await lead.plan("Do it", want="magic")


async def test_the_whole_plan_can_be_written_and_run():
    """`plan` gives a document that runs as it stands."""
    lead = Lead([api_b, split], store=MemoryStore())
    plan = await lead.plan("Parts", want="parts", have={"topic": "prices", "open:shop": True})
    assert [step.id for step in plan.steps] == ["api_b", "split"]
    assert (await lead.run(plan)).result == [[3], [1], [2]]


async def test_a_run_that_waits_goes_on_with_the_answer(tmp_path):
    """Another Lead takes it up, without being told the planner."""
    lead = Lead([split], store=tmp_path / "runs.db")
    waiting = await lead.run(Goal(want="parts"))
    assert waiting.status == "waiting"
    (question,) = waiting.waiting_for
    ident = question.id.partition("/")[2]
    await lead.answer(waiting.run, ident, "give", data=[1, 2])
    outcome = await Lead([split], store=tmp_path / "runs.db").resume(waiting.run)
    assert outcome.result == [[1], [2]]


async def test_a_slip_in_what_is_given_is_told_at_once():
    """And the run still waits: a misspelt name would only make it fail."""
    lead = Lead([pair], store=MemoryStore())
    async with lead.hosting():
        waiting = await lead.run(Goal(want="both"))
        ident = waiting.waiting_for[0].id.partition("/")[2]
        for data in ({"lefft": 1, "right": 2}, {"left": 1, "more": 3}, 7, {}):
            with pytest.raises(UsageError, match="asked for: left, right"):
                await lead.answer(waiting.run, ident, "give", data=data)
        await lead.answer(waiting.run, ident, "give", data={"left": 1, "right": 2})
        assert (await lead.resume(waiting.run)).result == [1, 2]


async def test_a_step_that_promises_nothing_true_is_not_believed():
    """A check that fails is a failure, and the other worker is asked."""

    @worker(gives="sum", check=lambda value: value > 0)
    async def bad(raw: list[int]) -> int:
        return -1

    @worker(gives="sum", cost=5)
    async def good(raw: list[int]) -> int:
        return 6

    goal = Goal(want="sum", have={"raw": [1, 2, 3]})
    outcome = await Lead([bad, good], store=MemoryStore()).run(goal)
    assert outcome.result == 6


@pytest.mark.real
def test_on_the_command_line(tmp_path):
    """run and resume find the planner by its name in the log."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    done = folder.run(
        *("run", "a report", "--workers", "workers.py", "--want", "report"),
        *("--have", "topic=prices", "--have", 'title="All"'),
    )
    assert done.code == 0, done
    assert "All: [1, 2, 3]" in done.out
    waits = folder.run("run", "it", "--workers", "workers.py", "--want", "report", "--json")
    assert waits.code == 5, waits
    (open_,) = waits.doc["waiting_for"]
    assert (
        "no worker gives title, topic" in open_["text"] or "no worker gives title" in open_["text"]
    )
    run, _, ident = open_["id"].partition("/")
    folder.run("answer", open_["id"], "stop")
    again = folder.run("resume", run)
    assert again.code == 1, (ident, again)
    assert "said to stop" in again.err
