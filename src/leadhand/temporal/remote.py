"""A run on a remote machine: enough of it for `engine/perform.py`.

An attempt on another machine goes through the same code as on the embedded host: the same contexts,
the same verdict, the same treatment of secrets and of large results. The run that this code expects
is made here from an order instead of a log, and its inputs are kept until the activity answers.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, TypeVar

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog
from leadhand.core.state.model import State, StepState
from leadhand.engine.budget import ROUNDING, RunBudget
from leadhand.engine.secrets import Secrets, secrets_of
from leadhand.errors import StoreFull
from leadhand.models.failures import ModelFailure
from leadhand.models.telemetry import Runs as Spans
from leadhand.temporal.messages import AttemptOrder, Judged, Spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.core.decide.effects import Move
    from leadhand.core.state.model import Now
    from leadhand.models.meter import ModelCall
    from leadhand.ports import Planner, Reviewer, Store, Workers

    Ask = Callable[[float, float, float], Awaitable[float]]
    """Asks for more budget: used, least needed and wanted; returns the new quota."""

T = TypeVar("T")
SPACE_LOOK_S = 1.0
SPACE_LOOKS_MAX = 30


class RemoteHost:
    """The host on a remote machine: the store, and the reviewers if there are any."""

    def __init__(self, store: Store, reviewers: dict[str, Reviewer] | None = None) -> None:
        self.store = store
        self.reviewers = reviewers or {}
        self.failed: BaseException | None = None
        self.spans = Spans()
        self._looks = 0

    async def blocking(self, call: Callable[..., T], *args: Any) -> T:
        """Run a slow synchronous call without blocking the loop."""
        return await asyncio.to_thread(call, *args)

    async def wait_for_space(self, error: BaseException | None) -> None:
        """Wait for space on a full disk, for a limited time."""
        self._looks += 1
        if not isinstance(error, StoreFull) or self._looks > SPACE_LOOKS_MAX:
            self.failed = error
            return
        await asyncio.sleep(SPACE_LOOK_S)

    def fail(self, error: BaseException) -> None:
        """Record that an attempt could not be submitted."""
        self.failed = error


class RemoteRun:
    """A run on a remote machine."""

    def __init__(
        self,
        state: State,
        workers: Workers,
        host: RemoteHost,
        quota: float | None = None,
        planner: Planner | None = None,
        more: Ask | None = None,
    ) -> None:
        self.id = state.run
        self.state = state
        self.workers = workers
        self.host = host
        self.planner = planner
        self.secrets: Secrets | None = secrets_of(state.started, workers)
        self.contexts: dict[str, Any] = {}
        self.tasks: dict[str, Any] = {}
        self.progress: dict[str, tuple[str, float | None]] = {}
        self.budget = AttemptBudget(self, quota, more)
        self.moves: list[Callable[[State, Now], Move]] = []
        self.report: ev.AttemptReported | None = None

    def planner_now(self) -> Planner | None:
        """Return the planner to ask. The caller sets the successor if a run was handed over."""
        return self.planner

    def submit(self, what: Callable[[State, Now], Move]) -> None:
        """Keep an input: the caller turns it into events."""
        self.moves.append(what)

    def reported(self, event: ev.AttemptReported) -> None:
        """Keep the judged report."""
        self.report = event

    def task_over(self, _key: str, _context: object) -> None:
        """Do nothing: an activity ends with its task."""

    def note_progress(self, step: str, message: str, fraction: float | None) -> None:
        """Keep the progress for the next heartbeat."""
        self.progress[step] = (message[:500], fraction)

    def events(self, now: Now) -> list[ev.Event]:
        """Return the events of all inputs."""
        said = [event for what in self.moves for event in what(self.state, now).events]
        return [self.secrets._event(each) for each in said] if self.secrets else said  # noqa: SLF001

    def judged(self, now: Now) -> Judged:
        """Return the outcome of an attempt or a probe."""
        said = self.events(now)
        return Judged(
            report=self.report,
            probe=next((each for each in said if isinstance(each, ev.ProbeReported)), None),
            spawns=tuple(
                Spawn(each.pid, each.start_time, each.boot_id)
                for each in said
                if isinstance(each, ev.AttemptSpawned)
            ),
            calls=tuple(each for each in said if isinstance(each, ev.ModelCalled)),
        )


class AttemptBudget(RunBudget):
    """The quota that the workflow reserved for this attempt; it asks for more in time.

    The cost of calls stays in `_aside` here: the log records it when the activity is over.
    """

    def __init__(self, deputy: RemoteRun, quota: float | None, ask: Ask | None = None) -> None:
        super().__init__(deputy)
        self._quota = quota
        self._ask = ask
        self._calls = 0
        self._turn = asyncio.Lock()

    def left(self, held: float = 0.0) -> float:
        """Return the rest of the quota."""
        if self._quota is None:
            return super().left(held)
        return self._quota - self._aside

    async def reserve(self, wanted: float, least: float, held: float = 0.0) -> float:
        """Reserve budget for a call; ask the workflow for a missing part."""
        if self._quota is None or math.isinf(least):
            return await super().reserve(wanted, least, held)
        async with self._turn:
            while self.left() + ROUNDING < wanted:
                self._settled.clear()
                if self._ask is not None:
                    self._quota = max(0.0, await self._ask(self._aside, least, wanted))
                if self.left() + ROUNDING >= least:
                    break
                if not self._calls:
                    raise ModelFailure(
                        "budget",
                        f"{max(0.0, self.left()):.6f} is left of the budget of "
                        f"{self._run.state.policy.budget:g} for this, and the call may cost "
                        f"{least:.6f}",
                    )
                await self._settled.wait()
            reserved = min(wanted, self.left() + ROUNDING)
            self._aside += reserved
            self._calls += 1
        return reserved

    def settle(self, reserved: float, call: ModelCall, step: str, attempt: int) -> None:
        """Record a call that ended."""
        self._calls -= 1
        super().settle(reserved, call, step, attempt)


def state_of(order: AttemptOrder) -> State:
    """Return the part of a run's state that its order contains."""
    state = State()
    started = order.started
    state.run, state.started = order.run, started
    state.policy, state.catalog = started.policy, Catalog(started.catalog)
    step = StepState(order.doc, 0, order.worker)
    step.status, step.attempts, step.epoch = "running", order.attempt, order.epoch
    step.failures = order.failures
    state.steps[order.step] = step
    state.in_flight[order.step] = order.epoch
    state.answers = list(order.answers)
    for number, (name, given) in enumerate(order.results.items()):
        other = StepState({"id": name, "action": given.action}, number + 1, given.worker)
        other.status, other.data, other.data_ref = given.status, given.data, given.ref
        other.failure = given.failure
        if given.recommendations:
            said = given.recommendations
            other.report = ev.AttemptReported(name, 0, 0, met=True, recommendations=said)
        state.steps[name] = other
    return state
