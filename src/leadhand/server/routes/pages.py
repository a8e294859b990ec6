"""The page and its assets, the liveness check, and the metrics for Prometheus."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections import OrderedDict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fastapi import APIRouter, Request, Response

from leadhand.server.app_state import app_state_of
from leadhand.server.problems import missing
from leadhand.server.prometheus import exposition
from leadhand.server.script_text import script_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

router = APIRouter(include_in_schema=False)
WEB = Path(str(resources.files("leadhand.server"))) / "web"
INDEX = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
IMMUTABLE = "public, max-age=31536000, immutable"
NOT_BUILT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Leadhand</title>
<h1>The page is not built</h1>
<p>This server runs, and its API answers under <code>/api/v1</code>. The page's files are missing
from this installation: install a published wheel, or run <code>leadhand doctor --fix</code> and
start the server again.</p></html>
"""
_INLINE = re.compile(rb"<script\b([^>]*)>(.*?)</script>", re.DOTALL | re.IGNORECASE)


@router.get("/")
async def page(request: Request) -> Response:
    """The dashboard."""
    body = page_body(app_state_of(request).version)
    if not body:
        return Response(NOT_BUILT, 503, {"Retry-After": "60"}, TYPES[".html"])
    found = packed_of(hashlib.sha256(body).hexdigest(), lambda: body)
    return _sent(request, found, "no-cache", TYPES[".html"])


def page_body(version: str) -> bytes:
    """Return the page with the version in its URLs; empty if it is not built."""
    try:
        return (WEB / INDEX).read_bytes().replace(b"{{version}}", asset_version(version).encode())
    except OSError:
        return b""


def asset_version(version: str) -> str:
    """Return the version in URLs of immutable files: in a checkout they change within a version."""
    newest = max(path.stat().st_mtime_ns for path in WEB.rglob("*"))
    return f"{version}-{newest:x}"


@router.get("/assets/{version}/{file:path}")
async def asset(request: Request, version: str, file: str) -> Response:  # noqa: ARG001 - only its address counts
    """A file of the dashboard. Its URL changes with the version, so caches keep it."""
    found = asset_file(file)
    if found is None:
        raise missing("file not found")
    stamp = found.stat()
    name = f"{found} {stamp.st_mtime_ns} {stamp.st_size}"
    return _sent(
        request, packed_of(name, lambda: served_bytes(found)), IMMUTABLE, TYPES[found.suffix]
    )


def served_bytes(path: Path) -> bytes:
    """Return a file as it is sent: of a script, what `script_text` leaves of it."""
    body = path.read_bytes()
    return script_text(body.decode()).encode() if path.suffix == ".js" else body


class Packed(NamedTuple):
    """A file, plain and compressed; the latter is empty if it saves nothing."""

    plain: bytes
    gzip: bytes
    tag: str


_packed: OrderedDict[str, Packed] = OrderedDict()
PACKED_MAX = 200


def packed_of(name: str, read: Callable[[], bytes]) -> Packed:
    """Return a file, compressed once."""
    found = _packed.get(name)
    if found is None:
        plain = read()
        small = gzip.compress(plain, 9, mtime=0)
        small = small if len(small) < 0.9 * len(plain) else b""
        found = _packed[name] = Packed(plain, small, hashlib.sha256(plain).hexdigest()[:20])
        while len(_packed) > PACKED_MAX:
            _packed.popitem(last=False)
    return found


def _sent(request: Request, found: Packed, keep: str, kind: str) -> Response:
    """Return the file as the browser accepts it. The compressed form has its own ETag."""
    packs = bool(found.gzip) and takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{found.tag}-gz"' if packs else f'"{found.tag}"'
    headers = {"ETag": tag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    asked = (each.strip() for each in request.headers.get("if-none-match", "").split(","))
    if any(each.removeprefix("W/") == tag or each == "*" for each in asked):
        return Response(None, 304, headers)
    if packs:
        headers["Content-Encoding"] = "gzip"
    return Response(found.gzip if packs else found.plain, 200, headers, kind)


def takes_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip with a weight above zero."""
    weights: dict[str, bool] = {}
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        weights[name.strip()] = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight) is None
    return weights.get("gzip", weights.get("*", False))


def asset_file(name: str) -> Path | None:
    """Return a file below the page's folder, of a served type; None for anything else."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.startswith(".") or "\\" in part for part in parts):
        return None
    root = WEB.resolve()
    found = root.joinpath(*parts).resolve()
    if not found.is_relative_to(root) or found.suffix not in TYPES or not found.is_file():
        return None
    return found


def page_policy(version: str) -> str:
    """Return the content security policy of the page: its own files, and import maps by hash."""
    scripts = " ".join(("'self'", *inline_hashes(page_body(version))))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; worker-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def inline_hashes(body: bytes) -> Iterable[str]:
    """Yield the hashes of inline import maps, which no browser loads from a file."""
    for attributes, text in _INLINE.findall(body):
        if b"importmap" in attributes and b"src=" not in attributes:
            yield f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


@router.get("/livez")
async def livez() -> Response:
    """Liveness check; tells nothing else without a token."""
    return Response("ok\n", 200, None, "text/plain; charset=utf-8")


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Readiness check: 503 while the server drains, has failed, or cannot write fast enough."""
    host = app_state_of(request).host
    ready = host.failed is None and not host.draining and host.store.room()
    text, status = ("ready\n", 200) if ready else ("not ready\n", 503)
    return Response(text, status, None, "text/plain; charset=utf-8")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    body, kind = await exposition(app_state_of(request))
    return Response(body, 200, None, kind)
