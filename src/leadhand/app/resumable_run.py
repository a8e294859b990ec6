"""Resuming a run: its workers and its planner, found again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leadhand.app.composition import planner_of, registry_of, same_planner
from leadhand.errors import NotTrusted, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadhand.core.catalog import Method
    from leadhand.core.state.model import State
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """A run with everything needed to resume it."""

    settings: Settings
    run: str
    registry: Registry
    planner: Any
    named: str
    """The planner that its plan names; "" if it may not be revised, or has no document."""
    seq: int
    """The end of its log."""


def load_resumable(
    settings: Settings,
    state: State,
    workers: tuple[str, ...] = (),
    planner: str = "",
    *,
    shared: Registry | None = None,
) -> ResumableRun:
    """Find the workers and the planner of a run. Raise `UsageError`, which names what is missing.

    `shared` is used if it has all workers of the run, so that many runs load nothing twice.
    """
    started, ident = state.started, state.run
    if started is None:
        raise UsageError(f"run {ident} has no beginning")
    if shared is not None and all(shared.get(name) is not None for name in workers_needed(state)):
        registry, trouble = shared, list[str]()
    else:
        registry, trouble = _registry(settings, workers, started.workers)
    missing = sorted(name for name in workers_needed(state) if registry.get(name) is None)
    if missing:
        because = f" ({'; '.join(trouble)})" if trouble else ""
        raise UsageError(
            f"run {ident} needs workers that are not loaded: {', '.join(missing)}{because}. "
            "Fix: give --workers MODULE, or name them in [project] workers of leadhand.toml."
        )
    found = planner_from_log(settings, state, planner, registry.methods)
    named = str(started.plan.get("planner") or "")
    return ResumableRun(settings, ident, registry, found, named, state.seq)


def workers_of(settings: Settings, state: State) -> Registry:
    """Return the workers that a run would continue with, as they are now."""
    return _registry(settings, (), state.started.workers if state.started else ())[0]


def _registry(
    settings: Settings, workers: tuple[str, ...], recorded: tuple[str, ...]
) -> tuple[Registry, list[str]]:
    """Return the given workers, else those from the run's sources and from the settings."""
    if workers:
        return registry_of(settings, workers), []
    bare = replace(settings, declared={}, folders={})
    here, trouble = registry_of(settings), list[str]()
    sources: list[str] = []
    for source in dict.fromkeys(recorded):
        if source in settings.workers:
            continue
        try:
            names = registry_of(bare, [source]).catalog().workers
        except (UsageError, NotTrusted) as error:
            trouble.append(
                str(error).partition(" Fix: ")[0]
            )  # it matters only if a worker is missing in the end
            continue
        # A copied project has all sources of its own; otherwise the rest is where the run began.
        if not all(here.get(name) is not None for name in names):
            sources.append(source)
    return registry_of(settings, [*sources, *settings.workers]) if sources else here, trouble


def workers_needed(state: State) -> set[str]:
    """Return the workers that steps which have not ended may use."""
    from leadhand.core.catalog import able_workers
    from leadhand.core.state.model import SETTLED

    names: set[str] = set()
    for step in state.steps.values():
        if step.status not in SETTLED:
            names.update((step.worker, *able_workers(step.doc, state.catalog.workers)))
    for doc in state.pending.add if state.pending else ():
        names.add(str(doc.get("worker", "")))
    return names


def planner_from_log(
    settings: Settings, state: State, name: str = "", methods: Sequence[Method] = ()
) -> Any:
    """Return the planner of a run, found again from its log.

    `name` is the requested planner; a plan that names its planner is revised by no other.
    """
    from leadhand.app.planner_choice import as_planner, resumed_planner
    from leadhand.planners.direct import DirectPlanner
    from leadhand.planners.document import DocumentPlanner

    assert state.started is not None
    for kind in (DocumentPlanner, DirectPlanner):
        if state.started.planner == kind.name:
            return kind()
    named = state.started.plan.get("planner")
    if name and named and not same_planner(name, named):
        raise UsageError(
            f"the plan of run {state.run} names its planner, {named}, and --planner says {name}. "
            "Fix: leave --planner out."
        )
    known = "goal" if state.started.planner == "goal" else ""
    name = name or state.started.planner_source or known or settings.planner
    if not name:
        raise UsageError(
            f"run {state.run} was planned by {state.started.planner}, which is not loaded. "
            "Fix: give --planner MODULE:FUNCTION."
        )
    found = as_planner(planner_of(name, settings), methods, settings.book)
    return resumed_planner(state.started.planner, found, methods)
