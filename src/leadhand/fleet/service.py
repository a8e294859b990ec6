"""A fleet at work on one repository: epics go in, commits on main come out.

    async with Fleet(config, coders) as fleet:
        fleet.submit(Path("search.md"))
        await fleet.idle()

A folder holds everything: the hub, the slots, the database, and `epics/`, which is looked at all
the time: an epic is submitted by putting a file there. An epic is started once: its run is named
after the file and its content. A fleet that is opened again resumes the open epics, and learns from
git how far the work in progress came.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from leadhand.app.lead import Lead
from leadhand.codec.events import decode
from leadhand.core.policy import Policy
from leadhand.core.views.run import run_status
from leadhand.engine.host import EmbeddedHost
from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.transcripts import prune
from leadhand.fleet.background import stop, watch
from leadhand.fleet.boundaries import EXCLUSIVE, Boundaries, Sharing
from leadhand.fleet.budget import DailyBudget, Noting
from leadhand.fleet.context import AttemptLimits, FleetContext
from leadhand.fleet.edit_history import EditHistory, edits_of
from leadhand.fleet.epic_folder import HandedIn, Intake, refuse_unplanned, submit, submit_text
from leadhand.fleet.forge.flow import ForgeFlow, forge_context
from leadhand.fleet.gate.gate import Gate, GateRules, Soundness
from leadhand.fleet.gate.gate_memory import Screening
from leadhand.fleet.governor import Governor, Needs
from leadhand.fleet.merge.conductor import Conductor, Following
from leadhand.fleet.merge.early import EarlyMerges
from leadhand.fleet.merge.train import Rules
from leadhand.fleet.overlap_price import OverlapPrice
from leadhand.fleet.pause import pause_of
from leadhand.fleet.planning.choice import epic_planner, epic_policy
from leadhand.fleet.planning.examiner import Examiner
from leadhand.fleet.planning.lint import PlanRules
from leadhand.fleet.planning.progress import EXAMINER
from leadhand.fleet.planning.record import planned_epic
from leadhand.fleet.planning.steps import wanted_of
from leadhand.fleet.product_log import EPIC, FLEET_DATABASE
from leadhand.fleet.pull_requests import Results
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.review import AgentReviewer
from leadhand.fleet.status.evidence import left_behind
from leadhand.fleet.status.figures import DONE, REPLACED
from leadhand.fleet.status.journal import Journal
from leadhand.fleet.status.journal import read as read_journal
from leadhand.fleet.take_over import TakenTasks
from leadhand.fleet.usage_limits import UsageLimits
from leadhand.fleet.worker import CoderWorker, coder_workers, tiers_of
from leadhand.fleet.workspace.slots import Slots, make_checkouts_folder, run_set_up
from leadhand.models.registry import ModelRegistry
from leadhand.workers.processes.leftovers import kill_leftovers
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.proxy import open_doors
from leadhand.workers.sandbox.sandbox import SETUP, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from pathlib import Path

    from leadhand.core.events import Event
    from leadhand.core.state.model import State
    from leadhand.fleet.agents.base import Coder
    from leadhand.fleet.epics import Epic
    from leadhand.fleet.forge.rules import ForgeSetup
    from leadhand.fleet.planning.record import PlannedEpic
    from leadhand.ports import Host, RunHandle
    from leadhand.workers.sandbox.proxy import Proxy
    from leadhand.workers.sandbox.sandbox import Sandbox


EARLY_S = 2.0
"""How often work in progress is merged with a main that has moved."""
BEHIND_MIN = 50
"""Changes that may wait for the train before no agent starts, in a small fleet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetConfig:
    """The configuration of a fleet: its repository, agents, limits and permissions."""

    repo: Path
    folder: Path
    gate: GateRules
    checkouts: Path | None = None
    """The folder of the checkouts of agents and gates; by default the fleet's own."""
    branch: str = ""
    publish: str = ""
    """The branch of the user's repository that gets what has landed; empty: none."""
    pull_request: tuple[str, ...] = ()
    """The user's command that makes a pull request of an epic (`pull_requests.py`)."""
    forge: ForgeSetup | None = None
    """The code host: its issues become epics, and changes reach main by pull requests."""
    follow: bool = True
    """Whether commits that people make to their branch meanwhile are merged into main."""
    agents: int = 8
    gates: int = 2
    sandbox: str = "auto"
    protected: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    limits: AttemptLimits = field(default_factory=AttemptLimits)
    policy: Policy = field(default_factory=Policy)
    stagger_s: float = 0.2
    sharing: Sharing = EXCLUSIVE
    """Which paths several tasks may write at once."""
    screen: str = "auto"
    """Whether each change is tested by itself before the merge queue: always, or when many fail."""
    instructions: bool = True
    """Whether agents are told what AGENTS.md and CLAUDE.md of the repository say."""
    limit_wait_s: float = 8 * 86_400.0
    """The longest usage limit that is waited out; 0: none is."""
    take_over: bool = False
    """Whether coders of other logins do the tasks of one whose usage limit is reached."""
    load: float = 8.0
    epics: Path | None = None
    """The folder that is looked at for epics; by default one in the fleet's own."""
    readable: tuple[Path, ...] = ()
    """Shown to agents and gates besides the system: tool chains, a cache of packages."""
    keep: tuple[str, ...] = ()
    doors: Mapping[str, Proxy] = field(default_factory=dict)
    """To the network, for the coders (by name), set-up or planner that need one; opened with it."""
    daily: float = 0.0
    """What may be spent in a day, in US dollars; 0: as much as it takes."""
    reviewer: str = ""
    """The coder that lets pass what is protected; empty: a person."""
    planner: Any = None
    """Who plans epics that name no tasks, and looks again when a task fails: a model or tier by
    name, a command as a list, or a function (`fleet/planning/backends.py`); None: nobody does."""
    planning: PlanRules = field(default_factory=PlanRules)
    models: ModelRegistry = field(default_factory=ModelRegistry)


class Fleet:
    """Open it with `async with`."""

    def __init__(
        self, config: FleetConfig, coders: Callable[[Processes], Sequence[tuple[str, Coder, str]]]
    ) -> None:
        """`coders` makes the agents: a name (`coder`, `coder@strong`), the coder, its model."""
        self.config = config
        self._coders = coders
        self._stack = contextlib.AsyncExitStack()
        self._runs: dict[str, RunHandle] = {}
        self._trouble: dict[str, str] = {}
        self._intake = Intake(self.epics, self._known, self._begin)
        self._done: list[PlannedEpic] = []
        self._tiers: tuple[str, ...] = ()
        self._ended: dict[str, State] = {}
        self._following: Following
        self._keeping: Keeping
        self._results: Results
        self._nudged = asyncio.Event()
        """Set by a webhook: it is time to look at the code host."""
        self._looked = asyncio.Event()
        self.shop: FleetContext
        self.purse: DailyBudget
        self.sound: Soundness
        self.lead: Lead
        self.host: Host

    @property
    def checkouts(self) -> Path:
        """Return the folder of the checkouts of agents and gates."""
        return self.config.checkouts or self.config.folder

    @property
    def epics(self) -> Path:
        """Return the folder that epics are put into."""
        return self.config.epics or self.config.folder / "epics"

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        config, stack = self.config, self._stack
        config.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_checkouts_folder(self.checkouts)
        self.epics.mkdir(parents=True, exist_ok=True)
        mark = f"fleet-{_mark(config.folder)}"
        processes = await stack.enter_async_context(Processes(mark, strict=True))
        hub = await stack.enter_async_context(
            await Hub.open(config.folder / "hub", config.repo, config.branch)
        )
        history = EditHistory(await edits_of(hub.git, hub.main()))
        sharing = config.sharing.learning(history.append_files())
        config = self.config = replace(config, sharing=sharing)
        hub.keep_all_lines(config.sharing.append)
        await kill_leftovers(mark)  # the hub is ours: what still runs was left by a killed fleet
        if config.publish:
            await hub.user.check_name(config.publish)
        before = await asyncio.to_thread(read_journal, config.folder)
        journal = stack.enter_context(Journal(config.folder))
        doors = await open_doors(stack, config.doors)
        # Slots borrow the hub's objects: without them an agent's own git sees no history.
        readable = (*config.readable, hub.git.folder / "objects")
        sandbox = choose(config.sandbox, readable=readable, doors=doors)
        gates = Slots(hub, self.checkouts / "gates", config.gates, prefix="gate")
        gate = Gate(hub, gates, config.gate, processes=processes, sandbox=sandbox.through(SETUP))
        # One pool, the train first: a hundred agents that want the gate do not hold it up.
        of_train = gate.for_train()
        conductor = await stack.enter_async_context(
            Conductor(hub, of_train, config.rules, protected=config.protected, note=journal.note)
        )
        self._following = Following(hub, conductor)
        self._results = Results(
            hub, config.publish, config.pull_request, processes, config.folder, journal.note
        )
        self.sound = Soundness(hub, gate, config.folder, journal.note)
        noting = Noting(journal, before)
        for killed in left_behind(config.folder):  # it was paid for all the same
            noting.note("lost", **killed)
        price = OverlapPrice(config.sharing, before, history) if config.sharing.price else None
        self.shop = self._shop(hub, gate, conductor, sandbox, noting, price)
        if config.forge is not None:
            self.shop.forge = self._flow(config.forge, journal.note)
            stack.push_async_callback(self.shop.forge.aclose)
            if config.forge.listen is not None:
                listener = await config.forge.listen(self._nudged.set)
                stack.push_async_callback(listener.stop)
        await self.shop.slots.rescue()
        await asyncio.to_thread(prune, config.folder / "transcripts")
        workers = self._crew(processes)
        self._tiers = tiers_of(workers)
        self._keeping = Keeping(hub, (worker.coder for worker in workers))
        self.lead = Lead(
            [*workers, Examiner(hub, gate)],
            epic_planner(config, self.shop, processes, self.purse, self._tiers, self._past),
            config.folder / FLEET_DATABASE,
            policy=epic_policy(config.policy, config.agents),
            models=config.models,
        )
        # What landed while the fleet was ending is given too; pull requests wait for the next.
        stack.push_async_callback(self._results.give_branch)
        self.host = await stack.enter_async_context(self.lead.hosting())
        for header in self.host.store.runs():
            if header.run.startswith(EPIC):
                await self._take_up(header.run)
        self._results.begin(self._ended)
        # A train that cannot go on ends the fleet: nothing would ever land.
        assert isinstance(self.host, EmbeddedHost)  # a fleet drives its runs in this process
        self.host.spawn(conductor.ended())
        for loop in self._loops():
            stack.push_async_callback(stop, asyncio.get_running_loop().create_task(loop))

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is looked at again and again."""
        loops = [
            watch("the folder of epics", self._look, self._trouble),
            watch("what is put away", self._put_away, self._trouble, KEEP_S),
            watch("early merges", EarlyMerges(self.shop).look, self._trouble, EARLY_S),
            self.sound.watch(),
        ]
        if self.config.pull_request:
            loops.append(watch("pull requests", self._give, self._trouble))
        if self.shop.forge is not None:
            every_s = self.shop.forge.rules.look_s
            host = ("the code host", self._look_at_host, self._trouble, every_s, self._nudged)
            loops.append(watch(*host))
        elif self.config.follow:
            loops.append(watch("your branch", self._following.look, self._trouble))
        return loops

    def _shop(
        self,
        hub: Hub,
        gate: Gate,
        conductor: Conductor,
        sandbox: Sandbox,
        noting: Noting,
        price: OverlapPrice | None,
    ) -> FleetContext:
        config = self.config

        def spent() -> str:
            return noting.spending.over(config.daily, self.running_cost())

        governor = Governor(
            config.agents,
            stagger_s=config.stagger_s,
            needs=Needs(load=config.load),
            folder=config.folder,
            behind=lambda: conductor.waiting,
            behind_max=max(config.agents, BEHIND_MIN),
            against=lambda: self.sound.against or spent(),
        )
        governor.limits = UsageLimits(config.folder, wait_max_s=config.limit_wait_s)
        governor.set_pause(pause_of(config.folder))
        self.purse = DailyBudget(lambda: _not_now(governor) or spent())
        # A reviewer reads in a slot while its author still holds one.
        size = config.agents * (2 if config.reviewer else 1)
        setup = run_set_up(gate, self.checkouts) if config.gate.setup else None
        slots = Slots(hub, self.checkouts / "slots", size, keep=config.keep, setup=setup)
        return FleetContext(
            hub,
            slots,
            gate,
            conductor,
            governor,
            sandbox,
            protected=config.protected,
            boundaries=Boundaries(price),
            sharing=config.sharing,
            screening=Screening(always=config.screen == "always"),
            price=price,
            instructions=config.instructions,
            note=noting.note,
            transcripts=config.folder / "transcripts",
            taken=TakenTasks(config.folder),
        )

    @property
    def states(self) -> list[State]:
        """Return the states of epics that were open at the start, or came since."""
        return [run.state for run in self._runs.values()]

    @property
    def open_epics(self) -> int:
        """Return how many epics have not ended."""
        return sum(run.state.ended is None for run in self._runs.values())

    @property
    def refused(self) -> dict[str, str]:
        """Return what was refused, and why: epics, results, the user's own commits."""
        train = self.shop.conductor.trouble
        return {
            **self._intake.refused,
            **self._results.refused,
            **self._following.told,
            **self.shop.slots.told,
            **(self.shop.forge.told if self.shop.forge is not None else {}),
            **({"the train": train} if train else {}),
            **self._trouble,
        }

    def running_cost(self) -> float:
        """Return the cost so far of agents and reviewers at work, by their own count."""
        return self.purse.running + sum(each.cost for each in self.shop.at_work.values())

    @property
    def held_back(self) -> str:
        """Return why an agent, a planner or a reviewer waits; empty if none does."""
        governor = self.shop.governor
        limited = (limit.why for limit in governor.limits.standing())
        return governor.held_back or self.purse.held_back or next(limited, "")

    def _crew(self, processes: Processes) -> list[CoderWorker]:
        made = list(self._coders(processes))
        for _name, coder, model in made:
            if coder.name == self.config.reviewer:
                time_s = self.config.limits.time_s
                self.shop.reviewer = AgentReviewer(coder, model, time_s, self.purse)
        return coder_workers(self.shop, made, self.config.limits, take_over=self.config.take_over)

    def _past(self) -> list[PlannedEpic]:
        """Return what came of the plans of all epics."""
        return self._done + [planned_epic(run.state) for run in self._runs.values()]

    async def _take_up(self, ident: str) -> None:
        run = self.host.load(ident, self.lead.registry)
        if run.state.ended is not None:
            self._done.append(planned_epic(run.state))
            self._keeping.heard(run.state)
            if self.config.pull_request or self.config.forge is not None:
                self._ended[ident] = run.state
        else:
            self._runs[ident] = await self.lead.resume_on(self.host, ident)

    def submit(self, path: Path) -> str:
        """Hand in an epic; the name of the run that it will be."""
        return submit(self.epics, path, taken=self._known)[0]

    def submit_text(self, text: str, name: str, priority: int | None = None) -> HandedIn:
        """Hand in an epic that is not in a file; raise `UsageError` if it cannot be done."""
        planner = self.lead.planner is not None
        known = self._known
        return submit_text(self.epics, text, name, priority, known, planner=planner)

    def status_of(self, ident: str) -> str:
        """Return the status of an epic; empty if it has not begun."""
        if not self._known(ident):
            return ""
        return run_status(self.host.load(ident, self.lead.registry).state)

    async def _look(self) -> None:
        """Take submitted epics, and give landed work to the user."""
        try:
            await self._intake.look()
            await self._results.give_branch()
        finally:  # waiting callers must also see a look that failed
            self._looked.set()

    async def _put_away(self) -> None:
        for run in self._runs.values():
            self._keeping.heard(run.state)
        await self._keeping.look()

    async def _give(self) -> None:
        await self._results.give(self._succeeded)

    async def _begin(self, ident: str, path: Path, epic: Epic) -> None:
        refuse_unplanned(epic, str(path), planner=self.lead.planner is not None)
        await self._start(ident, epic, {})

    async def _start(self, ident: str, epic: Epic, origin: dict[str, Any]) -> None:
        """Begin the run of an epic; `origin` says where it comes from."""
        wanted = wanted_of(
            epic, self._tiers, self.config.sharing, planned=self.lead.planner is not None
        )
        labels = [f"issue={origin['issue']['number']}"] if "issue" in origin else []
        self._runs[ident] = await self.lead.begin(
            self.host, wanted, run_id=ident, origin=origin or None, labels=labels
        )

    def _state(self, ident: str) -> State | None:
        """Return the state of an epic; None if this fleet does not know it."""
        run = self._runs.get(ident)
        return run.state if run is not None else self._ended.get(ident)

    def _flow(self, forge: ForgeSetup, note: Callable[..., None]) -> ForgeFlow:
        """Return the flow to and from the code host."""
        folder = self.config.folder / "forge"
        context = forge_context(self.shop.hub, forge, self.shop.conductor, folder, note)
        planned = self.config.planner is not None
        return ForgeFlow(context, self._known, self._start, self._state, planned=planned)

    async def _look_at_host(self) -> None:
        assert self.shop.forge is not None
        await self.shop.forge.look(list(self._runs.values()), list(self._ended.values()))

    def _known(self, ident: str) -> bool:
        return ident in self._runs or self.host.store.header(ident) is not None

    def _succeeded(self) -> list[State]:
        """Return the epics that succeeded, earlier ones included."""
        states = [*self._ended.values(), *self.states]
        return [each for each in states if each.ended and each.ended.status == "succeeded"]

    async def idle(self) -> None:
        """Wait until every epic that is there has ended, or waits for a person."""
        self._looked.clear()
        await self._looked.wait()
        for run in list(self._runs.values()):
            await run.wait_idle()
        await self._give()

    def events(self, ident: str) -> list[tuple[int, Event]]:
        """Return all events of an epic."""
        entries = self.host.store.read(ident)
        return [(entry.at, decode(entry.version, entry.body)) for entry in entries]

    def questions(self, ident: str) -> list[str]:
        """Return the tasks that wait for a person."""
        return [question.step for question in self._runs[ident].state.questions.values()]

    async def status(self) -> dict[str, Any]:
        """Figures from the log and from git, which must agree."""
        governor = self.shop.governor
        states = self.states
        steps = [step for state in states for step in state.steps.values()]
        counts: dict[str, int] = {}
        for step in (each for each in steps if each.worker != EXAMINER):
            counts[step.status] = counts.get(step.status, 0) + 1
        trailers = [commit.trailers for commit in await self.shop.hub.commits()]
        return {
            "agents": {"now": governor.busy, "peak": governor.peak, "waiting": governor.waiting},
            "held_back": self.held_back,
            "epics": {
                ident: run.state.ended.status if run.state.ended else "open"
                for ident, run in self._runs.items()
            },
            "refused": self.refused,
            "user": self._following.refused,
            "tasks": counts,
            "landed": sum("Leadhand-Task" in each for each in trailers),
            "cost": round(sum(state.spent for state in states), 6),
        }


def _not_now(governor: Governor) -> str:
    if governor.stopped:
        return "stopped"
    return governor.paused.why if governor.paused is not None else ""


def _mark(folder: Path) -> str:
    return hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:12]


# Retention: what a standing fleet removes, so that it does not grow with each epic.
#
# The homes of agents go when their epic has ended: nobody goes on with those conversations. Of an
# epic that failed those of open tasks stay, since `redo` takes it up again. The hub's loose objects
# go into packs (`Hub.pack`); nothing of them is thrown away.


KEEP_S = 30.0
LOOSE_MAX = 20_000
"""So many more loose objects than after the last time are worth a pack."""


class Keeping:
    """Cleans up after epics that have ended."""

    def __init__(self, hub: Hub, coders: Iterable[Coder]) -> None:
        self._hub = hub
        self._coders = {coder.name: coder for coder in coders}
        self._owed: dict[str, list[str]] = {}
        self._over: set[str] = set()
        self._loose = 0

    def heard(self, state: State) -> None:
        """Take the state of an epic; one that has ended is cleaned up after, once."""
        if state.ended is None:
            self._over.discard(state.run)
        elif state.run not in self._over:
            self._over.add(state.run)
            open_ = state.ended.status == "failed"
            self._owed[state.run] = [
                step.id
                for step in state.steps.values()
                if step.attempts and (not open_ or step.status in (DONE, REPLACED))
            ]

    async def look(self) -> None:
        """Clean up what is due."""
        while self._owed:
            run = next(iter(self._owed))
            await asyncio.to_thread(self._forget, run, self._owed[run])
            del self._owed[run]
        loose = await asyncio.to_thread(self._hub.loose)
        if loose - self._loose >= LOOSE_MAX:
            await self._hub.pack()
            self._loose = await asyncio.to_thread(self._hub.loose)

    def _forget(self, run: str, tasks: list[str]) -> None:
        for name in (each for task in tasks for each in (task, f"{task}.review")):
            for coder in self._coders.values():
                with contextlib.suppress(OSError):  # what cannot go now goes at the next start
                    coder.forget(Assignment(run=run, task=name, brief=""))
