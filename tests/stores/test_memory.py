"""What the store in memory offers beyond the contract: time, faults and crashes on command."""

import asyncio

import pytest

from leadhand.errors import Bug, Fenced, StoreBroken, StoreError, StoreFull
from leadhand.stores.memory import MemoryStore
from tests.stores.entries import chained

LOG = chained("r", 6)


def opened(*, auto: bool = True) -> MemoryStore:
    store = MemoryStore(auto=auto)
    store.claim()
    return store


async def test_appends_wait_for_a_commit():
    """Not acknowledged, not to be read; then in order, as many as wanted, in one batch."""
    store = opened(auto=False)
    appends = [store.append("r", i, LOG[i : i + 1]) for i in range(4)]
    await asyncio.sleep(0)
    assert store.pending == 4
    assert store.read("r") == []
    store.commit(2)
    assert [append.done() for append in appends] == [True, True, False, False]
    assert store.read("r") == LOG[:2]
    store.commit()
    await asyncio.gather(*appends)
    assert store.read("r") == LOG[:4]
    assert [(batch.first, batch.last) for batch in store.batches()] == [(1, 2), (3, 4)]
    store.commit()
    assert len(store.batches()) == 2


async def test_a_crash_keeps_what_was_committed():
    """The old store says nothing any more; its pending appends never happened."""
    old = opened(auto=False)
    first = old.append("r", 0, LOG[:1])
    old.commit()
    await first
    lost = old.append("r", 1, LOG[1:2])
    ref = old.put_artifact(b"data")
    new = old.reopen()
    assert new.read("r") == LOG[:1]
    assert new.get_artifact(ref) == b"data"
    old.commit()
    assert not lost.done()
    assert new.claim() == 2
    again = new.append("r", 1, LOG[1:3])
    new.commit()
    await again
    late = old.append("r", 3, LOG[3:4])
    old.commit()
    with pytest.raises(StoreError, match="crashed"):
        await late
    with pytest.raises(StoreError, match="crashed"):
        old.claim()


async def test_a_snapshot_goes_its_own_way():
    """Both can be written to; neither sees the other."""
    store = opened()
    await store.append("r", 0, LOG[:2])
    twin = store.snapshot()
    twin.claim()
    await twin.append("r", 2, LOG[2:3])
    await store.append("s", 0, chained("s"))
    assert store.read("r") == LOG[:2]
    assert twin.header("s") is None
    assert twin.read("r") == LOG[:3]


async def test_the_next_append_fails_on_command():
    """Once; a full disk leaves nothing behind and the store usable."""
    store = opened()
    store.fail_next(StoreFull("full"))
    with pytest.raises(StoreFull):
        await store.append("r", 0, LOG[:1])
    assert store.runs() == []
    await store.append("r", 0, LOG[:1])


@pytest.mark.parametrize("written", [True, False])
async def test_a_broken_store_stays_broken(written):
    """Whether the entries are there or not is what nobody knows, until it is opened again."""
    store = opened()
    store.fail_next(StoreBroken("lost the disk"), written=written)
    for _ in range(2):
        with pytest.raises(StoreBroken):
            await store.append("r", 0, LOG[:1])
    with pytest.raises(StoreBroken):
        store.claim()
    assert store.reopen().read("r") == (LOG[:1] if written else [])


async def test_a_wrong_append_does_not_use_up_the_fault():
    """The fault waits for one that would have been written."""
    store = opened()
    store.fail_next(Fenced("gone"))
    with pytest.raises(Bug):
        await store.append("r", 0, [])
    with pytest.raises(Fenced):
        await store.append("r", 0, LOG[:1])
    store.claim()
    await store.append("r", 0, LOG[:1])
