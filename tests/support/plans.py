"""Steps of plans, as documents."""

from collections.abc import Sequence
from typing import Any


def step(ident: str = "a", *after: str, worker: str = "w", **more: Any) -> dict[str, Any]:
    """Return a step: its id, the steps it waits for, its worker, and further fields."""
    doc = {"id": ident, "worker": worker, **more}
    return doc | ({"depends_on": list(after)} if after else {})


def call(ident: str, worker: str, after: Sequence[str] = (), **parameters: Any) -> dict[str, Any]:
    """Return a step that calls a worker with these parameters."""
    return step(ident, *after, worker=worker, parameters=parameters)
