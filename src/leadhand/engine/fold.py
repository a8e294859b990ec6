"""From a log to a state, for every host and every reader."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leadhand.codec.events import decode_all
from leadhand.core.catalog import Catalog
from leadhand.core.state.evolve import evolve_all
from leadhand.core.state.model import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leadhand.ports import Entry


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector: folding a log makes many objects and no cycles."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def fold(entries: Sequence[Entry]) -> State:
    """Return the state of a run from its log."""
    state = State()
    with gc_paused():
        events = decode_all([(entry.version, entry.body) for entry in entries])
        evolve_all(state, zip([entry.at for entry in entries], events, strict=True))
    return state


class NoWorkers:
    """An empty set of workers, for runs that are not driven here."""

    def get(self, _name: str) -> None:
        """Return None: there are no workers."""

    def catalog(self) -> Catalog:
        """Return an empty catalog."""
        return Catalog()
