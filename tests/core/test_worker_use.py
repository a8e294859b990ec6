"""How workers were used: what counts as a failure, and which error is the last."""

from leadhand.core import events as ev
from leadhand.core.views.worker_use import WorkerTally, worker_use


def start(step, worker, attempt=1):
    return ev.AttemptStarted(step, attempt, attempt, worker, 0, "")


def refused(step, message, attempt=1):
    failure = {"class": "permanent", "message": message}
    return ev.AttemptReported(step, attempt, attempt, met=False, failure=failure)


def test_failures_and_losses_are_told_apart():
    """An attempt that ended with its host says nothing about the worker; a timeout does."""
    log = [
        (0, start("a", "w")),
        (2_000_000, ev.AttemptReported("a", 1, 1, met=True)),
        (3_000_000, start("b", "w")),
        (4_000_000, ev.AttemptLost("b", 1, 1, "lost", "the host ended")),
        (5_000_000, start("b", "w", 2)),
        (6_000_000, ev.AttemptLost("b", 2, 2, "timeout", "no report in time")),
        (7_000_000, start("c", "other")),
    ]
    found = worker_use("r", log)
    mine = found["w"]
    assert (mine.attempts, mine.succeeded, mine.failed, mine.lost) == (3, 1, 1, 1)
    assert mine.durations == [2.0]
    assert (mine.error.step, mine.error.failure_class, mine.error.attempt) == ("b", "timeout", 2)
    assert (found["other"].attempts, found["other"].error) == (1, None)


def test_the_error_of_the_later_moment_is_the_last_one():
    """Whatever the order in which runs are joined."""
    one = worker_use("r1", [(0, start("a", "w")), (9, refused("a", "late"))])["w"]
    other = worker_use("r2", [(0, start("a", "w")), (5, refused("a", "early"))])["w"]
    for first, second in ((one, other), (other, one)):
        both = WorkerTally()
        both.join(first)
        both.join(second)
        assert (both.failed, both.error.message, both.error.run) == (2, "late", "r1")
