"""Activities and the workflow's bookkeeping by themselves, without a server."""

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from temporalio import workflow
from temporalio.testing import ActivityEnvironment

from leadhand import Agent, Context, Goal, Lead, Policy, worker
from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.commands import Command
from leadhand.core.decide.effects import StartAttempt
from leadhand.core.plan.references import Artifact
from leadhand.core.state.model import State, StepState
from leadhand.stores.memory import MemoryStore
from leadhand.temporal import messages
from leadhand.temporal.activities import EngineActivities, StepActivities
from leadhand.temporal.attempt_messages import Orders
from leadhand.temporal.budget import WorkflowBudget
from leadhand.temporal.host_factory import engine_of
from leadhand.temporal.messages import (
    AttemptOrder,
    Begin,
    DetachedValue,
    GivenResult,
    HostingOptions,
    LogBatch,
    LogLine,
    LogPosition,
    StateRequest,
    newest,
)
from leadhand.temporal.workflow import RunFlow
from leadhand.testing import ScriptedModel
from leadhand.workers.registry import Registry

LARGE = "x" * 100_000


@worker
async def length(text: str, context: Context) -> int:
    return len(text) + sum(map(len, context.results.values()))


def start_of(catalog=(), policy=Policy(), **more) -> ev.RunStarted:  # noqa: B008 - frozen
    specs = list(catalog)
    return ev.RunStarted(run="r", goal={}, policy=policy, planner="", catalog=specs, **more)


def order_of(registry: Registry, **more) -> AttemptOrder:
    """An attempt of `length`."""
    started = start_of(registry.catalog().workers.values(), **more)
    doc = {"id": "a", "worker": "length", "parameters": {"text": ""}, "context": ["b"]}
    return AttemptOrder("r", "a", 1, 1, "length", "", 2**60, 0.2, doc, started)


class Away:
    """A store on another machine, which does not answer until this process has heartbeaten."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.remote = store, True
        self.beats, self.back = 0, threading.Event()

    def beat(self, *_details) -> None:
        self.beats += 1
        if self.beats == 2:
            self.back.set()

    def __getattr__(self, name: str):
        found = getattr(self.store, name)
        if name not in ("get_artifact", "read", "header"):
            return found

        def slow(*args):
            assert self.back.wait(5), "the process has stopped saying that it lives"
            return found(*args)

        return slow


def environment(away: Away) -> ActivityEnvironment:
    found = ActivityEnvironment()
    found.info = replace(found.info, started_time=datetime.now(UTC))
    found.on_heartbeat = away.beat
    return found


@pytest.mark.parametrize("where", ["in its parameters", "in its context"])
async def test_a_machine_heartbeats_while_it_waits_for_a_large_result(where):
    away, registry = Away(MemoryStore()), Registry([length])
    ref = away.put_artifact(msgspec.json.encode(LARGE))
    order = order_of(registry)
    if where == "in its parameters":
        hole = DetachedValue(("text",), artifact=Artifact(ref))
        order = msgspec.structs.replace(order, parameters={"text": None}, holes=(hole,))
    else:
        order = msgspec.structs.replace(order, results={"b": GivenResult(ref=ref)})
    judged = await environment(away).run(StepActivities(registry, away).attempt, order)
    assert judged.report.data == len(LARGE), judged


@worker
async def large() -> str:
    return LARGE


async def test_an_engine_checks_a_goal_without_its_planner_and_heartbeats_meanwhile():
    """Results are away, and the module of the planner is not on this engine."""
    store = MemoryStore()
    lead = Lead([large], store=store)
    goal = Goal(text="g", acceptance=["len(steps.a.data) == 100000", "len(steps.a.data) == 1"])
    plan = {"goal": goal.to_doc(), "steps": [{"id": "a", "worker": "large"}]}
    await lead.run(plan, run_id="r")
    last = store.read("r")[-1]

    def lost(_state):
        raise ModuleNotFoundError("no module named planners")

    away = Away(store)
    engine = EngineActivities(away, lead.registry, planner=lost)
    look = StateRequest("r", LogPosition(last.seq, last.hash.hex()), 0.2)
    found = await environment(away).run(engine.verify_goal, look)
    assert found == ["len(steps.a.data) == 1 does not hold"]


@pytest.mark.parametrize("what", ["read", "written"])
async def test_an_engine_heartbeats_while_its_log_is_away(what):
    """Silence means that it has died, and another engine does it."""
    store = MemoryStore()
    await Lead([large], store=store).run({"steps": [{"id": "a", "worker": "large"}]}, run_id="r")
    entries = store.read("r")
    lines = [
        LogLine(each.seq, each.at, each.version, msgspec.Raw(each.body), each.hash.hex())
        for each in entries
    ]
    away = Away(store)
    engine = EngineActivities(away, Registry([]), planner=lambda _state: None)
    if what == "read":
        look = StateRequest("r", LogPosition(entries[-1].seq, entries[-1].hash.hex()), 0.2)
        assert len(await environment(away).run(engine.log, look)) == len(entries)
    else:
        await environment(away).run(engine.project, LogBatch("r", lines, heartbeat_s=0.2))
    assert away.beats >= 2


async def test_an_engine_without_the_planner_of_a_document_says_so():
    """The run hears it as a planner that failed, so that a person is asked in the end."""
    store = MemoryStore()
    lead = Lead([large], store=store, planners={"ours": lambda _view: None})
    plan = {"planner": "ours", "steps": [{"id": "a", "worker": "large"}]}
    await lead.run(plan, run_id="r")
    last = store.read("r")[-1]
    engine = engine_of(Lead([large], store=store), store)
    look = StateRequest(
        "r", LogPosition(last.seq, last.hash.hex()), 30.0, call=2, epoch=9, why="surprise"
    )
    answer = await environment(Away(store)).run(engine.plan, look)
    assert answer.answer is None
    assert 'revised by "ours", which was not given' in answer.reason


async def test_a_machine_with_another_version_has_the_step_wait_for_one_that_has_it():
    registry, policy = Registry([length]), Policy(park_s=7)
    order = order_of(registry, policy=policy)
    spec = msgspec.structs.replace(order.started.catalog[0], version="another")
    started = msgspec.structs.replace(order.started, catalog=[spec])
    order = msgspec.structs.replace(order, started=started)
    store = MemoryStore()
    judged = await environment(Away(store)).run(StepActivities(registry, store).attempt, order)
    failure = judged.report.failure
    assert (failure["class"], failure["effect"]) == ("unavailable", "none")
    assert failure["retry_after"] > policy.park_s


def test_the_size_of_an_order_counts_all_that_it_says():
    """Results of other steps, and the start of the run, may be more than the step itself."""
    state = State()
    state.run, state.started = "r", start_of(plan={"notes": "n" * 5000})
    done = StepState({"id": "b", "worker": "w"}, 0, "w")
    done.status, done.data = "succeeded", "d" * 60_000
    step = StepState({"id": "a", "worker": "w", "context": "b"}, 1, "w")
    step.failures = ({"class": "lost", "message": "m" * 4000},)
    state.steps = {"a": step, "b": done}
    state.answers = [{"step": "a", "text": "t" * 3000}]
    flow = SimpleNamespace(state=state, ways=HostingOptions())
    effect = StartAttempt("a", 1, 1, "w", "", {}, 0)
    orders = Orders(flow)
    said = len(msgspec.json.encode(orders.order(effect, 0, None)))
    assert said > 70_000
    assert orders.size(effect) == pytest.approx(said, abs=500)


def test_what_was_told_to_stop_and_has_not_said_that_it_did_takes_room(monkeypatch):
    """Temporal counts it still, and takes at most 2,000 at once."""
    flow = RunFlow(newest(Begin("r", HostingOptions(in_flight_max=10))))
    monkeypatch.setattr(flow, "_full", lambda: False)
    assert flow._room() == 10
    flow._hands.busy = 4
    assert flow._room() == 6


def test_whether_a_word_can_be_said_changes_nothing(monkeypatch):
    """It is asked of the workflow that runs, and not of one that is replayed."""
    flow = RunFlow(newest(Begin("r")))
    flow._ready, flow.state.started = True, start_of()
    monkeypatch.setattr(workflow, "now", lambda: datetime.now(UTC))
    flow.check(Command("pause", "ann", {}))
    assert flow._last_at == 0


def test_how_the_next_order_comes(monkeypatch):
    """New histories say its number; those that say none are of the first, and keep its branch."""
    assert msgspec.json.decode(b'{"run": "r"}', type=Begin).version == 1
    monkeypatch.setattr(messages, "ORDER_VERSION", 2)
    second = newest(Begin("r"))
    assert b'"version":2' in msgspec.json.encode(second)
    with pytest.raises(RuntimeError, match="begun by a newer Leadhand"):
        RunFlow(second)  # by an engine that is not upgraded yet: its own number is 1


async def test_a_stop_while_results_are_fetched_is_reported_and_nothing_begins():
    away, registry = Away(MemoryStore()), Registry([length])
    ref = away.put_artifact(msgspec.json.encode(LARGE))
    order = msgspec.structs.replace(order_of(registry), results={"b": GivenResult(ref=ref)})
    here = environment(away)
    here.on_heartbeat = lambda *_: None
    running = asyncio.create_task(here.run(StepActivities(registry, away).attempt, order))
    await asyncio.sleep(0.05)
    here.cancel()
    judged = await running
    away.back.set()
    assert judged.report.failure["message"] == "it was stopped before it reported"


def test_those_that_begin_at_once_are_given_equal_parts_and_the_planner_no_part_twice():
    state, spec = State(), Agent("clerk", ScriptedModel([])).spec
    state.policy, state.catalog, state.unsettled = Policy(budget=10.0), Catalog([spec]), 10
    state.steps = {f"s{n}": StepState({"id": f"s{n}"}, n, "clerk") for n in range(10)}
    money = WorkflowBudget(SimpleNamespace(state=state, ways=HostingOptions()))
    parts = [money.give(name, epoch) for epoch, name in enumerate(state.steps, 1)]
    assert parts == pytest.approx([1.0] * 10)
    assert money.give("", 11) == pytest.approx(0.0)
    money.back("s0", 1)
    assert money.give("", 12) == pytest.approx(1.0)
