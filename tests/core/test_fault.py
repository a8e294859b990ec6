"""Was the failure in the plan or in the doing."""

import pytest

from leadhand.core import events as ev
from leadhand.core.fault import fault


def failed(kind, message="m", step="a"):
    failure = {"class": kind, "message": message}
    return ev.AttemptReported(step, 1, 1, False, failure=failure)


def ended(status="failed", limit="", reason="it is over"):
    return ev.RunEnded(status, reason, limit=limit)


CASES = {
    "nothing yet": ([], ""),
    "success": ([failed("transient"), ended("succeeded")], ""),
    "still going": ([failed("permanent")], ""),
    "an error": ([failed("permanent"), ended()], "doing"),
    "time ran out": ([ev.AttemptLost("a", 1, 1, "timeout", "r"), ended()], "doing"),
    "criteria": ([failed("criteria_unmet"), ended()], "doing"),
    "too large a task": ([failed("too_complex"), ended()], "plan"),
    "unclear": ([failed("ambiguous"), ended()], "plan"),
    "no value": ([ev.StepRefused("a", "permanent", "no value"), ended()], "plan"),
    "no worker": ([ev.StepRefused("a", "unavailable", "gone"), ended()], "doing"),
    "the last one counts": ([failed("too_complex"), failed("lost", step="b"), ended()], "doing"),
    "recovered": (
        [failed("transient"), ev.AttemptReported("a", 2, 2, True), ended(reason="stuck")],
        "plan",
    ),
    "goal": ([ev.GoalChecked(False, ["result.rows > 3"]), ended()], "plan"),
    "gave up": ([ev.PlannerAnswered(1, 1, {"kind": "give_up", "reason": "no"}), ended()], "plan"),
    "planner": ([ev.PlannerFailed(1, 1, "KeyError"), ended()], "plan"),
    "refused": ([ev.ProposalRefused(1, ["worker-unknown"]), ended()], "plan"),
    "rejected": ([ev.RevisionRejected(1, "h", "maria"), ended("rejected")], "plan"),
    "cancelled": ([ev.CancelRequested("maria", 1), ended("cancelled")], "person"),
    "budget": ([failed("transient"), ended(limit="budget")], "limits"),
    "money": ([failed("budget"), ended()], "limits"),
}


@pytest.mark.parametrize("name", CASES)
def test_where_the_failure_was(name):
    events, where = CASES[name]
    found = fault(events)
    assert found.where == where
    assert bool(found.why) == bool(where)
