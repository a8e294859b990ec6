"""`leadhand ls`: runs, workers, plans."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

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
from leadhand.app.run_filters import ORDERS, run_query
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
from leadhand.ports import RunQuery
from leadhand.settings.product_logs import product_logs
from leadhand.stores.location import there

if TYPE_CHECKING:
    from leadhand.app.documents import Driver
    from leadhand.app.reader import Reader
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
@click.option("--text", "-q", metavar="TEXT", help="List runs with this in id, goal or plan.")
@click.option("--plan", metavar="ID", help="List only runs of this plan; `ID*`: that begin so.")
@click.option("--actor", metavar="NAME", help="List only runs that this person started.")
@click.option(
    "--label", metavar="LABEL", help="List only runs with this label: NAME or NAME=VALUE."
)
@click.option("--environment", metavar="NAME", help="List only runs of this environment.")
@click.option(
    "--from", "start", metavar="WHEN", help="List runs created since then: 2026-11-17, or 7d ago."
)
@click.option("--to", "end", metavar="WHEN", help="List runs created until then; a date counts.")
@click.option(
    "--sort",
    type=click.Choice(ORDERS),
    default="-created",
    show_default=True,
    metavar="ORDER",
    help="Sort by created, ended, duration or cost; with - in front, the largest first.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="List at most N runs."
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
    sort: str,
    limit: int,
    verbose: bool,  # noqa: FBT001 - an option
    workers: tuple[str, ...],
    store: str | None,
    **filters: Any,
) -> int:
    """List runs, newest first, or the configured workers."""
    settings = settings_of(store, workers)
    if what == "workers":
        return _workers(console, settings, registry_of(settings), verbose=verbose)
    query = run_query(status=(status,) if status else (), sort=sort, limit=limit, **filters)
    return _runs(console, settings, query)


def _runs(console: Console, settings: Settings, query: RunQuery) -> int:
    rows: list[RunRow] = []
    stopped, notes = "", list[str]()
    if there(settings.store):
        with reading(settings) as reader:
            driver, notes = observe_host(settings, reader)
            rows = _rows(reader, driver, query)
            stopped = stopped_by(reader)
    if console.json:
        console.document(rows)
        return 0
    if not rows:
        _none(console, settings, query)
        return 0
    _print(console, rows)
    if stopped:
        way = console.command("stop-all --lift")
        console.say(f"Emergency stop by {clean(stopped, 60)}: no step starts until {way}")
    for row in rows:
        if row.trouble:
            console.say(f"{clean(row.run, 100)}: {clean(row.trouble, 500)}")
    for note in notes:
        console.say(note)
    return 0


def _rows(reader: Reader, driver: Driver, query: RunQuery) -> list[RunRow]:
    """Return the rows of the list: first those that a service elsewhere has not begun yet."""
    rows = [] if query.status == (QUEUED,) else run_rows(reader, driver, query)[0]
    if query._replace(status=(), sort="-created", limit=0) != RunQuery(limit=0):
        return rows  # nothing is known of a queued run that a filter could choose by
    queued = queued_rows(driver, reader) if query.status in ((), (QUEUED,)) else []
    return [*queued, *rows][: query.limit]


def _none(console: Console, settings: Settings, query: RunQuery) -> None:
    """Say that there is nothing to list, and what to do."""
    every = query._replace(sort="-created", limit=0) == RunQuery(limit=0)
    status = "".join(f"{status} " for status in query.status)
    only_status = query._replace(status=(), sort="-created", limit=0) == RunQuery(limit=0)
    like = "" if only_status else " like that"
    console.say(f"no {status}runs{like} in {settings.store}")
    logs = [log for log in product_logs() if log.store(settings) is not None]
    for log in logs if every else ():
        console.say(f"{log.kind}s here: {log.shown_by}")
    if every and not logs:
        console.next("leadhand run PLAN")


def _print(console: Console, rows: list[RunRow]) -> None:
    lines = table(
        ("RUN", "STATUS", "SUCCEEDED", "WAITING", "STARTED", "TOOK", "GOAL"),
        (
            (
                clean(row.run, 100),
                row.status + _where(row),
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


def _where(row: RunRow) -> str:
    """Return what follows the status: that no host drives an open run, or that it is archived."""
    if row.archive:
        return " (archived)"
    return "" if row.host or row.status not in OPEN else " (no host)"


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
