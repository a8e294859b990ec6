"""Planners of one step at a time, under ordinary faults: all reach the goal, or ask a person.

    example   `examples/iterative` as it stands, with five firms that are each busy once
    script    a function like it that proposes again what failed, 30 % of all calls fail in passing
    model     a `next_step` model that reads its prompt and answers sensibly, under the same faults

Script and model propose one step at a time for every other seed, and else all that can start now.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from leadhand import Finish, Goal, Propose, RateLimited, Transient, worker
from leadhand.core import events as ev
from leadhand.planners.model.planner import ModelPlanner
from leadhand.testing import Deadlock, ScriptedModel, simulate

SEEDS = 200
SHAKY = 0.3
FIRMS = {"Acme": 12.0, "Globex": 9.5, "Initech": 11.0, "Umbrella": 14.25, "Hooli": 10.0}
ANSWER = "Globex is cheapest at 9.50"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "iterative" / "workers.py"


class Played(NamedTuple):
    """What came of one run."""

    kind: str
    seed: int
    end: str
    """reached, asked, or what else happened."""
    asked: int
    """How often the planner was asked."""
    refused: int
    """How many of its answers were refused."""
    violations: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether it reached the goal or asked a person."""
        return self.end in ("reached", "asked")


def cases(seeds: int = SEEDS) -> list[tuple[str, int]]:
    """Every planner with its seeds."""
    return [(kind, seed) for kind in PLANNERS for seed in range(seeds)]


def play(case: tuple[str, int]) -> Played:
    """One run in virtual time."""
    kind, seed = case
    if kind == "example":
        crew, planner = _example(seed)
    else:
        crew = _shaky(Random(f"{seed}"))
        eager = seed % 2 == 1
        planner = _model(eager=eager) if kind == "model" else _script(eager=eager)
    try:
        done = simulate(Goal(text="Compare five competitors"), crew, planner, seed=seed)
    except Deadlock as error:
        return Played(kind, seed, f"hang: {error}", 0, 0)
    outcome, events = done.outcome, [event for _, event in done.events]
    if outcome.status == "succeeded":
        end = "reached" if outcome.result == ANSWER else f"wrong result: {outcome.result!r}"
    elif outcome.waiting_for:
        end = "asked"
    else:
        end = f"{outcome.status}: {outcome.reason}"
    asked = sum(isinstance(event, ev.PlannerAsked) for event in events)
    refused = sum(isinstance(event, ev.ProposalRefused) for event in events)
    return Played(kind, seed, end, asked, refused, tuple(map(str, done.violations)))


# The example, with five firms that are each busy once.


@cache
def _module() -> Any:
    spec = spec_from_file_location("iterative_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PRICES = FIRMS  # type: ignore[attr-defined]
    return module


def _example(seed: int) -> tuple[list[Any], Any]:
    example, chance = _module(), Random(f"{seed}")
    calls: Counter[str] = Counter()

    @worker(idempotent=True)
    async def fetch_price(competitor: str) -> float:
        calls[competitor] += 1
        await asyncio.sleep(chance.choice((0.0, 0.01, 0.04)))
        if calls[competitor] == 1:
            raise Transient(f"{competitor} is busy")
        return FIRMS[competitor]

    async def next_step(view: Any) -> Any:
        return example.next_step(view)

    return [fetch_price, example.compare], next_step


# The same work under 30 % faults.


def _shaky(chance: Random) -> list[Any]:
    def fails() -> None:
        if chance.random() < SHAKY:
            slow = chance.random() < 0.3
            raise RateLimited("too many calls", retry_after_s=2.0) if slow else Transient("busy")

    @worker(idempotent=True)
    async def fetch_price(competitor: str) -> float:
        await asyncio.sleep(chance.choice((0.0, 0.01, 0.3)))
        fails()
        return FIRMS[competitor]

    @worker(idempotent=True)
    async def compare(prices: dict[str, float]) -> str:
        fails()
        cheapest = min(prices, key=lambda name: prices[name])
        return f"{cheapest} is cheapest at {prices[cheapest]:.2f}"

    return [fetch_price, compare]


class Thought(NamedTuple):
    """What to do next: steps, an end, or nothing for now."""

    steps: tuple[dict[str, Any], ...] = ()
    done: str = ""


def _next(steps: dict[str, str], *, eager: bool) -> Thought:
    """The next step or steps, from the status of every step so far."""
    latest, new = {}, []
    for firm in FIRMS:
        latest[firm], step = _again(f"price-{firm.lower()}", steps)
        if step is not None:
            new.append({**step, "worker": "fetch_price", "parameters": {"competitor": firm}})
    if new:
        return Thought(tuple(new if eager else new[:1]))
    if any(steps[ident] != "succeeded" for ident in latest.values()):
        return Thought()
    ident, step = _again("compare", steps)
    if step is not None:
        prices = {firm: f"${{{{ steps.{name}.data }}}}" for firm, name in latest.items()}
        return Thought(({**step, "worker": "compare", "parameters": {"prices": prices}},))
    return Thought(done=ident) if steps[ident] == "succeeded" else Thought()


def _again(base: str, steps: dict[str, str]) -> tuple[str, dict[str, Any] | None]:
    """The newest step of a name, and the step to propose where it is missing or failed."""
    names = [base, *(f"{base}-{n}" for n in range(2, 20))]
    known = [name for name in names if name in steps]
    if not known:
        return base, {"id": base}
    if steps[known[-1]] in ("failed", "skipped", "cancelled"):
        return known[-1], {"id": names[len(known)], "supersedes": known[-1]}
    return known[-1], None


def _script(*, eager: bool) -> Any:
    """A function that plans as the example does, and proposes again what failed."""

    async def script(view: Any) -> Any:
        thought = _next({step.id: step.status for step in view.steps.values()}, eager=eager)
        return Finish(view.results[thought.done]) if thought.done else Propose(thought.steps)

    return script


_LINE = re.compile(r"^- ([\w-]+): (?:fetch_price|compare): (\w+)", re.MULTILINE)


def _model(*, eager: bool) -> Any:
    """A model that knows nothing but its prompt, and answers sensibly."""

    def sensible(request: Any) -> Any:
        text = request.turns[0].text
        thought = _next(dict(_LINE.findall(text)), eager=eager)
        if thought.done:
            found = re.findall(rf"^{thought.done}:\n<data \w+>\n(.+)\n</data", text, re.MULTILINE)
            return {"kind": "finish", "because": "it is compared", "result": found[0]}
        if thought.steps:
            return {"kind": "propose", "because": "they are next", "steps": list(thought.steps)}
        waits = "wait" in request.schema["properties"]["kind"]["enum"]
        return {"kind": "wait" if waits else "propose", "because": "steps are under way"}

    return ModelPlanner(ScriptedModel(sensible), style="next_step")


PLANNERS = ("example", "script", "model")
