"""Work in progress is merged with main early: its agent is told, and takes in what others did."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.boundaries import Sharing
from leadhand.fleet.context import AtWork
from leadhand.fleet.merge.conductor import Ejected, Landed, QueuedChange
from leadhand.fleet.merge.early import TOLD_MAX, EarlyMerges, base_taken_in, takes_in
from tests.fleet.places import commit_all, write

LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=6).map(b"\n".join)


class Agent:
    """A coder that can be talked to, or not."""

    name = "agent"

    def __init__(self, *, talks=True):
        self.talks, self.heard = talks, []

    def message(self, _assignment, text):
        self.heard.append(text)
        return self.talks


@pytest.fixture
def user(user):
    """A repository with two files of some length."""
    for name in ("hot.py", "cold.py"):
        write(user, {name: "".join(f"x{n} = 0\n" for n in range(30))})
    commit_all(user, "files")
    return user


def edited(slot, line, words, name="hot.py"):
    path = slot.path / name
    path.write_text(path.read_text().replace(f"{line} = 0\n", f"{line} = {words!r}\n"))


async def landed(shop, line, words, name="hot.py", also=None):
    """A change of others that is on main."""
    async with shop.slots.lease(shop.hub.main()) as slot:
        edited(slot, line, words, name)
        write(slot.path, also or {})
        head = (await slot.take()).head
    assert await shop.hub.advance(head, shop.hub.main())


def at_work(shop, slot, agent, **more):
    given = Assignment(run="r", task="t", brief="do it", writes=("hot.py", "CHANGELOG.md"), **more)
    shop.at_work["r/t"] = AtWork(agent, given, time.time(), slot=slot)
    return shop.at_work["r/t"]


async def test_an_agent_is_told_once_of_a_conflict_and_lands_when_it_took_it_in(fleet):
    shop, _ = fleet
    early, agent = EarlyMerges(shop), Agent()
    async with shop.slots.lease(shop.hub.main()) as slot:
        at_work(shop, slot, agent)
        edited(slot, "x5", "mine")
        await landed(shop, "x20", "far away")
        await early.look()
        assert agent.heard == [], "it merges"
        await landed(shop, "x5", "theirs", also={"other.py": "1\n"})
        for _ in range(3):
            await early.look()
        (words,) = agent.heard
        assert "+x5 = 'theirs'" in words
        assert shop.hub.main() in words
        assert slot.told == (shop.hub.main(), ("hot.py",))

        head = (await slot.take()).head
        assert await base_taken_in(shop.hub, slot, head) == slot.base, "it took nothing in yet"
        await _refused(shop, slot.base, head)
        text = (await shop.hub.git("show", f"{shop.hub.main()}:hot.py")).text
        (slot.path / "hot.py").write_text(
            text.replace("x5 = 'theirs'", "x5 = 'theirs'\ny = 'mine'")
        )
        head = (await slot.take()).head
        base = await base_taken_in(shop.hub, slot, head)
        assert base != slot.base
    told = await shop.conductor.land(_change(base, head, attempt=2))
    assert isinstance(told, Landed), told
    text = (await shop.hub.git("show", f"{told.sha}:hot.py")).text
    assert "x5 = 'theirs'\ny = 'mine'\n" in text
    assert "x20 = 'far away'" in text
    assert await shop.hub.changed(f"{await shop.hub.resolve(told.sha + '^')}", told.sha) == {
        "hot.py": "M"
    }


def _change(base, head, attempt=1):
    about = {"run": "r", "task": "t", "attempt": attempt, "goal": "a change"}
    return QueuedChange(**about, base=base, head=head, paths=("hot.py",))


async def _refused(shop, base, head):
    told = await shop.conductor.land(_change(base, head))
    assert isinstance(told, Ejected)
    assert told.kind == "conflict"


async def test_nobody_is_interrupted_for_what_is_not_theirs_nor_again_and_again(fleet):
    shop, _ = fleet
    shop.sharing = Sharing(("CHANGELOG.md",))
    notes = []
    shop.note = lambda what, **more: notes.append((what, more))
    early, agent = EarlyMerges(shop), Agent()
    async with shop.slots.lease(shop.hub.main()) as slot:
        mine = at_work(shop, slot, agent)
        edited(slot, "x5", "mine")
        await landed(shop, "x5", "theirs", "cold.py", also={"CHANGELOG.md": "- a line\n"})
        await early.look()
        assert agent.heard == []
        for number in range(5):
            await landed(shop, f"x{number + 3}", "theirs")
            await early.look()
        assert 1 <= len(agent.heard) == mine.told <= TOLD_MAX
        assert [what for what, _more in notes] == ["conflict"] * mine.told


async def test_an_agent_that_cannot_be_told_keeps_its_base(fleet):
    shop, _ = fleet
    early, agent = EarlyMerges(shop), Agent(talks=False)
    async with shop.slots.lease(shop.hub.main()) as slot:
        at_work(shop, slot, agent)
        edited(slot, "x5", "mine")
        await landed(shop, "x5", "theirs")
        await early.look()
        assert len(agent.heard) == 1
        assert slot.told == ("", ())
        assert await base_taken_in(shop.hub, slot, (await slot.take()).head) == slot.base


@given(LINES, LINES, LINES)
def test_what_is_taken_in_has_every_line_that_others_added(before, theirs, ours):
    assert takes_in(before, theirs, theirs)
    assert takes_in(before, before, ours)
    if takes_in(before, theirs, ours):
        was, now, own = (text.splitlines() for text in (before, theirs, ours))
        for line in set(was) | set(now):
            if now.count(line) > was.count(line):
                assert own.count(line) >= now.count(line)
            if now.count(line) < was.count(line):
                assert own.count(line) <= now.count(line)
