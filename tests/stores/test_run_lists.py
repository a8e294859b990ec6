"""Lists and totals: every store answers as a plain model, and finds what was changed by hand."""

import asyncio
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand.audit.chain import GENESIS, link
from leadhand.core.views.totals import DAY_US
from leadhand.ports import Entry, RunQuery
from leadhand.stores.memory import MemoryStore
from leadhand.stores.postgres.store import PostgresStore
from leadhand.stores.run_list import SORTS
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import BODY

OPEN = ("running", "waiting")
ENDED = ("succeeded", "failed", "cancelled")
NAMES = ("", "a", "ab", "B")
LABELS = ("x", "x=1", "x=2", "xy", "y=x")
BEGIN = 1_790_000_000_000_000


@st.composite
def summaries(draw):
    """What may stand beside a log; seldom something that is no summary."""
    if draw(st.integers(0, 20)) == 0:
        return draw(st.sampled_from([b"", b"{", b"[1]", b"\xff", b"null", b'{"status": 5}', b"{}"]))
    ended = draw(st.booleans())
    told = {
        "status": draw(st.sampled_from(ENDED if ended else OPEN)),
        "goal": draw(st.sampled_from(["Deploy it", "count\nlines", "x'y\\ \"z", "  ", "do a\0b"])),
        "plan": draw(st.sampled_from(NAMES)),
        "actor": draw(st.sampled_from(NAMES)),
        "environment": draw(st.sampled_from(NAMES)),
        "waiting": draw(st.integers(0, 2)),
        "cost": draw(st.sampled_from([0.0, 0.5, 1.000001, 12.0])),
        "labels": draw(st.lists(st.sampled_from(LABELS), max_size=3, unique=True)),
        "ended": BEGIN + 5 * DAY_US + draw(st.integers(0, 3)) if ended else 0,
    }
    if draw(st.booleans()):
        told["library"] = draw(st.sampled_from(["a@1", "a@2", "ab@1"]))
    if ended:
        keys = st.sampled_from(["runs", "cost", "worker:a:cost", "plan::runs"])
        told["totals"] = draw(st.dictionaries(keys, st.integers(1, 9)))
    return json.dumps(told).encode()


histories = st.lists(
    st.tuples(st.integers(0, 5), summaries(), st.integers(0, 3)), min_size=1, max_size=12
)
"""Which run, the summary that it gets, and the days it was created after the first."""
queries = st.builds(
    RunQuery,
    status=st.lists(st.sampled_from([*OPEN, *ENDED]), max_size=2, unique=True).map(tuple),
    text=st.sampled_from(["", "deploy", "R1", "\nlines", "'y\\", "no such"]),
    plan=st.sampled_from([*NAMES, "a*", "*"]),
    actor=st.sampled_from(NAMES),
    label=st.sampled_from(["", "", "x", "x=1", "xy", "y"]),
    environment=st.sampled_from(NAMES),
    library=st.sampled_from(["", "", "a", "a@2", "*"]),
    since=st.sampled_from([0, 0, BEGIN + DAY_US]),
    until=st.sampled_from([0, 0, BEGIN + 2 * DAY_US]),
    open=st.booleans(),
    waiting=st.booleans(),
    sort=st.sampled_from([sign + name for name in SORTS for sign in ("", "-")]),
    limit=st.integers(1, 4),
)


class Model:
    """The same by a list and comprehensions."""

    def __init__(self):
        self.rows = {}

    def write(self, run, created, summary):
        number, first = self.rows[run][:2] if run in self.rows else (len(self.rows) + 1, created)
        try:
            told = json.loads(summary)
        except ValueError:
            told = {}
        self.rows[run] = (number, first, told if isinstance(told, dict) else {})

    def find(self, query):
        """All runs that fit, in order."""
        found = []
        for run, (number, created, told) in self.rows.items():
            labels, library = told.get("labels", []), told.get("library", "")
            words = (run, str(told.get("goal", "")), str(told.get("plan", "")))
            ended = told.get("ended", 0)
            fits = [
                not query.status or told.get("status") in query.status,
                not query.text or any(query.text.lower() in word.lower() for word in words),
                *(not (v := getattr(query, k)) or told.get(k, "") == v for k in
                  ("actor", "environment")),
                not query.plan or told.get("plan", "") == query.plan
                or (query.plan == "a*" and told.get("plan", "").startswith("a")),
                not query.label or any(f"{each}=".startswith(f"{query.label}=") for each in labels),
                not query.library or f"{library}@".startswith(f"{query.library}@")
                or (query.library == "*" and library),
                created >= query.since,
                not query.until or created < query.until,
                not (query.open or query.waiting) or not ended,
                not query.waiting or told.get("waiting", 0) > 0,
            ]  # fmt: skip
            took, cost = ended - created if ended else 0, round(told.get("cost", 0) * 1e6)
            values = {"created": created, "ended": ended, "cost": cost, "duration": took}
            value = values[query.sort.strip("-")]
            if all(fits):
                found.append((value, number, run))
        return [run for *_, run in sorted(found, reverse=query.sort.startswith("-"))]

    def totals(self):
        """The sums over all days."""
        found = Counter()
        for _, _, told in self.rows.values():
            found.update(told.get("totals", {}))
        return {key: number for key, number in found.items() if number}


def next_entry(run, last, at):
    """One more entry of a run."""
    seq, prev = (last.seq, last.hash) if last else (0, GENESIS)
    return Entry(run, seq + 1, at, 1, BODY, link(prev, run, seq + 1, at, 1, BODY))


async def written(store, history):
    """Write a history to a store and to the model; `$host` too, which no list shows."""
    model, last = Model(), {}
    for run, summary, days in [("$host", None, 0), *((f"r{n}", s, d) for n, s, d in history)]:
        before = last.get(run)
        at = max(BEGIN + days * DAY_US, before.at if before else 0)
        entry = last[run] = next_entry(run, before, at)
        await store.append(run, entry.seq - 1, [entry], summary)
        if run != "$host":
            model.write(run, at, summary)
    return model


def found_in(store, query):
    """All pages of a list."""
    found, cursor = [], ""
    while cursor is not None:
        headers, cursor = store.find_runs(query._replace(cursor=cursor))
        assert len(headers) <= query.limit
        found += [header.run for header in headers]
    return found


def check(store, model, asked):
    """Everything that a list can say."""
    for query in asked:
        assert found_in(store, query) == model.find(query), query
    assert store.totals(0, 1 << 30, plans=True) == model.totals()
    whole = {key: n for key, n in model.totals().items() if not key.startswith("plan:")}
    assert store.totals(0, 1 << 30) == whole
    daily = Counter()
    for _, key, number in store.daily_totals(0, 1 << 30):
        daily[key] += number
    assert daily == {key: n for key, n in model.totals().items() if ":" not in key}
    assert store.runs_by_prefix("r") == sorted(model.rows)
    assert store.runs_by_prefix("r1") == [run for run in model.rows if run == "r1"]
    assert store.runs_by_prefix("$") == []
    assert store.last_change() == max(header.updated for header in store.runs())


@given(history=histories, asked=st.lists(queries, min_size=1, max_size=6))
def test_lists_in_memory_and_in_sqlite_are_those_of_the_model(history, asked):
    """Whatever was written, replaced, reopened or spoiled."""
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="leadhand-", dir=shared if shared.is_dir() else None)
    path = Path(folder) / "log.db"

    async def play():
        memory, kept = MemoryStore(), SqliteStore(path, synchronous="NORMAL")
        for store in (memory, kept):
            store.claim()
            check(store, await written(store, history), asked)
        assert kept.wrong_lists() == []
        assert kept.wrong_totals() == []
        assert kept.damage() == []
        await kept.close()

    try:
        asyncio.run(play())
    finally:
        shutil.rmtree(folder)


@settings(max_examples=15)
@given(history=histories, asked=st.lists(queries, max_size=6))
def test_lists_in_postgres_are_those_of_the_model(shared_log, history, asked):
    """The same, in one database that is emptied each time."""

    async def play():
        store = PostgresStore(shared_log.address)
        try:
            store.claim()
            check(store, await written(store, history), asked)
            assert store.wrong_lists() == []
            assert store.wrong_totals() == []
        finally:
            await store.close()

    shared_log.empty()
    asyncio.run(play())


def name_of(address):
    """The name of the database."""
    return address.dsn.rpartition("/")[2].partition("?")[0]


class SharedLog:
    """A database of PostgreSQL for many examples."""

    def __init__(self, postgres, folder):
        self.postgres = postgres
        self.address = postgres.new(folder)

    def empty(self):
        with self.postgres.connect(name_of(self.address)) as connection:
            connection.execute("DROP SCHEMA IF EXISTS leadhand CASCADE")


@pytest.fixture(scope="module")
def shared_log(postgres, tmp_path_factory):
    """One database for all examples."""
    return SharedLog(postgres, tmp_path_factory.mktemp("lists"))


ENDED_RUN = json.dumps(
    {"status": "failed", "ended": BEGIN + 9, "totals": {"runs": 1, "cost": 7}}
).encode()
HISTORY = [(0, ENDED_RUN, 0), (1, b'{"status": "running"}', 1), (2, ENDED_RUN, 2)]


def test_what_was_changed_by_hand_is_found_and_rebuilt(tmp_path):
    """A hidden run, a made up one, a wrong sum, a sum that is gone, one too many."""
    path = tmp_path / "log.db"

    async def make():
        store = SqliteStore(path)
        store.claim()
        await written(store, HISTORY)
        await store.close()

    asyncio.run(make())
    for change, runs, sums in (
        ("UPDATE listed SET ended = 1 WHERE run = 'r1'", ["r1"], 0),
        ("DELETE FROM listed WHERE run = 'r0'", ["r0"], 0),
        ("INSERT INTO listed SELECT 9, 'r9', 1, 0, 0, 0, 1, 'waiting', '', '', '', '', '', ''",
         ["r9"], 0),
        ("UPDATE totals SET n = 99 WHERE key = 'cost'", [], 2),
        ("UPDATE totals SET n = CAST(n AS TEXT) || 'x' WHERE key = 'cost'", [], 2),
        ("DELETE FROM totals", [], 4),
        ("INSERT INTO totals VALUES (7, 'runs', 1)", [], 1),
    ):  # fmt: skip
        with sqlite3.connect(path) as connection:
            connection.execute(change)
        connection.close()
        store = SqliteStore(path)
        assert store.wrong_lists() == runs, change
        assert len(store.wrong_totals()) == sums, change
        store.rebuild_lists()
        assert store.wrong_lists() == []
        assert store.wrong_totals() == []
        store.close_now()


def test_what_was_changed_by_hand_in_postgres_is_found_and_rebuilt(address, postgres):
    """The same in PostgreSQL."""

    async def make():
        store = PostgresStore(address)
        store.claim()
        await written(store, HISTORY)
        for change, runs, sums in (
            ("UPDATE leadhand.listed SET ended = 1 WHERE run = 'r1'", ["r1"], 0),
            ("DELETE FROM leadhand.listed WHERE run = 'r0'", ["r0"], 0),
            ("UPDATE leadhand.totals SET n = 99 WHERE key = 'cost'", [], 2),
            ("DELETE FROM leadhand.totals", [], 4),
        ):
            with postgres.connect(name_of(address)) as connection:
                connection.execute(change)
            assert store.wrong_lists() == runs, change
            assert len(store.wrong_totals()) == sums, change
            store.rebuild_lists()
            assert store.wrong_lists() == []
            assert store.wrong_totals() == []
        await store.close()

    asyncio.run(make())
