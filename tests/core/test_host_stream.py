"""The `$host` stream: what belongs to no single run."""

import pytest

from leadhand.core import events as ev
from leadhand.core.host_events import (
    HOST_EVENTS,
    HOST_STREAM,
    ApprovalUsed,
    ArchiveDeleted,
    ArchiveRewritten,
    HostOpened,
    HostState,
    KeptRun,
    PersonChanged,
    RunJoined,
    RunsArchived,
    StopAllLifted,
    StopAllRequested,
    TemporalLeft,
    TemporalOpened,
    evolve_host,
    refuse_elsewhere,
    refuse_other,
    refuse_used,
)
from leadhand.errors import Bug, Conflict
from tests.core.driver import folded

THERE = TemporalOpened("t:7233", "default", "p")
ARCHIVED = RunsArchived(
    1, "ann", 7, "/a", "one", 1, "a" * 64, 3, 30, "c" * 64, 2, 20, "d" * 64,
    (KeptRun("r9", 0, 4, "e" * 64),),
)  # fmt: skip
TABLE = [
    ([], HostState(0, 1000, False, "", 0)),
    ([HostOpened(1, 42, "0.1")], HostState(1, 1000, False, "", 1)),
    ([HostOpened(1, 42, "0.1", 7), HostOpened(2, 43, "0.1", 9)], HostState(2, 9, False, "", 2)),
    ([HostOpened(1, 42, "0.1"), StopAllRequested("ann")], HostState(1, 1000, True, "ann", 2)),
    (
        [StopAllRequested("ann", "fire"), HostOpened(2, 42, "0.1")],
        HostState(2, 1000, True, "ann", 2),
    ),
    ([HostOpened(1, 42, "0.1"), RunJoined("r1", 2, 43)], HostState(1, 1000, seq=2)),
    ([StopAllRequested("ann"), StopAllRequested("bob")], HostState(0, 1000, True, "bob", 2)),
    ([StopAllRequested("ann"), StopAllLifted("bob")], HostState(0, 1000, False, "", 2)),
    ([ApprovalUsed("a", "r1", "ann")], HostState(seq=1, used={"a": "r1"})),
    ([StopAllLifted("bob")], HostState(0, 1000, False, "", 1)),
    ([PersonChanged("bob", "ann", "viewer")], HostState(seq=1, people={"bob": "viewer"})),
    ([THERE], HostState(seq=1, temporal=THERE)),
    ([THERE, HostOpened(1, 42, "0.1")], HostState(1, 1000, seq=2, temporal=THERE)),
    ([THERE, TemporalLeft("ann", "home")], HostState(seq=2)),
    ([ARCHIVED, ArchiveDeleted(1, "ann", "policy")], HostState(seq=2)),
    (
        [ARCHIVED, ArchiveRewritten(1, "ann", "", "/a", "two", 2, "b" * 64, 1, 0)],
        HostState(seq=2),
    ),
]


@pytest.mark.parametrize(("events", "expected"), TABLE)
def test_the_fold(events, expected):
    """A stop survives restarts until it is lifted; the last host counts."""
    assert folded(*events) == expected


def test_an_event_of_a_run_is_no_event_of_the_host():
    """It is refused, and nothing is counted."""
    state = HostState()
    with pytest.raises(Bug, match="RunPaused is no event of the host"):
        evolve_host(state, ev.RunPaused("ann"))
    assert state == HostState()


def test_runs_are_taken_back_without_a_reason():
    """As they are stopped."""
    assert TemporalLeft("ann").reason == ""


def test_a_stop_needs_no_reason():
    """It may have one."""
    assert StopAllRequested("ann").reason == ""
    assert StopAllRequested("ann", "fire").reason == "fire"


def test_host_events_are_apart_from_those_of_runs():
    """No event belongs to both; the stream's name can be no run's."""
    assert not set(HOST_EVENTS) & set(ev.RUN_EVENTS)
    assert HOST_STREAM == "$host"


def test_runs_of_a_temporal_server_are_driven_there_and_under_their_names():
    """A second prefix or namespace would drive them twice, as would a host of ours."""
    state = folded(TemporalOpened("here:7233", "team", "shop"))
    refuse_other(state, "team", "shop")
    for namespace, prefix in (("other", "shop"), ("team", "other")):
        with pytest.raises(Conflict, match="in namespace team with prefix shop"):
            refuse_other(state, namespace, prefix)
    with pytest.raises(Conflict, match=r"at here:7233, namespace team hosts the runs"):
        refuse_elsewhere(state)
    for free in (
        HostState(),
        folded(TemporalOpened("here:7233", "team", "shop"), TemporalLeft("ann")),
    ):
        refuse_other(free, "other", "other")
        refuse_elsewhere(free)


@pytest.mark.parametrize(
    ("namespace", "named"),
    [("default", "at here:7 hosts"), ("mine", "at here:7, namespace mine hosts")],
)
def test_who_hosts_the_runs_is_named(namespace, named):
    """Its namespace only where it is not the usual one."""
    state = HostState()
    evolve_host(state, TemporalOpened("here:7", namespace, "p"))
    with pytest.raises(Conflict, match=named):
        refuse_elsewhere(state)


def test_an_approval_of_a_plan_is_good_for_one_run():
    """Which one is told; another approval is free."""
    state = HostState(used={"1": "r7"})
    with pytest.raises(Conflict, match="ann's approval 1 was used by run r7"):
        refuse_used(state, "1", "ann")
    refuse_used(state, "2", "ann")
