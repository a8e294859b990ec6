"""Measure how a fleet waits out usage limits: twenty agents on one login, and two walls.

    python -m tests.fleet.walls [SECONDS]       how long each wall stands; default 120

The agents are scripts of one `command` coder; the provider is a file that says from when to when it
refuses. The first wall rises when the seventh agent begins, the second one when the first agent
begins after the first wall. Times are those of the agents' own notes and of the fleet's journal.

    parked       from the first refusal until the last agent at work has ended
    within       agents that began while the wall stood, later than the last one was parked
    goes on      from the end of the wall until the first agent begins again
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.service import Fleet, FleetConfig
from leadhand.fleet.status import journal
from tests.fleet.places import make_repo

AGENTS = 20
WORK_S = 4.0
AGENT = """
import fcntl, json, pathlib, sys, time
task, session, shared, seconds, work = *sys.argv[1:4], float(sys.argv[4]), float(sys.argv[5])
shared = pathlib.Path(shared)
walls = shared / "walls.json"
with open(shared / "lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    with open(shared / "starts.jsonl", "a") as file:
        file.write(json.dumps([time.time(), task, session]) + "\\n")
    number = len((shared / "starts.jsonl").read_text().splitlines())
    known = json.loads(walls.read_text()) if walls.exists() else []
    if number == 7 or len(known) == 1 and time.time() > known[0][1]:
        known.append([time.time(), time.time() + seconds])
        fresh = shared / "walls.new"
        fresh.write_text(json.dumps(known))
        fresh.rename(walls)
print(json.dumps({"type": "session", "session": f"talk-{task}"}), flush=True)
until = time.time() + work
while time.time() < until:
    now = time.time()
    for begin, end in json.loads(walls.read_text()) if walls.exists() else []:
        if begin <= now < end:
            print(json.dumps({"type": "error", "failure": "rate_limited",
                              "retry_after_s": end - now,
                              "text": "You've hit your session limit"}), flush=True)
            sys.exit(1)
    time.sleep(0.1)
pathlib.Path(f"{task}.py").write_text(f"name = {task!r}\\n")
print(json.dumps({"type": "result", "text": "done"}), flush=True)
"""


def epic(count):
    """An epic of tasks that have nothing in common."""
    rows = "\n".join(
        f"  - {{id: t{n}, goal: write the module t{n}, writes: [t{n}.py]}}" for n in range(count)
    )
    return f"# Modules\n\nWe want modules.\n\n```yaml\ntasks:\n{rows}\n```\n"


async def measure(folder, seconds):
    """Run one fleet to its end; return its figures."""
    make_repo(folder / "user")
    agent, shared = folder / "agent.py", folder / "shared"
    shared.mkdir()
    agent.write_text(AGENT)
    words = ["{task}", "{session}", str(shared), str(seconds), str(WORK_S)]

    def coders(processes):
        homes = folder / "homes"
        argv = [sys.executable, str(agent), *words]
        made = TemplateCoder("it", argv, processes=processes, homes=homes, login="team")
        return [("coder", made, "")]

    config = FleetConfig(
        repo=folder / "user",
        folder=folder / "fleet",
        gate=GateRules(commands=((sys.executable, "-c", "pass"),)),
        agents=AGENTS,
        sandbox="none",
        load=1e6,
        limits=AttemptLimits(time_s=600, silence_s=500),
        policy=Policy(backoff_s=0.1),
        stagger_s=0.0,
    )
    text = folder / "modules.md"
    text.write_text(epic(2 * AGENTS))
    began = time.monotonic()
    async with Fleet(config, coders) as fleet:
        run = fleet.submit(text)
        await fleet.idle()
        state = fleet._runs[run].state
        landed = len(await fleet.shop.hub.commits())
    return figures(folder, state, landed, time.monotonic() - began)


def figures(folder, state, landed, seconds):
    """Count from the agents' notes, the journal and the log."""
    lines = (folder / "shared" / "starts.jsonl").read_text().splitlines()
    starts = sorted(json.loads(line)[0] for line in lines)
    notes = journal.read(folder / "fleet")
    ends = sorted(note["at"] / 1e6 for note in notes if note["what"] == "agent ended")
    rows = []
    for begin, end in json.loads((folder / "shared" / "walls.json").read_text()):
        stopped = [at for at in ends if begin <= at < end]
        last = stopped[-1]
        after = [at for at in starts if at >= end]
        rows.append(
            {
                "stood_s": round(end - begin, 1),
                "stopped": len(stopped),
                "parked_s": round(last - begin, 2),
                "within": sum(last < at < end for at in starts),
                "goes_on_s": round(after[0] - end, 2) if after else None,
            }
        )
    tries = [step.attempts for step in state.steps.values()]
    failed = sum(bool(step.failures) for step in state.steps.values())
    return {
        "tasks": len(tries),
        "landed": landed,
        "tries": max(tries),
        "failed": failed,
        "seconds": round(seconds, 1),
        "walls": rows,
    }


def main():
    """Print the figures, with the load of the machine."""
    seconds = float(sys.argv[1]) if sys.argv[1:] else 120.0
    with tempfile.TemporaryDirectory(prefix="walls-") as folder:
        found = asyncio.run(measure(Path(folder), seconds))
    load = float(Path("/proc/loadavg").read_text().split()[0])
    print(json.dumps({**found, "load": load}, indent=1))


if __name__ == "__main__":
    main()
