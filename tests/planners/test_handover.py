"""Handover inside a whole plan: what waits for a failed step is not coming."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadhand import Finish, GiveUp, Goal, Hybrid, Lead, Permanent, Propose
from leadhand.core.catalog import Offer
from leadhand.stores.memory import MemoryStore
from leadhand.testing import ScriptedPlanner, ScriptedWorker, simulate

AFTERWARDS = {
    "gives up": GiveUp("no idea"),
    "raises": RuntimeError("out of order"),
    "nonsense": Propose([{"id": "x", "worker": "nobody-of-that-name"}]),
    "says done": Finish("not really"),
    "unmet need": Propose([{"id": "again", "worker": "last"}]),
}


class World:
    """Layers of facts, each given by one or more workers from facts of the layers before."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.layers = [
            [f"f{depth}_{i}" if chance.random() < 0.7 else f"ok:{depth}_{i}" for i in range(width)]
            for depth, width in enumerate(chance.randint(1, 3) for _ in range(chance.randint(2, 4)))
        ]
        self.offers: dict[str, tuple[tuple[str, ...], str]] = {}
        before: list[str] = ["topic"]
        self.chosen: list[str] = []
        for facts in self.layers:
            for fact in facts:
                for n in range(chance.randint(1, 3)):
                    needs = chance.sample(before, chance.randint(1, min(2, len(before))))
                    self.offers[f"w-{fact.replace(':', '-')}-{n}"] = (tuple(needs), fact)
                self.chosen.append(f"w-{fact.replace(':', '-')}-0")
            before = [*before, *facts]
        self.wanted = chance.sample(self.layers[-1], chance.randint(1, len(self.layers[-1])))
        spare = [n for n in self.chosen if f"{n[:-1]}1" in self.offers]
        self.broken = set(chance.sample(spare, min(len(spare), chance.randint(1, 2))))
        self.declares = chance.random() < 0.5
        self.final = chance.random() < 0.5

    def reachable(self) -> bool:
        """Whether the wanted facts can be had without what is broken."""
        true, size = {"topic"}, 0
        while size < len(true):
            size = len(true)
            for name, (needs, fact) in self.offers.items():
                if name not in self.broken and set(needs) <= true:
                    true.add(fact)
        return set(self.wanted) <= true

    def workers(self) -> list[ScriptedWorker]:
        return [self._worker(name, *offer) for name, offer in self.offers.items()]

    def _worker(self, name: str, needs: tuple[str, ...], fact: str) -> ScriptedWorker:
        takes = [need for need in needs if ":" not in need]
        schema = {"type": "object", "properties": {each: {} for each in takes}, "required": takes}
        gives = True if ":" in fact else f"{fact} by {name}"
        outcome = Permanent("broken for good") if name in self.broken else gives
        offer = Offer(parameters=schema, needs=needs, gives=(fact,))
        return ScriptedWorker(name, [outcome], offer=offer)

    def plan(self) -> list[dict[str, object]]:
        """The first planner's whole plan, by the first worker of each fact."""
        steps, givers = [], {}
        for name in self.chosen:
            needs, fact = self.offers[name]
            step = {
                "id": f"s-{name}",
                "worker": name,
                "parameters": {
                    each: f"${{{{ steps.{givers[each]}.data }}}}" if each in givers else "x"
                    for each in needs
                    if ":" not in each
                },
                "depends_on": [givers[each] for each in needs if each in givers],
            }
            if self.declares:
                step |= {"needs": list(needs), "gives": [fact]}
            givers[fact] = step["id"]
            steps.append(step)
        return steps


def run(world: World, after: str, seed: int = 0, mode: str = ""):
    """The whole plan of the first planner, then what it does after the failure."""
    first = ScriptedPlanner([Propose(world.plan(), final=world.final), AFTERWARDS[after]])
    goal = Goal(text="g", want=world.wanted, have={"topic": "x"}, mode=mode or None)
    workers = world.workers()
    done = simulate(goal, workers, Hybrid(first), seed=seed)
    assert not done.violations
    return done, workers


@pytest.mark.slow
@given(st.integers(0, 1_000_000), st.sampled_from(sorted(AFTERWARDS)), st.integers(0, 3))
@settings(max_examples=150)
def test_a_whole_plan_that_fails_is_finished_by_the_goal_planner(number, after, seed):
    """Wherever there is another way, the goal is reached; what failed for good is not repeated."""
    world = World(number)
    if not world.reachable():
        return
    done, workers = run(world, after, seed)
    assert done.outcome.status == "succeeded", done.outcome.reason
    for each in workers:
        if each.spec.name in world.broken:
            assert len(each.calls) <= 1, f"{each.spec.name} was called {len(each.calls)} times"


@pytest.mark.parametrize("after", sorted(AFTERWARDS))
def test_on_the_engine_what_waits_for_a_failed_step_is_cancelled_at_the_handover(after):
    """The four steps of a chain, the first of which is gone: another source, and the rest anew."""
    offers = {
        "near": ((), "raw"),
        "far": ((), "raw"),
        "clean": (("raw",), "table"),
        "check": (("table",), "ok:table"),
        "last": (("table", "ok:table"), "report"),
    }
    workers = []
    for name, (needs, fact) in offers.items():
        takes = [need for need in needs if ":" not in need]
        schema = {"type": "object", "properties": {n: {} for n in takes}, "required": takes}
        outcome = Permanent("gone") if name == "near" else True if ":" in fact else fact
        offer = Offer(parameters=schema, needs=needs, gives=(fact,))
        workers.append(ScriptedWorker(name, [outcome], offer=offer))
    plan = [
        {"id": "a", "worker": "near"},
        {"id": "b", "worker": "clean", "parameters": {"raw": "${{ steps.a.data }}"}},
        {"id": "c", "worker": "check", "parameters": {"table": "${{ steps.b.data }}"}},
        {
            "id": "d",
            "worker": "last",
            "parameters": {"table": "${{ steps.b.data }}"},
            "depends_on": ["c"],
        },
    ]
    first = ScriptedPlanner([Propose(plan, final=True), AFTERWARDS[after]])
    lead = Lead(workers, Hybrid(first), MemoryStore())
    outcome = lead.run_sync(Goal(text="A report", want="report"))
    assert (outcome.status, outcome.result) == ("succeeded", "report")
    assert {name: outcome.steps[name].status for name in "bcd"} == dict.fromkeys("bcd", "cancelled")
    assert outcome.steps["a"].status == "superseded"


def test_a_proposal_that_replaces_the_failed_step_brings_its_dependents_back():
    """They are not planned again: the first planner leads on, and nothing is handed over."""
    world = World(1)
    world.offers = {
        "w-f-0": (("topic",), "f"),
        "w-f-1": (("topic",), "f"),
        "w-g-0": (("f",), "g"),
    }
    world.chosen, world.broken, world.wanted = ["w-f-0", "w-g-0"], {"w-f-0"}, ["g"]
    again = {
        "id": "other",
        "worker": "w-f-1",
        "parameters": {"topic": "x"},
        "supersedes": "s-w-f-0",
    }
    first = ScriptedPlanner([Propose(world.plan(), final=True), Propose([again], final=True)])
    goal = Goal(text="g", want=["g"], have={"topic": "x"})
    done = simulate(goal, world.workers(), Hybrid(first))
    assert done.outcome.ok
    assert [step.id for step in done.outcome.steps] == ["s-w-f-0", "s-w-g-0", "other"]
