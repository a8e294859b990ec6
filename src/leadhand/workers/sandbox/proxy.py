"""A door to the network: a proxy through which agents reach listed hosts only.

It listens on a Unix socket, in a folder that is only ours; sandboxes lead their loopback there
(`sandbox.py`). Three kinds of request come through:

    CONNECT host:port          a tunnel, if that host and port are on the list; the TLS inside is
                               the agent's own, and nothing of it is seen here
    GET http://host:port/...   plain HTTP, by the same list
    GET /NAME/...              a route: a service that has a name here. The request goes on over
                               TLS to the service's address, with the route's headers set: so
                               credentials are used by agents that never hold them

Names are exact: no patterns, no subdomains. What is not on the list is answered with 403 and told
to `refused`. Names are looked up here; an agent has no DNS, and no way to speak by it.

Behind a company's proxy every connection goes on by `CONNECT` through that one (`Upstream`), but
for the hosts that are exempt. Its password is known here only.

A connection carries one request (`connection: close`), so that no request can hide behind one that
was looked at: what would follow goes to the same service, without the route's headers. Heads,
connections and waiting are bounded; bodies pass through piece by piece.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 64 << 10
HEAD_S_MAX = 30.0
CONNECT_S_MAX = 20.0
LINGER_S_MAX = 2.0
CONNECTIONS_MAX = 2_000
PIECE_BYTES = 64 << 10
REFUSING = 400
"""The lowest status of a refusal."""
PLAIN = {"Accept-Encoding": "identity"}
HOP_BY_HOP = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
    }
)


REFUSAL_BYTES_MAX = 16 << 10
REFUSAL_S_MAX = 5.0
"""How much of a refusal is read before it is passed on, and for how long."""


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """What a service answered to one request on a route."""

    route: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in lower case."""
    body: bytes = b""
    """The begin of a refusal (a status of 400 and above); empty for other answers."""


Answered = Callable[[ServiceAnswer], None]
"""Told of every answer on a route. A rate limit is the account's, not one agent's; and what an
agent says of it could be made up."""


@dataclass(frozen=True, slots=True)
class Route:
    """A service by a name of ours, with the headers that are added to every request for it."""

    address: str
    """Such as `https://api.example.com` or `http://127.0.0.1:8000/base`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Set in place of the agent's own of the same name: credentials."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A proxy that leads out of this network."""

    host: str
    port: int
    login: str = field(default="", repr=False)
    """`user:password`, sent as basic authorization; empty: none is."""
    exempt: tuple[str, ...] = ()
    """Hosts that are reached without it: exact names, or `.example.com` for all below."""

    def leads_to(self, host: str) -> bool:
        """Return whether connections to a host go through it."""
        return not any(
            host == each.lstrip(".") or (each.startswith(".") and host.endswith(each))
            for each in map(str.lower, self.exempt)
        )


@dataclass(frozen=True, slots=True)
class _Target:
    host: str
    port: int
    secure: bool
    head: bytes
    """What is sent on before the rest; empty for a tunnel."""
    route: str = ""


class ProxyRefused(Exception):
    """Not for an agent: a status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Proxy:
    """Listens while it is open; `socket` is where."""

    def __init__(
        self,
        hosts: Sequence[str] = (),
        routes: Mapping[str, Route] | None = None,
        *,
        refused: Callable[[str], None] | None = None,
        answered: Answered | None = None,
        upstream: Upstream | None = None,
        certificates: Path | None = None,
    ) -> None:
        """Take the list of hosts and the routes.

        - `answered`: told of every answer on a route, before the agent gets it. Services are then
          asked not to compress, so that refusals can be read.
        - `certificates`: a file of PEM that routes trust in place of the system's.
        """
        self._upstream, self._certificates = upstream, certificates
        self._hosts = frozenset(_host(each) for each in hosts)
        self._routes = dict(routes or {})
        for route in self._routes.values():
            _parts(route.address)
        self._refused, self.answered = refused, answered
        self._trust: ssl.SSLContext | None = None
        self._folder: Path | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def has_routes(self) -> bool:
        """Return whether services are reached by names of ours."""
        return bool(self._routes)

    @property
    def socket(self) -> Path:
        """Return the socket that sandboxes are given."""
        assert self._folder is not None
        return self._folder / "proxy.sock"

    async def __aenter__(self) -> Self:
        # Made by mkdtemp: ours alone to enter, and short enough for the address of a socket.
        self._folder = Path(tempfile.mkdtemp(prefix="leadhand-"))
        self._server = await asyncio.start_unix_server(
            self._connected, self.socket, limit=HEAD_BYTES_MAX, backlog=1024
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._folder is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                raise ProxyRefused(503, "too many connections")
            target = await self._wanted(reader)
            await self._lead(target, reader, writer)
        except ProxyRefused as refusal:
            if self._refused is not None and refusal.status == 403:
                self._refused(str(refusal))
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(_answer(reader, writer, refusal), LINGER_S_MAX)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _wanted(self, reader: asyncio.StreamReader) -> _Target:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S_MAX)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise ProxyRefused(400, "no head of a request") from None
        try:
            first, *lines = head[:-4].decode("latin-1").split("\r\n")
            method, place, version = first.split(" ")
            headers = [_header(line) for line in lines]
        except ValueError:
            raise ProxyRefused(400, "not a request of HTTP/1.1") from None
        if version not in ("HTTP/1.1", "HTTP/1.0"):
            raise ProxyRefused(505, "HTTP/1.1 only")
        if method == "CONNECT":
            host, port = self._allowed(place)
            return _Target(host, port, secure=False, head=b"")
        if place.startswith("/"):
            return self._routed(method, place, headers)
        parts = urlsplit(place)
        if parts.scheme != "http" or not parts.hostname:
            raise ProxyRefused(403, f"{place[:200]} is not asked for in this way")
        host, port = self._allowed(f"{parts.hostname}:{parts.port or 80}")
        path = place.split("://", 1)[1]
        path = "/" + path.split("/", 1)[1] if "/" in path else "/"
        head = _head(method, path, f"{host}:{port}", headers, {})
        return _Target(host, port, secure=False, head=head)

    def _allowed(self, place: str) -> tuple[str, int]:
        try:
            wanted = _host(place)
        except ValueError:
            raise ProxyRefused(400, f"{place[:200]!r} is no host and port") from None
        if wanted not in self._hosts:
            raise ProxyRefused(403, f"{wanted[0]}:{wanted[1]} is not on the list")
        return wanted

    def _routed(self, method: str, place: str, headers: list[tuple[str, str]]) -> _Target:
        name, _, rest = place[1:].partition("/")
        route = self._routes.get(name)
        if route is None:
            raise ProxyRefused(403, f"there is no route {name[:100]!r}")
        host, port, secure, base = _parts(route.address)
        usual = port == (443 if secure else 80)
        head = _head(
            method,
            f"{base}/{rest}",
            host if usual else f"{host}:{port}",
            headers,
            {**route.headers, **(PLAIN if self.answered is not None else {})},
        )
        return _Target(host, port, secure=secure, head=head, route=name)

    async def _lead(
        self, target: _Target, near: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        trust = None
        if target.secure:
            trust = self._trust = self._trust or ssl.create_default_context(
                cafile=self._certificates
            )
        try:
            far, out = await asyncio.wait_for(self._connect(target, trust), CONNECT_S_MAX)
        except (OSError, TimeoutError) as error:
            raise ProxyRefused(
                502, f"{target.host}:{target.port} cannot be reached: {error}"
            ) from None
        try:
            if target.head:
                out.write(target.head)
            else:
                back.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            sending = asyncio.ensure_future(_pump(near, out))
            try:
                if target.route and self.answered is not None:
                    answer, read = await _answer_of(target.route, far)
                    self.answered(answer)
                    back.write(read)
                await _pump(far, back)
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        finally:
            out.close()

    async def _connect(
        self, target: _Target, trust: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a service, by the proxy of this network where there is one."""
        up = self._upstream
        if up is None or not up.leads_to(target.host):
            return await asyncio.open_connection(target.host, target.port, ssl=trust)
        far, out = await asyncio.open_connection(up.host, up.port)
        try:
            place = f"[{target.host}]" if ":" in target.host else target.host
            place = f"{place}:{target.port}"
            lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
            if up.login:
                secret = base64.b64encode(up.login.encode()).decode()
                lines.append(f"Proxy-Authorization: Basic {secret}")
            out.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            status, _headers = _said(await _head_of(far))
            if status != 200:
                why = f"the proxy {up.host}:{up.port} answered {status or 'nothing'}"
                raise ProxyRefused(502, f"{place} cannot be reached: {why}")
            if trust is not None:
                await out.start_tls(trust, server_hostname=target.host)
        except BaseException:
            out.close()
            raise
        return far, out


async def open_doors(stack: AsyncExitStack, doors: Mapping[str, Proxy]) -> dict[str, Path]:
    """Proxies by name, open for as long as the stack is: their sockets."""
    return {name: (await stack.enter_async_context(door)).socket for name, door in doors.items()}


async def _head_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await reader.read(error.consumed or 1)


async def _answer_of(route: str, reader: asyncio.StreamReader) -> tuple[ServiceAnswer, bytes]:
    """Return the begin of an answer, and all the bytes of it that were read for that."""
    head = await _head_of(reader)
    status, headers = _said(head)
    body = b""
    if status >= REFUSING:
        length = headers.get("content-length", "")
        most = min(int(length) if length.isdecimal() else REFUSAL_BYTES_MAX, REFUSAL_BYTES_MAX)
        with suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_S_MAX):
                while len(body) < most and (piece := await reader.read(most - len(body))):
                    body += piece
    return ServiceAnswer(route, status, headers, body), head + body


def _said(head: bytes) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of an answer."""
    first, *lines = head.decode("latin-1").split("\r\n")
    status = [*first.split(" "), "", ""][1]
    pairs = (line.partition(":") for line in lines if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, _colon, value in pairs}
    return int(status) if status.isdecimal() else 0, headers


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refusal: ProxyRefused
) -> None:
    """Send the refusal, and read the rest of the request, or the answer would be lost with it."""
    body = f"leadhand: {refusal}\n".encode()
    writer.write(
        f"HTTP/1.1 {refusal.status} Refused\r\ncontent-type: text/plain\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    writer.write_eof()
    while await reader.read(PIECE_BYTES):
        pass


def _head(
    method: str,
    path: str,
    host: str,
    headers: Sequence[tuple[str, str]],
    added: Mapping[str, str],
) -> bytes:
    replaced = HOP_BY_HOP | {name.lower() for name in added}
    kept = [(name, value) for name, value in headers if name.lower() not in replaced]
    lines = [("Host", host), *kept, *added.items(), ("Connection", "close")]
    said = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"{method} {path} HTTP/1.1\r\n{said}\r\n".encode("latin-1")


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or name != name.strip() or not name:
        raise ValueError(line)
    return name, value.strip()


def _host(place: str) -> tuple[str, int]:
    name, colon, port = place.rpartition(":")
    if not colon:
        name, port = place, "443"
    name = name.strip("[]").rstrip(".").lower()
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{place!r} is no host and port")
    return name, int(port)


def _parts(address: str) -> tuple[str, int, bool, str]:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{address!r} is no address of a service")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    return parts.hostname, port, secure, parts.path.rstrip("/")
