"""Agents of a simulated world that drive its runs: they ask for steps and report them.

An agent lives outside of every host and survives its crashes. What it was handed and what it said
stay in its memory until it is answered, so it repeats a report whose answer was lost. Some agents
die and forget; some report late, twice, or of an attempt that is over. What an agent was told is
done must be on disk at that moment (I1), and a report that was refused must not be.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.engine.host_socket import perform_command
from leadhand.errors import LeadhandError
from leadhand.ports import Task
from tests.simulation.scenario import CALLER

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.engine.run import Run
    from tests.simulation.host import SimHost
    from tests.simulation.world import World

NAMES = ("agent:bot", "agent:rival")


class Memory:
    """What one agent knows of the step that it has."""

    def __init__(self, run: str, step: str, attempt: int, epoch: int) -> None:
        self.run, self.step, self.attempt, self.epoch = run, step, attempt, epoch
        self.report: Doc | None = None


class Agents:
    """The agents of one world. They have dice of their own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.scenario.seed}/agents")
        self._held: dict[str, Memory] = {}
        self._busy: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """Let them act from now on, if any worker of the world is a caller."""
        if any(spec.name == CALLER for spec in self._world.scenario.workers):
            self._world.later(0.5, self._act)

    def _act(self) -> None:
        world, random = self._world, self._random
        if world.over:
            return
        world.later(random.choice((0.1, 0.4, 1.5)), self._act)
        host = world.hosts.get(world.current)
        if host is None or not world.loop.alive(world.current) or not host.runs:
            return
        name = random.choice(NAMES)
        world.loop.run_in(world.current, self._turn(host, name))

    async def _turn(self, host: SimHost, name: str) -> None:
        """One agent does one thing; the host may die before it hears the answer."""
        turn = (name, host.process)
        if turn in self._busy:
            return
        self._busy.add(turn)
        try:
            held = self._held.get(name)
            if held is None:
                await self._ask(host, name)
            elif held.run in host.runs:
                await self._go_on(host, host.runs[held.run], name, held)
        except LeadhandError as error:
            self._world.note(f"{name} hears: {error}")
        finally:
            self._busy.discard(turn)

    async def _ask(self, host: SimHost, name: str) -> None:
        world, random = self._world, self._random
        run = random.choice(list(host.runs.values()))
        lease = {"lease_s": random.choice((2.0, 10.0, 60.0))}
        told = await perform_command(host, run, "claim", name, lease)
        step: Any = told.get("step")
        if step is None:
            return
        starts = [e for _, e in world.log(run.id) if isinstance(e, ev.AttemptStarted)]
        mine = [e for e in starts if (e.step, e.attempt) == (step["id"], step["attempt"])]
        if not mine or mine[0].caller != name:
            world.wrong(f"I1: {run.id} {step['id']} was handed out and that is not on disk")
            return
        world.note(f"{name} has {run.id} {step['id']} attempt {step['attempt']}")
        self._held[name] = Memory(run.id, step["id"], step["attempt"], mine[0].epoch)

    async def _go_on(self, host: SimHost, run: Run, name: str, held: Memory) -> None:
        random, healed = self._random, self._world.healed
        dice = random.random()
        if not healed and dice < 0.1:
            self._world.note(f"{name} dies")
            del self._held[name]
        elif dice < 0.35 and held.report is None:
            await self._extend(host, run, name, held)
        else:
            if held.report is None:
                held.report = self._work(run, held)
            await self._report(host, run, name, held)

    async def _extend(self, host: SimHost, run: Run, name: str, held: Memory) -> None:
        mine = {"step": held.step, "attempt": held.attempt, "lease_s": 20.0}
        try:
            told = await perform_command(host, run, "extend", name, mine)
        except LeadhandError:
            if host.failed is None:
                self._held.pop(name, None)
            raise
        known = [
            event.deadline
            for _, event in self._world.log(run.id)
            if isinstance(event, (ev.AttemptStarted, ev.LeaseExtended))
            and event.epoch == held.epoch
        ]
        if told["deadline"] not in known:
            self._world.wrong(f"I1: a lease of {run.id} {held.step} is not on disk")

    def _work(self, run: Run, held: Memory) -> Doc:
        """Carry the step out, and return what is said about it."""
        world, random = self._world, self._random
        kind = "ok" if world.healed else random.choice(("ok", "ok", "ok", "lie", "fail", "vague"))
        task = Task(held.run, held.step, held.attempt, held.epoch, "", {}, 0)
        happens = kind in ("ok", "lie") or (kind == "vague" and random.random() < 0.5)
        # What an agent does after its lease cannot be prevented by any host: it is not counted.
        if happens and run.state.in_flight.get(held.step) == held.epoch:
            world.affect_outside(CALLER, task)
        world.claims[held.run, held.epoch] = kind
        if kind in ("fail", "vague"):
            effect = "none" if kind == "fail" else "unknown"
            return {"status": "failed", "error": "it did not work", "effect": effect}
        value = -1 if kind == "lie" else world.value_of(task)
        return {"status": "succeeded", "data": {"v": value, "ok": kind == "ok"}}

    async def _report(self, host: SimHost, run: Run, name: str, held: Memory) -> None:
        random, world = self._random, self._world
        if not world.healed and random.random() < 0.1:
            await self._foreign(host, run, name, held)
        mine = {"step": held.step, "attempt": held.attempt, "report": held.report}
        for _ in range(1 if random.random() < 0.7 else 2):
            before = self._reports(held)
            try:
                await perform_command(host, run, "report", name, mine)
            except LeadhandError as error:
                if host.failed is not None:
                    raise  # the answer was lost, not the report: it is repeated
                if len(self._reports(held)) > len(before):
                    what = f"{held.run} {held.step}: {error}"
                    world.wrong(f"L3: a refused report is in the log: {what}")
                self._held.pop(name, None)
                raise
            if len(self._reports(held)) != 1:
                world.wrong(f"I1: a report of {held.run} {held.step} is not in the log once")
        self._held.pop(name, None)

    def _reports(self, held: Memory) -> list[ev.Event]:
        return [
            event
            for _, event in self._world.log(held.run)
            if isinstance(event, ev.AttemptReported) and event.epoch == held.epoch
        ]

    async def _foreign(self, host: SimHost, run: Run, name: str, held: Memory) -> None:
        """Report what is not its own: it must be refused, and leave nothing in the log."""
        other = NAMES[1 - NAMES.index(name)]
        before = self._reports(held)
        made_up = {"status": "succeeded", "data": {"v": 6, "ok": True, "by": "somebody else"}}
        mine = {"step": held.step, "attempt": held.attempt, "report": made_up}
        for actor, attempt in ((other, held.attempt), (name, held.attempt + 1)):
            try:
                await perform_command(host, run, "report", actor, {**mine, "attempt": attempt})
            except LeadhandError:
                continue
            self._world.wrong(f"L3: a foreign report of {held.run} {held.step} was accepted")
        if len(self._reports(held)) != len(before):
            self._world.wrong(f"L3: a foreign report of {held.run} {held.step} is in the log")
