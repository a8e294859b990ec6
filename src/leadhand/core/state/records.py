"""What a run's state remembers besides its steps: the planner, a pending revision, questions."""

from __future__ import annotations

from typing import Any

import msgspec

from leadhand.core import events as ev


class Tally(msgspec.Struct):
    """What calls of models come to."""

    calls: int = 0
    failed: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    cost: float = 0.0

    def add(self, call: ev.ModelCalled) -> None:
        """One more."""
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
    """The planner's are under the empty name."""


class PlannerState(msgspec.Struct):
    """Where the conversation with the planner stands."""

    calls: int = 0
    epoch: int = 0
    """The epoch of the call in flight, or 0."""
    deadline: int = 0
    due: str = "start"
    """Why it should be asked, or empty."""
    answer: dict[str, Any] | None = None
    """An answer that was given and not yet acted on."""
    rounds: int = 0
    """Refused or failed answers in a row."""
    findings: list[str] = []
    notes: Any = None
    surprising: list[str] = []
    """Steps that succeeded otherwise than expected, and that it has not looked at yet."""
    proposed: int = 0
    """The number of the last revision that was proposed, by whomever."""
    handed: str = ""
    """The planner that a person handed the run over to, if one did."""


class Revision(msgspec.Struct):
    """A proposed delta that nobody has let through yet."""

    number: int
    hash: str
    add: list[dict[str, Any]]
    cancel: list[str]
    final: bool
    author: str
    risk: str
    people: int = 1
    """How many different ones must allow it."""
    approvals: list[ev.ApprovalGiven] = []
    given: list[int] = []
    """When each of these was given, in UTC microseconds."""
    examined: bool = True
    """Whether the automatic reviewers have looked, if there are any."""
    drop: dict[str, str] = {}
    """Steps that it gives up by name, each with the reason."""
    because: str = ""


class Permits(msgspec.Struct):
    """What a run may do without asking."""

    envelope: dict[str, Any] | None = None
    """What revisions may do without asking again, once a person drew it."""
    approved_by: str = ""
    untrusted: frozenset[str] = frozenset()
    """Workers whose results come from outside."""
    tainted: bool = False
    """Whether any such result was read."""
    voided: set[int] = set()
    """Entries of the log that were found not to hold when the run was taken up."""


class Question(msgspec.Struct):
    """Something that waits for a person."""

    id: str
    kind: str
    text: str
    choices: list[str]
    step: str
    at: int
    revision: int = 0
    default: str = ""
    """What counts as the answer when nobody gives one by `until`."""
    until: int = 0
    facts: list[str] = []
    """What a person is asked to give."""
    people: int = 1
    """How many different people must approve, where that is asked for."""
    approvals: list[ev.ChangeApproved] = []
    """Approvals of the change that it is about, while more are needed."""
    releases: list[ev.ReleaseGiven] = []
    """Releases of what it holds, while more are needed."""


class EndSnapshot(msgspec.Struct):
    """What the end of a run cut short, should a person take that end back."""

    steps: dict[str, tuple[str, str]] = {}
    """Steps that it settled: how they stood, and why."""
    questions: dict[str, Question] = {}
    """Questions that were open."""

    def given_up(self, ident: str, question: str) -> bool:
        """Whether a person ended the run rather than say what becomes of a step."""
        status, _ = self.steps.get(ident, ("", ""))
        return status == "asking" and question not in self.questions
