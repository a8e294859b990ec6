"""Machines of their own for tests: network namespaces, each with one link that can be cut.

    host: ADDRESS on lo, and one end of a link to each      namespace k: the other end, nothing else

Needs root and `ip`. Everything is removed at the end, also after a failure.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator


def possible() -> bool:
    """Whether namespaces can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"lh{os.getpid()}p"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return False
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return True


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Net:
    """The links of one campaign."""

    def __init__(self, count: int) -> None:
        self.block = f"10.{20 + os.getpid() % 200}"
        self.address = f"{self.block}.255.1"
        self.names = [f"lh{os.getpid()}n{number}" for number in range(count)]

    def up(self) -> None:
        ip("addr", "add", f"{self.address}/32", "dev", "lo")
        for number, name in enumerate(self.names):
            ours, theirs = f"{name}a", f"{name}b"
            ip("netns", "add", name)
            ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
            ip("link", "set", theirs, "netns", name)
            ip("addr", "add", f"{self.block}.{number}.1/30", "dev", ours)
            ip("link", "set", ours, "up")
            ip("-n", name, "addr", "add", f"{self.block}.{number}.2/30", "dev", theirs)
            ip("-n", name, "link", "set", theirs, "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "default", "via", f"{self.block}.{number}.1")

    def down(self) -> None:
        for name in self.names:
            for command in (("link", "del", f"{name}a"), ("netns", "del", name)):
                subprocess.run(["ip", *command], capture_output=True, check=False)
        gone = ["ip", "addr", "del", f"{self.address}/32", "dev", "lo"]
        subprocess.run(gone, capture_output=True, check=False)

    def within(self, number: int) -> list[str]:
        """What makes a command run in a namespace."""
        return ["ip", "netns", "exec", self.names[number]]

    def link(self, number: int, *, is_up: bool) -> None:
        """Cut a link, or mend it."""
        ip("link", "set", f"{self.names[number]}a", "up" if is_up else "down")


@contextlib.contextmanager
def net(count: int) -> Iterator[Net]:
    """Namespaces, for as long as they are needed."""
    made = Net(count)
    try:
        made.up()
        yield made
    finally:
        made.down()
