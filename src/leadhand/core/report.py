"""Reports of workers and decisions of planners.

A worker returns plain data or a `Report`. A planner returns one of five decisions. Both are frozen
dataclasses, so that msgspec and pydantic accept them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from leadhand.core.catalog import Catalog
from leadhand.core.plan.model import Doc, Json, Plan, Step

Status = Literal["succeeded", "failed"]
Effect = Literal["none", "done", "unknown"]

TOO_LATE = "the planner took too long"
"""The finding given to a planner whose last call timed out."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: its class decides which recovery may follow."""

    failure_class: str
    """The failure class, which decides the recovery: see docs/reference/recovery.md."""
    message: str
    """What happened, for people."""
    effect: Effect = "none"
    """Whether the attempt changed anything: "none", "done" or "unknown"."""
    retry_after_s: float | None = None
    """The pause that the worker asks for before the next attempt, in seconds."""
    details: Json = None
    """Further data about the failure, for the planner."""
    change: Doc | None = None
    """A change that a person must approve before it counts: see
    `core/review/protected_change.py`."""
    exit_read_by: tuple[str, ...] | None = None
    """The worker's checks that read the exit code, "" for the check of every result.

    Set only by `workers/commands/worker.py`, where the exit code has no meaning of its own and
    criteria may judge it. A report written by a worker cannot carry it.
    """


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's account of one attempt. It is a claim until the engine has verified it.

    `status` is "succeeded", or "failed" with an `error`; `data` is the result for later steps,
    `recommendations` are hints for the planner. `cost` counts against the budget, in the cost
    units that the worker declares; coding agents report US dollars.
    """

    status: Status = "succeeded"
    data: Json = None
    error: Failure | None = None
    recommendations: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    """References of files that were stored as artifacts."""
    cost: float = 0.0
    output: str = ""
    """The printed output of the worker, shown by `leadhand logs RUN STEP`."""

    @classmethod
    def failed(
        cls,
        failure_class: str,
        message: str,
        *,
        effect: Effect = "none",
        retry_after_s: float | None = None,
        data: Json = None,
        recommendations: tuple[str, ...] = (),
        cost: float = 0.0,
    ) -> Report:
        """Return the report of a failure.

        `failure_class` is one of the failure classes (docs/reference/recovery.md) and decides the
        recovery;
        `message` is for people; `effect` says whether the attempt changed anything;
        `retry_after_s` asks for a pause before the next attempt; `data`, `recommendations` and
        `cost` are those of the report.
        """
        failure = Failure(failure_class, message, effect, retry_after_s)
        return cls("failed", data, failure, recommendations, cost=cost)


@dataclass(frozen=True, slots=True)
class Propose:
    """Propose the next steps. `final` says that none follow when they are done."""

    steps: tuple[Step | Doc, ...]
    """The proposed steps, as `Step` objects or documents."""
    final: bool = False
    outlook: tuple[Step | Doc | str, ...] = ()
    """Expected later steps, as steps or texts; shown, never executed."""
    because: str = ""
    """The reason, shown to people."""
    cancel: tuple[str, ...] = ()
    """Steps not yet started that are removed; `because` is the reason."""
    notes: Json = None
    """The planner's own notes, which it gets back in the next view."""
    drop: Mapping[str, str] = field(default_factory=dict)
    """Abandoned steps (failed, skipped or not started), each with the reason."""
    answers: Sequence[Doc] = ()
    """Answers to the reviewers' comments in the view, one for each:
    `{"comment": "c1", "addressed": True, "reason": "…"}`."""

    @classmethod
    def plan(cls, plan: Plan, because: str = "") -> Propose:
        """Return a proposal of the whole `plan`. `because` is the reason shown to people."""
        return cls(steps=plan.steps, final=plan.final, because=because)


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a person; the answer is in the view when the planner is asked again."""

    question: str
    """The question to the person."""
    choices: tuple[str, ...] = ()
    """The possible answers; without them, any text."""
    notes: Json = None
    """The planner's own notes, which it gets back in the next view."""
    default: str = ""
    """The answer used if none is given within `within_s` seconds."""
    within_s: float = 0.0
    """The time after which `default` is used, in seconds; 0: wait for an answer."""
    facts: tuple[str, ...] = ()
    """The facts an answer `give` must contain; other data is refused."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Finish the run: the goal is reached; `result` becomes the run's result once verified.

    Accepted only when every step of the plan has succeeded, was replaced by one that succeeded, is
    tolerated, or is abandoned in `drop` (step id to reason).
    """

    result: Json = None
    because: str = ""
    """The reason, shown to people."""
    notes: Json = None
    """The planner's own notes, kept in the log."""
    drop: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Give up: the goal cannot be reached."""

    reason: str
    """Why the goal cannot be reached."""
    notes: Json = None
    """The planner's own notes, kept in the log."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait: add nothing now, and ask again after a change.

    Accepted while an attempt, a retry, a timer or a question is open. A proposal without steps that
    is not final means the same.
    """

    because: str = ""
    """The reason, shown to people."""
    notes: Json = None
    """The planner's own notes, which it gets back in the next view."""


Decision = Propose | Ask | Finish | GiveUp | Wait


def decision_doc(decision: Decision) -> Doc:
    """Return a decision as the document that is logged."""
    notes = {} if decision.notes is None else {"notes": decision.notes}
    match decision:
        case Propose():
            doc: Doc = {"kind": "propose", "steps": [_step_doc(step) for step in decision.steps]}
            doc["final"] = decision.final
            if decision.outlook:
                doc["outlook"] = [_step_doc(step) for step in decision.outlook]
            if decision.cancel:
                doc["cancel"] = list(decision.cancel)
            if decision.because:
                doc["because"] = decision.because
            if decision.answers:
                doc["answers"] = list(decision.answers)
            return doc | _dropped(decision.drop) | notes
        case Ask():
            late = {"default": decision.default, "within_s": decision.within_s}
            return {
                "kind": "ask",
                "question": decision.question,
                "choices": list(decision.choices),
                **(late if decision.within_s > 0 else {}),
                **({"facts": list(decision.facts)} if decision.facts else {}),
            } | notes
        case Finish():
            return {
                "kind": "finish",
                "result": decision.result,
                "because": decision.because,
                **_dropped(decision.drop),
            } | notes
        case GiveUp():
            return {"kind": "give_up", "reason": decision.reason} | notes
        case Wait():
            return {"kind": "wait", "because": decision.because} | notes


def _dropped(drop: Mapping[str, str]) -> Doc:
    return {"drop": {str(step): str(reason) for step, reason in drop.items()}} if drop else {}


def _step_doc(step: Any) -> Any:
    return step.to_doc() if isinstance(step, Step) else step


class _Answer(msgspec.Struct):
    comment: str
    addressed: bool
    reason: str = ""


class _Proposal(msgspec.Struct, tag_field="kind", tag="propose"):
    steps: list[Doc]
    outlook: list[Doc | str] = []
    cancel: list[str] = []
    drop: dict[str, str] = {}
    answers: list[_Answer] = []


class _Question(msgspec.Struct, tag_field="kind", tag="ask"):
    choices: list[str | int | float | bool] = []
    facts: list[str] = []
    within_s: float = 0.0


class _Finished(msgspec.Struct, tag_field="kind", tag="finish"):
    drop: dict[str, str] = {}


class _GivenUp(msgspec.Struct, tag_field="kind", tag="give_up"):
    pass


class _Waiting(msgspec.Struct, tag_field="kind", tag="wait"):
    pass


_Form = _Proposal | _Question | _Finished | _GivenUp | _Waiting


def decision_problem(doc: Doc) -> str:
    """Return the first problem in the form of a logged decision, with its place; empty if none.

    A decision without a problem has the form in which events are read back.
    """
    try:
        msgspec.convert(doc, _Form)
    except msgspec.ValidationError as error:
        return str(error).replace("`$.", "`")
    return ""


class StepView(msgspec.Struct, frozen=True):
    """One step as shown to planners and readers."""

    id: str
    worker: str
    action: str
    status: str
    attempts: int = 0
    data: Json = None
    error: Failure | None = None
    recommendations: tuple[str, ...] = ()
    reason: str = ""
    planned: Doc = {}
    """The step as planned: parameters, needs, gives, drops and the rest."""
    widened: bool = False
    """Whether a person allowed its claims beyond its worker: `core/promises.py`."""
    ended: int = 0
    """When it ended, in microseconds UTC; 0 while it is open."""


class Recommendation(str):
    """A recommendation of a worker, with the step that made it, after a success or a failure."""

    __slots__ = ("step",)
    step: str

    def __new__(cls, text: str, step: str = "") -> Recommendation:  # noqa: PYI034 - not subclassed
        """Return `text` as a recommendation of `step`."""
        made = super().__new__(cls, text)
        made.step = step
        return made


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt, for planners that want to avoid repeating it."""

    step: str
    attempt: int
    worker: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class PlannerView:
    """Everything a planner sees: the goal, results, failures and its own notes."""

    run: str
    """The id of the run."""
    goal: Any
    """The goal: a text, or a document with the fields of `Goal`."""
    call: int
    """The number of this call of the planner, from 1."""
    why: str
    """Why the planner is asked: "start", "report", "surprise: …", "nothing is left"."""
    steps: Mapping[str, StepView] = field(default_factory=dict)
    """All steps, by id, with their status and data."""
    results: Mapping[str, Json] = field(default_factory=dict)
    """Data of the steps that succeeded, by step id."""
    failed_attempts: tuple[FailedAttempt, ...] = ()
    """The failed attempts, in order."""
    recommendations: tuple[str, ...] = ()
    """Recommendations of workers in the order of their reports; each is a `Recommendation`, whose
    `step` names its origin."""
    answers: tuple[Doc, ...] = ()
    """The answers of people, in order."""
    findings: tuple[str, ...] = ()
    """Why the last proposal was refused, if it was."""
    notes: Json = None
    """The notes of the planner's last decision that had some."""
    cost: float = 0.0
    """The cost of the run so far."""
    params: Doc = field(default_factory=dict)
    """The values of the plan's parameters, and the facts that the goal gives."""
    catalog: Catalog = field(default_factory=Catalog)
    """The workers the run may use."""
    timeline: Sequence[StepView] = ()
    """All steps, without their data: ended steps in the order of their ends, then the others in the
    order of the plan."""
    in_flight: tuple[str, ...] = ()
    """Steps with an attempt or a probe in flight."""
    outlook: tuple[Json, ...] = ()
    """The outlook of the last proposal."""
    budget_left: float | None = None
    """The remaining budget, less what is reserved in flight; None: no limit."""
    barred: Mapping[str, str] = field(default_factory=dict)
    """Workers that must not be used for now, each with the reason."""
    splits_max: int = 5
    """How often a step may be split, counting its parts and their parts."""
    questions: tuple[Doc, ...] = ()
    """Open questions to people: id, kind, text, step, choices, facts."""
    retries: Mapping[str, int] = field(default_factory=dict)
    """Steps that wait for a retry, each with its earliest start in microseconds UTC."""
    comments: tuple[Doc, ...] = ()
    """Reviewers' comments on the last revision that are not answered yet: id, step ("" for the
    whole revision), text, by. `Propose.answers` answers them."""

    @property
    def completed(self) -> tuple[str, ...]:
        """The steps that succeeded, in the order they were planned."""
        return tuple(self.results)
