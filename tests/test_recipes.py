"""The recipes of docs/contributing, applied to a copy of the project as a reader would follow them.

The convention: a line such as "`PATH`, before `LINE`:" stands above a fenced block. `before` and
`after` insert the block at the line of that file which begins with LINE (there is one), `instead
of` replaces that line, and `new file` makes the file. `$ make test ARGS="…"`, `$ make sim SEEDS=N`
and `$ .venv/bin/python -m MODULE` are run in the copy, in the order in which they stand.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPES = sorted((ROOT / "docs" / "contributing").glob("add-*.md"))
EDIT = re.compile(
    r"^`(?P<path>[\w./-]+)`, (?:(?P<how>before|after|instead of) `(?P<line>[^\n]+)`|new file):\n"
    r"(?P<fence>```+)\w+\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKIPPED = ("__pycache__", "_npm", ".*")
pytestmark = pytest.mark.slow


def copy_project(place: Path) -> Path:
    """Copy what tests need, as it stands in the work tree."""
    ignore = shutil.ignore_patterns(*SKIPPED)
    for name in ("src", "tests", "docs", "examples", "bench", "requirements", "scripts"):
        shutil.copytree(ROOT / name, place / name, ignore=ignore)
    for path in ROOT.glob("*.*"):
        if path.is_file():
            shutil.copy(path, place)
    return place


def apply(edit: re.Match, place: Path) -> None:
    """Carry out one edit. Fail if its place is not exactly one."""
    path, text = place / edit["path"], edit["text"]
    if edit["how"] is None:
        assert not path.exists(), f"{edit['path']} is there already"
        path.write_text(text)
        return
    lines = path.read_text().splitlines(keepends=True)
    at = [i for i, line in enumerate(lines) if line.startswith(edit["line"])]
    assert len(at) == 1, f"{edit['path']}: {len(at)} lines begin with {edit['line']!r}"
    if edit["how"] == "before" and text.startswith(("def ", "class ")):
        text += "\n\n"
    start = at[0] + (edit["how"] == "after")
    lines[start : start + (edit["how"] == "instead of")] = [text]
    path.write_text("".join(lines))


def argv_of(command: str) -> list[str]:
    """Return the arguments of a command of a recipe, for the Python that runs these tests."""
    words = shlex.split(command)
    if words[:2] == ["make", "test"]:
        args = shlex.split(words[2].removeprefix("ARGS="))
        return ["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *args]
    if words[:2] == ["make", "sim"]:
        return ["-m", "tests.simulation", "--seeds", words[2].removeprefix("SEEDS="), "--jobs", "1"]
    assert words[:2] == [".venv/bin/python", "-m"], f"no command of a recipe: {command}"
    return words[1:]


def install(place: Path) -> None:
    """Name the entry points of the copy as an installation would: PYTHONPATH finds them there."""
    groups = tomllib.loads((place / "pyproject.toml").read_text())["project"]["entry-points"]
    folder = place / "src" / "leadhand-0.1.0.dist-info"
    folder.mkdir(exist_ok=True)
    lines = [
        line
        for group, parts in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in parts.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))


def test_there_are_four_recipes():
    """The other tests would pass on an empty folder."""
    assert len(RECIPES) == 4
    index = (ROOT / "docs" / "contributing" / "README.md").read_text()
    assert all(f"]({recipe.name})" in index for recipe in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_leads_where_it_says(recipe, tmp_path):
    """Every edit finds its place, and every check of the recipe passes after all of them."""
    text, place = recipe.read_text(), copy_project(tmp_path)
    edits = list(EDIT.finditer(text))
    left = re.findall(r"^```+(?:python|markdown|toml)$", EDIT.sub("", text), re.MULTILINE)
    assert not left, "a block without a place"
    assert len(edits) > 2
    for edit in edits:
        apply(edit, place)
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "HYPOTHESIS_PROFILE": "fast"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    commands = [line[2:] for block in CONSOLE.findall(text) for line in block.splitlines()]
    assert commands
    for command in commands:
        if command == "make dev-env":
            install(place)
            continue
        done = subprocess.run(
            [sys.executable, *argv_of(command)],
            cwd=place, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
