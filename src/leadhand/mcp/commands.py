"""`leadhand mcp`: Leadhand as an MCP server, and the tools of other MCP servers."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.commands.mcp import login, logout, tools
from leadhand.cli.console import Console
from leadhand.cli.group import CommandGroup, command
from leadhand.cli.options import TRUST, actor_of, settings_of, store_option, workers_option
from leadhand.errors import UsageError
from leadhand.settings.folders import make_store_folder

if TYPE_CHECKING:
    from leadhand.settings import Settings

PORT = 8788


@click.group(
    "mcp",
    cls=CommandGroup,
    examples=(
        "leadhand mcp serve",
        "leadhand mcp tools files --pin",
        "leadhand mcp login tickets",
    ),
    epilog="Every command of this group takes --json.",
)
def mcp() -> None:
    """Serve Leadhand to agents over MCP; use tools of MCP servers."""


@command("serve", "leadhand mcp serve\nleadhand mcp serve --http --port 8788")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="With --http: the port to listen on; 0 takes a free one.",
)
@click.option(
    "--bind",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="With --http: the address to listen on.",
)
@click.option(
    "--tls-cert",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --http: the TLS certificate, a PEM file.",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --http: the private key of the certificate, a PEM file.",
)
@click.option(
    "--insecure-bind",
    is_flag=True,
    help="With --http: listen on other addresses without TLS; tokens can then be read.",
)
@workers_option
@store_option
def serve(console: Console, store: str | None, workers: tuple[str, ...], **options: Any) -> int:
    """Serve the project of this folder to agents.

    Over standard input and output, the client starts this command. Over HTTP, a client needs
    the token of an account: `leadhand serve token add` makes one. The agent can propose plans,
    start and follow runs, and answer what the policy lets an agent answer. Runs go on in
    processes of their own when the client or this server ends.
    """
    service = _loaded(over_http=options["http"])
    if bool(options["tls_cert"]) != bool(options["tls_key"]):
        raise UsageError("--tls-cert and --tls-key must be given together")
    settings = settings_of(store, workers, executes=console)
    trusted = bool(click.get_current_context().meta.get(TRUST))
    flags = {"project.store": store, "project.workers": list(workers)}
    place = service.Workplace(flags, trusted=trusted)
    if not options["http"]:
        service.serve_stdio(console.data, place)
        return 0
    from leadhand.server.service import Serve

    make_store_folder(settings.store)
    wanted = Serve(
        settings=settings,
        actor=actor_of(settings),
        bind=options["bind"],
        port=options["port"],
        cert=options["tls_cert"],
        key=options["tls_key"],
        insecure=options["insecure_bind"],
    )
    asyncio.run(service.serve_http(place, wanted, lambda url: _say_hello(console, settings, url)))
    return 0


def _say_hello(console: Console, settings: Settings, url: str) -> None:
    from leadhand.server.accounts import token_file

    if console.json:
        console.document({"url": url, "token_file": str(token_file(settings.store))})
        return
    console.out(url)
    console.say(f"clients need a token: that of the owner is in {token_file(settings.store)}")


def _loaded(*, over_http: bool) -> Any:
    try:
        from leadhand.mcp import service

        if over_http:
            importlib.import_module("leadhand.mcp.http")
            importlib.import_module("leadhand.server.service")
    except ImportError as error:
        extra = "mcp,server" if over_http else "mcp"
        raise UsageError(
            f"the packages for MCP are not installed ({error.name}). "
            f"Fix: pip install 'leadhand[{extra}]'"
        ) from None
    return service


mcp.add_command(tools)
mcp.add_command(login)
mcp.add_command(logout)
mcp.add_command(serve)
