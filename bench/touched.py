"""How many modules of Leadhand take part in one job: those in which a function ran.

    python bench/touched.py [SOURCE]    SOURCE holds `leadhand`; the default is this checkout's src

Each job runs in processes of its own, in an empty folder, with a profile function in every
thread. A module that is only imported does not count; children of the process do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROFILE = """
import atexit, os, sys, threading

SOURCE = os.environ["TOUCHED_SOURCE"]
SEEN = set()

def look(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(SOURCE) and name[len(SOURCE):] not in SEEN:
        while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
            frame = frame.f_back
        if frame is None:  # not at import
            SEEN.add(name[len(SOURCE):])

def write():
    with open(os.path.join(os.environ["TOUCHED_OUT"], f"{os.getpid()}.txt"), "w") as file:
        file.write("\\n".join(SEEN))

if os.environ.get("TOUCHED_OUT"):
    threading.setprofile(look)
    sys.setprofile(look)
    atexit.register(write)
"""

WORKERS = """
from leadhand import worker

@worker
def hello(n: int = 1):
    return n

@worker(risk="high")
def risky(n: int = 1):
    return n
"""
STEPS = [{"id": "a", "worker": "hello"}, {"id": "b", "worker": "hello", "depends_on": ["a"]}]
FILES = {
    "workers.py": WORKERS,
    "plan.json": json.dumps({"goal": "g", "steps": STEPS}),
    "risky.json": json.dumps({"goal": "g", "steps": [{"id": "a", "worker": "risky"}]}),
    "leadhand.toml": '[project]\nworkers = ["workers.py"]\n',
    "lead_run.py": """
from leadhand import Lead
from workers import hello

lead = Lead(workers=[hello])
outcome = lead.run_sync("plan.json")
assert outcome.status == "succeeded", outcome
""",
    "temporal_run.py": """
import signal, subprocess, sys

words = ["--temporal", sys.argv[1], "--store", "runs.db"]
command = [sys.executable, "-m", "leadhand.cli"]
engine = subprocess.Popen([*command, "worker", "--engine", *words])
run = subprocess.run([*command, "run", "plan.json", "--trust", "--quiet", *words])
engine.send_signal(signal.SIGTERM)
engine.wait(60)
assert run.returncode == 0, run
""",
    "model_plan.py": """
from leadhand import Lead, ModelPlanner
from leadhand.testing import ScriptedModel
from workers import hello

step = {"id": "a", "worker": "hello"}
model = ScriptedModel([{"kind": "propose", "because": "b", "steps": [step], "final": True}])
plan = Lead([hello], ModelPlanner(model)).plan_sync("say hello")
assert plan.steps, plan
""",
}
CLI = ["-m", "leadhand.cli"]
JOBS = {
    "leadhand run": [[*CLI, "run", "plan.json", "--trust", "--quiet"]],
    "Lead.run": [["lead_run.py"]],
    "one approval": [[*CLI, "run", "risky.json", "--trust", "--quiet"], "answer"],
    "one call of a model planner": [["model_plan.py"]],
    "one fleet task": [[*CLI, "fleet", "simulate", "--agents", "1", "--tasks", "1"]],
}


def run(argv: list[str], folder: Path, env: dict[str, str], *, check: bool = True) -> str:
    """Run one Python command; return what it printed. Exit with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, *argv], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        sys.exit(f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def touched(job: str, source: Path) -> set[str]:
    """Return the modules in which a function ran during one job; only its last command counts."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / "work", Path(place) / "out"
        (Path(place) / "site").mkdir()
        folder.mkdir()
        out.mkdir()
        (Path(place) / "site" / "sitecustomize.py").write_text(PROFILE)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        path = os.pathsep.join((f"{place}/site", str(source), str(folder)))
        home = {"HOME": place, "XDG_STATE_HOME": f"{place}/state", "XDG_CONFIG_HOME": place}
        env = {**os.environ, **home, "PYTHONPATH": path, "LEADHAND_TRUST": str(folder)}
        env["TOUCHED_SOURCE"] = f"{source / 'leadhand'}{os.sep}"
        *before, last = JOBS[job]
        for argv in before:
            run(argv, folder, env, check=False)
        if last == "answer":
            waiting = json.loads(run([*CLI, "inbox", "--json"], folder, env))
            last = [*CLI, "answer", waiting[0]["id"], "approve"]
        run(last, folder, env | {"TOUCHED_OUT": str(out)})
        return {name for file in out.iterdir() for name in file.read_text().splitlines()}


def temporal_run(source: Path) -> set[str]:
    """Return the modules of one run on a real Temporal server: the command and its engine."""
    sys.path.insert(0, str(ROOT))
    from tests.support.temporal import Server

    server = Server()
    server.start()
    try:
        JOBS["one Temporal run"] = [["temporal_run.py", server.address]]
        return touched("one Temporal run", source)
    finally:
        server.stop()


def main() -> None:
    """Print the number of modules for each job, as JSON."""
    source = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "src"
    found = {job: len(touched(job, source)) for job in JOBS}
    found["one Temporal run"] = len(temporal_run(source))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
