"""The filters of lists of runs, as people write them: for `leadhand ls` and `GET /runs`."""

from __future__ import annotations

import csv
import io
import re
import time
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from leadhand.core.durations import seconds
from leadhand.core.rerun import LABEL_MAX, RERUN_LABEL, rerun_label
from leadhand.core.views.totals import DAY_US
from leadhand.core.wording import shown
from leadhand.errors import UsageError
from leadhand.ports import RunQuery
from leadhand.stores.run_list import SORTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.app.documents import RunRow

DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
ORDERS = tuple(f"{sign}{name}" for name in SORTS for sign in ("-", ""))
"""The orders of a list; `-created` is the newest first."""
LABELS_MAX = 20
"""The most labels of a run, beside `rerun_of`."""
CSV_COLUMNS = (
    "run",
    "status",
    "goal",
    "plan",
    "library",
    "actor",
    "environment",
    "labels",
    "created",
    "ended",
    "duration",
    "steps",
    "succeeded",
    "failed",
    "waiting",
    "cost",
    "money",
    "origin",
    "reason",
)
"""The columns of a list of runs as CSV."""


def run_query(  # noqa: PLR0913 - every filter that a list has
    *,
    status: Iterable[str] = (),
    text: str | None = None,
    plan: str | None = None,
    actor: str | None = None,
    label: str | None = None,
    environment: str | None = None,
    start: str | None = None,
    end: str | None = None,
    waiting: bool = False,
    sort: str = "-created",
    cursor: str | None = None,
    limit: int = 50,
) -> RunQuery:
    """Return the query for filters as people write them.

    `start` and `end` are dates, both included, instants, or durations ago (`7d`). Raise
    `UsageError` for what is none of these, or an unknown order.
    """
    if sort not in ORDERS:
        raise UsageError(f"unknown order {shown(sort)}. Fix: one of {', '.join(ORDERS)}")
    return RunQuery(
        status=tuple(status),
        text=text or "",
        plan=plan or "",
        actor=actor or "",
        label=label or "",
        environment=environment or "",
        since=moment(start) if start else 0,
        until=(moment(end, last=True) or 1) if end else 0,  # 0: no end
        waiting=waiting,
        sort=sort,
        cursor=cursor or "",
        limit=limit,
    )


def moment(text: str, *, last: bool = False) -> int:
    """Return an instant in UTC microseconds: of a date, an instant, or a duration ago.

    A date is one of UTC and means its beginning, with `last` its end. Raise `UsageError` for
    other texts.
    """
    try:
        if DATE.fullmatch(text):
            day = date.fromisoformat(text)
            start = _microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))
            return start + DAY_US if last else start
        if text[:4].isdecimal() and "-" in text:
            return _microseconds(datetime.fromisoformat(text))
        return max(0, time.time_ns() // 1000 - int(seconds(text) * 1_000_000))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{shown(text)} is neither a date, an instant nor a duration. "
            "Fix: write 2026-11-17, 2026-11-17T09:00+00:00, 7d or 12h."
        ) from None


def _microseconds(found: datetime) -> int:
    if found.tzinfo is None:
        raise ValueError("an instant without a time zone")
    return int(found.timestamp() * 1_000_000)


def run_labels(given: Iterable[str], rerun_of: str = "") -> tuple[str, ...]:
    """Return labels as a run records them: sorted, each once. Raise `UsageError` for a bad one.

    `rerun_of` is the run that is repeated, if any. Only its re-runs have a label `rerun_of`.
    """
    found = sorted(set(given))
    reserved = rerun_label(rerun_of) if rerun_of else ""
    for label in found:
        name, equals, value = label.partition("=")
        if name == RERUN_LABEL and label != reserved:
            raise UsageError(
                f"label {shown(label)}: {RERUN_LABEL} is given to re-runs only, by `leadhand rerun`"
            )
        fine = re.fullmatch(r"[A-Za-z0-9][\w./-]*", name, re.ASCII) and (value or not equals)
        if not fine or len(label) > LABEL_MAX or not label.isprintable():
            raise UsageError(
                f"label {shown(label)}: write NAME or NAME=VALUE, at most {LABEL_MAX} characters; "
                "a name has letters, digits, and . _ - / after the first"
            )
    names = [label.partition("=")[0] for label in found]
    if len(set(names)) < len(names):
        raise UsageError("a label is given with two values")
    if len(found) - (reserved in found) > LABELS_MAX:
        raise UsageError(f"a run has at most {LABELS_MAX} labels")
    return tuple(found)


def as_csv(rows: Iterable[RunRow]) -> str:
    """Return runs as CSV with a header line."""
    return csv_table(CSV_COLUMNS, rows)


def csv_table(columns: Sequence[str], rows: Iterable[object]) -> str:
    """Return fields of `rows` as CSV with a header line.

    Texts that a spreadsheet would compute are quoted.
    """
    out = io.StringIO(newline="")
    made = csv.writer(out, lineterminator="\r\n")
    made.writerow(columns)
    for row in rows:
        made.writerow([_cell(getattr(row, name)) for name in columns])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (list, tuple)):
        value = " ".join(map(str, value))
    text = value if isinstance(value, str) else ""  # null, or not said
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
