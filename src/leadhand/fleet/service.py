"""A fleet at work on a repository, or on several: epics go in, commits on main come out.

    async with Fleet(config, coders) as fleet:
        fleet.submit(Path("search.md"))
        await fleet.idle()

A folder holds everything: the hub, the slots, the database, and `epics/`, which is looked at all
the time: an epic is submitted by putting a file there. An epic is started once: its run is named
after the file and its content. A fleet that is opened again resumes the open epics, and learns from
git how far the work in progress came.

Each repository has a `Site`: its hub, gate, slots and merge queue. The log, the agents' places,
usage limits and budgets are the fleet's (`repositories.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from leadhand.app.lead import Lead
from leadhand.codec.events import decode
from leadhand.core.policy import Policy
from leadhand.core.views.run import run_status
from leadhand.engine.host import EmbeddedHost
from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.agents.process import watch_answers
from leadhand.fleet.agents.transcripts import prune
from leadhand.fleet.background import stop, watch
from leadhand.fleet.boundaries import EXCLUSIVE, Boundaries, Sharing
from leadhand.fleet.budget import DailyBudget, Noting
from leadhand.fleet.context import AttemptLimits, FleetContext, RepositoryConfig
from leadhand.fleet.edit_history import EditHistory, edits_of
from leadhand.fleet.epic_folder import HandedIn, Intake, refuse_unplanned, submit, submit_text
from leadhand.fleet.forge.flow import ForgeFlow, connect_host, forge_context
from leadhand.fleet.gate.ci_gate import CiGate, CiHost, CombinedGate
from leadhand.fleet.gate.gate import Gate, GateRules, Soundness
from leadhand.fleet.gate.gate_memory import Screening
from leadhand.fleet.governor import Governor, Needs
from leadhand.fleet.merge.conductor import Conductor, Following
from leadhand.fleet.merge.early import EarlyMerges
from leadhand.fleet.merge.resolution import ConflictResolution, ResolutionRules
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
from leadhand.fleet.repositories import repositories_in, repository_folder
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
    from leadhand.fleet.forge.flow import HostConnection
    from leadhand.fleet.forge.rules import ForgeSetup
    from leadhand.fleet.gate.ci_gate import CiRules
    from leadhand.fleet.machines.settings import MachinesSetup
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
    ci: CiRules | None = None
    """What the CI of the code host must say of what the merge queue lands; None: it is not asked.
    """
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
    resolution: ResolutionRules = field(default_factory=ResolutionRules)
    """The programs that settle conflicts."""
    """Which paths several tasks may write at once."""
    screen: str = "auto"
    """Whether each change is tested by itself before the merge queue: always, or when many fail."""
    instructions: bool = True
    """Whether agents are told what AGENTS.md and CLAUDE.md of the repository say."""
    skills: bool = True
    """Whether agents are told which skills the repository has."""
    limit_wait_s: float = 8 * 86_400.0
    """The longest usage limit that is waited out; 0: none is."""
    machines: MachinesSetup | None = None
    """Other machines that agents work on, besides `agents` here."""
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
    repositories: Mapping[str, RepositoryConfig] = field(default_factory=dict)
    """Further repositories, by the name that tasks give them."""

    @property
    def main(self) -> RepositoryConfig:
        """Return the main repository."""
        return RepositoryConfig(
            repo=self.repo,
            gate=self.gate,
            branch=self.branch,
            publish=self.publish,
            forge=self.forge,
            protected=self.protected,
            sharing=self.sharing,
            keep=self.keep,
            plan_paths=self.planning.paths,
        )


@dataclass(slots=True, kw_only=True)
class Site:
    """One repository of a fleet at work."""

    config: RepositoryConfig
    shop: FleetContext
    sound: Soundness
    following: Following
    results: Results

    @property
    def refused(self) -> dict[str, str]:
        """Return what was refused or is in trouble, and why; with the name of the repository."""
        train, forge = self.shop.conductor.trouble, self.shop.forge
        found = {
            **self.results.refused,
            **self.following.told,
            **self.shop.slots.told,
            **(forge.told if forge is not None else {}),
            **({"the train": train} if train else {}),
            **(self.shop.machines.told if self.shop.machines is not None else {}),
        }
        name = self.shop.name
        return {f"{name}: {what}": why for what, why in found.items()} if name else found


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
        self._keeping: Keeping
        self._nudged = asyncio.Event()
        """Set by a webhook: it is time to look at the code host."""
        self._looked = asyncio.Event()
        self._hosts: dict[str, HostConnection] = {}
        """The code hosts by name of the repository."""
        self._ci: CiGate | None = None
        self.sites: dict[str, Site] = {}
        """The repositories by name; the main one is ""."""
        self._histories: dict[str, EditHistory] = {}
        self.shop: FleetContext
        """The context of the main repository, with all that is the fleet's as a whole."""
        self.purse: DailyBudget
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
        hubs = await self._open_hubs()
        config = self.config  # with what the histories say of shared files
        await kill_leftovers(mark)  # the hub is ours: what still runs was left by a killed fleet
        before = await asyncio.to_thread(read_journal, config.folder)
        journal = stack.enter_context(Journal(config.folder))
        noting = Noting(journal, before)
        for killed in left_behind(config.folder):  # it was paid for all the same
            noting.note("lost", **killed)
        sandbox = await self._sandbox(hubs)
        governor = self._governor(noting)
        for name, each in {"": config.main, **config.repositories}.items():
            site = await self._open_site(
                name, each, hubs, processes, sandbox, governor, before, noting
            )
            self.sites[name] = site
        await self._connect(journal)
        if config.machines is not None:
            await self._open_machines(config.machines)
        for site in self.sites.values():
            await site.shop.slots.rescue()
        await asyncio.to_thread(prune, config.folder / "transcripts")
        workers = self._crew(processes)
        self._tiers = tiers_of(workers)
        own, *further = hubs.values()
        self._keeping = Keeping(own, (worker.coder for worker in workers), further)
        others = {name: site.shop for name, site in self.sites.items() if name}
        gates = {name: (shop.hub, shop.gate) for name, shop in others.items()}
        self.lead = Lead(
            [*workers, Examiner(self.shop.hub, self.shop.gate, gates)],
            epic_planner(config, self.shop, processes, self.purse, self._tiers, self._past, others),
            config.folder / FLEET_DATABASE,
            policy=epic_policy(config.policy, self.agents_most),
            models=config.models,
        )
        # What landed while the fleet was ending is given too; pull requests wait for the next.
        stack.push_async_callback(self._give_branches)
        self.host = await stack.enter_async_context(self.lead.hosting())
        for header in self.host.store.runs():
            if header.run.startswith(EPIC):
                await self._take_up(header.run)
        assert isinstance(self.host, EmbeddedHost)  # a fleet drives its runs in this process
        for site in self.sites.values():
            site.results.begin(self._ended)
            # A train that cannot go on ends the fleet: nothing would ever land.
            self.host.spawn(site.shop.conductor.ended())
        for loop in self._loops():
            stack.push_async_callback(stop, asyncio.get_running_loop().create_task(loop))

    async def _open_hubs(self) -> dict[str, Hub]:
        """Open the hub of each repository, made from the user's the first time."""
        config, hubs, shared = self.config, dict[str, Hub](), dict[str, Sharing]()
        for name, each in {"": config.main, **config.repositories}.items():
            folder = repository_folder(config.folder, name) / "hub"
            hub = await self._stack.enter_async_context(
                await Hub.open(folder, each.repo, each.branch)
            )
            history = EditHistory(await edits_of(hub.git, hub.main()))
            sharing = each.sharing.learning(history.append_files())
            hub.keep_all_lines(set(sharing.append) - set(self.config.resolution.regenerate))
            if each.publish:
                await hub.user.check_name(each.publish)
            hubs[name], self._histories[name], shared[name] = hub, history, sharing
        others = {
            name: replace(each, sharing=shared[name]) for name, each in config.repositories.items()
        }
        self.config = replace(config, sharing=shared[""], repositories=others)
        return hubs

    async def _sandbox(self, hubs: Mapping[str, Hub]) -> Sandbox:
        config = self.config
        doors = await open_doors(self._stack, config.doors)
        # Slots borrow the hub's objects: without them an agent's own git sees no history. Where
        # there are several, each may look at the others.
        shown = [hub.git.folder for hub in hubs.values()]
        shown = shown if len(shown) > 1 else [each / "objects" for each in shown]
        return choose(config.sandbox, readable=(*config.readable, *shown), doors=doors)

    def _governor(self, noting: Noting) -> Governor:
        """Return the one that gives places to the agents of all repositories."""
        config = self.config

        def spent() -> str:
            return noting.spending.over(config.daily, self.running_cost())

        most = self.agents_most
        governor = Governor(
            most,
            stagger_s=config.stagger_s,
            needs=Needs(load=config.load),
            folder=config.folder,
            behind=lambda: sum(site.shop.conductor.waiting for site in self.sites.values()),
            behind_max=max(most, BEHIND_MIN),
            against=spent,
        )
        governor.limits = UsageLimits(config.folder, wait_max_s=config.limit_wait_s)
        governor.set_pause(pause_of(config.folder))
        self.purse = DailyBudget(lambda: _not_now(governor) or spent())
        return governor

    async def _open_site(
        self,
        name: str,
        own: RepositoryConfig,
        hubs: Mapping[str, Hub],
        processes: Processes,
        sandbox: Sandbox,
        governor: Governor,
        before: Iterable[Mapping[str, Any]],
        noting: Noting,
    ) -> Site:
        """Open one repository: its gate, its merge queue, and the slots of its agents."""
        config, hub, note = self.config, hubs[name], noting.note
        folder = repository_folder(config.folder, name)
        checkouts = repository_folder(self.checkouts, name)
        if name:
            make_checkouts_folder(checkouts)
            note = partial(noting.note, repository=name)
            before = [each for each in before if each.get("repository", "") == name]
        gates = Slots(hub, checkouts / "gates", config.gates, prefix="gate")
        gate = Gate(hub, gates, own.gate, processes=processes, sandbox=sandbox.through(SETUP))
        # One pool, the train first: a hundred agents that want the gate do not hold it up.
        of_train = gate.for_train()
        with_ci = await self._with_ci(name, hub, own.forge, of_train, note)
        settling = ConflictResolution(hub, of_train, config.resolution)
        told: dict[str, Any] = {"protected": own.protected, "note": note, "resolution": settling}
        conductor = await self._stack.enter_async_context(
            Conductor(hub, with_ci or of_train, config.rules, **told)
        )
        sound = Soundness(hub, gate, folder, note, with_ci)
        # A reviewer reads in a slot while its author still holds one. Finished changes take a slot
        # here too, wherever their agents worked.
        size = max(1, config.agents) + (self.agents_most if config.reviewer else 0)
        setup = run_set_up(gate, checkouts) if own.gate.setup else None
        price = None
        if own.sharing.price:
            price = OverlapPrice(own.sharing, before, self._histories[name])
        shop = FleetContext(
            hub,
            Slots(hub, checkouts / "slots", size, keep=own.keep, setup=setup),
            gate,
            conductor,
            governor,
            sandbox,
            protected=own.protected,
            boundaries=Boundaries(price),
            sharing=own.sharing,
            screening=Screening(always=config.screen == "always"),
            price=price,
            instructions=config.instructions,
            skills=config.skills,
            note=note,
            transcripts=config.folder / "transcripts",
            name=name,
            hubs=hubs,
            against=lambda: sound.against,
            local=config.agents,
        )
        if name:  # agents, and tasks in people's hands, are the fleet's: there is one list of each
            for shared in ("at_work", "taken", "admitting", "in_flight"):
                setattr(shop, shared, getattr(self.shop, shared))
        else:
            shop.taken = TakenTasks(config.folder)
            self.shop = shop
        following = Following(hub, conductor)
        results = Results(hub, own.publish, config.pull_request, processes, folder, note)
        return Site(config=own, shop=shop, sound=sound, following=following, results=results)

    async def _with_ci(
        self,
        name: str,
        hub: Hub,
        forge: ForgeSetup | None,
        gate: Gate,
        note: Callable[..., None],
    ) -> CombinedGate | None:
        """Open the code host of a repository; return the gate with its CI, None if it has none."""
        if forge is None:
            return None
        host = self._hosts[name] = connect_host(hub, forge)
        self._stack.push_async_callback(host.forge.aclose)
        if name or self.config.ci is None:
            return None
        namespace = f"{host.rules.prefix}gate/{_mark(self.config.folder)}/"
        place = CiHost(host.forge, host.remote, namespace, host.rules.base, host.rules.look_s)
        self._ci = CiGate(hub, place, self.config.ci, self.config.folder / "ci", note=note)
        return CombinedGate(gate, await self._stack.enter_async_context(self._ci))

    def _nudge(self) -> None:
        """Let all who wait for a code host look at it now: it sent a webhook."""
        self._nudged.set()
        for site in self.sites.values():
            if site.shop.forge is not None:
                site.shop.forge.delivery.bell.ring()
        if self._ci is not None:
            self._ci.bell.ring()

    async def _connect(self, journal: Journal) -> None:
        """Connect the repositories that have one to their code host."""
        for name, site in self.sites.items():
            forge = site.config.forge
            if forge is None:
                continue
            site.shop.forge = self._flow(name, journal.note)
            if forge.listen is not None:
                listener = await forge.listen(self._nudge)
                self._stack.push_async_callback(listener.stop)

    async def _open_machines(self, setup: MachinesSetup) -> None:
        """Let agents of the main repository work on other machines, too.

        Raise `UsageError` without Temporal's library.
        """
        from leadhand.temporal.cluster import require

        require()
        from leadhand.fleet.machines.dispatch import Machines

        machines = Machines(self.shop.hub, setup, self.shop.gate)
        self.shop.machines = await self._stack.enter_async_context(machines)

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is looked at again and again."""
        loops = [
            watch("the folder of epics", self._look, self._trouble),
            watch("what is put away", self._put_away, self._trouble, KEEP_S),
        ]
        if self.config.pull_request:
            loops.append(watch("pull requests", self._give, self._trouble))
        for name, site in self.sites.items():
            of, shop = (f" of {name}" if name else ""), site.shop
            early = EarlyMerges(shop).look
            loops.append(watch(f"early merges{of}", early, self._trouble, EARLY_S))
            loops.append(site.sound.watch())
            if shop.forge is not None:
                look = partial(self._look_at_host, shop.forge)
                every_s = shop.forge.rules.look_s
                host = (f"the code host{of}", look, self._trouble, every_s, self._nudged)
                loops.append(watch(*host))
            elif self.config.follow:
                loops.append(watch(f"your branch{of}", site.following.look, self._trouble))
        return loops

    @property
    def sound(self) -> Soundness:
        """Return whether the main repository passes its own gate."""
        return self.sites[""].sound

    @property
    def agents_most(self) -> int:
        """Return the number of agents at once, here and on other machines."""
        machines = self.config.machines
        return self.config.agents + (machines.agents if machines is not None else 0)

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
        return {
            **self._intake.refused,
            **{what: why for site in self.sites.values() for what, why in site.refused.items()},
            **(self._ci.trouble if self._ci is not None else {}),
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
        config = self.config
        watch_answers((coder for _name, coder, _model in made), config.doors)
        others = {name: site.shop for name, site in self.sites.items() if name}
        for _name, coder, model in made:
            if coder.name == config.reviewer:
                reviewer = AgentReviewer(coder, model, config.limits.time_s, self.purse)
                for shop in (self.shop, *others.values()):
                    shop.reviewer = reviewer
        return coder_workers(
            self.shop, made, config.limits, take_over=config.take_over, others=others
        )

    def _past(self) -> list[PlannedEpic]:
        """Return what came of the plans of all epics."""
        return self._done + [planned_epic(run.state) for run in self._runs.values()]

    async def _take_up(self, ident: str) -> None:
        run = self.host.load(ident, self.lead.registry)
        if run.state.ended is not None:
            self._done.append(planned_epic(run.state))
            self._keeping.heard(run.state)
            hosted = any(site.config.forge is not None for site in self.sites.values())
            if self.config.pull_request or hosted:
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
            await self._give_branches()
        finally:  # waiting callers must also see a look that failed
            self._looked.set()

    async def _put_away(self) -> None:
        for run in self._runs.values():
            self._keeping.heard(run.state)
        await self._keeping.look()

    async def _give_branches(self) -> None:
        for site in self.sites.values():
            await site.results.give_branch()

    async def _give(self) -> None:
        for name, site in self.sites.items():
            await site.results.give(partial(self._succeeded, name))

    async def _begin(self, ident: str, path: Path, epic: Epic) -> None:
        refuse_unplanned(epic, str(path), planner=self.lead.planner is not None)
        await self._start(ident, epic, {})

    async def _start(self, ident: str, epic: Epic, origin: dict[str, Any]) -> None:
        """Begin the run of an epic; `origin` says where it comes from."""
        planned = self.lead.planner is not None
        others = {name: each.sharing for name, each in self.config.repositories.items()}
        wanted = wanted_of(epic, self._tiers, self.config.sharing, others, planned=planned)
        labels = [f"issue={origin['issue']['number']}"] if "issue" in origin else []
        self._runs[ident] = await self.lead.begin(
            self.host, wanted, run_id=ident, origin=origin or None, labels=labels
        )

    def _state(self, ident: str) -> State | None:
        """Return the state of an epic; None if this fleet does not know it."""
        run = self._runs.get(ident)
        return run.state if run is not None else self._ended.get(ident)

    def _flow(self, name: str, note: Callable[..., None]) -> ForgeFlow:
        """Return the flow to and from the code host of a repository."""
        folder, shop = repository_folder(self.config.folder, name) / "forge", self.sites[name].shop
        context = forge_context(shop.hub, self._hosts[name], shop.conductor, folder, note)
        planned = self.config.planner is not None
        return ForgeFlow(context, self._known, self._start, self._state, planned=planned)

    async def _look_at_host(self, forge: ForgeFlow) -> None:
        await forge.look(list(self._runs.values()), list(self._ended.values()))

    def _known(self, ident: str) -> bool:
        return ident in self._runs or self.host.store.header(ident) is not None

    def _succeeded(self, name: str) -> list[State]:
        """Return the epics with tasks of a repository that succeeded, earlier ones included."""
        states = [*self._ended.values(), *self.states]
        done = [each for each in states if each.ended and each.ended.status == "succeeded"]
        return [
            each for each in done if not self.config.repositories or name in repositories_in(each)
        ]

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
        trailers = [
            commit.trailers
            for site in self.sites.values()
            for commit in await site.shop.hub.commits()
        ]
        return {
            "agents": {"now": governor.busy, "peak": governor.peak, "waiting": governor.waiting},
            "held_back": self.held_back,
            "epics": {
                ident: run.state.ended.status if run.state.ended else "open"
                for ident, run in self._runs.items()
            },
            "refused": self.refused,
            "user": "; ".join(
                site.following.refused for site in self.sites.values() if site.following.refused
            ),
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

    def __init__(self, hub: Hub, coders: Iterable[Coder], others: Iterable[Hub] = ()) -> None:
        """Take the hub of the main repository, and of others."""
        self._hubs = [hub, *others]
        self._coders = {coder.name: coder for coder in coders}
        self._owed: dict[str, list[str]] = {}
        self._over: set[str] = set()
        self._loose = [0] * len(self._hubs)

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
        for number, hub in enumerate(self._hubs):
            loose = await asyncio.to_thread(hub.loose)
            if loose - self._loose[number] >= LOOSE_MAX:
                await hub.pack()
                self._loose[number] = await asyncio.to_thread(hub.loose)

    def _forget(self, run: str, tasks: list[str]) -> None:
        for name in (each for task in tasks for each in (task, f"{task}.review")):
            for coder in self._coders.values():
                with contextlib.suppress(OSError):  # what cannot go now goes at the next start
                    coder.forget(Assignment(run=run, task=name, brief=""))
