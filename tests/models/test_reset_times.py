"""When a limit ends: every known message is read to the minute, or refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.models.failures import of_provider
from leadhand.models.reset_times import AHEAD_S, STALE_S, duration_s, reset_time, wait_s
from tests.models.limit_messages import MESSAGES, Said


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_the_corpus_is_large_enough() -> None:
    assert len(MESSAGES) >= 60
    assert sum(said.ends is None for said in MESSAGES) >= 15


@pytest.mark.parametrize("said", MESSAGES, ids=lambda said: f"{said.source}: {said.message[:40]}")
def test_each_known_message_is_read_to_the_minute_or_refused(said: Said) -> None:
    read = reset_time(said.message, instant(said.now), ZoneInfo(said.zone))
    if said.ends is None:
        assert read is None
    else:
        assert read == pytest.approx(instant(said.ends), abs=0.01)


NOW = instant("2026-09-11T15:28:00Z")


@pytest.mark.parametrize(
    "message",
    [
        "resets 10:30am (Mars/Phobos)",
        "resets at 5pm IST",  # India, Ireland or Israel
        "resets at 5pm CST",
        "resets 25:10",
        "resets 13pm",
        "resets Feb 30, 3pm",
        "resets 7",
        "try again in 30",
        "try again in 3 hours 2 hours",
        "try again in 5 minutes 3 days",
        "try again in 400 days",
        "limit reached|1600000000",
        '"resets_at": 4102444800',
        '"resets_at": "2026-09-12T10:00:00"',  # no zone
        "retry budget: 3 of 5 used",
        "the limiter resets counters",
        "resets Aug 17, 4am",  # eleven months ahead: not this limit
        "",
    ],
)
def test_what_is_not_told_to_the_minute_is_refused(message: str) -> None:
    assert reset_time(message, NOW, UTC) is None


def test_a_time_that_has_just_passed_is_not_taken_for_tomorrow() -> None:
    assert wait_s("resets 3:25pm (UTC)", NOW) == 0.0
    assert reset_time("resets 3:10pm (UTC)", NOW) == instant("2026-09-12T15:10:00Z")


def test_the_zone_of_the_process_is_used_where_none_is_said() -> None:
    here = datetime.fromtimestamp(NOW).astimezone() + timedelta(hours=2)
    read = reset_time(f"resets {here:%H}:{here:%M}", NOW)
    assert read == pytest.approx(here.timestamp(), abs=60)


@pytest.fixture
def berlin(monkeypatch):
    """This process stands in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_summer_time_of_the_process_counts(berlin: None) -> None:
    """Said in summer, about a day in winter: an hour later than the offset of now would say."""
    now = instant("2026-10-22T10:00:00Z")
    assert reset_time("resets Oct 26, 3pm", now) == instant("2026-10-26T14:00:00Z")
    assert reset_time("resets 3pm", now) == instant("2026-10-22T13:00:00Z")


def test_of_two_instants_with_one_name_the_later_is_taken() -> None:
    """Clocks are set back at 3:00 on 25 October: 2:30 happens twice."""
    now = instant("2026-10-24T22:00:00Z")
    read = reset_time("resets 2:30am (Europe/Berlin)", now)
    assert read == instant("2026-10-25T01:30:00Z")


def test_the_first_instant_in_a_message_is_taken() -> None:
    said = "You've hit your session limit · resets 6pm (UTC). Weekly limit resets Mon 9am (UTC)"
    assert reset_time(said, NOW) == instant("2026-09-11T18:00:00Z")


def test_a_field_is_believed_before_prose() -> None:
    said = '{"message": "try again in 2 minutes", "resets_at": 1789200000}'
    assert reset_time(said, NOW) == 1789200000


@given(st.text(max_size=300), st.integers(0, 4_000_000_000))
def test_any_text_is_answered_within_the_bounds(text: str, now: int) -> None:
    for message in (text, f"resets {text}", f"try again in {text}", f'"resets_at": {text}'):
        read = reset_time(message, now, UTC)
        assert read is None or now - STALE_S <= read <= now + AHEAD_S


@given(
    st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.booleans()
)
def test_durations_are_read_in_both_forms(d: int, h: int, m: int, s: int, short: bool) -> None:
    units = ("d", "h", "m", "s") if short else (" days", " hours", " minutes", " seconds")
    text = ("" if short else " ").join(f"{n}{u}" for n, u in zip((d, h, m, s), units, strict=True))
    seconds = d * 86_400 + h * 3600 + m * 60 + s
    assert duration_s(text) == seconds
    assert wait_s(f"Please try again in {text}.", NOW) == pytest.approx(seconds, abs=0.001)


def test_long_texts_do_not_take_long() -> None:
    """Every pattern is bounded: a hostile megabyte is read up to the limit."""
    for piece in ("resets ", "try again in 1 ", "reset: ", "1d ", "retry " + " " * 50, "resume a"):
        assert reset_time(piece * 100_000, NOW, UTC) is None


def test_a_quota_that_comes_back_at_a_stated_time_is_a_rate_limit() -> None:
    """One that does not is unavailable, so that another model is tried."""
    from pydantic_ai import exceptions

    told = "You exceeded your current quota. Please retry in 2h47m56.5s."
    for words, kind, wait in ((told, "rate_limited", 10_076.5), ("used up", "unavailable", None)):
        error = exceptions.ModelQuotaExceededError("m", "", body={"error": {"message": words}})
        failure = of_provider(error, "m")
        assert failure.failure_class == kind
        assert failure.retry_after_s == (wait if wait is None else pytest.approx(wait, abs=0.1))
