"""A whole plan that is written anew: what it takes out, and what it waits for."""

from __future__ import annotations

from typing import Any

from leadhand import Goal, Permanent, Transient
from leadhand.testing import scripted, simulate


def test_what_drops_a_fact_waits_for_a_step_between_two_attempts():
    """A step in a backoff still needs its facts: the new step that uses them up comes after it."""
    seen: list[str] = []

    def consumes(_task: Any) -> str:
        seen.append("consume")
        return "used"

    def reads(_task: Any) -> Any:
        seen.append("read")
        return Transient("busy") if len(seen) == 1 else "read"

    workers = [
        scripted("make", ["made"], gives=("stock",)),
        scripted("read", [reads], needs=("stock",), gives=("reading",), idempotent=True),
        scripted("quick", [Permanent("gone")], needs=("stock",), gives=("goods",), cost=1),
        scripted("slow", [consumes], needs=("stock",), gives=("goods",), drops=("stock",), cost=5),
    ]
    done = simulate(Goal(want=["reading", "goods"], mode="whole"), workers)
    assert done.outcome.status == "succeeded"
    assert seen == ["read", "read", "consume"]


def test_every_step_that_has_not_begun_is_taken_out():
    """Two steps of one worker are two steps: both go when the plan is written anew."""
    filled: list[str] = []

    def fill(task: Any) -> str:
        filled.append(task.step)
        return "full"

    workers = [
        scripted("old", [Permanent("gone")], gives=("is:there",), cost=1),
        scripted("new", ["there"], gives=("is:there",), cost=2),
        scripted("fill", [fill], needs=("is:there",), gives=("is:full",)),
        scripted("pour", ["poured"], needs=("is:full",), gives=("cup",), drops=("is:full",)),
        scripted("sip", ["sipped"], needs=("is:full",), gives=("taste",), drops=("is:full",)),
    ]
    done = simulate(Goal(want=["cup", "taste"], mode="whole"), workers)
    assert done.outcome.status == "succeeded"
    assert len(filled) == 2
