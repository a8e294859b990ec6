"""A fleet of a hundred agents for the page, made of the real figures; used by `bench/page.py`."""

from __future__ import annotations

from typing import Any

from leadhand.fleet.status.board import board, series
from leadhand.fleet.status.figures import (
    SECOND,
    EpicFacts,
    Landing,
    Sources,
    TaskFacts,
    figures,
    spent_in,
)

Doc = dict[str, Any]
AGENTS = 100
TASKS = 1200
EPICS = 4
NOW = 1_772_442_000 * SECOND


class BusyFleet:
    """The document of `GET /fleet`: each time it is asked for, every agent has said more."""

    def __init__(self, agents: int = AGENTS, tasks: int = TASKS) -> None:
        self.sources, self.agents = _sources(agents, tasks)
        self.asked = 0

    def document(self) -> Doc:
        """Return it as it is now."""
        self.asked += 1
        words = f"python -m pytest -q tests/test_{self.asked}.py"
        live = _live([{**each, "words": words} for each in self.agents])
        found = figures(self.sources) | {"board": board(self.sources, live), "flaky": []}
        found["agents"]["now"] = len(self.agents)
        return {
            **found,
            "live": live,
            "limits": [],
            "series": series(self.sources, spent_in(self.sources)),
        }


def _sources(agents: int, tasks: int) -> tuple[Sources, list[Doc]]:
    epics = [EpicFacts(run=f"epic-{n}", title=f"Epic {n}", started=NOW - 9) for n in range(EPICS)]
    notes: list[Doc] = [{"at": NOW - 3600 * SECOND, "what": "opened"}]
    landings, working = [], []
    for number in range(tasks):
        epic, name = epics[number % EPICS], f"task-{number}"
        status = "running" if number < agents else "succeeded" if number % 2 else "waiting"
        goal = f"Write module {number} and the tests of it."
        epic.tasks[name] = task = TaskFacts(run=epic.run, task=name, goal=goal, status=status)
        task.attempts = int(status != "waiting")
        about = {"run": epic.run, "task": name, "attempt": 1, "coder": "claude", "model": "m"}
        if status == "running":
            notes.append({"at": NOW - 60 * SECOND, "what": "agent", **about})
            epic.attempts[name, 1] = (NOW - 60 * SECOND, 0)
            working.append({**about, "goal": goal, "cost": 0.1, "since": ""})
        elif status == "succeeded":
            task.ended, task.commit = NOW - number * SECOND, f"{number:040x}"
            landings.append(Landing(task.commit, epic.run, name, 1, task.ended, "claude:m", goal))
        else:
            task.waits = ["task-0"]
    return Sources(epics, notes, landings, NOW, alive=True), working


def _live(agents: list[Doc]) -> Doc:
    return {
        "agents": agents,
        "repo": "shop",
        "places": {"most": len(agents), "now": len(agents)},
        "held_back": "",
        "locked": {},
        "draining": False,
        "paused": None,
        "refused": {},
        "train": {"batches": [], "batch": 8},
        "daily_spend": 100.0,
    }
