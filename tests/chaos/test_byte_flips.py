"""A slice of the campaign of byte flips, and the two that once got through."""

import contextlib
import sqlite3

import pytest

from tests.chaos.byte_flips import COMMANDS, campaign, inside, made, rows_of, told

pytestmark = pytest.mark.real


def test_no_flip_is_missed_and_none_is_a_bug_of_ours(tmp_path):
    trials = list(campaign(tmp_path, 40, 12))
    assert [(trial.seed, trial.flips, trial.wrong) for trial in trials if trial.wrong] == []
    assert any(trial.changed for trial in trials)


@pytest.fixture
def database(tmp_path):
    (tmp_path / "base").mkdir()
    run = made(tmp_path / "base")
    return tmp_path / "base" / ".leadhand" / "leadhand.db", run


def patched(database, old, new, place=-1):
    """Change bytes of a file; the last place where they stand, or the one that is given."""
    data = bytearray(database.read_bytes())
    at = data.rfind(old) if place < 0 else place
    assert bytes(data[at : at + len(old)]) == old
    data[at : at + len(old)] = new
    database.write_bytes(data)


def test_a_schema_that_is_no_text_is_damage(database):
    """It was a UnicodeDecodeError, "a bug in Leadhand", exit 70."""
    file, run = database
    patched(file, b"CREATE TABLE runs", b"CREATE TABLE \xff\xfens")
    with inside(file.parents[1]):
        for words in (*COMMANDS, "resume {run}"):
            code, said = told(*words.format(run=run).split())
            assert code not in (0, 70), (words, said)
            assert "damaged" in said or "malformed" in said, (words, said)
            assert "put back a copy" in said, (words, said)


def test_a_row_that_its_index_knows_otherwise_is_found(database):
    """`events.seq` in the table alone: queries answer from the index, so every hash fits."""
    file, _ = database
    with contextlib.closing(sqlite3.connect(file)) as found:
        row = found.execute("SELECT seq, at FROM events WHERE seq BETWEEN 5 AND 100 LIMIT 1")
        seq, at = row.fetchone()
    before = rows_of(file)
    # In a record the columns follow each other: run_id is a small number, then seq, then at.
    patched(file, bytes([seq]) + at.to_bytes(8, "big"), bytes([seq + 1]) + at.to_bytes(8, "big"))
    assert rows_of(file) != before
    with inside(file.parents[1]):
        code, said = told("verify", "--all")
        assert code == 1, said
        assert "missing from index" in said
        assert "put back a copy" in said


def test_a_trigger_that_was_taken_out_is_found(database):
    """What guards the log against accidents is part of it."""
    file, _ = database
    with contextlib.closing(sqlite3.connect(file)) as found:
        found.execute("DROP TRIGGER events_no_delete")
    with inside(file.parents[1]):
        code, said = told("verify", "--all")
        assert (code, "trigger events_no_delete is not as it was made" in said) == (1, True), said
