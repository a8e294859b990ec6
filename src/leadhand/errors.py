"""Every error Leadhand raises on purpose, in one tree.

    LeadhandError                 exit
    ├── UsageError                2   the caller's words or files are off
    │   └── DocumentError         2   a plan that cannot be read at all
    ├── NoPlan                    1   nothing leads to the goal
    ├── PlanInvalid               3   a plan that was read and has findings
    ├── NotAllowed                4   permission, policy, read-only folder
    │   └── NotTrusted            4   code of a folder that was never trusted
    ├── LimitReached              6   a budget or limit was reached
    ├── Conflict                  7   stale plan, second host, version moved
    │   └── Fenced                7   this host no longer owns the database
    ├── StoreError                1   the database said no
    │   ├── StoreFull             1   no space; nothing acknowledged is lost
    │   ├── StoreBroken           1   an fsync or I/O error: the host stops
    │   ├── StoreCorrupt          1   the log does not verify
    │   └── ArchiveMissing        1   the file that holds a run is not there
    ├── Unreachable               1   what hosts the runs does not answer
    │   └── Queued                8   it has the run, and nobody to begin it
    ├── WorkerFailure             –   raised by workers; becomes a report
    │   ├── Transient, RateLimited, Unavailable, Denied, TooComplex,
    │   ├── Ambiguous, NeedsInfo, InvalidOutput
    │   └── Permanent
    └── Bug                       70  ours

A worker raises a `WorkerFailure` to say what kind of failure it met; the class decides
what the engine may do next (retry, another worker, a smaller task, a person).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class LeadhandError(Exception):
    """Base of all errors that Leadhand raises on purpose.

    `exit_code` is the exit code of a command.
    """

    exit_code: ClassVar[int] = 1
    """The exit code of a command that ends with this error."""


class UsageError(LeadhandError):
    """The command, option or file given cannot be used."""

    exit_code = 2


class DocumentError(UsageError):
    """A document that cannot be read: not JSON or YAML, too large, too deep."""

    def __init__(self, place: str, message: str, fix: str = "") -> None:
        self.place = place
        self.message = message
        self.fix = fix
        super().__init__(f"{place}: {message}" + (f" Fix: {fix}" if fix else ""))


class NoPlan(LeadhandError):
    """A planner found no way to the goal; the message says what is missing."""


class PlanInvalid(LeadhandError):
    """A plan with findings; `findings` holds all of them."""

    exit_code = 3

    def __init__(self, findings: Sequence[object]) -> None:
        self.findings = tuple(findings)
        self.done = "nothing was run"
        super().__init__("\n".join(str(finding) for finding in findings) or "the plan is invalid")


class NotAllowed(LeadhandError):
    """The operating system or the policy does not allow it."""

    exit_code = 4


class NotTrusted(NotAllowed):
    """A folder's settings name code or addresses that are not trusted by this account."""


class LimitReached(LeadhandError):
    """A budget or a limit was reached."""

    exit_code = 6


class Conflict(LeadhandError):
    """A conflict with an earlier change: a second host, a newer version, a stale plan."""

    exit_code = 7


class Fenced(Conflict):
    """Another host took over this database; this one must stop."""


class StoreError(LeadhandError):
    """The database could not carry out the request."""


class StoreFull(StoreError):
    """The disk is full. Nothing acknowledged is lost; free some space and resume."""


class StoreBroken(StoreError):
    """The disk failed to write or sync. The host stops rather than guess what was written."""


class StoreCorrupt(StoreError):
    """The stored log does not verify."""


class ArchiveMissing(StoreError):
    """The archive that holds a run is not where it should be. Fix: put its file back."""


class Unreachable(LeadhandError):
    """The host of the runs does not answer. Nothing is lost; repeat the request later."""


class Queued(Unreachable):
    """The run was accepted, and begins when an engine is available.

    Nothing needs to be repeated.
    """

    exit_code = 8


class Bug(LeadhandError):
    """A state that should be impossible."""

    exit_code = 70

    @classmethod
    def behind(cls, error: Exception) -> Bug:
        """Return the bug that an exception of the core indicates."""
        if isinstance(error, Bug):
            return error
        bug = cls(f"the engine failed: {type(error).__name__}: {error}")
        bug.__cause__ = error
        return bug


class WorkerFailure(LeadhandError):
    """A failure a worker reports by raising it. Its class decides the recovery.

    - `message`: what happened, for people.
    - `retry_after_s`: a pause the worker asks for before the next attempt.
    - `effect`: what is known of the outside world: "none" (nothing happened), "done" (it happened
      all the same) or "unknown".
    - `data`: details for the planner and for people.
    - `recommendations`: hints for the planner.
    """

    failure_class: ClassVar[str] = "unavailable"

    def __init__(
        self,
        message: str = "",
        *,
        retry_after_s: float | None = None,
        effect: str = "none",
        data: object = None,
        recommendations: Sequence[str] = (),
    ) -> None:
        self.retry_after_s = retry_after_s
        self.effect = effect
        self.data = data
        self.recommendations = tuple(recommendations)
        super().__init__(message or type(self).__doc__ or type(self).__name__)


class Transient(WorkerFailure):
    """A passing fault: the same call may work soon."""

    failure_class = "transient"


class RateLimited(WorkerFailure):
    """Too many calls; `retry_after_s` says how long to wait."""

    failure_class = "rate_limited"


class Unavailable(WorkerFailure):
    """This tool cannot be used now; another might."""

    failure_class = "unavailable"


class Denied(WorkerFailure):
    """This tool was refused access; another might be allowed."""

    failure_class = "denied"


class TooComplex(WorkerFailure):
    """The task is too large for this worker; smaller ones might do."""

    failure_class = "too_complex"


class Ambiguous(WorkerFailure):
    """The task can be read in more than one way."""

    failure_class = "ambiguous"


class NeedsInfo(WorkerFailure):
    """The worker needs to know something it was not told."""

    failure_class = "needs_info"


class InvalidOutput(WorkerFailure):
    """The result does not have the promised form."""

    failure_class = "invalid_output"


class Permanent(WorkerFailure):
    """Trying again cannot help."""

    failure_class = "permanent"
