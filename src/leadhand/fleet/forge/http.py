"""Requests to a code host: limits, repeats, pages, ETags, and a token that stays with its host.

The laws:

1. A request that reads is repeated after passing trouble, with pauses that grow and vary. A request
   that writes is sent once: if its answer is lost, `AnswerLost` is raised, and `write_once` looks
   whether it took effect before it is sent again.
2. A limit of the host is obeyed: until it ends, no request leaves. A short one is waited out here,
   a long one is a `ForgeRateLimited` with its end.
3. The token goes to the origin of the API only. A redirect or a link to another origin is refused;
   logs may come from hosts that the settings name, and are asked for without the token.
4. Every answer is bounded: its bytes, its time, the number of its pages.
5. No message holds a secret: what the host says is searched for it.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import json
import random
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from leadhand.errors import UsageError
from leadhand.fleet.forge.errors import (
    ForgeConflict,
    ForgeInvalid,
    ForgeNotFound,
    ForgeRateLimited,
    ForgeRefused,
    ForgeTransient,
)
from leadhand.fleet.forge.port import (
    LOG_MAX,
    GitAccess,
    RateLimit,
    check_key,
    clean_text,
    same_text,
    with_marker,
)
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import httpx2

    from leadhand.fleet.forge.port import (
        Check,
        CheckStatus,
        Issue,
        IssueComment,
        Place,
        PullRequest,
    )

T = TypeVar("T")

ANSWER_BYTES = 8 << 20
"""The longest answer with data."""
LOG_BYTES = 64 << 20
"""The longest log that is read for its end."""
PAGE = 100
PAGES_MAX = 50
READS_MAX = 5
WRITES_MAX = 4
REDIRECTS_MAX = 3
RESET_MAX_S = 7200.0
"""The longest limit that is believed; GitHub's and GitLab's end within an hour."""
SAID_CHARS = 300
TITLE_MAX = 250
WORST: tuple[CheckStatus, ...] = (
    "failed",
    "cancelled",
    "running",
    "queued",
    "passed",
    "neutral",
    "skipped",
)
"""Of checks with one name, the first of these counts."""
CACHED_ANSWERS = 500
CACHED_BYTES = 32 << 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NEXT = re.compile(r'<([^<>]*)>\s*(?:;[^,<>]*?)?;\s*rel="?next"?')
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_TOKEN = re.compile(r"[!-~]{1,4096}")


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a client, in seconds; tests replace the clock and the pauses."""

    request_s: float = 30.0
    """The longest that one request may take."""
    log_s: float = 120.0
    """The longest that reading a log may take."""
    pause_s: float = 0.5
    """The first pause before a repeat; each further one is twice as long."""
    pause_max_s: float = 8.0
    wait_max_s: float = 10.0
    """A limit that ends within this time is waited out."""
    settle_s: float = 2.0
    """After a lost answer, the time that the host gets to finish before it is looked at."""
    write_pause_s: float = 1.0
    """The time between two writes, as GitHub asks for."""
    secondary_s: float = 60.0
    """The pause after a secondary limit that names none; doubled each time."""
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def backoff(self, tries: int) -> float:
        """Return the pause after a number of failed tries: half of it is chance."""
        whole = min(self.pause_s * 2.0 ** min(tries, 20), self.pause_max_s)
        return whole * (0.5 + 0.5 * self.chance())


class AnswerLost(Exception):
    """A request that writes was sent, and its outcome is unknown."""


class Answer(NamedTuple):
    """A response of the host."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Any:
        """Return the data. Raise `ValueError` if it is not JSON."""
        return decoded(self.data)


class Credential(Protocol):
    """How requests sign in."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers that sign in. Raise `UsageError` or a `ForgeError`."""

    def secrets(self) -> tuple[str, ...]:
        """Return what must not be shown."""

    def refused(self) -> bool:
        """Forget a token that the host refused; whether a new one can be had."""


class TokenCredential:
    """A token that is read again for each request, so that it may be replaced while we run."""

    def __init__(self, read: Callable[[], str], header: str, form: str = "{}") -> None:
        """Create a credential; `form` is what the header says, with the token for `{}`."""
        self._read, self._header, self._form = read, header, form
        self._seen: tuple[str, ...] = ()

    async def headers(self) -> Mapping[str, str]:
        """Return the header with the token."""
        token = checked_token(self._read())
        if token not in self._seen:
            self._seen = (*self._seen[-3:], token)
        return {self._header: self._form.format(token)}

    def secrets(self) -> tuple[str, ...]:
        """Return the last tokens."""
        return self._seen

    def refused(self) -> bool:
        """Return False: there is no other token."""
        return False


def checked_token(token: str) -> str:
    """Return a token. Raise `UsageError`, without it, if a header cannot hold it."""
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            "[fleet.forge] token: the token has a character that a header cannot have. "
            "Fix: write the token alone into its variable or file"
        )
    return token


def checked_api(address: str) -> str:
    """Return the address of an API. Raise `UsageError` if a token must not go there."""
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if not host or "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("[fleet.forge] api: must be an address such as https://HOST/api/v3")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise UsageError(
            f"[fleet.forge] api: {host} would get the token without encryption. "
            "Fix: write an address that begins with https://"
        )
    return address.rstrip("/")


def decoded(data: bytes) -> Any:
    """Return JSON data, also with halves of characters. Raise `ValueError`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(data.decode("utf-8", "replace"), strict=False)
        except RecursionError:
            raise ValueError("it is too deep") from None


def origin_of(address: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an address. Raise `ValueError`."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, (parts.hostname or "").lower(), port


class _Cached(NamedTuple):
    etag: str
    answer: Answer


class EtagCache:
    """Answers with their ETags, the least used ones dropped; a repeat that is unchanged is free."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Cached] = OrderedDict()
        self._bytes = 0

    def get(self, url: str) -> _Cached | None:
        """Return the answer that was kept for an address."""
        if (found := self._kept.get(url)) is not None:
            self._kept.move_to_end(url)
        return found

    def keep(self, url: str, answer: Answer) -> None:
        """Keep an answer that has an ETag."""
        self.drop(url)
        if not (etag := answer.headers.get("etag", "")) or len(answer.data) > CACHED_BYTES // 8:
            return
        self._kept[url] = _Cached(etag, answer)
        self._bytes += len(answer.data)
        while len(self._kept) > CACHED_ANSWERS or self._bytes > CACHED_BYTES:
            self.drop(next(iter(self._kept)))

    def drop(self, url: str) -> None:
        """Forget an answer."""
        if (old := self._kept.pop(url, None)) is not None:
            self._bytes -= len(old.answer.data)


class ForgeClient:
    """Sends requests to one API, one at a time."""

    def __init__(
        self,
        name: str,
        api: str,
        credential: Credential,
        *,
        headers: Mapping[str, str] | None = None,
        pace: Pace | None = None,
        certificates: Path | None = None,
        log_hosts: tuple[str, ...] = (),
    ) -> None:
        """Create a client.

        - `name`: the host, for messages.
        - `certificates`: a file of certificates to trust besides the usual ones.
        - `log_hosts`: hosts, with all below them, that logs may be read from without the token.
        """
        self.name, self.api, self.pace = name, checked_api(api), pace or Pace()
        self._origin = origin_of(self.api)
        self._credential, self._headers = credential, dict(headers or {})
        self._certificates, self._log_hosts = certificates, log_hosts
        self._client: httpx2.AsyncClient | None = None
        self._lock, self._cache = asyncio.Lock(), EtagCache()
        self._blocked: dict[str, float] = {}
        self._written_at, self._secondary = float("-inf"), 0
        self.limit = RateLimit()

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    # --- reading ---

    async def get(
        self,
        path: str,
        what: str,
        params: Mapping[str, str | int] | None = None,
        *,
        needs: str = "",
        expect: tuple[int, ...] = (),
    ) -> Answer:
        """Return the answer to a request that reads, repeated after passing trouble.

        - `what`: the operation, for messages; `needs`: the right that it takes.
        - `expect`: statuses that are returned as they are.
        """
        url = self._url(path, params)
        for tries in range(READS_MAX):
            try:
                async with self._lock:
                    return await self._exchange("GET", url, what, needs=needs, expect=expect)
            except ForgeTransient as error:
                wait = self._wait(error, tries)
                if tries + 1 == READS_MAX or wait is None:
                    raise
                await self.pace.sleep(wait)
        raise AssertionError("every try returns or raises")

    async def read(
        self,
        path: str,
        what: str,
        params: Mapping[str, str | int] | None = None,
        *,
        needs: str = "",
    ) -> Any:
        """Return the data of an answer."""
        return self.data(await self.get(path, what, params, needs=needs), what)

    async def pages(
        self,
        path: str,
        what: str,
        params: Mapping[str, str | int] | None = None,
        *,
        needs: str = "",
        inside: str = "",
    ) -> tuple[list[Any], bool]:
        """Return the items of all pages, and whether there were more than may be read.

        `inside` is the name of the list in each page; empty if the page is the list.
        """
        url, found = self._url(path, {"per_page": PAGE, **(params or {})}), list[Any]()
        for _ in range(PAGES_MAX):
            answer = await self.get(url, what, needs=needs)
            data = self.data(answer, what)
            items = data.get(inside) if inside and isinstance(data, dict) else data
            if not isinstance(items, list):
                self._unreadable(what)
            found += items
            link = _NEXT.search(answer.headers.get("link", "")[:8192])
            if link is None:
                if len(items) >= PAGE:  # hosts need not say of an unchanged page what is next
                    self._cache.drop(url)
                return found, False
            url = self._same_origin(urljoin(url, link[1]), what)
        return found, True

    async def every(self, path: str, what: str, *, needs: str = "", inside: str = "") -> list[Any]:
        """Return the items of all pages. Raise `ForgeInvalid` if there are more than may be read.

        For what decides: an objection on a page that is not read would be none.
        """
        found, cut = await self.pages(path, what, needs=needs, inside=inside)
        if cut:
            raise ForgeInvalid(self.name, what, f"there are more than {len(found)}")
        return found

    def data(self, answer: Answer, what: str) -> Any:
        """Return the data of an answer. Raise `ForgeInvalid` if it is not JSON."""
        try:
            return answer.json()
        except ValueError:
            self._unreadable(what)

    def convert(self, data: Any, kind: type[T], what: str) -> T:
        """Return data as a struct. Raise `ForgeInvalid` if it does not have its form."""
        try:
            return msgspec.convert(data, kind)
        except (msgspec.ValidationError, RecursionError):
            self._unreadable(what)

    async def log(self, path: str, what: str, *, needs: str = "") -> str:
        """Return the end of a text, which may be on a host of `log_hosts`; "" if it is gone."""
        url = self._url(path)
        for _ in range(REDIRECTS_MAX + 1):
            ours = _is_origin(url, self._origin)
            async with self._lock:  # the token may be made anew
                signed = await self._credential.headers() if ours else {}
            answer = await self._log_part(url, what, signed)
            if answer.status in (404, 410):
                return ""
            if answer.status in (301, 302, 303, 307, 308):
                url = urljoin(url, answer.headers.get("location", ""))
                if not _is_origin(url, self._origin) and not self._is_log_host(url):
                    host = clean_text(urlsplit(url).hostname or "?", 100)
                    raise ForgeRefused(
                        self.name,
                        what,
                        f"its text is on {host}. Fix: add that host to [fleet.forge] log_hosts",
                    )
                continue
            if answer.status >= 300:
                self._fail(answer, what, needs)
            text = _COLOUR.sub("", answer.data.decode("utf-8", "replace"))
            return clean_text(text, 5 * LOG_MAX)[-LOG_MAX:]
        raise ForgeInvalid(self.name, what, "it leads from address to address")

    # --- writing ---

    async def send(
        self,
        method: str,
        path: str,
        what: str,
        body: Any = None,
        *,
        needs: str = "",
        expect: tuple[int, ...] = (),
    ) -> Answer:
        """Send a request that writes, once. Raise `AnswerLost` if its outcome is unknown."""
        data = msgspec.json.encode(body) if body is not None else None
        async with self._lock:
            pause = self._written_at + self.pace.write_pause_s - self.pace.now()
            if 0 < pause <= self.pace.write_pause_s:
                await self.pace.sleep(pause)
            self._written_at = self.pace.now()
            url = self._url(path)
            return await self._exchange(method, url, what, data, needs=needs, expect=expect)

    async def send_again(
        self,
        method: str,
        path: str,
        what: str,
        body: Any = None,
        *,
        needs: str = "",
        expect: tuple[int, ...] = (),
    ) -> Answer:
        """Send a request that may be repeated, since twice is the same as once."""

        async def nothing() -> None:
            return None

        async def send() -> Answer:
            return await self.send(method, path, what, body, needs=needs, expect=expect)

        return await self.write_once(what, nothing, send)

    async def write_once(
        self,
        what: str,
        look: Callable[[], Awaitable[T | None]],
        make: Callable[[], Awaitable[T]],
    ) -> T:
        """Return what `look` finds, else what `make` makes.

        After a lost answer the host gets some time, and `look` decides. `look` also removes what a
        request left that ended after it was given up.
        """
        lost = False
        for tries in range(WRITES_MAX):
            if (found := await look()) is not None:
                return found
            try:
                made = await make()
            except AnswerLost:
                lost = True
                await self.pace.sleep(self.pace.settle_s + self.pace.backoff(tries))
            except ForgeTransient as error:
                wait = self._wait(error, tries)
                if wait is None or tries + 1 == WRITES_MAX:
                    raise
                await self.pace.sleep(wait)
            else:
                return (await look() if lost else made) or made
        if lost and (found := await look()) is not None:
            return found
        raise ForgeTransient(
            self.name,
            what,
            f"it did not answer {WRITES_MAX} times. It is tried again later; nothing is made twice",
            self.pace.now() + self.pace.secondary_s,
        )

    def transient(self, what: str, text: str) -> ForgeTransient:
        """Return an error after which the operation may be repeated soon."""
        return ForgeTransient(self.name, what, text, self.pace.now() + self.pace.pause_s)

    # --- inside ---

    async def _exchange(
        self,
        method: str,
        url: str,
        what: str,
        body: bytes | None = None,
        *,
        needs: str,
        expect: tuple[int, ...],
    ) -> Answer:
        """Send a request and follow its redirects; return a good or expected answer."""
        self._check_blocked(url, what)
        renewed = False
        for _ in range(REDIRECTS_MAX + 2):
            cached = self._cache.get(url) if method == "GET" else None
            asked = {**self._headers, **await self._credential.headers()}
            if cached is not None:
                asked["if-none-match"] = cached.etag
            answer = await self._send(method, url, what, body, asked)
            self._note_limit(answer)
            if answer.status == 304 and cached is not None:
                self._secondary = 0
                # A page that is unchanged may have got a next one, which only a header says.
                return cached.answer._replace(headers={**cached.answer.headers, **answer.headers})
            if answer.status in (301, 302, 307, 308) and answer.headers.get("location"):
                url = self._same_origin(urljoin(url, answer.headers["location"]), what)
                continue
            if answer.status == 401 and not renewed and self._credential.refused():
                renewed = True
                continue
            if answer.status < 300 or answer.status in expect:
                self._secondary = 0
                if method == "GET" and answer.status == 200:
                    self._cache.keep(url, answer)
                return answer
            if answer.status >= 500 and method != "GET":
                raise AnswerLost(f"it answered {answer.status}")
            self._fail(answer, what, needs)
        raise ForgeInvalid(self.name, what, "it leads from address to address")

    async def _send(
        self, method: str, url: str, what: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        """Return one response, of bounded size and time."""
        import httpx2

        given = {"accept-encoding": "identity", "user-agent": "leadhand", **headers}
        if body is not None:
            given["content-type"] = "application/json"
        try:
            async with (
                asyncio.timeout(self.pace.request_s),
                self._open().stream(method, url, content=body, headers=given) as found,
            ):
                parts, size = list[bytes](), 0
                async for part in found.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > ANSWER_BYTES:
                        text = f"it answered with more than {ANSWER_BYTES >> 20} MiB"
                        raise ForgeInvalid(self.name, what, text)
                return Answer(found.status_code, _lower(found.headers), b"".join(parts))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            self._trouble(what, error)  # nothing was sent
        except (httpx2.LocalProtocolError, UnicodeError):
            # The text of these errors holds the header, and so the token.
            raise ForgeInvalid(self.name, what, "a header cannot be sent") from None
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            if method != "GET":
                raise AnswerLost(type(error).__name__) from None
            self._trouble(what, error)

    async def _log_part(self, url: str, what: str, headers: Mapping[str, str]) -> Answer:
        """Return the end of a long answer."""
        import httpx2

        given = {"accept-encoding": "identity", "user-agent": "leadhand", **headers}
        kept, size = b"", 0
        try:
            async with (
                asyncio.timeout(self.pace.log_s),
                self._open().stream("GET", url, headers=given) as found,
            ):
                async for part in found.aiter_bytes():
                    kept = (kept + part)[-4 * LOG_MAX :]
                    size += len(part)
                    if size > LOG_BYTES:
                        kept += b"\n(cut: the log is longer)"
                        break
                return Answer(found.status_code, _lower(found.headers), kept)
        except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            self._trouble(what, error)

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            if self._origin[0] == "http":
                # This machine; an empty context is quick to make and trusts no certificate.
                tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            else:
                tls = httpx2.create_ssl_context()
            if self._certificates is not None:
                tls.load_verify_locations(cafile=str(self._certificates))
            self._client = httpx2.AsyncClient(
                timeout=self.pace.request_s, trust_env=True, follow_redirects=False, verify=tls
            )
        return self._client

    def _url(self, path: str, params: Mapping[str, str | int] | None = None) -> str:
        import httpx2

        url = path if path.startswith(("http://", "https://")) else f"{self.api}{path}"
        if params:
            url = str(httpx2.URL(url).copy_merge_params({k: str(v) for k, v in params.items()}))
        return url

    def _same_origin(self, url: str, what: str) -> str:
        """Return an address of the API. Raise `ForgeInvalid` for one of another host."""
        if not _is_origin(url, self._origin):
            raise ForgeInvalid(
                self.name, what, "it leads to another host, which does not get the token"
            )
        return url

    def _is_log_host(self, url: str) -> bool:
        try:
            scheme, host, _ = origin_of(url)
        except ValueError:
            return False
        named = any(host == each or host.endswith(f".{each}") for each in self._log_hosts)
        return named and (scheme == "https" or host in LOOPBACK)

    # --- limits and failures ---

    def _check_blocked(self, url: str, what: str) -> None:
        now = self.pace.now()
        until = max(self._blocked.get(each, 0.0) for each in ("", _resource(url)))
        if until > now:
            self._limited(what, until)

    def _limited(self, what: str, until: float) -> NoReturn:
        wait = max(1, round(until - self.pace.now()))
        raise ForgeRateLimited(
            self.name, what, f"its limit of requests is reached; it ends in {wait} s", until
        )

    def _note_limit(self, answer: Answer) -> None:
        """Remember what the host says of its limit, in the time of this machine."""
        says = answer.headers
        left = says.get("x-ratelimit-remaining", says.get("ratelimit-remaining", ""))
        reset = says.get("x-ratelimit-reset", says.get("ratelimit-reset", ""))
        most = says.get("x-ratelimit-limit", says.get("ratelimit-limit", ""))
        if not (left.isdecimal() and reset.isdecimal()):
            return
        reset_at = self._local_time(float(reset[:15]), says)
        whole = int(most[:15]) if most.isdecimal() else 0
        self.limit = RateLimit(limit=whole, remaining=int(left[:15]), reset_at=reset_at)
        if int(left[:15]) == 0 and answer.status != 304:
            self._blocked[says.get("x-ratelimit-resource", "core")] = reset_at

    def _local_time(self, at: float, headers: Mapping[str, str]) -> float:
        """Return a time of the host's clock by ours, not before a second from now."""
        now = self.pace.now()
        theirs = email.utils.parsedate_tz(headers.get("date", ""))
        skew = email.utils.mktime_tz(theirs) - now if theirs else 0.0
        return min(max(at - skew, now + 1.0), now + RESET_MAX_S)

    def _fail(self, answer: Answer, what: str, needs: str) -> NoReturn:
        """Raise the error that a status means."""
        said, status = self._said(answer), answer.status
        if status == 429 or (status == 403 and self._is_limit(answer, said)):
            self._raise_limit(answer, what)
        if status == 401:
            raise ForgeRefused(
                self.name,
                what,
                f"it does not accept how we sign in ({said}). "
                "Fix: give a valid token, or the right app and its key, in [fleet.forge]",
            )
        if status == 403:
            raise ForgeRefused(self.name, what, f"{said}. {_missing_right(answer, needs)}")
        if status in (404, 410):
            seen = f"the token may not see it; it needs {needs}" if needs else "may not be seen"
            raise ForgeNotFound(self.name, what, f"there is no such thing, or {seen} ({said})")
        if status in (408, 425) or status >= 500:
            now = self.pace.now()
            wait = _retry_after(answer.headers, now)
            at = now + (wait if wait is not None else self.pace.pause_s)
            raise ForgeTransient(self.name, what, f"it answered {status}", at)
        if status == 409:
            raise ForgeConflict(self.name, what, said, "other")
        raise ForgeInvalid(self.name, what, f"it answered {status}: {said}")

    def _is_limit(self, answer: Answer, said: str) -> bool:
        says = answer.headers
        words = said.lower()
        return (
            says.get("x-ratelimit-remaining") == "0"
            or "retry-after" in says
            or "rate limit" in words
            or "abuse detection" in words
        )

    def _raise_limit(self, answer: Answer, what: str) -> NoReturn:
        """Block further requests until the limit ends, and raise its error."""
        says, now = answer.headers, self.pace.now()
        wait = _retry_after(says, now)
        if wait is None and says.get("x-ratelimit-remaining") == "0":
            until = max(self._blocked.values(), default=0.0)
            self._limited(what, until if until > now else now + self.pace.secondary_s)
        if wait is None:
            wait = self.pace.secondary_s * 2.0 ** min(self._secondary, 6)
            self._secondary += 1
        self._blocked[""] = now + min(max(wait, 0.0), RESET_MAX_S)
        self._limited(what, self._blocked[""])

    def _wait(self, error: ForgeTransient, tries: int) -> float | None:
        """Return how long to wait before a repeat, None if that is too long to wait here."""
        wait = max(error.retry_at - self.pace.now(), 0.0)
        if isinstance(error, ForgeRateLimited):
            wait += self.pace.chance() * min(1.0, self.pace.pause_s)
        else:
            wait = max(wait, self.pace.backoff(tries))
        return wait if wait <= self.pace.wait_max_s else None

    def _trouble(self, what: str, error: Exception) -> NoReturn:
        # Not the text of the error alone: it may be empty, and may hold an address.
        said = self.hide(clean_text(str(error), SAID_CHARS)) or "no answer"
        kind = "it took too long" if isinstance(error, TimeoutError) else said
        raise self.transient(what, f"{kind} ({type(error).__name__})") from None

    def _unreadable(self, what: str) -> NoReturn:
        raise ForgeInvalid(
            self.name,
            what,
            "its answer is not what this API answers. Fix: check [fleet.forge] kind and api",
        )

    def _said(self, answer: Answer) -> str:
        """Return what the host says of a failure, in one line without secrets."""
        try:
            data = answer.json()
        except ValueError:
            data = None
        parts = list[str]()
        if isinstance(data, dict):
            for key in ("message", "error", "error_description"):
                if value := data.get(key):
                    parts.append(value if isinstance(value, str) else json.dumps(value))
            for each in data.get("errors") or ():
                if isinstance(each, dict):
                    parts.append(str(each.get("message") or each.get("code") or ""))
        text = " ".join("; ".join(filter(None, parts)).split())
        return self.hide(clean_text(text, SAID_CHARS)) or f"status {answer.status}"

    def hide(self, text: str) -> str:
        """Return a text without our secrets."""
        for secret in self._credential.secrets():
            text = text.replace(secret, "***")
        return scrub(text)


class KeyedComments:
    """Comments with a key, and closing with one: the same on every host but for its addresses."""

    name: str
    _http: ForgeClient
    _change_verb: str
    """The method that changes a comment or an issue."""
    _comment_right: str
    """The right that writing needs, for messages."""

    async def _read_comments(self, number: int, on: Place) -> tuple[list[IssueComment], bool]:
        """Return the comments of people and ours, and whether there are more."""
        raise NotImplementedError

    async def _as_comment(self, answer: Answer, what: str) -> IssueComment:
        raise NotImplementedError

    def _comments_path(self, number: int, on: Place) -> str:
        raise NotImplementedError

    def _comment_path(self, number: int, on: Place, ident: int) -> str:
        raise NotImplementedError

    async def issue(self, number: int) -> Issue:
        """Return one issue."""
        raise NotImplementedError

    async def _close(self, number: int, what: str) -> Issue:
        """Close an issue that is open."""
        raise NotImplementedError

    async def comments(
        self, number: int, *, on: Place = "issue", since: str = ""
    ) -> tuple[IssueComment, ...]:
        """Return comments, the oldest first; remarks on lines belong to reviews."""
        found, _ = await self._read_comments(number, on)
        return tuple(each for each in found if each.updated_at >= since)

    async def comment(
        self, number: int, body: str, key: str, *, on: Place = "issue"
    ) -> IssueComment:
        """Write a comment, or bring the one with this key up to date."""
        what, needs = f"comment on {on} {number}", self._comment_right
        text = with_marker(body, key)

        async def look() -> IssueComment | None:
            found, cut = await self._read_comments(number, on)
            ours = [each for each in found if each.key == key]
            for extra in ours[1:]:  # of a request that ended after it was given up
                path = self._comment_path(number, on, extra.id)
                await self._http.send_again("DELETE", path, what, needs=needs, expect=(404,))
            if cut and not ours:
                raise ForgeInvalid(
                    self.name, what, "it has too many comments to be sure that this one is new"
                )
            return ours[0] if ours else None

        async def make() -> IssueComment:
            path = self._comments_path(number, on)
            answer = await self._http.send("POST", path, what, {"body": text}, needs=needs)
            return await self._as_comment(answer, what)

        found = await self._http.write_once(what, look, make)
        if same_text(found.body, text):
            return found
        verb, path = self._change_verb, self._comment_path(number, on, found.id)
        answer = await self._http.send_again(verb, path, what, {"body": text}, needs=needs)
        return await self._as_comment(answer, what)

    async def close_issue(self, number: int, body: str, key: str) -> Issue:
        """Close an issue, then say why.

        In this order an open issue with our comment is one that a person opened again.
        """
        what = f"close issue {number}"
        check_key(key)
        issue = await self.issue(number)
        if issue.state == "open":
            if any(each.key == key for each in await self.comments(number)):
                raise ForgeConflict(self.name, what, "a person opened it again", "reopened")
            issue = await self._close(number, what)
        await self.comment(number, body, key)
        return issue


def git_access_for(remote: str, web: str, repository: str, word: str) -> GitAccess:
    """Return the access of git to a repository.

    - `remote`: the address that the settings name; empty: the host's own by HTTP.
    - `web`: the origin of the host; `word`: name and token. Git sends them to this origin only; for
      another address it signs in as the user configured.
    """
    url = remote or f"{web}/{repository}.git"
    coded = base64.b64encode(word.encode()).decode()
    env = {"GIT_TERMINAL_PROMPT": "0"}
    if _is_origin(url, origin_of(web)):
        env |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{web}/.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {coded}",
        }
    return GitAccess(url=url, env=env)


def web_origin(api: str) -> tuple[str, str]:
    """Return the origin of the pages of a host, and its name, from the address of its API."""
    parts = urlsplit(api)
    host = "github.com" if parts.hostname == "api.github.com" else parts.hostname or ""
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else ""), host


def one_line(title: str) -> str:
    """Return a title in one line, not too long and never empty."""
    return " ".join(clean_text(title).split())[:TITLE_MAX] or "Untitled"


def current_pull(found: Sequence[PullRequest]) -> PullRequest | None:
    """Return the open one of a branch's pull requests, else the first: they come newest first."""
    return next((each for each in found if each.state == "open"), found[0] if found else None)


def pull_of_key(found: Sequence[PullRequest], key: str, base: str) -> PullRequest | None:
    """Return the pull request to use in place of a new one, None if there is none.

    Ours with this key, whatever became of it; else an open one into `base`, by any author.
    """
    theirs = (each for each in found if each.state == "open" and each.base == base)
    return current_pull([each for each in found if each.key == key]) or next(theirs, None)


def worst_by_name(found: Iterable[Check]) -> tuple[Check, ...]:
    """Return one check for each name: a workflow that ran twice passed if both did."""
    kept: dict[str, Check] = {}
    for each in found:
        old = kept.get(each.name)
        if old is None or WORST.index(each.status) < WORST.index(old.status):
            kept[each.name] = each
    return tuple(kept[name] for name in sorted(kept))


def _is_origin(url: str, origin: tuple[str, str, int]) -> bool:
    try:
        return origin_of(url) == origin and "@" not in urlsplit(url).netloc
    except ValueError:
        return False


def _resource(url: str) -> str:
    return "graphql" if urlsplit(url).path.endswith("/graphql") else "core"


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds of Retry-After, a number or a date; None without one."""
    given = headers.get("retry-after", "").strip()[:40]
    if given.isdecimal():
        return min(float(given), RESET_MAX_S)
    if (at := email.utils.parsedate_tz(given)) is None:
        return None
    base = email.utils.parsedate_tz(headers.get("date", ""))
    return max(0.0, email.utils.mktime_tz(at) - (email.utils.mktime_tz(base) if base else now))


def _missing_right(answer: Answer, needs: str) -> str:
    """Return the fix for a refused request: the right that the token lacks, by name."""
    says = {name: clean_text(value, 200) for name, value in answer.headers.items()}
    if sso := says.get("x-github-sso"):
        return f"Fix: authorise the token for single sign-on of the organisation ({sso})"
    wanted = says.get("x-accepted-github-permissions") or needs
    if scopes := says.get("x-accepted-oauth-scopes"):
        has = says.get("x-oauth-scopes") or "none"
        return f"Fix: give the token one of the scopes {scopes}; it has {has}"
    return f"Fix: give the token the permission {wanted}" if wanted else "Fix: check its rights"
