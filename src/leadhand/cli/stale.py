"""Whether a plan still fits the workers it was made for, and what changed if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.catalog import Catalog, WorkerSpec
from leadhand.core.events import RunStarted
from leadhand.errors import Conflict
from leadhand.stores.location import there

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings

RUNS_LOOKED_AT = 20


def refuse_stale(doc: Doc, catalog: Catalog, settings: Settings) -> None:
    """Conflict when the plan's `base` is not the digest of these workers."""
    base = doc.get("base")
    if not base or base == catalog.digest():
        return
    known = _known(base, settings)
    if known is None:
        now = ", ".join(f"{s.name} {s.version[:12]}" for s in catalog.workers.values()) or "none"
        changed = f"No run here was made with those workers, so only today's are known: {now}."
    else:
        changed = "; ".join(differences(known, catalog)) + "."
    raise Conflict(
        f"the plan is stale: its workers have changed since it was made. {changed} "
        f"Fix: look at it again, then set base to {catalog.digest()} or leave it out."
    )


def differences(old: Catalog, new: Catalog) -> list[str]:
    """What changed from one set of workers to another, in words."""
    found = [f"{name} is gone" for name in sorted(old.workers.keys() - new.workers.keys())]
    found += [f"{name} is new" for name in sorted(new.workers.keys() - old.workers.keys())]
    for name in sorted(old.workers.keys() & new.workers.keys()):
        found += _changed(old.workers[name], new.workers[name])
    return found


def _changed(old: WorkerSpec, new: WorkerSpec) -> list[str]:
    if old == new:
        return []
    if old.version != new.version:
        return [f"{old.name} changed from version {old.version[:12]} to {new.version[:12]}"]
    return [f"{old.name} declares something else under the same version"]


def _known(base: str, settings: Settings) -> Catalog | None:
    """The workers a digest stands for, if one of the latest runs was started with them."""
    if not there(settings.store):
        return None
    from leadhand.app.reader import Reader

    reader = Reader(settings.store)
    for header in reversed(reader.runs()[-RUNS_LOOKED_AT:]):
        entries = reader.events(header.run)[:1]
        event = entries[0][1] if entries else None
        if isinstance(event, RunStarted):
            catalog = Catalog(event.catalog)
            if catalog.digest() == base:
                return catalog
    return None
