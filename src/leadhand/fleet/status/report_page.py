"""A fleet's figures as one page that needs nothing else: no script, no font, no other file.

`templates/report.html` is the page; `codec/html.py` says why text stays text in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.codec import html

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


Doc = dict[str, Any]
_PLACES = {
    "planned": "Planned",
    "waiting": "Waits for a place",
    "working": "Agent at work",
    "gate": "At the gate",
    "train": "On the train",
    "landed": "On main",
    "again": "Tried again soon",
    "dead": "Waits for a person",
    "dropped": "Dropped",
}


class _Table(NamedTuple):
    heads: tuple[str, ...]
    rows: list[tuple[object, ...]]
    numbers: set[int]
    """The columns that hold nothing but figures."""


def page(doc: Doc) -> str:
    """Return the whole page for the document of `leadhand fleet status --json`."""
    hours = [number for _at, number in doc["landed"]["by_hour"]]
    most = max(hours, default=0)
    values = {
        "doc": doc,
        "tiles": _tiles(doc),
        "hours": hours,
        "most": most,
        "best": f"{most} in the best of the last {len(hours)} hours",
        "day": _day,
        "is_number": _is_number,
    }
    return html.render(__package__, "report.html", values | dict(_tables(doc)))


def _tables(doc: Doc) -> Iterator[tuple[str, _Table]]:
    flow = ((_PLACES[name], n) for name, n in doc["flow"].items() if n)
    yield "flow", _table(("Place", "Tasks"), flow)
    classes = (
        (_words(row["class"]), row["tasks"], row["recovered"], row["people"], _percent(row["rate"]))
        for row in doc["recovery"]["by_class"]
    )
    heads: tuple[str, ...] = ("First failure", "Tasks", "Recovered", "Needed a person", "Rate")
    yield "classes", _table(heads, classes)
    answers = (
        (_words(row["class"]), row["strategy"], row["times"], row["won"], _percent(row["rate"]))
        for row in doc["recovery"]["by_strategy"]
    )
    yield "answers", _table(("Failure", "Answer", "Times", "Won", "Rate"), answers)
    ladder = ((_words(name), n) for name, n in doc["ladder"].items() if n)
    yield "ladder", _table(("Rung", "Times"), ladder)
    yield "train", _table(("", "Figure"), _train(doc))
    flaky = ((f["name"], _day(f["last"]), f["times"]) for f in doc["flaky"])
    yield "flaky", _table(("Test", "Last seen", "Times"), flaky)
    heads = ("Epic", "State", "Pull request", "Landed", "Tasks", "Cost")
    yield "epics", _table(heads, map(_epic, doc["epics"]))
    dead = (
        (f"{d['run']}/{d['task']}", d["class"], d["attempts"], _first(d["why"]))
        for d in doc["dead_letters"]
    )
    yield "dead_letters", _table(("Task", "Failure", "Attempts", "Why"), dead)
    commits = ((c["sha"][:12], c["task"], c["by"], c["subject"]) for c in doc["commits"])
    yield "commits", _table(("Commit", "Task", "By", "Subject"), commits)


def _tiles(doc: Doc) -> list[tuple[str, object, str]]:
    agents, landed, recovery, spend = (
        doc[name] for name in ("agents", "landed", "recovery", "spend")
    )
    return [
        ("Agents at once", agents["peak"], f"{agents['runs']} in all, {agents['now']} now"),
        ("Landed", landed["in_window"], f"{landed['best_hour']} in the best hour"),
        ("Landed in an hour", landed["per_hour"], f"{landed['last_week']} in the last week"),
        ("Recovered", _percent(recovery["rate"]), f"{recovery['recovered']} without a person"),
        ("First pass", _percent(recovery["first_pass"]), "tasks"),
        ("For each commit", _usd(spend["per_landed"]), f"{_usd(spend['in_window'])} in all"),
        ("Conflicts", doc["train"]["conflicts"], "went back to their author"),
        ("Dead letters", len(doc["dead_letters"]), "wait for a person"),
    ]


def _epic(each: Doc) -> tuple[object, ...]:
    name, pull = each["title"] or each["run"], each["pull_request"] or ""
    return name, each["status"], pull, each["landed"], each["tasks"], _usd(each["cost"])


def _train(doc: Doc) -> Iterator[tuple[object, ...]]:
    train, queue = doc["train"], doc["queue"]
    yield "Tests", train["tests"]
    yield "of them red", train["red"]
    yield "Searches for a culprit", train["bisections"]
    yield "Changes for each landing, mean", train["batch_mean"]
    yield "Changes for each landing, most", train["batch_max"]
    yield "Tests of the gate's last run", train["counted"] or "none so far"
    yield "Gate, median seconds", train["gate_s"]["p50"]
    yield "Wait at the train, median seconds", queue["wait_s"]["p50"]
    yield "Wait at the train, 95 of 100, seconds", queue["wait_s"]["p95"]
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
    return text == "–" or text.endswith("%") or text[:1] == "$"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _first(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.0%}"


def _usd(value: float | None) -> str:
    return "–" if value is None else f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def _day(moment: str) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC"
