"""A database that somebody wrote into by hand: what can be known is shown, the rest is said."""

import contextlib
import json
import re
import sqlite3

import pytest

from tests.support.cli import WORKERS

pytestmark = pytest.mark.real

TRIGGERS = ("events_no_update", "events_no_delete", "batches_no_update", "batches_no_delete")


FILES = {"workers.py": WORKERS}


@pytest.fixture
def folder(folder):
    folder.plan({"id": "a", "worker": "say"}, name="done.json", goal="say it")
    folder.plan({"id": "a", "worker": "danger"}, name="open.json", goal="dare it")
    assert folder.run("run", "done.json").code == 0
    assert folder.run("run", "open.json").code == 5
    return folder


def damage(folder, statement, name=".leadhand/leadhand.db"):
    connection = sqlite3.connect(folder.path / name)
    for trigger in TRIGGERS:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("value", ["x'ff'", "'text'", "7", "'[1]'", "x'7b7d'", "1e308"])
def test_runs_are_listed_from_their_logs_when_their_summaries_are_damaged(folder, value):
    damage(folder, f"UPDATE runs SET summary = {value}")
    listed = folder.run("ls")
    assert listed.code == 0, listed
    assert re.search(r"succeeded +1/1 .*say it", listed.out)
    assert re.search(r"waiting \(no host\) .*dare it", listed.out)
    if value.startswith("x'"):
        assert "the summary of this run is damaged; its log was read instead" in listed.err
    assert folder.run("inbox").out.count("review") >= 1
    rows = folder.run("ls", "--json").doc
    assert [(row["status"], row["succeeded"]) for row in rows] == [("waiting", 0), ("succeeded", 1)]


def test_a_run_that_cannot_be_read_does_not_hide_the_others(folder):
    damage(folder, "UPDATE events SET body = x'ff' WHERE run_id = (SELECT max(id) FROM runs)")
    listed = folder.run("ls")
    assert listed.code == 0, listed
    assert re.search(r"unreadable +\?", listed.out)
    assert re.search(r"succeeded +1/1", listed.out)
    assert "was changed or damaged" in listed.err
    waiting = folder.run("inbox")
    assert waiting.code == 0, waiting
    assert "left out" in waiting.err
    assert folder.run("verify", "--all").code == 1


COLUMNS = {
    "runs": ("run", "created", "updated", "seq", "hash"),
    "events": ("body", "at", "version", "seq", "hash"),
    "meta": ("value",),
}
WHERE = {
    "runs": "rowid = (SELECT max(rowid) FROM runs)",
    "events": "position = (SELECT max(position) FROM events)",
    "meta": "key = 'epoch'",
}
VALUES = ("x'ff'", "CAST(x'ff' AS TEXT)", "'text'", "9223372036854775807", "-1")
COMMANDS = (
    ("ls",),
    ("inbox",),
    ("doctor",),
    ("verify", "--all"),
    ("run", "done.json", "--quiet"),
)
READING = (("show", "{run}"), ("logs", "{run}"), ("resume", "{run}"))


@pytest.mark.slow
@pytest.mark.parametrize("table", COLUMNS)
def test_no_damage_is_a_bug_of_ours(folder, table):
    """Whatever stands in a column, no command ends with 70 or a traceback.

    Each column meets every command, and each value of it one that lists and one that reads.
    """
    database = folder.path / ".leadhand" / "leadhand.db"
    run = folder.latest()["run"]
    for column in COLUMNS[table]:
        for number, value in enumerate(VALUES):
            name = f"{column}{number}.db"
            with contextlib.closing(sqlite3.connect(database)) as good:
                good.execute("VACUUM INTO ?", (str(folder.path / name),))
            damage(folder, f"UPDATE {table} SET {column} = {value} WHERE {WHERE[table]}", name)
            for words in (COMMANDS[number % len(COMMANDS)], READING[number % len(READING)]):
                done = folder.run(*(word.format(run=run) for word in words), "--store", name)
                assert done.code != 70, f"{table}.{column} = {value}: {words}: {done}"
                assert "Traceback" not in done.err, f"{table}.{column} = {value}: {words}: {done}"


def test_a_count_of_hosts_that_went_back_is_damage(folder):
    damage(folder, "UPDATE meta SET value = 0 WHERE key = 'epoch'")
    done = folder.run("run", "done.json")
    assert done.code == 1, done
    assert "count of hosts went back" in done.err


def test_the_list_says_what_succeeded_and_what_failed(folder):
    folder.plan(
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "broken", "failure_action": "abort", "depends_on": ["a"]},
        {"id": "c", "worker": "say", "depends_on": ["b"]},
    )
    assert folder.run("run", "plan.json").code == 1
    lines = folder.run("ls").out.splitlines()
    assert "SUCCEEDED" in lines[0]
    assert re.search(r"failed +1/3, 1 failed ", lines[1])
    row = json.loads(folder.run("ls", "--json").out)[0]
    assert (row["succeeded"], row["failed"], row["steps"]) == (1, 1, 3)


def test_the_list_counts_failures_that_were_let_pass(folder):
    folder.plan(
        {"id": "a", "worker": "say"},
        {"id": "b", "worker": "broken", "failure_action": "continue"},
    )
    assert folder.run("run", "plan.json").code == 0
    assert re.search(r"succeeded +1/2, 1 failed ", folder.run("ls").out)
