"""The judge of planners of one step at a time: it says no when it should."""

from __future__ import annotations

import pytest

from leadhand import Finish
from tests.external import evals, iterative


def test_a_wrong_result_is_no_goal(monkeypatch):
    """A planner that calls anything done reaches nothing."""

    def liar(*, eager):
        async def planner(_view):
            return Finish("Acme is cheapest")

        return planner

    monkeypatch.setattr(iterative, "_script", liar)
    played = iterative.play(("script", 1))
    assert (played.end, played.good) == ("wrong result: 'Acme is cheapest'", False)
    line, *_ = evals.iterative_lines([played])
    assert not line.met


@pytest.mark.parametrize("kind", ["script", "model"])
def test_faults_come_as_often_as_said_and_are_the_same_each_time(kind):
    """Paired: script and model meet the same faults, and go the same way."""
    first, second = iterative.play((kind, 3)), iterative.play((kind, 3))
    assert first == second
    assert first.end == "reached"


def test_the_model_knows_nothing_but_its_prompt():
    """It reads the status of steps from the text, as a model would."""
    text = (
        "- price-acme: fetch_price: failed:\n<data x>\nbusy\n</data x>\n- compare: compare: ready"
    )
    assert dict(iterative._LINE.findall(text)) == {"price-acme": "failed", "compare": "ready"}
    thought = iterative._next({"price-acme": "failed"}, eager=False)
    assert thought.steps[0]["id"] == "price-acme-2"
    assert thought.steps[0]["supersedes"] == "price-acme"
