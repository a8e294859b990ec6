"""A process that dies while agents are at work loses nothing of what they had written."""

import signal
import subprocess
import sys

from leadhand.fleet.hub import Hub, ref_of
from leadhand.fleet.slots import Slots
from tests.fleet.places import files_of, make_repo, write

HOLDER = """
import asyncio, os, signal, sys
from pathlib import Path
from leadhand.fleet.hub import Hub
from leadhand.fleet.slots import Slots

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
