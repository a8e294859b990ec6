"""A fleet that stands for long does not grow with every epic it did."""

import asyncio
from hashlib import sha1
from itertools import count
from types import SimpleNamespace

from leadhand.fleet import service
from leadhand.fleet.service import Keeping
from tests.fleet.places import run_git
from tests.fleet.standing import epic, standing


def homes(folder):
    return list((folder / "homes").iterdir())


async def test_homes_of_agents_go_with_their_epic(tmp_path, user, monkeypatch):
    """Also those that a fleet which ended before had no time for."""
    opened = standing(tmp_path, user, '{"b": ["red"]}')
    async with opened() as fleet:
        fleet.submit(epic(tmp_path, "first", "a", "b"))
        async with asyncio.timeout(60):
            await fleet.idle()
        assert len(homes(tmp_path)) == 2
    monkeypatch.setattr(service, "KEEP_S", 0.05)
    async with opened() as fleet, asyncio.timeout(60):
        while homes(tmp_path):
            await asyncio.sleep(0.05)
        fleet.submit(epic(tmp_path, "second", "c"))
        await fleet.idle()
        while homes(tmp_path):
            await asyncio.sleep(0.05)


def state(status, **steps):
    known = {
        name: SimpleNamespace(id=name, attempts=attempts, status=status)
        for name, (attempts, status) in steps.items()
    }
    ended = SimpleNamespace(status=status) if status else None
    return SimpleNamespace(run="epic-x", ended=ended, steps=known)


async def test_what_may_be_taken_up_again_keeps_its_home(hub):
    """An epic that failed can be reopened; when it ends again, it is tidied up after again."""
    gone = []
    coder = SimpleNamespace(name="c", forget=lambda given: gone.append(given.task))
    keeping = Keeping(hub, [coder, coder])
    steps = {"done": (1, "succeeded"), "open": (3, "failed"), "never": (0, "waiting")}
    for status, wanted in (
        ("", []),
        ("failed", ["done", "done.review"]),
        ("failed", []),
        ("", []),
        ("cancelled", ["done", "done.review", "open", "open.review"]),
    ):
        keeping.heard(state(status, **steps))
        await keeping.look()
        assert gone == wanted
        gone.clear()


def blob_in_folder(prefix):
    """The words of an object whose name begins so."""
    blobs = (b"%d\n" % number for number in count())
    named = ((sha1(b"blob %d\0" % len(data) + data).hexdigest(), data) for data in blobs)
    return next(data for sha, data in named if sha.startswith(prefix))


async def test_many_loose_objects_are_packed_and_none_is_lost(hub, monkeypatch):
    """Not those either that no ref names: an agent's clone may need them."""
    data = blob_in_folder("17")
    sha = (await hub.git("hash-object", "-w", "--stdin", stdin=data)).text
    monkeypatch.setattr(service, "LOOSE_MAX", 257)
    await Keeping(hub, []).look()
    assert hub.loose() == 256, "a few are left alone"
    monkeypatch.setattr(service, "LOOSE_MAX", 256)
    await Keeping(hub, []).look()
    assert hub.loose() == 0
    assert await hub.blobs([sha]) == {sha: data}
    assert "count: 0" in run_git(hub.git.folder, "count-objects", "-v")
    assert run_git(hub.git.folder, "fsck", "--strict", "--no-dangling") == ""
