"""`leadhand lint`: all findings about a plan, at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from leadhand.app.composition import known_catalog, planner_problem, registry_of
from leadhand.app.contexts import in_context
from leadhand.cli.console import Console
from leadhand.cli.group import command, finding_document
from leadhand.cli.options import (
    NO_CATALOG,
    context_option,
    pairs,
    say_not_loaded,
    set_option,
    settings_of,
    told_values,
    without_echo,
    workers_option,
)
from leadhand.cli.plan_source import find_plan, library_plans, with_lines
from leadhand.cli.rendering.text import clean, count
from leadhand.core.lint.findings import Finding
from leadhand.core.plan.model import Doc
from leadhand.settings import Settings

if TYPE_CHECKING:
    from leadhand.workers.registry import Registry

SHOWN_MAX = 5
"""The number of warnings shown per rule."""


@command("lint", "leadhand lint plan.yaml --workers workers.py")
@click.argument("plans", nargs=-1, required=True, metavar="PLAN...")
@workers_option
@set_option
@context_option
@click.option("--all", "everything", is_flag=True, help="Also show notes and every warning.")
def lint(
    console: Console,
    plans: tuple[str, ...],
    workers: tuple[str, ...],
    sets: tuple[str, ...],
    context: str | None,
    *,
    everything: bool,
) -> int:
    """Check a plan and report every error and warning.

    Each finding names its rule, place, reason and fix. PLAN is a JSON or YAML file, - for
    standard input, or the name of a plan in the library; with several plans, --json prints one
    document for all. The exit code is 3 if there are errors; warnings and notes do not prevent a
    run. Without workers only the plan itself is checked. Values given with --set are checked too.
    """
    settings = settings_of(workers=workers, context=context)
    registry = registry_of(settings)
    found = [_checked(console, settings, registry, plan, sets) for plan in plans]
    valid = all(each.valid for each in found)
    if console.json:
        documents = [each.document(settings) for each in found]
        one = len(documents) == 1
        console.document(documents[0] if one else {"valid": valid, "plans": documents})
        return 0 if valid else 3
    for each in found:
        _print(console, each, f"{each.name}: " if len(plans) > 1 else "", everything=everything)
    _say_unchecked(console, settings, workers=found[0].checked_workers)
    for each in found:
        _conclude(console, each)
    if valid and len(plans) == 1:
        console.next(f"leadhand run {plans[0]}")
    return 0 if valid else 3


class CheckedPlan(NamedTuple):
    """A plan with the findings about it."""

    name: str
    doc: Doc
    findings: list[Finding]
    checked_workers: bool

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(each.level == "error" for each in self.findings)

    @property
    def valid(self) -> bool:
        """Whether the plan may run."""
        return not self.errors

    def document(self, settings: Settings) -> Doc:
        """Return the document of `--json`."""
        return {
            "plan": self.name,
            "valid": self.valid,
            "checked_workers": self.checked_workers,
            "not_loaded": [str(each) for each in settings.not_loaded],
            "findings": [finding_document(each) for each in self.findings],
        }


def _checked(
    console: Console, settings: Settings, registry: Registry, plan: str, sets: tuple[str, ...]
) -> CheckedPlan:
    """Return a plan with everything that is wrong with it."""
    from leadhand.core.lint.plan import lint as check
    from leadhand.workers.requirements import missing_programs

    doc = find_plan(console, settings, plan).doc
    known = known_catalog(settings, registry)
    doc = in_context(settings, doc, known).doc
    given = pairs(sets, "--set")
    values, wrong = told_values(doc, given, settings.context)
    catalog = known if len(registry) and not settings.not_loaded else None
    pools, kept = settings.policy.resources, library_plans(settings)
    found = check(
        doc,
        catalog,
        params=values,
        resources=pools,
        library=kept,
        planners=partial(planner_problem, settings=settings, running=False),
        run_refs="warning",
    )
    found = without_echo(wrong, found)
    if not any(each.level == "error" for each in found):
        found += missing_programs(doc, registry, "warning")
    return CheckedPlan(plan, doc, list(with_lines(plan, found)), catalog is not None)


def _print(console: Console, plan: CheckedPlan, prefix: str, *, everything: bool) -> None:
    """Print the findings, each after `prefix`."""
    shown = plan.findings if everything else _worth_showing(plan.findings)
    for each in shown:
        console.out(f"{'' if each.file else clean(prefix)}{clean(each)}")
    if len(shown) < len(plan.findings):
        console.say(f"{_rest(plan.findings, shown)} not shown; --all shows everything")


def _conclude(console: Console, plan: CheckedPlan) -> None:
    """Say whether a plan is valid."""
    if plan.errors:
        console.say(f"{plan.name}: {count(plan.errors, 'error')}")
        return
    steps = plan.doc.get("steps")
    size = count(len(steps) if isinstance(steps, list) else 0, "step")
    console.say(f"{plan.name}: {console.paint('valid', 'green')}, {size}")


def _say_unchecked(console: Console, settings: Settings, *, workers: bool) -> None:
    """Say what could not be checked; `workers`: whether the plan was checked against them."""
    if settings.not_loaded:
        say_not_loaded(console, settings)
        console.say("note: only the plan itself was checked: no worker, parameter or result of one")
    elif not workers:
        console.say(f"note: {NO_CATALOG}")


def _worth_showing(findings: Sequence[Finding]) -> list[Finding]:
    """Return all errors, some warnings of each rule, and a note about the rest."""
    seen: Counter[str] = Counter()
    shown = []
    for each in findings:
        seen[each.rule] += each.level == "warning"
        some = each.level == "warning" and seen[each.rule] <= SHOWN_MAX
        if each.level == "error" or some or each.rule == "findings-cut":
            shown.append(each)
    return shown


def _rest(findings: Sequence[Finding], shown: Sequence[Finding]) -> str:
    left = Counter(each.level for each in findings)
    left.subtract(each.level for each in shown)
    return " and ".join(count(left[each], each) for each in ("warning", "note") if left[each])
