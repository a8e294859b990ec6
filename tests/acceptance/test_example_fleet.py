"""The README of the fleet's example. Its run is in tests/web/test_fleet_example.py."""

import re
from pathlib import Path

from tests.acceptance.test_docs import check_line

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fleet"


def test_its_readme_names_commands_and_files_that_exist():
    text = (EXAMPLE / "README.md").read_text()
    lines = re.findall(r"^\$ (.+?)(?: +#.*)?$", text, re.MULTILINE)
    assert len(lines) > 8
    for line in lines:
        check_line(line, f"README.md: {line}")
    for name in re.findall(r"\]\(([^)]+)\)", text):
        assert (EXAMPLE / name).exists(), name
