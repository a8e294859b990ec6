"""A worker that claims success without the promised result never counts as success, in any mode.

Every way a step can come to be called done, crossed with every way to break a promise: no such
run may succeed, and no such step may be what another one builds on.
"""

import asyncio

import pytest

from leadhand import Finish, Goal, GoalPlanner, Human, Lead, Permanent, Propose, Report, worker
from leadhand.core import events as ev
from leadhand.core.catalog import Offer
from leadhand.core.policy import Policy
from leadhand.errors import PlanInvalid, UsageError
from leadhand.testing import HANG, ScriptedPlanner, scripted, simulate
from leadhand.testing.scripted import ScriptedWorker

QUICK = Policy(jitter=0.0, backoff_s=0.1, attempts_max=2, planner_rounds_max=2)

LIES = {
    "nothing": (("table",), None),
    "half": (("table", "sum"), {"table": [1]}),
    "an empty place": (("table", "sum"), {"table": [1], "sum": None}),
    "another form": (("table", "sum"), [1, 2]),
    "it is not so": (("ok:table",), False),
    "it says so itself": (("table", "ok:table"), {"ok:table": False}),
}

lies = pytest.mark.parametrize(("gives", "data"), LIES.values(), ids=LIES)


def liar(gives, data, name="liar", **more):
    """A worker that promises, and claims to have succeeded."""
    return scripted(name, [Report(data=data)], gives=tuple(gives), **more)


def never(done, step="a"):
    """It did not count, nothing was built on it, and the log says what was wrong."""
    assert done.violations == ()
    assert done.outcome.status != "succeeded"
    assert done.outcome.steps[step].status != "succeeded"
    reports = [e for _, e in done.events if isinstance(e, (ev.AttemptReported, ev.ProbeReported))]
    assert not any(event.met for event in reports if event.step == step)
    return done


def using(*steps, **more):
    """A plan in which another step builds on the first."""
    return {
        "goal": "g",
        "steps": [*steps, {"id": "b", "worker": "uses", "depends_on": ["a"]}],
    } | more


USES = scripted("uses", ["used"])


@lies
@pytest.mark.parametrize("action", [None, "abort", "escalate"])
def test_a_plan(gives, data, action):
    """As a document: the step fails, with the promise by name."""
    doc = {"id": "a", "worker": "liar"} | ({"failure_action": action} if action else {})
    done = never(simulate(using(doc), [liar(gives, data), USES], policy=QUICK))
    assert done.outcome.steps["a"].error.failure_class == "invalid_output"
    assert not any(e.step == "b" for _, e in done.events if isinstance(e, ev.AttemptStarted))


@lies
def test_a_plan_that_promises_for_its_worker(gives, data):
    """The step's own word counts as its worker's does."""
    doc = {"id": "a", "worker": "liar", "gives": list(gives), "failure_action": "abort"}
    never(simulate(using(doc), [liar((), data), USES], policy=QUICK))


@lies
def test_another_worker_lies_as_well(gives, data):
    """Rerouted to, it is judged the same."""
    doc = {"id": "a", "worker": "liar", "alternatives": ["other"], "failure_action": "abort"}
    workers = [liar(gives, data), liar(gives, data, "other"), USES]
    done = never(simulate(using(doc), workers, policy=QUICK))
    assert done.outcome.steps["a"].attempts == 2


@lies
def test_a_script(gives, data):
    """A planner that finishes as if it had the result, though it was told."""
    planner = ScriptedPlanner([Propose([{"id": "a", "worker": "liar"}]), Finish("all done")])
    goal = Goal(text="g", want=tuple(gives))
    never(simulate(goal, [liar(gives, data)], planner, policy=QUICK))


def test_a_script_that_does_nothing_and_finishes():
    """Its word for what is wanted does not count."""
    done = simulate(
        Goal(text="g", want=("table",)), [], ScriptedPlanner([Finish([1])]), policy=QUICK
    )
    assert (done.outcome.status, done.violations) == ("waiting", ())
    (question,) = done.outcome.waiting_for
    assert "table is wanted, and nothing has given it" in question.text


@lies
def test_the_goal_planner(gives, data):
    """It looks for another way, and asks when there is none."""
    goal = Goal(text="g", want=tuple(gives))
    done = simulate(goal, [liar(gives, data)], GoalPlanner(), policy=QUICK)
    assert (done.outcome.status, done.violations) == ("waiting", ())
    assert done.outcome.steps
    assert all(step.status != "succeeded" for step in done.outcome.steps)


@lies
def test_the_goal_planner_finds_who_keeps_a_promise(gives, data):
    """The dearer worker is honest."""
    truth = dict.fromkeys(gives, True) if len(gives) > 1 else True
    honest = scripted("honest", [Report(data=truth)], gives=tuple(gives), cost=9.0)
    goal = Goal(text="g", want=tuple(gives))
    done = simulate(goal, [liar(gives, data, cost=1.0), honest], GoalPlanner(), policy=QUICK)
    assert (done.outcome.status, done.violations) == ("succeeded", ())
    assert [step.worker for step in done.outcome.steps if step.status == "succeeded"] == ["honest"]


@lies
def test_a_person(gives, data):
    """People are judged as anybody; what is plainly not there is refused when they say it."""
    doc = {"id": "a", "worker": "ann", "failure_action": "abort"}
    people = lambda _question: ("done", data)  # noqa: E731 - what they say is the point
    crew = [Human("ann", gives=gives), USES]
    try:
        never(simulate(using(doc), crew, answers=people, policy=QUICK))
    except UsageError as refused:
        assert "step a gives" in str(refused)  # noqa: PT017 - it may also not be refused


@lies
def test_a_persons_silence(gives, data):
    """And so is what counts when they say nothing."""
    if data is None:
        return  # there is no such default
    doc = {"id": "a", "worker": "ann", "failure_action": "abort"}
    ann = Human("ann", gives=gives, timeout=5, default=data)
    never(simulate(using(doc), [ann, USES], policy=QUICK))


@lies
def test_a_probe(gives, data):
    """That it happened is not enough: what it brought is judged before it is adopted."""
    doc = {"id": "a", "worker": "liar", "timeout": 1, "failure_action": "abort"}
    silent = scripted("liar", [HANG], probes=[Report(data=data)], gives=tuple(gives))
    done = never(simulate(using(doc), [silent, USES], policy=QUICK))
    assert any(isinstance(event, ev.ProbeReported) for _, event in done.events)


@lies
def test_the_answer_done(gives, data, tmp_path):
    """Whoever says that it happened brings what was promised, or is told what is missing."""

    @worker(gives=tuple(gives), timeout=0.2)
    async def liar_() -> None:
        await asyncio.sleep(60)

    lead = Lead([liar_], store=tmp_path / "runs.db")
    waiting = lead.run_sync({"goal": "g", "steps": [{"id": "a", "worker": "liar_"}]})
    run, ident = waiting.waiting_for[0].id.split("/")
    assert "done" in waiting.waiting_for[0].answers
    with pytest.raises(UsageError, match="step a gives"):
        asyncio.run(lead.answer(run, ident, "done", data=data))
    assert lead.resume_sync(run).status == "waiting"


@lies
@pytest.mark.parametrize("crash", [3, 4, 5, 6])
def test_a_crash_makes_no_lie_true(gives, data, crash):
    """Whenever the host dies."""
    doc = {"id": "a", "worker": "liar", "idempotent": True, "failure_action": "abort"}
    never(simulate(using(doc), [liar(gives, data), USES], crash_after=[crash], policy=QUICK))


def test_parts_are_not_the_whole():
    """Steps that succeed without giving what is wanted leave the goal unmet: a plan of such
    steps is refused, and one that goes on without it fails at its end."""
    goal = {"text": "g", "want": ["table"]}
    with pytest.raises(PlanInvalid, match='the goal wants "table", and no step gives it'):
        simulate({"goal": goal, "steps": [{"id": "a", "worker": "w"}]}, [scripted("w", [[1]])])
    step = {"id": "a", "worker": "w", "gives": "table", "failure_action": "continue"}
    done = simulate({"goal": goal, "steps": [step]}, [scripted("w", [Permanent("no")])])
    assert (done.outcome.status, done.violations) == ("failed", ())
    assert "table is wanted" in done.outcome.reason


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -5.0])
def test_what_is_no_sum_of_money_is_not_written(cost):
    """The log could not be read again with it; what the worker declares is charged instead."""

    class Odd(ScriptedWorker):
        async def perform(self, task, context):
            return Report(data=1, cost=cost)

    odd = Odd("odd", offer=Offer(cost=2.0))
    done = simulate({"goal": "g", "steps": [{"id": "a", "worker": "odd"}]}, [odd], policy=QUICK)
    assert (done.violations, done.outcome.status) == ((), "succeeded")
    assert [e.cost for _, e in done.events if isinstance(e, ev.AttemptReported)] == [2.0]
