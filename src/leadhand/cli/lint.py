"""`leadhand lint`: everything there is to say about a plan, at once."""

from __future__ import annotations

from collections.abc import Sequence

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command, finding_document
from leadhand.cli.options import (
    NO_CATALOG,
    pairs,
    read_plan,
    registry_of,
    set_option,
    settings_of,
    values_of,
    without_echo,
    workers_option,
)
from leadhand.cli.text import clean, count
from leadhand.core.check import Finding


@command("lint", "leadhand lint plan.yaml --workers workers.py")
@click.argument("plan")
@workers_option
@set_option
def lint(console: Console, plan: str, workers: tuple[str, ...], sets: tuple[str, ...]) -> int:
    """Check a plan and report everything that is wrong with it: rule, place, reason, fix.

    PLAN is a JSON or YAML file, or - for standard input. Errors exit with 3. Without workers
    only the plan itself is checked. Values given with --set are checked too.
    """
    from leadhand.core.check import lint as check
    from leadhand.core.check_later import later

    settings = settings_of(workers=workers)
    registry = registry_of(settings)
    doc = read_plan(plan)
    given = pairs(sets, "--set")
    values, wrong = values_of(doc, given) if given else (None, [])
    catalog = registry.catalog() if len(registry) else None
    found = check(doc, catalog, params=values, resources=settings.policy.resources)
    findings = without_echo(wrong, found)
    findings += later(doc)
    errors = [each for each in findings if each.level == "error"]
    if console.json:
        console.document(
            {
                "plan": plan,
                "valid": not errors,
                "checked_workers": catalog is not None,
                "findings": [finding_document(each) for each in findings],
            }
        )
        return 3 if errors else 0
    print_findings(console, findings)
    if catalog is None:
        console.say(f"note: {NO_CATALOG}")
    if errors:
        console.say(f"{plan}: {count(len(errors), 'error')}")
        return 3
    steps = doc.get("steps")
    size = count(len(steps) if isinstance(steps, list) else 0, "step")
    console.say(f"{plan}: {console.paint('valid', 'green')}, {size}")
    console.next(f"leadhand run {plan}")
    return 0


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """One line for each finding; they are the data of `lint`."""
    for each in findings:
        console.out(clean(each))
