"""HTTP workers: actions that are one request each.

`request` says what is sent, `netguard` where it may go, `Exchange` what the answer means.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.codec.values import plain
from leadhand.core.catalog import WorkerSpec
from leadhand.core.report import Effect, Failure, Report
from leadhand.workers.http.netguard import PORTS, AddressRefused, ResolvedAddress, canonical
from leadhand.workers.http.request import SAFE, HttpAction, HttpRequest, Missing, fixed_headers
from leadhand.workers.reports import bounded_text, holds
from leadhand.workers.template import with_defaults

if TYPE_CHECKING:
    import httpx2

    from leadhand.ports import Context, Task
    from leadhand.workers.http.netguard import Resolve


# One exchange over HTTP: a request, the redirects after it, and what the answer means.
#
# Why there is no connection pool: each attempt opens its own connection, to the very address the
# guard judged (`netguard`). A pooled connection that the server has just closed looks the same as
# an answer that was lost, and after a POST that is a question for a person.
#
# Why the time of sending is watched: before the first byte left, a failure has no effect and may be
# retried; after it, nobody knows what the server did ("unknown"). The transport's trace tells the
# two apart. Redirects are followed by hand, since each is a new address to judge.


MAX_REDIRECTS = 5
MAX_TRIES = 4
"""Addresses of one name that are tried when connecting fails."""
ERROR_BYTES = 4096
KEPT_HEADERS = ("content-type", "etag", "last-modified", "link", "location", "x-request-id")
"""Response headers that become part of the data."""
CARRIED = ("accept", "accept-encoding", "content-type", "user-agent")
"""Request headers that may follow a redirect to another origin; none of them is a secret."""

CLASSES = {
    401: "denied",
    403: "denied",
    404: "unavailable",
    408: "transient",
    410: "unavailable",
    413: "too_complex",
    425: "transient",
    429: "rate_limited",
    500: "transient",
    502: "transient",
    503: "transient",
    504: "transient",
    529: "transient",
}
"""What a status means; the rest: 4xx permanent, 5xx unavailable."""
MAYBE_DONE = frozenset({500, 502, 504})
"""Answers after which a request that changes things may have changed them."""


class Network:
    """How one worker reaches the network: its resolver and its trust in certificates."""

    def __init__(self, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._resolve = resolve
        self._tls = tls

    def transport(self, scheme: str) -> httpx2.AsyncHTTPTransport:
        """Return a transport for one connection that ignores proxies of the environment."""
        import httpx2

        if scheme == "http":
            # Never used; an empty context is quick to make and trusts no certificate.
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            tls = self._tls = self._tls or httpx2.create_ssl_context(trust_env=False)
        limits = httpx2.Limits(max_connections=1, max_keepalive_connections=0)
        return httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)

    async def place(self, call: HttpAction, url: httpx2.URL) -> ResolvedAddress:
        """Resolve and check the address of a URL."""
        if url.userinfo:
            raise AddressRefused("the URL holds a user or a password")
        host = url.raw_host.decode("ascii")
        return await call.guard.place(url.scheme, host, url.port, self._resolve)


class Exchange:
    """One attempt: the request, the redirects after it, and how far it came."""

    def __init__(self, network: Network, call: HttpAction, request: HttpRequest, key: str) -> None:
        self.network = network
        self.call = call
        self.method = request.method
        self.text = request.url
        self.body = request.body
        self.headers = {
            "accept": "application/json, */*;q=0.5",
            "accept-encoding": "gzip, deflate",
            "user-agent": "leadhand",
        }
        if request.body is not None:
            self.headers["content-type"] = "application/json"
        if key and self.method not in SAFE:
            self.headers["idempotency-key"] = key
        self.headers |= {name.lower(): value for name, value in request.headers.items()}
        self.unsafe = request.method not in SAFE
        self.sent = False
        """Whether a byte of a request may have reached a server."""

    @property
    def shown(self) -> str:
        """Return the request for messages, without its query, which may hold a secret."""
        return f"{self.method} {bounded_text(self.text.partition('?')[0], 200)}"

    async def run(self) -> Report:
        """Send the request and follow redirects."""
        import httpx2

        url = httpx2.URL(self.text)
        for _ in range(MAX_REDIRECTS + 1):
            self.text = str(url)
            place = await self.network.place(self.call, url)
            transport, response = await self._reach(url, place)
            try:
                target = response.headers.get("location")
                if response.status_code not in (301, 302, 303, 307, 308) or not target:
                    return await self._answer(response)
            finally:
                await response.aclose()
                await transport.aclose()
            url = self._redirected(url, target, response.status_code)
        return self._failure("permanent", f"more than {MAX_REDIRECTS} redirects")

    async def _reach(
        self, url: httpx2.URL, place: ResolvedAddress
    ) -> tuple[httpx2.AsyncHTTPTransport, httpx2.Response]:
        """Return the answer from the first address that accepts a connection."""
        import httpx2

        last = min(len(place.addresses), MAX_TRIES) - 1
        for number, address in enumerate(place.addresses[:MAX_TRIES]):
            transport = self.network.transport(url.scheme)
            try:
                return transport, await transport.handle_async_request(self._pinned(url, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                await transport.aclose()
                if number == last:
                    raise
            except BaseException:
                await transport.aclose()
                raise
        raise AssertionError("the guard gives at least one address")

    def _pinned(self, url: httpx2.URL, address: str) -> httpx2.Request:
        """Return the request to one address; the name stays in the Host header and in TLS."""
        import httpx2

        host = url.raw_host.decode("ascii").rstrip(".")
        extensions: dict[str, Any] = {
            "timeout": httpx2.Timeout(self.call.timeout_s).as_dict(),
            "trace": self._trace,
        }
        if canonical(host) is None:
            extensions["sni_hostname"] = host
        return httpx2.Request(
            self.method,
            url.copy_with(host=address),
            headers={"host": url.netloc.decode("ascii"), **self.headers},
            content=self.body,
            extensions=extensions,
        )

    async def _trace(self, name: str, _info: Mapping[str, Any]) -> None:
        if name.endswith("send_request_headers.started"):
            self.sent = True

    def _redirected(self, url: httpx2.URL, target: str, status: int) -> httpx2.URL:
        """Return where a redirect leads, and remove headers that must not go along."""
        import httpx2

        try:
            there = url.join(target)
        except (httpx2.InvalidURL, ValueError):
            raise AddressRefused("the redirect is no URL") from None
        if url.scheme == "https" and there.scheme == "http":
            raise AddressRefused("the redirect leads from https to http")
        if status == HTTPStatus.SEE_OTHER or (status in (301, 302) and self.method == "POST"):
            self.method = "HEAD" if self.method == "HEAD" else "GET"
            self.body = None
            self.headers.pop("content-type", None)
            self.headers.pop("idempotency-key", None)
        if _origin(url) != _origin(there):
            if self.body is not None and not self.call.guard and url.host != there.host:
                raise AddressRefused("the redirect would send the body to another host")
            self.headers = {key: self.headers[key] for key in CARRIED if key in self.headers}
        return there

    async def _answer(self, response: httpx2.Response) -> Report:
        status = response.status_code
        expected = self.call.expect_status
        if not (status in expected if expected else 200 <= status < 300):
            return await self._unwelcome(response)
        body = await _read(response, self.call.max_bytes)
        if body is None:
            return self._failure(
                "too_complex", f"the answer is larger than {self.call.max_bytes:,} bytes", "done"
            )
        headers = {key: response.headers[key] for key in KEPT_HEADERS if key in response.headers}
        data: dict[str, Any] = {"status": status, "headers": headers}
        try:
            data |= _content(response, body)
            return Report("succeeded", plain(data))
        except (ValueError, RecursionError) as problem:
            return self._failure("invalid_output", f"the answer cannot be used: {problem}", "done")

    async def _unwelcome(self, response: httpx2.Response) -> Report:
        """Return the report for an unexpected status."""
        status = response.status_code
        try:
            body = await _read(response, ERROR_BYTES, cut=True) or b""
        except Exception:  # noqa: BLE001 - the status is known, and that is what matters
            body = b""
        text = body.decode("utf-8", "backslashreplace").strip()
        said = "" if "html" in response.headers.get("content-type", "") else bounded_text(text, 300)
        name = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
        effect: Effect = "none"
        if status < 300:
            failure_class, effect = "invalid_output", "done"
        elif status < 400:
            failure_class = "permanent"
        else:
            failure_class = CLASSES.get(status, "permanent" if status < 500 else "unavailable")
            effect = "unknown" if status in MAYBE_DONE else "none"
        message = f"answered {status} {name}".rstrip() + (f": {said}" if said else "")
        failure = self._failure(failure_class, message, effect).error
        assert failure is not None
        wait = None
        if failure_class in ("rate_limited", "transient"):
            wait = retry_after_s(response.headers.get("retry-after"), time.time())
        error = replace(failure, retry_after_s=wait, details={"status": status})
        return Report("failed", error=error, output=text)

    def lost(self, failure_class: str, message: str) -> Report:
        """Return the report for a missing answer: no effect if nothing was sent, else unknown."""
        if not self.sent:
            return self._failure("transient", f"no connection: {message}")
        return self._failure(failure_class, message, "unknown", always=True)

    def failed(self, error: Exception) -> Report:
        """Return the report for an exception of the exchange."""
        import httpx2

        after: Effect = "unknown" if self.sent else "none"
        text = str(error) or type(error).__name__
        if isinstance(error, AddressRefused):
            return self._failure("denied", text, after)
        if isinstance(error, socket.gaierror):
            known = error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None))
            host = self.text.split("/")[2]
            message = f"{bounded_text(host, 100)} cannot be resolved: {error.strerror or text}"
            return self._failure("unavailable" if known else "transient", message, after)
        if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | UnicodeError):
            return self._failure("permanent", f"not a usable URL: {text}", after)
        if _untrusted(error):
            return self._failure("unavailable", f"its certificate is not trusted: {text}", after)
        if isinstance(error, httpx2.TimeoutException):
            return self.lost("timeout", text)
        if isinstance(error, httpx2.DecodingError):
            return self._failure("invalid_output", f"cannot be decompressed: {text}", "done")
        if isinstance(error, httpx2.TransportError | OSError):
            if self.sent and self.unsafe:
                return self.lost("lost", f"the connection broke after sending: {text}")
            return self._failure("transient", f"the connection failed: {text}")
        return self._failure("unavailable", f"{type(error).__name__}: {text}", after)

    def _failure(
        self,
        failure_class: str,
        message: str,
        effect: Effect = "none",
        *,
        always: bool = False,
    ) -> Report:
        """Return a failed report; requests that change nothing never have an effect."""
        known = effect if self.unsafe or always else "none"
        failure = Failure(failure_class, bounded_text(f"{self.shown}: {message}"), known)
        return Report("failed", error=failure)


async def _read(response: httpx2.Response, limit: int, *, cut: bool = False) -> bytes | None:
    """Return the body, decompressed in pieces; None (or its beginning) if it exceeds the limit."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > limit:
            return bytes(body[:limit]) if cut else None
    return bytes(body)


def _content(response: httpx2.Response, body: bytes) -> dict[str, Any]:
    """Return the body as JSON if its type says so, else as text."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and (kind == "application/json" or kind.endswith("+json")):
        try:
            return {"json": msgspec.json.decode(body)}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ValueError(f"it says it is JSON, but: {problem}") from None
    try:
        text = body.decode(response.charset_encoding or "utf-8", "backslashreplace")
    except (LookupError, ValueError):
        text = body.decode("utf-8", "backslashreplace")
    return {"text": text.replace("\0", "\\x00")}


def retry_after_s(value: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, given in seconds or as a date."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, at.timestamp() - now)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or PORTS.get(url.scheme)


def _untrusted(error: BaseException | None) -> bool:
    """Return whether an error was caused by a certificate that did not verify."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


class HttpWorker:
    """A worker whose actions are HTTP requests."""

    def __init__(
        self,
        spec: WorkerSpec,
        calls: Mapping[str, HttpAction],
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.spec = spec
        self._calls = dict(calls)
        self._network = Network(resolve, tls)

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the variables whose values must not get into the log: those of headers."""
        headers = (header for call in self._calls.values() for header in call.headers)
        return tuple(header.env for header in headers if header.env)

    @property
    def given_values(self) -> dict[str, str]:
        """Return the headers that are written in the settings, by name."""
        headers = [header for call in self._calls.values() for header in call.headers]
        return fixed_headers(headers)

    async def perform(self, task: Task, context: Context) -> Report:
        """Send the request and judge the answer."""
        call = self.call(task.action)
        if call is None:
            return Report.failed("permanent", f"{self.spec.name} offers no {task.action!r}")
        return await self._send(call, task.parameters, context.key)

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Ask the declared address whether it happened. Raise `LookupError` if there is none."""
        call = self.call(task.action)
        if call is None or call.probe is None:
            raise LookupError(f"{self.spec.name} declares no probe")
        # It asks about the same call, and needs only those of its parameters that it names.
        values = with_defaults(call.offer.parameters, task.parameters)
        named = {name: values[name] for name in call.probe.holes if name in values}
        report = await self._send(call.probe, named, "")
        status = report.error.details["status"] if report.error and report.error.details else None
        if status in (404, 410):
            return None
        if report.error:
            raise LookupError(f"the probe cannot tell: {report.error.message}")
        return report

    def check(self, name: str, action: str, data: Any) -> bool:
        """Return whether a declared expression holds for `data`."""
        call = self.call(action)
        expression = (call.checks.get(name) if name else call.check) if call else None
        return holds(expression, name, data)

    async def close(self) -> None:
        """Do nothing: no connection is kept open."""

    def call(self, action: str) -> HttpAction | None:
        """Return the request of an action; the unnamed one serves any action."""
        return self._calls.get(action) or self._calls.get("")

    async def _send(self, call: HttpAction, parameters: Mapping[str, Any], key: str) -> Report:
        try:
            request = call.request(parameters, os.environ)
        except Missing as problem:
            return Report.failed("unavailable", str(problem))
        except (ValueError, TypeError) as problem:
            return Report.failed("permanent", bounded_text(str(problem)))
        exchange = Exchange(self._network, call, request, key)
        try:
            async with asyncio.timeout(call.timeout_s):
                return await exchange.run()
        except TimeoutError:
            return exchange.lost("timeout", f"no answer within {call.timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - a worker reports; it does not raise
            return exchange.failed(error)
