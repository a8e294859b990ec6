"""Failure memory: the same value is the same input, however it was written."""

from dataclasses import replace

import pytest

from leadhand import Goal, Hybrid, Lead, Permanent, Propose, TooComplex, Unavailable, method, worker
from leadhand.core.catalog import Offer
from leadhand.core.report import FailedAttempt, Failure, GiveUp, PlannerView, StepView
from leadhand.planners.goal.operator_costs import input_of, past
from leadhand.planners.goal.operators import Operator, Operators
from leadhand.planners.goal.planner import AskedQuestion, GoalNotes, person_answers
from leadhand.planners.goal.world import Fact, World
from leadhand.planners.proposal_check import repeats
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedPlanner, ScriptedWorker, simulate
from tests.planners.goal.judge import Does, catalog_of

LITERAL = {"topic": "prices"}
REFERENCE = {"topic": "${{ params.topic }}"}
RESULT = {"topic": "${{ steps.say.data }}"}
PART_OF_TEXT = {"topic": "pri${{ params.end }}"}


def view_of(failed):
    """A run in which `fetch` failed for good with some parameters."""
    steps = [
        StepView("say", "say", "", "succeeded", planned={"id": "say", "worker": "say"}),
        StepView("one", "fetch", "", "failed", planned={"parameters": failed}),
    ]
    return PlannerView(
        run="r",
        goal=Goal(want=("raw",), have={"topic": "prices", "end": "ces"}),
        call=2,
        why="report",
        steps={step.id: step for step in steps},
        results={"say": "prices"},
        failed_attempts=(FailedAttempt("one", 1, "fetch", Failure("permanent", "gone")),),
        params={"topic": "prices", "end": "ces"},
        catalog=catalog_of([Does("fetch", ("topic",), ("raw",))]),
        timeline=steps,
    )


WAYS = [LITERAL, REFERENCE, RESULT, PART_OF_TEXT]


@pytest.mark.parametrize("failed", WAYS)
@pytest.mark.parametrize("proposed", WAYS)
def test_a_value_is_the_same_input_however_it_is_written(failed, proposed):
    """For the goal planner's prices and for the check of other planners' proposals."""
    view = view_of(failed)
    assert "has failed at for good" in repeats(
        [{"id": "two", "worker": "fetch", "parameters": proposed}], view
    )
    fetch = Operator(
        name="fetch", worker="fetch", needs=("topic",), gives=("raw",), takes={"topic": "topic"}
    )
    operators = Operators([fetch])
    facts = {"topic": Fact("somewhere", proposed["topic"])}
    world = World(facts, facts, [], {"one": list(view.failed_attempts)})
    before = past(view, world, operators, 0)
    assert ("fetch", input_of(fetch, world, view, before.changing)) in before.records


def test_another_value_is_another_input():
    """Nothing is said against it."""
    step = {"id": "two", "worker": "fetch", "parameters": {"topic": "tides"}}
    assert repeats([step], view_of(LITERAL)) == ""


def test_where_the_giver_changes_something_outside_the_version_counts():
    """The same path may stand for a new file: after it was written again, there is a new chance."""
    calls = []

    @worker(gives="path", writes=["out/rows"], effects=["disk"], idempotent=True)
    async def write(topic: str) -> str:
        return "out/rows"

    @worker(gives="table", drops=["path"])
    async def load(path: str) -> list[int]:
        calls.append(path)
        if len(calls) == 1:
            raise Permanent("the file is cut off")
        return [1]

    first = ScriptedPlanner(
        [
            Propose([{"id": "w", "worker": "write", "parameters": {"topic": "x"}}]),
            Propose([{"id": "l", "worker": "load", "parameters": {"path": "${{ steps.w.data }}"}}]),
            Propose([{"id": "w2", "worker": "write", "parameters": {"topic": "x"}}]),
            GiveUp("no idea"),
        ]
    )
    done = simulate(Goal(want="table", have={"topic": "x"}), [write, load], Hybrid(first))
    assert (done.outcome.result, len(calls)) == ([1], 2)


def test_after_a_handover_what_failed_for_good_is_not_tried_again():
    """The first planner wrote the text, the goal planner writes a reference to it."""
    schema = {"type": "object", "properties": {"topic": {}}, "required": ["topic"]}
    offer = Offer(parameters=schema, needs=("topic",), gives=("raw",), cost=1)
    near = ScriptedWorker("near", [Permanent("gone")], offer=offer)
    far = ScriptedWorker(
        "far", [[1]], offer=Offer(parameters=schema, needs=("topic",), gives=("raw",), cost=9)
    )
    first = ScriptedPlanner(
        [Propose([{"id": "a", "worker": "near", "parameters": LITERAL}]), GiveUp("no idea")]
    )
    lead = Lead([near, far], Hybrid(first), MemoryStore())
    outcome = lead.run_sync(Goal(want="raw", have={"topic": "prices"}))
    assert (outcome.result, len(near.calls), len(far.calls)) == ([1], 1, 1)


@pytest.mark.parametrize("mode", ["auto", "next_step", "whole"])
@pytest.mark.parametrize("busy", [{3: 1}, {1: 1}, {3: 1, 2: 1}])
def test_parts_that_wait_for_a_failed_part_are_done_after_it_is_replaced(mode, busy):
    """Parts that touch the same file go one after the other; one of them fails once."""
    calls = []

    @worker(gives="table")
    async def at_once(raw: list[int]) -> list[int]:
        raise TooComplex("too many")

    @worker(gives="parts")
    async def split(raw: list[int]) -> list[list[int]]:
        return [[each] for each in raw]

    @worker(gives="done_part", writes=["out/rows"], idempotent=True)
    async def part(one: list[int]) -> list[int]:
        calls.append(one[0])
        if calls.count(one[0]) <= busy.get(one[0], 0):
            raise Unavailable("busy")
        return one

    @worker(gives="table")
    async def merge(pieces: list[list[int]]) -> list[int]:
        return sorted(row for rows in pieces for row in rows)

    @method("table")
    def in_parts():
        return ["split", "part*", "merge"]

    @worker(gives="summary")
    async def summarise(table: list[int]) -> str:
        return f"{table}"

    goal = Goal(want="summary", have={"raw": [3, 1, 2]}, mode=mode)
    done = simulate(goal, [at_once, split, part, merge, in_parts, summarise])
    assert (done.outcome.result, done.violations) == ("[1, 2, 3]", ())
    assert len(calls) == 3 + sum(busy.values())


def test_what_a_person_has_looked_at_is_known():
    """A lost attempt of a payment may have happened, until a person says retry."""
    lost = [FailedAttempt("pay", 1, "pay", Failure("lost", "gone", "unknown"))]
    then = [*lost, FailedAttempt("pay", 2, "pay", Failure("transient", "busy"))]
    other = [*lost, FailedAttempt("pay", 2, "bank", Failure("transient", "busy"))]
    pay = Operator(name="pay", worker="pay", gives=("paid",))
    for failed, worker_, happened in (
        (lost, "pay", True),
        (then, "pay", False),
        (other, "bank", True),
    ):
        step = StepView("pay", worker_, "", "failed", attempts=len(failed), planned={})
        view = PlannerView(
            run="r",
            goal=Goal(want=("paid",)),
            call=2,
            why="report",
            failed_attempts=tuple(failed),
            timeline=(step,),
        )
        world = World({}, {}, [], {"pay": failed})
        (record,) = [
            each
            for (name, _), each in past(view, world, Operators([pay]), 0).records.items()
            if name == "pay"
        ]
        assert record.happened is happened


@pytest.mark.parametrize(
    ("kinds", "over"),
    [
        (["lost", "invalid_output"], False),
        (["transient", "unavailable"], False),
        (["invalid_output", "lost", "invalid_output"], True),
        (["unavailable", "unavailable"], True),
        (["transient"] * 3 + ["lost"] * 2, False),
        (["transient"] * 3 + ["lost"] * 3, True),
        (["transient", "permanent"], True),
    ],
)
def test_failures_of_a_class_are_counted_by_themselves(kinds, over):
    """A host that died and a result that was not usable are not two such results."""
    failed = [FailedAttempt("a", n, "fetch", Failure(kind, "")) for n, kind in enumerate(kinds, 1)]
    step = StepView("a", "fetch", "", "failed", attempts=len(failed), planned={})
    view = PlannerView(
        run="r",
        goal=Goal(want=("raw",)),
        call=2,
        why="report",
        failed_attempts=tuple(failed),
        timeline=(step,),
    )
    fetch = Operator(name="fetch", worker="fetch", gives=("raw",), idempotent=True)
    before = past(view, World({}, {}, [], {"a": failed}), Operators([fetch]), 0)
    assert ("a" in before.hopeless) is over


def test_an_answer_belongs_to_the_question_it_was_given_to():
    """Asked again in the same words, a person has not yet said to try again what failed since."""
    kept = GoalNotes(asked=[AskedQuestion("how?", ["raw"], 1), AskedQuestion("how?", ["raw"], 3)])
    retry = {"question": "how?", "choice": "retry", "actor": "person"}
    view = PlannerView(run="r", goal=Goal(want=("raw",)), call=2, why="report", answers=(retry,))
    assert person_answers(view, kept).forgiven == 1
    assert person_answers(replace(view, answers=(retry, retry)), kept).forgiven == 3
