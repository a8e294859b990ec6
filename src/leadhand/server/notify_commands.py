"""`leadhand notify`: try the channels of messages, and revoke signed links."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import click

from leadhand.cli.console import Console
from leadhand.cli.group import CommandGroup, command
from leadhand.cli.options import settings_of, store_option
from leadhand.engine.agent_session import refuse_agent_session
from leadhand.errors import UsageError
from leadhand.settings.folders import make_store_folder

if TYPE_CHECKING:
    from leadhand.settings import Settings


@click.group(
    "notify",
    cls=CommandGroup,
    examples=("leadhand notify test",),
    epilog="Every command of this group takes --json.",
)
def notify() -> None:
    """Manage messages to people and their signed links."""


class _Target(NamedTuple):
    """An address of a channel."""

    channel: str
    to: str
    person: str = ""

    @property
    def shown(self) -> str:
        """The channel and the person; an address of the settings may be private."""
        return f"{self.channel} to {self.person}" if self.person else self.channel


@command("test", "leadhand notify test --channel email")
@click.option("--channel", metavar="NAME", help="Only this channel, as in email.")
@click.option("--to", metavar="PERSON", help="Only this person of [server.people].")
def test(console: Console, channel: str | None, to: str | None) -> int:
    """Send a test message through every channel, to every person.

    The message says that it is a test, and holds no link. Exit code 1 if one was not delivered.
    """
    settings = settings_of(executes=console)
    wanted = [
        each
        for each in _targets(settings)
        if (channel is None or each.channel == channel) and (to is None or each.person == to)
    ]
    if not wanted:
        raise UsageError(
            "there is no such channel or address. Fix: set [notify], and email, slack or ntfy of "
            "a person in [server.people.NAME]"
        )
    failed = asyncio.run(_sent(settings, wanted))
    unreached = [name for name in _without_address(settings) if to in (None, name)]
    if console.json:
        rows = [
            {"channel": each.channel, "person": each.person, "problem": failed.get(each, "")}
            for each in wanted
        ]
        none = "no address of their own in a configured channel"
        console.document(
            rows + [{"channel": "", "person": name, "problem": none} for name in unreached]
        )
    else:
        for each in wanted:
            problem = failed.get(each, "")
            console.out(f"{'FAIL' if problem else 'ok  '}  {each.shown}  {problem}".rstrip())
        for name in unreached:
            console.out(
                f"none  {name} gets no message of their own. Fix: set "
                f"{' or '.join(_personal(settings))} in [server.people.{name}]"
            )
    return 1 if failed else 0


def _targets(settings: Settings) -> list[_Target]:
    from leadhand.notify.channels import shared_addresses
    from leadhand.server.settings import server_of

    found = [_Target(name, to) for name, to in shared_addresses(settings)]
    for name, member in server_of(settings).people.items():
        found += [
            _Target(channel, to, name)
            for channel, to in member.addresses.items()
            if channel in settings.notify.channels
        ]
    return found


def _personal(settings: Settings) -> list[str]:
    """Return the configured channels that people have addresses in."""
    from leadhand.server.links import CHANNELS

    return [name for name in CHANNELS if name in settings.notify.channels]


def _without_address(settings: Settings) -> list[str]:
    """Return the people whom no configured channel reaches."""
    from leadhand.server.settings import server_of

    channels = set(_personal(settings))
    people = server_of(settings).people.items()
    return [name for name, each in people if channels and channels.isdisjoint(each.addresses)]


async def _sent(settings: Settings, wanted: list[_Target]) -> dict[_Target, str]:
    """Send the test messages; return what went wrong."""
    import secrets

    from leadhand.notify.channels import NotDelivered, channels_of
    from leadhand.notify.message import Message

    channels, failed = channels_of(settings), dict[_Target, str]()
    text = "This is a test message. No answer is needed."
    for each in wanted:
        message = Message(
            id=secrets.token_hex(12),
            kind="test",
            run="",
            title="Test of Leadhand notifications",
            lines=(text,),
            text=text,
            store=str(settings.store),
        )
        try:
            await channels[each.channel].send(each.to, message)
        except NotDelivered as error:
            failed[each] = str(error)
    return failed


@command("revoke", "leadhand notify revoke")
@store_option
def revoke(console: Console, store: str | None) -> int:
    """Revoke all signed links: replace the key that signs them.

    A running server uses the new key at once. Links in messages that are sent from now on are
    valid.
    """
    from leadhand.server.links import replace_key

    refuse_agent_session("revoking signed links")
    settings = settings_of(store)
    make_store_folder(settings.store)
    file = replace_key(settings.store)
    if console.json:
        console.document({"revoked": True, "key": str(file)})
    else:
        console.say(f"all signed links are revoked; the new key is in {file}")
    return 0


notify.add_command(test)
notify.add_command(revoke)
