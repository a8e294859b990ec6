"""Processes in the session of a coding agent: what they say is the agent's, not a person's.

Agents mark the shells that they start with variables, and their shells descend from their own
process. Both are looked at, for a process and for those above it. This keeps an agent from
approving in passing; it is no boundary: an agent that sets out to leave its session can, for it has
the rights of the account (see docs/explanation/security.md).
"""

from __future__ import annotations

import ipaddress
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
ENDED = "the process that asked has ended, so nothing tells whether it was an agent's"
"""Why a command or a decision of a process that is no longer there is refused."""
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
    """Return who speaks through a process: `actor`, or the agent whose session it belongs to.

    Raise `NotAllowed` if the process has ended: what it was is not known any more.
    """
    if is_agent(actor):
        return actor
    found = agent_of_process(pid)
    if not found and _has_ended(pid):
        raise NotAllowed(f"{ENDED}. Fix: wait for the answer")
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


def _has_ended(pid: int) -> bool:
    """Return whether there is no such process any more, or only its exit code is left."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] in (["Z"], ["X"])


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
    pid, account = int(found[0]), int(found[1])
    # Of another account, a process may be hidden and yet there.
    return pid if account == os.geteuid() or (PROC / str(pid)).exists() else 0


def tcp_peers(client: tuple[str, int], server: tuple[str, int]) -> list[int] | None:
    """Return the processes of this account at the other end of a connection.

    None: the other end was on this machine, and is closed already. Empty: it is on another machine,
    of another account, or unknown; only Linux tells.
    """
    rows = _connections()
    if _row(server, client) not in rows:  # our own end is not listed: the table tells nothing
        return []
    inode = rows.get(_row(client, server))
    if inode is None:
        return None if _is_here(client[0]) else []
    return None if inode == "0" else list(_holders(f"socket:[{inode}]"))


def _connections() -> dict[tuple[str, str], str]:
    """Return the connections of this machine, by both ends, with the number of the socket."""
    found: dict[tuple[str, str], str] = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            found[_short(words[1]), _short(words[2])] = words[9]
    return found


MAPPED = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"
"""How an IPv4 address begins where the system lists it as one of IPv6."""


def _short(end: str) -> str:
    return end.removeprefix(MAPPED)


def _row(here: tuple[str, int], there: tuple[str, int]) -> tuple[str, str]:
    """Return a connection as the system lists it."""
    return _end(*here), _end(*there)


def _end(address: str, port: int) -> str:
    try:
        packed = ipaddress.ip_address(address.partition("%")[0]).packed
    except ValueError:
        return ""
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return _short(f"{text}:{port:04X}")


def _is_here(address: str) -> bool:
    """Return whether an address is one of this machine: only such a one can be bound to."""
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as tried:
            tried.bind((address, 0))
    except OSError:
        return False
    return True


def _holders(wanted: str) -> Iterator[int]:
    """Yield the processes of this account that have a socket open."""
    uid = os.geteuid()
    for folder in PROC.iterdir():
        try:
            if not folder.name.isdecimal() or folder.stat().st_uid != uid:
                continue
            if any(os.readlink(each) == wanted for each in (folder / "fd").iterdir()):  # noqa: PTH115 - no path
                yield int(folder.name)
        except OSError:
            continue
