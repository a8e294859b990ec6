"""`[server]`: where `leadhand serve` listens, and which people may sign in.

    [server]
    port = 8787
    hosts = ["leadhand.example"]

    [server.people.ann]
    role = "approver"
    token = "sha256:…"
    key = "~/.config/leadhand/ann.key"
    email = "ann@example.com"

A token is kept as its hash: a reader of the file cannot sign in with it. `leadhand serve token add
ann --role approver` creates one and writes the table. A person of a project's file counts once
that is trusted, as code does: a process that edits the file, as an agent may, admits no person and
redirects no person's links.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from leadhand.codec.tables import Duration, TableSchema, Text, reader
from leadhand.codec.tables import read as read_value
from leadhand.core.wording import shown
from leadhand.settings.review import refuse_namesakes
from leadhand.settings.sections import Section, Trusted, detail_text
from leadhand.settings.trust import untrusted_entries

if TYPE_CHECKING:
    from leadhand.settings import Settings
    from leadhand.settings.trust import Trust

PERSON = "person"
"""The kind of a person among what must be trusted."""
ROLES = ("viewer", "operator", "approver")
"""Each may do what the earlier ones may."""
DEFAULT_BIND = "127.0.0.1"
DEFAULT_PORT = 8787
_NAME = re.compile(r"[^\x00-\x1f\x7f/]{1,64}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


TOKEN = Meta(
    pattern=r"^sha256:[0-9a-f]{64}$",
    description="the hash of a token; `leadhand serve token add` writes the table with one",
)


EMAIL = Meta(
    pattern=r"^([^\s@<>,;:\"\\()\x00-\x1f]{1,64}@[A-Za-z0-9.-]{1,255})?$",
    description="an e-mail address",
)
SLACK = Meta(pattern=r"^([UW][A-Z0-9]{2,30})?$", description="a member id of Slack")
TOPIC = Meta(pattern=r"^([A-Za-z0-9_-]{1,64})?$", description="the name of an ntfy topic")


class Member(TableSchema):
    """One who may sign in: `[server.people.NAME]`."""

    role: Literal["viewer", "operator", "approver"]
    """What the person may do; each role includes the roles before it."""
    token: Annotated[str, TOKEN]
    """The SHA-256 hash of the person's token; `leadhand serve token add` writes it."""
    key: str = ""
    """The file of the private key that signs the person's approvals."""
    email: Annotated[str, EMAIL] = ""
    """The person's own e-mail address, for messages with signed links; see `[notify.email]`."""
    slack: Annotated[str, SLACK] = ""
    """The person's member id in Slack, such as `U012AB3CD`; see `[notify.slack]`."""
    ntfy: Annotated[str, TOPIC] = ""
    """The person's own topic at the ntfy server, a name that others cannot guess; see
    `[notify.ntfy]`."""

    @property
    def addresses(self) -> dict[str, str]:
        """The person's own address on each channel that they have."""
        given = {"email": self.email, "slack": self.slack, "ntfy": self.ntfy}
        return {channel: address for channel, address in given.items() if address}


def is_name(name: str) -> bool:
    """Return whether a person can be called so."""
    return bool(_NAME.fullmatch(name)) and name == name.strip()


def _hosts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError('must be a list, as in ["leadhand.example"]')  # noqa: TRY004 - a sentence
    for each in value:
        if not isinstance(each, str) or not _HOST.fullmatch(each.lower()):
            raise ValueError(f"must hold host names without a port, and {shown(each)} is none")
    return tuple(dict.fromkeys(each.lower() for each in value))


def _people(value: Any) -> dict[str, Member]:
    if not isinstance(value, dict):
        raise ValueError("must be tables, written [server.people.NAME]")  # noqa: TRY004 - a sentence
    refuse_namesakes(value)
    for name in value:
        if not is_name(name):
            raise ValueError(f"has the name {shown(name)}; a name has 1 to 64 characters, and no /")
    found: dict[str, Member] = read_value(value, dict[str, Member])
    return found


def _address(value: Any) -> str:
    wrong = ValueError(f'must be an address as in "https://leadhand.example", not {shown(value)}')
    if not isinstance(value, str):
        raise wrong
    try:
        parts = urlsplit(value.rstrip("/"))
        port = parts.port
    except ValueError:
        raise wrong from None
    name = (parts.hostname or "").lower()
    if parts.scheme not in ("http", "https") or parts.path or parts.query or parts.fragment:
        raise wrong
    if not name or parts.username is not None or not (_HOST.fullmatch(name) or ":" in name):
        raise wrong
    if parts.scheme == "http" and name not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError("must begin with https://: signed links travel to it")
    host = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


if TYPE_CHECKING:
    Address: TypeAlias = str
    Hosts: TypeAlias = tuple[str, ...]
    People: TypeAlias = dict[str, Member]
else:
    Address = reader(_address, "an address that begins with https://")
    Hosts = reader(_hosts, "a list of host names")
    People = reader(_people, "tables, written [server.people.NAME]")

PORT = Meta(ge=0, lt=65536, description="a port from 0 to 65535; 0 takes a free one")


class ServerSettings(TableSchema):
    """`[server]`: how the server is reached, and by whom."""

    bind: Text = DEFAULT_BIND
    """The address on which `leadhand serve` listens."""
    port: Annotated[int, PORT] = DEFAULT_PORT
    """The port; 0 takes a free one."""
    hosts: Hosts = ()
    """Host names under which the server may be addressed, besides the loopback names."""
    address: Address = ""
    """The address under which people reach the server, such as `https://leadhand.example`. Messages
    name it, and signed links need it."""
    link_expires: Duration = 86_400.0
    """How long a signed link to one decision is valid."""
    people: People = msgspec.field(default_factory=dict)
    """The people who may sign in, each a table `[server.people.NAME]`."""


# The section in the settings.


def server_of(settings: Settings) -> ServerSettings:
    """Return `[server]` of the settings, the defaults where nothing is set."""
    found: ServerSettings = SECTION.of(settings)
    return found


def _make(read: Mapping[str, Any], folders: Mapping[str, Path]) -> ServerSettings:
    """Return the settings; the path of a person's key is relative to its settings file."""
    given = {
        key: read[f"server.{key}"]
        for key in ServerSettings.__struct_fields__
        if f"server.{key}" in read
    }
    if "people" in given:
        folder = folders["server.people"]
        given["people"] = {
            name: replace(each, key=str(folder / Path(each.key).expanduser())) if each.key else each
            for name, each in given["people"].items()
        }
    return ServerSettings(**given)


def _rows(server: ServerSettings) -> dict[str, Any]:
    """Return the settings as listed: people with their roles, never with token hashes."""
    return {
        "server.bind": server.bind,
        "server.port": server.port,
        "server.hosts": list(server.hosts),
        "server.address": server.address,
        "server.link_expires": server.link_expires,
        "server.people": {name: each.role for name, each in server.people.items()},
    }


def trusted_people(settings: Settings, trust: Trust | None) -> Mapping[str, Member]:
    """Return the people who count: all of them but those of a project file not yet trusted.

    `trust` is None for programs that use Leadhand as a library.
    """
    people = server_of(settings).people
    if trust is None:
        return people
    missing = {each.name for each in untrusted_entries(settings, trust) if each.kind == PERSON}
    return {name: each for name, each in people.items() if name not in missing}


def _trusted(_settings: Settings, server: ServerSettings) -> Trusted:
    """Yield the people: who may decide, and where their links are sent, is not for every editor."""
    for name, each in server.people.items():
        yield PERSON, "server.people", name, detail_text(msgspec.to_builtins(each))


def _without(server: ServerSettings, kinds: Mapping[str, set[str]]) -> ServerSettings:
    gone = kinds.get(PERSON, set())
    kept = {name: each for name, each in server.people.items() if name not in gone}
    return replace(server, people=kept)


def _keys_of_people(server: ServerSettings) -> list[Path]:
    return [Path(each.key) for each in server.people.values() if each.key]


SECTION = Section(
    name="server",
    tables={"server": ServerSettings},
    make=_make,
    rows=_rows,
    trusted=_trusted,
    without=_without,
    private=_keys_of_people,
)
