"""What users get for their own tests: doubles, virtual time, and a run seen whole."""

import asyncio

import pytest

from leadhand import Ask, Context, Finish, Goal, Hybrid, Propose, Report, worker
from leadhand.core import events as ev
from leadhand.core.policy import Policy
from leadhand.errors import PlanInvalid, RateLimited, Transient, UsageError
from leadhand.testing import (
    HANG,
    Deadlock,
    ManualClock,
    ScriptedPlanner,
    after,
    scripted,
    simulate,
)

STEP = {"id": "a", "worker": "w"}


def plan(*steps, **more):
    return {"goal": "g", "steps": list(steps), **more}


def test_virtual_time_costs_nothing():
    """A day of waiting is over at once, and the outcome says how long it took."""
    done = simulate(plan({**STEP, "timeout": "2 days"}), [scripted("w", [after(86_400, 7)])])
    assert done.outcome.ok
    assert done.outcome.result == 7
    assert done.seconds == pytest.approx(86_400, abs=1)
    assert done.outcome.duration_s == pytest.approx(86_400, abs=1)


def test_without_a_seed_time_is_exact():
    """Commits take no time, and what ends together is seen together."""
    worker_ = scripted("w", [after(10)])
    steps = [{"id": name, "worker": "w"} for name in "abcd"]
    steps += [{"id": "z", "worker": "w", "depends_on": list("abcd")}]
    done = simulate(plan(*steps), [worker_], seed=None)
    assert done.seconds == 20
    reports = {at for at, event in done.events if isinstance(event, ev.AttemptReported)}
    assert len(reports) == 2
    assert simulate(plan(*steps), [worker_], seed=1).seconds > 20


def test_a_scripted_worker_gives_its_outcomes_in_order():
    """Exceptions are typed failures; the last outcome stays; calls are remembered."""
    busy = scripted("w", [Transient("busy"), RateLimited("slow down", retry_after_s=30), {"v": 1}])
    done = simulate(plan(STEP), [busy])
    assert done.outcome.ok
    assert [call.attempt for call in busy.calls] == [1, 2, 3]
    assert done.seconds > 30
    assert not done.violations


def test_a_worker_that_hangs_meets_its_deadline():
    """Nobody saw whether it took effect, so a person is asked, and answers."""
    hang = scripted("w", [HANG, 5])
    done = simulate(plan({**STEP, "timeout": 10}), [hang])
    assert done.outcome.status == "waiting"
    assert done.outcome.waiting_for[0].step == "a"
    hang.calls.clear()
    done = simulate(plan({**STEP, "timeout": 10}), [hang], answers=lambda _question: "retry")
    assert done.outcome.ok


def test_a_probe_is_scripted_too():
    """What the probe finds done is taken over, and not done again."""
    lost = scripted("w", [HANG], probes=[Report(data="found")])
    done = simulate(plan({**STEP, "timeout": 10}), [lost])
    assert done.outcome.result == "found"
    assert len(lost.calls) == len(lost.probed) == 1


def test_checks_and_criteria_work_on_doubles():
    """A claim is still judged."""
    liar = scripted("w", [{"v": 1}], checks={"good": lambda data: data["v"] > 5})
    done = simulate(plan({**STEP, "success_criteria": "good", "failure_action": "abort"}), [liar])
    assert done.outcome.status == "failed"


def test_a_scripted_planner_is_asked_and_remembers():
    """Decisions in order, exceptions raised, functions of the view called."""
    planner = ScriptedPlanner(
        [
            RuntimeError("not yet"),
            Propose((STEP,)),
            lambda view: Finish(view.results["a"]),
        ]
    )
    done = simulate(Goal(text="g"), [scripted("w", [3])], planner)
    assert done.outcome.result == 3
    assert [view.call for view in planner.views] == [1, 2, 3]


def test_functions_run_in_place():
    """Ordinary workers, sync ones too, need no thread here; progress goes the usual way."""

    @worker
    def double(n: int, context: Context) -> int:
        context.progress("half way", 0.5)
        return 2 * n

    @worker
    async def wait(n: int) -> int:
        await asyncio.sleep(600)
        return n + 1

    steps = [
        {"id": "a", "worker": "double", "parameters": {"n": 4}},
        {"id": "b", "worker": "wait", "parameters": {"n": "${{ steps.a.data }}"}},
    ]
    done = simulate(plan(*steps), [double, wait])
    assert done.outcome.result == 9
    assert done.seconds > 600


def test_a_bad_plan_is_refused_as_everywhere():
    """Nothing is simulated that could not be run."""
    with pytest.raises(PlanInvalid):
        simulate(plan({"id": "a", "worker": "nobody"}), [])


def test_a_plan_that_never_ends_is_noticed():
    """Virtual time is not for ever either."""

    async def spin():
        while True:
            await asyncio.sleep(86_400)

    @worker(timeout="900 days")
    async def endless() -> None:
        await spin()

    with pytest.raises(Deadlock, match="on and on"):
        simulate(plan({"id": "a", "worker": "endless"}), [endless], policy=Policy(timeout_s=1e8))


CHAIN = [{"id": f"s{i}", "worker": "w", "depends_on": [f"s{i - 1}"][: i > 0]} for i in range(5)]


def test_a_crash_after_any_commit_is_survived():
    """The host dies after each of its commits in turn: every step is done, and once."""
    whole = simulate(plan(*CHAIN), [scripted("w", [after(1, 1)])])
    assert whole.hosts == 1
    crashed = 0
    for n in range(1, 40):
        effects = []
        done = simulate(
            plan(*CHAIN),
            [scripted("w", [after(1, lambda task, seen=effects: seen.append(task.step))])],
            answers=lambda question, seen=effects: "done" if question.step in seen else "retry",
            crash_after=[n],
        )
        assert done.outcome.ok, n
        assert not done.violations, n
        assert effects == [step["id"] for step in CHAIN], n
        crashed += done.hosts == 2
    assert crashed >= 7


def test_several_crashes_in_one_run():
    """Each host takes up where the last one was cut off."""
    done = simulate(
        plan(*CHAIN), [scripted("w", [1], idempotent=True)], crash_after=range(2, 12, 2)
    )
    assert done.outcome.ok
    assert done.hosts > 3
    assert not done.violations
    hosted = [event for _, event in done.events if isinstance(event, ev.RunHosted)]
    assert len(hosted) <= done.hosts
    assert "Run picked up by host 1" in done.lines()


def test_the_same_seed_gives_the_same_log():
    """And another seed may not."""
    fan = [{"id": f"s{i}", "worker": "w"} for i in range(8)]
    logs = [simulate(plan(*fan), [scripted("w", [after(1)])], seed=seed).lines() for seed in (1, 1)]
    assert logs[0] == logs[1]


def test_a_manual_clock_moves_by_hand():
    """Time forward, the calendar either way."""
    clock = ManualClock(0)
    clock.advance(2)
    clock.jump(-3600)
    assert clock.now() == 2_000_000
    assert clock.wall() == 2_000_000 - 3_600_000_000
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


async def test_a_manual_clock_can_be_slept_on():
    """Sleeping is advancing."""
    clock = ManualClock(0)
    await clock.sleep(5)
    assert clock.now() == clock.wall() == 5_000_000


@worker(gives="x", idempotent=True)
async def give_x() -> int:
    return 1


WANT_X = Goal(text="x", want="x")


def sync_plan(_view):
    return Propose(({"id": "mine", "worker": "give_x"},), final=True)


async def in_thread(view):
    return await asyncio.to_thread(sync_plan, view)


@pytest.mark.parametrize(
    ("planner", "words"),
    [
        (sync_plan, "sync_plan is a sync function"),
        (Hybrid(sync_plan), "sync_plan is a sync function"),
        (Hybrid(Hybrid(sync_plan)), "sync_plan is a sync function"),
        (Hybrid(in_thread), "a simulation has no threads"),
    ],
)
def test_a_planner_that_needs_a_thread_is_refused(planner, words):
    """It was dropped, and the goal planner did all the work without a word."""
    with pytest.raises(UsageError, match=words):
        simulate(WANT_X, [give_x], planner)


async def asks_with_a_default(view):
    if not view.answers:
        return Ask("ok?", ("yes", "no"), default="no", within_s=60)
    return Finish(view.answers[-1]["choice"])


def test_a_question_with_a_default_is_answered_before_its_time_is_up():
    """`answers` was never asked: the run does not rest while the default's timer runs."""
    done = simulate(Goal(text="g"), [give_x], asks_with_a_default, answers=lambda _question: "yes")
    assert done.outcome.result == "yes"
    assert done.seconds < 1
    left_open = []
    done = simulate(Goal(text="g"), [give_x], asks_with_a_default, answers=left_open.append)
    assert done.outcome.result == "no"
    assert done.seconds >= 60
    assert len(left_open) == 1
    assert not done.violations


def test_a_question_with_a_default_survives_a_crash():
    for n in range(1, 6):
        done = simulate(
            Goal(text="g"),
            [give_x],
            asks_with_a_default,
            answers=lambda _question: "yes",
            crash_after=[n],
        )
        assert done.outcome.result == "yes"
