"""A log that Temporal hosts is no other host's, and one that a host has is not Temporal's."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from leadhand import Lead, worker
from leadhand.app.host_status import host_status
from leadhand.app.reader import Reader
from leadhand.app.store_factory import open_store
from leadhand.app.used_approvals import UsedApprovals
from leadhand.audit.chain import link
from leadhand.cli.signals import first_of
from leadhand.codec.events import encode
from leadhand.core import events as ev
from leadhand.core.commands import Command
from leadhand.core.host_events import TemporalLeft, TemporalOpened
from leadhand.engine.host import EmbeddedHost
from leadhand.errors import Conflict, StoreBroken, Unreachable
from leadhand.ports import Entry
from leadhand.temporal import host as speaking
from leadhand.temporal.cluster import Cluster, own_names
from leadhand.temporal.cluster_status import workflow_id
from leadhand.temporal.dispatch import engine_queue
from leadhand.temporal.host import TemporalHost
from leadhand.temporal.host_factory import LogOwner, mark, open_host
from leadhand.temporal.messages import RUN
from tests.support.cli import WORKERS, Folder
from tests.support.temporal import on_temporal
from tests.temporal.test_processes import serving

pytestmark = pytest.mark.real
RISKY = {"goal": "g", "steps": [{"id": "a", "worker": "risky"}]}


@worker(risk="high")
async def risky() -> str:
    return "survived"


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path):
    if request.param == "file":
        return tmp_path / "l.db"
    return request.getfixturevalue("postgres").new(tmp_path)


def is_anchored(folder, there):
    """Whether the log ends with an entry that an anchor covers."""
    anchors = folder.run("verify", "--all", "--json", *there).doc["anchors"]
    return anchors["lines"] and anchors["entries_since"] == 0


@pytest.mark.slow
def test_a_command_without_temporal_refuses_its_runs_and_says_the_way(place, tmp_path, temporal):
    """While an engine is there, and also when none is; nothing is written, so nothing forks."""
    folder, there = Folder(tmp_path), ("--temporal", temporal.address)
    folder.write("workers.py", WORKERS)
    store = getattr(place, "secret", place)
    folder.write(
        "leadhand.toml",
        f'[project]\nworkers = ["workers.py"]\nstore = "{store}"\n'
        f'[temporal]\nprefix = "k{tmp_path.name[-8:]}"\nheartbeat = "2 s"\n',
    )
    folder.plan({"id": "a", "worker": "danger"}, name="risky.json")

    def refused(*words):
        done = folder.run(*words)
        assert done.code == 7, done
        assert f"--temporal {temporal.address}" in done.err, done

    with serving(folder, "--engine", *there):
        waits = folder.run("run", "risky.json", *there)
        assert waits.code == 5, waits
        assert f"--temporal {temporal.address}" in waits.err, waits  # the hint can be typed
        runs = [row["run"] for row in folder.run("ls", "--json", *there).doc]
        refused("review", runs[0], "approve", "--yes")
        refused("resume", runs[0])
        shown = folder.run("show", runs[0])
        assert f"hosted by Temporal at {temporal.address}" in shown.out + shown.err, shown
        assert folder.run("review", runs[0], "approve", "--yes", *there).code == 0
        assert folder.run("watch", runs[0], "--exit-status", *there).code == 0
        assert folder.run("run", "risky.json", *there).code == 5
        rows = folder.run("ls", "--json", *there).doc
        (left,) = {row["run"] for row in rows} - {runs[0]}
        folder.until(lambda: is_anchored(folder, there), "the engine to anchor what it wrote")
    for words in (["review", left, "approve", "--yes"], ["resume", left], ["cancel", left]):
        refused(*words)
    refused("stop-all")
    refused("run", "risky.json")
    other = folder.run("resume", left, *there, LEADHAND_TEMPORAL__PREFIX="other")
    assert other.code == 7, other
    assert "with prefix" in other.err
    # Taken back on purpose, they are hosted here, and no workflow is left that could write.
    home = folder.run("resume", left, "--here", "--reason", "home", "--yes")
    assert home.code == 0, home
    assert "no longer hosted by Temporal" in home.err
    assert folder.run("run", "risky.json", "--yes").code == 0
    assert folder.run("verify", "--all").code == 0, folder.run("verify", "--all")


@pytest.mark.slow
def test_projects_with_the_same_prefix_have_each_its_own_runs(tmp_path, temporal):
    """Both engines are there; what is begun beside one log never lands in the other."""
    prefix, folders = f"same{tmp_path.name[-8:]}", []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        folder = Folder(tmp_path / name)
        folder.write("workers.py", WORKERS)
        folder.write(
            "leadhand.toml",
            '[project]\nworkers = ["workers.py"]\n'
            f'[temporal]\naddress = "{temporal.address}"\nprefix = "{prefix}"\n',
        )
        folder.plan({"id": "a", "worker": "say", "parameters": {"text": name}})
        folders.append(folder)
    with serving(folders[0], "--engine"), serving(folders[1], "--engine"):
        for folder in folders:
            for turn in range(4):  # in a row: the server gives tasks to whoever asks, by turns
                done = folder.run("run", "plan.json", "--json", timeout_s=120)
                assert done.code == 0, done
                assert done.doc["result"] == folder.path.name, done
                assert len(folder.run("ls", "--json").doc) == turn + 1
        seen = [folder.run("doctor").out for folder in folders]
        assert all("ok    engine" in each for each in seen), seen
    for folder in folders:
        assert folder.run("verify", "--all").code == 0


async def test_a_log_keeps_the_names_that_it_has_written_down(tmp_path):
    """Runs of logs from before, and names that are given in full, are where they were."""
    store, lock = open_store(tmp_path / "l.db")
    plain = Cluster("t:7233")
    own = own_names(plain, store)
    assert own.ways.prefix == f"leadhand.{store.database_id[:12]}"
    assert own_names(own, store) == own
    host = EmbeddedHost(store)
    await host.open()
    await host.tell_host(TemporalOpened("t:7233", "default", "leadhand"))
    assert own_names(plain, store) == plain
    await host.tell_host(TemporalLeft("ann"))
    assert own_names(plain, store) == own
    await host.close()
    lock.release()


async def test_engines_share_a_log_with_each_other_and_with_no_host(postgres, tmp_path):
    address = postgres.new(tmp_path)
    alone, lock = open_store(address)
    with pytest.raises(Conflict, match="is the host of this database"):
        open_store(address, for_service=True, beside=True)
    lock.release()
    await alone.close()
    engines = [open_store(address, for_service=True, beside=True) for _ in range(2)]
    with pytest.raises(Conflict, match="2 processes serve runs here that Temporal hosts"):
        open_store(address)
    for store, lock in engines:
        lock.release()
        await store.close()


async def test_an_engine_that_lost_its_place_to_a_host_writes_no_more_and_ends(postgres, tmp_path):
    """Its connection was cut, and a host came before it was back."""
    address = postgres.new(tmp_path)
    store, _ = open_store(address, for_service=True, beside=True)
    cluster = Cluster("t:7233")
    held = store.writer.lock(shared=True).result()
    assert held
    with postgres.connect(address.dsn.rpartition("/")[2]) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'leadhand writer' AND datname = current_database()"
        )
    host, lock = open_store(address)
    with pytest.raises(Conflict, match="another host has taken over"):
        await mark(LogOwner(store), cluster)
    assert store.refusal is not None
    lock.release()
    await host.close()
    await store.close()


async def test_a_process_that_cannot_go_on_ends_with_the_reason():
    async def failed():
        raise StoreBroken("gone")

    with pytest.raises(StoreBroken):
        await asyncio.wait_for(first_of(asyncio.Event().wait(), failed()), 30)


async def test_the_mark_is_written_once_and_lifted_by_whoever_takes_the_runs_back(tmp_path):
    store, lock = open_store(tmp_path / "l.db")
    host = EmbeddedHost(store)
    await host.open()
    cluster = Cluster("t:7233")
    for _ in range(2):
        await mark(host, cluster)
    assert host.shared.seq == 2
    with pytest.raises(Conflict, match="in namespace default with prefix leadhand"):
        await mark(host, Cluster("t:7233", "other"))
    await host.close()
    lock.release()
    with pytest.raises(Conflict, match="LEADHAND_TEMPORAL__ADDRESS=t:7233"):
        open_store(tmp_path / "l.db")
    store, lock = open_store(tmp_path / "l.db", for_service=True)
    host = EmbeddedHost(store)
    await host.open()
    await host.tell_host(TemporalLeft("ann"))
    await host.close()
    lock.release()
    store, lock = open_store(tmp_path / "l.db")
    await store.close()
    lock.release()


async def test_one_run_that_cannot_answer_keeps_no_other_from_hearing_a_stop(
    temporal, tmp_path, monkeypatch
):
    monkeypatch.setattr(speaking, "TELL_S", 3.0)
    async with (
        on_temporal(temporal, tmp_path / "l.db", [risky]) as here,
        here.lead.hosting() as host,
    ):
        prefix = here.cluster.ways.prefix
        await here.client.start_workflow(  # its task fails, again and again
            RUN, {"no": "run"}, id=workflow_id(prefix, "a-stuck"), task_queue=engine_queue(prefix)
        )
        run = await here.lead.begin(host, RISKY, run_id="well")
        while (await host._tell_all(Command("lift", "me", {}))) != ["a-stuck"]:
            await asyncio.sleep(0.2)  # a list comes a moment later
        told = await asyncio.wait_for(
            host.send_command("", "stop_all", "me", {"reason": "fire"}), 30
        )
        assert told == {"stopped": True, "unreached": ["a-stuck"]}
        assert (await host.look_shared()).stopped
        # A run that waits for nobody rests as well: whoever waits for it is told so.
        assert await asyncio.wait_for(run.wait_idle(), 30) == "waiting"
        await run.speak(approval(run.state))
        assert await asyncio.wait_for(run.wait_idle(), 30) == "running"
        await here.client.get_workflow_handle(workflow_id(prefix, "a-stuck")).terminate()
        await host.send_command("", "lift", "me", {})
        assert await asyncio.wait_for(run.wait_idle(), 30) == "succeeded"


def approval(state):
    (question,) = [each.id for each in state.questions.values() if each.kind == "review"]
    details = {"id": question, "choice": "approve", "text": "", "data": None, "approval": {}}
    return Command("answer", "me", details)


async def test_a_run_that_begins_while_everything_is_stopped_hears_of_it(temporal, tmp_path):
    """Whoever stopped everything may have listed the runs before this one was there."""
    async with (
        on_temporal(temporal, tmp_path / "l.db", [risky]) as here,
        here.lead.hosting() as host,
    ):
        told, launch = [], host._launch

        async def launched(*args):
            await launch(*args)
            await host._tell_host(Command("stop_all", "ann", {}))

        async def tell(run, word):
            told.append((run, word.verb, word.actor))
            return True

        host._launch, host._tell = launched, tell
        await here.lead.begin(host, RISKY, run_id="late")
        assert told == [("late", "stop_all", "ann")]


async def test_an_approval_is_not_used_up_by_a_start_that_reaches_nobody(temporal, tmp_path):
    async with (
        on_temporal(temporal, tmp_path / "l.db", [risky]) as here,
        here.lead.hosting() as host,
    ):

        async def nobody():
            raise Unreachable("the Temporal server does not answer")

        given, engines = here.lead.approve(RISKY), host.engines
        host.engines = nobody
        with pytest.raises(Unreachable):
            await here.lead.begin(host, RISKY, run_id="one", approvals=[given.to_doc()])
        assert host.shared.used == {}
        host.engines = engines
        run = await here.lead.begin(host, RISKY, run_id="two", approvals=[given.to_doc()])
        assert await asyncio.wait_for(run.wait_idle(), 30) == "succeeded"
        assert host.shared.used == {given.id: "two"}
        with pytest.raises(Conflict, match="was used by run two of another database"):
            UsedApprovals("another").claim(given, "three")


async def test_a_fork_is_shown_and_given_up_for_the_log_as_it_is(temporal, tmp_path):
    path = tmp_path / "l.db"
    async with (
        on_temporal(temporal, path, [risky]) as here,
        here.lead.hosting() as host,
    ):
        run = await here.lead.begin(host, RISKY, run_id="forked")
        assert await asyncio.wait_for(run.wait_idle(), 30) == "waiting"
        reader = Reader(path)
        settings = SimpleNamespace(sections={"temporal": here.cluster}, store=path)
        looking = host_status(settings, reader)
        assert await looking.forks("forked") == {}
        await looking.driver(reader.state("forked"))
        assert looking.notes == []
        # Somebody else wrote to its log, and chained it well.
        last = here.store.read("forked")[-1]
        body, seq = encode(ev.RunPaused("mallory")), last.seq + 1
        head = link(last.hash, "forked", seq, last.at, ev.EVENT_VERSION, body)
        entry = Entry("forked", seq, last.at, ev.EVENT_VERSION, body, head)
        await here.store.append("forked", last.seq, [entry])
        forks = await looking.forks("forked")
        assert "holds what its workflow did not write" in forks["forked"]
        with pytest.raises(Conflict, match="is not what its workflow wrote"):
            await host.send_command("forked", "pause", "me", {})
        forks = await looking.forks()
        assert "is not what its workflow wrote" in forks["forked"]
        looking = host_status(settings, reader)
        await looking.driver(reader.state("forked"))
        (note,) = looking.notes
        assert "run forked is parked" in note
        assert "leadhand resume forked --from-log" in note
        # The way out: the log as it is counts, and a new workflow goes on from there.
        await host.give_up("forked", "seen, and taken as it is")
        again = await host.resume("forked", here.lead.registry, None)
        await again.until(seq + 1)
        assert again.state.paused
        await host.send_command("forked", "resume", "me", {})
        await again.look()
        await again.speak(approval(again.state))
        assert await asyncio.wait_for(again.wait_idle(), 30) == "succeeded"
        assert await looking.forks() == {}
        await reader.close()


class Away:
    """A log at the other end of a line that is cut."""

    remote = True

    def __init__(self):
        self.back, self.asked = threading.Event(), threading.Event()

    def read(self, _run, _after=0):
        self.asked.set()
        assert self.back.wait(30)
        return []


async def test_the_loop_goes_on_while_the_log_cannot_be_read():
    store = Away()
    host = TemporalHost(None, store)
    looks = [host.look_shared(), host.find("r"), host.aside(store.read, "r")]
    tasks = [asyncio.ensure_future(each) for each in looks]
    while not store.asked.is_set():
        await asyncio.sleep(0.01)  # it would not come back from here
    store.back.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each).__name__ for each in found] == ["HostState", "UsageError", "list"]


async def test_whoever_speaks_to_temporal_is_kept_from_a_hosted_log(postgres, tmp_path, temporal):
    address = postgres.new(tmp_path)
    store, lock = open_store(address)
    with pytest.raises(Conflict, match="is the host of this database"):
        await open_host(Cluster(temporal.address), address)
    lock.release()
    await store.close()
    lead = Lead([risky], None, address, temporal=Cluster(temporal.address))
    async with lead.hosting():
        with pytest.raises(Conflict, match="Temporal hosts"):
            open_store(address)
