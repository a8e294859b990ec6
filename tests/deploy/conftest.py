"""The linters of deploy/ and of the action, installed once from their lock."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coders import bwrap, coders  # noqa: F401 - fixtures
from tests.support.need import need

ROOT = Path(__file__).resolve().parents[2]
SET_UP_SECONDS_MAX = 480


@pytest.fixture(scope="session")
def linter():
    """Run a linter; return its exit code and everything it printed."""
    command = [sys.executable, ROOT / "scripts" / "environment.py", "deploy"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SET_UP_SECONDS_MAX, check=False
    )
    need(done.returncode == 0, f"the linters of deploy/: {done.stderr.strip()[-500:]}")

    def run(name, *args):
        command = [ROOT / ".venv-deploy" / "bin" / name, *map(str, args)]
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        return ran.returncode, ran.stdout

    return run
