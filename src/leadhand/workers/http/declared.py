"""HTTP calls from the tables of leadhand.toml."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leadhand.workers.declaration import DeclarationTable, read_checks, read_offer, read_parameters
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

HTTP_KEYS = {"url", "method", "headers", "json", "allow", "max_bytes", "expect_status"}


def read_call(table: DeclarationTable) -> HttpAction:
    method = (table.text("method") or "GET").upper()
    if method not in METHODS:
        table.problem("method", f"must be one of {', '.join(sorted(METHODS))}")
    url = _url(table, "url")
    guard = _guard(table, url)
    headers = _headers(table)
    body = _body(table, method)
    timeout_s = table.seconds("timeout")
    base = HttpAction(
        url=url or Url.of("http://invalid/"),
        method=method,
        headers=headers,
        body=body,
        guard=guard,
        timeout_s=timeout_s or TIMEOUT_S,
        max_bytes=table.count("max_bytes") or MAX_BYTES,
        expect_status=_statuses(table),
    )
    if url is not None and (problem := base.problem()):
        table.problem("url", problem)
    schema = read_parameters(table, base.holes, base.any_json, open_ended=False)
    probe = _http_probe(table, base, schema)
    checks, check = read_checks(table)
    repeatable = method in REPEATABLE
    offer = read_offer(table, schema, checks, check, probe=probe is not None, idempotent=repeatable)
    return replace(base, offer=offer, probe=probe, checks=checks, check=check)


def _url(table: DeclarationTable, key: str) -> Url | None:
    text = table.text(key)
    if text is None:
        return None
    try:
        url = Url.of(text)
        _ = url.host
    except ValueError as problem:
        table.problem(key, str(problem))
        return None
    return url


def _guard(table: DeclarationTable, url: Url | None) -> Guard:
    home = [url.host[0]] if url is not None and url.host else []
    try:
        return Guard.of(table.texts("allow"), home)
    except ValueError as problem:
        table.problem("allow", str(problem))
        return Guard()


def _headers(table: DeclarationTable) -> tuple[Header, ...]:
    headers: list[Header] = []
    for name, value in table.mapping("headers").items():
        try:
            headers.append(Header.of(name, value))
        except ValueError as problem:
            table.problem(f"headers.{name}", str(problem))
    return tuple(headers)


def _body(table: DeclarationTable, method: str) -> Any:
    if "json" not in table.values:
        return None
    if method in SAFE:
        table.problem("json", f"{method} sends no body")
    try:
        return body_template(table.values["json"])
    except ValueError as problem:
        table.problem("json", str(problem))
        return None


def _statuses(table: DeclarationTable) -> frozenset[int]:
    value = table.values.get("expect_status", [])
    statuses = value if isinstance(value, list) else [value]
    if not all(type(each) is int and 200 <= each < 600 for each in statuses):
        table.problem("expect_status", "must be statuses from 200 to 599")
        return frozenset()
    return frozenset(statuses)


def _http_probe(
    table: DeclarationTable, base: HttpAction, schema: dict[str, Any]
) -> HttpAction | None:
    if "probe" not in table.values:
        return None
    url = _url(table, "probe")
    if url is None:
        return None
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
