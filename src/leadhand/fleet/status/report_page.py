"""A fleet's figures as one page that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


Doc = dict[str, Any]
STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #3b7dd8; --bad: #c0392b; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; } .sub { color: #777; margin-top: .25rem; }
table + table { margin-top: 1.5rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; }
dl div { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; }
dt { color: #777; font-size: .85rem; } dd { margin: 0; font-size: 1.6rem; }
dd small { font-size: .85rem; color: #777; display: block; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: var(--bad); font-weight: 600; } svg { width: 100%; height: 8rem; }
rect { fill: var(--bar); } code { font-size: .9em; }
"""


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


def page(doc: Doc) -> str:
    """The whole page."""
    since = f"from {_day(doc['since'])} to " if doc["since"] else "up to "
    body = [
        f"<h1>Coding fleet</h1><p class=sub>{since}{_day(doc['at'])}</p>",
        _tiles(doc),
        "<h2>Landed by hour</h2>",
        _bars(doc["landed"]["by_hour"]),
        "<h2>Do the log and git agree?</h2>",
        _agreement(doc["disagreements"]),
        "<h2>Where tasks stand</h2>",
        _table(("Place", "Tasks"), ((_PLACES[name], n) for name, n in doc["flow"].items() if n)),
        "<h2>Recovery</h2>",
        *_recovery(doc["recovery"]),
        "<h2>The ladder</h2>",
        "<p>What a task took, from its first agent to a person.</p>",
        _table(("Rung", "Times"), ((_words(name), n) for name, n in doc["ladder"].items() if n)),
        "<h2>Merge train</h2>",
        _table(("", "Figure"), _train(doc)),
        "<h2>Flaky tests</h2>",
        "<p>Red and green without a change, or known to be so: tried once more, and counted.</p>",
        _table(
            ("Test", "Last seen", "Times"),
            ((f["name"], _day(f["last"]), f["times"]) for f in doc["flaky"]),
        ),
        "<h2>Epics</h2>",
        _table(
            ("Epic", "State", "Pull request", "Landed", "Tasks", "Cost"),
            map(_epic, doc["epics"]),
        ),
        "<h2>Dead letters</h2>",
        _table(
            ("Task", "Failure", "Attempts", "Why"),
            (
                (f"{d['run']}/{d['task']}", d["class"], d["attempts"], _first(d["why"]))
                for d in doc["dead_letters"]
            ),
            "None.",
        ),
        "<h2>Latest commits</h2>",
        _table(
            ("Commit", "Task", "By", "Subject"),
            ((c["sha"][:12], c["task"], c["by"], c["subject"]) for c in doc["commits"]),
            "None.",
        ),
    ]
    head = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>Coding fleet</title><style>{STYLE}</style><body>"
    )
    return head + "\n".join(body) + "</body></html>\n"


def _tiles(doc: Doc) -> str:
    agents, landed, recovery, spend = (
        doc[name] for name in ("agents", "landed", "recovery", "spend")
    )
    tiles = [
        ("Agents at once", agents["peak"], f"{agents['runs']} in all, {agents['now']} now"),
        ("Landed", landed["in_window"], f"{landed['best_hour']} in the best hour"),
        ("Landed in an hour", landed["per_hour"], f"{landed['last_week']} in the last week"),
        ("Recovered", _percent(recovery["rate"]), f"{recovery['recovered']} without a person"),
        ("First pass", _percent(recovery["first_pass"]), "tasks"),
        ("For each commit", _usd(spend["per_landed"]), f"{_usd(spend['in_window'])} in all"),
        ("Conflicts", doc["train"]["conflicts"], "went back to their author"),
        ("Dead letters", len(doc["dead_letters"]), "wait for a person"),
    ]
    cells = (
        f"<div><dt>{escape(name)}</dt><dd>{_text(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in tiles
    )
    return f"<dl>{''.join(cells)}</dl>"


def _bars(by_hour: Sequence[Sequence[int]]) -> str:
    most = max((number for _at, number in by_hour), default=0)
    if not most:
        return "<p>Nothing in the last two days.</p>"
    bars = (
        f'<rect x="{n * 10}" y="{100 - number / most * 100:.1f}" width="8" '
        f'height="{number / most * 100:.1f}"><title>{number}</title></rect>'
        for n, (_at, number) in enumerate(by_hour)
    )
    said = f"{most} in the best of the last {len(by_hour)} hours"
    box = f'viewBox="0 0 {len(by_hour) * 10} 100" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{said}">{"".join(bars)}</svg><p>{said}</p>'


def _agreement(found: Sequence[str]) -> str:
    if not found:
        return "<p>Yes: every task that the log calls done is one commit on main, and no other.</p>"
    rows = "".join(f"<li>{escape(each)}</li>" for each in found)
    return f"<p class=bad>No, in {len(found)} places:</p><ul>{rows}</ul>"


def _recovery(recovery: Doc) -> Iterator[str]:
    rows = (
        (_words(row["class"]), row["tasks"], row["recovered"], row["people"], _percent(row["rate"]))
        for row in recovery["by_class"]
    )
    heads = ("First failure", "Tasks", "Recovered", "Needed a person", "Rate")
    yield _table(heads, rows, "Nothing failed.")
    answers = (
        (_words(row["class"]), row["strategy"], row["times"], row["won"], _percent(row["rate"]))
        for row in recovery["by_strategy"]
    )
    yield _table(("Failure", "Answer", "Times", "Won", "Rate"), answers, "")


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


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], none: str = "None.") -> str:
    found = list(rows)
    if not found:
        return f"<p>{escape(none)}</p>" if none else ""
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in found)
    numbers = [all(map(_is_number, column)) for column in zip(*found, strict=True)]
    head = "".join(
        f"<th{' class=n' if number else ''}>{escape(each)}</th>"
        for each, number in zip(heads, numbers, strict=True)
    )
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _cell(value: object) -> str:
    return f"<td{' class=n' if _is_number(value) else ''}>{_text(value)}</td>"


def _is_number(value: object) -> bool:
    """What is best read below others of its kind: figures, shares, amounts."""
    text = _text(value)
    return isinstance(value, int | float) or text == "–" or text.endswith("%") or text[:1] == "$"


def _text(value: object) -> str:
    return "–" if value is None else escape(str(value))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _first(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.0%}"


def _usd(value: float | None) -> str:
    return "–" if value is None else f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def _day(moment: str) -> str:
    return escape(moment[:16].replace("T", " ")) + " UTC"
