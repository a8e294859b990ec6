"""The agents of a fleet as workers, each with the one behind it.

    coder ─► coder@fresh ─► coder@strong ─► …

The first one stands twice: `coder@fresh` is the same agent for a conversation that begins anew, so
that what one conversation cannot get right is not at once a matter for a dearer model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.errors import UsageError
from leadhand.fleet.status.ladder import CODER
from leadhand.fleet.worker import CoderWorker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.fleet.agents.base import Coder
    from leadhand.fleet.context import AttemptLimits, FleetContext


FRESH = f"{CODER}@fresh"

Made = tuple[str, "Coder", str]


def crew(shop: FleetContext, made: Iterable[Made], limits: AttemptLimits) -> list[CoderWorker]:
    """Workers from agents: a name (`coder`, `coder@strong`), the coder, its model."""
    given = list(made)
    names = [name for name, _coder, _model in given]
    if CODER not in names:
        raise UsageError(f"a fleet needs a coder that is called {CODER!r}")
    if FRESH not in names:
        at = names.index(CODER)
        given.insert(at + 1, (FRESH, *given[at][1:]))
        names.insert(at + 1, FRESH)
    behind = dict(zip(names, [*names[1:], ""], strict=True))
    return [
        CoderWorker(shop, coder, name=name, model=model, limits=limits, stronger=behind[name])
        for name, coder, model in given
    ]


def tiers_of(workers: Sequence[CoderWorker]) -> tuple[str, ...]:
    """What a task may ask for besides the first one."""
    names = [worker.spec.name for worker in workers]
    return tuple(name.partition("@")[2] for name in names if name not in (CODER, FRESH))
