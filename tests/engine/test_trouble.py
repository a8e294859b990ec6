"""What goes wrong around a run must not go wrong in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from leadhand import Goal, Lead, NeedsInfo, worker
from leadhand.app.commands import send_command
from leadhand.errors import Conflict, StoreBroken, UsageError


def steps(*docs: dict[str, Any]) -> dict[str, Any]:
    """A plan document."""
    return {"goal": "g", "steps": list(docs)}


def test_a_planner_that_exits_is_a_failed_planner(tmp_path: Path) -> None:
    """`sys.exit` in a planner or a check ends nothing but that call."""

    @worker(checks={"leave": lambda _data: sys.exit(0)})
    async def w() -> int:
        return 1

    def leaving(_view: object) -> None:
        sys.exit(0)

    outcome = Lead([w], leaving, store=tmp_path / "x.db").run_sync(Goal(text="x"))
    assert outcome.status == "waiting"
    assert "SystemExit" in outcome.waiting_for[0].text
    doc = {"id": "a", "worker": "w", "success_criteria": "leave", "failure_action": "abort"}
    assert Lead([w], store=tmp_path / "x.db").run_sync(steps(doc)).status == "failed"


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_that_is_taken_away_is_no_success(tmp_path: Path, how: str) -> None:
    """Nothing is acknowledged that went into a file nobody can find again."""
    path = tmp_path / "x.db"

    @worker
    async def take_away() -> None:
        if how == "replaced":
            shutil.copy(path, tmp_path / "other.db")
            os.replace(tmp_path / "other.db", path)  # noqa: PTH105 - atomically
        else:
            path.unlink()

    with pytest.raises(StoreBroken, match="removed or replaced"):
        Lead([take_away], store=path).run_sync(steps({"id": "a", "worker": "take_away"}))


def test_a_listener_that_raises_harms_nobody(tmp_path: Path) -> None:
    """The steps that were to start with a notice still start."""

    @worker
    async def asks() -> None:
        raise NeedsInfo("which one?")

    @worker
    async def fine() -> str:
        return "ok"

    def listener(*_args: str) -> None:
        raise RuntimeError("no")

    lead = Lead([asks, fine], store=tmp_path / "x.db", on_notice=listener)
    docs = [{"id": "a", "worker": "asks"}, {"id": "b", "worker": "fine"}]
    outcome = lead.run_sync({**steps(*docs), "limits": {"concurrency": 1}})
    assert outcome.status == "waiting"
    assert outcome.steps["b"].status == "succeeded"


def test_half_characters_are_written_escaped(tmp_path: Path) -> None:
    """Texts that are no Unicode, from exceptions or people, stop nothing."""

    @worker
    async def w() -> int:
        return 1

    def odd(_view: object) -> None:
        raise ValueError("half \ud800")

    outcome = Lead([w], odd, store=tmp_path / "x.db").run_sync(Goal(text="x"))
    assert outcome.status == "waiting"

    async def story() -> None:
        lead = Lead([w], store=tmp_path / "x.db", actor="odd \udcff")
        plan = {**steps({"id": "a", "worker": "w"}), "risk_level": "high"}
        waiting = await lead.run(plan)
        await send_command(
            tmp_path / "x.db", waiting.run, "cancel", actor="a\udcff", reason="b\udcff"
        )
        assert (await lead.resume(waiting.run)).status == "cancelled"

    asyncio.run(story())


def test_run_ids_are_names_and_used_once(tmp_path: Path) -> None:
    """A run id is a plain name, and a second run of that name is refused."""

    @worker
    async def w() -> int:
        return 1

    lead = Lead([w], store=tmp_path / "x.db")
    plan = steps({"id": "a", "worker": "w"})
    assert lead.run_sync(plan, run_id="one").ok
    with pytest.raises(Conflict, match="one exists already"):
        lead.run_sync(plan, run_id="one")
    for bad in ("$host", "\x1b[31m", "a b", "x" * 101, "\ud800"):
        with pytest.raises(UsageError, match="no run id"):
            lead.run_sync(plan, run_id=bad)


def test_one_lead_in_several_loops(tmp_path: Path) -> None:
    """Each `asyncio.run` is a loop of its own, and a Lead works in one after the other."""

    @worker
    async def w() -> int:
        return 1

    lead = Lead([w], store=tmp_path / "x.db")
    plan = steps({"id": "a", "worker": "w"})

    async def both() -> list[bool]:
        return [each.ok for each in await asyncio.gather(lead.run(plan), lead.run(plan))]

    assert asyncio.run(both()) == [True, True]
    assert asyncio.run(both()) == [True, True]


def test_a_step_that_may_not_be_repeated_is_not_rerouted(tmp_path: Path) -> None:
    """`idempotent: false` in so many words keeps a done step from an alternative."""
    calls: list[str] = []

    @worker
    async def first() -> int:
        calls.append("first")
        return 0

    @worker
    async def second() -> int:
        calls.append("second")
        return 1

    doc = {
        "id": "a",
        "worker": "first",
        "alternatives": ["second"],
        "idempotent": False,
        "success_criteria": "data == 1",
    }
    assert Lead([first, second], store=tmp_path / "x.db").run_sync(steps(doc)).status == "waiting"
    assert calls == ["first"]
