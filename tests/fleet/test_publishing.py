"""What the user's repository gets: a branch, pull requests by a command; and what comes in."""

import asyncio
import json
import sys
import time
from types import SimpleNamespace

import pytest

from leadhand.errors import LeadhandError, UsageError
from leadhand.fleet import pull_requests
from leadhand.fleet.budget import Spending
from leadhand.fleet.epic_folder import run_of, submit
from leadhand.workers.processes.runner import Processes
from tests.fleet.places import every_byte, make_repo, run_git
from tests.fleet.standing import epic, noted, settled, standing

PULL = """
import json, os, pathlib, sys
place = pathlib.Path(sys.argv[1])
known = {name: os.environ.get(name) for name in ("MINE",)}
with place.open("a") as file:
    file.write(json.dumps([sys.argv[2:], pathlib.Path(sys.argv[4]).read_text(), known]) + "\\n")
if pathlib.Path(str(place) + ".broken").exists():
    sys.exit("no such host")
print("made it"); print("https://localhost/pulls/7")
"""


def command(tmp_path):
    (tmp_path / "pull.py").write_text(PULL)
    words = ["{branch}", "{title}", "{body_file}", "{base}", "{run}", "{commit}"]
    return (sys.executable, str(tmp_path / "pull.py"), str(tmp_path / "pulls"), *words)


def pulls(tmp_path):
    place = tmp_path / "pulls"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


async def test_each_epic_that_is_done_is_offered_once_by_the_users_own_command(
    tmp_path, user, monkeypatch
):
    """After the branch holds it, with the user's environment, and not again after a restart."""
    monkeypatch.setenv("MINE", "a token of the user's")
    more = {"publish": "leadhand/main", "pull_request": command(tmp_path)}
    async with standing(tmp_path, user, **more)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a", "b"))
        await settled(fleet)
        ((branch, title, _file, base, run, commit), body, known) = pulls(tmp_path)[0]
    assert (branch, title, base, run) == (f"leadhand/main-{ident}", "first", "main", ident)
    assert commit == run_git(user, "rev-parse", "leadhand/main")
    assert known == {"MINE": "a token of the user's"}
    assert f"Leadhand-Run: {ident}" in body
    (note,) = noted(tmp_path, "pull request")
    assert (note["code"], note["said"]) == (0, "https://localhost/pulls/7")
    async with standing(tmp_path, user, **more)() as fleet:
        await settled(fleet)
        assert len(pulls(tmp_path)) == 1
        second = fleet.submit(epic(tmp_path, "second", "c"))
        await settled(fleet)
    branches = [each[0][0] for each in pulls(tmp_path)]
    assert branches == [f"leadhand/main-{each}" for each in (ident, second)], "one of its own"
    assert [run_git(user, "rev-parse", each) for each in branches] == [
        commit,
        run_git(user, "rev-parse", "leadhand/main"),
    ]


async def test_an_epic_that_ends_while_the_branch_moves_waits_for_the_next_look(tmp_path):
    """What the branch was brought to is not all of it yet."""
    over, published = [], []

    async def publish(_branch):
        state = SimpleNamespace(run="epic-x", started=None, ended=None)
        published.append(hub.main())
        over[:] = [state]
        return published[-1]

    commits = iter(("half", "half", "whole", "whole", "whole"))
    user = SimpleNamespace(repo=tmp_path, ref="refs/heads/main")
    hub = SimpleNamespace(main=lambda: next(commits), publish=publish, user=user)
    processes, folder = Processes("results"), tmp_path / "fleet"
    folder.mkdir()
    results = pull_requests.Results(
        hub, "leadhand/main", command(tmp_path), processes, folder, lambda *_, **__: None
    )
    results.begin([])
    await results.give(lambda: over)
    assert (published, pulls(tmp_path)) == (["half"], [])
    await results.give(lambda: over)
    assert [each[0][-1] for each in pulls(tmp_path)] == ["whole"]
    await processes.close()


async def test_a_command_that_fails_is_said_and_tried_again(tmp_path, user, monkeypatch):
    monkeypatch.setattr(pull_requests, "PAUSE_S", 0.0)
    more = {"publish": "leadhand/main", "pull_request": command(tmp_path)}
    (tmp_path / "pulls.broken").touch()
    async with standing(tmp_path, user, **more)() as fleet:
        ident = fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
        assert "no such host" in fleet.refused[f"the pull request of {ident}"]
        (tmp_path / "pulls.broken").unlink()
        await settled(fleet)
        assert fleet.refused == {}
    assert [note["code"] for note in noted(tmp_path, "pull request")][-1] == 0


async def test_epics_from_before_the_command_was_there_are_not_offered(tmp_path, user):
    async with standing(tmp_path, user, publish="leadhand/main")() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
    more = {"publish": "leadhand/main", "pull_request": command(tmp_path)}
    async with standing(tmp_path, user, **more)() as fleet:
        fleet.submit(epic(tmp_path, "second", "b"))
        await settled(fleet)
    assert [each[0][1] for each in pulls(tmp_path)] == ["second"]


async def test_without_the_record_of_what_was_made_nothing_is_made(tmp_path, user):
    """Else every epic of the past would be offered a second time."""
    more = {"publish": "leadhand/main", "pull_request": command(tmp_path)}
    async with standing(tmp_path, user, **more)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
    (tmp_path / "fleet" / "pulls.json").write_text("[half")
    with pytest.raises(LeadhandError, match=r"pulls\.json: cannot be read"):
        async with standing(tmp_path, user, **more)():
            pass
    assert len(pulls(tmp_path)) == 1


def test_a_title_is_one_line_and_no_option():
    started = SimpleNamespace(goal={"text": "--force\n  and more"})
    state = SimpleNamespace(run="epic-x", started=started, ended=None)
    assert pull_requests.title_of(state) == "force and more"


async def test_a_folder_goes_with_one_repository(tmp_path, user):
    """Else what was made for one would be given to another."""
    async with standing(tmp_path, user)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
    make_repo(tmp_path / "other", {"other.txt": "other\n"})
    before = every_byte(tmp_path / "other")
    with pytest.raises(UsageError, match="began with another repository"):
        async with standing(tmp_path, tmp_path / "other", publish="leadhand/main")():
            pass
    assert every_byte(tmp_path / "other") == before


# --- the watched folder ------------------------------------------------------------------------


async def test_half_a_file_is_no_epic(tmp_path, user):
    """Somebody copies an epic into the folder slowly: it is one epic in the end."""
    async with standing(tmp_path, user)() as fleet:
        place = fleet.epics / "slow.md"
        whole = epic(tmp_path, "slow", "a", "b").read_text()
        for part in (whole[:8], whole[8:40], whole[40:]):
            with place.open("a") as file:
                file.write(part)
            await asyncio.sleep(0.7)
        await settled(fleet)
        while fleet.open_epics or not fleet._runs:
            await asyncio.sleep(0.1)
        assert len(fleet._runs) == 1
        assert fleet.refused == {}


@pytest.mark.parametrize(
    "text",
    [
        "# A\n\nWords.\n",
        "# A\n\nWords.\n\n```yaml\nbudget: 3\n```\n",
        "# A\n\nWords.\n\n```yaml\npriority: 2\nbudget: 3\n```\nmore\n",
        "# A\n\nWords.\n\n```yaml\nbudget: 3\npriority: 2\n```\n",
    ],
)
def test_an_epic_that_becomes_more_urgent_is_the_same(tmp_path, text):
    (tmp_path / "a.md").write_text(text)
    runs = {submit(tmp_path / "in", tmp_path / "a.md", each)[0] for each in (None, 0, 7, -2)}
    assert len(runs) == 1
    (tmp_path / "a.md").write_text(text.replace("Words", "Other words"))
    assert submit(tmp_path / "in", tmp_path / "a.md", 7)[0] not in runs
    assert submit(tmp_path / "in", tmp_path / "a.md", 7)[1].priority == 7


def test_an_epic_that_waits_is_not_written_over(tmp_path):
    """Two files of one name are two epics, and each stays one however often it is handed in."""
    folder, wanted = tmp_path / "in", {}
    for place, words in (("x", "Words of x."), ("y", "Words of y.")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "plan.md").write_text(f"# Plan\n\n{words}\n")
        wanted[submit(folder, tmp_path / place / "plan.md").run] = words
    for place in "xyyx":
        assert submit(folder, tmp_path / place / "plan.md", 3).run in wanted
    found = {run_of(path.stem, path.read_bytes()): path for path in folder.glob("*.md")}
    assert len(list(folder.iterdir())) == 2
    assert found.keys() == wanted.keys()
    assert all(words in found[run].read_text() for run, words in wanted.items())


def test_what_was_taken_makes_room_for_the_next(tmp_path):
    folder, path = tmp_path / "in", tmp_path / "plan.md"
    path.write_text("# Plan\n\nFirst.\n")
    first = submit(folder, path).run
    path.write_text("# Plan\n\nSecond.\n")
    assert submit(folder, path, taken=lambda run: run == first).place == folder / "plan.md"
    (folder / "plan.md").write_bytes(b"\xff half a file")
    assert submit(folder, path).place != folder / "plan.md", "whatever it is, it is somebody's"


# --- money -------------------------------------------------------------------------------------


def test_everybody_who_is_paid_counts_for_the_day():
    now = time.time()
    at = int(now * 1e6)
    notes = [{"at": at, "what": what, "cost": 1.0} for what in ("reviewed", "planned", "lost")]
    notes += [{"at": at, "what": "agent", "cost": 1.0}, {"at": at, "what": "agent ended"}]
    assert Spending(notes, lambda: now).today() == 3.0


async def test_a_reviewers_words_are_paid_from_the_same_purse(tmp_path, user):
    more = {"protected": ("guarded/**",), "reviewer": "big"}
    tricks = json.dumps({"cost": 0.5, "a": ["guarded"]})
    async with standing(tmp_path, user, tricks, **more)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        await settled(fleet)
    (note,) = noted(tmp_path, "reviewed")
    assert (note["coder"], note["task"]) == ("big", "a")


async def test_what_killed_agents_had_cost_is_counted(tmp_path, user):
    (tmp_path / "fleet").mkdir()
    agent = {"run": "epic-x", "task": "a", "attempt": 1, "coder": "scripted", "cost": 2.5}
    (tmp_path / "fleet" / "live.json").write_text(json.dumps({"agents": [agent]}))
    async with standing(tmp_path, user, daily=2.0)() as fleet:
        fleet.submit(epic(tmp_path, "first", "a"))
        while "dollars of this day" not in fleet.shop.governor.held_back:
            await asyncio.sleep(0.1)
    assert noted(tmp_path, "agent") == []
    assert [note["cost"] for note in noted(tmp_path, "lost")] == [2.5]
