"""What tests of MCP servers share: the server of `mcp_server.py`, reached in both ways."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

PROGRAM = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


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
