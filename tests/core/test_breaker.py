"""When a worker is left alone: what is counted, for how long, and what the host's stream keeps."""

import pytest

from leadhand.core.decide.circuit_breaker import (
    FAILURES,
    HOLD_MAX_S,
    OPEN_MAX_S,
    OPEN_S,
    STEPS,
    TROUBLE,
    UNHEARD,
    Circuit,
    FailureStreak,
    circuit_reason,
    is_silent,
    is_trouble,
    open_for_s,
    requested_pause_s,
)
from leadhand.core.host_events import CircuitClosed, CircuitOpened, HostOpened, HostState
from leadhand.core.plan.model import FAILURE_CLASSES
from tests.core.driver import folded


def test_the_constants_are_those_of_the_documentation():
    """Five in a row at three steps; half a minute, ten minutes, a day."""
    assert (FAILURES, STEPS, OPEN_S, OPEN_MAX_S, HOLD_MAX_S) == (5, 3, 30.0, 600.0, 86_400.0)


@pytest.mark.parametrize("kind", FAILURE_CLASSES)
def test_which_failures_speak_of_the_worker(kind):
    """It is down, overloaded or does not answer; a lost attempt says nothing at all."""
    speaks = kind in ("transient", "rate_limited", "unavailable", "timeout")
    assert is_trouble({"class": kind}) is speaks
    assert (kind in TROUBLE) is speaks
    assert is_silent({"class": kind}) is (kind == "lost")


def test_a_success_is_no_trouble():
    """There is no failure to look at."""
    assert (is_trouble(None), is_silent(None), requested_pause_s(None)) == (False, False, 0.0)
    assert (is_trouble({}), is_silent({}), requested_pause_s({})) == (False, False, 0.0)


@pytest.mark.parametrize(
    ("failures", "enough"),
    [
        ([], False),
        (["a", "b", "c", "a"], False),  # four
        (["a", "a", "a", "a", "a", "a", "a"], False),  # one step
        (["a", "b", "a", "b", "a"], False),  # two steps
        (["a", "b", "c", "a", "a"], True),
        (["a", "b", "c", "d", "e"], True),
        (["a", "a", "a", "a", "a", "b", "c"], True),
    ],
)
def test_enough(failures, enough):
    """Five failures in a row, at three different steps at least."""
    record = FailureStreak()
    for step in failures:
        record.add("r", step)
    assert record.enough is enough
    assert record.failures == len(failures)


def test_steps_of_different_runs_are_different_steps():
    """Plans share names; and no more steps are remembered than matter."""
    record = FailureStreak()
    for run in ("r1", "r2", "r3", "r4", "r5"):
        record.add(run, "a")
    assert record.enough
    assert record.steps == {("r1", "a"), ("r2", "a"), ("r3", "a")}
    assert FailureStreak().steps is not FailureStreak().steps


@pytest.mark.parametrize(
    ("trips", "seconds"),
    [(1, 30.0), (2, 60.0), (3, 120.0), (5, 480.0), (6, 600.0), (50, 600.0), (5000, 600.0)],
)
def test_how_long_a_circuit_stays_open(trips, seconds):
    """Twice as long each time, up to ten minutes."""
    assert open_for_s(trips) == seconds


@pytest.mark.parametrize(
    ("asked", "heeded"),
    [(None, 0.0), (0, 0.0), (-3, 0.0), (7, 7.0), (0.5, 0.5), (90_000, 86_400.0), (1e300, 86_400.0)],
)
def test_what_a_worker_asks_for(asked, heeded):
    """As long as it says, for a day at most: nobody is taken out for ever by one word."""
    found = requested_pause_s({"class": "rate_limited", "retry_after": asked})
    assert (found, type(found)) == (heeded, float)


def test_what_nobody_heard_says_nothing():
    """Neither good nor bad of the worker."""
    assert is_silent(UNHEARD)
    assert not is_trouble(UNHEARD)
    assert Circuit(5).trips == 1


def test_open_circuits_are_folded():
    """The last word on each worker counts; a new host finds them as they were."""
    opened = CircuitOpened("w", 30, 1, "it failed"), CircuitOpened("x", 50, 1, "so did it")
    assert folded(*opened).circuits == {
        "w": Circuit(30, 1, "it failed"),
        "x": Circuit(50, 1, "so did it"),
    }
    again = CircuitOpened("w", 90, 2, "again")
    state = folded(*opened, again, HostOpened(2, 1, "0.1"), CircuitClosed("x"))
    assert state.circuits == {"w": Circuit(90, 2, "again")}
    assert state.seq == 5
    assert folded(CircuitClosed("w")).circuits == {}
    assert HostState().circuits is not HostState().circuits


class Told(frozenset):
    """Workers that are left alone, with a reason for one of them."""

    def why(self, worker):
        return "asked for an hour" if worker == "w" else ""


def test_why_a_worker_is_left_alone():
    """As far as anybody knows."""
    assert circuit_reason(Told({"w", "x"}), "w") == "asked for an hour"
    assert circuit_reason(Told({"w", "x"}), "x") == "is unavailable for now"
    assert circuit_reason({"w"}, "w") == "is unavailable for now"


def test_a_circuit_needs_no_reason():
    """Logs of before gave none."""
    assert (Circuit(5).trips, Circuit(5).reason) == (1, "")
