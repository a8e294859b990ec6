"""Databases of products: runs of their own, beside those of the project.

The entry-point group `leadhand.runs` names them by the prefix of their runs: the entry `epic` is
the log of all runs named `epic-…`.
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
    """Its path in a project; None if there is none, or another database was chosen."""
    kind: str
    """The kind of its runs: `epic`."""
    shown_by: str
    """The command that lists its runs."""
    resumed_by: str
    """The command that resumes its runs."""


def log_of_run(run: str) -> ProductLog | None:
    """Return the log of a product that a run of this name belongs to; None for the project's."""
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
