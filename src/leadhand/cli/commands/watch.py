"""`leadhand watch`: follow a run from its log, on any host."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from leadhand.app.host_status import host_status
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import settings_of, stopped_by, store_option
from leadhand.cli.rendering.live import view_for
from leadhand.cli.rendering.outcome import (
    outcome_document,
    print_outcome,
    print_question,
    print_result,
)
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State
from leadhand.core.views.run import ENDED, exit_code, run_status
from leadhand.engine.results import result_of
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.app.reader import Reader
    from leadhand.cli.rendering.live import View
    from leadhand.core.events import Event
    from leadhand.ports import Entry
    from leadhand.settings import Settings


ASKED_S = 2.0
"""How long a run must have waited for a person before `watch --exit-status` leaves."""


@command("watch", "leadhand watch 7kq3 --exit-status")
@click.argument("run", required=False)
@click.option("--exit-status", is_flag=True, help="Exit with the exit code of the run's status.")
@store_option
def watch(console: Console, run: str | None, exit_status: bool, store: str | None) -> int:  # noqa: FBT001 - click passes it
    """Follow a run live until it ends, or until no process runs it.

    Without RUN the command follows the latest run. --json prints one event per line, and then
    the outcome. A run that is waiting for approval or input is followed until it is answered.
    With --exit-status the command ends as `leadhand run` would, with the same exit code: it
    also ends, with code 5, when only a person can continue the run. If no process runs an
    unfinished run, the exit code is 5 if the run is waiting for approval or input, and 8
    otherwise.
    """
    settings = settings_of(store)
    try:
        return asyncio.run(_watch(console, settings, run, exit_status=exit_status))
    except KeyboardInterrupt:
        console.say("no longer watching; the run is not affected")
        return 130


async def _watch(
    console: Console, settings: Settings, run: str | None, *, exit_status: bool
) -> int:
    from leadhand.app.reader import Reader

    reader = Reader(settings.store)
    try:
        follower = Follower(console, settings, reader, _named(reader, run))
        hosted = await follower.follow(leave_when_asked=exit_status)
        state = follower.state
        result = result_of(reader.store, state)
    finally:
        await reader.close()
    if console.json:
        console.record({"type": "outcome", **to_builtins(outcome_document(console, state, result))})
    else:
        print_outcome(console, state, hosted=hosted)
        if state.ended is not None:
            print_result(console, result)
    return exit_code(state) if exit_status or state.ended is None else 0


def _named(reader: Reader, run: str | None) -> str:
    """Return the named run, else the latest."""
    if run is not None:
        return reader.resolve(run)
    from leadhand.ports import RunQuery

    newest = reader.find_runs(RunQuery(limit=1)).headers
    if not newest:
        raise UsageError("there are no runs yet")
    return newest[0].run


class _Asked:
    """Whether a run has waited for a person, unchanged, for a while.

    A host with `--yes` answers by itself a moment later, so it is observed for longer.
    """

    def __init__(self) -> None:
        self._since: tuple[int, float] | None = None

    def long(self, state: State) -> bool:
        """Return whether it has waited long enough to say so."""
        if run_status(state) != "waiting":
            self._since = None
            return False
        now = time.monotonic()
        if self._since is None or self._since[0] != state.seq:
            self._since = (state.seq, now)
        return now - self._since[1] >= ASKED_S


class Follower:
    """Folds a run from its log as it grows, and shows it."""

    def __init__(
        self, console: Console, settings: Settings, reader: Reader, ident: str, *, after: int = 0
    ) -> None:
        """Prepare to follow a run; `after`: events up to this seq were already shown."""
        self.state = State()
        self.view: View | None = None
        self._console = console
        self._settings = settings
        self._reader = reader
        self._ident = ident
        self._hosting = host_status(settings, reader)
        self._seq = 0
        self._told: set[str] = set()
        self.ask: Callable[[Follower], Awaitable[None]] | None = None
        """Asks the person at the terminal about what waits, while the view is paused."""
        self.wants: Callable[[State], bool] = lambda _state: False
        """Whether there is something to ask about."""
        self.records = True
        """Whether `--json` prints each event."""
        for entry, event in reader.events(ident) if after else ():
            if entry.seq <= after:
                evolve(self.state, event, entry.at)
                self._seq = entry.seq

    async def follow(
        self, *, leave_when_asked: bool, quiet: bool = False, why: bool = False
    ) -> bool:
        """Show the run until there is nothing to wait for; return whether something drives it."""
        view = self.view = view_for(self._console, quiet=quiet or self._console.json, why=why)
        missed = 0
        asked = _Asked()
        try:
            while True:
                logged = self._read()
                driver = (await self._hosting.driver(self.state)).drives(self.state)
                # Again: entries it wrote before it ended.
                logged += self._read()
                notes = await _progress(self._settings, self._ident) if driver else {}
                stopped = stopped_by(self._reader)
                now = time.time_ns() // 1000 if driver else self.state.last_at
                view.tick(self.state, now, notes, logged, stopped, hosted=bool(driver))
                # A host that just opened has not resumed the run yet: look twice.
                missed = 0 if driver else missed + 1
                if run_status(self.state) in ENDED or missed == 2:
                    return bool(driver)
                self._say_what_keeps_it()
                if self.ask is not None and self.wants(self.state):
                    await self._asked_by_person(view)
                    continue
                if asked.long(self.state):
                    if leave_when_asked:
                        return bool(driver)
                    self._say_how_to_answer()
                await asyncio.sleep(view.period_s)
        finally:
            view.close()
            self._say_what_keeps_it(last=True)

    async def _asked_by_person(self, view: View) -> None:
        """Ask the person at the terminal, in place of the live view."""
        assert self.ask is not None
        view.pause()
        await self.ask(self)
        if run_status(self.state) != "waiting":
            view.go_on()

    def newest(self) -> State:
        """Return the state of the run with all that its log holds by now."""
        self._read()
        return self.state

    def events(self) -> list[Event]:
        """Return the events of the run."""
        return [event for _entry, event in self._reader.events(self._ident)]

    def _say_what_keeps_it(self, *, last: bool = False) -> None:
        """Print each note once; a live picture is not written into."""
        if self._console.json or (self._console.terminal and not last):
            return
        for note in self._hosting.notes:
            if note not in self._told:
                self._told.add(note)
                self._console.say(note)

    def _say_how_to_answer(self) -> None:
        """Print how to answer each question once, if the view does not show it all the time."""
        if self._console.json or self._console.terminal:
            return
        for question in self.state.questions.values():
            if question.id not in self._told:
                self._told.add(question.id)
                print_question(self._console, self.state, question)

    def _read(self) -> list[tuple[Entry, Event]]:
        logged = self._reader.events(self._ident, self._seq)
        for entry, event in logged:
            evolve(self.state, event, entry.at)
            self._seq = entry.seq
            if self._console.json and self.records:
                self._console.record(_record(entry, event))
        return logged


async def _progress(settings: Settings, ident: str) -> dict[str, tuple[str, float | None]]:
    from leadhand.app.commands import progress

    try:
        notes = await progress(settings.store, ident) or {}
    except Conflict:  # it just ended
        return {}
    return {step: (note["message"], note["fraction"]) for step, note in notes.items()}


def _record(entry: Entry, event: Event) -> dict[str, Any]:
    from leadhand.core.calendar import iso
    from leadhand.core.views.ledger import describe, ledger_of

    record = {"type": "event", "seq": entry.seq, "at": iso(entry.at)}
    return {**record, "ledger": ledger_of(event), "text": describe(event)}
