"""Nothing of a command is left behind: not by its daemons, not when host or supervisor is killed.

Where the host itself has to die, a script is the host.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.workers.processes import leftovers
from leadhand.workers.processes import runner as module
from leadhand.workers.processes import runner as supervision
from leadhand.workers.processes.leftovers import StillAlive, alive, kill_leftovers
from leadhand.workers.processes.runner import Processes, SupervisorLost
from tests.support.commands import (
    DAEMON,
    ENV,
    PYTHON,
    SLEEP,
    bounded,
    family,
    run,
    running,
    start_daemon,
    until,
)
from tests.support.need import need

need(Path("/proc/self/task").is_dir(), "Linux")
pytestmark = pytest.mark.real

JOB = """
import os, time
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.execve("/bin/sleep", ["sleep", "1000"], {})
while open(f"/proc/{job}/environ", "rb").read():
    time.sleep(0.002)
print(job)
"""

# A host: runs a sleeper and a daemon, says which processes there are, and waits to be killed.
HOST = """
import asyncio, json, os, sys, time
from leadhand.workers.processes.runner import Processes

async def main():
    processes, ready = Processes(sys.argv[1]), asyncio.Event()
    env = {"PATH": os.environ["PATH"]}
    sleeper = await processes.spawn(["sleep", "1000"], cwd="/", env=env)
    shell = await processes.spawn(["sh", "-c", "sleep 1000 & sleep 1000"], cwd="/", env=env)
    daemon = await processes.spawn(
        sys.argv[2:], cwd="/", env=env, on_output=lambda name, chunk: ready.set())
    await ready.wait()
    fork = os.fork()  # holds our end of the socket open, and must not keep the commands alive
    if fork == 0:
        time.sleep(60)
        os._exit(0)
    pids = [sleeper.pid, shell.pid, daemon.pid]
    supervisor = processes._supervision._supervisor.pid
    print(json.dumps({"pids": pids, "supervisor": supervisor, "fork": fork}), flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def limit():
    with bounded():
        yield


@pytest.fixture
async def processes():
    async with Processes(f"test-{os.getpid()}") as started:
        yield started


# --- daemons ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bare", [False, True])
async def test_a_daemon_dies_with_its_step(processes, tmp_path, bare):
    """Though it left the group, holds the pipe open and (bare) has no marker any more."""
    process, daemon = await start_daemon(processes, tmp_path / "pid", bare=bare, linger_s=0.05)
    assert running(daemon)
    assert (await process.wait()).exit_code == 0
    assert not running(daemon)


@pytest.mark.parametrize("bare", [False, True])
async def test_end_takes_the_daemon_too(processes, tmp_path, bare):
    process, daemon = await start_daemon(processes, tmp_path / "pid", bare=bare)
    await process.end(30)
    assert not running(daemon)


async def test_a_daemon_outlives_the_steps_of_others(processes, tmp_path):
    """It is its own command's end that ends it."""
    process, daemon = await start_daemon(processes, tmp_path / "pid")
    await run(processes, ["true"])
    assert running(daemon)
    await process.end(0)
    assert not running(daemon)


async def test_a_daemon_is_known_by_its_marker(processes, tmp_path):
    """It dies with its own command though others, which might have left it, go on."""
    other = await processes.spawn(SLEEP, cwd="/", env=ENV)
    process, daemon = await start_daemon(processes, tmp_path / "pid", linger_s=0)
    await process.wait()
    assert not running(daemon)
    await other.end(0)


async def test_a_background_job_is_known_by_its_session(processes):
    """Though it has a group of its own, as jobs of an interactive shell have, and no marker."""
    other = await processes.spawn(SLEEP, cwd="/", env=ENV)
    finished = await run(processes, [*PYTHON, JOB])
    assert not running(int(finished.stdout.data))
    await other.end(0)


async def test_a_daemon_without_marker_dies_with_the_last_that_may_own_it(processes, tmp_path):
    other = await processes.spawn(SLEEP, cwd="/", env=ENV)
    process, daemon = await start_daemon(processes, tmp_path / "pid", bare=True, linger_s=0.05)
    await process.wait()
    later = await processes.spawn(SLEEP, cwd="/", env=ENV)
    await other.end(0)
    assert not running(daemon)
    await later.end(0)


async def test_among_those_nobody_trusts_it_dies_with_the_first(tmp_path):
    """So nothing is left of a command that is over; one with a marker goes on with its own."""
    async with Processes(f"test-strict-{os.getpid()}", strict=True) as processes:
        other, marked = await start_daemon(processes, tmp_path / "other")
        process, daemon = await start_daemon(processes, tmp_path / "pid", bare=True, linger_s=0)
        await process.wait()
        assert not running(daemon)
        assert running(marked)
        await other.end(0)
        assert not running(marked)


async def test_what_cannot_be_killed_is_named(processes, tmp_path, monkeypatch):
    """A supervisor that cannot kill daemons stands for a daemon that cannot be killed."""
    source = supervision.PROGRAM.read_text()
    for old, new in {
        "GIVE_UP_S = 10.0": "GIVE_UP_S = 0.1",
        "SHUTDOWN_S_MAX = 30.0": "SHUTDOWN_S_MAX = 0.1",
        "ask(os.killpg, group, signal.SIGKILL)": "return",
    }.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    (tmp_path / "powerless.py").write_text(source)
    monkeypatch.setattr(supervision, "PROGRAM", tmp_path / "powerless.py")
    process, daemon = await start_daemon(processes, tmp_path / "pid", linger_s=0)
    with pytest.raises(StillAlive, match=str(daemon)) as raised:
        await process.wait()
    assert raised.value.pids == (daemon,)
    assert running(daemon)
    await processes.close()
    assert not running(daemon)


# --- death of the host, of the supervisor, of both ----------------------------------------------


@pytest.fixture
def start_host(tmp_path):
    """Hosts as processes of their own, with all their processes; none outlives its test."""
    hosts = []

    def start(prefix):
        pid_file = tmp_path / f"{prefix}.pid"
        argv = [*PYTHON, DAEMON, str(pid_file), "plain", "1000"]
        env = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
        command = [sys.executable, "-c", HOST, prefix, *argv]
        host = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        hosts.append((host, told := json.loads(host.stdout.readline())))
        told["all"] = [*filter(running, family(*told["pids"])), int(pid_file.read_text())]
        assert len(told["all"]) == 6  # sleeper; shell with two; daemon's starter; daemon
        return host, told

    yield start
    for host, told in hosts:
        os.kill(told["fork"], signal.SIGKILL)
        host.kill()
        host.stdout.close()
        host.wait()


async def test_a_killed_host_leaves_nothing_alive(start_host):
    """Within two seconds, though a fork of the host holds its end of the socket open."""
    host, told = start_host(f"killed-{os.getpid()}")
    host.kill()
    await until(lambda: not any(map(running, [*told["all"], told["supervisor"]])))
    assert running(told["fork"])


async def test_leftovers_of_a_host_and_its_supervisor_are_killed_by_marker(start_host):
    """Those of this database only; a supervisor that still lives goes as well."""
    name = f"{os.getpid()}-db1"
    host, told = start_host(name)
    neighbour, spared = start_host(f"{name}0")
    os.kill(told["supervisor"], signal.SIGSTOP)
    host.kill()
    assert await kill_leftovers(name) == 6
    assert not any(map(running, [*told["all"], told["supervisor"]]))
    assert await kill_leftovers(name) == 0
    assert all(map(running, spared["all"]))

    os.kill(spared["supervisor"], signal.SIGSTOP)
    neighbour.kill()
    os.kill(spared["supervisor"], signal.SIGKILL)
    await until(lambda: not any(map(running, spared["pids"])))
    assert await kill_leftovers(f"{name}0") == 3
    assert not any(map(running, spared["all"]))


async def test_a_killed_supervisor_takes_its_commands_along(processes, tmp_path):
    """Waiting fails once they are dead, daemon included; the next command gets a new supervisor."""
    process, daemon = await start_daemon(processes, tmp_path / "pid")
    os.kill(processes._supervision._supervisor.pid, signal.SIGKILL)
    with pytest.raises(SupervisorLost, match="it died"):
        await process.wait()
    assert not running(process.pid)
    assert not running(daemon)
    with pytest.raises(SupervisorLost):
        await process.end(0)
    assert (await run(processes, ["echo", "again"])).stdout.data == b"again\n"


async def test_the_supervisor_is_not_ended_by_what_ends_a_terminal(processes):
    process = await processes.spawn(SLEEP, cwd="/", env=ENV)
    supervisor = processes._supervision._supervisor.pid
    assert os.getsid(supervisor) == supervisor
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(supervisor, number)
    assert (await run(processes, ["true"])).exit_code == 0
    assert processes._supervision._supervisor.pid == supervisor
    assert (await process.end(5)).signal == signal.SIGTERM


async def test_a_recorded_process_is_alive_only_if_it_is_the_one(processes):
    """A pid that is used again belongs to somebody else."""
    process = await processes.spawn(SLEEP, cwd="/", env=ENV)
    record = process.pid, process.start_time, process.boot_id
    for other in ((record[0], record[1] + 1, record[2]), (record[0], record[1], "another boot")):
        assert not alive(*other)
    assert alive(*record)
    await process.end(5)
    assert not alive(*record)


async def test_an_empty_prefix_kills_nobody():
    with pytest.raises(ValueError, match="empty"):
        await kill_leftovers("")


async def test_leftovers_that_do_not_go_are_named(processes, monkeypatch):
    process = await processes.spawn(SLEEP, cwd="/", env=ENV)
    with monkeypatch.context() as patched:
        patched.setattr(leftovers, "GONE_S_MAX", 0.05)
        patched.setattr(leftovers, "_kill", lambda seen: None)
        with pytest.raises(StillAlive, match=f"still alive: {process.pid}$"):
            await kill_leftovers(f"test-{os.getpid()}")
    assert await kill_leftovers(f"test-{os.getpid()}") == 1
    assert not running(process.pid)
