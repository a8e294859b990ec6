"""A real Chromium, a real `leadhand serve`, and nothing from outside this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from leadhand.server import npm_assets
from scripts.browser import NAMES
from tests.support.cli import PROGRAM, environment
from tests.support.need import need
from tests.web.steering import project

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "build" / "screenshots"
AXE = ROOT / "build" / "npm" / "axe.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}


def chromium_path() -> str | None:
    """The system's Chromium; on CI it is installed where it is missing."""
    found = _found()
    if found is None and os.environ.get("CI"):
        subprocess.run([sys.executable, ROOT / "scripts" / "browser.py"], check=False, timeout=900)
        found = _found()
    return found


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For one file: while it is there an event loop runs, and no other test could have one."""
    path = chromium_path()
    need(path, "Chromium: `python3 scripts/browser.py` installs Debian's")
    need(npm_assets.ready(), "the page's third-party files: `leadhand doctor --fix` fetches them")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=60_000)  # a busy machine is slow, and nothing else
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield found
        found.close()


@dataclass
class Pages:
    """Makes pages and keeps what went wrong in them."""

    browser: Any
    problems: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    open: list[Any] = field(default_factory=list)

    def __call__(self, url: str = "", *, context: Any = None, **options: Any) -> Any:
        if context is None:
            context = self.browser.new_context(**({"viewport": WIDE} | options))
            context.set_default_timeout(60_000)
            self.open.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{error}\n{error.stack}"))
        page.on("console", self._said)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("requestfailed", self._failed)
        if url:
            page.goto(url)
        return page

    def _failed(self, request: Any) -> None:
        # A page that is left ends its requests; a file that did not come is told.
        if "/assets/" in request.url and "ERR_ABORTED" not in str(request.failure):
            print(f"not loaded: {request.url}: {request.failure}")

    def _said(self, message: Any) -> None:
        # A refused request is part of some stories, and shown on the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(f"{message.type}: {message.text}")


@pytest.fixture
def pages(browser: Any) -> Iterator[Pages]:
    """Pages in which nothing goes wrong unseen: no error, no broken policy, no request outside."""
    made = Pages(browser)
    yield made
    for context in made.open:
        context.close()
    assert not made.problems, "\n".join(made.problems)
    outside = [url for url in made.asked if not url.startswith(("http://127.0.0.1:", "blob:"))]
    assert not outside


def printed(folder: Path, *words: str) -> str:
    """Return what `leadhand WORDS` prints in a folder."""
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


class Served:
    """`leadhand serve` in a folder of its own; it can be killed and started again."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "serve.log"

    def start(self) -> Self:
        command = [sys.executable, "-m", "leadhand.cli", "serve", "--port", str(self.port)]
        own = {"LEADHAND_ACTOR": "ada", "LEADHAND_TRUST": str(self.folder)}
        env = os.environ | own | {"PYTHONUNBUFFERED": "1"}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, "--json"], cwd=self.folder, stdout=subprocess.PIPE, stderr=out, env=env
            )
        assert self.process.stdout is not None
        with self.process.stdout as said_first:
            line = said_first.readline()
        assert line, self.log.read_text()
        said = json.loads(line)
        self.url = said["url"].rstrip("/") + "/"
        self.port = int(self.url.rstrip("/").rpartition(":")[2])
        self.token = Path(said["token_file"]).read_text().strip()
        return self

    @property
    def entry(self) -> str:
        return f"{self.url}#token={self.token}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(f"{self.url}api/v1{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        data = None
        if body is not None:
            request.add_header("Content-Type", "application/json")
            data = json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=120) as response:
            return json.loads(response.read() or b"null")

    def until(self, run: str, *wanted: str, seconds: float = 180) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = str(self.call("GET", f"/runs/{run}")["status"])
            if status in wanted:
                return status
            time.sleep(0.1)
        raise AssertionError(f"{run} is {status}, not {wanted}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(2)  # a run at work would go on for its whole grace
            if self.process.poll() is None:
                self.kill()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def terminal(self, *words: str) -> str:
        """Return what `leadhand WORDS` prints in the server's folder, from another terminal."""
        return printed(self.folder, *words)


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """The project of `steering.py`, with the workers that the test's file adds as `WORKERS`."""
    more = getattr(request.module, "WORKERS", "")
    with Served(project(tmp_path / "project", more)) as made:
        yield made


@contextmanager
def example(folder: Path, name: str) -> Iterator[tuple[Served, str]]:
    """Serve a copy of an example, with its source of data beside it; give the source's address."""
    shutil.copytree(ROOT / "examples" / name, folder)
    port = free_port()
    source = subprocess.Popen([sys.executable, "server.py", str(port)], cwd=folder)
    try:
        wait_for(port)
        with Served(folder) as served:
            yield served, f"http://127.0.0.1:{port}"
    finally:
        source.kill()
        source.wait()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[tuple[Served, str]]:
    """The research example, with its moody source of data."""
    with example(tmp_path / "research", "research") as found:
        yield found


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Served]:
    """The deployment example: a plan that people decide about."""
    folder = tmp_path / "deploy"
    shutil.copytree(ROOT / "examples" / "deploy", folder)
    with Served(folder) as served:
        yield served


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int, seconds: float = 120) -> None:
    import socket

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def shot(page: Any, name: str) -> None:
    """Keep a picture of the page in `build/screenshots`, if `LEADHAND_SCREENSHOTS` asks for it."""
    if not os.environ.get("LEADHAND_SCREENSHOTS"):
        return
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / f"{name}.png"))
