"""Success of recoveries, and the timeline: parts of `show RUN`, from its log."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

from leadhand.cli.rendering.text import clean, count, gist, table
from leadhand.core.durations import text
from leadhand.core.state.recovery_log import RecoveryOutcome
from leadhand.core.views.ledger import proposal_lines
from leadhand.core.views.recovery_stats import WinRate, win_rates
from leadhand.core.views.run import model_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.app.reader import Reader
    from leadhand.cli.console import Console
    from leadhand.core.state.model import State
    from leadhand.core.views.failure_origin import RefusedProposal
    from leadhand.core.views.timeline import Span


# A run's timeline in lines of text: one row for each step, time from left to right. Pure.


ROWS_MAX = 40
NAME_MAX = 24
BAR_MIN = 20
WORK, PAUSE, ASKED, HELD = "━", "·", "?", "◦"
FILLS = {"question": ASKED, "approval": ASKED, "retry": PAUSE, "held": HELD, "scheduled": HELD}
MARKS = {True: "✓", False: "✗"}
LEGEND = (
    "━ running  ✗ failed  · waiting for retry  ? waiting for a person  ◦ held or "
    "scheduled  ✓ verified"
)


def timeline(spans: Sequence[Span], start: int, end: int, width: int) -> list[str]:
    """Return the lines, at most `width` wide."""
    by_step: dict[str, list[Span]] = {}
    for span in spans:
        other = "(approval)" if span.kind == "approval" else "(question of the planner)"
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


WORDS = {True: "won", False: "lost", None: "open"}
LISTED_MAX = 20
REFUSED_MAX = 5
WIDTH_MAX = 110
WIDTH_PIPED = 160


def print_recoveries(console: Console, answers: Sequence[RecoveryOutcome]) -> None:
    """Print each recovery if they are few, else the table by class and strategy."""
    if not answers:
        return
    console.out("Recovery:")
    if len(answers) > LISTED_MAX:
        print_rates(console, win_rates(answers))
        return
    lines = table(
        ("STEP", "FAILED AS", "ANSWER", "", "WHY"),
        (
            (
                clean(each.step, 40),
                each.failure_class,
                clean(_answer(each), 60),
                WORDS[each.won],
                gist(each.reason),
            )
            for each in answers
        ),
    )
    for line in lines:
        console.out(clean(f"  {line}", _width()))


def _answer(answer: RecoveryOutcome) -> str:
    return f"{answer.strategy} with {answer.worker}" if answer.worker else answer.strategy


def print_rates(console: Console, rates: Iterable[WinRate]) -> None:
    """Print how often each strategy won against each class."""
    lines = table(
        ("FAILED AS", "ANSWER", "TIMES", "WON", "LOST", "OPEN", "RATE"),
        (
            (
                row.failure_class,
                row.strategy,
                str(row.times),
                str(row.won),
                str(row.lost),
                str(row.open or ""),
                share(row.rate),
            )
            for row in rates
        ),
    )
    for line in lines:
        console.out(f"  {line}")


def _width() -> int:
    """Return the maximum width of a line."""
    return max(60, shutil.get_terminal_size((WIDTH_PIPED, 24)).columns)


def share(rate: float | None) -> str:
    """Return a share as a percentage."""
    return "" if rate is None else f"{100 * rate:.0f} %"


def print_refusals(console: Console, found: Sequence[RefusedProposal]) -> None:
    """Print the refused proposals, the last ones with their steps."""
    if not found:
        return
    console.out(f"Refused proposals: {len(found)}")
    if len(found) > REFUSED_MAX:
        console.out(f"  … the last {REFUSED_MAX}; all of them: --json")
    for each in found[-REFUSED_MAX:]:
        told = "" if each.proposal is None else f"{proposal_lines(each.proposal)}: "
        console.out(gist(f"  call {each.call}: {told}{'; '.join(each.findings)}", 600))


def print_models(console: Console, state: State) -> None:
    """Print the models called, by which steps, and their cost."""
    rows = model_rows(state)
    if not rows:
        return
    console.out("Models:")
    lines = table(
        ("TIER", "MODEL", "CALLS", "FAILED", "TOKENS IN", "CACHED", "OUT", "COST"),
        (
            (
                row.tier or "-",
                clean(row.model),
                f"{row.calls:,}",
                str(row.failed or ""),
                f"{row.input:,}",
                f"{row.cached:,}" if row.cached else "",
                f"{row.output:,}",
                f"{row.cost:.6f}",
            )
            for row in rows
        ),
    )
    for line in lines:
        console.out(f"  {line}")


def print_timeline(console: Console, reader: Reader, state: State) -> None:
    """Print when each step was worked on."""
    from leadhand.core.views.timeline import timeline as spans_of

    found = spans_of((entry.at, event) for entry, event in reader.events(state.run))
    end = state.ended_at or state.last_at
    console.out("Timeline:")
    for line in timeline(found, state.started_at, end, min(_width(), WIDTH_MAX)):
        console.out(line)
