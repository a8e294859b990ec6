"""What people, planners and machines are shown of a run."""

import msgspec
import pytest

from leadhand.core import events as ev
from leadhand.core.catalog import WorkerSpec
from leadhand.core.host_events import (
    HOST_EVENTS,
    ApprovalUsed,
    ArchiveDeleted,
    ArchiveRewritten,
    CircuitClosed,
    CircuitOpened,
    HostOpened,
    PersonChanged,
    RunJoined,
    RunsArchived,
    StopAllLifted,
    StopAllRequested,
    TemporalLeft,
    TemporalOpened,
)
from leadhand.core.library import LIBRARY_EVENTS, PlanRemoved, PlanSaved
from leadhand.core.plan.model import Goal
from leadhand.core.policy import Policy
from leadhand.core.report import FailedAttempt, Failure, StepView
from leadhand.core.review.approval import binding
from leadhand.core.state.model import State
from leadhand.core.views import run as views
from leadhand.core.views.inbox import AnswerChoice, asked_first
from leadhand.core.views.ledger import LINES, describe, ledger_of
from tests.core.driver import MINUTE, Drive, failure, finished, fold, propose, spec, step

# One word.


def stopped(run):
    run.tell(ev.StopDecided("failed", "x"))
    return run


STATUS = [
    ("running", 8, lambda: Drive(step("a"))),
    ("running", 8, lambda: Drive(bare=True).go()),
    ("paused", 8, lambda: Drive(step("a")).tell(ev.RunPaused("ann"))),
    ("stopping", 8, lambda: stopped(Drive(step("a")))),
    ("waiting", 5, lambda: Drive(step("a")).fail("a", "permanent")),
    ("running", 8, lambda: Drive(step("a"), step("b")).fail("a", "permanent")),
    ("running", 8, lambda: Drive(step("a"), step("b")).fail("a", "permanent").fail("b")),
    ("waiting", 5, lambda: Drive(step("a", worker="risky"))),
    ("succeeded", 0, lambda: Drive(step("a")).done("a")),
    ("failed", 1, lambda: Drive(step("a", failure_action="abort")).fail("a", "permanent")),
    ("cancelled", 9, lambda: Drive(step("a")).cancel().done("a")),
    ("rejected", 3, lambda: Drive(step("a", worker="risky")).reply("reject")),
    ("failed", 6, lambda: Drive(step("a"), policy=Policy(budget=0.0))),
]


@pytest.mark.parametrize(("status", "code", "make"), STATUS)
def test_one_word_and_one_number(status, code, make):
    """How the run stands, and the exit code that goes with it."""
    run = make()
    assert (views.run_status(run.state), views.exit_code(run.state)) == (status, code)


AWAITING = [
    ("", lambda: Drive(step("a"))),
    ("input", lambda: Drive(step("a")).fail("a", "permanent")),
    ("approval", lambda: Drive(step("a", worker="risky"))),
    ("", lambda: Drive(step("a", worker="risky")).reply("reject")),
]


@pytest.mark.parametrize(("expected", "make"), AWAITING)
def test_what_a_run_waits_for(expected, make):
    """For an approval or for input, in the outcome, the summary and by itself."""
    state = make().state
    assert views.awaiting(state) == expected
    assert views.summary(state).awaiting == expected
    if expected:
        assert views.state_words(state) == f"waiting for {expected}"
    assert views.run_outcome(state).awaiting == (expected or msgspec.UNSET)


GOES_ON = [
    (True, lambda run: None),
    (True, lambda run: run.tell(ev.AttemptReported("a", 1, 3, False, failure=failure()))),
    (True, lambda run: run.fail("a")),
    (False, lambda run: run.fail("a", "permanent")),
    (True, lambda run: run.fail("a", "permanent").reply("skip", "q2")),
]


@pytest.mark.parametrize(("expected", "happens"), GOES_ON)
def test_a_run_waits_only_when_nothing_goes_on(expected, happens):
    """In flight, undecided, in a backoff: the run goes on beside its question."""
    run = Drive(step("q"), step("a"), step("b", finished("a"))).fail("q", "permanent")
    happens(run)
    assert views.goes_on(run.state) is expected
    assert (views.run_status(run.state) == "waiting") is not expected


def test_a_backoff_goes_on_until_it_is_over():
    """And then the step is ready, though nobody has started it yet."""
    run = Drive(step("q"), step("a")).fail("q", "permanent").fail("a")
    assert views.run_status(run.state) == "running"
    run.room = 0
    run.later(5)
    assert views.run_status(run.state) == "running"


def test_a_step_in_the_calendar_goes_on():
    """Its time will come by itself."""
    run = Drive(step("q"), step("a", not_before="02:00 UTC")).fail("q", "permanent")
    assert views.run_status(run.state) == "running"


def test_timers_that_no_longer_count_do_not_keep_a_run_going():
    """Deadlines of what is long done lie below the run's own timer, and mean nothing."""
    run = Drive(step("a"), step("b", "a"), policy=Policy(wall_s=1800.0))
    run.done("a").fail("b", "permanent")
    assert views.run_status(run.state) == "waiting"


def test_a_calendar_entry_of_a_step_that_is_gone_does_not_keep_a_run_going():
    """It was taken out before its time."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a", not_before="02:00 UTC"), step("b"), final=False))
    run.done("b", surprise="odd").answer(propose(step("c"), cancel=["a"]))
    run.fail("c", "permanent").answer({"kind": "ask", "question": "?"})
    assert run.state.calendar
    assert views.run_status(run.state) == "waiting"


def test_a_planner_at_work_goes_on():
    """Beside an open question."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a", failure_action="escalate"), step("b"), final=False))
    run.fail("a", "permanent").done("b", surprise="odd")
    assert run.state.planner.epoch
    assert views.run_status(run.state) == "running"


def test_doomed_steps_go_on():
    """They are about to be skipped."""
    run = Drive(step("a", failure_action="continue"), step("b", "a"))
    run.tell(ev.AttemptReported("a", 1, 2, False, failure=failure("permanent")))
    run.take(run.decide())
    assert run.state.to_skip
    assert views.goes_on(run.state)


def test_a_folded_run_says_the_same():
    """A reader that only folds the log sees what the host sees."""
    for _, _, make in STATUS:
        run = make()
        assert views.run_status(fold(run.log)) == views.run_status(run.state)


# The goal and the result.


@pytest.mark.parametrize(
    ("goal", "expected", "accepted"),
    [
        ("do it", Goal(text="do it"), ()),
        (
            {"text": "x", "acceptance": ["a", "b"]},
            Goal(text="x", acceptance=("a", "b")),
            ("a", "b"),
        ),
        ({"text": "x"}, Goal(text="x"), ()),
    ],
)
def test_the_goal(goal, expected, accepted):
    """A sentence or an object."""
    run = Drive(bare=True, goal=goal)
    assert views.goal_of(run.state) == expected
    assert views.acceptance(run.state) == accepted


def test_a_run_that_never_started_has_no_goal():
    """Empty, not an error."""
    assert views.goal_of(State()) == Goal()
    assert views.acceptance(State()) == ()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step("a"), step("b", "a")], "b!"),
        ([step("a"), step("b")], {"a": "a!", "b": "b!"}),
    ],
)
def test_the_result_is_what_nobody_waited_for(steps, expected):
    """One end gives its data, several give theirs by name."""
    run = Drive(*steps)
    while run.running:
        ident = run.running[0]
        run.done(ident, data=f"{ident}!")
    assert views.run_result(run.state) == expected


def test_a_result_stored_apart_is_named():
    """The shell fetches it."""
    run = Drive(step("a")).done("a", data_ref="sha256:1")
    assert views.run_result(run.state) == {"$artifact": "sha256:1"}


def test_the_result_of_an_heir_is_not_an_end_when_others_wait_for_it():
    """It took the place of a step that others waited for."""
    run = Drive(bare=True, replans=True).go()
    run.answer(propose(step("a"), step("b", "a"), final=False)).fail("a", "permanent")
    run.answer(propose(step("a2", supersedes="a"))).done("a2", data=1).done("b", data=2)
    assert views.run_result(run.state) == 2


def test_the_planners_result_comes_first():
    """Before the end and after it; without any step there is none."""
    run = Drive(bare=True, goal={"text": "", "acceptance": ["x"]}).go()
    assert views.run_result(run.state) is None
    run.answer({"kind": "finish", "result": 5})
    assert views.run_result(run.state) == 5
    run.say(ev.GoalChecked(met=True))
    assert views.run_result(run.state) == 5
    run.state.finish = None
    assert views.run_result(run.state) == 5


# Steps.


def test_a_failure_as_a_type():
    """With defaults for what an old log left out."""
    assert views.failure_of(None) is None
    assert views.failure_of({}) == Failure("", "", "none", None, None)
    doc = {"class": "x", "message": "m", "effect": "done", "retry_after": 3, "details": "d"}
    assert views.failure_of(doc) == Failure("x", "m", "done", 3, "d")


def test_a_view_of_a_step():
    """Copied: what is done to it does not reach the state."""
    run = Drive(step("a", action="go"), step("b"))
    run.done("a", data={"x": [1]}, recommendations=("r",)).fail("b", "permanent")
    seen = views.step_view(run.state.steps["a"])
    planned = {"id": "a", "worker": "w", "action": "go"}
    said = {"data": {"x": [1]}, "recommendations": ("r",), "planned": planned}
    assert seen == StepView("a", "w", "go", "succeeded", 1, **said)
    seen.data["x"].append(2)
    assert run.state.steps["a"].data == {"x": [1]}
    seen = views.step_view(run.state.steps["b"])
    assert (seen.status, seen.data, seen.attempts) == ("asking", None, 1)
    assert seen.error == Failure("permanent", "it broke", "none")
    assert seen.reason == "it broke (permanent); no recovery left"


@pytest.mark.parametrize("value", [None, "x", 1, 1.5, True, [1, {"a": None}], {}])
def test_a_fresh_copy(value):
    """Equal, and shared only where it cannot change."""
    copy = views.deep_copy(value)
    assert copy == value
    assert copy is not value or not isinstance(value, (list, dict))


@pytest.mark.parametrize(
    ("make", "status", "error"),
    [
        (lambda: Drive(step("a")), "running", None),
        (lambda: Drive(step("a")).fail("a"), "retrying", "transient"),
        (lambda: Drive(step("a")).fail("a", "permanent"), "waiting_for_person", "permanent"),
        (lambda: Drive(step("a")).fail("a").later(1), "running", None),
        (lambda: Drive(step("a")).fail("a").later(1).done("a"), "succeeded", None),
        (lambda: Drive(step("a", not_before="02:00 UTC")), "scheduled", None),
        (lambda: Drive(step("a"), room=0), "ready", None),
        (
            lambda: Drive(step("a", failure_action="continue")).fail("a", "permanent"),
            "failed",
            "permanent",
        ),
        (
            lambda: Drive(step("a")).tell(ev.AttemptReported("a", 1, 2, False, failure=failure())),
            "running",
            None,
        ),
    ],
)
def test_a_row(make, status, error):
    """The word people see, and the error while it matters."""
    run = make()
    row = views.step_row(run.state, run.state.steps["a"])
    assert (row.id, row.status, row.worker) == ("a", status, "w")
    assert row.attempts == run.state.steps["a"].attempts
    assert row.error == (error and views.StepError(failure_class=error, message="it broke"))


def test_a_step_whose_time_came_is_no_longer_scheduled():
    """It is ready, and waits for room."""
    run = Drive(step("a", not_before="00:01 UTC"), room=0).later(60)
    assert views.shown_status(run.state.steps["a"]) == "ready"


# Documents.


def test_the_outcome():
    """The document that `run --json` ends with."""
    run = Drive(
        step("a"),
        step("b", failure_action="abort"),
        goal="g",
        plan={"estimated_duration": "15 minutes"},
    )
    run.done("a", data=1, cost=0.1234567).later(2.5)
    run.fail("b", "permanent")
    assert msgspec.to_builtins(views.run_outcome(run.state)) == {
        "run": "r1",
        "status": "failed",
        "goal": "g",
        "result": None,
        "steps": [
            msgspec.to_builtins(views.step_row(run.state, each))
            for each in run.state.steps.values()
        ],
        "cost": 0.123457,
        "money": 0.0,
        "duration": 2.5,
        "reason": "step b failed and the plan says to abort: it broke",
        "headline": "Failed after 2.5s: step b (w) failed: it broke.",
        "origin": "execution",
        "estimated_duration": 900.0,
        "worked": 2.5,
        "waited": 0.0,
    }


def test_the_outcome_of_a_run_that_goes_on():
    """Stopping is shown as running, and what waits for a person is listed."""
    run = stopped(Drive(step("a"), at=10))
    run.later(1.0006)
    run.tell(ev.ReportIgnored("a", 1, 1))
    doc = views.run_outcome(run.state)
    assert (doc.status, doc.reason, doc.duration) == ("running", "", 1.001)
    assert doc.waiting_for is msgspec.UNSET
    assert doc.estimated_duration is msgspec.UNSET
    run = Drive(step("a")).later(1).fail("a", "permanent")
    doc = views.run_outcome(run.state)
    assert doc.waiting_for == [views.inbox_row(run.state, "q1")]
    assert msgspec.to_builtins(views.inbox_row(run.state, "q1")) == {
        "id": "r1/q1",
        "kind": "failure",
        "title": "Choose how to continue after step a",
        "reason": run.state.questions["q1"].text,
        "run": "r1",
        "started_by": "",
        "step": "a",
        "steps": 1,
        "goal": "the goal",
        "plan": "",
        "risk": "not declared",
        "effects": ["undeclared:w"],
        "cost": 0.0,
        "asked_by": "w",
        "text": run.state.questions["q1"].text,
        "choices": [
            {"answer": "retry", "leads_to": "attempt 2 of step a starts, by worker w"}
            | {"command": "leadhand answer r1/q1 retry"},
            {"answer": "skip", "leads_to": "step a is skipped, and the run continues"}
            | {"command": "leadhand answer r1/q1 skip"},
            {"answer": "abort", "leads_to": "the run ends as failed, with 1 step unfinished"}
            | {"command": "leadhand answer r1/q1 abort"},
        ],
        "since": "1970-01-01T00:00:01.000000+00:00",
        "default": None,
        "until": None,
    }
    run = Drive(step("a", worker="risky"), goal="Ship it", plan={"plan_id": "p1"})
    row = views.inbox_row(run.state, "review-1")
    assert (row.step, row.goal, row.plan) == (None, "Ship it", "p1")
    assert (row.risk, row.asked_by) == ("high", "test")
    leads_to = "1 step may start, exactly as shown"
    shown = binding(run.state, run.state.pending, 0)
    way = f"leadhand review r1 approve --digest {shown}"
    assert row.choices[0] == AnswerChoice(answer="approve", leads_to=leads_to, command=way)
    assert row.title == 'Approve plan "p1" (1 step, high risk; risky declares no effects)'
    assert (row.reason, row.steps) == ("its risk is high", 1)


def test_every_choice_that_is_offered_says_where_it_leads():
    """Of all questions of the recorded histories; a planner's own choices go back to it."""
    from leadhand.core.state.evolve import evolve
    from leadhand.core.state.model import State
    from tests.golden.test_replay import NAMES, events

    seen = set()
    for name in NAMES:
        state = State()
        for at, _batch, event in events(name):
            evolve(state, event, at)
            for ident, question in state.questions.items():
                row = views.inbox_row(state, ident)
                assert row.asked_by, (name, ident)
                for choice in row.choices:
                    known = question.kind != "planner" and "with this answer" in choice.leads_to
                    assert choice.leads_to, (name, row)
                    assert not known, (name, row)
                    seen.add((question.kind, choice.answer))
    assert {("review", "approve"), ("failure", "retry"), ("unseen", "done")} <= seen


def test_what_nobody_declares_is_never_called_low():
    """And the policy counts it as before: the shown risk is for people alone."""
    from leadhand.core.catalog import Catalog, Offer, WorkerSpec, declared_risk, effective_risk

    offers = {"low": Offer(risk="low"), "quiet": Offer(), "high": Offer(risk="high")}
    specs = [WorkerSpec(name=name, offers={"": offer}) for name, offer in offers.items()]
    known = Catalog([*specs, WorkerSpec(name="cmd", kind="command", offers={"": Offer()})])

    def shown(worker, plan=None, **more):
        made = {"worker": worker, **more}
        return declared_risk(plan, made, known), effective_risk(plan, made, known)

    assert shown("low") == ("low", "low")
    assert shown("quiet") == ("not declared", "low")
    assert shown("cmd") == ("not declared", "medium")
    assert shown("low", alternatives=["quiet"]) == ("not declared", "low")
    assert shown("quiet", alternatives=["high"]) == ("high", "high")
    assert shown("quiet", risk_level="low") == ("low", "low")
    assert shown("quiet", plan="medium") == ("medium", "medium")


def test_money_is_what_models_cost_and_units_are_not():
    run = Drive(step("a"), step("b"))
    run.tell(ev.ModelCalled(model="m", step="a", attempt=1, cost=0.25))
    run.done("a", cost=3.0)
    assert views.money_of(run.state) == views.step_money(run.state, run.state.steps["a"]) == 0.25
    assert (run.state.spent, views.summary(run.state).money) == (3.25, 0.25)


def test_the_summary():
    """What `leadhand ls` shows."""
    run = Drive(step("a"), step("b"), goal="g" * 600, plan={"plan_id": "p1"})
    run.fail("a", "permanent").done("b", cost=2.0)
    found = msgspec.to_builtins(views.summary(run.state))
    assert (found.pop("seq"), found.pop("so_far")["open"]) == (run.state.seq, 1)
    assert found == {
        "status": "waiting",
        "goal": "g" * 500,
        "plan": "p1",
        "steps": 2,
        "settled": 1,
        "succeeded": 1,
        "waiting": 1,
        "awaiting": "input",
        "cost": 2.0,
        "money": 0.0,
    }, "what is as in most runs is left out"
    run = Drive(step("a", failure_action="abort"), step("b", "a"))
    run.fail("a", "permanent")
    found = views.summary(run.state)
    assert found.totals["failed"] == found.totals["plan::failed"] == 1
    assert found.ended == 1, "the clock of this run shows 0"
    assert found.origin == "execution"
    assert found.reason
    assert (found.failed, found.steps) == (1, 2), "skipped is not failed"


@pytest.mark.parametrize(
    ("unseen", "text", "choices"),
    [
        (
            False,
            "Step a (w go) failed: because. Choose how to continue.",
            ["retry", "skip", "abort"],
        ),
        (
            True,
            "Step a (w go): because. Check whether it took effect, then answer.",
            ["done", "retry", "skip", "abort"],
        ),
    ],
)
def test_what_a_person_is_asked(unseen, text, choices):
    """The step, who did it, why, and what can be said."""
    run = Drive(step("a", action="go"))
    known = run.state.steps["a"]
    known.failure = failure("lost", "unknown" if unseen else "none")
    assert views.question_text(known, "because") == (text, choices)


# The planner's view.


def test_what_a_planner_is_told():
    """Goal, steps, results, failures, recommendations, answers, findings, notes, cost, params."""
    run = Drive(bare=True, params={"p": 1}, replans=True, catalog=[spec("w")]).go()
    run.answer(propose(step("a"), step("b"), step("c", "b"), final=False, notes={"n": 1}))
    run.done("a", data={"x": 1}, cost=0.5, recommendations=("r",)).fail("b", "permanent")
    view = views.planner_view(run.state, 2, "surprise")
    assert (view.run, view.call, view.why, view.cost) == ("r1", 2, "surprise", 0.5)
    assert (view.goal, view.params, view.notes) == (Goal(text="the goal"), {"p": 1}, {"n": 1})
    assert list(view.steps) == ["a", "b", "c"]
    assert view.steps["b"].status == "failed"
    assert dict(view.results) == {"a": {"x": 1}}
    assert view.completed == ("a",)
    assert (len(view.steps), len(view.results)) == (3, 1)
    assert view.failed_attempts == (
        FailedAttempt("b", 1, "w", Failure("permanent", "it broke", "none")),
    )
    assert (view.recommendations, view.findings, view.answers) == (("r",), (), ())


def test_the_view_is_lazy_and_shares_nothing():
    """Steps are read when looked at, and a planner cannot reach the state through them."""
    run = Drive(step("a"), step("b")).done("a", data={"x": []})
    run.state.planner.notes = {"n": []}
    run.state.answers.append({"text": []})
    view = views.planner_view(run.state, 1, "x")
    view.results["a"]["x"].append(1)
    view.notes["n"].append(1)
    view.answers[0]["text"].append(1)
    assert run.state.steps["a"].data == {"x": []}
    assert (run.state.planner.notes, run.state.answers) == ({"n": []}, [{"text": []}])
    run.done("b", data=2)
    assert dict(view.results)["b"] == 2
    with pytest.raises(KeyError):
        view.results["nobody"]
    assert "nobody" not in view.steps


def test_a_step_without_success_has_no_result():
    """Looking for it is a KeyError, as in any mapping."""
    run = Drive(step("a"), step("b"))
    view = views.planner_view(run.state, 1, "x")
    with pytest.raises(KeyError):
        view.results["a"]
    assert "a" not in view.results
    assert "a" in view.steps


# The ledger.


LEDGER = [
    (ev.RunHosted(3), "Run picked up by host 3"),
    (ev.PlannerAsked(2, 9, 0, "report"), "Planner call 2 (a step reported)"),
    (
        ev.PlannerAnswered(2, 9, propose(step("a"), because="so")),
        "Planner call 2 → 1 step proposed (a = w()): so",
    ),
    (
        ev.PlannerAnswered(2, 9, {"kind": "propose", "revision": 4}),
        "Planner call 2 → revision 4",
    ),
    (
        ev.PlannerAnswered(2, 9, {"kind": "ask", "question": "?"}),
        "Planner call 2 → question: ?",
    ),
    (
        ev.PlannerAnswered(2, 9, {"kind": "finish", "because": "done"}),
        "Planner call 2 → finish: done",
    ),
    (
        ev.PlannerAnswered(2, 9, {"kind": "give_up", "reason": "no"}),
        "Planner call 2 → give_up: no",
    ),
    (ev.PlannerFailed(2, 9, "it raised"), "Planner call 2 failed: it raised"),
    (ev.ProposalRefused(2, ["x", "y"]), "Proposal refused (planner call 2): x; y"),
    (
        ev.DraftRefused(
            call=2,
            findings=["x"],
            draft={"steps": [{"id": "a", "worker": "w", "parameters": {"n": 1}}]},
        ),
        "Draft refused (planner call 2): a = w(n=1): x",
    ),
    (
        ev.RevisionProposed(number=2, author="p", base="", hash="h", add=[step("a")], because="so"),
        "Revision 2 by p: 1 step (a), final, risk low: so",
    ),
    (
        ev.RevisionProposed(
            number=2, author="p", base="", hash="h", add=[], cancel=["a", "b"], final=False
        ),
        "Revision 2 by p: 0 steps, cancels a, b, to be continued, risk low",
    ),
    (ev.ReviewRequested(2, "h", "look at it"), "Approval requested: look at it"),
    (ev.RevisionApproved(2, "h", "ann", "fine"), "Revision 2 approved: fine"),
    (
        ev.RevisionApproved(2, "h", "ann", instants={"a": 1_700_006_400_000_000}),
        "Revision 2 approved; a starts at 2023-11-15 00:00:00 UTC or later",
    ),
    (
        ev.RevisionApproved(2, "h", "ann", instants={f"s{n}": 0 for n in range(7)}),
        "Revision 2 approved"
        + "".join(f"; s{n} starts at 1970-01-01 00:00:00 UTC or later" for n in range(5))
        + "; 2 more have a start time",
    ),
    (ev.RevisionRejected(1, "h", "ann", "amended"), "Revision 1 amended by ann"),
    (ev.RevisionRejected(2, "h", "ann"), "Revision 2 rejected by ann"),
    (
        ev.QuestionAsked(id="q1", kind="failure", text="What?", choices=["x", "y"]),
        "Question q1: What? [x / y]",
    ),
    (
        ev.QuestionAnswered(id="q1", choice="x", actor="ann", text="so"),
        "Question q1 answered by ann: x: so",
    ),
    (ev.AttemptStarted("a", 2, 9, "w", 0, "", ""), "a: attempt 2 started by w"),
    (
        ev.AttemptStarted("a", 2, 9, "caller", 5, "", caller="agent:bot", limit=9),
        "a: attempt 2 handed out to agent:bot",
    ),
    (
        ev.LeaseExtended("a", 2, 9, 90_000_000),
        "a: lease of attempt 2 extended to 1970-01-01 00:01:30 UTC",
    ),
    (ev.AttemptSpawned("a", 9, 4711, 0, ""), "a: process 4711"),
    (ev.AttemptReported("a", 2, 9, True), "a: attempt 2 verified"),
    (ev.AttemptReported("a", 2, 9, True, surprise="odd"), "a: attempt 2 verified, but odd"),
    (
        ev.AttemptReported("a", 2, 9, False, failure=failure()),
        "a: attempt 2 failed: transient: it broke",
    ),
    (
        ev.ModelCalled(model="chat:m", step="a", input=3, output=4, cost=0.5),
        "a: called chat:m: 3 + 4 tokens, 0.500000",
    ),
    (
        ev.ModelCalled(model="chat:m", input=3, failure="timeout"),
        "planner: called chat:m: 3 + 0 tokens, and failed (timeout)",
    ),
    (ev.ReportIgnored("a", 2, 9), "a: late report of attempt 2 ignored"),
    (ev.AttemptLost("a", 2, 9, "timeout", "too late"), "a: attempt 2 timeout: too late"),
    (ev.ProbeStarted("a", 2, 9, 0), "a: checking whether attempt 2 took effect"),
    (ev.ProbeReported("a", 2, 9, "done", reason="seen"), "a: probe result: done: seen"),
    (ev.StepRefused("a", "permanent", "no value"), "a: could not start (permanent): no value"),
    (
        ev.RecoveryDecided(
            step="a", attempt=1, failure_class="lost", strategy="retry", reason="so", worker="w"
        ),
        "a failed (lost) → retrying with w: so",
    ),
    (ev.PlannerWaits(3, ["a", "q1"]), "Planner waits for a, q1"),
    (ev.PlannerWaits(3), "Planner waits"),
    (ev.FinishAccepted(3), "Finish accepted"),
    (ev.FinishAccepted(3, {"a": "so"}), "Finish accepted; dropped: a (so)"),
    (ev.StepSkipped("a", "so"), "a: skipped: so"),
    (ev.StepCancelled("a", "so"), "a: cancelled: so"),
    (ev.RevisionExamined(1, "h"), "Reviewers checked revision 1: no findings"),
    (ev.RevisionExamined(1, "h", ["x"]), "Reviewers checked revision 1: x"),
    (ev.RevisionExamined(1, "h", [], "down"), "A reviewer of revision 1 failed: down"),
    (
        ev.ApprovalGiven(number=1, hash="h", actor="ann", binding="b", reason="fine"),
        "Approval by ann for revision 1, not signed: fine",
    ),
    (ev.ChangesRequested(1, "h", "ann", "less"), "Changes to revision 1 requested by ann: less"),
    (
        ev.ChangeApproved(
            question="q1", step="a", commit="c" * 40, digest="d", actor="ann", reason="fine"
        ),
        "a: change cccccccccccc approved by ann: fine",
    ),
    (ev.LinkUsed("l1", "q1", "ann", "email"), "ann answers q1 through a signed link (email)"),
    (ev.StepsHeld(["a", "b"], "wait", "ann", "q1"), "Steps a, b held by ann: wait"),
    (ev.ReleaseGiven(question="q1", actor="ann", binding="h"), "Release of q1 by ann"),
    (ev.StepsReleased(["a"], "ann"), "Step a released by ann"),
    (ev.ApprovalVoided(5, "not signed", [1]), "Approval void: not signed"),
    (
        ev.WorkersChanged([WorkerSpec(name="w", version="2"), WorkerSpec(name="n")], ["n"]),
        "Workers changed: w (version 2); workers added: n",
    ),
    (ev.RedoRequested("a", "ann", "fixed"), "a: retry requested by ann: fixed"),
    (ev.RunReopened("a", "ann", "fixed"), "Run reopened by ann: fixed"),
    (ev.RunPaused("ann", "lunch"), "Paused by ann: lunch"),
    (ev.RunResumed("ann"), "Resumed by ann"),
    (ev.CancelRequested("ann", 0), "Cancellation requested by ann"),
    (ev.StopDecided("failed", "so"), "Stopping as failed: so"),
    (ev.GoalCheckStarted(), "Checking the goal's acceptance criteria"),
    (ev.GoalChecked(met=True), "Goal met"),
    (ev.GoalChecked(met=False, findings=["x", "y"]), "Goal not met: x; y"),
    (ev.RunEnded("failed", "so", origin="planning"), "Run failed (planning): so"),
    (ev.RunEnded("succeeded"), "Run succeeded"),
    (HostOpened(1, 2, "0.1"), "Host 1 opened (pid 2, leadhand 0.1)"),
    (RunJoined("r1", 3, 7), "Process 7 runs r1 beside the host, as host 3"),
    (
        ev.RunHosted(3, ev.GuestProcess(7, 1, "b", "/srv", "/bin/python")),
        "Run picked up by host 3 (process 7, started in /srv)",
    ),
    (StopAllRequested("ann", "fire"), "Emergency stop by ann: fire"),
    (StopAllLifted("ann"), "Emergency stop lifted by ann"),
    (CircuitOpened("w", 9, 1, "it asked for 9 s"), "Worker w unavailable: it asked for 9 s"),
    (CircuitClosed("w"), "Worker w available again"),
    (ApprovalUsed("a1", "r1", "ann"), "Approval a1 by ann used by run r1"),
    (
        RunsArchived(1, "ann", 7, "/a", "one", 1, "a", 3, 30, "c", 2, 20, "d", ()),
        "Archive 1 made by ann: 2 runs, 20 events, in one",
    ),
    (
        ArchiveRewritten(1, "ann", "found", "/a", "two", 2, "b", 3, 4),
        "Secrets erased from archive 1 by ann: 3 events changed, 4 artifacts taken out: found",
    ),
    (ArchiveDeleted(1, "ann", "too old"), "Archive 1 deleted by ann: too old"),
    (PersonChanged("bob", "ann", "viewer"), "bob may sign in as viewer, by ann"),
    (PersonChanged("bob", "ann"), "bob removed by ann"),
    (
        PersonChanged("bob", "ann", "viewer", "the disk was full"),
        "bob may sign in as viewer, by ann: the disk was full",
    ),
    (TemporalOpened("t:7", "ns", "p"), "Runs hosted by Temporal at t:7 (ns)"),
    (TemporalLeft("ann", "home"), "Runs moved back from Temporal by ann: home"),
    (
        PlanSaved(name="deploy", version=3, hash="h", document={}, actor="ann"),
        "Plan deploy@3 saved by ann",
    ),
    (PlanRemoved("deploy", "ann"), "Plan deploy removed by ann"),
]


@pytest.mark.parametrize(("event", "line"), LEDGER)
def test_a_line_of_the_ledger(event, line):
    """One plain line for each event."""
    assert describe(event) == line


def test_the_first_line_of_a_ledger():
    """Who started what, by which planner."""
    run = Drive(bare=True, actor="ann")
    assert describe(run.state.started) == "Run started by ann, plan by test: the goal"
    run = Drive(bare=True, goal={"text": "x"})
    assert describe(run.state.started) == "Run started, plan by test: x"


def test_every_event_has_a_line_here():
    """The table above speaks of all of them."""
    assert {type(event) for event, _ in LEDGER} | {ev.RunStarted} == set(LINES)
    assert set(LINES) == {*ev.RUN_EVENTS, *HOST_EVENTS, *LIBRARY_EVENTS}


def test_the_two_ledgers():
    """Intent and execution."""
    assert ledger_of(ev.RevisionApproved(1, "h", "ann")) == "intent"
    assert ledger_of(ev.AttemptStarted("a", 1, 1, "w", 0, "", "")) == "execution"


def test_times_are_in_microseconds():
    """A minute is what it is everywhere."""
    run = Drive(step("a")).later(60).done("a")
    assert run.state.ended_at == MINUTE
    assert views.run_outcome(run.state).duration == 60.0


def test_the_planner_is_told_who_is_left_alone():
    """Workers whose circuit is open, with a word why."""
    run = Drive(step("a"))
    assert views.planner_view(run.state, 1, "start").barred == {}
    run.state.open_circuits = frozenset({"w", "nobody"})
    assert list(views.planner_view(run.state, 1, "start").barred) == ["w"]


def test_what_a_fleets_planner_offers_says_where_it_leads():
    """To give up ends the run, and to drop leaves the task out: neither is a question again."""
    from leadhand.core.state.records import Question
    from leadhand.core.views.inbox import leads_to
    from leadhand.fleet.planning.planner import AGAIN, DROP, GIVE_UP

    question = Question("q1", "planner", "What now?", [AGAIN, DROP, GIVE_UP], "", 1)
    led = [leads_to(State(), question, choice) for choice in question.choices]
    assert led == [
        "the planner is called again with this answer",
        "the task is dropped, and the planner continues without it",
        "the planner gives up, and the run ends as failed",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Which one?", "Which one?"),
        ("It failed:\n$ test\nexit 1. Go on?", "It failed. Go on?\n$ test\nexit 1."),
        ("Two ways:\n- a\n- b\nWhich one?", "Two ways. Which one?\n- a\n- b"),
        ("Which one?\n- a?", "Which one?\n- a?"),
        ("It failed:\n$ test", "It failed:\n$ test"),
    ],
)
def test_a_question_behind_printed_lines_stands_in_the_first_line(text, shown):
    assert asked_first(text) == shown
