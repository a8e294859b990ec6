"""Epics: read, refused with reasons, and turned into plans that keep writers apart."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.app.inputs import RUN_ID
from leadhand.core.lint.plan import lint
from leadhand.core.plan.graph import StepOrder, dependencies
from leadhand.errors import UsageError
from leadhand.fleet.boundaries import Boundaries, clash
from leadhand.fleet.epic_folder import data_of, run_of, submit
from leadhand.fleet.epics import EPIC_BYTES_MAX, parse_epic, plan_of, read_epic
from leadhand.fleet.governor import Governor
from leadhand.fleet.planning.steps import wanted_of
from leadhand.fleet.worker import turn

EPIC = """# Add a search

People want to find things.

```yaml
priority: 5
acceptance: ["python -m pytest -q"]
tasks:
  - id: index
    goal: Build an index of words.
    writes: [src/index.py]
    acceptance: ["python -m pytest -q tests/test_index.py", [python, "-c", "a b"]]
  - id: query
    goal: Answer queries from the index.
    writes: [src/query.py]
    depends_on: [index]
  - id: speed
    goal: Make the index twice as fast.
    writes: ["src/*.py"]
    tier: strong
    budget: 2
```

And more words.
"""


def test_an_epic_becomes_a_plan():
    epic = parse_epic(EPIC, "search", "search.md")
    assert (epic.title, epic.priority) == ("Add a search", 5)
    assert epic.acceptance == (("python", "-m", "pytest", "-q"),)
    assert "And more words." in epic.text
    assert "yaml" not in epic.text
    plan = plan_of(epic)
    assert [each for each in lint(plan, None) if each.level == "error"] == []
    steps = {step["id"]: step for step in plan["steps"]}
    assert steps["index"]["parameters"]["acceptance"][1] == ["python", "-c", "a b"]
    assert steps["speed"]["tier"] == "strong"
    assert dependencies(steps["query"])["index"] is False
    apart = {**dependencies(steps["speed"]), **dependencies(steps["query"])}
    assert apart == {"index": False, "speed": True}, "one after the other, come what may"


def test_no_two_writers_of_one_path_may_run_at_once():
    tasks = "\n".join(
        f"  - {{id: t{i}, goal: change it somehow, writes: [src/{i % 3}.py],"
        f" depends_on: [{f't{i + 4}' if i % 5 == 0 and i < 20 else ''}]}}"
        for i in range(30)
    )
    epic = parse_epic(f"# x\n```yaml\ntasks:\n{tasks}\n```\n", "x", "x.md")
    steps = plan_of(epic)["steps"]
    order = StepOrder({step["id"]: tuple(dependencies(step)) for step in steps})
    assert order.complete
    for one in steps:
        for other in steps:
            if one is not other and one["writes"] == other["writes"]:
                pair = one["id"], other["id"]
                assert order.before(*pair) or order.before(*reversed(pair))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("tasks: [{id: a, goal: short, writes: [x]}]", "says too little"),
        ("tasks: [{id: a, goal: long enough to read}]", 'no "writes"'),
        ("tasks: [{id: 'a b', goal: long enough to read, writes: [x]}]", "an id has"),
        ("tasks: [{id: a, goal: long enough to read, writes: [../x]}]", "outside the repository"),
        ("tasks: [{id: a, goal: long enough to read, writes: [.git/config]}]", "outside"),
        ("tasks: [{id: a, goal: long enough to read, writes: [x], depends_on: [b]}]", "no task"),
        ("tasks: [{id: a, goal: long enough to read, writes: [x], depends_on: [a]}]", "circle"),
        ("tasks: [{id: a, goal: long enough to read, wirtes: [x]}]", "wirtes"),
        ("acceptance: ['make test | tee log']", "needs a shell"),
        ('acceptance: ["echo \'open"]', "cannot be split"),
        ("tasks: [{id: a, goal: long enough to read, writes: [.Git/x]}]", "outside"),
        ("tasks: [{id: a, goal: long enough to read, writes: [x], budget: -1}]", "not above 0"),
        ("tasks: [{id: a, goal: long enough to read, writes: [x], timeout: soon}]", "timeout"),
        ("tasks: [{id: a, goal: long enough to read, writes: ['.']}]", "the whole repository"),
        ("tasks: [{id: a, goal: long enough to read, writes: [x, '']}]", "the whole repository"),
        ("acceptance: [['', x]]", "names no program"),
        ("- a", "head of an epic"),
        ("prio: 3", "prio"),
        ("tasks: 5", "tasks"),
    ],
)
def test_what_is_wrong_is_said(block, words):
    with pytest.raises(UsageError, match=words):
        parse_epic(f"# Title\n\nWords.\n\n```yaml\n{block}\n```\n", "x", "x.md")


def test_a_tier_that_nobody_has_is_refused():
    """Otherwise the task would go to the first agents, unasked."""
    task = "{id: a, goal: long enough to read, writes: [x], tier: strong}"
    epic = parse_epic(f"# Title\n\nWords.\n\n```yaml\ntasks: [{task}]\n```\n", "x", "x.md")
    for planned in (False, True):
        with pytest.raises(UsageError, match="'a': its tier 'strong' is none of this fleet's"):
            wanted_of(epic, ("big",), planned=planned)
    (step,) = wanted_of(epic, ("strong",), planned=False)["steps"]
    assert step["worker"] == "coder@strong"


def test_an_epic_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_epic(Path(tmp_path / "none.md"))
    (tmp_path / "e.md").write_text("\n")
    with pytest.raises(UsageError, match="says nothing"):
        read_epic(tmp_path / "e.md")


def test_whatever_ends_its_lines_an_epic_is_the_same(tmp_path):
    """Saved on Windows, its block is still read, and its tasks are not left to a planner."""
    text = "# T\n\n```yaml\ntasks: [{id: a, goal: long enough to read, writes: [x]}]\n```\n"
    runs = set()
    for ending in ("\n", "\r\n"):
        for mark in (b"", b"\xef\xbb\xbf"):
            (tmp_path / "t.md").write_bytes(mark + text.replace("\n", ending).encode())
            run, found, _ = submit(tmp_path / "epics", tmp_path / "t.md")
            assert [task.id for task in found.tasks] == ["a"]
            runs |= {run, run_of("t", data_of(tmp_path / "t.md"))}
    assert len(runs) == 1


@pytest.mark.parametrize("name", ["größe.md", "a b.md", "x" * 250 + ".md", "-rf.md", "日本.md"])
def test_whatever_an_epic_is_called_its_run_has_a_name_and_its_plan_is_sound(tmp_path, name):
    """What `submit` takes, the fleet takes."""
    text = "# T\n\n```yaml\ntasks: [{id: a, goal: long enough to read, writes: [x]}]\n```\n"
    (tmp_path / name).write_text(text)
    run, found, _ = submit(tmp_path / "epics", tmp_path / name)
    assert RUN_ID.fullmatch(run)
    assert [each.name for each in (tmp_path / "epics").iterdir()] == [name]
    parse_epic(text, "\udcff", "x.md").name.encode()
    assert found.name.encode()
    (tmp_path / name).write_text(text.replace("long", "still longer"))
    beside = submit(tmp_path / "epics", tmp_path / name)
    assert run_of(beside.place.stem, beside.place.read_bytes()) == beside.run != run
    assert len(list((tmp_path / "epics").iterdir())) == 2
    (tmp_path / ".hidden.md").write_text(text)
    with pytest.raises(UsageError, match=r"rename it to hidden\.md"):
        submit(tmp_path / "epics", tmp_path / ".hidden.md")


@pytest.mark.parametrize("odd", ["pipe", "long"])
def test_what_is_no_file_of_an_epic_is_not_read(tmp_path, odd):
    """A pipe that nobody writes would keep the fleet from all other epics."""
    path = tmp_path / "e.md"
    if odd == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"x" * (EPIC_BYTES_MAX + 1))
    with pytest.raises(UsageError, match=r"not a file|at most"):
        data_of(path)


async def test_holders_of_the_same_path_take_turns_and_others_do_not_wait():
    boundaries, running, most = Boundaries(), [], []

    async def work(name, *writes):
        async with boundaries.hold(writes):
            running.append(name)
            most.append(sorted(running))
            await asyncio.sleep(0.01)
            running.remove(name)

    await asyncio.gather(
        work("a", "src/a.py"),
        work("b", "src/b.py"),
        work("all", "src"),
        work("a2", "src/a.py"),
        work("doc", "docs/x.md"),
    )
    assert max(map(len, most)) == 3
    assert ["all", "doc"] in most or ["all"] in most
    assert not any({"a", "all"} <= set(each) or {"a", "a2"} <= set(each) for each in most)
    assert boundaries.held == 0


async def test_who_waits_for_a_place_makes_way_for_the_more_urgent():
    """Held paths are no use to one who cannot start; of the same urgency, the first stays so."""
    boundaries, governor, order = Boundaries(), Governor(1, stagger_s=0.0), []

    async def work(name, priority):
        async with turn(boundaries, governor, ["src"], "kind", priority):
            order.append(name)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group, governor.place("kind"):
        for name, priority in (("low", 0), ("same", 0), ("urgent", 5), ("most", 9)):
            group.create_task(work(name, priority))
            await asyncio.sleep(0.01)
        assert order == []
    assert order[0] == "most"
    assert sorted(order) == ["low", "most", "same", "urgent"]
    assert boundaries.held == 0


async def test_one_who_gives_up_waiting_holds_nobody_up():
    boundaries = Boundaries()

    async def wait():
        async with boundaries.hold(["x"]):
            pass

    async with boundaries.hold(["x"]):
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(60), boundaries.hold(["x"]):
        pass


WORDS = st.sampled_from(["a", "b", "*", "**", "c?", "cd"])
PATHS = st.lists(WORDS, min_size=1, max_size=4).map("/".join)


@given(st.lists(st.lists(PATHS, min_size=1, max_size=3), min_size=1, max_size=8))
def test_whoever_overlaps_waits_and_nobody_else(line):
    """All come and leave in order; each works as soon as nobody before it is in the way."""
    asyncio.run(_walk(line))


async def _walk(line):
    boundaries, working, left = Boundaries(), set(), []
    doors = [asyncio.Event() for _ in line]

    async def come(number):
        async with boundaries.hold(line[number]):
            working.add(number)
            await doors[number].wait()
            working.discard(number)

    tasks = [asyncio.create_task(come(number)) for number in range(len(line))]
    for number in range(len(line)):
        for _ in range(4):
            await asyncio.sleep(0)
        there = [n for n in range(len(line)) if n not in left]
        free = {n for n in there if not any(clash(line[n], line[m]) for m in there if m < n)}
        assert working == free
        doors[number].set()
        left.append(number)
        await tasks[number]
    assert boundaries.held == 0


def test_a_thousand_writers_of_one_path_come_one_after_the_other():
    """Each waits for the one before it: a plan that names all of them would be too large."""
    line = "  - {{id: t{0}, goal: change the same file, writes: [src/one.py]}}"
    tasks = "\n".join(line.format(number) for number in range(1000))
    plan = plan_of(parse_epic(f"# Many\n```yaml\ntasks:\n{tasks}\n```\n", "many", "many.md"))
    waits = [[each["step"] for each in step["depends_on"]] for step in plan["steps"]]
    assert waits == [[], *([f"t{number}"] for number in range(999))]


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("budget: -5", "its budget is not above 0"),
        ('tasks: [{id: a, goal: a good goal, writes: ["a\\0b"]}]', "outside the repository"),
    ],
)
def test_what_cannot_be_meant_is_refused(head, said):
    with pytest.raises(UsageError, match=said):
        parse_epic(f"# An epic\n```yaml\n{head}\n```\n", "e", "e.md")
