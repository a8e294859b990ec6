"""What went wrong, in the core's own words: from a status or a message to a failure class.

Coders say their troubles in prose, and each in its own; what they have in common are the
providers behind them. A status is believed before a message, and a message is searched for the
narrower thing first: a rate limit that speaks of tokens is a rate limit.
"""

from __future__ import annotations

import re

STATUSES = {
    400: "permanent",
    401: "denied",
    402: "budget",
    403: "denied",
    404: "unavailable",
    408: "transient",
    413: "context_overflow",
    429: "rate_limited",
    529: "transient",
}

SAID: tuple[tuple[str, str], ...] = (
    ("budget", r"credit balance|insufficient_quota|billing|exceeded your current quota"),
    ("context_overflow", r"prompt is too long|context[ _-](?:length|window)|maximum context"),
    ("context_overflow", r"ran out of room|input is too long|request_too_large"),
    ("rate_limited", r"rate[ _-]?limit|too many requests|usage limit|quota exceeded|\b429\b"),
    ("denied", r"authenticat|api[ _-]key|unauthori[sz]ed|not logged in|please run /login"),
    ("denied", r"permission_error|oauth|\b40[13]\b"),
    ("transient", r"connection refused|ECONNREFUSED"),
    ("policy", r"usage polic|content[ _-](?:filter|policy)|refus|cyber_policy"),
    ("transient", r"overloaded|timed? ?out|connection|stream (?:disconnected|closed|error)|ECONN"),
    (
        "transient",
        r"\b5\d\d\b|internal server error|bad gateway|unavailable|try again|network|temporar",
    ),
)
_SAID = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in SAID)
_AFTER = re.compile(
    r"(?:retry|try again|available|resets?)[^.\n]{0,40}?\b(?:in|after)\D{0,3}"
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?)?\b",
    re.IGNORECASE,
)
_STATUS = re.compile(r"(?:API Error|status(?: code)?|HTTP)[: ]+(\d{3})\b", re.IGNORECASE)
SCALES = {"ms": 0.001, "mi": 60.0, "m": 60.0, "h": 3600.0, "s": 1.0}


def classify(message: str, status: int | None = None) -> str:
    """The failure class of a trouble; empty if nothing is known about it."""
    if status is None and (found := _STATUS.search(message)):
        status = int(found[1])
    of_message = next((name for name, pattern in _SAID if pattern.search(message)), "")
    if status is None:
        return of_message
    of_status = STATUSES.get(status) or ("transient" if status >= 500 else "")
    # A status says who is at fault; what exactly, only the message knows.
    narrower = {
        400: ("context_overflow", "policy", "budget", "denied"),
        403: ("budget", "policy"),
        404: ("denied",),
        429: ("budget",),
    }
    return of_message if of_message in narrower.get(status, ()) else of_status or of_message


def retry_after(message: str) -> float | None:
    """The seconds that a message says to wait."""
    found = _AFTER.search(message)
    if not found:
        return None
    unit = (found[2] or "s").lower()
    scale = SCALES.get(unit) or SCALES.get(unit[:2]) or SCALES[unit[0]]
    if unit.startswith("milli"):
        scale = 0.001
    return float(found[1]) * scale
