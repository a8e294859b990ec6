"""A fleet with a planner: agents that do as they are told, scripts that plan."""

import asyncio
import json
import sys
import textwrap

from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.planning.lint import PlanRules
from leadhand.fleet.service import Fleet, FleetConfig

AGENT = textwrap.dedent(
    """
    import json, pathlib, re, sys
    task, attempt, brief = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]).read_text()
    told = json.loads(pathlib.Path(sys.argv[4]).read_text())
    pathlib.Path(sys.argv[4]).parent.joinpath(f"brief-{task}-{attempt}.md").write_text(brief)
    tricks = told.get(task, [])
    trick = tricks[min(attempt, len(tricks)) - 1] if tricks else "good"
    block = re.search(r"# You may change\\n((?:- .*\\n)+)", brief)
    paths = [line[2:] for line in block[1].splitlines()]
    if trick in ("waits", "asks later"):
        import time
        while not pathlib.Path(sys.argv[4]).with_name("go").exists():
            time.sleep(0.05)
    if trick == "nothing":
        print("Done.")
    elif trick == "red":
        for path in paths:
            pathlib.Path(path).write_text("raise SystemExit(1)\\n")
    elif trick.startswith("asks") and "blue" not in brief:
        print("I do not know.\\nneeds: which colour?")
    else:
        for path in paths:
            place = pathlib.Path(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"name = {path!r}\\n")
        if trick.startswith("remarks"):
            print(trick.partition(" ")[2])
    """
)
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('.').glob('*.py')]"
EPIC = "# Modules\n\nWe want modules.\n\n```yaml\nacceptance: {0}\n```\n"


def there(*names):
    """A command that succeeds when files are there."""
    code = f"import os, sys; sys.exit(not all(map(os.path.exists, {list(names)!r})))"
    return [sys.executable, "-c", code]


def task(ident, *writes, **more):
    writes = list(writes or [f"{ident}.py"])
    base = {"id": ident, "goal": f"write the module {ident}", "writes": writes}
    return {**base, "acceptance": [there(*writes)], **more}


def wave(*tasks, **more):
    return {"kind": "wave", "because": "next", "tasks": list(tasks), **more}


def done(**more):
    return {"kind": "done", "because": "all is there", "summary": "Modules.", **more}


class Script:
    """A planner that answers from a list, and remembers what it was told."""

    def __init__(self, *answers):
        self.answers, self.told = list(answers), []

    def __call__(self, told):
        self.told.append(told)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(told) if callable(answer) else answer


def open_fleet(folder, user, planner, wrong=(), *, rules=None, **more):
    """A fleet whose agents do their tasks, but for those that are told to go wrong."""
    agent, tricks = folder / "agent.py", folder / "told" / "tricks.json"
    agent.write_text(AGENT)
    tricks.parent.mkdir(exist_ok=True)
    tricks.write_text(json.dumps(dict(wrong)))
    command = [sys.executable, str(agent), "{task}", "{attempt}", "{brief_file}", str(tricks)]

    def coders(processes):
        talks = [*command, "{session}"]
        return [
            (name, TemplateCoder(kind, talks, processes=processes, homes=folder / "homes"), kind)
            for name, kind in (("coder", "small"), ("coder@strong", "big"))
        ]

    config = {
        "repo": user,
        "folder": folder / "fleet",
        "gate": GateRules(commands=((sys.executable, "-c", GATE),)),
        "agents": 4,
        "sandbox": "none",
        "limits": AttemptLimits(time_s=30, silence_s=20),
        "policy": Policy(backoff_s=0.01, jitter=0.0),
        "stagger_s": 0.0,
        "planner": planner,
        "planning": rules or PlanRules(),
    }
    return Fleet(FleetConfig(**{**config, **more}), coders)


def epic(folder, *acceptance, name="modules", words=""):
    path = folder / f"{name}.md"
    path.write_text(EPIC.format(json.dumps([list(each) for each in acceptance])) + words)
    return path


async def settled(fleet, path):
    """Hand an epic in, and wait until it is over or waits for a person."""
    ident = fleet.submit(path)
    async with asyncio.timeout(90):
        await fleet.idle()
    return fleet._runs[ident]


async def say(run, question, choice, text=""):
    """What a person answers."""
    await run.submit_and_wait(
        lambda state, now: commands.answer(state, question.id, choice, "ann", now, text=text)
    )


def result(run):
    return run.state.ended.result


def revisions(fleet, run):
    return [e for _, e in fleet.events(run.id) if isinstance(e, ev.RevisionProposed)]


def landed(commits):
    return [each.trailers["Leadhand-Task"] for each in commits]
