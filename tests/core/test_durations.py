"""Durations: what people write, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.durations import SECONDS_MAX, seconds, text, too_short, written
from leadhand.core.lint.plan import lint


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("15 minutes", 900),
        ("1h30m", 5400),
        ("90s", 90),
        ("1.5 hours", 5400),
        ("2 days", 172_800),
        ("PT15M", 900),
        ("P1DT2H", 93_600),
        ("PT0.5S", 0.5),
        ("500ms", 0.5),
        ("1 hour 5 minutes", 3900),
        ("1 hour, 5 minutes and 3 seconds", 3903),
        ("2 Weeks", 1_209_600),
        (" 10 min ", 600),
        (5, 5),
        (2.5, 2.5),
        (0, 0),
    ],
)
def test_durations_as_people_write_them(written, expected):
    """Each usual spelling stands for the seconds it says."""
    assert seconds(written) == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("soon", "not a duration"),
        ("5", "no unit"),
        ("5.5", "no unit"),
        ("-5s", "negative"),
        (-1, "negative"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (None, "null"),
        (True, "boolean"),
        ([], "list"),
        ({}, "object"),
        ("", "not a duration"),
        ("P", "ISO 8601"),
        ("PT", "ISO 8601"),
        ("P1M", "ISO 8601"),
        ("1h 1h", "twice"),
        ("3 months", "no fixed length"),
        ("1 year", "no fixed length"),
        ("100000 weeks", "ten years"),
        (10**400, "ten years"),
        ("9" * 500 + "s", "too long"),
        ("5m,", "not a duration"),
        ("5m and", "not a duration"),
        ("1e9s", "no unit 'e'"),
        ("٣s", "not a duration"),
        ("5m\x00", "not a duration"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_reason(written, said):
    """A wrong duration is a ValueError whose message says what is wrong."""
    with pytest.raises(ValueError, match=r"^.+$") as caught:
        seconds(written)
    assert said in str(caught.value)


@given(st.floats(0, SECONDS_MAX))
def test_the_text_for_people_reads_back_nearly(value):
    """What `text` prints is a duration again, off by no more than its smallest unit shown."""
    again = seconds(text(value))
    assert abs(again - value) <= max(0.05 * value, 0.0006)


@given(st.text(max_size=40))
def test_no_text_does_anything_but_parse_or_refuse(written):
    """Whatever is written, the answer is a number in bounds or a ValueError."""
    try:
        found = seconds(written)
    except ValueError:
        return
    assert 0 <= found <= SECONDS_MAX


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0s"),
        (0.12, "120ms"),
        (0.9996, "1s"),
        (1.5, "1.5s"),
        (45, "45s"),
        (3599.9, "1h"),
        (5400, "1h 30m"),
        (93_600, "1d 2h"),
        (-90, "-1m 30s"),
        (float("inf"), "for ever"),
    ],
)
def test_text_takes_the_two_largest_units(value, shown):
    """A person gets the size, not every digit."""
    assert text(value) == shown


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (0.0, "it must be more than 0"),
        (1e-9, "it must be a millisecond at least"),
        (0.0009, "it must be a millisecond at least"),
        (0.001, ""),
        (60.0, ""),
    ],
)
def test_limits_in_which_nothing_can_be_done(limit, why):
    assert too_short(limit) == why


@pytest.mark.parametrize("where", ["deadline", "goal.deadline", "timeout"])
@pytest.mark.parametrize("value", [0, "0s", 0.0, 1e-9, "0.5ms"])
def test_a_plan_with_such_a_limit_has_a_finding(where, value):
    """It was valid, and every run of it ended at once."""
    doc = {"goal": {"text": "g"}, "steps": [{"id": "a", "worker": "w"}]}
    (doc["goal"] if where == "goal.deadline" else doc)["deadline"] = value
    if where == "timeout":
        doc["steps"][0]["timeout"] = doc.pop("deadline")
        where = "steps[0].timeout"
    (found,) = [each for each in lint(doc, None) if each.level == "error"]
    assert (found.place, found.rule) == (where, "duration-wrong")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (0.2, "0.2 seconds"),
        (5400, "1 hour 30 minutes"),
        (86_400, "1 day"),
        (1_209_600.0, "14 days"),
    ],
)
def test_durations_are_written_exactly(value, said):
    """As one would write them into settings, and read them back."""
    assert written(value) == said
    assert seconds(said) == value
