"""What coders print and how their troubles are named: lines, documents, failure classes."""

import os
import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.fleet.agents.base import CoderEvent
from leadhand.fleet.agents.claude import ClaudeReading
from leadhand.fleet.agents.codex import CodexReading
from leadhand.fleet.agents.process import (
    STATUSES,
    AgentLines,
    classify,
    document,
    fingerprint,
    retry_after,
)
from tests.models.limit_messages import MESSAGES

# --- lines ---------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b""))), st.integers(1, 9))
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines, size):
    """Pipes cut anywhere."""
    whole = b"".join(line + b"\n" for line in lines)
    reader, seen = AgentLines(), []
    for at in range(0, len(whole), size):
        seen += reader.feed(whole[at : at + size])
    assert seen + list(reader.rest()) == lines


def test_a_line_that_is_too_long_is_dropped_and_the_next_one_read():
    """A tool that prints a gigabyte on one line must not cost a gigabyte."""
    reader = AgentLines(most=100)
    seen = list(reader.feed(b"a\n" + b"x" * 80))
    seen += reader.feed(b"x" * 80)
    assert len(reader._begun) == 0
    seen += reader.feed(b"x" * 1_000_000)
    assert len(reader._begun) == 0
    seen += reader.feed(b"\nb\n")
    assert seen == [b"a", b"b"]
    assert reader.dropped == 1


@pytest.mark.parametrize("line", [b"", b"words", b"[1]", b"{", b'{"a": NaN', b"{" * 5000, b"\xff"])
def test_what_is_no_document_is_none(line):
    """It is kept as text instead."""
    assert document(line) is None


# --- events --------------------------------------------------------------------------------

STRANGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ["assistant", "error", "item.completed", "item.started", "result", "system", "turn.failed"]
)
FIRST = {
    ClaudeReading: {"type": "system", "subtype": "init", "session_id": "s-1"},
    CodexReading: {"type": "thread.started", "thread_id": "s-1"},
}
"""A document that every reading understands, whatever came before it."""
KEYS = st.sampled_from(["error", "item", "message", "subtype", "usage", "session_id", "result"])


@given(TYPES, st.dictionaries(KEYS, STRANGE, max_size=4))
def test_no_document_breaks_a_reading_in_another_way_than_attending_expects(kind, rest):
    """Versions to come may say anything."""
    for reading in (ClaudeReading(), CodexReading()):
        with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
            assert all(isinstance(e, CoderEvent) for e in reading.read({"type": kind, **rest}))
        assert [e.session for e in reading.read(FIRST[type(reading)])] == ["s-1"]


def test_a_message_told_block_by_block_is_one_turn():
    """Claude Code repeats the message with each of its blocks."""
    reading, turns = ClaudeReading(), 0
    for identifier in ("m1", "m1", "m2"):
        message = {"id": identifier, "content": [{"type": "text", "text": "a"}], "usage": {}}
        turns += sum(e.turn for e in reading.read({"type": "assistant", "message": message}))
    assert turns == 2


def tokens(_model, used):
    """A price of a dollar a token; a tenth for what is read from a cache."""
    return used.input - 0.9 * used.cache_read + used.output


def told(identifier, said, **usage):
    message = {"id": identifier, "content": [{"type": "text", "text": said}], "usage": usage}
    return {"type": "assistant", "message": message}


def test_what_claude_has_cost_is_known_before_its_result():
    """Each message says what it used; its result says what all of it cost, if it gets there."""
    reading = ClaudeReading(tokens, "m")
    cached = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    documents = [
        told("m1", "a" * 8, **cached, output_tokens=1),
        told("m1", "a" * 32, **cached, output_tokens=1),
        told("m2", "", input_tokens=10, output_tokens=7),
        {"type": "result", "subtype": "success", "total_cost_usd": 50.0},
        {"type": "result", "subtype": "error_during_execution"},
    ]
    events = [event for each in documents for event in reading.read(each)]
    costs = [event.cost for event in events if event.kind in ("usage", "result")]
    assert costs == [37.0, 45.0, 62.0, 50.0, None]
    assert [event.tokens_in for event in events if event.turn] == [125, 10]


def test_cached_tokens_of_codex_cost_what_they_cost():
    used = {"input_tokens": 100, "cached_input_tokens": 90, "output_tokens": 5}
    (event,) = CodexReading(tokens, "m").read({"type": "turn.completed", "usage": used})
    assert event.cost == pytest.approx(24.0)


def test_codex_says_what_it_touched_and_what_was_used():
    """Files, commands, tokens and, where prices are known, cost."""
    reading = CodexReading(tokens, "m", told=80)
    changes = [{"path": "a.py", "kind": "update"}]
    used = {"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 3}
    documents = [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.started", "item": {"type": "command_execution", "command": "ls"}},
        {"type": "item.completed", "item": {"type": "file_change", "changes": changes}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "Done"}},
        {"type": "turn.completed", "usage": used},
    ]
    events = [event for each in documents for event in reading.read(each)]
    kinds = ["session", "tool", "usage", "file", "usage", "text", "result"]
    assert [event.kind for event in events] == kinds
    assert (events[3].path, events[-1].text) == ("a.py", "Done")
    costs = [event.cost for event in events if event.cost is not None]
    assert costs == [20.0, 21.0, 1003.0], "the least that it can be, and then what it was"


# --- failures ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("API Error: 529 Overloaded. This is a server-side issue, usually temporary", "transient"),
        ("API Error: 500 Internal server error", "transient"),
        ("unexpected status 529 <unknown status code>: The server had an error.", "transient"),
        ("stream disconnected before completion: stream closed", "transient"),
        ("API Error: Connection to the API was lost (ECONNRESET).", "transient"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
        ("You've hit your usage limit. Try again in 3 hours.", "rate_limited"),
        ("rate_limit (429): 30,000 input tokens per minute", "rate_limited"),
        ("Invalid API key · Fix external API key", "denied"),
        ("unexpected status 401 Unauthorized: Incorrect API key provided.", "denied"),
        ("Prompt is too long · the request is ~214001 tokens", "context_overflow"),
        ("Your input exceeds the context window of this model.", "context_overflow"),
        ("API Error: 400 prompt is too long: 214001 tokens > 200000", "context_overflow"),
        ("Your credit balance is too low to access this service.", "budget"),
        ("Quota exceeded. Check your plan and billing details.", "budget"),
        ("API Error: 400 the model does not exist", "permanent"),
        ("connect ECONNREFUSED 127.0.0.1:443: Connection refused", "transient"),
        ("the model refused", "policy"),
        ("segmentation fault", ""),
    ],
)
def test_a_trouble_has_the_class_the_ladder_needs(message, expected):
    """Words as the real programs and providers say them."""
    assert classify(message) == expected


def test_every_class_is_one_of_the_cores():
    """A class that the core does not know would have no ladder."""
    assert set(STATUSES.values()) <= set(FAILURE_CLASSES)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("please retry after 7 seconds", 7.0),
        ("Please try again in 1.5s.", 1.5),
        ("try again in 250ms", 0.25),
        ("Try again in 3 hours", 10_800.0),
        ("retry in 2 minutes", 120.0),
        ("Retry-After: 20", 20.0),
        ("no idea", None),
    ],
)
def test_how_long_to_wait_is_read_from_words(message, seconds):
    """Where no header says it."""
    assert retry_after(message) == (seconds if seconds is None else pytest.approx(seconds, abs=0.1))


@pytest.mark.parametrize("said", MESSAGES, ids=lambda said: f"{said.source}: {said.message[:40]}")
def test_every_known_message_of_a_reached_limit_is_a_rate_limit(said):
    """A wall that is taken for anything else uses up attempts, or ends the task."""
    elsewhere = {
        "spend limit": "budget",
        "Overloaded": "transient",
        "your current quota,": "budget",
    }
    expected = next((kind for word, kind in elsewhere.items() if word in said.message), None)
    if expected is None and not re.search(
        r"% (?:used|left)|RetryInfo|^Limit|^you can", said.message
    ):
        expected = "rate_limited"
    assert expected is None or classify(said.message) == expected


def claude_limit(**told):
    return {"type": "rate_limit_event", "rate_limit_info": {"rateLimitType": "five_hour", **told}}


def test_claude_tells_of_a_limit_in_a_field():
    """Warnings and limits beyond which usage is paid do not stop an agent."""
    ends = time.time() + 7200
    (event,) = ClaudeReading().read(claude_limit(status="rejected", resetsAt=ends))
    assert (event.kind, event.failure) == ("limit", "rate_limited")
    assert event.retry_after_s == pytest.approx(7200, abs=5)
    for told in (
        {"status": "allowed_warning", "resetsAt": ends},
        {"status": "rejected", "resetsAt": ends, "isUsingOverage": True},
        {"status": "rejected"},
    ):
        (event,) = ClaudeReading().read(claude_limit(**told))
        assert event.kind == "other"


# --- progress ------------------------------------------------------------------------------


def test_a_fingerprint_sees_changes_and_only_changes(tmp_path):
    """Content, names, modes and removals; times set back do not hide a change."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "a"
    file.write_text("one")
    seen = [fingerprint(tmp_path)]
    assert fingerprint(tmp_path) == seen[0]
    before = file.stat()

    def same_times():
        file.write_text("two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    for change in (same_times, lambda: file.chmod(0o700), file.unlink, (tmp_path / "b").touch):
        time.sleep(0.02)
        change()
        seen.append(fingerprint(tmp_path))
    assert len({each.digest for each in seen}) == 5
    (tmp_path / ".git" / "objects").mkdir()
    assert fingerprint(tmp_path).digest == seen[-1].digest
    assert abs(seen[-1].changed_at - time.time()) < 60


def test_a_slot_that_is_gone_has_a_fingerprint(tmp_path):
    """An agent may delete its slot while it is looked at."""
    assert fingerprint(tmp_path / "none").digest


def test_a_fingerprint_opens_no_file(tmp_path, monkeypatch):
    """It looks at thousands of files every few seconds: their records have to do."""
    for number in range(300):
        (tmp_path / f"{number}").write_text("x")
    opened: list[object] = []
    monkeypatch.setattr("builtins.open", lambda *args, **_: opened.append(args))
    monkeypatch.setattr("io.open", lambda *args, **_: opened.append(args))
    monkeypatch.setattr("os.open", lambda *args, **_: opened.append(args))
    before = fingerprint(tmp_path).digest
    monkeypatch.undo()
    assert opened == []
    assert before == fingerprint(tmp_path).digest
