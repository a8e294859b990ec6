"""Paths that overlap: what a step writes against what another does."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.paths import PAIRS_MAX, overlap, overlaps, parts, wide

CASES = [
    ("a", "a", True),
    ("a", "b", False),
    ("./a//b/", "a/b", True),
    ("a", "a/b/c", True),
    ("a/b", "a/c", False),
    ("a/*.py", "a/x.py", True),
    ("a/*.py", "a/x.md", False),
    ("a/*.py", "a/*.md", False),
    ("a/x*", "a/*y", True),
    ("a/?", "a/bc", False),
    ("a/?c", "a/b?", True),
    ("**", "a/b", True),
    ("**/x.py", "a/b/x.py", True),
    ("**/x.py", "a/b/y.py", False),
    ("a/**", "a", True),
    ("a/**/z", "a/z", True),
    ("a/**/z", "b/z", False),
    ("a/**/b/**", "a/x/b/y", True),
    ("table:users", "table:orders", False),
    ("a/*", "a/b/c", True),
]


@pytest.mark.parametrize(("one", "other", "expected"), CASES)
def test_overlap(one, other, expected):
    """It does not matter which is named first."""
    assert overlap(parts(one), parts(other)) is expected
    assert overlap(parts(other), parts(one)) is expected
    assert list(overlaps([one], [other])) == ([(one, other)] if expected else [])
    assert list(overlaps([other], [one])) == ([(other, one)] if expected else [])


names = st.text("ab*?", min_size=1, max_size=4)
texts = st.lists(names, min_size=1, max_size=3).map("/".join)


@given(st.lists(texts, max_size=6), st.lists(texts, max_size=6))
def test_the_index_finds_what_holding_all_against_all_finds(these, those):
    """Each pair once."""
    found = list(overlaps(these, those))
    assert len(found) == len(set(found))
    assert set(found) == {
        (one, other) for one in these for other in those if overlap(parts(one), parts(other))
    }


@given(names.filter(lambda text: "**" not in text), st.text("ab", min_size=1, max_size=4))
def test_a_part_fits_what_a_shell_pattern_fits(pattern, name):
    """`*` and `?` mean what they mean everywhere."""
    assert overlap((pattern,), (name,)) == fnmatchcase(name, pattern)


def test_the_work_is_bounded():
    """Beyond the limit nothing more is held against each other."""
    many = [f"*{i}*" for i in range(300)]
    assert len(many) ** 2 > PAIRS_MAX
    assert 0 < len(list(overlaps(many, many))) <= PAIRS_MAX


def test_wide_texts():
    """A wildcard, or a folder."""
    assert [wide(text) for text in ("a/", "a/*", "a?", "a", "a/b")] == [True] * 3 + [False] * 2
