"""Families of worker graphs, each drawn from a seed: the problems that `oracle` plays and judges.

A family is a function from chance to a case. Facts are artefacts (with data) or flags, in every
family; unless a family says otherwise the mode is drawn too, and so is the order in which what
happens at the same moment happens.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tests.external.graph_world import Fault, Graph, Job, Method, Way, best, is_flag

MODES = ("auto", "next_step", "whole")
FIRSTS = (
    "gives_up",
    "raises",
    "talks",
    "unknown_worker",
    "again",
    "finishes",
    "silent",
    "cycle",
)
"""How a first planner behaves once a step of its whole plan has failed."""
PEOPLE = ("give", "repair", "vain", "stop", "never")
"""give: gives what it is asked for. repair: mends what is broken, then says retry. vain: says retry
twice though nothing was mended, then stop. stop, never: as they say."""


class Case(NamedTuple):
    """One run to be played."""

    family: str
    seed: int
    graph: Graph
    mode: str = "auto"
    person: str = "never"
    first: str = ""
    """How the first planner of a Hybrid behaves; empty: the goal planner alone."""
    consult: str = "every_report"
    crashes: tuple[int, ...] = ()
    order: int | None = 0
    charged: bool = False
    """Whether attempts that fail cost as much as others."""

    @property
    def name(self) -> str:
        """As it is repeated."""
        return f"{self.family} {self.seed}"


def draw(family: str, seed: int) -> Case:
    """The case of a family and a seed: the same each time."""
    chance = Random(f"{family}/{seed}")
    case = FAMILIES[family](chance)
    order = chance.choice((None, chance.randrange(1_000_000)))
    if case.person != "never" and order is None:
        # Where a commit takes no time, what a person gave and what a step then used up at the same
        # microsecond cannot be told apart. No store is that fast.
        order = chance.randrange(1_000_000)
    return case._replace(family=family, seed=seed, order=order)


# Building blocks.


class Sketch:
    """A graph in the making."""

    def __init__(self, chance: Random, flags: float = 0.3) -> None:
        self.chance = chance
        self.flags = flags
        self.jobs: list[Job] = []
        self.methods: list[Method] = []
        self.count = 0

    def fact(self) -> str:
        """A new fact: data, or a flag."""
        self.count += 1
        return f"is:f{self.count}" if self.chance.random() < self.flags else f"f{self.count}"

    def job(self, needs: Any, gives: Any, **more: Any) -> Job:
        """A new worker."""
        name = f"w{len(self.jobs) + 1}"
        made = Job(name, tuple(dict.fromkeys(needs)), tuple(dict.fromkeys(gives)), **more)
        self.jobs.append(made)
        return made

    def some(self, facts: list[str], most: int) -> list[str]:
        """A few of some facts."""
        return self.chance.sample(facts, min(len(facts), self.chance.randint(1, most)))

    def graph(self, have: Any, want: Any, **more: Any) -> Graph:
        """What was drawn so far, in an order that says nothing."""
        jobs = self.jobs[:]
        self.chance.shuffle(jobs)
        return Graph(tuple(jobs), tuple(have), tuple(want), tuple(self.methods), **more)


def layers(
    chance: Random,
    *,
    depth: tuple[int, int] = (2, 4),
    width: tuple[int, int] = (1, 3),
    givers: tuple[int, int] = (1, 3),
    drops: float = 0.0,
    cost: int = 0,
    flags: float = 0.3,
    idempotent: float = 1.0,
    takes: tuple[float, ...] = (0.0, 0.01, 1.0),
) -> tuple[Sketch, list[str], list[str]]:
    """Facts in layers, each with some givers that need facts of the layers before.

    Returns the sketch, what is there and what is wanted.
    """
    sketch = Sketch(chance, flags)
    have = [sketch.fact() for _ in range(chance.randint(1, 2))]
    before, known = have, have[:]
    for _ in range(chance.randint(*depth)):
        layer = [sketch.fact() for _ in range(chance.randint(*width))]
        for fact in layer:
            for _ in range(chance.randint(*givers)):
                needs = sketch.some(before, 2)
                if chance.random() < 0.2:
                    needs += sketch.some(known, 1)
                gives = [fact]
                if chance.random() < 0.15:
                    gives.append(chance.choice(layer))
                lost = [each for each in needs if chance.random() < drops]
                sketch.job(
                    needs,
                    gives,
                    drops=tuple(dict.fromkeys(each for each in lost if each not in gives)),
                    cost=float(chance.randint(1, cost)) if cost else 0.0,
                    idempotent=chance.random() < idempotent,
                    takes_s=chance.choice(takes),
                )
        before, known = layer, known + layer
    want = sketch.some(before, 2)
    if chance.random() < 0.3:
        want += [each for each in sketch.some(known, 1) if each not in want]
    return sketch, have, want


def strips(
    chance: Random,
    *,
    cost: int = 0,
    size: tuple[int, int] = (6, 9),
    crew: tuple[int, int] = (8, 14),
    walk: int = 12,
) -> tuple[Sketch, list[str], list[str]]:
    """Workers that use up what they need; what is wanted was reached once on a random walk."""
    sketch = Sketch(chance)
    facts = [sketch.fact() for _ in range(chance.randint(*size))]
    for _ in range(chance.randint(*crew)):
        needs = sketch.some(facts, 2)
        others = [fact for fact in facts if fact not in needs]
        gives = sketch.some(others, 2)
        drops = tuple(fact for fact in needs if chance.random() < 0.5)
        price = float(chance.randint(1, cost)) if cost else 0.0
        sketch.job(needs, gives, drops=drops, cost=price, takes_s=chance.choice((0.0, 0.01)))
    have = sketch.some(facts, 3)
    true = set(have)
    for _ in range(walk):
        able = [job for job in sketch.jobs if true.issuperset(job.needs)]
        if not able:
            break
        job = chance.choice(able)
        true = (true - set(job.drops)) | set(job.gives)
    new = sorted(true - set(have)) or sorted(true)
    return sketch, have, sketch.some(new, 2)


def break_some(sketch: Sketch, share: float, kinds: tuple[Fault, ...]) -> None:
    """Give some of the workers a fault."""
    chance = sketch.chance
    for i, job in enumerate(sketch.jobs):
        if chance.random() < share and not job.fault.kind:
            sketch.jobs[i] = job._replace(fault=chance.choice(kinds))


BROKEN = (Fault("permanent"), Fault("permanent"), Fault("denied"), Fault("transient"))
SHAKY = (
    Fault("transient", 1),
    Fault("transient", 2),
    Fault("transient", 3),
    Fault("transient", 5),
    Fault("rate_limited", 1, wait_s=3.0),
    Fault("rate_limited", 2, wait_s=100.0),
    Fault("unavailable", 1),
    Fault("silent", 1),
    Fault("hang", 1),
)


def _mode(chance: Random) -> str:
    return chance.choice(MODES)


def _case(graph: Graph, chance: Random, **more: Any) -> Case:
    return Case("", 0, graph, **{"mode": _mode(chance), **more})


# The families.


def alternatives(chance: Random) -> Case:
    """Several ways to each fact, many of them broken for good."""
    sketch, have, want = layers(chance, givers=(1, 6), depth=(1, 4))
    break_some(sketch, chance.choice((0.3, 0.5, 0.7)), BROKEN)
    return _case(sketch.graph(have, want), chance)


def many_sources(chance: Random) -> Case:
    """One fact, many alike workers, all but one (or all) broken."""
    sketch = Sketch(chance)
    have, fact = [sketch.fact()], sketch.fact()
    for _ in range(chance.randint(4, 9)):
        fault = chance.choice(BROKEN)
        sketch.job(have, [fact], fault=fault, cost=float(chance.choice((0, 1, 1, 2))))
    if chance.random() < 0.8:
        at = chance.randrange(len(sketch.jobs))
        sketch.jobs[at] = sketch.jobs[at]._replace(fault=Fault())
    end = sketch.fact()
    sketch.job([fact], [end])
    return _case(sketch.graph(have, [chance.choice((fact, end))]), chance)


def drops(chance: Random) -> Case:
    """Workers that use up what they need; nothing is broken."""
    sketch, have, want = strips(chance, cost=5)
    return _case(sketch.graph(have, want), chance)


def drops_broken(chance: Random) -> Case:
    """The same, with some broken."""
    sketch, have, want = layers(chance, drops=0.2, givers=(2, 4))
    break_some(sketch, 0.25, BROKEN)
    return _case(sketch.graph(have, want), chance)


def drops_large(chance: Random) -> Case:
    """More of it: many facts, few ways, and the money is exactly enough."""
    sketch, have, want = strips(chance, cost=9, size=(9, 12), crew=(10, 22), walk=40)
    graph = sketch.graph(have, want)
    found = best(graph, have)
    exact = found.cost if found else 5.0
    return _case(graph._replace(budget=chance.choice((None, exact, exact))), chance)


def costs(chance: Random) -> Case:
    """Every worker has its price; nothing is broken."""
    flags = chance.choice((0.0, 0.3))
    sketch, have, want = layers(
        chance, cost=chance.choice((3, 9, 1000)), givers=(1, 4), flags=flags
    )
    if chance.random() < 0.4:
        sketch.job(have, want, cost=float(chance.choice((1, 20, 1000))))
    return _case(sketch.graph(have, want), chance)


def budget(chance: Random) -> Case:
    """The money is exactly enough, or a little short; nothing is broken."""
    if chance.random() < 0.6:
        sketch, have, want = layers(chance, cost=9, givers=(2, 4), depth=(2, 4), width=(2, 3))
    else:
        sketch, have, want = strips(chance, cost=9)
    graph = sketch.graph(have, want)
    found = best(graph, have)
    exact = found.cost if found else 5.0
    short = exact - 1 if exact > 1 else exact / 2
    return _case(graph._replace(budget=chance.choice((*[exact] * 5, short))), chance)


def budget_broken(chance: Random) -> Case:
    """Money for any way there is, and faults; of some, attempts that fail cost too."""
    sketch, have, want = layers(chance, cost=9, givers=(2, 4))
    break_some(sketch, 0.3, BROKEN)
    graph = sketch.graph(have, want)
    found = best(graph, have)
    enough = sum(each.cost for each in sketch.jobs)
    charged = chance.random() < 0.5
    graph = graph._replace(budget=(8 * enough if charged else enough) if found else enough / 2)
    return _case(graph, chance, charged=charged)


def passing(chance: Random) -> Case:
    """Faults that pass when the worker is tried again, with few other ways."""
    sketch, have, want = layers(chance, givers=(1, 2))
    break_some(sketch, 0.6, SHAKY)
    return _case(sketch.graph(have, want), chance)


def silent(chance: Random) -> Case:
    """Workers that say they are done and give nothing."""
    sketch, have, want = layers(chance, givers=(1, 4))
    break_some(sketch, 0.4, (Fault("silent"), Fault("silent", 1)))
    return _case(sketch.graph(have, want), chance)


def _split(sketch: Sketch, needs: list[str], fact: str, deep: int = 0) -> None:
    """A method for a fact: split, do the parts, put them together; parts may be split again."""
    chance, tag = sketch.chance, fact.replace(":", "_")
    names = [f"{word}_{tag}" for word in ("split", "part", "merge")]
    items, cost = chance.randint(1, 3), float(chance.choice((0, 1)))
    sketch.jobs += [
        Job(names[0], tuple(needs), (f"parts_{tag}",), cost=cost, items=items, stage=True),
        Job(names[1], (), (f"done_{tag}",), cost=cost, loose=(f"piece_{tag}",), stage=True),
        Job(names[2], (), (fact,), cost=cost, loose=(f"pieces_{tag}",)),
    ]
    sketch.methods.append(Method(fact, f"method_{tag}", (names[0], f"{names[1]}*", names[2])))
    if deep:
        part = len(sketch.jobs) - 2
        sketch.jobs[part] = sketch.jobs[part]._replace(fault=Fault("too_complex"))
        _split_part(sketch, tag, deep)


def _split_part(sketch: Sketch, tag: str, deep: int) -> None:
    names = [f"{word}_{deep}_{tag}" for word in ("halve", "half", "join")]
    piece = f"piece_{tag}"
    sketch.jobs += [
        Job(names[0], (), (f"halves_{tag}",), loose=(piece,), items=2, stage=True),
        Job(names[1], (), (f"half_{tag}",), loose=(f"bit_{tag}",), stage=True),
        Job(names[2], (), (f"done_{tag}",), loose=(f"bits_{tag}",), stage=True),
    ]
    made = Method(f"done_{tag}", f"deeper_{tag}", (names[0], f"{names[1]}*", names[2]))
    sketch.methods.append(made)


def methods(chance: Random) -> Case:
    """Facts whose givers find them too complex; some can be split, some have another giver."""
    return _methods(chance, deep=0)


def nested(chance: Random) -> Case:
    """Parts that are too complex in their turn, and can be split again."""
    return _methods(chance, deep=1)


def _methods(chance: Random, deep: int) -> Case:
    sketch, have, want = layers(chance, givers=(1, 2), flags=0.15)
    for job in sketch.jobs[:]:
        fact = job.gives[0]
        if chance.random() < 0.4 and len(job.gives) == 1 and not is_flag(fact):
            at = sketch.jobs.index(job)
            sketch.jobs[at] = job._replace(fault=Fault("too_complex"))
            known = {each.fact for each in sketch.methods}
            if fact not in known and chance.random() < 0.8:
                _split(sketch, [each for each in job.needs if not is_flag(each)], fact, deep)
    return _case(sketch.graph(have, want), chance)


def methods_drops(chance: Random) -> Case:
    """Methods where facts are dropped, so that a fact may have to be split for twice."""
    sketch, have, want = layers(chance, givers=(1, 2), flags=0.15, drops=0.15)
    for job in sketch.jobs[:]:
        fact = job.gives[0]
        if chance.random() < 0.4 and len(job.gives) == 1 and not is_flag(fact):
            at = sketch.jobs.index(job)
            sketch.jobs[at] = job._replace(fault=Fault("too_complex"))
            if fact not in {each.fact for each in sketch.methods}:
                _split(sketch, [each for each in job.needs if not is_flag(each)], fact)
    return _case(sketch.graph(have, want), chance)


def parallel(chance: Random) -> Case:
    """Steps side by side that fail within milliseconds, with other ways or with people."""
    sketch = Sketch(chance)
    have = [sketch.fact()]
    middle = []
    for _ in range(chance.randint(2, 6)):
        fact = sketch.fact()
        middle.append(fact)
        takes = chance.choice((0.0, 0.0, 0.001, 0.002, 0.01))
        fault = chance.choice((*BROKEN[:3], Fault("needs_info", hint="hint"), Fault()))
        sketch.job(have, [fact], fault=fault, takes_s=takes)
        if chance.random() < 0.3:
            sketch.job(have, [fact], takes_s=takes, fault=chance.choice((Fault(), *BROKEN)))
    end = sketch.fact()
    sketch.job(middle, [end])
    want = chance.choice(([end], middle, [end, *middle[:1]]))
    person = chance.choice(("give", "give", "repair", "never"))
    return _case(sketch.graph(have, want), chance, person=person)


def _with_person(person: str) -> Callable[[Random], Case]:
    def family(chance: Random) -> Case:
        shape = chance.choice(("layers", "layers", "missing"))
        sketch, have, want = layers(chance, givers=(1, 2))
        break_some(sketch, 0.5, (*BROKEN, Fault("silent"), Fault("too_complex")))
        if shape == "missing":  # something that nobody gives
            have = have[1:] if len(have) > 1 else ["f0"]
        return _case(sketch.graph(have, want), chance, person=person)

    family.__doc__ = f"A person who is asked: {person}."
    return family


def person_drops(chance: Random) -> Case:
    """A person who gives or mends, where what is given may be used up, before or later."""
    sketch, have, want = layers(chance, givers=(1, 2), drops=0.25)
    break_some(sketch, 0.35, (*BROKEN, Fault("silent")))
    person = chance.choice(("give", "give", "repair"))
    return _case(sketch.graph(have, want), chance, person=person)


def hints(chance: Random) -> Case:
    """Workers that say what more they need to know; another worker or a person knows it."""
    sketch, have, want = layers(chance, givers=(1, 2))
    hint = sketch.chance.choice(("hint", "tip"))
    for i, job in enumerate(sketch.jobs):
        if chance.random() < 0.4:
            sketch.jobs[i] = job._replace(fault=Fault("needs_info", hint=hint))
    person = chance.choice(("give", "never"))
    if chance.random() < 0.6:
        sketch.job(have, [hint])
    return _case(sketch.graph(have, want), chance, person=person)


def handover(chance: Random) -> Case:
    """A first planner writes a whole plan; a step fails, and it has no good answer to that."""
    has_drops = chance.random() < 0.2
    sketch, have, want = layers(
        chance, givers=(2, 4), depth=(2, 4), drops=0.15 if has_drops else 0.0
    )
    graph = sketch.graph(have, want)
    _break_way(sketch, best(graph, have, blind=True))
    break_some(sketch, 0.1, BROKEN)
    graph = sketch.graph(have, want)
    person = chance.choice(("never", "never", "give", "repair"))
    consult = chance.choice(("every_report", "on_surprise"))
    return _case(graph, chance, person=person, first=chance.choice(FIRSTS), consult=consult)


def _break_way(sketch: Sketch, way: Way | None) -> None:
    """Break a worker that the first plan uses."""
    names = way.names if way else ()
    if names:
        broken = sketch.chance.choice(names)
        for i, job in enumerate(sketch.jobs):
            if job.name == broken:
                fault = sketch.chance.choice((*BROKEN, Fault("silent"), Fault("too_complex")))
                sketch.jobs[i] = job._replace(fault=fault)


def crash(chance: Random) -> Case:
    """The host dies, once or more, and another takes the run up; not all is idempotent."""
    sketch, have, want = layers(chance, idempotent=0.5, givers=(1, 3))
    break_some(sketch, 0.3, (*BROKEN, *SHAKY[:3]))
    crashes = tuple(sorted(chance.sample(range(1, 30), chance.randint(1, 3))))
    first = chance.choice(("", "", "gives_up"))
    case = _case(sketch.graph(have, want), chance, person="give", first=first)
    return case._replace(crashes=crashes)


def direct(chance: Random) -> Case:
    """Exactly one worker can do it; it may be broken, or busy for a while."""
    sketch, have, want = layers(chance, depth=(2, 3), flags=0.0, givers=(1, 1))
    for job in sketch.jobs[:]:
        if not set(want).isdisjoint(job.gives):
            sketch.jobs.remove(job)
    fault = chance.choice((Fault(), Fault(), Fault("permanent"), *SHAKY[:2]))
    sketch.jobs.append(Job("direct", tuple(have), tuple(want), fault=fault))
    person = chance.choice(("repair", "stop", "never"))
    return _case(sketch.graph(have, want), chance, mode="direct", person=person)


def everything(chance: Random) -> Case:
    """All of it together."""
    sketch, have, want = layers(
        chance, givers=(1, 4), drops=chance.choice((0.0, 0.0, 0.1)), idempotent=0.7
    )
    crashes = chance.choice(((), (), (chance.randint(2, 20),)))
    # An attempt that is lost with its host counts as one more failure in a row.
    passing = [each for each in SHAKY if not crashes or each.times < 5]
    break_some(sketch, 0.4, (*BROKEN, *passing, Fault("silent"), Fault("too_complex")))
    for job in sketch.jobs[:]:
        fact = job.gives[0]
        known = {each.fact for each in sketch.methods}
        if job.fault.kind == "too_complex" and fact not in known and not is_flag(fact):
            _split(sketch, [each for each in job.needs if not is_flag(each)], fact)
    graph = sketch.graph(have, want)
    return _case(
        graph,
        chance,
        person=chance.choice(PEOPLE),
        first=chance.choice(("", "", *FIRSTS)),
        consult=chance.choice(("every_report", "on_surprise")),
        crashes=crashes,
    )


FAMILIES: dict[str, Callable[[Random], Case]] = {
    "alternatives": alternatives,
    "many_sources": many_sources,
    "drops": drops,
    "drops_broken": drops_broken,
    "drops_large": drops_large,
    "costs": costs,
    "budget": budget,
    "budget_broken": budget_broken,
    "passing": passing,
    "silent": silent,
    "methods": methods,
    "methods_drops": methods_drops,
    "nested": nested,
    "parallel": parallel,
    **{f"person_{person}": _with_person(person) for person in PEOPLE},
    "person_drops": person_drops,
    "hints": hints,
    "handover": handover,
    "crash": crash,
    "direct": direct,
    "everything": everything,
}
