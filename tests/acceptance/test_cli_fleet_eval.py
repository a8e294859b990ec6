"""Planners compared on recorded epics: by what the epics of a fleet really changed."""

import json
import sys

import pytest

from leadhand.errors import UsageError
from leadhand.fleet.commands.eval import words_of
from leadhand.fleet.planning.comparison import Ratio, recorded_epics
from leadhand.fleet.repository.hub import Hub
from tests.fleet.places import make_repo

pytestmark = pytest.mark.real

AGENT = """
import pathlib, re, sys
brief = pathlib.Path(sys.argv[1]).read_text().partition("# You may change")[2]
for path in re.findall(r"(?m)^- ([a-z]+[.]txt)$", brief):
    place = pathlib.Path(path)
    place.write_text((place.read_text() if place.exists() else "") + sys.argv[2] + "\\n")
"""
PLANNERS = '''
import re


def wave(told, *paths):
    if told["tasks"]:
        return {"kind": "done", "because": "all is there"}
    tasks = [
        {"id": f"t{n}", "goal": f"write {path}", "writes": [path],
         "acceptance": [["cat", path]]} for n, path in enumerate(paths)
    ]
    return {"kind": "wave", "because": "first", "tasks": tasks}


def named(told):
    """Mean the files that the epic names, and nothing else."""
    return wave(told, *re.findall(r"[a-z]+[.]txt", told["epic"]["text"]))


def one(told):
    """Mean the same file for every epic, and one that nobody changes."""
    return wave(told, "a.txt", "never.txt")


def wrong(told):
    """Mean what is protected."""
    return wave(told, "LICENSE")


def unsure(told):
    return {"kind": "ask", "because": "unclear", "question": "Which file?", "choices": []}


def looks(told):
    """See main as it was when the epic began."""
    there = sorted(each["path"] for each in told["repository"]["map"])
    return {"kind": "give_up", "because": "no", "reason": " ".join(there)}
'''
SETTINGS = """
[fleet]
repo = "shop"
gate = [[{python}, "-c", "pass"]]
agents = 2
sandbox = "none"
stagger = 0
drain = "1 s"
planner = "plan.py:named"
protected = ["LICENSE"]
append = ["log.txt"]

[policy]
backoff = "100 ms"

[coders.scripted]
kind = "command"
command = [{python}, {agent}, "{{brief_file}}", "{{task}}"]
"""
EPICS = {
    "one": "Change a.txt and b.txt, and log.txt.",
    "two": "Change b.txt.",
    "three": "Change c.txt, and log.txt.",
}


@pytest.fixture
def landed(folder, tmp_path):
    """A fleet that has landed three epics; the first two changed a file in common."""
    make_repo(tmp_path / "shop", {"a.txt": "a\n", "b.txt": "b\n", "LICENSE": "Do.\n"})
    folder.write("agent.py", AGENT)
    folder.write("plan.py", PLANNERS)
    python, agent = json.dumps(sys.executable), json.dumps(str(tmp_path / "agent.py"))
    folder.write("leadhand.toml", SETTINGS.format(python=python, agent=agent))
    for name, text in EPICS.items():
        folder.write(f"{name}.md", f"# Epic {name}\n\n{text}\n")
        folder.run("fleet", "submit", f"{name}.md")
        done = folder.run("fleet", "start", "--no-serve", "--until-idle", "--trust")
        assert done.code == 0, done
    return folder


def test_planners_are_compared_by_what_epics_really_changed(landed):
    names = [f"plan.py:{name}" for name in ("named", "one", "wrong", "unsure", "looks")]
    asked = [word for name in names for word in ("--planner", name)]
    done = landed.run("fleet", "eval", *asked, "--json", "--trust")
    assert done.code == 0, done
    named, one, wrong, unsure, looks = done.doc["planners"]
    assert [each["planner"] for each in done.doc["planners"]] == names
    assert (named["epics"], named["planned"], named["tasks"]) == (3, 3, 6)
    assert (named["files"]["precision"], named["files"]["recall"]) == (1.0, 1.0)
    # The file that all may write makes no overlap: only the first two share one.
    assert named["overlaps"] == {
        "hits": 1, "predicted": 1, "real": 1, "precision": 1.0, "recall": 1.0,
    }  # fmt: skip
    assert one["files"]["precision"] == pytest.approx(1 / 6)
    assert one["files"]["recall"] == pytest.approx(1 / 6)
    assert (one["overlaps"]["hits"], one["overlaps"]["predicted"]) == (1, 3)
    assert (wrong["planned"], wrong["asked"], wrong["usable"]) == (0, 3, 0)
    assert wrong["overlaps"]["precision"] is None
    assert (unsure["planned"], unsure["asked"], unsure["gave_up"]) == (0, 3, 0)
    assert looks["gave_up"] == 3
    table = landed.run("fleet", "eval", "--trust")
    assert "plan.py:named" in table.out
    assert "1.00 1.00" in table.out
    assert landed.run("fleet", "status", "--json").doc["landed"]["total"] == 6, "nothing was done"


async def test_a_recorded_epic_is_asked_again_on_the_commit_that_it_began_with(landed):
    """`three` was planned when main had the files of the others, and not its own."""
    root = landed.path / ".leadhand" / "fleet"
    epics = await recorded_epics(root, 30)
    assert [each.epic.title for each in epics] == ["Epic one", "Epic two", "Epic three"]
    assert epics[0].changed == {"a.txt", "b.txt", "log.txt"}
    hub = await Hub.look(root / "hub", at=epics[2].base)
    files = (await hub.git("ls-tree", "--name-only", hub.main())).text.split()
    assert files == ["LICENSE", "a.txt", "b.txt", "log.txt"]
    assert [each.epic.title for each in await recorded_epics(root, 1)] == ["Epic three"]


async def test_a_fleet_without_epics_has_nothing_to_compare_by(tmp_path):
    with pytest.raises(UsageError, match="there is no fleet"):
        await recorded_epics(tmp_path, 30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lead", ("lead",)),
        ("plan.py:next_wave", ("plan.py:next_wave",)),
        ("python 'my plan.py'", ("python", "my plan.py")),
        ('["python", "plan.py"]', ("python", "plan.py")),
    ],
)
def test_a_planner_is_named_as_in_the_settings(text, words):
    assert words_of(text) == words


def test_a_list_that_is_none_is_refused():
    with pytest.raises(UsageError, match="no list"):
        words_of("[python")


def test_without_anything_to_divide_by_there_is_no_share():
    assert (Ratio(0, 0, 0).precision, Ratio(0, 0, 0).recall) == (None, None)
