"""What a workflow makes of the core's effects: retries behind a machine that does not answer, money
for many at once, steps that nobody can take now, and trouble while a goal is checked."""

import asyncio
from contextlib import suppress

import pytest

from leadhand import Agent, Context, Goal, Lead, Policy, worker
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.engine import perform
from leadhand.errors import StoreError
from leadhand.models.messages import Usage
from leadhand.temporal.activities import StepActivities
from leadhand.temporal.processes import RunningWorkers, machine_workers
from leadhand.testing import ScriptedModel
from leadhand.testing.models import Price
from tests.support.temporal import on_temporal

pytestmark = pytest.mark.real


class Deaf:
    """Work whose first attempt does not hear that it is to stop, until it is let go."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.let_go = asyncio.Event()

    async def __call__(self, attempt: int) -> int:
        self.begun.append(attempt)
        while attempt == 1 and not self.let_go.is_set():
            with suppress(asyncio.CancelledError):
                await self.let_go.wait()
        return attempt


def logged(store, run: str, kind: type) -> list:
    found = [decode(entry.version, entry.body) for entry in store.read(run)]
    return [each for each in found if isinstance(each, kind)]


@pytest.fixture
async def deaf():
    """Let go in the end, however the test went: a machine waits for it."""
    work = Deaf()
    letting_go = asyncio.get_running_loop().call_later(45, work.let_go.set)
    yield work
    letting_go.cancel()


async def until(there) -> None:
    for _ in range(300):
        if there():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not come")


async def test_what_may_be_done_twice_does_not_wait_for_a_machine_that_is_silent(
    deaf, temporal, tmp_path
):
    """An idle machine has it done before the silent one is given up."""

    @worker(idempotent=True)
    async def harmless(context: Context) -> int:
        return await deaf(context.attempt)

    policy = Policy(backoff_s=0.1, attempts_max=3)
    async with on_temporal(temporal, tmp_path / "l.db", [harmless], policy=policy) as here:
        steps = [{"id": "a", "worker": "harmless", "timeout": "4s"}]
        outcome = await asyncio.wait_for(here.lead.run({"steps": steps}, run_id="two"), 40)
        deaf.let_go.set()
        assert outcome.ok, outcome
        assert deaf.begun == list(range(1, len(deaf.begun) + 1))
        entries = here.store.read("two")
        assert check([(entry.at, decode(entry.version, entry.body)) for entry in entries]) == []


async def test_what_may_not_be_done_twice_is_never_begun_beside_the_one_before_it(
    deaf, temporal, tmp_path
):
    """Though a person said so: it parks, and once the run is cancelled it never begins."""

    @worker(effects=["files"])
    async def payment(context: Context) -> int:
        return await deaf(context.attempt)

    policy = Policy(park_s=0.2)
    async with on_temporal(temporal, tmp_path / "l.db", [payment], policy=policy) as here:
        steps = [{"id": "a", "worker": "payment", "timeout": "4s"}]
        lead, store = here.lead, here.store
        assert (await lead.run({"steps": steps}, run_id="once")).status == "waiting"
        await lead.answer("once", "q1", "retry")
        await until(lambda: len(logged(store, "once", ev.AttemptStarted)) == 3)
        (parked,) = logged(store, "once", ev.AttemptReported)
        assert "may be at work still" in parked.failure["message"]
        assert [each.strategy for each in logged(store, "once", ev.RecoveryDecided)] == [
            "ask",
            "park",
        ]
        await lead.cancel("once", "not like this")
        outcome = await asyncio.wait_for(lead.resume("once"), 40)
        assert outcome.status == "cancelled"
        last = logged(store, "once", ev.AttemptReported)[-1]
        assert (last.failure["message"], last.failure["effect"]) == (
            "it was stopped before it began",
            "none",
        )
        deaf.let_go.set()
        assert deaf.begun == [1]


async def test_a_step_that_nobody_can_take_now_waits_for_a_machine_and_not_for_a_person(
    temporal, tmp_path
):
    @worker
    async def idle() -> int:
        return 1

    policy = Policy(park_s=0.2)
    async with on_temporal(
        temporal, tmp_path / "l.db", [idle], policy=policy, machine_here=False
    ) as here:
        steps = [{"id": "a", "worker": "idle", "timeout": "1s"}]
        running = asyncio.create_task(here.lead.run({"steps": steps}, run_id="deploy"))
        await until(lambda: logged(here.store, "deploy", ev.RecoveryDecided))
        machine = StepActivities(here.lead.registry, here.store)
        hands = machine_workers(here.client, here.cluster.ways.prefix, machine, ["idle"], drain_s=1)
        async with RunningWorkers(hands):
            outcome = await asyncio.wait_for(running, 60)
        assert outcome.ok, outcome
        assert not logged(here.store, "deploy", ev.QuestionAsked)


async def test_trouble_while_the_goal_is_checked_is_waited_out(temporal, tmp_path, monkeypatch):
    """It is only read: an engine that dies there, or a log that is away, fails no run."""
    unmet, tries = perform.unmet, []

    def away(run, result):
        tries.append(run.id)
        if len(tries) < 3:
            raise StoreError("the database does not answer")
        return unmet(run, result)

    monkeypatch.setattr(perform, "unmet", away)

    @worker
    async def one() -> int:
        return 1

    async with on_temporal(temporal, tmp_path / "l.db", [one]) as here:
        goal = Goal(text="one", acceptance=["steps.a.data == 1"])
        plan = {"goal": goal.to_doc(), "steps": [{"id": "a", "worker": "one"}]}
        outcome = await asyncio.wait_for(here.lead.run(plan, run_id="checked"), 60)
        assert outcome.ok, outcome
        assert len(tries) == 3


async def test_a_run_that_is_taken_up_has_its_revision_examined(temporal, tmp_path):
    """Its host ended while the reviewers looked at it."""
    begun = asyncio.Event()

    @worker
    async def one() -> int:
        return 1

    async def slow(_revision) -> list[str]:
        begun.set()
        await asyncio.sleep(600)
        return []

    path, plan = tmp_path / "l.db", {"steps": [{"id": "a", "worker": "one"}]}
    policy = Policy(reviewers=("looks",))
    before = Lead([one], None, path, policy=policy, reviewers={"looks": slow})
    running = asyncio.create_task(before.run(plan, run_id="taken"))
    await asyncio.wait_for(begun.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    looks = {"looks": lambda _revision: []}
    async with on_temporal(temporal, path, [one], policy=policy, reviewers=looks) as here:
        outcome = await asyncio.wait_for(here.lead.resume("taken"), 60)
        assert outcome.ok, outcome


# Money.

COST = 0.005
MOST = 0.01
"""What a call comes to, and what it may come to."""


def clerks(count: int) -> tuple[ScriptedModel, Agent, dict]:
    async def answering(_request):
        await asyncio.sleep(0.05)
        return "done"

    model = ScriptedModel(answering, price=Price(0.0, 200.0), usage=Usage(100, 25))
    steps = [{"id": f"s{n}", "worker": "clerk", "failure_action": "continue"} for n in range(count)]
    return model, Agent("clerk", model, answer_tokens=50), {"goal": "g", "steps": steps}


@pytest.mark.parametrize("calls_at_once", [10, 6])
async def test_many_at_once_share_a_budget_that_is_enough(calls_at_once, temporal, tmp_path):
    """Those that do not fit wait for the others, which come to less than was set aside."""
    model, agent, plan = clerks(10)
    policy = Policy(budget=MOST * calls_at_once, attempts_max=1)
    async with on_temporal(temporal, tmp_path / "l.db", [agent], policy=policy) as here:
        outcome = await asyncio.wait_for(here.lead.run(plan, run_id="rich"), 60)
    assert {step.status for step in outcome.steps} == {"succeeded"}, outcome
    assert len(model.requests) == 10
    assert outcome.cost == pytest.approx(10 * COST)


async def test_a_budget_that_is_not_enough_is_not_passed(temporal, tmp_path):
    model, agent, plan = clerks(10)
    policy = Policy(budget=2.1 * MOST, attempts_max=1)
    async with on_temporal(temporal, tmp_path / "l.db", [agent], policy=policy) as here:
        outcome = await asyncio.wait_for(here.lead.run(plan, run_id="poor"), 60)
    assert 2 <= len(model.requests) <= 4
    assert outcome.cost <= 2.1 * MOST
    failed = [step.error.failure_class for step in outcome.steps if step.error is not None]
    assert failed == ["budget"] * (10 - len(model.requests))


@pytest.mark.parametrize(
    ("broken", "told", "status"),
    [(2, ["lost", "lost", "done"], "succeeded"), (99, ["lost"] * 4 + ["unknown"], "waiting")],
)
async def test_a_probe_whose_machine_is_lost_is_made_again_a_few_times(
    broken, told, status, temporal, tmp_path, monkeypatch
):
    """What silences every machine that tries it is a person's matter in the end."""
    left, really = [broken], perform.probe

    async def probe(*given):
        left[0] -= 1
        if left[0] >= 0:
            raise RuntimeError("out of memory")
        await really(*given)

    @worker(effects="bills", probe=lambda: "paid")
    async def pay() -> str:
        raise ConnectionResetError("and then the line went dead")

    monkeypatch.setattr(perform, "probe", probe)
    async with on_temporal(temporal, tmp_path / "l.db", [pay]) as here:
        steps = [{"id": "a", "worker": "pay"}]
        outcome = await asyncio.wait_for(here.lead.run({"steps": steps}, run_id="probed"), 40)
        assert outcome.status == status
        reports = logged(here.store, "probed", ev.ProbeReported)
        assert [each.outcome for each in reports] == told
        entries = here.store.read("probed")
        assert check([(entry.at, decode(entry.version, entry.body)) for entry in entries]) == []
