"""Steps that a person does: a question, a report that is judged, and what becomes of silence."""

import pytest

from leadhand.core import events as ev
from leadhand.core.decide.effects import Notify
from leadhand.core.views.run import run_status, task_text
from leadhand.errors import UsageError
from tests.core.driver import SECOND, WORKERS, Drive, fold, propose, spec, step

HAND = spec("hand", kind="human", idempotent=True)
SLOW = spec("slow", kind="human", idempotent=True, timeout_s=60.0)
CATALOG = [*WORKERS, HAND, SLOW]


def drive(*steps, **more):
    """A run that knows people."""
    return Drive(*steps, catalog=CATALOG, **more)


def test_a_step_for_a_person_is_a_question():
    """Nobody is called, nothing is in flight, and whoever listens is told."""
    run = Drive(step("a", worker="hand", description="Read it."), catalog=CATALOG, bare=True)
    run.go().answer(propose(step("a", worker="hand", description="Read it.")))
    asked = run.last(ev.QuestionAsked)
    assert (asked.id, asked.kind, asked.step, asked.attempt) == ("q1", "task", "a", 1)
    assert asked.choices == ["done", "cannot"]
    assert asked.text == "Task a: Read it. Answer done, or cannot."
    assert (asked.default, asked.until) == ("", 0)
    assert run.effects[-1] == Notify("waiting", asked.text)
    assert (run.status("a"), run.running) == (["asking"], [])
    assert run_status(run.state) == "waiting"
    assert run.state.steps["a"].attempts == 0


def test_done_is_a_report_that_is_judged():
    """The attempt begins with the answer; the verdict comes from the engine as for anybody."""
    run = drive(step("a", worker="hand"), step("b", "a"))
    run.news_start().reply("done", data={"x": 1})
    assert run.news == ["QuestionAnswered", "start a 1 hand"]
    assert run.running == ["a"]
    assert run.status("b") == ["waiting"]
    run.done("a", data={"x": 1})
    assert run.status() == ["succeeded", "running"]


def test_what_does_not_hold_is_asked_again():
    """With what was wrong the last time; a person's word alone makes nothing true."""
    run = drive(step("a", worker="hand", description="Count."))
    run.reply("done", data=3).fail("a", "criteria_unmet", "done", message="data > 5 does not hold")
    assert run.last(ev.RecoveryDecided).strategy == "retry"
    run.later(10)
    asked = run.last(ev.QuestionAsked)
    assert (asked.id, asked.kind, asked.attempt) == ("q2", "task", 2)
    assert "Last time: data > 5 does not hold." in asked.text
    run.reply("done", data=6).done("a", data=6)
    assert run.ended == "succeeded"


def test_who_cannot_has_failed_for_good():
    """Nothing is tried again by itself: the failure action, the planner, or a person."""
    run = drive(step("a", worker="hand", failure_action="abort")).reply("cannot", text="no key")
    assert run.last(ev.RecoveryDecided).failure_class == "permanent"
    assert run.last(ev.RecoveryDecided).reason == "no key"
    assert run.ended == "failed"
    run = drive(step("a", worker="hand"), replans=True).reply("cannot")
    assert run.last(ev.RecoveryDecided).strategy == "replan"
    assert run.state.steps["a"].reason == "ann cannot do it"
    assert run.state.steps["a"].failure["effect"] == "none"
    run = drive(step("a", worker="hand")).reply("cannot").news_start().reply("retry")
    assert run.news == ["QuestionAnswered", "ask q3 a"]
    assert run.last(ev.QuestionAsked).kind == "task"


@pytest.mark.parametrize(
    ("worker", "own", "until_s"),
    [
        ("hand", {}, None),
        ("slow", {}, 60),
        ("slow", {"timeout": 5}, 5),
        ("hand", {"timeout": 7}, 7),
    ],
)
def test_a_timeout_bounds_the_person(worker, own, until_s):
    """The step's word before its worker's; without either there is no end to patience."""
    run = drive(step("a", worker=worker, failure_action="abort", **own))
    asked = run.last(ev.QuestionAsked)
    if until_s is None:
        assert (asked.default, asked.until) == ("", 0)
        assert run.later(1e7).ended is None
        return
    assert (asked.default, asked.until) == ("cannot", run.now.at + until_s * SECOND)
    assert run.later(until_s - 1).ended is None
    assert run.later(1).ended == "failed"
    answered = run.last(ev.QuestionAnswered)
    assert (answered.choice, answered.actor) == ("cannot", "nobody")
    assert run.last(ev.RecoveryDecided).reason == "no answer came in time"


def test_the_rest_goes_on_meanwhile():
    """Only who depends on it waits."""
    run = drive(step("a", worker="hand"), step("b"), step("c", "b"), step("d", "a"))
    run.done("b").done("c")
    assert run.status() == ["asking", "succeeded", "succeeded", "waiting"]


def test_an_answer_outlives_the_host():
    """What a person did and said is not asked again because a process died."""
    run = drive(step("a", worker="hand")).reply("done", data=1)
    assert run.running == ["a"]
    run.host_again()
    assert run.state.steps["a"].answered
    assert fold(run.log).steps["a"].answered
    assert run.last(ev.RecoveryDecided).strategy == "retry"
    run.news_start().later(10)
    assert run.news == ["start a 2 hand"]
    assert not run.state.steps["a"].answered
    assert len(run.all(ev.QuestionAsked)) == 1


def test_only_people_are_believed_to_have_done_it():
    """A worker whose host died starts anew."""
    run = drive(step("a", worker="safe")).host_again()
    assert not run.state.steps["a"].answered


def test_a_question_that_is_open_when_the_host_dies_stays_open():
    """And is answered as if nothing had been."""
    run = drive(step("a", worker="hand")).host_again()
    assert run.reply("done", data=1).running == ["a"]


def test_a_person_may_stand_in_for_a_worker():
    """Rerouted to, they are asked; and the other way round."""
    run = drive(step("a", retry=1, alternatives=["hand"])).fail("a")
    assert run.last(ev.QuestionAsked).kind == "task"
    assert run.reply("done").running == ["a"]
    run = drive(step("a", worker="hand", alternatives=["other"]))
    run.reply("done").fail("a", "unavailable")
    assert run.last(ev.AttemptStarted).worker == "other"


def test_references_are_shown_and_must_resolve():
    """What it is about stands in the question; what cannot be had fails as for anybody."""
    read = step("b", "a", worker="hand", parameters={"task": "Read", "n": "${{ steps.a.data }}"})
    run = drive(step("a"), read).done("a", data=7)
    text = 'Task b: Read. With: {"n":7}. Answer done, or cannot.'
    assert run.last(ev.QuestionAsked).text == text
    read = step("b", "a", worker="hand", parameters={"n": "${{ steps.a.data.x }}"})
    run = drive(step("a"), read).done("a", data=7)
    assert run.last(ev.StepRefused).failure_class == "permanent"


@pytest.mark.parametrize(
    ("doc", "parameters", "what"),
    [
        ({"description": "Sign it."}, {}, "Sign it."),
        ({}, {"task": "Sign"}, "Sign."),
        ({"action": "sign"}, {}, "sign."),
        ({}, {}, "a."),
        ({"description": "Sign"}, {"task": "Read"}, "Sign."),
        ({"description": "Sign"}, {"page": 3}, 'Sign. With: {"page":3}.'),
    ],
)
def test_how_a_task_is_put(doc, parameters, what):
    """Its description, else the task among its parameters, else its action, else its name."""
    run = drive(step("a", worker="hand", **doc))
    expected = f"Task a: {what} Answer done, or cannot."
    assert task_text(run.state.steps["a"], HAND, parameters) == expected


def test_long_parameters_are_cut():
    """A question is read by people."""
    run = drive(step("a", worker="hand"))
    assert len(task_text(run.state.steps["a"], HAND, {"text": "x" * 9000})) < 2200


CALM = spec("calm", kind="human", idempotent=True, timeout_s=60.0, silence={"n": 0})


@pytest.mark.parametrize("worker", ["calm", "slow"])
def test_silence_that_counts(worker):
    """Who has a default is taken to have done it with that; who has none cannot."""
    run = Drive(step("a", worker=worker), catalog=[*CATALOG, CALM], replans=True)
    asked = run.last(ev.QuestionAsked)
    assert asked.default == ("done" if worker == "calm" else "cannot")
    run.later(60)
    answered = run.last(ev.QuestionAnswered)
    assert (answered.choice, answered.actor) == (asked.default, "nobody")
    assert answered.data == ({"n": 0} if worker == "calm" else None)
    assert run.running == (["a"] if worker == "calm" else [])


def test_who_answers_with_done_brings_their_own():
    """The default is for silence only; so it is for questions of planners called done."""
    run = Drive(step("a", worker="calm"), catalog=[*CATALOG, CALM]).reply("done", data=7)
    assert run.last(ev.QuestionAnswered).data == 7
    run = Drive(catalog=[*CATALOG, CALM], replans=True)
    ask = {"kind": "ask", "question": "?", "choices": ["done", "cannot"], "within_s": 5}
    run.answer({**ask, "default": "done"}).later(5)
    assert (run.last(ev.QuestionAnswered).choice, run.last(ev.QuestionAnswered).data) == (
        "done",
        None,
    )


def test_silence_of_somebody_who_is_gone():
    """A worker that the run does not know any more has nothing to say."""
    run = Drive(step("a", worker="calm"), catalog=[*CATALOG, CALM])
    del run.state.catalog.workers["calm"]
    assert run.later(60).last(ev.QuestionAnswered).data is None


def test_only_what_was_offered_is_an_answer():
    """Neither retry nor skip: it is not a failure."""
    run = drive(step("a", worker="hand"))
    for word in ("retry", "skip", "abort", "approve"):
        with pytest.raises(UsageError, match="is not one of: done, cannot"):
            run.reply(word)


def test_a_run_that_is_cancelled_asks_nobody():
    """The question is gone with the run."""
    run = drive(step("a", worker="hand")).cancel()
    assert (run.ended, run.state.questions) == ("cancelled", {})


def test_a_planner_may_take_the_task_out():
    """A revision that cancels or replaces it closes the question."""
    run = drive(step("a", worker="hand"), step("b"), replans=True, consult="every_report")
    run = Drive(
        catalog=CATALOG,
        replans=True,
        consult="every_report",
        answer=propose(step("a", worker="hand"), step("b"), final=False),
    )
    run.done("b").answer(propose(step("c", supersedes="a")))
    assert (run.state.questions, run.running) == ({}, ["c"])
