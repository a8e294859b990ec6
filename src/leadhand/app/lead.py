"""Lead: the composition root. Two verbs, `plan` and `run`, over workers, a planner and a store.

    lead = Lead(workers=[fetch, compare, summarise], planner=next_step, store="runs.db")
    outcome = await lead.run(Goal(text="Compare our competitors"))

`run` takes a Plan, a plan document (dict), a path to one, or a Goal. Each verb has a blocking twin
for scripts: `plan_sync`, `run_sync`.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import msgspec
from msgspec import structs

from leadhand.app import commands
from leadhand.app.anchors import ANCHORED, Anchorer
from leadhand.app.approvals import (
    Amendment,
    Expiry,
    approval_of,
    approver_key,
    as_approvals,
    ends,
    reviewers_by_name,
    signed_answer,
    to_approve,
    with_reviewers,
)
from leadhand.app.hosting_service import temporal_at
from leadhand.app.inputs import (
    as_document,
    as_goal,
    as_plain,
    refuse_errors,
    refuse_name,
    whoami,
)
from leadhand.app.outcome import Outcome, outcome_of
from leadhand.app.planner_choice import (
    as_planner,
    direct_in,
    goal_of_document,
    in_mode,
    planner_for,
    planner_in,
    planner_label,
    resumed_planner,
    successor,
    with_consult_mode,
)
from leadhand.app.reader import reading
from leadhand.app.rollback import roll_back
from leadhand.app.run_filters import run_labels
from leadhand.app.run_limits import model_policy, plan_policy, reviewed_policy
from leadhand.app.store_factory import (
    artifacts_of,
    as_place,
    joining,
    marker,
    open_reader,
    open_store,
    service_of,
)
from leadhand.app.used_approvals import UsedApprovals
from leadhand.audit.anchors import Anchoring
from leadhand.audit.keys import PrivateKey
from leadhand.core.commands import Command
from leadhand.core.events import DECIDE_VERSION, RunStarted
from leadhand.core.hashing import canonical, digest
from leadhand.core.lint.plan import lint
from leadhand.core.plan.model import Goal, Plan
from leadhand.core.plan.parameters import bind_params
from leadhand.core.policy import Policy
from leadhand.core.report import Ask, GiveUp, Propose, decision_doc
from leadhand.core.review.approval import Approval
from leadhand.core.review.holds import held_steps
from leadhand.core.rollback import to_roll_back
from leadhand.core.state.model import State
from leadhand.core.views.run import goal_of, planner_view
from leadhand.core.wording import shown
from leadhand.engine.approvals import signed_releases
from leadhand.engine.fold import gc_paused
from leadhand.engine.guest.process import DatabaseAccess, Guest, SharedStore
from leadhand.engine.host import EmbeddedHost, new_run_id
from leadhand.engine.secrets import check_secrets
from leadhand.errors import Conflict, NoPlan, UsageError
from leadhand.models.registry import ModelRegistry
from leadhand.planners.document import DocumentPlanner, RevisableDocument
from leadhand.planners.goal.planner import GoalPlanner
from leadhand.settings.trust import state_folder
from leadhand.stores.location import StoreAddress, home, there
from leadhand.stores.permissions import kept_by
from leadhand.workers.processes.machine import LocalMachine, is_alive, this_process
from leadhand.workers.registry import Registry
from leadhand.workers.requirements import missing_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leadhand.app.callers import NextStep, StepLease, StepReceipt
    from leadhand.app.documents import RunRow
    from leadhand.app.hosting_service import HostingService
    from leadhand.core.lint.findings import Finding
    from leadhand.core.lint.rules import Level
    from leadhand.core.plan.model import Doc, Json, Plan
    from leadhand.core.report import Decision
    from leadhand.core.review.approval import Approval
    from leadhand.core.review.view import ReviewDocument
    from leadhand.core.views.inbox import InboxRow
    from leadhand.models.registry import Named
    from leadhand.ports import Host, Planner, Reviewer, RunHandle, Store
    from leadhand.stores.location import Listening, StoreLocation
    from leadhand.stores.log import KeptStore, Lock


# The store of a Lead's runs, and the host that is opened once for all users.
#
# A host is opened when the first verb needs one and closed when the last is done with it. Commands
# of people need no host of their own: they go to the existing host, in this process or another, and
# only without one is the database opened for the moment.


HOSTED = "is the host of this database"
LOOK_S = 0.05
STEP_BACK_S = 10.0
"""How long a process that was asked to step back may take to release the database."""


def _bound(doc: Doc, params: Doc) -> Checked:
    """Return a plan without errors, the values of its parameters, and its digest."""
    values, _found = bind_params(doc.get("params", {}), params)
    check_secrets(doc, values)
    return doc, values, digest(canonical(doc["steps"]))


def _there(place: StoreLocation, run_id: str) -> StoreLocation:
    if not there(place):
        raise UsageError(f"there is no run {run_id}: {place} does not exist")
    return place


class _Hosting:
    def __init__(self, lead: Lead, *, beside: bool = False) -> None:
        self._lead = lead
        self._beside = beside

    async def __aenter__(self) -> Host:
        return await self._lead._acquire(beside=self._beside)  # noqa: SLF001 - its other half

    async def __aexit__(self, *_: object) -> None:
        await self._lead._release()  # noqa: SLF001 - its other half


async def finish(run: RunHandle, approve_as: str = "", key: PrivateKey | None = None) -> Outcome:
    """Wait until a run has ended or waits; `approve_as` answers its reviews as that person."""
    while True:
        await run.wait_idle()
        review = to_approve(run.state, approve_as) if approve_as else ""
        if not review:
            return outcome_of(run)
        await run.submit_and_wait(signed_answer(review, "approve", approve_as, key))


Checked = tuple[dict[str, Any], dict[str, Any], str]
"""A plan that can be run, the values of its parameters, and the digest of its steps."""
PARAM = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
DEFAULT_STORE = Path(".leadhand") / "leadhand.db"


class Lead:
    """Workers, a planner and a store, ready to plan and run.

    Everything is opened on first use. Methods that name a run raise `UsageError` if there is no
    such run, and `Conflict` if another process hosts the database and the request cannot be
    forwarded.

    - `run_id`: the id of the run.
    - `reason`: a text that is recorded in the log.
    - `steps`: the ids of the steps.
    - `host`: the host on which the run is driven.
    """

    def __init__(  # noqa: PLR0913 - the composition root
        self,
        workers: Iterable[Any] = (),
        planner: Planner | Callable[..., object] | str | None = None,
        store: str | StoreLocation | Store | None = None,
        *,
        policy: Policy | None = None,
        max_concurrency: int = 1000,
        actor: str = "",
        on_notice: Callable[[str, str, str], None] | None = None,
        anchoring: Anchoring | None = None,
        reviewers: Mapping[str, Reviewer] | Iterable[Reviewer] = (),
        key: PrivateKey | str | Path | None = None,
        models: ModelRegistry | Mapping[str, Named] | None = None,
        tiers: Mapping[str, Named | Sequence[Named]] | None = None,
        temporal: HostingService | str | None = None,
        planners: Mapping[str, Planner | Callable[..., object]] | None = None,
        service: HostingService | None = None,
        environment: str = "",
    ) -> None:
        """Create a Lead; nothing is opened or started yet.

        Args:
            workers: functions, modules and worker objects; or a `Registry` of them.
            planner: a planner, a function of the view, or the name of a model or tier;
                None: goals are planned by the goal planner.
            store: a path, an address of PostgreSQL, or a `Store`; .leadhand/leadhand.db if None.
            policy: the limits and the review rules of runs.
            max_concurrency: how many attempts may run at once, over all runs.
            actor: the person on whose behalf this Lead acts; the account's name by default.
            on_notice: called with (kind, run, text) when a person is awaited or a run ends.
            anchoring: where and how often the head of the log is recorded outside of it.
            reviewers: automatic reviewers of revisions, by name.
            key: the private key, or its file, that signs what `actor` approves.
            models: a registry of models, or models by name.
            tiers: names of models for each tier ("lead", "hand", …), the first preferred.
            temporal: the short form of `service` for Temporal: see docs/reference/temporal.md.
            planners: planners that plan documents may name besides "goal", models and `planner`.
            service: a service elsewhere that hosts the runs, as settings make it.
            environment: the environment that runs are started in, recorded with each of them.
        """
        self.registry = workers if isinstance(workers, Registry) else Registry(workers)
        self.models = ModelRegistry.of(models, tiers)
        self.registry.use_models(self.models)
        self.planner = as_planner(planner, self.registry.methods, self.models)
        self.planners = {
            name: as_planner(each, self.registry.methods, self.models)
            for name, each in (planners or {}).items()
        }
        self.reviewers = reviewers_by_name(reviewers)
        self.policy = with_reviewers(policy or Policy(), self.reviewers)
        self.actor = actor or whoami()
        self.environment = environment
        self.key = approver_key(key)
        place = store if store is not None else DEFAULT_STORE
        elsewhere = temporal_at(service or temporal)
        self.open_on(place, max_concurrency, on_notice, anchoring or Anchoring(), elsewhere)

    @classmethod
    def from_settings(
        cls, folder: str | Path | None = None, *, context: str | None = None, **more: Any
    ) -> Self:
        """Return a Lead with everything that leadhand.toml configures in a folder.

        Workers of modules, declared workers, MCP tools and agents, planner, reviewers, store,
        policy, models, keys and anchors, as the command line uses them. This imports the modules
        that the settings name and may start MCP servers.

        Args:
            folder: where settings are looked for, there and above; the working directory if None.
            context: the `[context.NAME]` to use.
            more: arguments of `Lead` that replace what the settings say.

        Raises:
            UsageError: a settings file is wrong, or names something that cannot be loaded.
        """
        from leadhand.app.composition import parts_of
        from leadhand.app.hosting_service import hosting_service
        from leadhand.settings import load_settings

        settings = load_settings(folder=Path(folder) if folder else None, context=context)
        given = parts_of(settings)
        if "temporal" not in more:
            given["service"] = hosting_service(settings)
        return cls(**(given | more))

    # The two verbs.

    async def plan(self, goal: Goal | str, **more: Any) -> Plan:
        """Return the plan for a goal; nothing is executed.

        Args:
            goal: a `Goal`, or its text.
            more: further fields of `Goal`, if `goal` is a text.

        Raises:
            NoPlan: the planner proposed no plan; the message says why.
            PlanInvalid: the proposed plan has errors.
        """
        goal = as_goal(goal, more)
        direct = direct_in(goal, self.registry, given=self.planner is not None)
        if direct is not None and direct.proposal is not None:
            steps = direct.proposal["steps"]
            return Plan.from_doc({"goal": goal.to_doc(), "steps": steps, "final": True})
        planner = self.planner_for(goal)
        state = State()
        state.params = dict(goal.have)
        state.started = self._started(goal.to_doc(), {}, planner, {}, ())
        state.policy, state.catalog = state.started.policy, self.registry.catalog()
        # The goal planner can write the whole plan, ready to be read, approved and run.
        ask = planner.draft if isinstance(planner, GoalPlanner) else planner.decide
        decision = await ask(planner_view(state, 1, "start"))
        if not isinstance(decision, Propose):
            raise NoPlan(_said(decision))
        doc = decision_doc(decision)
        plan: Doc = {"goal": goal.to_doc(), "steps": doc["steps"], "final": doc["final"]}
        plan["planner"] = self._label_of(planner)
        given = {name: value for name, value in goal.have.items() if PARAM.fullmatch(name)}
        plan["params"] = {name: {"default": value} for name, value in given.items()}
        refuse_errors(lint(plan, self.registry.catalog(), advice=False))
        return Plan.from_doc(plan)

    async def run(
        self,
        what: Plan | Goal | Doc | str | Path,
        *,
        params: Doc | None = None,
        approve: bool = False,
        run_id: str = "",
        mode: str = "",
        approval: Approval | Doc | Sequence[Approval] | None = None,
        context: str = "",
        labels: Iterable[str] = (),
    ) -> Outcome:
        """Run a plan or a goal; return when it has ended or waits for a person.

        Args:
            what: a plan, a plan document, a path to one, or a goal.
            params: the values of the plan's parameters.
            approve: whether to approve every review as this Lead's actor.
            run_id: the id of the run; a new one by default.
            mode: how far ahead to plan a goal: direct, next_step, whole or auto.
            approval: approvals of exactly this plan, as `approve` returns them.
            context: the name of the context the plan runs in, for the record.
            labels: labels of the run, as `name` or `name=value`, to find it by.

        Raises:
            PlanInvalid: the plan has errors; nothing was run.
            Conflict: there is a run of this id, or an approval does not fit or was used.
            UsageError: `what` or `params` cannot be used.
        """
        origin = {"context": context} if context else None
        async with self.hosting() as host:
            run = await self.begin(
                host,
                what,
                params=params,
                run_id=run_id,
                mode=mode,
                origin=origin,
                approvals=as_approvals(approval),
                labels=labels,
            )
            try:
                return await self._finished(host, run, approve=approve)
            finally:
                host.forget(run)

    async def resume(self, run_id: str, *, approve: bool = False) -> Outcome:
        """Resume run `run_id`; return when it has ended or waits for a person.

        A pause is lifted. `approve` approves every review as this Lead's actor.
        """
        async with self.hosting() as host:
            run = await self.resume_on(host, run_id)
            if run.state.paused and run.state.ended is None:
                await run.submit_and_wait(Command("resume", self.actor))
            return await self._finished(host, run, approve=approve)

    async def rollback(self, run_id: str, *, approve: bool = False, reason: str = "") -> Outcome:
        """Undo a run that has ended, by its rollback plan or the undos of its steps.

        The rollback is a run of its own, whose outcome is returned. `approve` approves its reviews
        as this Lead's actor; `reason` is recorded. Raise `Conflict` if run `run_id` has not ended,
        `UsageError` if there is nothing to undo.
        """
        async with self.hosting() as host:
            run = await roll_back(self, host, run_id, reason=reason)
            return await finish(run, self.actor if approve else "", self.key)

    async def rerun(
        self,
        run_id: str,
        *,
        from_step: str = "",
        approve: bool = False,
        labels: Iterable[str] = (),
    ) -> Outcome:
        """Run the plan or the goal of run `run_id` again, as a new run; return its outcome.

        The new run has the plan that was last accepted and the same parameters, and records
        `rerun_of`. No approval of the first run counts for it.

        Args:
            run_id: a run that has ended.
            from_step: run only this step and the steps that wait for it; verified results of
                other steps are taken over, and the log names their run, attempt and digest.
            approve: whether to approve every review as this Lead's actor.
            labels: labels beside those of the first run and `rerun_of=RUN`.

        Raises:
            Conflict: run `run_id` has not ended.
            UsageError: it cannot be run again, or not from that step.
            StoreCorrupt: its log does not verify.
        """
        from leadhand.app.rerun import prepare_rerun, start_rerun

        async with self.hosting() as host:
            _state, found = prepare_rerun(host.store, run_id, from_step)
            run = await start_rerun(self, host, found, labels=labels)
            try:
                return await self._finished(host, run, approve=approve)
            finally:
                host.forget(run)

    async def _finished(self, host: Host, run: RunHandle, *, approve: bool) -> Outcome:
        outcome = await finish(run, self.actor if approve else "", self.key)
        if not to_roll_back(run.state):
            return outcome
        back = await roll_back(self, host, run.id)
        undone = await finish(back, self.actor if approve else "", self.key)
        return replace(outcome, rollback=undone)

    def resume_sync(self, run_id: str, **more: Any) -> Outcome:
        """Run `resume` for `run_id` in an event loop of its own; `more` are its other arguments."""
        return asyncio.run(self.resume(run_id, **more))

    def plan_sync(self, goal: Goal | str, **more: Any) -> Plan:
        """Run `plan` for `goal` in an event loop of its own; `more` are its other arguments."""
        return asyncio.run(self.plan(goal, **more))

    def run_sync(self, what: Plan | Goal | Doc | str | Path, **more: Any) -> Outcome:
        """Run `run` for `what` in an event loop of its own; `more` are its other arguments."""
        return asyncio.run(self.run(what, **more))

    # What is in the database. These read it and need no host.

    def list(self, *, status: str | None = None, limit: int = 50) -> Sequence[RunRow]:
        """Return the latest runs, newest first, as `leadhand ls --json` prints them.

        Args:
            status: only runs with this status.
            limit: how many at most.
        """
        from leadhand.app.documents import Driver, run_rows
        from leadhand.ports import RunQuery

        place = self._readable()
        if not there(place):
            return []
        with reading(place) as reader:
            query = RunQuery(status=(status,) if status else (), limit=limit)
            rows, _ = run_rows(reader, Driver.of(place, reader), query)
        return rows

    def verify(
        self,
        run_id: str | None = None,
        *,
        key: str | Path | None = None,
        full: bool = False,
    ) -> Doc:
        """Check one run, or the whole database, as `leadhand verify --json` does.

        Args:
            run_id: the run; None checks every run and the chain of commits.
            key: a file with the public key that must have signed the anchors.
            full: check everything again, not only what came since the last verification of all.

        Returns:
            A document whose `valid` says whether everything holds; `violations` lists the rest.

        Raises:
            UsageError: there is no such run, or `key` is no public key that can be read.
        """
        from leadhand.app.anchors import public_key
        from leadhand.app.verification import VerificationScope, verify_database

        place = self._readable()
        known = public_key(self._anchoring, key)
        with reading(place) as reader:
            found = verify_database(
                reader,
                place,
                self._anchoring,
                VerificationScope(None if run_id is None else reader.resolve(run_id), full),
                key=known,
                approvers=self.policy.approvers,
            )
        return found.document()

    def export(self, run_id: str, file: str | Path | None = None) -> bytes:
        """Return a run as the bytes of one zip file, as `leadhand export` writes it.

        Args:
            run_id: the run.
            file: where it is written too; a file that holds something else is left as it is.

        Raises:
            Conflict: `file` is there and holds something else.
            StoreCorrupt: the log of the run does not verify.
        """
        from leadhand.app.export import export_run, write_bundle

        place = self._readable()
        with reading(place) as reader:
            ident = reader.resolve(run_id)
        data = export_run(place, ident, self._anchoring)
        if file is not None:
            write_bundle(Path(file), data)
        return data

    def _readable(self) -> StoreLocation:
        """Return the location of the database. Raise `UsageError` for a store in memory."""
        if not isinstance(self._store, (Path, StoreAddress)):
            raise UsageError("this Lead has a store in memory: give store= a path to read it")
        return self._store

    # Parts of `run`, for the command line and tests.

    async def begin(  # noqa: PLR0913 - all that a start can say
        self,
        host: Host,
        what: Plan | Goal | Doc | str | Path,
        *,
        params: Doc | None = None,
        run_id: str = "",
        sources: tuple[str, ...] = (),
        mode: str = "",
        origin: Doc | None = None,
        approvals: Iterable[Doc] = (),
        checked: Checked | None = None,
        always_review: bool = False,
        labels: Iterable[str] = (),
    ) -> RunHandle:
        """Check everything and start a run on `host`; return once the start is durable.

        `what`, `params`, `run_id` and `mode` as for `run`; `sources` are the modules or files of
        the workers; `origin` is where the plan came from (library, context), recorded with it;
        `approvals` are documents of approvals. `checked` is the result of `check`, if already
        known. With `always_review` no rule lets the plan start without a person. `labels` as for
        `run`.
        """
        planner: Planner
        refuse_name(host, run_id, rollback="rollback_of" in (origin or {}))
        if isinstance(what, Goal):
            what = Goal.from_doc(as_plain(in_mode(what, mode).to_doc(), "goal"))
            given = self.planner is not None
            planner = planner_in(what, self.registry, self.planner_for, given=given)
            goal: Any = what.to_doc()
            head, values, linted = with_consult_mode(what), dict(what.have), ""
        elif mode:
            raise UsageError("a mode goes with a goal; a plan is run as it stands")
        else:
            with gc_paused():
                doc, values, linted = checked or self.check(what, params or {})
            goal, planner = self._document(doc)
            head = {key: value for key, value in doc.items() if key not in ("steps", "outlook")}
        head = {**head, **(origin or {})}
        started = self._started(goal, head, planner, values, sources, run_id, linted)
        environment = str(head.get("context") or self.environment)
        named = run_labels(labels, str((origin or {}).get("rerun_of", "")))
        started = structs.replace(started, labels=named, environment=environment)
        if approvals:
            started = structs.replace(started, approvals=list(approvals))
        if always_review:
            started = structs.replace(started, policy=reviewed_policy(started.policy))
        return await host.start(started, self.registry, planner)

    def check(
        self, what: Plan | Doc | str | Path, params: Doc, *, values_too: bool = True
    ) -> Checked:
        """Return the plan `what` as a document, the values of its parameters, and its digest.

        Raise `PlanInvalid` for errors in the plan or in `params`. Without `values_too`, values that
        do not fit are accepted: the step that gets one fails then.
        """
        doc, params = as_document(what), as_plain(params, "params")
        catalog, pools = self.registry.catalog(), self.policy.resources
        looked_at = params if values_too else None
        refuse_errors(
            lint(
                doc,
                catalog,
                params=looked_at,
                resources=pools,
                planners=self.planner_problem,
                advice=False,
            )
        )
        refuse_errors(self.missing_programs(doc))
        return _bound(doc, params)

    def linted(self, what: Doc, params: Doc) -> Checked:
        """Return the result of `check` for `what`, already linted, and `params`; lint nothing."""
        return _bound(as_document(what), as_plain(params, "params"))

    def missing_programs(self, doc: Doc) -> Sequence[Finding]:
        """Return a finding for each command of the plan `doc` whose program is missing here."""
        if self._elsewhere is not None:
            return []  # the remote machines have programs of their own
        return missing_programs(doc, self.registry)

    def policy_for(self, what: Goal | Doc) -> Policy:
        """Return the policy that a run of `what` would have: a goal, or a checked plan document.

        Nothing is started.
        """
        if not isinstance(what, Goal):
            return self._policy(what, *self._document(what))
        goal, given = what, self.planner is not None
        planner = planner_in(goal, self.registry, self.planner_for, given=given)
        return self._policy(with_consult_mode(goal), goal.to_doc(), planner)

    def _policy(self, head: Doc, goal: Any, planner: Planner) -> Policy:
        policy = plan_policy(self.policy, head, goal, time.time_ns() // 1000)
        # A given plan has a fixed length; a goal may continue indefinitely.
        agents = [] if isinstance(planner, DocumentPlanner) else self.registry.agents
        return model_policy(policy, planner, agents)

    def _started(
        self,
        goal: Any,
        head: Doc,
        planner: Planner,
        params: Doc,
        sources: tuple[str, ...],
        run_id: str = "",
        linted: str = "",
    ) -> RunStarted:
        return RunStarted(
            run=run_id or new_run_id(),
            goal=goal,
            policy=self._policy(head, goal, planner),
            planner=planner.name,
            catalog=list(self.registry.catalog().workers.values()),
            replans=planner.replans,
            splits=planner.splits,
            deaf=getattr(planner, "deaf", False),
            consult=head.get("consult") or planner.consult,
            plan=head,
            params=params,
            actor=self.actor,
            workers=sources,
            planner_source=getattr(planner, "source", ""),
            linted=linted,
            decide_version=DECIDE_VERSION,
        )

    async def resume_on(self, host: Host, run_id: str) -> RunHandle:
        """Resume run `run_id` on `host`."""
        run = host.load(run_id, self.registry)
        return await host.resume(run_id, self.registry, self.planner_of_run(run.state))

    def planner_of_run(self, state: State) -> Planner | None:
        """Return the planner of a resumed run from its `state`: by its plan, or by its log.

        Raise `UsageError` if the plan names a planner that this Lead does not have.
        """
        started = state.started
        if started is None:
            return None
        if state.planner.handed:
            return successor(self.registry)
        named = started.plan.get("planner")
        if named and started.planner != DocumentPlanner.name:
            return self.document_planner(named, goal_of(state))
        return resumed_planner(started.planner, self.planner, self.registry.methods)

    def document_planner(self, name: str, goal: Goal) -> Planner:
        """Return the planner called `name` in a plan document, for the `goal` of that document.

        Raise `UsageError` if this Lead has none of that name. A document never causes code to be
        loaded.
        """
        wrong = self.planner_problem(name)
        if wrong is not None:
            raise UsageError(f"{wrong[0]}. Fix: {wrong[1]}")
        found = self.planners.get(name)
        if found is None and planner_label(self.planner) == name:
            found = self.planner
        if found is None:
            found = as_planner(name, self.registry.methods, self.models)
        return planner_for(found, goal, self.registry.methods)

    def planner_problem(self, name: str) -> tuple[str, str, Level] | None:
        """Return why planner `name` of a document cannot be used, a fix and a level; or None."""
        given = (*self.planners, planner_label(self.planner), GoalPlanner.name)
        if name in given or (self.models.knows(name) and "@http" not in name):
            return None
        what = f"the plan may be revised by {shown(name)}, which was not given"
        return what, f"Pass planner= or planners={{{shown(name)}: …}} to Lead.", "error"

    def _document(self, doc: Doc) -> tuple[Any, Planner]:
        """Return the goal and the planner for a run of a plan document."""
        named = doc.get("planner")
        if not named:
            return doc.get("goal", ""), DocumentPlanner(doc)
        goal = goal_of_document(doc)
        planner = self.document_planner(named, Goal.from_doc(goal))
        source = named if self.models.knows(named) else ""
        return goal, RevisableDocument(doc, planner, source)

    def _label_of(self, planner: Planner) -> str:
        """Return the name by which a plan document refers to the planner that wrote it."""
        known = (name for name, each in self.planners.items() if each is self.planner)
        return next(known, "") or planner_label(self.planner or planner)

    def planner_for(self, goal: Goal) -> Planner:
        """Return the planner for `goal`: the one this Lead has, else the goal planner."""
        return planner_for(self.planner, goal, self.registry.methods)

    # --- what people say to runs, and what they are shown ---------------------------------------

    def approve(
        self,
        plan: Plan | Doc | str | Path,
        *,
        params: Doc | None = None,
        expires: Expiry = None,
        reason: str = "",
        context: str = "",
        widens: bool = False,
    ) -> Approval:
        """Approve exactly this plan as this Lead's actor: for one run, with `run(approval=)`.

        Args:
            plan: a plan, a plan document, or a path to one.
            params: the values of its parameters, which are approved too.
            expires: a duration, or an instant; the policy's `approval_s` by default.
            reason: recorded with the approval.
            context: the name of the context the plan runs in.
            widens: whether claims of steps beyond their workers are approved too: only for a
                person who was shown them, as `leadhand review PLAN` shows them.

        Raises:
            PlanInvalid: the plan has errors.
        """
        doc, values, _linted = self.check(plan, params or {})
        now = time.time_ns() // 1000
        if expires is None and self.policy.approval_s is not None:
            expires = self.policy.approval_s
        return approval_of(
            doc,
            values,
            self.registry.catalog(),
            self.policy,
            actor=self.actor,
            now=now,
            expires=ends(expires, now),
            reason=reason,
            key=self.key,
            context=context,
            widens=widens,
        )

    async def review(self, run_id: str) -> ReviewDocument:
        """Return the review of what is pending in run `run_id`, as `leadhand review RUN --json`."""
        from leadhand.core.review.view import ReviewDocument, review_document

        async with self.hosting() as host:
            state = host.load(run_id, self.registry).state
            told = review_document(state, host.time())
            return msgspec.json.decode(msgspec.json.encode(told), type=ReviewDocument)

    async def inbox(self) -> builtins.list[InboxRow]:
        """Return all open questions to people, oldest first, as `leadhand inbox --json`."""
        from leadhand.app.reader import ALL
        from leadhand.core.views.inbox import inbox_row
        from leadhand.engine.fold import fold
        from leadhand.ports import RunQuery

        async with self.hosting() as host:
            rows: list[InboxRow] = []
            for header in host.store.find_runs(RunQuery(waiting=True, limit=ALL)).headers:
                state = fold(host.store.read(header.run))
                rows += [inbox_row(state, ident) for ident in state.questions]
            return sorted(rows, key=lambda row: row.since)

    async def amend(self, run_id: str, sets: Mapping[str, Json], unset: Iterable[str] = ()) -> None:
        """Change steps of run `run_id` that have not started, and fields of its plan, by path.

        `sets` maps paths to new values: `{"steps.a.not_before": "02:00 Europe/Berlin"}`; the paths
        of `unset` are removed. Raise `UsageError` for a step that has started or an unknown path.
        """
        sets = {path: as_plain(value, path) for path, value in sets.items()}
        async with self.hosting() as host:
            run = host.load(run_id, self.registry)

            await run.submit_and_wait(Amendment(sets, tuple(unset), self.actor))

    async def answer(
        self,
        run_id: str,
        question: str,
        choice: str,
        *,
        text: str = "",
        data: Json = None,
        expires: Expiry = None,
        shown: str = "",
    ) -> None:
        """Answer a question or a review of run `run_id` as this Lead's actor; then call `resume`.

        Args:
            question: an id of `Outcome.waiting_for`, RUN/ID, or the ID alone.
            choice: one of the choices of the question; "approve" or "reject" for a review.
            text: a comment, recorded with the answer.
            data: the facts asked for, or the result of a task.
            expires: for an approval: a duration or an instant.
            shown: for an approval: the whole `digest` of `review()` that the person saw. If
                another revision is pending by now, it is not approved; and only with it are
                claims of steps beyond their workers approved. For a protected change it is
                required: the whole `commit` that was shown.

        Raises:
            UsageError: the choice or the data does not fit.
            Conflict: the question is not open, or something else is pending than was shown.
            NotAllowed: the actor may not approve this.
        """
        question = question.removeprefix(f"{run_id}/")
        async with self.hosting() as host:
            run = host.load(run_id, self.registry)
            said = signed_answer(question, choice, self.actor, self.key, text, data, expires, shown)
            await run.submit_and_wait(said)

    async def pause(self, run_id: str, reason: str = "") -> None:
        """Pause run `run_id` for `reason`: no new attempts start. `resume` lifts it."""
        await self.send_command(run_id, "pause", reason=reason)

    async def hold(self, run_id: str, *steps: str, reason: str = "") -> str:
        """Hold `steps` of run `run_id` that have not started, for `reason`.

        Return the question that `release` answers.
        """
        answer = await self.send_command(run_id, "hold", steps=list(steps), reason=reason)
        return str(answer["question"])

    async def release(self, run_id: str, *steps: str, reason: str = "") -> builtins.list[str]:
        """Release held `steps` of run `run_id`, with the steps held together with them.

        `reason` is recorded. Return the released steps: none while more people must release them.
        """
        names, key, told = list(steps), self.key, list[str]()
        if key is None:
            answer = await self.send_command(run_id, "release", steps=names, reason=reason)
            return list(answer["steps"])

        async with self.hosting() as host:
            run = host.load(run_id, self.registry)
            signed = signed_releases(run.state, names, self.actor, host.time(), key)
            told.extend(step for each in signed for step in held_steps(run.state, each))
            details = {"steps": names, "reason": reason, "signed": signed}
            await run.submit_and_wait(Command("release", self.actor, details))
        return told

    async def redo(self, run_id: str, step: str, reason: str) -> None:
        """Retry the failed `step` of run `run_id` for `reason`; then call `resume` if needed."""
        await self.send_command(run_id, "redo", step=step, reason=reason)

    async def cancel(self, run_id: str, reason: str = "") -> None:
        """Cancel run `run_id` for `reason`; attempts in flight are stopped."""
        await self.send_command(run_id, "cancel", reason=reason)

    # --- the agent that drives a run: steps with `worker: caller` -------------------------------

    async def next_step(
        self,
        run_id: str,
        *,
        caller: str,
        lease: str | float | None = None,
        wait_s: float = 0.0,
    ) -> NextStep:
        """Hand the next step with `worker: caller` of run `run_id` out to a caller.

        A caller that has a step gets the same step again. If no process drives the run, this one
        does until nothing more happens without the caller or a person.

        Args:
            caller: the name of the agent, recorded as `agent:NAME`; never that of a person.
            lease: how long it may work before it must report or extend; 15 minutes by default.
            wait_s: how long to wait for a step while other workers are at work, in seconds.

        Raises:
            UsageError: there is no such run, or the name or the lease is not possible.
        """
        from leadhand.app.callers import next_step, request

        return await next_step(partial(request, self, run_id, caller), lease, wait_s)

    async def report_step(  # noqa: PLR0913 - a report has that many parts
        self,
        run_id: str,
        step: str,
        *,
        attempt: int,
        caller: str,
        status: Literal["succeeded", "failed"] = "succeeded",
        data: Json = None,
        error: str = "",
        failure_class: str = "",
        effect: Literal["none", "done", "unknown"] = "unknown",
        recommendations: Iterable[str] = (),
        cost: float = 0.0,
        output: str = "",
    ) -> StepReceipt:
        """Report an attempt of `step` of run `run_id`, which was handed out to a caller.

        The report is judged by the criteria of the step: the receipt says whether they hold. The
        same report again changes nothing.

        Args:
            attempt: the number of the attempt, as handed out.
            caller: the name of the agent, as it asked for the step.
            status: what the agent claims.
            data: the result.
            error: why it failed.
            failure_class: the class of the failure; "unavailable" if empty.
            effect: whether a failed attempt changed anything.
            recommendations: hints for the planner.
            cost: what it cost, counted against the budget.
            output: printed output, for readers of the log.

        Raises:
            UsageError: there is no such run or step, or the report has a wrong form.
            Conflict: the step is not, or no longer, with this caller; nothing was recorded.
        """
        from leadhand.app.callers import report_step, request
        from leadhand.engine.callers import CallerReport

        report = CallerReport(
            status=status,
            data=as_plain(data, "data"),
            error=error,
            failure_class=failure_class,
            effect=effect,
            recommendations=[str(each) for each in recommendations],
            cost=cost,
            output=output,
        )
        ask = partial(request, self, run_id, caller)
        return await report_step(ask, step, attempt, report)

    async def extend_step(
        self,
        run_id: str,
        step: str,
        *,
        attempt: int,
        caller: str,
        lease: str | float | None = None,
        message: str = "",
        fraction: float | None = None,
    ) -> StepLease:
        """Extend the lease of a caller on `step` of run `run_id`: it is still at work.

        Args:
            attempt: the number of the attempt, as handed out.
            caller: the name of the agent, as it asked for the step.
            lease: how long from now; 15 minutes by default, never beyond the step's timeout.
            message: how far it is, shown live and not logged.
            fraction: the completed share, from 0 to 1.

        Raises:
            UsageError: there is no such run or step, or the lease is not possible.
            Conflict: the step is not, or no longer, with this caller.
        """
        from leadhand.app.callers import extend_step, request

        ask = partial(request, self, run_id, caller)
        return await extend_step(ask, step, attempt, lease, message, fraction)

    @property
    def place(self) -> StoreLocation | Store:
        """Where the log of its runs is."""
        return self._store

    @property
    def is_elsewhere(self) -> bool:
        """Whether a service elsewhere hosts its runs."""
        return self._elsewhere is not None

    @property
    def is_open(self) -> bool:
        """Whether its host is open in this process."""
        return self._host is not None

    @property
    def shares_host(self) -> bool:
        """Whether its open host has other users, which keep it open."""
        return self._users > 1

    def hosting_beside(self) -> _Hosting:
        """Return a context manager for the host.

        If another process is the host of the database, this one drives runs beside it.
        """
        return _Hosting(self, beside=True)

    # --- the host: opened by the first verb that needs one, closed after the last ---------------

    def open_on(
        self,
        store: str | StoreLocation | Store,
        max_concurrency: int,
        on_notice: Callable[[str, str, str], None] | None,
        anchoring: Anchoring,
        service: HostingService | None = None,
    ) -> None:
        """Set the store and the host of runs; nothing is opened yet.

        `store`, `max_concurrency`, `on_notice`, `anchoring` and `service` are those of `Lead`.
        """
        self._store = as_place(store)
        self._elsewhere = service
        self._max_concurrency = max_concurrency
        self._on_notice = on_notice or (lambda _kind, _run, _text: None)
        self._anchoring = anchoring
        self._anchorer: Anchorer | None = None
        self._host: Host | None = None
        self._users = 0
        self._opening: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._lock: Lock | None = None
        self._kept: KeptStore | None = None
        self._service: Listening | None = None
        self.beside = False
        """Whether runs are driven beside the host of the database, if there is one."""
        self.presides = False
        """Whether this should be the host: a run's process that is the host steps back when
        asked."""

    def hosting(self) -> _Hosting:
        """Return a context manager for the host: opened once, shared by all its users."""
        return _Hosting(self)

    async def send_command(self, run_id: str, verb: str, **details: Any) -> Doc:
        """Send the command `verb` with `details` to run `run_id`, on any host; return its result.

        It is durable on return.
        """
        place = self._store
        async with self._one_at_a_time():
            is_closed = self._host is None and self._elsewhere is None
        if is_closed and isinstance(place, (Path, StoreAddress)):
            return await commands.send_command(
                _there(place, run_id),
                run_id,
                verb,
                actor=self.actor,
                anchoring=self._anchoring,
                workers=self.registry,
                **details,
            )
        async with self.hosting() as host:
            return await host.send_command(run_id, verb, self.actor, details, self.registry)

    def _one_at_a_time(self) -> asyncio.Lock:
        """Return the lock of the running loop: a Lead may be used in several loops, one by one."""
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        return self._opening[1]

    async def _acquire(self, *, beside: bool = False) -> Host:
        async with self._one_at_a_time():
            if self._host is None:
                self._host = await self._open(beside=beside)
            self._users += 1
            return self._host

    def _private(self) -> builtins.list[Path]:
        """Return the paths hidden from sandboxed workers: the database with its files, and keys."""
        found = [self._anchoring.file, self._anchoring.key, state_folder(os.environ)]
        if isinstance(self._store, (Path, StoreAddress)):
            found += kept_by(home(self._store).resolve())
        return [path for path in found if path is not None]

    async def _open(self, *, beside: bool = False) -> Host:
        place = self._store
        if self._elsewhere is not None:
            return await self._elsewhere.open(place)
        if (self.beside or beside) and isinstance(place, Path):
            return await self._open_beside(place)
        kept: KeptStore | None = None
        if isinstance(place, (Path, StoreAddress)):
            kept, self._lock = await self._owned(place)
            store: Store = kept
        else:
            store = place
        host = EmbeddedHost(
            store,
            machine=LocalMachine(marker(place, store), hidden=self._private),
            max_concurrency=self._max_concurrency,
            on_notice=self._noticed,
        )
        self._equip(host)
        try:
            if kept is not None:
                self._anchor(host, kept)
            await host.open()
            if self._anchorer is not None:
                self._anchorer.open()
            if isinstance(place, (Path, StoreAddress)):
                self._service = service_of(host, place)
                await self._service.open()
        except BaseException:
            await self._close(host)
            raise
        return host

    def _equip(self, host: EmbeddedHost) -> None:
        host.reviewers = dict(self.reviewers)
        host.successor = successor
        host.approvers = self.policy.approvers
        host.guests.lives = is_alive
        host.guests.noticed = self._anchor_soon

    def _anchor(self, host: EmbeddedHost, kept: KeptStore) -> None:
        self._anchorer = Anchorer(kept, self._anchoring, partial(host.notice, "trouble", ""))
        self._anchorer.refuse_cut()
        self._look_with(host, self._anchorer, kept)

    def _look_with(self, host: EmbeddedHost, anchorer: Anchorer, log: KeptStore) -> None:
        """Let the host check chains, anchors and used approvals before anything of a run starts."""
        host.claim_approval = UsedApprovals(log.database_id).claim
        host.refuse_altered = anchorer.refuse_altered
        host.not_before = anchorer.latest()

    async def _owned(self, place: StoreLocation) -> tuple[KeptStore, Lock]:
        """Open the database for this process alone; a run's process that hosts it steps back."""
        until = time.monotonic() + STEP_BACK_S
        while True:
            try:
                return open_store(place)
            except Conflict as error:
                late = not self.presides or time.monotonic() > until or HOSTED not in str(error)
                if late or not await commands.step_back(place):
                    raise self._named(error) from None
            await asyncio.sleep(LOOK_S)

    def _named(self, error: Conflict) -> Conflict:
        """Return the error with a fix, if another process is the host."""
        if HOSTED not in str(error):
            return error
        if self.presides:
            return Conflict(
                f"{error}. Fix: use that one, or end it first with Ctrl-C where it runs"
            )
        return Conflict(
            f"{error}. Fix: start it with `leadhand run`, which drives it beside that host; or run "
            "all plans in one program"
        )

    async def _open_beside(self, place: Path) -> EmbeddedHost:
        """Open the host of a run's own process: a guest of the host of the database."""
        made = not there(place)
        if made:  # a new database must be created first
            kept, lock = open_store(place)
            await kept.close()
            lock.release()
        reading = open_reader(place)
        own = this_process()
        ways = DatabaseAccess(
            connect=partial(joining, place),
            inherit=partial(self._inherit, place),
            step_back=self._step_back,
        )
        store = SharedStore(reading, artifacts_of(place).put)
        machine = LocalMachine(marker(place, store), own, hidden=self._private)
        more = {"max_concurrency": self._max_concurrency, "on_notice": self._noticed}
        guest = Guest(store, ways, own, machine=machine, **more)
        self._equip(guest)
        tell, log = partial(guest.notice, "trouble", ""), cast("KeptStore", reading)
        try:
            # It only checks the anchors; the host writes them.
            self._look_with(guest, Anchorer(log, self._anchoring, tell), log)
            await guest.open()
        except BaseException:
            await self._close(guest)
            raise
        return guest

    async def _inherit(self, place: Path, guest: Guest) -> bool:
        """Make a guest the host; return False if another process is."""
        try:
            kept, lock = open_store(place)
        except Conflict as error:
            if HOSTED in str(error):
                return False
            raise
        self._lock, self._kept = lock, kept
        try:
            await LocalMachine(marker(place, kept)).clear()
            self._anchor(guest, kept)
            await guest.preside(kept)
        except BaseException:
            await kept.close()
            self._lock = None
            lock.release()
            raise
        assert self._anchorer is not None
        self._anchorer.open()
        self._service = service_of(guest, place)
        await self._service.open()
        return True

    async def _step_back(self) -> None:
        """Release the database, so that another process becomes its host."""
        service, anchorer, lock = self._service, self._anchorer, self._lock
        kept, self._kept = self._kept, None
        self._service = self._anchorer = self._lock = None
        try:
            if service is not None:
                await service.close()
            if kept is not None:
                await kept.close()
            if anchorer is not None:
                await anchorer.close()
        finally:
            if lock is not None:
                lock.release()

    def _anchor_soon(self, kind: str, _run: str) -> None:
        if self._anchorer is not None and kind in ANCHORED:
            self._anchorer.soon()

    def _noticed(self, kind: str, run: str, text: str) -> None:
        self._anchor_soon(kind, run)
        self._on_notice(kind, run, text)

    async def _release(self) -> None:
        async with self._one_at_a_time():
            self._users -= 1
            if not self._users and self._host is not None:
                host, self._host = self._host, None
                await self._close(host)

    async def _close(self, host: Host) -> None:
        try:
            if self._service is not None:
                await self._service.close()
            await host.close()
            if self._anchorer is not None:
                await self._anchorer.close()
        finally:
            if self._lock is not None:
                self._lock.release()
            self._service = self._lock = self._anchorer = self._kept = None


def _said(decision: Decision) -> str:
    match decision:
        case GiveUp():
            return decision.reason
        case Ask():
            return decision.question
        case _:
            return str(decision)
