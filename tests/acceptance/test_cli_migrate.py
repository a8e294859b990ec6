"""A log moved between stores: equal in every hash, whatever interrupts it; nothing else touched."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from leadhand.stores.postgres.schema import migrations
from leadhand.stores.sqlite.store import SqliteStore
from tests.stores.entries import chained
from tests.support.cli import WORKERS, finished
from tests.support.postgres import PASSWORD, serving

pytestmark = pytest.mark.real
COMMITS = 1000


FILES = {"workers.py": WORKERS}


@pytest.fixture
def folder(folder, postgres):
    folder.address = postgres.new(folder.path)
    folder.connect = lambda: postgres.connect(folder.address.dsn.rpartition("/")[2])
    return folder


def lived_in(folder):
    """A log with runs, a large result, a library and anchors."""
    folder.plan(
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "big", "parameters": {"size": 200_000}, "depends_on": ["a"]},
    )
    for _ in range(3):
        assert folder.run("run", "plan.json").code == 0
    assert folder.run("library", "save", "deploy", "plan.json").code == 0
    return ".leadhand/leadhand.db"


async def long_log(path: Path, commits: int = COMMITS) -> None:
    """A log of many commits, some of several runs at once."""
    store = SqliteStore(path, synchronous="NORMAL")
    store.claim()
    logs = {run: chained(run, commits) for run in ("one", "two")}
    for at in range(commits):
        both = [store.append(run, at, log[at : at + 1], b"{}") for run, log in logs.items()]
        await asyncio.gather(*both)
    await store.close()


def test_a_log_is_moved_and_moved_back(folder):
    """All of it: events, results, library, anchors. Each place verifies, and can go on."""
    old = lived_in(folder)
    url = folder.address.secret
    before = folder.run("verify", "--all", "--json").doc
    moved = folder.run("migrate", url, "--from", old, "--json")
    assert moved.code == 0, moved
    doc = moved.doc
    assert doc["equal"]
    assert doc["source"] == doc["target"]
    assert doc["source"]["runs"] == 3
    assert doc["source"]["artifacts"] >= 1
    assert doc["anchors"] == before["anchors"]["lines"] >= 1
    assert PASSWORD not in moved.out + moved.err
    own = doc["source"]["own_events"]
    assert doc["source"]["events"] - own == before["entries"]
    told = {
        row[:12].strip(): row.split()[-2:]
        for row in folder.run("migrate", url, "--from", old).out.splitlines()
    }
    assert told["events"] == [str(before["entries"])] * 2  # as `verify` counts them
    assert told["not of runs"] == [str(own)] * 2

    there = folder.run("verify", "--all", "--json", "--store", url)
    assert there.code == 0, there
    assert there.doc["anchors"]["last"] == before["anchors"]["last"]
    listed = folder.run("ls", "--json", "--store", url).doc
    assert [row["run"] for row in listed] == [row["run"] for row in folder.run("ls", "--json").doc]
    assert "deploy" in folder.run("library", "list", "--store", url).out
    again = folder.run("migrate", url, "--from", old)
    assert again.code == 0, again
    assert doc["source"]["head"][:16] in again.out

    assert folder.run("run", "plan.json", "--store", url).code == 0
    assert folder.run("verify", "--all", "--store", url).code == 0
    stale = folder.run("migrate", url, "--from", old)
    assert stale.code == 7, stale
    assert "has gone on since it was copied" in stale.err

    back = folder.run("migrate", "back.db", "--from", url, "--json")
    assert back.code == 0, back
    assert back.doc["target"]["runs"] == 4
    assert folder.run("verify", "--all", "--store", "back.db").code == 0
    assert folder.run("run", "plan.json", "--store", "back.db").code == 0
    assert folder.run("verify", "--all", "--store", "back.db").code == 0


@pytest.mark.parametrize("way", ["there", "back"])
async def test_a_copy_that_is_killed_goes_on(folder, way):
    """kill -9 at two places; nobody may host the half, and the whole is equal."""
    await long_log(folder.path / "old.db")
    source, target = "old.db", folder.address.secret
    if way == "back":
        assert folder.run("migrate", target, "--from", source).code == 0
        source, target = target, "new.db"

    def commits() -> int:
        if way == "there":
            with folder.connect() as connection:
                return connection.execute("SELECT number FROM leadhand.tail").fetchone()[0]
        with closing(sqlite3.connect(f"file:{folder.path}/new.db?mode=ro", uri=True)) as file, file:
            return file.execute("SELECT coalesce(max(number), 0) FROM batches").fetchone()[0]

    seen = 0
    for _ in range(2):
        with folder.start("migrate", target, "--from", source) as child:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                try:
                    if commits() > seen + 50:
                        break
                except (psycopg.Error, sqlite3.Error):  # the tables are not there yet
                    assert child.poll() is None
                time.sleep(0.02)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        assert commits() > seen
        seen = commits()
    assert seen < COMMITS
    folder.plan({"id": "a", "worker": "say"})
    half = folder.run("run", "plan.json", "--store", target)
    assert half.code == 1, half
    assert "was not finished" in half.err
    done = folder.run("migrate", target, "--from", source, "--json")
    assert done.code == 0, done
    assert done.doc["equal"]
    assert done.doc["resumed_at"] >= seen
    assert done.doc["target"]["events"] == 2 * COMMITS


def test_a_target_that_holds_something_else_is_not_touched(folder, tmp_path):
    """Another log, or the same one gone another way; a source with a host, and none at all."""
    old = lived_in(folder)
    url = folder.address.secret
    assert folder.run("run", "plan.json", "--store", "other.db").code == 0
    assert folder.run("migrate", url, "--from", "other.db").code == 0
    theirs = folder.run("verify", "--all", "--json", "--store", url)
    (anchors,) = (tmp_path / ".leadhand").glob("postgres-*.anchors")
    refused = folder.run("migrate", url, "--from", old)
    assert refused.code == 7, refused
    assert "holds another log" in refused.err  # whose anchors are nothing to be moved away
    anchors.rename(folder.path / "fresh.db.anchors")
    refused = folder.run("migrate", "fresh.db", "--from", old)
    assert refused.code == 7, refused
    assert "anchors of another log" in refused.err
    (folder.path / "fresh.db.anchors").rename(anchors)
    assert folder.run("verify", "--all", "--json", "--store", url).doc == theirs.doc

    assert folder.run("run", "plan.json", "--store", url).code == 0
    assert folder.run("run", "plan.json", "--store", "other.db").code == 0
    assert folder.run("run", "plan.json", "--store", "other.db").code == 0
    anchors.unlink()
    forked = folder.run("migrate", url, "--from", "other.db")
    assert forked.code == 7, forked
    assert "each went on by itself" in forked.err

    assert folder.run("migrate", url, "--from", "nowhere.db").code == 2
    assert folder.run("migrate", url, "--from", url).code == 2
    assert folder.run("migrate", "new.db", "--writer", "app").code == 2


def test_a_source_with_a_host_is_refused(folder):
    """And so is a damaged one; the target stays empty."""
    old = lived_in(folder)
    url = folder.address.secret
    folder.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 60}})
    host = folder.run("run", "plan.json", "--detach", "--json").doc
    refused = folder.run("migrate", url, "--from", old)
    os.kill(host["pid"], signal.SIGKILL)
    assert refused.code == 7, refused
    assert f"process {host['pid']} is the host" in refused.err
    with closing(sqlite3.connect(folder.path / old)) as file, file:
        file.execute("DROP TRIGGER events_no_update")
        file.execute("UPDATE events SET body = body || ' ' WHERE position = 5")
    damaged = folder.run("migrate", url, "--from", old)
    assert damaged.code == 1, damaged
    assert "does not match its hash" in damaged.err
    with folder.connect() as connection:
        assert connection.execute("SELECT number FROM leadhand.tail").fetchone() == (0,)


def test_what_it_says_can_be_read_by_programs(folder):
    """Without --from it makes the tables."""
    made = folder.run("migrate", folder.address.secret, "--json")
    assert made.code == 0, made
    assert json.loads(made.out)["schema"] == migrations()[-1].number


async def test_a_copy_survives_a_crash_of_the_server(folder, postgres_programs, tmp_path):
    """Commits of a copy are not synced one by one: what the crash took is copied again."""
    await long_log(folder.path / "old.db")
    with serving(postgres_programs, sync=True) as server:
        address = server.new(tmp_path)
        database = address.dsn.rpartition("/")[2]
        with folder.start("migrate", address.secret, "--from", "old.db") as child:
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with contextlib.suppress(psycopg.Error), server.connect(database) as connection:
                    asked = connection.execute("SELECT number FROM leadhand.tail").fetchone()
                    if asked is not None and asked[0] > 100:
                        break
                time.sleep(0.02)
            server.kill()
            server.start()
            finished(child)
        done = folder.run("migrate", address.secret, "--from", "old.db", "--json")
        assert done.code == 0, done
        assert done.doc["equal"]
        assert done.doc["target"]["commits"] >= COMMITS / 2
