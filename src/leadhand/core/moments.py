"""Moments in microseconds, as machines and people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(at: int) -> str:
    """A moment for machines."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="microseconds")


def utc(at: int) -> str:
    """A moment for people who may be in different places: `2026-11-20 02:00:00 UTC`."""
    return f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
