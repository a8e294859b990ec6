"""The simulated loop: virtual time, seeded order, processes that can be killed, no way out."""

import asyncio
from random import Random

import pytest

from leadhand.core.events import RunStarted
from leadhand.core.policy import Policy
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.testing import Deadlock, Escaped, SimLoop
from tests.simulation.snapshot import difference, snapshot


@pytest.fixture
def loop():
    loop = SimLoop(Random(1))
    yield loop
    loop.close()


def test_time_jumps_to_the_next_timer(loop):
    """An hour takes no time."""
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600


def test_a_deadlock_is_found(loop):
    """Nothing ready, no timer: it says so, and does not hang."""
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


@pytest.mark.parametrize(
    "escape",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda _loop: asyncio.create_subprocess_exec("true"),
        lambda _loop: asyncio.open_connection("127.0.0.1", 9),
        lambda _loop: asyncio.to_thread(print),
        lambda loop: loop.getaddrinfo("localhost", 80),
    ],
)
def test_nothing_leaves(loop, escape):
    """Threads, processes and sockets raise."""

    async def leave():
        await escape(asyncio.get_running_loop())

    with pytest.raises(Escaped):
        loop.run_until_complete(leave())


def order(seed, *, shuffle=True):
    loop = SimLoop(Random(seed), shuffle=shuffle)
    seen = []

    async def note(number):
        for _ in range(2):
            await asyncio.sleep(0)
            seen.append(number)

    async def main():
        await asyncio.gather(*(note(number) for number in range(6)))

    loop.run_until_complete(main())
    loop.close()
    return seen


def test_the_seed_decides_the_order():
    """The same seed, the same order; another seed, another one; without shuffling, asyncio's."""
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5
    assert order(1, shuffle=False) == [0, 1, 2, 3, 4, 5] * 2


def test_callbacks_of_one_object_keep_their_order():
    """What asyncio promises is kept where it is relied upon."""
    for seed in range(20):
        loop = SimLoop(Random(seed))
        seen = []
        for number in range(5):
            loop.call_soon(seen.append, number)
        while loop.step():
            pass
        loop.close()
        assert seen == [0, 1, 2, 3, 4]


def test_a_killed_process_never_runs_again(loop):
    """Not even its `finally`; the others go on."""
    seen = []

    async def work(name):
        try:
            await asyncio.sleep(1)
            seen.append(name)
        finally:
            seen.append(f"{name} ends")

    loop.run_in(1, work("one"))
    loop.run_in(2, work("two"))
    loop.step()
    loop.step()
    loop.kill(1)
    while loop.step():
        pass
    assert seen == ["two", "two ends"]
    assert len(loop.unfinished(1)) == 1
    assert not loop.unfinished(2)


def test_a_stalled_process_goes_on_later(loop):
    """It misses nothing, it is only late."""
    seen = []

    async def work():
        await asyncio.sleep(1)
        seen.append(loop.time())

    loop.run_in(1, work())
    loop.stall(1)
    loop.call_later(5, loop.resume, 1)
    while loop.step():
        pass
    assert seen == [6.0]


def test_what_nobody_caught_is_kept(loop):
    """An exception in a callback does not vanish."""
    loop.call_soon(lambda: 1 / 0)
    loop.step()
    assert "ZeroDivisionError" in loop.troubles[0]


def test_a_snapshot_shows_where_states_differ():
    """Equal states say nothing; others say where."""
    one, other = State(), State()
    started = RunStarted(run="r", goal="g", policy=Policy(), planner="p", catalog=[])
    for state in (one, other):
        evolve(state, started, 1)
    assert difference(one, other) == ""
    other.paused = True
    assert "paused" in difference(one, other)
    assert snapshot(one)["run"] == "r"
