"""The project folder that tests of the command line work in."""

import pytest

from tests.support.cli import Folder

SETTINGS = "[project]\nworkers = ['workers.py']\n"
"""What a project's settings say unless its test writes others."""


@pytest.fixture
def folder(request, tmp_path):
    """Make a project folder of the files that a module lists in FILES; end its host afterwards."""
    files = getattr(request.module, "FILES", {})
    made = Folder(tmp_path)
    if "workers.py" in files:
        made.write("leadhand.toml", SETTINGS)
    for name, text in files.items():
        made.write(name, text)
    yield made
    made.end_host()
