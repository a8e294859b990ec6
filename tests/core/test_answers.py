"""Answers by default, and the choice to plan another way."""

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.durations import SECONDS_MAX
from leadhand.core.review.decisions import NOBODY
from leadhand.core.views.run import run_status
from leadhand.errors import Conflict, UsageError
from tests.core.driver import SECOND, WORKERS, Drive, fold, propose, spec, step

PLANNED = {"replans": True}


def asking(*choices, **more):
    """A run whose planner asked something."""
    run = Drive(**PLANNED)
    run.answer({"kind": "ask", "question": "which?", "choices": list(choices), **more})
    return run


# By default.


def test_a_question_without_a_time_waits_for_ever():
    """There is no default, and no timer."""
    run = asking("left", "right", default="left")
    asked = run.last(ev.QuestionAsked)
    assert (asked.default, asked.until) == ("", 0)
    assert run.later(1e6).all(ev.QuestionAnswered) == []
    assert run_status(run.state) == "waiting"


def test_the_default_counts_when_the_time_is_up():
    """Not a moment before; nobody gave it, and the planner hears of it."""
    run = asking("left", "right", default="left", within_s=9.5)
    asked = run.last(ev.QuestionAsked)
    assert (asked.default, asked.until) == ("left", run.now.at + int(9.5 * SECOND))
    assert run_status(run.state) == "running"  # it goes on by itself
    run.news_start().later(9.499_999)
    assert run.news == []
    run.later(0.000_001)
    answered = run.last(ev.QuestionAnswered)
    assert (answered.choice, answered.actor) == ("left", NOBODY)
    assert answered.text == "no answer came in time"
    assert run.news == ["QuestionAnswered", "consult answer"]
    assert run.state.answers[-1]["choice"] == "left"
    assert run.state.questions == {}


def test_who_answers_in_time_is_heard():
    """The timer means nothing then; and who comes too late is told so."""
    run = asking("left", "right", default="left", within_s=5).reply("right").later(10)
    (answered,) = run.all(ev.QuestionAnswered)
    assert (answered.choice, answered.actor) == ("right", "ann")
    run = asking("left", "right", default="left", within_s=5).later(5)
    with pytest.raises(Conflict, match="No open question"):
        commands.answer(run.state, "q1", "right", "ann", run.now)


def test_the_time_survives_a_restart():
    """It stands in the log, and runs on while there is no host."""
    run = asking("left", "right", default="right", within_s=60)
    state = fold(run.log)
    question = state.questions["q1"]
    assert (question.default, question.until) == ("right", run.now.at + 60 * SECOND)
    run.state = state
    run.now = run.now._replace(at=run.now.at + 61 * SECOND)
    assert run.host_again().last(ev.QuestionAnswered).choice == "right"


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"default": "up", "within_s": 1}, True),
        ({"within_s": 1}, True),
        ({"default": "up"}, False),  # it can never count
        ({"default": "left", "within_s": 1}, False),
    ],
)
def test_a_default_is_one_of_the_choices(more, refused):
    """Else the planner is told, and nobody is asked."""
    run = asking("left", "right", **more)
    assert bool(run.all(ev.ProposalRefused)) is refused
    assert bool(run.all(ev.QuestionAsked)) is not refused
    if refused:
        default = more.get("default", "")
        words = f"{default!r}, its default, is none of: left, right"
        assert run.last(ev.ProposalRefused).findings == [words]


def test_silence_gives_no_facts():
    """Only a person can; without a time the default means nothing."""
    run = asking("give", facts=["x"], default="give", within_s=5)
    said = "its default cannot give facts: a person must"
    assert run.last(ev.ProposalRefused).findings == [said]
    run = asking("give", "no", facts=["x"], default="give")
    asked = run.last(ev.QuestionAsked)
    assert (asked.choices, asked.default) == (["give", "no"], "")


def test_an_open_question_may_have_any_default():
    """Without choices every text is an answer."""
    run = asking(default="blue", within_s=2).later(2)
    assert run.last(ev.QuestionAnswered).choice == "blue"


def test_a_time_without_end_has_one():
    """What a planner says is bounded before it is logged."""
    run = asking("a", default="a", within_s=1e300)
    assert run.last(ev.QuestionAsked).until == run.now.at + int(SECONDS_MAX * SECOND)


def test_a_pause_does_not_stop_the_time():
    """The question is answered; what follows waits for the pause to end."""
    run = asking("a", default="a", within_s=5)
    run.hear(commands.pause(run.state, "ann")).news_start().later(5)
    assert run.news == ["QuestionAnswered"]
    assert run.hear(commands.resume(run.state, "ann")).news == ["RunResumed", "consult answer"]


def test_a_run_that_is_over_has_no_questions():
    """Its timers mean nothing."""
    run = asking("a", default="a", within_s=5).cancel().later(10)
    assert (run.ended, run.all(ev.QuestionAnswered)) == ("cancelled", [])


# Another way.


@pytest.mark.parametrize("replans", [False, True])
@pytest.mark.parametrize("unseen", [False, True])
def test_replan_is_a_choice_where_the_planner_can(replans, unseen):
    """Of failures and of outcomes that nobody saw."""
    run = Drive(step("a", failure_action="escalate"), replans=replans)
    run.fail("a", "lost", "unknown") if unseen else run.fail("a", "permanent")
    others = ["retry", "replan", "skip", "abort"] if replans else ["retry", "skip", "abort"]
    assert run.last(ev.QuestionAsked).choices == (["done", *others] if unseen else others)
    if not replans:
        with pytest.raises(UsageError, match='"replan" is not one of'):
            run.reply("replan")


@pytest.mark.parametrize("text", ["", "use the other door"])
def test_the_planner_is_asked_for_another_way(text):
    """It hears who wants it and why; the failed step is its to replace."""
    run = Drive(step("a", failure_action="escalate"), step("b", "a"), **PLANNED)
    run.fail("a", "permanent").news_start().reply("replan", text=text)
    because = "ann wants another way" + (f": {text}" if text else "")
    assert run.news == ["QuestionAnswered", f"consult surprise: step a failed: {because}"]
    assert run.state.steps["a"].reason == because
    assert run.status("a", "b") == ["failed", "waiting"]
    run.answer(propose(step("c", supersedes="a"))).done("c").done("b")
    assert run.ended == "succeeded"


def test_what_the_planner_leaves_out_is_out():
    """It goes on without the step and whoever waited for it."""
    run = Drive(step("a", failure_action="escalate"), step("b", "a"), **PLANNED)
    run.fail("a", "permanent").reply("replan")
    run.answer(propose(step("c"), drop={"a": "c does it"})).done("c")
    assert run.status() == ["failed", "cancelled", "succeeded"]
    assert run.ended == "succeeded"


# Everything else a person may say.


@pytest.mark.parametrize(
    ("choice", "text", "reason"),
    [
        ("skip", "", "skipped by ann"),
        ("skip", "not needed", "skipped by ann: not needed"),
        ("abort", "", "aborted by ann after step a failed: it broke"),
        ("abort", "enough", "aborted by ann after step a failed: it broke (comment: enough)"),
    ],
)
def test_skip_and_abort_say_who_and_why(choice, text, reason):
    """The reason stands in the event that follows."""
    run = Drive(step("a"), step("b")).fail("a", "permanent").news_start()
    answered, follows = run.reply(choice, text=text).events
    assert (answered.choice, answered.text, answered.actor) == (choice, text, "ann")
    kind = ev.StepSkipped if choice == "skip" else ev.StopDecided
    assert (type(follows), follows.reason) == (kind, reason)


def test_abort_of_a_run_that_stops_already_adds_nothing():
    """One decision to stop is enough."""
    run = Drive(step("a"), step("b")).fail("a", "permanent")
    run.cancel()
    run.tell()
    question = run.state.questions["q1"]
    found = commands.answer(run.state, question.id, "abort", "bob", run.now)
    assert [type(event).__name__ for event in found.events] == ["QuestionAnswered"]


def test_a_planners_question_about_no_step_skips_nothing():
    """Choices that happen to be called so are just words."""
    run = asking("skip", "abort").news_start().reply("abort")
    assert run.news == ["QuestionAnswered", "consult answer"]
    run = asking("skip", "abort").news_start().reply("skip")
    assert run.news == ["QuestionAnswered", "consult answer"]


def test_done_brings_what_was_promised():
    """Others may need it: without it nobody can say that it is done."""
    maker = spec("maker", gives=("table", "good:table"))
    run = Drive(step("a", worker="maker"), step("b", "a"), catalog=[*WORKERS, maker])
    run.fail("a", "lost", "unknown")
    with pytest.raises(UsageError, match=r"step a gives table, good:table, .*Fix: give it with"):
        run.reply("done")
    with pytest.raises(UsageError, match="it promised table, and gave none"):
        run.reply("done", text="believe me")
    assert run.status("a") == ["asking"]
    run.reply("done", data=[1, 2])
    assert run.status("a", "b") == ["succeeded", "running"]
    assert run.state.steps["a"].data == [1, 2]


@pytest.mark.parametrize("choice", ["retry", "skip", "abort"])
def test_other_answers_need_bring_nothing(choice):
    """Only who says that it is done must have something to show."""
    run = Drive(step("a", gives="table")).fail("a", "lost", "unknown").reply(choice)
    assert run.last(ev.QuestionAnswered).choice == choice


def test_done_where_nothing_was_promised_needs_nothing():
    """The person's word is enough."""
    run = Drive(step("a")).fail("a", "lost", "unknown").reply("done")
    assert run.ended == "succeeded"


def test_a_planners_own_release_lets_nothing_go():
    """The word means something only for a hold."""
    run = asking("release", "keep").reply("release")
    assert run.all(ev.StepsReleased) == []
    assert run.state.answers[-1]["choice"] == "release"
