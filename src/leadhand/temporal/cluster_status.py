"""The status of a Temporal server: the runs it hosts, and the processes of its task queues."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError, RPCStatusCode

from leadhand.temporal.dispatch import engine_queue, queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from temporalio.client import Client


SILENT_S = 70.0
"""A process asks for work at least once a minute. The server goes on listing it for some minutes
more, so one that was not seen for longer has ended, is cut off, or is a machine at full
capacity."""
ACTIVITIES = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
PLACE = "leadhand.place"
PLACES_AT_ONCE = 20
PLACE_WAIT = timedelta(seconds=5)
LIST = 'WorkflowType = "leadhand.run" AND ExecutionStatus = "Running"'
NO_ENGINE = (
    "no engine is there, so runs stand still. Fix: leadhand worker --engine-only, or leadhand serve"
)


async def pollers(client: Client, queue: str, *, workflows: bool = False) -> list[str]:
    """Return the processes that ask a task queue for work."""
    seen = await last_seen(client, queue, workflows=workflows)
    return sorted(name for name, ago_s in seen.items() if ago_s <= SILENT_S)


async def last_seen(client: Client, queue: str, *, workflows: bool = False) -> dict[str, float]:
    """Return the processes that asked a task queue for work recently, and how many seconds ago."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if workflows else ACTIVITIES
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    told = await client.workflow_service.describe_task_queue(request)
    now, seen = time.time(), dict[str, float]()
    for each in told.pollers:
        ago_s = max(0.0, now - each.last_access_time.seconds)
        seen[each.identity] = min(ago_s, seen.get(each.identity, ago_s))
    return seen


def silent_since(seen: dict[str, float]) -> str:
    """Describe the process seen last; empty if there was none."""
    if not seen:
        return ""
    ago_s, name = min((ago_s, name) for name, ago_s in seen.items())
    return f"{name}, last seen {ago_s:.0f} s ago"


async def hosted_runs(client: Client, prefix: str, run: str = "") -> frozenset[str]:
    """Return the runs that a workflow drives now; only `run`, if given."""
    begins = workflow_id(prefix, "")
    if not run:
        listed = client.list_workflows(LIST)
        return frozenset(
            [each.id.removeprefix(begins) async for each in listed if each.id.startswith(begins)]
        )
    try:
        told = await client.get_workflow_handle(begins + run).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return frozenset()
        raise
    return frozenset([run] if told.status is WorkflowExecutionStatus.RUNNING else [])


async def not_begun(client: Client, prefix: str, run: str) -> set[str]:
    """Return the steps of a run whose attempts no machine has taken yet."""
    told = await client.get_workflow_handle(workflow_id(prefix, run)).describe()
    pending = told.raw_description.pending_activities
    return {each.activity_id.rpartition(" ")[0] for each in pending if each.state == SCHEDULED}


async def missing(client: Client, prefix: str, workers: Iterable[str]) -> list[str]:
    """Describe missing processes: an engine, or a machine for one of these workers."""
    found = []
    if not await pollers(client, engine_queue(prefix), workflows=True):
        found.append(NO_ENGINE)
    for name in workers:
        seen = await last_seen(client, queue_of(prefix, name))
        if not any(ago_s <= SILENT_S for ago_s in seen.values()):
            last = f" ({silent_since(seen)}, has ended or is busy)" if seen else ""
            fix = f"Fix: leadhand worker --kinds {name}"
            found.append(
                f"no machine asks for work of {name}{last}: its steps wait for a machine. {fix}"
            )
    return found


async def parked_runs(
    client: Client, prefix: str, ends: dict[str, tuple[int, str]]
) -> dict[str, str]:
    """Return the runs whose log differs from what their workflow wrote, and the problem.

    `ends`: the ends of their logs, read before. The log is written behind, so it may end before the
    workflow does, and never after it.
    """
    limit = asyncio.Semaphore(PLACES_AT_ONCE)

    async def ask(run: str) -> str:
        async with limit:
            return await _parked(client, prefix, run, *ends[run])

    found = zip(ends, await asyncio.gather(*(ask(run) for run in ends)), strict=True)
    return {run: why for run, why in found if why}


async def _parked(client: Client, prefix: str, run: str, seq: int, head: str) -> str:
    handle = client.get_workflow_handle(workflow_id(prefix, run))
    try:
        place = await handle.query(PLACE, result_type=dict, rpc_timeout=PLACE_WAIT)
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError):
        return ""  # not served now, which is reported elsewhere; or it has just ended
    if place["fork"]:
        return str(place["fork"])
    if place["status"] == "loading":
        return ""
    if seq > place["seq"] or (seq == place["seq"] and head != place["head"]):
        return f"the log of run {run} holds what its workflow did not write (event {seq})"
    return ""


def way_out(run: str) -> str:
    """Return the fix for a parked run."""
    return (
        f"Fix: see what is there with leadhand logs {run}; then go on from the log as it is, with "
        f"leadhand resume {run} --from-log --reason TEXT"
    )


def workflow_id(prefix: str, run: str) -> str:
    """Return the id of a run's workflow: there is one for each run."""
    return f"{prefix}/{run}"
