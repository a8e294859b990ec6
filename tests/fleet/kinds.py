"""First contact with five kinds of repositories: from unpacked sources to an epic on main.

    python -m tests.fleet.kinds SOURCES [--only KIND] [--json]

`SOURCES` holds a folder for each kind (`KINDS`), with the unpacked source of a published project
and what its team would commit for its mirror of packages. Each is put under git. Then the commands
of the documents are typed as a newcomer would: `fleet init`, `fleet check` (each fix that it names
is copied into the settings, and it is run again), `fleet submit`, `fleet start`. The agent is a
script, as in the tutorial; it runs the tests of the project in its clone first, as agents do.

Exits with 1 when an epic of a kind that can be tried here is not on main. A kind whose programs or
sources are missing is named with what is missing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fleet.places import run_git

ROUNDS_MAX = 4
COMMAND_S_MAX = 1_800
AGENT = """
import json, pathlib, subprocess, sys

change = json.loads(pathlib.Path(sys.argv[1]).read_text())
done = subprocess.run(change["first"], check=False)
if done.returncode:
    raise SystemExit(f"the tests cannot be run here: {change['first']}")
for name, text in change["files"].items():
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
print("The test is written, and the others passed before.")
"""
EPIC = """# Double a number

The project gets a test of its own for doubling.

```yaml
tasks:
  - id: double
    goal: Add a test that doubling works.
    writes: {writes}
```
"""
CODER = """
[coders.script]
kind = "command"
command = ["python3", "{root}/agent.py", "{root}/change.json"]
readable = ["agent.py", "change.json"]
"""


@dataclass(frozen=True)
class Kind:
    """A kind of repository: its programs, and a change that fits every project of the kind."""

    programs: tuple[str, ...]
    first: tuple[str, ...]
    """What the agent runs before it writes: the tests of the project, without a network."""
    files: dict[str, str]
    ignored: str


KINDS = {
    "python": Kind(
        ("python3",),
        (".venv/bin/python", "-m", "pytest", "-q"),
        {"tests/test_double.py": "def test_double():\n    assert 2 * 21 == 42\n"},
        ".venv/\n__pycache__/\n*.egg-info/\n.pytest_cache/\n.coverage*\n",
    ),
    "node": Kind(
        ("npm",),
        ("npm", "test"),
        {
            "test/double.js": "/* globals test */\n\nconst assert = require('assert')\n\n"
            "test('double', function () {\n  assert.strictEqual(2 * 21, 42)\n})\n"
        },
        "node_modules/\npackage-lock.json\n",
    ),
    "rust": Kind(
        ("cargo",),
        ("cargo", "test", "--offline"),
        {"tests/double.rs": "#[test]\nfn double() {\n    assert_eq!(2 * 21, 42);\n}\n"},
        "target/\nCargo.lock\n",
    ),
    "go": Kind(
        ("go",),
        ("go", "test", "./..."),
        {
            "double/double_test.go": 'package double\n\nimport "testing"\n\n'
            "func TestDouble(t *testing.T) {\n\tif 2*21 != 42 {\n\t\tt.Fatal(2 * 21)\n\t}\n}\n"
        },
        "",
    ),
    "java": Kind(
        ("mvn", "java"),
        ("mvn", "-B", "-o", "-q", "test"),
        {
            "src/test/java/org/joda/convert/TestDouble.java": "package org.joda.convert;\n\n"
            "import static org.junit.Assert.assertEquals;\n\nimport org.junit.Test;\n\n"
            "public class TestDouble {\n    @Test\n    public void test_double() {\n"
            "        assertEquals(42, 2 * 21);\n    }\n}\n"
        },
        "target/\n",
    ),
}


@dataclass
class Trial:
    """What became of one kind; times in seconds."""

    kind: str
    project: str = ""
    init_s: float = 0.0
    check_s: float = 0.0
    checks: int = 0
    edits: tuple[str, ...] = ()
    """Settings that a person had to write, besides the coder; each was named by `fleet check`."""
    epic_s: float = 0.0
    tests: str = ""
    landed: bool = False
    problem: str = ""

    @property
    def minutes(self) -> float:
        return (self.init_s + self.check_s + self.epic_s) / 60


def leadhand(folder, *words):
    """Run a command as a person would; return exit code, its two texts and seconds."""
    began = time.monotonic()
    env = {**os.environ, "LEADHAND_TRUST": "", "XDG_STATE_HOME": str(folder.parent / "state")}
    argv = [sys.executable, "-P", "-m", "leadhand.cli", *words]
    done = subprocess.run(
        argv,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def put_under_git(source, repo, ignored):
    """Copy unpacked sources, with the list of ignored files that archives leave out."""
    shutil.copytree(source, repo, symlinks=True)
    if ignored and not (repo / ".gitignore").exists():
        (repo / ".gitignore").write_text(ignored)
    run_git(repo, "init", "-q", "-b", "main")
    run_git(repo, "add", "-A")
    run_git(repo, "commit", "-qm", "Import the published source")


def apply_fix(settings, fix):
    """Copy a setting that a fix names into the file; return its name, empty if there is none."""
    found = re.search(r"\[fleet\] (\w+) = (\[[^\]]*\])", fix)
    if not found:
        return ""
    name, line = found[1], f"{found[1]} = {found[2]}"
    text = settings.read_text()
    if re.search(rf"^#? ?{name} = ", text, re.MULTILINE):
        text = re.sub(rf"^#? ?{name} = .*$", line.replace("\\", r"\\"), text, flags=re.MULTILINE)
    else:
        text = text.replace("[fleet]\n", f"[fleet]\n{line}\n", 1)
    tomllib.loads(text)
    settings.write_text(text)
    return name


def use_script(settings, folder, kind):
    """Put the scripted agent in the place of the coders that `fleet init` wrote."""
    text = settings.read_text()
    text = re.sub(r"^\[coders\.\w+\]\n(?:\w+ = .*\n?)*", "", text, flags=re.MULTILINE)
    settings.write_text(text + CODER)
    (folder / "agent.py").write_text(AGENT)
    change = {"first": kind.first, "files": kind.files}
    (folder / "change.json").write_text(json.dumps(change))


def check_until_ready(trial, folder, settings):
    """Run `fleet check` and copy its fixes until it has none; return whether it is ready."""
    edits = []
    for _ in range(ROUNDS_MAX):
        code, out, err, seconds = leadhand(folder, "fleet", "check", "--json")
        trial.check_s += seconds
        trial.checks += 1
        if code not in (0, 1):
            trial.problem = f"fleet check: {err.strip()[-300:]}"
            return False
        found = json.loads(out)
        if found["ok"]:
            trial.edits, trial.tests = tuple(edits), found["tests"]
            return True
        problem = found["problems"][0]
        name = apply_fix(settings, problem["fix"])
        if not name:
            trial.problem = f"{problem['problem'][-300:]} Fix: {problem['fix']}"
            return False
        edits.append(name)
        trust(folder)
    trial.problem = f"not ready after {ROUNDS_MAX} rounds of fleet check"
    return False


def trust(folder):
    code, _, err, _ = leadhand(folder, "trust")
    assert code == 0, err


def landed(repo):
    """Whether the epic's commit, with its trailer, is on the branch that the fleet publishes."""
    said = run_git(repo, "log", "-1", "--format=%B", "leadhand/main")
    return "Leadhand-Task: double" in said


def try_kind(name, sources, place):
    """Return what became of one kind of repository."""
    kind, trial = KINDS[name], Trial(name)
    source = sources / name
    missing = [each for each in kind.programs if shutil.which(each) is None]
    if not source.is_dir() or missing:
        what = f"{', '.join(missing)} not installed" if missing else f"no folder {name}"
        trial.problem = f"not tried: {what}"
        return trial
    note = source / ".project"
    trial.project = note.read_text().strip() if note.exists() else source.resolve().name
    repo, folder = place / name / "repository", place / name / "fleet"
    folder.mkdir(parents=True)
    put_under_git(source, repo, kind.ignored)
    code, _, err, trial.init_s = leadhand(folder, "fleet", "init", "--repo", "../repository")
    settings = folder / "leadhand.toml"
    if code:
        trial.problem = f"fleet init: {err.strip()[-300:]}"
        return trial
    use_script(settings, folder, kind)
    trust(folder)
    if not check_until_ready(trial, folder, settings):
        return trial
    (folder / "double.md").write_text(EPIC.format(writes=json.dumps(sorted(kind.files))))
    code, _, err, took = leadhand(folder, "fleet", "submit", "double.md")
    trial.epic_s += took
    if not code:
        code, _, err, took = leadhand(folder, "fleet", "start", "--until-idle", "--no-serve")
        trial.epic_s += took
    trial.landed = not code and landed(repo)
    if not trial.landed:
        trial.problem = f"the epic: {err.strip()[-400:]}"
    return trial


def lines(trials):
    """Yield the table of the documents."""
    yield (
        "| kind | project | `fleet init` | `fleet check` (runs) | settings to add "
        "| epic to main | tests | minutes |"
    )
    yield "|---|---|---:|---:|---|---:|---|---:|"
    for each in trials:
        if each.landed:
            edits = ", ".join(f"`{name}`" for name in dict.fromkeys(each.edits)) or "none"
            yield (
                f"| {each.kind} | {each.project} | {each.init_s:.1f} s "
                f"| {each.check_s:.0f} s ({each.checks}) | {edits} | {each.epic_s:.0f} s "
                f"| {each.tests} | {each.minutes:.1f} |"
            )
        else:
            yield f"| {each.kind} | {each.project} | NOT ON MAIN: {each.problem} |"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="leadhand-kinds-") as place:
        trials = []
        for name in [chosen.only] if chosen.only else KINDS:
            trials.append(try_kind(name, chosen.sources, Path(place)))
            if not chosen.json:
                print(f"{name}: {trials[-1].problem or 'on main'}", file=sys.stderr, flush=True)
    load = " ".join(f"{each:.0f}" for each in os.getloadavg())
    if chosen.json:
        print(json.dumps({"load": load, "trials": [asdict(each) for each in trials]}, indent=2))
    else:
        print("\n".join([*lines(trials), "", f"load of the machine at the end: {load}"]))
    bad = [each for each in trials if not each.landed and not each.problem.startswith("not tried")]
    return 1 if bad or not any(each.landed for each in trials) else 0


if __name__ == "__main__":
    raise SystemExit(main())
