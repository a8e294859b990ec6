"""Write the figures of docs/explanation/why-plans.md from the results of examples/eval.

    leadhand eval examples/eval --trust --output OUT
    python scripts/plan_figures.py OUT      # keeps OUT's figures in examples/eval/measured
    python scripts/plan_figures.py          # writes the page again from those

`tests/evals/test_records.py` holds the page and the results together.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "examples" / "eval" / "measured"
PAGE = ROOT / "docs" / "explanation" / "why-plans.md"
BEGIN, END = "<!-- figures of examples/eval -->\n", "<!-- end of figures -->\n"
KEPT = ("comparison.json", "trials.csv")
KINDS = {
    "one": "one record",
    "list": "lists of 3, 6, 12 and 18",
    "chain": "each record names the next: 4 and 8",
    "moved": "one of 4, one of 8 is elsewhere",
    "bill": "4, 8, then a bill that cannot be taken back",
}


def span(each: dict[str, float]) -> str:
    """Return a share with its interval."""
    return f"{100 * each['value']:.0f} % ({100 * each['low']:.0f}–{100 * each['high']:.0f})"


def points(gap: dict[str, Any] | None) -> str:
    """Return a difference in points with its interval; nothing for the first level."""
    if gap is None:
        return ""
    value, low, high = (100 * gap["success"][name] for name in ("value", "low", "high"))
    return f"{value:+.0f} ({low:+.0f} to {high:+.0f})"


def percent(value: float) -> str:
    """Return a share."""
    return f"{100 * value:.0f} %"


def rows(*lines: list[str]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *rest = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rest])


def costs(kind: str, level: str) -> float:
    """Return what a trial of a kind of goal cost on average with one level of planning."""
    with (MEASURED / "trials.csv").open(newline="") as opened:
        return fmean(
            float(row["cost"])
            for row in csv.DictReader(opened)
            if row["goal"].startswith(kind) and row["arm"].startswith(f"{level}/")
        )


def figures(found: dict[str, Any]) -> str:
    """Return the section's tables."""
    names = ["planning, checks, model", "success", "false success", "first attempts", "cost"]
    arms = [
        [
            arm["arm"].replace("/", ", "),
            span(arm["success"]),
            span(arm["false_success"]),
            span(arm["first_pass"]),
            f"${arm['cost']['value']:.4f}",
        ]
        for arm in found["arms"]
    ]
    gaps = {(each["factor"], each["level"]): each for each in found["level_differences"]}
    names_of_levels = ["level", "success", "against the first", "false success", "cost"]
    of_levels = [
        [
            f"{each['factor']}: {each['level']}",
            span(each["success"]),
            points(gaps.get((each["factor"], each["level"]))),
            span(each["false_success"]),
            f"${each['cost']['value']:.4f}",
        ]
        for each in found["levels"]
    ]
    planning = [each for each in found["levels"] if each["factor"] == "planning"]
    levels = [each["level"] for each in planning]
    kinds = []
    for kind, what in KINDS.items():
        goals = [shares for name, shares in found["by_goal"].items() if name.startswith(kind)]
        means = [
            fmean(share for goal in goals for arm, share in goal.items() if arm.startswith(level))
            for level in levels
        ]
        times = [costs(kind, level) / costs(kind, levels[0]) for level in levels[1:]]
        kinds.append([what, *map(percent, means), *(f"{each:.1f}" for each in times)])
    heads = ["goals", *levels, *(f"cost of {level}, {levels[0]} = 1" for level in levels[1:])]
    shares = {each["figure"]: each["shares"] for each in found["variance"]}
    shown = ("success", "false success", "cost")
    names_of = dict.fromkeys(name for figure in shown for name in shares[figure])
    variance = []
    for name in names_of:
        explained = [percent(shares[figure][name]["share"]) for figure in shown]
        variance.append([name, *explained, percent(shares["success"][name]["by_chance"])])
    least = f"{found['goals']} goals, {len(found['arms'])} arms, {found['repeat']} repetitions"
    return "\n\n".join(
        [
            f"{least}: {found['trials']} trials, {len(found['errors'])} errors.",
            rows(names, *arms),
            "Each level over all others; differences are paired by goal:",
            rows(names_of_levels, *of_levels),
            "Success and cost by kind of goal, over checks and models:",
            rows(heads, *kinds),
            "What explains the variance over all trials:",
            rows(["explained by", *shown, "by chance"], *variance),
        ]
    )


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with its figures written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{figures(found)}\n\n{END}{after}"


def main() -> None:
    """Take over results, if a folder is given; write the page."""
    if len(sys.argv) > 1:
        MEASURED.mkdir(exist_ok=True)
        for name in KEPT:
            shutil.copy(Path(sys.argv[1]) / name, MEASURED / name)
    found = json.loads((MEASURED / "comparison.json").read_text())
    PAGE.write_text(page(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
