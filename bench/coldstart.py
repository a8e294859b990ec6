"""What starting costs: CPU time of `leadhand --help` against `python -c pass`.

The same interpreter and environment for both, in turn, many times, medians; user and system
time of the child as the kernel counted it. Bytecode is warm: three starts of each go
uncounted first, and PYTHONDONTWRITEBYTECODE is unset.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from frame import arguments, emit

WARM_UP = 3


def cpu_seconds(command: list[str]) -> float:
    """Start it, wait for it, and say what it used."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{Path(command[0]).name} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Start both, in turn, `--size` times."""
    given = arguments(["coldstart"], command={"default": "leadhand"})
    script = Path(sys.executable).parent / given.command
    if not script.exists():
        raise SystemExit(f"{given.command} is not installed beside this interpreter")
    said = subprocess.run([script, "--help"], capture_output=True, text=True, check=False).stdout
    if "usage" not in said.lower():
        raise SystemExit(f"{given.command} --help shows no usage")
    bare, ours = [sys.executable, "-c", "pass"], [str(script), "--help"]
    taken = [(cpu_seconds(bare), cpu_seconds(ours)) for _ in range(WARM_UP + given.size)]
    python_s, help_s = (median(side) for side in zip(*taken[WARM_UP:], strict=True))
    milliseconds = {"python_ms": round(python_s * 1e3, 2), "help_ms": round(help_s * 1e3, 2)}
    total = sum(map(sum, taken))
    emit(given.size, total, ratio=round(help_s / python_s, 3), **milliseconds)


if __name__ == "__main__":
    main()
