"""Checks of `leadhand doctor` for a Temporal server and its serving processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leadhand.app.composition import registry_of
from leadhand.app.store_factory import open_reader
from leadhand.cli.commands.doctor import DoctorCheck
from leadhand.core.catalog import NOT_CALLED
from leadhand.errors import LeadhandError
from leadhand.stores.location import there
from leadhand.temporal.cluster import own_names, require
from leadhand.temporal.settings import cluster_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from temporalio.client import Client

    from leadhand.settings import Settings
    from leadhand.temporal.cluster import Cluster


Row = tuple[str, str, str, str]
"""What was checked, its value, the problem, and the fix."""
ENGINE_FIX = "leadhand worker --engine-only, or leadhand serve"


def checks(settings: Settings, *, fix: bool) -> Iterator[DoctorCheck]:  # noqa: ARG001 - the port
    """Check the server, the engine, and the loaded workers: which processes serve them."""
    try:
        for what, value, problem, way in temporal_rows(settings):
            yield DoctorCheck(what, value, problem, way, warning=True)
    except LeadhandError as error:
        message, _, way = str(error).partition(" Fix: ")
        yield DoctorCheck("temporal", "not usable", message, way)


def temporal_rows(settings: Settings) -> list[Row]:
    """Return the checks of the server, the engine and the loaded workers."""
    cluster = cluster_of(settings)
    if cluster is None:
        return []
    require()
    specs = registry_of(settings).catalog().workers.values()
    names = [spec.name for spec in specs if spec.kind not in NOT_CALLED]
    return asyncio.run(_looked(settings, cluster, names))


async def _looked(settings: Settings, cluster: Cluster, names: list[str]) -> list[Row]:
    from temporalio.service import RPCError

    rows: list[Row] = [("temporal", f"{cluster.address}, namespace {cluster.namespace}", "", "")]
    try:
        return (
            rows
            + await _served(_named(settings, cluster), names)
            + await _parked(settings, cluster)
        )
    except RPCError as error:
        wrong = f"does not answer: {str(error)[:200]}"
        return [
            (*rows[0][:2], wrong, "check the Temporal server, then run `leadhand doctor` again")
        ]


def _named(settings: Settings, cluster: Cluster) -> Cluster:
    """Return the cluster with this log's own names; a missing log is not served."""
    if not there(settings.store):
        return cluster
    log = open_reader(settings.store)
    try:
        return own_names(cluster, log)
    finally:
        log.close_reader()


async def _parked(settings: Settings, cluster: Cluster) -> list[Row]:
    """Return runs that do not continue because their log differs from their workflow's."""
    if not there(settings.store):
        return []
    from leadhand.app.reader import Reader
    from leadhand.temporal.cluster_status import way_out

    reader = Reader(settings.store)
    try:
        found = await cluster.status(reader).forks()
    finally:
        await reader.close()
    return [
        (f"run {run}", "parked", why, way_out(run).removeprefix("Fix: "))
        for run, why in found.items()
    ]


async def _served(cluster: Cluster, names: list[str]) -> list[Row]:
    from leadhand.temporal.dispatch import engine_queue, queue_of
    from leadhand.temporal.host import connect

    client = await connect(cluster)
    prefix = cluster.ways.prefix
    queues = [("engine", engine_queue(prefix), "runs stand still", ENGINE_FIX)]
    for name in names:
        fix = f"leadhand worker --kinds {name}"
        queues.append((f"worker {name}", queue_of(prefix, name), "steps of this worker wait", fix))
    return [await _queue(client, *each) for each in queues]


async def _queue(client: Client, what: str, queue: str, without: str, fix: str) -> Row:
    """Check the processes of a task queue that asked for work lately."""
    from leadhand.temporal.cluster_status import SILENT_S, last_seen, silent_since

    engine = what == "engine"
    seen = await last_seen(client, queue, workflows=engine)
    there = sorted(name for name, ago_s in seen.items() if ago_s <= SILENT_S)
    if there:
        return (what, ", ".join(there), "", "")
    if not seen:
        return (what, "none", without, fix)
    why = (
        "the process has ended"
        if engine
        else "the process has ended, or runs as many steps as it may"
    )
    return (what, silent_since(seen), f"{why}: {without}", fix)
