"""Tests see the signals they send, however the run was started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
LOOK = f"""
import pathlib, subprocess, sys
code = (
    "import json, signal\\n"
    "seen = [signal.getsignal(n) == signal.SIG_IGN for n in {[*map(int, NUMBERS)]}]\\n"
    "print(json.dumps(seen))"
)
def test_look():
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    pathlib.Path("seen.json").write_bytes(seen)
"""


def ignore() -> None:
    """Do what a shell does to a command with `&`, and nohup to any."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


@pytest.mark.parametrize("testers", ["0", "1"])
def test_a_run_in_the_background_hears_signals(tmp_path, testers):
    """Children of a test hear what is sent to them."""
    (tmp_path / "test_look.py").write_text(LOOK)
    command = [sys.executable, "-m", "pytest", "-q", "-n", testers, "--confcutdir", str(ROOT)]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path / "test_look.py")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=300,
        preexec_fn=ignore,
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert json.loads((tmp_path / "seen.json").read_text()) == [False, False, False]
