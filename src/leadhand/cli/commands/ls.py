"""`leadhand ls`: runs, workers, plans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from leadhand.app.composition import registry_of
from leadhand.app.documents import (
    QUEUED,
    UNREADABLE,
    RunRow,
    queued_rows,
    run_rows,
    worker_rows,
)
from leadhand.app.host_status import observe_host
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    reading,
    say_not_loaded,
    settings_of,
    stopped_by,
    store_option,
    workers_option,
)
from leadhand.cli.rendering.text import clean, moment, table
from leadhand.core.calendar import from_iso
from leadhand.core.durations import text as duration
from leadhand.core.views.run import ENDED
from leadhand.settings.product_logs import product_logs
from leadhand.stores.location import there

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry


OPEN = ("running", "paused", "waiting", "stopping")
STATUSES = (*OPEN, *ENDED, QUEUED, UNREADABLE)


@command("ls", "leadhand ls\nleadhand ls workers")
@click.argument("what", type=click.Choice(["runs", "workers"]), default="runs")
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    metavar="STATUS",
    help=f"List only runs with this status: {', '.join(STATUSES)}.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="List the newest N runs."
)
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="For workers: list the files and values that each version covers.",
)
@workers_option
@store_option
def ls(
    console: Console,
    what: str,
    status: str | None,
    limit: int,
    verbose: bool,  # noqa: FBT001 - an option
    workers: tuple[str, ...],
    store: str | None,
) -> int:
    """List runs, newest first, or the configured workers."""
    settings = settings_of(store, workers)
    if what == "workers":
        return _workers(console, settings, registry_of(settings), verbose=verbose)
    return _runs(console, settings, status, limit)


def _runs(console: Console, settings: Settings, status: str | None, limit: int) -> int:
    rows: list[RunRow] = []
    stopped, notes = "", list[str]()
    if there(settings.store):
        with reading(settings) as reader:
            driver, notes = observe_host(settings, reader)
            rows = run_rows(reader, driver)
            rows += queued_rows(driver, rows)
            stopped = stopped_by(reader)
    rows = [row for row in rows if status is None or row.status == status]
    rows = rows[::-1][:limit]
    if console.json:
        console.document(rows)
        return 0
    if not rows:
        console.say(f"no {status + ' ' if status else ''}runs in {settings.store}")
        logs = [log for log in product_logs() if log.store(settings) is not None]
        for log in logs if status is None else ():
            console.say(f"{log.kind}s here: {log.shown_by}")
        if status is None and not logs:
            console.next("leadhand run PLAN")
        return 0
    lines = table(
        ("RUN", "STATUS", "SUCCEEDED", "WAITING", "STARTED", "TOOK", "GOAL"),
        (
            (
                clean(row.run, 100),
                row.status + ("" if row.host or row.status not in OPEN else " (no host)"),
                _counts(row),
                str(row.waiting or ""),
                moment(from_iso(row.created)) if row.created else "?",
                _took(row),
                clean(row.goal or row.plan, 60),
            )
            for row in rows
        ),
    )
    for line in lines:
        console.row(line)
    if stopped:
        way = console.command("stop-all --lift")
        console.say(f"Emergency stop by {clean(stopped, 60)}: no step starts until {way}")
    for row in rows:
        if row.trouble:
            console.say(f"{clean(row.run, 100)}: {clean(row.trouble, 500)}")
    for note in notes:
        console.say(note)
    return 0


def _counts(row: RunRow) -> str:
    """Return `3/10`, with the number of failed steps, if any."""
    if row.status in (QUEUED, UNREADABLE):
        return "?"
    failed = f", {row.failed} failed" if row.failed else ""
    steps = (row.steps or 0) - (row.replaced or 0)  # successors stand for those
    return f"{row.succeeded}/{steps}{failed}"


def _took(row: RunRow) -> str:
    """Return the duration; it grows while a process drives the run."""
    if row.created is None or row.updated is None:
        return "?"
    updated = from_iso(row.updated)
    if row.host and row.status in OPEN:
        updated = time.time_ns() // 1000
    return duration((updated - from_iso(row.created)) / 1e6)


def _workers(console: Console, settings: Settings, registry: Registry, *, verbose: bool) -> int:
    rows = worker_rows(registry)
    if console.json:
        missing, left_out = [str(each) for each in settings.not_loaded], registry.left_out
        digest = None if missing else registry.catalog().digest()
        doc = {"digest": digest, "workers": rows, "left_out": left_out, "not_loaded": missing}
        console.document(doc)
        return 0
    for name, why in registry.left_out.items():
        console.say(f"left out: {clean(name)}: {clean(why)}")
    say_not_loaded(console, settings)
    if not rows and not settings.not_loaded:
        console.say("no workers are configured. Give --workers MODULE, or see `leadhand init`.")
        return 0
    lines = table(
        ("WORKER", "ACTION", "KIND", "RISK", "PARAMETERS", "CHECKS", "DESCRIPTION"),
        (
            (
                clean(row.worker),
                clean(row.action or "(any)"),
                row.kind,
                row.risk,
                clean(_parameters(row.parameters), 60),
                clean(", ".join(row.checks)),
                clean(str(row.description).partition("\n")[0], 60),
            )
            for row in rows
        ),
    )
    for line in lines:
        console.row(line)
    for name in dict.fromkeys(row.worker for row in rows) if verbose else ():
        row = next(each for each in rows if each.worker == name)
        console.row("")
        console.row(f"{clean(name)}  version {clean(row.version)} covers")
        for line in _covered(row.covers):
            console.row(f"  {line}")
    return 0


def _covered(covers: Doc | None) -> list[str]:
    """Return what a version covers, a line each: files with their digests, and names of values."""
    if covers is None:
        return ["nothing: this worker is a person"]
    if covers["declared"]:
        return ["only the `version` that its author declares"]
    files = [f"{digest[:12]}  {clean(path, 200)}" for path, digest in covers["files"].items()]
    return [*files, *(f"value         {clean(each, 200)}" for each in covers["values"])]


def _parameters(schema: Doc | None) -> str:
    if schema is None:
        return "(any)"
    must = schema.get("required", ())
    return " ".join(n if n in must else f"[{n}]" for n in schema.get("properties", {}))
