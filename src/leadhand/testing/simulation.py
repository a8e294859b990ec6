"""`simulate`: run a plan with your own workers in virtual time, and see everything.

    done = simulate(plan, workers=[fetch, scripted("notify", [Transient("busy"), after(60)])])
    assert done.outcome.ok and done.seconds > 60

No time passes, nothing is written, and the same seed gives the same run. `crash_after` kills
the host after its n-th commit and lets another resume the run: what your workers would see
if the machine went down just there. Workers that are sync functions run in place, not in threads;
planners have to be async, and whatever else tries to leave virtual time is a `UsageError`.

A commit takes a millisecond, and what happens at the same moment happens in an order drawn from
the seed. With `seed=None` a commit takes no time and the order is asyncio's: what should take an
hour takes an hour, and what ends together ends together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from leadhand.app.lead import Lead
from leadhand.app.outcome import Outcome, outcome_of
from leadhand.app.planner_choice import successor
from leadhand.codec.events import decode
from leadhand.core import commands
from leadhand.core.events import Event
from leadhand.core.logcheck.checker import Violation, check
from leadhand.core.state.records import Question
from leadhand.core.views.ledger import describe
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import UsageError
from leadhand.planners.hybrid import Hybrid
from leadhand.planners.script import ScriptPlanner
from leadhand.stores.memory import MemoryDisk, MemoryStore
from leadhand.testing.clock import Calendar, SimClock
from leadhand.testing.loop import PROCESS, Deadlock, SimLoop
from leadhand.workers.functions.threads import CallOutcome as Result
from leadhand.workers.functions.threads import Lane, Threads
from leadhand.workers.registry import Registry

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc, Goal, Plan
    from leadhand.core.policy import Policy
    from leadhand.ports import Planner, RunHandle

T = TypeVar("T")

RUN = "simulated"
VIRTUAL_S_MAX = 400 * 24 * 3600.0
STEPS_MAX = 10_000_000
COMMIT_S = 0.001


@dataclass(frozen=True, slots=True)
class Simulation:
    """The outcome of a simulated run."""

    outcome: Outcome
    """The outcome, as `Lead.run` returns it."""
    events: tuple[tuple[int, Event], ...]
    """The whole log, each event with its time in microseconds."""
    violations: tuple[Violation, ...]
    """Violations of the log's invariants; any is a bug in Leadhand."""
    seconds: float
    """How much virtual time it took."""
    hosts: int
    """How many hosts it took."""

    def lines(self) -> list[str]:
        """Return the log as lines of text for people."""
        return [describe(event) for _, event in self.events]


class _Store(MemoryStore):
    """Commits a moment after the first append of a group."""

    def __init__(
        self, disk: MemoryDisk, committed: Callable[[int], None], commit_s: float = COMMIT_S
    ) -> None:
        super().__init__(auto=False, disk=disk)
        self._due = False
        self._commit_s = commit_s
        self._process = PROCESS.get()
        self._committed = committed

    @property
    def database_id(self) -> str:
        return "simulated"

    def append(self, *args: Any, **more: Any) -> asyncio.Future[None]:
        future = super().append(*args, **more)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(self._commit_s, self._commit)
        return future

    def _commit(self) -> None:
        self._due = False
        self.commit()
        self._committed(self._process)


class _Host(EmbeddedHost):
    async def blocking(self, call: Callable[..., T], *args: Any) -> T:
        """Run `call` in place: a simulation has no threads."""
        return call(*args)


class _Threads(Threads):
    async def run(self, lane: Lane, call: Callable[[], Any]) -> Result:
        """Run a sync function in place, without a thread; virtual time stands still meanwhile."""
        try:
            return Result(call())
        except BaseException as error:  # noqa: BLE001 - as in a thread, it travels as a value
            return Result(error=error)


class _Simulator:
    """Boots hosts until the run rests."""

    def __init__(self, lead: Lead, seed: int | None, crash_after: Iterable[int]) -> None:
        self.lead = lead
        chance = Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self.loop = SimLoop(chance, shuffle=seed is not None)
        self.commit_s = 0.0 if seed is None else COMMIT_S
        self.calendar = Calendar(self.loop)
        self.disk = MemoryDisk()
        self.process = 0
        self.run: RunHandle | None = None
        self._crashes = sorted(crash_after)
        self._commits = 0
        self._changed = asyncio.Event()

    def committed(self, process: int) -> None:
        """Count commits; kill the host when its time has come."""
        self._commits += 1
        self._changed.set()
        if self._crashes and self._commits >= self._crashes[0] and process == self.process:
            self._crashes.pop(0)
            self.loop.kill(process)
            self.process += 1

    async def live(
        self, process: int, begin: Callable[[EmbeddedHost], Any], people: Answers
    ) -> None:
        """Run one host until it ends or is killed."""
        store = _Store(self.disk, self.committed, self.commit_s)
        latest = store.last_change()
        host = _Host(store, clock=SimClock(self.loop, self.calendar, latest))
        host.successor = successor
        await host.open()
        begun = RUN in self.disk.logs
        run = await (self.lead.resume_on(host, RUN) if begun else begin(host))
        self.run = run
        early = asyncio.get_running_loop().create_task(self._early(run, people))
        while True:
            await run.wait_idle()
            answered = False
            for question in list(run.state.questions.values()):
                answered = await _answer(run, question, people) or answered
            if not answered:
                break
        early.cancel()
        await host.close()

    async def _early(self, run: RunHandle, people: Answers) -> None:
        """Answer questions that have a default as soon as they are asked.

        The run does not wait for them. Each is put to `people` once here; questions left open are
        put again when the run waits.
        """
        offered: set[str] = set()
        while True:
            open_ = [q for q in run.state.questions.values() if q.until and q.id not in offered]
            for question in open_:
                offered.add(question.id)
                await _answer(run, question, people)
            if not open_:
                self._changed.clear()
                await self._changed.wait()

    def drive(self, begin: Callable[[EmbeddedHost], Any], people: Answers) -> None:
        """Boot a host, and another when it was killed, until the run ended or waits."""
        try:
            while True:
                process = self.process
                life = self.loop.run_in(process, self.live(process, begin, people))
                while not life.done() and self.process == process:
                    if not self.loop.step():
                        raise Deadlock(f"nothing is left to do at {self.loop.time():.3f} s")
                    if self.loop.time() > VIRTUAL_S_MAX or self.loop.steps > STEPS_MAX:
                        raise Deadlock(f"it goes on and on, after {self.loop.time():.0f} s")
                if life.done():
                    life.result()
                    return
        finally:
            self.loop.close()


Answers = Callable[[Question], "str | tuple[str, Any] | None"]
"""What people answer: a choice, a choice with data, or None to leave it open."""


async def _answer(run: RunHandle, question: Question, people: Answers) -> bool:
    said = people(question)
    if said is None or question.id not in run.state.questions:
        return False
    choice, data = said if isinstance(said, tuple) else (said, None)
    await run.submit_and_wait(
        lambda state, now: commands.answer(state, question.id, choice, "person", now, data=data)
    )
    return True


def simulate(
    what: Plan | Goal | Doc | str | Path,
    workers: Iterable[Any] = (),
    planner: Planner | Callable[..., object] | None = None,
    *,
    seed: int | None = 0,
    params: Doc | None = None,
    policy: Policy | None = None,
    answers: Answers | None = None,
    crash_after: Iterable[int] = (),
) -> Simulation:
    """Run a plan or goal from beginning to end in virtual time. Return what happened.

    `what`, `workers`, `planner`, `params` and `policy` are those of `Lead` and `Lead.run`. `seed`
    determines the order of simultaneous events, None keeps asyncio's; `crash_after` kills the host
    after these commits; `answers` returns a person's answer to a question.

    It ends when the run ended, or when it waits for an answer that `answers` does not give. A
    question with a default is put to `answers` as soon as it is asked, before the default is used.

    Raise `UsageError` for a planner that is a sync function, alone or as a part of `Hybrid`: it
    would run in a thread, outside of virtual time; and if anything else left virtual time, even if
    the run succeeded.
    """
    registry = Registry(workers, threads=_Threads())
    lead = Lead(registry, planner, policy=policy, actor="person")
    _refuse_sync(lead.planner)
    world = _Simulator(lead, seed, crash_after)

    def begin(host: EmbeddedHost) -> Any:
        return lead.begin(host, what, params=params, run_id=RUN)

    world.drive(begin, answers or (lambda _question: None))
    if world.loop.escaped:
        raise UsageError(world.loop.escaped[0])
    if world.run is None:
        raise Deadlock("the run never started")
    events = [(e.at, decode(e.version, e.body)) for e in world.disk.logs[RUN]]
    with suppress(RuntimeError):
        registry.threads.close()
    return Simulation(
        outcome=outcome_of(world.run),
        events=tuple(events),
        violations=tuple(check(events)),
        seconds=world.loop.time(),
        hosts=world.process + 1,
    )


def _refuse_sync(planner: Any) -> None:
    """Raise `UsageError` for a planner that would call a sync function in a thread."""
    if isinstance(planner, Hybrid):
        _refuse_sync(planner.first)
        _refuse_sync(planner.then)
    elif isinstance(planner, ScriptPlanner) and not planner.is_async:
        raise UsageError(
            f"simulate: the planner {planner.name} is a sync function, which runs in a thread, and "
            "a simulation has none. Fix: write it with async def."
        )
