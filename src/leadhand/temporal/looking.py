"""Who is there: which runs a Temporal server hosts, and who serves its task queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from leadhand.temporal.hands import engine_queue, queue_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from temporalio.client import Client

ACTIVITIES = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
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
    return sorted({each.identity for each in told.pollers})


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


async def missing(client: Client, prefix: str, workers: Iterable[str]) -> list[str]:
    """Who is not there, in words: an engine, or a machine for one of these workers."""
    found = []
    if not await served_by(client, engine_queue(prefix), workflows=True):
        found.append(NO_ENGINE)
    for name in workers:
        if not await served_by(client, queue_of(prefix, name)):
            fix = f"Fix: leadhand worker --kinds {name}"
            found.append(f"nobody serves the worker {name}, so its steps wait. {fix}")
    return found


def workflow_id(prefix: str, run: str) -> str:
    """The id of a run's workflow: there is one for each run."""
    return f"{prefix}/{run}"
