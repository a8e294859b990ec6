"""`leadhand serve`: the HTTP API and the page, on the database they host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.group import CommandGroup, command
from leadhand.cli.options import (
    actor_of,
    settings_of,
    store_option,
    workers_option,
)
from leadhand.cli.signals import Signals, first_of
from leadhand.engine.agent_session import refuse_agent_session
from leadhand.errors import UsageError
from leadhand.server.settings import PERSON, ROLES, server_of
from leadhand.settings.folders import make_store_folder
from leadhand.settings.trust import trust_written

if TYPE_CHECKING:
    from leadhand.server.service import Running, Serve


class _Serve(CommandGroup):
    """A group that serves if no subcommand is given."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of serving, and then the subcommands."""
        click.Command.format_options(start, ctx, formatter)
        self.format_commands(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options of `leadhand serve` as those of its unnamed command."""
        if not args or args[0] not in ("token", "-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(
    "serve",
    cls=_Serve,
    examples=("leadhand serve", "leadhand serve token add ann --role approver"),
)
def serve() -> None:
    """Start the dashboard and HTTP API.

    The server is the host process of the database: it continues all open runs and serves until
    Ctrl-C, which lets running steps finish; a second Ctrl-C ends it at once. The first start
    creates a token and prints it once. The other commands talk to the server while it runs.
    """


@command("start", "leadhand serve --port 8787")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port to listen on; 0 takes a free one."
)
@click.option(
    "--bind", metavar="ADDRESS", help="The address to listen on; the default is 127.0.0.1."
)
@click.option(
    "--tls-cert",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The TLS certificate, a PEM file.",
)
@click.option(
    "--tls-key",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The private key of the certificate, a PEM file.",
)
@click.option(
    "--insecure-bind",
    is_flag=True,
    help="Listen on other addresses without TLS; tokens can then be read on the network.",
)
@workers_option
@store_option
def start(console: Console, **options: Any) -> int:
    """Start the dashboard and HTTP API."""
    if bool(options["tls_cert"]) != bool(options["tls_key"]):
        raise UsageError("--tls-cert and --tls-key must be given together")
    settings = settings_of(options["store"], options["workers"], executes=console)
    serving = _loaded()
    make_store_folder(settings.store)
    port = server_of(settings).port if options["port"] is None else options["port"]
    wanted = serving.Serve(
        settings=settings,
        actor=actor_of(settings),
        bind=options["bind"] or server_of(settings).bind,
        port=port,
        cert=Path(options["tls_cert"]) if options["tls_cert"] else None,
        key=Path(options["tls_key"]) if options["tls_key"] else None,
        insecure=options["insecure_bind"],
        tell=console.say,
        notifies=True,
    )
    return asyncio.run(_serve(console, wanted))


def _loaded() -> Any:
    try:
        from leadhand.server import service
    except ImportError as error:
        raise UsageError(
            f"the server's packages are not installed ({error.name}). "
            "Fix: pip install 'leadhand[server]'"
        ) from None
    return service


async def _serve(console: Console, wanted: Serve) -> int:
    from leadhand.server.service import running

    with Signals(lambda number: _draining(console, number), lambda: None) as signals:
        async with running(wanted) as up:
            _say_hello(console, wanted, up)
            await _until(signals, up)
            await up.app_state.hub.close()
            await up.app_state.host.drain()
    return 128 + signals.number if signals.number == 15 else 0


async def _until(signals: Signals, up: Running) -> None:
    """Wait until the server is to end, or raise the error that ends it."""
    await first_of(signals.came.wait(), up.failed())


def _draining(console: Console, number: int) -> None:
    word = "Ctrl-C" if number == 2 else "SIGTERM"
    console.say(f"{word}: no new steps start; waiting for running steps. Repeat to end at once.")


def _say_hello(console: Console, wanted: Serve, up: Running) -> None:
    from leadhand.server.accounts import token_file

    store = wanted.settings.store
    host = up.app_state.host
    runs = sum(run.driven for run in host.runs.values()) + len(host.asleep)
    if console.json:
        console.record(
            {"url": up.url, "store": str(store), "token_file": str(token_file(store)), "runs": runs}
        )
    else:
        console.out(up.url)
    console.say(f"serving {store}, with {runs} open {'run' if runs == 1 else 'runs'}")
    if up.new_token:
        console.say(f"Sign in once with: {up.url}/#token={up.new_token}")
        console.say(f"The token is stored in {token_file(store)} and not shown again.")
    else:
        console.say(f"Sign in with the token in {token_file(store)}")


@click.group("token", cls=CommandGroup, examples=("leadhand serve token add ann --role approver",))
def token() -> None:
    """Manage the people who may sign in, and their tokens."""


@command("add", "leadhand serve token add ann --role approver")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="viewer",
    show_default=True,
    help="The role of the person.",
)
def add(console: Console, name: str, role: str) -> int:
    """Create a token for a person, and print it once.

    The hash of the token is written to leadhand.toml.
    """
    from leadhand.server.accounts import digest_of, new_token
    from leadhand.server.member_file import add_member

    refuse_agent_session("changing who may sign in")
    made = new_token()
    settings = settings_of()
    file = add_member(settings, name, role, digest_of(made)).write()
    trust_written(settings.root, PERSON, name)
    if console.json:
        console.document({"name": name, "role": role, "token": made, "file": str(file)})
        return 0
    console.out(made)
    console.say(f"{name} may sign in as {role}; the hash of this token is in {file}")
    return 0


@command("remove", "leadhand serve token remove ann")
@click.argument("name")
def remove(console: Console, name: str) -> int:
    """Remove the token of a person, and end their sessions."""
    from leadhand.server.member_file import remove_member

    refuse_agent_session("changing who may sign in")
    file = remove_member(settings_of(), name).write()
    if console.json:
        console.document({"name": name, "removed": True, "file": str(file)})
    else:
        console.say(f"{name} can no longer sign in; see {file}")
    return 0


@command("role", "leadhand serve token role ann operator")
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
def role_(console: Console, name: str, role: str) -> int:
    """Change the role of a person; the token stays."""
    from leadhand.server.member_file import change_role

    refuse_agent_session("changing who may sign in")
    settings = settings_of()
    file = change_role(settings, name, role).write()
    trust_written(settings.root, PERSON, name)
    if console.json:
        console.document({"name": name, "role": role, "file": str(file)})
    else:
        console.say(f"{name} may sign in as {role}; see {file}")
    return 0


@command("list", "leadhand serve token list")
def list_(console: Console) -> int:
    """List the people who may sign in, with their roles."""
    people = server_of(settings_of()).people
    if console.json:
        console.document([{"name": name, "role": each.role} for name, each in people.items()])
        return 0
    for name, each in people.items():
        console.out(f"{name}  {each.role}")
    if not people:
        console.say("only the owner; add people with `leadhand serve token add`")
    return 0


token.add_command(add)
token.add_command(role_)
token.add_command(remove)
token.add_command(list_)
start.hidden = True  # the behaviour of `leadhand serve` without a subcommand
serve.add_command(start)
serve.add_command(token)
