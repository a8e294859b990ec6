"""The server's checks for `leadhand doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from leadhand.cli.commands.doctor import DoctorCheck
from leadhand.server import npm_assets
from leadhand.server.settings import server_of

if TYPE_CHECKING:
    from leadhand.settings import Settings


def checks(settings: Settings, *, fix: bool) -> Iterator[DoctorCheck]:
    """Check the files of the page (with `fix`, fetch them) and the channels of people."""
    yield from _channels(settings)
    yield from _address(settings)
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


def _address(settings: Settings) -> Iterator[DoctorCheck]:
    """Check that links to this machine lead to the port that the server listens on.

    Another host is that of a proxy in front of the server, whose port is its own.
    """
    server = server_of(settings)
    parts = urlsplit(server.address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if parts.hostname in ("localhost", "127.0.0.1", "::1") and port != server.port:
        yield DoctorCheck(
            "address",
            server.address,
            f"links lead to port {port}, and leadhand serve listens on {server.port}",
            "Give [server] address and [server] port the same port, unless serve gets --port.",
            warning=True,
        )


def _channels(settings: Settings) -> Iterator[DoctorCheck]:
    """Check that people with an address of their own can get signed links there."""
    server, set_up = server_of(settings), settings.notify.channels
    own = {name: each.addresses for name, each in server.people.items() if each.addresses}
    for name, addresses in own.items():
        missing = [channel for channel in addresses if channel not in set_up]
        if missing:
            problem = f"{name} has an address for {', '.join(missing)}, which is not set up"
            yield DoctorCheck("people", name, problem, f"Set [notify.{missing[0]}].", warning=True)
    if own and not server.address:
        yield DoctorCheck(
            "people",
            "no signed links",
            "[server] address is not set, so no message with a link is sent",
            'Set [server] address = "https://…", as people reach the server.',
            warning=True,
        )
    elif own:
        yield DoctorCheck("people", f"{len(own)} with signed links at {server.address}")
