"""A fleet with scripted agents, for tests that need a whole one."""

import asyncio
import sys

from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.service import Fleet, FleetConfig
from leadhand.fleet.status import journal

AGENT = """
import json, pathlib, sys, time
task, attempt, brief = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]).read_text()
tricks = json.loads(pathlib.Path(sys.argv[4]).read_text())
name, _, role = task.partition(".")
if role == "review":
    print(json.dumps({"type": "usage", "cost": tricks.get("review cost", 0.0)}), flush=True)
    time.sleep(tricks.get("review slow", 0.0))
    print(tricks.get("review", "APPROVE: it is fine"))
    sys.exit(0)
print("I begin with", task, flush=True)
print(json.dumps({"type": "usage", "cost": tricks.get("cost", 0.0)}), flush=True)
time.sleep(tricks.get("slow", {}).get(task, 0.0))
mine = tricks.get(task, [])
trick = mine[attempt - 1] if attempt <= len(mine) else "good"
if trick == "nothing":
    sys.exit(0)
if trick == "red":
    pathlib.Path(f"{task}.py").write_text("raise SystemExit(1)\\n")
elif trick == "guarded":
    pathlib.Path("guarded").mkdir(exist_ok=True)
    pathlib.Path(f"guarded/{task}.py").write_text(f"attempt = {attempt}\\n")
elif trick == "append":
    with pathlib.Path(f"guarded/{task}.py").open("a") as file:
        file.write(f"attempt = {attempt}\\n")
else:
    pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
print("token=abc123secret456 and done")
"""
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('.').glob('*.py')]"
TASK = "  - {{id: {0}, goal: write the module {0}, writes: [{0}.py, guarded/{0}.py]}}"


def epic(folder, name, *tasks):
    path = folder / f"{name}.md"
    lines = "\n".join(TASK.format(task) for task in tasks)
    path.write_text(f"# {name}\n\nModules.\n\n```yaml\ntasks:\n{lines}\n```\n")
    return path


def standing(tmp_path, user, tricks="{}", **more):
    """A function that opens the fleet; again and again, on the same folder."""
    agent, told = tmp_path / "agent.py", tmp_path / "tricks.json"
    agent.write_text(AGENT)
    told.write_text(tricks)
    command = [sys.executable, str(agent), "{task}", "{attempt}", "{brief_file}", str(told)]
    config = FleetConfig(
        **{
            "repo": user,
            "folder": tmp_path / "fleet",
            "gate": GateRules(commands=((sys.executable, "-c", GATE),)),
            "agents": 4,
            "sandbox": "none",
            "limits": AttemptLimits(time_s=30, silence_s=20),
            "policy": Policy(backoff_s=0.01, jitter=0.0),
            "stagger_s": 0.0,
            **more,
        }
    )

    def coders(processes):
        homes = tmp_path / "homes"
        return [
            ("coder", TemplateCoder("scripted", command, processes=processes, homes=homes), "s"),
            ("coder@big", TemplateCoder("big", command, processes=processes, homes=homes), "l"),
        ]

    return lambda: Fleet(config, coders)


async def settled(fleet):
    """Wait until a fleet has nothing to do."""
    async with asyncio.timeout(60):
        await fleet.idle()


def noted(folder, what):
    """Return the notes of one kind in a fleet's journal."""
    return [note for note in journal.read(folder / "fleet") if note["what"] == what]
