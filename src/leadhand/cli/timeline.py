"""A run's timeline in lines of text: one row for each step, time from left to right. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from leadhand.cli.text import clean, count
from leadhand.core.durations import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.core.views.timeline import Span

ROWS_MAX = 40
NAME_MAX = 24
BAR_MIN = 20
WORK, PAUSE, ASKED, HELD = "━", "·", "?", "◦"
FILLS = {"question": ASKED, "approval": ASKED, "retry": PAUSE, "held": HELD, "scheduled": HELD}
MARKS = {True: "✓", False: "✗"}
LEGEND = (
    "━ at work  ✗ failed  · waits for a retry  ? waits for a person  "
    "◦ held or scheduled  ✓ verified"
)


def timeline(spans: Sequence[Span], start: int, end: int, width: int) -> list[str]:
    """The lines; `width` is how wide they may be."""
    by_step: dict[str, list[Span]] = {}
    for span in spans:
        other = "(approval)" if span.kind == "approval" else "(the planner asks)"
        by_step.setdefault(span.step or other, []).append(span)
    shown = list(by_step.items())[:ROWS_MAX]
    if not shown:
        return []
    label = min(NAME_MAX, max(len(clean(name)) for name, _ in shown))
    notes = {name: _note(found, end) for name, found in shown}
    room = width - label - 6 - max(len(note) for note in notes.values())
    bar = max(BAR_MIN, room)
    lines = [f"  {'':<{label}}  {_scale(end - start, bar)}"]
    for name, found in shown:
        drawn = _bar(found, start, end, bar)
        lines.append(f"  {clean(name, label):<{label}}  {drawn}  {notes[name]}".rstrip())
    if len(by_step) > len(shown):
        lines.append(f"  … and {count(len(by_step) - len(shown), 'step')} more")
    lines.append(f"  {LEGEND}")
    return lines


def _bar(spans: Sequence[Span], start: int, end: int, width: int) -> str:
    cells = [" "] * width
    whole = max(1, end - start)

    def place(at: int) -> int:
        return min(width - 1, max(0, (at - start) * (width - 1) // whole))

    for before, after in pairwise(spans):
        for i in range(place(before.end or end), place(after.start)):
            cells[i] = PAUSE
    for span in spans:
        fill = FILLS.get(span.kind, WORK)
        first, last = place(span.start), place(span.end or end)
        for i in range(first, last + 1):
            cells[i] = fill
    for span in spans:
        if span.end and span.kind not in FILLS:
            cells[place(span.end)] = MARKS[span.ok]
    return "".join(cells)


def _note(spans: Sequence[Span], end: int) -> str:
    tries = sum(span.kind == "attempt" for span in spans)
    took = sum((s.end or end) - s.start for s in spans if s.kind not in FILLS) / 1e6
    waited = sum((s.end or end) - s.start for s in spans if s.kind in FILLS) / 1e6
    shown = text(round(took, 1)) if took >= 0.05 else "at once" if tries else ""
    if waited >= 0.05:
        shown = ", ".join(filter(None, (shown, f"waited {text(round(waited, 1))}")))
    return f"{shown}, {count(tries, 'attempt')}" if tries > 1 else shown


def _scale(whole: int, width: int) -> str:
    last = text(round(whole / 1e6, 1))
    return f"0s{last:>{width - 2}}"
