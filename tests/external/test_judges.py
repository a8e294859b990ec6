"""The judges themselves: each says no when it should. They need no data from outside."""

from __future__ import annotations

import pytest

from leadhand import Finish, Goal, GoalPlanner, Hybrid, Propose
from tests.external import asynchow, faulty, psplib, pursuit, recorded, timed
from tests.external.pddl_world import World
from tests.external.timed import Span

DOMAIN = """
(define (domain porters)  ; a comment (with brackets)
  (:requirements :strips :typing)
  (:types box place - thing porter)
  (:predicates (at ?x ?p) (free ?w) (has ?w ?b))
  (:action take
    :parameters (?w - porter ?b - box ?p - place)
    :precondition (and (at ?b ?p) (free ?w) (not (locked ?p)))
    :effect (and (has ?w ?b) (not (at ?b ?p)) (not (free ?w))))
  (:action put
    :parameters (?w - porter ?b - box ?p - place)
    :precondition (has ?w ?b)
    :effect (and (at ?b ?p) (free ?w) (not (has ?w ?b)))))
"""
PROBLEM = """
(define (problem one) (:domain porters)
  (:objects a b - box HALL yard - place tom - porter)
  (:init (at a hall) (at b yard) (free tom) (locked yard))
  (:goal (and (at a yard) (free tom))))
"""
# The workers' reader knows no negative needs: without them.
PLAIN = DOMAIN.replace("(not (locked ?p))", "")


def test_the_world_does_what_can_be_done():
    """Step by step; the goal is true in the end, and not before."""
    world = World(DOMAIN, PROBLEM)
    assert world.do("take", ["tom", "a", "hall"]) == []
    assert not world.reached
    assert world.do("put", ["tom", "a", "yard"]) == []
    assert world.reached
    assert world.done == ["take tom a hall", "put tom a yard"]


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (["take", "tom", "a", "yard"], ["at a yard is not true", "locked yard is true"]),
        (["take", "tom", "b", "yard"], ["locked yard is true"]),
        (["put", "tom", "a", "yard"], ["has tom a is not true"]),
        (["take", "tom", "a"], ["take takes 3 objects, not 2"]),
        (["take", "a", "tom", "hall"], ["a is no porter", "tom is no box"]),
        (["take", "tim", "a", "hall"], ["tim is no porter", "free tim is not true"]),
        (["fly", "tom"], ["there is no fly"]),
    ],
)
def test_the_world_refuses_what_cannot(call, wrong):
    """And nothing has changed then."""
    world = World(DOMAIN, PROBLEM)
    before = set(world.facts)
    found = world.do(call[0], call[1:])
    assert set(wrong) <= set(found)
    assert (world.facts, world.done) == (before, [])


def problem():
    """The problem, for the engine."""
    return pursuit.problem(pursuit.Texts(PLAIN, {"one": PROBLEM}), "one")


def test_a_pursuit_is_judged_by_the_world():
    """Reached when it is; what was tried against the rules is told, whoever says it succeeded."""
    done = pursuit.pursue(problem(), GoalPlanner())
    assert (done.reached, done.status, done.done, done.impossible) == (True, "succeeded", 2, ())
    wrong = recorded.follows([["put", "tom", "a", "yard"]])
    done = pursuit.pursue(problem(), wrong)
    assert (done.reached, done.impossible) == (False, ()), "no planner goes round a gate"
    done = pursuit.pursue(problem(), Hybrid(wrong))
    assert (done.reached, done.impossible) == (True, ())
    assert done.handed == "step 1 put tom.a.yard needs has:tom:a, which is not true"


def test_a_planner_that_only_says_that_it_is_done_reaches_nothing():
    """The judge looks at the world, not at the outcome."""

    async def liar(_view):
        return Finish("done")

    each = problem()._replace(goal=Goal(text="anything"))
    done = pursuit.pursue(each, liar)
    assert (done.reached, done.status) == (False, "succeeded")


def test_faults_are_the_same_for_everybody():
    """Drawn from the seed and the action alone, and about as often as said."""
    faults = pursuit.Faults("x", 0.1, 0.3)
    names = [f"a{i}" for i in range(4000)]
    assert [faults.never(name) for name in names] == [faults.never(name) for name in names]
    assert 0.08 < sum(map(faults.never, names)) / 4000 < 0.12
    assert 0.27 < sum(faults.now(name, 1) for name in names) / 4000 < 0.33
    assert any(faults.now(name, 1) != faults.now(name, 2) for name in names)
    assert not any(pursuit.Faults().never(name) or pursuit.Faults().now(name, 1) for name in names)


def test_faults_hit_the_attempts():
    """Everything broken: nothing is done; everything shaky: nothing either."""
    for faults in (pursuit.Faults("x", 1.0, 0.0), pursuit.Faults("x", 0.0, 1.0)):
        done = pursuit.pursue(problem(), GoalPlanner(), faults)
        assert (done.reached, done.done) == (False, 0)
        assert done.tried


def test_what_is_hopeless_is_seen_without_the_planner():
    """By reachability alone, and by looking at every state."""
    each = problem()
    every = list(each.actions.values())
    no_put = [action for action in every if action.worker != "put"]
    assert not faulty.hopeless_without_search(each, every)
    assert not faulty.hopeless_by_search(each, every)
    assert faulty.hopeless_without_search(each, no_put)
    assert faulty.hopeless_by_search(each, no_put)
    # Two places at once: each can be reached alone, so only the search can tell.
    both = each._replace(goal=Goal(want=["at:a:hall", "at:a:yard"], have=each.goal.have))
    assert not faulty.hopeless_without_search(both, every)
    assert faulty.hopeless_by_search(both, every)


SECONDS = {"a": 2.0, "b": 3.0, "c": 0.0}
BEFORE = {"a": [], "b": ["a"], "c": ["b"]}
HOLDS = {"a": {"pool": 2}, "b": {"pool": 1}, "c": {"pool": 9}}
GOOD = {"a": Span(0, 2_000_000), "b": Span(2_000_000, 5_000_000), "c": Span(5_000_000, 5_000_000)}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"b": None}, "b did not run"),
        ({"d": Span(0, 1)}, "d is no step"),
        ({"a": Span(0, 1_000_000)}, "a took 1.0 s, not 2.0"),
        ({"b": Span(1_999_999, 4_999_999)}, "b began before a had ended"),
    ],
)
def test_the_checker_of_schedules_says_no(change, wrong):
    """Each step once, for its time, after what it waits for."""
    spans = {name: span for name, span in {**GOOD, **change}.items() if span}
    found = timed.broken_rules(spans, SECONDS, BEFORE, HOLDS, {"pool": 2})
    assert found[:1] == ([wrong] if wrong else [])


def test_the_checker_of_schedules_counts_pools():
    """At every moment; what ends when another starts has left."""
    free = dict.fromkeys(BEFORE, ())
    spans = {**GOOD, "b": Span(1_500_000, 4_500_000)}
    (found,) = timed.broken_rules(spans, SECONDS, free, HOLDS, {"pool": 2})
    assert found.startswith("3 of pool at 1500000")
    assert timed.broken_rules(spans, SECONDS, free, HOLDS, {"pool": 3}) == []
    assert timed.broken_rules(GOOD, SECONDS, free, HOLDS, {"pool": 2}) == []


PROJECT = """
************************************************************************
jobs (incl. supersource/sink ):  4
RESOURCES
  - renewable                 :  2   R
************************************************************************
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          2           2   3
   2        1          1           4
   3        1          1           4
   4        1          0
************************************************************************
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  R 2
------------------------------------------------------------------------
  1      1     0       0    0
  2      1     3       2    0
  3      1     4       1    1
  4      1     0       0    0
************************************************************************
RESOURCEAVAILABILITIES:
  R 1  R 2
    2   12
************************************************************************
"""


def test_a_project_is_read_and_carried_out():
    """Both need the first pool, so one waits for the other: seven hours, none wasted."""
    project = psplib.read(PROJECT, 7)
    assert project.room == {"pool-0": 2, "pool-1": 12}
    assert project.before["job-4"] == ["job-2", "job-3"]
    assert project.holds["job-3"] == {"pool-0": 1, "pool-1": 1}
    assert psplib.gap(project) == (pytest.approx(0.0), [])
    alone = project._replace(room={"pool-0": 3, "pool-1": 12}, best_s=project.best_s)
    assert psplib.gap(alone) == (pytest.approx(4 / 7 - 1), [])


def test_a_task_is_read_and_carried_out():
    """Years fit into virtual time; two parts go side by side without being told."""
    year = 365 * timed.DAY_S
    row = {
        "dur_s": {"1": year, "2": 2 * year, "3": year},
        "deps": [["START", "1"], ["1", "3"], ["2", "3"], ["3", "END"]],
        "gold_s": 3 * year,
    }
    task = asynchow.read(row)
    seconds, wrong = asynchow.carried_out(task)
    assert wrong == []
    assert asynchow.equal(task, seconds)
    assert not asynchow.equal(task, seconds * 1.001)


def test_a_recorded_plan_is_followed_to_its_end():
    """Right as written: the first planner leads all the way."""
    calls = [["take", "tom", "a", "hall"], ["put", "tom", "a", "yard"]]
    done = pursuit.pursue(problem(), Hybrid(recorded.follows(calls)))
    assert (done.reached, done.handed, done.done) == (True, "", 2)
    odd = [["take", "tom", "a", "hall"], [], ["nonsense"]]
    done = pursuit.pursue(problem(), Hybrid(recorded.follows(odd)))
    assert (done.reached, done.done) == (True, 2)
    assert done.handed.startswith("recorded proposes what cannot be run (")


def test_forgetting_is_what_the_forgetful_does():
    """It proposes again what is broken, until the engine stops it; the other goes round."""
    never = "take.tom.a.hall"

    class Broken(pursuit.Faults):
        def never(self, action: str) -> bool:
            return action == never

    done = pursuit.pursue(problem(), faulty.Forgetful(), Broken())
    assert (done.reached, done.tried > 1) == (False, True)
    done = pursuit.pursue(problem(), GoalPlanner(), Broken())
    assert (done.reached, done.tried) == (False, 1)


def test_proposals_of_the_recorded_planner_are_one_step_each():
    """Whatever it is asked."""

    class View:
        timeline = ()

    step = recorded.follows([["take", "tom"]])(View()).send
    with pytest.raises(StopIteration) as stopped:
        step(None)
    assert stopped.value.value == Propose(({"id": "s1", "worker": "take", "action": "tom"},))
