"""`decide` as tables: given events, what is decided, and what is to be done about it."""

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.decide import decide, next_wake
from leadhand.core.decide.effects import (
    CallPlanner,
    Move,
    Notify,
    StartAttempt,
    StartProbe,
    StopAttempt,
    VerifyGoal,
)
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.checker import check
from leadhand.core.plan.references import Artifact
from leadhand.core.policy import Policy
from leadhand.core.state.model import Now, State
from tests.core.driver import (
    MINUTE,
    SECOND,
    WORKERS,
    Drive,
    finished,
    fold,
    propose,
    spec,
    started,
    step,
)

HOUR = 60 * MINUTE
DAY = 24 * HOUR


# The beginning.


def test_nothing_is_decided_before_the_start():
    """A run that has not started has nothing to do."""
    assert decide(State(), Now(0, 0)) is None


def test_the_planner_is_asked_first():
    """The first move of a run: the planner call, with its deadline recorded."""
    run = Drive(bare=True, at=5, policy=Policy(planner_timeout_s=2.0))
    assert run.decide() == Move(
        [ev.PlannerAsked(1, 1, 2 * SECOND + 5, "start")], [CallPlanner(1, 1, "start")]
    )
    assert run.go().decide() is None


def test_a_run_that_was_folded_is_decided_like_one_that_was_driven():
    """A deadline that passed while nobody looked is the first thing that is seen."""
    run = Drive(step("a", timeout=5))
    late = Now(6 * SECOND, 0)
    assert decide(fold(run.log), late).events == [
        ev.AttemptLost("a", 1, 2, "timeout", "no report within 5s, its timeout")
    ]


def test_failures_are_decided_before_the_doomed_are_skipped():
    """One thing after the other, the most urgent first."""
    run = Drive(step("a", failure_action="continue"), step("b", "a"), step("c"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure={"class": "permanent"}))
    run.take(run.decide())
    run.tell(ev.AttemptReported("c", 1, 3, False, failure={"class": "transient"}))
    run.news_start().go()
    assert run.news == ["recover c retry", "skip b"]


def test_a_doomed_step_that_is_gone_is_passed_over():
    """A revision took it out before it was skipped."""
    run = Drive(step("a", failure_action="continue"), step("b", "a"), step("c"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure={"class": "permanent"}))
    run.take(run.decide())
    proposed = ev.RevisionProposed(
        number=2, author="", base=run.state.head, hash="h", add=[], cancel=["b"]
    )
    run.tell(proposed, ev.RevisionApproved(2, "h", "ann")).news_start()
    assert run.go().news == []
    assert not run.state.to_skip


def test_a_doomed_step_that_was_replaced_is_passed_over():
    """A person skipped what it waits for and replaced it, both before anything was decided."""
    run = Drive(step("r"), step("a", "r"), step("b", "a"))
    heir = step("b2", supersedes="b")
    proposed = ev.RevisionProposed(number=2, author="", base=run.state.head, hash="h", add=[heir])
    run.tell(ev.StepSkipped("a", "no need"), proposed, ev.RevisionApproved(2, "h", "ann"))
    assert run.go().status("b", "b2") == ["superseded", "running"]
    assert not run.state.to_skip


def test_decide_changes_nothing_by_itself():
    """A move that is not taken is offered again, the same."""
    run = Drive(bare=True)
    assert run.decide() == run.decide()


def test_a_start_says_everything_that_was_chosen():
    """Attempt, epoch, worker, deadline and hashes stand in the event; the call in the effect."""
    doc = step("a", worker="x", action="go", parameters={"n": "${{ params.n }}"}, timeout="90s")
    catalog = [spec("x", timeout_s=5.0, version="v7")]
    run = Drive(bare=True, catalog=catalog, params={"n": 3}, at=10).go()
    planner = run.state.planner
    answer = propose(doc)
    run.tell(ev.PlannerAnswered(1, planner.epoch, answer))
    run.take(run.decide())
    spec_hash = digest(canonical(doc), "x", "v7")
    exec_hash = digest(spec_hash, canonical({"n": 3}))
    deadline = 90 * SECOND + 10
    assert run.decide() == Move(
        [ev.AttemptStarted("a", 1, 2, "x", deadline, spec_hash, exec_hash)],
        [StartAttempt("a", 1, 2, "x", "go", {"n": 3}, deadline)],
    )


@pytest.mark.parametrize(
    ("own", "offered", "policy_s", "expected_s"),
    [
        ({}, None, 3600.0, 3600.0),
        ({}, None, 7.0, 7.0),
        ({}, 5.0, 7.0, 5.0),
        ({"timeout": "2m"}, 5.0, 7.0, 120.0),
        ({"timeout": 1.5}, None, 7.0, 1.5),
    ],
)
def test_deadlines(own, offered, policy_s, expected_s):
    """The step's own time limit, else its worker's, else the policy's."""
    catalog = [spec("w", timeout_s=offered)]
    run = Drive(step("a", **own), catalog=catalog, policy=Policy(timeout_s=policy_s), at=1000)
    assert run.last(ev.AttemptStarted).deadline == 1000 + int(expected_s * SECOND)


@pytest.mark.parametrize(
    ("own", "parameters"),
    [
        ({}, {}),
        ({"parameters": {}}, {}),
        ({"parameters": {"x": [1, "${ no"]}}, {"x": [1, "${ no"]}),
    ],
)
def test_a_step_without_references_runs_as_it_was_approved(own, parameters):
    """Then the second hash would say nothing that the first does not."""
    run = Drive(step("a", **own))
    assert run.last(ev.AttemptStarted).exec == ""
    (effect,) = [e for e in Drive(step("a", **own), room=0).take_room() if e.step == "a"]
    assert effect.parameters == parameters


def test_a_reference_is_resolved_at_the_start():
    """Data that another step reported goes in; large data goes in by name."""
    run = Drive(
        step("a"),
        step("b"),
        step("c", parameters={"small": "${{ steps.a.data.x }}", "large": "${{ steps.b.data.y }}"}),
    )
    run.done("a", data={"x": [1]})
    run.done("b", data_ref="sha256:00")
    (effect,) = (e for e in run.effects if e.step == "c")
    assert effect.parameters == {"small": [1], "large": Artifact("sha256:00", ("y",))}


# The frontier.


def test_a_step_starts_the_moment_its_own_dependencies_are_verified():
    """Never in waves: d waits for b only, though c of the same wave is still running."""
    run = Drive(step("a"), step("b", "a"), step("c", "a"), step("d", "b"), step("e", "d", "c"))
    assert run.running == ["a"]
    assert run.done("a").running == ["b", "c"]
    assert run.done("b").running == ["c", "d"]
    assert run.done("d").running == ["c"]
    assert run.done("c").running == ["e"]
    run.done("e")
    assert run.news[-2:] == ["report e met", "end succeeded"]


def test_steps_start_in_the_order_of_the_plan():
    """Without estimates the plan's own order decides."""
    run = Drive(step("c"), step("a"), step("b"))
    assert run.running == ["c", "a", "b"]


def test_the_critical_path_goes_first():
    """With estimates, the step with the longest way to the end starts first."""
    run = Drive(
        step("short", est=5),
        step("middle", est="2m"),
        step("head", est=1),
        step("tail", "head", est=300),
        policy=Policy(max_concurrency=1),
    )
    order = []
    while run.running:
        (ident,) = run.running
        order.append(ident)
        run.done(ident)
    assert order == ["head", "tail", "middle", "short"]


# Limits.


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_limit_on_everything(limit):
    """Never more in flight than the recorded policy allows, and never fewer than could be."""
    run = Drive(*(step(f"s{i}") for i in range(5)), policy=Policy(max_concurrency=limit))
    seen = 0
    while run.running:
        assert len(run.running) == min(limit, 5 - seen)
        run.done(run.running[-1])
        seen += 1
    assert run.ended == "succeeded"


def test_the_room_the_host_grants():
    """The host's grant is a limit of its own; without room nothing starts and nothing ends."""
    run = Drive(step("a"), step("b"), room=1)
    assert run.running == ["a"]
    run.room = 0
    assert run.done("a").running == []
    assert run.ended is None
    run.room = 1
    assert run.go().running == ["b"]


@pytest.mark.parametrize(
    ("policy", "own", "expected"),
    [(None, None, 4), (2, None, 2), (None, 3, 3), (2, 3, 2), (3, 2, 2)],
)
def test_the_limit_of_a_worker(policy, own, expected):
    """The smaller of what the policy and the worker itself allow; other workers go on."""
    limits = {} if policy is None else {"x": policy}
    steps = [*(step(f"x{i}", worker="x") for i in range(4)), step("y")]
    catalog = [spec("x", max_concurrency=own), spec("w")]
    run = Drive(*steps, catalog=catalog, policy=Policy(worker_concurrency=limits))
    assert len([i for i in run.running if i[0] == "x"]) == expected
    assert "y" in run.running
    while run.running:
        run.done(run.running[0])
        assert len([i for i in run.running if i[0] == "x"]) <= expected
    assert run.ended == "succeeded"


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (["db", "db", "db"], 2),
        ([["db"], ["db", "gpu"], ["gpu"]], 2),
        ([{"db": 2}, "db", "gpu"], 2),
        ([{"db": 1}, {"db": 1}, {"db": 1}], 2),
        (["gpu", "gpu", "db"], 2),
        ([{"db": 2, "gpu": 1}, "gpu", "db"], 1),
    ],
)
def test_named_resources(uses, expected):
    """Each holds what it uses while it runs: two of db and one of gpu there are."""
    steps = [step(f"s{i}", uses=use) for i, use in enumerate(uses)]
    run = Drive(*steps, policy=Policy(resources={"db": 2, "gpu": 1}))
    assert len(run.running) == expected
    while run.running:
        run.done(run.running[0])
    assert run.ended == "succeeded"
    assert set(run.state.busy_resources.values()) == {0}


def test_a_probe_holds_what_its_step_holds():
    """While nobody knows whether it took effect, the resource is not given to another."""
    policy = Policy(resources={"db": 1})
    run = Drive(
        step("a", worker="probed", uses="db", timeout=5), step("b", uses="db"), policy=policy
    )
    run.later(5)
    assert run.status("a", "b") == ["probing", "ready"]
    run.probed("a", "done", met=True)
    assert run.running == ["b"]


# Time.


def test_an_attempt_is_lost_at_its_deadline_not_before():
    """A deadline that passed makes an attempt lost, and what still runs is told to stop."""
    run = Drive(step("a", worker="safe", timeout=5, retry=2))
    assert next_wake(run.state) == (5 * SECOND, None)
    run.later(4.999999)
    assert run.news == []
    run.later(0.000001)
    assert run.events[0] == ev.AttemptLost("a", 1, 2, "timeout", "no report within 5s, its timeout")
    assert run.effects[0] == StopAttempt("a", 1, 2, "timeout")
    assert run.last(ev.RecoveryDecided).strategy == "retry"
    assert run.state.steps["a"].failure == {
        "class": "timeout",
        "message": "no report within 5s, its timeout",
        "effect": "unknown",
    }


def test_a_lost_attempt_names_the_timeout_of_its_worker():
    """Where the step says nothing, the worker's own timeout is what has passed."""
    run = Drive(step("a", worker="slow"), catalog=[spec("slow", timeout_s=7.0)]).later(7)
    assert run.last(ev.AttemptLost).reason == "no report within 7s, its timeout"


def test_a_report_before_the_deadline_makes_its_timer_nothing():
    """A timer that no longer counts neither fires nor wakes anybody."""
    run = Drive(step("a", timeout=5), step("b", "a", timeout=50)).done("a")
    assert next_wake(run.state) == (50 * SECOND, None)
    run.later(6)
    assert run.running == ["b"]
    run.done("b")
    assert next_wake(run.state) == (None, None)


def test_several_deadlines_fire_in_their_order():
    """The earliest first, each once."""
    run = Drive(step("b", timeout=3), step("a", timeout=2), step("c", timeout=9))
    run.later(5)
    assert [line for line in run.news if line.startswith("lost")] == [
        "lost a timeout",
        "lost b timeout",
    ]
    assert run.running == ["c"]


def test_a_planner_that_takes_too_long():
    """It is stopped and asked again, and that counts as a failed round."""
    run = Drive(bare=True, policy=Policy(planner_timeout_s=3.0)).go().news_start()
    run.later(3)
    assert run.news == ["planner failed the planner took too long", "consult the last call failed"]
    assert run.effects == [
        StopAttempt("", 1, 1, "timeout"),
        CallPlanner(2, 2, "the last call failed"),
    ]
    assert run.state.planner.rounds == 1


@pytest.mark.parametrize(
    ("text", "wall_s", "opens_s"),
    [
        ("1970-01-01T00:10:00Z", 0, 600),
        ("00:10 UTC", 0, 600),
        ("1970-01-01T00:10:00Z", 900, 900),  # it is past: nothing is left to wait for
    ],
)
def test_not_before(text, wall_s, opens_s):
    """A calendar time is turned into an instant when the revision is let through."""
    run = Drive(step("a", not_before=text), step("b"), wall=wall_s * SECOND)
    expected = 600 * SECOND
    assert run.last(ev.RevisionApproved).instants == {"a": expected}
    if opens_s > wall_s:
        assert run.running == ["b"]
        assert next_wake(run.state)[1] == expected
        run.later(opens_s - wall_s - 0.000001)
        assert run.running == ["b"]
        run.later(0.000001)
    assert set(run.running) == {"a", "b"}


def test_not_before_follows_the_calendar_not_the_run_clock():
    """A machine that slept wakes to a calendar that moved on, though little time was counted."""
    run = Drive(step("a", not_before="01:00 UTC"))
    run.later(2, wall=3600)
    assert run.running == ["a"]


def test_a_calendar_that_is_set_back_counts():
    """The step was queued and had no room; by the time it has, its time is to come again."""
    run = Drive(step("a", not_before="01:00 UTC"), room=0).later(3600)
    assert run.status("a") == ["ready"]
    run.now, run.room = run.now._replace(wall=HOUR - 1), 1
    assert run.go().running == []
    assert next_wake(run.state)[1] == HOUR
    run.now = run.now._replace(wall=HOUR)
    assert run.go().running == ["a"]


def test_a_window_holds_a_step_until_it_opens():
    """A step with a window starts only inside it."""
    run = Drive(step("a", window="01:00-02:00 UTC"), step("b"))
    assert run.running == ["b"]
    assert next_wake(run.state)[1] == HOUR
    run.later(3599)
    assert run.running == ["b"]
    run.later(1)
    assert run.running == ["a"], "b has run out of time"


def test_an_open_window_is_no_obstacle():
    """Inside its window a step starts at once."""
    run = Drive(step("a", window="00:00-02:00 UTC"))
    assert run.running == ["a"]


def test_a_closed_window_does_not_hold_up_others():
    """The next best ready step takes the place, and several windows may be closed at once."""
    run = Drive(
        step("a", window="01:00-02:00 UTC", est=100),
        step("b", window="03:00-04:00 UTC", est=50),
        step("c"),
        policy=Policy(max_concurrency=1),
    )
    assert run.running == ["c"]
    run.done("c")
    assert run.running == []
    run.later(HOUR / SECOND)
    assert run.running == ["a"]
    run.done("a")
    run.later(2 * HOUR / SECOND)
    assert run.running == ["b"]


def test_a_step_that_missed_its_window_waits_for_the_next():
    """It was held by a limit while its window closed."""
    run = Drive(
        step("a", est=9),
        step("b", window="00:00-00:01 UTC"),
        policy=Policy(max_concurrency=1),
    )
    run.later(61)
    run.done("a")
    assert run.running == []
    assert next_wake(run.state)[1] == DAY
    run.later((DAY - run.now.wall) / SECOND)
    assert run.running == ["b"]


def test_a_retry_whose_window_has_closed_waits_for_the_next():
    """The backoff is over, the window is not open: the calendar brings the step back."""
    doc = step("a", window="00:00-00:01 UTC", retry={"attempts": 2, "backoff": "2m"})
    run = Drive(doc).fail("a")
    run.later(130)
    assert run.status("a") == ["backing_off"]
    assert next_wake(run.state)[1] == DAY
    run.later((DAY - run.now.wall) / SECOND)
    assert run.running == ["a"]


def test_a_cancelled_step_leaves_the_calendar_alone():
    """Its time comes, and nothing happens."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a", not_before="00:10 UTC"), step("b"), final=False))
    run.done("b", surprise="odd")
    run.answer(propose(step("c"), cancel=["a"])).news_start()
    run.later(600)
    assert run.news == []
    assert run.done("c").ended == "succeeded"


def test_wall_time_stops_the_run():
    """At its limit no step starts any more; what is in flight may finish."""
    run = Drive(step("a"), step("b", "a"), policy=Policy(wall_s=10.0), at=7)
    run.later(9.999999)
    assert run.news == []
    run.later(0.000001)
    assert run.events == [
        ev.StopDecided("failed", "the run reached its time limit", "wall time", origin="limits")
    ]
    run.done("a")
    assert run.news == ["report a met", "end failed wall time"]
    assert run.state.ended.reason == "the run reached its time limit"


def test_wall_time_that_passed_after_the_stop_is_nothing():
    """A run that stops for another reason keeps that reason."""
    run = Drive(step("a"), policy=Policy(wall_s=10.0)).cancel().news_start()
    run.later(9.999)
    run.done("a")
    assert run.news == ["report a met", "end cancelled"]


# Failures.


def test_a_failed_step_skips_its_dependents_all_the_way():
    """With `continue` the run goes on, and whoever needed the step is skipped, near and far."""
    run = Drive(
        step("a", failure_action="continue"),
        step("b", "a"),
        step("c", "b"),
        step("d"),
    )
    run.fail("a", "permanent")
    assert run.events[1:] == [
        ev.RecoveryDecided(
            step="a",
            attempt=1,
            failure_class="permanent",
            strategy="continue",
            reason="it broke; the plan says to continue",
        ),
        ev.StepSkipped("b", "step a, which it depends on, failed"),
        ev.StepSkipped("c", "step b, which it depends on, was skipped"),
    ]
    run.done("d")
    assert run.news == ["report d met", "end failed"]
    assert run.state.ended.reason == "b skipped, c skipped"


def test_a_tolerated_failure_alone_does_not_fail_the_run():
    """Nobody needed the step, and the plan said to continue."""
    run = Drive(step("a", failure_action="continue"), step("b"))
    run.fail("a", "permanent").done("b")
    assert run.ended == "succeeded"


def test_a_tolerant_dependent_starts_all_the_same():
    """`if: finished` means: however it ended."""
    run = Drive(step("a", failure_action="continue"), step("b", finished("a")), step("c", "a", "b"))
    run.fail("a", "permanent")
    assert run.running == ["b"]
    assert run.status("c") == ["skipped"]


def test_a_tolerant_dependent_still_waits_for_its_other_dependencies():
    """One of two is settled; the other is not."""
    run = Drive(step("a", failure_action="continue"), step("b"), step("c", finished("a"), "b"))
    run.fail("a", "permanent")
    assert run.running == ["b"]
    assert run.done("b").running == ["c"]


def test_a_step_that_is_doomed_does_not_start_when_the_rest_is_done():
    """One dependency failed, the other succeeds in the same breath."""
    run = Drive(step("a", failure_action="continue"), step("b"), step("c", "a", "b"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure={"class": "permanent"}))
    run.tell(ev.AttemptReported("b", 1, 3, True))
    run.go()
    assert run.news == [
        "report a permanent",
        "report b met",
        "recover a continue",
        "skip c",
        "end failed",
    ]


@pytest.mark.parametrize("word", ["abort", "abort_deployment", "rollback"])
def test_abort_stops_the_run(word):
    """No further step starts, what is in flight finishes, and the reason names the step."""
    run = Drive(step("a", failure_action=word), step("b"), step("c", "b"))
    run.fail("a", "permanent")
    assert run.news == ["report a permanent", "recover a abort", "stop failed"]
    reason = run.state.stopping.reason
    then = "roll back" if word == "rollback" else "abort"
    assert reason.startswith(f"step a failed and the plan says to {then}: it broke")
    run.done("b")
    assert run.news == ["report b met", "end failed"]
    assert run.status("a", "b", "c") == ["failed", "succeeded", "cancelled"]
    assert run.state.ended == ev.RunEnded(
        "failed", reason, rollback=word == "rollback", origin="execution"
    )
    assert run.effects[-1] == Notify("ended", f"failed: {reason}")


def test_a_failure_while_stopping_is_abandoned():
    """It is decided about all the same: every failure is followed by a decision."""
    run = Drive(step("a", failure_action="abort"), step("b"))
    run.fail("a", "permanent").news_start()
    run.fail("b")
    assert run.news == ["report b transient", "recover b abandon", "end failed"]


def test_escalation_asks_a_person_and_the_rest_goes_on():
    """A question with choices; other steps do not wait for it."""
    run = Drive(step("a", action="go"), step("b"), step("c", "b"))
    run.fail("a", "permanent")
    text = "Step a (w go) failed: it broke (permanent); no recovery left. Choose how to continue."
    assert run.events[2] == ev.QuestionAsked(
        id="q1",
        kind="failure",
        text=text,
        choices=["retry", "skip", "abort"],
        step="a",
        attempt=1,
    )
    assert run.effects[-1] == Notify("waiting", text)
    run.done("b").done("c")
    assert run.ended is None
    assert run.status("a") == ["asking"]


def test_an_unseen_outcome_is_asked_about_with_one_more_choice():
    """Only then can a person know that it was done."""
    run = Drive(step("a", timeout=5))
    run.later(5)
    asked = run.last(ev.QuestionAsked)
    assert (asked.kind, asked.choices) == ("unseen", ["done", "retry", "skip", "abort"])
    assert asked.text == (
        "Step a (w): no report within 5s, its timeout; it is unknown whether it took effect, "
        "so it is not repeated unasked. Check whether it took effect, then answer."
    )


def test_questions_are_numbered():
    """Each has an id of its own."""
    run = Drive(step("a"), step("b"))
    run.fail("a", "permanent").fail("b", "permanent")
    assert [e.id for e in run.all(ev.QuestionAsked)] == ["q1", "q2"]


def test_a_failure_without_a_class_is_recorded_as_unavailable():
    """The decision says what it took the failure for."""
    run = Drive(step("a"))
    run.report("a", met=False, failure={"message": "?"})
    assert run.last(ev.RecoveryDecided).failure_class == "unavailable"


# Probes.


def test_the_probe_is_asked_with_the_steps_parameters():
    """A probe is in flight with an epoch and a deadline of its own."""
    doc = step("a", worker="probed", action="go", parameters={"x": 1}, timeout=5)
    run = Drive(doc, policy=Policy(probe_timeout_s=2.0))
    run.later(5)
    assert run.events[1:] == [
        ev.RecoveryDecided(
            step="a",
            attempt=1,
            failure_class="timeout",
            strategy="probe",
            reason="no report within 5s, its timeout; asking probed whether it took effect",
        ),
        ev.ProbeStarted("a", 1, 3, 7 * SECOND),
    ]
    assert run.effects[-1] == StartProbe("a", 1, 3, "probed", "go", {"x": 1})
    assert run.state.in_flight == {"a": 3}


def test_a_probe_gets_nothing_for_what_no_longer_resolves():
    """It is asked all the same: an empty answer is better than a crash."""
    run = Drive(
        step("z"), step("a", worker="probed", parameters={"x": "${{ steps.z.data.k }}"}, timeout=5)
    )
    run.done("z", data={"k": 1})
    run.state.steps["z"].data = {}
    run.later(5)
    assert run.effects[-1].parameters == {}


@pytest.mark.parametrize(
    ("outcome", "more", "expected", "effect", "kind"),
    [
        ("done", {"met": True, "data": 5}, ["probed a done", "end succeeded"], None, None),
        (
            "done",
            {"met": False},
            ["probed a done", "recover a ask", "ask q1 a"],
            "done",
            "criteria_unmet",
        ),
        ("not_done", {}, ["probed a not_done", "recover a retry"], "none", "timeout"),
        ("unknown", {}, ["probed a unknown", "recover a ask", "ask q1 a"], "unknown", "timeout"),
    ],
)
def test_what_a_probe_says(outcome, more, expected, effect, kind):
    """Done is adopted once verified, not done is retried, and unknown goes to a person."""
    run = Drive(step("a", worker="probed", timeout=5))
    run.later(5).news_start()
    run.probed("a", outcome, **more)
    assert run.news == expected
    failure = run.state.steps["a"].failure
    assert (failure and failure["effect"]) == effect
    assert (failure and failure["class"]) == kind
    assert run.state.steps["a"].data == more.get("data")


def test_a_probe_that_was_lost_with_its_host_is_asked_again():
    """That nobody heard its answer says nothing."""
    run = Drive(step("a", worker="probed", timeout=5))
    run.later(5).news_start()
    run.host_again()
    assert run.news == ["RunHosted", "probed a lost", "recover a probe", "probe a"]
    assert run.state.steps["a"].failure["probed"] is False


def test_a_probe_that_takes_too_long_is_unknown():
    """It is stopped, and a person is asked."""
    run = Drive(step("a", worker="probed", timeout=5), policy=Policy(probe_timeout_s=2.0))
    run.later(5).news_start()
    run.later(2)
    assert run.news == ["probed a unknown", "recover a ask", "ask q1 a"]
    assert run.effects[0] == StopAttempt("a", 1, 3, "timeout")
    assert run.all(ev.ProbeReported)[-1].reason == "the probe timed out"


# A new host.


def test_whatever_was_in_flight_is_lost_with_its_host():
    """Attempts and the planner call alike; what is idempotent goes on by itself."""
    run = Drive(bare=True, replans=True).go()
    steps = (step("a", worker="safe"), step("b"), step("c", worker="probed"), step("z"))
    run.answer(propose(*steps, final=False)).done("z", surprise="odd").news_start()
    run.host_again()
    assert run.news == [
        "RunHosted",
        "lost a lost",
        "lost b lost",
        "lost c lost",
        "planner failed its host ended before it reported",
        "recover a retry",
        "recover b ask",
        "ask q1 b",
        "recover c probe",
        "probe c",
        "consult the last call failed",
    ]
    lost = run.all(ev.AttemptLost)[0]
    assert lost == ev.AttemptLost("a", 1, 2, "lost", "its host ended before it reported")
    failed = run.last(ev.PlannerFailed)
    assert failed == ev.PlannerFailed(2, 6, "its host ended before it reported", lost=True)
    assert run.state.planner.rounds == 0, "nobody's fault"


def test_a_new_host_of_a_quiet_run_changes_nothing():
    """Nothing was in flight, so nothing is lost."""
    run = Drive(step("a"))
    run.fail("a", "permanent").news_start()
    run.host_again()
    assert run.news == ["RunHosted"]


def test_what_was_reported_before_the_loss_was_told_is_not_lost():
    """An orphan that is no longer in flight is passed over."""
    run = Drive(step("a", timeout=5), step("b"), step("c"))
    run.tell(ev.RunHosted(2))
    run.tell(ev.AttemptReported("b", 1, 3, True))
    run.go()
    assert run.news == [
        "RunHosted",
        "report b met",
        "lost a lost",
        "lost c lost",
        "recover a ask",
        "ask q1 a",
        "recover c ask",
        "ask q2 c",
    ]
    assert not run.state.lost_in_flight


# Refused starts.


def test_a_worker_that_is_not_in_the_run():
    """The start is refused as unavailable, and another worker may do it."""
    run = Drive(bare=True).go()
    docs = [step("a", worker="ghost"), step("b", worker="ghost", alternatives=["other"])]
    offer = run.state.started
    run.state.started = started(linted=digest(canonical(docs)))
    run.answer(propose(*docs))
    run.state.started = offer
    assert run.news[6:] == [
        "refuse a unavailable",
        "recover a ask",
        "ask q1 a",
        "refuse b unavailable",
        "recover b reroute",
        "start b 1 other",
    ]
    refused = run.all(ev.StepRefused)[0]
    assert refused.reason == "worker ghost does not offer this in this run"


def test_an_action_that_is_not_offered():
    """The refusal names it."""
    run = Drive(bare=True, catalog=[ev.WorkerSpec(name="x", offers={"go": WORKERS[0].offers[""]})])
    docs = [step("a", worker="x", action="fly")]
    run.state.started = started(linted=digest(canonical(docs)))
    run.go().answer(propose(*docs))
    refused = run.last(ev.StepRefused)
    assert refused.reason == "worker x does not offer fly in this run"


def test_a_reference_that_does_not_resolve():
    """It is a permanent failure without an effect; nothing was tried."""
    run = Drive(step("a"), step("b", parameters={"x": "${{ steps.a.data.gone }}"}))
    run.done("a", data={"here": 1})
    refused = run.last(ev.StepRefused)
    assert (refused.step, refused.failure_class) == ("b", "permanent")
    assert "gone" in refused.reason
    assert run.news[-2:] == ["recover b ask", "ask q1 b"]
    known = run.state.steps["b"]
    assert (known.attempts, known.tries, known.started) == (0, None, run.now.at)


# Budget.


def test_the_budget_is_reserved_before_a_start():
    """What attempts are expected to cost counts while they run."""
    catalog = [spec("p", cost=2.0)]
    steps = [step(f"s{i}", worker="p") for i in range(4)]
    run = Drive(*steps, catalog=catalog, policy=Policy(budget=5.0))
    assert run.running == ["s0", "s1"]
    assert run.state.reserved == 4.0
    run.done("s0", cost=0.5)
    assert run.running == ["s1", "s2"]
    assert (run.state.spent, run.state.reserved) == (0.5, 4.0)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (6.0, "start s2 1 p"),  # 4 spent, 2 more are exactly 6
        (5.9, "end failed budget"),
        (4.0, "end failed budget"),
    ],
)
def test_the_budget_stops_the_run(budget, expected):
    """When the next step would pass it and nothing is in flight that could come cheaper."""
    steps = [step("s0", worker="p"), step("s1", "s0", worker="p"), step("s2", "s1", worker="p")]
    run = Drive(*steps, catalog=[spec("p", cost=2.0)], policy=Policy(budget=budget))
    run.done("s0", "s1", cost=2.0)
    assert run.news[-1] == expected
    if run.ended:
        assert run.state.ended.reason == f"step s2 would pass the budget of {budget}"


def test_a_budget_that_is_spent_stops_free_steps_too():
    """Nothing left is nothing left."""
    run = Drive(step("a"), step("b", "a"), policy=Policy(budget=1.0))
    run.done("a", cost=1.0)
    assert run.news[-1] == "end failed budget"


def test_three_times_a_tenth_is_within_three_tenths():
    """Sums of costs are compared as money is, not to the last bit of a float."""
    steps = [step("a", worker="p"), step("b", "a", worker="p"), step("c", "b", worker="p")]
    run = Drive(*steps, catalog=[spec("p", cost=0.1)], policy=Policy(budget=0.3))
    run.done("a", "b", cost=0.1)
    assert run.running == ["c"]


def test_while_something_is_in_flight_the_budget_waits():
    """It may turn out cheaper than was reserved."""
    catalog = [spec("p", cost=3.0)]
    run = Drive(
        step("a", worker="p"), step("b", worker="p"), catalog=catalog, policy=Policy(budget=5.0)
    )
    assert run.running == ["a"]
    assert run.ended is None
    assert run.done("a", cost=1.0).running == ["b"]


def test_without_a_budget_nothing_is_reserved():
    """Costs are summed all the same."""
    run = Drive(step("a", worker="p"), catalog=[spec("p", cost=3.0)])
    assert run.state.reserved == 0.0
    run.done("a", cost=2.5)
    assert run.state.spent == 2.5
    assert run.ended == "succeeded"


# The planner.


def test_one_step_at_a_time():
    """An iterative planner is asked again when nothing is left, until it finishes."""
    run = Drive(bare=True).go()
    run.answer(propose(step("a"), final=False)).done("a")
    run.answer(propose(step("b"), final=False)).done("b")
    run.answer({"kind": "finish", "result": {"all": "done"}, "because": "enough"})
    assert run.news == [
        "RunStarted",
        "RunHosted",
        "consult start",
        "PlannerAnswered",
        "propose 1",
        "approve 1 policy",
        "start a 1 w",
        "report a met",
        "consult nothing is left",
        "PlannerAnswered",
        "propose 2",
        "approve 2 policy",
        "start b 1 w",
        "report b met",
        "consult nothing is left",
        "PlannerAnswered",
        "FinishAccepted",
        "end succeeded",
    ]
    assert run.state.ended == ev.RunEnded("succeeded", "", {"all": "done"})
    assert run.effects[-1] == Notify("ended", "succeeded")


def test_every_report_brings_the_planner_back():
    """With `consult: every_report` it is asked while other steps go on."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), final=False)).news_start()
    run.done("a")
    assert run.news == ["report a met", "consult report"]
    assert run.running == ["b"]
    run.done("b")
    assert run.news == ["report b met"], "one call at a time"
    run.answer(propose(final=False, steps=[]))
    assert run.news == ["PlannerAnswered", "PlannerWaits", "consult report"], "b overtook it"
    run.answer(propose(final=False, steps=[]))
    assert run.news == ["PlannerAnswered", "refused", "consult the last proposal was refused"]


def test_a_final_revision_is_not_discussed():
    """Nothing is to follow, so reports do not bring the planner back."""
    run = Drive(step("a"), step("b"), consult="every_report")
    run.done("a", "b")
    assert run.news == ["report a met", "report b met", "end succeeded"]


def test_a_surprise_brings_the_planner_back():
    """A success that is not as expected, when the planner can plan around it."""
    run = Drive(step("a"), step("b"), replans=True)
    run.done("a", surprise="expected x")
    assert run.news == ["report a met", "consult surprise: step a: expected x"]
    run = Drive(step("a"), step("b"), replans=False)
    run.done("a", surprise="expected x")
    assert run.news == ["report a met"]


def test_a_surprise_is_not_forgotten_over_a_report():
    """It came while the planner was away; later reports do not make it a mere report."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), step("c"), step("d", "b"), final=True))
    run.done("a", surprise="odd")
    run.fail("b", "permanent").done("c")
    run.answer(propose(steps=[], final=False))
    assert run.news[-1] == "consult surprise: step b failed: it broke"


def test_a_failed_call_is_repeated_though_reports_came_in():
    """Even for a final plan, where a report alone would not bring the planner back."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), step("c", "a")))
    run.fail("a", "permanent").done("b")
    run.say(ev.PlannerFailed(2, run.state.planner.epoch, "it raised"))
    assert run.news[-1] == "consult the last call failed"


def test_a_failure_is_left_to_the_planner():
    """Replan: the step has failed, its dependents wait for what the planner makes of it."""
    run = Drive(step("a"), step("b", "a"), step("c"), replans=True)
    run.fail("a", "permanent")
    assert run.news == [
        "report a permanent",
        "recover a replan",
        "consult surprise: step a failed: it broke",
    ]
    assert run.status() == ["failed", "waiting", "running"]


def test_a_planner_that_says_nothing_of_a_failure_is_asked_again():
    """It waited for other steps; these are done, and whoever needs the failed one still waits."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b", "a"), step("c"), final=False))
    run.fail("a", "permanent").answer(propose(steps=[], final=False))
    assert run.ended is None
    run.done("c")
    assert run.news[-1] == "consult surprise: step a failed, and nothing else is left to do"
    run.answer(propose(steps=[], final=False))
    assert run.news[-2:] == ["refused", "consult the last proposal was refused"]
    assert run.state.planner.findings == ["it proposes nothing, and nothing is under way"]


def test_a_final_plan_does_not_end_while_a_failure_is_the_planners():
    """It waited for the rest; now that all is settled it must say what becomes of the failure."""
    run = Drive(step("a"), step("b"), replans=True).fail("a", "permanent")
    run.answer({"kind": "wait"}).done("b")
    why = "surprise: a failed, and nothing has replaced it"
    assert run.news[-2:] == ["report b met", f"consult {why}"]
    assert run.effects[-1].why == why


def test_rounds_in_a_row_are_bounded():
    """A planner that fails or is refused three times in a row is out of ideas."""
    run = Drive(bare=True, policy=Policy(no_input=True)).go()
    run.say(ev.PlannerFailed(1, 1, "it raised"))
    run.answer({"kind": "nonsense"})
    run.answer(propose(step("a", worker="nobody")))
    assert run.news[2:] == [
        "consult start",
        "planner failed it raised",
        "consult the last call failed",
        "PlannerAnswered",
        "refused",
        "consult the last proposal was refused",
        "PlannerAnswered",
        "refused",
        "stop failed",
        "end failed",
    ]
    assert run.state.ended.reason.startswith(
        "the planner failed 3 times in a row: error[LH106 worker-unknown]"
    )
    run = Drive(bare=True, policy=Policy(planner_rounds_max=1, no_input=True)).go()
    run.tell(ev.PlannerAnswered(1, 1, {}), ev.ProposalRefused(1, ["x", "y"])).go()
    assert run.state.ended.reason.startswith("the planner failed: x; y; no person")


def refused_thrice(run):
    """The planner proposes nonsense as often as it may."""
    for _ in range(3):
        run.answer({"kind": "nonsense"})
    return run


def test_a_person_hears_of_a_planner_without_ideas_when_nothing_else_goes_on():
    """Steps that are under way may bring it one."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), final=False)).done("a")
    refused_thrice(run)
    assert (run.running, run.state.questions) == (["b"], {})
    run.done("b")
    assert [question.kind for question in run.state.questions.values()] == ["planning"]


def test_a_step_that_waits_for_a_person_is_nothing_that_goes_on():
    """So a person is asked about the planner too; until they answer, nobody asks the planner."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a", failure_action="escalate"), step("b"), final=False))
    run.fail("a", "permanent").done("b")
    refused_thrice(run)
    assert [question.kind for question in run.state.questions.values()] == ["failure", "planning"]
    run.reply("retry", "q1").news_start().done("a")
    assert run.news == ["report a met"]
    run.reply("go_on", "q2")
    assert run.news[-1] == "consult answer"


def test_a_person_is_asked_at_once_when_no_step_is_left():
    """A question that answers itself in time is no step that could bring the planner an idea."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), final=False)).done("a")
    run.answer({"kind": "ask", "question": "?", "within_s": 60, "default": "no"}).done("b")
    refused_thrice(run)
    assert [question.kind for question in run.state.questions.values()] == ["planner", "planning"]


def test_an_accepted_proposal_starts_the_count_afresh():
    """Only failures in a row count."""
    run = Drive(bare=True).go()
    run.answer({"kind": "nonsense"}).answer({"kind": "nonsense"})
    run.answer(propose(step("a"), final=False)).done("a")
    assert run.state.planner.rounds == 0
    assert run.ended is None


def test_the_findings_of_the_last_round_are_told():
    """At most three of them stand in the reason."""
    run = Drive(bare=True, policy=Policy(planner_rounds_max=1, no_input=True)).go()
    run.answer(propose(*(step(f"s{i}", worker="nobody") for i in range(5))))
    assert run.state.ended.reason.count("worker-unknown") == 3


def test_planner_calls_are_bounded():
    """A planner that never comes to an end reaches a limit."""
    run = Drive(bare=True, policy=Policy(planner_calls_max=2)).go()
    run.answer(propose(step("a"), final=False)).done("a")
    run.answer(propose(step("b"), final=False)).done("b")
    assert run.events[-2:] == [
        ev.StopDecided(
            "failed", "the limit of 2 planner calls is reached", "planner calls", origin="planning"
        ),
        ev.RunEnded(
            "failed",
            "the limit of 2 planner calls is reached",
            limit="planner calls",
            origin="planning",
        ),
    ]


def test_the_planner_is_not_asked_while_a_revision_waits():
    """What a person has not looked at yet is not planned over."""
    run = Drive(bare=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), final=False))
    run.done("a").answer(propose(step("r", worker="risky"), final=False)).news_start()
    run.done("b")
    assert run.news == ["report b met"]
    run.reply("approve")
    assert run.news == ["allow 2 ann", "approve 2 ann", "start r 1 risky", "consult report"]


def test_a_finish_waits_for_what_is_under_way():
    """It is told what is open, is not blamed, and is asked again when something has changed."""
    run = Drive(bare=True, consult="every_report", policy=Policy(max_concurrency=2)).go()
    run.answer(propose(step("a"), step("b"), step("c"), final=False))
    run.done("a").answer({"kind": "finish", "result": 7})
    assert run.last(ev.ProposalRefused).early
    assert "b, c are still open" in run.state.planner.findings[0]
    assert (run.running, run.state.planner.epoch, run.state.planner.rounds) == (["b", "c"], 0, 0)
    run.done("b")
    assert run.news[-1] == "consult report"
    run.done("c").answer({"kind": "finish", "result": 7})
    assert run.state.ended.result == 7
    assert check(run.log) == []


def test_a_finish_that_was_accepted_holds():
    """What is under way comes to its end; nothing else starts, and the planner is not asked."""
    policy = Policy(jitter=0.0, max_concurrency=1)
    run = Drive(bare=True, policy=policy, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), final=False))
    run.tell(
        ev.PlannerAsked(2, run.state.epoch + 1, MINUTE, "report"),
        ev.PlannerAnswered(2, run.state.epoch + 1, {"kind": "finish", "result": 7}),
        ev.FinishAccepted(2),
    )
    assert run.go().running == ["a"]
    assert run.ended is None
    run.news_start().done("a")
    assert run.news == ["report a met", "end succeeded"]


def test_a_finish_drops_by_name_what_has_not_started():
    """With a reason that is kept; what runs cannot be dropped."""
    run = Drive(bare=True, consult="every_report", policy=Policy(max_concurrency=1)).go()
    run.answer(propose(step("a"), step("b"), step("c", "b"), step("d"), final=False)).done("a")
    run.answer({"kind": "finish", "result": 7, "drop": {"b": "it runs"}})
    assert run.state.planner.findings == ["it drops b, which is running"]
    run.done("b").answer({"kind": "finish", "result": 7, "drop": {"d": " "}})
    assert "it drops d without a reason" in run.state.planner.findings
    run.state.paused = True
    run.answer({"kind": "finish", "result": 7, "drop": {"c": "enough", "d": "enough"}})
    assert run.state.planner.findings == ["it drops c, which is running"]


def test_a_finish_is_refused_while_a_failed_step_is_neither_replaced_nor_dropped():
    """Law 14: the planner is told, three times; then a person is asked."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b", "a"), step("c"), final=False))
    run.fail("a", "needs_info").done("c")
    for _ in range(3):
        run.answer({"kind": "finish", "result": 1})
        (finding,) = run.state.planner.findings
        assert finding.startswith("it is not done: a failed, neither replaced nor dropped")
    (question,) = run.state.questions.values()
    assert (question.kind, question.choices) == ("planning", ["go_on", "abort"])
    run.reply("go_on", question.id)
    run.answer({"kind": "finish", "result": 1, "drop": {"a": "c did it"}})
    assert run.ended == "succeeded"
    assert run.status() == ["failed", "cancelled", "succeeded"]
    assert run.state.steps["a"].dropped == "c did it"
    assert check(run.log) == []


@pytest.mark.parametrize("pending", ["attempt", "retry", "question"])
def test_a_wait_holds_while_something_is_open(pending):
    """The planner is left alone until something has changed."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    more = {"failure_action": "escalate"} if pending == "question" else {}
    run.answer(propose(step("a", **more), step("b"), final=False))
    if pending != "attempt":
        run.fail("a", "transient" if pending == "retry" else "permanent")
    run.done("b").answer({"kind": "wait", "because": "a is not done"})
    waits = run.last(ev.PlannerWaits)
    assert waits.on == [next(iter(run.state.questions), "a")]
    assert run.news[-1] == "PlannerWaits"
    assert (run.state.planner.epoch, run.state.planner.rounds) == (0, 0)
    assert check(run.log) == []


def test_a_wait_for_nothing_is_refused():
    """Then it would wait for ever."""
    run = Drive(bare=True, replans=True).go().answer(propose(step("a"), final=False)).done("a")
    run.answer({"kind": "wait"})
    assert run.state.planner.findings == ["it waits, and nothing is under way"]
    assert run.state.planner.rounds == 1


def test_a_retry_is_no_reason_to_ask_the_planner():
    """Nothing has changed that it can act on."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a"), final=False)).fail("a", "transient")
    assert run.status("a") == ["backing_off"]
    assert run.state.planner.epoch == 0
    assert run.state.planner.due == ""


def test_a_planner_that_gives_up_waits_for_an_open_question():
    """What waits for a person waits."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a", failure_action="escalate"), step("b"), final=False))
    run.fail("a", "permanent").done("b").answer({"kind": "give_up", "reason": "no way"})
    assert run.ended is None
    run.reply("skip")
    assert run.news[-1] == "consult report"
    run.answer({"kind": "give_up", "reason": "no way"})
    assert run.state.ended.reason == "the planner gave up: no way"


@pytest.mark.parametrize("choice", ["go_on", "hand_over", "abort"])
def test_what_a_person_says_to_a_planner_without_ideas(choice):
    """It starts over with their words, the goal planner goes on, or the run ends."""
    goal = {"text": "g", "want": ["x"]}
    run = Drive(bare=True, replans=True, goal=goal, policy=Policy(planner_rounds_max=1)).go()
    run.answer({"kind": "nonsense"})
    (question,) = run.state.questions.values()
    assert question.choices == ["go_on", "hand_over", "abort"]
    assert "no way to continue: the planner failed" in question.text
    run.reply(choice, question.id, text="look at b")
    assert check(run.log) == []
    if choice == "abort":
        assert run.ended == "failed"
        assert run.state.ended.reason.startswith("aborted by ann: the planner found no way")
        return
    assert run.state.planner_name == ("goal" if choice == "hand_over" else "test")
    assert run.news[-1] == "consult answer"
    assert run.state.answers[0]["text"] == "look at b"
    run.answer(propose(step("a"), final=False))
    assert run.last(ev.RevisionProposed).author == run.state.planner_name


def test_an_amendment_answers_a_planner_without_ideas():
    """The plan was changed, so it goes on."""
    run = Drive(bare=True, replans=True, policy=Policy(planner_rounds_max=1)).go()
    run.answer({"kind": "nonsense"})
    amended = {"steps": [step("a")], "final": True}
    run.take(commands.amend(run.state, amended, "ann", run.now)).go().done("a")
    assert (run.ended, run.state.questions) == ("succeeded", {})
    assert check(run.log) == []


@pytest.mark.parametrize("how", ["supersedes", "cancel", "drop", "beside", "gives"])
def test_no_planner_has_done_again_what_may_have_happened(how):
    """A person is asked whether it took effect; until they answer nothing repeats it."""
    workers = [spec("pay", effects=("money",), gives=("paid",)), spec("pay2", gives=("paid",))]
    workers.append(spec("w"))
    goal = {"text": "g", "want": ["paid"]}
    run = Drive(bare=True, replans=True, consult="every_report", catalog=workers, goal=goal).go()
    run.answer(propose(step("a", worker="pay", timeout="1s"), step("s"), final=False))
    run.later(2).done("s")
    assert run.status("a") == ["asking"]
    again = step("b", worker="pay2" if how == "gives" else "pay")
    more = {"cancel": {"cancel": ["a"]}, "drop": {"drop": {"a": "so"}}}.get(how, {})
    again |= {"supersedes": "a"} if how == "supersedes" else {}
    run.answer(propose(again, final=False, because="once more", **more))
    assert (list(run.state.steps), len(run.state.questions)) == (["a", "s"], 1)
    run.reply("done", data="paid").answer({"kind": "finish"})
    assert run.ended == "succeeded"
    assert check(run.log) == []


def test_an_answer_that_came_while_the_planner_thought_is_heard():
    """Neither giving up nor a finish passes over it."""
    for last in ({"kind": "give_up", "reason": "no"}, {"kind": "finish", "result": 1}):
        run = Drive(bare=True, replans=True, consult="every_report").go()
        run.answer(propose(step("a"), step("b"), final=False)).done("a")
        run.answer({"kind": "ask", "question": "which?"})
        run.done("b")
        assert run.state.planner.epoch
        run.reply("left").answer(last)
        assert run.ended is None
        assert run.news[-1] == "consult answer"
        assert check(run.log) == []


def test_a_drop_that_comes_too_soon_is_told_and_not_counted():
    """The step began while the planner was thinking; it is asked again when something changed."""
    run = Drive(bare=True, replans=True, consult="every_report").go()
    run.answer(propose(step("a"), step("b"), final=False)).done("a")
    run.answer(propose(step("c"), drop={"b": "enough"}, final=False))
    assert run.last(ev.ProposalRefused).early
    assert (run.state.planner.rounds, run.state.planner.epoch) == (0, 0)
    run.done("b")
    assert run.news[-1] == "consult report"
    assert check(run.log) == []


def test_facts_that_are_asked_for_can_be_given():
    """Whatever choices the planner names: another answer would count for nothing."""
    for choices in ([], ["stop"]):
        run = Drive(bare=True, goal={"text": "g", "want": ["x"]}, replans=True).go()
        run.answer({"kind": "ask", "question": "x?", "choices": choices, "facts": ["x"]})
        (question,) = run.state.questions.values()
        assert question.choices == ["give", *choices]
        run.reply("give", data=7).answer({"kind": "finish", "result": 7})
        assert run.ended == "succeeded"


def test_the_reason_of_a_wait_for_nothing_reaches_the_person():
    """Else they are asked what to do about a planner that says nothing."""
    run = Drive(bare=True, replans=True, policy=Policy(planner_rounds_max=1)).go()
    run.answer({"kind": "wait", "because": "raw must be a list."})
    (question,) = run.state.questions.values()
    assert "it waits, and nothing is under way (raw must be a list.). Answer" in question.text


def test_no_person_is_asked_where_none_is_to_be():
    """With `no_input` a failure that is left to a person ends the run, and so does a question."""
    quiet = Policy(jitter=0.0, no_input=True, planner_rounds_max=2)
    run = Drive(step("a"), policy=quiet).fail("a", "permanent")
    assert run.ended == "failed"
    assert check(run.log) == []
    run = Drive(bare=True, policy=quiet).go()
    for _ in range(2):
        run.answer({"kind": "ask", "question": "which?"})
    assert "no person is to be asked" in run.state.ended.reason
    assert check(run.log) == []


# The end.


def test_success():
    """All settled, nothing bad, final: the run succeeded."""
    run = Drive(step("a")).done("a", data=5)
    assert run.events[-1] == ev.RunEnded("succeeded")
    assert run.effects[-1] == Notify("ended", "succeeded")


def test_nothing_is_decided_after_the_end():
    """The last event is the last."""
    run = Drive(step("a")).done("a")
    assert run.decide() is None
    assert run.later(10**9).decide() is None


def test_a_failed_run_says_what_failed():
    """At most five are named."""
    docs = [step("a", failure_action="continue"), *(step(f"b{i}", "a") for i in range(7))]
    run = Drive(*docs).fail("a", "permanent")
    reason = ", ".join(f"b{i} skipped" for i in range(5)) + " and 2 more"
    assert run.state.ended.reason == reason
    run = Drive(*docs[:6]).fail("a", "permanent")
    assert run.state.ended.reason == ", ".join(f"b{i} skipped" for i in range(5))
    run = Drive(*docs[:7]).fail("a", "permanent")
    assert run.state.ended.reason.endswith("b4 skipped and 1 more")


def test_the_last_failure_that_counts_is_blamed():
    """Neither one that the plan tolerates nor a step that was only skipped."""
    run = Drive(
        step("a", failure_action="abort"),
        step("b"),
        step("c", "b"),
        step("d", "a", failure_action="continue"),
    )
    run.fail("a", "permanent").later(1).fail("b", "budget")
    assert run.ended == "failed"
    run.later(1).hear(commands.redo(run.state, "a", "ann", "so", run.now)).later(1)
    run.done("a").later(1).fail("d", "permanent")
    assert run.state.ended == ev.RunEnded("failed", "b failed, c skipped", origin="limits")


def test_an_open_question_keeps_the_run_open():
    """A planner's question alone, with nothing else to do."""
    run = Drive(bare=True).go()
    run.answer(propose(step("a"), final=False)).done("a")
    run.answer({"kind": "ask", "question": "Which?", "choices": ["x"]})
    assert run.news[-1] == "ask q1 planner"
    assert run.decide() is None


def test_a_net_for_what_cannot_go_on():
    """Steps that wait for nothing that could come end the run instead of hanging it."""
    run = Drive(step("a"), step("b", "a"))
    run.state.steps["b"].blockers = 2
    run.done("a")
    assert run.events[-2:] == [
        ev.StopDecided("failed", "1 steps wait for something that cannot come", origin="planning"),
        ev.RunEnded("failed", "1 steps wait for something that cannot come", origin="planning"),
    ]


def test_the_net_is_not_cast_while_the_host_grants_nothing():
    """Without room nothing can be said about what could go on."""
    for room, ended in ((0, None), (1, "failed")):
        run = Drive(step("a"), step("b", "a"))
        run.state.steps["b"].blockers = 2
        run.tell(ev.AttemptReported("a", 1, 2, True))
        run.room = room
        assert run.go().ended == ended


def test_a_policy_that_lets_nothing_start():
    """The run waits; it has not failed."""
    run = Drive(step("a"), policy=Policy(max_concurrency=0))
    assert (run.ended, run.status("a")) == (None, ["ready"])


GOAL = {"text": "g", "acceptance": ["result == 1"]}


def test_the_goal_is_checked_before_success():
    """With acceptance criteria the shell is asked to check them against the result, once."""
    run = Drive(step("a"), goal=GOAL).done("a", data=1)
    assert run.news == ["report a met", "GoalCheckStarted"]
    assert run.effects[-1] == VerifyGoal(1)
    assert run.decide() is None
    run.say(ev.GoalChecked(met=True))
    assert run.news == ["GoalChecked", "end succeeded"]


def test_the_planners_result_is_what_is_checked():
    """Where it gave one."""
    run = Drive(bare=True, goal=GOAL).go()
    run.answer({"kind": "finish", "result": {"x": 1}})
    assert run.effects[-1] == VerifyGoal({"x": 1})
    run.say(ev.GoalChecked(met=True))
    assert run.state.ended == ev.RunEnded("succeeded", "", {"x": 1})


def test_wanted_facts_are_what_is_checked():
    """They stand in their steps, whatever the planner calls its result."""
    goal = {"text": "g", "want": ["x"], "acceptance": ["result == 1"]}
    run = Drive(bare=True, goal=goal, catalog=[spec("w", gives=("x",))]).go()
    run.answer(propose(step("a"), final=False)).done("a", data=1)
    run.answer({"kind": "finish", "result": 2})
    assert run.effects[-1] == VerifyGoal(1)


def test_a_goal_that_is_not_met_fails_the_run():
    """Without a planner that could go on, that is the end."""
    run = Drive(step("a"), goal=GOAL).done("a", data=2)
    run.say(ev.GoalChecked(met=False, findings=["result == 1 does not hold", "x"]))
    assert run.state.ended == ev.RunEnded(
        "failed", "the goal is not met: result == 1 does not hold; x", origin="planning"
    )


def test_a_goal_that_is_not_met_brings_a_replanning_planner_back():
    """It is told the findings, and the check is made again after its next steps."""
    run = Drive(step("a"), goal=GOAL, replans=True).done("a", data=2)
    run.say(ev.GoalChecked(met=False, findings=["no"]))
    assert run.news[-1] == "consult surprise: the goal is not met: no"
    assert run.state.planner.rounds == 1
    assert run.state.planner.findings == ["no"]
    run.answer(propose(step("b"))).done("b", data=1)
    assert run.news[-1] == "GoalCheckStarted"
    run.say(ev.GoalChecked(met=True))
    assert run.ended == "succeeded"


def test_a_finish_that_does_not_meet_the_goal_is_taken_back():
    """The planner declared success too early; after three times it is not asked again."""
    run = Drive(bare=True, goal=GOAL, replans=True, policy=Policy(no_input=True)).go()
    for _ in range(3):
        run.answer({"kind": "finish", "result": 2})
        assert run.state.finish is not None
        run.say(ev.GoalChecked(met=False, findings=["no"]))
        assert run.state.finish is None
    assert run.state.ended.reason.startswith("the planner failed 3 times in a row: no; no person")


def test_a_new_host_asks_for_the_goal_check_again():
    """The one that was asked is gone."""
    run = Drive(step("a"), goal=GOAL).done("a").news_start()
    run.host_again()
    assert run.news == ["RunHosted", "GoalCheckStarted"]
    assert run.effects == [VerifyGoal(None)]


def test_a_failed_run_is_not_checked_for_its_goal():
    """Bad steps come first."""
    run = Drive(step("a", failure_action="continue"), step("b", "a"), goal=GOAL)
    run.fail("a", "permanent")
    assert run.ended == "failed"


# Pause.


def test_nothing_starts_while_paused():
    """Reports are taken, failures decided, answers acted on; starts and calls wait."""
    run = Drive(step("a"), step("b", "a"), step("c"))
    run.tell(ev.RunPaused("ann")).go().news_start()
    run.done("a")
    assert run.news == ["report a met"]
    run.fail("c")
    assert run.news == ["report c transient", "recover c retry"]
    run.later(10)
    assert run.news == []
    run.say(ev.RunResumed("ann"))
    assert run.news == ["RunResumed", "start b 1 w", "start c 2 w"]


def test_the_planner_is_not_asked_while_paused():
    """Its answer to an earlier call is acted on."""
    run = Drive(bare=True).go()
    run.tell(ev.RunPaused("ann"))
    run.answer(propose(step("a"))).news_start()
    assert run.status("a") == ["ready"]
    run.say(ev.RunResumed("ann"))
    assert run.news == ["RunResumed", "start a 1 w"]


def test_a_paused_run_does_not_end():
    """It ends when it is resumed."""
    run = Drive(step("a"))
    run.tell(ev.RunPaused("ann"))
    run.done("a")
    assert run.ended is None
    run.say(ev.RunResumed("ann"))
    assert run.ended == "succeeded"


# Cancel.


def test_cancel_waits_for_what_is_in_flight():
    """Nothing new starts; the run ends when the last attempt has reported."""
    run = Drive(step("a"), step("b", "a"), step("c"))
    run.cancel("enough")
    assert run.events == [ev.CancelRequested("ann", 10 * SECOND, "enough")]
    run.done("a")
    assert run.news == ["report a met"]
    run.fail("c")
    assert run.news == ["report c transient", "recover c abandon", "end cancelled"]
    assert run.state.ended.reason == "cancelled by ann: enough"
    assert run.status() == ["succeeded", "cancelled", "failed"]


def test_cancel_has_a_grace_and_no_more():
    """What has not ended by then is lost, whatever its own deadline."""
    run = Drive(step("a"), step("b", worker="probed", timeout=3))
    run.later(3)
    assert run.status() == ["running", "probing"]
    run.cancel().news_start()
    assert next_wake(run.state)[0] == 13 * SECOND
    run.later(9.999)
    assert run.news == []
    run.later(0.001)
    assert run.events == [
        ev.AttemptLost("a", 1, 2, "lost", "it did not stop in time when the run was cancelled"),
        ev.ProbeReported("b", 1, 4, "unknown", reason="the probe timed out"),
        ev.RecoveryDecided(
            step="a",
            attempt=1,
            failure_class="lost",
            strategy="abandon",
            reason="it did not stop in time when the run was cancelled; "
            "the run is stopping (cancelled by ann)",
        ),
        ev.RecoveryDecided(
            step="b",
            attempt=1,
            failure_class="timeout",
            strategy="abandon",
            reason="no report within 3s, its timeout; probe: the probe timed out; "
            "the run is stopping (cancelled by ann)",
        ),
        ev.RunEnded("cancelled", "cancelled by ann", origin="person"),
    ]
    assert run.effects[:2] == [StopAttempt("a", 1, 2, "timeout"), StopAttempt("b", 1, 4, "timeout")]


def test_cancel_of_a_quiet_run_ends_it_at_once():
    """Questions and reviews do not hold it."""
    run = Drive(step("a")).fail("a", "permanent").news_start()
    run.cancel()
    assert run.news == ["CancelRequested", "end cancelled"]
    assert run.state.questions == {}


def test_cancel_during_a_planner_call():
    """The call is not waited for."""
    run = Drive(bare=True).go().news_start()
    run.cancel()
    assert run.news == ["CancelRequested", "end cancelled"]
    assert run.state.planner.epoch == 0


def test_cancel_while_paused():
    """A paused run can be cancelled."""
    run = Drive(step("a"))
    run.tell(ev.RunPaused("ann"))
    run.cancel().done("a")
    assert run.ended == "cancelled"


# Asking when to look again.


def test_the_next_wake():
    """The earliest timer that counts, on each of the two clocks."""
    run = Drive(
        step("a", timeout=100),
        step("b", timeout=50),
        step("c", not_before="00:05 UTC"),
        step("d", not_before="00:03 UTC"),
    )
    assert next_wake(run.state) == (50 * SECOND, 3 * MINUTE)
    run.done("b")
    assert next_wake(run.state) == (100 * SECOND, 3 * MINUTE)
    run.fail("a")
    assert next_wake(run.state) == (1 * SECOND, 3 * MINUTE)


def test_the_next_wake_passes_over_what_no_longer_counts():
    """Even before anything is decided."""
    run = Drive(step("a", timeout=5), step("b", timeout=9))
    run.tell(ev.AttemptReported("a", 1, 2, True))
    assert next_wake(run.state) == (9 * SECOND, None)


def test_steps_may_be_called_like_timers():
    """A step named "wall" or "cancel" has its own deadline."""
    run = Drive(step("wall", timeout=5), step("cancel", timeout=5), policy=Policy(wall_s=99.0))
    run.later(5)
    assert run.news[:2] == ["lost cancel timeout", "lost wall timeout"]


def test_nothing_to_wait_for():
    """A run that waits for a person has no timer."""
    run = Drive(step("a")).fail("a", "permanent")
    assert next_wake(run.state) == (None, None)


def test_whoever_waits_for_a_surprise_waits_for_the_planner():
    """It may take them out; what it leaves goes on once its answer is let through."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b", "a"), step("c", "a"), step("d"), final=False))
    run.done("a", surprise="there is nothing to read").news_start()
    assert run.running == ["d"]
    assert run.status("b", "c") == ["waiting", "waiting"]
    run.answer({"kind": "propose", "steps": [step("e", "a")], "cancel": ["b"], "final": True})
    assert run.status("b", "c", "e") == ["cancelled", "running", "running"]
    given = Drive(step("a"), step("b", "a")).done("a", surprise="so what")
    assert given.running == ["b"], "nobody would look"


def test_a_wait_lets_the_dependents_of_a_surprise_start():
    """A planner that is content with a surprising success says so by waiting."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b", "a"), final=False)).done("a", surprise="odd")
    assert run.answer({"kind": "wait"}).running == ["b"]
    assert not run.all(ev.ProposalRefused)


def test_a_wait_that_lets_nothing_start_is_refused():
    """The dependent also waits for a step that no planner has replaced."""
    run = Drive(bare=True, replans=True).go()
    docs = [step("a"), step("c"), step("b", "a", "c")]
    run.answer(propose(*docs, final=False)).fail("c", "permanent").answer({"kind": "wait"})
    run.done("a", surprise="odd").answer({"kind": "wait"})
    assert "nothing is under way" in run.last(ev.ProposalRefused).findings[0]
    assert run.running == []


def test_a_planner_that_looked_at_no_surprise_is_asked_again():
    """It wanted to finish while a person was asked; then only who waits for that step is left."""
    run = Drive(bare=True, replans=True).go()
    docs = [step("a"), step("b", "a"), step("c", failure_action="escalate")]
    run.answer(propose(*docs, final=False)).fail("c", "permanent").done("a", surprise="odd")
    run.answer({"kind": "finish"})
    assert run.last(ev.ProposalRefused).early
    run.reply("skip")
    why = "surprise: step a succeeded otherwise than expected, and others wait for it"
    assert run.news[-1] == f"consult {why}"
    assert run.answer(propose()).running == ["b"]
