"""Real coding agents for the tests: Claude Code and Codex, installed once from their lock.

    def test_it_edits(coders): ...      # coders.claude, coders.codex: the programs

Codex brings a bubblewrap of its own, which serves where the system has none; so every kind of
sandbox is tested everywhere.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from leadhand.workers.sandbox.sandbox import trial
from tests.support.need import need

ROOT = Path(__file__).resolve().parents[2]
SET_UP_SECONDS_MAX = 480
KINDS = ("bubblewrap", "landlock")


@dataclass(frozen=True)
class Programs:
    """Where the programs are."""

    claude: Path
    codex: Path
    bwrap: str


@pytest.fixture(scope="session")
def coders() -> Programs:
    """The programs of real coding agents."""
    command = [sys.executable, ROOT / "scripts" / "environment.py", "coders"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SET_UP_SECONDS_MAX, check=False
    )
    need(done.returncode == 0, f"real coding agents: {done.stderr.strip()[-500:]}")
    (packages,) = (ROOT / ".venv-coders").glob("lib/python*/site-packages")
    codex = packages / "codex_cli_bin"
    return Programs(
        claude=packages / "claude_agent_sdk" / "_bundled" / "claude",
        codex=codex / "bin" / "codex",
        bwrap=str(codex / "codex-resources" / "bwrap"),
    )


@pytest.fixture(scope="session")
def bwrap(coders: Programs) -> str:
    """A bubblewrap that works: the system's own, or the one that Codex brings."""
    return "" if not trial("bubblewrap", network=True) else coders.bwrap


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, bwrap: str) -> str:
    """Each kind of sandbox."""
    trouble = trial(request.param, bwrap, network=True)
    need(not trouble, f"{request.param}: {trouble}")
    return request.param
