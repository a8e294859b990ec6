"""Errors as RFC 9457 problem documents: the problem, its place, and the fix."""

from __future__ import annotations

import http
import re
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.lint.findings import Finding, FindingRow
from leadhand.errors import (
    ArchiveMissing,
    Bug,
    Conflict,
    DocumentError,
    Fenced,
    LeadhandError,
    LimitReached,
    NoPlan,
    NotAllowed,
    PlanInvalid,
    StoreBroken,
    StoreCorrupt,
    StoreFull,
    Unreachable,
    UsageError,
)
from leadhand.server.documents import ProblemDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.core.plan.model import Doc

MEDIA = "application/problem+json"
RETRY_S = 2
"""The default of Retry-After, in seconds."""

STATUS: tuple[tuple[type[LeadhandError], int], ...] = (
    (PlanInvalid, 422),
    (NoPlan, 422),
    (DocumentError, 422),
    (UsageError, 422),
    (NotAllowed, 403),
    (LimitReached, 409),
    (Fenced, 503),
    (Conflict, 409),
    (StoreFull, 503),
    (StoreBroken, 503),
    (StoreCorrupt, 409),
    (ArchiveMissing, 409),
    (Unreachable, 503),
    (Bug, 500),
)


class RequestRefused(Exception):
    """A refused request, and why."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind or _kind(status)
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("Retry-After", str(RETRY_S))
        self.more = more

    def document(self) -> ProblemDocument:
        """Return the problem document."""
        return ProblemDocument(
            type=f"urn:leadhand:problem:{self.kind}",
            title=title_of(self.status),
            status=self.status,
            detail=self.detail,
            **self.more,
        )

    def body(self) -> bytes:
        """Return the problem document in bytes."""
        return msgspec.json.encode(self.document())


def title_of(status: int) -> str:
    """Return the phrase of an HTTP status."""
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _kind(status: int) -> str:
    return title_of(status).lower().replace(" ", "-").replace("'", "")


def missing(what: str) -> RequestRefused:
    """Return the refusal for something that does not exist."""
    return RequestRefused(404, what)


def refusal_of(error: Exception) -> RequestRefused:
    """Return the refusal for an error; a bug of ours reveals no details."""
    if isinstance(error, RequestRefused):
        return error
    if not isinstance(error, LeadhandError):
        return RequestRefused(500, "internal error; see the server's log", kind="bug")
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    kind = "".join(f"-{c.lower()}" if c.isupper() else c for c in type(error).__name__)
    message, _, fix = without_flags(str(error)).partition(" Fix: ")
    more: Doc = {"fix": fix} if fix else {}
    if isinstance(error, PlanInvalid):
        more["findings"] = [finding_document(each) for each in error.findings]
        number = len(error.findings)
        message = f"the plan has {number} error{'s' if number != 1 else ''}; nothing was run"
    return RequestRefused(status, message, kind=kind.lstrip("-"), **more)


def finding_document(finding: Any) -> FindingRow:
    """Return a finding as lint documents it; one that came through the socket is only a text."""
    if isinstance(finding, Finding):
        row = finding.document()
        row.fix = without_flags(row.fix)
        return row
    return FindingRow(rule="", level="error", place="", message=str(finding), fix="")


_FLAG = re.compile(r"--(want|have|mode|planner|budget|context|review)\b")
_SET = re.compile(r"--set ([\w.-]+)=")


def without_flags(text: str) -> str:
    """Return a message with the fields of a request in place of the options of `leadhand run`."""
    if "leadhand " in text:
        return text  # a command that is meant
    return _SET.sub(r"`params` \1=", _FLAG.sub(r"`\1`", text))
