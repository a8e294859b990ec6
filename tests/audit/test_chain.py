"""The hash chains: what they are over, and that every kind of change shows."""

import hashlib
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.audit.chain import (
    GENESIS,
    Batch,
    ChainProblem,
    link,
    link_batch,
    verify,
    verify_batches,
    verify_head,
)
from leadhand.ports import Entry, RunHeader
from tests.stores.entries import chained


def test_the_link_is_what_the_docstring_says():
    """A stranger can verify a log from the description alone."""
    name, body = "rün".encode(), b'{"x":1}'
    message = GENESIS + struct.pack(">IQqI", len(name), 7, -5, 1) + name + body
    assert link(GENESIS, "rün", 7, -5, 1, body) == hashlib.sha256(message).digest()


def test_the_batch_link_is_what_the_docstring_says():
    """Also for more hashes than are fed at once."""
    for count in (1, 60, 61, 500):
        hashes = [bytes([i % 256]) * 32 for i in range(count)]
        message = GENESIS + struct.pack(">QQ", 3, 2 + count) + b"".join(hashes)
        expected = hashlib.sha256(message).digest()
        assert link_batch(GENESIS, 3, 2 + count, hashes) == expected


@given(
    st.tuples(st.text(max_size=5), st.binary(max_size=5)),
    st.tuples(st.text(max_size=5), st.binary(max_size=5)),
)
def test_bytes_cannot_move_between_name_and_body(one, other):
    """Two different entries never have the same link."""
    links = [link(GENESIS, run, 1, 1, 1, body) for run, body in (one, other)]
    assert (links[0] == links[1]) == (one == other)


def test_an_honest_log_has_no_problems():
    """Whole, in two parts, or empty."""
    log = chained("r", 50)
    assert verify(log) == []
    assert verify(log[20:], log[19].hash, 20) == []
    assert verify([]) == []


def tampered(log: list[Entry], how: str, at: int) -> list[Entry]:
    entry = log[at]
    match how:
        case "body":
            changed = entry._replace(body=entry.body.replace(b"R", b"r"))
        case "time":
            changed = entry._replace(at=entry.at + 1)
        case "version":
            changed = entry._replace(version=2)
        case "hash":
            changed = entry._replace(hash=bytes(32))
        case "consistent":  # the hash is made to fit; the next one then does not
            prev = log[at - 1].hash if at else GENESIS
            body = b"{}"
            changed = entry._replace(
                body=body, hash=link(prev, entry.run, entry.seq, entry.at, entry.version, body)
            )
        case "delete":
            return log[:at] + log[at + 1 :]
        case "swap":
            return [*log[:at], log[at + 1], log[at], *log[at + 2 :]]
        case "double":
            return [*log[: at + 1], *log[at:]]
        case "foreign":
            changed = entry._replace(run="other")
    return [*log[:at], changed, *log[at + 1 :]]


HOW = ["body", "time", "version", "hash", "consistent", "delete", "swap", "double", "foreign"]


@pytest.mark.parametrize("how", HOW)
def test_every_change_inside_a_log_shows(how):
    """Wherever it is made."""
    log = chained("r", 12)
    for at in range(1, 10):
        problems = verify(tampered(log, how, at))
        assert problems, f"{how} at {at}"
        assert abs(problems[0].seq - (at + 1)) <= 1


def test_every_flipped_bit_shows():
    """Of the body and of the hash, in 2,000 random places."""
    rng = random.Random(7)
    log = chained("r", 20, body=bytes(range(200)))
    for _ in range(2000):
        at, field = rng.randrange(20), rng.choice(["body", "hash"])
        data = bytearray(getattr(log[at], field))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        changed = [*log[:at], log[at]._replace(**{field: bytes(data)}), *log[at + 1 :]]
        assert verify(changed)


def test_a_problem_is_reported_once():
    """A wrong entry does not make all that follow look wrong."""
    log = tampered(chained("r", 100), "body", 10)
    assert verify(log) == [ChainProblem("r", 11, "hash", "does not match its hash")]
    log = tampered(chained("r", 100), "delete", 10)
    assert verify(log) == [ChainProblem("r", 12, "gap", "missing before it: 11")]
    assert str(verify(log)[0]) == "r 12: missing before it: 11"


def test_a_tail_that_is_gone_shows_in_the_head():
    """The chain alone cannot know; the header can."""
    log = chained("r", 5)
    header = RunHeader("r", 0, 0, 5, log[-1].hash, b"")
    assert verify_head(log, header) == []
    assert verify(log[:3]) == []
    assert verify_head(log[:3], header)[0].rule == "head"
    assert verify_head([], header)[0].rule == "head"


def batched(sizes: list[int]) -> tuple[list[Batch], list[tuple[int, bytes]]]:
    batches, hashes, prev, position = [], [], GENESIS, 0
    for number, size in enumerate(sizes, 1):
        new = [bytes([number, place]) * 16 for place in range(size)]
        prev = link_batch(prev, position + 1, position + size, new)
        batches.append(Batch(number, position + 1, position + size, prev))
        hashes += zip(range(position + 1, position + size + 1), new, strict=True)
        position += size
    return batches, hashes


def test_the_batch_chain_shows_what_run_chains_cannot():
    """A whole run that is gone, or one put in."""
    batches, hashes = batched([3, 1, 4])
    assert verify_batches(batches, hashes) == []
    gone = [pair for pair in hashes if pair[0] != 4]
    assert [p.rule for p in verify_batches(batches, gone)] == ["batch"]
    assert [p.rule for p in verify_batches(batches, [*hashes, (9, bytes(32))])] == ["batch"]
    other = [(place, bytes(32) if place == 5 else digest) for place, digest in hashes]
    assert [(p.seq, p.rule) for p in verify_batches(batches, other)] == [(3, "hash")]
    without = verify_batches([batches[0], batches[2]], hashes)
    assert {p.rule for p in without} == {"gap", "hash", "batch"}
