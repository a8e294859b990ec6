"""Every error of a code host, in one tree.

    ForgeError                    exit
    ├── ForgeTransient            1   passing trouble: repeat at `retry_at`
    │   └── ForgeRateLimited      6   a limit of the host: repeat at `retry_at`, not before
    ├── ForgeRefused              4   the token is wrong, or lacks a right that the message names
    ├── ForgeNotFound             1   no such repository, issue, pull request or commit
    ├── ForgeConflict             7   the host's state does not allow it; `reason` says why
    ├── ForgeInvalid              1   the request was not accepted, or the answer cannot be read
    └── ForgeNotOffered           2   this kind of host does not have it

Each message names the host, the operation and the fix. No message holds a token.

A write that raises `ForgeTransient` may have happened. Repeating it with the same key is always
safe: the client looks for what the earlier try left before it writes.
"""

from __future__ import annotations

from typing import Literal

from leadhand.errors import LeadhandError

ConflictReason = Literal[
    "head_moved", "conflicts", "blocked", "behind", "draft", "closed", "reopened", "other"
]


class ForgeError(LeadhandError):
    """A code host did not do what was asked.

    - `host`: the name of the host.
    - `operation`: what was asked, such as "open a pull request".
    """

    def __init__(self, host: str, operation: str, text: str) -> None:
        self.host = host
        self.operation = operation
        super().__init__(f"{host}: cannot {operation}: {text}")


class ForgeTransient(ForgeError):
    """Passing trouble. Repeat the operation at `retry_at`, in seconds since 1970."""

    def __init__(self, host: str, operation: str, text: str, retry_at: float) -> None:
        self.retry_at = retry_at
        super().__init__(host, operation, text)


class ForgeRateLimited(ForgeTransient):
    """A limit of the host is reached until `retry_at`; no request is sent before."""

    exit_code = 6


class ForgeRefused(ForgeError):
    """The host does not allow it; the message names the missing right."""

    exit_code = 4


class ForgeNotFound(ForgeError):
    """There is no such thing, or the token may not see it."""


class ForgeConflict(ForgeError):
    """The state on the host does not allow it; repeating it as it is cannot help."""

    exit_code = 7

    def __init__(self, host: str, operation: str, text: str, reason: ConflictReason) -> None:
        self.reason: ConflictReason = reason
        super().__init__(host, operation, text)


class ForgeInvalid(ForgeError):
    """The host did not accept the request, or answered with what cannot be read."""


class ForgeNotOffered(ForgeError):
    """The host has no such thing."""

    exit_code = 2
