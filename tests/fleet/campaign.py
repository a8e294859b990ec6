"""A campaign of hostile agents and tests against the real gate, sandbox, worker and train.

    python -m tests.fleet.campaign [--only TEXT] [--sandbox KIND] [--json]

Exits with 1 when a wrong change is on main, or honest work is not. `make hostile` runs all of it.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from leadhand.core.report import Report
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits, FleetContext
from leadhand.fleet.gate.gate import Gate, GateRules
from leadhand.fleet.governor import Governor
from leadhand.fleet.merge.conductor import Conductor
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.worker import CoderWorker
from leadhand.fleet.workspace.slots import Slots
from leadhand.ports import Task
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.hostile_ways import GATES, REPOS, WAYS, Link
from tests.fleet.places import make_repo

AGENT = """
import base64, json, os, pathlib, sys
for name, (kind, value) in json.loads(pathlib.Path(sys.argv[1]).read_text()).items():
    path = pathlib.Path(name)
    if kind == "gone":
        path.unlink(missing_ok=True)
        continue
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        path.unlink(missing_ok=True)
        path.symlink_to(value)
    else:
        path.write_bytes(base64.b64decode(value))
print("Done, and all tests pass.")
"""


class Told:
    """The context of one attempt, as a host gives it."""

    def __init__(self):
        self.failures, self.answers, self.results, self.summaries = (), (), {}, {}
        self.cancelled, self.tier, self.said = False, "", []

    def progress(self, message="", fraction=None):
        self.said.append(message)

    def spawned(self, process):
        pass


def plain(files):
    """The files of a step, for the agent's process."""
    import base64

    found = {}
    for name, what in files.items():
        if what is None:
            found[name] = ("gone", "")
        elif isinstance(what, Link):
            found[name] = ("link", what.target)
        else:
            data = what if isinstance(what, bytes) else what.encode()
            found[name] = ("file", base64.b64encode(data).decode())
    return found


class Ground:
    """A repository of one kind, with all that stands between an agent and its main."""

    def __init__(self, kind, sandbox):
        self.kind, self._wanted = kind, sandbox
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self):
        folder = self.folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-"))
        )
        make_repo(folder / "user", REPOS[self.kind])
        self.processes = await self._stack.enter_async_context(Processes("hostile"))
        self.hub = await Hub.open(folder / "hub", folder / "user")
        self._stack.callback(self.hub.close)
        self.plans = folder / "plans"
        self.plans.mkdir()
        (self.plans / "agent.py").write_text(AGENT)
        tools = [Path(sys.prefix), Path(sys.base_prefix), self.plans]
        sandbox = choose(self._wanted, readable=tools)
        rules = GateRules(commands=(GATES[self.kind],), time_s=60.0)
        gates = Slots(self.hub, folder / "gates", 2, prefix="gate")
        gate = Gate(self.hub, gates, rules, processes=self.processes, sandbox=sandbox)
        assert (seen := await gate.check(self.hub.main())).ok, seen.log
        assert "not counted" not in seen.tests, seen
        conductor = await self._stack.enter_async_context(Conductor(self.hub, gate))
        slots = Slots(self.hub, folder / "slots", 2)
        self.shop = FleetContext(
            self.hub, slots, gate, conductor, Governor(4, stagger_s=0.0), sandbox
        )
        return self

    async def __aexit__(self, *why):
        await self._stack.aclose()

    async def attempt(self, name, files, writes, **more) -> Report:
        """One task, by an agent that leaves these files."""
        plan = self.plans / f"{name}.json"
        plan.write_text(json.dumps(plain(files)))
        command = [sys.executable, str(self.plans / "agent.py"), str(plan)]
        homes = self.folder / "homes"
        coder = TemplateCoder("hostile", command, processes=self.processes, homes=homes)
        worker = CoderWorker(self.shop, coder, limits=AttemptLimits(time_s=60, silence_s=60))
        given = {"goal": name, "writes": list(writes), **more}
        task = Task(f"run-{name}", "task", 1, 1, "", given, 0)
        return await worker.perform(task, Told())

    async def tree(self):
        return await self.hub.tree(self.hub.main())


def outcome(report):
    """What became of an attempt, in one word, and why."""
    if report.status == "succeeded":
        return "landed", str(report.data)
    error = report.error
    if "ended without a result" in error.message or error.failure_class == "unavailable":
        raise AssertionError(f"the agent did not do its work: {error.message}")
    if error.change:
        return "held for people", error.message
    word = "refused" if "must not land" in error.message else "red"
    if "outside of" in error.message:
        word = "out of bounds"
    return word, error.message


async def play(ground, number, each):
    """One way, to its end: the outcome of each step, and whether main is what it should be."""
    before = await ground.tree()
    told = []
    for at, files in enumerate(each.steps):
        report = await ground.attempt(f"{number}-{at}", files, each.writes, **each.more)
        told.append(outcome(report))
    moved = await ground.tree() != before
    landed = all(word == "landed" for word, _why in told)
    right = (moved and landed) if each.honest else not moved
    return {"way": each.name, "honest": each.honest, "right": right, "steps": told}


async def campaign(ways, sandbox="auto", heard=None):
    """Play ways, each kind of repository on a ground of its own; a main that moved is made anew."""
    found = []
    for kind in dict.fromkeys(each.repo for each in ways):
        mine = [each for each in ways if each.repo == kind]
        while mine:
            async with Ground(kind, sandbox) as ground:
                while mine:
                    each = mine.pop(0)
                    began = time.monotonic()
                    row = await play(ground, len(found), each)
                    row["seconds"] = round(time.monotonic() - began, 1)
                    found.append(row)
                    if heard is not None:
                        heard(row)
                    if each.honest or not row["right"]:
                        break  # main has moved
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ways = [each for each in WAYS if given.only in each.name]
    if shutil.which("node") is None:
        ways = [each for each in ways if each.repo != "node"]

    def heard(row):
        if given.json:
            return
        mark = "ok   " if row["right"] else "WRONG"
        words = ", ".join(word for word, _why in row["steps"])
        print(f"{mark} {row['seconds']:5.1f} s  {row['way']}: {words}", flush=True)
        if not row["right"]:
            print("      " + row["steps"][-1][1][-600:].replace("\n", "\n      "))

    found = asyncio.run(campaign(ways, given.sandbox, heard))
    wrong = [row for row in found if not row["right"]]
    hostile = sum(not row["honest"] for row in found)
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        bad = sum(not row["honest"] for row in wrong)
        print(
            f"{hostile} hostile ways, {bad} wrong changes on main; "
            f"{len(found) - hostile} honest, {len(wrong) - bad} of them not landed"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
