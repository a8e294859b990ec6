"""`leadhand demo` and `leadhand doctor`: what a newcomer tries first."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.support.cli import Folder


@pytest.mark.real
@pytest.mark.slow
def test_the_demo_recovers_from_everything(tmp_path):
    """A goal, a plan, four kinds of trouble, a summary; and all commands are exact."""
    folder = Folder(tmp_path)
    done = folder.run("demo", "--folder", "show", "--json", timeout_s=120)
    assert done.code == 0, done
    told, place = done.doc, Folder(tmp_path / "show")
    for line in (
        "fetch_stations failed (rate_limited) → retrying with ",
        "fetch_rides failed (unavailable) → switching to fetch_archive",
        "measure failed (too_complex) → asking the planner to split it",
        "Question q1 answered by default: done",
        "For the town council: where a week of bicycles ran out.",
        "Timeline:",
        "all hashes and rules verified",
        f"The log is {place.path / '.leadhand' / 'leadhand.db'}",
    ):
        assert line in done.err
    shown = place.run("show", told["run"], "--json").doc
    assert shown["status"] == "succeeded"
    won = {(row["class"], row["strategy"]): row["won"] for row in shown["recovery"]["rates"]}
    assert won == {
        ("rate_limited", "retry"): 1,
        ("too_complex", "simplify"): 1,
        ("unavailable", "reroute"): 1,
    }
    verbs = [shlex.split(line)[-1 - 1 :] for line in told["commands"]]
    assert told["commands"][0] == f"cd {shlex.quote(str(place.path))}"
    assert verbs[-1] == ["verify", told["run"]]
    for verb in ("show", "verify"):
        assert place.run(verb, told["run"]).code == 0
    assert place.run("metrics", "--json").doc["answered_by_default"] == 1
    assert folder.run("demo", "--folder", "show").code == 2


@pytest.mark.real
@pytest.mark.slow
def test_the_demo_kills_and_finishes(tmp_path):
    """Without a terminal too: killed in step-2, probed, adopted, verified, repeatable."""
    folder = Folder(tmp_path)
    done = folder.run("demo", "--crash", "--folder", "show", "--json", timeout_s=120)
    assert done.code == 0, done
    told = done.doc
    assert "kill -9" in done.err
    assert "step-2: checking whether attempt 1 took effect" in done.err
    assert "step-2: probe result: done" in done.err
    assert "was adopted as done" in done.err
    assert "all hashes and rules verified" in done.err
    place = Folder(tmp_path / "show")
    assert (place.path / "backups-made.txt").read_text() == "attempt 1\n"
    assert place.latest()["status"] == "succeeded"
    # The commands it printed are exact: the reading ones give the same again.
    assert told["commands"][0] == f"cd {shlex.quote(str(place.path))}"
    verbs = [
        re.search(r"(show|lint|run|logs|resume|verify) .*", line) for line in told["commands"][2:]
    ]
    assert [verb[1] for verb in verbs] == ["show", "lint", "run", "logs", "resume", "verify"]
    for verb in verbs:
        if verb[1] != "run":
            again = place.run(*shlex.split(verb[0]), LEADHAND_TRUST=str(place.path))
            assert again.code == 0, again
    assert told["commands"][1] == 'export LEADHAND_TRUST="$PWD"'
    assert folder.run("trust", "--list", "--json").doc == [], "it leaves no trust behind"
    assert folder.run("demo", "--folder", "show").code == 2


def test_doctor_lists_the_optional_parts_and_how_to_get_them(tmp_path):
    """Every extra is either installed, or named with the command that installs it."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    checks = Folder(tmp_path).run("doctor", "--json").doc["checks"]
    values = [each["value"] for each in checks]
    (there,) = [each for each in values if each.startswith("installed: ")]
    for extra in project["optional-dependencies"]:
        (said,) = [each for each in values if each.startswith(f"not installed: {extra},")] or [
            there
        ]
        assert said == there or f"-m pip install 'leadhand[{extra}]'" in said
        assert said != there or extra in there.removeprefix("installed: ").split(", ")
    (disk,) = [each["value"] for each in checks if each["what"] == "disk"]
    assert re.fullmatch(r"[\d.]+ (MB|GB|TB) free", disk)


def test_doctor_says_where_settings_come_from(tmp_path):
    folder = Folder(tmp_path)
    folder.run("init")
    folder.write("leadhand.toml", "[project]\nworkers = ['workers.py']\n[policy]\nattempts = 5\n")
    done = folder.run("doctor", "--json", LEADHAND_POLICY__TIMEOUT="2 minutes")
    assert done.code == 0, done
    settings = done.doc["settings"]
    attempts, timeout = settings["policy.attempts"], settings["policy.timeout"]
    assert (attempts["value"], attempts["from"]) == (5, str(tmp_path / "leadhand.toml"))
    assert (timeout["value"], timeout["from"]) == (120, "LEADHAND_POLICY__TIMEOUT")
    assert attempts["meaning"] == "The number of attempts of one step by one worker."
    assert settings["policy.jitter"]["from"] == "default"
    checks = {check["what"]: check for check in done.doc["checks"]}
    assert {"python", "sqlite", "store", "disk", "workers", "notify"} <= checks.keys()
    assert checks["workers"]["value"].startswith("4: extract, validate, load, report")
    assert "attempts = 5" in folder.run("doctor").out


def test_doctor_names_what_is_wrong(tmp_path):
    folder = Folder(tmp_path)
    folder.write(
        "leadhand.toml",
        "[project]\nworkers = ['missing.py']\n[notify]\ncommand = ['no-such-program']\n",
    )
    done = folder.run("doctor", "--json")
    assert done.code == 1, done
    problems = {c["what"]: c["problem"] for c in done.doc["checks"] if c["status"] == "problem"}
    assert "missing.py" in problems["workers"]
    assert problems["notify"] == "program not found"
    folder.write("leadhand.toml", "[polcy]\n")
    done = folder.run("doctor")
    assert done.code == 1
    assert done.out.rstrip().splitlines()[-2].startswith("fail  settings"), done
    assert 'Did you mean "policy"?' in done.out
    folder.write("leadhand.toml", "")
    assert "\nwarn  notify         no notifications configured\n" in folder.run("doctor").out
