"""What the cases share: their arguments, what counts as durable, and one line of JSON.

A case is a module run as `python -m NAME SHAPE --size N --dir FOLDER` from this folder, in a
process of its own. It prints one JSON line and nothing else that matters. Imports, the
building of graphs and the opening of databases are outside the time it reports; the work and
everything that makes it durable are inside.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
FULL = 2
"""`PRAGMA synchronous`: every commit is synced to the disk before it returns."""

TOO_LONG = "not done after"
UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONSAFEPATH", "LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2")
"""Variables of the caller that would make a case slower or send what it does elsewhere."""

Result = dict[str, Any]


def arguments(shapes: Sequence[str], **extra: dict[str, Any]) -> argparse.Namespace:
    """The arguments every case takes; `extra` maps further option names to their settings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=shapes)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--dir", type=Path, default=Path("results"), help="where databases go")
    for name, settings in extra.items():
        parser.add_argument("--" + name.replace("_", "-"), **settings)
    chosen = parser.parse_args()
    chosen.dir.mkdir(parents=True, exist_ok=True)
    return chosen


def emit(size: int, seconds: float, **fields: Any) -> None:
    """Print what was measured, with the memory this process has used."""
    rate = round(size / seconds, 1)
    line = {"size": size, "seconds": round(seconds, 4), "steps_per_s": rate, **memory(), **fields}
    print(json.dumps(line), flush=True)


def durability(pragma: Callable[[str], Any]) -> str:
    """Read back, from the connection that did the work, how it synced; refuse less than FULL."""
    level = pragma("synchronous")
    if level < FULL:
        raise SystemExit(f"not comparable: synchronous={level}, wanted {FULL} (FULL)")
    return f"{pragma('journal_mode')}, synchronous={level}"


def expect(what: str, found: int, wanted: int) -> None:
    """Fail the case when less was recorded than it claims to have done."""
    if found != wanted:
        raise SystemExit(f"{what}: {found} recorded, {wanted} expected")


def memory() -> dict[str, float]:
    """Resident memory now and at its highest, in MB (the highest alone where /proc is missing)."""
    status = Path("/proc/self/status")
    if not status.exists():
        unit = 1e6 if sys.platform == "darwin" else 1e3
        return {"peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)}
    kb = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return {
        "rss_mb": round(int(kb["VmRSS"].split()[0]) / 1024, 1),
        "peak_mb": round(int(kb["VmHWM"].split()[0]) / 1024, 1),
    }


def run_case(
    module: str, args: Sequence[str], python: str = sys.executable, timeout: float = 600
) -> Result:
    """Run one case in a fresh process; what it printed, or `{"error": why}`."""
    done = finish([python, "-m", module, *args], timeout)
    if done is None:
        return {"error": f"{TOO_LONG} {timeout:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        return dict(json.loads(lines[-1]))
    said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
    return {"error": f"exit {done.returncode}: {said[:120]}", "exit": done.returncode}


def finish(command: list[str], timeout: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command to its end and leave nothing behind that it started; None: out of time.

    A case that starts others is in a group of its own, and they join it: it ends them all.
    """
    outermost = "LEADHAND_BENCH_CASE" not in os.environ
    process = subprocess.Popen(
        command,
        cwd=BENCH,
        env={k: v for k, v in os.environ.items() if k not in UNSET} | {"LEADHAND_BENCH_CASE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=outermost,
    )
    try:
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if outermost else process.kill()
        process.wait()
