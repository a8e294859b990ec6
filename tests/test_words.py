"""The vocabulary: a phrase that `docs/reference/words.md` replaces is found in no text for people.

The third column of its tables lists these phrases. One that begins with a small letter must not
occur at all, in any case; `…` in it stands for a value. One that begins with a capital must not be
the whole of a label, a column or a button. `python -m tests.test_words [PART]` lists them.
"""

import ast
import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "leadhand"
WEB = SOURCE / "server" / "web"
VOCABULARY = ROOT / "docs" / "reference" / "words.md"
ROW_CELLS = 3
TEXTS_MIN = 100

PRODUCTS = ("server", "fleet", "audit")
"""Folders of `src/leadhand` that are parts of their own; the others are `terminal`."""

SPEAKS_TO_MODELS = (
    "planners/model/prompts",
    "planners/model/prompt.py",
    "fleet/agents/brief.py",
    "fleet/review.py",
)
"""Instructions to models and agents: recorded sessions are found by them."""

HISTORY = ("CHANGELOG.md", "docs/releases/", "docs/decisions/")
"""What was written about earlier versions stays as it was written."""

STRICT: tuple[str, ...] = ("page", "server", "audit", "fleet", "terminal", "docs")
"""The parts in which no phrase may be found."""

ALLOWED: dict[str, str] = dict.fromkeys(
    ("AGENTS.md: nobody", "AGENTS.md: whoever"), "the rule that names the words to avoid"
) | {"src/leadhand/notify/channels.py: From": "a header of mail"}
"""`FILE: PHRASE` -> why it stays."""


@dataclass(frozen=True)
class Text:
    """A text that people read: where it stands, and whether it is a label by itself."""

    place: str
    text: str
    label: bool

    @cached_property
    def low(self) -> str:
        """The text in small letters."""
        return self.text.lower()


@dataclass(frozen=True)
class Phrase:
    """A phrase that a term replaces."""

    text: str
    term: str

    def found(self, text: Text) -> bool:
        """Return whether a text holds the phrase."""
        if self.text[0].isupper():
            return text.label and text.text.strip() == self.text
        if text.text == self.text and " " not in self.text:
            return False  # a name for machines, as the actor of a default answer
        return rarest(self.text) in text.low and bool(pattern(self.text).search(text.text))


@cache
def rarest(phrase: str) -> str:
    """Return the longest word of a phrase: where it is missing, the phrase is."""
    return max(phrase.split(), key=len).lower()


@cache
def pattern(phrase: str) -> re.Pattern[str]:
    """Return what finds a phrase in any case and over line ends."""
    words = [re.escape(word).replace("…", r"\S+") for word in phrase.split()]
    before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    after = r"(?!\w)" if re.search(r"\w$", phrase) else ""
    return re.compile(before + r"\s+".join(words) + after, re.IGNORECASE)


def phrases() -> list[Phrase]:
    """Return all phrases of the vocabulary's third column."""
    rows = [
        line.strip("| ").split("|")
        for line in VOCABULARY.read_text().splitlines()
        if line.startswith("| ")
    ]
    cells = [[cell.strip() for cell in row] for row in rows]
    return [
        Phrase(found, row[0])
        for row in cells
        if len(row) == ROW_CELLS and row[0] != "term"
        for found in re.findall(r"`([^`]+)`", row[2])
    ]


def python_texts(file: Path) -> Iterator[Text]:
    """Yield the strings of a module, and docstrings of what is decorated (commands, routes)."""
    tree = ast.parse(file.read_text())
    silent = {id(node) for node in docstrings(tree)}
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if id(node) in silent or id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text(f"{file.relative_to(ROOT)}:{node.lineno}", node.value, label=True)
        elif isinstance(node, ast.JoinedStr):
            parts = [
                str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values
            ]
            yield Text(f"{file.relative_to(ROOT)}:{node.lineno}", "".join(parts), label=True)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the docstrings that only developers read, also those of fields."""
    shown = {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and id(node) not in shown
        ):
            yield node.value


def script_texts(file: Path) -> Iterator[Text]:
    """Yield the lines of a script or a template, and its labels: in quotes or between tags."""
    text = re.sub(
        r"/\*.*?\*/|<!--.*?-->",
        lambda found: "\n" * found[0].count("\n"),
        file.read_text(),
        flags=re.DOTALL,
    )
    text = re.sub(r"(^|[\s;{(])//[^\n]*", r"\1", text)
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{file.relative_to(ROOT)}:{number}"
        yield Text(place, html.unescape(line), label=False)
        for found in re.findall(r"""(?<=[>"'`])[^<>"'`]+(?=[<"'`])""", line):
            yield Text(place, found, label=True)


def page_texts(file: Path) -> Iterator[Text]:
    """Yield a page of the documentation, paragraph by paragraph."""
    number = 1
    for part in re.split(r"(\n\s*\n)", file.read_text()):
        yield Text(f"{file.relative_to(ROOT)}:{number}", part, label=False)
        number += part.count("\n")


def sources(part: str) -> Iterator[Path]:
    """Yield the modules and the templates of a part of `src/leadhand`."""
    for file in sorted(SOURCE.rglob("*")):
        name = file.relative_to(SOURCE).as_posix()
        top = name.split("/")[0]
        own = top if top in PRODUCTS else "terminal"
        if (
            own == part
            and file.suffix in {".py", ".html"}
            and not name.startswith((*SPEAKS_TO_MODELS, "server/web/"))
        ):
            yield file


def pages() -> Iterator[Path]:
    """Yield the documentation: what is for readers, except what is history."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md")]
    for file in sorted(found):
        if file != VOCABULARY and not file.relative_to(ROOT).as_posix().startswith(HISTORY):
            yield file


def texts(part: str) -> Iterator[Text]:
    """Yield all texts of a part."""
    if part == "page":
        for file in (WEB / "index.html", *sorted((WEB / "js").rglob("*.js"))):
            yield from script_texts(file)
    elif part == "docs":
        for file in pages():
            yield from page_texts(file)
    else:
        for file in sources(part):
            yield from python_texts(file) if file.suffix == ".py" else script_texts(file)


PARTS = ("page", "server", "audit", "fleet", "terminal", "docs")


def old_phrases(part: str) -> list[str]:
    """Return where a part says something in words that were replaced."""
    known = phrases()
    found = (
        f"{text.place}: `{phrase.text}`; say: {phrase.term}"
        for text in texts(part)
        for phrase in known
        if phrase.found(text) and f"{text.place.split(':')[0]}: {phrase.text}" not in ALLOWED
    )
    return list(dict.fromkeys(found))


def test_the_vocabulary_is_read():
    """The table has phrases, each once."""
    found = [phrase.text for phrase in phrases()]
    assert len(found) > 100
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("part", PARTS)
def test_no_replaced_phrase_is_used(part):
    """None is found in the part."""
    assert len(list(texts(part))) > TEXTS_MIN
    assert part not in STRICT or not old_phrases(part)


def test_phrases_are_found():
    """A phrase is found in any case, over a line end, around a value; a label only as a whole."""
    assert Phrase("needs a person", "").found(Text("", "step-3 Needs a\nperson.", label=False))
    assert Phrase("revision … allowed by", "").found(
        Text("", "revision … allowed by …", label=True)
    )
    assert Phrase("Took", "").found(Text("", "Took", label=True))
    assert not Phrase("Took", "").found(Text("", "It took long", label=True))
    assert not Phrase("nobody", "").found(Text("", "nobody", label=True))
    assert Phrase("nobody", "").found(Text("", "nobody hosts it", label=True))
    assert not Phrase("stop it", "").found(Text("", "stop items", label=False))


if __name__ == "__main__":
    for asked in sys.argv[1:] or PARTS:
        sys.stdout.write("".join(f"{line}\n" for line in old_phrases(asked)))
