"""A process that dies while agents are at work loses nothing of what they had written."""

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from leadhand.fleet.repository.git import GitFailed
from leadhand.fleet.repository.hub import Hub, ref_of
from leadhand.fleet.workspace import slots as slots_module
from leadhand.fleet.workspace.slots import Slots
from tests.fleet.places import files_of, make_repo, write

HOLDER = """
import asyncio, os, signal, sys
from pathlib import Path
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots

async def hold(repo, place, ref):
    async with await Hub.open(place / "hub", repo) as hub:
        async with Slots(hub, place / "slots", 3).lease(hub.main(), saved_as=ref) as slot:
            (slot.path / "half.txt").write_text("half of it")
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(hold(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
"""


def die_at_work(repo, place, ref):
    argv = [sys.executable, "-c", HOLDER, str(repo), str(place), ref]
    assert subprocess.run(argv, check=False, timeout=60).returncode == -signal.SIGKILL


async def test_what_was_in_a_slot_when_its_process_died_is_kept(tmp_path):
    repo, ref = tmp_path / "repo", ref_of("wip", "run", "task", 1)
    make_repo(repo)
    die_at_work(repo, tmp_path, ref)
    async with await Hub.open(tmp_path / "hub", repo) as hub:
        slots = Slots(hub, tmp_path / "slots", 3)
        assert await slots.rescue() == [ref]
        kept = (await hub.kept(ref))[ref]
        assert files_of(hub.git.folder, kept)["half.txt"] == "half of it"
        async with slots.lease(hub.main()) as slot:
            assert not (slot.path / "half.txt").exists()
        assert await slots.rescue() == []


async def test_notes_that_say_nothing_stop_nobody(tmp_path):
    """Half a note, a slot that is gone, a base that nobody knows: the fleet starts all the same."""
    repo = tmp_path / "repo"
    make_repo(repo)
    for number, harm in enumerate(("cut", "gone", "base")):
        place = tmp_path / str(number)
        place.mkdir()
        ref = ref_of("wip", "run", "task", number)
        die_at_work(repo, place, ref)
        (note,) = (place / "hub" / "index").glob("*.held")
        if harm == "cut":
            note.write_text(note.read_text()[:10])
        elif harm == "gone":
            for each in (place / "slots").iterdir():
                each.rename(place / "elsewhere")
        else:
            note.write_text(note.read_text().replace('"base": "', '"base": "0123'))
        async with await Hub.open(place / "hub", repo) as hub:
            slots = Slots(hub, place / "slots", 3)
            await slots.rescue()
            async with slots.lease(hub.main()):
                pass
        assert not list((place / "hub" / "index").glob("*.held"))


async def test_a_slot_that_was_given_back_is_not_rescued(tmp_path):
    repo = tmp_path / "repo"
    make_repo(repo)
    async with await Hub.open(tmp_path / "hub", repo) as hub:
        slots = Slots(hub, tmp_path / "slots", 2)
        async with slots.lease(hub.main(), saved_as=ref_of("wip", "r", "t", 1)) as slot:
            write(slot.path, {"new.txt": "new\n"})
        assert await slots.rescue() == []


@pytest.fixture
async def place(tmp_path, monkeypatch):
    """A hub on a disk that is full as long as `full` is set."""
    monkeypatch.setattr(slots_module, "AGAIN_S", 0.01)
    make_repo(tmp_path / "repo")
    async with await Hub.open(tmp_path / "hub", tmp_path / "repo") as hub:
        keep, hub.full = hub.submit, False

        async def submit(ref, sha):
            if hub.full:
                raise GitFailed(["update-ref"], 128, "No space left on device")
            await keep(ref, sha)

        monkeypatch.setattr(Hub, "submit", lambda _self, ref, sha: submit(ref, sha))
        yield hub


async def kept_in_the_end(hub, slots, ref):
    """What was withheld is saved once there is room, and its slot is free again."""
    assert not await hub.kept(ref)
    assert "No space left" in slots.told["slot-0"]
    assert slots.free == 0
    hub.full = False
    async with asyncio.timeout(30), slots.lease(hub.main()) as slot:
        kept = (await hub.kept(ref))[ref]
        assert files_of(hub.git.folder, kept)["half.txt"] == "half of it"
        assert not (slot.path / "half.txt").exists()
        assert slots.told == {}
    assert not slot.note.exists()


async def test_a_slot_whose_work_cannot_be_saved_is_nobodys_until_it_is(tmp_path, place):
    slots, ref = Slots(place, tmp_path / "slots", 1), ref_of("wip", "run", "task", 1)
    async with slots.lease(place.main(), saved_as=ref) as slot:
        write(slot.path, {"half.txt": "half of it"})
        place.full = True
    assert slot.note.exists(), "should the process die now, the next one knows of it"
    await kept_in_the_end(place, slots, ref)


async def test_a_rescue_that_fails_is_tried_again_and_nothing_is_wiped(tmp_path):
    repo, ref = tmp_path / "repo", ref_of("wip", "run", "task", 1)
    make_repo(repo)
    die_at_work(repo, tmp_path, ref)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "AGAIN_S", 0.01)
        async with await Hub.open(tmp_path / "hub", repo) as hub:
            keep, full = hub.submit, [True]

            async def submit(ref, sha):
                if full[0]:
                    raise OSError(28, "No space left on device")
                await keep(ref, sha)

            patch.setattr(Hub, "submit", lambda _self, ref, sha: submit(ref, sha))
            slots = Slots(hub, tmp_path / "slots", 3)
            assert await slots.rescue() == []
            assert list(slots.told) == ["slot-0"]
            async with slots.lease(hub.main()) as slot:
                assert slot.name != "slot-0", "the others are handed over"
            full[0] = False
            async with asyncio.timeout(30):
                while slots.told:
                    await asyncio.sleep(0.01)
            kept = (await hub.kept(ref))[ref]
            assert files_of(hub.git.folder, kept)["half.txt"] == "half of it"


async def test_a_slot_is_free_when_the_thread_that_cleans_it_has_ended(tmp_path, monkeypatch):
    """A thread cannot be cancelled: it would remove what the next one has just checked out."""
    repo, begun, go_on = tmp_path / "repo", threading.Event(), threading.Event()
    make_repo(repo)
    remove = slots_module.remove_foreign

    def slowly(*given):
        begun.set()
        go_on.wait(30)
        remove(*given)

    async with await Hub.open(tmp_path / "hub", repo) as hub:
        slots = Slots(hub, tmp_path / "slots", 1)
        monkeypatch.setattr(slots_module, "remove_foreign", slowly)

        async def hold():
            async with slots.lease(hub.main()):
                pass

        holding = asyncio.create_task(hold())
        await asyncio.to_thread(begun.wait, 30)
        holding.cancel()
        done, _ = await asyncio.wait([holding], timeout=0.2)
        assert (len(done), slots.free) == (0, 0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert slots.free == 1


async def test_work_is_saved_although_its_holder_is_cancelled_meanwhile(tmp_path):
    repo, ref = tmp_path / "repo", ref_of("wip", "run", "task", 1)
    make_repo(repo)
    async with await Hub.open(tmp_path / "hub", repo) as hub:
        slots = Slots(hub, tmp_path / "slots", 1)
        held = asyncio.Event()

        async def hold():
            async with slots.lease(hub.main(), saved_as=ref) as slot:
                write(slot.path, {"half.txt": "half of it"})
                held.set()
                await asyncio.Event().wait()

        holding = asyncio.create_task(hold())
        await held.wait()
        holding.cancel()
        await asyncio.sleep(0)
        holding.cancel()  # and again, while it is being saved
        with pytest.raises(asyncio.CancelledError):
            await holding
        kept = (await hub.kept(ref))[ref]
        assert files_of(hub.git.folder, kept)["half.txt"] == "half of it"


async def test_who_cleans_up_when_told_to_end_takes_back_nothing_that_was_saved(tmp_path):
    repo, ref = tmp_path / "repo", ref_of("wip", "run", "task", 1)
    make_repo(repo)
    async with await Hub.open(tmp_path / "hub", repo) as hub:
        slots = Slots(hub, tmp_path / "slots", 1)
        async with slots.lease(hub.main(), saved_as=ref) as slot:
            write(slot.path, {"half.txt": "half of it"})
            first = await slot.save(ref)
            assert await slot.save(ref) == first, "the same is kept once"
            (slot.path / "half.txt").unlink()
            assert await slot.save(ref) == first
        assert await hub.kept(ref) == {ref: first}
