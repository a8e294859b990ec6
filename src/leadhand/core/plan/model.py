"""The plan: intended work as a document that can be read, compared, changed and approved.

A plan document is JSON-like data (dict, list, str, int, float, bool, None). The log keeps each step
as the document its author wrote; `Step` and `Plan` are typed views for Python code.
`Plan.from_doc(doc).to_doc()` returns the document with its values as written ("15 minutes" stays
that text) and without fields that repeat a default.

`core/plan/schema.py` defines the form of the document, `core/lint/plan.py` checks its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Json = Any
"""JSON-like data: None, bool, int, float, str, list, dict with string keys."""

Doc = dict[str, Any]

Risk = Literal["low", "medium", "high", "critical"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")

MODES = ("auto", "direct", "next_step", "whole")

GOAL_PLANNER = "goal"
"""The name of the embedded planner that plans from facts."""

FAILURE_ACTIONS = ("abort", "rollback", "continue", "replan", "escalate")

FAILURE_CLASSES = (
    "transient",
    "rate_limited",
    "timeout",
    "lost",
    "unavailable",
    "denied",
    "too_complex",
    "context_overflow",
    "ambiguous",
    "invalid_output",
    "criteria_unmet",
    "needs_info",
    "permanent",
    "policy",
    "budget",
)


def worst(*risks: str | None) -> Risk:
    """Return the highest of several risk levels; low if none is declared."""
    return RISKS[max((RISKS.index(risk) for risk in risks if risk in RISKS), default=0)]


def failure_action_of(word: str | None) -> str | None:
    """Return the failure action for a word of a plan; any word that begins with `abort` aborts."""
    if word is None:
        return None
    if word.startswith("abort"):
        return "abort"
    return word if word in FAILURE_ACTIONS else None


def dependency_id(entry: str | Doc) -> str:
    """Return the step id of a `depends_on` entry: an id, or {"step": id, "if": "finished"}."""
    return entry if isinstance(entry, str) else entry["step"]


def dependency_tolerant(entry: str | Doc) -> bool:
    """Return whether the dependent step may start although this one failed or was skipped."""
    return not isinstance(entry, str) and entry.get("if") == "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One bounded task: a worker with its action and parameters, dependencies and success criteria.

    The fields are those of a step in a plan document; docs/reference/plans.md describes each one.
    """

    id: str
    worker: str
    action: str = ""
    description: str = ""
    parameters: Doc = field(default_factory=dict)
    depends_on: tuple[Json, ...] = ()
    success_criteria: Json = None
    failure_action: str | None = None
    expect: Json = None
    retry: Json = None
    timeout: Json = None
    alternatives: tuple[str, ...] = ()
    not_before: str | None = None
    window: Json = None
    undo: Json = None
    risk_level: str | None = None
    effects: tuple[str, ...] | None = None
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    idempotent: bool | None = None
    uses: Json = None
    needs: Json = None
    gives: Json = None
    drops: Json = None
    est: Json = None
    tier: str | None = None
    context: Json = None
    supersedes: str | None = None
    because: str = ""

    @classmethod
    def from_doc(cls, doc: Doc) -> Step:
        """Return the step of the document `doc`, which lint found well formed."""
        return cls(**{key: _as_tuple(key, value) for key, value in doc.items()})

    def to_doc(self) -> Doc:
        """Return the step as a document, without fields that have their default value."""
        return _to_doc(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal: the outcome a person wants, from which a planner makes a plan.

    `text` says it in words, `acceptance` lists criteria for the result, `budget` caps the cost, and
    `deadline` is an instant or a duration.
    """

    text: str = ""
    want: Sequence[str] = ()
    """Facts that must be true at the end; a single fact may be given as a string."""
    have: Doc = field(default_factory=dict)
    """Facts that are already true, with their data."""
    acceptance: Sequence[str] = ()
    budget: Json = None
    deadline: Json = None
    mode: str | None = None
    """How far ahead to plan: direct, next_step, whole, or auto (the default)."""

    def __post_init__(self) -> None:
        """Turn a single string into a list of one."""
        for name in ("want", "acceptance"):
            value: Any = getattr(self, name)
            if not isinstance(value, tuple):
                several = (value,) if isinstance(value, str) else tuple(value)
                object.__setattr__(self, name, several)

    @classmethod
    def from_doc(cls, doc: str | Doc | None) -> Goal:
        """Return the goal of `doc`: a sentence, or an object with the fields of `Goal`."""
        if doc is None or isinstance(doc, str):
            return cls(text=doc or "")
        return cls(**{key: _as_tuple(key, value) for key, value in doc.items()})

    def to_doc(self) -> str | Doc:
        """Return the goal as a document: a plain sentence if only `text` is set."""
        doc = _to_doc(self)
        return self.text if set(doc) <= {"text"} else doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A step graph with the goal it serves.

    `final=False` means that the planner is asked again when all steps are done. The fields are
    those of a plan document; docs/reference/plans.md describes each one.
    """

    steps: tuple[Step, ...]
    plan_id: str = ""
    goal: Json = ""
    final: bool = True
    description: str = ""
    params: Doc = field(default_factory=dict)
    rollback_plan: Json = None
    estimated_duration: Json = None
    risk_level: str | None = None
    budget: Json = None
    deadline: Json = None
    envelope: Json = None
    resources: Doc = field(default_factory=dict)
    limits: Doc = field(default_factory=dict)
    mode: str | None = None
    consult: str | None = None
    base: str | None = None
    planner: str | None = None
    """The planner that may revise the plan when a step fails or surprises; None: never revised."""
    outlook: Json = None

    @classmethod
    def from_doc(cls, doc: Doc) -> Plan:
        """Return the plan of the document `doc`, which lint found well formed."""
        rest = {key: value for key, value in doc.items() if key not in ("steps", "$schema")}
        return cls(steps=tuple(Step.from_doc(step) for step in doc["steps"]), **rest)

    def to_doc(self) -> Doc:
        """Return the plan as a document, without fields that have their default value."""
        doc = _to_doc(self)
        doc["steps"] = [step.to_doc() for step in self.steps]
        return doc


_TUPLES = frozenset(
    {"depends_on", "alternatives", "effects", "reads", "writes", "want", "acceptance"}
)


def _as_tuple(key: str, value: Json) -> Json:
    return tuple(value) if key in _TUPLES and isinstance(value, list) else value


def _to_doc(thing: Step | Goal | Plan) -> Doc:
    doc: Doc = {}
    for each in fields(thing):
        value = getattr(thing, each.name)
        if isinstance(value, tuple):
            value = list(value)
        if value is None or value in ("", [], {}) or (each.name == "final" and value is True):
            continue
        doc[each.name] = value
    return doc
