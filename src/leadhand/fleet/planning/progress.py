"""The progress of an epic, from the run's view and the notes in its log. Pure.

A task that fails has been through the agents' rungs already: the same conversation, a fresh one
with a handoff, another model. What follows is the planner's half of the ladder, counted for each
task and handed on to whatever takes its place:

    split ─► replan ─► dead letter (a person is asked)

A question of an agent, and files that others changed meanwhile, are no failures of the task: they
have counters of their own, and a person is asked when those are used up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.fleet.status.ladder import CODER

if TYPE_CHECKING:
    from leadhand.core.report import PlannerView, StepView


RUNGS = ("split", "replan")
QUESTIONS_MAX = 2
DRIFTS_MAX = 3
EXAMINER = "examiner"
CHANGELOG = "changelog"
OPEN = frozenset({"waiting", "ready", "backing_off", "running", "undecided", "probing", "asking"})
MOVABLE = frozenset({"waiting", "ready", "backing_off", "asking"})
GONE = frozenset({"failed", "skipped", "cancelled"})
REPLACEABLE = MOVABLE | GONE


class EpicQuestion(msgspec.Struct, omit_defaults=True):
    """A question to a person, and the tasks it is about."""

    about: str
    """dead letter, question, plan"""
    text: str
    tasks: list[str] = []


class EpicNotes(msgspec.Struct, omit_defaults=True):
    """The notes kept from one decision to the next; each decision in the log carries them."""

    main: str = ""
    """Where main was when it last planned."""
    waves: int = 0
    said: str = ""
    """What the planner wants to remember."""
    done: dict[str, str] | None = None
    """The closing words, once it said that nothing is left to do."""
    dropped: list[str] = []
    depth: dict[str, int] = {}
    """For a task: how often its line was planned anew because it failed."""
    roots: dict[str, str] = {}
    """For a task that took another's place: the first of the line."""
    rungs: dict[str, dict[str, int]] = {}
    """The counters, by the first task of a line."""
    asked: list[EpicQuestion] = []
    """What people were asked and have not answered."""
    reds: int = 0
    """How often it was seen that the epic's acceptance does not hold."""
    heard: int = 0
    """How many recommendations of agents it has been told."""
    proposals: int = 0
    usable: int = 0
    looked: list[dict[str, Any]] = []
    """What the planner read and searched before its last answer."""
    predicted: list[str] = []
    """Conflicts that were predicted for the last wave, and that it was told."""

    def root(self, task: str) -> str:
        """Return the first task of its line."""
        return self.roots.get(task, task)

    def count(self, task: str, what: str) -> int:
        """Count one more of `what` for the line of a task; return how many there were before."""
        row = self.rungs.setdefault(self.root(task), {})
        row[what] = row.get(what, 0) + 1
        return row[what] - 1

    def counted(self, task: str, what: str) -> int:
        """Return how many of `what` were counted for the line of a task."""
        return self.rungs.get(self.root(task), {}).get(what, 0)


def read_notes(notes: Any) -> EpicNotes:
    """Return the notes in the log; empty ones where they are of another form."""
    try:
        return msgspec.convert(notes if isinstance(notes, dict) else {}, EpicNotes)
    except msgspec.ValidationError:
        return EpicNotes()


@dataclass(slots=True)
class Matter:
    """Something that wants an answer: a task that failed, asks, or was overtaken."""

    kind: str
    """failed, question, drift, or lost: it cannot be done, since a dependency is gone."""
    step: StepView
    rung: str = ""
    """What is wanted: split, replan, answer, revise, again; empty: nothing is left but a person."""

    @property
    def told(self) -> str:
        """Its own words."""
        return self.step.error.message if self.step.error is not None else self.step.reason


@dataclass(slots=True)
class EpicProgress:
    """An epic, as it stands."""

    tasks: list[StepView] = field(default_factory=list)
    matters: list[Matter] = field(default_factory=list)
    checks: list[StepView] = field(default_factory=list)
    """Looks at the epic's own acceptance, oldest first."""

    @property
    def open(self) -> list[StepView]:
        """Tasks that are not over."""
        return [step for step in self.tasks if step.status in OPEN]

    @property
    def landed(self) -> list[StepView]:
        """Tasks that are on main."""
        return [step for step in self.tasks if step.status == "succeeded"]

    @property
    def reds(self) -> int:
        """Return how often the epic's acceptance did not hold."""
        return sum(step.error is not None for step in self.checks)

    @property
    def check(self) -> StepView | None:
        """Return the last check of the acceptance, or None."""
        return self.checks[-1] if self.checks else None

    def split(self) -> list[Matter]:
        """Take out the matters for which nothing is left but a person."""
        over = [each for each in self.matters if not each.rung]
        self.matters = [each for each in self.matters if each.rung]
        return over

    def waits_for(self, task: str) -> bool:
        """Return whether any step still waits for a task."""
        return any(task in _names(step) for step in self.open)


def standing(view: PlannerView, notes: EpicNotes) -> EpicProgress:
    """Read it."""
    found = EpicProgress()
    settled = {*notes.dropped, *(task for asked in notes.asked for task in asked.tasks)}
    for ident in view.steps:
        step = view.steps[ident]
        if step.worker == EXAMINER:
            found.checks.append(step)
        elif step.worker.partition("@")[0] == CODER:
            found.tasks.append(step)
            if step.status in GONE and ident not in settled:
                found.matters.append(_matter(step, notes))
    return found


def _matter(step: StepView, notes: EpicNotes) -> Matter:
    if step.status != "failed":
        return Matter("lost", step, "again")
    error = step.error
    details = error.details if error is not None and isinstance(error.details, dict) else {}
    if error is not None and error.failure_class == "needs_info":
        left = notes.counted(step.id, "answered") < QUESTIONS_MAX
        return Matter("question", step, "answer" if left else "")
    if details.get("drift"):
        left = notes.counted(step.id, "drift") < DRIFTS_MAX
        return Matter("drift", step, "revise" if left else "")
    depth = notes.depth.get(step.id, 0)
    kind = error.failure_class if error is not None else ""
    if kind in ("permanent", "policy", "budget", "denied"):
        depth = max(depth, RUNGS.index("replan")) if depth < len(RUNGS) else depth
    return Matter("failed", step, RUNGS[depth] if depth < len(RUNGS) else "")


def _names(step: StepView) -> list[str]:
    waits = step.planned.get("depends_on") or ()
    return [each if isinstance(each, str) else str(each.get("step", "")) for each in waits]
