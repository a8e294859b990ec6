"""What comes in by the command line: numbers that fit, stores that are named, stray exits."""

import json
import os
import signal

import pytest

from leadhand.cli import group
from tests.support.cli import WORKERS

pytestmark = pytest.mark.real

NEEDY = """

from leadhand import NeedsInfo


@worker(name="painter")
async def painter(context: Context) -> str:
    if not context.answers:
        raise NeedsInfo("which colour?")
    return str(context.answers[-1]["data"])
"""

HUGE = "1" + "0" * 400


FILES = {"workers.py": WORKERS + NEEDY}


# --- JSON ------------------------------------------------------------------------------------

BAD_JSON = [
    ('{"a": 1e400}', "--data:1:7: 1e400 is too large a number"),
    ("-1e400", "too large a number"),
    (HUGE, "too large a number"),
    ("9223372036854775808", "too large a number"),
    ("NaN", "NaN is not a number that JSON has"),
    ('{"a": -Infinity}', "-Infinity is not a number that JSON has"),
    ('{"a": 1, "a": 2}', 'the key "a" stands twice'),
    ('"\\ud800"', "half a character"),
    ("[" * 100_000, "nested more than"),
    ("{", "ends in the middle"),
    ("blue", "is not JSON"),
]


def test_answers_that_json_cannot_hold_are_refused(folder):
    folder.plan({"id": "a", "worker": "painter"})
    assert folder.run("run", "plan.json").code == 5
    for text, why in BAD_JSON:
        done = folder.run("answer", "q1", "retry", "--data", text)
        assert (done.code, why in done.err) == (2, True), (text[:40], done)
    assert folder.run("answer", "q1", "retry", "--data", '{"a": 9223372036854775807}').code == 0
    done = folder.run("resume", folder.latest()["run"])
    assert done.out.strip() == "{'a': 9223372036854775807}"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("n=1e400", "too large a number"),
        (f"n={HUGE}", "too large a number"),
        ("f=NaN", "not a number that JSON has"),
        ("f=-Infinity", "not a number that JSON has"),
        ('o={"a": 1, "a": 2}', "stands twice"),
        (f'o={{"a": {HUGE}}}', "too large a number"),
    ],
)
@pytest.mark.parametrize("command", ["run", "lint"])
def test_parameters_that_do_not_fit_are_refused(folder, given, why, command):
    params = {"n": {"type": "integer", "default": 1}, "o": {"type": "object", "default": {}}}
    params["f"] = {"type": "number", "default": 1}
    folder.plan({"id": "a", "worker": "say"}, params=params)
    done = folder.run(command, "plan.json", "--set", given)
    assert (done.code, why in done.err) == (2, True), done
    assert folder.run("ls", "--json").doc == []


def test_a_text_may_look_like_any_number(folder):
    step = {"id": "a", "worker": "say", "parameters": {"text": "${{ params.version }}"}}
    folder.plan(step, params={"version": {"type": "string"}})
    assert folder.run("run", "plan.json", "--set", "version=1e400").out.strip() == "1e400"


def test_what_is_given_for_a_goal_must_fit(folder):
    folder.write("planning.py", "def plan(view): ...\n")
    for text in ("1e400", "NaN", HUGE, '{"a": 1, "a": 2}'):
        done = folder.run("run", "a goal", "--planner", "planning:plan", "--have", f"x={text}")
        assert done.code == 2, done
        assert "--have x:1" in done.err


# --- stores ----------------------------------------------------------------------------------


def hint(done):
    return next(line for line in done.err.splitlines() if "ontinue with: " in line)


def test_hints_name_the_store_only_where_the_settings_do_not(folder):
    folder.plan({"id": "a", "worker": "danger"})
    assert hint(folder.run("run", "plan.json", "--store", "x.db")).endswith(" --store x.db")
    assert "--store" not in hint(folder.run("run", "plan.json"))
    assert "--store" not in hint(folder.run("run", "plan.json", "--store", ".leadhand/leadhand.db"))
    text = "[project]\nworkers = ['workers.py']\nstore = 'data/runs.db'\n"
    folder.write("leadhand.toml", text)
    assert "--store" not in hint(folder.run("run", "plan.json"))
    full = str(folder.path / "data" / "runs.db")
    for same in ("data/runs.db", full):
        assert "--store" not in hint(folder.run("run", "plan.json", "--store", same))
    assert hint(folder.run("run", "plan.json", "--store", "x.db")).endswith(" --store x.db")
    # A variable may be gone with the command that it was set for.
    assert hint(folder.run("run", "plan.json", LEADHAND_STORE="y.db")).endswith(" --store y.db")
    assert "--store" not in hint(folder.run("run", "plan.json", LEADHAND_STORE="data/runs.db"))


# --- stray exits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stray", "code"),
    [
        (SystemExit(3), 70),
        (SystemExit("gone"), 70),
        (GeneratorExit(), 70),
        (BaseException("odd"), 70),
        (KeyboardInterrupt(), 130),
    ],
)
def test_nothing_ends_a_command_but_its_own_exit(stray, code, monkeypatch, capsys, tmp_path):
    def ls(*_args, **_more):
        raise stray

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEADHAND_DEBUG", raising=False)
    found = group.group.get_command(None, "ls")
    monkeypatch.setattr(found, "callback", ls)
    assert group.execute(["ls"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_planner_that_exits_is_not_an_exit_of_ours(folder):
    """A dry run asks it in this very process."""
    folder.write("planning.py", "import sys\ndef plan(view):\n    sys.exit(0)\n")
    done = folder.run("run", "a goal", "--planner", "planning:plan", "--dry-run", "--json")
    assert done.code not in (0, 130), done
    assert "Traceback" not in done.err
    assert json.loads(done.out)["error"]["exit"] == done.code


def test_ctrl_c_while_it_loads_is_quiet(folder):
    folder.write("workers.py", "import time\nopen('loading', 'w').close()\ntime.sleep(600)\n")
    folder.plan({"id": "a", "worker": "say"})
    with folder.start("run", "plan.json") as child:
        folder.until((folder.path / "loading").exists, "the module")
        os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "Traceback" not in err
