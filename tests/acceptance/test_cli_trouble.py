"""Things that go wrong around a run: a full disk, a broken one, a flood of output."""

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, WORKERS, Done, environment

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.real


FILES = {"workers.py": WORKERS}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_result_that_cannot_be_written_says_where_it_is(folder, more):
    """The run is over and nothing of it is wrong: there is nothing to resume."""
    folder.plan({"id": "a", "worker": "say"})
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "run", "plan.json", *more],
            cwd=folder.path,
            env=environment(folder.path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "standard output: No space left on device" in done.stderr
    assert f"show {folder.latest()['run']}" in done.stderr
    assert "resume" not in done.stderr
    assert folder.latest()["status"] == "succeeded"


# --- the disk ------------------------------------------------------------------------------

ON_A_DISK = """
import sys, threading
from tests.support.disk import Disk
disk = Disk()
disk.__enter__()
from leadhand.stores.sqlite import writer  # the database is made before the trouble begins
plan, code, heal_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
real = writer.Writer.claim
def claim(self):
    claimed = real(self)
    if code == "sync":
        disk.fail_sync(after_n=12)
    else:
        disk.fail_write(after_n=80, code=code)
    if heal_s:
        threading.Timer(heal_s, disk.heal).start()
    return claimed
writer.Writer.claim = claim
from leadhand.cli.main import main
main(["run", plan, "--json"])
"""


def on_a_disk(folder, code, heal_s=0.0):
    done = subprocess.run(
        [sys.executable, "-c", ON_A_DISK, "plan.json", code, str(heal_s)],
        cwd=folder.path,
        env=environment(folder.path, PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'src'}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def chain(folder, count):
    steps = [{"id": f"s{n}", "worker": "once"} for n in range(count)]
    for number in range(1, count):
        steps[number]["depends_on"] = [f"s{number - 1}"]
    folder.plan(*steps)


def test_a_full_disk_is_waited_for(folder):
    """It says so, waits, and goes on when there is space; each step was done once."""
    chain(folder, 30)
    done = on_a_disk(folder, "full", heal_s=2.5)
    assert done.code == 0, done
    assert "Waiting for space; nothing is lost" in done.err
    assert folder.lines("once.txt") == 30
    assert folder.run("verify", "--all").code == 0


@pytest.mark.slow
def test_a_disk_that_stays_full_ends_the_host_cleanly(folder):
    """Patience ends after half a minute; the run goes on later."""
    chain(folder, 30)
    done = on_a_disk(folder, "full")
    assert done.code == 1, done
    assert done.doc["error"]["code"] == "store-full"
    run = folder.latest()["run"]
    assert f"leadhand resume {run}" in done.err
    assert folder.run("verify", run).code == 0


def test_a_disk_that_fails_ends_the_host_at_once(folder):
    """What is on disk is the truth; nobody guesses what was written."""
    chain(folder, 30)
    done = on_a_disk(folder, "sync")
    assert done.code == 1, done
    assert done.doc["error"]["code"] == "store-broken"
    assert "leadhand resume" in done.err
    assert folder.run("verify", "--all").code == 0


# --- output --------------------------------------------------------------------------------

FLOOD = """
[project]
workers = ["workers.py"]
[workers.flood]
command = ["head", "-c", "1000000000", "/dev/zero"]
risk = "low"
"""

PEAK = """\
import resource, subprocess, sys

code = subprocess.run(sys.argv[1:]).returncode
with open("peak.txt", "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
PRINTS = """
from leadhand import worker

@worker(name="printer")
def printer() -> str:
    line = "x" * 999_999
    for _ in range(1000):
        print(line)
    return "done"
"""


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["flood", "printer"])
def test_a_worker_that_prints_a_gigabyte(folder, worker):
    """Its output is cut, the host's memory is not filled, and the run succeeds."""
    folder.write("leadhand.toml", FLOOD)
    folder.write("printer.py", PRINTS)
    folder.plan({"id": "a", "worker": worker})
    folder.write("peak.py", PEAK)
    words = ["run", "plan.json", "--workers", "printer.py", "--workers", "workers.py", "--json"]
    ended = subprocess.run(
        [sys.executable, "peak.py", *PROGRAM, *words],
        cwd=folder.path,
        env=environment(folder.path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    done = Done(ended.returncode, ended.stdout, ended.stderr)
    assert done.code in (0, 1), done
    assert done.doc["steps"][0]["attempts"] >= 1
    assert len(done.out) + len(done.err) < 20_000_000
    assert int((folder.path / "peak.txt").read_text()) < 400_000, "kilobytes of the largest process"
    shown = folder.run("logs", done.doc["run"], "a")
    assert len(shown.out) < 20_000_000


# --- a webhook -----------------------------------------------------------------------------


@contextlib.contextmanager
def webhook():
    """A webhook's address, and what it is told."""
    told = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", told
        server.shutdown()


def test_a_webhook_is_told(folder):
    with webhook() as (hook, told):
        folder.plan({"id": "a", "worker": "say"})
        done = folder.run("run", "plan.json", "--json", LEADHAND_NOTIFY__WEBHOOK=hook)
    assert done.code == 0, done
    (notice,) = told
    assert (notice["type"], notice["data"]["run"]) == ("run.ended", done.doc["run"])
    assert "notify" not in done.err


def test_commands_tell_a_webhook_as_much_as_the_server_does(folder):
    """Of `run` and of `step`: the page of the run, and the items that wait."""
    more = {"LEADHAND_SERVER__ADDRESS": "https://lead.example"}
    with webhook() as (hook, told):
        more["LEADHAND_NOTIFY__WEBHOOK"] = hook
        folder.plan({"id": "a", "worker": "danger"})
        run = folder.run("run", "plan.json", "--json", **more).doc["run"]
        mine = {"id": "mine", "worker": "caller", "retry": {"attempts": 1}}
        folder.plan(mine | {"success_criteria": "data.n > 2"}, name="mine.json")
        waits = folder.run("run", "mine.json", "--review", "--json", **more).doc
        assert waits["resume"] == f"leadhand step next {waits['run']} --caller NAME"
        assert folder.run("review", waits["run"], "approve", "--yes").code == 0
        assert folder.run("step", "next", waits["run"], "--caller", "bot", **more).code == 0
        report = ("step", "report", waits["run"], "mine", "--attempt", "1", "--caller", "bot")
        done = folder.run(*report, "--data", '{"n": "two"}', **more)
        assert "data.n is a text, 2 is a number" in done.out + done.err
    rows = [each["data"] for each in told if each["type"] == "run.waiting"]
    assert [row["run"] for row in rows] == [run, waits["run"], waits["run"]]
    assert {row["page"] for row in rows} == {
        f"https://lead.example/#/runs/{row['run']}" for row in rows
    }
    assert [len(row["items"]) for row in rows] == [1, 1, 1]
    assert rows[-1]["items"][0]["step"] == "mine"
