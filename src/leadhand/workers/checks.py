"""Checks of a result: functions for Python workers, expressions for declared ones.

A check holds when it says True, and only then. One that raises does not hold either; the
exception goes on to the engine, which says in the verdict why it did not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leadhand.codec.expressions import evaluate


def holds(check: str | Callable[[Any], Any] | None, name: str, data: Any) -> bool:
    """Whether a check holds for a result's data; LookupError when there is no such check."""
    if check is None:
        raise LookupError(f"there is no check {name!r}" if name else "there is no result check")
    if not isinstance(check, str):
        return check(data) is True
    return evaluate(
        check,
        {
            "data": data,
            "status": "succeeded",
            "error": None,
            "cost": 0.0,
            "artifacts": [],
            "recommendations": [],
        },
    )
