"""F01 to F13: models and their providers fail. Real sockets, a real agent, a real client."""

from __future__ import annotations

import contextlib
import email.utils
import json
import socket
import struct
import threading
import time
from typing import Any, Self

from leadhand.testing.endpoint import (
    Cut,
    Fail,
    Garbage,
    Refuse,
    Reply,
    Say,
    Truncated,
    Use,
)
from leadhand.testing.endpoint.request import Request
from tests.proof.fault_stage import Model, Stage

AGENTS = """
[tiers]
hand = {tier}
{models}
[agents.clerk]
tier = "hand"
effects = []
idempotent = true
timeout = "{timeout}"
returns = {{type = "object", required = ["n"], properties = {{n = {{type = "integer"}}}}}}
"""
MODEL = """
[models.{name}]
provider = "chat"
model = "{name}"
url = "{url}/v1"
"""
REFUSED_PORT = 1
"""Nothing listens on it."""


def agents(stage: Stage, timeout: str = "30 s", more: str = "", **urls: str) -> None:
    """Write settings with an agent whose tier has these models, in order."""
    models = "".join(MODEL.format(name=name, url=url) for name, url in urls.items())
    text = AGENTS.format(tier=json.dumps(list(urls)), models=models, timeout=timeout)
    stage.settings(text + more)


def good(number: int) -> Use:
    """Return the right answer of a model."""
    return Use("finish", {"result": {"n": number}})


def work(stage: Stage, number: int, **more: Any) -> None:
    """Run a plan in which an agent finds a number and a command acts on it; judge the effect."""
    think = {"id": "think", "worker": "clerk", "parameters": {"task": "find it"}, **more}
    act = {"id": "act", "worker": "act", "depends_on": ["think"]}
    act["parameters"] = {"value": "n${{ steps.think.data.n }}"}
    stage.go(stage.plan(think, act))
    stage.effects(f"n{number}")


def named(request: Request) -> str:
    """Return the model that is asked."""
    return str(request.body["model"])


class Unsteady:
    """A port that breaks its first connections in one of several ways, then passes them on."""

    def __init__(self, target: str, way: str, count: int) -> None:
        self._target = int(target.rpartition(":")[2])
        self._way, self._count = way, count
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.broken = 0
        self._open = [self._listener]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # An accepted connection is let go by its threads; the listener by the one that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                if self.broken < self._count:
                    self.broken += 1
                    self._break(client)
                else:
                    server = socket.create_connection(("127.0.0.1", self._target))
                    self._open.append(server)
                    for one, other in ((client, server), (server, client)):
                        threading.Thread(target=_pump, args=(one, other), daemon=True).start()

    def _break(self, client: socket.socket) -> None:
        if self._way == "silent":
            return
        if self._way == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def f01(stage: Stage) -> None:
    """Connections are reset, closed or silent, or the name does not resolve; then it works."""
    number, way = stage.draw.randrange(1000), stage.draw.choice(("reset", "close", "silent", "dns"))
    stage.told = way
    with Model(lambda _r, _n: good(number)) as model:
        count = stage.draw.randint(1, 2)
        with Unsteady(model.url, way, 0 if way == "dns" else count) as link:
            stage.fault()
            wait = "3 s" if way == "silent" else "30 s"
            if way == "dns":
                agents(stage, wait, one="http://provider.invalid", two=link.url)
            else:
                agents(stage, wait, one=link.url)
            work(stage, number)
            calls = len(model.times) + link.broken
            stage.expect(calls <= 4, f"{calls} calls")


def f02(stage: Stage) -> None:
    """429 with Retry-After of 7 seconds, as a number or a date, while more steps wait."""
    number, dated = stage.draw.randrange(1000), stage.draw.random() < 0.5
    stage.told = "a date" if dated else "seconds"
    until: list[float] = []

    def answer(_request: Request, asked: int) -> Reply:
        if asked > 1:
            return good(number)
        now = time.time()
        if not dated:
            until.append(now + 7)
            return Fail(429, retry_after_s=7)
        until.append(float(int(now) + 8))
        return Fail(429, headers={"retry-after": email.utils.formatdate(until[0], usegmt=True)})

    with Model(answer) as model:
        agents(stage, one=model.url, more="max_concurrency = 1\n")
        stage.fault()
        steps: list[dict[str, Any]] = [
            {"id": f"think{i}", "worker": "clerk", "parameters": {"task": str(i)}} for i in range(4)
        ]
        steps.append({"id": "act", "worker": "act", "parameters": {"value": "all"}})
        steps[-1]["depends_on"] = [f"think{i}" for i in range(4)]
        stage.go(stage.plan(*steps))
        stage.effects("all")
        early = [at for at in model.times[1:] if at < until[0] - 0.05]
        stage.expect(not early, f"{len(early)} calls before Retry-After")


def f03(stage: Stage) -> None:
    """50 steps at once on a provider that takes few calls a second and says no more than 429."""
    room, taken = stage.draw.randint(8, 15), []
    refused = [0]

    def answer(_request: Request, _asked: int) -> Reply:
        now = time.time()
        taken[:] = [at for at in taken if now - at < 1.0]
        if len(taken) >= room:
            refused[0] += 1
            stage.fault()
            return Fail(429)
        taken.append(now)
        return good(1)

    with Model(answer) as model:
        agents(stage, "120 s", one=model.url)
        text = (stage.path / "leadhand.toml").read_text()
        stage.write("leadhand.toml", text.replace("[policy]", "[policy]\nconcurrency = 50"))
        steps: list[dict[str, Any]] = [
            {"id": f"t{i}", "worker": "clerk", "parameters": {"task": str(i)}} for i in range(50)
        ]
        steps.append({"id": "act", "worker": "act", "parameters": {"value": "all"}})
        steps[-1]["depends_on"] = [f"t{i}" for i in range(50)]
        stage.go(stage.plan(*steps), limit_s=400)
        stage.effects("all")
        share = (len(model.times) - 50) / 50
        stage.told = f"{room} calls a second; {refused[0]} refused; {share:.0%} more calls"
        stage.expect(share <= 0.1, f"{share:.0%} of the calls were repeated, wanted at most 10 %")


def f04(stage: Stage) -> None:
    """A fifth of the calls are answered with 500, 502, 503 or 529."""
    faults = [0]

    def answer(_request: Request, _asked: int) -> Reply:
        if stage.draw.random() < 0.2:
            faults[0] += 1
            stage.fault()
            return Fail(stage.draw.choice((500, 502, 503, 529)))
        return good(1)

    with Model(answer) as model:
        agents(stage, one=model.url)
        steps: list[dict[str, Any]] = [
            {"id": f"t{i}", "worker": "clerk", "parameters": {"task": str(i)}, "retry": 6}
            for i in range(20)
        ]
        steps.append({"id": "act", "worker": "act", "parameters": {"value": "all"}})
        steps[-1]["depends_on"] = [f"t{i}" for i in range(20)]
        stage.go(stage.plan(*steps))
        stage.effects("all")
        stage.told = f"{faults[0]} of {len(model.times)} calls failed"


def f05(stage: Stage) -> None:
    """A provider that is down: another model takes over, or the run parks and goes on alone."""
    number, parks = stage.draw.randrange(1000), stage.draw.random() < 0.5
    stage.told = "parked" if parks else "other model"
    stage.fault()
    back: list[float] = []

    def answer(_request: Request, _asked: int) -> Reply:
        if not back:
            back.append(time.time() + 5)
        if parks and time.time() < back[0]:
            return Fail(503, retry_after_s=max(1.0, back[0] - time.time()))
        return good(number)

    with Model(answer) as model:
        if parks:
            agents(stage, one=model.url)
            text = (stage.path / "leadhand.toml").read_text()
            stage.write("leadhand.toml", text.replace("[policy]", '[policy]\npark = "1 s"'))
        else:
            agents(stage, one=f"http://127.0.0.1:{REFUSED_PORT}", two=model.url)
        work(stage, number)


def f06(stage: Stage) -> None:
    """A stream stops in the middle, and the connection stays open."""
    number = stage.draw.randrange(1000)

    def answer(_request: Request, asked: int) -> Reply:
        if asked == 1:
            stage.fault()
            return Cut(good(number), after=stage.draw.uniform(0.1, 0.9), how="hang")
        return good(number)

    with Model(answer) as model:
        agents(stage, "3 s", one=model.url)
        work(stage, number)
        detected = model.times[1] - model.times[0] if len(model.times) > 1 else 99.0
        stage.told = f"noticed after {detected:.1f} s"
        stage.expect(detected <= 10, f"a stalled stream was noticed after {detected:.1f} s")


def f07(stage: Stage) -> None:
    """An answer that is cut or empty, once or twice."""
    number, times = stage.draw.randrange(1000), stage.draw.randint(1, 2)

    def answer(_request: Request, asked: int) -> Reply:
        if asked > times:
            return good(number)
        stage.fault()
        how = stage.draw.choice(("close", "end"))
        return stage.draw.choice(
            (Cut(good(number), after=stage.draw.uniform(0.1, 0.9), how=how), Garbage(b""))
        )

    with Model(answer) as model:
        agents(stage, one=model.url)
        work(stage, number)
        stage.expect(len(model.times) <= times + 2, f"{len(model.times)} calls")


def f08(stage: Stage) -> None:
    """JSON in a fence with words around it, garbage, or arguments that are no JSON."""
    number = stage.draw.randrange(1000)
    ways: dict[str, Reply] = {
        "no JSON": Use("finish", '{"result": {"n": '),
        "cut at the limit": Truncated("half", good(number)),
        "words": Say("I think the number is rather large."),
        "garbage": Garbage(),
    }
    stage.told, bad = stage.draw.choice(sorted(ways.items(), key=lambda each: each[0]))

    def answer(_request: Request, asked: int) -> Reply:
        if asked == 1:
            stage.fault()
            return bad
        return good(number)

    with Model(answer) as model:
        agents(stage, one=model.url)
        work(stage, number)
        stage.expect(len(model.times) <= 3, f"{len(model.times) - 1} repairs")


def f09(stage: Stage) -> None:
    """A result that breaks the schema: wrong type, missing key, renamed field."""
    number = stage.draw.randrange(1000)
    bad: Any = stage.draw.choice(({"n": "many"}, {}, {"number": number}, {"n": 1.5}, {"n": None}))
    stage.told = json.dumps(bad)

    def answer(_request: Request, asked: int) -> Reply:
        if asked == 1:
            stage.fault()
            return Use("finish", {"result": bad})
        return good(number)

    with Model(answer) as model:
        agents(stage, one=model.url)
        work(stage, number)
        again = json.dumps(model.bodies[1]["messages"][-1]) if len(model.bodies) > 1 else ""
        stage.expect("n" in again and len(model.times) <= 3, "the model did not get the reason")


PARTS = """
from leadhand import method, worker


@worker(gives="parts")
def cut(raw: list[int]) -> list[list[int]]:
    return [[each] for each in raw]


@worker(gives="table")
def merge(tables: list[dict]) -> list[int]:
    return sorted(each["n"] for each in tables)


@method("table")
def in_parts():
    return ["cut", "part*", "merge"]


@worker(needs="table", gives="done", effects=["world"])
def keep(table: list[int]) -> str:
    with open("effects", "a") as file:
        file.write("-".join(map(str, table)) + "\\n")
    return "kept"
"""


def f10(stage: Stage) -> None:
    """The question is too long for the model: the planner splits the step."""
    rows = stage.draw.sample(range(1, 100), 3)
    contents: list[str] = []

    def answer(request: Request, _asked: int) -> Reply:
        text = json.dumps(request.body["messages"])
        contents.append(text)
        found = [each for each in rows if f"raw-{each}-" in text]
        task = str(request.body["messages"][-1])
        part = next(
            (each for each in rows if f"[{each}]" in task.replace("\\n", "").replace(" ", "")), None
        )
        if part is None:
            stage.fault()
            return Fail.too_long()
        return Use("finish", {"result": {"n": part}}) if not found else Fail.too_long()

    with Model(answer) as model:
        form = '{type = "object", required = ["n"], properties = {n = {type = "integer"}}}'
        more = f"""
[tiers]
hand = "one"
{MODEL.format(name="one", url=model.url)}
[agents.whole]
tier = "hand"
effects = []
needs = "raw"
gives = "table"
parameters = {{type = "object", required = ["raw"], properties = {{raw = {{type = "array"}}}}}}
returns = {{type = "array"}}
[agents.part]
tier = "hand"
effects = []
idempotent = true
parameters = {{type = "object", required = ["part"], properties = {{part = {{type = "array"}}}}}}
gives = "row"
returns = {form}
"""
        stage.settings(more, PARTS)
        goal = ("A table", "--planner", "goal", "--have", f"raw={json.dumps(rows)}")
        stage.go(*goal, "--want", "done")
        stage.effects("-".join(map(str, sorted(rows))))
        stage.expect(len(set(contents)) == len(contents), "the same question was asked again")


def f11(stage: Stage) -> None:
    """A refusal: another way to the same fact is taken."""
    number = stage.draw.randrange(1000)

    def answer(request: Request, _asked: int) -> Reply:
        if named(request) == "one":
            stage.fault()
            return Refuse()
        return Use("finish", {"result": {"n": number}})

    with Model(answer) as model:
        form = '{type = "object", required = ["n"], properties = {n = {type = "integer"}}}'
        rest = f'effects = []\nidempotent = true\ngives = "found"\nreturns = {form}\n'
        more = MODEL.format(name="one", url=model.url) + MODEL.format(name="two", url=model.url)
        more += f'\n[agents.first]\nmodel = "one"\ncost = 1\n{rest}'
        more += f'\n[agents.second]\nmodel = "two"\ncost = 5\n{rest}'
        keep = PARTS.replace('needs="table"', 'needs="found"').replace("table: list", "found: dict")
        keep = keep.replace('"-".join(map(str, table))', 'str(found["n"])')
        keep = keep.replace("[int]) -> str", ") -> str")
        stage.settings(more, "from leadhand import worker\n" + keep[keep.index("@worker(needs") :])
        stage.go("A number", "--planner", "goal", "--want", "done")
        stage.effects(number)
        refusals = sum(body["model"] == "one" for body in model.bodies)
        stage.expect(refusals <= 2, f"the refusing model was asked {refusals} times")


def f12(stage: Stage) -> None:
    """The model does not exist any more: the next of the tier is asked."""
    number = stage.draw.randrange(1000)

    def answer(request: Request, _asked: int) -> Reply:
        if named(request) == "one":
            stage.fault()
            return Fail(404)
        return good(number)

    with Model(answer) as model:
        agents(stage, one=model.url, two=model.url)
        work(stage, number)


def f13(stage: Stage) -> None:
    """The key is revoked, and there is no other: one person is asked once, for all agents."""
    status = stage.draw.choice((401, 403))
    stage.told = str(status)

    def answer(_request: Request, _asked: int) -> Reply:
        stage.fault()
        return Fail(status)

    with Model(answer) as model:
        agents(stage, one=model.url)
        steps: list[dict[str, Any]] = [
            {"id": f"t{i}", "worker": "clerk", "parameters": {"task": str(i)}} for i in range(5)
        ]
        steps.append({"id": "act", "worker": "act", "parameters": {"value": "all"}})
        steps[-1]["depends_on"] = [f"t{i}" for i in range(5)]
        stage.go(stage.plan(*steps))
        stage.effects()
        stage.told += f"; {stage.people} questions"
