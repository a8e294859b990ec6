"""The table of docs/contributing/planner-faults.md: every test that it names is there and runs."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing" / "planner-faults.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
OFF = re.compile(r"\b(skip|skipif|xfail)\b")


def named(row):
    """The tests of a row."""
    return re.findall(r"`(tests/[\w/.]+)::(\w+)`", row)


def test_the_table_is_read():
    assert len(ROWS) >= 15
    assert len({test for row in ROWS for test in named(row)}) >= 30


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:50] for row in ROWS])
def test_a_row_names_tests_that_run(row):
    assert named(row), "a fault without a test"
    for file, name in named(row):
        tree = ast.parse((ROOT / file).read_text())
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = [each for each in tree.body if isinstance(each, kinds) and each.name == name]
        assert len(found) == 1, f"{file} has no {name}"
        marks = [ast.unparse(mark) for mark in found[0].decorator_list]
        assert not any(OFF.search(mark) for mark in marks), f"{name} is off"
