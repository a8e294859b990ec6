"""Lint against the benchmark's verdict on plans that models wrote: facts followed to the end."""

from __future__ import annotations

from leadhand.core.lint.plan import lint
from tests.external import data, planbench
from tests.support.need import need

AGREE_MIN = 0.999

PLANBENCH = data.folder("planbench")
need(PLANBENCH.is_dir(), f"PlanBench in {PLANBENCH}; LEADHAND_TEST_DATA names another folder")


def test_lint_agrees_with_the_verdict_on_each_plan():
    """A plan has an error exactly when it does not work; the judge is the benchmark's own."""
    plans = agreed = 0
    for each in planbench.recorded():
        found = lint(each.plan, each.catalog, advice=False)
        plans += 1
        agreed += each.correct != any(finding.level == "error" for finding in found)
    assert plans
    assert agreed >= AGREE_MIN * plans, f"{agreed} of {plans}"
