"""Databases of products: runs of their own, beside those of the project.

The entry-point group `leadhand.runs` names them by how their runs' names begin: the entry `epic` is
the log of all runs that are called `epic-…`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand import plugins
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.settings import Settings

GROUP = "runs"


class ProductLog(NamedTuple):
    """The log of a product's own runs."""

    store: Callable[[Settings], Path | None]
    """Where it is in a project; None when there is none, or another database was asked for."""
    kind: str
    """What its runs are called: `epic`."""
    shown_by: str
    """The command that lists its runs."""
    resumed_by: str
    """The command that goes on with its runs."""


def log_of_run(run: str) -> ProductLog | None:
    """Return the log that a run with this name belongs to; None for a run of the project."""
    for name, part in plugins.parts(GROUP).items():
        if run.startswith(f"{name}-"):
            return _log(part)
    return None


def product_logs() -> list[ProductLog]:
    """Return the logs of all installed products."""
    return [_log(part) for part in plugins.parts(GROUP).values()]


def _log(part: plugins.Part) -> ProductLog:
    found = part.load()
    if not isinstance(found, ProductLog):
        raise UsageError(
            f"{part.module}:{part.attribute} of the package {part.package} is no ProductLog. "
            f"Fix: install {part.package} again, or remove it"
        )
    return found
