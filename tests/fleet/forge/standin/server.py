"""A local HTTP server that behaves as the API of a code host does, with faults from a seed.

It has what GitHub and GitLab share: routes, tokens, pages by Link headers, ETags, limits with a
reset, answers that fail after the work was done, and webhooks. People act by methods of the host.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.fleet.forge.standin.git_host import BareGit

Json = Any


class VirtualTime:
    """A clock that sleeping moves; client and host share it, so that limits end in no time."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return time.time() + self._ahead

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._ahead += seconds


@dataclass
class Request:
    """What a client asks."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    data: bytes
    user: str = ""

    @property
    def body(self) -> dict[str, Json]:
        return json.loads(self.data or b"{}")


@dataclass
class Response:
    """What the host answers; bytes are sent as they are."""

    status: int = 200
    data: Json = None
    headers: dict[str, str] = field(default_factory=dict)
    rows: list[Json] | None = None
    """A list to be cut into pages; `inside` is its name in the page."""
    inside: str = ""


class Stop(Exception):
    """Ends a request with a response."""

    def __init__(self, status: int, message: str, **more: Json) -> None:
        super().__init__(message)
        self.response = Response(status, {"message": message, **more})


class Server(ThreadingHTTPServer):
    """Says nothing of clients that go away."""

    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        return


BEFORE = ("error_before", "drop_before", "secondary", "limited")
AFTER = ("error_after", "drop_after")
Handler = Callable[..., Response]


@dataclass
class Faults:
    """Faults at a rate, drawn from a seed."""

    rate: float = 0.0
    seed: int = 0
    kinds: tuple[str, ...] = (*BEFORE, *AFTER)
    most: int = 10**9
    """How many faults there are at most."""
    drawn: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def draw(self) -> str:
        if len(self.drawn) >= self.most or self._chance.random() >= self.rate:
            return ""
        self.drawn.append(self._chance.choice(self.kinds))
        return self.drawn[-1]


class StandIn:
    """A host; a subclass adds routes and state."""

    def __init__(self, clock: VirtualTime | None = None) -> None:
        self.now = clock.now if clock is not None else time.time
        self.lock = threading.RLock()
        self.routes: list[tuple[str, re.Pattern[str], Handler]] = []
        self.tokens: dict[str, str] = {}
        """Accounts by token."""
        self.faults = Faults()
        self.limit, self.remaining, self.reset_at = 5000, 5000, 0.0
        self.window_s = 3600.0
        self.log: list[tuple[str, str, int]] = []
        """Method, path and status of every request."""
        self.seen_tokens: list[tuple[str, str]] = []
        """The host by which a request came, and what it signed in with."""
        self.made: list[str] = []
        """What was made, in order: nothing stands here twice."""
        self.on_handled: Callable[[Request, Response], None] = lambda _request, _response: None
        """Called after the work is done and before the answer leaves."""
        self.hooks: list[tuple[str, str]] = []
        """Webhooks: address and secret."""
        self.url = ""

    # --- the life of the server ---

    @contextlib.contextmanager
    def serving(self) -> Iterator[StandIn]:
        """Serve on a free port of this machine."""
        host = self

        class Connection(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65_536
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                open_ones.append(self.connection)

            def answer(self) -> None:
                host.attend(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *_args: object) -> None:
                return

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string(host.now() if timestamp is None else timestamp)

        open_ones: list[Any] = []
        server = Server(("127.0.0.1", 0), Connection)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            for each in open_ones:
                with contextlib.suppress(OSError):
                    each.close()

    def route(self, method: str, pattern: str, handler: Handler) -> None:
        """Add a route; `{name}` is one part of the path, an argument of the handler."""
        form = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
        self.routes.append((method, re.compile(form), handler))

    def attend(self, connection: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(connection.path)
        length = int(connection.headers.get("content-length") or 0)
        request = Request(
            connection.command,
            parts.path,
            {name: values[-1] for name, values in parse_qs(parts.query).items()},
            {name.lower(): value for name, value in connection.headers.items()},
            connection.rfile.read(length),
        )
        with self.lock:
            response, drop = self.answer(request)
        if drop:
            connection.close_connection = True
            return
        raw = isinstance(response.data, bytes)
        data = response.data if raw else json.dumps(response.data).encode()
        if response.status in (204, 304) or response.data is None:
            data = b""
        with contextlib.suppress(OSError):
            connection.send_response(response.status)
            for name, value in response.headers.items():
                connection.send_header(name, value)
            if not raw:
                connection.send_header("content-type", "application/json; charset=utf-8")
            connection.send_header("content-length", str(len(data)))
            connection.end_headers()
            connection.wfile.write(data)

    # --- one request ---

    def answer(self, request: Request) -> tuple[Response, bool]:
        """Return the response, and whether the connection is cut instead."""
        fault = self.faults.draw()
        if fault in BEFORE:
            self.log.append((request.method, request.path, -1))
            return self._before(fault), fault == "drop_before"
        try:
            response = self._checked(request) or self._handle(request)
        except Stop as stop:
            response = stop.response
        self.log.append((request.method, request.path, response.status))
        self.on_handled(request, response)
        if fault == "error_after":
            return Response(502, {"message": "Server Error"}), False
        response.headers |= self.limit_headers()
        return response, fault == "drop_after"

    def _before(self, fault: str) -> Response:
        if fault == "error_before":
            return Response(503, {"message": "Service Unavailable"})
        if fault == "limited":
            return Response(429, {"message": "Too many"}, {"retry-after": "2"})
        text = "You have exceeded a secondary rate limit. Please wait a few minutes."
        return Response(403, {"message": text}, {"retry-after": "3"})

    def _checked(self, request: Request) -> Response | None:
        """Return the response to a request that is not signed in, or that is over the limit."""
        if request.path.startswith("/storage/"):
            self.seen_tokens.append(("storage", self.token_of(request)))
            return None
        token = self.token_of(request)
        self.seen_tokens.append(("api", token))
        if (user := self.user_of(token)) is None:
            return Response(401, {"message": "Bad credentials"})
        request.user = user
        if self.now() >= self.reset_at:
            self.remaining, self.reset_at = self.limit, self.now() + self.window_s
        if self.remaining <= 0:
            return Response(403, {"message": "API rate limit exceeded for this account"})
        return None

    def _handle(self, request: Request) -> Response:
        for method, form, handler in self.routes:
            if method == request.method and (found := form.fullmatch(request.path)):
                given = {name: unquote(value) for name, value in found.groupdict().items()}
                response = handler(request, **given)
                return self._conditional(request, self._page(request, response))
        raise Stop(404, "Not Found")

    def _page(self, request: Request, response: Response) -> Response:
        if response.rows is None:
            return response
        size = min(int(request.query.get("per_page", 30)), 100)
        page = int(request.query.get("page", 1))
        rows = response.rows[(page - 1) * size : page * size]
        last = max(1, -(-len(response.rows) // size))
        links = {"prev": page - 1, "next": page + 1, "last": last}
        shown = [
            f'<{self.url}{request.path}?{urlencode({**request.query, "page": at})}>; rel="{name}"'
            for name, at in links.items()
            if 1 <= at <= last and (name != "last" or page < last)
        ]
        if shown:
            response.headers["link"] = ", ".join(shown)
        inside = {"total_count": len(response.rows), response.inside: rows}
        response.data = inside if response.inside else rows
        return response

    def _conditional(self, request: Request, response: Response) -> Response:
        """Add an ETag; what did not change costs nothing."""
        if request.method != "GET" or response.status != 200 or isinstance(response.data, bytes):
            self.remaining -= 1
            return response
        digest = hashlib.sha256(json.dumps(response.data, sort_keys=True).encode()).hexdigest()
        response.headers["etag"] = etag = f'W/"{digest[:32]}"'
        if request.headers.get("if-none-match") == etag:
            return Response(304, None, response.headers)
        self.remaining -= 1
        return response

    def limit_headers(self) -> dict[str, str]:
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(max(0, self.remaining)),
            "x-ratelimit-reset": str(int(self.reset_at)),
            "x-ratelimit-resource": "core",
        }

    def token_of(self, request: Request) -> str:
        return request.headers.get("authorization", "").partition(" ")[2]

    def user_of(self, token: str) -> str | None:
        return self.tokens.get(token)

    # --- webhooks ---

    def deliver(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send a webhook to every address, in a thread; a lost one is not sent again."""
        for address, secret in self.hooks:
            signed = {**headers, **self.signature(secret, body)}
            request = urllib.request.Request(address, body, signed, method="POST")
            threading.Thread(target=_post, args=(request,), daemon=True).start()

    def signature(self, secret: str, body: bytes) -> dict[str, str]:
        raise NotImplementedError

    def time(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now()))


def _post(request: urllib.request.Request) -> None:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=10).close()


def git_over_http(git: object, request: Request, service: str) -> Response:
    """Let git answer, if the stand-in has a real repository."""
    if not isinstance(git, BareGit):
        raise Stop(404, "Not Found")
    query = "&".join(f"{name}={value}" for name, value in request.query.items())
    kind = request.headers.get("content-type", "")
    coding = request.headers.get("content-encoding", "")
    said = git.over_http(f"/{service}", query, request.method, kind, request.data, coding)
    head, _, body = said.partition(b"\r\n\r\n")
    rows = [line.decode().partition(": ") for line in head.split(b"\r\n")]
    headers = {name: value for name, _, value in rows}
    status = int(headers.pop("Status", "200").split()[0])
    return Response(status, body, headers)


def basic_password(token: str) -> str:
    """Return the password of Basic sign-in, "" if it is none."""
    try:
        return base64.b64decode(token, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
