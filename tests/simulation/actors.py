"""The people of a simulated world who never plan and never host: workers and planners.

Workers do what their acts say and leave their effects in the world, where a crash of the host
cannot reach them. Planners are random, and each call is drawn from the names of its run and
its number, so that a planner asked the same again answers the same.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.catalog import Catalog
from leadhand.core.report import Ask, Failure, Finish, GiveUp, Propose, Report, Wait
from leadhand.ports import Spawned
from leadhand.testing.loop import PROCESS
from leadhand.workers.caller import Caller
from leadhand.workers.human import Human
from tests.simulation.scenario import Act, make_step, plan_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.plan.model import Doc
    from leadhand.core.report import Decision, PlannerView
    from leadhand.ports import Context, Task
    from tests.simulation.scenario import RunPlan, Scenario
    from tests.simulation.world import World

CHANGE = {"commit": "c" * 40, "base": "b" * 40, "digest": "d" * 64, "paths": ["p"], "diff": "+"}
"""A change of something protected."""
BIG = "x" * 200
"""Text that does not fit in the log of a run with a small `inline_bytes`."""


class SimWorker:
    """Plays one act for each call."""

    def __init__(self, world: World, spec: WorkerSpec) -> None:
        self.spec = spec
        self._world = world

    async def perform(self, task: Task, context: Context) -> Report:
        """Do what the act says."""
        world = self._world
        act = self._guarded(world.next_act(task), task, context)
        call = world.enter(self.spec.name, task)
        done = False
        if act.curious:
            self._look_around(context)
        try:
            await _wait(3600.0 if act.kind == "hang" and not act.effect else act.before_s)
            if act.effect:
                done = True
                world.affect(call)
            await _wait(3600.0 if act.kind == "hang" else act.after_s)
        except asyncio.CancelledError:
            if not act.stubborn_s:
                world.leave(call)
                raise
            await _endure(act.stubborn_s)
            if act.effect and not done:
                world.affect(call)
        world.leave(call)
        world.claims[task.run, task.epoch] = act.kind
        return _report(act, world.value_of(task))

    def _guarded(self, act: Act, task: Task, context: Context) -> Act:
        """Let some steps change what is protected, until a person approved it. Has own dice."""
        world = self._world
        random = Random(f"{world.scenario.seed}/protected/{task.run}/{task.step}")
        approved = any("commit" in each for each in context.answers)  # One that was not voided.
        if world.healed or approved or random.random() >= 0.01:
            return act
        return replace(act, kind="protected", effect=False)

    def _look_around(self, context: Context) -> None:
        """Use what a worker may use: none of it may fail."""
        context.progress("on it", 0.5)
        seen = (context.goal, context.key, context.failures, context.results, context.cancelled)
        spawned = getattr(context, "spawned", None)
        if spawned is not None and seen:
            spawned(Spawned(1000, 1, "a boot"))

    async def probe(self, task: Task, context: Context) -> Report | None:
        """The truth, if it can be had."""
        world = self._world
        world.probe_begins(task)
        mood = "" if world.healed else world.random.choice(("", "", "", "slow", "blind", "lie"))
        await _wait(60.0 if mood == "slow" else world.random.choice((0.0, 0.02, 0.3)))
        if mood == "blind":
            raise LookupError("the probe cannot tell")
        if not world.effects.get((task.run, task.step)):
            return None
        value = world.value_of(task)
        return Report(data={"v": -1, "ok": False} if mood == "lie" else {"v": value, "ok": True})

    def check(self, name: str, action: str, data: Any) -> bool:
        """The named check, and the worker's own."""
        return isinstance(data, dict) and data.get("v", -1) >= 0

    async def close(self) -> None:
        """Nothing to let go of."""


async def _wait(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)


async def _endure(seconds: float) -> None:
    """Go on for a while, whoever says stop."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            continue


def _report(act: Act, value: int) -> Report:
    good: Doc = {"v": value, "ok": True}
    match act.kind:
        case "ok" | "hang":
            return Report(data=good, cost=act.cost)
        case "big":
            return Report(data={**good, "text": BIG}, cost=act.cost, output=BIG)
        case "lie":
            return Report(data={"v": -1, "ok": False}, cost=act.cost)
        case "garbage":
            cycle: list[Any] = []
            cycle.append(cycle)
            junk = (math.nan, {1, 2}, object(), cycle, {"v": math.inf}, {3: "x"})
            return Report(data=junk[value % len(junk)], cost=act.cost)
        case "raise":
            raise RuntimeError("the worker broke")
        case "unknown":
            return Report.failed("transient", "it is not known", effect="unknown", cost=act.cost)
        case "protected":
            error = Failure("policy", "it waits for a person", change=CHANGE)
            return Report("failed", error=error, cost=act.cost)
        case kind:
            wait_s = act.retry_after_s
            return Report.failed(kind, f"it failed: {kind}", retry_after_s=wait_s, cost=act.cost)


class SimWorkers:
    """The workers a host has loaded; one may be missing."""

    def __init__(
        self, world: World, missing: str = "", newer: Mapping[str, str] | None = None
    ) -> None:
        newer = newer or {}
        specs = [
            msgspec.structs.replace(spec, version=newer.get(spec.name, spec.version))
            for spec in world.scenario.workers
        ]
        self._workers: dict[str, Any] = {spec.name: SimWorker(world, spec) for spec in specs}
        for spec in specs:
            if spec.kind == "human":
                self._workers[spec.name] = Human(spec.name)
                self._workers[spec.name].spec = spec
            elif spec.kind == "caller":
                self._workers[spec.name] = Caller()
                self._workers[spec.name].spec = spec
        self._missing = missing

    def get(self, name: str) -> Any:
        """A worker by name."""
        return None if name == self._missing else self._workers.get(name)

    def catalog(self) -> Catalog:
        """What they offer."""
        return Catalog(worker.spec for worker in self._workers.values())


class Auditor:
    """An automatic reviewer: finds things, breaks, or says nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, revision: Doc) -> list[str]:
        """Whatever comes to mind."""
        world = self._world
        await _wait(world.random.choice((0.0, 0.1, 2.0)))
        mood = "" if world.healed else world.random.choice(("", "", "finds", "breaks"))
        if mood == "breaks":
            raise RuntimeError("the auditor broke")
        return ["too many words"] if mood == "finds" else []


class SimPlanner:
    """Proposes, supersedes, cancels, asks, gives up, and sometimes talks nonsense."""

    replans = True

    def __init__(self, world: World, plan: RunPlan) -> None:
        self.name = "random"
        self.consult = plan.consult
        self.splits = plan.splits
        self._world = world
        self._plan = plan

    async def decide(self, view: PlannerView) -> Decision:
        """Whatever comes to mind."""
        plan, world = self._plan, self._world
        world.planner_begins(view.run, view.call, PROCESS.get())
        random = Random(f"{world.scenario.seed}/{view.run}/{view.call}")
        await _wait(random.choice((0.0, 0.0, 0.01, 0.4)))
        if random.random() < plan.trouble and not world.healed:
            await self._trouble(random)
        if view.call == 1:
            return Propose(tuple(plan.doc["steps"]), final=plan.doc.get("final", True))
        if view.call > plan.calls or world.healed:
            return self._ending(random, view)
        if random.random() < 0.1:
            return random.choice((Wait("let us see"), Wait(), GiveUp("no idea")))
        if view.goal.want and not view.questions and random.random() < 0.3:
            return Ask("can you give it?", ("give", "stop"), facts=view.goal.want)
        if random.random() < 0.15:
            choices = random.choice(((), ("left", "right")))
            if choices and random.random() < 0.5:
                return Ask(
                    "which way?", choices, default="left", within_s=random.choice((1.0, 9.0))
                )
            return Ask("which way?", choices)
        return self._propose(random, view)

    def _ending(self, random: Random, view: PlannerView) -> Decision:
        """Come to an end: properly, too early, or not at all."""
        left = {
            ident: "enough"
            for ident, step in view.steps.items()
            if step.status in _REPLACEABLE and random.random() < 0.9
        }
        if not left and random.random() < 0.3:
            return GiveUp("enough")
        return random.choice(
            (
                Finish(1, drop=left),
                Finish(None, drop=left),
                Propose((), final=True, drop=left),
                Finish(1),
                Wait("for the rest"),
            )
        )

    async def _trouble(self, random: Random) -> None:
        kind = random.choice(("raise", "hang", "slow"))
        if kind == "raise":
            raise RuntimeError("the planner broke")
        await _wait(3600.0 if kind == "hang" else 3.0)

    def _propose(self, random: Random, view: PlannerView) -> Propose:
        scenario: Scenario = self._world.scenario
        states = {ident: step.status for ident, step in view.steps.items()}
        steps: list[Doc] = []
        resources = self._plan.policy.resources
        usable = [ident for ident, status in states.items() if status not in _GONE]
        if random.random() < 0.7:
            waits_for = random.sample(usable, min(len(usable), random.randint(0, 2)))
            ident = f"p{view.call}"
            steps.append(make_step(random, scenario, ident, waits_for, resources))
        if random.random() < 0.2:
            steps += plan_steps(random, scenario, resources, f"p{view.call}x")[:3]
        open_ = [ident for ident, status in states.items() if status in _REPLACEABLE]
        if open_ and random.random() < 0.5:
            old = random.choice(open_)
            step = make_step(random, scenario, f"p{view.call}r", [], resources)
            steps.append({**step, "supersedes": old})
            open_.remove(old)
        cancel = [ident for ident in open_ if states[ident] in _MOVABLE and random.random() < 0.2]
        drop = {
            ident: "it is not worth it"
            for ident in open_
            if ident not in cancel and random.random() < 0.3
        }
        if random.random() < self._plan.trouble:
            steps.append({"id": f"bad{view.call}", "worker": "nobody"})
        final = random.random() < 0.3
        return Propose(tuple(steps), final=final, cancel=tuple(cancel), drop=drop)


_GONE = frozenset({"failed", "skipped", "cancelled", "superseded"})
_MOVABLE = frozenset({"waiting", "ready", "backing_off", "asking"})
_REPLACEABLE = frozenset({"failed", "waiting", "ready", "backing_off", "asking", "skipped"})
