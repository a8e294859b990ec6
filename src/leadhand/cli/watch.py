"""`leadhand watch`: a run as it goes on, read from its log, whoever hosts it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import settings_of, store_option
from leadhand.cli.outcome import ENDED, outcome_document, print_outcome, whole
from leadhand.cli.views import view_for
from leadhand.core.evolve import evolve
from leadhand.core.state import State
from leadhand.core.views import exit_code, run_result, run_status
from leadhand.errors import Conflict

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.settings import Settings

HOST_LOOK_S = 1.0


@command("watch", "leadhand watch 7kq3 --exit-status")
@click.argument("run", required=False)
@click.option("--exit-status", is_flag=True, help="Exit with the code of the run's status.")
@store_option
def watch(console: Console, run: str | None, exit_status: bool, store: str | None) -> int:  # noqa: FBT001 - click passes it
    """Follow a run live until it ends, or until nothing hosts it any more.

    Without RUN the latest one. --json prints one event a line, then the outcome.
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
        ident = reader.resolve(run) if run else _latest(reader)
        state = State()
        hosted = await _follow(console, reader, settings, ident, state)
        result = whole(run_result(state), reader.store.get_artifact)
    finally:
        await reader.close()
    if console.json:
        console.record({"type": "outcome", **outcome_document(state, result)})
    else:
        print_outcome(console, state, hosted=hosted)
    return exit_code(state) if exit_status else 0


def _latest(reader: Reader) -> str:
    from leadhand.errors import UsageError

    runs = reader.runs()
    if not runs:
        raise UsageError("there are no runs yet")
    return runs[-1].run


async def _follow(
    console: Console, reader: Reader, settings: Settings, ident: str, state: State
) -> bool:
    """Fold what is new and show it, again and again; gives whether a host is alive at the end."""
    view = view_for(console, quiet=console.json)
    seq, missed, looked, hosted = 0, 0, 0.0, True
    try:
        while True:
            if (look := time.monotonic() - looked >= HOST_LOOK_S) and seq:
                # Before reading: what a host wrote before it went away is then read as well.
                hosted, looked = bool(driver_of(settings, reader, state)), time.monotonic()
                missed = 0 if hosted else missed + 1
            logged = reader.events(ident, seq)
            for entry, event in logged:
                evolve(state, event, entry.at)
                seq = entry.seq
                if console.json:
                    console.record(_record(entry, event))
            if look and missed == 0 and not looked:
                continue  # the first time: only now it is known who should drive it
            notes = await _progress(settings, ident) if hosted else {}
            shared = reader.host_state()
            stopped = shared.stopped_by if shared.stopped else ""
            now = time.time_ns() // 1000 if hosted else state.last_at
            view.tick(state, now, notes, logged, stopped)
            if run_status(state) in ENDED or missed:
                return hosted
            await asyncio.sleep(view.period_s)
    finally:
        view.close()


async def _progress(settings: Settings, ident: str) -> dict[str, tuple[str, float | None]]:
    from leadhand.app.door import progress

    try:
        notes = await progress(settings.store, ident) or {}
    except Conflict:  # it just went away
        return {}
    return {step: (note["message"], note["fraction"]) for step, note in notes.items()}


def _record(entry: Any, event: Any) -> dict[str, Any]:
    from leadhand.cli.text import iso
    from leadhand.core.ledger import describe, ledger_of

    record = {"type": "event", "seq": entry.seq, "at": iso(entry.at)}
    return {**record, "ledger": ledger_of(event), "text": describe(event)}
