"""A server for tests: in a thread of this process, or a real one in a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from leadhand.server.accounts import digest_of
from leadhand.server.gate import RequestLimits
from leadhand.server.service import Running, Serve, running
from leadhand.settings import load_settings
from leadhand.stores.location import home
from tests.support import warm
from tests.support.cli import WORKERS, begin

TOKENS = {role: f"lh_{role}-{'x' * 40}" for role in ("viewer", "operator", "approver")}
SECOND = f"lh_second-{'y' * 40}"

MORE_WORKERS = """

@worker(name="summary", gives="summary")
async def summary(topic: str) -> str:
    return f"about {topic}"


@worker(name="frail", gives="summary", effects=[], cost=5)
async def frail() -> str:
    raise Permanent("page not found")


@worker(name="shaky", idempotent=True)
async def shaky() -> None:
    raise Permanent("the disk is full")
"""


def project(path: Path, more: str = "", people: dict[str, tuple[str, str]] | None = None) -> None:
    """A folder with workers, and people with tokens: one of each role and a second approver."""
    (path / "workers.py").write_text(WORKERS + MORE_WORKERS)
    given = people or {role: (role, token) for role, token in TOKENS.items()} | {
        "second": ("approver", SECOND)
    }
    tables = "".join(
        f'\n[server.people.{name}]\nrole = "{role}"\ntoken = "{digest_of(token)}"\n'
        for name, (role, token) in given.items()
    )
    text = f'[project]\nworkers = ["workers.py"]\nactor = "owner"\n{more}{tables}'
    (path / "leadhand.toml").write_text(text)


def settings_in(path: Path) -> Any:
    return load_settings(environ={"HOME": str(path)}, folder=path)


def plan_of(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"goal": "a test", "steps": list(steps), **more}


class Served:
    """A server in a thread; `call` runs something in its loop."""

    def __init__(self, up: Running, loop: asyncio.AbstractEventLoop, store: Path) -> None:
        self.up = up
        self.loop = loop
        self.url = up.url
        self.store = store
        self.api = f"{up.url}/api/v1"

    def client(self, role: str = "approver", token: str = "", **headers: str) -> httpx2.Client:
        bearer = {"Authorization": f"Bearer {token or TOKENS[role]}"} if role else {}
        return httpx2.Client(base_url=self.api, headers={**bearer, **headers}, timeout=120)

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


@contextmanager
def served(path: Path, limits: RequestLimits | None = None, **more: Any) -> Iterator[Served]:
    """A server on a free port, for as long as it is needed."""
    settings = settings_in(path)
    home(settings.store).parent.mkdir(exist_ok=True)
    box: dict[str, Any] = {}
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        wanted = Serve(
            settings=settings,
            actor="owner",
            bind="127.0.0.1",
            port=0,
            limits=limits or RequestLimits(),
            tell=lambda text: box.setdefault("told", []).append(text),
            **more,
        )
        async with running(wanted) as up:
            box["served"] = Served(up, asyncio.get_running_loop(), settings.store)
            ready.set()
            while not over.is_set():
                await asyncio.sleep(0.02)
            await up.app_state.host.drain()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            box["error"] = error
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(60)
    try:
        if "error" in box:
            raise box["error"]
        yield box["served"]
    finally:
        over.set()
        thread.join(60)
    if "error" in box:
        raise box["error"]


class Process:
    """`leadhand serve` in a process of its own."""

    def __init__(self, child: warm.Started | subprocess.Popen[str], url: str, store: Path) -> None:
        self.child = child
        self.url = url
        self.api = f"{url}/api/v1"
        self.port = int(url.rpartition(":")[2])
        self.token = store.with_name(f"{store.name}.token").read_text().strip()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and wait until it is gone; its exit code."""
        if self.child.poll() is None:
            self.child.send_signal(number)
        try:
            return self.child.wait(30)
        finally:
            self.child.kill()
            self.child.communicate()

    def client(self) -> httpx2.Client:
        bearer = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.api, headers=bearer, timeout=120)


def process(path: Path, *args: str, store: Path | None = None) -> Process:
    """Start a real server; whoever starts it ends it."""
    with (path / "serve.err").open("ab") as log:
        child = begin(path, "serve", *(args or ("--port", "0")), stderr=log.fileno())
    assert child.stdout is not None
    url = child.stdout.readline().strip()
    if not url:
        child.wait(30)
        child.stdout.close()  # or the next test is told of it
        raise AssertionError((path / "serve.err").read_text())
    return Process(child, url, store or path / ".leadhand" / "leadhand.db")


def ended(client: httpx2.Client, run: str, limit_s: float = 120) -> dict[str, Any]:
    """A run once it has ended, or waits; one that another run starts may not be there yet."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = client.get(f"/runs/{run}")
        doc = found.json()
        if found.status_code != 404 and doc["status"] not in ("running", "stopping"):
            return doc
        time.sleep(0.05)
    raise AssertionError(f"run {run} did not end: {doc}")


def sse(lines: Iterator[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The events of a stream: position, type, data."""
    position, kind, data = 0, "", ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            position = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data = value
        elif not line and data:
            yield position, kind, json.loads(data)
            kind = data = ""


def rss_mb(pid: int | None = None) -> float:
    """The memory a process holds now."""
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
