"""A server of documents for the page alone: what a test wants shown, and a stream it can push to.

The stories run against `leadhand serve`. This one stands in where a test needs what a real run
does not give on demand: ten thousand steps, two hundred changes a second, a server that fails.

    with Fake(scene) as fake:
        page.goto(fake.url)
        fake.push({"type": "AttemptStarted", "run": "r1", "patch": {...}})
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

WEB = Path(__file__).resolve().parents[2] / "src" / "leadhand" / "server" / "web"
TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Doc = dict[str, Any]
Answer = Callable[[Doc], Any]


class Fake:
    """Answers GETs with documents and POSTs with functions; keeps what was asked."""

    def __init__(self, documents: Doc, answers: dict[str, Answer] | None = None) -> None:
        empty = {"/session": session(), "/inbox": inbox(), "/runs": page([])}
        self.documents = empty | {"/overview": overview()} | documents
        self.answers = answers or {}
        self.asked: list[tuple[str, str, Any]] = []
        self.position = 0
        self._frames: list[bytes] = []
        self._more = threading.Condition()
        self._closing = False
        fake = self

        class Handler(_Handler):
            of = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._more:
            self._closing = True
            self._more.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def push(self, *events: Doc) -> None:
        """Send events to whoever listens."""
        with self._more:
            for event in events:
                self.position += 1
                doc = {"position": self.position, **event}
                head = f"id: {self.position}\nevent: {event['type']}\n"
                self._frames.append(f"{head}data: {json.dumps(doc)}\n\n".encode())
            self._more.notify_all()

    def stream(self, write: Callable[[bytes], Any], after: int) -> None:
        write(f"id: {after}\n\n".encode())
        while not self._closing:
            with self._more:
                if len(self._frames) <= after and not self._closing:
                    self._more.wait(5)
                frames, after = self._frames[after:], len(self._frames)
            write(b"".join(frames) or b": ping\n\n")


class _Handler(BaseHTTPRequestHandler):
    of: Fake
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path == "/api/v1/events":
            return self._events()
        if path.startswith("/api/v1"):
            return self._api("GET", path.removeprefix("/api/v1"), None)
        name = "index.html" if path == "/" else path.removeprefix("/assets/v1/")
        file = WEB / name
        if ".." in name or not file.is_file():
            return self._send(404, b"", "text/plain")
        body = file.read_bytes().replace(b"{{version}}", b"v1")
        return self._send(200, body, TYPES.get(file.suffix, "text/plain"))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path).removeprefix("/api/v1")
        self._api(self.command, path, json.loads(raw or b"null"))

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def _api(self, method: str, path: str, body: Any) -> None:
        self.of.asked.append((method, path, body))
        found = self.of.documents if method == "GET" else self.of.answers
        key = path if method == "GET" else f"{method} {path}"
        if key not in found:
            status = 404 if method == "GET" else 200
            doc: Any = {"title": "Not found", "detail": f"there is no {path}"}
            return self._json(status, doc if status == 404 else {})
        doc = found[key]
        doc = doc(body) if callable(doc) else doc
        status = doc.get("status") if isinstance(doc, dict) and "title" in doc else 200
        return self._json(status if isinstance(status, int) else 200, doc)

    def _json(self, status: int, doc: Any) -> None:
        self._send(status, json.dumps(doc).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def _events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        after = int(self.headers.get("Last-Event-ID") or self.of.position)
        with suppress(OSError):
            self.of.stream(lambda data: (self.wfile.write(data), self.wfile.flush()), after)


def session(role: str = "approver") -> Doc:
    who: Doc = {"person": "ada", "role": role, "owner": True, "expires": None}
    where = {"store": "leadhand.db", "project": "demo", "environment": "test"}
    return who | {"version": "0.1.0"} | where


def inbox(*rows: Doc) -> Doc:
    return page([*rows]) | {"total": len(rows)}


def overview(**more: Any) -> Doc:
    figures = {"runs": 0, "open": 0, "succeeded": 0, "failed": 0, "cost": 0.0, "money": 0.0}
    figures |= {"failed_steps": 0, "recovered": 0, "success_rate": None, "recovery_rate": None}
    lists: Doc = {"running": [], "running_total": 0, "failed": [], "failed_more": False, "rows": []}
    counts = {"range": "7d", "any_runs": False, "waiting": 0, "interval": "day", "total": figures}
    return lists | counts | more


def page(items: list[Doc], following: str | None = None) -> Doc:
    return {"items": items, "next": following}
