"""F14 to F22: planners that are wrong, repeat themselves, never end, die or ask for too much."""

from __future__ import annotations

import json
from typing import Any

from leadhand.testing.endpoint import Data, Hang, Reply
from leadhand.testing.endpoint.request import Request
from tests.proof.fault_stage import Model, Stage

MODEL_PLANNER = """
from leadhand import ModelPlanner

planner = ModelPlanner("chat:planner@{url}", asks=False{more})
"""
FINISH = {"kind": "finish", "because": "it is done"}
LINES_SECONDS_MAX = 60


def step(ident: str, value: str, worker: str = "act", **more: Any) -> dict[str, Any]:
    """Return a step that leaves a value in the world."""
    return {"id": ident, "worker": worker, "parameters": {"value": value}, **more}


def propose(*steps: dict[str, Any], **more: Any) -> Data:
    """Return a proposal as a model writes it."""
    return Data({"kind": "propose", "because": "so it is done", "steps": list(steps), **more})


def planned(stage: Stage, *answers: Reply, more: str = "", limit: int = 20) -> list[Any]:
    """Run a goal with a model as the planner, which gives these answers and then says it is done.

    Return the bodies of the requests.
    """

    def answer(_request: Request, asked: int) -> Reply:
        stage.fault()
        return answers[asked - 1] if asked <= len(answers) else Data(FINISH)

    with Model(answer) as model:
        stage.write("planners.py", MODEL_PLANNER.format(url=model.url, more=more))
        stage.go("Leave a value", "--planner", "planners.py:planner")
        stage.expect(len(model.times) <= limit, f"{len(model.times)} calls of the planner")
        return model.bodies


def f14(stage: Stage) -> None:
    """A worker that does not exist: refused, with the names of those that do."""
    value = f"v{stage.draw.randrange(1000)}"
    stranger = stage.draw.choice(("acts", "deploy", "Act", "act2", "do_it"))
    stage.told = stranger
    bodies = planned(stage, propose(step("a", value, stranger)), propose(step("a", value)))
    stage.effects(value)
    again = json.dumps(bodies[1]["messages"][-1]) if len(bodies) > 1 else ""
    stage.expect(stranger in again, "the planner was not told what is wrong")


def f15(stage: Stage) -> None:
    """A cycle, or a step that waits for itself: refused, with the cycle shown."""
    value, size = f"v{stage.draw.randrange(1000)}", stage.draw.randint(1, 4)
    ring = [step(f"s{n}", f"{value}{n}", depends_on=[f"s{(n + 1) % size}"]) for n in range(size)]
    stage.told = f"a ring of {size}"
    bodies = planned(stage, propose(*ring), propose(step("a", value)))
    stage.effects(value)
    again = json.dumps(bodies[1]["messages"][-1]) if len(bodies) > 1 else ""
    stage.expect("s0" in again, "the planner was not told what is wrong")


SCRIPTED = """
from leadhand import Finish, Propose

VALUE = {value!r}


def act(ident, **more):
    return {{"id": ident, "worker": "act", "parameters": {{"value": VALUE}}, **more}}


def bad(call):
{bad}


def planner(view):
    steps = bad(view.call)
    if steps is not None:
        with open("faults", "a") as file:
            import time
            file.write(f"{{time.time()}}\\n")
        return Propose(steps)
    done = [each for each in view.timeline if each.status == "succeeded"]
    return Finish("done") if done else Propose([act("good")])
"""


def scripted(stage: Stage, value: str, bad: str, *args: str, limit_s: float = 180) -> None:
    """Run a goal with a planner that proposes something bad first, and judge the one effect."""
    lines = "".join(f"    {line}\n" for line in bad.splitlines())
    stage.write("planners.py", SCRIPTED.format(value=value, bad=lines))
    stage.go("Leave a value", "--planner", "planners.py:planner", *args, limit_s=limit_s)
    stage.effects(value)


def f16(stage: Stage) -> None:
    """A dangling reference, two steps of one name, 10,000 steps, or a chain of 2,000."""
    ways = {
        "dangling": "return [act('a', depends_on=['z'])] if call == 1 else None",
        "twice": "return [act('a'), act('a')] if call == 1 else None",
        "10,000 steps": "return [act(f's{n}') for n in range(10_000)] if call == 1 else None",
        "a chain of 2,000": "return [act(f's{n}', depends_on=[f's{n-1}'] if n else [])"
        " for n in range(2000)] if call == 1 else None",
        "a reference to nothing": "return [{'id': 'a', 'worker': 'act',"
        " 'parameters': {'value': '${{ steps.z.data }}'}}] if call == 1 else None",
    }
    stage.told = stage.draw.choice(sorted(ways))
    stage.settings(policy="steps = 100")
    scripted(stage, f"v{stage.draw.randrange(1000)}", ways[stage.told])


def f17(stage: Stage) -> None:
    """A model that proposes a finished step again, under its name or under a new one."""
    value, renamed = f"v{stage.draw.randrange(1000)}", stage.draw.random() < 0.5
    again = propose(step("b" if renamed else "a", value))
    stage.told = "under a new name" if renamed else "under its name"
    planned(stage, propose(step("a", value)), again, more=', style="next_step"')
    stage.effects(value)


def f18(stage: Stage) -> None:
    """A planner that never says that it is done: the run ends when the goal is reached."""
    value = f"v{stage.draw.randrange(1000)}"
    more = """
[workers.note]
command = ["/bin/sh", "act.sh", "{value}"]
effects = ["world"]
risk = "low"
gives = "note"
output = "text"
"""
    stage.settings(more)

    def answer(_request: Request, asked: int) -> Reply:
        stage.fault()
        return propose(step(f"s{asked}", value if asked == 1 else f"{value}-{asked}", "note"))

    with Model(answer) as model:
        stage.write("planners.py", MODEL_PLANNER.format(url=model.url, more=""))
        goal = ("Leave a note", "--planner", "planners.py:planner", "--want", "note")
        stage.go(*goal)
        lines = (stage.path / "effects").read_text().split()
        extra = lines[1:]
        stage.effects(value, *(extra if len(extra) <= 1 else ()))
        stage.told = f"{len(extra)} extra plans, {len(model.times)} calls of the planner"


IDLE = """
from leadhand import Hybrid, Permanent, Propose, worker


@worker(effects=(), gives="pinged")
def ping(n: int) -> int:
    return n


@worker(gives="note", effects=["world"])
def leave() -> str:
    with open("effects", "a") as file:
        file.write({value!r} + "\\n")
    return "left"


def idle(view):
    with open("faults", "a") as file:
        import time
        file.write(f"{{time.time()}}\\n")
    name = ("ping", "ping")[view.call % 2]
    number = view.call % 2
    return Propose([{{"id": f"s{{view.call}}", "worker": name, "parameters": {{"n": number}}}}])


planner = Hybrid(idle, idle={idle})
"""


def f19(stage: Stage) -> None:
    """Two steps in turn for ever, and nothing comes of it: the goal planner takes over."""
    value, limit = f"v{stage.draw.randrange(1000)}", stage.draw.randint(2, 4)
    stage.settings("", IDLE.format(value=value, idle=limit))
    stage.go("Leave a note", "--planner", "workers.py:planner", "--want", "note")
    stage.effects(value)
    file = stage.path / "faults"
    asked = len(file.read_text().split()) if file.exists() else 0
    stage.told = f"{asked} idle plans, then the goal planner"
    stage.expect(asked <= 3 * limit, f"{asked} idle plans at a limit of {limit}")


def f20(stage: Stage) -> None:
    """It says that it is done before it is: acceptance is checked, and it plans again."""
    value = f"v{stage.draw.randrange(1000)}"
    first: list[Reply] = [Data(FINISH)]
    if stage.draw.random() < 0.5:
        other = {"id": "o", "worker": "look", "parameters": {}}
        first = [propose(other), Data(FINISH)]
    stage.told = f"{len(first)} answers before the right one"
    stage.settings(
        '[workers.look]\ncommand = ["true"]\nidempotent = true\nrisk = "low"\neffects = []\n'
        '[workers.leave]\ncommand = ["/bin/sh", "act.sh", "{value}"]\neffects = ["world"]\n'
        'risk = "low"\ngives = "left"\n'
    )

    def answer(_request: Request, asked: int) -> Reply:
        stage.fault()
        if asked <= len(first):
            return first[asked - 1]
        right = propose(step("a", value, "leave"))
        return right if asked == len(first) + 1 else Data(FINISH)

    with Model(answer) as model:
        stage.write("planners.py", MODEL_PLANNER.format(url=model.url, more=""))
        stage.go("Leave a value", "--planner", "planners.py:planner", "--want", "left")
        stage.effects(value)
        stage.expect(len(model.times) <= 8, f"{len(model.times)} calls of the planner")


def f21(stage: Stage) -> None:
    """The process dies while the planner thinks, or the planner raises."""
    value = f"v{stage.draw.randrange(1000)}"
    if stage.draw.random() < 0.5:
        stage.told = "it raised"
        stage.fault()
        scripted(stage, value, "if call < 3:\n    raise RuntimeError('no idea')\nreturn None")
        return
    stage.told = "kill -9"

    def answer(_request: Request, asked: int) -> Reply:
        if asked == 1:
            return Hang(30)
        return propose(step("a", value)) if asked == 2 else Data(FINISH)

    with Model(answer) as model:
        stage.write("planners.py", MODEL_PLANNER.format(url=model.url, more=""))
        goal = ("run", "Leave a value", "--planner", "planners.py:planner", "--quiet")
        with stage.start(*goal) as child:
            stage.until(lambda: model.times, "the planner to be asked")
            stage.fault()
            child.kill()
            child.wait()
        run = stage.latest()["run"]
        stage.settle(stage.run("resume", run, "--quiet", "--planner", "planners.py:planner"))
        stage.effects(value)


RISKY = """
[review]
rules = [{effects = ["prod"], then = "refuse", name = "nothing is deployed here"}]
[workers.deploy]
command = ["/bin/sh", "act.sh", "deployed-{value}"]
effects = ["prod"]
risk = "high"
"""


def f22(stage: Stage) -> None:
    """A plan that asks for more than the policy gives: refused, never run, and another is made."""
    value = f"v{stage.draw.randrange(1000)}"
    stage.settings(RISKY)
    planned(stage, propose(step("a", value, "deploy")), propose(step("b", value)))
    stage.effects(value)
