"""The processes of a distributed Leadhand: engines, and machines that serve worker kinds.

    engine     workflows, planners, reviewers, the log; as many as there are, one will do
    machine    attempts of the workers it names, each from a task queue of its own

A process that is told to stop drains: it takes nothing new, and what it carries out may finish.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorAutoscaling, UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from leadhand.temporal.activities import EngineActivities, StepActivities
from leadhand.temporal.dispatch import engine_queue, queue_of
from leadhand.temporal.workflow import RunFlow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from temporalio.client import Client

    from leadhand.ports import Workers


PASSED_THROUGH = (
    "jsonschema_rs",
    "leadhand.audit",
    "leadhand.codec",
    "leadhand.core",
    "leadhand.engine",
    "leadhand.errors",
    "leadhand.models",
    "leadhand.ports",
    "leadhand.temporal.messages",
    "msgspec",
)
"""Pure where a workflow calls them: reading them anew for each run would cost, and give nothing.
What is left in the sandbox is the workflow itself."""
OPEN = UnsandboxedWorkflowRunner()
"""Engines run workflows outside the sandbox. It guards against what the author of a workflow may do
by mistake, and the only one here is ours; the SDK enters it some ten times for each step, which was
a third of all that an engine did. The tests replay recorded histories inside it."""
THROTTLE_S = 2.0
"""The longest between two heartbeats that reach the server: so soon a stop is heard of."""
DRAIN_S = 3600.0
LOOK_S = 3.0
"""How often the server is asked whether it is there."""
POLLING = PollerBehaviorAutoscaling(minimum=1, initial=1, maximum=10)
"""Each open poll of a machine that freezes swallows one attempt: there are as few as will do."""


def sandbox() -> SandboxedWorkflowRunner:
    """The sandbox of workflows, where it is checked that they read nothing from outside."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return SandboxedWorkflowRunner(restrictions=restrictions)


def engine_worker(
    client: Client, prefix: str, engine: EngineActivities, *, cached: int = 500
) -> Worker:
    """Serves workflows, and what only an engine does."""
    return Worker(
        client,
        task_queue=engine_queue(prefix),
        workflows=[RunFlow],
        activities=[
            engine.plan,
            engine.examine,
            engine.verify_goal,
            engine.log,
            engine.project,
            engine.machine.attempt,
            engine.machine.probe,
        ],
        workflow_runner=OPEN,
        max_cached_workflows=cached,
        max_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_S),
        default_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_S),
        graceful_shutdown_timeout=timedelta(seconds=10),
    )


def machine_workers(
    client: Client,
    prefix: str,
    machine: StepActivities,
    names: Iterable[str],
    *,
    concurrency: int = 100,
    drain_s: float = DRAIN_S,
) -> list[Worker]:
    """Serves attempts of the named workers, each from its own queue."""
    return [
        Worker(
            client,
            task_queue=queue_of(prefix, name),
            activities=[machine.attempt, machine.probe],
            max_concurrent_activities=concurrency,
            activity_task_poller_behavior=POLLING,
            max_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_S),
            default_heartbeat_throttle_interval=timedelta(seconds=THROTTLE_S),
            graceful_shutdown_timeout=timedelta(seconds=drain_s),
        )
        for name in names
    ]


def served(workers: Workers, kinds: Sequence[str]) -> list[str]:
    """The workers that some words mean, names or kinds; all of them when there are none."""
    specs = [each for each in workers.catalog().workers.values() if each.kind != "human"]
    if not kinds:
        return [each.name for each in specs]
    return [each.name for each in specs if each.name in kinds or each.kind in kinds]


class RunningWorkers:
    """Workers that run until they are told to stop."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._workers = list(workers)
        self._stack = AsyncExitStack()
        self._serving = self._reachable = False

    @property
    def reachable(self) -> bool:
        """Whether the server answered when it was last asked."""
        return self._reachable

    @property
    def ready(self) -> bool:
        """Whether work is taken: it is served, and the server answered when it was last asked."""
        return self._serving and self._reachable

    async def __aenter__(self) -> Self:
        for worker in self._workers:
            await self._stack.enter_async_context(worker)
        gc.collect()
        gc.freeze()  # what is here now stays: each collection would look through it again
        self._serving = self._reachable = True
        looking = asyncio.create_task(self._look())
        self._stack.callback(looking.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving = False
        await asyncio.gather(*(worker.shutdown() for worker in self._workers))
        await self._stack.aclose()

    async def _look(self) -> None:
        """Ask the server now and then whether it is there; the workers themselves only wait."""
        while self._workers:
            await asyncio.sleep(LOOK_S)
            try:
                client = self._workers[0].client
                asked = client.service_client.check_health(timeout=timedelta(seconds=LOOK_S))
                self._reachable = await asked
            except RPCError:
                self._reachable = False
