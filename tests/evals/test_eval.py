"""`leadhand eval` from the command line: trials, checks, results, interruptions."""

import csv
import json
import os
import signal
import time

import pytest

from tests.support.cli import Folder

pytestmark = pytest.mark.real

WORKERS = '''
import os, random
from pathlib import Path
from leadhand import Transient, worker

chance = random.Random(int(os.environ.get("LEADHAND_EVAL_SEED", "0")))

@worker(name="fetch", gives=["raw"])
async def fetch() -> str:
    """Fetch."""
    with Path("fetched").open("a") as file:
        file.write("x")
    if os.environ["LEADHAND_EVAL_TRIAL"] == "2" and not Path("again").exists():
        Path("again").touch()
        raise Transient("busy")
    return "raw"

@worker(name="write", needs=["raw"], gives=["report"])
async def write(raw: str) -> str:
    """Write."""
    Path("report.txt").write_text(f"the {raw}")
    return "done"

@worker(name="boast", gives=["fame"])
async def boast() -> str:
    """Say that it is done."""
    return "done"

@worker(name="hidden", gives=["late"])
async def hidden() -> str:
    """Do it, and fail."""
    Path("late.txt").touch()
    raise ValueError("no")
'''
CHECK = """
import json, sys
from pathlib import Path
told = json.load(sys.stdin)
files = {"report": "report.txt", "fame": "fame.txt", "late": "late.txt"}
print("looked at", told["goal"], told["status"])
assert Path("fetched").read_text() in ("x", "xx") if told["goal"] == "report" else True
sys.exit(0 if Path(files[told["goal"]]).exists() else 1)
"""
SUITE = """
[suite]
name = "three"
repeat = 2
timeout_s = 120
{more}
[[goal]]
name = "report"
want = ["report"]
check = ["python", "check.py"]
[[goal]]
name = "fame"
want = ["fame"]
check = ["python", "check.py"]
[[goal]]
name = "late"
want = ["late"]
check = ["python", "check.py"]
[factors.mode]
steps = {{ planner = "goal", mode = "next_step" }}
whole = {{ planner = "goal", mode = "whole" }}
[factors.policy]
plain = {{ settings = {{ "policy.no_input" = true }} }}
careful = {{ settings = {{ "policy.review" = true, "policy.no_input" = false }} }}
"""


@pytest.fixture
def folder(tmp_path):
    made = Folder(tmp_path)
    made.write("workers.py", WORKERS)
    made.write("leadhand.toml", '[project]\nworkers = ["workers.py"]\n')
    made.write("check.py", CHECK)
    made.write("suite.toml", SUITE.format(more=""))
    return made


def test_success_false_success_and_false_rejection_are_told_apart(folder):
    done = folder.run("eval", "suite.toml", "--trust", "--json", timeout_s=600)
    assert done.code == 0, done
    arms = {arm["arm"]: arm for arm in done.doc["arms"]}
    assert list(arms) == ["steps/plain", "steps/careful", "whole/plain", "whole/careful"]
    for arm in arms.values():
        third = pytest.approx(1 / 3)
        shares = (arm["success"], arm["false_success"], arm["false_rejection"])
        assert [each["value"] for each in shares] == [third] * 3, arm
        assert (arm["trials"], arm["errors"]) == (6, 0)
    assert arms["steps/plain"]["questions"]["value"] == 0
    assert arms["whole/careful"]["questions"]["value"] >= 1
    assert done.doc["by_goal"]["report"] == dict.fromkeys(arms, 1.0)
    assert done.doc["variance"][0]["shares"]["goal"]["share"] == pytest.approx(1.0)
    levels = {(each["factor"], each["level"]): each for each in done.doc["levels"]}
    assert [*levels] == [("mode", name) for name in ("steps", "whole")] + [
        ("policy", name) for name in ("plain", "careful")
    ]
    assert all(each["trials"] == 12 for each in levels.values())
    assert levels["policy", "plain"]["questions"]["value"] == 0
    assert arms["steps/plain"]["first_pass"]["value"] < 1, "the second trial fails once"
    results = folder.path / "eval-results"
    rows = list(csv.DictReader((results / "trials.csv").read_text().splitlines()))
    assert len(rows) == 24
    again = [row for row in rows if row["goal"] == "report" and row["trial"] == "2"]
    assert {row["attempts"] for row in again} == {"3"}, "the second trial fails once, in each arm"
    page = (results / "page.html").read_text()
    assert "three" in page
    assert "33 % (" in page
    assert "<script" not in page
    assert not (folder.path / "report.txt").exists(), "a trial works in a copy"
    shown = folder.run("eval", ".", "--trust")
    assert shown.code == 0
    assert "ARM" in shown.out
    assert "24/24" not in shown.err, "nothing is repeated"


def test_untrusted_checks_are_not_executed(folder):
    done = folder.run("eval", "suite.toml", LEADHAND_TRUST="")
    assert done.code == 4, done
    assert "check of report" in done.err
    assert not (folder.path / "eval-results").exists()


def test_results_of_another_suite_are_not_continued(folder):
    only = ("--goal", "fame", "--arm", "whole/plain", "--repeat", "1")
    assert folder.run("eval", "suite.toml", "--trust", *only).code == 0
    folder.write("suite.toml", SUITE.format(more="seed = 2"))
    done = folder.run("eval", "suite.toml", "--trust", *only)
    assert (done.code, "of another suite" in done.err) == (7, True), done


def test_a_check_that_fails_is_an_error_and_is_tried_again(folder):
    folder.write("check.py", "import sys; sys.exit(3)")
    only = ("--goal", "fame", "--arm", "whole/plain", "--repeat", "1")
    done = folder.run("eval", "suite.toml", "--trust", *only)
    assert done.code == 1
    assert "the check ended with exit code 3" in done.err
    folder.write("check.py", CHECK)
    assert folder.run("eval", "suite.toml", "--trust", *only).code == 0


def test_a_worker_that_hangs_ends_with_its_trial(folder):
    more = '\n@worker(name="hang", gives=["never"])\nasync def hang() -> str:\n    """Hang."""\n'
    more += "    import time\n    time.sleep(1000)\n    return 'x'\n"
    folder.write("workers.py", WORKERS + more)
    suite = SUITE.format(more="").replace('want = ["late"]', 'want = ["never"]')
    folder.write("suite.toml", suite.replace("timeout_s = 120", "timeout_s = 6"))
    only = ("--goal", "late", "--arm", "whole/plain", "--repeat", "1")
    done = folder.run("eval", "suite.toml", "--trust", *only)
    assert done.code == 1
    assert "took longer than 6 s" in done.err


def test_a_check_that_raises_or_cannot_start_is_no_verdict(folder):
    """An uncaught exception of Python ends with 1 as well, which would say: not reached."""
    folder.write("check.py", "raise ValueError('no such report')")
    only = ("--goal", "report", "--arm", "whole/plain", "--repeat", "1")
    done = folder.run("eval", "suite.toml", "--trust", *only)
    assert done.code == 1
    assert "the check raised an exception: ValueError: no such report" in done.err
    text = SUITE.format(more="").replace('["python", "check.py"]', '["no-such-program"]')
    folder.write("suite.toml", text)
    done = folder.run("eval", "suite.toml", "--trust", "--output", "other", *only)
    assert done.code == 1
    assert "could not be started: no-such-program: No such file" in done.err


def test_arms_that_are_no_crossing_share_the_variance_as_arms(folder):
    """Two of four arms that differ in both factors: neither can be told from the other."""
    arms = ("--arm", "steps/plain", "--arm", "whole/careful", "--repeat", "1", "--goal", "fame")
    done = folder.run("eval", "suite.toml", "--trust", *arms, "--json")
    assert done.code == 0, done
    (found,) = [each for each in done.doc["variance"] if each["figure"] == "success"]
    assert found["shares"] == {}, "the same in every trial"
    assert {name for each in done.doc["variance"] for name in each["shares"]} <= {"arm"}


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ('{ plan = "no.json" }', "no.json: there is no such plan"),
        ('{ tape = "t/{goal}-{trial}.gz" }', "report-1.gz: there is no such tape, and 5 more"),
        ('{ settings = { "policy.revuew" = true } }', '[policy] has no key "revuew"'),
        ('{ settings = { "policy.review" = 3 } }', "settings of odd: review must be true or false"),
    ],
)
def test_what_would_fail_in_every_trial_is_said_before_the_first(folder, level, told):
    suite = SUITE.format(more="").partition("[factors")[0] + f"[factors.what]\nodd = {level}\n"
    folder.write("suite.toml", suite)
    done = folder.run("eval", "suite.toml", "--trust")
    assert done.code == 2, done
    assert told in done.err
    assert not (folder.path / "eval-results").exists()


def test_levels_set_variables_of_the_trial(folder):
    more = '\n@worker(name="say", gives=["word"])\nasync def say() -> str:\n    """Say."""\n'
    more += '    return os.environ["WORD"]\n'
    folder.write("workers.py", WORKERS + more)
    told = "import json, sys; sys.exit(json.load(sys.stdin)['result'] != 'good')"
    folder.write("check.py", told)
    suite = SUITE.format(more="").partition("[[goal]]")[0]
    suite += '[[goal]]\nname = "g"\nwant = ["word"]\ncheck = ["python", "check.py"]\n'
    suite += '[factors.word]\ngood = { env = { WORD = "good" } }\nbad = { env = { WORD = "x" } }\n'
    folder.write("suite.toml", suite)
    untrusted = folder.run("eval", "suite.toml", LEADHAND_TRUST="")
    assert (untrusted.code, "environment of good" in untrusted.err) == (4, True)
    done = folder.run("eval", "suite.toml", "--trust", "--json", "--repeat", "1")
    assert [arm["success"]["value"] for arm in done.doc["arms"]] == [1.0, 0.0]
    assert done.doc["variance"][0]["shares"]["word"]["share"] == pytest.approx(1.0)


def test_interrupted_and_continued(folder):
    """Ctrl-C keeps what is done, says so, and leaves no process behind."""
    file = folder.path / "eval-results" / "trials.jsonl"
    words = ("eval", "suite.toml", "--trust", "--goal", "fame")
    with folder.start(*words, "--jobs", "1") as child:
        deadline = time.monotonic() + 300
        while not file.exists() or file.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGINT)
        _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "What is done is kept in" in told
    assert "Traceback" not in told
    kept = file.read_bytes().splitlines()
    assert folder.run(*words, timeout_s=600).code == 0
    assert file.read_bytes().splitlines()[: len(kept)] == kept


def test_killed_and_continued(folder):
    """Every finished trial is kept; the campaign goes on with the missing ones."""
    file = folder.path / "eval-results" / "trials.jsonl"
    words = ("eval", "suite.toml", "--trust", "--goal", "fame")
    with folder.start(*words, "--jobs", "1") as child:
        deadline = time.monotonic() + 300
        while not file.exists() or file.read_bytes().count(b"\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    kept = file.read_bytes().splitlines()[:3]
    file.write_bytes(file.read_bytes() + b'{"goal":"cut')
    done = folder.run(*words, "--json", timeout_s=600)
    assert done.code == 0, done
    lines = file.read_bytes().splitlines()
    assert lines[:3] == kept
    assert len(lines) == 9
    keys = [(d["goal"], d["arm"], d["trial"]) for d in map(json.loads, lines[1:])]
    assert len(set(keys)) == 8
