"""A library and an application that pins a commit of it: two repositories, and their fleet.

    python -m tests.fleet.pair FOLDER       the same fleet as a process, until it is idle

The application is the main repository. Its gate takes the library from the hub of the fleet, at the
commit that `lib.pin` names. A task's agent does what `TRICKS` says, and notes that it was there.
"""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits, RepositoryConfig
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.repositories import variables
from leadhand.fleet.service import Fleet, FleetConfig
from tests.fleet.places import make_repo, run_git

LIB = {
    "lib.py": "def double(x):\n    return 2 * x\n",
    "check.py": "import lib\nassert lib.double(2) == 4\n",
}
APP_CHECK = textwrap.dedent(
    """
    import os, pathlib, subprocess, sys, types
    pin = pathlib.Path("lib.pin").read_text().strip()
    git = ["git", "--git-dir=" + os.environ["LEADHAND_REPOSITORY_LIB"], "show", pin + ":lib.py"]
    code = subprocess.run(git, check=True, capture_output=True).stdout
    sys.modules["lib"] = types.ModuleType("lib")
    exec(code, sys.modules["lib"].__dict__)
    import app
    assert app.answer() in (4, 6)
    """
)
APP = {
    "app.py": "import lib\n\n\ndef answer():\n    return lib.double(2)\n",
    "check.py": APP_CHECK,
}
AGENT = textwrap.dedent(
    """
    import json, os, pathlib, re, sys, time
    task, attempt, brief = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).read_text()
    told = pathlib.Path(sys.argv[4])
    told.joinpath(f"brief-{task}-{attempt}.md").write_text(brief)
    with told.joinpath("began").open("a") as file:
        file.write(task + "\\n")
    trick = json.loads(told.joinpath("tricks.json").read_text()).get(task.partition("-")[0], "")
    while trick == "waits" and not told.joinpath("go").exists():
        time.sleep(0.05)
    if task.startswith("triple"):
        wrong = "raise SystemExit(1)\\n" if trick == "red" else ""
        with open("lib.py", "a") as file:
            file.write("\\n\\ndef triple(x):\\n    return 3 * x\\n" + wrong)
    elif task.startswith("use"):
        pin = re.search(r"^- ([0-9a-f]{40}) \\(task triple", brief, re.MULTILINE)
        pathlib.Path("lib.pin").write_text((pin[1] if pin else "none") + "\\n")
        value = 7 if trick == "red" else "lib.triple(2)"
        text = f"import lib\\n\\n\\ndef answer():\\n    return {value}\\n"
        pathlib.Path("app.py").write_text(text)
    else:
        pathlib.Path(task + ".txt").write_text(task)
    """
)
RUN = [sys.executable, "check.py"]
TRIPLE = {
    "id": "triple",
    "goal": "Add triple to the library.",
    "repository": "lib",
    "writes": ["lib.py"],
    "acceptance": [RUN],
}
USE = {
    "id": "use",
    "goal": "Answer by triple of the library.",
    "writes": ["app.py", "lib.pin"],
    "depends_on": ["triple"],
    "acceptance": [RUN],
}


def make_pair(folder, tricks=None):
    """Make both repositories, the agent, and the folder that it is told things in."""
    first = make_repo(folder / "lib", LIB)
    make_repo(folder / "app", {**APP, "lib.pin": f"{first}\n"})
    (folder / "told").mkdir()
    (folder / "told" / "tricks.json").write_text(json.dumps(tricks or {}))
    (folder / "agent.py").write_text(AGENT)


def open_pair(folder, planner=None, *, lib=None, **more):
    """Return the fleet of both; `lib` has further settings of the library."""
    place = folder / "fleet"
    env = {**variables(place, ["lib"]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(folder / "agent.py"), "{task}", "{attempt}", "{brief_file}"]
    command += [str(folder / "told"), "{session}"]
    gate = GateRules(commands=((sys.executable, "check.py"),), env=env)

    def coders(processes):
        homes = folder / "homes"
        return [
            ("coder", TemplateCoder("scripted", command, processes=processes, homes=homes), "s")
        ]

    config = FleetConfig(
        **{
            "repo": folder / "app",
            "folder": place,
            "gate": gate,
            "publish": "leadhand/main",
            "agents": 4,
            "sandbox": "none",
            "limits": AttemptLimits(time_s=300, silence_s=200),
            "policy": Policy(backoff_s=0.01, jitter=0.0),
            "stagger_s": 0.0,
            "load": 10_000.0,
            "planner": planner,
            "repositories": {
                "lib": RepositoryConfig(
                    **{
                        "repo": folder / "lib",
                        "gate": gate,
                        "publish": "leadhand/main",
                        **(lib or {}),
                    }
                )
            },
            **more,
        }
    )
    return Fleet(config, coders)


def epic_of(folder, *tasks, name="both", acceptance=()):
    """Write an epic with these tasks; JSON is YAML too."""
    path = folder / f"{name}.md"
    head = json.dumps({"tasks": list(tasks), "acceptance": list(acceptance)})
    path.write_text(f"# Answer by triple\n\nThe library learns it first.\n\n```yaml\n{head}\n```\n")
    return path


def began(folder):
    """Return the tasks whose agents began, in order."""
    place = folder / "told" / "began"
    return place.read_text().split() if place.exists() else []


def green(folder, repository, commits, env):
    """Return whether the check of a repository passes at each of these commits, by itself."""
    found = []
    for commit in commits:
        place = folder / f"proof-{commit}"
        run_git(folder, "clone", "-q", str(repository), str(place))
        run_git(place, "checkout", "-q", commit)
        found.append(
            subprocess.run(RUN, cwd=place, env={**os.environ, **env}, check=False).returncode
        )
    return found


async def main(folder):
    async with open_pair(folder) as fleet:
        await fleet.idle()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
