"""HTTP calls from the `[workers.NAME]` tables of leadhand.toml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from leadhand.codec.tables import Count, Misplaced, Table, Texts, reader
from leadhand.workers.coverage import VERSION_CHARS
from leadhand.workers.declaration import (
    ActionTable,
    WorkerDeclaration,
    WorkerKind,
    parameter_schema,
)
from leadhand.workers.http.netguard import Guard
from leadhand.workers.http.request import (
    MAX_BYTES,
    METHODS,
    REPEATABLE,
    SAFE,
    TIMEOUT_S,
    Header,
    HttpAction,
    Url,
    body_template,
)
from leadhand.workers.http.worker import HttpWorker


def _method(value: Any) -> str:
    method = value.upper() if isinstance(value, str) else ""
    if method not in METHODS:
        raise ValueError(f"must be one of {', '.join(sorted(METHODS))}")
    return method


def _url(value: Any) -> Url:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a text")
    url = Url.of(value)
    _ = url.host
    return url


def _headers(value: Any) -> tuple[Header, ...]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table")  # noqa: TRY004 - the end of a sentence
    headers: list[Header] = []
    for name, each in value.items():
        try:
            headers.append(Header.of(name, each))
        except ValueError as problem:
            raise Misplaced((name,), str(problem)) from None
    return tuple(headers)


def _statuses(value: Any) -> frozenset[int]:
    statuses = value if isinstance(value, list) else [value]
    if not all(type(each) is int and 200 <= each < 600 for each in statuses):
        raise ValueError("must be statuses from 200 to 599")
    return frozenset(statuses)


if TYPE_CHECKING:
    Method: TypeAlias = str
    HttpUrl: TypeAlias = Url
    Headers: TypeAlias = tuple[Header, ...]
    Statuses: TypeAlias = frozenset[int]
else:
    Method = reader(_method, "a method")
    HttpUrl = reader(_url, "an address")
    Headers = reader(_headers, "a table")
    Statuses = reader(_statuses, "statuses from 200 to 599")


class HttpTable(ActionTable, kw_only=True):
    """The keys of an action that is an HTTP call."""

    url: HttpUrl
    """The address; `{name}` is replaced by a parameter."""
    probe: HttpUrl | None = None
    """An address that tells whether an attempt took effect: status 2xx yes, 404 or 410 no, any
    other cannot tell."""
    method: Method = "GET"
    """The HTTP method."""
    headers: Headers = ()
    """Headers: texts, or `{env = "NAME", prefix = "Bearer "}` for secrets."""
    json: Any = None
    """The JSON body; `{name}` is replaced by a parameter."""
    allow: Texts = ()
    """The only hosts and networks that may be contacted, as `host`, `host:port` or `network/bits`.
    Default: the host of `url`, if it is public."""
    max_bytes: Count = MAX_BYTES
    """The largest answer, in bytes."""
    expect_status: Statuses = frozenset()
    """Statuses that count as success. Default: 200 to 299."""


def _call(table: Table, values: HttpTable) -> HttpAction:
    home = [values.url.host[0]] if values.url.host else []
    guard = Guard()
    try:
        guard = Guard.of(values.allow, home)
    except ValueError as problem:
        table.problem("allow", str(problem))
    base = HttpAction(
        url=values.url,
        method=values.method,
        headers=values.headers,
        body=_body(table, values),
        guard=guard,
        timeout_s=values.timeout or TIMEOUT_S,
        max_bytes=values.max_bytes,
        expect_status=values.expect_status,
    )
    if wrong := base.problem():
        table.problem("url", wrong)
    schema = parameter_schema(table, values, base.holes, base.any_json)
    probe = None if values.probe is None else _probe(table, values.probe, base, schema)
    offer = values.offer(schema, idempotent=values.method in REPEATABLE)
    return replace(base, offer=offer, probe=probe, checks=values.checks, check=values.check)


def _body(table: Table, values: HttpTable) -> Any:
    if values.json is None:
        return None
    if values.method in SAFE:
        table.problem("json", f"{values.method} sends no body")
    try:
        return body_template(values.json)
    except ValueError as problem:
        table.problem("json", str(problem))
        return None


def _probe(table: Table, url: Url, base: HttpAction, schema: dict[str, Any]) -> HttpAction:
    for hole in url.holes:
        if hole.name not in schema["properties"]:
            table.problem("probe", f"{{{hole.name}}} is no parameter of the request")
    fixed = tuple(each for each in base.headers if not each.value or not each.value.holes)
    probe = HttpAction(
        url=url,
        headers=fixed,
        guard=base.guard,
        timeout_s=base.timeout_s,
        max_bytes=base.max_bytes,
    )
    if problem := probe.problem():
        table.problem("probe", problem)
    return probe


def _make(it: WorkerDeclaration) -> HttpWorker | None:
    calls = {name: _call(each.table, each.values) for name, each in it.actions.items()}
    if it.problems:
        return None
    version = hashlib.sha256(it.table).hexdigest()[:VERSION_CHARS]
    offers = {name: each.offer for name, each in calls.items()}
    return HttpWorker(it.spec_with(offers, version), calls)


KIND = WorkerKind("http", HttpTable, _make)
