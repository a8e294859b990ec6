"""What people and workers say to a run, and what becomes of it."""

import pytest

from leadhand.core import control
from leadhand.core import events as ev
from leadhand.core.effects import StopAttempt
from leadhand.core.moves import Move
from leadhand.core.policy import Policy
from leadhand.errors import Conflict, UsageError
from tests.core.driver import SECOND, Drive, propose, snapshot, step

# Reports.


def test_a_current_report_is_taken_as_it_is():
    """The epoch in flight is the only one that counts."""
    run = Drive(step("a"))
    report = ev.AttemptReported("a", 1, 2, True, data=5)
    assert control.report(run.state, report) == Move([report], [])
    assert control.is_current(run.state, "a", 2)


@pytest.mark.parametrize("epoch", [0, 1, 3, 99])
def test_a_stale_report_leaves_only_its_cost(epoch):
    """It becomes a note, whatever it claims."""
    run = Drive(step("a"))
    report = ev.AttemptReported("a", 7, epoch, True, data=5, cost=0.5)
    expected = Move([ev.ReportIgnored("a", 7, epoch, 0.5)], [])
    assert control.report(run.state, report) == expected
    assert not control.is_current(run.state, "a", epoch)
    before = snapshot(run.state)
    run.hear(expected)
    after = snapshot(run.state)
    assert after.pop("spent") == 0.5
    for known in (before, after):
        for key in ("spent", "seq"):
            known.pop(key, None)
    assert after == before


def test_a_report_after_the_end_is_nothing():
    """The last event of a run is its end."""
    run = Drive(step("a", worker="safe", retry=1, timeout=5, failure_action="abort")).later(5)
    assert run.ended == "failed"
    assert control.report(run.state, ev.AttemptReported("a", 1, 2, True)) == Move([], [])


# Pause, resume, cancel.


def test_pause_and_resume_say_so_once():
    """Saying it again changes nothing."""
    run = Drive(step("a"))
    assert control.resume(run.state, "ann") == Move([], [])
    assert control.pause(run.state, "ann", "lunch") == Move([ev.RunPaused("ann", "lunch")], [])
    run.hear(control.pause(run.state, "ann"))
    assert run.last(ev.RunPaused) == ev.RunPaused("ann", "")
    assert control.pause(run.state, "ann") == Move([], [])
    assert control.resume(run.state, "bob") == Move([ev.RunResumed("bob")], [])


def test_cancel_tells_everything_in_flight_to_stop():
    """Attempts, probes and the planner's call, with a grace from the recorded policy."""
    run = Drive(bare=True, replans=True, policy=Policy(cancel_grace_s=4.0, jitter=0.0)).go()
    steps = (step("a"), step("b", worker="probed", timeout=3), step("z"))
    run.answer(propose(*steps, final=False)).done("z", surprise="odd").later(3)
    assert control.cancel(run.state, "ann", "late", run.now) == Move(
        [ev.CancelRequested("ann", 7 * SECOND, "late")],
        [
            StopAttempt("a", 1, 2, "cancelled"),
            StopAttempt("b", 1, 6, "cancelled"),
            StopAttempt("", 2, 5, "cancelled"),
        ],
    )


def test_cancel_is_said_once_and_wins_over_a_stop():
    """A run that stops as failed can still be cancelled; a cancelled one is."""
    run = Drive(step("a"))
    run.tell(ev.StopDecided("failed", "x"))
    run.cancel()
    assert run.state.stopping.status == "cancelled"
    assert control.cancel(run.state, "bob", "", run.now) == Move([], [])


def test_nothing_is_said_to_a_run_that_ended():
    """The one who says it is told."""
    run = Drive(step("a")).done("a")
    for say in (
        lambda: control.pause(run.state, "ann"),
        lambda: control.resume(run.state, "ann"),
        lambda: control.cancel(run.state, "ann", "", run.now),
        lambda: control.answer(run.state, "q1", "x", "ann", run.now),
    ):
        with pytest.raises(Conflict, match=r"run r1 has ended \(succeeded\)"):
            say()


# Answers.


def stuck(**more):
    """A run with a question about a failed step."""
    return Drive(step("a", **more), step("b", "a")).fail("a", "permanent").news_start()


def test_retry_lets_the_step_start_over():
    """With all its attempts, and by the worker it has now."""
    run = Drive(step("a")).fail("a").later(1).fail("a").later(2).fail("a").news_start()
    run.reply("retry", text="try again")
    assert run.news == ["QuestionAnswered", "start a 4 w"]
    assert run.last(ev.QuestionAnswered) == ev.QuestionAnswered(
        id="q1", choice="retry", actor="ann", text="try again"
    )
    run.fail("a")
    assert run.last(ev.RecoveryDecided).strategy == "retry"


@pytest.mark.parametrize(
    ("text", "reason"), [("", "ann said so"), ("no need", "ann said so: no need")]
)
def test_skip_tolerates_the_step(text, reason):
    """Its dependents are skipped as for any step that did not succeed."""
    run = stuck().reply("skip", text=text)
    assert run.events[1:3] == [
        ev.StepSkipped("a", reason, tolerated=True),
        ev.StepSkipped("b", "step a, which it depends on, was skipped"),
    ]
    assert run.ended == "failed"
    run = Drive(step("a")).fail("a", "permanent").reply("skip")
    assert run.ended == "succeeded"


def test_abort_stops_the_run():
    """The reason says who wanted it."""
    run = stuck().reply("abort", text="enough")
    assert run.events[1:] == [
        ev.StopDecided("failed", "step a failed; ann said so: enough"),
        ev.RunEnded("failed", "step a failed; ann said so: enough"),
    ]
    assert run.status() == ["failed", "cancelled"]


def test_abort_of_a_run_that_stops_already():
    """It stops once."""
    run = Drive(step("a"), step("b")).fail("a", "permanent")
    run.cancel().news_start()
    run.reply("abort")
    assert run.news == ["QuestionAnswered"]


def test_done_adopts_what_the_person_says():
    """Only after an outcome that nobody saw."""
    run = Drive(step("a", timeout=5), step("b", "a", parameters={"x": "${{ steps.a.data }}"}))
    run.later(5).news_start()
    run.reply("done", data={"seen": True})
    assert run.news == ["QuestionAnswered", "start b 1 w"]
    assert run.effects[-1].parameters == {"x": {"seen": True}}
    assert run.last(ev.QuestionAnswered).text == ""


def test_an_answer_must_be_one_of_the_choices():
    """The error says which there are."""
    run = stuck()
    with pytest.raises(UsageError, match="'done' is no answer to q1; choose: retry, skip, abort"):
        run.reply("done")
    assert run.state.questions


def test_a_question_that_is_not_open():
    """The error says what is."""
    run = stuck()
    with pytest.raises(Conflict, match="q7 is not open in run r1; open: q1"):
        run.reply("retry", "q7")
    two = Drive(step("a"), step("b")).fail("a", "permanent").fail("b", "permanent")
    with pytest.raises(Conflict, match="open: q1, q2"):
        two.reply("retry", "q7")
    run.reply("retry")
    with pytest.raises(Conflict, match="q1 is not open in run r1; open: nothing is open"):
        run.reply("retry", "q1")


def test_a_question_without_choices_takes_any_answer():
    """The planner wanted words."""
    run = Drive(bare=True).go().answer({"kind": "ask", "question": "Why?"}).news_start()
    run.reply("because", text="of this", data=[1])
    assert run.news == ["QuestionAnswered", "consult answer"]
    assert run.state.answers == [
        {
            "question": "Why?",
            "step": "",
            "choice": "because",
            "text": "of this",
            "data": [1],
            "actor": "ann",
        }
    ]


def test_a_planners_choices_mean_nothing_to_steps():
    """`skip` and `abort` are ordinary words there."""
    for word in ("skip", "abort", "retry", "done"):
        run = Drive(bare=True).go().answer({"kind": "ask", "question": "?", "choices": [word]})
        run.news_start()
        run.reply(word)
        assert run.news == ["QuestionAnswered", "consult answer"]


# Reviews.


def waiting(*steps, **more):
    run = Drive(bare=True, **more).go()
    return run.answer(propose(*(steps or (step("a", worker="risky"),)))).news_start()


def test_approval_is_of_exactly_what_waits():
    """By the person, with the hash that was shown."""
    run = waiting()
    digest = run.state.pending.hash
    run.reply("approve", text="fine")
    given, approved = run.events[:2]
    assert (given.number, given.hash, given.actor, given.reason) == (1, digest, "ann", "fine")
    assert (approved.hash, approved.actor, approved.reason) == (digest, "ann", "fine")
    assert approved.envelope["workers"] == ["risky"]
    assert run.running == ["a"]


def test_instants_are_fixed_at_the_approval():
    """What the calendar says when the person says yes."""
    run = waiting(step("a", worker="risky", not_before="02:00 UTC"))
    run.now = run.now._replace(wall=3 * 3600 * SECOND)
    run.reply("approve")
    assert run.last(ev.RevisionApproved).instants == {"a": 26 * 3600 * SECOND}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "ann rejected revision 1"), ("too risky", "ann rejected revision 1: too risky")],
)
def test_rejection_ends_the_run(text, reason):
    """As rejected, with the reason."""
    run = waiting()
    digest = run.state.pending.hash
    run.reply("reject", text=text)
    assert run.events == [
        ev.RevisionRejected(1, digest, "ann", text),
        ev.StopDecided("rejected", reason),
        ev.RunEnded("rejected", reason),
    ]
    assert run.state.steps == {}


def test_rejection_while_the_run_stops():
    """It stops once, for its first reason."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a"), step("z"), final=False)).done("z")
    run.answer(propose(step("b", worker="risky"), final=False)).cancel().news_start()
    run.reply("reject")
    assert run.news == ["reject 2 ann"]
    run.done("a")
    assert run.ended == "cancelled"


def test_a_review_takes_only_yes_or_no():
    """There are two choices."""
    run = waiting()
    with pytest.raises(UsageError, match="choose: approve, reject"):
        run.reply("maybe")


def moved_on():
    """A revision that replaces b waits for a person; meanwhile b was started."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b", "a"), step("z"), final=False)).done("z")
    run.answer(propose(step("c", worker="risky", supersedes="b"), final=False))
    run.done("a")
    assert run.running == ["b"]
    return run.news_start()


def test_an_approval_that_comes_too_late_is_told_to_the_planner():
    """The plan has moved on, so the revision is checked again; it is not forced upon the run."""
    run = moved_on()
    digest = run.state.pending.hash
    run.reply("approve")
    found = "c supersedes b, which is running"
    assert run.events == [
        ev.RevisionRejected(
            2, digest, "policy", f"ann approved it, but it no longer fits: {found}"
        ),
        ev.ProposalRefused(2, [found]),
        ev.PlannerAsked(3, 6, run.now.at + 600 * SECOND, "the last proposal was refused"),
    ]
    assert run.state.questions == {}
    assert run.running == ["b"]


def test_a_rejection_is_never_too_late():
    """Nothing of it is done anyway."""
    run = moved_on().reply("reject")
    assert run.news == ["reject 2 ann", "stop rejected"]


def test_a_review_of_another_revision():
    """A question that names a revision that no longer waits is a conflict."""
    run = waiting()
    run.state.pending.number = 9
    with pytest.raises(Conflict, match="revision 1 no longer waits"):
        run.reply("approve")
    run.state.pending = None
    with pytest.raises(Conflict, match="revision 1 no longer waits"):
        run.reply("approve")
