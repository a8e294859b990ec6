"""Splitting what was too complex: stage by stage, with what is done kept."""

import pytest

from leadhand import method
from leadhand.core.report import Ask, Failure, Finish
from leadhand.errors import UsageError
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.workers.functions.decorator import method_of
from tests.planners.goal.judge import Does, Run, operator, succeed

CLEAN = Does("clean", ("raw",), ("table",))
SPLIT = Does("split", ("raw",), ("parts",))
PART = Does("clean_part", ("part",), ("table_part",))
MERGE = Does("merge", ("tables",), ("table",))
ALL = [CLEAN, SPLIT, PART, MERGE]


@method("table")
def in_parts():
    """The usual way."""
    return ["split", "clean_part*", "merge"]


def attempts(*, items=2, fail=()):
    """`clean` finds it too much; `split` gives a list; named steps fail once each."""
    left = list(fail)

    def attempt(step, number):
        if step["worker"] == "clean":
            return Failure("too_complex", "too many rows")
        if step["id"] in left:
            left.remove(step["id"])
            return Failure("transient", "not just now")
        if step["worker"] == "split":
            return list(range(items))
        return f"by {step['id']}" if not step.get("gives") else succeed(step, number)

    return attempt


class Splitting(Run):
    """A run in which steps inside a method need not have facts for their parameters."""

    def _fits(self, step):
        own = next(w for w in self.workers if w.name == operator(step))
        super()._fits({**step, "needs": step.get("needs", [])} if own in (PART, MERGE) else step)


def planner(*functions):
    """A planner that knows these methods."""
    return GoalPlanner([method_of(each) for each in functions])


def test_a_method_is_carried_out_stage_by_stage():
    """One step for each item; the list of their results goes to the next."""
    run = Splitting(ALL, ["table"], {"raw": 1}, attempts(items=3))
    assert isinstance(run.to_the_end(planner(in_parts)), Finish)
    assert [operator(run.steps[name]) for name in run.ended] == [
        "clean",
        "split",
        "clean_part",
        "clean_part",
        "clean_part",
        "merge",
    ]
    assert run.steps["clean_part-2"]["parameters"] == {"part": "${{ steps.split.data[1] }}"}
    assert run.steps["merge"]["parameters"] == {
        "tables": [f"${{{{ steps.{name}.data }}}}" for name in _parts(run)]
    }
    assert run.steps["clean_part"]["gives"] == []
    assert run.steps["merge"]["gives"] == ["table"]


def _parts(run):
    return [name for name in run.steps if name.startswith("clean_part")]


def test_methods_are_locked_until_something_is_too_complex():
    """Another failure does not unlock them."""
    run = Splitting(ALL, ["table"], {"raw": 1}, lambda *_: Failure("permanent", "no"))
    assert isinstance(run.to_the_end(planner(in_parts)), Ask)
    assert list(run.steps) == ["clean"]


def test_results_are_kept_when_one_part_fails():
    """Only the part that failed is done again."""
    run = Splitting(ALL, ["table"], {"raw": 1}, attempts(fail=["clean_part-2"]))
    assert isinstance(run.to_the_end(planner(in_parts)), Finish)
    assert list(run.steps) == [
        "clean",
        "split",
        "clean_part",
        "clean_part-2",
        "clean_part-3",
        "merge",
    ]
    assert run.steps["clean_part-3"]["supersedes"] == "clean_part-2"
    assert run.steps["merge"]["parameters"]["tables"] == [
        "${{ steps.clean_part.data }}",
        "${{ steps.clean_part-3.data }}",
    ]


def test_an_empty_list_has_no_parts():
    """The next stage gets an empty list."""
    run = Splitting(ALL, ["table"], {"raw": 1}, attempts(items=0))
    assert isinstance(run.to_the_end(planner(in_parts)), Finish)
    assert run.steps["merge"]["parameters"] == {"tables": []}


def test_the_cheaper_of_several_ways_is_tried_first():
    """A dear worker that can do it alone is left when the method is cheaper, and the reverse."""
    strong = Does("strong", ("raw",), ("table",), cost=2)
    cheap = [Does(each.name, each.needs, each.gives, cost=0.5) for each in (SPLIT, PART, MERGE)]
    dear = Does("clean", ("raw",), ("table",), cost=1)
    run = Splitting([dear, strong, *cheap], ["table"], {"raw": 1}, attempts())
    run.ask(planner(in_parts))
    run.settle("clean")
    assert run.ask(planner(in_parts)).steps[0]["worker"] == "split"
    weak = Does("strong", ("raw",), ("table",), cost=1.2)
    run = Splitting([dear, weak, *cheap], ["table"], {"raw": 1}, attempts())
    run.ask(planner(in_parts))
    run.settle("clean")
    assert run.ask(planner(in_parts)).steps[0]["worker"] == "strong"


def test_a_method_may_decide_by_facts():
    """It is called with their values."""
    seen = []

    @method("table")
    def by_size(raw):
        seen.append(raw)
        return ["split", "clean_part*", "merge"]

    run = Splitting(ALL, ["table"], {"raw": 17}, attempts())
    assert isinstance(run.to_the_end(planner(by_size)), Finish)
    assert set(seen) == {17}


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (["nobody"], "names nobody"),
        (["clean_part*", "merge"], "there is no list before it"),
        (["split", "clean_part*"], "must end with one worker"),
        ("split", "must return a list"),
        ([], "must return a list"),
    ],
)
def test_a_method_that_makes_no_sense_is_told_to_a_person(stages, said):
    """With the reason, and nothing is run."""

    @method("table")
    def odd():
        return stages

    run = Splitting(ALL, ["table"], {"raw": 1}, attempts())
    asked = run.to_the_end(planner(odd))
    assert isinstance(asked, Ask)
    assert f"the method odd {said}" in asked.question or said in asked.question
    assert list(run.steps) == ["clean"]


def test_what_gives_no_list_ends_the_method():
    """The next way is tried, or a person is asked."""
    run = Splitting(ALL, ["table"], {"raw": 1}, attempts())
    whole = run.attempt
    run.attempt = lambda step, n: "text" if step["worker"] == "split" else whole(step, n)
    asked = run.to_the_end(planner(in_parts))
    assert isinstance(asked, Ask)
    assert "gave no list" in asked.question


def test_a_method_is_an_ordinary_function():
    """Declared wrongly, it is refused where it is declared."""
    with pytest.raises(UsageError, match="which fact"):
        method("")
    with pytest.raises(UsageError, match="cannot be filled"):
        method("x")(lambda *names: [])
