"""PSPLIB: project scheduling with pools, as plan documents for the engine's own scheduler."""

from __future__ import annotations

import csv
import re
from functools import cache
from typing import Any, NamedTuple

from tests.external import data, timed

SIZES = {"j30": 0.05, "j60": 0.06, "j120": 0.11}
"""The mean distance from the best known that is allowed for each size of project."""
UNIT_S = 3600.0
TABLE = re.compile(r"^(PRECEDENCE|REQUESTS|RESOURCEAVAIL).*\n((?:(?!\*).*\n)*)", re.MULTILINE)


class Project(NamedTuple):
    """Jobs with durations, what each holds while it runs, and what must end before it."""

    seconds: dict[str, float]
    holds: dict[str, dict[str, int]]
    before: dict[str, list[str]]
    room: dict[str, int]
    best_s: float


def cases() -> list[tuple[str, str]]:
    """Every project that is there and whose best known duration is."""
    found = []
    for size in SIZES:
        texts, best = _texts(size), _best(size)
        found += [(size, name) for name in sorted(texts) if name in best]
    return found


@cache
def _texts(size: str) -> dict[str, str]:
    files = sorted(data.folder("psplib").glob(f"{size}.sm.json*"))
    return data.load(files[0]) if files else {}


@cache
def _best(size: str) -> dict[str, int]:
    """Best known durations; where only bounds are known, the upper one."""
    path = data.folder("psplib") / f"{size}_best_known.csv"
    if not path.exists():
        return {}
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {row["problem"]: int(row["optimum"].split("..")[-1]) for row in rows}


def project(size: str, name: str) -> Project:
    """One of them."""
    return read(_texts(size)[name], _best(size)[name])


def read(text: str, best: int) -> Project:
    """One project."""
    rows = {
        title: [[int(word) for word in line.split()] for line in lines.splitlines()]
        for title, lines in TABLE.findall(_numbers_only(text))
    }
    pools = [f"pool-{i}" for i in range(len(rows["RESOURCEAVAIL"][0]))]
    jobs = {row[0]: row for row in rows["REQUESTS"]}
    before: dict[str, list[str]] = {f"job-{number}": [] for number in jobs}
    for number, _modes, _count, *after in rows["PRECEDENCE"]:
        for other in after:
            before[f"job-{other}"].append(f"job-{number}")
    return Project(
        {f"job-{number}": row[2] * UNIT_S for number, row in jobs.items()},
        {
            f"job-{number}": {p: n for p, n in zip(pools, row[3:], strict=True) if n}
            for number, row in jobs.items()
        },
        before,
        dict(zip(pools, rows["RESOURCEAVAIL"][0], strict=True)),
        best * UNIT_S,
    )


def _numbers_only(text: str) -> str:
    """The text without the heads of its tables: titles, stars and numbers are left."""
    keep = re.compile(r"[A-Z]{3}|\*|[\s\d]+$")
    return "\n".join(line for line in text.splitlines() if line.strip() and keep.match(line)) + "\n"


def plan(project: Project) -> dict[str, Any]:
    """The project as a plan document."""
    steps = [
        {
            "id": name,
            "worker": "crew",
            "parameters": {"seconds": seconds},
            "est": seconds,
            "depends_on": project.before[name],
            "uses": project.holds[name],
        }
        for name, seconds in project.seconds.items()
    ]
    return {"goal": "All jobs", "resources": project.room, "steps": steps}


def gap(project: Project) -> tuple[float, list[str]]:
    """How far from the best known the engine ends, and what is wrong with its schedule."""
    done = timed.run(plan(project), [timed.Sleeper("crew")])
    wrong = timed.broken_rules(
        done.spans, project.seconds, project.before, project.holds, project.room
    )
    return done.seconds / project.best_s - 1, [*done.troubles, *wrong, *([] if done.ok else ["?"])]
