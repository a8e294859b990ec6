"""What a run adds to the totals: people, workers, money; integers, and a bounded number of keys."""

import pytest

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.policy import Policy
from leadhand.core.views import totals
from leadhand.core.views.run import summary
from tests.core.driver import Drive, step
from tests.core.test_answers import asking


def told(run):
    """The totals of a run, as they are now."""
    found = totals.run_totals(run.state, summary(run.state))
    assert all(type(number) is int and number for number in found.values())
    return totals.added([found])


def test_a_run_without_people():
    """Nothing waited, and every attempt is of a worker."""
    run = Drive(step("a"), step("b", "a")).done("a", cost=0.25).later(2).done("b")
    found = told(run)
    assert (found["runs"], found["succeeded"], found["open"]) == (1, 1, 0)
    assert (found["attempts"], found["tried"], found["first_pass"]) == (2, 2, 2)
    assert (found["needed_person"], found["answers"], found["human_wait_us"]) == (0, 0, 0)
    assert (found["cost"], found["plan::cost"], found["worker:w:cost"]) == (250_000,) * 3
    assert (found["worker:w:attempts"], found["worker:w:busy_us"]) == (2, 2_000_000)
    assert found["duration_us"] == run.state.ended_at - run.state.started_at
    assert summary(run.state).totals == found


def test_an_open_run_counts_as_open_and_is_told_nothing_of():
    """Its totals are folded when they are wanted; of one that waits, the summary says them."""
    run = Drive(step("a"))
    assert (told(run)["open"], told(run)["duration_us"]) == (1, 0)
    assert not summary(run.state).totals
    assert not summary(run.state).so_far
    waits = Drive(step("a"), policy=Policy(review=True))
    found = summary(waits.state)
    assert (found.status, found.so_far, found.seq) == ("waiting", told(waits), waits.state.seq)
    assert not found.totals


def test_how_long_people_took():
    """From the question to the answer of a person; a default answer needed none."""
    run = (
        Drive(step("a", failure_action="escalate")).fail("a", "permanent").later(30).reply("abort")
    )
    found = told(run)
    assert (found["questions"], found["answers"], found["human_wait_us"]) == (1, 1, 30_000_000)
    assert (found["answers_30"], found["plan::answers_30"], found["answers_60"]) == (1, 1, 0)
    assert (found["needed_person"], found["origin:person"] + found["origin:execution"]) == (1, 1)
    found = told(asking("left", "right", default="left", within_s=5).later(5))
    assert (found["answered_by_default"], found["answers"], found["needed_person"]) == (1, 0, 0)


def test_an_approval_is_one_of_a_person():
    """A review is answered when the last of the people has approved."""
    run = Drive(step("a"), policy=Policy(review=True)).later(7)
    assert told(run)["needed_person"] == 1
    run.hear(commands.answer(run.state, "review-1", "approve", "ann", run.now))
    found = told(run.done("a"))
    assert (found["approvals"], found["answers"], found["human_wait_us"]) == (1, 1, 7_000_000)


def test_a_reopened_run_adds_nothing_until_it_ends_again():
    """Then it counts once, with what happened before."""
    run = Drive(step("a", failure_action="abort")).fail("a", "permanent")
    assert summary(run.state).totals["failed"] == 1
    run.tell(ev.RunReopened("a", "ann", "again"), ev.RedoRequested("a", "ann", "again")).go()
    assert not summary(run.state).totals
    run.done("a")
    found = summary(run.state).totals
    assert (found["runs"], found["succeeded"], found.get("failed")) == (1, 1, None)
    assert (found["attempts"], found["worker:w:failed"]) == (2, 1)


@pytest.mark.parametrize("most", [1, 3])
def test_names_beyond_a_bound_are_counted_together(monkeypatch, most):
    """The most used keep their names; no attempt is lost."""
    monkeypatch.setattr(totals, "WORKERS_MAX", most)
    run = Drive(
        *(step(f"s{n}", worker=w) for n, w in enumerate(["w", "w", "other", "third", "safe"]))
    )
    run.done("s0", "s1", "s2", "s3", "s4")
    workers = totals.named(told(run), "worker")
    assert len(workers) == most + 1
    assert workers["w"]["attempts"] == 2
    assert workers[totals.OTHER]["attempts"] == 4 - most
    assert sum(each["attempts"] for each in workers.values()) == 5


@pytest.mark.parametrize(
    ("answers", "median", "p95"),
    [
        ({}, None, None),
        ({"answers_10": 1}, 10, 10),
        ({"answers_10": 1, "answers_3600": 1}, 10, 3600),
        ({"answers_10": 94, "answers_300": 1, "answers_inf": 5}, 10, 300),
        ({"answers_10": 1, "answers_inf": 19}, None, None),
    ],
)
def test_within_which_time_most_answers_came(answers, median, p95):
    """Rounded up to an edge, never down; nothing is said beyond the last."""
    assert totals.quantile(answers, 0.5) == median
    assert totals.quantile(answers, 0.95) == p95
