"""Places for agents: bounded, staggered, by urgency, fewer after trouble, none after stop."""

import asyncio

import pytest

from leadhand.fleet.governor import Governor, Needs, Room, Ticket, room_of

PLENTY = Room(1e6, 1e6, 0.1)


def governor(most=3, room=PLENTY, **more):
    return Governor(most, room=lambda _folder: room, **{"stagger_s": 0.0, **more})


async def hold(chief, log, name, priority=0, seconds=0.01):
    async with chief.place("a", priority):
        log.append(name)
        await asyncio.sleep(seconds)


async def test_no_more_than_there_are_places_and_the_urgent_first():
    chief, log = governor(2), []
    tasks = [asyncio.create_task(hold(chief, log, f"n{i}")) for i in range(6)]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(hold(chief, log, "urgent", priority=9)))
    await asyncio.gather(*tasks)
    assert chief.peak == 2
    assert log.index("urgent") <= 2
    assert [name for name in log if name != "urgent"] == [f"n{i}" for i in range(6)]
    assert (chief.busy, chief.waiting) == (0, 0)


async def test_trouble_halves_the_places_and_quiet_brings_them_back():
    chief = governor(16)
    chief.heard("a", "rate_limited")
    assert chief.limit == 8
    chief.heard("a", "transient")
    assert chief.limit == 4
    for _ in range(200):
        chief.heard("a", "")
    assert chief.limit == 16
    chief.heard("a", "criteria_unmet")
    assert chief.limit == 16, "a red gate is no crowd"


async def test_after_stop_nobody_starts_until_it_goes_on():
    chief, log = governor(), []
    chief.stop()
    task = asyncio.create_task(hold(chief, log, "a"))
    await asyncio.sleep(0.05)
    assert log == []
    chief.go_on()
    await task
    assert log == ["a"]


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (Room(10, 1e6, 0), "memory"),
        (Room(1e6, 10, 0), "disk"),
        (Room(1e6, 1e6, 99), "load"),
    ],
)
async def test_a_machine_without_room_starts_no_second_agent(room, words):
    rooms, log = [PLENTY], []
    chief = Governor(3, stagger_s=0.0, room=lambda _folder: rooms[0])
    async with chief.place("a"):
        rooms[0] = room
        task = asyncio.create_task(hold(chief, log, "second"))
        await asyncio.sleep(0.05)
        assert log == []
        assert words in chief.held_back
    if words != "load":  # that may be somebody else's, and one always may
        await asyncio.sleep(0.05)
        assert (log, words in chief.held_back) == ([], True)
        rooms[0] = PLENTY
        chief.go_on()
    await task
    assert log == ["second"]


async def test_the_first_agent_too_waits_for_memory_and_disk():
    rooms, log = [Room(1e6, 10, 0), PLENTY], []
    chief = Governor(3, stagger_s=0.0, room=lambda _folder: rooms[0])
    task = asyncio.create_task(hold(chief, log, "a"))
    await asyncio.sleep(0)
    assert (log, chief.held_back) == ([], "10 MB of disk are left")
    rooms.pop(0)
    chief.go_on()
    await task
    assert (log, chief.held_back) == (["a"], "")


async def test_a_train_that_is_behind_holds_starts_back():
    waiting = [60]
    chief, log = governor(behind=lambda: waiting[0]), []
    task = asyncio.create_task(hold(chief, log, "a"))
    await asyncio.sleep(0.05)
    assert (log, chief.held_back) == ([], "the train is behind")
    waiting[0] = 0
    chief.go_on()
    await task


async def test_a_kind_that_fails_again_and_again_is_tried_one_at_a_time():
    chief = governor(8)
    for _ in range(6):
        chief.heard("bad", "unavailable")
    chief.limit = 8
    async with chief.place("bad"):
        assert "fails again and again" in chief._not_now(Ticket(0, 1, "bad", "bad"))
        assert chief._not_now(Ticket(0, 1, "good", "good")) == ""


async def test_who_is_of_a_kind_that_works_goes_past_those_of_one_that_fails():
    chief = governor(8)
    for _ in range(6):
        chief.heard("bad", "unavailable")
    chief.limit = 8
    async with chief.place("bad"):
        waiting = asyncio.create_task(chief.place("bad", 9).__aenter__())
        await asyncio.sleep(0)
        async with asyncio.timeout(20), chief.place("good"):
            assert not waiting.done()
            assert chief.busy == 2
    async with asyncio.timeout(20):
        await waiting
    assert chief.busy == 1, "one of them is tried, though others are at work"


async def test_a_pause_has_its_reason():
    chief, log = governor(), []
    chief.pause("the disk is full", 0.1)
    chief.pause("a shorter one", 0.01)
    task = asyncio.create_task(hold(chief, log, "a"))
    await asyncio.sleep(0)
    assert (log, chief.held_back) == ([], "the disk is full")
    await task


async def test_one_who_gives_up_leaves_the_line():
    chief, log = governor(1), []
    async with chief.place("a"):
        task = asyncio.create_task(hold(chief, log, "gone"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await hold(chief, log, "next")
    assert log == ["next"]


async def test_starts_are_staggered():
    chief, log = governor(9, stagger_s=0.05), []
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(hold(chief, log, str(i)) for i in range(4)))
    assert loop.time() - began >= 0.14


def test_what_this_machine_has(tmp_path):
    room = room_of(tmp_path)
    assert room.memory_mb > 1
    assert room.disk_mb > 0
    assert room.load >= 0
    assert Needs().memory_mb > 0


async def test_a_short_distance_between_starts_is_no_alarm():
    """Whoever waits for that starts in a moment; and what held one back that left is over."""
    chief, log = governor(2, stagger_s=30.0), []
    await hold(chief, log, "first")
    task = asyncio.create_task(hold(chief, log, "second"))
    await asyncio.sleep(0.05)
    assert (log, chief.waiting, chief.held_back) == (["first"], 1, "")
    chief.stop()
    chief.heard("a", "")
    while not chief.held_back:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (chief.waiting, chief.held_back) == (0, "")
