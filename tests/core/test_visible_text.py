"""Texts as they are, not as they look."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.visible import visible, visible_key, visible_pair, visible_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", '"plain"'),
        ("two words ", '"two words "'),
        ('a "quote" and \\', '"a \\"quote\\" and \\\\"'),
        ("a\nb\tc\x1b[31m", '"a\\nb\\tc\\u001b[31m"'),
        ("abc\u202edef\u2066", '"abc\\u202edef\\u2066"'),
        ("a\u200bb\ufeff", '"a\\u200bb\\ufeff"'),
        ("no\u00a0break\u2009thin", '"no\\u00a0break\\u2009thin"'),
        ("\u3164\u2800\ufe0f", '"\\u3164\\u2800\\ufe0f"'),
        ("\U000e0041", '"\\U000e0041"'),
        ("p\u0430y", '"p\\u0430y"'),
        ("Müller, 部署, Привет", '"Müller, 部署, Привет"'),
        ("\x7f", '"\\u007f"'),
    ],
)
def test_what_cannot_be_seen_is_escaped(text, shown):
    """Controls, directions, odd spaces, shapeless and foreign letters; plain words are not."""
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("v1", "v2", ('"v1"', '"v2"')),
        ("v1", "v1 ", ('"v1"', '"v1 "')),
        ("\u0441\u043e\u0440\u0443", "copy", ('"\\u0441\\u043e\\u0440\\u0443"', '"copy"')),
        ("é", "e\u0301", ('"\\u00e9"', '"e\\u0301"')),
        ("\uff41", "a", ('"\\uff41"', '"a"')),
        ("部署服务", "发布服务", ('"部署服务"', '"发布服务"')),
        ("a\u2010b", "a-b", ('"a\\u2010b"', '"a-b"')),
        (1, 1.0, ("1", "1.0")),
        (True, 1, ("true", "1")),
        ("1", 1, ('"1"', "1")),
        ({"a": "é"}, {"a": "e\u0301"}, ('{"a": "\\u00e9"}', '{"a": "e\\u0301"}')),
    ],
)
def test_two_that_differ_are_shown_differently(old, new, shown):
    """Where they look alike, both are escaped."""
    assert visible_pair(old, new) == shown


texts = st.text(max_size=30)


@given(texts, texts)
def test_no_two_texts_are_shown_alike(old, new):
    """Whatever they hold; and nothing in them can reach a terminal."""
    one, other = visible_pair(old, new)
    assert (one == other) == (old == new)
    assert one.isprintable()
    assert other.isprintable()


def test_a_long_pair_is_escaped_whole():
    """Lining up long texts would cost too much."""
    assert visible_pair("é" * 3000, "b")[0] == '"' + "\\u00e9" * 3000 + '"'


def test_keys_and_values():
    """Keys of a path in brackets where they are no plain words; values in one line."""
    assert visible_key("version") == ".version"
    assert visible_key("a key") == '["a key"]'
    assert visible_key("versi\u043en") == '["versi\\u043en"]'
    assert visible_value({"a": [1, None, True, "x"]}) == '{"a": [1, null, true, "x"]}'
