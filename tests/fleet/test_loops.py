"""The loops of a fleet go on whatever they meet, and what they meet is said."""

import asyncio
import errno
import sys

import pytest

from leadhand.errors import Bug
from leadhand.fleet import background, pull_requests
from leadhand.fleet.background import watch
from leadhand.fleet.epic_folder import Intake
from leadhand.fleet.gate import gate
from leadhand.fleet.gate.gate import Gate, GateTrouble
from leadhand.fleet.merge.conductor import Following
from leadhand.fleet.merge.train import Train
from leadhand.fleet.pull_requests import RECORD
from leadhand.fleet.status import journal
from tests.fleet.places import commit_all, files_of, run_git, write
from tests.fleet.standing import epic, settled, standing

NO_FILES = OSError(errno.EMFILE, "Too many open files")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(background, "AGAIN_S", 0.05)
    monkeypatch.setattr(gate, "TROUBLE_S", 0.05)
    monkeypatch.setattr(gate, "LOOK_S", 0.05)


def failing(monkeypatch, where, name, *errors):
    """The method of a class raises these, one each time, and then works; the last words said."""
    real, left = getattr(where, name), list(errors)

    async def call(self, *words, **more):
        if left:
            raise left.pop(0)
        return await real(self, *words, **more)

    monkeypatch.setattr(where, name, call)
    return left


async def until(true):
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


async def test_a_loop_says_what_it_met_and_looks_again():
    told, seen, looks = {}, [], iter([NO_FILES, KeyError(), None, None])

    async def look():
        seen.append(dict(told))
        if error := next(looks):
            raise error

    watching = asyncio.create_task(watch("it", look, told, every_s=0.0))
    await until(lambda: len(seen) >= 4)
    watching.cancel()
    assert "Too many open files" in seen[1]["it"]
    assert seen[2]["it"].startswith("KeyError")
    assert seen[3] == {}


async def test_a_nudge_makes_the_next_look_come(monkeypatch):
    """Also one that comes while the loop looks; many nudges are one look."""
    monkeypatch.setattr(background, "NUDGE_S", 0.01)
    nudged, looks = asyncio.Event(), []

    async def look():
        looks.append(1)
        if len(looks) == 1:
            nudged.set()

    watching = asyncio.create_task(watch("it", look, {}, 3600.0, nudged))
    await until(lambda: len(looks) == 2)
    await until(lambda: not nudged.is_set())
    for _ in range(5):
        nudged.set()
    await until(lambda: len(looks) == 3)
    await asyncio.sleep(0.1)
    watching.cancel()
    assert len(looks) == 3


async def test_the_users_commits_come_after_trouble_of_the_gate(tmp_path, user, monkeypatch):
    left = failing(monkeypatch, Following, "_take", GateTrouble("no room"), NO_FILES)
    async with standing(tmp_path, user)() as fleet:
        write(user, {"mine": "m\n"})
        commit_all(user, "By hand")
        await until(lambda: "no room" in fleet.refused.get("your branch", "") or not left)
        await until(lambda: not left and not fleet.refused)
        await until(lambda: fleet.shop.hub.main() != run_git(user, "rev-parse", "main~1"))
        assert "mine" in files_of(fleet.shop.hub.git.folder, fleet.shop.hub.main())


async def test_epics_are_taken_and_given_after_trouble(tmp_path, user, monkeypatch):
    failing(monkeypatch, Intake, "look", NO_FILES, RuntimeError("can't start new thread"))
    async with standing(tmp_path, user, publish="leadhand/main")() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        await until(lambda: fleet._runs)
        await settled(fleet)
        assert fleet.refused == {}
    assert "a.py" in run_git(user, "ls-tree", "--name-only", "leadhand/main")


async def test_whoever_waits_for_the_end_is_told_that_nothing_can_be_taken(
    tmp_path, user, monkeypatch
):
    failing(monkeypatch, Intake, "look", *[NO_FILES] * 10_000)
    async with standing(tmp_path, user)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        assert "Too many open files" in fleet.refused["the folder of epics"]


async def test_main_is_looked_at_again_after_trouble(tmp_path, user, monkeypatch):
    left = failing(monkeypatch, Gate, "check", NO_FILES, GateTrouble("no room"))
    said = []
    async with standing(tmp_path, user)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        while left or fleet.sound.against:
            said.append(fleet.sound.against)
            await asyncio.sleep(0.01)
        await settled(fleet)
    assert "main could not be tested: [Errno 24] Too many open files" in said


async def test_a_train_that_cannot_go_on_fails_the_host(tmp_path, user, monkeypatch):
    """Nothing would ever land; a fleet that looks alive would pay agents for it."""
    async with standing(tmp_path, user)() as fleet:
        monkeypatch.setattr(Train, "step", lambda _train, _event: {}["no such test"])
        fleet.submit(epic(tmp_path, "first", "a"))
        await until(lambda: fleet.host.failed is not None)
        assert isinstance(fleet.host.failed, Bug)
        assert "no such test" in str(fleet.host.failed)


# --- pull requests -----------------------------------------------------------------------------

WAIT = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"


async def test_a_pull_request_that_takes_long_holds_nothing_up(tmp_path, user):
    """Epics are taken, and the branch is given, while its command waits for somebody."""
    go = tmp_path / "go"
    more = {"publish": "leadhand/main", "pull_request": (sys.executable, "-c", WAIT, str(go))}
    async with standing(tmp_path, user, **more)() as fleet:
        first = fleet.submit(epic(tmp_path, "first", "a"))
        await until((tmp_path / f"fleet/pulls/{first}.md").exists)
        fleet.submit(epic(tmp_path, "second", "b"))
        await until(lambda: "b.py" in run_git(user, "ls-tree", "leadhand/main"))
        assert not [n for n in journal.read(tmp_path / "fleet") if n["what"] == "pull request"]
        go.touch()
        await settled(fleet)
    made = [n["run"] for n in journal.read(tmp_path / "fleet") if n["what"] == "pull request"]
    assert made[0] == first
    assert len(made) == 2


async def test_nothing_more_is_made_while_the_record_cannot_be_written(tmp_path, user, monkeypatch):
    """A restart would make them a second time."""
    made = tmp_path / "made"
    script = f"open({str(made)!r}, 'a').write('x')"
    monkeypatch.setattr(pull_requests, "PAUSE_S", 0.0)
    more = {"publish": "leadhand/main", "pull_request": (sys.executable, "-c", script)}
    async with standing(tmp_path, user, **more)() as fleet:
        blocked = tmp_path / "fleet/pulls.new"
        blocked.mkdir()
        fleet.submit(epic(tmp_path, "first", "a"))
        await until(lambda: RECORD in fleet.refused)
        fleet.submit(epic(tmp_path, "second", "b"))
        await settled(fleet)
        await settled(fleet)
        assert made.read_text() == "x"
        blocked.rmdir()
        await settled(fleet)
        assert fleet.refused == {}
    assert made.read_text() == "xx"


# --- the journal -------------------------------------------------------------------------------


def test_a_journal_that_cannot_begin_anew_goes_on_in_the_old_file(tmp_path, monkeypatch):
    """And never in a file that has got its descriptor since."""
    with journal.Journal(tmp_path, bytes_max=200) as notes:
        real, trouble = notes._open, [NO_FILES]

        def refused():
            if trouble:
                raise trouble[0]
            real()

        monkeypatch.setattr(notes, "_open", refused)
        for number in range(10):
            notes.note("agent", number=number)
        mine = (tmp_path / "other").open("wb")
        trouble.clear()
        notes.note("agent", number=10)
        notes.note("agent", number=11)
        mine.close()
    numbers = [note["number"] for note in journal.read(tmp_path) if note["what"] == "agent"]
    assert numbers == list(range(12))
    assert (tmp_path / "other").read_bytes() == b""
