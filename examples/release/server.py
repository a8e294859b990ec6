"""Production: a database, two slots, and a server that answers from the slot that is live.

    python server.py

It makes `site/` where that is missing and prints its address. `site/live` is a link to the slot,
blue or green, whose code answers. The link is followed at each request, so that moving it is the
switch. Requests: /health, /login?name=ann.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qs, urlsplit

HERE = Path(__file__).resolve().parent
SITE = HERE / "site"
DATABASE = SITE / "auth_prod.db"
LIVE = SITE / "live"
PEOPLE = ("ann", "bob", "Zoë")


def make_site(version: str = "v2.1.3") -> None:
    """Make production with one version live in slot blue, unless it is there."""
    if LIVE.exists():
        return
    (SITE / "slots").mkdir(parents=True, exist_ok=True)
    shutil.copytree(HERE / "versions" / version, SITE / "slots" / "blue", dirs_exist_ok=True)
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS users (name TEXT PRIMARY KEY)")
        database.executemany("INSERT OR IGNORE INTO users VALUES (?)", [(n,) for n in PEOPLE])
    LIVE.symlink_to(Path("slots") / "blue")


def code_of(slot: Path) -> ModuleType:
    """Return the code that a slot holds."""
    spec = importlib.util.spec_from_file_location("auth", slot / "auth.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Handler(BaseHTTPRequestHandler):
    """Answers requests from the live slot."""

    def do_GET(self) -> None:
        """Answer /health and /login."""
        asked = urlsplit(self.path)
        slot = LIVE.resolve()
        auth = code_of(slot)
        if asked.path == "/health":
            self._answer(200, {"version": auth.VERSION, "slot": slot.name})
            return
        name = parse_qs(asked.query).get("name", [""])[0]
        try:
            with closing(sqlite3.connect(DATABASE)) as database, database:
                self._answer(200, auth.login(database, name))
        except LookupError as error:
            self._answer(404, {"error": str(error)})
        except Exception as error:  # noqa: BLE001 - a version that is broken answers all the same
            self._answer(500, {"error": f"{type(error).__name__}: {error}"})

    def _answer(self, status: int, document: dict[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing for each request."""


def migrate(slot: str) -> None:
    """Bring the database into the form that the code of a slot needs, in one transaction."""
    with closing(sqlite3.connect(DATABASE)) as database, database:
        code_of(SITE / "slots" / slot).migrate(database)


if sys.argv[1:2] == ["migrate"]:
    migrate(sys.argv[2])
elif __name__ == "__main__":
    make_site()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
