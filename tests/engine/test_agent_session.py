"""Processes of a coding agent's session are recognised, whatever they hide."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.cli.console import Console
from leadhand.engine.agent_session import (
    actor_behind,
    agent_of_process,
    marked,
    tcp_peers,
    unix_peer,
)
from leadhand.errors import NotAllowed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture
def started(tmp_path):
    """Start a program below a shell that has the name of an agent; gives back its process id."""
    agent = tmp_path / "claude"
    shutil.copy(os.path.realpath("/bin/sh"), agent)
    children = []

    def start(*words, name=agent, **env):
        # The shell waits, so that it stays the parent.
        script = f"{' '.join(words)} & echo $!; wait"
        child = subprocess.Popen(
            [name, "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], **env},
            start_new_session=True,
        )
        children.append(child)
        return int(child.stdout.readline())

    yield start
    for child in children:
        os.killpg(child.pid, 9)
        child.wait()
        child.stdout.close()


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"CLAUDECODE": "1"}, "claude-code"),
        ({"CODEX_THREAD_ID": "01"}, "codex"),
        ({"CODEX_SANDBOX": "seatbelt"}, "codex"),
        ({"CURSOR_AGENT": "1"}, "cursor"),
        ({"AI_AGENT": "other_1-2_x"}, "other"),
        ({"CLAUDECODE": "", "CURSOR_TRACE_ID": "a person's terminal"}, ""),
    ],
)
def test_agents_mark_their_shells(env, name):
    assert marked(env) == name


def test_a_process_below_an_agent_is_its_own_also_without_its_variables(started):
    assert agent_of_process(started("env", "-i", "sleep", "600")) == "claude-code"
    assert agent_of_process(started("setsid", "sleep", "600")) == "claude-code"


def test_a_variable_of_a_shell_above_counts_also_if_it_was_removed(started):
    pid = started(
        "env", "-u", "CODEX_THREAD_ID", "sleep", "600", name="/bin/sh", CODEX_THREAD_ID="1"
    )
    assert agent_of_process(pid) == "codex"


def test_other_processes_belong_to_none(started):
    assert agent_of_process(started("sleep", "600", name="/bin/sh")) == ""
    assert agent_of_process(2**22 + 1) == ""


def test_no_variable_leads_out_of_a_session(monkeypatch, started):
    """Not even that of a test suite, which an agent could set."""
    pid = started("sleep", "600", PYTEST_CURRENT_TEST="tests/x.py")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/x.py")
    assert agent_of_process(pid) == "claude-code"


async def test_the_process_at_the_other_end_is_known(tmp_path):
    """Of a Unix socket, and of a connection on this machine."""
    seen = []

    async def attend(_reader, writer):
        peer = writer.get_extra_info("peername")
        here = writer.get_extra_info("socket")
        if here.family == socket.AF_UNIX:
            seen.append(unix_peer(here))
        else:
            seen.extend(tcp_peers(peer[:2], writer.get_extra_info("sockname")[:2]))
        writer.close()

    path = tmp_path / "s"
    unix = await asyncio.start_unix_server(attend, path)
    local = await asyncio.start_server(attend, "127.0.0.1", 0)
    port = local.sockets[0].getsockname()[1]
    code = "import socket,sys; s=socket.socket({0}); {2}; s.connect({1}); s.recv(1)"
    wanted = []
    for kind, address, first in (
        ("socket.AF_UNIX", str(path), "0"),
        ("socket.AF_INET", ("127.0.0.1", port), "0"),
        ("socket.AF_INET", ("127.0.0.1", port), "s.bind(('127.0.0.9', 0))"),
        ("socket.AF_INET6", ("::ffff:127.0.0.1", port), "0"),  # listed as a connection of IPv6
    ):
        program = [sys.executable, "-S", "-c", code.format(kind, repr(address), first)]
        child = await asyncio.create_subprocess_exec(*program)
        wanted.append(child.pid)
        assert await child.wait() == 0
    unix.close()
    local.close()
    assert seen == wanted


def test_no_person_is_asked_at_a_terminal_of_an_agent(monkeypatch):
    """An agent can open a terminal and type there; its answers are not a person's."""
    monkeypatch.setattr("leadhand.cli.console._is_terminal", lambda _stream: True)
    monkeypatch.delenv("CI", raising=False)
    assert Console(sys.stderr, as_json=False).can_prompt
    monkeypatch.setenv("CLAUDECODE", "1")
    assert not Console(sys.stderr, as_json=False).can_prompt


def test_an_unknown_connection_has_no_process():
    assert tcp_peers(("127.0.0.1", 1), ("127.0.0.1", 2)) == []
    with socket.socket() as alone:
        assert unix_peer(alone) in (0, os.getpid())
    assert Path("/proc/net/tcp").exists()


def test_a_connection_that_is_closed_already_is_told_from_one_of_another_machine():
    with socket.create_server(("127.0.0.1", 0)) as listens:
        server = listens.getsockname()
        near = socket.create_connection(server)
        here, client = listens.accept()
        with here:
            assert tcp_peers(client, server) == [os.getpid()]
            near.close()
            assert tcp_peers(client, server) is None
            assert tcp_peers(("192.0.2.7", client[1]), server) == []


def test_a_process_that_has_ended_speaks_for_nobody():
    """Also while its parent has not taken its exit code."""
    with subprocess.Popen([sys.executable, "-S", "-c", "0"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        for _ in range(2):
            with pytest.raises(NotAllowed, match="has ended"):
                actor_behind("ann", child.pid)
            assert actor_behind("agent:x", child.pid) == "agent:x"
            child.wait()
    assert actor_behind("ann", os.getppid()) in ("ann", "agent:claude-code")
