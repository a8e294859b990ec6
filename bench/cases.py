"""What is run and what must hold: the cases, and the goals their figures are held against."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Literal

from frame import Result

Samples = dict[str, list[Result]]
"""By the name of a case: one result per turn."""


@dataclass(frozen=True)
class Case:
    """One module with its arguments, run once a turn in a fresh process."""

    group: str
    name: str
    module: str
    shape: str
    size: int
    quick: int
    args: tuple[str, ...] = ()
    peer: bool = False
    """Runs in the peers' environment."""
    compared: bool = True
    """False: shown for reference, for it keeps a weaker promise or is another shape."""
    source: str = ""
    """The case whose database it reads."""


def _langgraph(
    group: str, size: int, quick: int, saver: str, mode: str = "sync", label: str = ""
) -> Case:
    name = f"langgraph {saver}-saver {label}{group}"
    args = ("--saver", saver, "--durability", mode)
    module, compared = "peers.langgraph_sqlite", mode == "sync"
    return Case(group, name, module, group, size, quick, args, peer=True, compared=compared)


def _dbos(
    group: str, size: int, quick: int, journal: str, how: str = "gather", label: str = ""
) -> Case:
    name = f"dbos {journal} {label}{group}" + (f" by {how}" if group == "fanout" else "")
    args = ("--journal", journal, "--how", how)
    return Case(group, name, "peers.dbos_sqlite", group, size, quick, args, peer=True)


def _ours(group: str, size: int, quick: int, module: str = "leadhand_cases") -> Case:
    return Case(group, f"leadhand {group}", module, group, size, quick)


PLAIN, JOURNAL = "limits.asyncio_plain", "limits.sqlite_journal"
CASES = [
    Case("chain", "asyncio chain", PLAIN, "chain", 1000, 200),
    Case("chain", "sqlite commits", JOURNAL, "commits", 2000, 500),
    _ours("chain", 1000, 200),
    _langgraph("chain", 1000, 200, "sync"),
    _langgraph("chain", 1000, 200, "async"),
    _langgraph("chain", 1000, 200, "sync", "async", "background "),
    _dbos("chain", 1000, 200, "wal"),
    _dbos("chain", 1000, 200, "delete"),
    Case("fanout", "asyncio fanout", PLAIN, "fanout", 10_000, 2000),
    _ours("fanout", 10_000, 2000),
    Case("fanout", "journal", JOURNAL, "journal", 10_000, 2000, source="leadhand fanout"),
    Case(
        *("fanout", "sqlite one commit", JOURNAL, "journal", 10_000, 2000, ("--maximal",)),
        compared=False,
        source="leadhand fanout",
    ),
    _langgraph("fanout", 300, 100, "sync", label="small "),
    _langgraph("fanout", 300, 100, "async", label="small "),
    _langgraph("fanout", 1000, 300, "sync"),
    _langgraph("fanout", 1000, 300, "async"),
    _dbos("fanout", 1000, 300, "wal", "threads"),
    _dbos("fanout", 1000, 300, "wal", "gather"),
    _dbos("fanout", 1000, 300, "delete", "threads"),
    Case("sleepers", "asyncio sleepers", PLAIN, "sleepers", 1000, 1000),
    _ours("sleepers", 1000, 1000),
    _ours("service", 200, 50),
    _ours("growth", 100_000, 10_000, "growth"),
    _ours("resume", 10_000, 2000, "resume"),
    _ours("coldstart", 21, 7, "coldstart"),
    _ours("sources", 11, 5, "sources"),
    _ours("memory", 10_000, 2000, "memory"),
    _ours("streaming", 200, 50, "streaming"),
    _ours("postgres", 300, 100, "postgres_commits"),
    Case("deciding", "leadhand deciding", "deciding", "few", 400, 400),
    Case("deciding2000", "leadhand deciding2000", "deciding", "many", 2000, 2000),
    Case("dropping", "leadhand dropping", "deciding", "dropped", 400, 400),
    Case("dropping2000", "leadhand dropping2000", "deciding", "dropped", 2000, 2000),
    Case("contended", "leadhand contended", "deciding", "contended", 400, 400),
    Case("contended2000", "leadhand contended2000", "deciding", "contended", 2000, 2000),
]
FULL = [
    _langgraph("fanout", 10_000, 10_000, "async", label="large "),
    _dbos("fanout", 10_000, 10_000, "wal", "threads", label="large "),
]
"""Peers at the size Leadhand is run at. They do worse there, and it takes minutes."""


@dataclass(frozen=True)
class Goal:
    """A figure of ours, alone or against the best of others, and the bound it must keep."""

    group: str
    what: str
    kind: Literal["times", "after", "alone"]
    least: float = -inf
    most: float = inf
    against: tuple[str, ...] = ()
    """How the names begin of those it is held against; the fastest of them counts."""
    field: str = "steps_per_s"
    unit: str = "x"

    @property
    def wanted(self) -> str:
        """The bound in words."""
        word, bound = ("at most", self.most) if self.least == -inf else ("at least", self.least)
        return f"{word} {bound:g} {self.unit}"


PEERS = ("langgraph", "dbos")
GOALS = [
    Goal("chain", "chain, of SQLite's durable commits", "times", 0.3, against=("sqlite",)),
    Goal("chain", "chain, against the faster peer", "times", 2, against=PEERS),
    Goal("fanout", "fan-out, against LangGraph", "times", 10, against=PEERS[:1]),
    Goal("fanout", "fan-out, against DBOS", "times", 10, against=PEERS[1:]),
    Goal("fanout", "fan-out, of a bare journal", "times", 0.2, against=("journal",)),
    Goal(
        *("sleepers", "sleepers, after plain asyncio", "after"),
        most=0.15,
        against=("asyncio",),
        field="seconds",
        unit="s",
    ),
    Goal(
        *("service", "a service: 200 runs of 5 steps at once, by the clock", "alone"),
        least=280,
        unit="/s",
    ),
    Goal(
        *("service", "the same, by processor time", "alone"),
        least=280,
        field="runs_per_cpu_s",
        unit="/s",
    ),
    Goal("growth", "cost per event, large plan to small", "alone", most=1.5, field="ratio"),
    Goal("resume", "resume, to reading the log", "alone", most=2, field="ratio"),
    Goal("coldstart", "leadhand --help, to python -c pass", "alone", most=6, field="ratio"),
    Goal("sources", "a script, its environment inside", "alone", most=1.2, field="ratio"),
    Goal("memory", "memory at its highest", "alone", most=150, field="peak_mb", unit="MB"),
    Goal(
        *("streaming", "a commit beside 200 stream readers, to one alone", "alone"),
        most=1.5,
        field="ratio",
    ),
    Goal("postgres", "PostgreSQL, one by one, of bare commits", "alone", 0.3, field="ratio"),
    Goal("postgres", "PostgreSQL, runs at once, of bare commits", "alone", 3, field="together"),
    Goal(
        *("deciding", "a decision, 10 of 400 workers matter, scaled", "alone"),
        most=20,
        field="ratio",
        unit="ms",
    ),
    Goal(
        *("deciding2000", "a decision, 2,000 workers that all matter, scaled", "alone"),
        most=250,
        field="ratio",
        unit="ms",
    ),
    Goal(
        *("dropping", "a decision, 400 workers that use up what they need, scaled", "alone"),
        most=92,
        field="ratio",
        unit="ms",
    ),
    Goal(
        *("dropping2000", "a decision, 2,000 that use up what they need, scaled", "alone"),
        most=660,
        field="ratio",
        unit="ms",
    ),
    Goal(
        *("contended", "a decision, 400 that use up what others need, scaled", "alone"),
        most=120,
        field="ratio",
        unit="ms",
    ),
    Goal(
        *("contended2000", "a decision, 2,000 that use up what others need, scaled", "alone"),
        most=660,
        field="ratio",
        unit="ms",
    ),
]


@dataclass(frozen=True)
class Line:
    """A goal and what came of it."""

    goal: Goal
    ours: float | None = None
    other: str = ""
    theirs: float | None = None
    figures: tuple[float, ...] = ()
    """One per turn; the median counts."""
    why: str = ""
    """Why there is no figure."""

    @property
    def figure(self) -> float | None:
        """The median over all turns."""
        return median(self.figures) if self.figures else None

    @property
    def verdict(self) -> str:
        """met, short, or not measured."""
        if self.figure is None:
            return "not measured"
        return "met" if self.goal.least <= self.figure <= self.goal.most else "short"


def middle(results: list[Result], field: str) -> float | None:
    """The median of a field over the turns that gave it."""
    values = [result[field] for result in results if field in result]
    return median(values) if values else None


def judge(goal: Goal, cases: list[Case], samples: Samples) -> Line:
    """Hold our figure against the others', turn by turn."""
    ours = samples.get(f"leadhand {goal.group}", [])
    mine = middle(ours, goal.field)
    if mine is None:
        return Line(goal, why=f"leadhand: {error(ours)}")
    if goal.kind == "alone":
        found = tuple(result[goal.field] for result in ours if goal.field in result)
        return Line(goal, mine, figures=found)
    others = [c for c in cases if c.compared and c.group == goal.group]
    rivals = [case.name for case in others if case.name.startswith(goal.against)]
    rates = {name: middle(samples[name], "steps_per_s") for name in rivals}
    measured = {name: rate for name, rate in rates.items() if rate is not None}
    for begin in goal.against:
        if not any(name.startswith(begin) for name in measured):
            tried = [r for name in rivals if name.startswith(begin) for r in samples[name]]
            return Line(goal, mine, why=f"{begin}: {error(tried)}")
    best = max(measured, key=measured.__getitem__)
    pairs = [
        (left[goal.field], right[goal.field])
        for left, right in zip(ours, samples[best], strict=True)
        if goal.field in left and goal.field in right
    ]
    found = tuple(a / b if goal.kind == "times" else a - b for a, b in pairs)
    return Line(goal, mine, best, middle(samples[best], goal.field), found)


def error(results: list[Result]) -> str:
    """The first thing that went wrong."""
    return next((str(result["error"]) for result in results if "error" in result), "not run")
