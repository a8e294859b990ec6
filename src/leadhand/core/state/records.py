"""Records of a run's state besides its steps: planner, pending revision, permits, questions."""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core import events as ev


class Tally(msgspec.Struct):
    """Totals of model calls."""

    calls: int = 0
    """The number of calls."""
    failed: int = 0
    """The number of failed calls."""
    input: int = 0
    """Input tokens."""
    output: int = 0
    """Output tokens."""
    cached: int = 0
    """Input tokens read from the provider's cache."""
    written: int = 0
    """Input tokens written into the provider's cache."""
    cost: float = 0.0
    """The cost, in US dollars."""

    def add(self, call: ev.ModelCalled) -> None:
        """Add one call."""
        self.calls += 1
        self.failed += bool(call.failure)
        self.input += call.input
        self.output += call.output
        self.cached += call.cached
        self.written += call.written
        self.cost += call.cost


class ModelCalls(msgspec.Struct):
    """All calls of models of a run."""

    by_model: dict[str, Tally] = {}
    """By tier and model, as `tier model`."""
    by_step: dict[str, Tally] = {}
    """By step; the planner's calls are under the empty name."""


class PlannerState(msgspec.Struct):
    """The state of the dialogue with the planner."""

    calls: int = 0
    epoch: int = 0
    """The epoch of the call in flight, or 0."""
    deadline: int = 0
    due: str = "start"
    """Why it should be asked, or empty."""
    answer: dict[str, Any] | None = None
    """An answer that was received and not yet acted on."""
    rounds: int = 0
    """Refused or failed answers in a row."""
    findings: list[str] = []
    notes: Any = None
    surprising: list[str] = []
    """Surprising successes that it has not looked at yet."""
    proposed: int = 0
    """The number of the last proposed revision, by any author."""
    handed: str = ""
    """The planner that a person handed the run over to, if any."""


class Revision(msgspec.Struct):
    """A proposed delta that is not approved yet."""

    number: int
    hash: str
    add: list[dict[str, Any]]
    cancel: list[str]
    final: bool
    author: str
    risk: str
    people: int = 1
    """The number of different people who must approve it."""
    approvals: list[ev.ApprovalGiven] = []
    given: list[int] = []
    """When each approval was given, in UTC microseconds."""
    examined: bool = True
    """Whether the automatic reviewers have examined it, if there are any."""
    drop: dict[str, str] = {}
    """Steps that it drops, each with the reason."""
    because: str = ""


class Comment(msgspec.Struct):
    """A comment of a reviewer, and how the next revision answered it."""

    id: str
    step: str
    text: str
    actor: str
    revision: int
    """The revision that it is about."""
    hash: str
    """The hash of that revision."""
    at: int
    doc: dict[str, Any] | None = None
    """The step as it was then."""
    answer: ev.CommentAnswer | None = None
    answered_in: int = 0
    """The revision that answers it; 0 while it is open."""


class Permits(msgspec.Struct):
    """Standing permissions of a run."""

    envelope: dict[str, Any] | None = None
    """The limits within which revisions need no new approval, if a person set them."""
    approved_by: str = ""
    untrusted: frozenset[str] = frozenset()
    """Workers whose results are untrusted."""
    tainted: bool = False
    """Whether an untrusted result was read."""
    voided: set[int] = set()
    """Entries of the log found invalid when the run was resumed."""


class Question(msgspec.Struct):
    """An open question to a person."""

    id: str
    kind: str
    text: str
    choices: list[str]
    step: str
    at: int
    revision: int = 0
    default: str = ""
    """The answer used if none is given by `until`."""
    until: int = 0
    facts: list[str] = []
    """The facts a person is asked to give."""
    people: int = 1
    """The number of different people who must approve."""
    approvals: list[ev.ChangeApproved] = []
    """Approvals of its protected change so far."""
    releases: list[ev.ReleaseGiven] = []
    """Releases of the steps it holds so far."""


class EndSnapshot(msgspec.Struct):
    """The steps and questions cut short by the end of a run, in case a person reopens it."""

    steps: dict[str, tuple[str, str]] = {}
    """Steps settled by the end: their earlier status and reason."""
    questions: dict[str, Question] = {}
    """Questions that were open."""

    def given_up(self, ident: str, question: str) -> bool:
        """Return whether a person ended the run instead of answering about a step."""
        status, _ = self.steps.get(ident, ("", ""))
        return status == "asking" and question not in self.questions
