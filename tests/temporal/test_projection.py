"""The log as the workflow's projection: each event once and in order, however often it is tried.

Batches come as Temporal brings them: one is tried until it is answered, also when it was written,
and the answer lost, and also while an earlier try of it is still under way on another machine.
"""

import asyncio
import random
import threading
from contextlib import asynccontextmanager

import msgspec
import pytest
from temporalio.exceptions import ApplicationError

from leadhand.audit.chain import GENESIS, link, verify
from leadhand.codec.events import encode
from leadhand.core import events as ev
from leadhand.errors import StoreError
from leadhand.stores.sqlite.store import SqliteStore
from leadhand.temporal.activities import EngineActivities
from leadhand.temporal.messages import FORK, LogBatch, LogLine
from leadhand.workers.registry import Registry


def lines(run: str, count: int, head: bytes = GENESIS, after: int = 0) -> list[LogLine]:
    """A log as a workflow numbers, dates and chains it."""
    found = []
    for seq in range(after + 1, after + count + 1):
        body = encode(ev.RunPaused("ann", f"{seq}"))
        head = link(head, run, seq, seq, ev.EVENT_VERSION, body)
        found.append(LogLine(seq, seq, ev.EVENT_VERSION, msgspec.Raw(body), head.hex()))
    return found


def cut(all_lines: list[LogLine], dice: random.Random) -> list[list[LogLine]]:
    """In batches."""
    batches, at = [], 0
    while at < len(all_lines):
        size = dice.randint(1, 7)
        batches.append(all_lines[at : at + size])
        at += size
    return batches


@asynccontextmanager
async def engine_on(path):
    store = SqliteStore(path)
    store.claim()
    yield EngineActivities(store, Registry([]), planner=lambda _state: None), store
    await store.close()


def unsteady(store, dice: random.Random) -> None:
    """Appends that are refused before they are written, or whose answer is lost afterwards."""
    append = store.append

    def tried(run, expected, entries, summary=None, *, alone=False):
        luck = dice.random()
        loop = asyncio.get_running_loop()
        if luck < 0.3:
            lost = loop.create_future()
            lost.set_exception(StoreError("cannot be reached"))
            return lost
        future = append(run, expected, entries, summary, alone=alone)
        if luck < 0.6:
            lost = loop.create_future()
            future.add_done_callback(lambda _: lost.set_exception(StoreError("is not one of")))
            return lost
        return future

    store.append = tried


async def project(engine: EngineActivities, batch: LogBatch, dice: random.Random) -> None:
    """As Temporal does it: again and again; sometimes while another try is under way."""
    while True:
        tries = [engine.project(batch) for _ in range(dice.choice((1, 1, 2, 3)))]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        for end in ends:
            if isinstance(end, ApplicationError):
                raise end
        if any(end is None for end in ends):
            return


@pytest.mark.parametrize("seed", range(12))
async def test_every_event_is_written_once_and_in_order(seed, tmp_path):
    dice = random.Random(seed)
    wanted = {run: lines(run, dice.randint(5, 60)) for run in ("one", "two", "three")}

    async def written(engine: EngineActivities, run: str) -> None:
        done: list[LogBatch] = []
        for each in cut(wanted[run], dice):
            done.append(LogBatch(run, each))
            await project(engine, done[-1], dice)
            if dice.random() < 0.3:  # a machine wakes that was given up
                await project(engine, dice.choice(done), dice)

    async with engine_on(tmp_path / "l.db") as (engine, store):
        unsteady(store, dice)
        await asyncio.gather(*(written(engine, run) for run in wanted))
        for run, meant in wanted.items():
            entries = store.read(run)
            assert [(each.seq, each.hash.hex()) for each in entries] == [
                (each.seq, each.hash) for each in meant
            ]
            assert verify(entries) == []


@pytest.mark.parametrize("what", ["another event", "a longer log", "a gap", "another beginning"])
async def test_a_fork_is_found_and_nothing_is_written_over_it(what, tmp_path):
    meant = lines("run", 6)
    async with engine_on(tmp_path / "l.db") as (engine, store):
        await engine.project(LogBatch("run", meant[:3]))
        head = bytes.fromhex(meant[2].hash)
        other = [line.hash for line in lines("run", 2, link(head, "run", 9, 9, 1, b"x"), 3)]
        forged = lines("run", 2, head, 3)
        match what:
            case "another event":
                batch = [msgspec.structs.replace(meant[2], hash=other[0])]
            case "a longer log":
                await engine.project(LogBatch("run", meant[3:5]))
                changed = msgspec.structs.replace(forged[1], hash=other[1])
                batch = [forged[0], changed]
            case "a gap":
                batch = meant[4:]
            case _:
                batch = lines("run", 2, link(GENESIS, "run", 7, 7, 1, b"y"))
        before = store.read("run")
        with pytest.raises(ApplicationError) as found:
            await engine.project(LogBatch("run", batch))
        assert found.value.type == FORK
        assert found.value.non_retryable
        assert store.read("run") == before


async def test_whoever_listens_is_told_after_it_is_written(tmp_path):
    async with engine_on(tmp_path / "l.db") as (engine, store):
        told = []
        engine._on_notice = lambda kind, run, text: told.append((kind, text, len(store.read(run))))
        batch = LogBatch("run", lines("run", 3), notices=[("ended", "it is over")])
        await engine.project(batch)
        assert told == [("ended", "it is over", 3)]


async def test_a_log_that_is_away_holds_up_nothing_but_what_is_written_to_it(tmp_path):
    """Steps on the same machine go on heartbeating, and the process says that it is alive."""
    async with engine_on(tmp_path / "l.db") as (engine, store):
        back, header = threading.Event(), store.header

        def slow(run):
            assert back.wait(30)
            return header(run)

        store.header, store.remote = slow, True
        writing = asyncio.create_task(engine.project(LogBatch("r", lines("r", 3))))
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert not writing.done()
        back.set()
        await writing
        assert len(store.read("r")) == 3
