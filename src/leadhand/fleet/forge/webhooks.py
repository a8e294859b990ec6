"""Webhooks of a code host: is one genuine, and is it new?

A webhook is only a nudge to look: nothing of its content is used, so that a forged or a lost one
does no harm. `WebhookListener` answers quickly and nudges; the flow polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, NamedTuple

from leadhand.errors import LeadhandError, UsageError
from leadhand.fleet.forge.port import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BODY_MAX = 1 << 20
"""The longest body that is looked at. GitHub's may be longer; then only polling sees the change."""
KEPT = 10_000
"""How many deliveries are remembered."""
SECRET_MIN = 16
PATH = "/webhook"
HEAD_MAX = 32 * 1024
REQUEST_S = 10.0
"""How long one request may take."""
CONNECTIONS_MAX = 32
"""How many connections are open at once; more are closed, and the host is polled anyway."""


class Delivery(NamedTuple):
    """A genuine webhook: the name of its event, and the id of its delivery."""

    event: str
    id: str


class WebhookRefused(Exception):
    """A webhook that is not genuine; `status` is the answer to it."""

    def __init__(self, text: str, status: int = 401) -> None:
        self.status = status
        super().__init__(text)


def checked_delivery(
    kind: Literal["github", "gitlab"], headers: Mapping[str, str], body: bytes, secret: str
) -> Delivery:
    """Return what a webhook is. Raise `WebhookRefused` if the secret did not sign it.

    - `headers`: by name in any case.
    - `body`: the bytes as they came; they are what is signed.
    """
    if len(secret) < SECRET_MIN:
        raise WebhookRefused(f"the secret has fewer than {SECRET_MIN} characters", 503)
    if len(body) > BODY_MAX:
        raise WebhookRefused(f"it is longer than {BODY_MAX} bytes", 413)
    given = {name.lower(): value for name, value in headers.items()}
    if kind == "github":
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        wanted, shown = f"sha256={digest}", given.get("x-hub-signature-256", "")
        event, ident = given.get("x-github-event", ""), given.get("x-github-delivery", "")
    else:
        # GitLab sends the secret itself: the connection must be encrypted.
        wanted, shown = secret, given.get("x-gitlab-token", "")
        event = given.get("x-gitlab-event", "")
        ident = given.get("idempotency-key", "") or given.get("x-gitlab-event-uuid", "")
    if not hmac.compare_digest(wanted.encode(), shown.encode("utf-8", "replace")):
        raise WebhookRefused("it is not signed with our secret")
    if not event or not ident:
        raise WebhookRefused("it names no event or no delivery", 400)
    return Delivery(clean_text(event, 100), clean_text(ident, 100))


class WebhookReceiver:
    """Checks webhooks and calls `nudge` for each new one."""

    def __init__(
        self,
        kind: Literal["github", "gitlab"],
        secret: Callable[[], str],
        nudge: Callable[[], None],
    ) -> None:
        """Create a receiver.

        - `secret`: returns the secret; called for each webhook, so that it may be replaced.
        - `nudge`: says that it is time to look; it returns at once.
        """
        self._kind, self._secret, self._nudge = kind, secret, nudge
        self._seen: OrderedDict[str, None] = OrderedDict()

    def receive(self, headers: Mapping[str, str], body: bytes) -> int:
        """Return the HTTP status for a webhook: 202, or why it is refused. Raise nothing.

        A delivery that was seen is answered as before and does not nudge again.
        """
        try:
            found = checked_delivery(self._kind, headers, body, self._secret())
        except WebhookRefused as refused:
            return refused.status
        except LeadhandError:
            return 503  # the secret cannot be read
        # GitHub does not sign the id: a replay under a new one is known by what was signed.
        known = hashlib.sha256(body).hexdigest() if self._kind == "github" else found.id
        if known not in self._seen:
            self._seen[known] = None
            while len(self._seen) > KEPT:
                self._seen.popitem(last=False)
            self._nudge()
        return 202


class WebhookListener:
    """Listens for webhooks on one address: POST to `/webhook`, and nothing else.

    It speaks HTTP without encryption: a proxy with a certificate stands before it, or a tunnel.
    """

    def __init__(self, receiver: WebhookReceiver) -> None:
        self._receiver, self._open = receiver, 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which is a free one for 0. Raise `UsageError` if it is taken."""
        try:
            self._server = await asyncio.start_server(self._attend, host, port, limit=HEAD_MAX)
        except OSError as error:
            raise UsageError(
                f"[fleet.forge] listen: cannot listen on {host}:{port} ({error.strerror}). "
                "Fix: name an address of this machine and a free port"
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_S):
                status = 503 if self._open > CONNECTIONS_MAX else await self._status(reader)
                head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
                writer.write(f"{head}content-length: 0\r\nconnection: close\r\n\r\n".encode())
                await writer.drain()
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass  # a client that is slow or gone; the host is polled anyway
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _status(self, reader: asyncio.StreamReader) -> int:
        """Read one request; return the status of its answer."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        if path != PATH:
            return 404
        if method != "POST":
            return 405
        length = headers.get("content-length", "")
        if not length.isdecimal() or len(length) > 9:
            return 411
        if int(length) > BODY_MAX:
            return 413
        return self._receiver.receive(headers, await reader.readexactly(int(length)))
