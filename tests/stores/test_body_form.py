"""The form in which bodies are stored: shorter, and read back to the exact bytes."""

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand import Lead, worker
from leadhand.stores.body_form import LONG, LONGER, SHORTER, expand, shorten

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN = 182
TEXTS = "e6ed915f12f258e8448a3f1328df7347ad1d3c364f27ce347210b98c9894cd67"
PIECES = [
    *(b'{"type":"AttemptStarted","step":"', b'{"type":"AttemptReported","step":"', b'"}'),
    *(b',"met":true,"data":', b"a" * 64, b"0" * 31, b"f" * 96, b"1795033095727891", b"\x00"),
    *(b"\x01", b"\x02", b"\x1f", b"\xff", "é".encode(), *SHORTER, *LONGER),
]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=40), max_size=30).map(b"".join))
def test_every_body_comes_back(body):
    assert expand(shorten(body)) == body


@given(st.binary(max_size=300))
def test_what_was_never_written_gives_bytes_or_itself(stored):
    """A damaged database: the hash tells, but reading does not fail."""
    assert type(expand(stored)) is bytes


@pytest.mark.parametrize("value", [None, 7, 1.5, '{"type":"RunHosted"}'])
def test_a_value_that_is_no_bytes_stays_one(value):
    assert expand(value) is value


def test_a_body_of_json_is_its_own_stored_form():
    """So a body that was put in by hand is read as it is."""
    body = b'{"type":"RunHosted","owner":1}'
    assert expand(body) == body


def test_long_bodies_are_compressed_and_nothing_may_follow_them():
    body = json.dumps({"type": "AttemptReported", "data": "so it is; " * LONG}).encode()
    stored = shorten(body)
    assert len(stored) < len(body) / 50
    assert expand(stored) == body
    assert expand(stored + b" ") != body
    assert expand(stored[:-1]) != body


def test_the_texts_are_those_of_the_first_release():
    """They are part of the file format: others may follow at the end of LONGER only."""
    known = hashlib.sha256(b"\n".join([*SHORTER, *LONGER[:KNOWN]])).hexdigest()
    assert (len(SHORTER), known) == (26, TEXTS)
    assert len(set(SHORTER + LONGER)) == len(SHORTER) + len(LONGER)
    assert len(LONGER) <= 256


def test_recorded_logs_take_half_the_room_or_less():
    """Logs of every kind of event; some of the texts were chosen by looking at them."""
    bodies = [
        json.dumps(json.loads(line)["body"], separators=(",", ":"), ensure_ascii=False).encode()
        for log in sorted(GOLDEN.glob("*.jsonl"))
        for line in log.read_text(encoding="utf-8").splitlines()
    ]
    assert len(bodies) > 400
    assert sum(len(shorten(body)) for body in bodies) < sum(map(len, bodies)) / 2


@worker
async def note() -> str:
    return "noted"


async def test_an_event_of_a_step_takes_little(tmp_path):
    """So that a change of the events of a step that doubles the database is noticed."""
    chain = [
        {"id": f"s{n}", "worker": "note", "depends_on": [f"s{n - 1}"] * (n > 0)} for n in range(5)
    ]
    await Lead([note], store=tmp_path / "log.db").run({"goal": "five steps", "steps": chain})
    with sqlite3.connect(tmp_path / "log.db") as database:
        query = "SELECT body FROM events WHERE run_id = (SELECT max(id) FROM runs)"
        bodies = [body for (body,) in database.execute(query)]
    assert len(bodies) == 17
    assert sum(map(len, bodies)) < 5 * 150
