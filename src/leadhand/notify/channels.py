"""The channels: a command, a webhook, e-mail, Slack and ntfy. Each delivers one message.

A channel raises `NotDelivered`, which says whether another try can help and never holds a secret:
no token, no address of a webhook, no signed link.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import re
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from leadhand.codec.events import escape_surrogates
from leadhand.core.calendar import iso
from leadhand.errors import LeadhandError, UsageError
from leadhand.notify.message import TITLE_MAX, plain
from leadhand.settings.notify import read_secret

if TYPE_CHECKING:
    import smtplib
    from collections.abc import Mapping
    from email.message import EmailMessage
    from pathlib import Path

    import httpx2

    from leadhand.core.plan.model import Doc
    from leadhand.notify.message import Message
    from leadhand.settings import Settings
    from leadhand.settings.notify import EmailTable, NtfyTable, SlackTable

LIMIT_S = 10.0
"""How long one try may take."""
MAIL_S = 3 * LIMIT_S
"""How long the whole conversation with a mail server may take."""
ANSWER_BYTES = 1 << 20
"""The longest answer of a service."""
SAID_MAX = 300
_HOLE = re.compile(r"\{(kind|run|text|store)\}")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class NotDelivered(Exception):
    """A message did not arrive."""

    def __init__(self, text: str, *, final: bool = False, after_s: float = 0.0) -> None:
        """Say why; `final`: no other try can help; `after_s`: not before this many seconds."""
        super().__init__(text)
        self.final = final
        self.after_s = after_s


class Channel(Protocol):
    """A way to people."""

    async def send(self, to: str, message: Message) -> None:
        """Deliver a message to an address. Raise `NotDelivered`."""

    async def check(self) -> str:
        """Reach the service without a message; return what was reached. Raise `NotDelivered`."""


def channels_of(settings: Settings) -> dict[str, Channel]:
    """Return the channels of `[notify]` by name."""
    notify, found = settings.notify, dict[str, Channel]()
    if notify.command:
        found["command"] = CommandChannel(notify.command, settings.root)
    if notify.webhook:
        found["webhook"] = WebhookChannel(notify.webhook, notify.webhook_secret)
    if notify.email is not None:
        found["email"] = EmailChannel(notify.email)
    if notify.slack is not None:
        found["slack"] = SlackChannel(notify.slack)
    if notify.ntfy is not None:
        found["ntfy"] = NtfyChannel(notify.ntfy)
    return found


def shared_addresses(settings: Settings) -> list[tuple[str, str]]:
    """Return the channels and addresses that get every message, without signed links."""
    notify = settings.notify
    found = [(name, "") for name in ("command", "webhook") if getattr(notify, name)]
    if notify.email is not None:
        found += [("email", to) for to in notify.email.to]
    if notify.slack is not None and notify.slack.channel:
        found.append(("slack", notify.slack.channel))
    if notify.ntfy is not None and notify.ntfy.topic:
        found.append(("ntfy", notify.ntfy.topic))
    return found


def secret_of(reference: str) -> str:
    """Return a secret; "" for no reference. Raise `NotDelivered` if it cannot be read."""
    try:
        return read_secret(reference) if reference else ""
    except LeadhandError as error:
        raise NotDelivered(str(error), final=True) from None


# A command of the user.


class CommandChannel:
    """Runs a program for each message."""

    def __init__(self, argv: tuple[str, ...], folder: Path) -> None:
        self._argv = argv
        self._folder = folder

    async def check(self) -> str:
        """Return the program; the message itself is the only check."""
        return self._argv[0]

    async def send(self, _to: str, message: Message) -> None:
        """Run the program once; it may have acted although it failed, so it is not repeated."""
        values = {
            "kind": message.kind,
            "run": message.run,
            "text": message.text,
            "store": message.store,
        }
        argv = [fill_placeholders(word, values) for word in self._argv]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise NotDelivered(f"{argv[0]}: {error.strerror}", final=True) from None
        try:
            async with asyncio.timeout(LIMIT_S):
                _, stderr = await process.communicate()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
            late = f"{argv[0]}: took longer than {LIMIT_S:g}s and was stopped"
            raise NotDelivered(late, final=True) from None
        if process.returncode:
            said = plain(stderr.decode("utf-8", "replace").strip(), SAID_MAX)
            raise NotDelivered(f"{argv[0]}: exit {process.returncode}: {said}", final=True)


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    """Return one argument with its placeholders filled; a value never becomes an option."""
    found = _HOLE.sub(lambda hole: values[hole[1]], word)
    return f" {found}" if found.startswith("-") and word.startswith("{") else found


# HTTP.


async def post(what: str, address: str, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
    """Send a request and return a good response. Raise `NotDelivered`, without the address."""
    given = {"Content-Type": "application/json; charset=utf-8", **headers}
    found = await _asked(what, "POST", address, body, given)
    if found.status_code < 300:
        return found
    refused = f"{what} answered {found.status_code}"
    later = found.status_code in (408, 425, 429) or found.status_code >= 500
    raise NotDelivered(refused, final=not later, after_s=_retry_after(found))


async def _asked(
    what: str,
    method: str,
    address: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> httpx2.Response:
    """Return the response to one request, which takes bounded time and memory.

    No redirect is followed. Raise `NotDelivered`, without the address and the headers.
    """
    import httpx2

    wanted = {"Accept-Encoding": "identity", **(headers or {})}
    try:
        async with (
            asyncio.timeout(LIMIT_S),
            httpx2.AsyncClient(timeout=LIMIT_S, trust_env=True) as client,
            client.stream(method, address, content=body, headers=wanted) as found,
        ):
            parts, size = list[bytes](), 0
            async for part in found.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > ANSWER_BYTES:
                    raise NotDelivered(f"{what} answered with more than {ANSWER_BYTES} bytes")
            said = {"retry-after": found.headers.get("retry-after", "")}
            return httpx2.Response(found.status_code, headers=said, content=b"".join(parts))
    except TimeoutError:
        raise NotDelivered(f"{what} took longer than {LIMIT_S:g}s") from None
    except (httpx2.LocalProtocolError, UnicodeError):
        # The text of these errors holds the header, and so the token.
        wrong = f"{what}: its token has a character that a header cannot have"
        raise NotDelivered(wrong, final=True) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        # Not the address: it may hold a token.
        raise NotDelivered(f"{what} failed: {type(error).__name__}: {plain(error, 200)}") from None


def _retry_after(found: httpx2.Response) -> float:
    given = found.headers.get("retry-after", "")
    return float(min(int(given), 3600)) if given.isdecimal() else 0.0


def encoded(doc: Any) -> bytes:
    """Return a document in bytes; lone surrogates are escaped."""
    return msgspec.json.encode(escape_surrogates(msgspec.to_builtins(doc)))


class WebhookChannel:
    """Posts each message as JSON, signed by the Standard Webhooks specification."""

    def __init__(self, address: str, secret: str = "") -> None:
        """Create a channel; `secret` refers to the signing secret, and is empty for none."""
        self._address = address
        self._secret = secret

    async def check(self) -> str:
        """Read the secret; the endpoint is reached by messages only."""
        signing_key(secret_of(self._secret)) if self._secret else None
        return "signed webhook" if self._secret else "webhook (not signed)"

    async def send(self, _to: str, message: Message) -> None:
        """Post a message; repetitions have the same webhook-id."""
        data = {
            "run": message.run,
            "title": message.title,
            "text": message.text,
            "store": message.store,
            "page": message.page,
            "items": message.items,
        }
        now = int(time.time())
        doc = {"type": f"run.{message.kind}", "timestamp": iso(now * 1_000_000), "data": data}
        body = encoded(doc)
        headers: dict[str, str] = {}
        if self._secret:
            key = signing_key(secret_of(self._secret))
            headers = webhook_headers(key, f"msg_{message.id}", now, body)
        await post("the webhook", self._address, body, headers)


def signing_key(secret: str) -> bytes:
    """Return the key in a secret of Standard Webhooks: `whsec_` and base64 of 24 to 64 bytes."""
    wrong = NotDelivered(
        "the webhook secret must be whsec_ and base64 of 24 to 64 bytes", final=True
    )
    if not secret.startswith("whsec_"):
        raise wrong
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        raise wrong from None
    if not 24 <= len(key) <= 64:
        raise wrong
    return key


def webhook_headers(key: bytes, ident: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed webhook."""
    signed = hmac.digest(key, f"{ident}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": ident,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


# E-mail.


class EmailChannel:
    """Sends plain-text mail by SMTP, in a thread."""

    def __init__(self, table: EmailTable) -> None:
        self._table = table

    async def check(self) -> str:
        """Connect, encrypt and sign in, as for a message."""
        await self._threaded(None)
        return self._table.server

    async def send(self, to: str, message: Message) -> None:
        """Send a message to one address."""
        from email.message import EmailMessage
        from email.utils import formatdate

        mail = EmailMessage()
        mail["From"], mail["To"] = self._table.sender, to
        mail["Subject"] = f"[Leadhand] {plain(message.title, TITLE_MAX)}"
        mail["Date"] = formatdate()
        own = hashlib.sha256(f"{message.id} {to}".encode()).hexdigest()[:32]
        mail["Message-ID"] = f"<{own}@{self._table.sender.partition('@')[2] or 'leadhand'}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.body + "\n")
        await self._threaded(mail)

    async def _threaded(self, mail: EmailMessage | None) -> None:
        password = secret_of(self._table.password)
        await asyncio.to_thread(partial(self._deliver, mail, password))

    def _deliver(self, mail: EmailMessage | None, password: str) -> None:
        """Send a mail, or only sign in; in a thread."""
        import smtplib
        import ssl

        name = f"the mail server {self._table.server}"
        try:
            with self._connected() as smtp:
                if self._table.user:
                    smtp.login(self._table.user, password)
                if mail is None:
                    smtp.noop()
                else:
                    smtp.send_message(mail)
        except smtplib.SMTPAuthenticationError as error:
            raise NotDelivered(
                f"{name} refused the sign-in ({error.smtp_code})", final=True
            ) from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            final = all(code >= 500 for code in codes)
            raise NotDelivered(f"{name} refused the recipient ({codes[0]})", final=final) from None
        except smtplib.SMTPResponseException as error:
            final = 500 <= error.smtp_code < 600
            raise NotDelivered(f"{name} answered {error.smtp_code}", final=final) from None
        except smtplib.SMTPNotSupportedError as error:
            raise NotDelivered(f"{name}: {plain(error, SAID_MAX)}", final=True) from None
        except ssl.SSLError as error:
            raise NotDelivered(
                f"{name}: {plain(error.reason or error, SAID_MAX)}", final=True
            ) from None
        except (smtplib.SMTPException, OSError) as error:
            raise NotDelivered(f"{name}: {type(error).__name__}: {plain(error, 200)}") from None

    def _connected(self) -> smtplib.SMTP:
        import smtplib
        import ssl

        host, _, port = self._table.server.rpartition(":")
        bare, number = host.strip("[]"), int(port)
        if self._table.security == "tls":
            context = ssl.create_default_context()
            timed: Any = _timed(smtplib.SMTP_SSL)
            secure: smtplib.SMTP = timed(bare, number, timeout=LIMIT_S, context=context)
            return secure
        if self._table.security == "none" and host not in LOOPBACK:
            raise NotDelivered(
                f"{self._table.server}: mail without encryption goes to this machine only. "
                'Fix: [notify.email] security = "starttls"',
                final=True,
            )
        smtp = _timed(smtplib.SMTP)(bare, number, timeout=LIMIT_S)
        if self._table.security == "starttls":
            try:
                smtp.starttls(context=ssl.create_default_context())
            except BaseException:
                smtp.close()
                raise
        return smtp


def _timed(kind: Any) -> type[smtplib.SMTP]:
    """Return a kind of SMTP connection that ends after a while, whatever the server still says."""

    class Timed(kind):  # type: ignore[misc]
        _watch: threading.Timer | None = None

        def connect(self, *args: Any, **more: Any) -> Any:
            self._watch = threading.Timer(MAIL_S, self._cut)
            self._watch.daemon = True
            self._watch.start()
            return super().connect(*args, **more)

        def _cut(self) -> None:
            if (found := self.sock) is not None:
                with suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)

        def close(self) -> None:
            if self._watch is not None:
                self._watch.cancel()
            super().close()

    return Timed


# ntfy: notifications on phones.

NTFY_BYTES = 3500
"""The longest text: ntfy turns longer messages into attachments."""


class NtfyChannel:
    """Publishes to a topic, with actions that open pages."""

    def __init__(self, table: NtfyTable) -> None:
        self._table = table

    async def check(self) -> str:
        """Ask for the health of the server."""
        address = f"{self._table.server.rstrip('/')}/v1/health"
        found = await _asked("the ntfy server", "GET", address)
        if found.status_code != 200:
            raise NotDelivered(f"the ntfy server answered {found.status_code}", final=True)
        secret_of(self._table.token)
        return self._table.server

    async def send(self, to: str, message: Message) -> None:
        """Publish a message to a topic."""
        actions = []
        if message.link:
            actions.append({"action": "view", "label": "Read and decide", "url": message.link})
        if message.page:
            actions.append({"action": "view", "label": "Dashboard", "url": message.page})
        text = "\n".join(message.lines) or message.title
        doc: Doc = {
            "topic": to,
            "title": plain(message.title, TITLE_MAX),
            "message": text.encode()[:NTFY_BYTES].decode(errors="ignore"),
            "priority": 4 if message.kind == "waiting" else 3,
            "tags": ["raised_hand"] if message.kind == "waiting" else [],
            "actions": actions,
        }
        if message.link or message.page:
            doc["click"] = message.link or message.page
        token = secret_of(self._table.token)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        address = f"{self._table.server.rstrip('/')}/"
        await post("the ntfy server", address, encoded(doc), headers)


# Slack: messages with buttons. Answers come back through `server/slack.py`.

ACTION = "leadhand:"
"""The beginning of the action ids of our buttons; the answer follows."""
FINAL_ERRORS = frozenset(
    (
        *("invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"),
        *("channel_not_found", "user_not_found", "is_archived", "missing_scope", "no_permission"),
        *("invalid_blocks", "msg_too_long", "cannot_dm_bot", "messages_tab_disabled"),
    )
)


class SlackChannel:
    """Posts messages to a person or a channel by the Web API."""

    def __init__(self, table: SlackTable) -> None:
        self._table = table

    async def check(self) -> str:
        """Return the workspace that the token belongs to."""
        found = await self.call("auth.test", {})
        return f"{plain(found.get('team', ''), 80)} as {plain(found.get('user', ''), 80)}"

    async def send(self, to: str, message: Message) -> None:
        """Post a message; Slack is told not to look behind its addresses."""
        doc = {
            "channel": to,
            "text": slack_text(f"{message.title}"),
            "blocks": slack_blocks(message),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        await self.call("chat.postMessage", doc)

    async def call(self, method: str, doc: Doc, *, app: bool = False) -> Doc:
        """Call a method of the Web API with the bot token, or with the app-level token."""
        token = secret_of(self._table.app_token if app else self._table.token)
        address = f"{self._table.api.rstrip('/')}/{method}"
        headers = {"Authorization": f"Bearer {token}"}
        answer = await post(f"Slack ({method})", address, encoded(doc), headers)
        try:
            found: Doc = msgspec.json.decode(answer.content, type=dict[str, Any])
        except msgspec.DecodeError:
            raise NotDelivered(f"Slack ({method}) did not answer with JSON") from None
        if found.get("ok") is not True:
            error = plain(found.get("error", "unknown"), 80)
            raise NotDelivered(f"Slack ({method}): {error}", final=error in FINAL_ERRORS)
        return found


def slack_text(text: str, limit: int = 3000) -> str:
    """Return a text for Slack in which nothing is markup."""
    shown = text if len(text) <= limit // 2 else text[: limit // 2 - 1] + "…"
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        shown = shown.replace(char, entity)
    return shown


def slack_blocks(message: Message) -> list[Doc]:
    """Return a message as Block Kit: texts as plain text, buttons with a confirmation."""
    blocks: list[Doc] = [
        {"type": "header", "text": _plain_text(plain(message.title, 150))},
    ]
    blocks += [{"type": "section", "text": _plain_text(part)} for part in _parts(message.lines)]
    buttons: list[Doc] = [_button(each) for each in message.buttons]
    if message.link:
        buttons.append(_address_button("Read and decide", message.link, "open"))
    if message.page:
        buttons.append(_address_button("Dashboard", message.page, "page"))
    if buttons:
        blocks.append({"type": "actions", "elements": buttons[:25]})
    return blocks


def _parts(lines: tuple[str, ...], limit: int = 2900) -> list[str]:
    """Return lines gathered into texts that fit into a section."""
    found = [""]
    for line in lines:
        cut = line[:limit]
        if len(found[-1]) + len(cut) + 1 > limit:
            found.append("")
        found[-1] += f"{cut}\n"
    return [each.strip("\n") for each in found if each.strip()][:40]


def _plain_text(text: str) -> Doc:
    return {"type": "plain_text", "text": text, "emoji": False}


def _address_button(label: str, address: str, name: str) -> Doc:
    return {
        "type": "button",
        "text": _plain_text(label),
        "url": address,
        "action_id": f"leadhand-{name}",
    }


def _button(button: Any) -> Doc:
    found: Doc = {
        "type": "button",
        "text": _plain_text(plain(button.label, 70)),
        "action_id": f"{ACTION}{button.answer}"[:255],
        "value": button.token,
        "confirm": {
            "title": _plain_text(f"{plain(button.label, 60)}?"),
            "text": _plain_text(plain(button.leads_to, 290) or "The answer is recorded."),
            "confirm": _plain_text(plain(button.label, 28)),
            "deny": _plain_text("Cancel"),
        },
    }
    if button.ends:
        found["style"] = "danger"
    elif button.answer in ("approve", "release"):
        found["style"] = "primary"
    return found


def refuse_unknown(name: str, channels: Mapping[str, Channel]) -> None:
    """Raise `UsageError` for a channel that `[notify]` does not set."""
    if name not in channels:
        known = ", ".join(channels) or "none"
        raise UsageError(f"[notify] sets no channel {plain(name, 40)}; there are: {known}")
