"""Overlap has a price: tasks that share files run at once when that costs less than waiting."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from leadhand.fleet.boundaries import Boundaries, Sharing
from leadhand.fleet.edit_history import CommitEdits, EditHistory, Hunk, Merges
from leadhand.fleet.epics import EpicTask, in_turn
from leadhand.fleet.overlap_price import (
    LIKELY,
    FileShape,
    MergeRecord,
    OverlapPrice,
    any_of,
    file_chance,
    runs_at_once,
)
from leadhand.fleet.settings import APPEND, LOCK_FILES
from tests.fleet.places import write

CHANCE = st.floats(0.0, 1.0)
COUNT = st.integers(0, 50)
SHARING = Sharing(APPEND, LOCK_FILES, price=True)


def priced(**shapes):
    price = OverlapPrice(SHARING)
    price.shapes = {name: FileShape(*about) for name, about in shapes["shapes"].items()}
    price.churn = shapes.get("churn", {})
    return price


@given(st.lists(CHANCE, max_size=6), CHANCE, st.floats(0, 20), st.floats(0, 20), CHANCE, CHANCE)
def test_more_chance_or_cost_or_less_waiting_never_starts_a_task(
    chances, more, waits, others, redone, dearer
):
    low, high = sorted((waits, others))
    cheap, dear = sorted((redone, dearer))
    if runs_at_once([*chances, more], low, dear):
        assert runs_at_once(chances, low, dear)
        assert runs_at_once([*chances, more], high, dear)
        assert runs_at_once([*chances, more], low, cheap)
        assert any_of([*chances, more]) < LIKELY


def test_what_cannot_conflict_starts_and_what_probably_does_waits():
    assert runs_at_once([], 0.0)
    assert runs_at_once([0.0, 0.0], 0.0, 1.0)
    assert runs_at_once([0.05], 1.0)
    assert not runs_at_once([0.05], 0.05), "the holder is nearly done"
    assert not runs_at_once([LIKELY], 1e9)
    assert not runs_at_once([0.1] * 7, 7.0)
    assert not runs_at_once([0.1], 1.0, 0.5), "half of the changes were redone of late"


@given(st.integers(1, 10_000), st.integers(1, 10_000), COUNT, COUNT, st.booleans())
def test_a_larger_file_and_a_better_record_lower_the_chance(lines, more, met, conflicts, same):
    small, large = sorted((lines, more))
    seen = Merges(met + conflicts, conflicts)
    chance = file_chance(FileShape(large), seen, same=same)
    assert 0.0 <= chance <= file_chance(FileShape(small), seen, same=same) <= 1.0
    assert chance <= file_chance(FileShape(large), Merges(seen.met + 1, conflicts + 1), same=same)
    assert chance >= file_chance(FileShape(large), Merges(seen.met + 1, conflicts), same=same)
    assert file_chance(FileShape(large), seen, same=False) <= file_chance(
        FileShape(large), seen, same=True
    )


@given(st.integers(1, 10_000), COUNT, COUNT, CHANCE, CHANCE)
def test_a_past_with_more_conflicts_raises_the_chance(lines, met, conflicts, usual, more):
    def chance(past, usual=0.0, seen=Merges()):  # noqa: B008 - a constant
        return file_chance(FileShape(lines), seen, past=past, usual=usual)

    past = Merges(met + conflicts, conflicts)
    assert chance(past) <= chance(Merges(met + conflicts, conflicts + met))
    low, high = sorted((usual, more))
    assert 0.0 <= chance(past, low) <= chance(past, high) <= 1.0
    firm = Merges(10_000, 0)
    assert chance(past, seen=firm) < 0.01, "the fleet's own record outweighs the past"


def test_the_history_of_a_file_counts():
    def commit(name, path, line):
        return CommitEdits(name, {path: [Hunk(line, line, 1)]}, {})

    apart = [commit(f"a{n}", "apart.py", 10 + 20 * n) for n in range(12)]
    same = [commit(f"s{n}", "same.py", 10) for n in range(12)]
    price = OverlapPrice(SHARING, (), EditHistory([*apart, *same]))
    price.shapes = dict.fromkeys(("apart.py", "same.py", "new.py"), FileShape(400))
    chances = [price.chance([path], "", [path], "") for path in ("apart.py", "new.py", "same.py")]
    assert chances == sorted(chances)
    assert chances[0] < 0.1
    assert chances[2] > 0.8


def test_files_that_cannot_be_merged_stay_exclusive():
    shapes = {"big.py": (2000,), "logo.png": (0, True), "app/uv.lock": (900,), "s.py": (10,)}
    price = priced(shapes=shapes)

    def chance(*paths):
        return price.chance(paths, "one goal", paths, "another goal")

    assert chance("big.py") < 0.05
    assert chance("big.py", "logo.png") == 1.0
    assert chance("app/uv.lock") == 1.0
    assert chance("new.py") == 1.0, "both would create it"
    assert chance("s.py") == 1.0, "there is no room for two edits"
    assert price.chance(["app"], "", ["app/uv.lock"], "") == 1.0
    assert price.chance(["big.py"], "", ["other.py"], "") == 0.0


def test_the_symbols_of_both_goals_count():
    price = priced(shapes={"big.py": (300,)})
    chances = [
        price.chance(["big.py"], one, ["big.py"], other)
        for one, other in (
            ("Rename parse_date", "Speed up parse_date"),
            ("make it faster", "Speed up parse_date"),
            ("Rename parse_date", "Speed up fromIso"),
        )
    ]
    assert chances == sorted(chances, reverse=True)
    assert len(set(chances)) == 3
    assert chances[0] >= LIKELY


def test_who_names_a_folder_touches_its_busy_files_most():
    shapes = {f"src/f{n}.py": (400,) for n in range(20)}
    price = priced(shapes=shapes, churn={"src/f0.py": 60})
    busy = price.chance(["src"], "", ["src/f0.py"], "")
    quiet = price.chance(["src"], "", ["src/f1.py"], "")
    assert 0.0 < quiet < busy < price.chance(["src/f0.py"], "", ["src/f0.py"], "") * 1.001


def test_conflicts_of_late_make_redoing_dearer_and_are_forgotten():
    record = MergeRecord()
    assert record.redone == 0.0
    for _ in range(10):
        record.add(["a.py"], conflict=True)
    assert record.redone > 0.3
    assert record.of("a.py") == Merges(10, 10)
    for _ in range(1000):
        record.add([], conflict=False)
    assert record.redone < 0.01


def test_the_record_is_read_from_the_journal():
    notes = [
        {"what": "merged", "paths": ["a.py"], "conflict": True},
        {"what": "merged", "paths": ["a.py"]},
        {"what": "moved", "size": 3},
        {"what": "merged", "paths": "spoilt"},
    ]
    assert OverlapPrice(SHARING, notes).record.of("a.py") == Merges(2, 1)


async def test_as_many_start_at_once_as_are_worth_it_and_in_order():
    price = priced(shapes={"hot.py": (600,), "uv.lock": (10,)})
    boundaries, at_work, doors = Boundaries(price), [], [asyncio.Event() for _ in range(30)]

    async def work(number, *writes):
        async with boundaries.hold(writes, name=f"t{number}"):
            at_work.append(number)
            await doors[number].wait()

    tasks = [asyncio.create_task(work(n, "hot.py")) for n in range(28)]
    tasks += [asyncio.create_task(work(n, "uv.lock")) for n in (28, 29)]
    await asyncio.sleep(0)
    begun = [n for n in at_work if n < 28]
    assert begun == list(range(len(begun)))
    assert 5 < len(begun) < 20
    assert [n for n in at_work if n >= 28] == [28]
    assert set(boundaries.waits(100)) == {f"t{n}" for n in range(30) if n not in at_work}
    for number, door in enumerate(doors):
        door.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert at_work[: number + 1] or number >= 28
    await asyncio.gather(*tasks)
    assert [n for n in at_work if n < 28] == list(range(28))
    assert boundaries.held == 0


def test_a_plan_puts_only_those_in_order_that_can_never_share():
    tasks = tuple(
        EpicTask(id=name, goal="change something here", writes=list(writes))
        for name, *writes in (
            ("a", "src/x.py"),
            ("b", "src/x.py", "CHANGELOG.md"),
            ("c", "CHANGELOG.md", "uv.lock"),
            ("d", "uv.lock"),
        )
    )
    assert in_turn(tasks, SHARING) == [[], [], [], ["c"]]
    assert in_turn(tasks, SHARING._replace(price=False)) == [[], ["a"], [], ["c"]]


async def test_the_shapes_of_files_follow_main(hub, slots):
    price = OverlapPrice(SHARING)
    await price.refresh(hub)
    before = dict(price.shapes)
    assert before
    assert all(shape.lines > 0 for shape in before.values())
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"wide [name].py": "x\n" * 50})
        (slot.path / "logo.bin").write_bytes(b"\0\1\2" * 100)
        taken = await slot.take()
    await hub.advance(taken.head, hub.main())
    await price.refresh(hub)
    assert price.shapes["wide [name].py"] == FileShape(50)
    assert price.shapes["logo.bin"].binary
    assert {path: price.shapes[path] for path in before} == before


async def test_what_met_changes_of_others_is_recorded(hub, slots):
    price, base = OverlapPrice(SHARING), hub.main()
    heads = []
    for name in ("one", "two"):
        async with slots.lease(base) as slot:
            write(slot.path, {"both.py": f"{name}\n", f"{name}.py": "1\n", "CHANGES": name})
            heads.append((await slot.take()).head)
    assert await price.merged(hub, base, heads[0], base) == []
    assert await price.merged(hub, base, heads[0], heads[1]) == ["both.py"]
    assert await price.merged(hub, base, heads[0], heads[1], conflicts=["both.py"]) == ["both.py"]
    assert price.record.of("both.py") == Merges(2, 1)
    assert price.record.of("CHANGES") == Merges()
