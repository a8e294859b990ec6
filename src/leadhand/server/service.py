"""Serving: the host, the gate and the application in one process, from start to drain.

lock ─► host ─► open runs resumed ─► listen ─► … ─► signal ─► streams closed, nothing new
     starts, attempts in flight may finish ─► stop listening ─► host closed, lock released
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import uvicorn

from leadhand.app.composition import telemetry_of
from leadhand.app.documents import Driver
from leadhand.app.hosting_service import hosting_service
from leadhand.engine.host import VERSION
from leadhand.errors import Conflict, NotAllowed, UsageError
from leadhand.notify.notifier import Notifier
from leadhand.server.accounts import Accounts, owner_token, signed_out_file
from leadhand.server.app import build
from leadhand.server.app_state import AppState
from leadhand.server.cached_reader import CachedReaders
from leadhand.server.connections import strict_protocol
from leadhand.server.gate import RequestGate, RequestLimits
from leadhand.server.idempotency import Keys
from leadhand.server.links import Links
from leadhand.server.messages import PersonalMessages, open_rows, outbox_file
from leadhand.server.prometheus import EventCounts
from leadhand.server.routes.pages import page_policy
from leadhand.server.routes.people import put_right
from leadhand.server.run_supervisor import RunSupervisor
from leadhand.server.settings import server_of, trusted_people
from leadhand.server.stream import StreamHub
from leadhand.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from leadhand.app.hosting_service import Engine
    from leadhand.core.views.inbox import InboxRow
    from leadhand.server.fleet_station import FleetStation
    from leadhand.server.settings import Member
    from leadhand.settings import Settings
    from leadhand.stores.log import KeptStore, Log

    Notice = Callable[[str, str, str], None]

GRACE_S = 5
"""How long responses in progress may take once the server ends."""
USER_TIMEOUT_MS = 60_000
"""The kernel cuts a connection whose peer acknowledges nothing for so long."""

SEND_BYTES = 128 << 10
"""The kernel's send buffer of a connection: small, so that a slow reader is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """The options of serving."""

    settings: Settings
    actor: str
    bind: str
    port: int
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False
    limits: RequestLimits = field(default_factory=RequestLimits)
    tell: Callable[[str], None] = print
    """Called with messages for the operator."""
    notifies: bool = False
    """Whether the channels of `[notify]` are told of runs that wait or end."""
    station: FleetStation | None = None
    """The fleet whose runs these are, if one works in this process."""


def is_loopback(bind: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def listening(serve: Serve) -> socket.socket:
    """Open the socket. Raise `NotAllowed` if others could reach it without encryption."""
    if not is_loopback(serve.bind) and serve.cert is None and not serve.insecure:
        raise NotAllowed(
            f"{serve.bind} can be reached by others, and tokens would travel in the clear. Fix: "
            "--tls-cert FILE --tls-key FILE, or --insecure-bind where something else encrypts"
        )
    family = socket.AF_INET6 if ":" in serve.bind else socket.AF_INET
    # With its protocol named: asyncio sets TCP_NODELAY on no other socket, and the body of each
    # response would wait 40 ms for the acknowledgement of its headers.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        sock.bind((serve.bind, serve.port))
        sock.listen(512)
    except OSError as error:
        sock.close()
        place = f"{serve.bind} port {serve.port}"
        raise Conflict(
            f"{place}: cannot listen there ({error.strerror}). Fix: give --port 0 for a free one"
        ) from None
    sock.setblocking(False)
    return sock


def product_version() -> str:
    """Return the version of Leadhand."""
    try:
        return version("leadhand")
    except PackageNotFoundError:
        return VERSION


class Running:
    """A running server."""

    def __init__(
        self, app_state: AppState, gate: RequestGate, server: _Server, url: str, token: str
    ) -> None:
        self.app_state = app_state
        self.gate = gate
        self.server = server
        self.url = url
        self.new_token = token
        """The owner's token, if it was created now."""

    async def failed(self) -> None:
        """Wait until the host fails, and raise its error."""
        host = self.app_state.host
        store = cast("KeptStore", host.store)
        while (why := host.failed or getattr(store, "refusal", None)) is None:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(0.2)
        raise why


@contextlib.asynccontextmanager
async def running(serve: Serve) -> AsyncIterator[Running]:
    """Open everything in order, and close it in reverse."""
    sock = listening(serve)
    settings = serve.settings
    telemetry_of(settings)
    lead = serve.station.lead if serve.station is not None else None
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        listeners: list[Notice] = []
        engine = await _engine(stack, serve, listeners)
        store = engine.store if engine is not None else None
        supervisor = RunSupervisor(settings, serve.actor, serve.tell, lead, store)
        supervisor.began = engine.began if engine is not None else 0
        supervisor.listeners = listeners
        host = await stack.enter_async_context(supervisor.lead.hosting())
        token, made = owner_token(settings.store)
        cached_readers = CachedReaders(settings.store)
        stack.callback(cached_readers.close)
        cached_readers.driver = Driver(_pid(), host.owner, every=store is not None)
        hub = StreamHub(cast("Log", host.store), cached_readers)
        own_key = str(settings.approver_key or "")
        people = Accounts(
            serve.actor,
            token,
            _members(settings),
            owner_key=own_key,
            signed_out=signed_out_file(settings.store),
        )
        app_state = AppState(
            settings,
            people,
            cached_readers,
            supervisor,
            hub,
            Keys(),
            product_version(),
            links=Links(
                settings.store,
                people,
                address=server_of(settings).address,
                valid_s=server_of(settings).link_expires,
            ),
            secure=serve.cert is not None,
            station=serve.station,
        )
        gate = app_state.gate = RequestGate(
            build(app_state),
            people,
            hosts=server_of(settings).hosts + _own_names(serve),
            limits=serve.limits,
            room=lambda: host.store.room() and not host.draining,
            secure=app_state.secure,
        )
        gate.policy = page_policy(app_state.version)
        ends = await cached_readers.read(lambda desk: desk.store.last_position())
        app_state.book = EventCounts(ends)
        listeners += await _notices(stack, app_state, serve)
        await supervisor.open(host, cached_readers)
        await put_right(app_state)
        stack.push_async_callback(supervisor.close)
        stack.push_async_callback(hub.close)
        server = _Server(_config(gate, serve))
        task = asyncio.create_task(server.serve(sockets=[sock]))
        stack.push_async_callback(_ended, server, hub, task)
        await server.up(task)
        port = sock.getsockname()[1]
        shown = f"[{serve.bind}]" if ":" in serve.bind else serve.bind
        url = f"{'https' if app_state.secure else 'http'}://{shown}:{port}"
        yield Running(app_state, gate, server, url, token if made else "")


async def _notices(
    stack: contextlib.AsyncExitStack, app_state: AppState, serve: Serve
) -> list[Notice]:
    """Return the listeners that tell people: each person, and the addresses of `[notify]`."""
    messages = PersonalMessages(app_state, serve.tell)
    messages.open()
    stack.push_async_callback(messages.close)
    app_state.slack.open()
    stack.push_async_callback(app_state.slack.close)
    if not serve.notifies:
        return [messages]

    async def rows(run: str) -> list[InboxRow]:
        return await app_state.cached_readers.read(lambda desk: open_rows(desk, run))

    settings = serve.settings
    file = outbox_file(settings.store, "shared")
    notifier = Notifier(settings, serve.tell, rows=rows, file=file)
    notifier.outbox.load()
    stack.push_async_callback(notifier.finish)
    return [messages, notifier]


async def _engine(
    stack: contextlib.AsyncExitStack, serve: Serve, listeners: Sequence[Notice]
) -> Engine | None:
    """Start an engine and open its log, if a service elsewhere hosts the runs."""
    service = hosting_service(serve.settings)
    if service is None or serve.station is not None:
        return None

    def notice(kind: str, run: str, text: str) -> None:
        for each in listeners:
            each(kind, run, text)

    return await stack.enter_async_context(service.engine(serve.settings, notice))


def _pid() -> int:
    import os

    return os.getpid()


def _own_names(serve: Serve) -> tuple[str, ...]:
    """Return our names: of the public address, and the bound address unless it is a wildcard."""
    public = urlsplit(server_of(serve.settings).address).hostname
    names = (public,) if public else ()
    if serve.bind in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return names
    return (*names, serve.bind.lower())


def _members(settings: Settings) -> Callable[[], Mapping[str, Member]]:
    """Return a function for the current people; it reads the files again after a change."""
    known: list[Any] = [_stamp(settings), trusted_people(settings, settings.trust)]

    def look() -> Mapping[str, Member]:
        stamp = _stamp(settings)
        if stamp != known[0]:
            with contextlib.suppress(UsageError, NotAllowed):  # half written
                now = load_settings(folder=settings.root)
                known[1] = trusted_people(now, settings.trust)
                known[0] = stamp
        found: Mapping[str, Member] = known[1]
        return found

    return look


def _stamp(settings: Settings) -> tuple[Any, ...]:
    found = []
    trusted = (settings.trust.file,) if settings.trust is not None else ()
    for path in (*settings.files, settings.root / "leadhand.toml", *trusted):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def _config(gate: RequestGate, serve: Serve) -> uvicorn.Config:
    config = uvicorn.Config(
        gate,
        http=strict_protocol(serve.limits.connections),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # bad requests are not logged; our own errors are reported elsewhere
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=32 << 10,
        ssl_certfile=str(serve.cert) if serve.cert else None,
        ssl_keyfile=str(serve.key) if serve.key else None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificate cannot be used: {error}") from None
    return config


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which the command line does."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def up(self, task: asyncio.Task[None]) -> None:
        """Wait until it listens. Raise `Conflict` if it ended before."""
        while not self.started:
            if task.done():
                task.result()
                raise Conflict("the server ended before it began")
            await asyncio.sleep(0.005)


async def _ended(server: _Server, hub: StreamHub, task: asyncio.Task[None]) -> None:
    await hub.close()
    server.should_exit = True
    with contextlib.suppress(asyncio.CancelledError):
        await task
