"""The workflow of one attempt on another machine: one activity, attempted once.

What follows a lost machine is for the coder at home to decide (`fleet/worker.py`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from leadhand.fleet.machines.messages import (
    FLOW,
    SAY,
    STOP,
    TELL,
    WORK,
    Message,
    WorkDone,
    WorkOrder,
)

ONCE = RetryPolicy(maximum_attempts=1)
TELL_S = 60.0


@workflow.defn(name=FLOW)
class CoderAttempt:
    """Lets a machine carry out one order."""

    def __init__(self) -> None:
        self._at_it: workflow.ActivityHandle[Any] | None = None
        self._stopped = False

    @workflow.run
    async def run(self, order: WorkOrder) -> WorkDone:
        """Return what the machine hands in. A machine that is silent is an `ActivityError`."""
        self._at_it = workflow.start_activity(
            WORK,
            order,
            task_queue=order.queue,
            result_type=WorkDone,
            heartbeat_timeout=timedelta(seconds=order.heartbeat_s),
            start_to_close_timeout=timedelta(seconds=order.limit_s),
            retry_policy=ONCE,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        if self._stopped:
            self._at_it.cancel()
        done: WorkDone = await self._at_it
        return done

    @workflow.signal(name=STOP)
    def stop(self) -> None:
        """End the agent; its machine saves the work and hands it in."""
        self._stopped = True
        if self._at_it is not None:
            self._at_it.cancel()

    @workflow.signal(name=SAY)
    async def say(self, message: Message) -> None:
        """Tell the agent something, by the queue of the machine that has it."""
        with suppress(ActivityError):  # it has ended meanwhile
            await workflow.execute_activity(
                TELL,
                message,
                task_queue=message.queue,
                result_type=bool,
                schedule_to_close_timeout=timedelta(seconds=TELL_S),
                retry_policy=ONCE,
            )
