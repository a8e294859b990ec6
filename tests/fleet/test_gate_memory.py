"""What the gate remembers: verdicts of one tree, set-ups that fail, flaky tests of main."""

import asyncio
import random
import sys

import pytest

from leadhand import Lead, Policy
from leadhand.fleet import worker as coders
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits, FleetContext
from leadhand.fleet.epics import parse_epic, plan_of
from leadhand.fleet.gate import gate_memory
from leadhand.fleet.gate.gate import Gate, GateRules, GateTrouble, GateVerdict, Soundness
from leadhand.fleet.governor import Governor, Room
from leadhand.fleet.merge.conductor import Conductor, QueuedChange
from leadhand.fleet.workspace.slots import Slots
from leadhand.stores.memory import MemoryStore
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import write

AGENT = """
import json, pathlib, sys
pathlib.Path(f"{sys.argv[1]}.py").write_text("1\\n")
print(json.dumps({"type": "result", "text": "done"}), flush=True)
"""


@pytest.fixture
async def processes():
    async with Processes("gate-memory") as made:
        yield made


@pytest.fixture
def make(tmp_path, hub, processes):
    """A gate with some rules."""
    slots = Slots(hub, tmp_path / "gates", 2, prefix="gate")

    def made(*, commands=(("true",),), **rules):
        given = GateRules(commands=commands, time_s=20.0, **rules)
        return Gate(hub, slots, given, processes=processes, sandbox=choose("none"))

    return made


async def commit(hub, slots, files):
    async with slots.lease(hub.main()) as slot:
        write(slot.path, files)
        return (await slot.take()).head


def counting(path, then="exit 0"):
    """A command that adds a line to a file, and goes on."""
    return ("sh", "-c", f"echo x >> {path}; {then}")


def times(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


# --- set-up --------------------------------------------------------------------------------


async def test_a_set_up_that_fails_is_trouble_and_no_verdict(tmp_path, hub, slots, make):
    """Until it passes; then the change is judged by its own tests alone."""
    count, up = tmp_path / "count", tmp_path / "up"
    gate = make(setup=(counting(count, f"echo no index >&2; test -e {up}"),))
    sha = await commit(hub, slots, {"new": "x\n"})
    for _ in range(9):  # main's set-up fails as well: the change is never blamed
        with pytest.raises(GateTrouble, match=r"(?s)cannot be set up.*no index"):
            await gate.check(sha)
    up.touch()
    assert (await gate.check(sha)).ok


async def test_a_change_that_breaks_the_set_up_is_red_in_the_end(tmp_path, hub, slots, make):
    """Main's set-up passes each time, and the change's fails again."""
    gate = make(setup=(("sh", "-c", "echo $0 fails; test ! -e broken"),))
    sha = await commit(hub, slots, {"broken": "x\n"})
    troubles = 0
    while True:
        try:
            verdict = await gate.check(sha)
        except GateTrouble:
            troubles += 1
        else:
            break
    assert troubles == gate_memory.FAILURES_MIN + gate_memory.MAIN_OK - 1
    assert (verdict.ok, verdict.log.splitlines()[-1]) == (False, "exit 1")
    assert verdict.failed.startswith("sh -c"), "the command of the set-up"
    assert (await gate.check(await commit(hub, slots, {"fine": "x\n"}))).ok


async def test_a_flaky_set_up_costs_no_agent_and_ejects_nothing(
    tmp_path, hub, processes, monkeypatch
):
    """Three in ten fail, in the gates of slots and of the train: every task lands at once."""
    monkeypatch.setattr(coders, "PAUSE_S", 0.01)
    monkeypatch.setattr(coders, "PAUSE_S_MAX", 0.01)
    gate_slots = Slots(hub, tmp_path / "gates", 2, prefix="gate")
    rules = GateRules(commands=(("true",),), setup=(("flaky-set-up",),))
    gate = Gate(hub, gate_slots, rules, processes=processes, sandbox=choose("none"))
    run, luck, failed = gate.run, random.Random(7), []
    rows = {}

    async def flaky(argv, slot, home, **more):
        if argv != ("flaky-set-up",):
            return await run(argv, slot, home, **more)
        # Never four times in a row for one checkout: six are taken for a fault of the change.
        row = rows.get(slot.path, 0)
        failed.append(row < 3 and luck.random() < 0.3)
        rows[slot.path] = row + 1 if failed[-1] else 0
        return int(failed[-1]), "the index does not answer\n" if failed[-1] else ""

    monkeypatch.setattr(gate, "run", flaky)
    governor = Governor(8, stagger_s=0.0, room=lambda _: Room(1e6, 1e6, 0.0))
    shop_slots = Slots(hub, tmp_path / "many", 8)
    (tmp_path / "agent.py").write_text(AGENT)
    command = [sys.executable, str(tmp_path / "agent.py"), "{task}"]
    names = [f"t{n}" for n in range(16)]
    tasks = "\n".join(
        f"  - {{id: {n}, goal: write the module {n}, writes: [{n}.py]}}" for n in names
    )
    plan = plan_of(parse_epic(f"# Some\n```yaml\ntasks:\n{tasks}\n```\n", "e", "e.md"))
    async with Conductor(hub, gate, pause_s=0.01) as conductor:
        shop = FleetContext(hub, shop_slots, gate, conductor, governor, choose("none"))
        coder = TemplateCoder("scripted", command, processes=processes, homes=tmp_path / "homes")
        limits = AttemptLimits(time_s=60, silence_s=50)
        crew = coders.coder_workers(shop, [("coder", coder, "")], limits)
        outcome = await Lead(crew, store=MemoryStore(), policy=Policy()).run(plan)
        assert outcome.status == "succeeded", outcome
        assert {step.attempts for step in outcome.steps} == {1}, "no agent ran twice"
        assert conductor.counts == {"landed": 16}, "nothing was ejected"
    assert sum(failed) > 5, "it was flaky indeed"


# --- the same tree -------------------------------------------------------------------------


def change(base, head, task="t", **more):
    return QueuedChange(
        run="r", task=task, attempt=1, base=base, head=head, goal="a change", **more
    )


async def test_the_train_reuses_the_verdict_of_the_same_tree(tmp_path, hub, slots, make):
    """While main did not move; the journal says so, and nothing is run again."""
    count, notes = tmp_path / "count", []
    gate = make(commands=(counting(count),))
    train_gate = gate.for_train()
    base = hub.main()
    first = await commit(hub, slots, {"one": "x\n"})
    second = await commit(hub, slots, {"two": "x\n"})
    accept = (("test", "-e", "a.txt"),)
    assert (await gate.check(first, accept)).ok
    assert (await gate.check(second)).ok
    before = times(count)
    heard = lambda what, **more: notes.append((what, more))  # noqa: E731
    async with Conductor(hub, train_gate, note=heard) as conductor:
        await conductor.land(change(base, first, acceptance=accept))
        assert times(count) == before, "the same tree on the same main"
        await conductor.land(change(base, second, task="u"))
    assert times(count) == before + 1, "main has moved"
    tested = [more.get("reused", False) for what, more in notes if what == "tested"]
    assert tested == [True, False]


async def test_only_a_plain_green_is_reused(tmp_path, hub, slots, make, monkeypatch):
    """Not another acceptance, not with waived tests, not after a red run, and not for ever."""
    count, flag = tmp_path / "count", tmp_path / "flag"
    gate = make(commands=(counting(count, f"test ! -e {flag}"),))
    again = gate.for_train()
    sha = await commit(hub, slots, {"one": "x\n"})
    assert (await gate.check(sha)).ok
    reused = await again.check(sha)
    assert (reused.ok, reused.reused, reused.seconds) == (True, True, 0.0)
    assert reused.log.startswith("not run again: green 0 s before")
    for more in ([("true",)],), ([], ["a test"]), ([], None):
        assert not (await again.check(sha, *more)).reused
    assert not (await gate.check(sha)).reused, "the gate of slots runs each time"
    monkeypatch.setattr(gate_memory, "REUSE_S", -1.0)
    assert not (await again.check(sha)).reused
    monkeypatch.undo()
    flag.touch()
    assert not (await gate.check(sha)).ok
    flag.unlink()
    assert not (await again.check(sha)).reused
    assert not (await again.check(sha)).reused, "it was red once"


def test_verdicts_are_kept_in_bounds(monkeypatch):
    monkeypatch.setattr(gate_memory, "KEPT", 2)
    kept = gate_memory.GreenVerdicts()
    for name in "abc":
        kept.keep((name, "m", ()), GateVerdict(ok=True, log="", seconds=1.0))
    assert [kept.of((name, "m", ())) is not None for name in "abc"] == [False, True, True]
    for flaw in ({"flaky": ("t",)}, {"altered": ("t",)}, {"removed": ("t",)}):
        kept.keep(("d", "m", ()), GateVerdict(ok=True, log="", seconds=1.0, **flaw))
        assert kept.of(("d", "m", ())) is None
    failures = gate_memory.SetUpFailures()
    for name in "abc":
        failures.failed(name)
    assert len(failures._seen) == 2


# --- flaky tests of main -------------------------------------------------------------------


async def test_what_tests_main_is_said_with_its_time(tmp_path, hub, make):
    """Before anybody starts, who waits sees which command runs, and for how long."""
    go = tmp_path / "go"
    gate = make(commands=(("sh", "-c", f"until test -e {go}; do sleep 0.05; done"),))
    sound = Soundness(hub, gate, tmp_path)
    assert sound.progress == "main is being tested before anybody starts"
    watching = asyncio.create_task(sound.watch())
    async with asyncio.timeout(60):
        while " for " not in sound.progress:
            await asyncio.sleep(0.01)
        assert sound.progress.startswith("main is being tested before anybody starts: sh -c 'until")
        go.touch()
        await watching
    assert (sound.progress, gate.running) == ("", {})


async def test_flaky_tests_of_main_are_learnt_before_a_change_is_tested(tmp_path, hub, slots, make):
    """Agents start after the first green run; what is red in the next ones is known as flaky."""
    count = tmp_path / "count"
    script = f'test "$(wc -l < {count})" -eq 3 && echo "FAILED t::a" && exit 1; exit 0'
    gate = make(commands=(counting(count, script),), failures=r"^FAILED (\S+)")
    notes = []
    sound = Soundness(hub, gate, tmp_path, lambda what, **more: notes.append(more["ok"]))
    assert sound.against
    async with asyncio.timeout(60):
        await sound.watch()
    assert notes == [True] * 5
    assert sound.progress == ""
    assert sound.against == ""
    assert gate.flakes.known(["t::a"])
    later = Soundness(hub, gate, tmp_path)
    await later.watch()
    assert times(count) == 6, "once more for the flake; what was seen is not looked at again"
