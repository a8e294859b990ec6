"""Two views of a run: live on a terminal, append-only lines everywhere else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from leadhand.cli.rendering.run_rows import PART, Progress, Row, header, rows, title
from leadhand.cli.rendering.text import clock, gist
from leadhand.core import events as ev
from leadhand.core.views.ledger import EventLines, actor_words, describe, recovery_words
from leadhand.core.views.run import run_status

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.core.state.model import State
    from leadhand.ports import Entry


# A run as a story, for `--why`: failures, decisions and questions. Pure.
#
# Shorter than the ledger: a failure and its recovery are one line, and successes are left to the
# picture.


LINE_MAX = 240
NAMED_MAX = 5
STYLES: Final = {
    ev.RecoveryDecided: "yellow",
    ev.RevisionProposed: "cyan",
    ev.QuestionAsked: "magenta",
    ev.QuestionAnswered: "magenta",
}
TROUBLE: Final = (ev.ProposalRefused, ev.PlannerFailed, ev.StopDecided, ev.StepSkipped)


def line_of(event: ev.Event) -> tuple[str, str]:
    """Return one line and its colour; empty for an event outside of the story."""
    text = _told(event)
    return gist(text, LINE_MAX), STYLES.get(type(event), "red")


def _told(event: ev.Event) -> str:
    match event:
        case ev.RecoveryDecided():
            what = recovery_words(event.strategy, event.worker)
            return f"✗ {event.step}: {event.failure_class} → {what}   ({event.reason})"
        case ev.RevisionProposed() if event.add or event.cancel:
            names = [str(doc.get("id", "?")) for doc in event.add]
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            parts = [f"{', '.join(names[:NAMED_MAX])}{more}"] if names else []
            parts += [f"cancel {', '.join(event.cancel)}"] if event.cancel else []
            because = f"   ({event.because})" if event.because else ""
            return f"▸ next: {'; '.join(parts)}{because}"
        case ev.QuestionAsked():
            return f"? {event.text}"
        case ev.QuestionAnswered():
            said = f"   ({event.text})" if event.text else ""
            return f"? answered by {actor_words(event.actor)}: {event.choice}{said}"
        case ev.AttemptReported() if event.met and event.surprise:
            return f"! {event.step}: {event.surprise}"
        case _:
            return describe(event) if isinstance(event, TROUBLE) else ""


HEARTBEAT_S = 30.0
WORKER_WIDTH = 80
WORD_WIDTH = 60
"""Narrower screens have no room for a step's worker, or for the word for its state."""
LIVE_S = 0.2
PLAIN_S = 0.2

TOLD = (
    ev.AttemptStarted,
    ev.AttemptReported,
    ev.AttemptLost,
    ev.ProbeStarted,
    ev.ProbeReported,
    ev.StepRefused,
    ev.RecoveryDecided,
    ev.StepSkipped,
    ev.StepCancelled,
    ev.PlannerFailed,
    ev.ProposalRefused,
    ev.RevisionProposed,
    ev.QuestionAsked,
    ev.QuestionAnswered,
    ev.ReviewRequested,
    ev.RevisionApproved,
    ev.RevisionRejected,
    ev.RunPaused,
    ev.RunResumed,
    ev.CancelRequested,
    ev.StopDecided,
    ev.GoalChecked,
    ev.WorkersChanged,
)
"""The events that the plain view prints; `leadhand logs` prints all."""

Logged = Sequence[tuple["Entry", ev.Event]]


def worth_telling(event: ev.Event) -> bool:
    """Return whether a line is informative: an answer or approval without effect is not."""
    match event:
        case ev.RevisionProposed():
            return bool(event.add or event.cancel or event.final)
        case ev.RevisionApproved():
            return event.actor != "policy" or bool(event.instants)
        case _:
            return isinstance(event, TOLD)


class View(Protocol):
    """Shows a run while it is in progress."""

    period_s: float
    reads_log: bool
    """Whether it needs the events."""

    def tick(
        self,
        state: State,
        now: int,
        progress: Progress,
        logged: Logged,
        stopped: str,
        *,
        hosted: bool = True,
    ) -> None:
        """Show the state; `logged` holds the events since the last call."""

    def note(self, text: str) -> None:
        """Show a message that is not about a step."""

    def pause(self) -> None:
        """Leave the terminal to a question; nothing is shown until `go_on`."""

    def go_on(self) -> None:
        """Show the run again after a question."""

    def close(self) -> None:
        """Restore the terminal."""


class Silent:
    """Shows nothing."""

    period_s = 1.0
    reads_log = False

    def tick(
        self,
        state: State,
        now: int,
        progress: Progress,
        logged: Logged,
        stopped: str,
        *,
        hosted: bool = True,
    ) -> None: ...

    def note(self, text: str) -> None: ...

    def pause(self) -> None: ...

    def go_on(self) -> None: ...

    def close(self) -> None: ...


class PlainView:
    """One line for each event, and a sign of life every half minute."""

    period_s = PLAIN_S
    reads_log = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spoke = 0
        self._lines = EventLines()
        self._titled = False

    def tick(
        self,
        state: State,
        now: int,
        progress: Progress,
        logged: Logged,
        stopped: str,
        *,
        hosted: bool = True,
    ) -> None:
        """Print new events."""
        if not self._titled and state.started is not None:
            self._titled = True
            self._spoke = now
            self._console.say(title(state))
        for entry, event in logged:
            text = self._lines.line(event)
            if text and worth_telling(event):
                self._console.say(f"{clock(entry.at)}  {gist(text, 500)}")
                self._spoke = now
        if now - self._spoke >= HEARTBEAT_S * 1e6 and state.ended is None:
            self._spoke = now
            if run_status(state) == "waiting":
                return  # for a person only: nothing moves, and it was said
            self._console.say(f"{clock(now)}  {header(state, now, stopped=stopped)}")

    def note(self, text: str) -> None:
        """Print a line among the others."""
        self._console.say(text)

    def pause(self) -> None: ...

    def go_on(self) -> None: ...

    def close(self) -> None: ...


class LiveView:
    """A picture that changes in place."""

    period_s = LIVE_S

    def __init__(self, *, why: bool = False) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live as RichLive

        self.reads_log = why
        self._rich = RichConsole(file=sys.stderr, highlight=False, emoji=False)
        self._live = RichLive(console=self._rich, auto_refresh=False, vertical_overflow="crop")
        self._live.start()
        self._paused = False

    def tick(
        self,
        state: State,
        now: int,
        progress: Progress,
        logged: Logged,
        stopped: str,
        *,
        hosted: bool = True,
    ) -> None:
        """Redraw the picture, unless a question has the terminal."""
        if self._paused:
            return
        for _entry, event in logged:
            line, style = line_of(event)
            if line:
                self._rich.print(line, style=style, markup=False)
        size = self._rich.size
        second = header(state, now, stopped=stopped, hosted=hosted)
        lines = wrap_header(second, size.width)
        room = max(3, size.height - 5 - len(lines))
        found, rest = rows(state, now, progress, room, hosted=hosted)
        shown = picture(title(state), lines, found, rest, width=size.width)
        self._live.update(shown, refresh=True)

    def note(self, text: str) -> None:
        """Print a line above the picture."""
        self._rich.print(text, markup=False)

    def pause(self) -> None:
        """Keep the last picture; a new one is drawn below it after `go_on`."""
        self._paused = True
        self._live.stop()

    def go_on(self) -> None:
        """Draw the picture again."""
        self._live.start()
        self._paused = False

    def close(self) -> None:
        """Keep the last picture, and show the cursor again."""
        with contextlib.suppress(Exception):
            self._live.stop()


def picture(
    first: str, second: Sequence[str], found: Sequence[Row], rest: str, *, width: int
) -> Any:
    """Return the picture of a run, for rich: no line is longer than the screen is wide.

    A narrow screen shows less of each step: first its worker is left out, then the word for its
    state, which its icon shows too.
    """
    from rich.cells import cell_len
    from rich.console import Group
    from rich.text import Text

    styles = {"succeeded": "green", "failed": "bold red", "running": "cyan", "probing": "cyan"}
    styles |= {"waiting_for_person": "bold yellow", "retrying": "yellow"}

    def line(*parts: tuple[str, str]) -> Text:
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")

    lines = [line((first, "bold")), *(line((each, "")) for each in second)]
    wide = min(max((cell_len(row.id) for row in found), default=0), max(12, width // 3))
    worker = min(max((cell_len(row.worker) for row in found), default=0), width // 4)
    for row in found:
        word = f"{row.word:<13} " if width >= WORD_WIDTH else ""
        parts = [(f"  {row.icon} {word}", styles.get(row.status, "dim"))]
        parts.append((f"{_cut(row.id, wide)}  ", "bold" if row.status == "running" else ""))
        if width >= WORKER_WIDTH:
            parts.append((f"{_cut(row.worker, worker)}  ", "dim"))
        parts.append((row.detail, "bold yellow" if row.overdue else ""))
        lines.append(line(*parts))
    if rest:
        lines.append(line((f"  {rest}", "dim")))
    return Group(*lines)


def _cut(text: str, width: int) -> str:
    """Return a text of the width of a column: padded, or cut with a mark."""
    from rich.cells import cell_len, set_cell_size

    return (
        set_cell_size(text, width - 1) + "…"
        if cell_len(text) > width
        else set_cell_size(text, width)
    )


def wrap_header(text: str, width: int) -> list[str]:
    """Return a header in lines that fit, broken between its parts."""
    lines: list[str] = []
    for part in text.split(PART):
        if lines and len(lines[-1]) + len(PART) + len(part) <= width:
            lines[-1] += PART + part
        else:
            lines.append(part)
    return lines


def view_for(console: Console, *, quiet: bool, why: bool = False) -> View:
    """Return the view that fits the output."""
    if quiet:
        return Silent()
    if console.terminal and not console.json:
        return LiveView(why=why)
    return PlainView(console)
