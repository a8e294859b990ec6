"""OAuth of an MCP server: the `auth` table of `[mcp.NAME]`, and the file that keeps a sign-in.

    [mcp.tickets]
    url = "https://tickets.example.com/mcp"
    auth = {}                                   # a person signs in: leadhand mcp login tickets

    [mcp.reports.auth]
    grant = "client_credentials"                # a program signs in by itself
    client_id = "leadhand"
    client_secret = "REPORTS_SECRET"            # the name of a variable
    issuer = "https://login.example.com"

Laws
    1. A run never opens a browser and never registers a client. Without a usable token a call is
       `denied`, and the message names the command that signs in.
    2. Tokens are kept in one file for each server, settings folder and address, in the folder for
       Leadhand's own data (mode 0600), which sandboxes do not show. They are in no log.
    3. A token goes to its own server and to the authorization server that gave it, over TLS unless
       the address is private. A client's own secret goes to the configured issuer only.
    4. One process at a time refreshes a token, since a refresh token may count once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from leadhand.codec.tables import TableSchema, Texts
from leadhand.errors import UsageError
from leadhand.workers.http.netguard import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FILE_BYTES_MAX = 1 << 20
LOCK_S = 30.0
EARLY_S = 30.0
"""How long before its end a token is refreshed."""

SecretVariable = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,99})?$",
        description="the name of the environment variable that holds the secret, never the secret "
        "itself",
    ),
]
Port = Annotated[int, Meta(ge=0, le=65535)]


class OAuth(TableSchema):
    """The keys of `[mcp.NAME.auth]`."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """How a token is got: a person signs in by `leadhand mcp login NAME`, or a program by its own
    credentials."""
    client_id: str = ""
    """The id of a client that was registered by hand. Default: Leadhand registers itself."""
    client_secret: SecretVariable = ""
    """The variable that holds the secret of that client; needs `issuer`."""
    private_key: SecretVariable = ""
    """The variable that holds the private key (PEM) of that client, for `client_credentials`
    (private_key_jwt); needs `issuer`."""
    algorithm: Literal["ES256", "ES384", "RS256", "PS256", "EdDSA"] = "ES256"
    """The algorithm of `private_key`."""
    client_metadata_url: str = ""
    """The https address of a client ID metadata document, used as the client's id where the
    authorization server supports that."""
    issuer: str = ""
    """The authorization server; any other is refused. Default: the one that the server names."""
    scopes: Texts = ()
    """Scopes to ask for beside those that the server wants."""
    redirect_port: Port = 0
    """The loopback port to which the browser returns. Default: a free one, then the same again."""
    allow: Texts = ()
    """The hosts of authorization servers, with ports, as for HTTP workers: these and no others.
    Default: every public host."""

    def problem(self) -> str:
        """Return what is wrong between its keys; empty if nothing is."""
        by_program = self.grant == "client_credentials"
        if self.client_secret and self.private_key:
            return "client_secret and private_key cannot be given together"
        secret = self.client_secret or self.private_key
        if secret and not (self.client_id and self.issuer):
            return "a client's secret needs client_id and issuer: it goes to that server only"
        if by_program and not secret:
            return "client_credentials needs client_secret or private_key"
        if self.private_key and not by_program:
            return "private_key needs grant = client_credentials"
        for key in ("issuer", "client_metadata_url"):
            if (url := getattr(self, key)) and urlsplit(url).scheme not in ("https", "http"):
                return f"{key} must be an address that begins with https://"
        if self.client_metadata_url and not self.client_metadata_url.startswith("https://"):
            return "client_metadata_url must begin with https://"
        try:
            Guard.of(self.allow)
        except ValueError as problem:
            return f"allow: {problem}"
        return ""

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that hold its secrets."""
        return tuple(filter(None, (self.client_secret, self.private_key)))

    def secret(self) -> str:
        """Return the client's secret or key; empty if it has none.

        Raise `UsageError` if its variable is not set.
        """
        for name in self.variables:
            if not os.environ.get(name):
                raise UsageError(f"the environment variable {name} is not set")
            return os.environ[name]
        return ""


class AuthorizationFailed(Exception):
    """There is no token for a call; `failure_class` says what may follow."""

    def __init__(self, message: str, failure_class: str = "denied") -> None:
        super().__init__(message)
        self.failure_class = failure_class


class Challenge(msgspec.Struct, frozen=True):
    """Why a server refused a token: what the next sign-in has to ask for."""

    status: int
    header: str
    """The value of WWW-Authenticate."""


class SignedIn(msgspec.Struct, frozen=True):
    """What is kept of a sign-in; the documents are those of the protocol."""

    token: dict[str, Any] | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    authorization_server: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    challenge: Challenge | None = None
    redirect_port: int = 0

    @property
    def access_token(self) -> str:
        """Return the token for calls; empty without one."""
        return str((self.token or {}).get("access_token") or "")

    @property
    def refresh_token(self) -> str:
        """Return the token that gets a new one; empty without one."""
        return str((self.token or {}).get("refresh_token") or "")

    @property
    def is_over(self) -> bool:
        """Return whether the token for calls has expired, or will in a moment."""
        return self.expires_at is not None and self.expires_at - EARLY_S < time.time()


class TokenFile:
    """The file of one sign-in. What it holds is never logged.

    - `folder`: the folder for Leadhand's own data.
    - `server`, `url`: the name and the address of the MCP server.
    - `settings`: the folder of the settings that name it: another project signs in by itself.
    """

    def __init__(self, folder: Path, server: str, url: str, settings: Path) -> None:
        which = "\0".join((server, url, str(settings)))
        digest = hashlib.sha256(which.encode()).hexdigest()[:16]
        self.path = folder / "mcp" / f"{server}-{digest}.json"

    def read(self) -> SignedIn:
        """Return what is kept; nothing if there is no file.

        Raise `UsageError` if others may read the file, or if it is damaged.
        """
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                loose = stat.S_IMODE(about.st_mode) & 0o077
                if about.st_uid != os.geteuid() or loose:
                    raise UsageError(
                        f"{self.path}: others may read or write this sign-in. "
                        f"Fix: chmod 600 {self.path}, or sign in again"
                    )
                return msgspec.json.decode(file.read(FILE_BYTES_MAX), type=SignedIn)
        except FileNotFoundError:
            return SignedIn()
        except (OSError, msgspec.MsgspecError) as error:
            raise UsageError(
                f"{self.path}: cannot be read: {error}. Fix: delete it, and sign in again"
            ) from None

    def update(self, **changes: Any) -> SignedIn:
        """Keep these changes; return all that is kept. Raise `UsageError` if that fails."""
        kept = msgspec.structs.replace(self.read(), **changes)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            number, name = tempfile.mkstemp(prefix=".sign-in.", dir=self.path.parent)  # mode 0600
            with os.fdopen(number, "wb") as made:
                made.write(msgspec.json.encode(kept))
            Path(name).replace(self.path)
        except OSError as error:
            raise UsageError(
                f"{self.path}: a sign-in cannot be kept there: {error.strerror}"
            ) from None
        return kept

    def remove(self) -> bool:
        """Forget the sign-in; return whether there was one."""
        there = self.path.exists()
        for path in (self.path, self._lock):
            path.unlink(missing_ok=True)
        return there

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the sign-in alone, among all processes. Raise `TimeoutError` after `LOCK_S`."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        number = os.open(self._lock, flags, 0o600)
        try:
            async with asyncio.timeout(LOCK_S):
                while True:
                    try:
                        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)
            yield
        finally:
            os.close(number)


def auth_place(auth: OAuth) -> dict[str, Any]:
    """Return what of the table determines how a server is reached: part of its tools' versions."""
    doc = msgspec.to_builtins(auth)
    return {key: value for key, value in doc.items() if key != "redirect_port"}
