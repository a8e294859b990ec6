"""`[server]`: where `leadhand serve` listens, and which people may sign in.

    [server]
    port = 8787
    hosts = ["leadhand.example"]

    [server.people.ann]
    role = "approver"
    token = "sha256:…"
    key = "~/.config/leadhand/ann.key"

A token is kept as its hash: a reader of the file cannot sign in with it. `leadhand serve token add
ann --role approver` creates one and writes the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.core.wording import closest, listed, shown
from leadhand.settings.review import refuse_namesakes
from leadhand.settings.sections import Section

if TYPE_CHECKING:
    from leadhand.settings import Settings

ROLES = ("viewer", "operator", "approver")
"""Each may do what the earlier ones may."""
DEFAULT_BIND = "127.0.0.1"
DEFAULT_PORT = 8787
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[^\x00-\x1f\x7f/]{1,64}")
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FIELDS = ("role", "token", "key")


@dataclass(frozen=True, slots=True)
class Member:
    """A person who may sign in."""

    role: str
    token: str
    """The hash of their token."""
    key: str = ""
    """The file of the key that signs what they approve through the server."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server is reached, and by which people."""

    bind: str = DEFAULT_BIND
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    """Names besides the loopback ones under which it may be addressed."""
    people: Mapping[str, Member] = field(default_factory=dict)


def port(value: Any) -> int:
    """Read a port to listen on. Raise `ValueError` with the end of a sentence."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 65536:
        raise ValueError("must be a port from 0 to 65535; 0 takes a free one")
    return value


def hosts(value: Any) -> tuple[str, ...]:
    """Read host names, without a port. Raise `ValueError` with the end of a sentence."""
    if not isinstance(value, list):
        raise ValueError('must be a list, as in ["leadhand.example"]')  # noqa: TRY004 - a sentence
    for each in value:
        if not isinstance(each, str) or not _HOST.fullmatch(each.lower()):
            raise ValueError(f"must hold host names without a port, and {shown(each)} is none")
    return tuple(dict.fromkeys(each.lower() for each in value))


def people(value: Any) -> dict[str, Member]:
    """Read the people who may sign in, by name."""
    if not isinstance(value, dict):
        raise ValueError("must be tables, written [server.people.NAME]")  # noqa: TRY004 - a sentence
    refuse_namesakes(value)
    return {name: _member(name, each) for name, each in value.items()}


def is_name(name: str) -> bool:
    """Return whether a person may have this name."""
    return bool(_NAME.fullmatch(name)) and name == name.strip()


def _member(name: str, table: Any) -> Member:
    if not is_name(name):
        raise ValueError(f"has the name {shown(name)}; a name has 1 to 64 characters, and no /")
    if not isinstance(table, dict):
        raise ValueError(f"has no table for {shown(name)}, written [server.people.{name}]")  # noqa: TRY004 - a sentence
    for key in table:
        if key not in _FIELDS:
            meant = closest(key, _FIELDS)
            fix = f'did you mean "{meant}"?' if meant else f"there are: {listed(_FIELDS)}"
            raise ValueError(f"says {shown(key)} of {shown(name)}; {fix}")
    role, token, signer = table.get("role"), table.get("token"), table.get("key", "")
    if role not in ROLES:
        raise ValueError(
            f"gives {shown(name)} the role {shown(role)}; it is one of {listed(ROLES)}"
        )
    if not isinstance(token, str) or not _HASH.fullmatch(token):
        raise ValueError(
            f"has no token hash for {shown(name)}; `leadhand serve token add` writes one"
        )
    if not isinstance(signer, str):
        raise ValueError(f"has a key of {shown(name)} that is not a path")  # noqa: TRY004 - a sentence
    return Member(role, token, signer)


# The section in the settings.


def server_of(settings: Settings) -> ServerSettings:
    """Return `[server]` of the settings, the defaults where nothing is set."""
    found: ServerSettings = SECTION.of(settings)
    return found


def _bind(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


KEYS = {"bind": _bind, "port": port, "hosts": hosts, "people": people}


def _make(read: Mapping[str, Any], folders: Mapping[str, Path]) -> ServerSettings:
    """Return the settings; the path of a person's key is relative to its settings file."""
    given = {key: read[f"server.{key}"] for key in KEYS if f"server.{key}" in read}
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
        "server.people": {name: each.role for name, each in server.people.items()},
    }


def _keys_of_people(server: ServerSettings) -> list[Path]:
    return [Path(each.key) for each in server.people.values() if each.key]


SECTION = Section(
    name="server",
    tables={"server": KEYS},
    make=_make,
    rows=_rows,
    trusted=lambda _settings, _server: iter(()),
    without=lambda server, _kinds: server,
    private=_keys_of_people,
)
