"""How often each rule of `leadhand lint` fires on good plans and on bad ones.

`make calibrate` runs it. Good plans are those that people approved (TaskBench gold, WorFBench,
AsyncHow) or that were proved right (PlanBench), bad ones those that small models wrote
(TaskBench predictions) or that were proved wrong. A rule that fires as often on the good as on
the bad says nothing about a plan, however sensible it sounds. The figures are shares of plans
in which a rule fires at least once. The data comes from
LEADHAND_TEST_DATA (`tests/external/data.py`) and is not part of the project.
"""

from __future__ import annotations

import sys
from collections import Counter

from leadhand.core.catalog import Catalog
from leadhand.core.lint.plan import lint
from leadhand.core.lint.rules import RULES
from leadhand.core.plan.model import Doc
from tests.external import howto, planbench, taskbench, worfbench

Plans = list[tuple[Catalog | None, Doc]]
Sets = dict[str, Plans]
ANY = ("any error", "any warning")


def fires(plans: Plans) -> Counter[str]:
    """In how many plans each rule fires, and each level."""
    found: Counter[str] = Counter()
    for catalog, plan in plans:
        findings = lint(plan, catalog)
        found.update({each.rule for each in findings})
        found.update({f"any {each.level}" for each in findings})
    return found


def table(sets: Sets) -> list[str]:
    """A line for each rule that fires at all, as Markdown."""
    counts = {name: fires(plans) for name, plans in sets.items()}
    ordered = [*ANY, *sorted(RULES, key=lambda rule: RULES[rule].code)]
    lines = [
        f"| rule | level | {' | '.join(sets)} |",
        "|---|---|" + "---:|" * len(sets),
        "| plans | |" + "".join(f" {len(plans):,} |" for plans in sets.values()),
    ]
    for rule in ordered:
        if not any(count[rule] for count in counts.values()):
            continue
        named = (
            f"{RULES[rule].code} `{rule}` | {RULES[rule].level}" if rule in RULES else f"{rule} |"
        )
        shares = [share(counts[name][rule], len(sets[name])) for name in sets]
        lines.append(f"| {named} | " + " | ".join(shares) + " |")
    return lines


def share(count: int, total: int) -> str:
    """A percentage; what never happens is left out."""
    return f"{count / total:.1%}" if count and total else "–"


def known(sets: dict[str, tuple[Catalog, list[Doc]]]) -> Sets:
    """Sets of plans that share a catalogue."""
    return {
        name.removeprefix("pred_"): [(catalog, plan) for plan in plans]
        for name, (catalog, plans) in sets.items()
    }


def all_sets() -> Sets:
    """Good plans first, then bad ones; what is not there is left out."""
    judged = list(planbench.recorded())
    right: Plans = [(each.catalog, each.plan) for each in judged if each.correct]
    wrong: Plans = [(each.catalog, each.plan) for each in judged if not each.correct]
    sets = known(taskbench.gold())
    sets["worfbench"] = [(None, plan) for plan in worfbench.gold()]
    sets["asynchow"] = [(None, plan) for plan in howto.gold()]
    sets |= {"planbench right": right} | known(taskbench.recorded()) | {"planbench wrong": wrong}
    return {name: plans for name, plans in sets.items() if plans}


def main() -> int:
    """Print the table."""
    sets = all_sets()
    if not sets:
        print("no data: set LEADHAND_TEST_DATA to the folder that has it", file=sys.stderr)
        return 1
    print("\n".join(table(sets)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
