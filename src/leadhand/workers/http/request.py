"""The request of an HTTP worker: a URL, headers and a body with placeholders.

A value goes into exactly one place and cannot leave it: a path value is percent-encoded with
its slashes and cannot be `.` or `..`, a query value cannot add a parameter, a header value
cannot add a line. Scheme, host and port are fixed, unless an allow list stands behind them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from leadhand.core.catalog import Offer
from leadhand.workers.http.netguard import AddressRefused, Guard
from leadhand.workers.template import Template, TemplateSlot, with_defaults

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
REPEATABLE = SAFE | {"PUT", "DELETE"}
"""Methods that may be repeated without harm."""
METHODS = REPEATABLE | {"POST", "PATCH"}
MAX_BYTES = 10 << 20
TIMEOUT_S = 60.0

_URL = re.compile(r"(https?)://([^/?#\\]+)(/[^?#]*)?(?:\?([^#]*))?\Z")
_HOST_VALUE = re.compile(r"[A-Za-z0-9.-]{1,253}\Z")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)


class Missing(Exception):
    """An environment variable that a header needs and that is not set."""


class Url(NamedTuple):
    """A URL with holes, cut where its parts meet so that no value can move the seams."""

    scheme: str
    authority: Template
    segments: tuple[Template, ...]
    query: Template | None

    @classmethod
    def of(cls, text: str) -> Url:
        """Parse a URL. Raise `ValueError` with the mistake."""
        found = _URL.match(text)
        if found is None or re.search(r"[\s\x00-\x1f\x7f]", text):
            raise ValueError(
                "must be http:// or https://, a host and a path, without spaces or fragment"
            )
        scheme, authority, path, query = found.groups()
        if "@" in authority:
            raise ValueError("must not hold a user or password; use headers with {env = ...}")
        if "%" in authority:
            raise ValueError("the host must not be percent-encoded")
        url = cls(
            scheme,
            Template.of(authority),
            tuple(Template.of(each) for each in (path or "/").split("/")),
            Template.of(query) if query is not None else None,
        )
        if any(hole.splat for hole in url.holes):
            raise ValueError("{name...} cannot be used in a URL")
        return url

    @property
    def templates(self) -> tuple[Template, ...]:
        """Return all its parts."""
        return (self.authority, *self.segments, *([self.query] if self.query else []))

    @property
    def holes(self) -> tuple[TemplateSlot, ...]:
        """Return all its placeholders."""
        return tuple(hole for each in self.templates for hole in each.holes)

    @property
    def host(self) -> tuple[str, int | None] | None:
        """Host and port, when they are fixed."""
        if self.authority.holes:
            return None
        text = self.authority.fill({})
        host, separator, port = text.rpartition(":")
        if text.endswith("]") or not separator:
            return text, None
        if not port.isdigit():
            raise ValueError(f"{port!r} is not a port")
        return host, int(port)

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the URL.

        Raise `ValueError`, which names a value that is not allowed in its place.
        """
        path = "/".join(_segment(each, values) for each in self.segments)
        query = f"?{self.query.fill(values, _quoted)}" if self.query else ""
        return f"{self.scheme}://{self.authority.fill(values, _host)}{path}{query}"


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "strict"), safe="")


def _host(text: str) -> str:
    if not _HOST_VALUE.match(text):
        raise ValueError(f"{text[:60]!r} cannot be part of a host")
    return text


def _segment(segment: Template, values: Mapping[str, Any]) -> str:
    filled = segment.fill(values, _quoted)
    if segment.holes and unquote(filled) in ("", ".", ".."):
        names = ", ".join(hole.name for hole in segment.holes)
        raise ValueError(f"parameter {names}: {unquote(filled)!r} would lead to another path")
    return filled


class Header(NamedTuple):
    """One header: a text with holes, or a secret taken from the environment."""

    name: str
    value: Template | None = None
    env: str | None = None
    prefix: str = ""

    @classmethod
    def of(cls, name: str, value: Any) -> Header:
        """Read `"text"` or `{"env": "NAME", "prefix": "Bearer "}`."""
        if not _TOKEN.match(name) or name.lower() in _OURS:
            raise ValueError(f"{name!r} cannot be set")
        if isinstance(value, str):
            return cls(name, Template.of(value))
        known = isinstance(value, Mapping) and set(value) <= {"env", "prefix"}
        if not known or not all(isinstance(each, str) for each in value.values()):
            raise ValueError('must be a text or {env = "NAME", prefix = "Bearer "}')
        if not value.get("env"):
            raise ValueError("env: must name an environment variable")
        return cls(name, None, value["env"], value.get("prefix", ""))

    def fill(self, values: Mapping[str, Any], environ: Mapping[str, str]) -> str:
        """Its value; the messages of errors never hold it."""
        if self.value is not None:
            text = self.value.fill(values)
        elif self.env and self.env in environ:
            text = self.prefix + environ[self.env]
        else:
            raise Missing(f"the environment variable {self.env} is not set")
        if not text.isascii() or not text.isprintable():
            raise ValueError(f"header {self.name}: the value holds characters a header cannot")
        return text.strip(" ")


def fixed_headers(headers: Iterable[Header]) -> dict[str, str]:
    """Return the headers whose values are written in the settings, by name.

    Headers that describe the content and its form are left out: they are no secrets.
    """
    return {
        header.name: header.value.fill({})
        for header in headers
        if header.value is not None and not header.value.holes
        if not header.name.lower().startswith(("accept", "content-", "user-agent"))
    }


def body_template(value: Any) -> Any:
    """Return a JSON body with templates in place of its texts."""
    if isinstance(value, str):
        return Template.of(value)
    if isinstance(value, list):
        return [body_template(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): body_template(each) for key, each in value.items()}
    return value


def body_templates(node: Any) -> list[Template]:
    """Return all templates of a body."""
    if isinstance(node, Template):
        return [node]
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [each for child in inside for each in body_templates(child)]


def _fill_body(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, Template):
        only = node.only
        # A text that is nothing but a hole takes the value as it is, whatever its type.
        return values.get(only.name) if only else node.fill(values)
    if isinstance(node, list):
        return [_fill_body(each, values) for each in node]
    if isinstance(node, dict):
        return {key: _fill_body(each, values) for key, each in node.items()}
    return node


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, ready to send."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    """Left out of every print: some come from the environment and are secret."""
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAction:
    """One action of an HTTP worker: the request, the allowed addresses, and the expected answer."""

    url: Url
    method: str = "GET"
    headers: tuple[Header, ...] = ()
    body: Any = None
    """A JSON body made by `body_template`; None sends none."""
    guard: Guard = field(default_factory=Guard)
    timeout_s: float = TIMEOUT_S
    max_bytes: int = MAX_BYTES
    expect_status: frozenset[int] = frozenset()
    probe: HttpAction | None = None
    """A GET that answers 2xx when the thing happened, and 404 or 410 when it did not."""
    checks: Mapping[str, str] = field(default_factory=dict)
    check: str | None = None
    offer: Offer = field(default_factory=Offer)
    digest: str = ""

    @property
    def holes(self) -> dict[str, TemplateSlot]:
        """Return the placeholders it needs, in the order of their first use."""
        templates = [*self.url.templates, *body_templates(self.body)]
        templates += [each.value for each in self.headers if each.value]
        return {hole.name: hole for each in templates for hole in each.holes}

    @property
    def any_json(self) -> frozenset[str]:
        """Parameters that stand only where any JSON value may stand."""
        free = [each.only.name for each in body_templates(self.body) if each.only]
        bodies = [each for each in body_templates(self.body) if not each.only]
        headers = [each.value for each in self.headers if each.value]
        bound = {
            hole.name for each in (*self.url.templates, *bodies, *headers) for hole in each.holes
        }
        return frozenset(free) - bound

    def problem(self) -> str | None:
        """Return the mistake in the declared address, as far as it is fixed, or None."""
        try:
            fixed = self.url.host
            if fixed is None:
                return None if self.guard else "a placeholder in the host needs an `allow` list"
            self.guard.check(self.url.scheme, *fixed)
        except (AddressRefused, ValueError) as problem:
            return str(problem)
        return None

    def request(self, parameters: Mapping[str, Any], environ: Mapping[str, str]) -> HttpRequest:
        """Return the request for these parameters.

        Raise `ValueError` or `Missing` if there is none.
        """
        values = with_defaults(self.offer.parameters, parameters)
        if unknown := sorted(set(values) - set(self.holes)):
            raise ValueError(f"parameter {unknown[0]}: is not known")
        headers = {each.name: each.fill(values, environ) for each in self.headers}
        body = None if self.body is None else msgspec.json.encode(_fill_body(self.body, values))
        return HttpRequest(self.method, self.url.fill(values), headers, body)
