"""A host as the simulator runs it: the real one, without threads, on an unreliable line."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leadhand.engine.host import EmbeddedHost
from tests.simulation.actors import Auditor
from tests.simulation.scenario import AUDITOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core import events as ev
    from leadhand.core.decide.effects import Effect
    from leadhand.engine.run import Run
    from leadhand.testing.clock import SimClock
    from tests.simulation.store import SimStore
    from tests.simulation.world import World

T = TypeVar("T")


class SimHost(EmbeddedHost):
    """Loses, delays and repeats reports, and exits when it has failed."""

    def __init__(self, world: World, process: int, store: SimStore, clock: SimClock) -> None:
        super().__init__(store, clock=clock, max_concurrency=world.scenario.host_concurrency)
        self.process = process
        self.ready = False
        """Whether it has opened."""
        self._world = world
        self.reviewers = {AUDITOR: Auditor(world)}
        self._lines: set[str] = set()
        self.heard: dict[tuple[str, int], int] = {}
        """When it was told of each attempt's end: it knows, though the disk may be full."""

    def perform(self, run: Run, effect: Effect) -> None:
        """Carry out an effect; before the first of a run, put its line in between."""
        if run.id not in self._lines:
            self._lines.add(run.id)
            hear = partial(self._hear, run.id, run.reported)
            run.reported = partial(self._deliver, hear)  # type: ignore[method-assign]
        super().perform(run, effect)

    def _hear(
        self, run: str, original: Callable[[ev.AttemptReported], None], event: ev.AttemptReported
    ) -> None:
        self.heard.setdefault((run, event.epoch), self.time().at)
        original(event)

    def _deliver(
        self, original: Callable[[ev.AttemptReported], None], event: ev.AttemptReported
    ) -> None:
        world, faults = self._world, self._world.scenario.faults
        if world.healed:
            original(event)
            return
        chance = world.random.random
        loop = asyncio.get_running_loop()
        if chance() < faults.lost:
            world.note(f"the report of {event.step} attempt {event.attempt} is lost")
            return
        if chance() < faults.late:
            loop.call_later(world.random.choice((0.05, 2.0, 20.0)), original, event)
        else:
            original(event)
        if chance() < faults.duplicate:
            loop.call_later(world.random.choice((0.0, 0.01, 3.0)), original, event)

    async def blocking(self, call: Callable[..., T], *args: Any) -> T:
        """No threads: it takes a moment of virtual time."""
        await asyncio.sleep(self._world.random.choice((0.0, 0.001, 0.1)))
        return call(*args)

    def fail(self, error: BaseException) -> None:
        """Stop; the process then exits."""
        first = self.failed is None
        super().fail(error)
        if first:
            self._world.host_failed(self.process, error)
