"""The server's checks for `leadhand doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leadhand.cli.commands.doctor import DoctorCheck
from leadhand.server import npm_assets

if TYPE_CHECKING:
    from leadhand.settings import Settings


def checks(_settings: Settings, *, fix: bool) -> Iterator[DoctorCheck]:
    """Check that the third-party files of the page are present; with `fix`, fetch them."""
    said: list[str] = []
    if npm_assets.fetch_if_possible(said.append) if fix else npm_assets.ready():
        yield DoctorCheck("dashboard", "all files present")
        return
    problem = said[0] if said else "third-party files were not fetched at build time"
    yield DoctorCheck(
        "dashboard",
        "not available",
        problem,
        "Install npm, then: leadhand doctor --fix" if fix else "leadhand doctor --fix",
        warning=True,
    )
