"""The documentation site, built once, and the browser of the dashboard's tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.conftest import browser as browser  # noqa: PLC0414 - a fixture

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; its pictures are left empty."""
    scripts = ROOT / "scripts"
    subprocess.run([sys.executable, scripts / "environment.py", "docs"], check=True)
    into = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / ".venv-docs/bin/python", scripts / "docs_site.py", "--draft", "--into", into],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return into / "site"
