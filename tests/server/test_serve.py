"""`leadhand serve` as people start it: real processes, signals, restarts, other commands."""

import signal
import stat
import subprocess
import sys

import pytest

from tests.support.cli import Folder, environment
from tests.support.serving import ended, plan_of, process, project

pytestmark = pytest.mark.real


@pytest.fixture
def folder(tmp_path):
    project(tmp_path)
    return Folder(tmp_path)


def test_it_hosts_and_the_command_line_speaks_to_it(folder):
    """One host: other commands see it, answer through it, and none takes the database away."""
    server = process(folder.path)
    try:
        danger = {"id": "a", "worker": "danger"}
        with server.client() as client:
            assert client.get("/session").json()["person"] == "owner"
            run = client.post("/runs", json={"plan": plan_of(danger)}).json()["run"]
            assert ended(client, run)["status"] == "waiting"
            assert folder.run("inbox", "--json").doc[0]["run"] == run
            second = folder.run("run", folder.plan({"id": "b", "worker": "say"}))
            assert second.code == 0, second
            assert "beside the host" in second.err
            assert folder.run("review", run, "approve").code == 0
            assert ended(client, run)["status"] == "succeeded"
            nap = {"id": "n", "worker": "nap", "parameters": {"seconds": 30}}
            long = client.post("/runs", json={"plan": plan_of(nap)}).json()["run"]
            assert folder.run("cancel", long).code == 0
            assert ended(client, long)["status"] == "cancelled"
            failed = client.post("/runs", json={"plan": plan_of({"id": "x", "worker": "shaky"})})
            failed = failed.json()["run"]
            assert ended(client, failed)["status"] == "waiting"
            assert folder.run("answer", failed, "abort").code == 0
            assert ended(client, failed)["status"] == "failed"
            # Through the socket a run is reopened that the server has let go of: it drives it.
            assert folder.run("redo", failed, "x", "--reason", "again").code == 0
            folder.until(
                lambda: client.get(f"/runs/{failed}").json()["status"] == "waiting", "the redo"
            )
    finally:
        assert server.stop() == 143


def test_open_runs_are_taken_up_again(folder):
    """After a kill the next server goes on, and what was finished is not run again."""
    server = process(folder.path)
    steps = [
        {"id": "one", "worker": "once"},
        {"id": "two", "worker": "nap", "parameters": {"seconds": 2}, "depends_on": ["one"]},
    ]
    with server.client() as client:
        run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
        folder.until(lambda: folder.lines("naps.txt"), "the nap")
    server.stop(signal.SIGKILL)
    server = process(folder.path)
    try:
        with server.client() as client:
            assert ended(client, run, 60)["status"] == "succeeded"
        assert folder.lines("once.txt") == 1
    finally:
        server.stop()


def test_it_drains(folder):
    """What runs may finish; nothing new starts; the next server goes on."""
    server = process(folder.path)
    steps = [
        {"id": "one", "worker": "once", "parameters": {"seconds": 1}},
        {"id": "two", "worker": "say", "depends_on": ["one"]},
    ]
    with server.client() as client:
        run = client.post("/runs", json={"plan": plan_of(*steps)}).json()["run"]
        folder.until(lambda: folder.lines("once.txt"), "the step")
    assert server.stop(signal.SIGINT) == 0
    doc = folder.run("show", run, "--json").doc
    assert {step["id"]: step["status"] for step in doc["steps"]}["one"] == "succeeded"
    server = process(folder.path)
    try:
        with server.client() as client:
            assert ended(client, run)["status"] == "succeeded"
        assert folder.lines("once.txt") == 1
    finally:
        server.stop()


def test_the_token_is_made_once_and_is_for_its_owner_alone(folder):
    """Mode 0600, shown at the first start only; one that others may read is refused."""
    server = process(folder.path)
    file = folder.path / ".leadhand" / "leadhand.db.token"
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    server.stop()
    said = (folder.path / "serve.err").read_text()
    assert said.count(token) == 1
    server = process(folder.path)
    server.stop()
    assert file.read_text().strip() == token
    assert (folder.path / "serve.err").read_text().count(token) == 1
    file.chmod(0o644)
    refused = folder.run("serve", "--port", "0")
    assert refused.code == 4
    assert "chmod 600" in refused.err


def test_other_addresses_need_tls_or_a_word(folder):
    """Refused before anything is opened."""
    refused = folder.run("serve", "--port", "0", "--bind", "0.0.0.0")
    assert refused.code == 4
    assert "--tls-cert" in refused.err
    assert not (folder.path / ".leadhand" / "leadhand.db").exists()
    half = folder.run("serve", "--tls-cert", "x.pem")
    assert half.code == 2


def test_a_port_that_is_taken_is_said(folder, tmp_path_factory):
    """With the way out."""
    other = Folder(tmp_path_factory.mktemp("other"))
    project(other.path)
    server = process(folder.path)
    try:
        taken = other.run("serve", "--port", str(server.port))
        assert taken.code == 7
        assert "--port 0" in taken.err
    finally:
        server.stop()


def test_tokens_are_added_listed_and_taken_away(folder):
    """Only hashes stand in the file, and the rest of it stays as it was."""
    before = (folder.path / "leadhand.toml").read_text()
    made = folder.run("serve", "token", "add", "ann o'neil", "--role", "operator", "--json").doc
    text = (folder.path / "leadhand.toml").read_text()
    assert text.startswith(before)
    assert made["token"] not in text
    people = folder.run("serve", "token", "list", "--json").doc
    assert {"name": "ann o'neil", "role": "operator"} in people
    assert folder.run("serve", "token", "add", "ann o'neil").code == 7
    assert folder.run("serve", "token", "remove", "ann o'neil").code == 0
    assert folder.run("serve", "token", "remove", "ann o'neil").code == 2
    assert (folder.path / "leadhand.toml").read_text().rstrip() == before.rstrip()
    assert folder.run("serve", "token", "add", "a/b").code == 2


def test_help_needs_none_of_its_packages(folder):
    """`leadhand --help` and `serve --help` import no server."""
    code = (
        "import sys; from leadhand.cli.main import main\n"
        "try: main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'fastapi', 'uvicorn', 'starlette', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(folder.path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "serve" in folder.run("--help").out


def test_the_page_or_why_there_is_none(folder):
    """Public, under the strict policy; assets cannot be left."""
    server = process(folder.path)
    try:
        with server.client() as client:
            page = client.get(f"{server.url}/", headers={"Authorization": ""})
            assert page.status_code in (200, 503)
            assert "text/html" in page.headers["content-type"]
            assert "script-src 'self'" in page.headers["content-security-policy"]
            for path in ("../app.py", "..%2fapp.py", ".hidden.js", "a/../../gate.py", "x.py"):
                assert client.get(f"{server.url}/assets/1/{path}").status_code == 404, path
    finally:
        server.stop()
