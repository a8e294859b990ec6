"""The gate: what every request passes before anything of it is looked at.

    1 form      known protocol, headers few, short and single, no token in the address
    2 host      addressed by a name that is ours: DNS rebinding ends here
    3 rule      the path and the method stand in `rules.py`
    4 site      not sent by another site's page: Origin and Sec-Fetch-Site
    5 agents    a decision, and any change with the owner's token, does not come from the session
                of a coding agent
    6 person    a token or a session, and a role that is enough
    7 room      not too many at once; new work only while the store has room
    8 body      JSON or form fields, of a bounded size and depth, read in a bounded time

It is plain ASGI, so that nothing bypasses it: neither streams, nor assets, nor errors. WebSockets
are always refused. Every response, also of the application behind the gate, has the same headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from leadhand.engine.agent_session import ENDED, agent_of_process, tcp_peers
from leadhand.server.accounts import COOKIE, Person, Tries
from leadhand.server.bodies import check_form, read_body, replayed
from leadhand.server.problems import MEDIA, RequestRefused, refusal_of
from leadhand.server.rules import OWNER, PUBLIC, RouteRule, RouteRules, may

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from leadhand.server.accounts import Accounts

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

PERSON = "leadhand.person"
"""The key of the authenticated person in the scope of a request."""
STILL = "leadhand.still"
"""The key of a function that tells whether that person is still allowed: for open streams."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS_MAX = 64
HEADER_BYTES_MAX = 16 << 10
PATH_CHARS_MAX = 1024
QUERY_BYTES_MAX = 4096
STRANGER_BYTES = 4 << 10
"""The size of a body before authentication: a token fits."""
FORM_BYTES = 64 << 10
"""The size of a body of form fields: an answer with its comment fits."""
SINGLE = frozenset(
    {
        *(b"host", b"origin", b"authorization", b"cookie", b"content-type", b"content-length"),
        *(b"x-slack-signature", b"x-slack-request-timestamp"),
        *(b"content-encoding", b"sec-fetch-site", b"idempotency-key", b"last-event-id"),
    }
)
"""Headers that may occur only once: a second one would be ambiguous."""
SECRET_WORDS = frozenset(("token", "access_token", "auth", "authorization", "api_key", "apikey"))
LINK_PATH = "/answer/"
SAFE_SITES = ("same-origin", "none")

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
CLOSED = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""The content security policy of everything but the pages."""
LINK_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""The content security policy of the page of a signed link: no script at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits of concurrent requests and of bodies."""

    requests: int = 64
    streams: int = 256
    sign_ins: int = 8
    """Concurrent sign-ins: counted separately, and only once their body has arrived."""
    connections: int = 512
    body_bytes: int = 10 << 20

    def of(self, rule: RouteRule) -> int:
        """Return how many bytes the body of a request may have."""
        if rule.form:
            return FORM_BYTES
        return STRANGER_BYTES if rule.people == PUBLIC else self.body_bytes


class RequestGate:
    """Passes requests on to an application, or refuses them."""

    def __init__(
        self,
        app: App,
        people: Accounts,
        *,
        hosts: tuple[str, ...] = (),
        limits: RequestLimits | None = None,
        room: Callable[[], bool] = lambda: True,
        secure: bool = False,
    ) -> None:
        self._app = app
        self._people = people
        self._table = RouteRules()
        self._hosts = frozenset((*LOOPBACK, *hosts))
        self._limits = limits or RequestLimits()
        self._room = room
        self._scheme = "https" if secure else "http"
        self._tries = Tries()
        self.requests = 0
        self.streams = 0
        self.sign_ins = 0
        self.policy = CLOSED
        """The content security policy of the page."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = _Answer(send, head=scope["method"] == "HEAD", page=self._page(scope))
        try:
            rule = self._admit(scope)
        except RequestRefused as refused:
            await answer.refuse(refused)
            return
        await self._counted(rule, scope, receive, answer)

    def _page(self, scope: Scope) -> str:
        if scope["path"].startswith(LINK_PATH):
            return LINK_POLICY
        return self.policy if scope["path"] == "/" else CLOSED

    # Admission.

    def _admit(self, scope: Scope) -> RouteRule:
        headers = _headers(scope)
        self._check_host(headers)
        rule = self._rule(scope)
        self._check_site(rule, scope, headers)
        if rule.decides:
            self._refuse_agents(scope, "this decision is")
        person = self._person(rule, scope, headers)
        if person is not None and not may(person.rank, rule.people):
            whom = "the owner" if rule.people == OWNER else f"{rule.people}s"
            raise RequestRefused(403, f"{person.name} is {person.role}, and this is for {whom}")
        if person is not None and person.owner and rule.changes and not rule.decides:
            self._refuse_agents(scope, "the owner's token is")
        scope[PERSON] = person
        check_form(rule, headers, self._limits.of(rule))
        if rule.starts and not self._room():
            raise RequestRefused(503, "the write queue is full; retry later")
        return rule

    def _refuse_agents(self, scope: Scope, what: str) -> None:
        """Refuse what is reserved for people to the session of a coding agent on this machine.

        An agent of the same account can read tokens; what it sends is still its own. Only Linux
        tells which process is at the other end.
        """
        client, server = scope.get("client"), scope.get("server")
        if not client or not server:
            return
        peers = tcp_peers(tuple(client), tuple(server))
        if peers is None:
            raise RequestRefused(403, ENDED, fix="wait for the answer")
        if found := next(filter(None, map(agent_of_process, peers)), ""):
            raise RequestRefused(
                403,
                f"{what} reserved for people, and this comes from a session of {found}",
                fix="a person signs in with a browser that the agent did not start; an agent uses "
                "`leadhand mcp serve`, or a token of its own",
            )

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        name = _host_name(headers.get(b"host", b"").decode("latin-1"))
        if name not in self._hosts:
            raise RequestRefused(
                421,
                "this server is not known by that name",
                fix='name it in leadhand.toml: [server] hosts = ["…"]',
            )

    def _rule(self, scope: Scope) -> RouteRule:
        path, raw = scope["path"], scope.get("raw_path", b"").lower()
        if len(path) > PATH_CHARS_MAX or any(each in raw for each in (b"%2f", b"%5c", b"%00")):
            raise RequestRefused(404, "no such route")
        rules = self._table.find(path)
        if not rules:
            raise RequestRefused(404, "no such route")
        method = scope["method"]
        rule = rules.get("GET" if method == "HEAD" else method)
        if rule is None or (method == "HEAD" and rule.stream):
            allowed = ", ".join(sorted(_methods(rules)))
            raise RequestRefused(
                405, f"method {method} is not allowed here", headers={"Allow": allowed}
            )
        return rule

    def _check_site(self, rule: RouteRule, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Refuse requests of pages of another site, whoever is signed in."""
        site = headers.get(b"sec-fetch-site", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.lower() not in self._origins(headers[b"host"].decode("latin-1")):
            raise RequestRefused(403, "cross-origin request refused")
        opens = rule.path == "/" or rule.links
        navigates = headers.get(b"sec-fetch-mode") == b"navigate" and opens
        if site and site not in SAFE_SITES and not (navigates and scope["method"] == "GET"):
            raise RequestRefused(403, "cross-site request refused")
        if site == "none" and rule.method != "GET":
            raise RequestRefused(
                403, "from a browser, only the dashboard of this server may do this"
            )
        if rule.links and rule.method != "GET" and not (origin or site):
            raise RequestRefused(403, "a signed link is answered by the form of its page")

    def _origins(self, host: str) -> tuple[str, ...]:
        """Return our origins; behind a proxy with TLS, a configured name may be https."""
        own = f"{self._scheme}://{host.lower()}"
        proxied = _host_name(host) not in LOOPBACK
        return (own, f"https://{host.lower()}") if proxied else (own,)

    def _person(self, rule: RouteRule, scope: Scope, headers: dict[bytes, bytes]) -> Person | None:
        if rule.people == PUBLIC:
            return None
        given = headers.get(b"authorization")
        if given is not None:
            kind, _, token = given.decode("latin-1").partition(" ")
            if kind.lower() != "bearer":
                raise _unknown("the Authorization header holds no bearer token")
            person = self.sign_in(token.strip(), scope)
            scope[STILL] = lambda: self._people.has(person)
            return person
        cookie = _cookie(headers.get(b"cookie", b"").decode("latin-1"), self._people.cookie)
        found = self._people.by_session(cookie) if cookie else None
        if found is None:
            raise _unknown("sign in first")
        if rule.method != "GET" and not {b"origin", b"sec-fetch-site"} & headers.keys():
            raise RequestRefused(
                403, "a session is for browsers: send the token as a bearer instead"
            )
        scope[STILL] = lambda: self._people.by_session(cookie) is not None
        return found[0]

    def sign_in(self, token: str, scope: Scope) -> Person:
        """Return the person with a token. Raise `RequestRefused`: 401, and 429 after too many.

        A correct token is always accepted, regardless of earlier wrong ones from the same address.
        """
        person = self._people.by_token(token)
        if person is not None:
            return person
        wait = self._tries.wrong(str((scope.get("client") or ("",))[0]), token)
        if wait:
            raise RequestRefused(
                429, "too many requests with wrong tokens", headers={"Retry-After": str(wait)}
            )
        raise _unknown("unknown token")

    # Admitted requests.

    async def _counted(
        self, rule: RouteRule, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        kind = "streams" if rule.stream else "sign_ins" if rule.signs_in else "requests"
        if rule.signs_in:
            try:
                receive = replayed(await read_body(receive, rule, self._limits.of(rule)), receive)
            except RequestRefused as refused:
                await answer.refuse(refused)
                return
        if getattr(self, kind) >= getattr(self._limits, kind):
            what = kind.replace("_", "-")
            await answer.refuse(RequestRefused(503, f"too many {what} at once; retry later"))
            return
        setattr(self, kind, getattr(self, kind) + 1)
        try:
            await self._pass(rule, scope, receive, answer)
        finally:
            setattr(self, kind, getattr(self, kind) - 1)

    async def _pass(self, rule: RouteRule, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if rule.has_body and not rule.signs_in:
            try:
                body = await read_body(receive, rule, self._limits.of(rule))
            except RequestRefused as refused:
                await answer.refuse(refused)
                return
            receive = replayed(body, receive)
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        try:
            await self._app(scope, receive, answer)
        except RequestRefused as refused:
            await answer.refuse(refused)
        except OSError:
            pass  # the client has disconnected
        except Exception as error:  # noqa: BLE001 - nothing behind the gate ends the server
            await answer.refuse(refusal_of(error))


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name. Raise `RequestRefused` if too many, too long or ambiguous."""
    given: list[tuple[bytes, bytes]] = list(scope["headers"])
    if len(given) > HEADERS_MAX or sum(len(k) + len(v) for k, v in given) > HEADER_BYTES_MAX:
        raise RequestRefused(431, "the headers are too large")
    query = scope.get("query_string", b"")
    if len(query) > QUERY_BYTES_MAX:
        raise RequestRefused(414, "the address is too long")
    words = {key.lower() for key, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
    if words & SECRET_WORDS:
        raise RequestRefused(
            400, "a token does not belong into an address: addresses are written down"
        )
    found: dict[bytes, bytes] = {}
    for name, value in given:
        if name in found and name in SINGLE:
            raise RequestRefused(400, f"duplicate {name.decode('latin-1')} header")
        found[name] = value
    if b"host" not in found:
        raise RequestRefused(400, "missing Host header")
    return found


def _host_name(host: str) -> str:
    """Return a Host header without its port; "" if it is malformed."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        fits = bool(bracket) and (not rest or (rest[0] == ":" and rest[1:].isdecimal()))
        return name if fits else ""
    name, colon, port = host.partition(":")
    return name.lower() if not colon or port.isdecimal() else ""


def _methods(rules: dict[str, RouteRule]) -> set[str]:
    heads = {"HEAD"} if "GET" in rules and not rules["GET"].stream else set()
    return set(rules) | heads


def _cookie(header: str, own: str) -> str:
    """Return the session of a Cookie header, by the server's own name before the general one."""
    named: dict[str, list[str]] = {own: [], COOKIE: []}
    for each in header.split(";"):
        name, _, value = each.strip().partition("=")
        named.get(name, []).append(value)
    found = named[own] or named[COOKIE]
    return found[0] if len(found) == 1 else ""


def _unknown(detail: str) -> RequestRefused:
    return RequestRefused(401, detail, headers={"WWW-Authenticate": 'Bearer realm="leadhand"'})


class _Answer:
    """Sends a response with the headers that every response has."""

    def __init__(self, send: Send, *, head: bool, page: str) -> None:
        self._send = send
        self._head = head
        self._policy = page.encode("latin-1")
        self._begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            message = {**message, "headers": self._with_ours(message.get("headers", ()))}
        elif self._head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    def _with_ours(self, given: Any) -> list[tuple[bytes, bytes]]:
        names = {name.lower() for name, _ in given}
        found = [*given, *(each for each in HEADERS if each[0] not in names)]
        if b"cache-control" not in names:
            found.append((b"cache-control", b"no-store"))
        return [*found, (b"content-security-policy", self._policy)]

    async def refuse(self, refused: RequestRefused) -> None:
        """Send a refusal."""
        if self._begun:
            return
        body = refused.body()
        headers = [
            (b"content-type", MEDIA.encode()),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode()) for name, value in refused.headers.items()),
        ]
        # Not after a 413: the rest of the body is discarded, so that the response arrives.
        if refused.status == 408:
            headers.append((b"connection", b"close"))
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
