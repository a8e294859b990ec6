"""Reports of workers: from returned values, from exceptions, and as documents.

One table says what an exception means; nothing else in the package reads exception types.
The class decides what may follow (retry, another worker, a smaller task, a person), the
effect whether it may simply be repeated. An exception nobody knows counts as "unavailable":
this tool did not work, another might.
"""

from __future__ import annotations

import math
import socket
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

from leadhand.codec.expressions import evaluate
from leadhand.codec.values import plain
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.report import Effect, Failure, Report
from leadhand.errors import WorkerFailure

MAX_MESSAGE = 2_000
MAX_TRACEBACK_LINES = 12
EFFECTS = ("none", "done", "unknown")
NOTHING = Report()
"""The report of a worker that returned nothing, which is what most of them do most often."""


class ExceptionRule(NamedTuple):
    """The failure class of some types of exceptions."""

    types: tuple[type[BaseException], ...]
    failure_class: str
    effect: Effect = "none"
    effect_if_declared: Effect = "none"
    """The effect for workers that declare effects: the connection may have broken after them."""


RULES: tuple[ExceptionRule, ...] = (
    ExceptionRule((ConnectionRefusedError, socket.gaierror), "transient"),
    ExceptionRule((ConnectionError,), "transient", "none", "unknown"),
    ExceptionRule((TimeoutError, subprocess.TimeoutExpired), "timeout", "unknown", "unknown"),
    ExceptionRule((PermissionError,), "denied"),
    ExceptionRule((FileNotFoundError, ImportError), "unavailable"),
    ExceptionRule((MemoryError, RecursionError), "too_complex"),
    ExceptionRule((BaseException,), "unavailable"),
)
"""The first rule that fits decides."""


def report_of(
    error: BaseException,
    *,
    retry_on: tuple[type[BaseException], ...] = (),
    effects: bool = False,
) -> Report:
    """Return the report with the failure that an exception stands for."""
    if isinstance(error, WorkerFailure):
        return _declared(error)
    if isinstance(error, BaseExceptionGroup):
        return _grouped(error, retry_on, effects)
    if isinstance(error, retry_on):
        failure_class, effect = "transient", RULES[0].effect
    else:
        rule = next(rule for rule in RULES if isinstance(error, rule.types))
        failure_class = rule.failure_class
        effect = rule.effect_if_declared if effects else rule.effect
    text = _text(error)
    name = type(error).__name__
    message = f"{name}: {text}" if text else name
    return Report("failed", error=Failure(failure_class, message, effect, details=_details(error)))


def _declared(error: WorkerFailure) -> Report:
    """Return the report of a failure the worker typed itself; keep its data as far as JSON can."""
    message, details, data = _text(error), None, None
    failure_class = error.failure_class
    if failure_class not in FAILURE_CLASSES:
        message = f"{message} (unknown failure class {failure_class!r})"
        failure_class = "unavailable"
    try:
        data = plain(error.data)
    except ValueError as problem:
        details = {"data_left_out": bounded_text(str(problem))}
    effect = error.effect if error.effect in EFFECTS else "unknown"
    wait = error.retry_after_s
    usable = isinstance(wait, int | float) and math.isfinite(wait) and wait >= 0
    failure = Failure(
        failure_class, message, cast("Effect", effect), wait if usable else None, details
    )
    said = tuple(bounded_text(str(each)) for each in error.recommendations)
    return Report("failed", data, failure, said)


def _grouped(
    group: BaseExceptionGroup[BaseException],
    retry_on: tuple[type[BaseException], ...],
    effects: bool,  # noqa: FBT001
) -> Report:
    """Several at once: their common class if they agree, and the worst of their effects."""
    found = [report_of(each, retry_on=retry_on, effects=effects) for each in _leaves(group)]
    failures = [report.error for report in found if report.error]
    classes = {failure.failure_class for failure in failures}
    first = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    failure = replace(
        first,
        failure_class=first.failure_class if len(classes) == 1 else "unavailable",
        message=first.message + more,
        effect=max((failure.effect for failure in failures), key=EFFECTS.index),
    )
    return replace(found[0], error=failure)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _text(error: BaseException) -> str:
    try:
        return bounded_text(str(error))
    except Exception:  # noqa: BLE001 - an exception that cannot be printed is still a failure
        return "(its message could not be read)"


def _details(error: BaseException) -> dict[str, Any]:
    """Return where an exception happened: the innermost frames, without values of variables."""
    try:
        shown = traceback.TracebackException(
            type(error), error, error.__traceback__, limit=-6, capture_locals=False
        )
        lines = "".join(shown.format(chain=False)).splitlines()[1:-1]
    except Exception:  # noqa: BLE001 - the report matters more than its traceback
        lines = []
    lines = [bounded_text(line, 300) for line in lines if line.strip(" ^~")]
    return {"type": type(error).__name__, "traceback": lines[-MAX_TRACEBACK_LINES:]}


def bounded_text(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return a text that JSON, a log and a terminal can hold: short, no NUL, no lone surrogates."""
    if len(text) > limit:
        text = f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def report_from(value: Any, *, effects: bool = False) -> Report:
    """Return the report for a worker's return value: plain data, or a report of its own."""
    if value is None:
        return NOTHING
    if not isinstance(value, Report):
        try:
            return Report("succeeded", plain(value))
        except ValueError as problem:
            return _unusable(str(problem), effects)
    try:
        return _checked(value)
    except (ValueError, TypeError) as problem:
        return _unusable(str(problem), effects)


def _unusable(problem: str, effects: bool) -> Report:  # noqa: FBT001
    # It ran to its end, so whatever it does outside has been done.
    effect: Effect = "done" if effects else "none"
    return Report.failed("invalid_output", bounded_text(problem), effect=effect)


def _checked(report: Report) -> Report:
    if report.status not in ("succeeded", "failed"):
        raise ValueError(f"status: must be succeeded or failed, not {report.status!r}")
    if not isinstance(report.cost, int | float) or not 0 <= report.cost < math.inf:
        raise ValueError(f"cost: must be a number that is not negative, not {report.cost!r}")
    error = report.error
    if report.status == "failed" and error is None:
        error = Failure("unavailable", "the worker reported a failure and no reason")
    if error is not None:
        error = _checked_failure(error)
    return replace(
        report,
        data=plain(report.data),
        error=error,
        cost=float(report.cost),
        recommendations=tuple(bounded_text(str(each)) for each in report.recommendations),
        artifacts=tuple(str(each) for each in report.artifacts),
        output=bounded_text(str(report.output), 1 << 20),
    )


def _checked_failure(error: Failure) -> Failure:
    if error.failure_class not in FAILURE_CLASSES:
        raise ValueError(f"error.class: {error.failure_class!r} is no failure class")
    if error.effect not in EFFECTS:
        raise ValueError(f"error.effect: must be none, done or unknown, not {error.effect!r}")
    wait = error.retry_after_s
    if wait is not None and not (isinstance(wait, int | float) and 0 <= wait < math.inf):
        raise ValueError(f"error.retry_after_s: must be seconds, not {wait!r}")
    return replace(
        error,
        message=bounded_text(str(error.message)),
        details=plain(error.details, "error.details"),
    )


def report_doc(report: Report) -> dict[str, Any]:
    """Return a report as a JSON document."""
    doc: dict[str, Any] = {"status": report.status, "data": report.data}
    if report.error:
        error = report.error
        doc["error"] = {
            "class": error.failure_class,
            "message": error.message,
            "effect": error.effect,
            "retry_after_s": error.retry_after_s,
            "details": error.details,
        }
    doc["recommendations"] = list(report.recommendations)
    doc["artifacts"] = list(report.artifacts)
    doc["cost"] = report.cost
    return doc


def report_from_doc(doc: Any, *, effects: bool = False) -> Report:
    """Return a report from a document of another program; a malformed one is invalid output."""
    try:
        return _checked(_read(doc))
    except (ValueError, TypeError) as problem:
        return _unusable(f"the report cannot be used: {problem}", effects)


_KEYS = {"status", "data", "error", "recommendations", "artifacts", "cost"}
_ERROR_KEYS = {"class", "message", "effect", "retry_after_s", "details"}


def _read(doc: Any) -> Report:
    if not isinstance(doc, Mapping):
        raise TypeError(f"it must be an object, not a {type(doc).__name__}")
    if unknown := sorted(set(doc) - _KEYS):
        raise ValueError(f"unknown field {unknown[0]!r}")
    error, failure = doc.get("error"), None
    if error is not None:
        if not isinstance(error, Mapping) or not isinstance(error.get("class"), str):
            raise ValueError("error: must be an object with `class` and `message`")
        if unknown := sorted(set(error) - _ERROR_KEYS):
            raise ValueError(f"error: unknown field {unknown[0]!r}")
        failure = Failure(
            error["class"],
            str(error.get("message", "")),
            error.get("effect", "none"),
            error.get("retry_after_s"),
            error.get("details"),
        )
    lists = [doc.get(key) or [] for key in ("recommendations", "artifacts")]
    if not all(isinstance(each, list | tuple) for each in lists):
        raise ValueError("recommendations and artifacts: must be lists of texts")
    said, made = (tuple(map(str, each)) for each in lists)
    status = doc.get("status", "failed" if failure else "succeeded")
    return Report(status, doc.get("data"), failure, said, made, doc.get("cost", 0.0))


# Checks of a result: functions for Python workers, expressions for declared ones.
#
# A check holds when it says True, and only then. One that raises does not hold either; the
# exception goes on to the engine, which says in the verdict why it did not hold.


def holds(check: str | Callable[[Any], Any] | None, name: str, data: Any) -> bool:
    """Return whether a check holds for `data`. Raise `LookupError` if there is no such check."""
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
