"""Facts: what is promised, what is true, and what is wanted at the end."""

import pytest

from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.facts import (
    ANSWER,
    broken_promises,
    facts_in_answer,
    initial_facts,
    is_flag,
    missing_facts,
    true_facts,
    unfit_answer,
    unmet_flags,
    wanted_values,
)
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.model import Goal
from leadhand.core.policy import Policy
from leadhand.core.promises import as_names, facts_given
from leadhand.core.views.run import goal_of
from leadhand.errors import UsageError
from tests.core.driver import SECOND, WORKERS, Drive, propose, spec, step

GIVES = spec("maker", gives=("table",))
DROPS = spec("eater", gives=("crumbs",), drops=("table",))
CATALOG = [*WORKERS, GIVES, DROPS]


def wanting(*want, have=None):
    """A goal as it is logged."""
    return {"text": "g", "want": list(want), "have": have or {}}


def drive(*steps, want=("table",), **more):
    """A run with a goal that wants something."""
    return Drive(*steps, catalog=CATALOG, goal=wanting(*want), **more)


# Words.


def test_a_colon_makes_a_flag():
    """Any other name carries data."""
    assert is_flag("approved:table")
    assert not is_flag("table")


@pytest.mark.parametrize(
    ("value", "found"),
    [(None, ()), ("", ("",)), ("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (("a",), ("a",))],
)
def test_one_or_several(value, found):
    """A field that holds one name or a list of them."""
    assert as_names(value) == found


def test_a_step_gives_no_more_than_its_worker():
    """It may give less, and nothing at all; more only where people allowed it."""
    offer = Offer(gives=("table", "x"))
    assert facts_given({}, offer) == ("table", "x")
    assert facts_given({}, None) == ()
    assert facts_given({"gives": []}, offer) == ()
    assert facts_given({"gives": "x"}, offer) == ("x",)
    assert facts_given({"gives": ["x", "y"]}, offer) == ("x",)
    assert facts_given({"gives": ["x", "y"]}, None) == ()
    assert facts_given({"gives": ["x", "y"]}, None, widened=True) == ("x", "y")


# Promises.

NONE = "it promised {}, and gave none"
NOT_SO = "it says that {} is not so"

PROMISES = [
    (["t"], [1], []),
    (["t"], {}, []),  # an empty table is a table
    (["t"], 0, []),
    (["t"], False, []),
    (["t"], "", []),
    (["t"], None, [NONE.format("t")]),
    (["t"], {"t": None}, []),  # one artefact is all of the data
    (["t", "u"], {"t": 1, "u": 2}, []),
    (["t", "u"], {"t": 1}, [NONE.format("u")]),
    (["t", "u"], {"t": 1, "u": None}, [NONE.format("u")]),
    (["t", "u"], {"t": 0, "u": False}, []),
    (["t", "u"], None, [NONE.format("t"), NONE.format("u")]),
    (["t", "u"], [1, 2], [NONE.format("t"), NONE.format("u")]),
    (["ok:t"], None, []),
    (["ok:t"], True, []),
    (["ok:t"], False, [NOT_SO.format("ok:t")]),
    (["ok:t", "ok:u"], False, [NOT_SO.format("ok:t"), NOT_SO.format("ok:u")]),
    (["ok:t"], 0, []),  # only False says no
    (["ok:t"], {"ok:t": False}, [NOT_SO.format("ok:t")]),
    (["ok:t"], {"ok:t": 0}, []),
    (["ok:t"], {"ok:t": True}, []),
    (["ok:t"], {"other": False}, []),
    (["t", "ok:t"], [1], []),
    (["t", "ok:t"], None, [NONE.format("t")]),
    (["t", "ok:t"], False, []),  # the table is False, and nothing is said of the flag
    (["t", "ok:t"], {"ok:t": False}, [NOT_SO.format("ok:t")]),
    (["t", "u", "ok:t"], {"t": 1, "ok:t": False}, [NONE.format("u"), NOT_SO.format("ok:t")]),
    ([], None, []),
    ([], False, []),
]


@pytest.mark.parametrize(("promised", "data", "found"), PROMISES)
def test_promises(promised, data, found):
    """One artefact is the data, several are its fields; a flag is so unless it is denied."""
    assert broken_promises(promised, data) == found


# What is true.


def test_what_was_there_is_true():
    """What the goal has, and what the run was started with."""
    run = drive(step("a"), params={"topic": "x"})
    goal = Goal(text="", want=("t",), have={"raw": 1})
    assert true_facts(run.state, goal) == {"raw": "have", "topic": "have"}


def test_success_makes_facts_and_ends_them():
    """In the order the steps ended; a step that has not succeeded gives nothing."""
    run = drive(step("a", worker="maker"), step("b", "a", worker="eater"), step("c", "b"))
    goal = goal_of(run.state)
    assert true_facts(run.state, goal) == {}
    run.done("a", data=[1])
    assert true_facts(run.state, goal) == {"table": "a"}
    run.later(1).done("b", data=[1])
    assert true_facts(run.state, goal) == {"crumbs": "b"}


@pytest.mark.parametrize("widened", [False, True])
def test_a_steps_own_words_on_what_it_gives_and_drops(widened):
    """It drops no less than its worker and gives no more, unless people allowed that."""
    steps = (
        step("a", worker="maker"),
        step("b", "a", worker="eater", drops=[], gives="x"),
        step("c", "b", drops="x", gives=["y", "z"]),
    )
    run = drive(*steps)
    for each in run.state.steps.values():
        each.widened = widened
    run.done("a", data=1).later(1).done("b", data=1)
    found = true_facts(run.state, goal_of(run.state))
    assert found == ({"table": "a", "x": "b"} if widened else {})
    run.later(1).done("c", data={"y": 1, "z": 2})
    found = true_facts(run.state, goal_of(run.state))
    assert found == ({"table": "a", "y": "c", "z": "c"} if widened else {})


def test_the_last_giver_counts():
    """By when it ended, and of two that ended together by its place in the plan."""
    run = drive(step("a", worker="maker"), step("b", worker="maker"), want=())
    run.done("b").later(1).done("a")
    assert true_facts(run.state, goal_of(run.state)) == {"table": "a"}
    run = drive(step("a", worker="maker"), step("b", worker="maker"), want=())
    run.done("b").done("a")
    assert true_facts(run.state, goal_of(run.state)) == {"table": "b"}


def test_what_is_dropped_and_given_at_once_is_there():
    """A worker that makes it anew."""
    run = drive(step("a", worker="maker", drops="table")).done("a")
    assert true_facts(run.state, goal_of(run.state)) == {"table": "a"}


def test_missing_facts_are_named_one_by_one():
    """In the order they are wanted; without wants nothing is looked at."""
    run = drive(step("a", worker="maker"), want=("x", "table", "y"))
    words = "{} is wanted, and nothing has given it"
    goal = goal_of(run.state)
    assert missing_facts(run.state, goal) == [words.format(each) for each in ("x", "table", "y")]
    run.done("a", data=1)
    assert missing_facts(run.state, goal) == [words.format(each) for each in ("x", "y")]
    assert missing_facts(run.state, Goal(text="")) == []


# The end of a run.


def test_a_plan_that_does_not_give_what_is_wanted_has_failed():
    """All its steps succeeded, and the goal is not met."""
    run = drive(step("a")).news_start().done("a")
    checked = run.last(ev.GoalChecked)
    assert (checked.met, checked.findings) == (
        False,
        ["table is wanted, and nothing has given it"],
    )
    assert run.ended == "failed"
    words = "the goal is not met: table is wanted, and nothing has given it"
    assert run.state.ended.reason.startswith(words)


def test_a_plan_that_gives_it_succeeds_without_a_check():
    """There is nothing to say."""
    run = drive(step("a", worker="maker")).done("a", data=1)
    assert (run.ended, run.all(ev.GoalChecked)) == ("succeeded", [])


def test_what_was_there_from_the_start_needs_no_step():
    """A goal that has what it wants."""
    goal = wanting("table", have={"table": [1]})
    run = Drive(step("a"), catalog=CATALOG, goal=goal).done("a")
    assert run.ended == "succeeded"


def test_acceptance_is_checked_once_the_facts_are_there():
    """First what is wanted, then what must hold of it."""
    goal = {**wanting("table"), "acceptance": ["result == 1"]}
    run = Drive(step("a"), catalog=CATALOG, goal=goal).done("a")
    assert run.ended == "failed"
    run = Drive(step("a", worker="maker"), catalog=CATALOG, goal=goal).done("a", data=1)
    assert run.ended is None
    assert run.say(ev.GoalChecked(True)).ended == "succeeded"


def test_a_planner_hears_what_is_missing():
    """And may still give it; its word that all is done does not count."""
    run = drive(step("a"), replans=True).done("a")
    why = "surprise: the goal is not met: table is wanted, and nothing has given it"
    assert run.last(ev.PlannerAsked).why == why
    assert run.state.planner.findings == ["table is wanted, and nothing has given it"]
    run.answer(propose(step("b", worker="maker"))).done("b", data=1)
    assert run.ended == "succeeded"


@pytest.mark.parametrize(
    "answer", [{"kind": "finish", "result": 1}, {"kind": "propose", "steps": [], "final": True}]
)
@pytest.mark.parametrize("most", [1, 3])
def test_a_planner_that_insists_is_not_asked_for_ever(answer, most):
    """It says that all is done, again and again, and brings nothing."""
    policy = Policy(jitter=0.0, planner_rounds_max=most, no_input=True)
    run = drive(step("a"), replans=True, policy=policy).done("a")
    for _ in range(most - 1):
        assert run.ended is None
        run.answer(answer)
    assert run.ended == "failed"
    assert len(run.all(ev.GoalChecked)) == most
    times = f" {most} times in a row" if most > 1 else ""
    words = f"the planner failed{times}: table is wanted, and nothing has given it"
    assert run.state.ended.reason.startswith(words)


def test_something_new_starts_the_count_again():
    """A planner that adds or takes out steps has not answered with nothing."""
    policy = Policy(jitter=0.0, planner_rounds_max=2)
    run = drive(step("a"), replans=True, policy=policy).done("a")
    for ident in "bcd":
        assert run.state.planner.rounds == 1
        run.answer(propose(step(ident)))
        assert run.state.planner.rounds == 0
        run.done(ident)
    run.answer(propose(step("e", worker="maker"))).done("e", data=1)
    assert run.ended == "succeeded"


def test_a_goal_that_was_met_is_not_looked_at_again():
    """Once checked is enough."""
    goal = {**wanting("table"), "acceptance": ["True"]}
    run = Drive(step("a", worker="maker"), catalog=CATALOG, goal=goal).done("a", data=1)
    run.tell(ev.GoalChecked(True))
    run.state.steps["a"].status = "failed"
    assert run.go().ended == "succeeded"


def gated(**more):
    """A run whose planner may replan, with a worker behind a gate and one that opens it."""
    workers = [
        spec("w"),
        spec("checker", gives=("approved:table",)),
        spec("behind", needs=("approved:table",)),
    ]
    return Drive(bare=True, catalog=workers, replans=True, **more).go()


def test_no_planner_goes_round_a_gate():
    """A step whose worker needs a flag starts only when that is true, or given before it."""
    behind = step("b", worker="behind")
    for claim in ({}, {"needs": []}, {"parameters": {"approved:table": True}}):
        run = gated().answer(propose({**behind, **claim}, final=False))
        (finding,) = run.state.planner.findings
        assert finding == "b needs approved:table, and nothing it waits for gives it"
        assert not run.state.steps
    run = gated().answer(propose(step("c", worker="checker"), behind, final=False))
    assert run.state.planner.findings, "side by side is not before"
    far = step("d", "m", worker="behind")
    run = gated()
    run.answer(propose(step("c", worker="checker"), step("m", "c"), far, final=False))
    run.done("c", data=True).done("m").done("d").answer(propose(behind))
    assert run.done("b").ended == "succeeded"


def test_a_gate_is_opened_by_the_goal_or_by_a_person():
    """What is given with the goal is true, and so is what a person gave, as asked."""
    behind = step("b", worker="behind")
    goal = {"text": "g", "have": {"approved:table": True}}
    assert gated(goal=goal).answer(propose(behind)).running == ["b"]
    run = gated()
    facts = ["approved:table"]
    run.answer({"kind": "ask", "question": "?", "choices": ["give"], "facts": facts})
    for no in ({"text": "yes"}, {"data": False}, {"data": "no"}, {"data": {"approved:table": 0}}):
        with pytest.raises(UsageError, match="only `true` gives it"):
            run.reply("give", **no)
    run.reply("give", data=True).answer(propose(behind))
    assert run.running == ["b"]
    goal = {"text": "g", "have": {"approved:table": False}}
    assert gated(goal=goal).answer(propose(behind)).running == []


def test_a_gate_that_has_closed_again_keeps_a_step_from_starting():
    """What was to give the flag failed, was replaced or was tolerated; or the plan denies it."""
    behind = step("b", {"step": "c", "if": "finished"}, worker="behind", failure_action="escalate")
    run = gated().answer(propose(step("c", worker="checker", failure_action="continue"), behind))
    assert "nothing it waits for gives it" in run.state.planner.findings[0]
    steps = (step("c", worker="checker"), step("b", "c", worker="behind"))
    run = gated().answer(propose(*steps)).fail("c", "permanent")
    run.answer(propose(step("w", supersedes="c"), final=False))
    assert "does not give approved:table, and b waits for it" in run.state.planner.findings[0]
    doc = step("b", worker="behind", needs=[])
    linted = digest(canonical([doc]))
    document = Drive(doc, catalog=[spec("behind", needs=("ok:x",))], linted=linted)
    reason = "it needs ok:x, which is not true: a step before it, or a person, must give that"
    assert document.last(ev.StepRefused) == ev.StepRefused("b", "permanent", reason)
    assert check(document.log) == []


def test_an_answer_of_zero_or_no_is_an_answer():
    """Of a fact with data everything but nothing counts."""
    for value in (0, False, "", []):
        run = Drive(bare=True, goal={"text": "g", "want": ["n"]}, replans=True).go()
        run.answer({"kind": "ask", "question": "?", "facts": ["n"]})
        run.reply("give", data={"n": value}).answer({"kind": "finish"})
        assert run.ended == "succeeded", value
        assert check(run.log) == []


def test_a_broken_promise_takes_a_flag_away():
    """Also one that the plan tolerates: what was approved is no longer."""
    workers = [spec("checker", gives=("ok:x",))]
    goal = {"text": "g", "want": ["ok:x"]}
    tolerant = step("d", "c", worker="checker", failure_action="continue")
    run = Drive(step("c", worker="checker"), tolerant, catalog=workers, goal=goal)
    run.later(1).done("c", data=True).later(1).fail("d", "criteria_unmet")
    assert run.ended == "failed"
    assert check(run.log) == []


@pytest.mark.parametrize(
    ("facts", "value", "wrong"),
    [
        (["report", "signed:yes"], {"title": "t"}, ""),
        (["report", "signed:yes"], {"report": "r", "signed:yes": False}, "signed:yes is so or not"),
        (["report", "signed:yes"], {"report": "r"}, ""),
        (["signed:yes"], {"signed:yes": True}, ""),
        (["signed:yes"], {"other": False}, "is not what is asked for"),
        (["signed:yes"], "yes", "signed:yes is so or not"),
    ],
)
def test_what_a_person_gives_is_what_was_asked_for(facts, value, wrong):
    """A document that names none of the facts is the one artefact itself."""
    assert wrong in unfit_answer(facts, value)
    assert bool(unfit_answer(facts, value)) == bool(wrong)


@pytest.mark.parametrize(
    ("facts", "value", "wrong"),
    [
        (["report", "signed:yes"], "text", ""),
        (["report", "signed:yes"], {"report": 1, "other": 2}, '"other" is not what is asked for'),
        (["report"], {"reprot": 1}, '"reprot" is not what is asked for'),
        (["report"], {"title": 1}, ""),
        (["a", "b"], {}, "nothing is given"),
        (["a", "b"], 7, "a single value cannot be all of them"),
    ],
)
def test_why_what_a_person_gives_is_not_it(facts, value, wrong):
    """In words for whoever gave it."""
    assert unfit_answer(facts, value) == wrong


def test_what_was_given_beforehand_may_be_nothing_much():
    """Data counts whatever it is; a flag that is said not to be so is none."""
    assert initial_facts({"n": 0, "text": "", "ok:x": False, "ok:y": True}) == ["n", "text", "ok:y"]


@pytest.mark.parametrize(("at", "true"), [(1, False), (2, True), (3, True)])
def test_what_a_person_gave_counts_from_then_on(at, true):
    """A step that ended later may have used it up; one that ended before has not."""
    run = drive(step("e", worker="eater")).later(2)
    run.state.answers = [
        {"facts": ["table"], "data": 1, "text": "", "at": at * SECOND},
        {"facts": ["late"], "data": 1, "text": "", "at": 9 * SECOND},
    ]
    run.tell(ev.AttemptReported("e", 1, run.state.in_flight["e"], True))
    found = {"crumbs": "e", "late": ANSWER} | ({"table": ANSWER} if true else {})
    assert true_facts(run.state, Goal()) == found


@pytest.mark.parametrize(
    ("kind", "effect", "action", "true"),
    [
        ("criteria_unmet", "none", "continue", {"data"}),
        ("invalid_output", "done", "continue", set()),
        ("invalid_output", None, "continue", {"data"}),
        ("permanent", "done", "continue", {"data", "ok:x"}),
        ("criteria_unmet", "done", "escalate", {"data", "ok:x"}),
    ],
)
def test_what_a_broken_promise_makes_untrue(kind, effect, action, true):
    """Flags, and data where something was touched; not before the step has ended."""
    workers = [spec("maker", gives=("data", "ok:x"))]
    again = step("b", "a", worker="maker", failure_action=action)
    run = Drive(step("a", worker="maker"), again, step("z", "a"), catalog=[*workers, *WORKERS])
    run.done("a", data=1).later(1)
    why = {"class": kind, "message": "no"} | ({"effect": effect} if effect else {})
    run.report("b", met=False, failure=why)
    assert set(true_facts(run.state, Goal())) == true


@pytest.mark.parametrize(
    ("facts", "data", "text", "given"),
    [
        (["a"], 7, "", {"a": 7}),
        (["a"], None, "words", {"a": "words"}),
        (["a"], None, "", {}),
        (["a"], {"b": 1}, "", {"a": {"b": 1}}),
        (["a"], {"a": 1}, "", {"a": 1}),
        (["a", "b"], {"a": 1}, "", {"a": 1}),
        (["a", "b"], {"a": None, "b": 2}, "words", {"b": 2}),
        (["a", "b"], 7, "", {}),
        (["ok:x"], True, "", {"ok:x": True}),
        (["ok:x"], "no", "", {}),
        (["a", "ok:x"], {"a": 1, "ok:x": True}, "", {"a": 1, "ok:x": True}),
        (["a", "ok:x"], {"a": 1, "ok:x": 1}, "", {"a": 1}),
        (["a", "ok:x"], {"ok:x": True}, "", {"ok:x": True}),
    ],
)
def test_what_an_answer_gives(facts, data, text, given):
    """By name, or the one artefact as it is; of a flag only that it is so."""
    assert facts_in_answer({"facts": facts, "data": data, "text": text}) == given


def test_the_values_of_what_is_wanted():
    """From the step that gave it, from a person, or as it was there from the start."""
    workers = [spec("one", gives=("single", "ok:s")), spec("two", gives=("left", "right"))]
    goal = Goal(
        want=["single", "ok:s", "left", "p", "h", "ok:h", "said", "missing"],
        have={"h": 4, "ok:h": True},
    )
    run = Drive(
        step("a", worker="one"), step("b", worker="two"), step("z"), catalog=[*workers, *WORKERS]
    )
    run.state.params = {"p": 0}
    run.done("a", data=1).done("b", data={"left": 2, "right": 3})
    run.state.answers = [
        {"facts": ["said"], "data": 5, "text": "", "at": 1},
        {"facts": ["said"], "data": 6, "text": "", "at": 2},
        {"facts": ["other"], "data": 7, "text": "", "at": 3},
        {"facts": ["said", "more"], "data": {"more": 8}, "text": "", "at": 4},
    ]
    found = wanted_values(run.state, goal, lambda giver: giver.data)
    assert found == {
        "single": 1,
        "ok:s": True,
        "left": 2,
        "p": 0,
        "h": 4,
        "ok:h": True,
        "said": 6,
    }
    run.state.steps["b"].data = "no fields"
    assert wanted_values(run.state, goal, lambda giver: giver.data)["left"] is None


def test_a_value_that_is_stored_apart_is_named():
    """Until somebody loads it; of several artefacts with the way to the one that is wanted."""
    workers = [spec("two", gives=("left", "right"))]
    run = Drive(step("b", worker="two"), step("z"), catalog=[*workers, *WORKERS])
    run.done("b", data_ref="sha256:1")
    goal = Goal(want=["left"])
    named = {"$artifact": "sha256:1"}
    found = wanted_values(run.state, goal, lambda _giver: named)
    assert found == {"left": {"$artifact": "sha256:1", "path": ["left"]}}
    found = wanted_values(run.state, goal, lambda _giver: {"left": 2})
    assert found == {"left": 2}
    run.state.steps["b"].data_ref = ""
    found = wanted_values(run.state, goal, lambda _giver: {"$artifact": ""})
    assert found == {"left": None}


def test_a_gate_opens_with_what_comes_before():
    """Also with a step that is in the plan already, and that another one waits for."""
    catalog = [
        spec("checker", gives=("ok:x",)),
        WorkerSpec(name="behind", offers={"go": Offer(needs=("ok:x",)), "": Offer()}),
        spec("w"),
    ]
    run = Drive(step("k", worker="checker"), step("mid", "k"), catalog=catalog)
    goal = Goal()
    through = step("b", "mid", worker="behind", action="go")
    past = step("c", worker="behind", action="go")
    assert unmet_flags(run.state, [through], goal) == []
    assert unmet_flags(run.state, [step("b", worker="behind")], goal) == []
    assert (
        unmet_flags(run.state, [step("n", "k"), step("b", "n", worker="behind", action="go")], goal)
        == []
    )
    (finding,) = unmet_flags(run.state, [through, past], goal)
    assert finding == "c needs ok:x, and nothing it waits for gives it"


def test_no_step_opens_its_own_gate():
    """Nor does one that only claims to; an action gives what it offers."""
    catalog = [
        spec("selfish", gives=("ok:x",), needs=("ok:x",)),
        WorkerSpec(name="checker", offers={"go": Offer(gives=("ok:x",)), "": Offer()}),
        spec("behind", needs=("ok:x",)),
        spec("w"),
    ]
    run = Drive(step("k", gives=["ok:x"]), step("z"), catalog=catalog)
    behind = step("b", "k", worker="behind")
    assert unmet_flags(run.state, [step("a", worker="selfish")], Goal()) != []
    assert unmet_flags(run.state, [behind], Goal()) != []
    run.state.steps["k"].widened = True
    assert unmet_flags(run.state, [behind], Goal()) == []
    for action, opens in (("go", True), ("", False)):
        first = step("c", worker="checker", action=action)
        found = unmet_flags(run.state, [first, step("d", "c", worker="behind")], Goal())
        assert (found == []) is opens
