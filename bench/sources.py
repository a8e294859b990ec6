"""What an environment inside the project costs: CPU time of a script, to the same one elsewhere.

Leadhand lies in a virtual environment; the script of the README runs with that environment inside
the folder of the script, and beside it. Installed packages count in no worker's version, so the
two cost the same. In turn, many times, medians, bytecode warm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from frame import arguments, emit

import leadhand

WARM_UP = 2
SCRIPT = """
from leadhand import Goal, Lead, worker

@worker(gives="prices")
async def fetch_prices(competitor: str) -> list[int]:
    return [1, 2, 3]

@worker(gives="summary")
async def summarise(prices: list[int]) -> str:
    return f"{len(prices)} prices"

lead = Lead([fetch_prices, summarise], store=STORE)
goal = Goal(text="Compare", have={"competitor": "Acme"}, want=("summary",))
assert lead.run_sync(goal).ok
"""


def project(folder: Path, *, inside: bool) -> tuple[Path, Path]:
    """Make a project; gives back its script and the packages of its environment."""
    place = folder / ("inside" if inside else "beside")
    shutil.rmtree(place, ignore_errors=True)
    home = place / "project"
    environment = (home if inside else place) / ".venv"
    packages = environment / "lib" / "python3" / "site-packages"
    home.mkdir(parents=True)
    packages.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    ignored = shutil.ignore_patterns("__pycache__", "web")
    shutil.copytree(Path(leadhand.__file__).parent, packages / "leadhand", ignore=ignored)
    script = home / "readme.py"
    script.write_text(SCRIPT.replace("STORE", repr(str(home / "a.db"))))
    return script, packages


def cpu_seconds(script: Path, packages: Path) -> float:
    """Run a script with the packages of an environment, and say what it used."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = str(packages)
    process = subprocess.Popen([sys.executable, str(script)], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{script} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run both, in turn, `--size` times."""
    given = arguments(["sources"])
    inside, beside = (project(given.dir.resolve(), inside=each) for each in (True, False))
    taken = [(cpu_seconds(*inside), cpu_seconds(*beside)) for _ in range(WARM_UP + given.size)]
    inside_s, beside_s = (median(side) for side in zip(*taken[WARM_UP:], strict=True))
    figures = {"inside_ms": round(inside_s * 1e3, 1), "beside_ms": round(beside_s * 1e3, 1)}
    emit(given.size, sum(map(sum, taken)), ratio=round(inside_s / beside_s, 3), **figures)


if __name__ == "__main__":
    main()
