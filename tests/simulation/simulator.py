"""The deterministic simulator: one seed, one world, one verdict.

    safety    everything may go wrong; what is on disk must make sense at every moment
    healing   faults end, people begin to answer
    liveness  every run comes to an end, within bounds
    silence   nothing is left: no task, no timer; what was in memory is what is on disk

The same seed gives the same world, and `trace` is the proof: a hash over everything that
happened in it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.host_events import HOST_STREAM
from tests.simulation.judge import judge, judge_live, judge_troubles
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_MAX = 60_000
"""Callbacks in one world; the busiest need a third of it."""
LIVENESS_S = 1800.0
"""Virtual time in which everything must have ended once the world is healed."""
SILENCE_S = 2 * 3600.0
SILENCE_STEPS = 2_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one seed."""

    seed: int
    violations: tuple[str, ...]
    trace: str
    """A hash over everything that happened: equal for equal seeds, always."""
    steps: int
    events: int
    virtual_s: float
    kinds: frozenset[str] = frozenset()
    """The kinds of events that came, the decisions after failures, and how the runs ended."""
    strategies: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.violations


def simulate_seed(seed: int, *, trace: Callable[[str], None] | None = None) -> Verdict:
    """Simulate the world of `seed` from beginning to end, and return the verdict.

    `trace` is called with a line for each event of the simulation.
    """
    world = World(seed, trace=trace)
    try:
        world.begin()
        if _until_all_ended(world) and not world.violations:
            _until_silent(world)
        if not world.violations:
            judge(world)
        return _verdict(world)
    finally:
        world.loop.close()


def _until_all_ended(world: World) -> bool:
    loop, plans = world.loop, world.scenario.runs
    bound = world.scenario.chaos_s + LIVENESS_S
    look = 400
    while not world.violations:
        if not loop.step():
            judge_troubles(world)
            if not world.violations and not _all_ended(world):
                world.wrong("nothing is left to do, and not every run has ended")
            return not world.violations
        if loop.steps % 16 == 0 and _all_ended(world):
            return True
        if loop.steps >= look:
            look += world.random.choice((200, 400, 1000))
            if world.current in world.hosts and loop.alive(world.current):
                judge_live(world)
        if loop.steps > STEPS_MAX or (loop.time() > bound and not _all_ended(world)):
            left = [plan.ident for plan in plans if not _ended(world, plan.ident)]
            world.wrong(f"I9: {left} did not end in {loop.time():.0f} s, {loop.steps} callbacks")
            return False
    return False


def _all_ended(world: World) -> bool:
    host = world.hosts.get(world.current)
    if host is None or not world.loop.alive(world.current):
        return False
    if any(said.endswith(f" {world.current}") for said in world.unanswered.values()):
        return False  # A word that was said and not heard yet may reopen a run.
    return all(_ended(world, plan.ident) for plan in world.scenario.runs)


def _ended(world: World, run: str) -> bool:
    entries = world.disk.logs.get(run)
    return bool(entries) and entries[-1].body.startswith(b'{"type":"RunEnded"')  # type: ignore[index]


def _until_silent(world: World) -> None:
    """Let the rest run out: no timer may go on, no task may stay, nobody may wait in vain."""
    loop = world.loop
    world.over = True
    world.heal()
    for process in world.hosts:
        if process != world.current:
            world.kill(process, "it was replaced")
    bound, most = loop.time() + SILENCE_S, loop.steps + SILENCE_STEPS
    while loop.step():
        if loop.time() > bound or loop.steps > most:
            world.wrong("a timer is left, though every run has ended")
            return
    host = world.hosts[world.current]
    if not loop.alive(world.current):
        judge(world)
        return
    for task in loop.unfinished(world.current):
        world.wrong(f"a task is left, though every run has ended: {task.get_coro()!r:.200}")
    for said in world.unanswered.values():
        if said.endswith(f" {world.current}"):
            world.wrong(f"nobody answered: {said}")
    judge(world)
    if world.violations or host.closing:
        return
    closing = loop.run_in(world.current, host.close())
    while not closing.done() and loop.step():
        pass
    if not closing.done() or loop.unfinished(world.current):
        world.wrong("the host cannot be closed")


def _verdict(world: World) -> Verdict:
    sha = hashlib.sha256()
    for entry in world.disk.order:
        if entry.run != HOST_STREAM:  # that one holds the real process's number
            sha.update(entry.hash)
    for calls in world.effects.values():
        for call in calls:
            sha.update(repr(call).encode())
    summary = (world.loop.steps, world.loop.time(), world.crashes, world.violations)
    sha.update(repr(summary).encode())
    kinds, strategies, ends = set(), set(), set()
    for plan in world.scenario.runs:
        for _, event in world.log(plan.ident):
            kinds.add(type(event).__name__)
            if isinstance(event, ev.RecoveryDecided):
                strategies.add(event.strategy)
            elif isinstance(event, ev.RunEnded):
                ends.add(event.status)
    return Verdict(
        seed=world.scenario.seed,
        violations=tuple(world.violations),
        trace=sha.hexdigest(),
        steps=world.loop.steps,
        events=len(world.disk.order),
        virtual_s=world.loop.time(),
        kinds=frozenset(kinds),
        strategies=frozenset(strategies),
        ends=frozenset(ends),
    )
