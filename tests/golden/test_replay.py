"""Recorded histories: they verify, decode, fold and are decided again, for ever.

Never change a history or its digest to make a test pass. If one of these fails, logs that
people have would be read differently: write an upcaster, or raise DECIDE_VERSION. (Before the first
release, `record.py --again` is the way.)
"""

import json
from pathlib import Path

import msgspec
import pytest

from leadhand.audit.chain import GENESIS, link, verify
from leadhand.codec.events import decode, encode
from leadhand.core import events as ev
from leadhand.core.decide.decide import decide
from leadhand.core.logcheck.checker import check
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import Now, State
from leadhand.ports import Entry
from tests.golden import record
from tests.golden.meaning import digest_of, meaning

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
DIGESTS = json.loads((FOLDER / "snapshots.json").read_text())


class Line(msgspec.Struct):
    """One entry as it was stored."""

    seq: int
    at: int
    version: int
    batch: int
    hash: str
    body: msgspec.Raw


def read(name):
    """A history, with the exact bytes of its bodies."""
    lines = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Line) for line in lines]


def events(name):
    """Its events, with their times and batches."""
    return [(line.at, line.batch, decode(line.version, bytes(line.body))) for line in read(name)]


def test_there_are_a_dozen_histories_and_each_has_its_digest():
    """The other tests would pass on an empty folder."""
    assert len(NAMES) >= 12
    assert sorted(DIGESTS) == NAMES


def test_together_they_tell_of_nearly_every_event():
    """What is not told here cannot be known to replay."""
    told = {type(event) for name in NAMES for _, _, event in events(name)}
    assert set(ev.RUN_EVENTS) - told == {ev.StepCancelled}


@pytest.mark.parametrize("name", NAMES)
def test_a_history_verifies(name):
    """Its hash chain is what it was: the chain's own format is frozen as well."""
    run = events(name)[0][2].run
    lines = read(name)
    stored = [
        Entry(run, n.seq, n.at, n.version, bytes(n.body), bytes.fromhex(n.hash)) for n in lines
    ]
    assert verify(stored) == []
    first = stored[0]
    assert first.hash == link(GENESIS, run, 1, first.at, first.version, first.body)


@pytest.mark.parametrize("name", NAMES)
def test_a_history_decodes_and_encodes_to_the_same_bytes(name):
    """As long as its version is the present one."""
    for line in read(name):
        if line.version == ev.EVENT_VERSION:
            assert encode(decode(line.version, bytes(line.body))) == bytes(line.body)


@pytest.mark.parametrize("name", NAMES)
def test_a_history_amounts_to_what_it_did(name):
    """Folding is byte-equal for ever."""
    state = State()
    for at, _, event in events(name):
        evolve(state, event, at)
    assert digest_of(state) == DIGESTS[name], meaning(state)


@pytest.mark.parametrize("name", NAMES)
def test_a_history_keeps_every_invariant(name):
    """By the checker that `leadhand verify` uses."""
    assert [str(found) for found in check([(at, event) for at, _, event in events(name)])] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_history_is_decided_again_the_same(name):
    """Whatever decide had decided, it decides again, for the decide_version that was recorded."""
    history = events(name)
    if history[0][2].decide_version != ev.DECIDE_VERSION:
        return
    state, decided = State(), 0
    batches = {}
    for at, batch, event in history:
        batches.setdefault(batch, (at, []))[1].append(event)
    for at, told in batches.values():
        move = decide(state, Now(at, at))
        if move is not None:
            assert move.events == told
            decided += 1
        for event in told:
            evolve(state, event, at)
    assert decided >= 2
    assert decide(state, Now(state.last_at, state.last_at)) is None


def test_the_recorder_still_tells_the_same_stories():
    """Recording again would change nothing: what is decided today is what was decided then."""
    for story in record.STORIES:
        path = FOLDER / f"{story.__name__}.jsonl"
        first = events(story.__name__)[0][2]
        if first.decide_version != ev.DECIDE_VERSION:
            continue
        assert "".join(record.lines_of(story())) == path.read_text(), story.__name__
