"""A worker that blocks the loop of its host: what has ended meanwhile is not found overdue."""

import time

import pytest

from leadhand import Lead, worker
from leadhand.workers.declared import declared_workers


@pytest.mark.real
async def test_an_attempt_that_ended_while_the_loop_was_blocked_has_not_timed_out(tmp_path):
    """It is not repeated: its deadline was kept, and only its report could not be read."""
    table = {"command": ["sleep", "0.2"], "timeout": "2 s", "risk": "low", "effects": ["world"]}
    commands = list(declared_workers({"calm": table}))

    @worker(idempotent=True)
    async def blocks() -> None:
        time.sleep(3)

    lead = Lead([*commands, blocks], store=tmp_path / "x.db")
    steps = [{"id": "c", "worker": "calm"}, {"id": "b", "worker": "blocks"}]
    outcome = await lead.run({"goal": "g", "steps": steps})
    assert outcome.status == "succeeded"
    assert outcome.steps["c"].attempts == 1
