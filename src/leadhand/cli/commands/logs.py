"""`leadhand logs`: the two ledgers of a run, and the output of a step."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.text import clean_lines, clock, gist
from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.views.ledger import EventLines, describe, ledger_of
from leadhand.errors import StoreError, UsageError

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.ports import Entry


POLL_S = 0.2


@command("logs", "leadhand logs 7kq3 --intent\nleadhand logs 7kq3 step-2\nleadhand logs 7kq3 -f")
@click.argument("run")
@click.argument("step", required=False)
@click.option("--intent", is_flag=True, help="Show only the intent: plans, reviews and decisions.")
@click.option(
    "--execution", is_flag=True, help="Show only the execution: starts, reports and verdicts."
)
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the run ends.")
@store_option
def logs(console: Console, run: str, step: str | None, **options: Any) -> int:
    """Show the event log of a run, or the output of a step.

    Each line has a time, the ledger (intent or execution) and the event. With STEP the command
    shows the events of that step and its output. --json prints one event per line.
    """
    if options["intent"] and options["execution"]:
        raise UsageError("--intent and --execution exclude each other; leave both out for all")
    ledger = "intent" if options["intent"] else "execution" if options["execution"] else ""
    with reading(settings_of(options["store"])) as reader:
        ident = reader.resolve(run)
        if step is not None and step not in reader.state(ident).steps:
            known = ", ".join(list(reader.state(ident).steps)[:12])
            raise UsageError(f"run {ident} has no step {step!r}. Its steps: {known or 'none yet'}")
        printer = _Printer(console, reader, step, ledger)
        seq = 0
        try:
            while True:
                logged = reader.events(ident, seq)
                printer.print(logged)
                seq = logged[-1][0].seq if logged else seq
                if not options["follow"] or printer.ended:
                    return 0
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            return 130


class _Printer:
    def __init__(self, console: Console, reader: Reader, step: str | None, ledger: str) -> None:
        self._console = console
        self._reader = reader
        self._step = step
        self._ledger = ledger
        self._lines = EventLines()
        self.ended = False

    def print(self, logged: Iterable[tuple[Entry, ev.Event]]) -> None:
        for entry, event in logged:
            self.ended = isinstance(event, ev.RunEnded)  # a run may be reopened
            ledger, text = ledger_of(event), self._lines.line(event)
            if self._ledger and ledger != self._ledger:
                continue
            if self._step is not None and getattr(event, "step", None) != self._step:
                continue
            if self._console.json:
                self._console.record(self._record(entry, event, ledger))
            elif text:
                self._console.out(f"{clock(entry.at)}  {ledger:<9}  {gist(text, 2000)}")
                self._print_output(event)

    def _record(self, entry: Entry, event: ev.Event, ledger: str) -> dict[str, Any]:
        import msgspec

        doc = msgspec.json.decode(msgspec.json.encode(event))
        record = {"seq": entry.seq, "at": iso(entry.at), "ledger": ledger}
        record |= {"hash": entry.hash.hex(), "text": describe(event), "event": doc}
        if self._step is not None and (output := self._output(event)):
            record["output"] = output
        return record

    def _print_output(self, event: ev.Event) -> None:
        if self._step is None:
            return
        told = describe(event) if isinstance(event, ev.AttemptReported) else ""
        lines = [*told.splitlines()[1:], *self._output(event).splitlines()]
        for line in map(clean_lines, lines):
            self._console.out(f"    | {line}")

    def _output(self, event: ev.Event) -> str:
        """Return the output of an attempt, loaded if stored separately."""
        if not isinstance(event, ev.AttemptReported):
            return ""
        if not event.output_ref:
            return event.output
        try:
            raw = self._reader.store.get_artifact(event.output_ref)
        except StoreError as error:
            return f"(its output cannot be read: {error})"
        return raw.decode("utf-8", "replace")
