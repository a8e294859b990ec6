"""The tests of the core have power: most ways to break it are noticed."""

import ast
import subprocess
import sys

import pytest

from tests.support import mutants


def kinds(code):
    """What is changed in some code, and into what."""
    tree = ast.parse(code)
    return [
        ast.unparse(other)
        for _, _, _, node, _ in mutants.sites(tree)
        for _, other in mutants.changes(node)
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f(a == b)", ["pass", "a != b"]),
        ("return_ = a < b", ["a <= b", "a >= b"]),
        ("x = a and b", ["a or b", "b", "a"]),
        ("x = not a", ["a"]),
        ("x = 1", ["2"]),
        ("x = 'a'", ["'XXa'"]),
        ("x = True", ["False"]),
        ("x = a + b", ["a - b"]),
        ("x += y", ["x -= y", "pass"]),
        ("x.y = z", ["pass"]),
        ("if a: b", ["if not a:\n    b"]),
        ("x = b if a else c", ["b if not a else c"]),
        ("del x[y]", ["pass"]),
        ("'words'", []),
        ("raise Error('words')", []),
        ("x = f'words {y}'", []),
        ("def f(x: int) -> int: return x", ["return None"]),
    ],
)
def test_how_code_is_broken(code, expected):
    """Each kind of change, and nothing in words for people or for the type checker."""
    assert kinds(code) == expected


def test_there_is_much_to_break():
    """Every file has its mutants, and each one really differs from the file."""
    for file in mutants.FILES:
        found = list(mutants.mutants_of(file))
        assert len(found) > 20, file
        whole = ast.unparse(ast.parse(mutants.source_of(file).read_text()))
        for mutant in found[:: len(found) // 10]:
            assert ast.unparse(mutants.broken(mutant)) != whole


@pytest.mark.slow
def test_a_sample_of_mutants_is_killed():
    """Forty of them, always the same; `make mutants` tries all."""
    command = [sys.executable, mutants.__file__, "--sample", "40", "--seed", "2026"]
    done = subprocess.run(
        command, cwd=mutants.ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
