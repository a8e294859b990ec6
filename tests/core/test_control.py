"""What people and workers say to a run, and what becomes of it."""

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.decide.effects import Move, StopAttempt
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy
from leadhand.errors import Conflict, PlanInvalid, UsageError
from tests.core.driver import (
    SECOND,
    WORKERS,
    Drive,
    fold,
    propose,
    snapshot,
    spec,
    step,
)

# Reports.


def test_a_current_report_is_taken_as_it_is():
    """The epoch in flight is the only one that counts."""
    run = Drive(step("a"))
    report = ev.AttemptReported("a", 1, 2, True, data=5)
    assert commands.report(run.state, report) == Move([report], [])
    assert commands.is_current(run.state, "a", 2)


@pytest.mark.parametrize("epoch", [0, 1, 3, 99])
def test_a_stale_report_leaves_only_its_cost(epoch):
    """It becomes a note, whatever it claims."""
    run = Drive(step("a"))
    report = ev.AttemptReported("a", 7, epoch, True, data=5, cost=0.5)
    expected = Move([ev.ReportIgnored("a", 7, epoch, 0.5)], [])
    assert commands.report(run.state, report) == expected
    assert not commands.is_current(run.state, "a", epoch)
    before = snapshot(run.state)
    run.hear(expected)
    after = snapshot(run.state)
    assert after.pop("spent") == 0.5
    assert after["tally"].pop("cost") == after["tally"].pop("plan::cost") == 500_000
    for known in (before, after):
        for key in ("spent", "seq"):
            known.pop(key, None)
    assert after == before


def test_a_report_after_the_end_is_nothing():
    """The last event of a run is its end."""
    run = Drive(step("a", worker="safe", retry=1, timeout=5, failure_action="abort")).later(5)
    assert run.ended == "failed"
    assert commands.report(run.state, ev.AttemptReported("a", 1, 2, True)) == Move([], [])


# Pause, resume, cancel.


def test_pause_and_resume_say_so_once():
    """Saying it again changes nothing."""
    run = Drive(step("a"))
    assert commands.resume(run.state, "ann") == Move([], [])
    assert commands.pause(run.state, "ann", "lunch") == Move([ev.RunPaused("ann", "lunch")], [])
    run.hear(commands.pause(run.state, "ann"))
    assert run.last(ev.RunPaused) == ev.RunPaused("ann", "")
    assert commands.pause(run.state, "ann") == Move([], [])
    assert commands.resume(run.state, "bob") == Move([ev.RunResumed("bob")], [])


def test_cancel_tells_everything_in_flight_to_stop():
    """Attempts, probes and the planner's call, with a grace from the recorded policy."""
    run = Drive(bare=True, replans=True, policy=Policy(cancel_grace_s=4.0, jitter=0.0)).go()
    steps = (step("a"), step("b", worker="probed", timeout=3), step("z"))
    run.answer(propose(*steps, final=False)).done("z", surprise="odd").later(3)
    assert commands.cancel(run.state, "ann", "late", run.now) == Move(
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
    assert commands.cancel(run.state, "bob", "", run.now) == Move([], [])


def test_nothing_is_said_to_a_run_that_ended():
    """The one who says it is told."""
    run = Drive(step("a")).done("a")
    for say in (
        lambda: commands.pause(run.state, "ann"),
        lambda: commands.resume(run.state, "ann"),
        lambda: commands.cancel(run.state, "ann", "", run.now),
        lambda: commands.answer(run.state, "q1", "x", "ann", run.now),
        lambda: commands.hold(run.state, ["a"], "ann"),
        lambda: commands.release(run.state, ["a"], "ann", run.now),
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
    ("text", "reason"), [("", "skipped by ann"), ("no need", "skipped by ann: no need")]
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
        ev.StopDecided(
            "failed",
            "aborted by ann after step a failed: it broke (comment: enough)",
            origin="execution",
        ),
        ev.RunEnded(
            "failed",
            "aborted by ann after step a failed: it broke (comment: enough)",
            origin="execution",
        ),
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
    with pytest.raises(UsageError, match='"done" is not one of: retry, skip, abort'):
        run.reply("done")
    assert run.state.questions


def test_a_question_that_is_not_open():
    """The error says what is."""
    run = stuck()
    with pytest.raises(Conflict, match=r'No open question "q7" in run r1\. Open: q1'):
        run.reply("retry", "q7")
    two = Drive(step("a"), step("b")).fail("a", "permanent").fail("b", "permanent")
    with pytest.raises(Conflict, match="Open: q1, q2"):
        two.reply("retry", "q7")
    run.reply("retry")
    with pytest.raises(Conflict, match=r'No open question "q1" in run r1\. Open: none'):
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
            "facts": [],
            "at": run.now.at,
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
        ev.StopDecided("rejected", reason, origin="planning"),
        ev.RunEnded("rejected", reason, origin="planning"),
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
    with pytest.raises(UsageError, match="is not one of: approve, reject"):
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


# Holds, and steps done again.


def test_held_steps_are_released_by_their_names():
    """What was held together goes on together; each is told to be held or not."""
    run = Drive(step("a"), step("b", "a"), step("c", "a"), step("d", "a"))
    run.hear(commands.hold(run.state, ["b", "c"], "ann")).hear(
        commands.hold(run.state, ["d"], "bob", "lunch")
    )
    assert run.all(ev.StepsHeld) == [
        ev.StepsHeld(["b", "c"], "held by ann", "ann", "q1"),
        ev.StepsHeld(["d"], "lunch", "bob", "q2"),
    ]
    run.done("a")
    assert run.running == []
    for names, refused, said in [
        (["nobody"], UsageError, "there is no step nobody in run r1"),
        (["a"], Conflict, "step a is not held: it is succeeded"),
        ([], UsageError, "name the steps to release"),
    ]:
        with pytest.raises(refused, match=said):
            commands.release(run.state, names, "ann", run.now)
    run.hear(commands.release(run.state, ["c", "b"], "cid", run.now))
    assert run.last(ev.StepsReleased) == ev.StepsReleased(["b", "c"], "cid", "")
    assert run.running == ["b", "c"]
    run.hear(commands.release(run.state, ["d"], "cid", run.now, "eaten"))
    assert run.last(ev.QuestionAnswered).text == "eaten"
    assert run.running == ["b", "c", "d"]
    assert run.state.questions == {}


def test_a_hold_is_answered_with_the_end():
    """As failed, with who said so and why."""
    run = Drive(step("a"), step("b", "a"))
    run.hear(commands.hold(run.state, ["b"], "ann")).done("a").reply("abort", text="too late")
    assert (run.ended, run.state.ended.reason) == (
        "failed",
        "aborted by ann while it was held (comment: too late)",
    )


def broken(*more, **action):
    """A run that has failed: b said to abort, and c waits for it."""
    action = action or {"failure_action": "abort"}
    run = Drive(step("a"), step("b", "a", **action), step("c", "b"), *more)
    return run.done("a").fail("b", "permanent")


def redo(run, ident, why="the disk was full"):
    """A person has a step done again."""
    return run.hear(commands.redo(run.state, ident, "ann", why, run.now))


def test_a_run_that_failed_goes_on_where_it_stood():
    """The end is taken back in the log, by name and with the reason; nothing is done twice."""
    run = broken().news_start()
    assert (run.ended, run.status()) == ("failed", ["succeeded", "failed", "cancelled"])
    redo(run.later(60), "b")
    assert run.events[:2] == [
        ev.RunReopened("b", "ann", "the disk was full"),
        ev.RedoRequested("b", "ann", "the disk was full"),
    ]
    assert (run.ended, run.status()) == (None, ["succeeded", "running", "waiting"])
    assert run.state.ended_at == 0
    run.done("b", "c")
    assert (run.ended, run.state.blocking, run.state.unsettled) == ("succeeded", 0, 0)
    assert check(run.log) == []
    assert snapshot(fold(run.log)) == snapshot(run.state)


def test_a_step_done_again_may_fail_again():
    """Then the run ends as before, and can be reopened as before."""
    run = redo(broken(), "b").fail("b", "permanent")
    assert (run.ended, run.status()) == ("failed", ["succeeded", "failed", "cancelled"])
    redo(run, "b").done("b", "c")
    assert (run.ended, len(run.all(ev.RunReopened))) == ("succeeded", 2)
    assert check(run.log) == []


def test_questions_that_the_end_cut_off_are_open_again():
    """And so are timers; steps that were given up stay failed until somebody wants them."""
    run = Drive(step("a", failure_action="abort"), step("x"), step("y", retry=3), step("z", "x"))
    run.fail("x", "permanent").fail("y").fail("a", "permanent")
    assert (run.ended, run.state.questions) == ("failed", {})
    redo(run, "a")
    assert list(run.state.questions) == ["q1"]
    assert run.status() == ["running", "asking", "backing_off", "waiting"]
    run.later(5).reply("skip").done("a", "y")
    assert (run.ended, run.status("z")) == ("failed", ["skipped"])
    assert check(run.log) == []


@pytest.mark.parametrize("ident", ["x", "y"])
def test_whatever_failed_can_be_done_again(ident):
    """A step that a person was asked about, and one that waited for its next try."""
    run = Drive(step("a", failure_action="abort"), step("x"), step("y", retry=3))
    run.fail("x", "permanent").fail("y").fail("a", "permanent")
    redo(run, ident)
    assert run.status(ident) == ["running"]
    assert (ident == "y") == bool(run.state.questions)
    redo(run, "a").done("a", ident)
    redo(run, "x").done("x") if ident == "y" else run.later(5).done("y")
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_while_a_run_is_open_a_question_need_not_be_answered_first():
    """To have it done again answers it."""
    run = Drive(step("a"), step("b", "a")).fail("a", "permanent")
    redo(run, "a")
    assert (run.state.questions, run.running) == ({}, ["a"])
    assert run.done("a", "b").ended == "succeeded"
    assert check(run.log) == []


def test_a_step_that_a_person_gave_up_has_failed():
    """Who waits for it is skipped when another step is done again; and revived when it is."""
    run = Drive(step("a"), step("b", "a"), step("x", failure_action="continue"))
    run.fail("x", "permanent").fail("a", "permanent").reply("abort")
    redo(run, "x").done("x")
    assert (run.ended, run.status()) == ("failed", ["failed", "skipped", "succeeded"])
    redo(run, "a").done("a", "b")
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_two_steps_are_done_again_before_anybody_hosts_the_run():
    """The second wish finds the run open, and takes back that others will be skipped."""
    run = Drive(step("c", "b"), step("b", "a", "x"), step("a"), step("x", failure_action="abort"))
    run.fail("a", "permanent").fail("x", "permanent")
    run.reply("abort") if run.ended is None else None
    for ident in ("x", "a"):
        run.take(commands.redo(run.state, ident, "ann", "so", run.now))
    run.go().done("x", "a", "b", "c")
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_a_hold_that_was_answered_with_the_end_is_asked_about_anew():
    """What was held stays held, whoever reopens the run."""
    run = Drive(step("a", failure_action="continue"), step("b"), step("c", "b"))
    run.hear(commands.hold(run.state, ["c"], "bob")).fail("a", "permanent").reply("abort")
    assert run.ended is None  # b is under way
    run.done("b")
    redo(run, "a").done("a")
    assert (run.running, list(run.state.questions)) == ([], ["q2"])
    assert run.last(ev.StepsHeld).reason == "held when the run ended"
    assert run.reply("release").done("c").ended == "succeeded"
    assert check(run.log) == []


def test_a_surprise_still_waits_for_the_planner():
    """It is asked about it when the run goes on."""
    run = Drive(step("a", failure_action="abort"), step("s"), step("t", "s"), replans=True)
    run.done("s", surprise="odd").fail("a", "permanent")
    assert run.ended == "failed"
    redo(run, "a")
    assert run.last(ev.PlannerAsked).why.startswith("surprise: step s")
    assert run.answer(propose(final=True)).done("a", "t").ended == "succeeded"


def test_a_step_is_revived_only_when_nothing_else_is_in_its_way():
    """Wherever it stands in the plan; and not when a person skipped it."""
    run = Drive(
        step("d", "c"),
        step("c", "a", "b"),
        step("a", failure_action="continue"),
        step("b", failure_action="continue"),
        step("e"),
    )
    run.fail("a", "permanent").fail("b", "permanent")
    assert run.status("c", "d") == ["skipped", "skipped"]
    redo(run, "a").done("a")
    assert run.status("c", "d") == ["skipped", "skipped"]
    redo(run, "b")
    assert run.status("c", "d") == ["waiting", "waiting"]
    assert run.done("b", "c", "d", "e").ended == "succeeded"
    assert check(run.log) == []


PERSON = WorkerSpec(name="p", offers={"": Offer()}, kind="human")


def limited(seconds):
    """A run with a limit of time, that failed within it."""
    policy = Policy(wall_s=seconds, jitter=0.0)
    return Drive(step("a", failure_action="abort"), policy=policy).fail("a", "permanent")


@pytest.mark.parametrize(
    ("run", "ident", "said"),
    [
        (lambda: Drive(step("a")).fail("a").later(1), "a", "it is running"),
        (lambda: Drive(step("a", worker="p"), catalog=[PERSON]), "a", "it is asking"),
        (
            lambda: Drive(step("a"), step("b"), policy=Policy(max_concurrency=1)),
            "b",
            "it is ready",
        ),
        (broken, "nobody", "there is no step nobody in run r1"),
        (broken, "a", "step a cannot be retried: it is succeeded"),
        (broken, "c", "step c cannot be retried: it is cancelled"),
        (lambda: broken(step("e")), "b", "step b cannot be retried: the run is stopping"),
        (lambda: broken(failure_action="rollback"), "b", "run r1 was rolled back"),
        (lambda: limited(60.0).later(60), "a", r"its limits \(its time limit of 60 s\)"),
        (
            lambda: Drive(step("a", failure_action="continue")).fail("a", "permanent"),
            "a",
            None,
        ),
        (
            lambda: (
                Drive(step("a", failure_action="continue"), step("b"))
                .fail("a", "permanent")
                .cancel()
                .later(60)
            ),
            "a",
            r"has ended \(cancelled\), and only a failed run can be reopened. Fix: run the plan",
        ),
    ],
)
def test_what_cannot_be_done_again(run, ident, said):
    """One message, with the way out."""
    run = run()
    if said is None:
        assert run.ended == "succeeded"
        said = r"run r1 has ended \(succeeded\)"
    with pytest.raises((Conflict, UsageError), match=said):
        redo(run, ident)


def test_within_its_time_a_run_goes_on():
    """To the last moment."""
    assert redo(limited(60.0).later(59.999), "a").running == ["a"]


def test_a_limit_is_not_passed_by_asking_again():
    """A budget stays what it was recorded as."""
    costly = [*WORKERS, spec("dear", cost=3.0)]
    run = Drive(
        step("a", failure_action="continue"),
        step("b", worker="dear"),
        catalog=costly,
        policy=Policy(budget=2.0, jitter=0.0),
    )
    run.fail("a", "permanent")
    assert (run.ended, run.state.ended.limit) == ("failed", "budget")
    with pytest.raises(Conflict, match=r"has reached its limits \(.*budget.*\)"):
        redo(run, "a")


# Amendments.


def test_an_amendment_is_of_what_was_read():
    """A plan that has changed since is to be looked at again; the same one is taken."""
    run = Drive(step("a"), step("b", "a"))
    asked = {"steps": [step("c")], "cancel": ["b"], "final": True}
    with pytest.raises(Conflict, match="the plan has changed since it was read"):
        commands.amend(run.state, {**asked, "base": "other"}, "ann", run.now)
    run.hear(commands.amend(run.state, {**asked, "base": run.state.head}, "ann", run.now))
    assert (run.state.revision, run.state.final) == (2, True)
    assert run.status("b", "c") == ["cancelled", "running"]


def test_an_amendment_may_say_that_nothing_follows():
    """Also when nothing is under way; but it must say something."""
    run = Drive(bare=True, replans=True).go().answer(propose(step("a"), final=False)).done("a")
    with pytest.raises(PlanInvalid, match="it proposes nothing, and nothing is under way"):
        commands.amend(run.state, {"final": False}, "ann", run.now)
    assert run.hear(commands.amend(run.state, {"final": True}, "ann", run.now)).state.final


def test_an_amendment_takes_the_place_of_what_waits():
    """Which is rejected by whoever amends it, and so it is in the log."""
    run = Drive(step("a", worker="risky"))
    run.hear(commands.amend(run.state, {"steps": [step("b")], "final": True}, "ann", run.now))
    rejected = run.last(ev.RevisionRejected)
    assert (rejected.number, rejected.actor, rejected.reason) == (1, "ann", "amended")
    assert run.running == ["b"]


def test_an_amendment_that_does_not_fit_changes_nothing():
    """A step that is there already, one that cannot be cancelled, an end that has been said."""
    run = Drive(step("a"))
    for answer in ({"steps": [step("a")]}, {"cancel": ["nobody"]}, {"cancel": ["a"]}):
        with pytest.raises(PlanInvalid, match="the amended plan does not fit"):
            commands.amend(run.state, answer, "ann", run.now)
    ended = Drive(step("a")).done("a")
    with pytest.raises(Conflict, match="has ended"):
        commands.amend(ended.state, {"steps": [step("b")]}, "ann", ended.now)


# What is given.


def giving():
    """A run whose planner asked for something to be given."""
    run = Drive(replans=True)
    return run.answer({"kind": "ask", "question": "the key?", "choices": ["give", "none"]})


def test_who_gives_says_what():
    """In words or as data, and one of them is enough."""
    with pytest.raises(UsageError, match="the answer has no value"):
        giving().reply("give")
    assert giving().reply("give", text="x").state.answers[-1]["text"] == "x"
    assert giving().reply("give", data=0).state.answers[-1]["data"] == 0
    assert giving().reply("none").state.answers[-1]["choice"] == "none"


def test_what_is_given_is_what_was_asked_for():
    """A slip is told to whoever made it; who gives nothing may say what they like."""

    def asked(*facts):
        doc = {"kind": "ask", "question": "?", "choices": ["give", "none"], "facts": facts}
        return Drive(replans=True).answer(doc)

    both = {"price": 1, "stock": 2}
    assert asked("price", "stock").reply("give", data=both).state.questions == {}
    assert asked("price", "stock").reply("give", data=both, text="as of today").state.answers
    with pytest.raises(UsageError, match=r"asked for: price, stock\. Fix: give it as --data"):
        asked("price", "stock").reply("give", data={"pirce": 1})
    with pytest.raises(UsageError, match="a single value cannot be all of them"):
        asked("price", "stock").reply("give", text="5")
    assert asked("price", "stock").reply("none", text="5").state.questions == {}
    assert asked().reply("give", data={"a": 1}).state.questions == {}


def test_a_person_who_did_it_brings_what_the_step_promised():
    """As data or in words; a flag may be denied, and who cannot do it brings nothing."""

    def asked(*gives):
        person = WorkerSpec(name="p", offers={"": Offer(gives=gives)}, kind="human")
        return Drive(step("a", worker="p"), catalog=[person])

    with pytest.raises(UsageError, match="step a gives price, and others may need it"):
        asked("price").reply("done")
    assert asked("price").reply("done", data=5).running == ["a"]
    assert asked("price").reply("done", text="5").running == ["a"]
    assert asked("price").reply("cannot").running == []
    assert asked("approved:x").reply("done", data=False).running == ["a"]
    with pytest.raises(UsageError, match="step a gives price, stock, and"):
        asked("price", "stock", "approved:x").reply("done", data={"price": 1})


def test_a_person_who_cannot_do_a_task_is_no_fault_of_the_plan():
    """The end is blamed on the execution, also where another step ended later."""
    person = WorkerSpec(name="p", offers={"": Offer()}, kind="human")
    worker = WorkerSpec(name="w", offers={"": Offer()})
    run = Drive(
        step("a", worker="p", failure_action="continue"), step("b"), catalog=[person, worker]
    )
    run.reply("cannot").fail("b", "permanent")
    run.reply("abort")
    ended = run.last(ev.RunEnded)
    assert (ended.status, ended.origin) == ("failed", "execution")
    alone = Drive(step("a", worker="p", failure_action="abort"), catalog=[person]).reply("cannot")
    assert alone.last(ev.RunEnded).origin == "execution"
    assert check(alone.log) == []


# The words themselves.


def said(run, verb, **details):
    """What a person says, as every way in carries it."""
    return commands.Command(verb, "ann", details)(run.state, run.now)


def test_every_word_is_a_command():
    """With all that goes with it."""
    run = Drive(step("a"), step("b", "a"))
    state, now = run.state, run.now
    assert said(run, "pause", reason="lunch") == commands.pause(state, "ann", "lunch")
    assert said(run, "pause") == commands.pause(state, "ann")
    assert said(run, "cancel", reason="so") == commands.cancel(state, "ann", "so", now)
    assert said(run, "hold", steps=["b"], reason="so") == commands.hold(state, ["b"], "ann", "so")
    change = {"steps": [step("c")], "final": True}
    assert said(run, "amend", revision=change) == commands.amend(state, change, "ann", now)
    run.hear(said(run, "pause")).hear(said(run, "hold", steps=["b"]))
    assert said(run, "resume") == commands.resume(state, "ann") != Move([], [])
    words = {"q1": {"expires": 9 * SECOND, "key": "k", "signature": "s"}}
    release = said(run, "release", steps=["b"], reason="so", signed=words)
    assert release == commands.release(state, ["b"], "ann", now, "so", words)
    given = release.events[0]
    assert (given.expires, given.key, given.signature) == (9 * SECOND, "k", "s")
    run.fail("a", "permanent")
    assert said(run, "redo", step="a", reason="so") == commands.redo(state, "a", "ann", "so", now)
    with pytest.raises(UsageError, match='"dance" is not a command for a run'):
        said(run, "dance")


def test_the_word_that_answers():
    """Its choice, its words, its data, and what goes with an approval."""
    run = Drive(bare=True, replans=True).go()
    run.answer({"kind": "ask", "question": "?"})
    heard = said(run, "answer", id="q1", choice="left", text="so", data=7)
    expected = ev.QuestionAnswered(id="q1", choice="left", actor="ann", text="so", data=7)
    assert heard == Move([expected], [])
    assert said(run, "answer", id="q1").events == [
        ev.QuestionAnswered(id="q1", choice="", actor="ann")
    ]
    with pytest.raises(Conflict, match='No open question ""'):
        said(run, "answer")
    run = Drive(step("a", worker="risky"))
    approval = {"expires": 9 * SECOND}
    heard = said(run, "answer", id="review-1", choice="approve", approval=approval)
    assert heard.events[0].expires == 9 * SECOND


def test_what_is_told_to_whoever_said_it():
    """Which question lets held steps go, and which are let go."""
    run = Drive(step("a"), step("b", "a"), step("c", "b"))
    move = said(run, "hold", steps=["b", "c"])
    assert commands.command_result(move.events) == {"question": "q1"}
    move = said(run.hear(move), "release", steps=["c"])
    assert commands.command_result(move.events) == {"steps": ["b", "c"]}
    assert commands.command_result(move.events[:1]) == {"steps": []}
    assert commands.command_result(said(run, "pause").events) == {}


def test_only_who_says_that_it_was_done_brings_what_was_promised():
    """Whoever has it tried again brings nothing."""
    catalog = [spec("maker", gives=("table",)), spec("w")]
    run = Drive(step("a", worker="maker"), catalog=catalog).fail("a", "lost", "unknown")
    with pytest.raises(UsageError, match="it promised table, and gave none"):
        run.reply("done")
    assert run.reply("retry").running == ["a"]


EMPTY = (
    "the amended plan has no step left, and would succeed without doing anything. "
    "Fix: cancel the run, or reject what waits"
)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"final": True, "cancel": ["b"]}, EMPTY),
        ({"final": True, "drop": {"b": "so"}}, EMPTY),
        ({"final": False, "cancel": ["b"]}, ""),
        ({"final": True, "cancel": ["b"], "steps": [step("n")]}, ""),
        (
            {"final": True, "drop": {"b": ""}},
            "the amended plan does not fit: it drops b without a reason",
        ),
    ],
)
def test_an_amendment_leaves_something_to_do(change, wrong):
    """Steps that were taken out or replaced before do not count."""
    run = Drive(step("x", not_before="23:00 UTC"), step("y", "x"))
    for taken in (
        {"cancel": ["y"]},
        {"steps": [step("b", not_before="23:00 UTC", supersedes="x")]},
    ):
        answer = {"final": False, **taken}
        run.hear(commands.amend(run.state, answer, "ann", run.now))
    assert run.status("x", "y", "b") == ["superseded", "cancelled", "ready"]
    if not wrong:
        run.hear(commands.amend(run.state, change, "ann", run.now))
        assert run.status("b") == ["cancelled"]
        return
    with pytest.raises(PlanInvalid) as told:
        commands.amend(run.state, change, "ann", run.now)
    assert told.value.findings == (wrong,)


@pytest.mark.parametrize(("author", "goes"), [("test", False), ("ann", True)])
def test_what_waited_must_still_fit_when_it_is_approved(author, goes):
    """Of a planner it does not when it would do again what may have happened meanwhile."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a"), step("z"), final=False)).done("z")
    again = step("c", risk_level="high")
    if author == "test":
        run.answer(propose(again, final=False))
    else:
        answer = {"steps": [again], "final": False}
        run.hear(commands.amend(run.state, answer, "ann", run.now))
    run.fail("a", "lost", "unknown").reply("approve", "review-2")
    assert ("c" in run.state.steps) is goes


def test_who_gives_something_else_is_told_what_is_asked_for():
    """And how to give it."""
    run = Drive(bare=True, replans=True).go()
    run.answer({"kind": "ask", "question": "?", "facts": ["a", "b"]})
    with pytest.raises(UsageError) as told:
        run.reply("give", data=7)
    assert str(told.value) == (
        "a single value cannot be all of them; asked for: a, b. "
        'Fix: give it as --data \'{"a": …, "b": …}\''
    )
