"""Replanning dialogues that were recorded with real models, through the model planner.

A model that plays the recorded rounds stands where a provider would. Each recorded plan is put
before the planner alone: its verdict is compared with the label, and what it sends back with what
the benchmark's own verifier sent. Then the whole dialogue is held, with the usual cap on rounds.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from leadhand import Propose
from leadhand.core.catalog import Catalog
from leadhand.core.report import PlannerView
from leadhand.models.messages import ModelAnswer, Usage
from leadhand.models.meter import ModelCall, payer
from leadhand.planners.goal.world import fold
from leadhand.planners.model.planner import ROUNDS, ModelPlanner
from leadhand.planners.proposal_check import ends_short
from leadhand.testing import ScriptedModel
from tests.external import data, pursuit

FORMS = ("data", "list")
"""A plan comes as data in our form, or as a numbered list."""


class Ledger:
    """Adds up what calls used."""

    def __init__(self) -> None:
        self.tokens = 0

    async def reserve(self, wanted: float, least: float) -> float:
        """There is no limit."""
        return wanted

    def settle(self, reserved: float, call: ModelCall) -> None:
        """One more call."""
        self.tokens += call.usage.input + call.usage.output


class Verdict(NamedTuple):
    """What was said of one recorded plan."""

    accepted: bool
    valid: bool
    named: bool
    """Whether the feedback names the step and the need that the recorded one names."""
    feedback: str


class Played(NamedTuple):
    """One dialogue."""

    name: str
    verdicts: tuple[Verdict, ...]
    asked: int
    """How often the model was asked, with the usual cap."""
    solved: bool
    ought: tuple[int, bool]
    """How often it ought to have been asked, by the labels, and whether that brings a plan."""
    tokens: int
    ledger: int
    """Tokens as recorded, and as our planner's calls add up to."""


def cases() -> list[Any]:
    """All dialogues whose problem is there."""
    folder = data.folder("planbench")
    known = {
        path.name: pursuit.texts(path.name).problems
        for path in sorted((folder / "pddl").glob("*"))
        if path.is_dir()
    }
    return [
        row
        for path in sorted(folder.glob("recorded_replan_dialogues.jsonl*"))
        for row in data.rows(path)
        if f"instance-{row['instance']}.pddl" in known.get(row["task"], ())
    ]


def play(row: Any) -> Played:
    """One dialogue: each plan alone, then all of it."""
    problem = pursuit.problem(pursuit.texts(row["task"]), f"instance-{row['instance']}.pddl")
    crew = pursuit.workers(problem.actions, problem.world(), pursuit.Faults(), pursuit.Log())
    view = PlannerView(
        run="r",
        goal=problem.goal,
        call=1,
        why="start",
        catalog=Catalog(worker.spec for worker in crew),
        params=dict(problem.goal.have),
    )
    for each in row["rounds"]:
        if each["valid"] is None:  # There is no record of the verifier, but of the end.
            each["valid"] = row["final_correct"]
    spoken = [[line.strip().lower() for line in each["plan"] or ()] for each in row["rounds"]]
    plans = [calls_of(lines) for lines in spoken]
    verdicts = [
        _verdict(plan, lines, each, view, form)
        for plan, lines, each in zip(plans, spoken, row["rounds"], strict=True)
        for form in FORMS
    ]
    ledger = Ledger()
    payer.set(ledger)
    model = ScriptedModel(_spoken(plans, row["rounds"]))
    decision = asyncio.run(ModelPlanner(model, rounds=ROUNDS, tokens=200).decide(view))
    ought = _ought(plans, [each["valid"] for each in row["rounds"]])
    used = [each["usage"]["total_tokens"] or 0 for each in row["rounds"]]
    return Played(
        f"{row['task']} {row['model']} {row['instance']}",
        tuple(verdicts),
        len(model.requests),
        isinstance(decision, Propose),
        ought,
        sum(used[min(i, len(used) - 1)] for i in range(ought[0])),
        ledger.tokens,
    )


def _spoken(plans: list[list[str]], rounds: list[Any]) -> Any:
    """The recorded rounds, the last of them for ever."""
    turns = iter(range(1000))

    def speak(_request: Any) -> ModelAnswer:
        turn = min(next(turns), len(plans) - 1)
        used = rounds[turn]["usage"]
        usage = Usage(used["prompt_tokens"] or 0, used["completion_tokens"] or 0)
        return ModelAnswer(text="recorded", data=_answer(plans[turn]), usage=usage)

    return speak


def calls_of(lines: list[str]) -> list[str]:
    """The calls of a recorded plan, without brackets; some models write several on one line."""
    return [
        call.strip("() ") for line in lines for call in (re.findall(r"\([^()]*\)", line) or [line])
    ]


def _verdict(
    plan: list[str], lines: list[str], recorded: Any, view: PlannerView, form: str
) -> Verdict:
    """The planner's word on one plan; a second question shows what it sends back.

    As data a step is one call; as a list the lines are those that the model wrote.
    """
    asked = _list(lines) if form == "list" else _answer(plan)
    model = ScriptedModel([asked, {"kind": "give_up", "because": "", "reason": "x"}])
    style = "list" if form == "list" else "whole"
    planner = ModelPlanner(model, rounds=2, tokens=200, style=style)
    decision = asyncio.run(planner.decide(view))
    accepted = isinstance(decision, Propose)
    if accepted and form == "list":
        # A list has no last word: whether its end is the goal is judged where it ends.
        world = fold(view)
        accepted = not ends_short(list(decision.steps), view, world)
    sent = model.requests[1].turns[-1].text if len(model.requests) > 1 else ""
    return Verdict(accepted, recorded["valid"], _names(sent, recorded["feedback"] or ""), sent)


def _list(lines: list[str]) -> str:
    closed = [line if line.startswith("(") else f"({line})" for line in lines]
    return "\n".join(f"{i}. {line}" for i, line in enumerate(closed, 1)) or "(none)"


def _answer(plan: list[str]) -> Any:
    steps = [
        {
            "id": f"s{i}",
            "worker": call.split(" ")[0],
            "action": ".".join(call.split(" ")[1:]),
            "depends_on": [f"s{i - 1}"] if i > 1 else [],
        }
        for i, call in enumerate(plan, 1)
    ]
    return {"kind": "propose", "because": "recorded", "steps": steps, "final": True}


def _names(sent: str, recorded: str) -> bool:
    """Whether our feedback names the step and a need of the recorded feedback, where it has one."""
    step = re.search(r"Time step: (\d+)", recorded)
    needs = re.findall(r"^\(([a-z][^()]*)\)$", recorded, flags=re.MULTILINE)
    if step is None or not needs:
        return True
    return f"step {step[1]} " in sent and any(need.replace(" ", ":") in sent for need in needs)


def _ought(plans: list[list[str]], valid: list[bool]) -> tuple[int, bool]:
    """Until the first valid plan, a repeated one, or the cap."""
    seen: list[list[str]] = []
    for number in range(1, ROUNDS + 1):
        turn = min(number, len(plans)) - 1
        if valid[turn]:
            return number, True
        if plans[turn] and plans[turn] in seen:
            return number, False
        seen.append(plans[turn])
    return ROUNDS, False
