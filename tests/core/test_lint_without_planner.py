"""Warnings about fields that have no effect in a plan without a planner."""

from __future__ import annotations

from typing import Any

import pytest

from leadhand.core.lint.plan import lint
from tests.support.plans import step


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"goal": "g", "steps": list(steps), **more}


def unused(doc: Any) -> list[Any]:
    return [each for each in lint(doc, None) if each.rule == "field-later"]


@pytest.mark.parametrize(
    ("doc", "place"),
    [
        (plan(step(), mode="whole"), "mode"),
        (plan(step(), final=False), "final"),
    ],
)
def test_a_field_without_effect_is_noted(doc: dict[str, Any], place: str) -> None:
    """A warning, and nothing that would keep the plan from running."""
    (note,) = unused(doc)
    assert (note.rule, note.level, note.place) == ("field-later", "warning", place)
    assert "no effect in a plan that names no planner" in note.message
    assert not [each for each in lint(doc, None) if each.level == "error"]


@pytest.mark.parametrize(
    "doc",
    [
        plan(step(failure_action="abort_it"), final=True),
        plan(step(tier="large")),  # agents go by it
        plan(),
        {"steps": 3},
        {"steps": [1]},
        7,
    ],
)
def test_the_rest_is_not_noted(doc: Any) -> None:
    """Nor does a document that is no plan matter: what is wrong with it is not said here."""
    assert unused(doc) == []
