"""Reading and writing plan documents: hostile files, exact places, faithful round trips."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.codec import documents
from leadhand.codec.documents import read_document, write_json, write_yaml
from leadhand.core.plan.model import Plan
from leadhand.errors import DocumentError, NotAllowed

SEED_TEXT = (Path(__file__).parents[1] / "support/seed_plan.json").read_text()
SEED = json.loads(SEED_TEXT)


def read_json(text):
    return read_document(text.encode(), name="plan.json")


def read_yaml(text):
    return read_document(text.encode(), name="plan.yaml")


def refused(source, **options):
    with pytest.raises(DocumentError) as caught:
        read_document(source, **options)
    return caught.value


@pytest.mark.parametrize("write", [write_json, write_yaml])
def test_the_seed_plan_survives_every_round_trip(write, tmp_path):
    """Through the types, through JSON and through YAML it comes back as it was."""
    again = write(Plan.from_doc(read_json(SEED_TEXT)).to_doc())
    assert read_document(again.encode(), name=f"plan.{write.__name__[6:]}") == SEED
    path = tmp_path / "plan"
    path.write_text(again)
    assert read_document(path) == SEED


def test_yaml_1_2_rules():
    """What old YAML readers turn into something else stays what it seems to be."""
    text = """
        time: 22:00
        yes: no
        on: off
        day: 2026-11-20
        octal: 0o17
        zeros: 017
        hex: 0x1F
        float: 1e3
        half: .5
        null: ~
        quoted: "5"
        word: nothing
        merge: {<<: x}
        version: 1.2.3
        block: |
          a
          b
    """
    with pytest.raises(DocumentError, match="a key must be a string, is null"):
        read_yaml(text)
    assert read_yaml(text.replace("null: ~", "none: ~\n        empty:")) == {
        "time": "22:00",
        "yes": "no",
        "on": "off",
        "day": "2026-11-20",
        "octal": 15,
        "zeros": 17,
        "hex": 31,
        "float": 1000.0,
        "half": 0.5,
        "none": None,
        "empty": None,
        "quoted": "5",
        "word": "nothing",
        "merge": {"<<": "x"},
        "version": "1.2.3",
        "block": "a\nb\n",
    }


BOMB = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (BOMB, "1:4", "anchors"),
        ("a: *b", "1:4", "aliases"),
        ("a: 1\nb:\n  c: 1\n  c: 2", "4:3", 'the key "c" stands twice'),
        ("1: x", "1:1", "a key must be a string"),
        ("true: x", "1:1", "a key must be a string"),
        ("? [a]\n: b", "1:3", "a key must be a string, is a list"),
        ("a: !!python/object:os.system x", "1:4", "tags"),
        ("a: !!str 5", "1:4", "tags"),
        ("a: ! 5", "1:4", "tags"),
        ("a: 1\n---\nb: 2", "2:1", "second document"),
        ("a: .nan", "1:4", "not a number that JSON has"),
        ("a: -.inf", "1:4", "not a number that JSON has"),
        ("a: 1e999", "1:4", "too large"),
        ("a: 9223372036854775808", "1:4", "too large"),
        ("a: " + "9" * 100_000, "1:4", "too large"),
        ("a: [1, 2", "", "not YAML"),
        ("a: b: c", "1:5", "not YAML"),
        ("a:\n\t- 1", "2:1", "not YAML"),
        ("a: \x07", "1", "a character that YAML does not"),
        ('a: "\\ud800"', "1:7", "not YAML"),
        ("a: " + "[" * 200, "1:67", "nested"),
        ("- " * 200_000, "1:129", "nested"),
        ("a: " + "{" * 200_000, "1:5", "a key must be"),
        ("? " * 100_000, "1:3", "a key must be"),
        ("- a", "", "not a list"),
        ("just words", "", "not a string"),
        ("", "", "empty"),
        ("# only a comment", "", "not null"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_yaml_is_refused_with_its_place(text, place, said):
    """Each trap of YAML is a DocumentError with file, line and column, and quickly."""
    start = time.process_time()
    error = refused(text.encode(), name="plan.yaml")
    assert said in error.message
    assert error.place.startswith("plan.yaml")
    if place:
        assert error.place == f"plan.yaml:{place}"
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('{"a": 1,\n "b": {"c": 1, "c": 2}}', "2:16", 'the key "c" stands twice'),
        ('{"a": 1, "\\u0061": 2}', "1:10", "stands twice"),
        ('{"a": ["x", NaN]}', "1:13", "NaN is not a number"),
        ('{"a": -Infinity}', "1:7", "not a number"),
        ('{"a": 1e999}', "1:7", "too large"),
        ('{"a": -9223372036854775809}', "1:7", "too large"),
        ('{"a": 1' + "0" * 5000 + "}", "1:7", "too large"),
        ('{"a": "\\ud800"}', "1:7", "surrogate"),
        ('{"\\udc00": 1}', "1:2", "surrogate"),
        ("[" * 65 + "]" * 65, "1:65", "nested"),
        ("[" * 200_000, "1:65", "nested"),
        ('{"a":' * 100 + "1" + "}" * 100, "1:321", "nested"),
        ('{"a" 1}', "1:6", "not JSON"),
        ("{'a': 1}", "1:2", "not JSON"),
        ('{"a": 1} x', "1:10", "not JSON"),
        ("[1]", "", "not a list"),
        ("  ", "", "empty"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_json_is_refused_with_its_place(text, place, said):
    """What JSON can spell and a plan cannot hold is told with line and column."""
    error = refused(text.encode(), name="plan.json")
    assert said in error.message
    assert error.place == (f"plan.json:{place}" if place else "plan.json")


@pytest.mark.parametrize("cut", range(1, len(SEED_TEXT.rstrip()) - 1, 37))
def test_a_truncated_plan_says_where_it_ends(cut):
    """Cut anywhere, the message says so, with line and column."""
    error = refused(SEED_TEXT[:cut].encode(), name="plan.json")
    assert "ends in the middle" in error.message
    line, column = error.place.removeprefix("plan.json:").split(":")
    assert int(line) <= SEED_TEXT[:cut].count("\n") + 1
    assert int(column) >= 1


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    """100 MB are refused by their size alone."""
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    monkeypatch.setattr(documents, "_text", pytest.fail)
    error = refused(path)
    assert "104,857,600 bytes" in error.message
    assert error.place == str(path)


def test_an_endless_device_is_read_no_further_than_the_limit():
    """A file without a size cannot fill the memory."""
    assert "may have 10,485,760 at most" in refused("/dev/zero").message


def test_bytes_over_the_limit_are_refused():
    """The limit holds for bytes as for files."""
    assert "bytes" in refused(b" " * (documents.BYTES_MAX + 1)).message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan.json", "plan.yaml"])
def test_too_many_values_are_refused(name):
    """A million small values are refused though their bytes are few."""
    text = '{"a": [' + "[]," * 1_000_000 + "[]]}"
    assert "more than 1,000,000 values" in refused(text.encode(), name=name).message


@pytest.mark.parametrize("name", ["plan.json", "plan.yaml"])
def test_commas_in_texts_are_not_values(name):
    """A long text is one value."""
    assert read_document(('{"a": "' + "," * 1_200_000 + '"}').encode(), name=name)


def test_a_hostile_unfinished_string_is_refused_quickly():
    """Counting and locating are linear even where a string never ends."""
    start = time.process_time()
    refused(('{"a": [' + "1," * 1_100_000 + '"' + '\\"' * 3_900_000).encode(), name="p.json")
    refused(('{"a": 1, "a": "' + '\\"' * 4_000_000 + '"}').encode(), name="p.json")
    assert time.process_time() - start < 10


def test_files_that_cannot_be_read(tmp_path):
    """Missing, a folder, not UTF-8, no permission: each says which."""
    assert "no such file" in refused(tmp_path / "none.yaml").message
    (tmp_path / "plan.yaml").symlink_to("gone.yaml")
    linked = refused(tmp_path / "plan.yaml")
    assert (linked.message, linked.fix) == ("is a link to gone.yaml, which does not exist.", "")
    assert "folder" in refused(tmp_path).message
    assert "cannot be read" in refused("a\0b").message
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: b\nc: \xe9\n")
    error = refused(latin)
    assert error.place == f"{latin}:2"
    assert "UTF-8" in error.message
    if os.geteuid() != 0:
        latin.chmod(0)
        with pytest.raises(NotAllowed):
            read_document(latin)


def test_the_format_is_told_by_name_or_by_looks():
    """A name decides; without one, a brace means JSON."""
    assert read_document(b"\xef\xbb\xbf{}") == {}
    assert read_document(b"a: 1") == {"a": 1}
    assert read_document(b"{a: 1}", name="x.yml") == {"a": 1}
    assert "not JSON" in refused(b"{a: 1}").message
    assert "not JSON" in refused(b"a: 1", name="x.json").message


finite = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers(-(2**63), 2**63 - 1)
scalars = st.none() | st.booleans() | integers | finite | st.text()
TRICKY = """
22:00|yes|~||1e5|0o7|0x1|<<|=|- a|a: b|#| x|x |2026-01-01|null|.5|1_000
"""
SIGNS = """ % @ ` --- ... !x &a *a ' " é 😀 [ { ] , ? : > | \\ """
BREAKS = [
    "\n",
    "a\n",
    "a\n\n",
    " a\nb",
    "\x85",
    "\u2028",
    "a\n b\n\tc",
    "\t",
    "a\r\nb",
    "\x7f",
    "\ufeff",
]
tricky = st.sampled_from(TRICKY.strip("\n").split("|") + SIGNS.split() + BREAKS)
values = st.recursive(
    scalars | tricky,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | tricky, inner, max_size=4)
    ),
    max_leaves=25,
)


@given(st.dictionaries(st.text() | tricky, values, max_size=5))
def test_writing_and_reading_gives_the_same(doc):
    """Any document comes back equal, type for type, through YAML and through JSON."""
    for write, name in ((write_yaml, "p.yaml"), (write_json, "p.json")):
        again = read_document(write(doc).encode(), name=name)
        assert repr(again) == repr(doc)


@given(st.text(alphabet="abc:-[]{},#&*!|>'\"%@`?~ \n\t0123.e+", max_size=60))
def test_any_text_is_read_or_refused(text):
    """No text makes the reader fail with anything but its own error."""
    for name in ("p.yaml", "p.json"):
        try:
            found = read_document(text.encode(), name=name)
        except DocumentError as error:
            found = {"place": error.place}
        assert isinstance(found, dict)
