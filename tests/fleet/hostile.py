"""An agent that tries what it must not. Run inside a sandbox: `hostile.py PLAN.json`.

It prints one JSON object: for each deed "done", or what kept it from being done. It is standard
library only, and what it would do is harmless if it succeeds.
"""

# ruff: noqa: PTH101, PTH104, PTH108, PTH208  (each deed is one system call)
import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path

PLAN = {}
LIBC = ctypes.CDLL(None, use_errno=True)


def syscall(number: int, *arguments: object) -> None:
    if LIBC.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def connect(family: int, kind: int, address: object) -> None:
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        sock.connect(address)
        sock.send(b"hello")


def through_a_link() -> None:
    link = Path("link")
    link.symlink_to(PLAN["secret"])
    link.read_text()


def by_a_hard_link() -> None:
    os.link(PLAN["secret"], "hard")
    Path("hard").read_text()


def environment_of(pid: object) -> None:
    found = Path(f"/proc/{pid}/environ").read_bytes()
    if PLAN["canary"].encode() not in found:
        raise LookupError("it is not there")


def secret_variable() -> None:
    if PLAN["canary"] not in json.dumps(dict(os.environ)):
        raise LookupError("it is not there")


def see_others() -> None:
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    if str(PLAN["victim"]) not in names:
        raise LookupError("they are not there")


def own_namespace() -> None:
    if LIBC.unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare")
    if LIBC.mount(b"none", b"/usr", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


def mount() -> None:
    if LIBC.mount(b"none", b"/usr", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")


def no_privileges() -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    held = [line for line in lines if line.startswith("Cap") and int(line.split()[1], 16)]
    if held or "NoNewPrivs:\t1" not in lines:
        raise PermissionError(held)


def open_to_write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY))


DEEDS = {
    "write beside the slot": lambda: Path(PLAN["beside"], "x").write_text("x"),
    "write into another slot": lambda: Path(PLAN["other"], "x").write_text("x"),
    "write into the system": lambda: Path("/usr/leadhand-was-here").write_text("x"),
    "write into etc": lambda: Path("/etc/leadhand-was-here").write_text("x"),
    "write at the root": lambda: Path("/leadhand-was-here").write_text("x"),
    "truncate a file": lambda: os.truncate(PLAN["secret"], 0),
    "remove a file": lambda: os.unlink(PLAN["secret"]),
    "change a mode": lambda: os.chmod(PLAN["secret"], 0o777),
    "move a file here": lambda: os.rename(PLAN["secret"], "mine"),
    "plant a hook in the hub": lambda: Path(PLAN["hub"], "hooks", "update").write_text("#!/bin/sh"),
    "configure git for the user": lambda: Path(PLAN["user"], ".gitconfig").write_text("[core]"),
    "read a secret": lambda: Path(PLAN["secret"]).read_text(),
    "read through a link": through_a_link,
    "read by a hard link": by_a_hard_link,
    "read another slot": lambda: Path(PLAN["other"], "theirs").read_text(),
    "list the folder of slots": lambda: os.listdir(PLAN["beside"]).index("other"),
    "list a home": lambda: os.listdir(PLAN["user"]),
    "read passwords": lambda: Path("/etc/shadow").read_text(),
    "list private keys": lambda: os.listdir("/etc/ssl/private"),
    "a secret variable": secret_variable,
    "the host's variables": lambda: environment_of(PLAN["host"]),
    "its parent's variables": lambda: environment_of(os.getppid()),
    "a command line of another": lambda: Path(f"/proc/{PLAN['victim']}/cmdline").read_bytes(),
    "see other processes": see_others,
    "kill a process": lambda: os.kill(PLAN["victim"], signal.SIGKILL),
    "stop the host": lambda: os.kill(PLAN["host"], signal.SIGCONT),
    "connect on loopback": lambda: connect(
        socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PLAN["port"])
    ),
    "reach outside": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
    "send a datagram": lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)),
    "look up a name": lambda: socket.getaddrinfo("example.org", 80),
    "a socket of the host": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, PLAN["unix"]),
    "an abstract socket": lambda: connect(
        socket.AF_UNIX, socket.SOCK_STREAM, "\0" + PLAN["abstract"]
    ),
    "speak to the machine below": lambda: socket.socket(40, socket.SOCK_STREAM),
    "raw packets": lambda: socket.socket(17, socket.SOCK_RAW),
    "mount": mount,
    "a namespace with mounts": own_namespace,
    "press a key of the kernel": lambda: open_to_write("/proc/sysrq-trigger"),
    "set the kernel": lambda: open_to_write("/proc/sys/kernel/core_pattern"),
    "a device": lambda: os.mknod("disk", 0o60600, os.makedev(254, 0)),
    "memory of the machine": lambda: open_to_write("/dev/mem"),
    "a ring": lambda: syscall(425, 8, ctypes.create_string_buffer(256)),
    "keys": lambda: syscall(250 if os.uname().machine == "x86_64" else 219, 0, -3, 1),
    "more rights": lambda: os.setgroups([0, 6]),
    "another root": lambda: os.chroot("."),
}
ALLOWED = {
    "write in the slot": lambda: Path("mine.txt").write_text("x"),
    "plant a hook in the slot": lambda: Path(".git", "hooks", "post-checkout").write_text("x"),
    "write at home": lambda: Path(os.environ["HOME"], "x").write_text("x"),
    "a temporary file": lambda: Path(os.environ["TMPDIR"], "x").write_text("x"),
    "read the hub": lambda: Path(PLAN["hub"], "HEAD").read_text(),
    "a shell": lambda: os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "exit 0") and 1 / 0,
    "nothing into nowhere": lambda: Path("/dev/null").write_text("x"),
    "a semaphore": lambda: __import__("multiprocessing").Lock(),
    "a pair of sockets": socket.socketpair,
    "do without privileges": no_privileges,
    "loopback of its own": lambda: socket.create_server(("127.0.0.1", 0)).close(),
}


def tried(deed: object) -> str:
    try:
        deed()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


if __name__ == "__main__":
    PLAN |= json.loads(Path(sys.argv[1]).read_text())
    deeds = {**DEEDS, **ALLOWED}
    print(json.dumps({name: tried(deeds[name]) for name in PLAN["only"] or deeds}))
