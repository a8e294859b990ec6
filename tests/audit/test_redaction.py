"""Redaction: every form in which a secret may come back, and nothing else."""

import base64
import html
import json
import shlex
from urllib.parse import quote, quote_plus

import markupsafe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.audit.redaction import Redactor, forms

TRICKY = [
    "s3cr3t-t0ken/with+odd=chars",
    'quo"te\\d',
    "ümläut-päss",
    "a b&c<d>'e'",
    "tab\tand\nline",
]
values = st.text(min_size=6, max_size=60).filter(
    lambda text: len(text.strip()) >= 6 and text.isprintable() and "[secret" not in text
)


def spellings(value):
    raw = value.encode()
    yield value
    yield json.dumps(value)
    yield json.dumps({"deep": [value]}, ensure_ascii=False)
    yield repr(value)
    yield html.escape(value)
    yield str(markupsafe.escape(value))
    yield shlex.quote(value)
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    yield raw.hex()
    yield json.dumps(json.dumps({"in": value}))
    yield quote(quote(value, safe=""), safe="")
    for head in (b"", b"u", b"us:", b"user:"):
        yield base64.b64encode(head + raw + b"tail").decode()
        yield base64.urlsafe_b64encode(head + raw).decode()


def leaks(value, text):
    return [form for form in forms(value) if form in text]


@pytest.mark.parametrize("value", TRICKY)
def test_every_spelling_goes(value):
    redactor = Redactor({"token": value})
    for spelling in spellings(value):
        clean = redactor.text(f"before {spelling} after")
        assert "[secret:token]" in clean, spelling
        assert not leaks(value, clean)
        assert clean.startswith("before ")
        assert clean.endswith(" after")


@pytest.mark.parametrize("value", ["s3cr3t-t0ken/with+odd=chars", "sk-live-Zq8Xw3Vt7Lp2Nm5Kr9Bs4"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\\n", "\n    "])
def test_broken_lines_hide_nothing(value, end):
    """Base64 is broken after 76 characters, and a narrow terminal breaks anything anywhere."""
    redactor = Redactor({"token": value})
    for before in range(40, 60):
        encoded = base64.encodebytes(b"x" * before + value.encode() + b"y" * 70).decode()
        clean = redactor.text(encoded.replace("\n", end))
        assert "[secret:token]" in clean
        flat = clean.replace(end, "")
        assert not leaks(value, flat)
    broken = end.join(value[i : i + 9] for i in range(0, len(value), 9))
    assert redactor.text(f"one{end}{broken}{end}two") == f"one{end}[secret:token]{end}two"
    assert redactor.finds(json.dumps({"text": broken}).encode()) == "[secret:token]"
    assert redactor.text("so-called\nlines") == "so-called\nlines"


@given(values)
def test_no_value_survives_in_any_spelling(value):
    redactor = Redactor({"t": value})
    for spelling in spellings(value):
        assert value not in redactor.text(f"<{spelling}>") or value in "[secret:t]"


@given(st.text(max_size=200))
def test_what_holds_no_secret_is_left_alone(text):
    redactor = Redactor({"token": "kJ8-never-in-a-random-text"})
    assert redactor.text(text) == text


def test_keys_numbers_and_nesting():
    redactor = Redactor({"pin": "482913", "key": "the-key"})
    found = redactor.value({"the-key": [482913, 1, True, None, {"a": ("x the-key y",)}], "n": 9.5})
    assert found == {
        "[secret:key]": ["[secret:pin]", 1, True, None, {"a": ("x [secret:key] y",)}],
        "n": 9.5,
    }


@pytest.mark.parametrize("cut", [" ... ", "\n[... 1,234 characters left out ...]\n"])
def test_pieces_of_a_secret_at_a_cut_go_too(cut):
    value = "abcdefghijklmnopqrstuvwxyz0123456789"
    redactor = Redactor({"token": value})
    for size in range(6, len(value)):
        text = "x" * 100 + value[:size] + cut + value[-size:] + "y" * 100
        clean = redactor.text(text)
        assert value[:6] not in clean
        assert value[-6:] not in clean
        assert cut in clean
    assert value[:10] not in redactor.text("z" * 200 + value[:10])
    assert value[-10:] not in redactor.text(value[-10:] + "z" * 200)


def test_each_line_of_a_long_secret_is_one():
    armour = "-----BEGIN PRIVATE KEY-----"
    pem = f"{armour}\nMC4CAQAwBQYDK2VwBCIEIA\nqqqqwwwweeee\n{armour}\n"
    redactor = Redactor({"key": pem})
    for line in ("MC4CAQAwBQYDK2VwBCIEIA", "qqqqwwwweeee"):
        assert line not in redactor.text(f"the line {line} was wrong")
    assert "BEGIN" in redactor.text(armour)


def test_short_values_are_not_looked_for():
    assert not Redactor({"a": "", "b": "abc"})


def test_a_text_that_goes_on_ends_before_what_may_become_a_secret():
    """However it is cut: a value that is being printed never shows in part."""
    value = "hunter2-correct-horse"
    redactor = Redactor({"key": value})
    text = f"the key is {value}, and that is all"
    for cut in range(len(text) + 1):
        shown = redactor.unfinished(text[:cut])
        assert not any(value[:size] in shown for size in range(3, len(value) + 1)), shown
    assert redactor.unfinished(text) == "the key is [secret:key], and that is all"


def test_the_password_in_an_address_is_kept_out_alone_too():
    """Databases name it in their errors without the address."""
    redactor = Redactor({"DATABASE_URL": "postgres://u:hunter2%2FSecret99@db.example.com/x"})
    for told in ("hunter2%2FSecret99", "hunter2/Secret99", "postgres://u:hunter2%2FSecret99@db"):
        assert "Secret99" not in redactor.text(f"refused: {told} is wrong")
    assert redactor.text("db.example.com is away") == "db.example.com is away"
