"""A fleet's figures as one page that needs nothing else: no script, no font, no other file.

`templates/report.html` is the page; `codec/html.py` says why text stays text in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.codec import html
from leadhand.fleet.planning.prompt import PAST
from leadhand.fleet.planning.record import PlanningRecord
from leadhand.fleet.status.delivery import BY_NAME, NOT_MEASURED, Delivery, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leadhand.fleet.planning.record import AreaRecord
    from leadhand.fleet.status.delivery import DeliveryPeriod, Measured


Doc = dict[str, Any]
_PLACES = {
    "planned": "Planned",
    "waiting": "Waiting for a slot",
    "working": "Running",
    "gate": "Gate",
    "train": "Merge queue",
    "landed": "Merged",
    "again": "Retrying",
    "dead": "Blocked",
    "dropped": "Dropped",
}


LEADING = (
    "merged_per_week",
    "cost_per_merged",
    "lead_hours_median",
    "without_person_share",
    "human_minutes",
    "recovery_rate",
    "rework_share",
    "changes_per_week",
)
"""The figures that the page begins with, in their order."""
COMPARED = ("changes_per_week", "changes_rework_share", "changes", "changes_reworked")
"""The figures that git tells of the time before the fleet as well."""
TRENDS = (
    "merged",
    "cost_per_merged",
    "lead_hours_median",
    "lead_hours_p90",
    "without_person_share",
    "human_minutes",
    "recovery_rate",
    "rework_share",
    "changes",
)
"""The figures that are drawn by week."""


class _Table(NamedTuple):
    heads: tuple[str, ...]
    rows: list[tuple[object, ...]]
    numbers: set[int]
    """The columns that hold nothing but figures."""


def page(doc: Doc) -> str:
    """Return the whole page for the document of `leadhand fleet report --json`."""
    found = msgspec.convert(doc["delivery"], Delivery)
    hours = [number for _at, number in doc["landed"]["by_hour"]]
    most = max(hours, default=0)
    values = {
        "doc": doc,
        "tiles": _tiles(doc),
        "hours": hours,
        "most": most,
        "best": f"most in one hour: {most}, of the last {len(hours)} hours",
        "day": _day,
        "is_number": _is_number,
        "found": found,
        "leading": [_leading(found, name) for name in LEADING],
        "charts": [_chart(found, name) for name in TRENDS],
    }
    tables = dict(_tables(doc)) | dict(_delivery_tables(found))
    return html.render(__package__, "report.html", values | tables)


class _Bar(NamedTuple):
    height: float
    """In percent of the highest."""
    label: str
    measured: bool


class _Chart(NamedTuple):
    title: str
    bars: list[_Bar]
    words: str
    """The same in one sentence."""


def _leading(found: Delivery, name: str) -> tuple[str, str, str]:
    """Return the title, the value and the small print of a figure at the head of the page."""
    about, each = BY_NAME[name], found.period.figures[name]
    note = f"n = {each.sample} {about.sample}"
    if name == "lead_hours_median":
        p90 = shown("hours", found.period.figures["lead_hours_p90"].value)
        note = f"p90 {p90}; {note}"
    if name in COMPARED and found.before is not None:
        note += f"; before {shown(about.unit, found.before.figures[name].value)}"
    return about.title, shown(about.unit, each.value), note


def _chart(found: Delivery, name: str) -> _Chart:
    about = BY_NAME[name]
    values = [week.figures[name].value for week in found.weeks]
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    bars = [
        _Bar(
            0.0 if value is None else round(value / most * 100, 1),
            f"{_week(week)}: {_counted(name, week.figures[name])}",
            value is not None,
        )
        for value, week in zip(values, found.weeks, strict=True)
    ]
    known = [value for value in values if value is not None]
    words = NOT_MEASURED
    if known:
        words = (
            f"last week {shown(about.unit, values[-1])}, highest {shown(about.unit, max(known))}"
        )
    return _Chart(about.title, bars, words)


def _counted(name: str, each: Measured) -> str:
    about = BY_NAME[name]
    return f"{shown(about.unit, each.value)} (n = {each.sample} {about.sample})"


def _week(week: DeliveryPeriod) -> str:
    return f"{week.since[:10]} to {week.until[:10]}"


def _delivery_tables(found: Delivery) -> Iterator[tuple[str, _Table]]:
    whole, before = found.period, found.before
    rows = (
        (each.title, shown(each.unit, whole.figures[each.name].value), _sample(whole, each.name))
        for each in found.definitions
    )
    yield "all_figures", _table(("Figure", "Value", "Sample"), rows)
    heads: tuple[str, ...] = ("Figure", "Before", "Sample", "After", "Sample")
    compared = (
        (
            BY_NAME[name].title,
            shown(BY_NAME[name].unit, before.figures[name].value),
            _sample(before, name),
            shown(BY_NAME[name].unit, whole.figures[name].value),
            _sample(whole, name),
        )
        for name in (COMPARED if before is not None else ())
        if before is not None
    )
    yield "compared", _table(heads, compared)
    heads = ("Week from", *(BY_NAME[name].title for name in TRENDS))
    weeks = (
        (week.since[:10], *(shown(BY_NAME[name].unit, week.figures[name].value) for name in TRENDS))
        for week in found.weeks
    )
    yield "weeks", _table(heads, weeks)


def _sample(period: DeliveryPeriod, name: str) -> str:
    return f"{period.figures[name].sample} {BY_NAME[name].sample}"


def _tables(doc: Doc) -> Iterator[tuple[str, _Table]]:
    flow = ((_PLACES[name], n) for name, n in doc["flow"].items() if n)
    yield "flow", _table(("Stage", "Tasks"), flow)
    classes = (
        (_words(row["class"]), row["tasks"], row["recovered"], row["people"], _percent(row["rate"]))
        for row in doc["recovery"]["by_class"]
    )
    heads: tuple[str, ...] = ("First failure", "Tasks", "Recovered", "Asked a person", "Rate")
    yield "classes", _table(heads, classes)
    answers = (
        (
            _words(row["class"]),
            _strategy(row["strategy"]),
            row["times"],
            row["won"],
            _percent(row["rate"]),
        )
        for row in doc["recovery"]["by_strategy"]
    )
    yield "answers", _table(("Failure", "Strategy", "Times", "Worked", "Rate"), answers)
    ladder = ((_words(name), n) for name, n in doc["ladder"].items() if n)
    yield "ladder", _table(("Attempt", "Times"), ladder)
    yield "train", _table(("", "Figure"), _train(doc))
    planning = msgspec.convert(doc["planning"], PlanningRecord)
    counts = ((PAST[name].rstrip(":").capitalize(), n) for name, n in planning.counts().items())
    yield "planned", _table(("", "Number"), counts)
    sizes = ((row.size, row.tasks, row.landed, row.first_pass) for row in planning.sizes)
    yield "sizes", _table(("Size of task", "Tasks", "Merged", "First pass"), sizes)
    areas = map(_area, planning.areas)
    heads = ("Folder", "Tasks", "Merged", "First pass", "Conflicts", "Questions", "By size")
    yield "areas", _table(heads, areas)
    flaky = ((f["name"], _day(f["last"]), f["times"]) for f in doc["flaky"])
    yield "flaky", _table(("Test", "Last seen", "Times"), flaky)
    heads = ("Epic", "State", "Pull request", "Merged", "Tasks", "Cost")
    yield "epics", _table(heads, map(_epic, doc["epics"]))
    dead = (
        (f"{d['run']}/{d['task']}", d["class"], d["attempts"], _first(d["why"]))
        for d in doc["dead_letters"]
    )
    yield "dead_letters", _table(("Task", "Failure", "Attempts", "Reason"), dead)
    commits = ((c["sha"][:12], c["task"], c["by"], c["subject"]) for c in doc["commits"])
    yield "commits", _table(("Commit", "Task", "Author", "Subject"), commits)


def _tiles(doc: Doc) -> list[tuple[str, object, str]]:
    agents, landed, recovery, spend = (
        doc[name] for name in ("agents", "landed", "recovery", "spend")
    )
    return [
        ("Peak agents", agents["peak"], f"{agents['runs']} started, {agents['now']} running"),
        ("Merged", landed["in_window"], f"best hour {landed['best_hour']}"),
        ("Merged per hour", _rate(landed["per_hour"]), f"{landed['last_week']} in the last week"),
        ("Recovered", _percent(recovery["rate"]), f"{recovery['recovered']} without a person"),
        ("First-pass success", _percent(recovery["first_pass"]), "of tasks"),
        ("Cost per commit", _usd(spend["per_landed"]), f"{_usd(spend['in_window'])} total"),
        ("Conflicts", doc["train"]["conflicts"], "sent back to the agent"),
        ("Blocked tasks", len(doc["dead_letters"]), "waiting for input"),
    ]


def _epic(each: Doc) -> tuple[object, ...]:
    name, pull = each["title"] or each["run"], each["pull_request"] or ""
    return name, each["status"], pull, each["landed"], each["tasks"], _usd(each["cost"])


def _area(row: AreaRecord) -> tuple[object, ...]:
    sizes = ", ".join(f"{size}: {won} of {n}" for size, (won, n) in row.sizes.items())
    counts = (row.tasks, row.landed, row.first_pass, row.conflicts, row.handbacks)
    return row.area, *counts, sizes


def _train(doc: Doc) -> Iterator[tuple[object, ...]]:
    train, queue = doc["train"], doc["queue"]
    yield "Gate runs of the merge queue", train["tests"]
    yield "Verdicts that the merge queue reused", train["reused"]
    yield "Failed gate runs of the merge queue", train["red"]
    yield "Bisections", train["bisections"]
    yield "Changes per batch, mean", train["batch_mean"]
    yield "Changes per batch, max", train["batch_max"]
    yield "Last gate run", train["counted"] or "none"
    yield "Gate duration, p50 in seconds", train["gate_s"]["p50"]
    yield "Wait in merge queue, p50 in seconds", queue["wait_s"]["p50"]
    yield "Wait in merge queue, p95 in seconds", queue["wait_s"]["p95"]
    for kind, number in train["ejected"].items():
        yield f"Sent back: {kind}", number


def _table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> _Table:
    found = list(rows)
    columns = enumerate(zip(*found, strict=True))
    return _Table(heads, found, {n for n, column in columns if all(map(_is_number, column))})


def _is_number(value: object) -> bool:
    """Return whether a value reads best below others of its kind: a figure, share or amount."""
    if value is None or isinstance(value, int | float):
        return True
    text = str(value)
    return (
        text in ("–", NOT_MEASURED) or text.endswith("%") or text[:1] == "$" or text[:1].isdigit()
    )


def _strategy(name: str) -> str:
    return "ask a person" if name == "ask" else _words(name)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _first(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _rate(value: float | None) -> object:
    return "–" if value is None else value


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.0%}"


def _usd(value: float | None) -> str:
    return "–" if value is None else f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def _day(moment: str) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC"
