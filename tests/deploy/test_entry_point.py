"""What the image starts, without a builder: as another user, with a root that cannot be written."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2
import pytest

from tests.support.cli import SOURCE
from tests.support.need import need
from tests.support.serving import plan_of, project

pytestmark = pytest.mark.real

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KEY = "correct horse battery"


def module(name):
    spec = importlib.util.spec_from_file_location(name, DEPLOY / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


entrypoint = module("entrypoint")


# --- secrets from files --------------------------------------------------------------------------


def test_a_file_under_secrets_becomes_a_variable(tmp_path):
    (tmp_path / "key").write_text(f"{KEY}\n")
    given = {
        "A_KEY_FILE": str(tmp_path / "key"),
        "SSL_CERT_FILE": "/etc/ssl/cert.pem",
        "_FILE": "x",
    }
    made = entrypoint.environment(given, tmp_path)
    assert made == {"A_KEY": KEY, "SSL_CERT_FILE": "/etc/ssl/cert.pem", "_FILE": "x"}


@pytest.mark.parametrize("path", ["../key", "x/../../key", "/etc/passwd", "key"])
def test_a_file_elsewhere_is_not_read(tmp_path, path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "key").write_text(KEY)
    given = {"A_FILE": path if path.startswith("/") else f"{tmp_path}/secrets/{path}"}
    if path == "key":
        given = {"A_FILE": "key"}
    assert entrypoint.environment(given, tmp_path / "secrets") == given


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"", "is empty"), (b"a\0b", "zero byte"), (b"\xff", "not UTF-8")],
)
def test_a_secret_that_cannot_be_used_is_named(tmp_path, content, why):
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(entrypoint.WrongSecret, match=why):
        entrypoint.environment({"A_FILE": str(tmp_path / "key")}, tmp_path)


def test_a_variable_and_its_file_are_too_much(tmp_path):
    (tmp_path / "key").write_text(KEY)
    with pytest.raises(entrypoint.WrongSecret, match="both set") as wrong:
        entrypoint.environment({"A": "x", "A_FILE": str(tmp_path / "key")}, tmp_path)
    assert KEY not in str(wrong.value)


# --- the container's process ---------------------------------------------------------------------


class Container:
    """Starts commands as user 10001; only the data folder and /tmp can be written."""

    def __init__(self, folder, bwrap):
        self.data, self.settings = folder / "data", folder / "settings" / "leadhand"
        self.secrets = folder / "secrets"
        for each in (self.data, self.settings, self.secrets):
            each.mkdir(parents=True)
        project(self.settings)
        text = (self.settings / "leadhand.toml").read_text()
        (self.settings / "leadhand.toml").unlink()
        pause = '[workers.pause]\ncommand = ["sleep", "2"]\nidempotent = true\n'
        (self.settings / "config.toml").write_text(text + pause)
        (self.secrets / "key").write_text(f"{KEY}\n")
        self.box = [bwrap, "--unshare-user", "--uid", "10001", "--gid", "10001"]
        self.box += ["--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev"]
        self.box += ["--bind", str(self.data), str(self.data)]
        self.box += ["--tmpfs", "/run", "--ro-bind", str(self.secrets), "/run/secrets"]

    def start(self, *command, **variables):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.data),
            "XDG_CONFIG_HOME": str(self.settings.parent),
            "XDG_STATE_HOME": str(self.data / "state"),
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.data),
            **variables,
        }
        return subprocess.Popen(
            [*self.box, "--chdir", str(self.data), *map(str, command)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def entry(self, *args, **variables):
        return self.start(sys.executable, DEPLOY / "entrypoint.py", *args, **variables)

    def run(self, *command, **variables):
        done = self.start(*command, **variables)
        out, err = done.communicate(timeout=120)
        return done.returncode, out, err


@pytest.fixture
def container(bwrap):
    found = bwrap or shutil.which("bwrap")
    need(found, "bubblewrap")
    # A short path: the data folder is also that of temporary files, and holds a socket.
    with tempfile.TemporaryDirectory(prefix="lh") as folder:
        yield Container(Path(folder), found)


def test_the_process_is_not_root_and_cannot_write(container):
    """So the tests below show what they claim."""
    code = (
        "import os; print(os.getuid())\n"
        "for path in ('/x', '/etc/x', '/opt/x', '/usr/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(error.errno)\n"
    )
    assert container.run(sys.executable, "-c", code)[1].split() == ["10001", *["30"] * 4]


def test_the_entry_point_serves_and_a_stop_lets_steps_finish(container):
    """As the image does: settings elsewhere, a health check, SIGTERM, and the log in the volume."""
    child = container.entry("serve", "--port", "0", CHECK_KEY_FILE="/run/secrets/key")
    try:
        url = child.stdout.readline().strip()
        assert url, child.stderr.read()
        check = (sys.executable, DEPLOY / "healthcheck.py")
        health = {"LEADHAND_HEALTH_URL": f"{url}/readyz"}
        assert container.run(*check, **health) == (0, "", "")
        token = (container.data / ".leadhand" / "leadhand.db.token").read_text().strip()
        bearer = {"Authorization": f"Bearer {token}"}
        steps = plan_of({"id": "a", "worker": "pause"}, {"id": "b", "worker": "pause"})
        steps["steps"][1]["depends_on"] = ["a"]
        with httpx2.Client(base_url=f"{url}/api/v1", headers=bearer, timeout=60) as client:
            run = client.post("/runs", json={"plan": steps}).json()["run"]
            until(lambda: client.get(f"/runs/{run}/steps/a").json()["status"] == "running")
            os.kill(leaf(child.pid), signal.SIGTERM)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 143, err
        assert "SIGTERM: no new steps start" in err
        assert KEY not in out + err
        code, _, said = container.run(*check, **health)
        assert code == 1
        assert "refused" in said
    finally:
        child.kill()
        child.communicate()
    shown = container.entry("show", run, "--json")
    doc = json.loads(shown.communicate(timeout=60)[0])
    assert {each["id"]: each["status"] for each in doc["steps"]} == {"a": "succeeded", "b": "ready"}


def until(holds):
    """Wait for a condition."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def leaf(pid):
    """The process that bubblewrap has started: the one that a container's signal goes to."""
    while inner := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if b"leadhand" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1]:
            break
        pid = int(inner[0])
    return pid


def test_a_wrong_secret_stops_the_container_and_names_the_file(container):
    child = container.entry("ls", CHECK_KEY_FILE="/run/secrets/other")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 2
    assert err == (
        "leadhand: error: CHECK_KEY_FILE: /run/secrets/other cannot be read "
        "(No such file or directory).\n"
    )


@pytest.mark.parametrize("url", ["https://other.example/readyz", "file:///etc/passwd", "http://"])
def test_the_health_check_asks_only_this_machine(url):
    done = subprocess.run(
        [sys.executable, DEPLOY / "healthcheck.py"],
        env={"LEADHAND_HEALTH_URL": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search("must be an http address of this machine", done.stderr)
