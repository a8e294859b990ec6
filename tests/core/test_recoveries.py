"""Win rates: each answer to a failure against what came of it."""

import msgspec
import pytest
from hypothesis import given

from leadhand.core import events as ev
from leadhand.core.state.model import SETTLED
from leadhand.core.state.recovery_log import IN_THE_END, NEXT, RecoveryOutcome
from leadhand.core.views.recovery_stats import recoveries, win_rates
from leadhand.core.views.run import summary
from leadhand.core.views.timeline import span_row, spans, timeline, waits
from leadhand.core.views.totals import added, recovery_rates, run_totals
from tests.core.driver import Drive, propose, step
from tests.core.test_properties import Story, tapes


def log_of(run):
    """The events of a driven run."""
    return [event for _, event in run.log]


def found(run):
    """(class, strategy, won) of each answer in a run."""
    return [(each.failure_class, each.strategy, each.won) for each in recoveries(log_of(run))]


def test_a_retry_is_won_by_the_next_verdict():
    """Lost, then won: each by what followed it, not by how the step ended."""
    run = Drive(step("a"))
    run.fail("a")
    assert found(run) == [("transient", "retry", None)]
    run.later(5)
    run.fail("a")
    run.later(5)
    run.done("a")
    assert found(run) == [("transient", "retry", False), ("transient", "retry", True)]


def test_a_reroute_is_won_by_the_other_worker():
    """And lost where that one fails too."""
    run = Drive(step("a", alternatives=["other", "third"]))
    run.fail("a", "unavailable")
    run.fail("a", "denied")
    run.done("a")
    assert found(run) == [("unavailable", "reroute", False), ("denied", "reroute", True)]


@pytest.mark.parametrize(("outcome", "won"), [("done", True), ("not_done", False)])
def test_a_probe_is_won_when_it_finds_the_work_done(outcome, won):
    """What it finds undone is left to the rung after it."""
    run = Drive(step("a", worker="probed"))
    run.fail("a", "timeout", "unknown")
    run.probed("a", outcome, met=outcome == "done")
    assert found(run)[0] == ("timeout", "probe", won)


@pytest.mark.parametrize(
    ("answer", "won"), [("retry", True), ("done", True), ("skip", False), ("abort", False)]
)
def test_a_question_is_won_when_the_step_comes_out_well(answer, won):
    """Whoever did it; leaving it out is no success of the step."""
    run = Drive(step("a", worker="w"))
    kind = ("timeout", "unknown") if answer == "done" else ("permanent", "none")
    run.fail("a", *kind)
    assert found(run)[-1][1:] == ("ask", None)
    run.reply(answer)
    if answer == "retry":
        run.done("a")
    assert found(run)[-1][1:] == ("ask", won)


def test_a_replan_is_won_by_the_step_that_took_its_place():
    """Through any number of heirs."""
    run = Drive(step("a"), replans=True)
    run.fail("a", "permanent")
    run.answer(propose(step("b", supersedes="a")))
    run.fail("b", "permanent")
    assert [won for *_, won in found(run)] == [None, None]
    run.answer(propose(step("c", supersedes="b")))
    run.done("c")
    assert [won for *_, won in found(run)] == [True, True]


def test_a_split_is_won_by_the_step_that_gives_what_was_promised():
    """The parts in the middle give nothing; one that had given it before does not count."""
    run = Drive(step("old", gives=["t"]), step("a", "old", gives=["t"]), replans=True, splits=True)
    run.done("old")
    run.fail("a", "too_complex")
    run.answer(propose(step("part", gives=[]), final=False))
    run.done("part")
    assert found(run) == [("too_complex", "simplify", None)]
    run.answer(propose(step("join", gives=["t", "u"]), drop={"a": "done in parts"}))
    run.done("join")
    assert found(run) == [("too_complex", "simplify", True)]


def test_a_replan_that_drops_the_step_is_lost():
    """The run may reach its goal without it, but nothing took its place; or it gave up."""
    run = Drive(step("a"), replans=True)
    run.fail("a", "permanent")
    run.answer({"kind": "finish", "result": 1, "drop": {"a": "not needed"}})
    assert run.ended == "succeeded"
    assert found(run) == [("permanent", "replan", False)]


def test_a_replan_is_won_by_what_was_proposed_next_when_the_goal_is_reached():
    """The planner found a way that needs no such step, and says so by name."""
    run = Drive(step("a"), replans=True)
    run.fail("a", "permanent")
    run.answer(propose(step("b", supersedes="a")))
    assert found(run) == [("permanent", "replan", None)]
    run.done("b")
    assert found(run) == [("permanent", "replan", run.ended.startswith("succeeded"))]


def test_an_end_with_nothing_in_the_place_of_a_failed_step_wins_nothing():
    """Whatever the planner says of the goal; nor does one that gives up."""
    failed = ev.RecoveryDecided(
        step="a", attempt=1, failure_class="needs_info", strategy="replan", reason="r"
    )
    (answer,) = recoveries([failed, ev.RunEnded("succeeded")])
    assert answer.won is False
    run = Drive(step("a"), replans=True)
    run.fail("a", "permanent")
    run.answer({"kind": "give_up", "reason": "no way"})
    assert found(run) == [("permanent", "replan", False)]


@pytest.mark.parametrize(("action", "strategy"), [("abort", "abort"), ("continue", "continue")])
def test_what_tries_nothing_wins_nothing(action, strategy):
    """Going on without it may be right, and is no recovery of it."""
    run = Drive(step("a", failure_action=action))
    run.fail("a", "permanent")
    assert found(run) == [("permanent", strategy, False)]


def test_an_open_retry_of_a_run_that_ended_is_lost():
    """Cancelled while it waited."""
    run = Drive(step("a"))
    run.fail("a")
    run.cancel()
    assert run.ended is not None
    assert found(run) == [("transient", "retry", False)]


def test_the_table():
    """By class and strategy; what is open is in neither column."""
    rows = [("t", "retry", True), ("t", "retry", False), ("t", "retry", None), ("d", "ask", None)]
    answers = [
        RecoveryOutcome(step="s", attempt=1, failure_class=c, strategy=s, won=w) for c, s, w in rows
    ]
    first, second = win_rates(answers)
    assert first.failure_class == "d"
    assert first.rate is None
    assert msgspec.to_builtins(second) == {
        "class": "t", "strategy": "retry", "times": 3, "won": 1, "lost": 1, "open": 1, "rate": 0.5,
    }  # fmt: skip


def test_totals_add_up():
    """Two runs: what was tried, what was verified at once, what was made good."""
    found = []
    for kind in ("transient", "permanent"):
        run = Drive(step("a"), step("b"))
        run.done("b")
        run.fail("a", kind)
        run.later(5)
        if kind == "transient":
            run.done("a")
        else:
            run.reply("abort")
        found.append(run_totals(run.state, summary(run.state)))
    sums = added(found)
    assert (sums["attempts"], sums["tried"], sums["first_pass"]) == (5, 4, 2)
    assert (sums["failed_steps"], sums["recovered"]) == (2, 1)
    assert (sums["questions"], sums["answered_by_default"], sums["answers"]) == (1, 0, 1)
    assert (sums["runs"], sums["succeeded"], sums["failed"], sums["needed_person"]) == (2, 1, 1, 1)


@given(tapes)
def test_any_run_has_answers_that_agree_with_how_it_ended(tape):
    """Whatever happens: one answer for each decision, decided at the end, and true to the steps."""
    run = Story(tape).play()
    events = log_of(run)
    answers = recoveries(events)
    decided = [event for event in events if isinstance(event, ev.RecoveryDecided)]
    assert [(a.step, a.attempt, a.strategy) for a in answers] == [
        (event.step, event.attempt, event.strategy) for event in decided
    ]
    assert sum(row.times for row in win_rates(answers)) == len(answers)
    # The tally that is kept while the run goes on says the same as its whole log.
    assert recovery_rates(run_totals(run.state, summary(run.state))) == win_rates(answers)
    assert all(row.won + row.lost + row.open == row.times for row in win_rates(answers))
    for each in answers:
        if run.state.ended is not None:
            assert each.won is not None
        if each.strategy not in NEXT | IN_THE_END:
            assert each.won is False
        status = run.state.steps[each.step].status
        if status == "succeeded" and each.strategy in IN_THE_END:
            assert each.won is True
    last = {each.step: each for each in answers if each.strategy in NEXT}
    for ident, each in last.items():
        if run.state.steps[ident].status == "succeeded" and answers[-1] is each:
            assert each.won is True


@given(tapes)
def test_any_log_can_be_read_in_part(tape):
    """What was won stays won when more of the log is read, as far as verdicts decide."""
    events = log_of(Story(tape).play())
    half = recoveries(events[: len(events) // 2])
    whole = recoveries(events)
    for early, late in zip(half, whole, strict=False):
        if early.strategy in NEXT and early.won is not None:
            assert late.won == early.won


@given(tapes)
def test_spans_begin_and_end_in_order(tape):
    """Nothing ends before it begins, and what goes on belongs to a step that is not settled."""
    run = Story(tape).play()
    for span in spans(run.log):
        assert not span.end or span.end >= span.start
        assert span_row(span, 0).kind in ("attempt", "probe", "question")
        if not span.outcome and span.kind != "question":
            assert run.state.steps[span.step].status not in SETTLED


def test_waits_are_told_apart_from_work():
    """Approvals, pauses before another try, holds and times to come: from when, until when."""
    log = [
        (0, ev.ReviewRequested(1, "h", "requested")),
        (5, ev.RevisionApproved(1, "h", "ann", "", {"b": 40})),
        (10, ev.AttemptStarted("a", 1, 1, "w", 99, "s")),
        (12, ev.RecoveryDecided(step="a", attempt=1, failure_class="transient", strategy="retry",
                                reason="x", until=20, worker="w")),
        (20, ev.AttemptStarted("a", 2, 2, "w", 99, "s")),
        (21, ev.StepsHeld(["b"], "wait", "ann", "hold-1")),
        (30, ev.StepsReleased(["b"], "ann")),
        (40, ev.AttemptStarted("b", 1, 3, "w", 99, "s")),
    ]  # fmt: skip
    found = [(span.step, span.kind, span.start, span.end) for span in waits(log)]
    assert found == [
        ("", "approval", 0, 5),
        ("b", "scheduled", 5, 40),
        ("a", "retry", 12, 20),
        ("b", "held", 21, 30),
    ]
    assert [span.kind for span in timeline(log)].count("attempt") == 3


def test_a_plan_that_a_person_amended_was_not_refused():
    log = [
        (0, ev.ReviewRequested(1, "h", "so the policy says")),
        (5, ev.RevisionRejected(1, "h", "ann", "amended")),
        (5, ev.ReviewRequested(2, "i", "so the policy says")),
        (9, ev.RevisionRejected(2, "i", "bob", "not today")),
    ]
    assert [span.outcome for span in waits(log)] == ["amended (ann)", "not approved (bob)"]
