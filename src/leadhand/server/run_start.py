"""From a request body to a run, or to the draft of its plan."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.app.composition import planner_problem
from leadhand.app.contexts import in_context
from leadhand.app.documents import resume_command
from leadhand.app.rerun import check_rerun, prepare_rerun, start_rerun
from leadhand.app.run_limits import limits_doc
from leadhand.core.lint.plan import lint
from leadhand.core.plan.model import Goal
from leadhand.core.plan.parameters import bind_params
from leadhand.core.review.ruling import reach, ruling
from leadhand.core.state.model import State
from leadhand.core.wording import listed
from leadhand.engine.library_store import find
from leadhand.errors import Conflict, NotAllowed, PlanInvalid, UsageError
from leadhand.server.bodies import apart
from leadhand.server.documents import Decision, DraftDocument, DraftReach
from leadhand.server.problems import finding_document
from leadhand.server.request_forms import plan_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.app.lead import Lead
    from leadhand.core.lint.plan import Planners
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.core.rerun import Rerun
    from leadhand.ports import RunHandle
    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader
    from leadhand.server.idempotency import Keyed
    from leadhand.server.request_forms import RerunForm, StartForm
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry


DECISIONS: dict[int, Decision] = {0: "let through", 1: "one person", 2: "two people"}


class PreparedRun(NamedTuple):
    """A run that is ready to start, and its Lead."""

    lead: Lead
    what: Goal | Doc
    params: Doc
    origin: Doc
    policy: Policy
    planners: Planners | None = None
    """Tells why a planner named by the plan cannot be used by this server."""


async def prepared(app_state: AppState, form: StartForm, actor: str) -> PreparedRun:
    """Prepare everything that a start needs. Raise `UsageError` if something does not fit."""
    given = [form.goal, form.plan, form.library]
    if sum(each is not None for each in given) != 1:
        raise UsageError("give exactly one of `goal`, `plan` and `library`")
    saved = None
    if form.library is not None:
        name = form.library
        saved = await app_state.cached_readers.read(lambda desk: find(desk.store, name))

    def make() -> PreparedRun:
        return _prepared(app_state, form, actor, saved)

    return await apart(make)


def _prepared(app_state: AppState, form: StartForm, actor: str, saved: Any) -> PreparedRun:
    supervisor = app_state.supervisor
    settings, registry = supervisor.place(form.context or "")
    place = settings.context
    policy = settings.policy
    if form.review:
        policy = msgspec.structs.replace(policy, review=True)
    if form.budget is not None:
        least = form.budget if policy.budget is None else min(policy.budget, form.budget)
        policy = msgspec.structs.replace(policy, budget=least)
    origin: Doc = {"context": place.name} if place is not None else {}
    if form.goal is not None:
        if form.params:
            raise UsageError("`params` is for plans; a goal takes its inputs in `have`")
        said = form.goal.model_dump(exclude_defaults=True)
        have = {**(place.params if place else {}), **said.pop("have", {})}
        goal = Goal(have=have, **said)
        planner = supervisor.planner_named(form.planner, settings)
        lead = supervisor.lead_for(actor, planner, policy, registry, settings)
        return PreparedRun(lead, goal, {}, origin, policy)
    if form.planner:
        raise UsageError("`planner` is for goals; a plan runs as written")
    doc: Doc = saved.document if saved is not None else plan_document(form.plan or {})
    if saved is not None:
        origin["library"] = saved.label
    if place is not None:
        doc, found = in_context(settings, doc, registry.catalog())
        origin |= found
    params = {**_declared(doc, place.params if place else {}), **form.params}
    problem = partial(planner_problem, settings=settings, served=True)
    named = doc.get("planner")
    usable = isinstance(named, str) and problem(named) is None
    planner = str(named) if usable else ""
    lead = supervisor.lead_for(actor, planner, policy, registry, settings)
    return PreparedRun(lead, doc, params, origin, policy, problem)


def _declared(doc: Doc, values: Mapping[str, Any]) -> Doc:
    declared = doc.get("params")
    names = declared if isinstance(declared, dict) else {}
    return {name: value for name, value in values.items() if name in names}


async def start(app_state: AppState, form: StartForm, actor: str, key: Keyed | None) -> RunHandle:
    """Start a run; durable on return."""
    await _refuse_start(app_state)
    ready = await prepared(app_state, form, actor)
    checked = None
    if not isinstance(ready.what, Goal):
        what, params = ready.what, ready.params
        _refuse_planner(what.get("planner"), ready.planners)
        checked = await apart(ready.lead.check, what, params)
    origin = {**ready.origin, **({"request": key.digest} if key is not None else {})}
    try:
        return await ready.lead.begin(
            app_state.host,
            ready.what,
            params=ready.params,
            run_id=key.run_id if key is not None else "",
            sources=app_state.settings.workers,
            origin=origin,
            checked=checked,
            labels=form.labels,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


async def _refuse_start(app_state: AppState) -> None:
    """Raise if no run may start; load workers whose files have changed."""
    host = app_state.host
    if (shared := await app_state.supervisor.shared()).stopped:
        raise NotAllowed(
            f"all runs of this database were stopped by {shared.stopped_by}. "
            "Fix: lift it with DELETE /api/v1/stop-all"
        )
    if host.draining or host.failed is not None:
        raise Conflict("the server is shutting down. Fix: retry after its restart")
    await app_state.supervisor.reload()


async def rerun(
    app_state: AppState, run: str, form: RerunForm, actor: str, key: Keyed | None
) -> RunHandle:
    """Start a re-run of a run; durable on return."""
    await _refuse_start(app_state)

    def look(desk: CachedReader) -> tuple[State, Rerun]:
        desk.header(run)
        return prepare_rerun(desk.store, run, form.from_step or "")

    state, found = await app_state.cached_readers.read(look)
    lead = await apart(_rerun_lead, app_state, state, found, actor)
    checked = await apart(check_rerun, lead, found)
    return await start_rerun(
        lead,
        app_state.host,
        found,
        run_id=key.run_id if key is not None else "",
        sources=app_state.settings.workers,
        origin={"request": key.digest} if key is not None else {},
        labels=form.labels,
        checked=checked,
    )


def _rerun_lead(app_state: AppState, state: State, found: Rerun, actor: str) -> Lead:
    """Return a Lead with the workers, the planner and the context of the run."""
    supervisor, started = app_state.supervisor, state.started
    settings, registry = supervisor.place(str(found.origin.get("context") or ""))
    assert started is not None
    if isinstance(found.what, Goal):
        known = "goal" if started.planner == "goal" else None
        planner = supervisor.planner_named(started.planner_source or known, settings)
    else:
        _refuse_missing(found.what, registry, state, settings)
        problem = partial(planner_problem, settings=settings, served=True)
        planner = str(found.what.get("planner") or "")
        _refuse_planner(planner or None, problem)
    return supervisor.lead_for(actor, planner, settings.policy, registry, settings)


def _refuse_missing(doc: Doc, registry: Registry, state: State, settings: Settings) -> None:
    """Raise `UsageError` if a plan needs workers that this server does not have."""
    named = {str(step.get("worker", "")) for step in doc["steps"]}
    missing = sorted(name for name in named if registry.get(name) is None)
    if not missing:
        return
    own = state.process
    way = resume_command(state.run, own, settings.store, "rerun") if own else ""
    fix = way or "name them in [project] workers of leadhand.toml"
    raise UsageError(
        f"run {state.run} needs workers that this server does not have: {listed(missing)}. "
        f"Fix: {fix}"
    )


def _refuse_planner(name: Any, planners: Planners | None) -> None:
    """Raise `UsageError` if a plan names a planner that this server does not offer."""
    wrong = planners(name) if planners is not None and isinstance(name, str) else None
    if wrong is not None:
        raise UsageError(f"{wrong[0]}. Fix: {wrong[1]}")


async def draft(app_state: AppState, form: StartForm, actor: str) -> DraftDocument:
    """Return the plan that would run, its findings, its reach, and the required approvals."""
    ready = await prepared(app_state, form, actor)
    lead, what = ready.lead, ready.what
    findings: list[Any] = []
    if isinstance(what, Goal):
        try:
            doc = (await lead.plan(what)).to_doc()
        except PlanInvalid as error:
            return _refused({}, list(error.findings))
    else:
        doc = what
        pools, params = ready.policy.resources, ready.params or None
        catalog = lead.registry.catalog()

        def look() -> list[Any]:
            planners = ready.planners
            return lint(doc, catalog, params=params, resources=pools, planners=planners)

        findings = await apart(look)
    if any(each.level == "error" for each in findings):
        return _refused(doc, findings)
    return _judged(lead, doc, ready, findings)


def _refused(doc: Doc, findings: list[Any]) -> DraftDocument:
    wrong = sum(getattr(each, "level", "error") == "error" for each in findings)
    return DraftDocument(
        plan=doc,
        findings=[finding_document(each) for each in findings],
        reach=None,
        decision="refused",
        reason=f"{wrong} error{'s' if wrong != 1 else ''}",
        limits=None,
    )


def _judged(lead: Lead, doc: Doc, ready: PreparedRun, findings: list[Any]) -> DraftDocument:
    catalog = lead.registry.catalog()
    state = State()
    state.policy, state.catalog = ready.policy, catalog
    state.params, _ = bind_params(doc.get("params", {}), ready.params)
    wanted = reach(doc.get("steps", ()), catalog, doc.get("risk_level"))
    found = ruling(state, wanted, None)
    reached = wanted.to_doc()
    return DraftDocument(
        plan=doc,
        findings=[finding_document(each) for each in findings],
        reach=DraftReach(
            workers=reached["workers"],
            effects=reached["effects"],
            writes=reached["scope"],
            risk=wanted.declared,
            policy_risk=reached["risk"],
            cost=wanted.cost,
        ),
        decision="refused" if found.refused else DECISIONS.get(found.people, "two people"),
        reason=found.reason,
        limits=limits_doc(_policy(lead, ready)),
    )


def _policy(lead: Lead, ready: PreparedRun) -> Policy:
    if isinstance(ready.what, Goal) or ready.what.get("planner"):
        return lead.policy_for(ready.what)
    return ready.policy
