"""The glossary: each term is defined once, and is used where the glossary says."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "leadhand"


class Term(NamedTuple):
    """One row of the glossary; `where` is empty in the half for users."""

    name: str
    meaning: str
    where: str


def rows(half: str) -> list[Term]:
    """Return the terms of the half under a heading."""
    text = (ROOT / "GLOSSARY.md").read_text()
    section = text.split(f"\n## {half}\n")[1].split("\n## ")[0]
    cells = [line.strip("| \n").split(" | ") for line in section.splitlines() if "|" in line]
    return [Term(*row, *[""] * (3 - len(row))) for row in cells[2:]]


USERS, INSIDE = rows("For users"), rows("Inside")


def uses(text: str, term: str) -> bool:
    """Return whether a text holds a term, also as a part of a name or in the plural."""
    return re.search(rf"(?<![a-z]){re.escape(term)}", text, re.IGNORECASE) is not None


def test_a_term_is_defined_once():
    """No term has two rows, in one half or in both."""
    names = [term.name for term in (*USERS, *INSIDE)]
    assert len(USERS) > 30
    assert len(INSIDE) > 20
    assert sorted(names) == sorted(set(names))
    assert all(term.meaning for term in (*USERS, *INSIDE))


@pytest.mark.parametrize("term", INSIDE, ids=lambda term: term.name)
def test_an_inside_term_is_used_where_the_glossary_says(term):
    """The module or folder exists, and holds the term in its name or its text."""
    place = SOURCE / term.where.strip("`")
    assert place.exists(), term.where
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert any(uses(file.stem + "\n" + file.read_text(), term.name) for file in files)


@pytest.mark.parametrize("term", USERS, ids=lambda term: term.name)
def test_a_user_term_is_used_in_the_documentation(term):
    """The README or a page of `docs` uses it."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]
    assert any(uses(page.read_text(), term.name) for page in pages)
