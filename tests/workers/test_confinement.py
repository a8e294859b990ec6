"""Workers with `sandbox`: the token, the socket, the keys and the database are out of reach."""

import ctypes
import json
import os
import shutil
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from leadhand import Lead, Policy, worker
from leadhand.engine.host_socket import socket_path
from leadhand.errors import UsageError
from leadhand.workers.declared import declared_workers
from leadhand.workers.sandbox import confinement, sandbox
from leadhand.workers.sandbox.confinement import Confinement
from tests.support.cli import Folder

pytestmark = pytest.mark.real

ATTACK = '''
"""Tries everything that would let a worker decide in the name of a person."""
import json, os, socket, sys, urllib.request
from pathlib import Path

done = {}

def attempt(name, what):
    try:
        done[name] = str(what())[:80]
    except BaseException as error:
        done[name] = f"no: {type(error).__name__}"

here = Path(__file__).resolve().parent
attempt("own file", lambda: (here / "data.txt").read_text())
attempt("token", lambda: (here / ".leadhand/leadhand.db.token").read_text())
attempt("database", lambda: len((here / ".leadhand/leadhand.db").read_bytes()))
attempt("state folder", lambda: os.listdir(here / ".leadhand") or 1 / 0)
attempt("key", lambda: (here / "approver.pem").read_text() or 1 / 0)
attempt("ssh", lambda: (Path(sys.argv[1]) / ".ssh/id").read_text())
attempt("trust", lambda: (here / ".state/leadhand/trust.json").read_text())
attempt("write", lambda: (here / "leadhand.toml").open("a").write("#"))
attempt("write new", lambda: (here / "made.txt").write_text("x"))
attempt("write state", lambda: (here / ".leadhand/x").write_text("x"))
attempt("home", lambda: Path(os.environ["HOME"], "x").write_text("fine"))
attempt("loopback", lambda: urllib.request.urlopen(sys.argv[2], timeout=3).status)
attempt("variable", lambda: os.environ["HOST_SECRET"])

def speak():
    door = socket.socket(socket.AF_UNIX)
    door.connect(sys.argv[5])
    return "connected"

def shared():
    """Memory of System V that a process outside made: no file, so no rule of files reaches it."""
    import ctypes
    found = ctypes.CDLL(None, use_errno=True).shmget(int(sys.argv[4]), 0, 0)
    return found if found >= 0 else 1 / 0

attempt("shared memory", shared)
attempt("socket", speak)
attempt("kill", lambda: os.kill(int(sys.argv[3]), 0))
print(json.dumps(done))
'''
ALLOWED = {"own file", "home"}


class _Fine(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = HTTPServer(("127.0.0.1", 0), _Fine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path, site):
    """A project with secrets in it, and a home that is somewhere else."""
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("private")
    (project / ".leadhand").mkdir(parents=True)
    (project / ".leadhand" / "leadhand.db.token").write_text("lh_token")
    found = Folder(project)
    found.write("attack.py", ATTACK)
    found.write("data.txt", "mine")
    found.write("approver.pem", "key")
    found.home, found.site, found.shared = home, site, os.getpid() + (1 << 24)
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(found.shared, 16, 0o1666)  # IPC_CREAT
    assert segment >= 0
    yield found
    libc.shmctl(segment, 0, None)  # IPC_RMID


def settings(folder, more):
    words = [sys.executable, "attack.py", str(folder.home), folder.site, str(os.getpid())]
    # Not always beside the database: a long path has a stand-in.
    door = socket_path(folder.path / ".leadhand" / "leadhand.db")
    words += [str(folder.shared), str(door)]
    folder.write(
        "leadhand.toml",
        f"[review]\nkey = 'approver.pem'\n[workers.attack]\ncommand = {words}\noutput = 'json'\n"
        f"{more}\n",
    )
    folder.plan({"id": "a", "worker": "attack"})


def tried(folder):
    done = folder.run("run", "plan.json", "--json", HOME=str(folder.home), HOST_SECRET="hush-123")
    assert done.code == 0, done
    return done.doc["result"]


def got(found):
    return {name for name, said in found.items() if not said.startswith("no: ")}


def test_without_a_sandbox_a_worker_may_do_what_you_may(folder):
    """What one account of the operating system cannot keep apart; docs and doctor say so."""
    settings(folder, "")
    assert got(tried(folder)) >= {"token", "database", "key", "ssh", "write", "loopback", "socket"}


def test_nothing_to_decide_with_is_in_reach(folder):
    settings(folder, "sandbox = true")
    found = tried(folder)
    assert got(found) == ALLOWED, found
    assert not (folder.path / "made.txt").exists()
    assert found["own file"] == "mine"


def test_what_is_listed_may_be_written_and_reached(folder):
    (folder.path / "out").mkdir()
    port = folder.site.rstrip("/").rpartition(":")[2]
    text = ATTACK.replace('here / "made.txt"', 'here / "out/made.txt"')
    folder.write("attack.py", text)
    settings(folder, f'sandbox = {{writable = ["out"], hosts = ["127.0.0.1:{port}"]}}')
    found = tried(folder)
    # urllib does not ask a proxy for loopback (NO_PROXY), so this one is named by its proxy.
    assert got(found) >= {*ALLOWED, "write new"}, found
    assert not got(found) & {"token", "database", "socket", "key", "write", "write state"}
    assert (folder.path / "out" / "made.txt").read_text() == "x"


def test_a_listed_host_is_reached_by_the_proxy_and_no_other(folder):
    port = folder.site.rstrip("/").rpartition(":")[2]
    folder.write(
        "attack.py",
        "import http.client, json, os, sys\n"
        "def ask(place):\n"
        "    proxy = os.environ['HTTP_PROXY'].removeprefix('http://')\n"
        "    c = http.client.HTTPConnection(proxy, timeout=20)\n"
        "    c.request('GET', place)\n"
        "    return c.getresponse().status\n"
        "print(json.dumps([ask(sys.argv[2]), ask('http://127.0.0.1:9/')]))\n",
    )
    settings(folder, f'sandbox = {{hosts = ["127.0.0.1:{port}"]}}')
    assert tried(folder) == [200, 403]


def test_the_walls_are_shown_in_review_and_part_of_the_version(folder):
    versions = []
    for text in ("", "sandbox = true", 'sandbox = {hosts = ["example.com:443"]}'):
        settings(folder, text + "\nversion = '1'")
        doc = folder.run("review", "plan.json", "--json", HOME=str(folder.home)).doc
        versions.append(doc["workers"]["attack"])
    assert doc["sandboxes"] == {"a": "reaches only example.com:443; writes nothing"}
    shown = folder.run("review", "plan.json", HOME=str(folder.home)).out
    assert "sandbox: reaches only example.com:443" in shown
    assert len(set(versions)) == 3


def test_where_there_is_no_sandbox_lint_and_doctor_say_so(folder, tmp_path):
    """It fails closed, before anything is approved: a Python that cannot find a sandbox."""
    settings(folder, "sandbox = true")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import leadhand.workers.sandbox.sandbox as s\n"
        "s.trial = lambda kind, bwrap='', *, network: 'is not there'\n"
    )
    path = os.pathsep.join([str(tmp_path / "site"), str(Path(sandbox.__file__).parents[2])])
    env = {"PYTHONPATH": path, "HOME": str(folder.home)}
    done = folder.run("lint", "plan.json", **env)
    assert (done.code, "LH147" in done.out, "bubblewrap" in done.out) == (3, True, True), done
    assert folder.run("run", "plan.json", **env).code == 3
    done = folder.run("doctor", "plan.json", **env)
    assert (done.code, "its sandbox cannot be had here" in done.out) == (1, True), done
    assert "workers with `sandbox` cannot run" in folder.run("doctor", **env).out


def test_doctor_says_what_one_account_cannot_keep_apart(folder):
    settings(folder, "")
    said = folder.run("doctor", HOME=str(folder.home)).out
    assert "workers with `sandbox` can run" in said
    assert "no sandbox" in said
    assert "attack" in said
    settings(folder, "sandbox = true")
    assert "no sandbox" not in folder.run("doctor", HOME=str(folder.home)).out


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (7, "must be true, false, or a table"),
        ({"writeable": []}, "did you mean writable"),
        ({"writable": "out"}, "must be a list"),
        ({"writable": ["nowhere"]}, "there is no"),
        ({"hosts": ["example.com:http"]}, "hosts"),
        ({"readable": ["/"]}, "holds your home folder"),
        ({"env": ["X"]}, "env is for functions"),
    ],
)
def test_declarations_that_make_no_sense(tmp_path, given, why):
    with pytest.raises(UsageError, match="sandbox") as error:
        declared_workers({"x": {"command": ["true"], "sandbox": given}}, tmp_path)
    assert why in str(error.value)


# --- functions ----------------------------------------------------------------------------------


@worker(name="look", sandbox=True)
def look(path: str) -> str:
    """Read a file of the host."""
    return Path(path).read_text()


@worker(name="later", sandbox={"env": ["GIVEN_ONE"]})
async def later(path: str) -> dict[str, str]:
    """Write one, and say what is known of the environment."""
    try:
        Path(path).write_text("x")
        wrote = "yes"
    except OSError as error:
        wrote = type(error).__name__
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=3).close()
        reached = "yes"
    except ConnectionRefusedError:
        reached = "its own loopback"
    except OSError as error:
        reached = type(error).__name__
    names = [name for name in ("GIVEN_ONE", "HOST_SECRET") if name in os.environ]
    return {"wrote": wrote, "reached": reached, "names": ",".join(names)}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working folder that is not the home, as for everybody who has a project."""
    place = tmp_path / "project"
    place.mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return place


async def ran(place, name, **parameters):
    policy = Policy(attempts_max=1, no_input=True)
    lead = Lead([look, later], store=place / ".leadhand" / "a.db", policy=policy)
    step = {"id": "a", "worker": name, "parameters": parameters}
    return await lead.run({"goal": "g", "steps": [step]}, approve=True)


async def test_a_function_behind_walls(elsewhere, monkeypatch):
    monkeypatch.setenv("GIVEN_ONE", "given-value-1")
    monkeypatch.setenv("HOST_SECRET", "hush")
    (elsewhere / "data.txt").write_text("mine")
    assert (await ran(elsewhere, "look", path=str(elsewhere / "data.txt"))).result == "mine"
    outcome = await ran(elsewhere, "look", path=str(elsewhere / ".leadhand" / "a.db"))
    assert outcome.status == "failed"
    done = (await ran(elsewhere, "later", path=str(elsewhere / "made.txt"))).result
    assert done["wrote"] in ("PermissionError", "OSError")
    assert done["reached"] != "yes"
    assert done["names"] == "GIVEN_ONE"
    assert not (elsewhere / "made.txt").exists()


async def test_a_folder_that_holds_the_home_is_not_shown(elsewhere, monkeypatch):
    monkeypatch.setenv("HOME", str(elsewhere))
    outcome = await ran(elsewhere, "look", path="x")
    assert outcome.status == "failed"
    assert "holds your home folder" in str(outcome.steps["a"].error)


async def test_no_sandbox_no_call(elsewhere, monkeypatch):
    def none(*_, **__):
        raise sandbox.NoSandbox("there is none")

    monkeypatch.setattr(confinement, "choose", none)
    monkeypatch.setattr(Confinement, "missing", lambda _: "")
    (elsewhere / "data.txt").write_text("mine")
    outcome = await ran(elsewhere, "look", path=str(elsewhere / "data.txt"))
    assert outcome.status == "failed"
    assert "there is none" in str(outcome.steps["a"].error)


def test_a_thread_has_no_walls():
    with pytest.raises(UsageError, match="a thread has no walls"):
        worker(name="x", isolate="thread", sandbox=True)(lambda: None)


def test_a_version_tells_of_the_walls():
    from leadhand.workers.registry import Registry

    def make(**options):
        return Registry([worker(name="x", version="1", **options)(plain)]).catalog().workers["x"]

    assert make().version == "1"
    assert make(sandbox=True).version != "1"
    assert make(sandbox=True).offers[""].sandbox == "no network; writes nothing"


def plain() -> int:
    return 1


def test_each_kind_hides_files_and_folders(tmp_path, kind, bwrap):
    """Also in what may be written."""
    import subprocess

    place, home = tmp_path / "place", tmp_path / "home"
    (place / "keys").mkdir(parents=True)
    (place / "keys" / "one").write_text("secret-1")
    (place / "token").write_text("secret-2")
    (place / "open").write_text("shown")
    box = sandbox.Sandbox(kind=kind, bwrap=bwrap)
    hidden = [place / "keys", place / "token", place / "keys" / "one", tmp_path / "not-there"]
    script = "cat keys/one token open; ls keys; echo x > keys/new; echo x > token; echo x > made"
    for fixed in (True, False):
        made = box.wrap(["sh", "-c", script], place, home=home, hidden=hidden, fixed=fixed)
        done = subprocess.run(
            made.argv, cwd=made.cwd, env=made.env, capture_output=True, text=True, check=False
        )
        assert done.stdout == "shown", done
        assert (place / "made").exists() != fixed
        assert (place / "token").read_text() == "secret-2"
    with pytest.raises(sandbox.NoSandbox, match="inside of it"):
        box.wrap(["true"], place / "keys", home=home, hidden=[place])
    shutil.rmtree(home)
    assert json.dumps(str(box)) != ""
