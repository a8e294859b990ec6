"""A disk that is full for a moment: a run is over once its end is on the disk, not before."""

import asyncio

import pytest

from leadhand import Lead, worker
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.engine import host as hosting
from tests.support.disk import Disk


@pytest.mark.real
async def test_a_run_whose_end_is_not_on_the_disk_yet_stays_loaded(tmp_path, monkeypatch):
    """A host that sweeps meanwhile does not unload it, for nothing would ever write its end."""
    monkeypatch.setattr(hosting, "SPACE_LOOK_S", 0.02)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @worker(idempotent=True)
    async def act() -> None:
        begun.set()
        await go_on.wait()

    with Disk() as disk:
        lead = Lead([act], store=tmp_path / "x.db")
        async with lead.hosting() as host:
            run = await lead.begin(host, {"goal": "g", "steps": [{"id": "a", "worker": "act"}]})
            async with asyncio.timeout(30):
                await begun.wait()
                disk.fail_write(1, "full", match="*-wal")
                go_on.set()
                while host.full_since is None:
                    await asyncio.sleep(0.01)
            assert run.state.ended is not None, "the state is ahead of the log"
            host.forget(run)
            disk.heal()
            async with asyncio.timeout(30):
                assert await run.wait_idle() == "succeeded"
            last = host.store.read(run.id)[-1]
            assert isinstance(decode(last.version, last.body), ev.RunEnded)
            host.forget(run)
            assert run.id not in host.runs
