"""Nobody is there: no engine, no machine for a worker, no namespace, no server. It is said."""

import asyncio
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from leadhand import Lead, worker
from leadhand.app.host_status import host_status
from leadhand.app.hosting_service import hosting_service
from leadhand.app.reader import Reader
from leadhand.errors import Unreachable, UsageError
from leadhand.settings import load_settings
from leadhand.stores.sqlite.store import SqliteStore
from leadhand.temporal import cluster_status
from leadhand.temporal import host as client
from leadhand.temporal import run as distant
from leadhand.temporal.cluster import Cluster
from leadhand.temporal.cluster_status import missing
from leadhand.temporal.doctor import temporal_rows
from leadhand.temporal.host import connect
from leadhand.temporal.messages import HostingOptions
from tests.support.cli import WORKERS, Folder
from tests.support.temporal import free_port, on_temporal
from tests.temporal.test_processes import serving

pytestmark = pytest.mark.real
PLAN = {"goal": "g", "steps": [{"id": "a", "worker": "idle"}]}


@worker(idempotent=True)
async def idle() -> None:
    return None


async def test_a_run_that_temporal_hosts_is_shown_as_hosted_and_what_it_waits_for(
    temporal, tmp_path, monkeypatch
):
    """`show`, `watch` and `ls` stand on this: that its host has ended would not be true."""
    path = tmp_path / "l.db"
    async with (
        on_temporal(temporal, path, [idle], machine_here=False) as here,
        here.lead.hosting() as host,
    ):
        run = await here.lead.begin(host, PLAN, run_id="waits")
        await run.until(4)
        reader = Reader(path)
        settings = SimpleNamespace(sections={"temporal": here.cluster}, store=path)
        looking = host_status(settings, reader)
        state = reader.state("waits")
        assert (await looking.driver(state)).drives(state)
        (note,) = looking.notes
        assert "no machine asks for work of idle" in note
        assert "Fix: leadhand worker --kinds idle" in note
        everything = host_status(settings, reader)
        while not (await everything.driver()).drives(state):  # a list comes a moment later
            everything._due = 0.0
            await asyncio.sleep(0.1)
        await host.send_command("waits", "cancel", "me", {})
        await asyncio.wait_for(run.wait_idle(), 30)
        while (await host_status(settings, reader).driver(state)).drives(state):
            await asyncio.sleep(0.1)
        away = SimpleNamespace(
            sections={"temporal": Cluster(f"127.0.0.1:{free_port()}")}, store=path
        )
        unsure = host_status(away, reader)
        assert (await unsure.driver(state)).drives(state)
        assert "are unknown" in unsure.notes[0]
        monkeypatch.setitem(sys.modules, "temporalio", None)  # it need not be installed to read
        assert (await host_status(settings, reader).driver(state)).drives(state)
        await reader.close()


async def test_without_an_engine_it_is_said_that_none_is_there(temporal, tmp_path, monkeypatch):
    """To whoever starts a run, and to whoever says something to one."""
    for wait in ("BEGIN_WAIT_S", "ENGINE_WAIT_S"):
        monkeypatch.setattr(distant, wait, 0.5)
    store = SqliteStore(tmp_path / "l.db")
    store.claim()
    cluster = Cluster(temporal.address, ways=HostingOptions(prefix=f"none{free_port()}"))
    lead = Lead([idle], None, store, temporal=cluster)
    async with lead.hosting() as host:
        with pytest.raises(Unreachable, match="run lost begins when an engine is there"):
            await asyncio.wait_for(lead.begin(host, PLAN, run_id="lost"), 30)
        with pytest.raises(Unreachable, match="may still be carried out: no engine is there"):
            await asyncio.wait_for(host.send_command("lost", "cancel", "me", {}), 30)
    await store.close()


@pytest.mark.slow
def test_who_has_ended_is_not_taken_for_one_who_serves(temporal, tmp_path, monkeypatch):
    """The server names them for minutes: `doctor` and `run` go by when they were last heard of."""
    folder = Folder(tmp_path)
    folder.write("workers.py", WORKERS)
    folder.write(
        "leadhand.toml",
        f'[project]\nworkers = ["workers.py"]\n[temporal]\naddress = "{temporal.address}"\n',
    )
    settings = load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path)
    with serving(folder, "--engine"):
        served = {"temporal", "engine", "worker say"}
        folder.until(
            lambda: served <= {row[0] for row in temporal_rows(settings) if not row[2]}, "both"
        )
    monkeypatch.setattr(cluster_status, "SILENT_S", 1.0)
    time.sleep(2.5)
    told = {row[0]: row for row in temporal_rows(settings)}
    for what, without in (
        ("engine", "runs stand still"),
        ("worker say", "steps of this worker wait"),
    ):
        _, value, wrong, fix = told[what]
        assert re.search(r"@.*, last seen \d+ s ago", value), told
        assert wrong.startswith("the process has ended"), told
        assert without in wrong, told
        assert fix.startswith("leadhand worker"), told

    async def engines():
        lead = Lead([idle], None, settings.store, service=hosting_service(settings))
        async with lead.hosting() as host:
            return await host.engines(), await missing(host.client, host.ways.prefix, ["say"])

    there, words = asyncio.run(engines())
    assert there == []
    assert words[0] == cluster_status.NO_ENGINE
    assert "s ago, has ended or is busy)" in words[1]


async def test_an_address_or_namespace_that_is_not_there_is_a_mistake_of_the_caller(temporal):
    with pytest.raises(UsageError, match=r"has no namespace nowhere\. Fix: "):
        await connect(temporal.address, "nowhere")
    for address in ("bad:address:7", f"127.0.0.1:{free_port()}"):
        with pytest.raises(UsageError, match=f"no Temporal server at {address}: [^{{]* Fix: "):
            await connect(address)


async def test_how_both_sides_prove_who_they_are_is_taken_from_the_settings(tmp_path, monkeypatch):
    """Files from where the setting stands, a key from the environment; what is missing is named."""
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").write_text(name)
    text = '[temporal]\naddress = "t:7"\nnamespace = "ns"\nca = "ca.pem"\ncert = "cert.pem"\n'
    (tmp_path / "leadhand.toml").write_text(f'{text}key = "key.pem"\napi_key = "T_KEY"\n')
    cluster = hosting_service(load_settings(environ={"HOME": str(tmp_path)}, folder=tmp_path))
    told = {}

    async def stand_in(address, **more):
        told.update(more, address=address)
        raise RuntimeError("nobody")

    monkeypatch.setattr(client.Client, "connect", stand_in)
    with pytest.raises(UsageError, match="T_KEY, and it is not set"):
        await connect(cluster)
    monkeypatch.setenv("T_KEY", "secret")
    with pytest.raises(UsageError, match="no Temporal server at t:7"):
        await connect(cluster)
    assert (told["address"], told["namespace"], told["api_key"]) == ("t:7", "ns", "secret")
    tls = told["tls"]
    found = tls.server_root_ca_cert, tls.client_cert, tls.client_private_key
    assert found == (b"ca", b"cert", b"key")
    for plain in (Cluster("t:7", tls=True), Cluster("t:7", api_key="T_KEY")):
        with pytest.raises(UsageError):
            await connect(plain)
        assert told["tls"] is True
    (tmp_path / "key.pem").unlink()
    with pytest.raises(UsageError, match=r"\[temporal\] key: .*key.pem cannot be read"):
        await connect(cluster)
    with pytest.raises(UsageError, match="cert and key go together"):
        await connect(Cluster("t:7", cert="c.pem"))


def test_a_command_ends_with_its_own_code_whatever_threads_are_left():
    """Temporal's library has some, and the end of Python may abort when one is met."""
    program = """
import atexit, sys, threading, types
sys.modules["temporalio.client"] = types.ModuleType("temporalio.client")
threading.Thread(target=threading.Event().wait).start()
atexit.register(print, "all that was due")
from leadhand.cli.main import main
main(["no-such-command"])
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done
    assert "all that was due" in done.stdout
    assert "no command" in done.stderr
