"""The pre-commit hook: what its entry says, run on files as pre-commit would."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.support.cli import Folder

ROOT = Path(__file__).resolve().parents[2]
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
GOOD = "steps: [{id: a, worker: w}]\n"
BAD = "steps: [{id: a, worker: w, depends_on: [b]}]\n"


def test_the_hook_names_what_pre_commit_needs():
    assert {"id", "name", "entry", "language", "files"} <= set(HOOK)
    assert HOOK["language"] == "python"


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("plan.yaml", True),
        ("deploy/plan.json", True),
        ("release-plan.yml", True),
        ("plans/nightly.yaml", True),
        ("leadhand.toml", False),
        ("airplane.json", False),
        ("docs/plan.md", False),
        ("docs/reference/plan.schema.json", False),
    ],
)
def test_the_hook_takes_plans_only(name, taken):
    assert bool(re.search(HOOK["files"], name)) is taken


def test_the_hook_passes_good_plans_and_stops_at_a_bad_one(tmp_path):
    folder = Folder(tmp_path)
    for name, text in (("plan.yaml", GOOD), ("other-plan.yaml", GOOD), ("bad-plan.yaml", BAD)):
        folder.write(name, text)
    program, *words = shlex.split(HOOK["entry"])
    assert program == "leadhand"
    done = folder.run(*words, "plan.yaml", "other-plan.yaml")
    assert done.code == 0, done
    assert "plan.yaml: valid, 1 step" in done.err
    assert "other-plan.yaml: valid, 1 step" in done.err
    done = folder.run(*words, "plan.yaml", "bad-plan.yaml")
    assert done.code == 3, done
    assert "bad-plan.yaml:1: error[LH102 dependency-missing]" in done.out
    assert "bad-plan.yaml: 1 error" in done.err


def test_several_plans_are_one_document(tmp_path):
    folder = Folder(tmp_path)
    folder.write("plan.yaml", GOOD)
    folder.write("bad-plan.yaml", BAD)
    done = folder.run("lint", "plan.yaml", "bad-plan.yaml", "--json")
    assert done.code == 3
    assert done.doc["valid"] is False
    assert [each["valid"] for each in done.doc["plans"]] == [True, False]
    assert folder.run("lint", "plan.yaml", "--json").doc["plan"] == "plan.yaml"
