"""The bench: Leadhand against its peers and against what the machine can do, in one run.

`make bench` runs it. Every case is a fresh process; the cases take turns, round after round, so
that a slow minute of the machine falls on all of them; a figure is the median over all turns
of the ratio within a turn. Databases lie side by side in one folder, hence on one disk. The
peers live in `.venv-bench`, made from `requirements/bench.txt` (hashes required) by
`scripts/environment.py` when it is missing or out of date. What fails or cannot be installed
is shown as such.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from cases import CASES, FULL, GOALS, Case, Line, Samples, judge, middle
from frame import BENCH, TOO_LONG, Result, finish, run_case

ROOT = BENCH.parent
RESULTS = BENCH / "results"
TURNS = {"chain": 3, "fanout": 2}
"""Turns within a round: a chain waits for the disk all the time, the noisiest thing there is."""
SHOWN = ("size", "seconds", "steps_per_s", "rss_mb", "peak_mb")
"""Fields with a column of their own; the others stand under remarks."""


def options() -> argparse.Namespace:
    """What was asked for."""
    groups = list(dict.fromkeys(case.group for case in CASES))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, help="default 3, quick 1")
    parser.add_argument("--quick", action="store_true", help="small sizes: a look, not a figure")
    parser.add_argument("--full", action="store_true", help="also peers at fan-out 10,000")
    parser.add_argument("--only", metavar="A,B", help=f"of {','.join(groups)}")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one case")
    ready = os.environ.get("LEADHAND_BENCH_PEERS")
    parser.add_argument("--peers-python", default=ready, help="an interpreter that has the peers")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a goal is not met")
    given = parser.parse_args()
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.groups = given.only.split(",") if given.only else groups
    if unknown := set(given.groups) - set(groups):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(groups)}")
    return given


def peers_python() -> tuple[str, str]:
    """The peers' interpreter, made if need be; and what went wrong, if it did."""
    python = ROOT / ".venv-bench" / "bin" / "python"
    make = [sys.executable, str(ROOT / "scripts" / "environment.py"), "bench"]
    done = finish(make, timeout=900)
    if done is None:
        return "", "peers not installed: it took more than 900 s"
    if done.returncode:
        said = (done.stderr or done.stdout).splitlines() or ["no reason given"]
        reason = next((line for line in said if line.startswith("ERROR")), said[-1])
        return "", f"peers not installed: {reason[:120]}"
    return str(python), ""


def one(case: Case, given: argparse.Namespace, folder: Path, peers: tuple[str, str]) -> Result:
    """Run one case once."""
    python, missing = peers if case.peer else (sys.executable, "")
    if missing:
        return {"error": missing}
    size = case.quick if given.quick else case.size
    args = [case.shape, "--size", str(size), "--dir", str(folder / case.name), *case.args]
    if case.source:
        args += ["--source", str(folder / case.source / "leadhand.db")]
    os.sync()  # what earlier cases left to be written is not this one's to wait for
    return run_case(case.module, args, python, given.timeout)


def measure(cases: list[Case], given: argparse.Namespace, peers: tuple[str, str]) -> Samples:
    """All rounds. A case that ran out of time once is not tried again."""
    samples: Samples = {case.name: [] for case in cases}
    groups = dict.fromkeys(case.group for case in cases)
    turns = [group for group in groups for _ in range(1 if given.quick else TURNS.get(group, 1))]
    folder = RESULTS / "work"
    for turn in range(given.rounds):
        for group in turns:
            shutil.rmtree(folder, ignore_errors=True)
            for case in cases:
                if case.group == group:
                    taken = samples[case.name]
                    late = taken and TOO_LONG in taken[-1].get("error", "")
                    taken.append(taken[-1] if late else one(case, given, folder, peers))
                    said = taken[-1].get("error") or f"{taken[-1]['seconds']:.2f} s"
                    print(f"{turn + 1}/{given.rounds}  {case.name}: {said}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    return samples


def number(value: float | None, unit: str = "") -> str:
    """A figure with three digits that matter."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if unit != "s" else 3
    return f"{value:,.{digits}f}" + (f" {unit}" if unit else "")


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned text, the first one underlined."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def medians(cases: list[Case], samples: Samples) -> str:
    """Every case: its median, its range, how durable it was."""
    rows = [("case", "size", "seconds", "steps/s", "lowest - highest", "peak MB", "remarks")]
    for case in cases:
        results = samples[case.name]
        good = [result for result in results if "error" not in result]
        failed = next((result["error"] for result in results if "error" in result), "")
        if not good:
            rows.append((case.name, "", "failed", "", "", "", failed))
            continue
        extra = {name: value for name, value in good[-1].items() if name not in SHOWN}
        shown = [f"{name} {value}" for name, value in extra.items()]
        shown += ["for reference"] * (not case.compared)
        shown += [f"{len(results) - len(good)} of {len(results)} failed: {failed}"] * bool(failed)
        rates = [result["steps_per_s"] for result in good]
        figures = (
            number(middle(good, "seconds"), "s"),
            number(middle(good, "steps_per_s")),
            f"{number(min(rates))} - {number(max(rates))}",
            number(middle(good, "peak_mb")),
        )
        # A case that gives a ratio of its own says it all in its remarks.
        figures = ("", "", "", "") if "ratio" in good[-1] else figures
        rows.append((case.name, f"{good[-1]['size']:,}", *figures, ", ".join(shown)))
    return columns(rows)


def goals(lines: list[Line]) -> str:
    """The table: every goal, what it was held against, and whether it was met."""
    rows = [("goal", "leadhand", "against", "figure", "lowest - highest", "wanted", "verdict")]
    for line in lines:
        goal = line.goal
        unit = {"steps_per_s": "/s", "seconds": "s"}.get(goal.field, goal.unit)
        against = f"{line.other}: {number(line.theirs, unit)}" if line.other else line.why
        spread = [number(bound(line.figures), goal.unit) for bound in (min, max) if line.figures]
        rows.append(
            (
                goal.what,
                number(line.ours, unit) if line.ours is not None else "-",
                against,
                number(line.figure, goal.unit) if line.figure is not None else "-",
                " - ".join(spread),
                goal.wanted,
                line.verdict,
            )
        )
    return columns(rows)


def main() -> int:
    """Measure, judge, print, keep."""
    given = options()
    cases = [c for c in CASES + (FULL if given.full else []) if c.group in given.groups]
    needed = any(case.peer for case in cases)
    peers = (given.peers_python, "") if given.peers_python or not needed else peers_python()
    load = os.getloadavg()[0]
    samples = measure(cases, given, peers)
    lines = [judge(goal, cases, samples) for goal in GOALS if goal.group in given.groups]
    about = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "rounds": given.rounds,
        "quick": given.quick,
    }
    print(medians(cases, samples), end="\n\n")
    print(goals(lines), end="\n\n")
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    kept = [asdict(line) | {"figure": line.figure, "verdict": line.verdict} for line in lines]
    RESULTS.mkdir(exist_ok=True)
    report = about | {"goals": kept, "samples": samples}
    (RESULTS / "latest.json").write_text(json.dumps(report, indent=1) + "\n")
    unrun = any("error" in result for results in samples.values() for result in results)
    unmet = any(line.verdict != "met" for line in lines)
    return 1 if unrun or (given.strict and unmet) else 0


if __name__ == "__main__":
    sys.exit(main())
