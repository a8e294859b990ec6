"""One pool of gates: the merge queue first, nobody for ever last; fewer runs than changes."""

import asyncio
import sys
from dataclasses import replace

import pytest

from leadhand import Lead, Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.boundaries import Boundaries, Sharing
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.epics import parse_epic, plan_of
from leadhand.fleet.gate.gate_memory import SCREEN_ABOVE, Screening
from leadhand.fleet.merge.conductor import Conductor, Ejected
from leadhand.fleet.merge.train import Rules
from leadhand.fleet.overlap_price import OverlapPrice
from leadhand.fleet.worker import WITH_BATCH, coder_workers
from leadhand.fleet.workspace.slots import FAIR, UrgentFirst
from leadhand.stores.memory import MemoryStore
from tests.fleet.places import commit_all, write

AGENT = """
import json, pathlib, sys
task, attempt = sys.argv[1], sys.argv[2]
hot = pathlib.Path("hot.py")
lines = hot.read_text().splitlines()
at = 20 * int(task[1:]) + 5
lines[at] = f"x{at} = {task!r}"
hot.write_text("\\n".join(lines) + "\\n")
good = task != "t3" or attempt != "1"
pathlib.Path(f"{task}.py").write_text("ok = 1\\n" if good else "ok = 0\\n")
print(json.dumps({"type": "result", "text": "done"}), flush=True)
"""
GATE = (
    "import pathlib, sys, time; runs = pathlib.Path(sys.argv[1]); runs.open('a').write('x')\n"
    "while not runs.with_name('go').exists(): time.sleep(0.05)\n"
    "sys.exit(any('ok = 0' in p.read_text() for p in pathlib.Path().glob('t*.py')))"
)


async def test_the_urgent_come_first_and_the_others_are_not_forgotten():
    pool, order = UrgentFirst(1), []

    async def work(name, *, urgent):
        await pool.acquire(urgent=urgent)
        order.append(name)
        await asyncio.sleep(0)
        pool.release()

    await pool.acquire()
    tasks = [asyncio.create_task(work(f"o{n}", urgent=False)) for n in range(2)]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(work(f"u{n}", urgent=True)) for n in range(9)]
    await asyncio.sleep(0)
    pool.release()
    await asyncio.gather(*tasks)
    assert order[: FAIR - 1] == ["u0", "u1", "u2"]
    assert order.index("o0") == FAIR - 1
    assert order.index("o1") > order.index("u5")
    assert [n for n in order if n[0] == "u"] == [f"u{n}" for n in range(9)]


@pytest.mark.parametrize("late", [False, True])
async def test_who_gives_up_waiting_takes_no_place_along(late):
    """Before its turn came, and in the moment in which it came."""
    pool = UrgentFirst(1)
    await pool.acquire()
    waiting = asyncio.create_task(pool.acquire(urgent=True))
    await asyncio.sleep(0)
    if late:
        pool.release()
        waiting.cancel()
    else:
        waiting.cancel()
        await asyncio.sleep(0)
        pool.release()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(30):
        await pool.acquire()


def test_changes_are_screened_while_many_are_red():
    screening = Screening()
    assert not screening.needed
    for _ in range(8):
        screening.add(red=True)
    assert screening.needed
    for _ in range(100):
        screening.add(red=False)
    assert not screening.needed
    assert Screening(always=True).needed
    assert 0 < SCREEN_ABOVE < 0.5


@pytest.fixture
def user(user):
    """A repository with a file that every task edits."""
    write(user, {"hot.py": "".join(f"x{n} = 0\n" for n in range(400))})
    commit_all(user, "a hot file")
    return user


async def test_eight_edits_of_one_file_land_together_with_fewer_gate_runs_than_changes(
    fleet, tmp_path
):
    """One of them is red: it alone goes back, nobody is asked, and each tip of main is green."""
    shop, processes = fleet
    sharing, counted = Sharing(price=True), tmp_path / "runs"
    command = (sys.executable, "-c", GATE, str(counted))
    shop.gate.rules = replace(shop.gate.rules, commands=(command,))
    shop.sharing, shop.price, shop.screening = sharing, OverlapPrice(sharing), Screening()
    shop.boundaries = Boundaries(shop.price)
    (tmp_path / "agent.py").write_text(AGENT)
    agent = [sys.executable, str(tmp_path / "agent.py"), "{task}", "{attempt}"]
    coder = TemplateCoder("scripted", agent, processes=processes, homes=tmp_path / "homes")
    names, store, tips = [f"t{n}" for n in range(12)], MemoryStore(), []
    note = lambda what, **more: tips.append(more["tip"]) if what == "moved" else None  # noqa: E731
    tasks = "\n".join(
        f"  - {{id: {n}, goal: change the line of {n}, writes: [{n}.py, hot.py]}}" for n in names
    )
    epic = parse_epic(f"# Edits\n```yaml\ntasks:\n{tasks}\n```\n", "e", "e.md")
    rules = Rules(slots=1, batch_max=8)
    async with Conductor(shop.hub, shop.gate.for_train(), rules, note=note) as conductor:
        shop.conductor = conductor
        crew = coder_workers(shop, [("coder", coder, "")], AttemptLimits(time_s=90, silence_s=80))
        lead = Lead(crew, store=store, policy=Policy(backoff_s=0.01))
        running = asyncio.create_task(lead.run(plan_of(epic, sharing=sharing)))
        while conductor.waiting < len(names) and not running.done():
            await asyncio.sleep(0.05)
        counted.with_name("go").touch()
        outcome = await running
    assert outcome.status == "succeeded", outcome
    assert shop.governor.peak >= 6, "they did not wait for each other"
    attempts = {step.id: step.attempts for step in outcome.steps}
    assert attempts == dict.fromkeys(names, 1) | {"t3": 2}
    assert len(counted.read_text()) < len(names)
    hub = shop.hub
    assert tips[-1] == hub.main()
    for tip in tips:
        files = (await hub.git("ls-tree", "--name-only", tip)).text.split()
        modules = [name for name in files if name.startswith("t")]
        assert modules
        for name in modules:
            assert (await hub.git("show", f"{tip}:{name}")).text.strip() == "ok = 1"
    text = (await hub.git("show", f"{hub.main()}:hot.py")).text
    assert all(f"= {name!r}" in text for name in names)
    assert shop.price.record.redone == 0.0


class Stub:
    """A merge queue that finds every change red, at first for tests of main that are gone."""

    def __init__(self):
        self.changes = []

    async def land(self, change):
        self.changes.append(change)
        tests = ["test_a"] if len(self.changes) == 1 else []
        return Ejected("red", "the log", {"failed": "make test", "tests": tests})


async def test_a_change_that_is_red_for_tests_of_main_is_tested_by_itself(fleet, tmp_path):
    """Whether a person may let it pass is known only then; one that was red is screened later."""
    shop, processes = fleet
    shop.screening, shop.conductor, notes = Screening(), Stub(), []
    shop.note = lambda what, **_more: notes.append(what)
    (tmp_path / "agent.py").write_text(AGENT)
    agent = [sys.executable, str(tmp_path / "agent.py"), "{task}", "{attempt}"]
    coder = TemplateCoder("scripted", agent, processes=processes, homes=tmp_path / "homes")
    crew = coder_workers(shop, [("coder", coder, "")], AttemptLimits(time_s=90, silence_s=80))
    tasks = "tasks:\n  - {id: t1, goal: change the line of t1, writes: [t1.py, hot.py]}"
    epic = parse_epic(f"# Edits\n```yaml\n{tasks}\n```\n", "e", "e.md")
    policy = Policy(backoff_s=0.01, attempts_max=1)
    running = asyncio.create_task(Lead(crew, store=MemoryStore(), policy=policy).run(plan_of(epic)))
    async with asyncio.timeout(120):
        while len(shop.conductor.changes) < 3 and not running.done():
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert notes[:3] == ["agent", "agent ended", "checked"]
    first, again, later = shop.conductor.changes[:3]
    assert (first.attempt, again.attempt, later.attempt) == (1, 1, 2)
    tests = [each.trailers["Leadhand-Tests"] for each in (first, again, later)]
    assert tests == [WITH_BATCH, "not counted", "not counted"]
