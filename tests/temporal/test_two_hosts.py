"""The same stories on both hosts, from one test: their logs are equal but for times and ids.

One host keeps its log in a file, the other in PostgreSQL.
"""

import asyncio
import importlib.util
import json
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from leadhand import (
    Goal,
    Lead,
    Permanent,
    Policy,
    Propose,
    TooComplex,
    Transient,
    Unavailable,
    method,
    worker,
)
from leadhand.codec.events import decode
from leadhand.core.host_events import ApprovalUsed
from leadhand.errors import Conflict
from leadhand.stores.sqlite.store import SqliteStore
from leadhand.temporal.host import TemporalHost
from tests.support.temporal import free_port, on_temporal

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
STORIES = {}
PORT = free_port()
"""Of the server of a story, which both hosts must find at one address."""


def story(function):
    STORIES[function.__name__] = function
    return function


def module_of(path: Path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Stage:
    """What a story needs: a Lead of its making, on whichever host."""

    def __init__(self, host, temporal, place):
        self.host, self._temporal, self.place = host, temporal, place
        self.logs = []

    async def play(self, tale) -> list[dict]:
        await tale(self)
        return self.logs

    def lead(self, workers, planner=None, **more):
        if self.host == "temporal":
            return on_temporal(self._temporal, self.place, workers, planner, actor="ann", **more)
        return _Embedded(self.place, workers, planner, more)

    def keep(self, here, *runs):
        for run in runs:
            entries = here.store.read(run)
            self.logs.append([tidy(decode(entry.version, entry.body)) for entry in entries])


class _Embedded:
    def __init__(self, path, workers, planner, more):
        self._path = path
        self.lead = Lead(workers, planner, path, actor="ann", **more)

    @property
    def store(self):
        return SqliteStore.open_reader(self._path)

    async def __aenter__(self):
        self._hosting = self.lead.hosting()  # it stays, as a workflow does
        await self._hosting.__aenter__()
        return self

    async def __aexit__(self, *_):
        await self._hosting.__aexit__()


def tidy(event) -> dict:
    """Return an event without times, and without the worker that a workflow never offers."""
    told = _timeless(msgspec.to_builtins(event))
    if "catalog" in told:
        told["catalog"] = [spec for spec in told["catalog"] if spec.get("kind") != "caller"]
    return told


def _timeless(value, key=""):
    if isinstance(value, dict):
        return {name: _timeless(item, name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_timeless(item, key) for item in value]
    if isinstance(value, int) and value > 10**15:
        return "a time"
    if key in ("pid", "start_time", "boot_id", "owner"):
        return key
    return value


# The stories.


@story
async def deployment(stage: Stage):
    workers = module_of(ROOT / "examples" / "deploy" / "workers.py", "deploy_workers")
    plan = json.loads((ROOT / "examples" / "deploy" / "plan.json").read_text())
    async with stage.lead([workers]) as here:
        outcome = await here.lead.run(plan, run_id="deploy", approve=True)
        assert outcome.ok
        assert outcome.steps["step-3"].data == "auth-service v2.1.4 is live (blue_green)"
        stage.keep(here, "deploy")


@story
async def research(stage: Stage):
    folder = ROOT / "examples" / "research"
    town = module_of(folder / "server.py", "research_server")
    town.SLOW_S, town.Town.refused = 0.02, False
    workers = module_of(folder / "workers.py", "research_workers")
    workers.SLOW_S = 0.02
    with town.serve(PORT) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            policy = Policy(max_concurrency=1)
            async with stage.lead([workers], policy=policy) as here:
                goal = Goal(
                    text="When does the town run out of bicycles?",
                    want=("summary",),
                    mode="whole",  # who plans while steps run is a race, on any host
                    have={"api": f"http://127.0.0.1:{PORT}"},
                )
                outcome = await here.lead.run(goal, run_id="research", approve=True)
                if outcome.status == "waiting":
                    asked = outcome.waiting_for[0]
                    name = asked.id.partition("/")[2]
                    await here.lead.answer("research", name, asked.answers[0], text="ok")
                    outcome = await here.lead.resume("research", approve=True)
                assert outcome.status in ("succeeded", "waiting"), outcome
                stage.keep(here, "research")
        finally:
            server.shutdown()


@worker(effects=["files"])
def note(text: str) -> str:
    return text


@worker(effects=["files"])
def unnote(text: str) -> str:
    return f"no {text}"


@story
async def review_and_amend(stage: Stage):
    plan = {
        "steps": [
            {"id": "a", "worker": "note", "parameters": {"text": "one"}},
            {"id": "b", "worker": "note", "parameters": {"text": "two"}, "depends_on": ["a"]},
        ]
    }
    async with stage.lead([note], policy=Policy(review=True)) as here:
        waits = await here.lead.run(plan, run_id="amended")
        assert waits.status == "waiting"
        await here.lead.amend("amended", {"steps.b.parameters.text": "three"})
        await here.lead.answer("amended", "review-2", "approve")
        done = await here.lead.resume("amended")
        assert done.ok
        assert done.steps["b"].data == "three"
        stage.keep(here, "amended")


@worker(gives="told", effects=["net"], idempotent=True)
async def pager() -> str:
    raise Permanent("page not found")


@worker(gives="told", effects=["net"], idempotent=True, cost=2)
async def phone() -> str:
    return "told"


async def by_phone(view):
    """A planner of the user's own."""
    return Propose([{"id": "again", "worker": "phone", "supersedes": "tell"}], final=True)


@story
async def revised_document(stage: Stage):
    """Plans that name their planner: the goal planner, and code that the engine has."""
    plan = {
        "goal": {"text": "Tell them", "want": ["told"]},
        "envelope": {"workers": ["phone"]},
        "steps": [{"id": "tell", "worker": "pager"}],
    }
    policy = Policy(review=True)
    async with stage.lead([pager, phone], by_phone, policy=policy) as here:
        for name, planner in (("goal", "goal"), ("code", f"{__name__}:by_phone")):
            done = await here.lead.run({**plan, "planner": planner}, run_id=name, approve=True)
            assert done.result == "told", done
            assert not done.waiting_for
            stage.keep(here, name)


@story
async def schedule(stage: Stage):
    when = datetime.now(UTC) + timedelta(seconds=2)
    step = {"id": "later", "worker": "note", "parameters": {"text": "x"}}
    async with stage.lead([note]) as here:
        doc = {"steps": [{**step, "not_before": when.isoformat()}]}
        done = await here.lead.run(doc, run_id="night", approve=True)
        assert done.ok
        began = [e.at for e in here.store.read("night") if b'"AttemptStarted"' in e.body]
        assert began[0] >= when.timestamp() * 1e6
        stage.keep(here, "night")
    for log in stage.logs:
        for event in log:
            for added in event.get("add", ()):
                added["not_before"] = "a time"
            event.pop("hash", None)
            event.pop("spec", None)
            event.pop("instants", None)
            event.pop("linted", None)
            event.pop("binding", None)


@worker
def breaks() -> None:
    raise Permanent("it cannot be done")


@story
async def rollback(stage: Stage):
    steps = [
        {
            "id": "a",
            "worker": "note",
            "parameters": {"text": "done"},
            "undo": {"worker": "unnote", "parameters": {"text": "done"}},
        },
        {"id": "b", "worker": "breaks", "depends_on": ["a"], "failure_action": "rollback"},
    ]
    async with stage.lead([note, unnote, breaks]) as here:
        outcome = await here.lead.run({"steps": steps}, run_id="back", approve=True)
        assert outcome.status == "failed"
        assert outcome.rollback is not None
        assert outcome.rollback.ok
        stage.keep(here, "back", outcome.rollback.run)


FAST = Policy(backoff_s=0.05, jitter=0.0)


@story
async def retry(stage: Stage):
    tries = []

    @worker(idempotent=True)
    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise Transient("connection reset")
        return "fetched"

    async with stage.lead([flaky], policy=FAST) as here:
        steps = [{"id": "get", "worker": "flaky"}]
        outcome = await here.lead.run({"steps": steps}, run_id="retried")
        assert outcome.ok
        assert len(tries) == 3
        stage.keep(here, "retried")


@worker
def dead() -> str:
    raise Unavailable("no such endpoint")


@worker
def standby() -> str:
    return "from the other one"


@story
async def reroute(stage: Stage):
    async with stage.lead([dead, standby], policy=FAST) as here:
        steps = [{"id": "get", "worker": "dead", "alternatives": ["standby"]}]
        outcome = await here.lead.run({"steps": steps}, run_id="rerouted")
        assert outcome.ok
        assert outcome.steps["get"].data == "from the other one"
        stage.keep(here, "rerouted")


@worker(gives="table")
def clean(raw: list[int]) -> list[int]:
    raise TooComplex("too many rows at once")


@worker(gives="parts")
def cut(raw: list[int]) -> list[list[int]]:
    return [[each] for each in raw]


@worker(gives="row")
def clean_part(part: list[int]) -> list[int]:
    return part


@worker(gives="table")
def merge(tables: list[list[int]]) -> list[int]:
    return [row for table in tables for row in table]


@method("table")
def in_parts() -> list[str]:
    return ["cut", "clean_part*", "merge"]


@story
async def simplify(stage: Stage):
    workers = [clean, cut, clean_part, merge, in_parts]
    policy = Policy(max_concurrency=1)
    async with stage.lead(workers, policy=policy) as here:
        goal = Goal(want=("table",), have={"raw": [1, 2, 3]}, mode="whole")
        outcome = await here.lead.run(goal, run_id="simpler", approve=True)
        assert outcome.ok, outcome
        assert outcome.result in ({"table": [1, 2, 3]}, [1, 2, 3])
        stage.keep(here, "simpler")


@story
async def escalate(stage: Stage):
    async with stage.lead([breaks, note]) as here:
        step = {"id": "b", "worker": "breaks", "failure_action": "escalate"}
        waits = await here.lead.run({"steps": [step]}, run_id="asked")
        assert waits.status == "waiting"
        asked = waits.waiting_for[0]
        assert "skip" in asked.answers
        await here.lead.answer("asked", asked.id.partition("/")[2], "skip")
        outcome = await here.lead.resume("asked")
        assert outcome.status == "succeeded"
        stage.keep(here, "asked")


@story
async def cancel(stage: Stage):
    begun, ended = asyncio.Event(), asyncio.Event()

    @worker
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    async with stage.lead([endless, note]) as here:
        steps = [{"id": "a", "worker": "endless"}, {"id": "b", "worker": "note"}]
        steps[1] |= {"depends_on": ["a"], "parameters": {"text": "never"}}
        running = asyncio.create_task(here.lead.run({"steps": steps}, run_id="stopped"))
        await asyncio.wait_for(begun.wait(), 20)
        await here.lead.cancel("stopped", "wrong version")
        outcome = await asyncio.wait_for(running, 40)
        assert outcome.status == "cancelled"
        assert ended.is_set()
        stage.keep(here, "stopped")


@worker(risk="high")
async def release(version: str) -> str:
    return f"{version} is live"


GIVEN = []


@story
async def allowed_before(stage: Stage):
    """With an approval of the plan from before the run: good for one run."""
    plan = {"steps": [{"id": "a", "worker": "release", "parameters": {"version": "v2"}}]}
    async with stage.lead([release]) as here:
        GIVEN[:] = GIVEN or [here.lead.approve(plan, expires="8 hours")]
        outcome = await here.lead.run(plan, run_id="allowed", approval=GIVEN[0])
        assert outcome.result == "v2 is live"
        with pytest.raises(Conflict, match="was used by run allowed, and is good for one"):
            await here.lead.run(plan, run_id="twice", approval=GIVEN[0])
        stage.keep(here, "allowed")


FULL = []


@worker
async def publish(text: str) -> str:
    if FULL:
        raise Permanent("the shelf is full")
    return f"published: {text}"


@story
async def run_again(stage: Stage):
    """From the step that failed, with a result that is taken over; and all of it again."""
    steps = [
        {"id": "a", "worker": "note", "parameters": {"text": "one"}},
        {"id": "b", "worker": "publish", "parameters": {"text": "${{ steps.a.data }}"}},
    ]
    steps[1]["failure_action"] = "abort"
    async with stage.lead([note, publish]) as here:
        FULL.append("shelf")
        failed = await here.lead.run({"steps": steps}, run_id="first", labels=["nightly"])
        assert failed.status == "failed"
        FULL.clear()
        part = await here.lead.rerun("first", from_step="b")
        whole = await here.lead.rerun(part.run)
        assert (part.result, whole.result) == ("published: one",) * 2
        reading = Lead([], store=stage.place)
        assert reading.verify()["violations"] == []
        found = {row.run: row.labels for row in reading.list()}
        assert [*found[part.run]] == ["nightly", "rerun_of=first"]
        assert [*found[whole.run]] == ["nightly", f"rerun_of={part.run}"]
        stage.keep(here, "first", part.run, whole.run)
    for number, run in enumerate((part.run, whole.run)):  # ids are drawn by chance
        stage.logs = json.loads(json.dumps(stage.logs).replace(run, f"again-{number}"))


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_is_the_same_on_both_hosts(name, temporal, postgres, tmp_path, monkeypatch):
    told = {}
    for host, place in (("embedded", tmp_path / "log.db"), ("temporal", postgres.new(tmp_path))):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / host))  # as two accounts
        told[host] = await Stage(host, temporal, place).play(STORIES[name])
    for there, here in zip(told["temporal"], told["embedded"], strict=True):
        for number, (distant, near) in enumerate(zip(there, here, strict=False), 1):
            assert distant == near, f"event {number}"
        assert [each["type"] for each in there] == [each["type"] for each in here]


async def test_an_approval_is_used_by_whoever_is_first(tmp_path):
    """Two who begin at once, each on a machine of its own, and one log."""
    store = SqliteStore(tmp_path / "log.db")
    store.claim()
    used = [ApprovalUsed("one", run, "ann") for run in ("here", "there")]
    told = [TemporalHost(None, store).tell_host(event) for event in used]
    found = await asyncio.gather(*told, return_exceptions=True)
    assert [type(each) for each in found].count(Conflict) == 1, found
    assert TemporalHost(None, store).shared.used == {"one": "here"}
    await store.close()
