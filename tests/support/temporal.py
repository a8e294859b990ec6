"""A real Temporal server for tests, and Leadhand on it within one process."""

import asyncio
import os
import socket
import subprocess
import sys
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadhand import Lead
from leadhand.stores.location import StoreLocation
from leadhand.stores.postgres.store import PostgresStore
from leadhand.stores.sqlite.store import SqliteStore
from leadhand.temporal.activities import StepActivities
from leadhand.temporal.cluster import Cluster, own_names
from leadhand.temporal.host import connect
from leadhand.temporal.host_factory import engine_of
from leadhand.temporal.messages import HostingOptions
from leadhand.temporal.processes import RunningWorkers, engine_worker, machine_workers, served
from leadhand.workers.processes.machine import LocalMachine

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".venv-temporal" / "bin" / "temporal"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """`temporal server start-dev`, in a file when it has to outlive its process."""

    def __init__(self, file: Path | None = None, ip: str = "127.0.0.1") -> None:
        self.port, self.file = free_port(), file
        self.ip = ip if ip.startswith("127.") else "0.0.0.0"  # its parts speak over 127.0.0.1
        self.address = f"{ip}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        args = ["--headless", "--ip", self.ip, "--port", str(self.port), "--log-level", "never"]
        more = ["--db-filename", str(self.file)] if self.file else []
        for name in ("frontend.keepAliveMinTime",):
            more += ["--dynamic-config-value", f'{name}="1s"']
        self._process = subprocess.Popen(
            [PROGRAM, "server", "start-dev", *args, *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(ROOT / "build")},
        )
        asyncio.run(self._answers())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def _answers(self) -> None:
        for _ in range(200):
            try:
                await connect(self.address)
                return
            except Exception:
                await asyncio.sleep(0.1)
        raise RuntimeError("the Temporal server does not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def temporal():
    """A server for a module's tests; each takes queues of its own. Idle it takes CPU, too."""
    subprocess.run([sys.executable, ROOT / "scripts" / "environment.py", "temporal"], check=True)
    server = Server()
    server.start()
    yield server
    server.stop()


class Here:
    """An engine and a machine in this process, and a Lead whose runs they carry out."""

    def __init__(self, lead: Lead, store: SqliteStore, cluster: Cluster, client) -> None:
        self.lead, self.store, self.cluster, self.client = lead, store, cluster, client


@asynccontextmanager
async def on_temporal(
    server: Server,
    place: StoreLocation,
    workers,
    planner=None,
    *,
    ways=None,
    machine_here=True,
    **more,
):
    """`Lead` on Temporal: everything that belongs to it runs here, on queues of its own."""
    if isinstance(place, Path):
        store = SqliteStore(place)
        store.claim()
    else:
        store = PostgresStore(place, shared=True)
    ways = ways or {}
    ways.setdefault("prefix", f"t{uuid.uuid4().hex[:8]}")
    cluster = own_names(Cluster(server.address, ways=HostingOptions(**ways)), store)
    lead = Lead(workers, planner, store, temporal=cluster, **more)
    client = await connect(server.address, shelf=store)
    local = LocalMachine(f"test-{uuid.uuid4().hex}")
    local.attach(lead.registry)
    machine = StepActivities(lead.registry, store)
    names = served(lead.registry, ()) if machine_here else []
    prefix = cluster.ways.prefix
    hands = machine_workers(client, prefix, machine, names, drain_s=0.2)
    async with RunningWorkers([engine_worker(client, prefix, engine_of(lead, store)), *hands]):
        yield Here(lead, store, cluster, client)
    await local.close()
    await store.close()
