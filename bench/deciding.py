"""How long the goal planner takes for a decision, against a loop of a million additions.

`few`: 10 workers that matter among `--size` that do not. `many`: as many that all matter, in
layers of ten with two ways to every fact. `dropped`: as many that all matter and use up what they
need, in five columns. `contended`: the same over twenty layers in which several want the same fact,
so that it has to be given more than once. The figure is in milliseconds on a machine whose
`sum(range(10**6))` takes 20 ms: measured in the same process, before and after, and scaled.
"""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter

from frame import arguments, emit

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.plan.model import Goal
from leadhand.core.report import PlannerView, Propose
from leadhand.planners.goal.planner import GoalPlanner

TURNS = 7
LOOP_MS = 20.0


def worker(
    name: str, needs: tuple[str, ...], gives: str, cost: float, drops: tuple[str, ...] = ()
) -> WorkerSpec:
    """One worker with one action."""
    schema = {
        "type": "object",
        "properties": {need: {} for need in needs},
        "required": list(needs),
        "additionalProperties": False,
    }
    offer = Offer(parameters=schema, needs=needs, gives=(gives,), cost=cost, drops=drops)
    return WorkerSpec(name=name, offers={"": offer})


def few(size: int) -> list[WorkerSpec]:
    """Ten that lead to the goal, the rest among themselves."""
    line = [worker(f"step{i}", (f"s{i}",), f"s{i + 1}", 1.0) for i in range(10)]
    rest = [
        worker(f"other{i}", (f"o{i % 97}", f"o{(i * 7) % 89}"), f"o{(i * 3) % 101}", 1.0)
        for i in range(size - len(line))
    ]
    return line + rest


def many(size: int) -> list[WorkerSpec]:
    """Layers of five facts, each given by two workers from two facts of the layer before."""
    found = []
    for i in range(size - 1):
        layer, place = divmod(i // 2, 5)
        before = [f"f{layer}_{place}", f"f{layer}_{(place + 1 + i % 2) % 5}"]
        needs = tuple(before) if layer else ("s0",)
        found.append(worker(f"w{i}", needs, f"f{layer + 1}_{place}", 1.0 + i % 3))
    last = (size - 2) // 10
    return [*found, worker("end", tuple(f"f{last}_{place}" for place in range(5)), "s10", 1.0)]


def dropped(size: int) -> list[WorkerSpec]:
    """Five columns of facts; whoever goes from one to the next uses it up."""
    found = []
    for i in range(size - 1):
        layer, place = divmod(i // 2, 5)
        needs = (f"f{layer}_{place}",) if layer else ("s0",)
        drops = needs if layer else ()
        found.append(worker(f"w{i}", needs, f"f{layer + 1}_{place}", 1.0 + i % 3, drops))
    last = (size - 2) // 10
    return [*found, worker("end", tuple(f"f{last}_{place}" for place in range(5)), "s10", 1.0)]


def contended(size: int, layers: int = 20) -> list[WorkerSpec]:
    """Layers of five facts, each given from facts of the layer before that it uses up."""
    found = []
    for i in range(size - 1):
        layer, place, source = i % layers, i // layers % 5, (i * 7 + i % layers) % 5
        needs = (f"f{layer}_{source}",) if layer else ("s0",)
        drops = needs if layer else ()
        found.append(worker(f"w{i}", needs, f"f{layer + 1}_{place}", 1.0 + i % 3, drops))
    return [*found, worker("end", tuple(f"f{layers}_{place}" for place in range(5)), "s10", 1.0)]


SHAPES = {"few": few, "many": many, "dropped": dropped, "contended": contended}


def loop_ms() -> float:
    """The yardstick."""
    start = perf_counter()
    sum(range(10**6))
    return (perf_counter() - start) * 1000


def main() -> None:
    """Decide a few times, with a new planner each time: nothing is remembered."""
    given = arguments(list(SHAPES))
    specs = SHAPES[given.shape](given.size)
    view = PlannerView("r", Goal(want=("s10",), have={"s0": 1}), 1, "start", params={"s0": 1})
    took, loops = [], [loop_ms() for _ in range(3)]
    for _ in range(TURNS):
        catalog = Catalog(specs)
        fields = {name: getattr(view, name) for name in view.__slots__} | {"catalog": catalog}
        start = perf_counter()
        decision = asyncio.run(GoalPlanner().decide(PlannerView(**fields)))
        took.append((perf_counter() - start) * 1000)
        loops.append(loop_ms())
        if not isinstance(decision, Propose):
            raise SystemExit(f"no plan: {decision}")
    scaled = median(took) * LOOP_MS / median(loops)
    figures = {"loop_ms": round(median(loops), 2), "real_ms": round(median(took), 2)}
    emit(given.size, sum(took) / 1000, ratio=round(scaled, 2), **figures)


if __name__ == "__main__":
    main()
