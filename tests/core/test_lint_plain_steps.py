"""The quick yes for plain steps never says yes to what the full checks would report."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.lint import plan as check
from leadhand.core.lint.step import KnownActions

CATALOG = Catalog(
    [
        WorkerSpec(name="any", offers={"": Offer()}),
        WorkerSpec(name="one", offers={"go": Offer(parameters={"type": "object"})}),
        WorkerSpec(name="needs", offers={"": Offer(parameters={"required": ["x"]})}),
    ]
)
names = st.sampled_from(
    ["a", "b", "c", "a.data", "", "ü", "a b", "-x", "x" * 101, 1, None, "any", "${{ a }}"]
)
steps = st.fixed_dictionaries(
    {"id": names, "worker": st.sampled_from(["any", "one", "needs", "nobody", "", 3])},
    optional={
        "action": st.sampled_from(["", "go", "stop", 1, "a b"]),
        "depends_on": st.one_of(st.lists(names, max_size=4), st.just("a"), st.just({}), st.none()),
        "parameters": st.sampled_from([{}, {"x": 1}, [], None, {"x": "${{ params.y }}"}]),
        "timeout": st.just("soon"),
    },
)


@given(st.lists(steps, min_size=1, max_size=5))
def test_quick_yes_agrees_with_the_full_checks(docs: list[dict[str, Any]]) -> None:
    """Lint finds the same with and without the quick path."""
    plan = {"goal": "g", "steps": docs}
    quick = check.lint(plan, CATALOG)
    with patch.object(KnownActions, "form", lambda _self, _step: False):
        full = check.lint(plan, CATALOG)
    assert quick == full


def test_ordinary_steps_are_plain() -> None:
    """The steps the quick path is for do take it."""
    assert KnownActions().form({"id": "s1", "worker": "any", "depends_on": ["s0"]})
    assert KnownActions().form({"id": "s1", "worker": "any", "action": "go", "parameters": {}})
    assert not KnownActions().form({"id": "s1", "worker": "any", "timeout": 3})
