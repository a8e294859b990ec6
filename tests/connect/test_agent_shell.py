"""An agent's shell approves nothing: neither by commands, nor by the socket, nor by the token."""

import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import httpx2
import pytest

from leadhand.app.reader import reading
from leadhand.core.review.answer_link import item_digest
from leadhand.server.accounts import Accounts, digest_of
from leadhand.server.links import Links
from leadhand.server.settings import server_of
from leadhand.settings import load_settings
from tests.support.cli import WORKERS, Folder, environment

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
TOKEN = "t" * 40
SETTINGS = f"""\
[project]
store = "runs.db"
workers = ["workers.py"]

[server]
address = "http://127.0.0.1:1"

[server.people.ann]
role = "approver"
token = "{digest_of(TOKEN)}"
email = "ann@example.com"
"""
LEADHAND = f"{shlex.quote(sys.executable)} -P -m leadhand.cli"
SOCKET = """
import json, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect("runs.db.sock")
said = {"id": "review-1", "choice": "approve", "text": "", "approval": {"shown": "HASH"}}
said = {"verb": "answer", "run": "RUN", "actor": "ann", "details": said}
line.sendall(json.dumps(said).encode() + b"\\n")
print(line.makefile().readline())
"""
ENDED_PEER = """
import json, os, socket
ours, theirs = socket.socketpair()
if os.fork() == 0:  # this one connects, hands its connection on, and ends
    line = socket.socket(socket.AF_UNIX)
    line.connect("runs.db.sock")
    socket.send_fds(theirs, [b"x"], [line.fileno()])
    os._exit(0)
(file,) = socket.recv_fds(ours, 1, 1)[1]
os.wait()
line = socket.socket(fileno=file)
said = {"id": "review-1", "choice": "approve", "text": "", "approval": {"shown": "HASH"}}
said = {"verb": "answer", "run": "RUN", "actor": "ann", "details": said}
line.sendall(json.dumps(said).encode() + b"\\n")
print(line.makefile().readline())
"""
RAW = """
import os, socket
token = open("runs.db.token").read().strip()
host, port = "URL".split("//")[1].split(":")
body = b'{"digest": "HASH"}'
lines = ["POST /api/v1/runs/RUN/review/approve HTTP/1.1", f"Host: {host}:{port}"]
lines += [f"Authorization: Bearer {token}", "Content-Type: application/json"]
lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
line = socket.create_connection((host, int(port)), source_address=("SOURCE", 0))
line.sendall("\\r\\n".join(lines).encode() + body)
"""
BEARER = """
import urllib.request
token = open("runs.db.token").read().strip()
head = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
url = "URL/api/v1/runs/RUN/review/approve"
print(urllib.request.urlopen(urllib.request.Request(url, b'{"digest": "HASH"}', head)).read())
"""
COOKIE = """
import json, urllib.request
token = open("runs.db.token").read().strip()
head = {"Content-Type": "application/json", "Origin": "URL"}
sign_in = urllib.request.Request("URL/api/v1/session", json.dumps({"token": token}).encode(), head)
cookie = urllib.request.urlopen(sign_in).headers["Set-Cookie"].split(";")[0]
url = "URL/api/v1/inbox/RUN/review-1/answer"
body = b'{"choice": "approve", "shown": "HASH"}'
print(urllib.request.urlopen(urllib.request.Request(url, body, {**head, "Cookie": cookie})).read())
"""
LINK = """
import re, urllib.parse, urllib.request
page = urllib.request.urlopen("URL/answer/TOKEN").read().decode()
seal = re.search('name="seal" value="([^"]+)"', page)[1]
body = urllib.parse.urlencode({"choice": "approve", "seal": seal}).encode()
head = {"Origin": "URL", "Sec-Fetch-Site": "same-origin"}
asked = urllib.request.Request("URL/answer/TOKEN", body, head)
print(urllib.request.urlopen(asked).status)
"""
START = """
import urllib.request
token = open("runs.db.token").read().strip()
head = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
plan = b'{"plan": {"goal": "x", "steps": [{"id": "a", "worker": "say"}]}}'
print(urllib.request.urlopen(urllib.request.Request("URL/api/v1/runs", plan, head)).read())
"""
WAYS = {
    "command": "LEADHAND review RUN approve --digest HASH",
    "a person's name": "LEADHAND_ACTOR=ann LEADHAND review RUN approve --digest HASH",
    "answer": "LEADHAND answer RUN/review-1 approve",
    "new settings": 'cp leadhand.toml kept; printf \'[review]\nagent_risk = "critical"\n[policy]'
    '\nauto_risk = "critical"\n\' >> leadhand.toml; LEADHAND review RUN approve --digest HASH; '
    "mv kept leadhand.toml",
    "no variables": 'env -i PATH="$PATH" HOME="$HOME" PYTHONPATH="$PYTHONPATH" LEADHAND '
    "review RUN approve --digest HASH",
    "socket": f"PYTHON -c {shlex.quote(SOCKET)}",
    "socket of a process that ended": f"PYTHON -c {shlex.quote(ENDED_PEER)}",
    "token": f"PYTHON -c {shlex.quote(BEARER)}",
    "token, from another address": "PYTHON -c "
    + shlex.quote(RAW.replace("SOURCE", "127.0.0.9") + "print(line.recv(65536).decode())"),
    "token, for a run in a person's name": f"PYTHON -c {shlex.quote(START)}",
    "session": f"PYTHON -c {shlex.quote(COOKIE)}",
    "signed link": f"PYTHON -c {shlex.quote(LINK)}",
}
OTHERS = {
    "approval file": "LEADHAND review plan.json approve -o approval.json",
    "trust": "LEADHAND trust .",
    "new approver": "LEADHAND serve token add eve --role approver",
    "new key of links": "LEADHAND notify revoke",
    "end of an emergency stop": "LEADHAND stop-all --lift",
    "plan of the library": "LEADHAND library save deploy plan.json",
    "no gate": "LEADHAND connect claude --no-require-plan --yes",
    "no connection": "LEADHAND connect claude --remove --yes",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A server that a person has started, and a run that waits for approval."""
    path = tmp_path_factory.mktemp("project")
    folder = Folder(path)
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", SETTINGS)
    folder.plan({"id": "a", "worker": "danger"})
    env = environment(path)
    run = folder.run("run", "plan.json", "--json").doc["run"]
    program = [sys.executable, "-P", "-m", "leadhand.cli", "serve", "--port", "0", "--json"]
    server = subprocess.Popen(program, cwd=path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        lines = ""
        while not lines.endswith("}\n"):
            lines += server.stdout.readline()
        url = json.loads(lines)["url"]
        assert folder.run("connect", "claude", "--require-plan", "--yes").code == 0
        binding = folder.run("review", run, "--json").doc["binding"]
        agent = path / "claude"
        shutil.copy(os.path.realpath("/bin/sh"), agent)
        known = {"RUN": run, "HASH": binding, "URL": url, "TOKEN": link_of(path, run)}
        more = {"agent": agent, "server": server}
        yield SimpleNamespace(folder=folder, run=run, known=known, env=env, **more)
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def link_of(path, run):
    """A signed link of ann's to the plan that waits, as a channel of hers would carry it."""
    settings = load_settings(environ={"HOME": str(path)}, folder=path)
    people = Accounts("owner", "o" * 40, lambda: server_of(settings).people)
    (ann,) = (each for each in people.everyone() if each.name == "ann")
    with reading(settings.store) as reader:
        state = reader.state(run)
    item = item_digest(state, state.questions["review-1"])
    links = Links(settings.store, people, address="http://127.0.0.1:1")
    made = links.made_for(run, "review-1", item, ann, "email", ann.addresses["email"])
    return links.token(made)


def filled(project, words):
    """A command with the names that it leaves open."""
    known = {**project.known, "LEADHAND ": f"{LEADHAND} "}
    known["PYTHON "] = f"{shlex.quote(sys.executable)} "
    return functools.reduce(lambda text, each: text.replace(*each), known.items(), words)


def told(project, words, shell=None):
    """Have the agent's shell run a command; the shell stays above it."""
    done = subprocess.run(
        [shell or project.agent, "-c", f"{filled(project, words)}\ncode=$?; exit $code"],
        cwd=project.folder.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_an_agent_does_not_approve(project, way):
    """The run waits as before, and nothing of the attempt stands in the name of a person."""
    said = told(project, WAYS[way])
    assert "agent" in said or "403" in said, said
    state = project.folder.run("show", project.run, "--json").doc
    assert (state["status"], state.get("awaiting")) == ("waiting", "approval")
    (run,) = project.folder.run("ls", "--json").doc
    assert run["run"] == project.run


EVE = "e" * 40
EDIT = f"""printf '[server.people.eve]\\nrole = "approver"\\ntoken = "{digest_of(EVE)}"\\n' \\
>> leadhand.toml; sed -i 's/ann@example.com/eve@example.com/' leadhand.toml"""


def signs_in(project, token):
    """The name under which a token may sign in; empty: under none."""
    head = {"Authorization": f"Bearer {token}"}
    found = httpx2.get(f"{project.known['URL']}/api/v1/session", headers=head, timeout=60)
    assert found.status_code in (200, 401, 429), found.text
    return found.json()["person"] if found.status_code == 200 else ""


def test_who_may_sign_in_is_not_for_every_editor_of_the_settings(tmp_path):
    """An agent adds an approver, and sends ann's links elsewhere; nothing of it counts.

    What a person's command writes counts at once; what a person wrote by hand, once it is trusted.
    """
    folder, untrusting = Folder(tmp_path), {"LEADHAND_TRUST": ""}
    folder.write("workers.py", WORKERS)
    folder.write("leadhand.toml", SETTINGS)
    assert folder.run("trust", **untrusting).code == 0
    program = [sys.executable, "-P", "-m", "leadhand.cli", "serve", "--port", "0", "--json"]
    env = environment(tmp_path, **untrusting)
    with subprocess.Popen(program, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as up:
        try:
            lines = ""
            while not lines.endswith("}\n"):
                lines += up.stdout.readline()
            project = SimpleNamespace(known={"URL": json.loads(lines)["url"]})
            assert signs_in(project, TOKEN) == "ann"
            agent = tmp_path / "claude"
            shutil.copy(os.path.realpath("/bin/sh"), agent)
            assert subprocess.run([agent, "-c", EDIT], cwd=tmp_path, check=False).returncode == 0
            # With another address she is another ann.
            folder.until(lambda: not signs_in(project, TOKEN), "the change")
            assert signs_in(project, EVE) == ""
            assert folder.run("run", "plan.json", **untrusting).code != 0
            made = folder.run("serve", "token", "add", "bob", **untrusting)
            folder.until(lambda: signs_in(project, made.out.strip()) == "bob", "bob")
            assert signs_in(project, EVE) == ""
            assert folder.run("trust", **untrusting).code == 0
            folder.until(lambda: signs_in(project, EVE) == "eve", "trust")
            assert signs_in(project, TOKEN) == "ann"
        finally:
            up.terminate()


def test_an_agent_that_sends_a_decision_and_ends_at_once_does_not_approve(project):
    """When the server looks, nothing is at the other end any more."""
    os.kill(project.server.pid, signal.SIGSTOP)
    try:
        code = RAW.replace("SOURCE", "127.0.0.1")
        assert told(project, f"PYTHON -c {shlex.quote(code)}") == ""
    finally:
        os.kill(project.server.pid, signal.SIGCONT)
    later = f"PYTHON -c {shlex.quote(BEARER)}"
    assert "403" in told(project, later)  # by then the first one was answered
    state = project.folder.run("show", project.run, "--json").doc
    assert (state["status"], state.get("awaiting")) == ("waiting", "approval")


@pytest.mark.parametrize("way", OTHERS)
def test_an_agent_gives_itself_no_rights(project, way):
    before = sorted(each.name for each in project.folder.path.iterdir())
    settings = (project.folder.path / "leadhand.toml").read_text()
    assert "reserved for people" in told(project, OTHERS[way])
    assert sorted(each.name for each in project.folder.path.iterdir()) == before
    assert (project.folder.path / "leadhand.toml").read_text() == settings


def test_a_person_approves_by_the_same_link(project):
    """From a shell that no agent has started: last, for it ends the run."""
    assert told(project, WAYS["signed link"], shell="/bin/sh").strip() == "200"
    assert project.folder.run("watch", project.run).code == 0
