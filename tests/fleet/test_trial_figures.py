"""What a trial counts as lost: only work that an agent had left."""

from types import SimpleNamespace

import pytest

from leadhand.fleet.repository.hub import ref_of
from leadhand.fleet.trial.scenario import Trial
from leadhand.fleet.trial.trial import TrialEvidence, _table

TRIAL = Trial(tasks=400, faults=0.9, seed=1)


def attempt_with(fault):
    """A task whose first attempt has this fault, and that belongs to no pair."""
    names = (name for name in TRIAL.names if not TRIAL.claim(name))
    return next((name, 1) for name in names if TRIAL.fault(name, 1) == fault)


@pytest.mark.parametrize(
    ("fault", "asked", "kept", "lost"),
    [
        ("engine killed", True, False, 1),
        ("engine killed", True, True, 0),
        ("engine killed", False, False, 0),
        ("merge conflict", True, False, 0),
        ("crash", False, False, 0),
    ],
    ids=["lost", "kept", "not yet", "asks before it writes", "had not begun"],
)
def test_what_an_agent_had_not_written_is_not_lost_with_the_engine(fault, asked, kept, lost):
    attempt = attempt_with(fault)
    refs = {ref_of("wip", "epic-r", *attempt)} if kept else set()
    seen = TrialEvidence(
        run="epic-r",
        ends={attempt: "lost"},
        cut={attempt},
        answers=[],
        done=set(),
        asked=set(),
        begun=[attempt],
        tips=[],
        commits=[],
        kept=refs,
        touched={},
    )
    desk = SimpleNamespace(asked={attempt} if asked else set(), void=set(), fulls=0)
    (row,) = _table(TRIAL, seen, desk, {attempt[0]}).values()
    assert row["lost_work"] == lost
    assert row["handled"] == 1 - lost


def test_a_crash_must_leave_its_work_behind():
    attempt = attempt_with("crash")
    seen = TrialEvidence(
        "epic-r", {attempt: "lost"}, set(), [], set(), set(), [attempt], [], [], set(), {}
    )
    desk = SimpleNamespace(asked=set(), void=set(), fulls=0)
    (row,) = _table(TRIAL, seen, desk, {attempt[0]}).values()
    assert row["lost_work"] == 1
