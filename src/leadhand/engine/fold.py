"""From a log to a state: what every host and every reader begins with."""

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
def collector_resting() -> Iterator[None]:
    """Reading and folding a log makes many objects and no cycles: looking for some is waste."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def fold(entries: Sequence[Entry]) -> State:
    """The state a log amounts to."""
    state = State()
    with collector_resting():
        events = decode_all([(entry.version, entry.body) for entry in entries])
        evolve_all(state, zip([entry.at for entry in entries], events, strict=True))
    return state


class NoWorkers:
    """For runs that are only spoken to."""

    def get(self, _name: str) -> None:
        """There is nobody."""

    def catalog(self) -> Catalog:
        """Nobody offers anything."""
        return Catalog()
