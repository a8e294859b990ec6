"""Processes in the session of a coding agent: what they say is the agent's, not a person's.

Agents mark the shells that they start with variables, and their shells descend from their own
process. Both are looked at, for a process and for those above it. This keeps an agent from
approving in passing; it is no boundary: an agent that sets out to leave its session can, for it has
the rights of the account (see docs/explanation/security.md).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from leadhand.core.review.agents import agent_name, is_agent
from leadhand.errors import NotAllowed

MARKERS = {
    "CLAUDECODE": "claude-code",
    "CODEX_THREAD_ID": "codex",
    "CODEX_SANDBOX": "codex",
    "CURSOR_AGENT": "cursor",
    "GEMINI_CLI": "gemini-cli",
    "OPENCODE": "opencode",
}
"""Variables that agents set in the shells that they start."""
NAMED = "AI_AGENT"
"""The variable by which any agent may name itself."""
PROGRAMS = {"claude": "claude-code", "codex": "codex", "cursor-agent": "cursor"}
"""Programs that are agents, by the name of their file."""
PACKAGES = {"@anthropic-ai/claude-code": "claude-code", "@openai/codex": "codex"}
"""Agents that another program runs, by a part of the path of their script."""
DEPTH_MAX = 64
PROC = Path("/proc")


def agent_session(environ: Mapping[str, str] | None = None) -> str:
    """Return the agent whose session this process belongs to; "" if it belongs to none."""
    env = os.environ if environ is None else environ
    return marked(env) or agent_of_process(os.getpid())


def refuse_agent_session(what: str) -> None:
    """Raise `NotAllowed` in an agent's session; `what` is reserved for people, as in "trust"."""
    if found := agent_session():
        raise NotAllowed(
            f"{what} is reserved for people, and this process belongs to a session of {found}. "
            "Fix: use a terminal that the agent did not start"
        )


def actor_here() -> str:
    """Return the agent in whose session this process is, as the log names it; "" without one."""
    found = agent_session()
    return agent_name(found) if found else ""


def actor_behind(actor: str, pid: int) -> str:
    """Return who speaks through a process: `actor`, or the agent whose session it belongs to."""
    found = "" if is_agent(actor) else agent_of_process(pid)
    return agent_name(found) if found else actor


def agent_of_process(pid: int) -> str:
    """Return the agent whose session a process belongs to; "" if to none, or if unknown.

    The process and those above it are looked at. Only Linux tells about them.
    """
    if not sys.platform.startswith("linux"):
        return ""
    return next(filter(None, map(_agent, _line(pid))), "")


def marked(env: Mapping[str, str]) -> str:
    """Return the agent that an environment names; "" if it names none."""
    found = next((name for key, name in MARKERS.items() if env.get(key)), "")
    return found or env.get(NAMED, "").partition("_")[0][:60]


def _line(pid: int) -> Iterator[int]:
    """Yield a process and those above it, as far as they can be seen."""
    for _ in range(DEPTH_MAX):
        if pid <= 1:
            return
        yield pid
        try:
            text = (PROC / str(pid) / "stat").read_text(errors="replace")
            pid = int(text.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _agent(pid: int) -> str:
    """Return the agent that a process is, or that its environment names."""
    words = _words(pid, "cmdline")
    for word in words[:2]:
        if found := PROGRAMS.get(Path(word).name):
            return found
        for part, name in PACKAGES.items():
            if part in word:
                return name
    pairs = (each.partition("=") for each in _words(pid, "environ"))
    return marked({key: value for key, _, value in pairs})


def _words(pid: int, name: str) -> list[str]:
    try:
        return (PROC / str(pid) / name).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


# The other end of a connection.


def unix_peer(connection: socket.socket) -> int:
    """Return the process at the other end of a Unix socket; 0 if the system does not tell."""
    kind = getattr(socket, "SO_PEERCRED", None)
    if kind is None:
        return 0
    try:
        size = struct.calcsize("3i")
        found = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, kind, size))
    except OSError:
        return 0
    return int(found[0])


def tcp_peer(client: tuple[str, int], server: tuple[str, int]) -> int:
    """Return the process of this account at the other end of a local connection; 0 if unknown."""
    inode = _inode(client, server)
    if not inode:
        return 0
    wanted, uid = f"socket:[{inode}]", os.geteuid()
    for folder in PROC.iterdir():
        try:
            if not folder.name.isdecimal() or folder.stat().st_uid != uid:
                continue
            if any(os.readlink(each) == wanted for each in (folder / "fd").iterdir()):  # noqa: PTH115 - no path
                return int(folder.name)
        except OSError:
            continue
    return 0


def _inode(client: tuple[str, int], server: tuple[str, int]) -> str:
    """Return the number of the client's socket; "" if it is not on this machine."""
    ends = (f":{client[1]:04X}", f":{server[1]:04X}")
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[1].endswith(ends[0]) and words[2].endswith(ends[1]):
                return words[9]
    return ""
