"""The conductor on real git: what lands is what was gated, and a diff stays what it was."""

import asyncio
import errno
import signal
import subprocess
import sys

import pytest

from leadhand.errors import LeadhandError
from leadhand.fleet.boundaries import outside, within
from leadhand.fleet.gate.gate import GateTrouble, GateVerdict
from leadhand.fleet.merge.conductor import Conductor, Ejected, Landed, QueuedChange
from leadhand.fleet.merge.train import Rules
from leadhand.fleet.repository import git as git_module
from leadhand.fleet.repository.git import GitFailed, read_log
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots
from tests.fleet.places import files_of, run_git, write


class Judge:
    """A gate that looks at the names of files: `bad` is red, `left` with `right` is red."""

    def __init__(self, hub):
        self.hub, self.checked, self.trouble, self.asked = hub, {}, 0, []

    async def check(self, sha, acceptance=(), waived=()):
        self.asked.append(tuple(acceptance))
        await asyncio.sleep(0.01)
        if self.trouble:
            self.trouble -= 1
            raise GateTrouble("no room")
        names = (await self.hub.git("ls-tree", "-r", "--name-only", sha)).text.split()
        red = any(name.startswith("bad") for name in names) or {"left", "right"} <= set(names)
        self.checked[sha] = not red
        return GateVerdict(not red, "the judge looked", 0.01, (), "judge" if red else "")


@pytest.fixture
def judge(hub):
    return Judge(hub)


async def change(slots, task, files, *, base=None, attempt=1, **more):
    """A change by a task; None removes a file."""
    async with slots.lease(base or slots.hub.main()) as slot:
        for name, text in files.items():
            if text is None:
                (slot.path / name).unlink()
            else:
                write(slot.path, {name: text})
        taken = await slot.take()
    head = taken.head or slot.base
    return QueuedChange(
        run="r1", task=task, attempt=attempt, base=slot.base, head=head, goal=f"Do {task}", **more
    )


@pytest.mark.parametrize("strict", [False, True])
async def test_changes_land_as_they_were_made(hub, slots, judge, strict):
    """Each commit has its own diff and its trailers; each tip, or each commit, was gated."""
    start = hub.main()
    wanted = [await change(slots, f"t{n}", {f"f{n}": f"{n}\n"}, base=start) for n in range(8)]
    wanted.insert(3, await change(slots, "bad", {"bad": "x\n"}, base=start))
    wanted.insert(5, await change(slots, "left", {"left": "x\n"}, base=start))
    wanted.insert(7, await change(slots, "right", {"right": "x\n"}, base=start))
    async with Conductor(hub, judge, Rules(slots=4, strict=strict)) as conductor:
        tasks = []
        for number, each in enumerate(wanted):  # one after the other, none waits for its answer
            tasks.append(asyncio.create_task(conductor.land(each)))
            while conductor._count <= number:
                await asyncio.sleep(0.001)
        told = await asyncio.gather(*tasks)
        assert conductor.status()["waiting"] == 0
    by_task = {each.task: answer for each, answer in zip(wanted, told, strict=True)}
    assert isinstance(by_task["bad"], Ejected)
    assert by_task["right"].kind == "red"
    assert by_task["right"].log == "the judge looked"
    assert all(isinstance(by_task[f"t{n}"], Landed) for n in range(8))
    commits = await hub.commits()
    assert [c.trailers["Leadhand-Task"] for c in commits] == [
        each.task for each in wanted if isinstance(by_task[each.task], Landed)
    ]
    for commit in commits:
        task = commit.trailers["Leadhand-Task"]
        name = f"f{task[1:]}" if task != "left" else "left"
        assert await hub.changed(commit.parents[0], commit.sha) == {name: "A"}
        assert by_task[task].sha == commit.sha
        assert commit.subject == f"Do {task}"
        assert ("Leadhand-Gate" in commit.trailers) is not strict
        assert {"Leadhand-Run", "Leadhand-Attempt", "Assisted-by"} <= commit.trailers.keys()
    assert all(judge.checked[tip] for tip in (await hub.tips())[1:])
    if strict:
        assert all(judge.checked[commit.sha] for commit in commits)
    assert conductor.counts == {"landed": 9, "red": 2}


async def test_a_conflict_goes_back_with_both_sides(hub, slots, judge):
    """Paths, both differences, both goals; main holds the first one, whole."""
    start = hub.main()
    first = await change(slots, "first", {"a.txt": "first\n", "f1": "x\n"}, base=start)
    second = await change(slots, "second", {"a.txt": "second\n"}, base=start)
    third = await change(slots, "third", {"f3": "x\n"}, base=start)
    notes, waiting, check, go = [], [], judge.check, asyncio.Event()

    async def held(sha, acceptance=()):
        await go.wait()
        return await check(sha, acceptance)

    judge.check = held
    async with Conductor(
        hub, judge, Rules(slots=3), note=lambda what, **_: notes.append(what)
    ) as conductor:
        # Each is examined by git before it joins the queue, so that places are taken one by one.
        for position, each in enumerate((first, second, third), start=1):
            waiting.append(asyncio.create_task(conductor.land(each)))
            while notes.count("queued") < position:
                await asyncio.sleep(0.001)
        go.set()
        told = await asyncio.gather(*waiting)
    assert isinstance(told[0], Landed)
    assert isinstance(told[2], Landed)
    assert told[1].kind == "conflict"
    details = told[1].details
    assert details["paths"] == ["a.txt"]
    assert "+second" in details["yours"]
    assert "+first" in details["theirs"]
    assert details["goal"] == "Do second"
    assert [other["task"] for other in details["others"]] == ["first"]
    assert details["others"][0]["goal"].startswith("Do first")
    assert files_of(hub.git.folder, hub.main())["a.txt"] == "first"


async def test_a_conflict_with_one_that_never_lands_is_none(hub, slots, judge):
    """It waits until the other is settled, and lands."""
    start = hub.main()
    first = await change(slots, "first", {"a.txt": "first\n", "bad": "x\n"}, base=start)
    second = await change(slots, "second", {"a.txt": "second\n"}, base=start)
    check, go = judge.check, asyncio.Event()

    async def slow(sha, acceptance=()):
        await go.wait()
        return await check(sha, acceptance)

    judge.check = slow
    async with Conductor(hub, judge, Rules(slots=3)) as conductor:
        one = asyncio.create_task(conductor.land(first))
        while not conductor.train.queue:
            await asyncio.sleep(0.001)
        two = asyncio.create_task(conductor.land(second))
        while not (conductor.train.parked or two.done()):
            await asyncio.sleep(0.001)
        go.set()
        assert isinstance(await two, Landed)
        assert (await one).kind == "red"
    assert files_of(hub.git.folder, hub.main())["a.txt"] == "second"


async def test_nobody_takes_back_what_others_landed(hub, slots, judge):
    """An agent that worked on old files under a new base: foreign, or in conflict, never landed."""
    start = hub.main()
    async with Conductor(hub, judge) as conductor:
        one = {"src/b.txt": "1\n2\n3\n4\n5\n6\n7\n8\nNINE\n", "other": "x\n"}
        assert isinstance(await conductor.land(await change(slots, "one", one)), Landed)
        stale = {"src/b.txt": "ONE\n2\n3\n4\n5\n6\n7\n8\n9\n", "other": None}
        foreign = await change(slots, "foreign", stale, paths=("src",))
        told = await conductor.land(foreign)
        assert (told.kind, told.details["paths"]) == ("foreign", ["other"])
        good = {"src/b.txt": "ONE\n2\n3\n4\n5\n6\n7\n8\n9\n"}
        merged = await change(slots, "good", good, base=start, paths=("src/*.txt",))
        assert isinstance(await conductor.land(merged), Landed)
    assert files_of(hub.git.folder, hub.main())["src/b.txt"] == "ONE\n2\n3\n4\n5\n6\n7\n8\nNINE"


async def test_what_may_not_land_is_told_at_once(hub, slots, judge):
    """Nothing changed, outside its paths, protected without leave, all on main already."""
    async with Conductor(hub, judge, protected=("ci/**", "*.lock")) as conductor:
        empty = await change(slots, "empty", {})
        assert (await conductor.land(empty)).kind == "empty"
        touching = await change(slots, "p", {"ci/run": "x\n", "uv.lock": "y\n", "z": "z\n"})
        told = await conductor.land(touching)
        assert (told.kind, told.details["paths"]) == ("protected", ["ci/run", "uv.lock"])
        some = await change(slots, "p", {"ci/run": "x\n", "uv.lock": "y\n"}, cleared=("ci",))
        assert (await conductor.land(some)).details["paths"] == ["uv.lock"]
        leave = ("ci", "uv.lock")
        allowed = await change(slots, "p", {"ci/run": "x\n", "uv.lock": "y\n"}, cleared=leave)
        base = hub.main()
        assert isinstance(await conductor.land(allowed), Landed)
        again = await change(slots, "q", {"ci/run": "x\n"}, base=base, cleared=leave)
        assert (await conductor.land(again)).kind == "empty"


async def test_a_task_lands_once(hub, slots, judge):
    """The same attempt is told what it was told; an older one is stale; a newer one replaces it."""
    start = hub.main()
    first = await change(slots, "t", {"f": "1\n"}, attempt=2)
    async with Conductor(hub, judge, Rules(slots=1)) as conductor:
        landed = await conductor.land(first)
        assert (await conductor.land(first)).sha == landed.sha
        older = await change(slots, "t", {"f": "0\n"}, base=start, attempt=1)
        assert (await conductor.land(older)).kind == "stale"
        two = await change(slots, "u", {"g": "2\n"}, attempt=1)
        three = await change(slots, "u", {"g": "3\n"}, attempt=2)
        told = await asyncio.gather(conductor.land(two), conductor.land(three))
        four = await change(slots, "v", {"h": "4\n"}, attempt=1)
        five = await change(slots, "v", {"h": "5\n"}, attempt=2)
        later = asyncio.create_task(conductor.land(five))
        while not conductor.waiting:
            await asyncio.sleep(0)
        assert (await conductor.land(four)).kind == "stale"
        assert isinstance(await later, Landed)
    assert told[0].kind == "stale"
    assert isinstance(told[1], Landed)
    assert files_of(hub.git.folder, hub.main())["g"] == "3"
    assert files_of(hub.git.folder, hub.main())["h"] == "5"


async def test_who_is_cancelled_does_not_land(hub, slots, judge):
    """The others do, and the train goes on."""
    wanted = [await change(slots, f"t{n}", {f"f{n}": "x\n"}) for n in range(6)]
    async with Conductor(hub, judge, Rules(slots=2)) as conductor:
        tasks = [asyncio.create_task(conductor.land(each)) for each in wanted]
        while not conductor.train.running:
            await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[4].cancel()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(conductor.train) == 0
    kinds = [type(each) for each in told]
    assert kinds.count(Landed) == 4
    assert [kinds[1], kinds[4]] == [asyncio.CancelledError] * 2
    assert not {"f1", "f4"} & set(files_of(hub.git.folder, hub.main()))


async def test_a_main_that_moved_is_noticed(hub, slots, judge):
    """What was tested on the old one is tested again on the new one before it lands."""
    mine = await change(slots, "mine", {"left": "x\n"})
    theirs = await change(slots, "theirs", {"right": "x\n"})
    fine = await change(slots, "fine", {"fine": "x\n"})
    check, moved = judge.check, False

    async def slow(sha, acceptance=()):
        nonlocal moved
        verdict = await check(sha, acceptance)
        if not moved:
            moved = True
            assert await hub.advance(theirs.head, hub.main())
        return verdict

    judge.check = slow
    async with Conductor(hub, judge, Rules(slots=1)) as conductor:
        told = await asyncio.gather(conductor.land(mine), conductor.land(fine))
    assert told[0].kind == "red"
    assert isinstance(told[1], Landed)
    names = set(files_of(hub.git.folder, hub.main()))
    assert {"right", "fine"} <= names
    assert "left" not in names


async def test_trouble_is_no_verdict(hub, slots, judge):
    """It passes, and all land; or it stays, and those who wait are told of it."""
    wanted = [await change(slots, f"t{n}", {f"f{n}": "x\n"}) for n in range(3)]
    judge.trouble = 4
    async with Conductor(hub, judge, Rules(slots=2), pause_s=0.01) as conductor:
        told = await asyncio.gather(*(conductor.land(each) for each in wanted))
    assert all(isinstance(each, Landed) for each in told)
    judge.trouble = 10_000
    more = await change(slots, "more", {"more": "x\n"})
    async with Conductor(hub, judge, pause_s=0.01, patience_s=0.1) as conductor:
        with pytest.raises(GateTrouble, match="no room"):
            await conductor.land(more)
        judge.trouble = 0
        assert isinstance(await conductor.land(more), Landed)


def scarce(monkeypatch, word, times):
    """A machine that has no room for a git with this word, so many times."""
    real, left = git_module._run, [times]

    async def run(command, *more):
        if word in command and left[0]:
            left[0] -= 1
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return await real(command, *more)

    monkeypatch.setattr(git_module, "_run", run)
    return left


async def test_a_machine_without_room_for_git_does_not_stop_the_train(
    hub, slots, judge, monkeypatch
):
    """Main moves when there is room again; or those who wait are told, and the next one lands."""
    one, two = [await change(slots, name, {name: "x\n"}) for name in ("one", "two")]
    for word in ("merge-tree", "update-ref"):
        scarce(monkeypatch, word, 3)
    notes = []
    note = lambda what, **more: notes.append((what, more.get("task")))  # noqa: E731
    async with Conductor(hub, judge, pause_s=0.01, patience_s=60, note=note) as conductor:
        assert isinstance(await conductor.land(one), Landed)
        assert conductor.trouble == ""
    left = scarce(monkeypatch, "update-ref", 1_000_000)
    async with Conductor(hub, judge, pause_s=0.01, patience_s=0.05, note=note) as conductor:
        with pytest.raises(GitFailed, match=r"could not be run: .*temporarily unavailable"):
            await conductor.land(two)
        assert "temporarily unavailable" in conductor.trouble
        left[0] = 0
        assert isinstance(await conductor.land(two), Landed)
        assert conductor.trouble == ""
    assert [each for each in notes if each[0] in ("queued", "landed", "withdrawn")] == [
        ("queued", "one"),
        ("landed", "one"),
        ("queued", "two"),
        ("withdrawn", "two"),
        ("queued", "two"),
        ("landed", "two"),
    ]


async def test_who_is_ended_while_it_waits_is_in_line_no_more(hub, slots, judge):
    """The journal says so, and the train forgets it."""
    judge.trouble = 10_000
    mine, notes = await change(slots, "t", {"f": "x\n"}), []
    note = lambda what, **_more: notes.append(what)  # noqa: E731
    async with Conductor(hub, judge, pause_s=0.01, note=note) as conductor:
        waiting = asyncio.create_task(conductor.land(mine))
        while not conductor.waiting:
            await asyncio.sleep(0.01)
        waiting.cancel()
        while conductor.waiting:
            await asyncio.sleep(0.01)
    assert notes == ["queued", "withdrawn"]


async def test_those_who_wait_when_it_stops_are_told(hub, slots, judge):
    """Nobody hangs."""
    judge.trouble = 10_000
    mine = await change(slots, "t", {"f": "x\n"})
    async with Conductor(hub, judge, pause_s=0.01) as conductor:
        waiting = asyncio.create_task(conductor.land(mine))
        await asyncio.sleep(0.1)
    with pytest.raises(LeadhandError, match="has stopped"):
        await waiting


async def test_acceptance_is_asked_again_on_the_merge(hub, slots, judge):
    """Of every change in the prefix that is gated."""
    one = await change(slots, "one", {"f1": "x\n"}, acceptance=(("test", "-f", "f1"),))
    two = await change(slots, "two", {"f2": "x\n"}, acceptance=(("test", "-f", "f2"),))
    async with Conductor(hub, judge, Rules(slots=1, batch_max=1)) as conductor:
        await asyncio.gather(conductor.land(one), conductor.land(two))
    assert {command for asked in judge.asked for command in asked} == {
        ("test", "-f", "f1"),
        ("test", "-f", "f2"),
    }


async def test_trailers_say_whose_work_it_is(hub, slots, judge):
    """Further ones are added; none of ours can be replaced."""
    more = {"Assisted-by": "some-model", "Leadhand-Task": "another", "Model-Tier": "small"}
    mine = await change(slots, "mine", {"f": "x\n"}, trailers=more, author="A <a@localhost>")
    async with Conductor(hub, judge) as conductor:
        await conductor.land(mine)
    (commit,) = await hub.commits()
    found = dict(commit.trailers)
    assert found.pop("Leadhand-Seal")
    assert found == {
        "Assisted-by": "some-model",
        "Model-Tier": "small",
        "Leadhand-Task": "mine",
        "Leadhand-Run": "r1",
        "Leadhand-Attempt": "1",
        "Leadhand-Gate": "tip",
    }
    assert commit.author == "A"


@pytest.mark.slow
async def test_a_hundred_at_once(tmp_path, hub, judge):
    """With a few bad ones and a few conflicts among them: the sound ones land, main is green."""
    slots = Slots(hub, tmp_path / "many", 10)
    start = hub.main()

    async def work(number):
        files = {f"f{number}": f"{number}\n"}
        if number % 25 == 7:
            files[f"bad{number}"] = "x\n"
        if number % 20 == 3:
            files["a.txt"] = f"{number}\n"
        mine = await change(slots, f"t{number}", files, base=start)
        return number, await conductor.land(mine)

    async with Conductor(hub, judge, Rules(slots=4)) as conductor:
        told = dict(await asyncio.gather(*(work(number) for number in range(100))))
    red = {number for number, each in told.items() if getattr(each, "kind", "") == "red"}
    conflict = {n for n, each in told.items() if getattr(each, "kind", "") == "conflict"}
    landed = {number for number, each in told.items() if isinstance(each, Landed)}
    assert red == {7, 32, 57, 82}
    assert len(conflict) == 4
    assert conflict < {3, 23, 43, 63, 83}
    assert landed == set(range(100)) - red - conflict
    assert all(judge.checked[tip] for tip in (await hub.tips())[1:])
    for commit in await hub.commits():
        number = int(commit.trailers["Leadhand-Task"][1:])
        own = {f"f{number}": "A"} | ({"a.txt": "M"} if number % 20 == 3 else {})
        assert await hub.changed(commit.parents[0], commit.sha) == own
    assert run_git(hub.git.folder, "fsck", "--strict", "--no-dangling") == ""


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from leadhand.fleet.merge.conductor import Conductor, QueuedChange
from leadhand.fleet.gate.gate import GateVerdict
from leadhand.fleet.repository.git import read_log
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots

class Green:
    async def check(self, sha, acceptance=(), waived=()):
        return GateVerdict(True, "", 0.0)

async def main():
    root, moment = Path(sys.argv[1]), sys.argv[2]
    hub = await Hub.open(root / "fleet", root / "user")
    async with Slots(hub, root / "slots", 1).lease(hub.main()) as slot:
        (slot.path / "mine").write_text("x")
        head = (await slot.take()).head
        await hub.submit("refs/leadhand/task/r1/t1/1", head)
    advance = hub.advance

    async def dying(new, old):
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await advance(new, old)
        os.kill(os.getpid(), signal.SIGKILL)

    hub.advance = dying
    async with Conductor(hub, Green()) as conductor:
        await conductor.land(
            QueuedChange(run="r1", task="t1", attempt=1, base=slot.base, head=head, goal="Do it")
        )

asyncio.run(main())
"""


@pytest.mark.real
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_between_merge_and_report(tmp_path, user, moment):
    """Before main moved the work is there and lands when asked for again; after, it is found."""
    command = [sys.executable, "-c", CHILD, str(tmp_path), moment]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        head = (await hub.kept())["refs/leadhand/task/r1/t1/1"]
        assert (hub.landed("r1", "t1") is not None) == (moment == "after")
        (base,) = {commit.parents[0] for commit in await read_log(hub.git, "-1", head)}
        mine = QueuedChange(run="r1", task="t1", attempt=1, base=base, head=head, goal="Do it")
        async with Conductor(hub, Judge(hub)) as conductor:
            told = await conductor.land(mine)
        assert isinstance(told, Landed)
        assert [commit.sha for commit in await hub.commits()] == [told.sha]


@pytest.mark.parametrize(
    ("path", "text", "inside"),
    [
        ("src/a.py", "src", True),
        ("src/a.py", "src/", True),
        ("src/a.py", "src/*.py", True),
        ("src/b/a.py", "src/*.py", False),
        ("src/b/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("src/b/a.py", "src/**", True),
        ("src", "src/**", False),
        ("srcs/a.py", "src", False),
        ("a.py", "?.py", True),
        ("a.py", "**", True),
        ("x/y/z", "x/*", True),
        ("src/a\n.py", "src/*.py", True),
        ("**", "src", False),
        ("a.py", "", False),
    ],
)
def test_paths_lie_within(path, text, inside):
    """As steps say it; a star in the name of a file is a star."""
    assert within(path, [text]) is inside
    assert outside([path], [text]) == ([] if inside else [path])
