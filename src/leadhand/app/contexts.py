"""A plan, or a choice of workers, in one context: `[context.NAME]` of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leadhand.app.composition import registry_of
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.core.catalog import Catalog
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings
    from leadhand.settings.contexts import ContextSettings
    from leadhand.workers.registry import Registry


class LocatedPlan(NamedTuple):
    """A plan, and its origin."""

    doc: Doc
    origin: Doc
    """The origin that a run of it records: `library: deploy@3`."""


def in_context(settings: Settings, doc: Doc, catalog: Catalog) -> LocatedPlan:
    """Return a plan in the chosen context, and the origin that a run of it records."""
    from leadhand.core.plan.rename_workers import rename_workers, workers_of

    context = settings.context
    if context is None:
        return LocatedPlan(doc, {})
    used = workers_of(doc)
    names = {name: other for name, other in context.workers.items() if name in used}
    _refuse_unknown(context, names, catalog)
    bound = {"bound": names} if names else {}
    return LocatedPlan(rename_workers(doc, names), {"context": context.name, **bound})


def goal_registry(settings: Settings, sources: Iterable[str] | None = None) -> Registry:
    """Return the workers a planner may choose from: workers bound to others are left out."""
    registry = registry_of(settings, sources)
    if settings.context is not None:
        names = settings.context.workers
        known = registry.catalog()
        mine = {name: other for name, other in names.items() if name in known.workers}
        _refuse_unknown(settings.context, mine, known)
        registry.leave_out(set(mine) - set(mine.values()))
    return registry


def _refuse_unknown(context: ContextSettings, names: Mapping[str, str], catalog: Catalog) -> None:
    from leadhand.core.wording import closest, listed, shown

    for name, other in names.items():
        if catalog.workers and other not in catalog.workers:
            meant = closest(other, catalog.workers)
            there = f'did you mean "{meant}"?' if meant else f"there are: {listed(catalog.workers)}"
            raise UsageError(
                f"context {context.name} binds worker {shown(name)} to {shown(other)}, "
                f"and no such worker is registered; {there}"
            )
