"""The same steps as a bare Temporal workflow: calls activities, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

TRIES = RetryPolicy(maximum_attempts=3)
"""As many as a step of Leadhand has: an overloaded server loses one now and then."""


@activity.defn(name="add")
async def bare_add(numbers: list[int]) -> int:
    """The step, for the bare workflow."""
    return numbers[0] + numbers[1]


@workflow.defn(name="bare")
class Bare:
    """Calls activities, and nothing else."""

    @workflow.run
    async def run(self, shape: str, size: int, queue: str) -> int:
        """One after the other, or all at once."""

        async def step(number: int) -> int:
            return await workflow.execute_activity(
                bare_add,
                [number, 1],
                task_queue=queue,
                start_to_close_timeout=timedelta(hours=1),
                heartbeat_timeout=timedelta(seconds=20),
                retry_policy=TRIES,
            )

        if shape == "fanout":
            return sum(await asyncio.gather(*(step(number) for number in range(size))))
        return sum([await step(number) for number in range(size)])
