"""Agents stay in their slots: each kind of sandbox against an agent that does not want to."""

import asyncio
import contextlib
import json
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox import sandbox as sandboxes
from leadhand.workers.sandbox.sandbox import (
    INSIDE,
    NoSandbox,
    ProcessLimits,
    Sandbox,
    choose,
    probe,
    trial,
)
from tests.fleet import hostile

pytestmark = pytest.mark.real
PYTHON = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
PROGRAM = Path(hostile.__file__)


@pytest.fixture(scope="module")
def outcomes(bwrap):
    """What became of each deed, by the kind of sandbox; every deed is tried once for each."""
    known = {}

    def tried(kind):
        if kind not in known:
            # Not below /tmp, which is another one inside bubblewrap.
            with TemporaryDirectory(dir="/var/tmp") as folder:
                known[kind] = attempt(Path(folder), Sandbox(kind=kind, bwrap=bwrap))
        return known[kind]

    return tried


def attempt(folder, sandbox, only=()):
    """Build what an agent should want, and let it try."""
    canary = secrets.token_hex(8)
    for name in ("slots/mine/.git/hooks", "slots/other", "hub/hooks", "user"):
        (folder / name).mkdir(parents=True)
    (folder / "hub/HEAD").write_text("ref: refs/heads/main\n")
    (folder / "slots/other/theirs").write_text("theirs")
    (folder / "user/secret").write_text(canary)
    unix, abstract = folder / "u.sock", secrets.token_hex(8)
    with (
        socket.create_server(("127.0.0.1", 0)) as inet,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as nameless,
        subprocess.Popen(["sleep", "60"], env={"CANARY": canary}) as victim,
    ):
        named.bind(str(unix))
        nameless.bind("\0" + abstract)
        for each in (named, nameless):
            each.listen()
        plan = {
            "abstract": abstract,
            "beside": str(folder / "slots"),
            "canary": canary,
            "host": victim.pid,
            "hub": str(folder / "hub"),
            "only": only,
            "other": str(folder / "slots/other"),
            "port": inet.getsockname()[1],
            "secret": str(folder / "user/secret"),
            "unix": str(unix),
            "user": str(folder / "user"),
            "victim": victim.pid,
        }
        (folder / "slots/mine/plan.json").write_text(json.dumps(plan))
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("LEADHAND_TEST_SECRET", canary)
            command = (PYTHON, str(PROGRAM), "plan.json")
            shown = (folder / "hub", PROGRAM)
            done = run(sandbox, folder / "slots/mine", *command, readable=shown)
        survived = victim.poll() is None
        victim.kill()
    assert done.returncode == 0, done.stderr
    assert survived
    return json.loads(done.stdout)


def run(sandbox, slot, *argv, **more):
    home = more.pop("home", slot.parents[1] / "home")
    wrapped = sandbox.wrap(argv, slot, home=home, **more)
    return subprocess.run(
        wrapped.argv,
        cwd=wrapped.cwd,
        env=wrapped.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("deed", hostile.DEEDS)
def test_what_an_agent_must_not_do_is_refused(outcomes, kind, deed):
    """By the kernel, not by asking."""
    assert outcomes(kind)[deed] != "done"


@pytest.mark.parametrize("deed", hostile.ALLOWED)
def test_what_an_agent_needs_it_can_do(outcomes, kind, deed):
    """A sandbox in which nothing works would pass the other test."""
    assert outcomes(kind)[deed] == "done"


OPENLY = (
    "write beside the slot",
    "write into another slot",
    "read a secret",
    "read through a link",
    "read by a hard link",
    "read another slot",
    "list the folder of slots",
    "list a home",
    "the host's variables",
    "a command line of another",
    "see other processes",
    "stop the host",
    "connect on loopback",
    "a socket of the host",
    "an abstract socket",
    "plant a hook in the hub",
    "configure git for the user",
    "change a mode",
    "truncate a file",
    "remove a file",
)


def test_the_deeds_are_done_where_there_is_no_sandbox(tmp_path):
    """A deed that fails everywhere would prove nothing."""
    done = attempt(tmp_path, Sandbox(kind="none"), OPENLY)
    assert {deed: done[deed] for deed in OPENLY} == dict.fromkeys(OPENLY, "done")


def test_what_is_written_stays_where_it_was_allowed(tmp_path, kind, bwrap):
    """A canary beside the slot, a canary in the system: both as they were."""
    attempt(tmp_path, Sandbox(kind=kind, bwrap=bwrap))
    assert (tmp_path / "slots/mine/mine.txt").read_text() == "x"
    assert (tmp_path / "user/secret").stat().st_mode & 0o777 != 0o777
    assert (tmp_path / "user/secret").read_text()
    assert sorted(path.name for path in (tmp_path / "slots").iterdir()) == ["mine", "other"]
    assert [path.name for path in (tmp_path / "slots/other").iterdir()] == ["theirs"]
    assert not list((tmp_path / "hub/hooks").iterdir())
    assert not list((tmp_path / "user").glob(".*"))
    for place in ("/", "/etc", "/usr"):
        assert not Path(place, "leadhand-was-here").exists()


# --- what is passed on ---------------------------------------------------------------------


@pytest.fixture
def slot(tmp_path):
    (tmp_path / "slots/mine").mkdir(parents=True)
    return tmp_path / "slots/mine"


def test_the_environment_is_what_is_given(slot, kind, bwrap, monkeypatch):
    """Nothing of the host's, whatever it is called."""
    monkeypatch.setenv("HARMLESS_LOOKING", "secret")
    done = run(Sandbox(kind=kind, bwrap=bwrap), slot, "env", env={"GIVEN": "yes"})
    names = {line.split("=")[0] for line in done.stdout.splitlines()}
    assert names - {"PWD"} == {"GIVEN", "HOME", "LANG", "PATH", "TMPDIR"}


def test_limits_are_set(slot, kind, bwrap):
    """Memory, files, processes and the size of a file; and no core is left lying about."""
    limits = ProcessLimits(memory_bytes=1 << 30, files=123, processes=456, file_bytes=1 << 20)
    script = "import resource as r; print(*[r.getrlimit(n)[0] for n in (r.RLIMIT_DATA, "
    script += "r.RLIMIT_NOFILE, r.RLIMIT_NPROC, r.RLIMIT_FSIZE, r.RLIMIT_CORE)])"
    done = run(Sandbox(kind=kind, bwrap=bwrap, limits=limits), slot, PYTHON, "-c", script)
    assert done.stdout.split() == [str(n) for n in (1 << 30, 123, 456, 1 << 20, 0)]
    big = "open('big', 'wb').write(b'x' * (2 << 20))"
    done = run(Sandbox(kind=kind, bwrap=bwrap, limits=limits), slot, PYTHON, "-c", big)
    assert done.returncode != 0
    assert (slot / "big").stat().st_size <= 1 << 20
    much = "bytearray(2 << 30)"
    done = run(Sandbox(kind=kind, bwrap=bwrap, limits=limits), slot, PYTHON, "-c", much)
    assert "MemoryError" in done.stderr


def test_limits_are_no_higher_than_the_hosts(slot, kind, bwrap):
    """A host that is limited itself can give no more than it has."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    script = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE)[0])"
    limits = ProcessLimits(files=most + 1)
    done = run(Sandbox(kind=kind, bwrap=bwrap, limits=limits), slot, PYTHON, "-c", script)
    assert done.stdout.split() == [str(most)]


async def test_a_grace_is_one_inside_too(slot, kind, bwrap):
    """TERM reaches the agent, not the sandbox around it; its last words are heard."""
    script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"
    wrapped = Sandbox(kind=kind, bwrap=bwrap).wrap(
        ["sh", "-c", script], slot, home=slot.parent.parent / "home"
    )
    up = asyncio.Event()
    async with Processes("test-grace") as processes:
        process = await processes.spawn(
            wrapped.argv, cwd=wrapped.cwd, env=wrapped.env, on_output=lambda *_: up.set()
        )
        await asyncio.wait_for(up.wait(), 20)
        ended = await process.end(10)
    assert (ended.exit_code, ended.stdout.data) == (7, b"up\nbye\n")


HIDING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        script = "while :; do date >> alive; sleep 0.05; done"
        os.execve("/bin/sh", ["sh", "-c", script], {})
    os._exit(0)
os.wait()
while not os.path.exists("alive"):
    time.sleep(0.02)
print("up", flush=True)
time.sleep(0 if sys.argv[1] == "leaves" else 600)
"""


@pytest.mark.parametrize("ends", ["leaves", "is ended", "is killed"])
async def test_nothing_of_an_agent_outlives_it(slot, kind, bwrap, tmp_path, ends):
    """In a session of its own, with nothing in its environment, while others are at work."""
    sandbox, up = Sandbox(kind=kind, bwrap=bwrap), asyncio.Event()
    other = tmp_path / "slots/other"
    other.mkdir()
    async with Processes("test-hiding") as processes:

        async def start(place, *argv):
            wrapped = sandbox.wrap(argv, place, home=tmp_path / f"home-{place.name}")
            return await processes.spawn(
                wrapped.argv, cwd=wrapped.cwd, env=wrapped.env, on_output=lambda *_: up.set()
            )

        beside = await start(other, "sleep", "600")
        agent = await start(slot, PYTHON, "-c", HIDING, ends)
        await asyncio.wait_for(up.wait(), 30)
        if ends == "is killed":
            os.kill(agent.pid, signal.SIGKILL)
        await (agent.end(0) if ends == "is ended" else agent.wait())
        left, at_work = living_in(slot), living_in(other)
        await beside.end(0)
    assert not left
    assert at_work, "those beside it go on"
    assert not living_in(other)


def living_in(folder):
    """Processes that stand in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (place / "cwd").readlink() == folder:
                found.append(place.name)
    return found


def test_how_an_agent_ends_is_told(slot, kind, bwrap):
    """By its own code; one that was killed by a signal as a shell would tell it."""
    sandbox = Sandbox(kind=kind, bwrap=bwrap)
    assert run(sandbox, slot, "sh", "-c", "exit 3").returncode == 3
    assert run(sandbox, slot, "sh", "-c", "kill -9 $$").returncode == 137
    assert run(sandbox, slot, "ls", "/proc/self/fd").stdout.split() == list("0123")


def test_a_program_that_is_not_there_is_said(slot, kind, bwrap):
    """In one line, with 126: nothing was run."""
    done = run(Sandbox(kind=kind, bwrap=bwrap), slot, "no-such-agent")
    assert done.returncode == 126
    assert done.stderr.startswith("sandbox: no-such-agent: ")


# --- failing closed ------------------------------------------------------------------------


def test_where_nothing_keeps_agents_in_none_is_run(monkeypatch):
    """One message, and what to do about it; `none` only by its name."""
    monkeypatch.setattr(sandboxes, "trial", lambda kind, *_, network: "no")
    with pytest.raises(NoSandbox, match="apt install bubblewrap") as raised:
        choose()
    assert "bubblewrap: no; landlock: no" in str(raised.value)
    with pytest.raises(NoSandbox):
        choose("landlock")
    assert choose("none").kind == "none"
    with pytest.raises(NoSandbox, match="there is no sandbox 'off'"):
        choose("off")


def test_landlock_alone_has_no_network_and_fails_closed_on_an_old_kernel(slot, monkeypatch):
    """What `inside` cannot lock, it does not run."""
    from leadhand.workers.sandbox import inside

    monkeypatch.setattr(inside, "LANDLOCK_ABI_MIN", 99)
    with pytest.raises(OSError, match="is needed"):
        inside.check_abi()
    monkeypatch.setattr(inside, "CALLS", {})
    monkeypatch.setattr(inside, "LANDLOCK_ABI_MIN", 0)
    with pytest.raises(OSError, match="no seccomp filter"):
        inside.check_abi()


ALONE = """
import json, socket, pathlib
def tried(deed):
    try:
        deed()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps([
    tried(lambda: pathlib.Path("mine").write_text("x")),
    tried(lambda: pathlib.Path("../other/x").write_text("x")),
    tried(lambda: pathlib.Path("../other/theirs").read_text()),
    tried(socket.socket),
    tried(lambda: socket.socket(socket.AF_UNIX)),
    tried(socket.socketpair),
]))
"""


def test_landlock_without_namespaces_keeps_agents_in_and_off_every_network(slot, bwrap, tmp_path):
    """As where the system has none for plain users: here, inside a bubblewrap that forbids them."""
    other, home = tmp_path / "slots/other", tmp_path / "slots/home"
    other.mkdir()
    (other / "theirs").write_text("theirs")
    outer = Sandbox(kind="bubblewrap", bwrap=bwrap, readable=(sandboxes.INSIDE,))

    def nested(sandbox, *argv, network):
        wrapped = sandbox.wrap(argv, slot, home=home, network=network)
        # All of the folder is writable for the one outside; the one inside must know better.
        command = ("env", "-C", str(slot), *wrapped.argv)
        return run(outer, tmp_path / "slots", *command, home=tmp_path / "home")

    alone = nested(Sandbox(kind="landlock"), PYTHON, "-c", ALONE, network=False)
    refused = "PermissionError"
    assert json.loads(alone.stdout) == ["done", refused, refused, refused, refused, "done"]
    with_door = nested(Sandbox(kind="landlock", proxy=other / "theirs"), "true", network=True)
    assert with_door.returncode == 126
    assert "no network namespace for this user" in with_door.stderr


def test_a_network_needs_a_proxy(slot, kind, bwrap, tmp_path):
    """There is no other way out, so there is none."""
    sandbox = Sandbox(kind=kind, bwrap=bwrap)
    assert not sandbox.gateway
    with pytest.raises(NoSandbox, match="no proxy"):
        sandbox.wrap(["true"], slot, home=tmp_path / "home", network=True)


def test_trying_a_sandbox_leaves_nobody_behind(kind, bwrap):
    """Also not the forwarder to the proxy, which ends with the agent's group."""
    trial.cache_clear()
    assert trial(kind, bwrap, network=True) == ""
    until = time.monotonic() + 20  # tests beside this one try sandboxes too
    while orphans() and time.monotonic() < until:
        time.sleep(0.2)
    assert orphans() == []


def orphans():
    """Forwarders of trials that nobody will end."""
    left = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_bytes()
            tried = str(INSIDE).encode() in words and words.endswith(b"/bin/true\0")
            if tried and gone_parent(place):
                left.append(place.name)
    return left


def gone_parent(place):
    """Whether nobody waits for a process any more."""
    return (place / "stat").read_text().rpartition(")")[2].split()[1] == "1"


def test_doctor_is_told_what_is_there(kind):
    """In one line."""
    said = probe()
    assert "bubblewrap: " in said
    assert "landlock: " in said
    assert "\n" not in said


def test_java_is_led_to_the_door_since_it_reads_no_variable_of_proxies(slot, tmp_path):
    """And only where there is a door: without a network nothing is set."""
    sandbox = Sandbox(kind="landlock", proxy=tmp_path / "door.sock")
    env = sandbox.wrap(["true"], slot, home=tmp_path / "home", network=True).env
    assert env["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128" in env["JAVA_TOOL_OPTIONS"]
    closed = sandbox.wrap(["true"], slot, home=tmp_path / "home").env
    assert "JAVA_TOOL_OPTIONS" not in closed
