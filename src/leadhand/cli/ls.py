"""`leadhand ls`: runs, workers, plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    driver_of,
    reading,
    registry_of,
    settings_of,
    store_option,
    workers_option,
)
from leadhand.cli.outcome import ENDED
from leadhand.cli.text import clean, iso, moment, table
from leadhand.core.durations import text as duration
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.plan import Doc
    from leadhand.ports import RunHeader
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry

OPEN = ("running", "paused", "waiting", "stopping")
UNREADABLE = "unreadable"


@command("ls", "leadhand ls\nleadhand ls workers")
@click.argument("what", type=click.Choice(["runs", "workers"]), default="runs")
@click.option("--status", help="Only runs with this status.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="The latest N."
)
@workers_option
@store_option
def ls(
    console: Console,
    what: str,
    status: str | None,
    limit: int,
    workers: tuple[str, ...],
    store: str | None,
) -> int:
    """List runs (the latest first), or the workers that are configured."""
    settings = settings_of(store, workers)
    if what == "workers":
        return _workers(console, registry_of(settings))
    return _runs(console, settings, status, limit)


def _runs(console: Console, settings: Settings, status: str | None, limit: int) -> int:
    rows: list[Doc] = []
    if settings.store.exists():
        rows = run_rows(settings)
    rows = [row for row in rows if status is None or row["status"] == status]
    rows = rows[::-1][:limit]
    if console.json:
        times = ("created", "updated")
        console.document([row | {key: iso(row[key]) for key in times} for row in rows])
        return 0
    if not rows:
        console.say(f"no runs in {settings.store}")
        console.next("leadhand run PLAN")
        return 0
    lines = table(
        ("RUN", "STATUS", "SUCCEEDED", "WAITING", "STARTED", "TOOK", "GOAL"),
        (
            (
                clean(row["run"], 100),
                row["status"] + ("" if row["host"] or row["status"] not in OPEN else " (no host)"),
                _counts(row),
                str(row["waiting"] or ""),
                moment(row["created"]) if row["created"] else "?",
                _took(row),
                clean(row["goal"] or row["plan"], 60),
            )
            for row in rows
        ),
    )
    for line in lines:
        console.out(line)
    for row in rows:
        if "trouble" in row:
            console.say(f"{clean(row['run'], 100)}: {clean(row['trouble'], 500)}")
    return 0


def _counts(row: Doc) -> str:
    """`3/10`, and what failed, if anything."""
    if row["status"] == UNREADABLE:
        return "?"
    failed = f", {row['failed']} failed" if row["failed"] else ""
    return f"{row['succeeded']}/{row['steps']}{failed}"


def _took(row: Doc) -> str:
    created, updated = row["created"], row["updated"]
    return duration((updated - created) / 1e6) if created and updated else "?"


def run_rows(settings: Settings) -> list[Doc]:
    """All runs with what is known of them, oldest first; open ones are folded to be exact."""
    with reading(settings) as reader:
        return [_row(settings, reader, header) for header in reader.runs()]


def _row(settings: Settings, reader: Reader, header: RunHeader) -> Doc:
    """One run; where something of it is damaged, what can be known, and what is wrong."""
    from leadhand.app.reader import summary_of
    from leadhand.core.views import summary

    row: Doc = {"run": header.run}
    said = summary_of(header)
    driver = 0
    if said is not None and said["status"] in ENDED:
        row |= said
    else:
        try:
            state = reader.state(header.run)
            row |= summary(state)
            driver = driver_of(settings, reader, state)
        except StoreError as error:
            row |= said or dict.fromkeys(("steps", "settled", "succeeded", "failed"))
            row |= {"status": UNREADABLE, "trouble": str(error).partition(" Fix: ")[0]}
        else:
            if said is None and header.summary:
                row["trouble"] = "its summary is damaged; this is what its log says"
    row.setdefault("waiting", None)
    row |= {"created": header.created, "updated": header.updated, "host": driver or None}
    row["started"] = iso(header.created)
    return {"goal": "", "plan": "", "cost": None, **row}


def _workers(console: Console, registry: Registry) -> int:
    catalog = registry.catalog()
    rows: list[Doc] = []
    for spec in catalog.workers.values():
        for action, offer in spec.offers.items():
            rows.append(
                {
                    "worker": spec.name,
                    "action": action,
                    "kind": spec.kind,
                    "version": spec.version,
                    "risk": catalog.risk(spec.name, action),
                    "effects": list(offer.effects or ()),
                    "idempotent": offer.idempotent,
                    "probe": offer.probe,
                    "timeout": offer.timeout_s,
                    "checks": list(offer.checks),
                    "parameters": offer.parameters,
                    "description": spec.description,
                }
            )
    if console.json:
        console.document({"digest": catalog.digest(), "workers": rows})
        return 0
    if not rows:
        console.say("no workers are configured. Give --workers MODULE, or see `leadhand init`.")
        return 0
    lines = table(
        ("WORKER", "ACTION", "KIND", "RISK", "PARAMETERS", "CHECKS", "WHAT IT IS"),
        (
            (
                clean(row["worker"]),
                clean(row["action"] or "(any)"),
                row["kind"],
                row["risk"],
                clean(_parameters(row["parameters"]), 60),
                clean(", ".join(row["checks"])),
                clean(str(row["description"]).partition("\n")[0], 60),
            )
            for row in rows
        ),
    )
    for line in lines:
        console.out(line)
    return 0


def _parameters(schema: Doc | None) -> str:
    if schema is None:
        return "(any)"
    must = schema.get("required", ())
    return " ".join(n if n in must else f"[{n}]" for n in schema.get("properties", {}))
