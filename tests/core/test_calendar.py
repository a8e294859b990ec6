"""Calendar times and windows, clock changes included."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.core.calendar import fixed_offset, next_instant, parse, parse_window, window_open


def us(text):
    return round(datetime.fromisoformat(text).timestamp()) * 1_000_000


def shown(instant):
    return datetime.fromtimestamp(instant / 1e6, UTC).strftime("%Y-%m-%d %H:%M")


NOON = "2026-06-01T12:00+00:00"


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("2026-11-20T02:00:00Z", NOON, "2026-11-20 02:00"),
        ("2026-11-20 02:00+01:00", NOON, "2026-11-20 01:00"),
        ("2026-11-20 02:00 Europe/Berlin", NOON, "2026-11-20 01:00"),
        ("2020-01-01 02:00 UTC", NOON, "2020-01-01 02:00"),
        ("02:00 America/New_York", NOON, "2026-06-02 06:00"),
        ("13:00 UTC", NOON, "2026-06-01 13:00"),
        ("12:00 UTC", NOON, "2026-06-01 12:00"),
        ("11:59 UTC", NOON, "2026-06-02 11:59"),
        ("2AM EST", NOON, "2026-06-02 07:00"),
        ("2 a.m. EST", NOON, "2026-06-02 07:00"),
        ("12AM UTC", NOON, "2026-06-02 00:00"),
        ("12:30pm UTC", NOON, "2026-06-01 12:30"),
        ("02:00 +05:30", NOON, "2026-06-01 20:30"),
        ("02:00 Z", NOON, "2026-06-02 02:00"),
        # New York, 2026-03-08: 02:00 becomes 03:00 at 07:00 UTC.
        ("02:30 America/New_York", "2026-03-08T05:00+00:00", "2026-03-08 07:00"),
        ("03:00 America/New_York", "2026-03-08T05:00+00:00", "2026-03-08 07:00"),
        ("2026-03-08 02:00 America/New_York", NOON, "2026-03-08 07:00"),
        # New York, 2026-11-01: 01:30 comes at 05:30 and again at 06:30 UTC.
        ("01:30 America/New_York", "2026-11-01T05:00+00:00", "2026-11-01 05:30"),
        ("01:30 America/New_York", "2026-11-01T06:00+00:00", "2026-11-02 06:30"),
        # Lord Howe jumps by half an hour; Samoa left a whole day out.
        ("2026-10-04 02:15 Australia/Lord_Howe", NOON, "2026-10-03 15:30"),
        ("2011-12-30 12:00 Pacific/Apia", NOON, "2011-12-30 10:00"),
    ],
)
def test_next_instant(text, now, expected):
    """Each spelling names one instant; a gap gives its end, a fold its first."""
    assert shown(next_instant(text, us(now))) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("02:00", "no zone"),
        ("2026-11-20 02:00", "no zone"),
        ("soon", "not a time"),
        ("", "not a time"),
        ("25:00 UTC", "not a time of day"),
        ("13PM UTC", "1 to 12"),
        ("0AM UTC", "1 to 12"),
        ("2 UTC", "not a time of day"),
        ("2026-02-30 02:00 UTC", "not a day"),
        ("2026-02-30T02:00:00Z", "not a moment"),
        ("02:00 Mars/Phobos", "not a time zone"),
        ("02:00 ../../etc/passwd", "not a time zone"),
        ("02:00 /etc/passwd", "not a time zone"),
        ("02:00 +99:00", "not an offset"),
        ("1" * 200, "too long"),
        (5, "a moment is a text"),
    ],
)
def test_what_is_no_time_is_refused_with_a_reason(text, said):
    """A wrong time is a ValueError whose message says what is wrong."""
    with pytest.raises(ValueError, match=r"^.+$") as caught:
        next_instant(text, 0)
    assert said in str(caught.value)


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"]


@given(
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2000, 1, 1), datetime(2037, 1, 1)),  # noqa: DTZ001 - naive is the point
)
def test_the_next_time_is_near_and_shows_on_the_clock(hour, minute, zone, now):
    """The instant is at most 26 hours away, and a clock there shows it, or a gap ends there."""
    now_us = us(now.replace(tzinfo=UTC, microsecond=0).isoformat())
    found = next_instant(f"{hour:02}:{minute:02} {zone}", now_us)
    assert now_us <= found <= now_us + 26 * 3_600_000_000
    clock = parse(f"00:00 {zone}").zone
    local = datetime.fromtimestamp(found // 1_000_000, clock)
    before = datetime.fromtimestamp(found // 1_000_000 - 1, clock)
    assert (local.hour, local.minute) == (hour, minute) or local.utcoffset() != before.utcoffset()


@pytest.mark.parametrize(
    ("window", "now", "is_open", "opens"),
    [
        ("22:00-02:00 Europe/Berlin", "2026-06-01T21:00+00:00", True, "2026-06-01 21:00"),
        ("22:00-02:00 Europe/Berlin", "2026-06-01T23:59+00:00", True, "2026-06-01 23:59"),
        ("22:00-02:00 Europe/Berlin", "2026-06-02T00:00+00:00", False, "2026-06-02 20:00"),
        ("22:00-02:00 Europe/Berlin", "2026-06-01T20:00+00:00", True, "2026-06-01 20:00"),
        ("22:00-02:00 Europe/Berlin", "2026-06-01T19:59+00:00", False, "2026-06-01 20:00"),
        ("9AM to 5PM UTC", NOON, True, "2026-06-01 12:00"),
        ("09:00 – 17:00 UTC", "2026-06-01T17:00+00:00", False, "2026-06-02 09:00"),
        ({"from": "09:00", "to": "17:00", "zone": "UTC"}, NOON, True, "2026-06-01 12:00"),
        ({"from": "09:00 UTC", "to": "17:00"}, NOON, True, "2026-06-01 12:00"),
        # Wholly inside the gap of 2026-03-08: it does not open that day.
        ("02:10-02:40 America/New_York", "2026-03-08T06:00+00:00", False, "2026-03-09 06:10"),
        ("02:10-03:40 America/New_York", "2026-03-08T07:00+00:00", True, "2026-03-08 07:00"),
    ],
)
def test_windows(window, now, is_open, opens):
    """A window is open from its first instant up to and without its last."""
    found = window_open(window, us(now))
    assert (found[0], shown(found[1])) == (is_open, opens)


@given(st.sampled_from(ZONES), st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 10**9))
def test_a_closed_window_is_open_when_it_says_it_opens(zone, start, end, now):
    """Waiting until `next_open` always finds the window open, and never before."""
    if start == end:
        return
    window = {
        "from": f"{start // 60:02}:{start % 60:02}",
        "to": f"{end // 60:02}:{end % 60:02}",
        "zone": zone,
    }
    is_open, opens = window_open(window, now * 1_000_000)
    assert window_open(window, opens) == (True, opens)
    if not is_open:
        assert not window_open(window, opens - 1)[0]


@pytest.mark.parametrize(
    "window",
    [
        "22:00-02:00",
        "22:00",
        "a-b UTC",
        {"from": "22:00"},
        {"from": "1", "to": "2", "zone": "UTC"},
        {"from": "22:00", "to": "22:00", "zone": "UTC"},
        {"from": 1, "to": 2},
        {"from": "22:00", "to": "02:00"},
        {"from": "22:00", "to": "02:00", "zone": "UTC", "x": "y"},
        5,
        None,
        [],
    ],
)
def test_what_is_no_window_is_refused(window):
    """A wrong window is a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        window_open(window, 0)


def test_letters_are_fixed_offsets_and_say_so():
    """EST stays five hours behind in summer, and the warning names the better zone."""
    assert "America/New_York" in fixed_offset(parse("2AM EST"))
    assert "-05:00" in fixed_offset(parse("2AM EST"))
    assert fixed_offset(parse("2AM America/New_York")) == ""
    assert "CET" in fixed_offset(parse_window("22:00-02:00 CET"))
    summer = next_instant("02:00 CET", us(NOON))
    assert timedelta(microseconds=summer - us(NOON)) == timedelta(hours=13)


@pytest.mark.parametrize("name", ["localtime", "posixrules"])
def test_a_zone_is_the_same_everywhere(name):
    """What was approved on one machine must not mean another time on the next."""
    with pytest.raises(ValueError, match="is not a time zone"):
        parse(f"02:00 {name}")
