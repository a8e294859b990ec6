"""The plan: what is intended, as a document anyone can read, diff, change and approve.

A plan document is JSON-like data (dict, list, str, int, float, bool, None). In the log a
step is kept as that document, exactly as its author wrote it; `Step` and `Plan` are typed
views for Python code. `Plan.from_doc(doc).to_doc()` gives the document back with its values as
written ("15 minutes" stays that); only what merely repeats a default is left out.

The form of the document stands in `core/plan/schema.py`, its meaning in `core/lint/plan.py`.
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
"""The name of the embedded planner, which works from facts."""

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
    """The highest of several risk levels; nothing declared is low."""
    return RISKS[max((RISKS.index(risk) for risk in risks if risk in RISKS), default=0)]


def failure_action_of(word: str | None) -> str | None:
    """The action a word stands for: any word that begins with `abort` aborts."""
    if word is None:
        return None
    if word.startswith("abort"):
        return "abort"
    return word if word in FAILURE_ACTIONS else None


def dependency_id(entry: str | Doc) -> str:
    """The step a `depends_on` entry names; entries are ids or {"step": id, "if": "finished"}."""
    return entry if isinstance(entry, str) else entry["step"]


def dependency_tolerant(entry: str | Doc) -> bool:
    """Whether the dependent may start although that step failed or was skipped."""
    return not isinstance(entry, str) and entry.get("if") == "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One bounded task: who does what, with what, after what, and how we know it is done."""

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
        """Read a step from a document that `core.check` found well formed."""
        return cls(**{key: _as_tuple(key, value) for key, value in doc.items()})

    def to_doc(self) -> Doc:
        """The document again: only what differs from the defaults."""
        return _to_doc(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a person wants."""

    text: str = ""
    want: Sequence[str] = ()
    """Facts that should be true in the end; one may be given as a text."""
    have: Doc = field(default_factory=dict)
    """What is true already, with its data."""
    acceptance: Sequence[str] = ()
    budget: Json = None
    deadline: Json = None
    mode: str | None = None
    """How far ahead to plan: direct, next_step, whole; or auto, which is what is meant if not."""

    def __post_init__(self) -> None:
        """One wanted fact may be given as a text: it is not a list of letters."""
        for name in ("want", "acceptance"):
            value: Any = getattr(self, name)
            if not isinstance(value, tuple):
                several = (value,) if isinstance(value, str) else tuple(value)
                object.__setattr__(self, name, several)

    @classmethod
    def from_doc(cls, doc: str | Doc | None) -> Goal:
        """A goal is a sentence, or an object with more to say."""
        if doc is None or isinstance(doc, str):
            return cls(text=doc or "")
        return cls(**{key: _as_tuple(key, value) for key, value in doc.items()})

    def to_doc(self) -> str | Doc:
        """A plain sentence where there is nothing else to say."""
        doc = _to_doc(self)
        return self.text if set(doc) <= {"text"} else doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A step graph with the goal it serves. `final: false` means: ask me again when done."""

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
    """The planner that may revise it when a step fails or surprises; None: never revised."""
    outlook: Json = None

    @classmethod
    def from_doc(cls, doc: Doc) -> Plan:
        """Read a plan from a document that `core.check` found well formed."""
        rest = {key: value for key, value in doc.items() if key not in ("steps", "$schema")}
        return cls(steps=tuple(Step.from_doc(step) for step in doc["steps"]), **rest)

    def to_doc(self) -> Doc:
        """The document again."""
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
