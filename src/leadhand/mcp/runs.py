"""Runs that agents start: checked like those of people, hosted by processes of their own.

Laws:

1. The same request is the same run. Its id is derived from the caller and from the caller's key,
   or, without a key, from everything that was asked for. So a client that comes again, after any
   crash of its own, of this server or of the machine, finds its run and starts no second one.
2. A run outlives the client and this server: a process of its own drives it, as with `--detach`; a
   service elsewhere, if one is configured. A run that nothing drives any more is taken up again
   when somebody asks for it.
3. What an agent proposes is untrusted: the run records the caller, and that its plan is untrusted.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.app.composition import (
    known_catalog,
    planner_name,
    planner_of,
    planner_problem,
    registry_of,
)
from leadhand.app.contexts import goal_registry, in_context
from leadhand.app.documents import Driver
from leadhand.app.hosting_service import hosting_service
from leadhand.app.reader import Reader
from leadhand.app.run_filters import run_labels
from leadhand.cli.background import launch
from leadhand.cli.commands.run import CheckedPlan, job_of, request_of
from leadhand.cli.plan_source import library_plans
from leadhand.core.hashing import canonical
from leadhand.core.lint.plan import lint
from leadhand.core.plan.model import Goal
from leadhand.core.plan.parameters import bind_params
from leadhand.core.review.answer_link import item_digest
from leadhand.core.views.run import ENDED, run_status
from leadhand.engine.host import new_run_id
from leadhand.errors import Conflict, LeadhandError, PlanInvalid, UsageError
from leadhand.settings import load_settings
from leadhand.settings.folders import make_store_folder
from leadhand.settings.trust import Trust, require
from leadhand.stores.location import spelled, there
from leadhand.workers.requirements import missing_programs

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.mcp.server import Client
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry

LOOK_S = 0.2
DRIVEN_S = 2.0
"""How often a run that is waited for is checked for a process that drives it."""
RESTING = ("waiting", "paused")
"""The states in which a run goes on only after a person did something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a caller wants to run: a plan, a plan of the library, or a goal."""

    plan: Doc | None = None
    library: str = ""
    goal: Doc | None = None
    params: Doc
    context: str = ""
    labels: tuple[str, ...] = ()
    review: bool = False
    """Whether a person must approve it, whatever the policy says."""
    key: str = ""
    """The caller's own name for this request."""

    def digest(self) -> str:
        """Return a digest of what would run."""
        parts = [self.plan, self.library, self.goal, self.params, self.context]
        return hashlib.sha256(canonical(parts)).hexdigest()

    def run_id(self, caller: Client) -> str:
        """Return the id of its run: always the same for the same caller and request."""
        name = f"key\n{self.key}" if self.key else f"content\n{self.digest()}"
        seed = hashlib.sha256(f"mcp\n{caller.actor}\n{name}".encode()).digest()
        return new_run_id(lambda size: seed[:size])


class Checked(NamedTuple):
    """A plan that was looked at: the document that would run, its values, and all findings."""

    doc: Doc
    origin: Doc
    values: Doc
    findings: list[Finding]
    registry: Registry

    @property
    def valid(self) -> bool:
        """Whether it can run."""
        return not any(each.level == "error" for each in self.findings)


def marks_of(state: State) -> frozenset[str]:
    """Return a mark of each open question, which differs once it asks for something else."""
    return frozenset(f"{each.id} {item_digest(state, each)}" for each in state.questions.values())


class Workplace:
    """The project that the server works for: settings, workers and runs, read anew each time."""

    def __init__(self, flags: Doc | None = None, *, trusted: bool = False) -> None:
        self._flags = {key: value for key, value in (flags or {}).items() if value}
        self._trusted = trusted
        self._starting = asyncio.Lock()

    def settings(self, context: str = "") -> Settings:
        """Return the settings as they are now. Raise `NotTrusted` for code that is not trusted."""
        found = load_settings(self._flags, context=context or None)
        return require(found, Trust.here(everything=self._trusted))

    async def look(self, work: Callable[[Reader], Any]) -> Any:
        """Return what `work` finds in the database, in a thread. Raise `UsageError` if none is."""

        def read() -> Any:
            place = self.settings().store
            if not there(place):
                raise UsageError("there are no runs yet. Fix: propose a plan, or start one")
            reader = Reader(place)
            try:
                return work(reader)
            finally:
                reader.store.close_reader()

        return await asyncio.to_thread(read)

    async def state(self, run: str) -> State:
        """Return the state of a run, whose id may be shortened."""
        found: State = await self.look(lambda reader: reader.state(reader.resolve(run)))
        return found

    def check(self, wanted: Wanted) -> Checked:
        """Return a plan as it would run, with all findings. Raise `UsageError` for a goal."""
        settings = self.settings(wanted.context)
        doc, origin = self._document(settings, wanted)
        registry = registry_of(settings)
        doc, place = in_context(settings, doc, known_catalog(settings, registry))
        if doc.get("planner"):
            registry = goal_registry(settings)
        declared = doc.get("params")
        names = declared if isinstance(declared, dict) else {}
        given = settings.context.params if settings.context is not None else {}
        params = {key: value for key, value in given.items() if key in names} | wanted.params
        values, _wrong = bind_params(names, params)
        findings = lint(
            doc,
            registry.catalog(),
            params=params,
            resources=settings.policy.resources,
            library=library_plans(settings),
            planners=partial(planner_problem, settings=settings, running=True),
        )
        if (
            not any(each.level == "error" for each in findings)
            and hosting_service(settings) is None
        ):
            findings = [*findings, *missing_programs(doc, registry)]
        return Checked(doc, origin | place, values, findings, registry)

    def _document(self, settings: Settings, wanted: Wanted) -> tuple[Doc, Doc]:
        if wanted.plan is not None:
            return wanted.plan, {}
        from leadhand.engine.library_store import find

        if not there(settings.store):
            raise UsageError(f"there is no plan {wanted.library} in the library")
        reader = Reader(settings.store)
        try:
            saved = find(reader.store, wanted.library)
        finally:
            reader.store.close_reader()
        return saved.document, {"library": saved.label}

    def prepare(self, wanted: Wanted, caller: Client) -> CheckedPlan:
        """Check everything before a start. Raise `PlanInvalid` with all errors of the plan."""
        settings = self.settings(wanted.context)
        policy = settings.policy
        if wanted.review:
            policy = msgspec.structs.replace(policy, review=True)
        settings = replace(settings, policy=policy)
        mark = {"untrusted": True, "caller": caller.document(), "request": wanted.digest()}
        mark |= {"proposed_by": caller.actor} if wanted.review else {}
        more: Doc = {"labels": run_labels(wanted.labels), "run_id": wanted.run_id(caller)}
        if wanted.goal is not None:
            return self._goal(settings, wanted, caller, mark, more)
        found = self.check(wanted)
        if not found.valid:
            raise PlanInvalid([each for each in found.findings if each.level == "error"])
        planner = str(found.doc.get("planner") or "")
        if planner:
            planner_of(planner, settings)
        return CheckedPlan(
            settings,
            found.registry,
            settings.workers,
            caller.actor,
            found.doc,
            found.values,
            planner=planner,
            origin=found.origin | mark,
            linted=True,
            **more,
        )

    def _goal(
        self, settings: Settings, wanted: Wanted, caller: Client, mark: Doc, more: Doc
    ) -> CheckedPlan:
        if wanted.params:
            raise UsageError("`params` is for plans; a goal takes its facts in `have`")
        said = dict(wanted.goal or {})
        context = settings.context
        have = {**(context.params if context else {}), **said.pop("have", {})}
        goal = Goal(have=have, **said)
        name = planner_name(settings) or "goal"
        planner_of(name, settings)
        origin = {"context": context.name} if context else {}
        return CheckedPlan(
            settings,
            goal_registry(settings),
            settings.workers,
            caller.actor,
            goal=goal,
            planner=name,
            origin=origin | mark,
            **more,
        )

    async def start(self, wanted: Wanted, caller: Client) -> tuple[str, bool]:
        """Start a run, or find the one that the same request has started; durable on return.

        Return its id, and whether it is new.
        """
        ident = wanted.run_id(caller)
        async with self._starting:
            if await self._known(ident, wanted):
                await self.take_up(ident)
                return ident, False
            prepared = await asyncio.to_thread(self.prepare, wanted, caller)
            make_store_folder(prepared.settings.store)
            try:
                await self._begin(prepared)
            except LeadhandError:
                # Another process may have started it at the same moment, for the same request.
                if not await self._known(ident, wanted):
                    raise
                return ident, False
        return ident, True

    async def _begin(self, prepared: CheckedPlan) -> None:
        if hosting_service(prepared.settings) is None:
            request = request_of(prepared, approve=False)
            await asyncio.to_thread(launch, prepared.settings, request)
            return
        job = job_of(prepared)
        lead = job.lead(lambda _kind, _run, _text: None)
        async with lead.hosting() as host:
            await job.begin(lead, host)

    async def _known(self, ident: str, wanted: Wanted) -> bool:
        """Return whether there is the run. Raise `Conflict` if another request has its key."""

        def look(reader: Reader) -> bool:
            if reader.store.header(ident) is None:
                return False
            started = reader.state(ident).started
            if started is None or started.plan.get("request") != wanted.digest():
                raise Conflict(
                    f"the request key {wanted.key[:60]!r} was used for another request, run "
                    f"{ident}. Fix: use another key"
                )
            return True

        place = await asyncio.to_thread(lambda: self.settings().store)
        return bool(there(place) and await self.look(look))

    async def take_up(self, run: str) -> bool:
        """Have a run driven that nothing drives; return whether it was taken up now.

        A run that has ended or is paused is left alone.
        """

        def look(reader: Reader) -> tuple[State, int | str]:
            state = reader.state(run)
            return state, Driver.of(self.settings().store, reader).drives(state)

        settings = await asyncio.to_thread(self.settings)
        if hosting_service(settings) is not None:
            return False
        state, driver = await self.look(look)
        if driver or run_status(state) in (*ENDED, "paused") or state.started is None:
            return False
        request = {
            "resume": run,
            "workers": [],
            "planner": "",
            "store": spelled(settings.store),
            "actor": state.started.actor,
            "approve": False,
            "context": state.started.plan.get("context"),
        }
        try:
            await asyncio.to_thread(launch, settings, request)
        except LeadhandError as error:
            if error.exit_code != Conflict.exit_code:  # else another process has just taken it up
                raise
        return True

    async def settle(
        self,
        run: str,
        seconds: float,
        told: Callable[[State], Any] | None = None,
        before: frozenset[str] = frozenset(),
    ) -> State:
        """Return the state of a run once it has ended or waits, or when the time is over.

        Meanwhile a run that nothing drives is taken up. `told` is awaited with each state that is
        new. `before`: the questions that it waits for already (`marks_of`), which do not count.
        """
        loop = asyncio.get_running_loop()
        until, seq, looked = loop.time() + seconds, -1, loop.time()
        while True:
            if loop.time() - looked > DRIVEN_S:  # the process that drives it may have died
                looked = loop.time()
                await self.take_up(run)
            state = await self.state(run)
            if told is not None and state.seq != seq:
                seq = state.seq
                await told(state)
            left = until - loop.time()
            status = run_status(state)
            same = status == "waiting" and bool(before) and marks_of(state) == before
            if (status in (*ENDED, *RESTING) and not same) or left <= 0:
                return state
            await asyncio.sleep(min(LOOK_S, left))
