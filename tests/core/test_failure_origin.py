"""Was the failure in the plan or in the doing."""

import pytest

from leadhand.core import events as ev
from leadhand.core.views.failure_origin import origin_of_run


def failed(kind, message="m", step="a"):
    failure = {"class": kind, "message": message}
    return ev.AttemptReported(step, 1, 1, False, failure=failure)


def ended(status="failed", limit="", reason="it is over", origin=""):
    return ev.RunEnded(status, reason, limit=limit, origin=origin)


BEGUN = ev.AttemptStarted("a", 1, 1, "w", 0, "")


CASES = {
    "nothing yet": ([], ""),
    "success": ([failed("transient"), ended("succeeded")], ""),
    "still going": ([failed("permanent")], ""),
    "an error": ([BEGUN, failed("permanent"), ended()], "execution"),
    "time ran out": ([ev.AttemptLost("a", 1, 1, "timeout", "r"), ended()], "execution"),
    "criteria": ([failed("criteria_unmet"), ended()], "execution"),
    "too large a task": ([BEGUN, failed("too_complex"), ended()], "execution"),
    "unclear": ([BEGUN, failed("ambiguous"), ended()], "execution"),
    "no value": ([ev.StepRefused("a", "permanent", "no value"), ended()], "planning"),
    "no worker": ([ev.StepRefused("a", "unavailable", "gone"), ended()], "execution"),
    "the last one counts": (
        [failed("too_complex"), failed("lost", step="b"), ended()],
        "execution",
    ),
    "recovered": (
        [failed("transient"), ev.AttemptReported("a", 2, 2, True), ended(reason="stuck")],
        "planning",
    ),
    "goal": ([ev.GoalChecked(False, ["result.rows > 3"]), ended()], "planning"),
    "gave up": (
        [ev.PlannerAnswered(1, 1, {"kind": "give_up", "reason": "no"}), ended()],
        "planning",
    ),
    "planner": ([ev.PlannerFailed(1, 1, "KeyError"), ended()], "planning"),
    "refused": ([ev.ProposalRefused(1, ["worker-unknown"]), ended()], "planning"),
    "rejected": ([ev.RevisionRejected(1, "h", "maria"), ended("rejected")], "planning"),
    "cancelled": ([ev.CancelRequested("maria", 1), ended("cancelled")], "person"),
    "budget": ([failed("transient"), ended(limit="budget")], "limits"),
    "gave up after a failed step": (
        [
            BEGUN,
            failed("permanent"),
            ev.PlannerAnswered(1, 1, {"kind": "give_up", "reason": "no"}),
            ended(reason="the planner gave up: no", origin="planning"),
        ],
        "planning",
    ),
    "stuck after failed steps": (
        [BEGUN, failed("permanent"), ended(reason="stuck", origin="planning")],
        "planning",
    ),
    "aborted": ([BEGUN, failed("permanent"), ended(origin="execution")], "execution"),
    "too long": ([BEGUN, failed("lost"), ended(limit="wall time")], "limits"),
    "money": ([failed("budget"), ended()], "limits"),
}


@pytest.mark.parametrize("name", CASES)
def test_where_the_failure_was(name):
    events, where = CASES[name]
    found = origin_of_run(events)
    assert found.where == where
    assert bool(found.why) == bool(where)
