"""What is remembered when people hold steps, have them done again, and reopen a run."""

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.decide.decide import next_wake
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy
from leadhand.core.review import holds
from leadhand.core.state.model import IllegalEvent
from leadhand.errors import Conflict
from tests.core.driver import SECOND, Drive, Move, fold, propose, snapshot, spec, step


def redo(run, ident):
    """A person has a step done again."""
    return run.hear(commands.redo(run.state, ident, "ann", "so", run.now))


def held(run, *names):
    """A person holds steps."""
    return run.hear(commands.hold(run.state, list(names), "ann"))


# Holds.


@pytest.mark.parametrize("names", [["nobody"], ["a"], ["b", "a"]])
def test_only_what_is_there_and_open_is_held(names):
    """Or nothing is."""
    run = Drive(step("a"), step("b", "a"), step("c", "b")).done("a")
    before = snapshot(run.state)
    with pytest.raises(IllegalEvent, match="is not there, or is settled"):
        run.tell(ev.StepsHeld(names, "so", "ann", "q1"))
    assert snapshot(run.state) == before


def test_what_is_released_is_no_longer_held():
    """Nor is it released twice."""
    run = held(Drive(step("a"), step("b", "a")), "b")
    assert (run.state.held, run.state.steps["b"].held) == ({"b"}, "q1")
    run.reply("release")
    assert (run.state.held, run.state.steps["b"].held) == (set(), "")
    with pytest.raises(IllegalEvent, match="is not held"):
        run.tell(ev.StepsReleased(["b"], "ann"))


def test_a_held_try_goes_on_when_it_is_due():
    """Its pause may be over or not when it is released."""
    run = held(Drive(step("a")).fail("a"), "a").later(0.5).reply("release")
    assert run.running == []
    assert run.later(0.5).running == ["a"]
    run = held(Drive(step("a")).fail("a"), "a").later(5)
    assert run.running == []
    assert run.reply("release").running == ["a"]


def test_a_held_step_wakes_nobody():
    """Its calendar time is looked at again when it is released."""
    run = Drive(step("a"), step("b", "a", not_before="1970-01-01T00:10:00Z"))
    held(run, "b").done("a")
    assert next_wake(run.state) == (None, None)
    run.reply("release")
    assert next_wake(run.state) == (None, 600 * SECOND)
    assert run.later(600).running == ["b"]


def test_other_workers_have_other_limits():
    """What was known of the old ones is forgotten."""
    run = Drive(step("a"), step("b", "a"), step("c", "a"))
    changed = [spec("w", version="2", max_concurrency=1)]
    run.hear(Move(*holds.workers_changed(run.state, changed))).done("a")
    assert run.running == ["b"]


# Done again.


def test_a_step_done_again_starts_over():
    """With all its tries, not tolerated, and what went before forgiven."""
    run = Drive(step("a", failure_action="continue"), step("b")).later(5).fail("a", "permanent")
    assert run.state.steps["a"].tolerated
    run.take(commands.redo(run.state, "a", "ann", "so", run.now))
    again = run.state.steps["a"]
    assert (again.status, again.tolerated, again.tries) == ("ready", False, None)
    assert (again.forgiven, again.ended) == (1, 0)
    assert (run.state.unsettled, run.state.blocking) == (2, 0)


def test_a_step_that_has_not_failed_is_not_done_again():
    """The log would make no sense."""
    run = Drive(step("a"), step("b", "a")).done("a")
    for ident in ("a", "b", "nobody"):
        with pytest.raises(IllegalEvent):
            run.tell(ev.RedoRequested(ident, "ann", "so"))
    paused = Drive(step("a"), step("b", "a"))
    paused.hear(commands.pause(paused.state, "ann")).done("a")
    with pytest.raises(IllegalEvent, match="step b has not failed"):
        paused.tell(ev.RedoRequested("b", "ann", "so"))


def test_a_step_that_may_start_again_already():
    """A person let it, while the run is paused: to have it done again changes nothing."""
    run = Drive(step("a")).fail("a", "permanent")
    run.hear(commands.pause(run.state, "ann")).reply("retry")
    assert redo(run, "a").status() == ["ready"]
    assert run.hear(commands.resume(run.state, "ann")).running == ["a"]
    assert run.done("a").ended == "succeeded"
    assert check(run.log) == []


def test_a_step_left_to_the_planner_is_taken_from_it():
    """Who waits for it waits for it again."""
    run = Drive(step("a"), step("b", "a"), step("c"), replans=True).fail("a", "permanent")
    assert run.state.awaiting_planner == ["a"]
    redo(run, "a")
    assert (run.state.awaiting_planner, run.running) == ([], ["c", "a"])


def test_whoever_is_lost_by_way_of_others_waits_again():
    """In whatever order the plan names them."""
    steps = (
        step("d", "c"),
        step("a", failure_action="continue"),
        step("c", "a"),
        step("e", "c"),
        step("z"),
    )
    run = Drive(*steps).later(5).fail("a", "permanent")
    redo(run, "a")
    assert run.status("d", "c", "e") == ["waiting"] * 3
    assert (run.state.blocking, run.state.unsettled, run.state.steps["c"].ended) == (0, 5, 0)


# Reopened.


def test_only_a_run_that_failed_is_reopened():
    """Not one that goes on."""
    run = Drive(step("a"))
    with pytest.raises(IllegalEvent, match="only a run that failed can be reopened"):
        run.tell(ev.RunReopened("a", "ann", "so"))


def test_a_reopened_run_has_not_ended():
    """Nothing of its end is left; what was under way waits as it did."""
    run = Drive(step("a", failure_action="abort"), step("b", "a"), step("y")).later(5)
    run.fail("y").fail("a", "permanent")
    assert (run.ended, run.state.ended_at) == ("failed", 5 * SECOND)
    before = run.state.steps["y"].until
    assert next_wake(run.state) == (None, None)
    redo(run.later(0.1), "a")
    assert (run.ended, run.state.ended_at, run.state.stopping) == (None, 0, None)
    waits = run.state.steps["y"]
    assert (waits.status, waits.until, waits.ended) == ("backing_off", before, 0)
    assert run.state.steps["b"].ended == 0
    assert next_wake(run.state)[0] == before
    assert run.later(1).running == ["a", "y"]
    assert run.done("a", "b", "y").ended == "succeeded"


def test_the_goal_is_looked_at_anew():
    """What was found missing may be there in the end."""
    catalog = [spec("w", gives=("news",))]
    goal = {"text": "g", "want": ["news"]}
    run = Drive(step("a", failure_action="continue"), goal=goal, catalog=catalog)
    run.fail("a", "permanent")
    assert (run.ended, bool(run.state.goal_findings)) == ("failed", True)
    redo(run, "a")
    assert (run.state.goal_findings, run.state.goal_met) == ([], None)
    assert run.done("a", data={"news": 1}).ended == "succeeded"
    assert check(run.log) == []


def test_the_planner_starts_over():
    """What it got wrong before does not count."""
    run = Drive(bare=True, replans=True, policy=Policy(no_input=True)).go()
    run.answer(propose(step("a", failure_action="continue"), final=False)).fail("a", "permanent")
    for _ in range(3):
        run.answer(propose(step("a")))
    assert run.ended == "failed"
    run.take(commands.redo(run.state, "a", "ann", "so", run.now))
    planner = run.state.planner
    assert (planner.rounds, planner.findings, planner.answer, planner.due) == (0, [], None, "")
    run.go().done("a").answer(propose(step("b"))).done("b")
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_a_step_that_was_given_up_is_not_held():
    """It has failed, and a question that holds nobody is none."""
    run = Drive(step("a", failure_action="continue"), step("x")).fail("a", "permanent")
    held(run.fail("x", "permanent"), "x").reply("abort", "q1")
    assert run.ended == "failed"
    redo(run, "a")
    assert (run.status("x"), run.state.held, run.state.questions) == (["failed"], set(), {})
    redo(run.done("a"), "x").done("x")
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_the_planner_keeps_what_was_left_to_it():
    """Who waits for such a step is not skipped while another is done again."""
    steps = (step("f"), step("g", "f"), step("a", failure_action="abort"))
    run = Drive(*steps, replans=True).fail("f", "permanent").fail("a", "permanent")
    assert (run.ended, run.state.awaiting_planner) == ("failed", ["f"])
    redo(run, "a")
    assert run.status("g") == ["waiting"]
    run.done("a")
    assert "step f failed, and nothing else is left" in run.last(ev.PlannerAsked).why
    run.answer(propose(step("h", supersedes="f"))).done("h", "g")
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_what_will_be_skipped_is_taken_back_too():
    """Two steps are done again before anybody hosts the run."""
    steps = (step("c", "b"), step("b", "a", "x"), step("a", failure_action="abort"), step("x"))
    run = Drive(*steps).fail("a", "permanent").fail("x", "permanent")
    assert (run.ended, run.status()) == ("failed", ["cancelled", "cancelled", "failed", "failed"])
    for ident in ("x", "a"):
        run.take(commands.redo(run.state, ident, "ann", "so", run.now))
    assert list(run.state.to_skip) == []
    assert snapshot(fold(run.log)) == snapshot(run.state)
    assert run.go().done("a", "x", "b", "c").ended == "succeeded"
    assert check(run.log) == []


def test_one_of_two_is_not_enough():
    """Who waits for the other as well is skipped."""
    steps = (step("c", "b"), step("b", "a", "x"), step("a", failure_action="abort"), step("x"))
    run = Drive(*steps).fail("a", "permanent").fail("x", "permanent")
    redo(run, "x").done("x")
    assert run.status() == ["skipped", "skipped", "failed", "succeeded"]
    assert run.ended == "failed"
    assert check(run.log) == []


def test_what_is_held_has_not_started():
    """Whoever wants to hold another step is told how it stands."""
    run = Drive(step("a"), step("b", "a")).done("a")
    for name, said in (("a", "step a is succeeded: only"), ("b", "step b is running: only")):
        with pytest.raises(Conflict, match=said):
            held(run, name)


def test_a_hold_that_is_open_is_not_asked_about_twice():
    """It stands in the inbox again, as it did when the run ended."""
    run = Drive(step("a", failure_action="abort"), step("c", "a"))
    held(run, "c").fail("a", "permanent")
    redo(run, "a").done("a")
    assert (list(run.state.questions), len(run.all(ev.StepsHeld))) == (["q1"], 1)
    assert run.reply("release").done("c").ended == "succeeded"
    assert check(run.log) == []


def test_nobody_is_asked_about_the_hold_of_a_step_that_was_given_up():
    """Both questions about it were answered with the end."""
    run = Drive(step("a", failure_action="continue"), step("x"), step("y"))
    held(run.fail("a", "permanent").fail("x", "permanent"), "x")
    run.reply("abort", "q1").reply("abort", "q2").done("y")
    assert run.ended == "failed"
    redo(run, "a").done("a")
    assert (run.state.questions, run.ended, run.status("x")) == ({}, "failed", ["failed"])
    assert check(run.log) == []


def test_another_version_holds_what_people_allowed_of_it():
    """Also where it only may do the step, or held by a person; not what is done, or another's."""
    risky = {"worker": "risky"}
    run = Drive(
        step("a", **risky),
        step("b", "a", **risky),
        step("c", "a", alternatives=["risky"]),
        step("d", "a", **risky),
        step("e", "a"),
    ).reply("approve")
    held(run, "d").hear(commands.pause(run.state, "ann")).done("a")
    changed = [spec("risky", risk="high", version="2")]
    run.hear(Move(*holds.workers_changed(run.state, changed)))
    found = run.last(ev.StepsHeld)
    assert (found.steps, found.actor) == (["b", "c", "d"], "policy")
    assert found.reason == "risky changed after the approval"
    assert list(run.state.questions) == ["q2"]


def test_what_the_policy_let_through_it_lets_through_again():
    """Nobody had to allow it, so nobody is asked."""
    run = Drive(step("a"), step("b", "a"))
    moved = Move(*holds.workers_changed(run.state, [spec("w", version="2")]))
    assert [type(event) for event in moved.events] == [ev.WorkersChanged]


def test_a_reopened_run_starts_what_had_stood_in_the_queue():
    """Its calendar time had come, and another step ran; that one failed and is done again."""
    steps = (step("a", failure_action="abort"), step("b", not_before="1970-01-01T00:00:01Z"))
    run = Drive(*steps, policy=Policy(jitter=0.0, max_concurrency=1)).later(5)
    run.fail("a", "permanent")
    assert (run.ended, run.status("b")) == ("failed", ["cancelled"])
    redo(run, "a").done("a")
    assert run.running == ["b"]


# What is forgotten when a step is done again.


def test_a_step_done_again_was_not_dropped():
    """Nor has the plan come to its end, whatever its planner had called done."""
    goal = {"text": "g", "acceptance": ["result == 7"]}
    run = Drive(bare=True, replans=True, goal=goal).go()
    run.answer(propose(step("a"), step("b"), final=False)).fail("a", "permanent").done("b")
    run.answer({"kind": "finish", "result": 7, "drop": {"a": "no use"}})
    run.tell(ev.GoalChecked(met=True))
    assert (run.state.goal_asked, run.state.steps["a"].dropped) == (True, "no use")
    run.tell(ev.RedoRequested("a", "ann", "so"))
    state = run.state
    assert (state.finish, state.goal_met, state.goal_asked) == (None, None, False)
    assert state.steps["a"].dropped == ""


def test_who_was_skipped_waits_again():
    """As if nothing had happened; it starts when the step is done."""
    steps = (step("a", failure_action="continue"), step("b", "a"), step("z"))
    run = redo(Drive(*steps).fail("a", "permanent"), "a")
    again = run.state.steps["b"]
    assert (again.status, again.lost_dependency, again.reason) == ("waiting", "", "")
    assert run.done("a").running == ["z", "b"]


def test_who_a_person_skipped_is_left_alone():
    """And so is what was cancelled."""
    steps = (step("a", failure_action="continue"), step("b", "a"), step("c", "a"), step("z"))
    run = Drive(*steps)
    run.tell(ev.AttemptReported("a", 1, 2, False, failure={"class": "permanent"}))
    run.take(run.decide())
    assert list(run.state.to_skip) == ["b", "c"]
    run.tell(ev.StepSkipped("b", "no need", tolerated=True), ev.StepCancelled("c", "no need"))
    redo(run, "a")
    assert run.status("b", "c") == ["skipped", "cancelled"]
    assert run.state.steps["b"].tolerated


def test_who_stands_before_its_cause_waits_again():
    """Whoever stands before its cause in the plan waits again too."""
    steps = (step("c", "b"), step("b", "a"), step("a", failure_action="continue"), step("z"))
    run = Drive(*steps).fail("a", "permanent")
    assert redo(run, "a").status("b", "c") == ["waiting", "waiting"]


# What is no longer allowed.


def test_what_the_policy_holds_is_no_longer_allowed():
    """A person's hold says nothing of the approval; a release of the other is a new one."""
    run = Drive(step("a"), step("b", "a"), step("c", "a"))
    run.tell(
        ev.StepsHeld(["b"], "it is over", "policy", "q1"),
        ev.StepsHeld(["c"], "wait", "ann", "q2"),
    )
    b, c = run.state.steps["b"], run.state.steps["c"]
    assert (b.void, b.held_by, c.void, c.held_by) == ("it is over", "policy", "", "ann")
    b.expires = c.expires = 5
    run.tell(ev.StepsReleased(["b", "c"], "ann", expires=9))
    assert (b.void, b.expires, b.approved) == ("", 9, True)
    assert (c.void, c.expires, c.approved) == ("", 5, False)


@pytest.mark.parametrize(("actor", "void"), [("policy", ""), ("ann", "it is over")])
def test_a_release_of_what_is_no_longer_allowed_allows_it(actor, void):
    """Whoever holds it, and for whatever reason."""
    run = Drive(step("a"), step("b", "a")).tell(ev.StepsHeld(["b"], "so", actor, "q1"))
    held_step = run.state.steps["b"]
    held_step.void = void
    run.tell(ev.StepsReleased(["b"], "bob", expires=9))
    assert (held_step.void, held_step.expires, held_step.approved) == ("", 9, True)


def test_a_release_is_given_to_a_question_that_holds_something():
    """Not to another one, nor to none."""
    run = held(Drive(step("a"), step("b", "a")).fail("a", "permanent"), "b")
    assert [q.kind for q in run.state.questions.values()] == ["failure", "hold"]
    for question in ("q1", "q9"):
        with pytest.raises(IllegalEvent, match="holds nothing that could be released"):
            run.tell(ev.ReleaseGiven(question=question, actor="ann", binding="x"))
    run.tell(ev.ReleaseGiven(question="q2", actor="ann", binding="x"))
    assert [each.actor for each in run.state.questions["q2"].releases] == ["ann"]


def test_a_second_hold_replaces_the_first():
    """A question that holds nothing any more is closed."""
    run = held(Drive(step("a"), step("b", "a"), step("c", "a")), "b", "c")
    run.tell(ev.StepsHeld(["b"], "so", "bob", "q2"))
    assert list(run.state.questions) == ["q1"]
    run.tell(ev.StepsHeld(["c"], "so", "bob", "q2"))
    assert list(run.state.questions) == []


def test_a_worker_that_changed():
    """What it has still to do is no longer allowed, nor is its name."""
    run = Drive(step("a"), step("b"), step("c", worker="other")).done("a")
    run.state.permits.envelope = {"workers": ["w", "other"]}
    new = WorkerSpec(name="w", version="2", trusted=False, offers={"": Offer()})
    run.tell(ev.WorkersChanged([new]))
    voids = [run.state.steps[ident].void for ident in "abc"]
    assert voids == ["", "w changed after the approval", ""]
    assert run.state.permits.envelope == {"workers": ["other"]}
    assert run.state.permits.untrusted == {"w"}


def test_an_approval_that_does_not_hold():
    """It covers no step of its revisions that is still to succeed, no change, and no envelope."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b"), final=False)).done("a")
    run.fail("b", "permanent").answer(propose(step("c"), final=False))
    state = run.state
    state.answers = [
        {"step": "b", "choice": "approve", "commit": "1", "by": ["ann"]},
        {"step": "b", "choice": "retry"},
        {"step": "c", "choice": "approve", "commit": "2", "by": ["ann"]},
    ]
    before = list(state.answers)
    run.tell(ev.ApprovalVoided(7, "it is forged", [1]))
    assert state.permits.voided == {7}
    assert [state.steps[ident].void for ident in "abc"] == ["", "it is forged", ""]
    assert state.answers == [{"step": "b", "choice": "approve"}, *before[1:]]
    assert state.permits.envelope is None, "there was none"
    state.permits.envelope = {"workers": ["w"]}
    assert run.tell(ev.ApprovalVoided(8, "it is forged")).state.permits.envelope == {}


@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("void", ["", "it is over"])
def test_an_heir_is_no_more_allowed_than_the_step_it_replaces(approved, void):
    """Unless people have allowed the heir itself."""
    run = Drive(step("a"), step("b", "a"))
    if void:
        run.tell(ev.StepsHeld(["b"], void, "policy", "q1"))
    heir = step("c", "a", supersedes="b")
    run.tell(ev.RevisionProposed(number=2, author="p", base=run.state.head, hash="h", add=[heir]))
    if approved:
        run.tell(ev.ApprovalGiven(number=2, hash="h", actor="ann", binding="x"))
    run.tell(ev.RevisionApproved(2, "h", "ann"))
    keeps = void if not approved else ""
    new = run.state.steps["c"]
    assert (new.void, new.held_by) == (keeps, "policy" if keeps else "")
