"""The public surface as a type checker sees it: right code passes, wrong code does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """The lines mypy complains about, by file."""
    command = [
        *(sys.executable, "-m", "mypy", "--no-error-summary", "--no-color-output"),
        *("--no-pretty", "--show-error-codes", "--config-file", str(FOLDER / "mypy.ini")),
        *("--cache-dir", str(tmp_path_factory.mktemp("mypy"))),
        *(str(FOLDER / "api.py"), str(FOLDER / "wrong.py")),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {"api": {}, "wrong": {}}
    for line in done.stdout.splitlines():
        match = re.match(r".*typing/(api|wrong)\.py:(\d+): error: (.*)", line)
        if match:
            found[match[1]].setdefault(int(match[2]), []).append(match[3])
    return found


@pytest.mark.slow
def test_right_code_passes(errors):
    """Everything a user may write, strictly."""
    assert errors["api"] == {}


@pytest.mark.slow
def test_wrong_code_does_not(errors):
    """Each marked line is an error, and no other line is."""
    lines = (FOLDER / "wrong.py").read_text().splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert len(wrong) >= 20
    assert sorted(errors["wrong"]) == wrong, errors["wrong"]


def test_every_public_name_is_used_here():
    """A name that no user code shows is a name nobody checks."""
    import leadhand

    code = (FOLDER / "api.py").read_text()
    assert [name for name in leadhand.__all__ if not re.search(rf"\b{name}\b", code)] == []
