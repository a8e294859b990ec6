"""A scenario: everything about one simulated world that its seed decides before it begins.

Swarm testing: each fault and each feature is present in some worlds and absent from others, at
rates that differ from world to world, so that rare pairs meet without everything going wrong
at once. Worlds are small, because many small ones find more than a few large ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import NOT_CALLED, Catalog, Offer, WorkerSpec
from leadhand.core.policy import Policy, Rule
from leadhand.testing.clock import EPOCH_US
from leadhand.workers.caller import Caller
from leadhand.workers.human import Human

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc

AUDITOR = "auditor"
"""The automatic reviewer."""
HAND = "hand"
"""The worker that is a person."""
CALLER = "caller"
"""The worker that is an agent which drives the run."""

IDLE_CRITERION = "status == 'succeeded'"
"""A criterion that every report meets which calls itself a success."""
THEN = ("allow", "one", "two", "refuse")
TYPED = (
    "transient",
    "rate_limited",
    "unavailable",
    "denied",
    "too_complex",
    "context_overflow",
    "ambiguous",
    "invalid_output",
    "criteria_unmet",
    "needs_info",
    "permanent",
    "policy",
    "budget",
)
"""Failures a worker may name itself."""


@dataclass(slots=True)
class Faults:
    """What goes wrong, and how often."""

    crash: float = 0.0
    """After how many of the commits the host dies."""
    crashes_max: int = 0
    takeovers: int = 0
    """How often a second host takes over while the first still runs."""
    restarts: int = 0
    """How often the host is closed in an orderly way."""
    full: int = 0
    broken: int = 0
    crowded: int = 0
    """How often the store says that there is no room for new work."""
    slow: float = 0.0
    jumps: int = 0
    stalls: int = 0
    lost: float = 0.0
    late: float = 0.0
    duplicate: float = 0.0
    unloaded: float = 0.0
    """How often a host comes up without one of the workers."""
    newer: float = 0.0
    """How often a host comes up with another version of one of the workers."""


@dataclass(slots=True)
class Act:
    """What one call of a worker does."""

    kind: str = "ok"
    before_s: float = 0.0
    after_s: float = 0.0
    effect: bool = True
    """Whether it changes the world, between the two waits."""
    curious: bool = False
    """Whether it looks at its context, and says which process carries it out."""
    stubborn_s: float = 0.0
    """How long it goes on after it was told to stop."""
    cost: float = 0.0
    retry_after_s: float | None = None


@dataclass(slots=True)
class RunPlan:
    """One run: its plan, or what its planner is like."""

    ident: str
    doc: Doc
    policy: Policy
    planner: str
    """document, or script."""
    begins_s: float = 0.0
    consult: str = "on_surprise"
    splits: bool = False
    calls: int = 0
    """After how many calls the planner comes to an end."""
    trouble: float = 0.0
    """How often the planner fails, dawdles, or proposes nonsense."""


@dataclass(slots=True)
class Scenario:
    """One world."""

    seed: int
    shuffle: bool
    faults: Faults
    workers: list[WorkerSpec]
    runs: list[RunPlan]
    host_concurrency: int
    chaos_s: float
    """When everything is healed and people begin to answer."""
    failing: float
    """Share of worker calls that do not simply succeed."""
    stubborn: float
    outages: float
    """Share of worker calls that ask to be left alone for a while."""
    words: list[tuple[float, str]] = field(default_factory=list)
    """What people say on their own, and when."""

    @property
    def catalog(self) -> Catalog:
        """The descriptions of all workers."""
        return Catalog(self.workers)


def some(random: Random, chance: float, value: Any, otherwise: Any = 0) -> Any:
    """A value with some chance."""
    return value if random.random() < chance else otherwise


def draw(seed: int, random: Random) -> Scenario:
    """The scenario of a seed."""
    workers = [_worker(random, f"w{i}") for i in range(random.randint(1, 4))]
    if random.random() < 0.15:
        workers.append(Human(HAND, timeout=some(random, 0.3, 30.0, None)).spec)
    if Random(f"{seed}/caller").random() < 0.12:  # dice of its own
        workers.append(Caller().spec)
    count = random.choice((1, 1, 1, 2, 3))
    chaos_s = random.choice((5.0, 20.0, 60.0, 120.0))
    scenario = Scenario(
        seed=seed,
        shuffle=random.random() < 0.5,
        faults=_faults(random),
        workers=workers,
        runs=[],
        host_concurrency=random.choice((1, 2, 3, 100, 100, 100)),
        chaos_s=chaos_s,
        failing=random.choice((0.0, 0.1, 0.3, 0.6)),
        stubborn=random.choice((0.0, 0.0, 0.3)),
        outages=random.choice((0.0, 0.0, 0.0, 0.0, 0.5)),
    )
    for number in range(count):
        scenario.runs.append(_run(random, scenario, number))
    scenario.words = _words(random, chaos_s)
    return scenario


def _faults(random: Random) -> Faults:
    if random.random() < 0.15:
        return Faults()
    return Faults(
        crash=some(random, 0.5, random.choice((0.03, 0.1, 0.3)), 0.0),
        crashes_max=random.randint(1, 5),
        takeovers=some(random, 0.15, random.randint(1, 2)),
        restarts=some(random, 0.1, 1),
        full=some(random, 0.2, random.randint(1, 2)),
        broken=some(random, 0.1, 1),
        crowded=some(random, 0.1, 1),
        slow=some(random, 0.2, random.choice((0.05, 0.5)), 0.0),
        jumps=some(random, 0.2, random.randint(1, 3)),
        stalls=some(random, 0.2, random.randint(1, 3)),
        lost=some(random, 0.2, random.choice((0.1, 0.4)), 0.0),
        late=some(random, 0.2, random.choice((0.1, 0.4)), 0.0),
        duplicate=some(random, 0.2, random.choice((0.1, 0.5)), 0.0),
        unloaded=some(random, 0.05, 0.5, 0.0),
        newer=some(random, 0.1, 0.5, 0.0),
    )


def _worker(random: Random, name: str) -> WorkerSpec:
    offer = Offer(
        checks=("fine",),
        result_check=random.random() < 0.2,
        risk=some(random, 0.05, "high", None),
        effects=("outside",),  # every call of theirs is counted in the world
        idempotent=random.random() < 0.4,
        probe=random.random() < 0.5,
        timeout_s=random.choice((None, 2.0, 10.0)),
        cost=random.choice((0.0, 0.0, 1.0, 2.5)),
        gives=some(random, 0.3, (f"{name}-result",), ()),
    )
    limit = some(random, 0.2, random.randint(1, 2), None)
    return WorkerSpec(name=name, version="1", offers={"": offer}, max_concurrency=limit)


def _run(random: Random, scenario: Scenario, number: int) -> RunPlan:
    resources = {"gpu": random.randint(1, 3), "port": 1} if random.random() < 0.3 else {}
    script = random.random() < 0.4
    policy = Policy(
        max_concurrency=random.choice((1, 2, 4, 100)),
        worker_concurrency=some(random, 0.2, {"w0": random.randint(1, 2)}, {}),
        resources=resources,
        attempts_max=random.randint(1, 4),
        backoff_s=random.choice((0.0, 0.1, 1.0)),
        backoff_max_s=random.choice((1.0, 5.0, 60.0)),
        park_s=random.choice((60.0, 5.0)),
        outage_s=random.choice((86_400.0, 10.0)),
        splits_max=random.choice((5, 1)),
        timeout_s=random.choice((5.0, 30.0)),
        planner_timeout_s=random.choice((1.0, 20.0)),
        probe_timeout_s=random.choice((0.5, 5.0)),
        planner_calls_max=random.choice((3, 30, 1000)),
        planner_rounds_max=random.choice((1, 3)),
        replans_idle_max=random.choice((1, 3)),
        steps_max=some(random, 0.05, 10, 100_000),
        wall_s=some(random, 0.1, random.choice((10.0, 60.0)), None),
        budget=some(random, 0.2, random.choice((3.0, 10.0, 30.0)), None),
        review=random.random() < 0.08,
        rules=some(random, 0.1, (Rule(risk="medium", then=random.choice(THEN)),), ()),
        reviewers=some(random, 0.08, (AUDITOR,), ()),
        approval_s=some(random, 0.1, random.choice((3.0, 600.0)), None),
        cancel_grace_s=random.choice((0.5, 5.0)),
        inline_bytes=some(random, 0.15, 64, 65_536),
    )
    acceptance = some(random, 0.15, [random.choice(("data != 3", "len(steps) > 3"))], [])
    wanted = some(random, 0.15, [random.choice(_facts(scenario))], [])
    goal: Any = {"text": "a goal", "acceptance": acceptance} if acceptance else "a goal"
    if wanted:
        goal = {"text": "a goal", "acceptance": acceptance, "want": wanted}
    steps = plan_steps(random, scenario, resources)
    doc: Doc = {"plan_id": f"plan-{number}", "goal": goal, "steps": steps}
    if script and random.random() < 0.5:
        doc["final"] = False
    return RunPlan(
        ident=f"run{number}{scenario.seed:x}",
        doc=doc,
        policy=policy,
        planner="document" if not script else "revisable" if _is_third(scenario) else "script",
        begins_s=some(random, 0.3, random.random() * 5, 0.0),
        consult=random.choice(("every_report", "on_surprise")),
        splits=random.random() < 0.3,
        calls=random.randint(1, 6),
        trouble=random.choice((0.0, 0.1, 0.3)),
    )


def _is_third(scenario: Scenario) -> bool:
    """Whether it is one of the scenarios with documents that name a planner, and with undos."""
    return scenario.seed % 3 == 1


def _facts(scenario: Scenario) -> list[str]:
    """What somebody gives, and something that nobody does."""
    offers = [spec.offer("") for spec in scenario.workers]
    return [*(fact for offer in offers if offer for fact in offer.gives), "nobodys-result"]


def plan_steps(random: Random, scenario: Scenario, resources: Doc, prefix: str = "s") -> list[Doc]:
    """A step graph: a chain, a fan, a diamond, or anything without a cycle."""
    count = random.choice((1, 2, 3, 3, 4, 5, 6, 8, 12))
    shape = random.choice(("chain", "fan", "diamond", "any", "any", "none"))
    steps: list[Doc] = []
    for number in range(count):
        earlier = [step["id"] for step in steps]
        match shape:
            case "chain":
                waits_for = earlier[-1:]
            case "fan":
                waits_for = earlier[:1]
            case "diamond":
                waits_for = earlier[1:] if number == count - 1 else earlier[:1]
            case "any":
                waits_for = [each for each in earlier if random.random() < 0.35]
            case _:
                waits_for = []
        step = make_step(random, scenario, f"{prefix}{number}", waits_for, resources)
        steps.append(step)
    return steps


def make_step(
    random: Random, scenario: Scenario, ident: str, waits_for: list[str], resources: Doc
) -> Doc:
    """One step, with a few of the things a step may say."""
    names = [spec.name for spec in scenario.workers if spec.kind not in NOT_CALLED]
    step: Doc = {"id": ident, "worker": random.choice(names)}
    chance = random.random
    if any(spec.kind == "human" for spec in scenario.workers) and chance() < 0.3:
        step = {"id": ident, "worker": HAND, "depends_on": waits_for}
        return {**step, "success_criteria": "data.v >= 0"} if chance() < 0.5 else step
    tolerant = [each for each in waits_for if chance() < 0.15]
    if waits_for:
        step["depends_on"] = [
            {"step": each, "if": "finished"} if each in tolerant else each for each in waits_for
        ]
    firm = [each for each in waits_for if each not in tolerant]
    if firm and chance() < 0.3:
        step["parameters"] = {"x": f"${{{{ steps.{random.choice(firm)}.data.v }}}}", "y": 1}
    elif chance() < 0.1:
        step["parameters"] = {"y": 2}
    if firm and chance() < 0.1:
        step["context"] = [random.choice(firm)]
    if chance() < 0.3:
        step["success_criteria"] = random.choice(("fine", "data.v >= 0", ["fine", "data.v >= 0"]))
    if chance() < 0.3:
        step["failure_action"] = random.choice(("abort", "continue", "escalate", "replan"))
    if chance() < 0.15:
        step["expect"] = "data.v > 3"
    if chance() < 0.25:
        step["retry"] = random.choice((1, 2, 5, {"attempts": 2, "backoff": 0.5}))
    if chance() < 0.3:
        step["timeout"] = random.choice((0.5, 2, 8))
    if chance() < 0.25 and len(names) > 1:
        step["alternatives"] = [name for name in names if name != step["worker"]][:2]
    _more(random, step, resources)
    _overclaim(scenario, step)
    if _is_third(scenario) and ident[-1] in "0369":
        step["undo"] = {"worker": step["worker"]}
    return _handed_out(scenario, step)


def _handed_out(scenario: Scenario, step: Doc) -> Doc:
    """Give a step to the agent that drives the run, in some worlds. Has dice of its own."""
    random = Random(f"{scenario.seed}/caller/{step['id']}")
    if all(spec.name != CALLER for spec in scenario.workers) or random.random() > 0.5:
        return step
    if random.random() < 0.3:
        return {**step, "alternatives": [CALLER]}
    kept = ("id", "depends_on", "parameters", "context", "retry", "idempotent", "failure_action")
    made = {key: step[key] for key in kept if key in step} | {"worker": CALLER}
    if random.random() < 0.3:
        made["timeout"] = random.choice((3, 30))
    return made | {"success_criteria": "data.v >= 0"} if random.random() < 0.7 else made


def _overclaim(scenario: Scenario, step: Doc) -> None:
    """Let a step say more of itself than its worker does. Has dice of its own."""
    random = Random(f"{scenario.seed}/claims/{step['id']}/{step['worker']}")
    if random.random() < 0.15:
        step["idempotent"] = True
    if random.random() < 0.2:
        step["gives"] = random.choice((*_facts(scenario), "said:so"))
    if random.random() < 0.1:
        step["drops"] = random.choice(([], [random.choice(_facts(scenario))]))
    if random.random() < 0.1:
        step["needs"] = []
    if random.random() < 0.15:
        step["success_criteria"] = IDLE_CRITERION


def _more(random: Random, step: Doc, resources: Doc) -> None:
    chance = random.random
    if chance() < 0.2:
        step["idempotent"] = chance() < 0.5
    if chance() < 0.2:
        step["est"] = random.choice((1, 5, 60))
    if resources and chance() < 0.5:
        step["uses"] = random.choice(("gpu", ["port"], {"gpu": 1, "port": 1}, ["gpu"]))
    if chance() < 0.07:
        moment = EPOCH_US / 1e6 + random.choice((-60, 3, 15, 40))
        step["not_before"] = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if chance() < 0.04:
        step["window"] = random.choice(("00:00:20-23:00 UTC", "00:00-23:59 UTC"))
    if chance() < 0.03:
        step["risk_level"] = random.choice(("high", "critical"))


def draw_act(random: Random, scenario: Scenario) -> Act:
    """What a call of a worker does."""
    quick = random.choice((0.0, 0.0, 0.001, 0.05, 0.7, 3.0))
    act = Act(before_s=quick, after_s=random.choice((0.0, 0.0, 0.02, 0.5)))
    act.curious = random.random() < 0.2
    act.cost = random.choice((0.0, 0.0, 0.5, 1.0, 3.0))
    if random.random() < scenario.stubborn:
        act.stubborn_s = random.choice((0.01, 1.0, 15.0))
    if random.random() < scenario.outages:
        act.kind, act.effect = random.choice(("transient", "rate_limited", "unavailable")), False
        act.retry_after_s = random.choice((0.3, 6.0, 7.0, 90.0))
        return act
    if random.random() >= scenario.failing:
        return act
    act.kind = random.choice(
        ("typed", "typed", "typed", "hang", "hang", "lie", "garbage", "raise", "unknown", "big")
    )
    if act.kind == "typed":
        act.kind = random.choice(TYPED)
        act.effect = False
        if act.kind == "rate_limited" or random.random() < 0.1:
            act.retry_after_s = random.choice((0.0, 0.3, 7.0, 90.0))
    elif act.kind in ("hang", "raise", "unknown"):
        act.effect = random.random() < 0.5
    return act


VERBS = {
    "pause": 4,
    "resume": 8,
    "answer": 24,
    "cancel": 1,
    "stop_all": 1,
    "lift": 3,
    "hold": 6,
    "redo": 6,
}
"""What people of a world say to runs and to the host, with how often."""


def _words(random: Random, until_s: float) -> list[tuple[float, str]]:
    """What people say while all goes wrong: at random moments, with no regard to sense."""
    count = random.choice((0, 0, 1, 3, 8))
    chosen = random.choices(list(VERBS), list(VERBS.values()), k=count)
    return sorted((random.random() * until_s, verb) for verb in chosen)
