"""Answers from Slack: buttons of our messages, through a socket or a signed endpoint.

A button carries the signed link of the person whom the message was sent to. An answer counts if
Slack vouches for the request (a socket that we opened, or a signature by the app's secret), the
workspace is the app's own, and the button was pressed by exactly that person's Slack account. The
rest is as for the page of the link: `server/link_answers.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from leadhand.errors import LeadhandError
from leadhand.notify.channels import (
    ACTION,
    LIMIT_S,
    NotDelivered,
    SlackChannel,
    encoded,
    post,
    secret_of,
    slack_text,
)
from leadhand.notify.message import plain
from leadhand.server.link_answers import LinkAnswer, give_answer, label_of
from leadhand.server.links import LinkRefused
from leadhand.server.problems import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from leadhand.core.plan.model import Doc
    from leadhand.server.app_state import AppState
    from leadhand.settings.notify import SlackTable

WINDOW_S = 300
"""How old a signed request may be, and how far ahead of our clock."""
FRAME_BYTES = 1 << 20
PAUSE_MAX_S = 60.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def slack_signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a request by the app's signing secret, version 0."""
    signed = f"v0:{timestamp}:".encode() + body
    return f"v0={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


class SlackAnswers:
    """Takes answers from Slack, as the settings say."""

    def __init__(
        self,
        app_state: AppState,
        tell: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._app_state = app_state
        self._tell = tell
        self._now = now
        self._table: SlackTable | None = app_state.settings.notify.slack
        self._team = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Open the socket, if the settings name an app-level token."""
        if self._table is not None and self._table.app_token and self._app_state.links.address:
            self._start(self._socket(self._table))

    async def close(self) -> None:
        """Close the socket; answers that are being recorded are finished."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The endpoint.

    def receive(self, headers: Mapping[str, str], body: bytes, payload: str) -> None:
        """Take a request of Slack; what follows goes to its response address.

        Raise `RequestRefused` unless it is signed by the app's secret, now.
        """
        if self._table is None or not self._table.signing_secret:
            raise RequestRefused(404, "no such route")
        timestamp = headers.get("x-slack-request-timestamp", "")
        given = headers.get("x-slack-signature", "")
        if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 12:
            raise RequestRefused(401, "this request is not signed")
        try:
            right = slack_signature(secret_of(self._table.signing_secret), timestamp, body)
        except NotDelivered as error:
            self._tell(f"notify: Slack: {error}")
            raise RequestRefused(503, "requests of Slack cannot be checked now") from None
        if not hmac.compare_digest(right.encode(), given.encode("utf-8", "replace")):
            raise RequestRefused(401, "this request is not signed")
        if abs(self._now() - int(timestamp)) > WINDOW_S:
            raise RequestRefused(401, "this request is too old")
        try:
            doc = msgspec.json.decode(payload.encode(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise RequestRefused(400, "this is no payload of Slack") from None
        self._start(self._handle(doc))

    # The socket.

    async def _socket(self, table: SlackTable) -> None:
        """Stay connected: Slack ends each connection after some hours."""
        try:
            from websockets.exceptions import WebSocketException
        except ImportError:
            self._tell(
                "notify: answers through Slack's socket need the package websockets. Fix: pip "
                "install 'leadhand[slack]'"
            )
            return
        pause_s, said = 1.0, ""
        while True:
            problem, began = "", time.monotonic()
            try:
                await self._connected(table)
            except (NotDelivered, WebSocketException, OSError, ValueError, RecursionError) as error:
                problem = f"notify: Slack's socket: {type(error).__name__}: {plain(error, 200)}"
            if problem and problem != said:
                self._tell(f"{problem}; it is tried again")
            said = problem
            if time.monotonic() - began > PAUSE_MAX_S:  # it lasted: this was no failure
                pause_s = 1.0
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _connected(self, table: SlackTable) -> None:
        """Open one connection and serve it until Slack asks for another."""
        from websockets.asyncio.client import connect

        found = await SlackChannel(table).call("apps.connections.open", {}, app=True)
        address = str(found.get("url", ""))
        parts = urlsplit(address)
        if parts.scheme != "wss" and parts.hostname not in LOOPBACK:
            raise ValueError("Slack named no encrypted address")
        async with connect(address, max_size=FRAME_BYTES, open_timeout=LIMIT_S) as socket:
            async for frame in socket:
                doc = msgspec.json.decode(frame, type=dict[str, Any])
                if doc.get("type") == "disconnect":
                    return
                if envelope := doc.get("envelope_id"):
                    # Slack wants it within three seconds: before anything is done.
                    await socket.send(encoded({"envelope_id": envelope}).decode(), text=True)
                if doc.get("type") == "interactive" and isinstance(doc.get("payload"), dict):
                    self._start(self._handle(doc["payload"]))

    # Answers.

    async def _handle(self, payload: Doc) -> None:
        """Record the answer of a button, and tell the person who pressed it."""
        actions = payload.get("actions")
        if payload.get("type") != "block_actions" or not isinstance(actions, list) or not actions:
            return
        action = actions[0] if isinstance(actions[0], dict) else {}
        name = str(action.get("action_id", ""))
        if not name.startswith(ACTION):
            return  # a button that only opens an address
        try:
            text = await self._answered(payload, str(action.get("value", "")), name)
            done = True
        except (LinkRefused, LeadhandError, NotDelivered) as error:
            text, done = str(error), False
        try:
            await self._reply(str(payload.get("response_url", "")), text, done=done)
        except NotDelivered as error:
            self._tell(f"notify: {error}")

    async def _answered(self, payload: Doc, token: str, name: str) -> str:
        link, person = self._app_state.links.open(token)
        user = _id(payload, "user")
        if link.channel != "slack" or not user or person.addresses.get("slack") != user:
            raise LinkRefused(403, "This message is for another person.")
        if _id(payload, "team") != await self._own_team():
            raise LinkRefused(403, "This is another workspace.")
        given = LinkAnswer(name.removeprefix(ACTION))
        # Shielded: the end of the server does not cut an answer that is being recorded.
        status = await asyncio.shield(give_answer(self._app_state, link, person, given))
        return (
            f"Recorded in the log of run {link.run} for {person.name}: {label_of(given.choice)}. "
            f"The run is {status}."
        )

    async def _own_team(self) -> str:
        """Return the workspace that our token belongs to."""
        if not self._team and self._table is not None:
            found = await SlackChannel(self._table).call("auth.test", {})
            self._team = str(found.get("team_id", ""))
        if not self._team:
            raise NotDelivered("Slack did not say which workspace this is")
        return self._team

    async def _reply(self, address: str, text: str, *, done: bool) -> None:
        """Replace the message by what was recorded, or tell the person why it was refused."""
        if not self._is_slacks(address):
            return
        doc: Doc = {"text": slack_text(text), "replace_original": done}
        if not done:
            doc["response_type"] = "ephemeral"
        await post("Slack (response)", address, encoded(doc), {})

    def _is_slacks(self, address: str) -> bool:
        assert self._table is not None
        here, api = urlsplit(address), urlsplit(self._table.api)
        if (here.scheme, here.netloc) == (api.scheme, api.netloc):
            return True
        return here.scheme == "https" and (here.hostname or "").endswith(".slack.com")


def _id(payload: Doc, what: str) -> str:
    found = payload.get(what)
    return str(found.get("id", "")) if isinstance(found, dict) else ""
