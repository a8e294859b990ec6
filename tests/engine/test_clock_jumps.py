"""The calendar is set back or forward by a day while a run goes on, and across a restart."""

import asyncio
import time
from itertools import pairwise

import pytest

from leadhand import Lead, Transient, worker
from leadhand.core import events as ev
from leadhand.testing import check, simulate, simulation
from leadhand.testing.clock import Calendar
from tests.core.driver import Drive, step

DAY_S = 86_400
SECOND = 1_000_000
JUMPS = pytest.mark.parametrize("by_s", [DAY_S, -DAY_S], ids=["forward", "back"])


@JUMPS
def test_no_deadline_and_no_pause_follows_the_calendar(by_s):
    """Both are elapsed time: a jump makes nothing overdue, and nothing wait for a day."""
    run = Drive(step("a", timeout="60s"), step("b"))
    run.fail("b", "transient")
    run.later(0.5, wall=by_s)
    assert run.state.steps["a"].status == "running"
    assert run.state.steps["b"].status == "backing_off"
    run.later(5)
    assert run.state.steps["b"].attempts == 2
    run.later(30, wall=-by_s)
    assert run.state.steps["a"].status == "running"
    run.later(30)
    assert run.last(ev.AttemptLost).step == "a"


def test_what_waits_for_a_moment_follows_the_calendar():
    """A day forward: its moment has come. A day back: it comes when the calendar says so."""
    run = Drive(step("a", not_before="23:00 UTC"))
    run.later(1, wall=DAY_S)
    assert run.state.steps["a"].status == "running"
    run = Drive(step("a", not_before="23:00 UTC"))
    run.later(1, wall=-DAY_S)
    run.later(DAY_S - 3600)
    assert run.state.steps["a"].status == "ready"
    run.later(DAY_S)
    assert run.state.steps["a"].status == "running"


@JUMPS
@pytest.mark.parametrize("crash_after", [(), (4,), (3, 6)])
def test_a_run_goes_on_as_if_nothing_had_happened(by_s, crash_after, monkeypatch):
    """Also where its host dies after the jump: the log never goes back in time."""
    calendars = []

    class Caught(Calendar):
        def __init__(self, loop):
            super().__init__(loop)
            calendars.append(self)

    monkeypatch.setattr(simulation, "Calendar", Caught)
    tries = []

    @worker(idempotent=True)
    async def jumps() -> None:
        calendars[0].offset_us += by_s * SECOND

    @worker(idempotent=True)
    async def stumbles() -> int:
        tries.append(1)
        await asyncio.sleep(1)
        if len(tries) < 3:
            raise Transient("not yet")
        return len(tries)

    steps = [
        {"id": "a", "worker": "jumps"},
        {"id": "b", "worker": "stumbles", "depends_on": ["a"], "timeout": "30s"}
        | {"retry": {"attempts": 10}},
        {"id": "c", "worker": "jumps", "depends_on": ["b"]},
    ]
    done = simulate({"goal": "g", "steps": steps}, [jumps, stumbles], crash_after=crash_after)
    assert done.outcome.status == "succeeded"
    times = [at for at, _event in done.events]
    assert all(one <= two for one, two in pairwise(times)), "the log goes back in time"
    if not crash_after:
        assert times[-1] - times[0] < 60 * SECOND
    assert not check(done.events)


async def test_lists_and_logs_follow_the_log_when_the_calendar_is_set_back(tmp_path, monkeypatch):
    """Also after a restart: what came later is created later."""
    lead = Lead([jumpless], store=tmp_path / "runs.db", actor="ann")
    plan = {"steps": [{"id": "a", "worker": "jumpless"}]}
    first = await lead.run(plan)
    real = time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: real() - DAY_S * 10**9)
        second = await lead.run(plan)
    assert [row.run for row in lead.list()] == [second.run, first.run]
    assert lead.verify()["violations"] == []


@worker
async def jumpless() -> int:
    return 1
