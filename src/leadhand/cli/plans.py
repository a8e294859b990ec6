"""Where a plan comes from: a file, standard input, or the library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand.cli.options import read_plan, reading, registry_of
from leadhand.cli.text import clean
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.cli.console import Console
    from leadhand.core.catalog import Catalog
    from leadhand.core.library import Saved
    from leadhand.core.plan import Doc
    from leadhand.settings import Settings
    from leadhand.settings.contexts import Context
    from leadhand.workers.registry import Registry

PLAN_ENDINGS = (".json", ".yaml", ".yml")


class Found(NamedTuple):
    """A plan, and where it was found."""

    doc: Doc
    origin: Doc
    """What a run of it records: `library: deploy@3`."""


def is_plan(what: str) -> bool:
    """Whether a word names a file; one that should be there and is not is one too."""
    if what == "-" or what.lower().endswith(PLAN_ENDINGS):
        return True
    try:
        return Path(what).exists() or what.startswith((f".{os.sep}", os.sep))
    except OSError:  # too long for a file's name: a goal
        return False


def find_plan(console: Console, settings: Settings, source: str) -> Found:
    """The plan a file holds, or the library under a name: a file is tried first."""
    saved = None if is_plan(source) else in_library(settings, source)
    if saved is None:
        return Found(read_plan(source), {})
    console.say(f"{saved.label} from the library, saved by {clean(saved.actor, 60)}")
    return Found(saved.document, {"library": saved.label})


def in_library(settings: Settings, source: str) -> Saved | None:
    """The plan of the library that a word names; None when there is no such name."""
    from leadhand.core.library import find, spoken

    said = spoken(source)
    if said is None or not settings.store.exists():
        return None
    with reading(settings) as reader:
        state = reader.library()
    return find(state, source) if said[0] in state.plans else None


def in_context(settings: Settings, doc: Doc, catalog: Catalog) -> Found:
    """A plan as it is in the chosen place, and what a run of it records of that."""
    from leadhand.core.binding import bind_workers, workers_of

    context = settings.context
    if context is None:
        return Found(doc, {})
    used = workers_of(doc)
    names = {name: other for name, other in context.workers.items() if name in used}
    _refuse_unknown(context, names, catalog)
    bound = {"bound": names} if names else {}
    return Found(bind_workers(doc, names), {"context": context.name, **bound})


def goal_registry(settings: Settings, sources: Iterable[str] | None = None) -> Registry:
    """The workers a planner may choose from: those that are bound to others stand back."""
    registry = registry_of(settings, sources)
    if settings.context is not None:
        names = settings.context.workers
        known = registry.catalog()
        mine = {name: other for name, other in names.items() if name in known.workers}
        _refuse_unknown(settings.context, mine, known)
        registry.leave_out(set(mine) - set(mine.values()))
    return registry


def _refuse_unknown(context: Context, names: Mapping[str, str], catalog: Catalog) -> None:
    from leadhand.core.wording import closest, listed, shown

    for name, other in names.items():
        if catalog.workers and other not in catalog.workers:
            meant = closest(other, catalog.workers)
            there = f'did you mean "{meant}"?' if meant else f"there are: {listed(catalog.workers)}"
            raise UsageError(
                f"context {context.name} binds worker {shown(name)} to {shown(other)}, "
                f"and no such worker is registered; {there}"
            )


def library_names(settings: Settings) -> set[str]:
    """The names of all plans in the library."""
    if not settings.store.exists():
        return set()
    with reading(settings) as reader:
        return set(reader.library().plans)
