"""The inputs of a Lead in their various forms: plans, goals, names."""

from __future__ import annotations

import getpass
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.codec.documents import read_document
from leadhand.codec.values import plain
from leadhand.core.plan.model import Goal, Plan
from leadhand.core.rollback import SUFFIX
from leadhand.errors import Conflict, PlanInvalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc, Json
    from leadhand.ports import Host

RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def as_document(what: Plan | Doc | str | Path) -> Doc:
    """Return a plan in any form as a document. Raise `UsageError` if it is not JSON-like."""
    if isinstance(what, (Plan, dict)):
        doc = what.to_doc() if isinstance(what, Plan) else what
        try:
            return plain(doc, place="plan")  # type: ignore[no-any-return]
        except ValueError as error:
            raise UsageError(f"the plan has a value that JSON does not support: {error}") from None
    return read_document(Path(what))


def as_plain(value: Json, place: str) -> Any:
    """Return a caller's value as JSON-like data. Raise `UsageError`, which names the place."""
    try:
        return plain(value, place=place)
    except ValueError as error:
        raise UsageError(f"a value that JSON does not support: {error}") from None


def refuse_name(host: Host, run_id: str, *, rollback: bool = False) -> None:
    if run_id.endswith(SUFFIX) and not rollback:
        raise UsageError(f"{run_id[:40]!r}: what ends in {SUFFIX} is the rollback of another run")
    if run_id and not RUN_ID.fullmatch(run_id.removesuffix(SUFFIX)):
        raise UsageError(f"{run_id[:40]!r} is no run id: use letters, digits, _ . -, at most 100")
    if run_id and host.store.header(run_id) is not None:
        raise Conflict(f"run {run_id} exists already. Fix: resume it, or use another id")


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise `PlanInvalid` if any finding is an error."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        raise PlanInvalid(errors)


def as_goal(goal: Goal | str, more: Doc) -> Goal:
    """Return a goal, or make one from its text and further fields."""
    if isinstance(goal, Goal):
        return goal
    return Goal(text=goal, **more)


def whoami() -> str:
    """Return the name of this account."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
