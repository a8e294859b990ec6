"""Long runs: several histories, large plans, a log written once, and a fork that is found."""

import asyncio
import random

import pytest

from leadhand import worker
from leadhand.audit.chain import GENESIS, link, verify
from leadhand.codec.events import decode, encode
from leadhand.core import events as ev
from leadhand.core.logcheck.checker import check
from leadhand.errors import StoreError
from leadhand.ports import Entry
from leadhand.temporal.cluster_status import workflow_id
from tests.support.temporal import on_temporal

pytestmark = pytest.mark.real
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@worker(idempotent=True)
async def add(a: int, b: int) -> int:
    return a + b


def fan(count: int) -> dict:
    steps = [{"id": f"s{n}", "worker": "add", "parameters": {"a": n, "b": 1}} for n in range(count)]
    return {"goal": "add", "steps": steps}


async def histories(here, run: str) -> int:
    """How many executions a run took."""
    wanted = f'WorkflowId = "{workflow_id(here.cluster.ways.prefix, run)}"'
    for _ in range(50):
        found = [each async for each in here.client.list_workflows(wanted)]
        if found and all(each.close_time for each in found):
            return len(found)
        await asyncio.sleep(0.2)  # what is listed comes a moment later
    return len(found)


def starts(store, run: str) -> list[str]:
    found = [decode(entry.version, entry.body) for entry in store.read(run)]
    return [each.step for each in found if isinstance(each, ev.AttemptStarted)]


async def test_a_run_crosses_several_histories_and_each_step_is_done_once(temporal, tmp_path):
    ways = {"history_max": 150}
    async with on_temporal(temporal, tmp_path / "l.db", [add], ways=ways) as here:
        outcome = await asyncio.wait_for(here.lead.run(fan(400), run_id="long"), 120)
        assert outcome.ok
        assert outcome.steps["s399"].data == 400
        assert await histories(here, "long") >= 4
        entries = here.store.read("long")
        assert verify(entries) == []
        assert check([(entry.at, decode(entry.version, entry.body)) for entry in entries]) == []
        assert sorted(starts(here.store, "long")) == sorted(f"s{n}" for n in range(400))


async def test_a_plan_that_is_too_large_for_a_message_crosses_beside_the_log(temporal, tmp_path):
    dice = random.Random(7)
    noise = ["".join(dice.choices(LETTERS, k=4000)) for _ in "x" * 600]

    @worker
    async def size(text: str) -> int:
        return len(text)

    steps = [
        {"id": f"s{n}", "worker": "size", "parameters": {"text": text}}
        for n, text in enumerate(noise)
    ]
    async with on_temporal(temporal, tmp_path / "l.db", [size]) as here:
        outcome = await asyncio.wait_for(here.lead.run({"goal": "x", "steps": steps}), 120)
        assert outcome.ok
        assert {step.data for step in outcome.steps} == {4000}
    assert any((tmp_path / "l.db.artifacts").rglob("*"))


async def test_a_log_that_cannot_be_written_for_a_while_gets_every_event_once(temporal, tmp_path):
    async with on_temporal(temporal, tmp_path / "l.db", [add]) as here:
        append, tries = here.store.append, []

        def unsteady(run, expected, entries, summary=None, *, alone=False):
            tries.append(expected)
            future = append(run, expected, entries, summary, alone=alone)
            if len(tries) % 3 == 1:  # it was written, and nobody hears of it
                lost = asyncio.get_running_loop().create_future()
                future.add_done_callback(lambda _: lost.set_exception(StoreError("is not one of")))
                return lost
            return future

        here.store.append = unsteady
        outcome = await asyncio.wait_for(here.lead.run(fan(30), run_id="twice"), 60)
        assert outcome.ok
        entries = here.store.read("twice")
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert verify(entries) == []
        assert len(starts(here.store, "twice")) == 30


async def test_a_fork_of_the_log_is_found_and_parks_the_run(temporal, tmp_path):
    begun, go_on = asyncio.Event(), asyncio.Event()
    calls = []

    @worker
    async def slow() -> int:
        calls.append(1)
        begun.set()
        await go_on.wait()
        return 1

    steps = [{"id": "a", "worker": "slow"}, {"id": "b", "worker": "slow", "depends_on": ["a"]}]
    async with on_temporal(temporal, tmp_path / "l.db", [slow]) as here:
        running = asyncio.create_task(here.lead.run({"steps": steps}, run_id="forked"))
        await asyncio.wait_for(begun.wait(), 20)
        await asyncio.sleep(1)  # the log has caught up
        entries = here.store.read("forked")
        last, body = entries[-1], encode(ev.RunPaused("mallory", "a false event"))
        forged = link(last.hash, "forked", last.seq + 1, last.at, ev.EVENT_VERSION, body)
        entry = Entry("forked", last.seq + 1, last.at, ev.EVENT_VERSION, body, forged)
        await here.store.append("forked", last.seq, [entry])
        go_on.set()
        handle = here.client.get_workflow_handle(workflow_id(here.cluster.ways.prefix, "forked"))
        for _ in range(100):
            place = await handle.query("leadhand.place")
            if place["fork"]:
                break
            await asyncio.sleep(0.1)
        assert "not what its workflow wrote" in place["fork"]
        assert here.store.read("forked")[-1].hash == forged  # nothing was written over it
        assert len(calls) <= 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await handle.terminate()
    assert GENESIS not in (last.hash, forged)
