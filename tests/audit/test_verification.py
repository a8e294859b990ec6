"""Verification of a long log: it goes on from where it ended, and reads a page at a time."""

import json
import sqlite3
from pathlib import Path

import pytest

from bench.history import fill
from leadhand.app import verification
from leadhand.app.reader import reading
from leadhand.app.verification import VerificationScope, verify_database
from leadhand.audit.anchors import Anchoring

ALTER = "UPDATE events SET body = CAST(body || ' ' AS BLOB) WHERE position = ?"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Thirty finished runs of five steps, in one file without a log beside it."""
    path = tmp_path_factory.mktemp("filled") / "log.db"
    fill(path, 30)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return path.read_bytes()


@pytest.fixture
def place(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(verification, "SKIPPED_MIN", 100)
    path = tmp_path / "log.db"
    path.write_bytes(filled)
    return path


def verified(path, **scope):
    with reading(path) as reader:
        return verify_database(reader, path, Anchoring(), VerificationScope(**scope))


def rules(verdict):
    return {problem.rule for problem in verdict.problems}


def alter(path, statement, *values):
    connection = sqlite3.connect(path)
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in triggers:
        connection.execute(f'DROP TRIGGER "{name}"')
    assert connection.execute(statement, values).rowcount
    for _, text in triggers:
        connection.execute(text)
    connection.commit()
    connection.close()


def add_run(path, name="late"):
    from leadhand import Lead
    from tests.audit.tamper import say

    outcome = Lead([say], store=path).run_sync(
        {"goal": "later", "steps": [{"id": "a", "worker": "say"}]}, run_id=name
    )
    assert outcome.ok


def test_the_next_verification_goes_on_from_where_the_last_one_ended(place):
    first = verified(place)
    assert (first.problems, first.runs, first.since_point) == ([], 30, None)
    add_run(place)
    second = verified(place)
    assert (second.problems, second.runs) == ([], 1)
    assert second.since_point.position == first.entries
    assert "they were not read again; --full reads them" in second.unshown()[0]
    third = verified(place)
    assert third.runs == 0
    assert third.since_point.commit > second.since_point.commit
    assert (full := verified(place, full=True)).runs == 31
    assert full.since_point is None


def test_a_change_of_what_was_verified_is_found_by_a_full_verification(place):
    verified(place)
    alter(place, ALTER, 8)
    assert verified(place).problems == []
    assert rules(verified(place, full=True)) == {"hash"}
    assert rules(verified(place, run="h0000000")) == {"hash"}


def test_a_change_of_what_came_since_is_found(place):
    verified(place)
    add_run(place)
    alter(
        place, "UPDATE events SET at = at + 1 WHERE position = (SELECT max(position) FROM events)"
    )
    assert "hash" in rules(verified(place))


@pytest.mark.parametrize("full", [False, True])
def test_a_log_cut_below_the_verified_place_is_found_without_an_anchor(place, filled, full):
    add_run(place)
    verified(place)
    place.write_bytes(filled)  # an older copy, in order in itself
    Path(f"{place}.anchors").unlink()
    (problem,) = verified(place, full=full).problems
    assert problem.rule == "verified"
    assert f"remove {place}.verified" in problem.message
    Path(f"{place}.verified").unlink()
    assert verified(place).problems == []


def test_a_short_log_is_always_read_whole(place, monkeypatch):
    monkeypatch.setattr(verification, "SKIPPED_MIN", 20_000)
    verified(place)
    alter(place, ALTER, 8)
    assert rules(verified(place)) == {"hash"}


def test_a_forged_place_does_not_make_a_short_log_long(place, monkeypatch):
    """Who can write to the database can name any position in it, and beside it."""
    monkeypatch.setattr(verification, "SKIPPED_MIN", 20_000)
    verified(place)
    alter(place, ALTER, 8)
    record = Path(f"{place}.verified")
    point = json.loads(record.read_bytes())
    at = point["commit"]
    alter(place, "UPDATE batches SET last = 30000 WHERE number = ?", at)
    alter(place, "UPDATE events SET position = 30000 WHERE position = ?", point["position"])
    record.write_text(json.dumps({**point, "position": 30_000}))
    assert "hash" in rules(verified(place))


def test_entries_that_cannot_be_counted_are_a_finding(place):
    verified(place)
    connection = sqlite3.connect(place)
    connection.execute("ALTER TABLE events RENAME COLUMN hash TO digest")
    connection.close()
    assert rules(verified(place))


def test_what_does_not_verify_is_not_written_down(place):
    alter(place, ALTER, 8)
    for _ in range(2):
        assert rules(verified(place)) == {"hash"}
    assert not Path(f"{place}.verified").exists()


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"database": 1}'])
def test_a_damaged_record_is_as_none(place, text):
    Path(f"{place}.verified").write_text(text)
    assert verified(place).runs == 30


def test_another_databases_record_is_as_none(place):
    verified(place)
    alter(place, "UPDATE meta SET value = 'another' WHERE key = 'database'")
    assert verified(place).runs == 30


def test_several_processes_find_the_same_in_the_same_order(place, monkeypatch):
    monkeypatch.setattr(verification, "RUNS_SHARED", 5)
    monkeypatch.setattr(verification, "RUNS_TOGETHER", 4)
    for position in (8, 200, 400):
        alter(place, ALTER, position)
    shown = []
    alone = verified(place)
    shared = verified(place, processes=2, progress=lambda done, total: shown.append((done, total)))
    assert alone.problems == shared.problems
    assert len(alone.problems) == 3
    assert (shared.runs, shared.entries) == (alone.runs, alone.entries)
    assert shown[-1] == (30, 30)


def test_a_forged_number_is_not_counted_up_to(place):
    alter(place, "UPDATE runs SET id = 4611686018427387903 WHERE run = 'h0000003'")
    assert {"head", "run"} <= rules(verified(place))


def test_one_run_is_checked_with_its_commits_only(place):
    add_run(place)
    alter(place, ALTER, 8)  # of another run, in an earlier commit
    assert verified(place, run="late").problems == []
    alter(
        place,
        "UPDATE batches SET hash = zeroblob(32) WHERE number = (SELECT max(number) FROM batches)",
    )
    assert "hash" in rules(verified(place, run="late"))
