"""A slice of the campaign of byte flips, and the two that once got through."""

import contextlib
import sqlite3

import pytest

from tests.chaos.byte_flips import COMMANDS, campaign, inside, made, told

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
    """A status in an index of lists alone: queries answer from it, and no hash covers it."""
    file, _ = database
    with contextlib.closing(sqlite3.connect(file)) as found:
        (at,) = found.execute("SELECT created FROM listed WHERE status = 'succeeded'").fetchone()
    # In the index the columns follow each other; in the table the plan follows the status.
    created = at.to_bytes(8, "big")
    patched(file, b"succeeded" + created, b"succeedee" + created)
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
