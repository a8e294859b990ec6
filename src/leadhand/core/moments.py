"""Moments in microseconds, as machines read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(at: int) -> str:
    """A moment for machines."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="microseconds")
