"""What tests of MCP servers share: the server of `mcp_server.py`, reached in both ways."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from leadhand.ports import Task

PROGRAM = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


class Context:
    """What a worker is told."""

    key = "key-1"

    def __init__(self):
        self.said = []

    def progress(self, message="", fraction=None):
        self.said.append((message, fraction))


@contextmanager
def served(*options, port=0):
    """The test server over HTTP, in a process of its own; gives that and its port."""
    command = [*PROGRAM, "--http", "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def noted(log):
    """What the server wrote down."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def task(**parameters):
    """An attempt with these parameters."""
    return Task("run", "step", 1, 1, "", parameters, 0)
