"""Runs beside a host: one database, several Leads, each as a process would have it.

`tests/acceptance/test_cli_guest_runs.py` has the same with real processes, kills and Ctrl-C.
"""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from leadhand import Lead, worker
from leadhand.app.reader import Reader
from leadhand.app.verification import verify_database
from leadhand.audit.anchors import Anchoring
from leadhand.core.commands import Command
from leadhand.core.events import RunHosted
from leadhand.core.host_events import HOST_STREAM, RunJoined
from leadhand.engine.guest.connection import GuestLine
from leadhand.engine.guest.host_side import FORMS
from leadhand.engine.host_socket import socket_path
from leadhand.errors import Conflict, Fenced


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"goal": "a test", "steps": list(steps), **more}


def beside(workers: list[Any], store: Path, **more: Any) -> Lead:
    """A Lead as the process of a run beside the host has it."""
    lead = Lead(workers, store=store, **more)
    lead.beside = True
    return lead


def presiding(store: Path) -> Lead:
    """A Lead as a server has it, which gets the database from a run's process."""
    lead = Lead([], store=store)
    lead.presides = True
    return lead


def events(store: Path, run: str) -> list[Any]:
    reader = Reader(store)
    try:
        return [event for _, event in reader.events(run)]
    finally:
        reader.store.close_reader()


def assert_sound(store: Path) -> None:
    """Every chain and every rule holds, over all runs."""
    reader = Reader(store)
    try:
        verdict = verify_database(reader, store, Anchoring())
        assert not verdict.problems, verdict.problems
    finally:
        reader.store.close_reader()


async def test_a_run_beside_a_host_is_written_by_it_and_hears_what_people_say(tmp_path):
    """The log is the host's, the workers are the guest's, and words reach the run."""
    store = tmp_path / "x.db"
    go = asyncio.Event()

    @worker(risk="high")
    async def wait() -> str:
        await go.wait()
        return "done"

    async with Lead([], store=store).hosting() as host:
        guest = beside([wait], store)
        task = asyncio.create_task(guest.run(plan({"id": "a", "worker": "wait"}), run_id="r1"))
        outcome = await task
        assert outcome.status == "waiting"
        assert [type(e).__name__ for e in events(store, "r1")][1] == "RunHosted"
        assert any(isinstance(e, RunJoined) and e.run == "r1" for e in events(store, HOST_STREAM))
        assert not host.in_flight
    assert_sound(store)


@pytest.mark.slow
@pytest.mark.parametrize("grace_s", [0.0, 1.0])
async def test_a_host_that_ends_and_comes_back_loses_no_step(tmp_path, monkeypatch, grace_s):
    """Hosts open and close at any moment, the run's process is the host in between and steps back:
    each step runs once, and the log is sound."""
    monkeypatch.setattr("leadhand.engine.guest.process.GRACE_S", grace_s)
    store, ran, chance = tmp_path / "x.db", list[str](), random.Random(7)

    @worker
    async def step(n: int) -> int:
        ran.append(f"s{n}")
        await asyncio.sleep(chance.random() / 50)
        return n

    steps = [
        {"id": f"s{n}", "worker": "step", "parameters": {"n": n}}
        | ({"depends_on": [f"s{n - 3}"]} if n >= 3 else {})
        for n in range(300)
    ]
    guest = beside([step], store)
    task = asyncio.create_task(guest.run(plan(*steps), run_id="r1"))
    hosts = 0
    while not task.done():
        async with presiding(store).hosting():
            hosts += 1
            await asyncio.sleep(chance.random() / 5)
        await asyncio.sleep(chance.random() / 5)
    assert (await task).ok
    assert sorted(ran) == sorted(f"s{n}" for n in range(300)), "each once"
    assert hosts > 1
    hosted = [event for event in events(store, "r1") if isinstance(event, RunHosted)]
    assert len(hosted) == 1, "nothing was declared lost"
    assert_sound(store)


async def test_guests_of_one_host_do_not_mix(tmp_path):
    """Workers of one name, each the one of its own run; the host has none of them."""
    store = tmp_path / "x.db"

    def made(word: str) -> Any:
        @worker(name="tell")
        async def tell() -> str:
            await asyncio.sleep(0.01)
            return word

        return tell

    async with Lead([], store=store).hosting():
        leads = [beside([made(word)], store) for word in ("red", "blue", "green")]
        done = await asyncio.gather(
            *(each.run(plan({"id": "t", "worker": "tell"})) for each in leads)
        )
    assert [each.result for each in done] == ["red", "blue", "green"]
    assert_sound(store)


async def test_a_run_that_is_driven_is_taken_by_no_other(tmp_path):
    """Neither by a second process, nor by the host that it writes through."""
    store = tmp_path / "x.db"
    go = asyncio.Event()

    @worker
    async def wait() -> str:
        await go.wait()
        return "done"

    async with Lead([wait], store=store).hosting() as host:
        guest = beside([wait], store)
        task = asyncio.create_task(guest.run(plan({"id": "a", "worker": "wait"}), run_id="r1"))
        while "r1" not in host.runs or not host.runs["r1"].state.in_flight:
            await asyncio.sleep(0.01)
        with pytest.raises(Conflict, match="run r1 is hosted by process"):
            await beside([wait], store).resume("r1")
        with pytest.raises(Conflict, match="run r1 is hosted by process"):
            await host.resume("r1", guest.registry, None)
        go.set()
        assert (await task).ok
    assert_sound(store)


async def heard_out(line: GuestLine) -> None:
    """Until the other side hangs up."""
    while await line.receive() is not None:
        pass


async def ended(line: GuestLine) -> None:
    line.close()
    await line.ended()


async def joined(store: Path, **hello: Any) -> tuple[GuestLine, dict[str, Any]]:
    reader, writer = await asyncio.open_unix_connection(str(socket_path(store)))
    first = {"verb": "join", "pid": os.getpid(), "forms": FORMS, **hello}
    writer.write(json.dumps(first).encode() + b"\n")
    line = GuestLine(reader, writer)
    frame = await line.receive()
    assert frame is not None
    return line, frame


async def test_a_guest_writes_to_its_own_runs_and_says_nothing_else(tmp_path):
    """Whatever comes over the line, the host and the other runs are unharmed."""
    store = tmp_path / "x.db"

    @worker
    async def say() -> str:
        return "x"

    lead = Lead([say], store=store)
    async with lead.hosting():
        await lead.run(plan({"id": "a", "worker": "say"}), run_id="r1")
        line, frame = await joined(store, forms=[0, 0])
        assert "another version" in frame["error"]
        await ended(line)
        line, frame = await joined(store)
        assert frame["kind"] == "welcome"
        listening = asyncio.create_task(heard_out(line))
        for run in ("r1", HOST_STREAM, "r2"):
            with pytest.raises(Fenced, match="not this process's to write"):
                await line.ask("append", run=run, expected=0, entries=[])
        with pytest.raises(Exception, match="is not a run"):
            await line.ask("take", run=HOST_STREAM)
        with pytest.raises(Exception, match="not for a guest to say"):
            await line.ask("share", event='{"type":"StopAllLifted","actor":"eve"}')
        line.tell("nonsense")
        await listening  # it was let go
        await ended(line)
        assert (await lead.run(plan({"id": "a", "worker": "say"}))).ok
    assert_sound(store)


async def test_a_guest_that_writes_what_cannot_be_read_is_let_go(tmp_path):
    """Its own run is damaged, and nothing else."""
    store = tmp_path / "x.db"

    @worker
    async def say() -> str:
        return "x"

    lead = Lead([say], store=store)
    async with lead.hosting() as host:
        line, _ = await joined(store)
        listening = asyncio.create_task(heard_out(line))
        await line.ask("take", run="bad")
        entry = [1, 1, 1, '{"type":"Nonsense"}', "00" * 32]
        await line.ask("append", run="bad", expected=0, entries=[entry])
        assert host.runs["bad"].state.started is None
        await listening
        await ended(line)
        assert (await lead.run(plan({"id": "a", "worker": "say"}))).ok


async def test_a_guest_that_does_not_answer_holds_up_nobody(tmp_path, monkeypatch):
    """Whoever speaks to its run, or watches it, is told so after a while."""
    monkeypatch.setattr("leadhand.engine.guest.host_side.WORD_WAIT_S", 0.05)
    monkeypatch.setattr("leadhand.engine.guest.host_side.LIVE_WAIT_S", 0.05)
    store = tmp_path / "x.db"
    async with Lead([], store=store).hosting() as host:
        line, _ = await joined(store)
        listening = asyncio.create_task(heard_out(line))
        await line.ask("take", run="mute")
        run = host.runs["mute"]
        with pytest.raises(Conflict, match="does not answer"):
            await run.submit_and_wait(Command("pause", "ann"))
        assert await run.live("a") is None
        await ended(line)
        await listening


def test_the_socket_of_a_long_path_is_short_and_the_same_for_every_process(tmp_path, monkeypatch):
    store = tmp_path / ("long" * 30) / "leadhand.db"
    first = socket_path(store)
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("other" * 30)))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert socket_path(store) == first
    assert len(os.fsencode(first)) <= 100
