"""`[notify]`: the channels that tell people when a run waits for them or has ended.

    [notify]
    webhook = "https://hooks.example.com/leadhand"
    webhook_secret = "env:LEADHAND_WEBHOOK_SECRET"

    [notify.email]
    server = "smtp.example.com:587"
    sender = "leadhand@example.com"
    user = "leadhand"
    password = "file:smtp-password"

A secret is never written here: the settings name the environment variable or the file that holds
it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import Meta
from msgspec.structs import fields, replace

from leadhand.codec.tables import TableSchema, Text, Texts, reader
from leadhand.errors import NotAllowed, UsageError

_REFERENCE = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00]+)")
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


def _reference(value: Any) -> str:
    if value == "" or (isinstance(value, str) and _REFERENCE.fullmatch(value)):
        return str(value)
    # Not shown: it may be the secret itself.
    raise ValueError('must name where the secret is: "env:NAME" or "file:PATH"')


def _host_port(value: Any) -> str:
    found = _HOST_PORT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not 0 < int(found[2]) < 65536:
        raise ValueError('must be a name with a port, as in "smtp.example.com:587"')
    return str(value)


if TYPE_CHECKING:
    SecretReference: TypeAlias = str
    HostPort: TypeAlias = str
else:
    SecretReference = reader(_reference, 'a reference to a secret: "env:NAME" or "file:PATH"')
    HostPort = reader(_host_port, "a name with a port")

Argv = Annotated[
    tuple[Text, ...],
    Meta(min_length=1, description='a list of arguments, as in ["notify-send", "{text}"]'),
]
HttpAddress = Annotated[
    str,
    Meta(pattern="^https?://", description="an address that begins with https:// or http://"),
]


class EmailTable(TableSchema):
    """`[notify.email]`"""

    server: HostPort
    """The SMTP server with its port, such as `smtp.example.com:587`."""
    sender: Text
    """The address that messages are from."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is encrypted: `starttls` (port 587), `tls` from its beginning (port 465),
    or `none`, which is allowed for a server on this machine only."""
    user: str = ""
    """The name to sign in with; empty: no sign-in."""
    password: SecretReference = ""
    """Where the password is: `env:NAME` or `file:PATH`."""
    to: Texts = ()
    """Addresses that get every message, without signed links."""


class SlackTable(TableSchema):
    """`[notify.slack]`"""

    token: SecretReference
    """Where the bot token (`xoxb-…`, scope `chat:write`) is: `env:NAME` or `file:PATH`."""
    app_token: SecretReference = ""
    """Where the app-level token (`xapp-…`, scope `connections:write`) is. With it, `leadhand serve`
    gets answers through a socket (socket mode)."""
    signing_secret: SecretReference = ""
    """Where the signing secret of the app is. With it, `leadhand serve` gets answers by
    `POST /api/v1/slack`."""
    channel: str = ""
    """A channel that gets every message, without buttons, such as `C012AB3CD`."""
    api: HttpAddress = "https://slack.com/api"
    """The address of Slack's Web API."""


class NtfyTable(TableSchema):
    """`[notify.ntfy]`"""

    server: HttpAddress = "https://ntfy.sh"
    """The address of the ntfy server."""
    token: SecretReference = ""
    """Where the access token is, if the server wants one: `env:NAME` or `file:PATH`."""
    topic: str = ""
    """A topic that gets every message, without signed links."""


class NotifyTable(TableSchema):
    """`[notify]`"""

    command: Argv = ()
    """A command that is run when a run waits for a person or ends; `{kind}`, `{run}`, `{text}` and
    `{store}` are replaced. It has 10 seconds."""
    webhook: HttpAddress = ""
    """An address that gets each message as JSON, by POST."""
    webhook_secret: SecretReference = ""
    """Where the secret (`whsec_…`) is that signs webhooks by the Standard Webhooks specification:
    `env:NAME` or `file:PATH`. Without it, webhooks are not signed."""
    email: EmailTable | None = None
    """The mail server, a table `[notify.email]`."""
    slack: SlackTable | None = None
    """The Slack app, a table `[notify.slack]`."""
    ntfy: NtfyTable | None = None
    """The ntfy server, a table `[notify.ntfy]`."""

    @property
    def is_empty(self) -> bool:
        """Whether no channel is set."""
        return not (self.command or self.webhook or self.email or self.slack or self.ntfy)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that are set."""
        names = ("command", "webhook", "email", "slack", "ntfy")
        return tuple(name for name in names if getattr(self, name))


def notify_settings(read: Mapping[str, Any], folders: Mapping[str, Path]) -> NotifyTable:
    """Return `[notify]`; files of secrets are relative to the file that names them."""
    given = {
        each.name: with_folder(read[f"notify.{each.name}"], folders[f"notify.{each.name}"])
        for each in fields(NotifyTable)
        if f"notify.{each.name}" in read
    }
    return NotifyTable(**given)


def with_folder(value: Any, folder: Path) -> Any:
    """Return a value, or a table, with `file:` references that are relative to `folder`."""
    if isinstance(value, TableSchema):
        known = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: with_folder(each, folder) for name, each in known.items()})
    if isinstance(value, str) and value.startswith("file:"):
        return f"file:{folder / Path(value.removeprefix('file:')).expanduser()}"
    return value


def secret_files(notify: NotifyTable) -> list[Path]:
    """Return the files that hold secrets of channels."""
    tables = [notify, *(table for table in (notify.email, notify.slack, notify.ntfy) if table)]
    return [path for table in tables for path in referenced_files(table)]


def referenced_files(table: TableSchema) -> list[Path]:
    """Return the files that the keys of one table refer to as secrets."""
    texts = (getattr(table, each.name) for each in fields(table))
    named = (text for text in texts if isinstance(text, str) and text.startswith("file:"))
    return [Path(text.removeprefix("file:")) for text in named]


def read_secret(reference: str) -> str:
    """Return the secret that a reference names. Raise an error that never shows it."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        found = os.environ.get(name, "").strip()
        if not found:
            raise UsageError(f"the environment variable {name} is not set. Fix: set it")
        return found
    path = Path(name)
    try:
        if path.stat().st_mode & 0o077:
            raise NotAllowed(f"{path}: others may read this secret. Fix: chmod 600 {path}")
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{path}: the secret cannot be read: {why}") from None
    if not found:
        raise UsageError(f"{path}: holds no secret")
    return found
