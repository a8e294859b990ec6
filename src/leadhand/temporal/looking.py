"""Who is there: which runs a Temporal server hosts, and who serves its task queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from leadhand.temporal.hands import engine_queue, queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from temporalio.client import Client

ENGINE_SILENT_S = 90.0
"""An engine asks for work every minute at least; the server names it for some more. (A machine
that is busy asks for none.)"""
ACTIVITIES = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
LIST = 'WorkflowType = "leadhand.run" AND ExecutionStatus = "Running"'
NO_ENGINE = (
    "no engine is there, so runs stand still. Fix: leadhand worker --engine-only, or leadhand serve"
)


async def served_by(client: Client, queue: str, *, workflows: bool = False) -> list[str]:
    """Who has asked a task queue for work in the last minutes."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if workflows else ACTIVITIES
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    told = await client.workflow_service.describe_task_queue(request)
    since = time.time() - ENGINE_SILENT_S if workflows else 0.0
    return sorted({p.identity for p in told.pollers if p.last_access_time.seconds >= since})


async def hosted_runs(client: Client, prefix: str, run: str = "") -> frozenset[str]:
    """The runs that a workflow drives now; of one run, if only that is asked for."""
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
    """The steps of a run whose attempts no machine has taken yet."""
    told = await client.get_workflow_handle(workflow_id(prefix, run)).describe()
    pending = told.raw_description.pending_activities
    return {each.activity_id.rpartition(" ")[0] for each in pending if each.state == SCHEDULED}


async def missing(client: Client, prefix: str, workers: Iterable[str]) -> list[str]:
    """Who is not there, in words: an engine, or a machine for one of these workers."""
    found = []
    if not await served_by(client, engine_queue(prefix), workflows=True):
        found.append(NO_ENGINE)
    for name in workers:
        if not await served_by(client, queue_of(prefix, name)):
            fix = f"Fix: leadhand worker --kinds {name}"
            found.append(f"nobody asks for work of {name}: its steps wait for a machine. {fix}")
    return found


def workflow_id(prefix: str, run: str) -> str:
    """The id of a run's workflow: there is one for each run."""
    return f"{prefix}/{run}"
