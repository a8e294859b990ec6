"""One fleet, several repositories: a step belongs to one, an epic may span them."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from leadhand.core import commands
from leadhand.errors import UsageError
from leadhand.fleet.configuration import config_of
from leadhand.fleet.epic_folder import submit
from leadhand.fleet.repositories import landed_in, variables
from leadhand.fleet.settings import APPEND
from leadhand.settings import load_settings
from tests.fleet.pair import TRIPLE, USE, began, epic_of, green, make_pair, open_pair
from tests.fleet.places import commit_all, run_git, write
from tests.fleet.planned import Script, done, wave

LIMIT_S = 300


async def settled(fleet, path):
    ident = fleet.submit(path)
    async with asyncio.timeout(LIMIT_S):
        await fleet.idle()
    return fleet._runs[ident]


def subjects(repo):
    return run_git(repo, "log", "--format=%s", "leadhand/main").splitlines()


async def test_an_epic_lands_in_two_repositories_in_the_order_of_its_dependencies(tmp_path):
    """The application's agent is told the commit of the library, and every tip is green."""
    make_pair(tmp_path)
    async with open_pair(tmp_path) as fleet:
        run = await settled(fleet, epic_of(tmp_path, TRIPLE, USE))
        assert run.state.ended.status == "succeeded"
        status = await fleet.status()
        lib, app = (fleet.sites[name].shop.hub for name in ("lib", ""))
        tips = {"lib": await lib.tips(), "": await app.tips()}
        folders = {"lib": lib.git.folder, "": app.git.folder}
        triple = lib.landed(run.id, "triple")
        assert landed_in(run.state) == {
            "lib": [("triple", triple)],
            "": [("use", app.landed(run.id, "use"))],
        }
        assert app.landed(run.id, "triple") is lib.landed(run.id, "use") is None
    assert status["landed"] == 2
    assert status["refused"] == {}
    assert began(tmp_path) == ["triple", "use"]
    env = variables(tmp_path / "fleet", ["lib"])
    for name, commits in tips.items():
        assert len(commits) == 2
        assert green(tmp_path, folders[name], commits, env) == [0, 0]
    told = (tmp_path / "told" / "brief-use-1.md").read_text()
    assert f"- {triple} (task triple): Add triple to the library." in told
    assert "lib.py | " in told
    assert 'git --git-dir="$LEADHAND_REPOSITORY_LIB" show' in told
    assert "other repositories" not in (tmp_path / "told" / "brief-triple-1.md").read_text()
    assert run_git(tmp_path / "app", "show", "leadhand/main:lib.pin") == triple
    assert subjects(tmp_path / "lib")[0] == "Add triple to the library."
    trailers = run_git(tmp_path / "lib", "log", "-1", "--format=%(trailers)", "leadhand/main")
    assert f"Leadhand-Run: {run.id}" in trailers
    assert "Assisted-by: scripted:s" in trailers


async def test_a_planner_sees_all_repositories_and_plans_across_them(tmp_path):
    """Their maps share one budget; an unknown repository or a path outside goes back to it."""
    make_pair(tmp_path)
    wrong = [
        wave({**TRIPLE, "repository": "lob", "why": "one"}),
        wave({**TRIPLE, "writes": ["../lib/lib.py"], "why": "one"}),
    ]
    good = wave(*({**each, "why": "it is one"} for each in (TRIPLE, USE)))
    look = {"kind": "look", "because": "x", "read": ["lib:lib.py"], "search": ["def double"]}
    planner = Script(look, *wrong, good, done(changelog="Triple."))
    async with open_pair(tmp_path, planner) as fleet:
        path = tmp_path / "wish.md"
        path.write_text("# Answer by triple\n\nThe library learns it first.\n")
        run = await settled(fleet, path)
        lib = fleet.sites["lib"].shop.hub
        assert run.state.ended.status == "succeeded", run.state.questions
        result = run.state.ended.result
        assert {(c.get("repository", ""), c["task"]) for c in result["commits"]} == {
            ("lib", "triple"),
            ("", "use"),
        }
        (check,) = [s for s in run.state.steps.values() if s.id.startswith("acceptance-")]
        assert check.data["others"] == {"lib": lib.main()}
    first, found, *_rest, last = planner.told
    assert first["repositories"]["lib"]["map"][0]["path"] in ("lib.py", "check.py")
    assert "return 2 * x" in json.dumps(found)
    assert "lib:lib.py:1: def double(x):" in json.dumps(found)
    told = json.dumps([each.get("tried") or each.get("findings") for each in planner.told])
    assert "is none of this fleet's; did you mean 'lib'?" in told
    assert "is outside the repository 'lib'. Fix: write it relative to that one" in told
    assert {each["id"]: each.get("repository") for each in last["tasks"]} == {
        "triple": "lib",
        "use": None,
    }


async def test_what_fails_for_good_after_another_landed_is_no_success(tmp_path):
    """A person is asked, and told what landed where; giving up says it too."""
    make_pair(tmp_path, {"use": "red"})
    again = {**USE, "id": "use-again", "replaces": "use", "why": "another way"}
    planner = Script(
        wave(*({**each, "why": "it is one"} for each in (TRIPLE, USE))),
        wave({**again, "goal": "Answer by triple, in another way."}),
        wave(
            {**again, "id": "use-third", "replaces": "use-again", "goal": "Once more, by triple."}
        ),
        wave({**again, "id": "use-last", "replaces": "use-third", "goal": "The last, by triple."}),
    )
    async with open_pair(tmp_path, planner) as fleet:
        path = tmp_path / "wish.md"
        path.write_text("# Answer by triple\n\nThe library learns it first.\n")
        run = await settled(fleet, path)
        lib = fleet.sites["lib"].shop.hub
        landed = f"Landed: lib: triple as {lib.landed(run.id, 'triple')[:12]}; main: nothing."
        (question,) = run.state.questions.values()
        assert run.state.ended is None
        assert landed in question.text
        before = fleet.shop.hub.main()
        await run.submit_and_wait(
            lambda state, now: commands.answer(state, question.id, "give up", "ann", now)
        )
        async with asyncio.timeout(LIMIT_S):
            await fleet.idle()
        assert run.state.ended.status != "succeeded"
        assert landed in run.state.ended.reason
        assert fleet.shop.hub.main() == before
    assert run_git(tmp_path / "app", "show", "leadhand/main:app.py") == run_git(
        tmp_path / "app", "show", "main:app.py"
    )


async def test_a_fleet_that_is_killed_between_the_two_goes_on_with_the_second(tmp_path):
    """What landed in the library is not done again, and no agent is sent for it."""
    make_pair(tmp_path, {"use": "waits"})
    run = submit(tmp_path / "fleet" / "epics", epic_of(tmp_path, TRIPLE, USE)).run
    child = subprocess.Popen([sys.executable, "-m", "tests.fleet.pair", str(tmp_path)])
    try:
        async with asyncio.timeout(LIMIT_S):
            while "use" not in began(tmp_path):  # so the library has landed
                assert child.poll() is None
                await asyncio.sleep(0.1)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    (tmp_path / "told" / "go").touch()
    async with open_pair(tmp_path) as fleet:
        async with asyncio.timeout(LIMIT_S):
            await fleet.idle()
        assert fleet.status_of(run) == "succeeded"
        assert (await fleet.status())["landed"] == 2
        assert fleet.refused == {}
    assert began(tmp_path).count("triple") == 1
    assert run_git(tmp_path / "app", "show", "leadhand/main:app.py").endswith("lib.triple(2)")


async def test_the_same_path_in_two_repositories_is_no_overlap(tmp_path):
    """Two tasks that write the same names are at work at once; a third waits in its own one."""
    make_pair(tmp_path, {"a": "waits", "b": "waits", "c": "waits"})
    names = {"a": "", "b": "lib", "c": "lib"}
    tasks = [
        {
            "id": each,
            "goal": f"Write the file {each}.",
            "repository": name,
            "writes": ["common", f"{each}.txt"],
        }
        for each, name in names.items()
    ]
    async with open_pair(tmp_path) as fleet:
        ident = fleet.submit(epic_of(tmp_path, *tasks))
        async with asyncio.timeout(LIMIT_S):
            while sorted(began(tmp_path)) != ["a", "b"]:
                await asyncio.sleep(0.05)
            shown = [fleet.sites[name].shop.boundaries.held for name in ("", "lib")]
            steps = fleet._runs[ident].state.steps
            assert steps["b"].doc["writes"] == ["lib:/common", "lib:/b.txt"]
            assert steps["c"].status == "waiting", "the plan puts it after b, which writes the same"
            assert shown == [1, 1]
            (tmp_path / "told" / "go").touch()
            await fleet.idle()
        assert fleet.status_of(ident) == "succeeded"
    assert began(tmp_path)[2:] == ["c"]


async def test_a_red_repository_holds_back_its_own_tasks_and_no_others(tmp_path):
    """Its main is not green by itself; when people repair it, it goes on."""
    make_pair(tmp_path)
    write(tmp_path / "lib", {"check.py": "raise SystemExit(1)\n"})
    commit_all(tmp_path / "lib", "Break it")
    note = {"id": "note", "goal": "Write the note of the day.", "writes": ["note.txt"]}
    async with open_pair(tmp_path) as fleet:
        first = fleet.submit(epic_of(tmp_path, TRIPLE, name="lib"))
        second = fleet.submit(epic_of(tmp_path, note, name="app"))
        async with asyncio.timeout(LIMIT_S):
            while fleet.status_of(second) != "succeeded" or not fleet.sites["lib"].sound.log:
                await asyncio.sleep(0.05)
            assert "main itself does not pass" in fleet.sites["lib"].sound.against
            assert began(tmp_path) == ["note"]
            write(tmp_path / "lib", {"check.py": "import lib\n"})
            commit_all(tmp_path / "lib", "Repair it")
            while fleet.status_of(first) != "succeeded":
                await asyncio.sleep(0.05)
    assert began(tmp_path) == ["note", "triple"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repository": "lob"}, "task 'triple': its repository 'lob' is none of this fleet's; did"),
        ({"writes": ["../app/app.py"]}, "'../app/app.py' is outside the repository 'lib'. Fix:"),
        ({"reads": ["/etc/passwd"]}, "'/etc/passwd' is outside the repository 'lib'. Fix:"),
    ],
)
async def test_an_epic_with_a_wrong_place_is_refused_with_the_fix(tmp_path, wrong, words):
    make_pair(tmp_path)
    async with open_pair(tmp_path) as fleet:
        path = epic_of(tmp_path, {**TRIPLE, **wrong}, USE)
        (fleet.epics / "both.md").write_text(path.read_text())
        async with asyncio.timeout(LIMIT_S):
            while "both.md" not in fleet.refused:
                await asyncio.sleep(0.05)
        assert words in fleet.refused["both.md"]
    assert began(tmp_path) == []


async def test_a_repository_that_the_settings_lost_is_no_success(tmp_path):
    """Its task fails with the name; nothing is done in another repository instead."""
    make_pair(tmp_path, {"triple": "waits"})
    async with open_pair(tmp_path) as fleet:
        run = fleet.submit(epic_of(tmp_path, TRIPLE, USE))
        async with asyncio.timeout(LIMIT_S):
            while began(tmp_path) != ["triple"]:
                await asyncio.sleep(0.05)
    async with open_pair(tmp_path, repositories={}) as fleet:
        async with asyncio.timeout(LIMIT_S):
            await fleet.idle()
        state = fleet._runs[run].state
        assert state.ended is None or state.ended.status != "succeeded"
        assert "its repository 'lib' is none of this fleet's" in json.dumps(
            list(state.steps["triple"].failures), default=str
        )
        assert (await fleet.status())["landed"] == 0


SETTINGS = """
[fleet]
repo = "app"
gate = ["make check"]
protected = ["Makefile"]
env = {{ COLOUR = "blue" }}

[fleet.repositories.lib]
path = "{path}"
gate = ["python check.py"]
append = ["NOTES"]
env = {{ SIZE = "9" }}
{more}

[coders.scripted]
kind = "command"
command = ["true"]
"""


def settings_in(folder, path="lib", more=""):
    for name in ("app", "lib"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "leadhand.toml").write_text(SETTINGS.format(path=path, more=more))
    return config_of(load_settings(environ={"HOME": str(folder)}, folder=folder))


def test_a_repository_of_the_settings_says_what_differs(tmp_path):
    config = settings_in(tmp_path)
    (name, lib), *none = config.repositories.items()
    assert (name, none) == ("lib", [])
    assert lib.repo == tmp_path / "lib"
    assert lib.gate.commands == (("python", "check.py"),)
    assert lib.protected == ("Makefile",)
    assert (lib.sharing.append, config.sharing.append) == (("NOTES",), APPEND)
    hub = tmp_path / ".leadhand" / "fleet" / "repositories" / "lib" / "hub" / "hub.git"
    for gate in (config.gate, lib.gate):
        assert gate.env["LEADHAND_REPOSITORY_LIB"] == str(hub)
        assert gate.env["COLOUR"] == "blue"
    assert (lib.gate.env.get("SIZE"), config.gate.env.get("SIZE")) == ("9", None)


@pytest.mark.parametrize(
    ("path", "more", "words"),
    [
        ("gone", "", "[fleet.repositories.lib]: there is no folder"),
        ("app", "", "is the same as [fleet] repo. Fix: remove one"),
        ("lib", "[fleet.repositories.main]\npath = 'lib'", "'main' is the repository of [fleet]"),
        ("lib", "[fleet.repositories.UP]\npath = 'lib'", "a name has small letters"),
        ("lib", "gaet = []", "did you mean gate?"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(tmp_path, path, more, words):
    with pytest.raises(UsageError) as refused:
        settings_in(tmp_path, path, more)
    assert words in str(refused.value)
