"""Plans that models wrote, carried out step by step, with the goal planner behind them.

The first planner proposes the recorded plan's next action, whatever it is. At the first one that
cannot be done the goal planner takes over (`Hybrid`). The judge is the problem's own world.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from leadhand import Finish, Hybrid, PlannerView, Propose
from tests.external import data, pursuit

Case = tuple[str, str]
"""A domain, and a problem in it."""


class Played(NamedTuple):
    """What became of one recorded plan."""

    alone: bool
    """The judge's word on the plan as it was written."""
    result: pursuit.Result
    label: bool | None
    """The benchmark's own word on it."""


def cases() -> dict[Case, list[dict[str, Any]]]:
    """All plans whose problem is there, by problem."""
    folder = data.folder("planbench")
    known = {
        path.name: pursuit.texts(path.name).problems
        for path in sorted((folder / "pddl").glob("*"))
        if path.is_dir()
    }
    found: dict[Case, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("recorded_llm_plans.jsonl*")):
        for row in data.rows(path):
            name = f"instance-{row['instance']}.pddl"
            if name in known.get(row["domain"], ()):
                kept = {"plan": row["plan"], "label": row.get("label_correct")}
                found.setdefault((row["domain"], name), []).append(kept)
    return found


def play(case: Case, rows: list[dict[str, Any]]) -> list[Played]:
    """Every plan that was recorded for one problem."""
    domain, name = case
    problem = pursuit.problem(pursuit.texts(domain), name)
    found = []
    for row in rows:
        calls = [call.strip("() ").lower().split() for call in row["plan"] or ()]
        alone = problem.world()
        valid = not any(alone.do(call[0] if call else "", call[1:]) for call in calls)
        result = pursuit.pursue(problem, Hybrid(follows(calls)))
        found.append(Played(valid and alone.reached, result, row["label"]))
    return found


def follows(calls: list[list[str]]) -> Any:
    """A planner that proposes the next call of a plan, then says that it is done."""

    async def recorded(view: PlannerView) -> Propose | Finish:
        number = len(view.timeline)
        if number >= len(calls):
            return Finish()
        worker, *objects = calls[number] or [""]
        step = {"id": f"s{number + 1}", "worker": worker, "action": ".".join(objects)}
        return Propose((step,))

    return recorded
