"""What a host does when a commit fails, and what it never tells too early."""

import asyncio

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.effects import Move
from leadhand.core.host_events import StopAllRequested
from leadhand.core.policy import Policy
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import Bug, Fenced, StoreFull
from leadhand.planners.document import DocumentPlanner
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ManualClock, scripted
from leadhand.workers.registry import Registry

PLAN = {"goal": "g", "steps": [{"id": "a", "worker": "w", "not_before": "2099-01-01T00:00:00Z"}]}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """A full disk is looked at often, so that nobody waits."""
    monkeypatch.setattr("leadhand.engine.host.SPACE_LOOK_S", 0.001)


async def hosted(store):
    """A host with a run that waits for a day long from now."""
    host = EmbeddedHost(store, clock=ManualClock())
    await settle(store, host.open())
    workers = Registry([scripted("w")])
    started = ev.RunStarted(
        run="r",
        goal="g",
        policy=Policy(),
        planner="document",
        catalog=list(workers.catalog().workers.values()),
    )
    run = await settle(store, host.start(started, workers, DocumentPlanner(PLAN)))
    return host, run


async def settle(store, work):
    """Let something finish that commits along the way."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        store.commit()
    return task.result()


def pause(state, _now):
    return commands.pause(state, "me")


def resume(state, _now):
    return commands.resume(state, "me")


def kinds(store):
    return [entry.body.split(b'"')[3].decode() for entry in store.read("r")]


async def test_what_was_said_is_said_again_in_the_order_it_was_said():
    """Two batches fail together: pause, then resume, must not become resume, then pause."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    said = [run.submit(pause, wait=True)]
    await asyncio.sleep(0)
    said.append(run.submit(resume, wait=True))
    await asyncio.sleep(0)
    store.fail_next(StoreFull("full"))
    await settle(store, asyncio.gather(*said))
    assert kinds(store)[-2:] == ["RunPaused", "RunResumed"]
    assert not run.state.paused
    await host.close()


async def test_nobody_is_told_of_what_is_not_durable():
    """Whoever says what was said already hears back when the first word is on disk, not before."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    first = run.submit(pause, wait=True)
    await asyncio.sleep(0)
    second = run.submit(pause, wait=True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    assert not second.done()
    await settle(store, asyncio.gather(first, second))
    assert kinds(store).count("RunPaused") == 1
    await host.close()


async def test_patience_with_a_full_disk_starts_anew():
    """Space was found in between: half a minute later another full disk is a new one."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    for word in (pause, resume):
        store.fail_next(StoreFull("full"))
        await settle(store, run.submit_and_wait(word))
        host._clock.advance(60)
    assert host.failed is None
    await host.close()


async def test_a_stop_all_that_fails_can_be_said_again():
    """The host's own stream is as it is on disk, whatever was meant."""
    store = MemoryStore(auto=False)
    host, _ = await hosted(store)
    store.fail_next(StoreFull("full"))
    with pytest.raises(StoreFull):
        await settle(store, host.tell_host(StopAllRequested("me")))
    assert not host.shared.stopped
    await settle(store, host.tell_host(StopAllRequested("me")))
    assert host.shared.stopped
    await host.close()


async def test_taking_a_run_up_twice_is_harmless():
    """`resume` on a run that this host drives already changes nothing."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    before = kinds(store)
    both = [host.resume("r", run.workers, run.planner) for _ in range(2)]
    await settle(store, asyncio.gather(*both))
    assert kinds(store) == before
    assert host.failed is None
    await host.close()


async def test_a_replaced_host_stops():
    """Another owner: the first append says so, and that is the end."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    store.beside().claim()
    with pytest.raises(Fenced):
        await settle(store, run.submit_and_wait(pause))
    assert isinstance(host.failed, Fenced)
    with pytest.raises(Fenced):
        await run.submit_and_wait(resume)
    await host.close()


async def test_whoever_waits_hears_of_our_own_mistakes():
    """An input that breaks the core stops the host, and nobody is left waiting."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    with pytest.raises(Bug):
        await settle(store, run.submit_and_wait(lambda _state, _now: Move([ev.RunHosted(0)], [])))
    assert isinstance(host.failed, Bug)
    await host.close()


async def test_an_ended_run_is_settled_at_once():
    """Resuming what has ended returns."""
    store = MemoryStore(auto=False)
    host, run = await hosted(store)
    await settle(
        store, run.submit_and_wait(lambda state, now: commands.cancel(state, "me", "", now))
    )
    assert await settle(store, run.wait_idle()) == "cancelled"
    await host.close()
    again = EmbeddedHost(store.beside(), clock=ManualClock())
    await settle(again.store, again.open())
    taken = await again.resume("r", run.workers, run.planner)
    assert await asyncio.wait_for(taken.wait_idle(), 60) == "cancelled"
    await again.close()
