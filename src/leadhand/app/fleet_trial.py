"""A fleet on trial: a generated repository, scripted agents, faults by a profile, real everything.

Agents are real processes, git is git, the gate runs every check of the repository, and the engine
is the engine. The agents are ours, so they run without a sandbox. What is made up is their skill:
each attempt goes wrong with the given chance, in one of the ways below, drawn from the seed. The
document at the end is counted from the log and from git, and each commit of main is checked out
and gated again by itself.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.app.fleet import Fleet, FleetConfig
from leadhand.core.policy import Policy
from leadhand.core.recoveries import recoveries
from leadhand.fleet.coder.template import TemplateCoder
from leadhand.fleet.gate import GateRules
from leadhand.fleet.git import Git
from leadhand.fleet.train import Rules
from leadhand.fleet.worker import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.fleet.coder.base import Coder
    from leadhand.workers.processes import Processes

FAULTS = (
    "crash",
    "hang",
    "false done",
    "bad diff",
    "gate red",
    "deletes its slot",
    "rewrites history",
    "plants a hook",
)
HARMLESS = frozenset({"rewrites history", "plants a hook"})
"""Deeds that change nothing of what is taken: the task lands all the same."""
GATE = (
    "import pathlib, runpy, sys, time; sys.path.insert(0, '.'); began = time.monotonic();"
    "[runpy.run_path(str(p)) for p in sorted(pathlib.Path('checks').glob('*.py'))];"
    "time.sleep(max(0.0, float(sys.argv[1]) - time.monotonic() + began))"
)


class Trial(NamedTuple):
    """What is tried."""

    agents: int = 20
    tasks: int = 100
    faults: float = 0.0
    gate_s: float = 0.0
    work_s: float = 0.0
    seed: int = 1
    strict: bool = False
    silence_s: float = 5.0


async def simulate(
    trial: Trial, told: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Run it, and count."""
    with tempfile.TemporaryDirectory(prefix="leadhand-fleet-") as place:
        folder = Path(place)
        await _repository(folder / "repo", folder)
        faults = _drawn(trial)
        marker = folder / "hook-ran"
        told_agents = {"faults": faults, "work_s": trial.work_s, "marker": str(marker)}
        (folder / "faults.json").write_text(json.dumps(told_agents))
        began = time.monotonic()
        async with Fleet(_config(trial, folder), _coders(folder)) as fleet:
            fleet.submit(_epic(trial, folder))
            waiting = asyncio.get_running_loop().create_task(fleet.idle())
            while not waiting.done():
                await asyncio.wait([waiting], timeout=1.0)
                if told is not None:
                    told(await fleet.status())
            await waiting
            took = time.monotonic() - began
            found = await _counted(trial, fleet, faults, took)
        hooks = marker.read_text().count("ran") if marker.exists() else 0
        return {**found, "hooks_run": hooks}


def _config(trial: Trial, folder: Path) -> FleetConfig:
    return FleetConfig(
        repo=folder / "repo",
        folder=folder / "fleet",
        gate=GateRules(commands=((sys.executable, "-I", "-c", GATE, str(trial.gate_s)),)),
        agents=trial.agents,
        sandbox="none",
        rules=Rules(strict=trial.strict),
        limits=Limits(time_s=120, silence_s=trial.silence_s),
        policy=Policy(backoff_s=0.1, jitter=0.1, max_concurrency=trial.agents * 4),
        stagger_s=0.0,
    )


def _coders(folder: Path) -> Callable[[Processes], list[tuple[str, Coder, str]]]:
    script = Path(__file__).resolve().parent.parent / "fleet" / "pretend.py"
    command = [sys.executable, "-I", "-S", str(script), "{task}", "{attempt}"]

    def made(processes: Processes) -> list[tuple[str, Coder, str]]:
        argv = [*command, str(folder / "faults.json")]
        homes = folder / "homes"
        return [
            ("coder", TemplateCoder("pretend", argv, processes=processes, homes=homes), "small"),
            ("coder@strong", TemplateCoder("able", argv, processes=processes, homes=homes), "big"),
        ]

    return made


def _drawn(trial: Trial) -> dict[str, list[str]]:
    """For each task what its attempts do, until one goes right."""
    draw = random.Random(trial.seed)  # noqa: S311 - faults, not secrets
    found: dict[str, list[str]] = {}
    for task in _names(trial):
        while draw.random() < trial.faults:
            found.setdefault(task, []).append(draw.choice(FAULTS))
    return found


def _names(trial: Trial) -> list[str]:
    return [f"m{number:04}" for number in range(trial.tasks)]


def _epic(trial: Trial, folder: Path) -> Path:
    lines = [
        f"  - {{id: {name}, goal: write the module {name} and its check,"
        f" writes: [modules/{name}.py, checks/{name}.py]}}"
        for name in _names(trial)
    ]
    path = folder / "trial.md"
    path.write_text("# A trial\n\nModules.\n\n```yaml\ntasks:\n" + "\n".join(lines) + "\n```\n")
    return path


async def _repository(repo: Path, folder: Path) -> None:
    (repo / "modules").mkdir(parents=True)
    (repo / "checks").mkdir()
    (repo / "README.md").write_text("A repository on trial.\n")
    (repo / "modules" / "__init__.py").write_text("")
    (repo / "checks" / "first.py").write_text("import modules\n\nassert modules\n")
    (folder / "gitconfig").write_text("[user]\nname = Trial\nemail = trial@localhost\n")
    git = Git(repo / ".git", folder / "gitconfig")
    await git("init", "--quiet", "--initial-branch=main", str(repo))
    await git("--work-tree", str(repo), "add", "--all")
    await git("--work-tree", str(repo), "commit", "--quiet", "--message", "The beginning")


async def _counted(
    trial: Trial, fleet: Fleet, faults: dict[str, list[str]], took: float
) -> dict[str, Any]:
    (ident,) = fleet._runs  # noqa: SLF001 - its other half
    status = await fleet.status()
    commits = [c for c in await fleet.shop.hub.commits() if "Leadhand-Task" in c.trailers]
    landed = {commit.trailers["Leadhand-Task"] for commit in commits}
    gate = fleet.shop.gate
    red = [each.sha for each in commits if not (await gate.check(each.sha)).ok]
    events = [event for _, event in fleet.events(ident)]
    answers = recoveries(iter(events))
    by_class: dict[str, dict[str, int]] = {}
    for answer in answers:
        row = by_class.setdefault(answer.failure_class, {"times": 0, "won": 0})
        row["times"] += 1
        row["won"] += answer.won is True
    failing = {task for task, drawn in faults.items() if any(f not in HARMLESS for f in drawn)}
    recovered = len(failing & landed)
    return {
        "agents": trial.agents,
        "tasks": trial.tasks,
        "landed": len(landed),
        "peak_agents": status["agents"]["peak"],
        "seconds": round(took, 1),
        "per_hour": round(len(commits) / took * 3600) if took else 0,
        "faults": sum(map(len, faults.values())),
        "recovery_rate": round(recovered / len(failing), 4) if failing else 1.0,
        "recovery_by_class": by_class,
        "red_commits": len(red),
        "lost": trial.tasks - len(landed) - len(fleet.questions(ident)),
        "waiting": len(fleet.questions(ident)),
        "twice": len(commits) - len(landed),
    }
