"""Runs beside a host: `run`, `apply`, `resume`, `--detach` while another process has the database.

Real processes: a server or an embedded host, commands next to it, kills and Ctrl-C.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.cli import guest_run
from leadhand.cli.background import BackgroundRun
from leadhand.cli.console import Console
from leadhand.cli.foreground import HostedJob
from leadhand.settings import load_settings
from tests.support.cli import PROGRAM, Folder, environment, finished
from tests.support.serving import ended, plan_of, process, project

pytestmark = pytest.mark.real

MORE = """
[workers.shell]
command = ["sh", "-c", "echo from a command; sleep {seconds}"]
"""

GATE = """


@worker(name="gate")
def gate(file: str = "go") -> str:
    import time

    with (HERE / "gates.txt").open("a") as out:
        out.write("gate\\n")
    print("at the gate")
    while not (HERE / file).exists():
        time.sleep(0.05)
    return file
"""

PLACE = """
import os
import sys
from leadhand import worker


@worker(name="place")
def place() -> dict[str, str]:
    print("looking around")
    keys = ("FLAVOUR",)
    return {
        "cwd": os.getcwd(),
        "prefix": sys.prefix,
        "pid": str(os.getpid()),
        **{key: os.environ.get(key, "") for key in keys},
    }
"""


@pytest.fixture
def folder(tmp_path):
    project(tmp_path, MORE)
    made = Folder(tmp_path)
    made.write("workers.py", (tmp_path / "workers.py").read_text() + GATE)
    made.write("place.py", PLACE)
    yield made
    end_processes(tmp_path)


@pytest.fixture
def server(folder):
    made = process(folder.path)
    try:
        yield made
    finally:
        made.stop()


def end_processes(path: Path) -> None:
    """End the processes of runs that stand in a test's folder: they outlive their hosts."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"--tell" in words and (entry / "cwd").resolve() == path.resolve():
                os.kill(int(entry.name), signal.SIGKILL)


def own_process(folder: Folder, run: str) -> int:
    """The process that drives a run, as `show --json` names it."""
    return int(folder.run("show", run, "--json").doc["host"] or 0)


NAP = {"id": "n", "worker": "nap", "parameters": {"seconds": 30}}


def test_a_run_beside_a_server_is_followed_as_if_it_ran_here(folder, server):
    """Workers of all kinds; result on stdout, progress on stderr, the exit code of the run; and
    the server shows it, output included."""
    plan = folder.plan(
        {"id": "f", "worker": "loud"},
        {"id": "a", "worker": "say", "parameters": {"text": "async"}, "depends_on": ["f"]},
        {"id": "c", "worker": "shell", "parameters": {"seconds": "0.1"}, "depends_on": ["a"]},
    )
    done = folder.run("run", plan)
    assert done.code == 0, done
    assert "from a command" in done.out
    assert "c: attempt 1 verified" in done.err
    with server.client() as client:
        row = client.get("/runs").json()["items"][0]
        assert row["status"] == "succeeded"
        steps = client.get(f"/runs/{row['run']}").json()["steps"]
        assert [step["status"] for step in steps] == ["succeeded"] * 3
        output = client.get(f"/runs/{row['run']}/steps/f/output")
        assert "noise of a worker" in output.text
    document = folder.run("run", plan, "--json")
    assert document.doc["status"] == "succeeded"
    failed = folder.run(
        "run", folder.plan({"id": "x", "worker": "broken"}, name="x.json"), "--no-input"
    )
    assert failed.code == 1, failed
    assert "it is broken" in failed.err
    quiet = folder.run("run", plan, "-q")
    assert quiet.code == 0
    assert "attempt" not in quiet.err
    verified = folder.run("verify", "--all")
    assert verified.code == 0, verified


def test_apply_a_goal_and_detach_beside_a_server(folder, server):
    """The other ways to start a run; an approval that was given before is used up once."""
    plan = folder.plan({"id": "d", "worker": "danger"})
    assert folder.run("review", plan, "approve", "-o", "approval.json").code == 0
    applied = folder.run("apply", plan, "--approval", "approval.json")
    assert applied.code == 0, applied
    assert "survived" in applied.out
    other = folder.run("apply", plan, "--approval", "approval.json", "--store", "other.db")
    assert other.code == 7, other
    again = folder.run("apply", plan, "--approval", "approval.json")
    assert again.code == 7, again
    assert "was used by run" in again.err
    goal = folder.run("run", "know it", "--want", "summary", "--have", "topic=bees")
    assert goal.code == 0, goal
    assert "about bees" in goal.out
    detached = folder.run("run", folder.plan(NAP), "--detach")
    assert detached.code == 0, detached
    run = detached.out.strip()
    with server.client() as client:
        folder.until(lambda: client.get(f"/runs/{run}").json()["status"] == "running", "the run")
        assert client.post(f"/runs/{run}/cancel", json={}).status_code == 200
        assert ended(client, run)["status"] == "cancelled"
    watched = folder.run("watch", run, "--exit-status")
    assert watched.code == 9, watched


def test_what_people_say_reaches_a_run_beside_the_server(folder, server):
    """A review and a question, answered from the terminal and over HTTP; `--yes` answers here."""
    danger = folder.plan({"id": "d", "worker": "danger"})
    waits = folder.run("run", danger)
    assert waits.code == 5, waits
    run = folder.latest()["run"]
    assert f"resume {run}" not in waits.err, "it is driven already"
    assert folder.run("review", run, "approve").code == 0
    with server.client() as client:
        assert ended(client, run)["status"] == "succeeded"
        assert folder.run("run", danger, "--yes").code == 0
        shaky = folder.run("run", folder.plan({"id": "x", "worker": "broken"}))
        assert shaky.code == 5, shaky
        run = folder.latest()["run"]
        (waiting,) = client.get("/inbox").json()["items"]
        question = waiting["id"].rpartition("/")[2]
        told = client.post(f"/inbox/{run}/{question}/answer", json={"choice": "abort"})
        assert told.status_code == 200, told.text
        assert ended(client, run)["status"] == "failed"


def test_the_run_has_the_callers_place_and_the_server_keeps_its_own(folder, server, tmp_path):
    """Folder, environment and interpreter are the caller's; nothing is loaded in the server."""
    plan = folder.plan({"id": "p", "worker": "place"})
    here = tmp_path / "sub"
    here.mkdir()
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    site.joinpath("all.pth").write_text("\n".join(p for p in sys.path if p.endswith("packages")))
    done = subprocess.run(
        [venv / "bin" / "python", *PROGRAM[1:], "run", f"../{plan}", "--workers", "../place.py"],
        cwd=here,
        env=environment(tmp_path, FLAVOUR="vanilla"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["cwd"] == str(here)
    assert seen["FLAVOUR"] == "vanilla"
    assert seen["prefix"] == str(venv)
    assert seen["pid"] != str(server.child.pid)


def test_modules_of_one_name_do_not_mix_and_broken_ones_harm_nobody(folder, server):
    """Two runs at once with different files of the same name; one that ends its own process."""
    for name, word in (("one", "red"), ("two", "blue")):
        (folder.path / name).mkdir()
        text = "import asyncio\nfrom leadhand import worker\nfrom helper import WORD\n"
        text += "@worker(name='tell')\nasync def tell() -> str:\n"
        text += "    await asyncio.sleep(0.5)\n    from helper import WORD as late\n"
        text += "    return WORD + late\n"
        (folder.path / name / "same.py").write_text(text)
        (folder.path / name / "helper.py").write_text(f"WORD = '{word}'\n")
    plan = folder.plan({"id": "t", "worker": "tell"})
    with (
        folder.start("run", plan, "--workers", "one/same.py") as one,
        folder.start("run", plan, "--workers", "two/same.py") as two,
    ):
        results = [finished(each) for each in (one, two)]
    assert [each.out.strip() for each in results] == ["redred", "blueblue"], results
    folder.write("bad.py", "import nothing_like_it\n")
    broken = folder.run("run", plan, "--workers", "bad.py")
    assert broken.code == 2, broken
    assert "nothing_like_it" in broken.err
    hostile = "import os\nfrom leadhand import worker\n"
    hostile += "@worker(name='tell')\ndef tell() -> str:\n    os._exit(3)\n"
    folder.write("hostile.py", hostile)
    done = folder.run("run", plan, "--workers", "hostile.py")
    assert done.code == 8, done
    assert "resume" in done.err
    run = folder.latest()["run"]
    with server.client() as client:
        folder.until(
            lambda: f"resume {run}" in client.get(f"/runs/{run}").json()["unhosted"],
            "the server sees that the process is gone, and says how to go on",
        )
        fresh = client.post("/runs", json={"plan": plan_of({"id": "a", "worker": "say"})}).json()
        assert ended(client, fresh["run"])["status"] == "succeeded"
    assert folder.run("cancel", run).code == 0


def test_what_it_prints_is_shown_while_it_runs(folder, server):
    """Output and progress of a step under way, over the same routes as of the server's own runs."""
    run = folder.run("run", folder.plan({"id": "g", "worker": "gate"}), "--detach").out.strip()
    with server.client() as client:
        output = f"/runs/{run}/steps/g/output"
        folder.until(lambda: "at the gate" in client.get(output).text, "what it prints")
        with client.stream("GET", f"/runs/{run}/steps/g/live") as live:
            text = next(line for line in live.iter_lines() if line.startswith('data: {"attempt'))
        assert "at the gate" in json.loads(text.removeprefix("data: "))["output"]
        assert client.get(f"/runs/{run}").json()["status"] == "running"
        folder.write("go", "")
        assert ended(client, run)["status"] == "succeeded"
        assert "at the gate" in client.get(output).text


def test_ctrl_c_leaves_it_running_and_says_so(folder, server):
    """130, the commands to follow and to cancel it; and the run goes on."""
    plan = folder.plan({"id": "g", "worker": "gate"})
    with folder.start("run", plan) as child:
        folder.until(lambda: folder.lines("gates.txt"), "the step")
        child.send_signal(signal.SIGINT)
        done = finished(child)
    assert done.code == 130, done
    run = folder.latest()["run"]
    assert f"run {run} goes on in process" in done.err
    assert f"leadhand watch {run}" in done.err
    assert f"leadhand cancel {run}" in done.err
    folder.write("go", "")
    assert folder.run("watch", run, "--exit-status").code == 0
    assert folder.lines("gates.txt") == 1


def test_a_run_outlives_the_server_and_the_next_one_has_it_again(folder):
    """kill -9 of the server in the middle: the attempt goes on, is not repeated, and the next
    server gets the database from the run's process, with the run in it."""
    server = process(folder.path)
    plan = folder.plan(
        {"id": "o", "worker": "gate"},
        {"id": "d", "worker": "danger", "depends_on": ["o"]},
    )
    with folder.start("run", plan, "--yes") as child:
        folder.until(lambda: folder.lines("gates.txt"), "the attempt")
        run = folder.latest()["run"]
        own = own_process(folder, run)
        server.stop(signal.SIGKILL)
        lock = folder.path / ".leadhand" / "leadhand.db.lock"
        folder.until(lambda: f'"pid": {own},' in lock.read_text(), "the run's process as the host")
        again = process(folder.path)
        try:
            with again.client() as client:
                shown = client.get(f"/runs/{run}").json()
                assert shown["status"] == "running"
                assert shown["host"] == own
                folder.write("go", "")
                assert ended(client, run)["status"] == "succeeded"
            done = finished(child)
            assert done.code == 0, done
        finally:
            again.stop()
    assert folder.lines("gates.txt") == 1
    assert folder.run("verify", "--all").code == 0


def test_a_run_whose_process_was_killed_names_the_way_and_is_resumed_beside_the_server(folder):
    """kill -9 of both: the next server does not take the run's place with its own environment; it
    says which command does, and that works beside it."""
    server = process(folder.path)
    detached = folder.run("run", folder.plan(NAP), "--detach", FLAVOUR="x")
    run = detached.out.strip()
    folder.until(lambda: folder.lines("naps.txt"), "the nap")
    os.kill(own_process(folder, run), signal.SIGKILL)
    server.stop(signal.SIGKILL)
    server = process(folder.path)
    try:
        with server.client() as client:
            unhosted = client.get(f"/runs/{run}").json()["unhosted"]
            assert f"cd {folder.path} && {sys.executable} -m leadhand.cli resume {run}" in unhosted
            with folder.start("resume", run) as child:
                folder.until(lambda: folder.lines("naps.txt") == 2, "the second attempt")
                assert client.get(f"/runs/{run}").json()["unhosted"] is None
                assert folder.run("cancel", run).code == 0
                done = finished(child)
            assert done.code == 9, done
    finally:
        server.stop()
    assert folder.run("verify", "--all").code == 0


def test_a_run_beside_an_embedded_host_stays_when_that_ends(folder):
    """`leadhand run` in one terminal is a host too; when it is done the other run goes on, and a
    third writes through that one."""
    first = folder.plan({"id": "f", "worker": "gate"}, name="one.json")
    last = {"id": "g", "worker": "gate", "parameters": {"file": "last"}}
    second = folder.plan(last, name="two.json")
    with folder.start("run", first) as one:
        folder.until(lambda: folder.lines("gates.txt") == 1, "the first run")
        with folder.start("run", second) as two:
            folder.until(lambda: folder.lines("gates.txt") == 2, "the second run")
            folder.write("go", "")
            assert finished(one).code == 0
            third = folder.run("run", folder.plan({"id": "a", "worker": "say"}))
            assert third.code == 0, third
            folder.write("last", "")
            done = finished(two)
            assert done.code == 0, done
    assert folder.lines("gates.txt") == 2
    assert folder.run("verify", "--all").code == 0


def test_stop_all_and_a_pause_reach_runs_beside_the_server(folder, server):
    """Nothing new starts in them either."""
    plan = folder.plan(
        {"id": "g", "worker": "gate"},
        {"id": "h", "worker": "gate", "depends_on": ["g"]},
    )
    run = folder.run("run", plan, "--detach").out.strip()
    folder.until(lambda: folder.lines("gates.txt") == 1, "the step")
    assert folder.run("stop-all").code == 0
    refused = folder.run("run", plan)
    assert refused.code == 4, refused
    folder.write("go", "")
    with server.client() as client:
        folder.until(
            lambda: client.get(f"/runs/{run}").json()["steps"][0]["status"] == "succeeded", "it"
        )
        assert folder.lines("gates.txt") == 1
        assert folder.run("stop-all", "--lift").code == 0
        assert ended(client, run)["status"] == "succeeded"
    assert folder.lines("gates.txt") == 2


@pytest.mark.parametrize("early", ["while it starts", "before it is followed"])
def test_an_early_ctrl_c_says_too_that_the_run_goes_on(tmp_path, monkeypatch, capsys, early):
    """The process has begun, or may have: its run is named, with the commands to follow it."""

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    def launched(_settings, _request):
        if early == "while it starts":
            interrupt()
        return BackgroundRun("r1", 42, tmp_path / "log")

    async def interrupted(_self, _after):
        interrupt()
        await asyncio.sleep(60)

    monkeypatch.setattr(guest_run, "launch", launched)
    monkeypatch.setattr("leadhand.cli.guest_run._Following.run", interrupted)
    settings = load_settings({"project.store": str(tmp_path / "l.db")}, folder=tmp_path)
    console = Console(sys.stdout, as_json=False)
    job = HostedJob(settings=settings, lead=None, begin=None, request={})
    assert guest_run.hand_over(console, job) == 130
    told = capsys.readouterr().err
    assert "run r1 goes on in process 42. Follow it with: leadhand watch r1" in told


def test_a_late_ctrl_c_does_not_say_that_an_ended_run_goes_on(folder, server, monkeypatch, capsys):
    """The end was printed: the exit code is the run's."""
    run = folder.run("run", folder.plan({"id": "a", "worker": "say"}), "--json").doc["run"]
    follow = guest_run._Following.run

    async def interrupted(self, after):
        await follow(self, after)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr("leadhand.cli.guest_run._Following.run", interrupted)
    settings = load_settings({}, folder=folder.path)
    assert guest_run.follow(Console(sys.stdout, as_json=False), settings, run, 42) == 0
    assert "goes on" not in capsys.readouterr().err
