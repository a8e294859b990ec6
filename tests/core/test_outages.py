"""Long outages, splitting, and other workers while one is down: the newer rungs of the ladder."""

import pytest

from leadhand.core import events as ev
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.decide.recovery import LADDER, Recovery, alternative, choose
from leadhand.core.durations import SECONDS_MAX
from leadhand.core.logcheck.checker import check
from leadhand.core.policy import Policy
from leadhand.core.views.run import goes_on, run_status
from tests.core.driver import SECOND, WORKERS, Drive, failure, fold, propose, spec, step, undecided

PARKS = ("transient", "rate_limited", "unavailable")
HOUR = 3600.0


# Park.


def test_who_parks():
    """The classes that speak of a worker that is out, and no others."""
    assert {kind for kind, rungs in LADDER.items() if "park" in rungs} == set(PARKS)
    assert all(LADDER[kind][0] == "park" for kind in PARKS)


@pytest.mark.parametrize("kind", sorted(LADDER))
def test_a_long_outage_parks_where_the_row_says_so(kind):
    """With its reason, its wait and the same worker; other rows know no outages."""
    state, failed = undecided(step("a", failure_action="abort"), failure(kind, retry_after=HOUR))
    got = choose(state, failed)
    if kind in PARKS:
        words = "it broke; unavailable for 1h, so the step is parked and no attempt is used"
        assert got == Recovery("park", words, HOUR, "w")
    else:
        assert got.strategy == "abort"


@pytest.mark.parametrize(
    ("asked", "strategy"),
    [(60, "retry"), (60.5, "park"), (61, "park"), (0, "retry"), (-1, "retry"), (None, "retry")],
)
def test_what_is_long(asked, strategy):
    """Longer than `park_s`; just as long is a backoff like any other."""
    state, failed = undecided(step("a"), failure("transient", retry_after=asked))
    assert choose(state, failed).strategy == strategy


def test_how_long_is_long_is_recorded():
    """Read from the run's own policy."""
    policy = Policy(jitter=0.0, park_s=5.0)
    state, failed = undecided(step("a"), failure("transient", retry_after=6), policy=policy)
    got = choose(state, failed)
    assert (got.strategy, got.wait_s) == ("park", 6.0)


def test_a_parked_step_waits_and_uses_up_no_try():
    """It starts again when the outage should be over, with as many tries as before."""
    run = Drive(step("a", retry=2))
    for count in range(1, 4):
        run.fail("a", "rate_limited", retry_after=HOUR)
        assert run.last(ev.RecoveryDecided).strategy == "park"
        assert run.last(ev.RecoveryDecided).until == run.now.at + HOUR * SECOND
        assert (run.status("a"), run.state.steps["a"].failures_by("w")) == (["backing_off"], 0)
        assert run.state.steps["a"].parked_s == count * HOUR
        assert run_status(run.state) == "running"
        run.later(HOUR - 1)
        assert run.running == []
        run.later(1)
        assert run.running == ["a"]
    run.fail("a").later(10)
    assert run.last(ev.RecoveryDecided).reason == "it broke; attempt 2 of 2 in 1s"
    run.fail("a")
    assert run.last(ev.RecoveryDecided).strategy == "ask"
    assert run.state.steps["a"].attempts == 5


def test_another_worker_is_better_than_waiting():
    """It is asked at once; the one that is out counts as tried."""
    run = Drive(step("a", alternatives=["other"])).fail("a", retry_after=HOUR)
    decided = run.last(ev.RecoveryDecided)
    assert (decided.strategy, decided.worker) == ("reroute", "other")
    assert (run.running, run.state.steps["a"].tries) == (["a"], {"w": 1})
    run.fail("a", retry_after=2 * HOUR)
    decided = run.last(ev.RecoveryDecided)
    assert (decided.strategy, decided.worker, run.running) == ("park", "other", [])
    assert run.state.steps["a"].tries == {"w": 1, "other": 0}


@pytest.mark.parametrize(
    ("outage", "parked", "asked", "strategy"),
    [
        (7200.0, 0.0, 7200.0, "park"),
        (7200.0, 3600.0, 3600.0, "park"),
        (7200.0, 3600.5, 3600.0, "ask"),
        (7200.0, 0.0, 7201.0, "ask"),
        (86_400.0, 0.0, float("inf"), "ask"),
        (86_400.0, 0.0, 1e300, "ask"),
        (SECONDS_MAX, 0.0, 1e300, "park"),
    ],
)
def test_outages_are_bounded(outage, parked, asked, strategy):
    """Beyond `outage_s` in all the ladder goes on, and a retry would wait as long: a person is
    asked now, not in a year."""
    policy = Policy(jitter=0.0, outage_s=outage)
    state, failed = undecided(step("a"), failure("rate_limited"), policy=policy)
    failed.failure["retry_after"] = asked
    failed.parked_s = parked
    got = choose(state, failed)
    assert got.strategy == strategy
    assert got.wait_s == (min(asked, SECONDS_MAX) if strategy == "park" else 0.0)


def test_what_is_parked_survives_a_restart():
    """The timer and the sum of all waits stand in the log."""
    run = Drive(step("a")).fail("a", retry_after=HOUR)
    state = fold(run.log)
    assert (state.steps["a"].parked_s, state.steps["a"].failures_by("w")) == (HOUR, 0)
    run.host_again().later(HOUR)
    assert run.running == ["a"]


def test_other_steps_go_on_meanwhile():
    """One step is out, not the run."""
    run = Drive(step("a"), step("b", worker="other"), step("c", "b", worker="other"))
    run.fail("a", retry_after=HOUR).done("b").done("c").later(HOUR).done("a")
    assert run.ended == "succeeded"


# Simplify.


def test_splitting_is_asked_of_the_planner():
    """The step has failed, the planner hears why, and the rest waits for its answer."""
    run = Drive(step("a"), step("b", "a"), splits=True, replans=True)
    run.fail("a", "too_complex", message="too long")
    decided = run.last(ev.RecoveryDecided)
    assert (decided.strategy, decided.until, decided.worker) == ("simplify", 0, "")
    why = "split: step a is too much at once: too long; the planner is asked to split it"
    assert run.last(ev.PlannerAsked).why == why
    assert run.status("a", "b") == ["failed", "waiting"]
    run.answer(propose(step("a1"), step("a2", "a1", supersedes="a")))
    run.done("a1").done("a2").done("b")
    assert run.ended == "succeeded"


def split_again(run, number):
    """The last step is too much as well, and is split into one more."""
    run.fail(f"s{number}", "too_complex")
    strategy = run.last(ev.RecoveryDecided).strategy
    if strategy == "simplify":
        run.answer(propose(step(f"s{number + 1}", retry=1, supersedes=f"s{number}")))
    return strategy


@pytest.mark.parametrize("most", [0, 1, 3])
def test_parts_are_split_again_only_so_often(most):
    """Each part knows how often what it is part of was split, from the log alone."""
    policy = Policy(jitter=0.0, splits_max=most, replans_idle_max=99)
    start = {"splits": True, "replans": True, "policy": policy}
    run = Drive(step("s0", retry=1, failure_action="escalate"), **start)
    seen = []
    for number in range(most + 1):
        assert run.state.steps[f"s{number}"].depth == number
        assert fold(run.log).steps[f"s{number}"].depth == number
        seen.append(split_again(run, number))
    assert seen == [*["simplify"] * most, "replan" if most else "ask"]


def test_planning_around_a_failure_is_no_splitting():
    """Only what was split counts; what comes after a replan is as deep as what failed."""
    policy = Policy(jitter=0.0, splits_max=1, replans_idle_max=99)
    run = Drive(step("a"), splits=True, replans=True, policy=policy).fail("a", "permanent")
    assert run.state.steps["a"].depth == 0
    run.answer(propose(step("b"), final=False))
    assert run.state.steps["b"].depth == 0
    run.fail("b", "too_complex")
    assert run.last(ev.RecoveryDecided).strategy == "simplify"
    run.answer(propose(step("c"), final=False)).fail("c", "permanent")
    run.answer(propose(step("d"), final=False))
    assert [run.state.steps[ident].depth for ident in "abcd"] == [0, 1, 1, 1]


def test_steps_that_come_without_a_failure_are_not_deep():
    """A revision that adds something else starts from nothing."""
    run = Drive(step("a"), splits=True, replans=True).fail("a", "too_complex")
    run.answer(propose(step("b"), final=False)).done("b")
    run.answer(propose(step("c"), final=False))
    assert [run.state.steps[ident].depth for ident in "bc"] == [1, 0]


# Other workers.


@pytest.mark.parametrize(
    ("down", "expected"),
    [((), "other"), (("w",), "other"), (("other",), "third"), (("other", "third"), "")],
)
def test_an_alternative_that_is_up(down, expected):
    """The first that may do it and is not left alone."""
    state, failed = undecided(step("a", alternatives=["other", "third"]), failure())
    assert alternative(state, failed, down) == expected


def test_alternatives_may_do_it_and_were_not_tried():
    """Not the same worker, not one that has failed, not one that nobody knows."""
    doc = step("a", alternatives=["w", "other", "third"])
    state, failed = undecided(doc, failure())
    failed.tries = {"w": 1, "other": 1}
    assert alternative(state, failed) == "third"
    del state.catalog.workers["third"]
    assert alternative(state, failed) == ""


def test_who_is_up_comes_before_who_is_down():
    """A worker whose circuit is open is turned to only when nobody else is left."""
    doc = step("a", alternatives=["other", "third"], retry=1)
    state, failed = undecided(doc, failure())
    state.open_circuits = {"other"}
    assert choose(state, failed).worker == "third"
    state.open_circuits = {"other", "third"}
    assert choose(state, failed).worker == "other"


# An open circuit, as a run sees it.


def down(run, *workers):
    """Other workers are left alone from now on; those who were are looked at again."""
    before, run.state.open_circuits = set(run.state.open_circuits), frozenset(workers)
    if before - set(workers):
        run.state.circuit_closed()
    return run.go()


def test_a_step_waits_while_its_worker_is_left_alone():
    """Nothing is refused and nothing fails; it starts when the circuit is closed."""
    run = Drive(step("a"), step("b", "a"))
    down(run, "w").done("a")
    assert (run.status("b"), run.running) == (["ready"], [])
    assert goes_on(run.state)
    assert run_status(run.state) == "running"
    assert run.state.ready.parked.keys() == {"circuit w"}
    assert down(run).running == ["b"]


def test_a_step_that_others_may_do_is_given_to_them():
    """It is refused for its own worker, with the reason, and rerouted at once."""
    run = Drive(step("a"), step("b", "a", alternatives=["other"]), step("c", "a"))
    down(run, "w").done("a")
    assert run.news[-3:] == ["refuse b unavailable", "recover b reroute", "start b 1 other"]
    words = "worker w is unavailable for now"
    assert run.last(ev.StepRefused).reason == words
    assert run.status("b", "c") == ["running", "ready"]
    assert run.state.steps["b"].tries == {"w": 1}, "it is not asked again"


def test_a_stronger_worker_does_what_its_weaker_one_cannot_be_asked():
    """Though no plan names it as an alternative."""
    weak = WorkerSpec(name="weak", offers={"": Offer()}, stronger="expert")
    catalog = [spec("w"), weak, spec("expert")]
    run = Drive(step("a"), step("b", "a", worker="weak"), catalog=catalog)
    down(run, "weak").done("a")
    assert run.running == ["b"]
    assert run.last(ev.AttemptStarted).worker == "expert"


def test_when_all_who_may_do_it_are_down_it_waits():
    """For whoever is well again first: its own worker, or another."""
    steps = (step("a", worker="third"), step("b", "a", alternatives=["other"]))
    run = down(Drive(*steps), "w", "other").done("a")
    assert (run.status("b"), run.running) == (["ready"], [])
    assert down(run, "w").running == ["b"]
    assert run.last(ev.AttemptStarted).worker == "other"
    run = down(Drive(*steps), "w", "other").done("a")
    assert down(run, "other").running == ["b"]
    assert run.last(ev.AttemptStarted).worker == "w"


def test_what_was_not_idempotent_is_not_given_to_just_anybody():
    """An open circuit is no reason to repeat what may have happened."""
    catalog = [*WORKERS, spec("safe2", idempotent=True)]
    doc = step("a", worker="safe", alternatives=["other"])
    run = Drive(doc, catalog=catalog).fail("a", "lost", "unknown")
    down(run, "safe").later(10)
    assert (run.status("a"), run.running) == (["backing_off"], [])
    assert down(run).running == ["a"]


def test_steps_that_others_may_do_queue_alone():
    """One of them being parked does not hold up those who compete for the same."""
    run = Drive(step("x"), step("a", "x", alternatives=["other"]), step("b", "x"))
    run.state.open_circuits = frozenset({"w", "other"})
    run.done("x")
    owns = sorted(group.own for group in run.state.ready.parked["circuit w"])
    assert owns == ["", "a"]


def test_limits_count_for_a_step_that_could_go_elsewhere():
    """Its own worker being down, it is refused by it; a full limit still holds."""
    catalog = [*WORKERS, spec("one", max_concurrency=1)]
    steps = [step(ident, worker="one", alternatives=["other"]) for ident in "ab"]
    run = Drive(*steps, catalog=catalog)
    assert run.running == ["a"]
    down(run, "one")
    assert run.running == ["a"]
    run.done("a")
    assert run.last(ev.AttemptStarted).worker == "other"


# Restarts.


def test_a_host_that_ends_uses_up_no_try_where_the_policy_says_so():
    """So often, and only for what may be done twice; then the ladder goes on as ever."""
    run = Drive(step("a", worker="safe", retry=1), policy=Policy(jitter=0.0, restarts_free=2))
    for attempt in (2, 3):
        run.host_again().later(1)
        assert run.running == ["a"]
        assert run.state.steps["a"].attempts == attempt
        assert run.last(ev.RecoveryDecided).reason.endswith("; this does not count as an attempt")
    run.host_again().later(1)
    assert run.last(ev.RecoveryDecided).strategy == "ask"
    assert check(run.log) == []


def test_without_that_a_restart_is_a_try_like_any_other():
    run = Drive(step("a", worker="safe", retry=2))
    run.host_again().later(5)
    assert run.last(ev.RecoveryDecided).strategy == "retry"
    run.host_again().later(5)
    assert run.last(ev.RecoveryDecided).strategy == "ask"


def test_what_may_not_be_done_twice_is_asked_about_all_the_same():
    run = Drive(step("a"), policy=Policy(jitter=0.0, restarts_free=9))
    run.host_again().later(1)
    assert run.last(ev.RecoveryDecided).strategy == "ask"


def test_only_a_host_that_ended_uses_up_no_try():
    """An outcome that another failure leaves unknown is a try, and counts as no restart."""
    run = Drive(step("a", worker="safe", retry=2), policy=Policy(jitter=0.0, restarts_free=1))
    run.fail("a", "transient", "unknown").later(5)
    assert run.last(ev.RecoveryDecided).strategy == "retry"
    run.host_again().later(1)
    assert run.last(ev.RecoveryDecided).reason.endswith("; this does not count as an attempt")
