"""What follows a failed attempt: the whole ladder as tables."""

import pytest

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, WorkerSpec
from leadhand.core.decide.recovery import (
    LADDER,
    Recovery,
    Retry,
    backoff,
    choose,
    idempotent,
    retry_policy,
)
from leadhand.core.durations import text
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.policy import Policy
from tests.core.driver import SECOND, WORKERS, Drive, failure, propose, spec, step, undecided

ROWS = {
    "passing": ("transient", "rate_limited", "timeout", "lost"),
    "tool": ("unavailable", "denied"),
    "size": ("too_complex", "context_overflow", "ambiguous"),
    "result": ("invalid_output", "criteria_unmet"),
    "final": ("needs_info", "permanent", "policy", "budget"),
}

# The columns: attempts left and an alternative; attempts left; an alternative; neither.
# "last" is what the step's failure action says, and without one: a question.
TABLE = """
row      effect   idempotent  probe | both     left     other    none
passing  none     no          -     | retry    retry    reroute  last
passing  none     yes         -     | retry    retry    reroute  last
passing  done     no          -     | last     last     last     last
passing  done     yes         -     | retry    retry    reroute  last
passing  unknown  no          no    | ask      ask      ask      ask
passing  unknown  no          yes   | probe    probe    probe    probe
passing  unknown  yes         -     | retry    retry    reroute  last
tool     none     no          -     | reroute  last     reroute  last
tool     none     yes         -     | reroute  last     reroute  last
tool     done     no          -     | last     last     last     last
tool     done     yes         -     | reroute  last     reroute  last
tool     unknown  no          no    | ask      ask      ask      ask
tool     unknown  no          yes   | probe    probe    probe    probe
tool     unknown  yes         -     | reroute  last     reroute  last
size     none     no          -     | reroute  last     reroute  last
size     none     yes         -     | reroute  last     reroute  last
size     done     no          -     | last     last     last     last
size     done     yes         -     | reroute  last     reroute  last
size     unknown  no          no    | ask      ask      ask      ask
size     unknown  no          yes   | probe    probe    probe    probe
size     unknown  yes         -     | reroute  last     reroute  last
result   none     no          -     | reroute  last     reroute  last
result   none     yes         -     | retry    retry    reroute  last
result   done     no          -     | last     last     last     last
result   done     yes         -     | retry    retry    reroute  last
result   unknown  no          no    | ask      ask      ask      ask
result   unknown  no          yes   | probe    probe    probe    probe
result   unknown  yes         -     | retry    retry    reroute  last
final    none     no          -     | last     last     last     last
final    none     yes         -     | last     last     last     last
final    done     no          -     | last     last     last     last
final    done     yes         -     | last     last     last     last
final    unknown  no          no    | ask      ask      ask      ask
final    unknown  no          yes   | probe    probe    probe    probe
final    unknown  yes         -     | last     last     last     last
"""


UNSEEN = "it broke; it is unknown whether it took effect"


def cells():
    for line in TABLE.strip().splitlines()[1:]:
        left, right = line.split("|")
        row, effect, repeatable, probe = left.split()
        for kind in ROWS[row]:
            for column, expected in zip(
                ("both", "left", "other", "none"), right.split(), strict=True
            ):
                for probes in (False, True) if probe == "-" else (probe == "yes",):
                    yield kind, effect, repeatable == "yes", probes, column, expected


def test_every_class_has_a_row():
    """The table speaks of all failure classes, and so does the ladder."""
    assert sorted(sum(ROWS.values(), ())) == sorted(FAILURE_CLASSES) == sorted(LADDER)


def test_the_ladder():
    """Class, effect, idempotence, probe, attempts left and alternatives decide what follows."""
    wrong = []
    for kind, effect, repeatable, probes, column, expected in cells():
        doc = step("a", worker="x", failure_action="escalate")
        doc["retry"] = 3 if column in ("both", "left") else 1
        if column in ("both", "other"):
            doc["alternatives"] = ["other"]
        able = [spec("x", probe=probes, idempotent=repeatable), *WORKERS]
        able = [each for each in able if each.name != "other"]
        able.append(spec("other", idempotent=repeatable))
        state, failed = undecided(doc, failure(kind, effect), catalog=able)
        got = choose(state, failed).strategy
        if got != ("ask" if expected == "last" else expected):
            wrong.append((kind, effect, repeatable, probes, column, expected, got))
    assert not wrong


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        (step("a", worker="safe"), "retry"),
        (step("a", worker="safe", idempotent=False), "ask"),
        (step("a", worker="w"), "ask"),
        (step("a", worker="w", idempotent=True), "ask"),
        (step("a", worker="probed"), "probe"),
        (step("a", worker="probed", idempotent=True), "probe"),
    ],
)
@pytest.mark.parametrize("widened", [False, True])
def test_a_step_may_deny_idempotence_and_not_claim_it(doc, expected, widened):
    """A plan narrows what its worker promises; widening is for people to allow."""
    state, failed = undecided(doc, failure("lost", "unknown"))
    failed.widened = widened
    claims = widened and doc.get("idempotent")
    assert choose(state, failed).strategy == ("retry" if claims else expected)


@pytest.mark.parametrize(
    ("action", "replans", "strategy", "reason"),
    [
        (None, False, "ask", "it broke (permanent); no recovery left"),
        (None, True, "replan", "it broke"),
        ("escalate", False, "ask", "it broke (permanent); no recovery left"),
        ("escalate", True, "ask", "it broke (permanent); no recovery left"),
        ("replan", False, "ask", "it broke (permanent); no recovery left"),
        ("replan", True, "replan", "it broke"),
        ("continue", False, "continue", "it broke; the plan says to continue"),
        ("continue", True, "continue", "it broke; the plan says to continue"),
        ("abort", False, "abort", "it broke"),
        ("abort", True, "abort", "it broke"),
        ("abort_deployment", False, "abort", "it broke"),
        ("abort_deployment", True, "abort", "it broke"),
        ("rollback", False, "abort", "it broke; the run will be rolled back"),
        ("rollback", True, "abort", "it broke; the run will be rolled back"),
    ],
)
def test_the_failure_action_is_the_last_rung(action, replans, strategy, reason):
    """When nothing is left to try, the step's word decides; by default the planner or a person."""
    doc = step("a") if action is None else step("a", failure_action=action)
    state, failed = undecided(doc, failure("permanent"), replans=replans)
    back = action == "rollback"
    assert choose(state, failed) == Recovery(strategy, reason, rollback=back)


@pytest.mark.parametrize("kind", FAILURE_CLASSES)
@pytest.mark.parametrize("splits", [False, True])
def test_a_planner_that_splits_is_asked_to(kind, splits):
    """Where the row has it, splitting comes after retry and reroute, or first for large tasks."""
    doc = step("a", retry=1, failure_action="abort")
    state, failed = undecided(doc, failure(kind), splits=splits)
    split = splits and "simplify" in LADDER[kind]
    assert choose(state, failed) == (
        Recovery("simplify", "it broke; the planner is asked to split it")
        if split
        else Recovery("abort", "it broke")
    )
    state, failed = undecided(
        step("a", retry=1, alternatives=["other"]), failure(kind), splits=splits
    )
    first = {"size": "simplify" if splits else "reroute", "final": "ask"}
    row = next(row for row, kinds in ROWS.items() if kind in kinds)
    assert choose(state, failed).strategy == first.get(row, "reroute")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Recovery("ask", "unavailable (unavailable); no recovery left")),
        (
            {"class": "unavailable", "message": ""},
            Recovery("ask", "unavailable (unavailable); no recovery left"),
        ),
        (
            {"class": "novel", "message": "odd"},
            Recovery("ask", "odd (novel); no recovery left"),
        ),
    ],
)
def test_a_failure_that_says_little_counts_as_unavailable(given, expected):
    """No class, no message, or a class nobody knows: nothing is retried, another may do it."""
    assert choose(*undecided(step("a"), given)) == expected
    state, failed = undecided(step("a", alternatives=["other"]), given)
    assert choose(state, failed).strategy == "reroute"


def test_a_step_without_a_failure_or_a_worker_goes_to_a_person():
    """Nothing of the kind is in a log that makes sense; a decision is found all the same."""
    state, failed = undecided(step("a"), failure("lost", "unknown"))
    failed.failure = None
    expected = Recovery("ask", "unavailable (unavailable); no recovery left", 0.0, "")
    assert choose(state, failed) == expected
    assert Recovery("ask", "x") == ("ask", "x", 0.0, "", False)
    state, failed = undecided(step("a", worker="safe"), failure("lost", "unknown"))
    state.catalog = Catalog()
    assert choose(state, failed).strategy == "ask"
    assert idempotent(failed, None) is False


def test_what_was_printed_stays_as_it_was_printed():
    """The class of a failure of several lines gets a line of its own."""
    state, failed = undecided(step("a"), failure("permanent", message="one\ntwo"))
    expected = "one\ntwo\n(permanent); no recovery left"
    assert choose(state, failed) == Recovery("ask", expected)


def test_a_run_that_stops_decides_nothing_more():
    """Once the run is stopping, whatever fails is let go, with both reasons."""
    state, failed = undecided(step("a"), failure("transient"))
    state.stopping = ev.StopDecided("cancelled", "enough")
    assert choose(state, failed) == Recovery("abandon", "it broke; the run is stopping (enough)")


# Unseen.


def test_the_words_of_an_unseen_outcome():
    """The probe is asked by name; without one the question says why it may not be repeated."""
    state, failed = undecided(step("a", worker="probed"), failure("lost", "unknown"))
    assert choose(state, failed) == Recovery(
        "probe", "it broke; asking probed whether it took effect"
    )
    expected = f"{UNSEEN}, so it is not repeated unasked"
    state, failed = undecided(step("a"), failure("lost", "unknown"))
    assert choose(state, failed) == Recovery("ask", expected)
    state, failed = undecided(step("a", worker="probed"), failure("lost", "unknown", probed=True))
    assert choose(state, failed) == Recovery("ask", expected)


@pytest.mark.parametrize(
    ("action", "strategy", "reason"),
    [
        (None, "ask", f"{UNSEEN}, so it is not repeated unasked"),
        (
            "escalate",
            "ask",
            f"{UNSEEN}, so it is not repeated unasked",
        ),
        (
            "replan",
            "ask",
            f"{UNSEEN}, so it is not repeated unasked",
        ),
        ("abort", "abort", UNSEEN),
        ("abort_all", "abort", UNSEEN),
        (
            "rollback",
            "abort",
            "it broke; it is unknown whether it took effect; the run will be rolled back",
        ),
        (
            "continue",
            "continue",
            "it broke; it is unknown whether it took effect; the plan says to continue",
        ),
    ],
)
@pytest.mark.parametrize("replans", [False, True])
def test_an_unseen_outcome_and_the_failure_action(action, strategy, reason, replans):
    """What repeats nothing needs not know what happened; the probe is asked all the same."""
    more = {} if action is None else {"failure_action": action}
    state, failed = undecided(step("a", **more), failure("lost", "unknown"), replans=replans)
    assert choose(state, failed) == Recovery(strategy, reason, rollback=action == "rollback")
    state, failed = undecided(step("a", worker="probed", **more), failure("lost", "unknown"))
    assert choose(state, failed).strategy == "probe"


# Retry.


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, Retry(3, 1.0, 2.0, 60.0)),
        ({"retry": None}, Retry(3, 1.0, 2.0, 60.0)),
        ({"retry": 5}, Retry(5, 1.0, 2.0, 60.0)),
        ({"retry": {"attempts": 2}}, Retry(2, 1.0, 2.0, 60.0)),
        (
            {"retry": {"backoff": "500ms", "factor": 3, "max_backoff": "1m"}},
            Retry(3, 0.5, 3.0, 60.0),
        ),
        (
            {"retry": {"attempts": 9, "backoff": 7, "factor": 1, "max_backoff": 8}},
            Retry(9, 7.0, 1.0, 8.0),
        ),
    ],
)
def test_a_steps_retry_policy(own, expected):
    """What the step says, and the recorded policy for the rest."""
    assert retry_policy(step("a", **own), Policy()) == expected


def test_the_policy_behind_a_steps_own():
    """Every constant comes from the recorded policy, never from the module."""
    policy = Policy(attempts_max=7, backoff_s=2.0, backoff_factor=5.0, backoff_max_s=99.0)
    assert retry_policy(step("a"), policy) == Retry(7, 2.0, 5.0, 99.0)


@pytest.mark.parametrize(
    ("tries", "retry", "expected"),
    [
        (1, Retry(9, 1.0, 2.0, 60.0), 1.0),  # 1 * 2 ** 0
        (2, Retry(9, 1.0, 2.0, 60.0), 2.0),  # 1 * 2 ** 1
        (3, Retry(9, 1.0, 2.0, 60.0), 4.0),  # 1 * 2 ** 2
        (6, Retry(9, 1.0, 2.0, 60.0), 32.0),  # 1 * 2 ** 5
        (7, Retry(9, 1.0, 2.0, 60.0), 60.0),  # 64 is above the limit
        (3, Retry(9, 0.5, 3.0, 60.0), 4.5),  # 0.5 * 3 ** 2
        (4, Retry(9, 5.0, 1.0, 60.0), 5.0),  # a constant backoff
        (2, Retry(9, 0.0, 2.0, 60.0), 0.0),
        (5000, Retry(9999, 1.0, 2.0, 60.0), 60.0),  # 2 ** 4999 is no float
    ],
)
def test_backoff_without_jitter(tries, retry, expected):
    """It grows by the factor with each try, up to its limit."""
    assert backoff("r", "a", 1, tries, retry, 0.0) == expected


# The first 8 bytes of sha256("run\0step\0attempt") as a share of 2**64.
SHARES = [
    ("r1", "a", 1, 0.5025224235376196),
    ("r1", "a", 2, 0.9221656205215322),
    ("r1", "b", 1, 0.01024774893413302),
    ("r2", "a", 1, 0.9236036964530947),
]


@pytest.mark.parametrize(("run", "ident", "attempt", "share"), SHARES)
def test_jitter_is_drawn_from_the_names(run, ident, attempt, share):
    """The same run, step and attempt always wait the same; it adds at most its share."""
    retry = Retry(9, 10.0, 2.0, 60.0)
    expected = pytest.approx(10.0 * (1 + 0.2 * share), abs=1e-12)
    assert backoff(run, ident, attempt, 1, retry, 0.2) == expected
    assert backoff(run, ident, attempt, 1, retry, 0.2) == expected
    assert backoff(run, ident, attempt, 9, retry, 1.0) == pytest.approx(60.0 * (1 + share))


def test_jitter_is_recorded():
    """The wait that was decided stands in the event, and the step starts then, not before."""
    policy = Policy(backoff_s=10.0, jitter=0.2)
    run = Drive(step("a"), policy=policy).fail("a")
    wait = backoff("r1", "a", 1, 1, Retry(3, 10.0, 2.0, 60.0), 0.2)
    decided = run.last(ev.RecoveryDecided)
    assert decided.until == int(wait * SECOND) == 11_005_044
    assert run.running == []
    run.now = run.now._replace(at=decided.until - 1)
    assert run.go().running == []
    run.now = run.now._replace(at=decided.until)
    assert run.go().running == ["a"]


def test_waits_grow_with_each_try_and_end():
    """1 s, 2 s, then nothing is left: three attempts in all."""
    run = Drive(step("a", failure_action="abort"))
    waits = []
    for _ in range(3):
        run.fail("a")
        decided = run.last(ev.RecoveryDecided)
        waits.append((decided.strategy, (decided.until - run.now.at) / SECOND, decided.reason))
        run.later(100)
    assert waits == [
        ("retry", 1.0, "it broke; attempt 2 of 3 in 1s"),
        ("retry", 2.0, "it broke; attempt 3 of 3 in 2s"),
        ("abort", -200.0, "it broke"),
    ]
    assert run.state.steps["a"].attempts == 3


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (7, 7.0),
        (7.5, 7.5),
        (0.5, 1.0),  # the backoff is longer
        (0, 1.0),
        (-5, 1.0),
        (None, 1.0),
        (60, 60.0),
        (float("nan"), 1.0),
    ],
)
def test_retry_after_is_respected(asked, wait):
    """A worker that says when to come back is not asked before."""
    state, failed = undecided(step("a"), failure("rate_limited"))
    failed.failure["retry_after"] = asked
    expected = Recovery("retry", f"it broke; attempt 2 of 3 in {text(wait)}", wait, "w")
    assert choose(state, failed) == expected


def test_a_retry_without_a_backoff_speaks_of_no_wait():
    """It starts at once, so there is no time to tell."""
    state, failed = undecided(step("a", retry={"backoff": 0}), failure())
    assert choose(state, failed) == Recovery("retry", "it broke; attempt 2 of 3", 0.0, "w")


@pytest.mark.parametrize("kind", ROWS["result"])
def test_a_bad_result_is_retried_once(kind):
    """Even with attempts left, an idempotent step is repeated only once after an unmet result."""
    run = Drive(step("a", worker="safe", retry=9, failure_action="abort"))
    run.fail("a", kind, "done").later(1)
    assert run.running == ["a"]
    assert run.last(ev.RecoveryDecided).reason == "it broke; attempt 2 of 2 in 1s"
    run.fail("a", kind, "done")
    assert run.last(ev.RecoveryDecided).strategy == "abort"


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        ("unknown", Recovery("park", "it broke; this does not count as an attempt", 0.0, "safe")),
        ("none", Recovery("retry", "it broke; attempt 2 of 3 in 1s", 1.0, "safe")),
        ("done", Recovery("retry", "it broke; attempt 2 of 3 in 1s", 1.0, "safe")),
    ],
)
def test_only_a_loss_that_nobody_saw_uses_up_no_try(effect, expected):
    """It starts again at once; a worker that says itself what was lost has used its try."""
    policy = Policy(jitter=0.0, restarts_free=1)
    state, failed = undecided(step("a", worker="safe"), failure("lost", effect), policy=policy)
    assert choose(state, failed) == expected


def test_a_step_that_was_never_tried_is_not_retried():
    """A refused start is no attempt, so there is nothing to try again."""
    run = Drive(bare=True)
    state = run.state
    state.policy = Policy()
    run.go().answer(propose(step("a")))
    failed = state.steps["a"]
    failed.failure = failure("transient")
    assert failed.failures_by("w") == 0
    assert choose(state, failed).strategy == "ask"


# Reroute.


def test_alternatives_are_taken_in_order_each_once():
    """Each worker has its own attempts; when all have failed, nothing is left."""
    doc = step("a", alternatives=["other", "third"], retry=2, failure_action="abort")
    run = Drive(doc)
    seen = []
    for _ in range(6):
        seen.append(run.state.steps["a"].worker)
        run.fail("a").later(100)
    assert seen == ["w", "w", "other", "other", "third", "third"]
    assert run.ended == "failed"
    decided = [
        (e.strategy, e.worker, e.until, e.reason)
        for e in run.all(ev.RecoveryDecided)
        if e.strategy == "reroute"
    ]
    assert decided == [
        ("reroute", "other", 100_000_000, "it broke; other can do it instead"),
        ("reroute", "third", 300_000_000, "it broke; third can do it instead"),
    ]


@pytest.mark.parametrize(
    ("alternatives", "expected"),
    [
        (["w"], "ask"),  # the same worker is no other one
        (["w", "other"], "reroute other"),
        (["named"], "ask"),  # it does not offer this action
        (["named", "third"], "reroute third"),
    ],
)
def test_an_alternative_must_be_another_worker_that_can(alternatives, expected):
    """Who is asked instead must offer the action, and not be the one that failed."""
    run = Drive(step("a", retry=1))
    failed = run.state.steps["a"]
    failed.doc["alternatives"] = alternatives
    run.state.catalog.workers["named"] = WorkerSpec(name="named")
    run.tell(ev.AttemptReported("a", 1, run.state.in_flight["a"], False, failure=failure()))
    failed.tries = None
    failed.failure = failure("unavailable")
    got = choose(run.state, failed)
    assert f"{got.strategy} {got.worker}".strip() == expected


@pytest.mark.parametrize(
    ("worker", "own", "kind", "expected"),
    [
        ("w", {}, "criteria_unmet", "reroute"),
        ("w", {}, "invalid_output", "reroute"),
        ("writes", {}, "criteria_unmet", "ask"),
        ("writes", {}, "invalid_output", "ask"),
        ("writes", {}, "unavailable", "reroute"),
        ("w", {"effects": ["outside"]}, "criteria_unmet", "ask"),
        ("w", {"effects": ["outside"]}, "unavailable", "reroute"),
        ("writes", {"idempotent": True, "retry": 1}, "criteria_unmet", "ask"),
    ],
)
def test_an_unmet_result_with_effects_is_not_done_again_by_another(worker, own, kind, expected):
    """A result that is wrong although nothing is said to have happened may still have touched."""
    doc = step("a", worker=worker, alternatives=["other"], **own)
    assert choose(*undecided(doc, failure(kind))).strategy == expected


def test_an_unmet_result_that_may_be_done_twice_goes_to_another():
    """Effects are no reason to keep an idempotent step from another worker."""
    able = [*WORKERS, spec("puts", effects=("outside",), idempotent=True)]
    doc = step("a", worker="puts", retry=1, alternatives=["other"])
    state, failed = undecided(doc, failure("criteria_unmet"), catalog=able)
    assert choose(state, failed).worker == "other"


def test_who_failed_is_not_its_own_alternative():
    """A step that went to an alternative is not given to the same one again."""
    doc = step("a", alternatives=["other"], failure_action="escalate")
    state, failed = undecided(doc, failure("unavailable"))
    failed.worker, failed.tries = "other", None
    assert choose(state, failed).strategy == "ask"


@pytest.mark.parametrize("effect", ["unknown", "done"])
def test_what_may_have_happened_goes_only_to_a_worker_that_may_repeat_it(effect):
    """That the first worker is idempotent says nothing about another one."""
    doc = step("a", worker="safe", retry=1, alternatives=["other"], failure_action="abort")
    assert choose(*undecided(doc, failure("lost", effect))).strategy == "abort"
    catalog = [*WORKERS, spec("safe2", idempotent=True)]
    doc = step("a", worker="safe", retry=1, alternatives=["other", "safe2"])
    state, failed = undecided(doc, failure("lost", effect), catalog=catalog)
    assert choose(state, failed) == Recovery(
        "reroute", "it broke; safe2 can do it instead", 0.0, "safe2"
    )
    doc = step("a", worker="w", retry=1, idempotent=True, alternatives=["other"])
    state, failed = undecided(doc, failure("lost", effect))
    assert choose(state, failed).strategy == "ask"
    failed.widened = True
    assert choose(state, failed).worker == "other"


def test_an_earlier_attempt_may_have_happened_too():
    """The last failure did nothing, but the one before was never seen; until a person looked."""
    doc = step("a", worker="safe", retry=2, alternatives=["other"], failure_action="escalate")
    run = Drive(doc).fail("a", "lost", "unknown").later(10)
    run.fail("a", "transient", "none")
    assert run.last(ev.RecoveryDecided).strategy == "ask"
    run.reply("retry").fail("a").later(10).fail("a")
    assert run.last(ev.RecoveryDecided).strategy == "reroute"


def test_what_a_probe_saw_counts():
    """It did not happen after all, so another worker may do it."""
    run = Drive(step("a", worker="probed", retry=1, alternatives=["other"], timeout=5)).later(5)
    run.probed("a", "not_done")
    assert run.last(ev.RecoveryDecided).strategy == "reroute"


def test_a_failure_without_an_effect_counts_as_none():
    """Old or foreign reports may leave the effect out."""
    state, failed = undecided(step("a", retry=1, alternatives=["other"]), {"class": "transient"})
    assert choose(state, failed).strategy == "reroute"
