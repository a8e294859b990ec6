"""Splitting again: parts that are too complex in their turn, and facts that are dropped."""

import pytest

from leadhand import Goal, Permanent, Policy, TooComplex, method, worker
from leadhand.core.report import Ask, Finish
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.testing import simulate
from tests.planners.goal.judge import Does, Run


def factory(limit):
    """Workers that sum lists, of which no part may be longer than `limit`."""

    @worker(gives="total")
    async def add_all(rows: list[int]) -> int:
        raise TooComplex("too many rows")

    @worker(gives="halves")
    async def halve(rows: list[int]) -> list[list[int]]:
        middle = len(rows) // 2
        return [rows[:middle], rows[middle:]]

    @worker(gives="part_total")
    async def add_part(part: list[int]) -> int:
        if len(part) > limit:
            raise TooComplex(f"{len(part)} rows are too many")
        return sum(part)

    @worker(gives="total")
    async def join(totals: list[int]) -> int:
        return sum(totals)

    @worker(gives="part_halves")
    async def halve_part(piece: list[int]) -> list[list[int]]:
        middle = len(piece) // 2
        return [piece[:middle], piece[middle:]]

    @worker(gives="part_total")
    async def join_part(totals: list[int]) -> int:
        return sum(totals)

    @method("total")
    def in_halves():
        return ["halve", "add_part*", "join"]

    @method("part_total")
    def part_in_halves():
        return ["halve_part", "add_part*", "join_part"]

    return [add_all, halve, add_part, join, halve_part, join_part, in_halves, part_in_halves]


@pytest.mark.parametrize("mode", ["auto", "next_step", "whole"])
@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_parts_that_are_too_complex_again_are_split_again(mode, levels):
    """Down to parts of one row: as deep as the policy allows."""
    rows = list(range(2**levels))
    done = simulate(Goal(want="total", have={"rows": rows}, mode=mode), factory(1))
    assert (done.outcome.status, done.outcome.result) == ("succeeded", sum(rows))
    assert not done.violations
    parts = [each for each in done.outcome.steps if each.worker == "add_part"]
    assert sum(each.status == "succeeded" for each in parts) == len(rows)
    assert {each.status for each in parts} <= {"succeeded", "superseded"}


def test_only_the_parts_that_are_too_large_are_split_again():
    """What is done is kept."""
    done = simulate(Goal(want="total", have={"rows": [1, 2, 3]}), factory(1))
    assert done.outcome.result == 6
    assert sum(each.worker == "halve_part" for each in done.outcome.steps) == 1


@pytest.mark.parametrize("splits_max", [1, 2, 5])
def test_there_is_a_limit_to_splitting(splits_max):
    """Beyond it a person is asked, with the part that is too much."""
    rows = list(range(2 ** (splits_max + 1)))
    policy = Policy(splits_max=splits_max)
    done = simulate(Goal(want="total", have={"rows": rows}), factory(1), policy=policy)
    assert done.outcome.status == "waiting"
    assert "add_part failed" in done.outcome.waiting_for[0].text
    assert not done.violations


def test_a_part_of_a_part_that_fails_for_good_is_told():
    """There is no other way, so a person is asked."""
    workers = factory(1)

    @worker(gives="part_halves")
    async def halve_part(piece: list[int]) -> list[list[int]]:
        raise Permanent("the knife is broken")

    workers = [each for each in workers if getattr(each, "__name__", "") != "halve_part"]
    done = simulate(Goal(want="total", have={"rows": [1, 2, 3, 4]}), [*workers, halve_part])
    assert done.outcome.status == "waiting"
    assert "halve_part failed (the knife is broken)" in done.outcome.waiting_for[0].text


def test_a_fact_that_is_dropped_is_given_again_by_its_method():
    """Once for each time it is used up."""

    @worker(gives="dough")
    async def knead(flour: int) -> str:
        raise TooComplex("too much flour")

    @worker(gives="bags")
    async def divide(flour: int) -> list[int]:
        return [1, 2]

    @worker(gives="lump")
    async def knead_bag(bag: int) -> int:
        return bag

    @worker(gives="dough")
    async def fold_in(lumps: list[int]) -> str:
        return "dough"

    @worker(needs=["dough"], gives="bread", drops=["dough"])
    async def bake(dough: str) -> str:
        return "bread"

    @worker(needs=["dough"], gives="cake", drops=["dough"])
    async def decorate(dough: str) -> str:
        return "cake"

    @method("dough")
    def by_bags():
        return ["divide", "knead_bag*", "fold_in"]

    goal = Goal(want=["bread", "cake", "dough"], have={"flour": 3})
    done = simulate(goal, [knead, divide, knead_bag, fold_in, bake, decorate, by_bags])
    assert done.outcome.result == {"bread": "bread", "cake": "cake", "dough": "dough"}
    assert sum(each.worker == "fold_in" for each in done.outcome.steps) == 3


def test_what_only_a_method_can_give_is_not_called_impossible():
    """The one worker would use up what is wanted besides; the method does not."""

    @worker(needs=["ore"], gives="iron", drops=["ore"])
    async def smelt(ore: int) -> int:
        return ore

    @worker(gives="iron")
    async def trade(share: int) -> int:
        return share

    @worker(gives="share")
    async def weigh(ore: int) -> int:
        return ore // 2

    @method("iron")
    def by_trade():
        return ["weigh", "trade"]

    goal = Goal(want=["iron", "ore"], have={"ore": 4})
    done = simulate(goal, [smelt, trade, weigh, by_trade])
    assert done.outcome.result == {"iron": 2, "ore": 4}


def test_what_takes_nothing_away_is_done_first():
    """`rare` fails: what `burn` would have used up is still there for another way."""
    workers = [
        Does("burn", ("wood",), ("heat",), ("wood",), cost=1),
        Does("rare", ("tools",), ("axe",), cost=1),
        Does("carve", ("wood",), ("axe", "heat"), ("wood",), cost=9),
        Does("fell", ("heat", "axe"), ("tree",), cost=1),
    ]

    def attempt(step, number):
        from leadhand.core.report import Failure

        return Failure("permanent", "gone") if step["worker"] == "rare" else step["gives"][0]

    run = Run(workers, ["tree"], {"wood": 1, "tools": 1}, attempt)
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)
    assert run.done == ["carve", "fell"]


def test_among_equals_the_worker_that_takes_nothing_away_is_chosen():
    """Whatever their names."""
    taker = Does("a_taker", ("wood",), ("heat",), ("wood",), cost=1)
    keeper = Does("z_keeper", ("wood",), ("heat",), cost=1)
    stove = Does("stove", ("heat", "wood"), ("fire",), cost=1)
    run = Run([taker, keeper, stove], ["heat"], {"wood": 1})
    assert [step["worker"] for step in run.ask(GoalPlanner()).steps] == ["z_keeper"]
    assert not isinstance(run.decisions[-1], Ask)
