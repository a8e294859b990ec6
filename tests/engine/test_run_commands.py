"""What people say to a run from Python: pause, hold, release, redo, cancel."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from leadhand import Lead, Permanent, worker
from leadhand.errors import Conflict, UsageError
from leadhand.stores.memory import MemoryStore

FLAG = "there.txt"


def lead_in(folder: Path, store: Any = None) -> Lead:
    """A lead whose worker needs a file."""

    @worker
    def needs_file() -> str:
        if not (folder / FLAG).exists():
            raise Permanent("no file")
        return "there"

    @worker
    async def nap() -> str:
        await asyncio.sleep(0.3)
        return "rested"

    @worker
    def say(text: str) -> str:
        return text

    return Lead([needs_file, nap, say], store=store or folder / "runs.db", actor="ann")


PLAN = {
    "goal": "g",
    "steps": [
        {"id": "a", "worker": "needs_file", "failure_action": "abort"},
        {"id": "b", "worker": "say", "parameters": {"text": "end"}, "depends_on": ["a"]},
    ],
}
NAP = {
    "goal": "g",
    "steps": [
        {"id": "nap", "worker": "nap"},
        {"id": "b", "worker": "say", "parameters": {"text": "end"}, "depends_on": ["nap"]},
        {"id": "c", "worker": "say", "parameters": {"text": "too"}, "depends_on": ["nap"]},
    ],
}


@pytest.mark.parametrize("kind", ["file", "memory"])
async def test_a_failed_run_is_reopened(tmp_path: Path, kind: str) -> None:
    """By the step that failed, with a reason; what follows it runs then."""
    store = MemoryStore() if kind == "memory" else None
    lead = lead_in(tmp_path, store)
    async with lead.hosting() if kind == "memory" else _Nothing():
        failed = await lead.run(PLAN)
        assert (failed.status, failed.steps["b"].status) == ("failed", "cancelled")
        (tmp_path / FLAG).touch()
        with pytest.raises(UsageError, match="a reason is required"):
            await lead.redo(failed.run, "a", "")
        await lead.redo(failed.run, "a", "the file is there now")
        done = await lead.resume(failed.run)
        assert (done.status, done.result) == ("succeeded", "end")
        with pytest.raises(Conflict, match=r"has ended \(succeeded\)"):
            await lead.pause(failed.run)


class _Nothing:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


async def test_what_was_taken_back_does_not_go_on(tmp_path: Path) -> None:
    """Its effects are gone, so the plan is to be run again."""
    undone = {"worker": "say", "parameters": {"text": "undone"}}
    plan = {
        "goal": "g",
        "steps": [
            {"id": "x", "worker": "say", "parameters": {"text": "did"}, "undo": undone},
            {"id": "a", "worker": "needs_file", "depends_on": ["x"], "failure_action": "abort"},
        ],
    }
    lead = lead_in(tmp_path)
    failed = await lead.run(plan)
    await lead.rollback(failed.run)
    with pytest.raises(Conflict, match=f"was taken back by run {failed.run}-rollback"):
        await lead.redo(failed.run, "a", "it is there now")


async def test_pause_hold_and_release_while_it_runs(tmp_path: Path) -> None:
    """By another Lead on the same database, through the host that runs it."""
    lead, other = lead_in(tmp_path), lead_in(tmp_path)
    task = asyncio.create_task(lead.run(NAP, run_id="r1"))
    await asyncio.sleep(0.1)
    assert await other.hold("r1", "b", "c", reason="not yet") == "q1"
    waits = await task
    assert (waits.status, waits.waiting_for[0].kind) == ("waiting", "hold")
    assert await other.release("r1", "b") == ["b", "c"]
    await lead.pause("r1", "lunch")
    async with lead.hosting() as host:
        assert host.load("r1", lead.registry).state.paused
    done = await lead.resume("r1")
    assert (done.status, done.steps["c"].data) == ("succeeded", "too")


async def test_a_pause_is_heard_by_the_run_itself(tmp_path: Path) -> None:
    """The one that waits for it returns, and `resume` lifts it."""
    lead = lead_in(tmp_path)
    task = asyncio.create_task(lead.run(NAP, run_id="r1"))
    await asyncio.sleep(0.1)
    await lead.pause("r1")
    assert (await task).status == "paused"
    assert (await lead.resume("r1")).ok


async def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    """One clear message, and no database is made for it."""
    lead = lead_in(tmp_path)
    with pytest.raises(UsageError, match="there is no run r1"):
        await lead.pause("r1")
    assert not (tmp_path / "runs.db").exists()
    await lead.run(NAP)
    with pytest.raises(UsageError, match="there is no run r1"):
        await lead.cancel("r1")
