"""What the planner decides, situation by situation, and what it says about it."""

import asyncio
from dataclasses import replace

import pytest

from leadhand.core.report import Ask, Failure, Finish, GiveUp, Propose, Wait
from leadhand.planners.goal.planner import GoalPlanner
from tests.planners.goal.judge import Does, Run, operator, succeed

FETCH = Does("fetch", ("topic",), ("raw",), cost=1)
MIRROR = Does("mirror", ("topic", "key"), ("raw",), cost=3)
CLEAN = Does("clean", ("raw",), ("table",))
REVIEW = Does("review", ("table",), ("approved:table",))
SUM_UP = Does("sum_up", ("table", "approved:table"), ("summary",))
LINE = [FETCH, MIRROR, CLEAN, REVIEW, SUM_UP]
TOPIC = {"topic": "prices"}


def failing(**classes):
    """Attempts of these workers fail with these classes, in turn; then they succeed."""
    left = {name: list(kinds) for name, kinds in classes.items()}

    def attempt(step, number):
        kinds = left.get(step["worker"])
        if kinds:
            kind = kinds.pop(0)
            return kind if isinstance(kind, Failure) else Failure(kind, f"{kind} it is")
        return succeed(step, number)

    return attempt


def first(run):
    """The first decision of a run."""
    return run.ask(GoalPlanner())


# --- the way ---------------------------------------------------------------------------------


def test_the_frontier_is_proposed_and_the_rest_is_outlook():
    """One step can start; the others are shown in order, with what they wait for."""
    decision = first(Run(LINE, ["summary"], TOPIC))
    assert [step["id"] for step in decision.steps] == ["fetch"]
    assert decision.steps[0]["parameters"] == {"topic": "${{ params.topic }}"}
    assert [step["id"] for step in decision.outlook] == ["clean", "review", "sum_up"]
    assert decision.final is False


def test_each_step_says_why_it_is_there_and_what_was_not_chosen():
    """The consumer, the price, and the other way with its price."""
    (step,) = first(Run(LINE, ["summary"], {**TOPIC, "key": "k"})).steps
    assert step["because"] == (
        "gives raw, which clean needs (price 1); not chosen: mirror (price 3)"
    )


def test_it_finishes_without_repeating_the_values():
    """The engine reads the wanted facts from the steps that gave them."""
    one = Run(LINE, ["summary"], TOPIC)
    assert one.to_the_end(GoalPlanner()) == Finish(None, "summary: true", one.notes)


def test_a_worker_that_gives_several_facts_is_referred_to_by_key():
    """Data of one artefact is the value; data of several is an object."""
    both = Does("both", (), ("left", "right", "seen:both"))
    use = Does("use", ("left", "right"), ("done",))
    run = Run([both, use], ["done"])
    run.to_the_end(GoalPlanner())
    assert run.steps["use"]["parameters"] == {
        "left": "${{ steps.both.data.left }}",
        "right": "${{ steps.both.data.right }}",
    }


def test_what_is_given_is_enough():
    """Nothing is done for a fact that is there."""
    assert isinstance(first(Run(LINE, ["topic"], TOPIC)), Finish)


def test_a_name_that_cannot_be_referred_to_is_written_out():
    """A parameter of the run is referred to; an odd name is a value, and no reference by chance."""
    use = Does("use", ("odd name",), ("done",))
    (step,) = first(Run([use], ["done"], {"odd name": "${{ steps.x.data }}"})).steps
    assert step["parameters"] == {"odd name": "$${{ steps.x.data }}"}


def test_a_parameter_with_a_default_is_filled_when_the_fact_is_there():
    """Not needed, and used all the same."""
    fetch = Does("fetch", ("topic",), ("raw",), optional=("limit",))
    (bare,) = first(Run([fetch], ["raw"], TOPIC)).steps
    (full,) = first(Run([fetch], ["raw"], {**TOPIC, "limit": 3})).steps
    assert "limit" not in bare["parameters"]
    assert full["parameters"]["limit"] == "${{ params.limit }}"


def test_steps_side_by_side_are_proposed_together():
    """Independent ones start at once; after a report only what is new is added."""
    parts = [Does(f"part{i}", (), (f"p{i}",)) for i in range(3)]
    join = Does("join", ("p0", "p1", "p2"), ("whole",))
    run = Run([*parts, join], ["whole"])
    assert len(first(run).steps) == 3
    run.settle("part1")
    again = run.ask(GoalPlanner())
    assert again.steps == ()
    assert [step["id"] for step in again.outlook] == ["join"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"writes": ("out/a.md",)}, {"writes": ("out/a.md",)}),
        ({"writes": ("out/*.md",)}, {"reads": ("out/a.md",)}),
        ({"reads": ("out",)}, {"writes": ("out/a.md",)}),
    ],
)
def test_steps_that_touch_the_same_wait_for_each_other(one, other):
    """Written twice, or written and read: one after the other."""
    workers = [
        Does("a", (), ("x",), more=one),
        Does("b", (), ("y",), more=other),
        Does("c", (), ("z",), more={"writes": ("elsewhere",)}),
    ]
    run = Run(workers, ["x", "y", "z"])
    assert [step["id"] for step in first(run).steps] == ["a", "c"]
    run.settle("c")
    assert run.ask(GoalPlanner()).steps == ()
    run.settle("a")
    assert [step["id"] for step in run.ask(GoalPlanner()).steps] == ["b"]


def test_what_a_step_under_way_needs_is_not_dropped():
    """Two users of a desk: the second takes it when the first is done."""
    sit = [
        Does("read", ("free:desk",), ("notes",)),
        Does("sell", ("free:desk",), ("money",), drops=("free:desk",)),
    ]
    run = Run(sit, ["notes", "money"], {"free:desk": True})
    assert [step["id"] for step in first(run).steps] == ["read"]
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)


def test_alternatives_are_those_who_take_and_give_the_same():
    """Another need, another risk: the planner is asked instead."""
    twin = Does("twin", ("topic",), ("raw",), cost=2)
    risky = Does("risky", ("topic",), ("raw",), cost=1, more={"risk": "high"})
    (step,) = first(Run([*LINE, twin, risky], ["summary"], {**TOPIC, "key": "k"})).steps
    assert step["alternatives"] == ["twin"]


def test_four_hundred_workers_that_do_not_matter_change_nothing():
    """They are not looked at, nor named."""
    noise = [Does(f"n{i}", (f"m{i}",), (f"m{i + 1}",)) for i in range(400)]
    quiet, loud = Run(LINE, ["summary"], TOPIC), Run([*noise, *LINE], ["summary"], TOPIC)
    assert first(quiet) == first(loud)


# --- failures --------------------------------------------------------------------------------


def test_a_flaky_worker_is_left_when_it_becomes_the_dearer_one():
    """Cost 1 against 3: after two failures in a row."""
    run = Run(LINE, ["raw"], {**TOPIC, "key": "k"}, failing(fetch=["transient"] * 9))
    run.to_the_end(GoalPlanner())
    assert [operator(run.steps[name]) for name in run.ended] == ["fetch", "fetch", "mirror"]
    because = run.steps["mirror"]["because"]
    assert "fetch (price 4, failed 2 times on this input (transient: transient it is))" in because


def test_a_permanent_failure_is_not_repeated():
    """The other way is taken at once, in the place of the failed step."""
    run = Run(LINE, ["raw"], {**TOPIC, "key": "k"}, failing(fetch=["permanent"] * 9))
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)
    assert len(run.failed) == 1
    assert run.steps["mirror"]["supersedes"] == "fetch"
    assert "new: mirror; fetch failed on this input (permanent" in run.decisions[1].because


def test_a_new_input_is_a_new_chance():
    """`clean` fails for good on what `fetch` gave, and is tried on what another step gives."""
    run = Run([FETCH, MIRROR, CLEAN], ["table"], {**TOPIC, "key": "k"})
    run.attempt = failing(clean=["permanent"])
    assert isinstance(run.to_the_end(GoalPlanner()), Ask)
    run.steps["mirror"] = {"id": "mirror", "worker": "mirror", "gives": ["raw"]}
    run.settle("mirror")
    (step,) = run.ask(GoalPlanner()).steps
    assert step["parameters"] == {"raw": "${{ steps.mirror.data }}"}


def test_a_flag_has_no_version_that_matters():
    """A worker that needs flags only is not tried again because a flag was given again."""
    on = Does("on", ("off:lamp",), ("on:lamp",), drops=("off:lamp",))
    off = Does("off", ("on:lamp",), ("off:lamp",), drops=("on:lamp",))
    see = Does("see", ("on:lamp",), ("seen:it",))
    run = Run([on, off, see], ["seen:it"], {"off:lamp": True}, failing(see=["permanent"] * 9))
    assert isinstance(run.to_the_end(GoalPlanner()), Ask)
    assert len(run.failed) == 1


def test_what_may_have_happened_is_not_done_again():
    """Unless it may be done twice."""
    lost = Failure("timeout", "nobody saw", effect="unknown")
    once = Does("once", (), ("done",))
    run = Run([once], ["done"], attempt=failing(once=[lost]))
    asked = run.to_the_end(GoalPlanner())
    assert isinstance(asked, Ask)
    assert "may have happened" in asked.question
    twice = Does("twice", (), ("done",), more={"idempotent": True})
    run = Run([twice], ["done"], attempt=failing(twice=[lost]))
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)


def test_a_broken_promise_takes_the_fact_away():
    """A check that fails after something was changed: what was true is so no longer."""
    both = Does("both", ("seed",), ("left", "right"), more={"idempotent": True})
    half = Does("half", ("seed",), ("left",))
    use = Does("use", ("left", "right"), ("done",))
    bad = Failure("criteria_unmet", "half of it is missing", effect="done")
    run = Run([both, half, use], ["done"], {"seed": 1}, failing(both=[bad]))
    run.have, run.facts = {"seed": 1, "left": 0}, {"seed", "left"}
    run.ask(GoalPlanner())
    run.settle("both")
    run.facts.discard("left")
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)
    assert run.steps["use"]["parameters"]["left"] == "${{ steps.both-2.data.left }}"


def test_a_recommendation_is_followed_when_it_makes_the_better_way():
    """Half the price: 1.5 against 2 after one failure; the next decision says so."""
    run = Run(LINE, ["raw"], {**TOPIC, "key": "k"}, failing(fetch=["transient"] * 9))
    first(run)
    run.settle("fetch")
    run.recommendations.append("use mirror")
    decision = run.ask(GoalPlanner())
    assert [step["worker"] for step in decision.steps] == ["mirror"]
    assert 'followed "use mirror"' in decision.because


def test_a_recommendation_that_cannot_be_followed_is_declined_with_the_reason():
    """It never bypasses needs."""
    run = Run(LINE, ["raw"], TOPIC, failing(fetch=["transient"]))
    first(run)
    run.settle("fetch")
    run.recommendations += ["use mirror", "use magic", "do not use fetch"]
    decision = run.ask(GoalPlanner())
    assert [step["worker"] for step in decision.steps] == ["fetch"]
    assert 'declined "use mirror": it lacks' in decision.because
    assert 'declined "use magic": there is no such worker' in decision.because
    assert "do not" not in decision.because


def test_needs_info_is_answered_from_a_fact():
    """The parameter the worker asks for is filled from what is there, or made."""
    ask = Does("ask", (), ("answer",), optional=("region",))
    find = Does("find", (), ("region",))
    info = Failure("needs_info", "Which region?")
    run = Run([ask, find], ["answer"], attempt=failing(ask=[info]))
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)
    assert run.done == ["find", "ask"]
    assert run.steps["ask-2"]["parameters"] == {"region": "${{ steps.find.data }}"}


def test_needs_info_that_nobody_has_is_asked_of_a_person():
    """And the answer is used."""
    ask = Does("ask", (), ("answer",), optional=("region",))
    run = Run([ask], ["answer"], attempt=failing(ask=[Failure("needs_info", "Which region?")]))
    asked = run.to_the_end(GoalPlanner())
    assert isinstance(asked, Ask)
    assert "no worker gives region" in asked.question
    answer = {"question": asked.question, "choice": "give", "text": "EU", "data": None}
    run.answers.append(answer | {"facts": ["region"], "at": 0})
    run.facts.add("region")
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)
    assert run.steps["ask-2"]["parameters"] == {"region": "EU"}


# --- no way ----------------------------------------------------------------------------------


def test_no_way_is_explained_down_to_what_nobody_gives():
    """The sentence of the manual."""
    asked = first(Run([CLEAN, Does("sum_up", ("table",), ("summary",))], ["summary"]))
    assert asked.question == (
        "There is no way to summary: summary needs table; clean gives table but needs raw; "
        "no worker gives raw. Can you give raw?"
    )
    assert asked.choices == ("give", "stop")


def test_an_answer_with_data_is_used_and_asked_for_once_only():
    """Data makes the fact true; without it the run ends with the same reason."""
    run = Run([CLEAN], ["table"])
    asked = first(run)
    answer = {"question": asked.question, "choice": "give", "text": "", "actor": "Ann"}
    answer |= {"facts": ["raw"], "at": 0}
    run.answers.append(answer | {"data": None})
    assert run.ask(GoalPlanner()).reason == "table needs raw; no worker gives raw"
    run.answers[0] = answer | {"data": [1, 2]}
    run.facts.add("raw")
    assert run.ask(GoalPlanner()).steps[0]["parameters"] == {"raw": [1, 2]}
    run.answers[0] = answer | {"choice": "stop", "data": None, "facts": []}
    assert run.ask(GoalPlanner()).reason == "Ann said to stop"


def test_a_person_may_say_that_it_is_to_be_tried_again():
    """What failed before the question no longer counts."""
    run = Run([FETCH], ["raw"], TOPIC, failing(fetch=["permanent"]))
    asked = run.to_the_end(GoalPlanner())
    assert "fetch gives raw but failed on this input (permanent" in asked.question
    assert asked.choices == ("give", "retry", "stop")
    run.answers.append({"question": asked.question, "choice": "retry", "text": "", "data": None})
    assert isinstance(run.to_the_end(GoalPlanner()), Finish)


def test_facts_that_exclude_each_other_are_proved_impossible():
    """Nobody is asked: no answer would help."""
    go = [
        Does("left", ("at:middle",), ("at:left",), drops=("at:middle",)),
        Does("right", ("at:middle",), ("at:right",), drops=("at:middle",)),
    ]
    decision = first(Run(go, ["at:left", "at:right"], {"at:middle": True}))
    assert decision.reason == ("it is impossible: at:left and at:right can never be true together")


def test_what_the_search_does_not_know_it_says():
    """A budget in nodes ends in an honest answer."""
    turn = [Does(f"t{i}", (f"a:{i}", "key:x"), (f"b:{i}",), drops=("key:x",)) for i in range(6)]
    back = [Does(f"k{i}", (f"b:{i}",), ("key:x",), drops=(f"b:{i}",)) for i in range(6)]
    have = {**{f"a:{i}": True for i in range(6)}, "key:x": True}
    run = Run([*turn, *back], ["b:0", "b:1", "b:2"], have)
    decision = asyncio.run(GoalPlanner(nodes_max=2).decide(run.view()))
    assert isinstance(decision, GiveUp)


def test_while_something_is_under_way_nothing_is_given_up():
    """It may still give what is missing."""
    run = Run([FETCH, Does("other", ("topic",), ("more",))], ["raw", "more"], TOPIC)
    run.attempt = failing(fetch=["permanent"])
    first(run)
    run.settle("fetch")
    decision = run.ask(GoalPlanner())
    assert isinstance(decision, Wait)
    assert decision.because.startswith("waiting for other; ")
    run.settle("other")
    assert isinstance(run.ask(GoalPlanner()), Ask)


def test_what_would_pass_the_budget_is_not_proposed():
    """One step that is too dear, and a way that is in all."""
    dear = [Does("a", (), ("x",), cost=9)]
    decision = first(Run(dear, ["x"], budget=5))
    assert decision.reason == "a gives x but costs 9, and 5 is left"
    way = [Does("a", (), ("x",), cost=3), Does("b", ("x",), ("y",), cost=3)]
    decision = first(Run(way, ["y"], budget=5))
    assert decision.reason == (
        "no way costs as little as is left of the budget, 5; the cheapest one found costs 6"
    )


def test_a_goal_without_facts_is_no_goal_for_it():
    """It cannot read sentences."""
    assert "names no fact" in first(Run(LINE, [])).reason


# --- loops and restarts ----------------------------------------------------------------------


def test_standing_still_twice_is_stuck():
    """The same facts, the same failures, nothing under way: a refused proposal, say."""
    run = Run(LINE, ["summary"], TOPIC)
    decision = asyncio.run(GoalPlanner().decide(run.view()))
    run.notes, run.findings = decision.notes, ("it is too risky",)
    stuck = asyncio.run(GoalPlanner().decide(run.view()))
    assert isinstance(stuck, Wait), "refused often enough, a person is asked"
    assert stuck.because == (
        "stuck: nothing has changed since the last decision; "
        "the last proposal was refused: it is too risky"
    )
    run.notes = stuck.notes
    run.findings = (f"it waits, and nothing is under way ({stuck.because})",)
    again = asyncio.run(GoalPlanner().decide(run.view()))
    assert again.because == stuck.because, "the reason is told once"


def test_a_new_planner_decides_as_the_old_one_would():
    """Nothing is kept but the notes: a fresh planner at every call gives the same run."""
    attempt = ["transient", "transient", "unavailable"]
    old = Run(LINE, ["summary"], {**TOPIC, "key": "k"}, failing(fetch=list(attempt)))
    one = GoalPlanner()
    old.to_the_end(one)
    new = Run(LINE, ["summary"], {**TOPIC, "key": "k"}, failing(fetch=list(attempt)))
    while not isinstance(decision := new.ask(GoalPlanner()), Finish):
        assert isinstance(decision, Propose)
        for name in [n for n, status in new.status.items() if status == "running"]:
            new.settle(name)
    assert new.decisions == old.decisions


def test_the_last_plan_is_kept_unless_a_new_one_is_clearly_cheaper():
    """Two equal ways: the one that was shown stays."""
    ways = [
        Does("start", (), ("s",)),
        Does("b_way", ("s",), ("goal",), cost=1),
        Does("a_way", ("s",), ("goal",), cost=1.02),
    ]
    run = Run(ways, ["goal"])
    assert first(run).outlook[0]["worker"] == "b_way"
    run.outlook = [{"worker": "a_way"}]
    run.settle("start")
    assert run.ask(GoalPlanner()).steps[0]["worker"] == "a_way"


def test_a_worker_that_is_left_alone_is_passed_over_where_there_is_another_way():
    """Without one its step is proposed all the same, and waits: nobody is asked for nothing."""
    view = Run(LINE, ["summary"], {**TOPIC, "key": "k"}).view()
    away = replace(view, barred={"fetch": "fails again and again"})
    (step,) = asyncio.run(GoalPlanner().decide(away)).steps
    assert step["worker"] == "mirror"
    alone = replace(Run(LINE, ["summary"], TOPIC).view(), barred={"fetch": "fails"})
    (step,) = asyncio.run(GoalPlanner().decide(alone)).steps
    assert step["worker"] == "fetch"
