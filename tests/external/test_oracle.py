"""The judge of worker graphs: it says no when it should. A planner that lies is caught."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from leadhand import Finish, GiveUp, Goal, Propose
from leadhand.testing import Deadlock
from tests.external import evals, graph_families, graph_world, oracle
from tests.external.graph_families import Case, draw
from tests.external.graph_world import Fault, Graph, Job, Method, World, best
from tests.support.plans import call

DEAR, CHEAP = (Job("dear", ("a",), ("c",), cost=9.0), Job("cheap", ("a",), ("b",), cost=1.0))
LAST = Job("last", ("b",), ("c",), cost=2.0, idempotent=False)
GRAPH = Graph((DEAR, CHEAP, LAST), ("a",), ("c",))


def case(graph: Graph = GRAPH, **more: Any) -> Case:
    """A small case of our own."""
    return Case("test", 1, graph, **more)


def test_the_judge_shares_no_code_with_what_it_judges():
    """Nothing of leadhand is imported by the judge or by the families."""
    for module in (graph_world, graph_families):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named += [
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        ]
        assert not [name for name in named if name.startswith("leadhand")]


def test_the_cheapest_way_is_found_by_looking_at_everything():
    """With drops, with what is broken, and with methods that a failure opens."""
    assert best(GRAPH, ["a"]) == (3.0, ("cheap", "last"))
    assert best(GRAPH, ["a"], ["last"]) == (9.0, ("dear",))
    assert best(GRAPH, ["a"], ["last", "dear"]) is None
    uses = LAST._replace(drops=("b",))
    both = GRAPH._replace(jobs=(CHEAP, uses), want=("b", "c"))
    assert best(both, ["a"]) == (4.0, ("cheap", "last", "cheap"))
    once = both._replace(jobs=(CHEAP._replace(drops=("a",)), uses))
    assert best(once, ["a"]) is None


def test_methods_are_open_only_after_a_failure():
    """The judge needs the attempt that finds it too complex first, and all stages at work."""
    large = Job("large", ("a",), ("c",), fault=Fault("too_complex"))
    split = Job("split", ("a",), ("parts",), items=2, stage=True)
    part = Job("part", (), ("done",), loose=("piece",), stage=True, cost=1.0)
    merge = Job("merge", (), ("c",), loose=("pieces",))
    stages = Method("c", "by_parts", ("split", "part*", "merge"))
    graph = Graph((large, split, part, merge), ("a",), ("c",), (stages,))
    assert best(graph, ["a"]) == (2.0, ("large", "@by_parts"))
    assert best(graph, ["a"], ["part"]) is None
    assert best(graph._replace(methods=()), ["a"]) is None
    assert best(graph, ["a"], blind=True) == (0.0, ("large",))
    broken = part._replace(fault=Fault("too_complex"))
    deep = Method("done", "deeper", ("split2", "part2*", "merge2"))
    more = [
        Job("split2", (), ("halves",), loose=("piece",), items=2, stage=True),
        Job("part2", (), ("half",), loose=("bit",), stage=True, cost=1.0),
        Job("merge2", (), ("done",), loose=("bits",), stage=True),
    ]
    nested = graph._replace(jobs=(large, split, broken, merge, *more))
    assert best(nested, ["a"]) is None
    assert best(nested._replace(methods=(stages, deep)), ["a"]) == (4.0, ("large", "@by_parts"))


def test_cases_are_the_same_each_time_and_of_every_kind():
    """Drawn from family and seed alone; every family holds what it promises."""
    drawn = {family: [draw(family, seed) for seed in range(40)] for family in oracle.FAMILIES}
    assert drawn["costs"] == [draw("costs", seed) for seed in range(40)]
    every = [each for some in drawn.values() for each in some]
    assert {each.mode for each in every} == {"auto", "next_step", "whole", "direct"}
    assert {each.person for each in every} == set(graph_families.PEOPLE)
    assert {each.first for each in drawn["handover"]} == set(graph_families.FIRSTS)
    kinds = {job.fault.kind for each in every for job in each.graph.jobs}
    assert kinds >= {"", "permanent", "transient", "too_complex", "silent", "hang", "needs_info"}
    assert all(each.crashes for each in drawn["crash"])
    assert not any(each.graph.faulty for each in (*drawn["costs"], *drawn["budget"]))
    facts = [fact for each in every for fact in each.graph.want]
    assert 0.1 < sum(map(graph_world.is_flag, facts)) / len(facts) < 0.6


def test_a_good_run_is_found_good():
    """Nothing is wrong with the goal planner here, and it pays the least."""
    verdict = oracle.play(case(mode="next_step"))
    assert not [what for what, wrong in oracle.FAULTS.items() if wrong(verdict)]
    assert (verdict.reached, verdict.reachable) == (True, True)
    assert (verdict.spent, verdict.optimum) == (3.0, 3.0)


def does(*decisions: Any) -> Any:
    """A planner that says these things one after the other, whatever happens."""

    async def planner(view: Any) -> Any:
        return decisions[min(view.call, len(decisions)) - 1]

    return planner


A, B = "${{ params.a }}", "${{ steps.b.data }}"


def played(monkeypatch: pytest.MonkeyPatch, planner: Any, graph: Graph = GRAPH) -> oracle.Verdict:
    """A run by a planted planner: it is told no wanted facts, so that only the judge knows them."""
    monkeypatch.setattr(
        oracle, "Goal", lambda want, have, budget, mode: Goal(text="any", have=have, budget=budget)
    )
    return oracle.play(case(graph), planner)


def test_a_planner_that_says_done_is_caught(monkeypatch):
    """False success, by the judge's own account of what was really given."""
    verdict = played(monkeypatch, does(Finish("c by last #1")))
    assert verdict.status == "succeeded"
    assert verdict.false_success
    assert verdict.wrong_result
    assert not verdict.reached


def test_a_wrong_result_is_caught(monkeypatch):
    """What is wanted is there, and what is returned is something else."""
    verdict = played(monkeypatch, does(Propose((call("d", "dear", a=A),)), Finish("nice")))
    assert verdict.reached
    assert verdict.wrong_result == "result 'nice', wanted {'c': 'c by dear #1'}"
    assert not verdict.false_success


def test_a_planner_that_gives_up_early_is_caught(monkeypatch):
    """The way that was left is named; one that only asks is caught as well."""
    verdict = played(monkeypatch, does(GiveUp("too hard")))
    assert verdict.untried.endswith("(left: cheap, last)")
    assert not verdict.mute


def test_a_dear_way_is_caught(monkeypatch):
    """The line of the table is missed."""
    steps = does(Propose((call("d", "dear", a=A),), final=True))
    verdict = played(monkeypatch, steps)._replace(family="costs")
    assert (verdict.spent, verdict.optimum) == (9.0, 3.0)
    (line,) = [line for line in evals.graphs_lines([verdict]) if "optimum" in line.what]
    assert not line.met


def test_invented_data_and_unmet_needs_are_caught(monkeypatch):
    """A worker was called without what it needs."""
    verdict = played(monkeypatch, does(Propose((call("l", "last", b="invented"),), final=True)))
    assert verdict.impossible == ("last as l: b is not true",)
    steps = does(
        Propose((call("b", "cheap", a=A),)), Propose((call("l", "last", b="invented"),), final=True)
    )
    verdict = played(monkeypatch, steps)
    assert verdict.impossible == ("last as l: b is given as 'invented', not 'b by cheap #1'",)


def test_a_finished_step_that_runs_again_is_caught(monkeypatch):
    """Under another name too, as long as what it gave is still there."""
    steps = does(
        Propose((call("b", "cheap", a=A),)),
        Propose((call("l", "last", b=B),)),
        Propose((call("m", "last", b=B),), final=True),
    )
    assert played(monkeypatch, steps).repeated == ("last as m",)


def test_blind_repeats_are_caught(monkeypatch):
    """What failed for good is tried again on the same input, though no person said so."""
    broken = GRAPH._replace(jobs=(DEAR._replace(fault=Fault("permanent")), CHEAP, LAST))
    tries = [Propose((call(f"d{i}", "dear", a=A),)) for i in (1, 2)]
    verdict = played(monkeypatch, does(*tries, GiveUp("no")), broken)
    assert len(verdict.blind) == 1
    world = World.of(broken)
    for person in (False, True):
        world.fails(broken.job("dear"), {"a": 1})
        if not person:
            world.retry(repaired=False)
    assert world.blind == []


def test_a_hang_is_caught(monkeypatch):
    """What never ends is a verdict too."""

    def hangs(*_args: Any, **_more: Any) -> Any:
        raise Deadlock("nothing is left to do")

    monkeypatch.setattr(oracle, "simulate", hangs)
    assert oracle.play(case()).hang == "nothing is left to do"


def test_a_question_too_early_is_caught():
    """A person is asked while a way is left; nobody is blamed where there is none."""

    class Question:
        kind, text, choices, facts, step = "planner", "what now?", ["give", "stop"], ["c"], ""

    world = World.of(GRAPH)
    person = oracle.Person("give", world)
    assert person(Question) == ("give", {"c": "c by person #1"})
    assert person.early == "what now? (left: cheap, last)"
    assert world.reached
    stuck = World.of(GRAPH._replace(jobs=()))
    person = oracle.Person("never", stuck)
    assert (person(Question), person.early) == (None, "")


def test_the_table_shows_the_command_that_repeats_a_case():
    """One command for the first case of each kind."""
    bad = oracle.Verdict("budget 17", "budget", "failed", "why", True, False, untried="w1")
    lines = {line.what: line for line in evals.graphs_lines([bad])}
    assert lines["graphs: reachable goals that are reached"].figure == "0.0% (1 missed)"
    line = lines["graphs: ended or waits with a way left"]
    assert line.figure == "1: python -m tests.external.oracle budget 17"
    assert not line.met


def test_one_case_is_shown_whole(monkeypatch, capsys):
    """The command prints the graph, the log and the verdict."""
    monkeypatch.setattr("sys.argv", ["oracle", "passing", "0"])
    assert oracle.main() == 0
    shown = capsys.readouterr().out
    assert "Run started by person" in shown
    assert "untried" in shown


MENDED = (
    ("alternatives", 55),  # stuck with something untried
    ("budget", 21),  # wrongly unaffordable
    ("crash", 314),  # what a person has looked at counts as known
    ("drops_broken", 131),  # every idle step goes when a whole plan is written anew
    ("drops_broken", 176),  # a new step takes nothing from one in a backoff
    ("handover", 6),  # dependents of a failed step are not under way
    ("hints", 183),  # a final proposal without new steps drops nothing that runs
    ("methods_drops", 133),  # a method whose fact was dropped begins anew
    ("methods_drops", 180),  # "impossible" with a method
    ("parallel", 2),  # an open question is waited for
    ("everything", 585),  # failures of different classes are not added up
    ("person_vain", 9),  # an answer to a question in the same words belongs to the earlier one
    ("person_give", 97),  # what a person gave is not taken away by what failed before
)


@pytest.mark.parametrize(("family", "seed"), MENDED)
def test_what_was_found_once_stays_mended(family, seed):
    """Cases that showed a fault; each was seen to fail before its mend."""
    instant = (family, seed) == ("person_give", 97)  # it showed only where commits take no time
    case = draw(family, seed)
    verdict = oracle.play(case._replace(order=None) if instant else case)
    assert {what: wrong(verdict) for what, wrong in oracle.FAULTS.items() if wrong(verdict)} == {}
    assert verdict.reached or not verdict.reachable
