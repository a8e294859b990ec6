"""The processes of a distributed Leadhand: engines, and machines that serve worker kinds.

    engine     workflows, planners, reviewers, the log; any number of them, at least one
    machine    attempts of the workers it serves, each from a task queue of its own

A process that is told to stop drains: it takes nothing new, and its work in progress may finish.
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

from leadhand.core.catalog import NOT_CALLED
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
"""Pure as used by a workflow: importing them anew for each run would cost time for nothing. Only
the workflow itself stays in the sandbox."""
OPEN = UnsandboxedWorkflowRunner()
"""Engines run workflows outside the sandbox. It protects against mistakes of a workflow's author,
and the only workflow here is ours; the SDK enters it some ten times for each step, which was a
third of an engine's work. The tests replay recorded histories inside it."""
THROTTLE_S = 2.0
"""The longest time between two heartbeats that reach the server: the delay of a stop."""
DRAIN_S = 3600.0
LOOK_S = 3.0
"""The interval of health checks of the server."""
POLLING = PollerBehaviorAutoscaling(minimum=1, initial=1, maximum=10)
"""Each open poll of a machine that freezes loses one attempt: so they are few."""


def sandbox() -> SandboxedWorkflowRunner:
    """Return the sandbox of workflows, which checks that they read nothing from outside."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return SandboxedWorkflowRunner(restrictions=restrictions)


def engine_worker(
    client: Client, prefix: str, engine: EngineActivities, *, cached: int = 500
) -> Worker:
    """Return the worker for workflows and the engine's activities."""
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
    """Return workers for attempts of the named workers, each from its own queue."""
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
    """Return the workers that some words mean, names or kinds; all without any."""
    specs = [each for each in workers.catalog().workers.values() if each.kind not in NOT_CALLED]
    if not kinds:
        return [each.name for each in specs]
    return [each.name for each in specs if each.name in kinds or each.kind in kinds]


class RunningWorkers:
    """Temporal workers that run until they are told to stop."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._workers = list(workers)
        self._stack = AsyncExitStack()
        self._serving = self._reachable = False

    @property
    def reachable(self) -> bool:
        """Whether the server answered the last health check."""
        return self._reachable

    @property
    def ready(self) -> bool:
        """Whether work is taken: it is served, and the server answered the last health check."""
        return self._serving and self._reachable

    async def __aenter__(self) -> Self:
        for worker in self._workers:
            await self._stack.enter_async_context(worker)
        gc.collect()
        gc.freeze()  # the objects so far are permanent: spare the collector from scanning them
        self._serving = self._reachable = True
        looking = asyncio.create_task(self._look())
        self._stack.callback(looking.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving = False
        await asyncio.gather(*(worker.shutdown() for worker in self._workers))
        await self._stack.aclose()

    async def _look(self) -> None:
        """Check the server's health at intervals; the workers themselves only wait."""
        while self._workers:
            await asyncio.sleep(LOOK_S)
            try:
                client = self._workers[0].client
                asked = client.service_client.check_health(timeout=timedelta(seconds=LOOK_S))
                self._reachable = await asked
            except RPCError:
                self._reachable = False
