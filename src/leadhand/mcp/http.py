"""The server over streamable HTTP: for clients on this machine, or behind TLS.

Laws:

1. Every request needs a token of an account: those of `leadhand serve`. The role of the account
   decides which tools there are.
2. Only names of this machine and those in `[server] hosts` are answered, and only pages of these
   may ask: another site's page cannot reach the server by an address that it resolves to this one.
3. A session belongs to the account that opened it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse, Response

from leadhand.app.inputs import whoami
from leadhand.errors import LeadhandError
from leadhand.mcp.server import Client, client_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

    from leadhand.server.accounts import Accounts, Person
    from leadhand.server.service import Serve
    from leadhand.server.settings import Member
    from leadhand.settings import Settings

PATH = "/mcp"
LOCAL = ("127.0.0.1", "localhost", "[::1]")
ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
PERSON = "leadhand.person"
BODY_BYTES = 4 << 20
END_S = 5


def http_app(
    server: Server[Any], accounts: Accounts | None, hosts: Sequence[str] = (), scheme: str = "http"
) -> ASGIApp:
    """Return the server as a web application.

    `accounts`: who may call; None only where a test has no secrets. `hosts`: names under which it
    may be addressed besides those of this machine.
    """
    names = [*LOCAL, *hosts]
    security = TransportSecuritySettings(
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[
            f"{way}://{name}{end}"
            for name in names
            for way in {scheme, "https"}
            for end in ("", ":*")
        ],
    )
    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=security,
        max_request_body_size=BODY_BYTES,
    )
    return app if accounts is None else TokenGate(app, accounts)


class TokenGate:
    """Lets requests with a token of an account through, and no others."""

    def __init__(self, app: ASGIApp, accounts: Accounts) -> None:
        from leadhand.server.accounts import Tries

        self._app = app
        self._accounts = accounts
        self._tries = Tries()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not _names_are_whole(scope):
                await Response("Invalid Host or Origin header", 400)(scope, receive, send)
                return
            person, wait = self._person(scope)
            if person is None:
                await _refused(wait)(scope, receive, send)
                return
            token = AccessToken(token="", client_id=person.name, scopes=[person.rank])
            scope = {**scope, "user": AuthenticatedUser(token), PERSON: person}
        await self._app(scope, receive, send)

    def _person(self, scope: Scope) -> tuple[Person | None, int]:
        """Return the account of a request; or None, and how long the next wrong token waits."""
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        given = headers[0].decode("latin-1") if len(headers) == 1 else ""
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None, 0
        person = self._accounts.by_token(token.strip())
        if person is not None:
            return person, 0
        address = scope["client"][0] if scope.get("client") else ""
        return None, self._tries.wrong(address, token)


def _names_are_whole(scope: Scope) -> bool:
    """Return whether Host and Origin are a name and a port: their beginning alone says nothing."""
    given: dict[bytes, list[str]] = {b"host": [], b"origin": []}
    for name, value in scope["headers"]:
        if name in given:
            given[name].append(value.decode("latin-1"))
    hosts = [*given[b"host"], *(each.partition("://")[2] for each in given[b"origin"])]
    return len(given[b"origin"]) <= 1 and all(map(ENDPOINT.fullmatch, hosts))


def _refused(wait: int) -> JSONResponse:
    what = "a token of an account is needed: Authorization: Bearer TOKEN"
    headers = {"WWW-Authenticate": 'Bearer realm="leadhand"'}
    if wait:
        headers["Retry-After"] = str(wait)
    error = {"code": -32001, "message": what}
    body = {"jsonrpc": "2.0", "id": None, "error": error}
    return JSONResponse(body, 429 if wait else 401, headers)


def account_of(ctx: ServerRequestContext[Any, Any]) -> Client:
    """Return the client as it calls itself, with the account whose token it has."""
    client, person = client_of(ctx), ctx.request.scope.get(PERSON) if ctx.request else None
    if person is None:
        return client
    role = "viewer" if person.rank == "viewer" else "operator"
    return Client(client.client, client.version, person.name, role)


def accounts_of(settings: Settings, people: Callable[[], Mapping[str, Member]]) -> Accounts:
    """Return the accounts of a project; `people` returns those of the settings as they are now."""
    from leadhand.server.accounts import Accounts, owner_token

    known = dict(people())

    def now() -> Mapping[str, Member]:
        with contextlib.suppress(LeadhandError):  # the file is being written
            known.clear()
            known.update(people())
        return known

    token, _made = owner_token(settings.store)
    return Accounts(settings.actor or whoami(), token, now)


class _NoTracebacks(logging.Filter):
    """Keeps the messages of the SDK's transport, without tracebacks of clients that went away."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


async def serve(app: ASGIApp, wanted: Serve, told: Callable[[str], None]) -> None:
    """Serve until a signal comes; `told` gets the address once it is served."""
    from leadhand.server.service import listening

    logging.getLogger("mcp.server.streamable_http").addFilter(_NoTracebacks())
    sock = listening(wanted)
    config = uvicorn.Config(
        app,
        ssl_certfile=str(wanted.cert) if wanted.cert else None,
        ssl_keyfile=str(wanted.key) if wanted.key else None,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=END_S,
        lifespan="on",
    )
    host = f"[{wanted.bind}]" if ":" in wanted.bind else wanted.bind
    url = f"{'https' if wanted.cert else 'http'}://{host}:{sock.getsockname()[1]}{PATH}"

    class Started(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            told(url)

    await Started(config).serve(sockets=[sock])
