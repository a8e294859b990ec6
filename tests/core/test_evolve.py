"""`evolve`: what each event does to the state, and which events do not fit."""

import copy

import msgspec
import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.decide.decide import next_wake
from leadhand.core.hashing import canonical, digest
from leadhand.core.host_events import HostOpened
from leadhand.core.plan.references import Artifact, find
from leadhand.core.policy import Policy
from leadhand.core.state.evolve import HANDLERS, evolve, evolve_all
from leadhand.core.state.model import (
    IN_FLIGHT,
    MOVABLE,
    REPLACEABLE,
    SETTLED,
    STARTABLE,
    IllegalEvent,
    Now,
    State,
    StepState,
)
from leadhand.core.state.ready import CapacityGroup, uses_of
from leadhand.core.state.records import EndSnapshot, ModelCalls, Permits
from tests.core.driver import (
    MINUTE,
    SECOND,
    Drive,
    failure,
    finished,
    fold,
    propose,
    snapshot,
    spec,
    started,
    step,
)

# A state that knows nothing.


def test_a_fresh_state():
    """Nothing is known, and nothing is taken for granted."""
    fresh = vars(State())
    kept = ("catalog", "policy", "planner", "ready", "offered", "permits", "models")
    kept += ("end_snapshot", "tally")
    made = {key: fresh.pop(key) for key in kept}
    assert made["catalog"].workers == {}
    assert made["policy"] == Policy()
    assert made["planner"].due == "start"
    assert made["permits"] == Permits()
    assert made["models"] == ModelCalls()
    assert not made["tally"].workers
    assert made["tally"].asked == 0
    assert made["end_snapshot"] == EndSnapshot()
    planner = msgspec.structs.asdict(made["planner"]) | {"due": ""}
    assert [key for key, value in (fresh | planner).items() if value] == []
    assert fresh["goal_met"] is None, "nobody has looked"
    assert {
        "run",
        "started_at",
        "last_at",
        "consults_reports",
        "final",
        "goal_asked",
        "ended_at",
    } <= set(fresh)


def test_a_fresh_step():
    """It waits, and nothing has happened to it."""
    doc = step("a", action="go")
    fresh = StepState(doc, 3, "w")
    known = msgspec.structs.asdict(fresh)
    given = {"doc": doc, "order": 3, "worker": "w", "status": "waiting", "id": "a", "action": "go"}
    assert {key: value for key, value in known.items() if value} == given
    assert (fresh.id, fresh.action, fresh.findings) == ("a", "go", ())
    assert StepState(step("b"), 0, "w").action == ""


def test_the_words_for_how_a_step_stands():
    """Settled, in flight, startable and movable: every state of the drawing is in one of them."""
    assert {"succeeded", "failed", "skipped", "cancelled", "superseded"} == SETTLED
    assert {"running", "probing"} == IN_FLIGHT
    assert {"ready", "backing_off"} == STARTABLE
    assert {"waiting", "ready", "backing_off", "asking"} == MOVABLE
    assert MOVABLE | {"failed", "skipped", "cancelled"} == REPLACEABLE


def test_tries_are_counted_by_worker():
    """A worker that never failed at a step has failed at it no time."""
    fresh = StepState(step("a"), 0, "w")
    assert fresh.failures_by("w") == 0
    fresh.tries = {"w": 2}
    assert (fresh.failures_by("w"), fresh.failures_by("other")) == (2, 0)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"action": ""}, True),
        ({"parameters": {}}, True),
        ({"parameters": None}, True),
        ({"est": 5}, True),  # that says nothing of what it does
        ({"action": "go"}, False),
        ({"parameters": {"x": 1}}, False),
        ({"worker": "other"}, False),
    ],
)
def test_what_was_tried_is_told_by_what_it_does(other, same):
    """Worker, action and parameters; under another name it is the same again."""
    run = Drive(step("a"), replans=True)
    assert run.state.tries_new([step("b", **other)]) is not same


def test_a_state_that_knows_nothing_answers_all_the_same():
    """Views ask before the start too."""
    state = State()
    assert state.planner_name == ""
    assert state.surprises_wait is False
    assert state.feedback_refusal == "the plan comes from a file, and only people change it"


@pytest.mark.parametrize(
    ("start", "handed", "expected"),
    [
        ({}, "", "the plan comes from a file, and only people change it"),
        ({"replans": True}, "", ""),
        ({"replans": True, "deaf": True}, "", "the planner plans from facts and reads no comments"),
        ({"replans": True}, "goal", "the planner plans from facts and reads no comments"),
    ],
)
def test_who_can_act_on_words(start, handed, expected):
    """A planner that reads them; the goal planner that a run was handed to does not."""
    run = Drive(bare=True, **start)
    run.state.planner.handed = handed
    assert run.state.feedback_refusal == expected


@pytest.mark.parametrize("replans", [False, True])
def test_who_waits_for_a_surprise_waits_for_the_planner(replans):
    """Where there is one."""
    run = Drive(step("a"), step("b", "a"), replans=replans)
    run.tell(ev.AttemptReported("a", 1, run.state.in_flight["a"], True, surprise="odd"))
    assert run.state.planner.surprising == (["a"] if replans else [])
    assert run.status("b") == ["waiting" if replans else "ready"]


# The run as a whole.


def test_the_start():
    """What the run was started with is known from then on."""
    event = started(policy=Policy(timeout_s=5.0), params={"x": 1}, consult="every_report")
    state = State()
    evolve(state, event, 77)
    assert (state.run, state.started, state.started_at, state.last_at) == ("r1", event, 77, 77)
    assert (state.policy, state.params, state.seq) == (event.policy, {"x": 1}, 1)
    assert sorted(state.catalog.workers) == sorted(each.name for each in event.catalog)
    assert state.consults_reports
    assert not Drive(bare=True).state.consults_reports


def test_every_event_counts_and_moves_the_clock():
    """`seq` and `last_at` follow the log."""
    run = Drive(step("a"), at=5)
    assert run.state.seq == len(run.log)
    run.later(3).done("a")
    assert run.state.last_at == run.state.ended_at == 3 * SECOND + 5
    assert run.state.seq == len(run.log)


def test_a_host_takes_the_run_up():
    """Its number is known, and what was in flight is listed, the planner's call last."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b"), final=False)).done("b", surprise="odd")
    process = ev.GuestProcess(pid=1, start_time=2, boot_id="b", folder="/f", python="/p")
    run.tell(ev.RunHosted(7, process=process))
    assert (run.state.owner, run.state.process) == (7, process)
    assert list(run.state.lost_in_flight) == [("a", 2), ("", 4)]


def test_pause_and_resume():
    """A flag, nothing more."""
    run = Drive(step("a"))
    assert run.tell(ev.RunPaused("ann")).state.paused is True
    assert run.tell(ev.RunResumed("ann")).state.paused is False


@pytest.mark.parametrize(
    ("reason", "expected"), [("", "cancelled by ann"), ("late", "cancelled by ann: late")]
)
def test_a_cancel_is_a_stop(reason, expected):
    """It takes the place of any other stop."""
    run = Drive(step("a")).tell(ev.StopDecided("failed", "abort"))
    run.tell(ev.CancelRequested("ann", 99, reason))
    assert run.state.stopping == ev.StopDecided("cancelled", expected, origin="person")
    assert run.state.cancel_deadline == 99
    assert (99, "run", "cancel", 0) in run.state.timers


def test_the_end_settles_everything():
    """What was open has failed if it ever failed, else it is cancelled, with the run's reason."""
    run = Drive(
        step("a"), step("b", "a"), step("c"), step("d"), step("e", failure_action="continue")
    )
    run.fail("c", "permanent").done("d").fail("e", "permanent")
    run.report("a", met=False, failure=failure("permanent"))
    run.later(5).cancel("late")
    assert run.status() == ["failed", "cancelled", "failed", "succeeded", "failed"]
    reasons = [run.state.steps[ident].reason for ident in "abcde"]
    text = "it broke (permanent); no recovery left"
    assert reasons == [
        text,
        "cancelled by ann: late",
        text,
        "",
        "it broke; the plan says to continue",
    ]
    assert run.state.questions == {}
    assert run.state.steps["b"].ended == 5 * SECOND
    assert run.state.steps["d"].ended == 0


def test_the_end_leaves_nothing_in_flight():
    """A planner's answer or a goal check that comes later finds nobody waiting."""
    run = Drive(step("a"), goal={"text": "g", "acceptance": ["x"]}, replans=True).done("a")
    assert run.state.goal_asked
    run.cancel()
    assert (run.state.goal_asked, run.state.planner.epoch) == (False, 0)
    run = Drive(bare=True).go().cancel()
    assert run.state.planner.epoch == 0


# The planner.


def test_a_planner_call():
    """It has a number, an epoch and a deadline, and the reason is used up."""
    run = Drive(bare=True)
    run.tell(ev.PlannerAsked(1, 1, 500, "start"))
    planner = run.state.planner
    assert (planner.calls, planner.epoch, planner.deadline, planner.due) == (1, 1, 500, "")
    assert run.state.epoch == 1
    run = Drive(bare=True).go()
    assert run.state.timers == [(600 * SECOND, "planner", "", 1)]


def test_one_planner_call_at_a_time():
    """While one is in flight no other is made."""
    run = Drive(bare=True).go()
    with pytest.raises(IllegalEvent, match="planner call 2 does not follow call 1"):
        evolve(run.state, ev.PlannerAsked(2, 2, 500, "x"), 0)


def test_an_answer_after_a_new_host_leaves_the_other_orphans():
    """Only its own entry is gone; the attempts are lost all the same."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b"), final=False)).done("b", surprise="odd")
    run.tell(ev.RunHosted(7), ev.PlannerAnswered(2, 4, {"kind": "ask", "question": "?"}))
    assert ("a", 2) in run.state.lost_in_flight
    run.news_start().go()
    assert run.news == ["lost a lost", "recover a ask", "ask q1 a", "ask q2 planner"]
    assert not run.state.lost_in_flight


def test_an_answer():
    """It is kept until it is acted on; notes are kept for the next call; costs count."""
    run = Drive(bare=True).go()
    decision = {"kind": "ask", "question": "?", "notes": {"n": 1}}
    run.tell(ev.PlannerAnswered(1, 1, decision, 0.5))
    assert run.state.planner.answer == decision
    assert run.state.planner.notes == {"n": 1}
    assert run.state.planner.epoch == 0
    assert run.state.spent == 0.5
    run.go()
    assert run.state.planner.answer is None
    run.reply("x").answer({"kind": "finish", "result": 1})
    assert run.state.planner.notes == {"n": 1}, "an answer without notes leaves them"
    assert run.state.planner.answer is None
    assert run.state.finish == {"kind": "finish", "result": 1}


def test_an_answer_that_became_a_revision_is_not_acted_on_again():
    """Its steps stand in the revision that is logged with it."""
    run = Drive(bare=True).go()
    run.tell(ev.PlannerAnswered(1, 1, {"kind": "propose", "revision": 1}))
    assert run.state.planner.answer is None


@pytest.mark.parametrize(
    ("due", "lost", "after", "rounds"),
    [
        ("", False, "the last call failed", 1),
        ("report", False, "the last call failed", 1),
        ("surprise: x", False, "surprise: x", 1),
        ("", True, "the last call failed", 0),
    ],
)
def test_a_failed_call(due, lost, after, rounds):
    """The planner is asked again, for a better reason if there is one."""
    run = Drive(bare=True).go()
    run.state.planner.due = due
    run.tell(ev.PlannerFailed(1, 1, "it raised", lost))
    planner = run.state.planner
    assert (planner.due, planner.rounds, planner.findings) == (after, rounds, ["it raised"])
    assert planner.epoch == 0


def test_a_refused_proposal():
    """The planner is told the findings and asked again."""
    run = Drive(bare=True).go()
    run.tell(ev.PlannerAnswered(1, 1, {"kind": "?"}), ev.ProposalRefused(1, ["no"]))
    planner = run.state.planner
    assert (planner.answer, planner.findings, planner.rounds) == (None, ["no"], 1)
    assert planner.due == "the last proposal was refused"


def test_a_proposed_revision_waits():
    """Its steps do not exist yet, and the count of bad rounds starts afresh."""
    run = Drive(bare=True).go().answer({"kind": "?"})
    assert run.state.planner.rounds == 1
    proposed = ev.RevisionProposed(
        number=1,
        author="p",
        base="",
        hash="h",
        add=[step("a")],
        cancel=[],
        final=False,
        outlook=[{"id": "later"}],
        risk="high",
    )
    run.tell(proposed)
    pending = run.state.pending
    assert (pending.number, pending.hash, pending.add) == (1, "h", [step("a")])
    assert (pending.cancel, pending.final, pending.author, pending.risk) == ([], False, "p", "high")
    assert run.state.outlook == [{"id": "later"}]
    assert (run.state.planner.rounds, run.state.planner.findings) == (0, [])
    assert run.state.steps == {}
    run.tell(ev.ReviewRequested(1, "h", "look"))
    question = run.state.questions["review-1"]
    assert (question.kind, question.text, question.choices) == (
        "review",
        "look",
        ["approve", "reject"],
    )
    assert (question.step, question.at, question.revision) == ("", run.now.at, 1)


def revised(run, *add, number, base, final=True, cancel=(), digest="h", instants=None):
    """Tell of a revision and its approval."""
    run.tell(
        ev.RevisionProposed(
            number=number,
            author="p",
            base=base,
            hash=digest,
            add=list(add),
            cancel=list(cancel),
            final=final,
        ),
        ev.RevisionApproved(number, digest, "ann", "", instants or {}),
    )
    return run


def test_an_approved_revision_is_installed():
    """Only then do its steps exist; the review is closed and the plan has a new head."""
    run = Drive(bare=True).go()
    run.tell(
        ev.RevisionProposed(
            number=1, author="p", base="", hash="h", add=[step("a"), step("b", "a")]
        ),
        ev.ReviewRequested(1, "h", "look"),
        ev.RevisionApproved(1, "h", "ann", instants={"b": 9}),
    )
    state = run.state
    assert (state.pending, state.questions) == (None, {})
    assert (state.revision, state.head, state.final) == (1, "h", True)
    assert (state.unsettled, state.revisions_idle) == (2, 0)
    assert [(s.id, s.status, s.order, s.blockers, s.used) for s in state.steps.values()] == [
        ("a", "ready", 0, 0, True),
        ("b", "waiting", 1, 1, False),
    ]
    assert state.steps["b"].not_before == 9
    assert state.steps["a"].dependents == [("b", False)]


def test_a_rejected_revision_is_gone():
    """Nothing of it remains."""
    run = Drive(bare=True).go()
    run.tell(
        ev.RevisionProposed(number=1, author="p", base="", hash="h", add=[step("a")]),
        ev.ReviewRequested(1, "h", "look"),
        ev.RevisionRejected(1, "h", "ann"),
    )
    assert (run.state.pending, run.state.questions, run.state.steps) == (None, {}, {})
    assert (run.state.revision, run.state.head) == (0, "")


def test_tails_follow_the_estimates():
    """The longest way to the end, in seconds; without estimates there is none."""
    run = Drive(step("a", est="1m"), step("b", "a", est=5), step("c", "a"), step("d"))
    assert [s.tail for s in run.state.steps.values()] == [65.0, 5.0, 0.0, 0.0]
    run = Drive(step("a"), step("b", "a"))
    assert [s.tail for s in run.state.steps.values()] == [0.0, 0.0]


def test_a_workers_estimate_stands_in_for_the_steps():
    """Where the step gives none; without any estimate there is no tail at all."""
    slow = WorkerSpec(name="slow", offers={"go": Offer(est_s=40.0), "": Offer()})
    docs = [
        step("a", worker="slow", action="go"),
        step("b", "a", worker="slow", action="go", est=2),
        step("c", "a", worker="slow"),
        step("d", "a"),
        step("e", "b", worker="ghost"),
    ]
    linted = digest(canonical(docs))
    run = Drive(*docs, catalog=[slow, spec("w")], linted=linted)
    assert [s.tail for s in run.state.steps.values()] == [42.0, 2.0, 0.0, 0.0, 0.0]
    run = Drive(step("a"), step("b", "a"), catalog=[spec("w", est_s=3.0)])
    assert [s.tail for s in run.state.steps.values()] == [6.0, 3.0]


def test_revisions_that_try_nothing_new_are_counted():
    """Not one that changes nothing, nor while something is open; a first try starts afresh."""
    run = revised(Drive(bare=True, replans=True).go(), step("a"), step("b"), number=1, base="")
    run.go().fail("a", "permanent")
    revised(run, step("c"), number=2, base="h", digest="h2")
    assert run.state.revisions_idle == 0, "b is under way"
    run.done("b")
    revised(run, number=3, base="h2", digest="h3")
    assert run.state.revisions_idle == 0, "it changes nothing"
    run.done("c")
    revised(run, step("x"), number=4, base="h3", digest="h4")
    revised(run, step("d"), number=5, base="h4", cancel=["x"], digest="h5")
    assert run.state.revisions_idle == 2
    revised(run, step("e", parameters={"x": 1}), number=6, base="h5", digest="h6")
    assert run.state.revisions_idle == 0


def test_a_step_may_depend_on_what_is_already_settled():
    """A success is no obstacle, a failure dooms whoever minds, and `finished` does not mind."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("ok"), step("bad", failure_action="continue"), final=False))
    run.done("ok").fail("bad", "permanent")
    revised(
        run,
        step("x", "ok"),
        step("y", finished("bad")),
        step("z", "bad", "ok"),
        number=2,
        base=run.state.head,
    )
    assert run.status("x", "y", "z") == ["ready", "ready", "waiting"]
    assert list(run.state.to_skip) == ["z"]
    assert run.state.steps["z"].lost_dependency == "bad"


def test_a_cancelled_step_is_settled():
    """The revision took it out; whoever minds is doomed."""
    run = Drive(bare=True).go()
    run.answer(
        propose(step("r"), step("a", "r"), step("b", "a"), step("c", finished("a")), final=False)
    )
    revised(run, number=2, base=run.state.head, cancel=["a"])
    assert run.status("a", "b", "c") == ["cancelled", "waiting", "ready"]
    assert run.state.steps["a"].reason == "revision 2 took it out"
    assert list(run.state.to_skip) == ["b"]
    assert (run.state.unsettled, run.state.blocking) == (3, 0)


# Superseding.


def planned(*steps):
    run = Drive(bare=True, replans=True).go()
    return run.answer(propose(*steps, final=False))


def test_a_superseding_step_takes_the_place_of_the_old_one():
    """Whoever waited for the old step waits for the new one, and so do references."""
    run = planned(
        step("r"), step("a", "r"), step("b", "a", parameters={"x": "${{ steps.a.data }}"})
    )
    revised(run, step("a2", supersedes="a"), number=2, base=run.state.head)
    state = run.state
    assert run.status("a", "a2", "b") == ["superseded", "ready", "waiting"]
    assert state.steps["a"].superseded_by == "a2"
    assert (state.steps["a"].dependents, state.steps["a2"].dependents) == ((), [("b", False)])
    assert state.steps["a2"].used
    assert state.unsettled == 3
    run.go().done("r")
    assert run.running == ["a2"]
    run.done("a2", data=5)
    assert run.running == ["b"]
    assert run.effects[-1].parameters == {"x": 5}


def test_a_superseded_failure_is_no_longer_bad():
    """The run may succeed with the step that took its place."""
    run = planned(step("a"), step("b", "a")).fail("a", "permanent")
    assert (run.state.blocking, run.state.awaiting_planner) == (1, ["a"])
    run.answer(propose(step("a2", supersedes="a")))
    assert (run.state.blocking, run.state.awaiting_planner) == (0, [])
    run.done("a2").done("b")
    assert run.ended == "succeeded"


def test_a_superseded_question_is_closed():
    """Nobody needs to answer for a step that is gone."""
    run = planned(step("a", failure_action="escalate"), step("z")).fail("a", "permanent")
    assert run.status("a") == ["asking"]
    run.take(commands.amend(run.state, {"steps": [step("a2", supersedes="a")]}, "ann", run.now))
    assert run.state.questions == {}
    assert (run.state.steps["a"].question, run.state.unsettled) == ("", 2)


def test_superseding_a_tolerated_failure():
    """It was never counted as bad; who was told of its end waits for nobody again."""
    run = planned(step("a", failure_action="continue"), step("b"), step("c", finished("a"), "b"))
    run.fail("a", "permanent")
    revised(run, step("a2", supersedes="a"), number=2, base=run.state.head)
    assert run.state.blocking == 0
    run.go().done("a2")
    assert run.status("c") == ["waiting"], "b is not done"
    assert run.done("b").running == ["c"]


def test_a_chain_of_heirs():
    """A step may be superseded again and again; its name leads to the last."""
    run = planned(step("r"), step("a", "r"), step("b", "a"))
    revised(run, step("a2", supersedes="a"), number=2, base=run.state.head)
    revised(run, step("a3", supersedes="a2"), number=3, base="h", digest="h3")
    assert run.state.follow("a").id == "a3"
    assert run.state.follow("b").id == "b"
    assert run.state.follow("nobody") is None
    revised(run, step("c", "a"), number=4, base="h3", digest="h4")
    assert run.state.steps["a3"].dependents == [("b", False), ("c", False)]


def test_a_failed_heir_dooms_who_depends_on_the_old_name():
    """The reason names the step that failed, not the one it took the place of."""
    run = planned(step("a"), step("z")).fail("a", "permanent")
    run.answer(propose(step("a2", supersedes="a", failure_action="continue"), final=False))
    run.fail("a2", "permanent")
    revised(run, step("c", "a"), number=3, base=run.state.head, digest="h3")
    assert run.state.steps["c"].lost_dependency == "a2"


def test_only_waiting_dependents_move_to_the_heir():
    """One that is settled already does not."""
    run = planned(step("r"), step("a", "r"), step("b", "a"), step("c", "a"))
    revised(run, number=2, base=run.state.head, cancel=["b"], digest="h2")
    revised(run, step("a2", supersedes="a"), number=3, base="h2", digest="h3")
    assert run.state.steps["a2"].dependents == [("c", False)]


@pytest.mark.parametrize("room", [0, 1])
def test_a_superseded_step_leaves_the_queue(room):
    """It was ready; the one that took its place starts instead."""
    run = Drive(bare=True, room=room).go()
    run.answer(propose(step("r"), step("a"), final=False))
    old = "a" if room else "r"
    assert run.status(old) == ["ready"]
    revised(run, step("n", supersedes=old), number=2, base=run.state.head)
    run.room = 9
    run.go()
    assert sorted(run.running) == (["n", "r"] if room else ["a", "n"])


# Steps that were left to the planner.


def test_a_failed_step_is_given_up_by_name_with_what_waits_for_it():
    """With new steps, or with the word that nothing follows; the reason is kept."""
    drop = {"a": "no longer needed"}
    for answer in (propose(step("n"), final=False, drop=drop), propose(steps=[], drop=drop)):
        run = planned(
            step("a"),
            step("b", "a"),
            step("c", "b"),
            step("d", finished("c")),
            step("e", finished("b"), "z"),
            step("z"),
        )
        run.fail("a", "permanent")
        assert run.status("b") == ["waiting"]
        run.answer(answer)
        assert run.status("a", "b", "c", "d", "e") == [
            "failed",
            "cancelled",
            "cancelled",
            "running",
            "waiting",
        ]
        assert run.state.steps["a"].tolerated
        because = "a, which it depends on, was dropped: no longer needed"
        assert run.state.steps["b"].reason == run.state.steps["b"].dropped == because
        assert run.state.steps["a"].dropped == "no longer needed"
        assert (run.state.blocking, run.state.awaiting_planner) == (0, [])
        assert run.done("z").status("e") == ["running"]


def test_an_empty_revision_that_is_not_final_forsakes_nobody():
    """The planner has not said yet what it makes of the failure."""
    run = planned(step("a"), step("b", "a"), step("c")).fail("a", "permanent")
    run.answer(propose(steps=[], final=False))
    assert run.status("a", "b") == ["failed", "waiting"]
    assert (run.state.blocking, run.state.awaiting_planner) == (1, ["a"])


def test_a_dependent_that_is_gone_already_is_not_cancelled_twice():
    """The same revision took it out."""
    run = planned(step("a"), step("b", "a"), step("c", "a")).fail("a", "permanent")
    assert run.state.unsettled == 2
    run.answer(propose(step("n"), cancel=["b"], drop={"a": "n does it"}, final=False))
    assert run.status("b", "c", "n") == ["cancelled", "cancelled", "running"]
    assert run.state.steps["b"].reason == "revision 2 took it out"
    assert run.state.unsettled == 1


def test_a_doomed_dependent_of_a_forsaken_step_is_cancelled():
    """It was to be skipped anyway; it is not started."""
    run = planned(step("a"), step("x", failure_action="continue"), step("b", finished("a"), "x"))
    run.fail("a", "permanent")
    run.tell(ev.AttemptReported("x", 1, 3, False, failure=failure("permanent")))
    run.take(run.decide())
    assert list(run.state.to_skip) == ["b"]
    revised(run, step("n"), number=2, base=run.state.head)
    assert run.status("b") == ["waiting"]
    assert run.go().status("b") == ["skipped"]


# Attempts.


def test_an_attempt_occupies_and_releases():
    """Worker, resources and budget are held from the start to the report."""
    policy = Policy(budget=10.0, resources={"db": 5})
    run = Drive(
        step("a", worker="p", uses={"db": 2}), catalog=[spec("p", cost=3.0)], policy=policy, at=7
    )
    state, known = run.state, run.state.steps["a"]
    assert (state.in_flight, state.busy_workers, state.busy_resources) == (
        {"a": 2},
        {"p": 1},
        {"db": 2},
    )
    assert (state.reserved, state.epoch, known.epoch, known.attempts) == (3.0, 2, 2, 1)
    assert (known.started, known.ticket, known.deadline) == (7, 0, 7 + 3600 * SECOND)
    run.fail("a", cost=1.5)
    assert (state.in_flight, state.busy_workers, state.busy_resources) == ({}, {"p": 0}, {"db": 0})
    assert (state.reserved, known.epoch, state.spent, known.cost) == (0.0, 0, 1.5, 1.5)
    run.later(5)
    assert (known.started, known.attempts) == (7, 2), "started when it first started"
    run.done("a", cost=1.0)
    assert (known.cost, state.spent, known.ended) == (2.5, 2.5, 7 + 5 * SECOND)


def test_the_worker_of_an_attempt_is_the_one_in_the_event():
    """Whoever the plan named."""
    run = Drive(step("a"), room=0)
    run.tell(ev.AttemptStarted("a", 1, 2, "other", 99, "s", "e"))
    assert run.state.steps["a"].worker == "other"
    assert run.state.busy_workers == {"other": 1}
    assert (99, "running", "a", 2) in run.state.timers


def test_a_verified_report():
    """Data, recommendations and the report itself are kept; the failure is forgotten."""
    run = Drive(step("a"), step("b", "a")).fail("a").later(1)
    run.done("a", data={"x": 1}, recommendations=("look",), findings=("f",))
    known = run.state.steps["a"]
    assert (known.status, known.data, known.data_ref, known.failure) == (
        "succeeded",
        {"x": 1},
        "",
        None,
    )
    assert known.findings == ("f",)
    assert known.failures == (failure(),)
    assert run.state.recommendations == ["look"]
    assert run.state.succeeded == 1
    run.done("b", data_ref="sha256:1", recommendations=("more",))
    assert run.state.steps["b"].data_ref == "sha256:1"
    assert run.state.recommendations == ["look", "more"]


def test_a_failed_report():
    """It is counted for its worker and waits for a decision."""
    run = Drive(step("a"), step("b"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure()))
    run.tell(ev.AttemptReported("b", 1, 3, False))
    known = run.state.steps["a"]
    assert (known.status, known.failure, known.tries) == ("undecided", failure(), {"w": 1})
    assert run.state.steps["b"].failure == {}
    assert list(run.state.undecided) == ["a", "b"]
    assert run.state.failed_attempts == [("a", 1, "w", failure()), ("b", 1, "w", {})]


def test_a_lost_attempt():
    """Nobody saw its effect."""
    run = Drive(step("a"))
    run.tell(ev.AttemptLost("a", 1, 2, "lost", "gone"))
    expected = {"class": "lost", "message": "gone", "effect": "unknown"}
    assert run.state.steps["a"].failure == expected
    assert run.state.steps["a"].tries == {"w": 1}
    assert run.state.in_flight == {}


def test_an_attempt_of_a_worker_that_is_gone_is_lost_as_any_other():
    """Nobody knows any more whether it was a person."""
    run = Drive(step("a"))
    del run.state.catalog.workers["w"]
    run.tell(ev.AttemptLost("a", 1, run.state.in_flight["a"], "lost", "so"))
    assert (run.status("a"), run.state.steps["a"].answered) == (["undecided"], False)


def test_a_refused_start():
    """No attempt, no try, and surely no effect."""
    run = Drive(step("a"), step("b", "a"))
    run.later(1)
    run.tell(ev.AttemptReported("a", 1, 2, True))
    run.tell(ev.StepRefused("b", "permanent", "no value"))
    known = run.state.steps["b"]
    assert known.failure == {"class": "permanent", "message": "no value", "effect": "none"}
    assert (known.tries, known.attempts, known.started, known.ticket) == (None, 0, SECOND, 0)
    assert list(run.state.undecided) == ["b"]
    run = Drive(step("a"), at=3).fail("a")
    run.now = Now(9 * SECOND, 0)
    run.tell(ev.StepRefused("a", "unavailable", "gone"))
    assert run.state.steps["a"].started == 3, "it had been started before"


def test_a_late_report_counts_only_its_cost():
    """Everything else is as before."""
    run = Drive(step("a"))
    before = snapshot(run.state)
    run.tell(ev.ReportIgnored("a", 1, 1, 0.25))
    after = snapshot(run.state)
    assert after.pop("spent") == before.pop("spent") + 0.25
    assert after.pop("seq") == before.pop("seq") + 1
    assert after["tally"].pop("cost") == after["tally"].pop("plan::cost") == 250_000
    assert after == before


def test_a_process_that_was_spawned_changes_nothing():
    """It is for whoever must find the process again."""
    run = Drive(step("a"))
    before = snapshot(run.state)
    run.tell(ev.AttemptSpawned("a", 2, 4711, 1, "boot"))
    after = snapshot(run.state)
    assert after.pop("seq") == before.pop("seq") + 1
    assert after == before


def probing(**more):
    run = Drive(step("a", worker="probed", timeout=5, **more), step("b", "a"))
    return run.later(5)


def test_a_probe_occupies_and_releases():
    """As an attempt does, with an epoch of its own."""
    run = probing()
    assert run.state.in_flight == {"a": 3}
    assert run.state.busy_workers == {"probed": 1}
    assert (run.state.epoch, run.state.steps["a"].epoch) == (3, 3)
    run.probed("a", "unknown")
    assert (run.state.in_flight, run.state.busy_workers) == ({}, {"probed": 0})


def test_a_probe_that_found_the_result():
    """It is adopted, by value or by name."""
    run = probing().probed("a", "done", met=True, data={"x": 1})
    assert (run.state.steps["a"].data, run.running) == ({"x": 1}, ["b"])
    run = probing().probed("a", "done", met=True, data_ref="sha256:1")
    assert (run.state.steps["a"].data_ref, run.running) == ("sha256:1", ["b"])


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        ("done", "odd", {"class": "criteria_unmet", "effect": "done", "probed": True}),
        ("not_done", "", {"class": "timeout", "effect": "none", "probed": True}),
        ("not_done", "met", {"class": "timeout", "effect": "none", "probed": True}),
        ("unknown", "cannot tell", {"class": "timeout", "effect": "unknown", "probed": True}),
        ("lost", "gone", {"class": "timeout", "effect": "unknown", "probed": False}),
    ],
)
def test_a_probe_that_did_not(outcome, reason, expected):
    """The failure is what it was, with what is known now; it is no attempt of its own."""
    run = probing()
    known = run.state.steps["a"]
    tries = known.tries
    met = reason == "met"
    run.tell(ev.ProbeReported("a", 1, known.epoch, outcome, reason=reason, met=met))
    message = "no report within 5s, its timeout" + (f"; probe: {reason}" if reason else "")
    assert known.failure == {**expected, "message": message}
    assert (known.status, known.tries) == ("undecided", tries)
    assert list(run.state.undecided) == ["a"]
    assert known.failures == (known.failure,)


def test_a_probe_speaks_of_the_last_failure_only():
    """Earlier ones are as they were."""
    run = Drive(step("a", worker="probed", timeout=5)).fail("a").later(1).later(5)
    run.probed("a", "not_done")
    known = run.state.steps["a"]
    assert known.failures == (failure(), known.failure)
    assert known.failure["probed"] is True


# Decisions.


def decided(strategy, **more):
    return ev.RecoveryDecided(
        step="a", attempt=1, failure_class="transient", strategy=strategy, reason="why", **more
    )


def failed():
    run = Drive(step("a"), step("b", "a"), step("c", finished("a")))
    return run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure()))


@pytest.mark.parametrize(
    ("strategy", "status", "dependents", "tolerated", "bad", "unsettled"),
    [
        ("retry", "backing_off", ["waiting", "waiting"], False, 0, 3),
        ("reroute", "backing_off", ["waiting", "waiting"], False, 0, 3),
        ("ask", "undecided", ["waiting", "waiting"], False, 0, 3),
        ("probe", "undecided", ["waiting", "waiting"], False, 0, 3),
        ("replan", "failed", ["waiting", "waiting"], False, 1, 2),
        ("continue", "failed", ["waiting", "ready"], True, 0, 2),
        ("abort", "failed", ["waiting", "waiting"], False, 1, 2),
        ("abandon", "failed", ["waiting", "waiting"], False, 1, 2),
    ],
)
def test_what_a_decision_does(strategy, status, dependents, tolerated, bad, unsettled):
    """Back to the queue, on to a probe or a person, or to an end."""
    run = failed().tell(decided(strategy, until=50, worker="other"))
    state, known = run.state, run.state.steps["a"]
    assert (known.status, run.status("b", "c")) == (status, dependents)
    assert (known.tolerated, state.blocking, state.unsettled) == (tolerated, bad, unsettled)
    assert known.reason == "why"
    assert not state.undecided
    if status == "backing_off":
        assert (known.until, known.worker) == (50, "other")
        assert (50, "retry", "a", 0) in state.timers
    assert list(state.to_skip) == (["b"] if strategy == "continue" else [])
    assert state.awaiting_planner == (["a"] if strategy == "replan" else [])
    assert state.planner.due == ("surprise: step a failed: why" if strategy == "replan" else "")


def test_a_question_about_a_step():
    """The step waits for it, and its answer can come any time."""
    run = failed().tell(decided("ask"))
    run.now = Now(3 * SECOND, 0)
    question = ev.QuestionAsked(
        id="q1", kind="failure", text="?", choices=["retry"], step="a", attempt=1
    )
    run.tell(question)
    known = run.state.steps["a"]
    assert (known.status, known.question, run.state.asked) == ("asking", "q1", 1)
    kept = run.state.questions["q1"]
    assert (kept.id, kept.kind, kept.text, kept.choices) == ("q1", "failure", "?", ["retry"])
    assert (kept.step, kept.at, kept.revision) == ("a", 3 * SECOND, 0)


def test_a_planners_question_is_its_answer():
    """The answer that asked is used up; one about a step leaves it alone."""
    run = Drive(bare=True).go()
    run.tell(ev.PlannerAnswered(1, 1, {"kind": "ask", "question": "?"}))
    run.tell(ev.QuestionAsked(id="q1", kind="planner", text="?"))
    assert run.state.planner.answer is None
    run = failed().tell(decided("ask"))
    run.state.planner.answer = {"kind": "ask"}
    run.tell(ev.QuestionAsked(id="q1", kind="failure", text="?", step="a"))
    assert run.state.planner.answer == {"kind": "ask"}


def asking():
    run = failed().tell(decided("ask"))
    return run.tell(ev.QuestionAsked(id="q1", kind="unseen", text="What?", step="a"))


@pytest.mark.parametrize(
    ("choice", "status", "tries"),
    [
        ("retry", "ready", None),
        ("done", "succeeded", {"w": 1}),
        ("skip", "asking", {"w": 1}),
        ("abort", "asking", {"w": 1}),
    ],
)
def test_an_answer_about_a_step(choice, status, tries):
    """Retry lets it start over; done adopts what the person says; the rest has its own event."""
    run = asking()
    run.tell(ev.QuestionAnswered(id="q1", choice=choice, actor="ann", text="t", data=7))
    known = run.state.steps["a"]
    assert (known.status, known.tries, known.question) == (status, tries, "")
    assert known.forgiven == (1 if choice == "retry" else 0)
    assert known.data == (7 if choice == "done" else None)
    assert run.state.questions == {}
    (answer,) = run.state.answers
    said = {"question": "What?", "step": "a", "choice": choice, "text": "t", "data": 7}
    assert answer == {**said, "actor": "ann", "facts": [], "at": run.now.at}
    assert run.state.planner.due == ""


def test_an_answer_to_the_planner_brings_it_back():
    """With the answer in its view."""
    run = Drive(bare=True).go().answer({"kind": "ask", "question": "Which?"})
    run.tell(ev.QuestionAnswered(id="q1", choice="", actor="ann", text="that one"))
    assert run.state.planner.due == "answer"
    assert run.state.answers[0]["text"] == "that one"


@pytest.mark.parametrize("tolerated", [False, True])
def test_a_skip(tolerated):
    """A person's skip may leave the run unharmed; dependents that mind are doomed."""
    run = asking().tell(ev.StepSkipped("a", "skipped by ann", tolerated))
    assert (run.status("a", "b", "c"), run.state.blocking) == (
        ["skipped", "waiting", "ready"],
        0 if tolerated else 1,
    )
    assert run.state.steps["a"].tolerated is tolerated
    assert run.state.questions == {}
    assert run.state.steps["a"].reason == "skipped by ann"
    assert list(run.state.to_skip) == ["b"]


def test_a_skip_of_the_doomed_takes_it_off_the_list():
    """Only the one it names."""
    run = Drive(step("a", failure_action="continue"), step("b", "a"), step("c", "a"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure("permanent")))
    run.take(run.decide())
    assert list(run.state.to_skip) == ["b", "c"]
    run.take(run.decide())
    assert list(run.state.to_skip) == ["c"]
    assert run.state.steps["b"].lost_dependency == "a"


def test_a_skip_of_another_step_leaves_the_doomed_alone():
    """A person skipped one while another waits to be skipped."""
    run = Drive(step("a", failure_action="continue"), step("b", "a"), step("c"))
    run.fail("c", "permanent")
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure("permanent")))
    run.take(run.decide())
    run.tell(ev.StepSkipped("c", "skipped by ann", tolerated=True))
    assert list(run.state.to_skip) == ["b"]
    assert run.go().status() == ["failed", "skipped", "skipped"]


def test_a_doomed_step_is_not_made_ready():
    """Its other dependency succeeds before it is skipped."""
    run = Drive(step("a", failure_action="continue"), step("b"), step("c", "a", "b"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure("permanent")))
    run.take(run.decide())
    run.tell(ev.AttemptReported("b", 1, 3, True))
    assert run.status("c") == ["waiting"]


def test_a_step_is_doomed_once():
    """By the first of its dependencies that will never succeed."""
    run = Drive(
        step("a", failure_action="continue"),
        step("b", failure_action="continue"),
        step("c", "a", "b"),
    )
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure("permanent")))
    run.tell(ev.AttemptReported("b", 1, 3, False, failure=failure("permanent")))
    run.take(run.decide()).take(run.decide())
    assert list(run.state.to_skip) == ["c"]
    assert run.state.steps["c"].lost_dependency == "a"


def test_a_cancelled_step_event():
    """It settles like any other end, and closes its question."""
    run = asking().tell(ev.StepCancelled("a", "not needed"))
    assert (run.status("a"), run.state.questions) == (["cancelled"], {})
    assert run.state.steps["a"].reason == "not needed"
    assert (run.state.unsettled, run.state.blocking) == (2, 0)


# The goal.


def test_a_goal_check():
    """It is asked for once; a yes is for ever, a no depends on whether the planner can go on."""
    run = Drive(step("a"), goal={"text": "", "acceptance": ["x"]}).done("a")
    assert (run.state.goal_asked, run.state.goal_met) == (True, None)
    run.tell(ev.GoalChecked(met=False, findings=["f"]))
    assert (run.state.goal_asked, run.state.goal_met, run.state.goal_findings) == (
        True,
        False,
        ["f"],
    )
    run = Drive(step("a"), goal={"text": "", "acceptance": ["x"]}, replans=True).done("a")
    run.tell(ev.GoalChecked(met=False, findings=["f", "g"]))
    assert (run.state.goal_asked, run.state.goal_met, run.state.finish) == (False, None, None)
    assert run.state.planner.due == "surprise: the goal is not met: f; g"


def test_a_new_host_forgets_an_open_goal_check_only():
    """A verdict that was given stands."""
    run = Drive(step("a"), goal={"text": "", "acceptance": ["x"]}).done("a")
    run.tell(ev.RunHosted(2))
    assert run.state.goal_asked is False
    run.tell(ev.GoalCheckStarted(), ev.GoalChecked(met=True), ev.RunHosted(3))
    assert (run.state.goal_asked, run.state.goal_met) == (True, True)


# Events that do not fit.


def waiting_run():
    """a runs, b waits for a, c asks, d is done, e is probed, f backs off, g failed, h is ready."""
    run = Drive(
        step("a"),
        step("b", "a"),
        step("c"),
        step("d"),
        step("e", worker="probed"),
        step("f"),
        step("g", failure_action="continue"),
        step("h", not_before="23:00 UTC"),
    )
    run.fail("c", "permanent").done("d").fail("f").fail("g", "permanent")
    return run.fail("e", "lost", "unknown")


ILLEGAL = [
    ev.RunHosted(1),
    ev.RunHosted(0),
    started(),
    HostOpened(1, 2, "v"),
    ev.PlannerAsked(1, 9, 0, "x"),
    ev.PlannerAsked(3, 9, 0, "x"),
    ev.PlannerAsked(1, 99, 0, "x"),
    ev.PlannerAsked(3, 99, 0, "x"),
    ev.PlannerAsked(2, 1, 0, "x"),
    ev.PlannerAnswered(1, 0, {}),
    ev.PlannerAnswered(1, 1, {}),
    ev.PlannerFailed(1, 1, "x"),
    ev.PlannerFailed(1, 0, "x"),
    ev.RevisionProposed(number=1, author="", base="", hash="h", add=[]),
    ev.RevisionProposed(number=3, author="", base="BASE", hash="h", add=[]),
    ev.RevisionProposed(number=2, author="", base="other", hash="h", add=[]),
    ev.ReviewRequested(1, "h", ""),
    ev.RevisionApproved(1, "h", "ann"),
    ev.RevisionRejected(1, "h", "ann"),
    ev.QuestionAsked(id="q2", kind="failure", text="", step="nobody"),
    ev.QuestionAsked(id="q2", kind="failure", text="", step="a"),
    ev.QuestionAsked(id="q1", kind="planner", text=""),
    ev.QuestionAnswered(id="q9", choice="retry", actor="ann"),
    *(ev.AttemptStarted(i, 1, 99, "w", 0, "", "") for i in ("nobody", *"abcdefgh")),
    ev.AttemptStarted("f", 1, 9, "w", 0, "", ""),
    ev.AttemptStarted("f", 3, 9, "w", 0, "", ""),
    ev.AttemptStarted("f", 2, 8, "w", 0, "", ""),
    ev.AttemptStarted("f", 2, 10, "w", 0, "", ""),
    *(ev.AttemptSpawned(i, 99, 1, 1, "") for i in ("nobody", *"abcdefgh")),
    *(ev.AttemptReported(i, 1, 99, True) for i in ("nobody", *"abcdefgh")),
    *(ev.AttemptReported(i, 1, 0, True) for i in "bcdfgh"),
    ev.AttemptReported("e", 1, 8, True),
    *(ev.AttemptLost(i, 1, 99, "lost", "") for i in ("nobody", *"abcdefgh")),
    ev.AttemptLost("e", 1, 8, "lost", ""),
    *(ev.ProbeStarted(i, 1, 9, 0) for i in ("nobody", *"abcdefgh")),
    *(ev.ProbeReported(i, 1, 99, "done") for i in ("nobody", *"abcdefgh")),
    ev.ProbeReported("a", 1, 2, "done"),
    *(ev.StepRefused(i, "permanent", "") for i in ("nobody", *"abcdeg")),
    *(
        ev.RecoveryDecided(step=i, attempt=1, failure_class="x", strategy="retry", reason="")
        for i in ("nobody", *"abcdefgh")
    ),
    *(ev.StepSkipped(i, "") for i in ("nobody", *"adeg")),
    *(ev.StepCancelled(i, "") for i in ("nobody", *"adeg")),
    ev.GoalChecked(met=True),
    ev.RunEnded("succeeded"),
]


@pytest.mark.parametrize("number", range(len(ILLEGAL)))
def test_an_event_that_does_not_fit_is_refused_and_changes_nothing(number):
    """A log that folds is a log that makes sense."""
    run = waiting_run()
    assert run.status() == [
        "running",
        "waiting",
        "asking",
        "succeeded",
        "probing",
        "backing_off",
        "failed",
        "ready",
    ]
    assert run.state.epoch == 8
    event = ILLEGAL[number]
    if isinstance(event, ev.RevisionProposed) and event.base == "BASE":
        event = msgspec.structs.replace(event, base=run.state.head)
    before = snapshot(run.state)
    with pytest.raises(IllegalEvent):
        evolve(run.state, event, 1)
    assert snapshot(run.state) == before


def test_no_event_comes_before_the_start():
    """Whatever it is."""
    for kind in HANDLERS:
        if kind is ev.RunStarted:
            continue
        state = State()
        with pytest.raises(IllegalEvent, match=f"{kind.__name__} before the run started"):
            evolve(state, example(kind), 0)
        assert state.seq == 0


def test_no_event_comes_after_the_end():
    """Not even a note of a cost."""
    run = Drive(step("a")).done("a")
    before = snapshot(run.state)
    for kind in HANDLERS:
        said = f"{kind.__name__} after the run ended"
        if kind is ev.RunReopened:
            said = "only a run that failed can be reopened"
        with pytest.raises(IllegalEvent, match=said):
            evolve(run.state, example(kind), 0)
    assert snapshot(run.state) == before


def example(kind):
    """Some event of a kind."""
    values = {"str": "x", "int": 1, "float": 0.0, "bool": True}
    given = {
        field.name: values.get(getattr(field.type, "__name__", ""), {})
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    return kind(**given)


def test_a_run_is_stopped_once():
    """A second stop is a mistake; a cancel is not."""
    run = Drive(step("a")).tell(ev.StopDecided("failed", "x"))
    with pytest.raises(IllegalEvent, match="stopping already"):
        evolve(run.state, ev.StopDecided("failed", "y"), 0)
    assert run.state.stopping.reason == "x"


def test_an_unknown_strategy():
    """It is refused before the step is taken off the list."""
    run = failed()
    before = snapshot(run.state)
    with pytest.raises(IllegalEvent, match="unknown strategy"):
        evolve(run.state, decided("pray"), 0)
    assert snapshot(run.state) == before


def test_decisions_are_taken_in_the_order_of_the_failures():
    """The first failure is decided first."""
    run = Drive(step("a"), step("b"))
    run.tell(ev.AttemptReported("b", 1, 3, False, failure=failure()))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure()))
    with pytest.raises(IllegalEvent, match="not the one to be decided"):
        evolve(run.state, decided("retry"), 0)


def test_one_revision_at_a_time():
    """While one waits, no other is proposed; and only what waits is let through, by its hash."""
    run = Drive(bare=True).go()
    first = ev.RevisionProposed(number=1, author="", base="", hash="h", add=[step("a")])
    run.tell(first)
    for event in (
        first,
        ev.RevisionApproved(1, "x", "ann"),
        ev.RevisionApproved(2, "h", "ann"),
        ev.RevisionRejected(1, "x", "ann"),
        ev.ReviewRequested(2, "h", ""),
    ):
        before = snapshot(run.state)
        with pytest.raises(IllegalEvent):
            evolve(run.state, event, 0)
        assert snapshot(run.state) == before


@pytest.mark.parametrize(
    ("add", "cancel"),
    [
        ([step("a")], []),  # it is there already
        ([step("n"), step("n")], []),
        ([step("n", "nobody")], []),
        ([step("n", supersedes="nobody")], []),
        ([step("n", supersedes="a")], []),  # it runs
        ([step("n", supersedes="d")], []),  # it succeeded
        ([step("n", supersedes="e")], []),  # it is probed
        ([step("n", supersedes="b"), step("m", supersedes="b")], []),
        ([step("n", supersedes="b")], ["b"]),
        ([], ["nobody"]),
        ([], ["b", "b"]),
        ([], ["a"]),
        ([], ["d"]),
        ([], ["e"]),
        ([], ["g"]),  # it failed
    ],
)
def test_a_revision_that_does_not_fit_the_plan_changes_nothing(add, cancel):
    """The whole of it is looked at before any of it is done."""
    run = waiting_run()
    run.tell(
        ev.RevisionProposed(
            number=2,
            author="",
            base=run.state.head,
            hash="h",
            add=[step("ok"), *add],
            cancel=["h", *cancel],
        )
    )
    before = snapshot(run.state)
    with pytest.raises(IllegalEvent):
        evolve(run.state, ev.RevisionApproved(2, "h", "ann"), 0)
    assert snapshot(run.state) == before


@pytest.mark.parametrize("ident", ["b", "c", "f", "g", "h"])
def test_what_may_be_superseded(ident):
    """Whatever has neither started for good nor succeeded."""
    run = waiting_run()
    revised(run, step("n", supersedes=ident), number=2, base=run.state.head)
    assert run.status(ident, "n") == ["superseded", "ready"]
    assert run.go().ended is None


def test_an_undecided_step_is_not_changed_under_the_decision():
    """Its failure is decided about first."""
    run = failed()
    for add, cancel in (([step("n", supersedes="a")], []), ([], ["a"])):
        run.tell(
            ev.RevisionProposed(
                number=2, author="", base=run.state.head, hash="h", add=add, cancel=cancel
            )
        )
        with pytest.raises(IllegalEvent, match="step a is undecided"):
            evolve(run.state, ev.RevisionApproved(2, "h", "ann"), 0)
        run.tell(ev.RevisionRejected(2, "h", "ann"))


def test_the_fence():
    """A report with another epoch than the current one is refused, whatever else fits."""
    run = Drive(step("a", worker="safe", timeout=5)).later(5).later(1)
    assert run.state.in_flight == {"a": 3}
    for epoch in (0, 1, 2, 4):
        with pytest.raises(IllegalEvent, match=f"epoch {epoch} is not the current one of step a"):
            evolve(run.state, ev.AttemptReported("a", 2, epoch, True), 0)
    run.done("a")
    assert run.ended == "succeeded"


def test_events_are_not_changed_by_folding_them():
    """A log can be folded any number of times."""
    run = waiting_run().cancel()
    before = copy.deepcopy([event for _, event in run.log])
    fold(run.log)
    fold(run.log)
    assert [event for _, event in run.log] == before


def test_folding_a_whole_log_is_folding_each_event():
    """The quick way gives the same state, from the start or from any place in between."""
    run = waiting_run().later(5).cancel()
    for cut in (0, 1, 7, len(run.log)):
        state = fold(run.log[:cut])
        evolve_all(state, run.log[cut:])
        assert snapshot(state) == snapshot(run.state)
        assert (state.seq, state.last_at) == (len(run.log), run.log[-1][0])


def test_folding_a_whole_log_stops_at_what_comes_after_the_end():
    """As folding each event does."""
    run = Drive(step("a")).done("a")
    with pytest.raises(IllegalEvent, match="RunPaused after the run ended"):
        evolve_all(State(), [*run.log, (9, ev.RunPaused("ann"))])


# What the state answers.


def ref(text):
    return find("${{ " + text + " }}")[0]


def test_looking_up_a_reference():
    """Parameters, data, the name of data stored apart, the data of an heir; else a reason."""
    run = planned(step("r"), step("a", "r"), step("b"), step("big"))
    run.state.params = {"p": 0}
    run.done("b", data={"x": 1}).done("big", data_ref="sha256:1")
    assert run.state.lookup(ref("params.p")) == 0
    assert run.state.lookup(ref("steps.b.data")) == {"x": 1}
    assert run.state.lookup(ref("steps.big.data")) == Artifact("sha256:1")
    for text, reason in (
        ("params.q", "there is no parameter q"),
        ("steps.a.data", "step a is waiting, so it has no data"),
        ("steps.nobody.data", "step nobody is not in the plan, so it has no data"),
        ("run.steps.b.data", "only a rollback plan refers to the run that it takes back"),
    ):
        with pytest.raises(LookupError, match=reason):
            run.state.lookup(ref(text))


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (None, ()),
        ([], ()),
        ({}, ()),
        ("db", (("db", 1),)),
        (["gpu", "db"], (("db", 1), ("gpu", 1))),
        ({"gpu": 1, "db": 2}, (("db", 2), ("gpu", 1))),
    ],
)
def test_what_a_step_uses(uses, expected):
    """Three spellings, one meaning."""
    assert uses_of({"uses": uses}) == expected
    assert uses_of({}) == ()


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (CapacityGroup("w", ()), ""),
        (CapacityGroup("one", ()), "worker one"),
        (CapacityGroup("two", ()), ""),
        (CapacityGroup("nobody", ()), ""),
        (CapacityGroup("idle", ()), ""),
        (CapacityGroup("w", (("db", 1),)), ""),
        (CapacityGroup("w", (("db", 2),)), "resource db"),
        (CapacityGroup("w", (("free", 5),)), ""),
        (CapacityGroup("w", (("gpu", 1), ("db", 2))), "resource db"),
        (CapacityGroup("w", (("odd", 1),)), "resource odd"),
        (CapacityGroup("one", (("db", 2),)), "worker one"),
    ],
)
def test_full_limits(group, expected):
    """The first limit that keeps a group back is named."""
    state = State()
    state.policy = Policy(
        resources={"db": 3, "gpu": 1, "free": 5}, worker_concurrency={"one": 1, "idle": 1}
    )
    state.catalog = Catalog([spec("two", max_concurrency=2)])
    state.busy_workers = {"one": 1, "two": 1, "w": 50}
    state.busy_resources = {"db": 2, "odd": 1}
    assert state.reached_limit(group) == expected


def test_a_price_is_reserved_only_under_a_budget():
    """What the worker says an attempt costs; nothing for a worker nobody knows."""
    state = State()
    state.catalog = Catalog([WorkerSpec(name="p", offers={"go": Offer(cost=2.0)})])
    known = StepState(step("a", action="go"), 0, "p")
    assert state.price(known) == 0.0
    state.policy = Policy(budget=1.0)
    assert state.price(known) == 2.0
    assert state.price(StepState(step("a"), 0, "p")) == 0.0
    assert state.price(StepState(step("a", action="go"), 0, "q")) == 0.0


# The agenda of a state that was folded.


def test_a_folded_state_sleeps():
    """Folding builds no queue and no timers: most logs are only read."""
    run = waiting_run()
    folded = fold(run.log)
    assert not folded.agenda_built
    assert (folded.timers, folded.calendar) == ([], [])
    assert all(s.ticket == 0 for s in folded.steps.values())


def test_a_folded_state_wakes_with_the_same_agenda():
    """Deadlines, backoffs, calendar times and what is ready: as if it had never slept."""
    run = waiting_run()
    run.state.policy = Policy(wall_s=9999.0)
    folded = fold(run.log)
    assert next_wake(folded) == next_wake(run.state) == (1 * SECOND, 23 * 60 * MINUTE)
    assert folded.agenda_built
    assert sorted(folded.timers) == [
        (1 * SECOND, "retry", "f", 0),
        (60 * SECOND, "probing", "e", 8),
        (3600 * SECOND, "running", "a", 2),
    ]
    assert folded.calendar == [(23 * 60 * MINUTE, "h")]


def test_a_folded_state_wakes_with_its_run_timers():
    """Wall time and the grace of a cancel."""
    run = Drive(step("a"), policy=Policy(wall_s=100.0), at=5)
    folded = fold(run.log)
    folded.build_agenda()
    assert (5 + 100 * SECOND, "run", "wall", 0) in folded.timers
    run.cancel()
    folded = fold(run.log)
    folded.build_agenda()
    assert (5 + 10 * SECOND, "run", "cancel", 0) in folded.timers
    run = Drive(bare=True, policy=Policy(planner_timeout_s=7.0)).go()
    folded = fold(run.log)
    folded.build_agenda()
    assert folded.timers == [(7 * SECOND, "planner", "", 1)]
    folded = State()
    folded.build_agenda()
    assert folded.timers == []


def test_a_folded_state_knows_what_is_ready():
    """The best step first, without a word from `decide`."""
    run = Drive(step("a", est=1), step("b", est=9), policy=Policy(max_concurrency=1))
    folded = fold(run.log[:-1])
    assert folded.next_ready().id == "b"
    assert folded.agenda_built


@pytest.mark.parametrize(
    ("status", "until", "ticket", "expected"),
    [
        ("backing_off", 50, 0, True),
        ("backing_off", 60, 0, False),
        ("backing_off", 50, 3, False),
        ("running", 50, 0, False),
    ],
)
def test_which_retry_timers_count(status, until, ticket, expected):
    """Only that of the present backoff, and only until the step is queued."""
    state = State()
    state.steps["a"] = StepState(step("a"), 0, "w", status=status, until=until, ticket=ticket)
    assert state.timer_counts(50, "retry", "a", 0) is expected


@pytest.mark.parametrize(
    ("status", "epoch", "expected"),
    [("running", 5, True), ("probing", 5, True), ("running", 6, False), ("failed", 5, False)],
)
def test_which_deadlines_count(status, epoch, expected):
    """Only that of the attempt or probe in flight."""
    state = State()
    state.steps["a"] = StepState(step("a"), 0, "w", status=status, epoch=epoch)
    assert state.timer_counts(50, "running", "a", 5) is expected


def test_timers_that_no_longer_count_are_swept_out():
    """A thousand are kept, and four for each attempt in flight; then only those that count."""
    state = State()
    state.build_agenda()
    for when in (10, 11, 12, 2, 3):
        ident = f"s{when}"
        state.steps[ident] = StepState(step(ident), 0, "w", status="running", epoch=7)
        state.in_flight[ident] = 7
    for when, epoch in ((0, 1), (10, 7), (1, 1), (11, 7), (12, 7), (2, 7), (3, 7)):
        state.add_timer(when, "running", f"s{when}" if epoch == 7 else "s10", epoch)
    for number in range(1020 - 7):
        state.add_timer(1000 + number, "running", "s10", 1)
    assert len(state.timers) == 1020
    state.add_timer(5000, "running", "s10", 1)
    assert sorted(timer[0] for timer in state.timers) == [2, 3, 10, 11, 12]
    assert state.timers[0][0] == 2, "still a heap"


def test_which_run_timers_count():
    """Wall time while the run is not stopping, the grace while something is in flight."""
    state = State()
    assert state.timer_counts(9, "run", "wall", 0) is True
    assert state.timer_counts(9, "run", "cancel", 0) is False
    state.stopping = ev.StopDecided("failed", "")
    state.in_flight["a"] = 1
    assert state.timer_counts(9, "run", "wall", 0) is False
    assert state.timer_counts(9, "run", "cancel", 0) is True
    state.planner.epoch = 3
    assert state.timer_counts(9, "planner", "", 3) is True
    assert state.timer_counts(9, "planner", "", 2) is False


def test_time_at_work_is_the_time_in_which_something_is_under_way():
    """Two steps at once count once, and a pause between steps does not count."""
    run = Drive(step("a"), step("b"), step("c", "a", "b")).later(3).done("a").later(2).done("b")
    assert run.state.worked == 5 * SECOND
    run.later(4).done("c")
    assert run.state.worked == 9 * SECOND


# Models.


def test_what_models_cost_is_counted_for_the_run_and_the_step():
    """The planner's calls are the run's alone; a step must be in the plan."""
    run = Drive(step("a"))
    run.tell(
        ev.ModelCalled(model="m", step="a", cost=2.0),
        ev.ModelCalled(model="m", step="a", cost=1.0),
        ev.ModelCalled(model="m", cost=4.0),
    )
    assert (run.state.spent, run.state.steps["a"].cost) == (7.0, 3.0)
    assert {name: tally.calls for name, tally in run.state.models.by_step.items()} == {
        "a": 2,
        "": 1,
    }
    with pytest.raises(IllegalEvent, match="step nobody, which is not in the plan"):
        run.tell(ev.ModelCalled(model="m", step="nobody", cost=1.0))


# The planner waits or finishes.


def thinking(*steps, **start):
    """A run whose planner is asked again while some steps are under way."""
    run = Drive(bare=True, replans=True, consult="every_report", **start).go()
    return run.answer(propose(*steps, step("z"), final=False)).done("z")


def said(run, decision):
    """The planner's answer, told and not acted on."""
    planner = run.state.planner
    return run.tell(ev.PlannerAnswered(planner.calls, planner.epoch, decision))


def test_a_wait():
    """It says what it has in mind; its failures are forgotten, and surprises were looked at."""
    run = thinking(step("a"), step("b", "a"))
    run.tell(ev.AttemptReported("a", 1, run.state.in_flight["a"], True, surprise="odd"))
    planner = run.state.planner
    planner.findings, planner.rounds = ["no"], 2
    said(run, {"kind": "wait", "outlook": ["later"]}).tell(ev.PlannerWaits(2))
    assert (planner.answer, planner.findings, planner.rounds) == (None, [], 0)
    assert run.state.outlook == ["later"]
    assert (planner.surprising, run.status("b")) == ([], ["ready"])
    run = said(thinking(step("a")), {"kind": "wait"})
    run.state.outlook = ["as before"]
    assert run.tell(ev.PlannerWaits(2)).state.outlook == ["as before"]


def test_a_finish_is_accepted_when_there_is_one():
    """An answer of that kind must wait for it, and all that it drops must be there to drop."""
    run = thinking(step("a"))
    for answer in (None, {"kind": "wait"}):
        if answer is not None:
            said(run, answer)
        with pytest.raises(IllegalEvent, match="no finish of the planner waits"):
            run.tell(ev.FinishAccepted(2))
    run = said(thinking(step("a"), step("b", "a")), {"kind": "finish", "result": 7})
    before = snapshot(run.state)
    with pytest.raises(IllegalEvent, match="step a is running"):
        run.tell(ev.FinishAccepted(2, {"b": "so", "a": "so"}))
    assert snapshot(run.state) == before
    run.state.planner.due = "report"
    run.tell(ev.FinishAccepted(2, {"b": "so"}))
    assert (run.state.finish, run.state.planner.answer) == ({"kind": "finish", "result": 7}, None)
    assert (run.state.planner.due, run.status("b")) == ("", ["cancelled"])


# Revisions, once more.


@pytest.mark.parametrize(
    ("unmet", "change", "rounds"),
    [
        ([], {}, 0),
        (["x"], {}, 2),
        (["x"], {"add": [step("c")]}, 0),
        (["x"], {"cancel": ["b"]}, 0),
    ],
)
def test_nothing_is_no_answer_to_an_unmet_goal(unmet, change, rounds):
    """A revision that changes nothing then is one more round of a planner that fails."""
    run = thinking(step("a"), step("b", "a"))
    run.state.goal_findings, run.state.planner.rounds = unmet, 2
    proposal = {"number": 2, "author": "p", "base": run.state.head, "hash": "h", "add": []}
    run.tell(ev.RevisionProposed(**(proposal | change)))
    assert run.state.planner.rounds == rounds


@pytest.mark.parametrize(
    ("reviewers", "add", "examined"),
    [((), [step("c")], True), (("r",), [], True), (("r",), [step("c")], False)],
)
def test_reviewers_look_at_new_steps(reviewers, add, examined):
    """Where the policy names some; until they have, it is not examined."""
    run = thinking(step("a"), policy=Policy(jitter=0.0))
    run.state.policy = Policy(reviewers=list(reviewers))
    run.tell(ev.RevisionProposed(number=2, author="p", base=run.state.head, hash="h", add=add))
    assert run.state.pending.examined is examined
    run.tell(ev.RevisionExamined(2, "h"))
    assert run.state.pending.examined is True


def test_an_approval_is_kept_with_its_time():
    """And the steps know how many had to allow them; not where the policy let them through."""
    run = Drive(bare=True).go().later(5)
    run.tell(
        ev.RevisionProposed(number=1, author="p", base="", hash="h", add=[step("a")]),
        ev.ReviewRequested(1, "h", "look", people=2),
        ev.ApprovalGiven(number=1, hash="h", actor="ann", binding="b"),
    )
    assert run.state.pending.given == [5 * SECOND]
    run.tell(ev.RevisionApproved(1, "h", "ann"))
    assert (run.state.steps["a"].approved, run.state.steps["a"].people) == (True, 2)
    alone = Drive(step("a")).state.steps["a"]
    assert (alone.approved, alone.people) == (False, 0)


def test_changes_are_requested_of_what_waits():
    """The review is closed, and the planner is told."""
    run = Drive(bare=True, replans=True).go()
    run.tell(
        ev.RevisionProposed(number=1, author="p", base="", hash="h", add=[step("a")]),
        ev.ReviewRequested(1, "h", "look"),
    )
    for number, name in ((2, "h"), (1, "other")):
        with pytest.raises(IllegalEvent, match="is not the one that waits"):
            run.tell(ev.ChangesRequested(number, name, "ann", "smaller"))
    run.tell(ev.ChangesRequested(1, "h", "ann", "smaller"))
    assert (run.state.pending, run.state.questions) == (None, {})
    assert run.state.planner.due == "changes: ann asks for them: smaller"


@pytest.mark.parametrize("add", [[], [step("c")]])
def test_new_steps_take_a_finish_back(add):
    """The goal is looked at anew when they are done; a revision without any changes nothing."""
    run = Drive(bare=True, goal={"text": "g", "acceptance": ["result == 7"]}).go()
    run.answer({"kind": "finish", "result": 7})
    run.tell(ev.GoalChecked(met=True))
    assert run.state.goal_asked
    revised(run, *add, number=1, base="")
    state = run.state
    finish = None if add else {"kind": "finish", "result": 7}
    assert (state.finish, state.goal_met, state.goal_asked) == (
        finish,
        None if add else True,
        not add,
    )


@pytest.mark.parametrize(
    ("add", "final", "left"), [([], False, ["a"]), ([], True, []), ([step("c")], False, [])]
)
def test_what_answers_a_failure(add, final, left):
    """New steps, or the word that the plan is complete."""
    run = planned(step("a"), step("b")).fail("a", "permanent")
    revised(run, *add, number=2, base=run.state.head, final=final)
    assert run.state.unanswered == left


def test_a_changed_plan_answers_a_planner_without_ideas():
    """The question is closed, and it starts over."""
    run = Drive(bare=True, replans=True).go()
    for _ in range(3):
        run.answer({"kind": "nonsense"})
    assert run.state.planner.rounds == 3
    run.state.goal_findings = ["x"]
    revised(run, number=1, base="")
    assert (run.state.questions, run.state.planner.rounds) == ({}, 0)


@pytest.mark.parametrize("also", ["nothing", "a retry", "a question", "an attempt"])
def test_a_revision_that_only_takes_out_tries_nothing_new(also):
    """It counts as idle, unless something else is open that may bring a result."""
    run = planned(step("a", not_before="23:00 UTC"), step("b"))
    match also:
        case "nothing":
            run.done("b")
        case "a retry":
            run.fail("b")
        case "a question":
            run.fail("b", "lost", "unknown")
    revised(run, number=2, base=run.state.head, cancel=["a"])
    assert run.state.revisions_idle == (also == "nothing")


def test_what_runs_is_not_dropped():
    """A revision that does so does not fit."""
    run = planned(step("a"), step("b", "a"))
    proposed = ev.RevisionProposed(
        number=2, author="p", base=run.state.head, hash="h", add=[], drop={"b": "so", "a": "so"}
    )
    run.tell(proposed)
    before = snapshot(run.state)
    with pytest.raises(IllegalEvent, match="step a is running"):
        run.tell(ev.RevisionApproved(2, "h", "ann"))
    assert snapshot(run.state) == before


# What waits for another try, and what stands in the queue.


@pytest.mark.parametrize("how", ["starts", "refused", "skipped", "superseded", "redone"])
def test_a_step_that_waits_for_another_try_until_it_goes_on(how):
    """However it goes on, it no longer waits for that try."""
    run = planned(step("a"), step("b")).fail("a")
    assert list(run.state.backing_off) == ["a"]
    match how:
        case "starts":
            run.tell(ev.AttemptStarted("a", 2, run.state.epoch + 1, "w", MINUTE, "", ""))
        case "refused":
            run.tell(ev.StepRefused("a", "permanent", "no"))
        case "skipped":
            run.tell(ev.StepSkipped("a", "no need"))
        case "superseded":
            revised(run, step("c", supersedes="a"), number=2, base=run.state.head)
        case "redone":
            run.tell(ev.RedoRequested("a", "ann", "so"))
    assert list(run.state.backing_off) == []


def test_a_step_that_is_skipped_leaves_the_queue():
    """It was the next to start."""
    run = Drive(step("a"), step("b"), policy=Policy(jitter=0.0, max_concurrency=1))
    run.tell(ev.StepSkipped("b", "no need", tolerated=True)).done("a")
    assert (run.ended, run.status()) == ("succeeded", ["succeeded", "skipped"])


def test_what_was_tried_is_remembered_for_planners_that_replan():
    """Nobody else asks."""
    assert len(planned(step("a"), step("b", worker="other")).state.tried) == 2
    assert Drive(step("a")).state.tried == set()


def test_a_success_can_be_undone_and_is_progress():
    """Steps that say how to undo them are counted; what was tried in vain before is forgotten."""
    run = planned(step("a", undo={"worker": "w"}), step("b"))
    run.state.revisions_idle = 2
    run.done("b")
    assert (run.state.undoable, run.state.revisions_idle) == (0, 0)
    assert run.done("a").state.undoable == 1


# Cancelled and dropped.


def test_a_cancelled_step_is_no_report():
    """A planner that hears of every report hears of steps that came to an end by themselves."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b", "a"), step("c", "a"), final=False))
    run.tell(ev.StepCancelled("b", "no need"))
    assert (run.state.planner.due, run.state.steps["b"].dropped) == ("", "no need")
    assert run.tell(ev.StepSkipped("c", "no need")).state.planner.due == "report"


def dropped(run, ident):
    """Tell of a revision that gives a step up by name."""
    proposed = ev.RevisionProposed(
        number=2, author="p", base=run.state.head, hash="h", add=[], drop={ident: "so"}
    )
    return run.tell(proposed, ev.RevisionApproved(2, "h", "ann"))


def test_who_is_gone_already_does_not_go_with_a_dropped_step():
    """A person had skipped it, which stays their word."""
    run = planned(step("r"), step("a", "r"), step("b", "a"))
    run.tell(ev.StepSkipped("b", "no need", tolerated=True))
    dropped(run, "a")
    assert (run.status("a", "b"), run.state.steps["b"].dropped) == (["cancelled", "skipped"], "")
    assert (run.state.unsettled, run.state.blocking) == (1, 0)


def test_a_skipped_step_is_given_up_by_name():
    """Then it no longer keeps the run from succeeding."""
    run = planned(step("r"), step("a", "r")).tell(ev.StepSkipped("a", "so"))
    assert run.state.blocking == 1
    dropped(run, "a")
    assert (run.state.blocking, run.state.steps["a"].dropped) == (0, "so")


def test_a_doomed_step_does_not_start_when_another_is_dropped():
    """It does not mind the one, and the other has failed."""
    run = planned(step("r"), step("a", "r"), step("x"), step("t", finished("a"), "x"))
    run.tell(ev.AttemptReported("x", 1, run.state.in_flight["x"], False, failure=failure()))
    run.tell(
        ev.RecoveryDecided(
            step="x", attempt=1, failure_class="transient", strategy="continue", reason="so"
        )
    )
    dropped(run, "a")
    assert (run.status("t"), run.state.steps["t"].blockers) == (["waiting"], 0)
    assert run.go().status("t") == ["skipped"]


# What people say.


def test_a_change_is_approved_where_it_is_asked_about():
    """The question must be open, and about that step."""
    run = Drive(step("a"), step("b")).fail("a", "permanent")
    approval = {"commit": "1", "digest": "d", "actor": "ann"}
    for question, ident in (("q9", "a"), ("q1", "b")):
        with pytest.raises(IllegalEvent, match="is not open about"):
            run.tell(ev.ChangeApproved(question=question, step=ident, **approval))
    run.tell(ev.ChangeApproved(question="q1", step="a", **approval))
    assert [each.commit for each in run.state.questions["q1"].approvals] == ["1"]


def test_who_wants_another_way_has_looked():
    """What may have happened is forgiven with it."""
    run = Drive(step("a"), replans=True).fail("a", "lost", "unknown")
    run.tell(ev.QuestionAnswered(id="q1", choice="replan", actor="ann"))
    assert (run.state.steps["a"].forgiven, run.state.awaiting_planner) == (1, ["a"])


@pytest.mark.parametrize(
    ("choice", "due", "handed"),
    [
        ("go_on", "answer", ""),
        ("hand_over", "answer", "goal"),
        ("abort", "", ""),
        ("rollback", "", ""),
    ],
)
def test_what_is_said_to_a_planner_without_ideas(choice, due, handed):
    """It starts over, or the goal planner does, which hears of every report; or nobody does."""
    run = Drive(bare=True, replans=True).go()
    for _ in range(3):
        run.answer({"kind": "nonsense"})
    run.state.revisions_idle = 2
    run.tell(ev.QuestionAnswered(id="q1", choice=choice, actor="ann"))
    planner = run.state.planner
    assert (planner.rounds, run.state.revisions_idle) == (0, 0)
    assert (planner.due, planner.handed) == (due, handed)
    assert run.state.consults_reports is (handed != "")


def test_folding_a_whole_log_refuses_what_folding_each_event_refuses():
    """What is unknown, and what comes before the start."""
    run = Drive(step("a"))
    with pytest.raises(IllegalEvent, match="unknown event HostOpened"):
        evolve_all(State(), [*run.log, (0, HostOpened(1, 2, "v"))])
    with pytest.raises(IllegalEvent, match="RunPaused before the run started"):
        evolve_all(State(), [(0, ev.RunPaused("ann"))])
