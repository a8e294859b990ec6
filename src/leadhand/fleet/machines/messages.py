"""The data between home and a machine: JSON, each of it bounded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from leadhand.fleet.agents.base import Assignment, CoderEvent, CoderResult
from leadhand.fleet.gate.gate import GateRules, GateVerdict

FLOW = "leadhand.fleet.attempt"
WORK = "leadhand.fleet.work"
TELL = "leadhand.fleet.tell"
STOP = "stop"
SAY = "say"
EVENTS_MAX = 200
"""The last events of an agent that a heartbeat and a result carry."""
EVENT_CHARS = 1_000
NAMES_MAX = 20_000
"""Tests of main whose names an order carries; a machine finds out more by itself."""
LOG_CHARS = 64_000
"""How much of the end of a gate's output crosses."""


class MainTests(msgspec.Struct, frozen=True, kw_only=True):
    """The tests that ran on the base, as home knows them: a machine need not run them first."""

    tree: str
    passed: Mapping[str, int]
    counted: bool
    runs: int


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt for any machine: the commit it begins with, the assignment, the checks."""

    lease: str
    """The token that the machine hands its work in with (`lease.py`)."""
    queue: str
    base: str
    coder: str
    """The name of the coder in the settings of both sides."""
    assignment: Assignment
    screen: bool
    """Whether the gate runs on the change by itself."""
    rules: str
    """The digest of the gate's rules: a machine with others refuses."""
    heartbeat_s: float
    limit_s: float
    """The longest that all of it may take."""
    tests: MainTests | None = None


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life: which machine is at it, how far it is, and what its agent said last."""

    machine: str
    phase: str = ""
    heard: int = 0
    """The number of events so far; `events` are the last of them."""
    events: tuple[CoderEvent, ...] = ()


class WorkDone(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order. Commits are named here and were pushed under the lease."""

    sign: Sign
    result: CoderResult
    seal: str = ""
    """The commit that was handed in; its ancestors are those below. Empty: there is no work."""
    work: str = ""
    """Work in progress, as it was when the agent ended."""
    head: str = ""
    """The agent's work as one commit on the base."""
    left_out: Mapping[str, str] = {}
    ignored: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = {}
    gone: str = ""
    """Why the slot could not be read: the agent destroyed it."""
    verdict: GateVerdict | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Words for an agent at work on a machine."""

    queue: str
    lease: str
    text: str


def rules_digest(rules: GateRules) -> str:
    """Return a digest of the rules that both sides must share; the environment is a machine's."""
    same = (
        rules.commands,
        rules.setup,
        rules.gate_paths,
        rules.time_s,
        rules.failures,
        rules.flaky,
        rules.reports,
        rules.tampering,
    )
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()


# A conversation is kept by the machine that had it: its identifier names that machine.


def session_on(machine: str, session: str) -> str:
    """Return the identifier of a conversation that a machine keeps."""
    return f"{session}@{machine}" if session else ""


def session_of(machine: str, session: str) -> str:
    """Return the identifier as `machine` knows it; empty if another has that conversation.

    The machine at home has no name.
    """
    own, _, keeper = session.rpartition("@") if "@" in session else (session, "", "")
    return own if keeper == machine else ""
