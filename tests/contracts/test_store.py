"""What every store promises, tried on each of them."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand.audit.chain import GENESIS, link, verify, verify_batches, verify_head
from leadhand.errors import Bug, Conflict, Fenced, StoreCorrupt, StoreError, UsageError
from leadhand.ports import Entry, RunHeader
from leadhand.stores.memory import MemoryStore
from leadhand.stores.postgres.store import PostgresStore
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import chained

KINDS = ["memory", "sqlite", "postgres"]


class Stores:
    """Opens stores on one disk, and closes them."""

    def __init__(self, kind: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.kind, self.folder, self.opened = kind, folder, []
        if kind == "postgres":
            self.address = request.getfixturevalue("postgres").new(folder)

    def open(self, *, claimed: bool = True) -> Any:
        if self.kind == "sqlite":
            store = SqliteStore(self.folder / "log.db", debug=True)
        elif self.kind == "postgres":
            store = PostgresStore(self.address, debug=True)
        else:
            store = self.opened[0].beside() if self.opened else MemoryStore()
        self.opened.append(store)
        if claimed:
            store.claim()
        return store


@pytest.fixture(params=KINDS)
async def stores(request, tmp_path):
    made = Stores(request.param, tmp_path, request)
    yield made
    for store in made.opened:
        await store.close()


@pytest.fixture
async def store(stores):
    return stores.open()


async def test_what_was_appended_is_read_back(store):
    """Every field, every byte, in order."""
    log = chained("r", 5)
    await store.append("r", 0, log[:2])
    await store.append("r", 2, log[2:])
    assert store.read("r") == log
    assert store.read("r", 3) == log[3:]
    assert store.read("r", 5) == []
    assert store.read("nobody") == []
    assert all(type(entry) is Entry and type(entry.body) is bytes for entry in store.read("r"))


async def test_a_run_has_a_header(store):
    """With the first and last time, the head, and the last summary that was given."""
    assert store.header("r") is None
    log = chained("r", 3)
    await store.append("r", 0, log[:1])
    assert store.header("r") == RunHeader("r", log[0].at, log[0].at, 1, log[0].hash, b"")
    await store.append("r", 1, log[1:2], b'{"status":"running"}')
    await store.append("r", 2, log[2:])
    expected = RunHeader("r", log[0].at, log[2].at, 3, log[2].hash, b'{"status":"running"}')
    assert store.header("r") == expected
    assert type(store.header("r")) is RunHeader


async def test_an_empty_summary_replaces_the_old_one(store):
    """None leaves it, nothing else does."""
    log = chained("r", 2)
    await store.append("r", 0, log[:1], b"old")
    await store.append("r", 1, log[1:], b"")
    assert store.header("r").summary == b""


async def test_runs_are_listed_oldest_first(store):
    """Whatever their names and later appends."""
    for run in ("zebra", "ape", "mule"):
        await store.append(run, 0, chained(run))
    await store.append("zebra", 1, chained("zebra", 2)[1:])
    assert [header.run for header in store.runs()] == ["zebra", "ape", "mule"]


async def test_appends_may_follow_each_other_without_waiting(store):
    """Each expects what the one before leaves."""
    log = chained("r", 200)
    await asyncio.gather(*[store.append("r", i, log[i : i + 1]) for i in range(200)])
    assert store.read("r") == log
    assert store.header("r").seq == 200


async def test_a_wrong_expectation_is_a_conflict(store):
    """Too low or too high; the log is as it was."""
    log = chained("r", 4)
    await store.append("r", 0, log[:2])
    for expected in (0, 1, 3):
        with pytest.raises(Conflict, match="ends at 2"):
            await store.append("r", expected, log[expected : expected + 1])
    assert store.read("r") == log[:2]


async def test_a_conflict_is_nobody_elses_trouble(store):
    """Appends of other runs in the same group go through; those behind it in its run do not."""
    good, bad = chained("good", 2), chained("bad", 3)
    results = await asyncio.gather(
        store.append("good", 0, good[:1]),
        store.append("bad", 1, bad[1:2]),
        store.append("bad", 2, bad[2:3]),
        store.append("good", 1, good[1:]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), Conflict, Conflict, type(None)]
    assert store.read("good") == good
    assert store.read("bad") == []
    assert store.header("bad") is None


async def test_a_run_that_failed_to_begin_can_begin_later(store):
    """A refused first append leaves no trace."""
    with pytest.raises(Conflict):
        await store.append("a", 1, chained("a", 2)[1:])
    await store.append("b", 0, chained("b"))
    await store.append("a", 0, chained("a"))
    assert [header.run for header in store.runs()] == ["b", "a"]


@pytest.mark.parametrize("what", ["nothing", "foreign", "gap", "late", "double", "mixed"])
async def test_entries_that_do_not_follow_are_a_bug(store, what):
    """The store does not guess what was meant."""
    log = chained("r", 3)
    entries = {
        "nothing": [],
        "foreign": chained("other"),
        "gap": [log[0], log[2]],
        "late": log[1:2],
        "double": [log[0], log[0], log[2]],
        "mixed": [log[0], chained("other", 2)[1]],
    }[what]
    with pytest.raises(Bug):
        await store.append("r", 0, entries)
    assert store.runs() == []


async def test_nothing_is_appended_without_a_claim(stores):
    """An epoch of one's own is what appends are checked against."""
    store = stores.open(claimed=False)
    with pytest.raises(Fenced):
        await store.append("r", 0, chained("r"))


async def test_each_claim_has_a_higher_epoch(stores):
    """Whoever makes it."""
    first, second = stores.open(claimed=False), stores.open(claimed=False)
    epochs = [first.claim(), second.claim(), first.claim()]
    assert epochs == sorted(set(epochs))


async def test_a_second_owner_fences_the_first(stores):
    """The first hears of it at its next append, and never writes again unless it claims."""
    first = stores.open()
    log = chained("r", 4)
    await first.append("r", 0, log[:1])
    second = stores.open()
    await second.append("r", 1, log[1:2])
    results = await asyncio.gather(
        first.append("r", 1, log[1:2]), first.append("x", 0, chained("x")), return_exceptions=True
    )
    assert [type(result) for result in results] == [Fenced, Fenced]
    with pytest.raises(Fenced):
        await first.append("r", 2, log[2:3])
    await second.append("r", 2, log[2:3])
    assert second.read("r") == first.read("r") == log[:3]
    first.claim()
    await first.append("r", 3, log[3:])
    with pytest.raises(Fenced):
        await second.append("r", 4, chained("r", 5)[4:])
    assert second.read("r") == log


async def test_what_was_committed_is_there_for_the_next_store(stores):
    """And the chains go on from it."""
    first, log = stores.open(), chained("r", 6)
    await first.append("r", 0, log[:3])
    await first.close()
    second = stores.open()
    await second.append("r", 3, log[3:])
    assert second.read("r") == log
    assert problems(second) == []


async def test_the_chains_verify(store):
    """The runs', and the one over commits."""
    for run in ("a", "b", "c"):
        log = chained(run, 30)
        await asyncio.gather(*[store.append(run, i, log[i : i + 3]) for i in range(0, 30, 3)])
    assert problems(store) == []
    assert store.batches()[-1].last == 90


def problems(store: Any) -> list[Any]:
    found = verify_batches(store.batches(), store.positions())
    for header in store.runs():
        log = store.read(header.run)
        found += verify(log) + verify_head(log, header)
    return found


async def test_follow_sees_everything_once_and_in_order(store):
    """While several runs append at once, and from the middle."""
    logs = {run: chained(run, 60) for run in "abcde"}
    seen: list[tuple[int, Entry]] = []

    async def write(run: str) -> None:
        for i in range(0, 60, 2):
            await store.append(run, i, logs[run][i : i + 2])

    async def watch(after: int) -> list[tuple[int, Entry]]:
        seen = []
        async for position, entry in store.follow(after):
            seen.append((position, entry))
            if position == 300:
                break
        return seen

    async with asyncio.timeout(30):
        seen, late, *_ = await asyncio.gather(watch(0), watch(250), *map(write, logs))
    assert [position for position, _ in seen] == list(range(1, 301))
    assert late == seen[250:]
    for run, log in logs.items():
        assert [entry for _, entry in seen if entry.run == run] == log


async def test_follow_waits_for_what_is_not_there_yet(store):
    """It neither ends nor misses it."""
    stream = store.follow()
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.05)
    assert not first.done()
    await store.append("r", 0, chained("r"))
    async with asyncio.timeout(60):
        assert await first == (1, chained("r")[0])
    await stream.aclose()


async def test_closing_ends_those_who_follow(store):
    """Instead of leaving them to wait for ever."""

    seen = asyncio.Event()

    async def watch() -> None:
        async for _entry in store.follow():
            seen.set()

    await store.append("r", 0, chained("r"))
    watching = asyncio.ensure_future(watch())
    async with asyncio.timeout(60):
        await seen.wait()
        await store.close()
        await watching


async def test_closing_finishes_what_is_queued(stores):
    """Each append has its answer, and is there."""
    store, log = stores.open(), chained("r", 50)
    appends = [store.append("r", i, log[i : i + 1]) for i in range(50)]
    await store.close()
    await asyncio.gather(*appends)
    await store.close()
    with pytest.raises(StoreError):
        await store.append("r", 50, chained("r", 51)[50:])
    assert stores.open().read("r") == log


async def test_a_cancelled_caller_does_not_stop_the_rest(store):
    """Its entries may be there or not; the others' are."""
    abandoned = store.append("a", 0, chained("a"))
    abandoned.cancel()
    await store.append("b", 0, chained("b"))
    assert store.read("b") == chained("b")


async def test_there_is_room_at_first(store):
    """A store that says otherwise would never let anything start."""
    assert store.room()


async def test_artifacts_are_kept_by_their_hash(store):
    """The same bytes, the same name, any number of times."""
    data = bytes(range(256)) * 100
    ref = store.put_artifact(data)
    assert ref == store.put_artifact(data)
    assert ref.startswith("sha256:")
    assert store.get_artifact(ref) == data
    assert store.get_artifact(store.put_artifact(b"")) == b""


async def test_a_missing_artifact_is_corruption(store):
    """A log may not name what is not there."""
    with pytest.raises(StoreCorrupt, match="missing"):
        store.get_artifact("sha256:" + "0" * 64)


@pytest.mark.parametrize(
    "ref", ["", "sha256:", "sha256:" + "Z" * 64, "../../etc/passwd", "sha256:../" + "a" * 61]
)
async def test_a_name_cannot_lead_elsewhere(store, ref):
    """Only a hash is a name."""
    with pytest.raises(UsageError):
        store.get_artifact(ref)


names = st.text(min_size=1, max_size=8).filter(lambda name: name.isprintable())
bodies = st.binary(max_size=40) | st.just(b"x" * 10_000)
one_entry = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1), bodies)
step = st.tuples(
    st.integers(0, 3),
    st.lists(one_entry, min_size=1, max_size=3),
    st.none() | st.binary(max_size=10),
    st.sampled_from([0, 0, 0, 0, -1, 1]),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50)
@given(runs=st.lists(names, min_size=4, max_size=4, unique=True), steps=st.lists(step, max_size=25))
def test_any_history_reads_back_as_a_list_would(kind, tmp_path_factory, request, runs, steps):
    """Any bytes, names, times and versions; right and wrong expectations; in one group or many."""
    asyncio.run(play(Stores(kind, tmp_path_factory.mktemp("model"), request), runs, steps))


async def play(stores: Stores, runs: list[str], steps: list[Any]) -> None:
    store = stores.open()
    model: dict[str, list[Entry]] = {}
    summaries: dict[str, bytes] = {}
    waiting: list[tuple[Any, bool]] = []
    for which, new, summary, off in steps:
        run = runs[which]
        log = model.get(run, [])
        expected = len(log) + off
        if expected < 0:
            continue
        entries = link_up(run, expected, log[-1].hash if log else GENESIS, new)
        waiting.append((store.append(run, expected, entries, summary), off == 0))
        if off == 0:
            model.setdefault(run, []).extend(entries)
            summaries[run] = summary if summary is not None else summaries.get(run, b"")
    outcomes = await asyncio.gather(*[future for future, _ in waiting], return_exceptions=True)
    for outcome, (_, good) in zip(outcomes, waiting, strict=True):
        assert outcome is None if good else isinstance(outcome, Conflict)
    assert {run: store.read(run) for run in model} == model
    assert {header.run: header.summary for header in store.runs()} == summaries
    assert [header.run for header in store.runs()] == list(model)
    assert problems(store) == []
    await store.close()


def link_up(run: str, seq: int, prev: bytes, new: list[tuple[int, int, bytes]]) -> list[Entry]:
    made = []
    for number, (at, version, body) in enumerate(new, seq + 1):
        prev = link(prev, run, number, at, version, body)
        made.append(Entry(run, number, at, version, body, prev))
    return made


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 1000])
async def test_groups_of_any_size(store, count):
    """One entry or a thousand, one run or a thousand."""
    await store.append("one", 0, chained("one", count), b"s")
    logs = [chained(f"run {i}", 2) for i in range(count)]
    await asyncio.gather(*[store.append(log[0].run, 0, log, b"s") for log in logs])
    assert store.read("one") == chained("one", count)
    assert len(store.runs()) == count + 1
    assert all(store.read(log[0].run) == log for log in itertools.islice(logs, 20))
    assert problems(store) == []


def test_stores_need_no_loop_to_be_opened_and_read(tmp_path, postgres):
    """Only `append`, `follow` and `close` do."""
    opened: list[Callable[[], Any]] = [
        MemoryStore,
        lambda: SqliteStore(tmp_path / "log.db"),
        lambda: PostgresStore(postgres.new(tmp_path)),
    ]
    for make in opened:
        store = make()
        assert store.claim() > 0
        assert store.runs() == []
        asyncio.run(store.close())
