"""Views of a run for people, planners and programs. Pure; they return copies.

Nothing here decides. A view of a run is made from its folded state; a line of a ledger from one
event. Planners get a view that reads steps lazily, so that asking a planner costs the same at the
first step and at the ten-thousandth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType

from leadhand.core.calendar import iso
from leadhand.core.catalog import CALLER, able_workers
from leadhand.core.decide.circuit_breaker import circuit_reason
from leadhand.core.durations import seconds
from leadhand.core.durations import text as duration
from leadhand.core.facts import wanted_values
from leadhand.core.hashing import canonical
from leadhand.core.plan.model import Goal, Json
from leadhand.core.promises import only_claimed
from leadhand.core.report import FailedAttempt, Failure, PlannerView, Recommendation, StepView
from leadhand.core.state.model import SETTLED, STARTABLE
from leadhand.core.views.headline import headline
from leadhand.core.views.inbox import InboxRow, inbox_row
from leadhand.core.views.totals import NAME_MAX, run_totals

if TYPE_CHECKING:
    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State, StepState
    from leadhand.core.state.records import Question


ENDED = ("succeeded", "failed", "cancelled", "rejected")
"""Run states after which nothing more happens, unless the run is reopened."""
REASON_MAX = 300
"""The length of a reason in lists."""


class StepError(Struct, kw_only=True):
    """Why a step failed, waits for a person, or is tried again."""

    failure_class: str | None = msgspec.field(name="class")
    """The failure class."""
    message: str | None
    """What went wrong."""


class StepRow(Struct, kw_only=True):
    """A step of a run; of one that is only proposed, nothing after `error`."""

    id: str
    """The id of the step."""
    status: str
    """The status of the step."""
    worker: str
    """The worker of the step."""
    attempts: int
    """The number of attempts so far."""
    error: StepError | None
    """Why it failed, if it did."""
    verified: bool | UnsetType = UNSET
    """False if only the agent that did the step says that it is done; else left out."""
    action: str | UnsetType = UNSET
    """Where a run is shown, as the next ones."""
    reason: str | UnsetType = UNSET
    """Why it has this status."""
    findings: list[str] | UnsetType = UNSET
    """The criteria that did not hold, and why."""
    started: str | UnsetType | None = UNSET
    """When its first attempt started, in ISO 8601."""
    ended: str | UnsetType | None = UNSET
    """When it ended, in ISO 8601."""
    cost: float | UnsetType = UNSET
    """Its cost so far: US dollars and cost units together."""
    money: float | UnsetType = UNSET
    """The part of the cost that is money, in US dollars."""
    recommendations: list[str] | UnsetType = UNSET
    """What the worker recommends."""


class ModelRow(Struct, kw_only=True):
    """What a model was asked in a run, and what that cost."""

    tier: str
    """The tier, if the model was chosen by tier."""
    model: str
    """The model."""
    calls: int
    """The number of calls."""
    failed: int
    """The number of failed calls."""
    input: int
    """Input tokens."""
    output: int
    """Output tokens."""
    cached: int
    """Input tokens read from the provider's cache."""
    written: int
    """Input tokens written into the provider's cache."""
    cost: float
    """The cost, in US dollars."""


class DroppedStep(Struct, kw_only=True):
    """A step that was given up by name, or with one that was."""

    step: str
    """The id of the step."""
    status: str
    """The status of the step."""
    reason: str
    """Why it was dropped."""


class RunOutcome(Struct, kw_only=True):
    """How a run stands, or how it ended."""

    run: str
    """The id of the run."""
    status: str
    """The status of the run."""
    goal: str
    """The goal in a sentence."""
    result: Json
    """The result of the run."""
    steps: list[StepRow]
    """The steps, or a page of them."""
    cost: float
    """What counts against the budget: money, and the cost units of workers."""
    money: float
    """What models, and workers that report money, cost in dollars."""
    duration: float
    """The duration so far, in seconds."""
    reason: str
    """Why the run has this status."""
    origin: str
    """Where the cause of an end without success lies."""
    headline: str
    """How the run stands or ended, in one sentence."""
    models: list[ModelRow] | UnsetType = UNSET
    """What each model was asked and what that cost, the dearest first."""
    estimated_duration: float | UnsetType = UNSET
    """What the plan says, in seconds."""
    dropped: list[DroppedStep] | UnsetType = UNSET
    """Steps that were given up by name, with the reason."""
    waiting_for: list[InboxRow] | UnsetType = UNSET
    """What waits for a person, oldest first."""
    awaiting: str | UnsetType = UNSET
    """For what it waits: `approval` or `input`."""
    worked: float
    """Seconds in which workers were at work, of `duration`."""
    waited: float
    """The rest of `duration`."""


class RunSummary(Struct, kw_only=True, omit_defaults=True):
    """What a host writes beside a log at each change of status, so that lists need no log.

    What is as in most runs is left out: there is one summary for every run that ever was.
    """

    status: str
    goal: str
    plan: str
    steps: int
    settled: int
    succeeded: int = 0
    failed: int = 0
    replaced: int = 0
    waiting: int = 0
    awaiting: str = ""
    """For what: `approval`, `input`, or "" if nothing waits for a person."""
    cost: float
    money: float
    library: str | UnsetType = UNSET
    """The plan of the library it was started from, as `deploy@3`."""
    actor: str = ""
    """The person who started it."""
    labels: tuple[str, ...] = ()
    """Its labels, as `name` or `name=value`, sorted."""
    environment: str = ""
    """The environment that its settings named."""
    ended: int = 0
    """When it ended, in UTC microseconds; 0 while it is open."""
    reason: str = ""
    """Why it ended without success, shortened."""
    origin: str = ""
    """Where the cause of an end without success lies."""
    totals: dict[str, int] | UnsetType = UNSET
    """What it adds to the totals, once it has ended: `core/views/totals.py`."""
    so_far: dict[str, int] | UnsetType = UNSET
    """The same of an open run that waits, as of entry `seq` of its log."""
    seq: int | UnsetType = UNSET
    """The last entry of the log that `so_far` covers."""


OutcomeT = TypeVar("OutcomeT", bound=RunOutcome)


def goal_of(state: State) -> Goal:
    """Return the goal as an object."""
    return Goal.from_doc(state.started.goal if state.started else None)


def acceptance(state: State) -> tuple[str, ...]:
    """Return the acceptance criteria of the goal."""
    goal = state.started.goal if state.started else None
    return tuple(goal.get("acceptance", ())) if isinstance(goal, dict) else ()


APPROVALS = frozenset({"review", "protected_change", "hold"})
"""Kinds of questions that ask for an approval; all others ask for input."""


def awaiting(state: State) -> str:
    """Return for what a run waits: `approval`, `input`, `caller`, or "" if for none of them.

    `caller`: the agent that drives the run, which has a step or is to ask for one. A run that waits
    for several waits for the first of them.
    """
    if not state.questions:
        return "caller" if awaits_caller(state) else ""
    approval = any(question.kind in APPROVALS for question in state.questions.values())
    return "approval" if approval else "input"


def run_status(state: State) -> str:
    """Return one word: running, paused, waiting, stopping, or the status of the end."""
    if state.ended is not None:
        return state.ended.status
    if state.stopping is not None:
        return "stopping"
    if state.paused:
        return "paused"
    if (state.questions or awaits_caller(state)) and not (
        state.planner.epoch or goes_on_here(state)
    ):
        return "waiting"
    return "running"


SELF_TIMERS = ("retry", "question")
"""Timers that move a run on without any input."""


def goes_on(state: State) -> bool:
    """Return whether any step is in progress or will be without a person's answer."""
    return awaits_caller(state) or goes_on_here(state)


def awaits_caller(state: State) -> bool:
    """Return whether a caller has a step, or a step is there for a caller to ask for."""
    if not state.has_callers or state.ended is not None:
        return False
    return bool(state.handed_out) or state.next_offered() is not None


def is_for_caller(state: State) -> bool:
    """Return whether a caller moves the run on, now or once what is proposed is approved."""
    if state.has_callers or state.pending is None:
        return state.has_callers
    known = state.catalog.workers
    named = {name for step in state.pending.add for name in able_workers(step, known)}
    return any(known[name].kind == CALLER for name in named if name in known)


def goes_on_here(state: State) -> bool:
    """Return whether any step is in progress or will be without a person or a caller."""
    if len(state.in_flight) > state.handed_out or state.undecided or state.to_skip:
        return True
    if state.next_ready() is not None:
        return True
    # Timers and calendar keep obsolete entries until these reach the top.
    if any(timer[1] in SELF_TIMERS and state.timer_counts(*timer) for timer in state.timers):
        return True
    parked = any(limit.startswith("circuit ") for limit in state.ready.parked)
    # Parked steps may have been removed meanwhile.
    if parked and any(s.status in STARTABLE and not s.held for s in state.steps.values()):
        return True
    waiting = [state.steps[step] for _, step in state.calendar]
    return any(step.status in STARTABLE and not step.held for step in waiting)


def state_words(state: State) -> str:
    """Return the status of a run as people read it: one that waits says for what."""
    status = run_status(state)
    return f"waiting for {awaiting(state)}" if status == "waiting" else status


def exit_code(state: State) -> int:
    """Return the exit code for the run's state (design: exit codes and run states)."""
    if state.ended is not None and state.ended.limit:
        return 6
    codes = {"succeeded": 0, "failed": 1, "rejected": 3, "waiting": 5, "cancelled": 9}
    return codes.get(run_status(state), 8)


def run_result(state: State, value: Callable[[StepState], Json] | None = None) -> Json:
    """Return the result: the wanted facts, else the planner's result, else the last steps' data.

    Wanted facts come under their names, for every planner: the value itself if one is wanted, else
    an object. The last steps are those that no other step waits for.

    `value` returns a step's data; without it, data stored separately is named, not loaded.
    """
    value = value or _value
    if state.ended is not None and state.ended.status != "succeeded":
        return None
    goal = goal_of(state)
    if goal.want:
        found = wanted_values(state, goal, value)
        if len(found) == len(set(goal.want)):
            return found if len(found) > 1 else found[goal.want[0]]
    if state.ended is not None and state.ended.result is not None:
        return state.ended.result
    if state.finish is not None:
        return state.finish.get("result")
    ends = [step for step in state.steps.values() if step.status == "succeeded" and not step.used]
    if len(ends) == 1:
        return value(ends[0])
    return {step.id: value(step) for step in ends} if ends else None


def _value(step: StepState) -> Json:
    return {"$artifact": step.data_ref} if step.data_ref else step.data


def failure_of(doc: Doc | None) -> Failure | None:
    """Return a logged failure as a `Failure`."""
    if doc is None:
        return None
    return Failure(
        failure_class=str(doc.get("class", "")),
        message=str(doc.get("message", "")),
        effect=doc.get("effect", "none"),
        retry_after_s=doc.get("retry_after"),
        details=doc.get("details"),
        change=doc.get("change"),
    )


def question_text(
    step: StepState, reason: str, *, replans: bool = False, rollback: bool = False
) -> tuple[str, list[str]]:
    """Return the question to a person about a failed step, with the choices.

    `rollback`: whether there is something to undo.
    """
    failure = step.failure or {}
    head = f"Step {step.id} ({step.worker} {step.action}".rstrip() + ")"
    choices = ["retry", *(["replan"] if replans else []), "skip", "abort"]
    choices += ["rollback"] if rollback else []
    if failure.get("effect") == "unknown":
        return f"{head}: {reason}. Check whether it took effect, then answer.", ["done", *choices]
    if failure.get("class") == "needs_info":
        asked = failure.get("message", "")
        return f"{head} asks: {asked} Answer retry, with the information as text.", choices
    return f"{head} failed: {reason}. Choose how to continue.", choices


def task_text(
    step: StepState, spec: WorkerSpec, parameters: Doc, limit_s: float | None = None
) -> str:
    """Return the text of a task for a person."""
    own = step.doc.get("description") or parameters.get("task") or step.action
    what = str(own or spec.description or step.id)
    rest = {key: value for key, value in parameters.items() if key != "task"}
    given = f" With: {canonical(rest).decode()[:2000]}." if rest else ""
    again = (step.failure or {}).get("message", "")
    before = f" Last time: {again}." if again else ""
    offer = spec.offer(step.action)
    if offer is not None and offer.silence is not None and limit_s is not None:
        silence = canonical(offer.silence).decode()[:200]
        given = f" Default without an answer within {duration(limit_s)}: {silence}.{given}"
    what = what if what.endswith(("?", "!")) else f"{what.rstrip('.')}."
    return f"Task {step.id}: {what}{given}{before} Answer done, or cannot."


def step_view(step: StepState, *, data: bool = True) -> StepView:
    """Return a copy of one step; without `data`, its result is left out."""
    return StepView(
        id=step.id,
        worker=step.worker,
        action=step.action,
        status=step.status,
        attempts=step.attempts,
        data=deep_copy(_value(step)) if data and step.status == "succeeded" else None,
        error=failure_of(step.failure),
        recommendations=step.recommendations,
        reason=step.reason,
        planned=deep_copy(step.doc),
        widened=step.widened,
        ended=step.ended,
    )


def deep_copy(value: Json) -> Json:
    """Return a copy that shares nothing with the state."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return msgspec.json.decode(msgspec.json.encode(value))


class _Lazy(Mapping[str, Any]):
    """Steps, or their results, read lazily."""

    def __init__(self, state: State, value: Callable[[StepState], Json], *, results: bool) -> None:
        self._state = state
        self._value = value
        self._results = results

    def __getitem__(self, key: str) -> Any:
        step = self._state.steps[key]
        if not self._results:
            return step_view(step)
        if step.status != "succeeded":
            raise KeyError(key)
        return deep_copy(self._value(step))

    def __iter__(self) -> Iterator[str]:
        steps = self._state.steps
        if not self._results:
            return iter(list(steps))
        return iter([ident for ident, step in steps.items() if step.status == "succeeded"])

    def __len__(self) -> int:
        return self._state.succeeded if self._results else len(self._state.steps)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Timeline(Sequence[StepView]):
    """Ended steps in the order of their ends, the others after them; sorted on first use."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._steps: list[StepState] | None = None

    @property
    def _sorted(self) -> list[StepState]:
        if self._steps is None:
            last = 1 << 62
            # Steps that ended at the same instant ran in parallel, or one after the other in the
            # order of the plan.
            self._steps = sorted(
                self._state.steps.values(),
                key=lambda step: (step.ended if step.status in SETTLED else last, step.order),
            )
        return self._steps

    @overload
    def __getitem__(self, index: int) -> StepView: ...

    @overload
    def __getitem__(self, index: slice) -> list[StepView]: ...

    def __getitem__(self, index: int | slice) -> StepView | list[StepView]:
        if isinstance(index, slice):
            return [step_view(step, data=False) for step in self._sorted[index]]
        return step_view(self._sorted[index], data=False)

    def __len__(self) -> int:
        return len(self._state.steps)


def planner_view(
    state: State, call: int, why: str, value: Callable[[StepState], Json] | None = None
) -> PlannerView:
    """Return everything a planner sees; `value` loads a step's data stored separately."""
    value = value or _value
    failed = tuple(
        FailedAttempt(step, attempt, worker, failure_of(doc) or Failure("unavailable", ""))
        for step, attempt, worker, doc in state.failed_attempts
    )
    return PlannerView(
        run=state.run,
        goal=goal_of(state),
        call=call,
        why=why,
        steps=_Lazy(state, value, results=False),
        results=_Lazy(state, value, results=True),
        failed_attempts=failed,
        recommendations=tuple(
            Recommendation(text, step)
            for text, step in zip(state.recommendations, state.recommenders, strict=True)
        ),
        answers=tuple(deep_copy(answer) for answer in state.answers),
        findings=tuple(state.planner.findings),
        notes=deep_copy(state.planner.notes),
        cost=state.spent,
        params=deep_copy(state.params),
        catalog=state.catalog,
        timeline=_Timeline(state),
        in_flight=tuple(state.in_flight),
        outlook=tuple(deep_copy(state.outlook)),
        budget_left=_left(state),
        barred={
            name: circuit_reason(state.open_circuits, name)
            for name in state.catalog.workers
            if name in state.open_circuits
        },
        splits_max=state.policy.splits_max,
        questions=tuple(map(_question, state.questions.values())),
        retries={ident: state.steps[ident].until for ident in state.backing_off},
        comments=tuple(
            {"id": each.id, "step": each.step, "text": each.text, "by": each.actor}
            for each in state.comments
            if not each.answered_in
        ),
    )


def _question(question: Question) -> Doc:
    """Return an open question as planners see it."""
    return {
        "id": question.id,
        "kind": question.kind,
        "text": question.text,
        "step": question.step,
        "choices": list(question.choices),
        "facts": list(question.facts),
    }


def _left(state: State) -> float | None:
    budget = state.policy.budget
    return None if budget is None else max(0.0, round(budget - state.spent - state.reserved, 9))


def step_row(state: State, step: StepState) -> StepRow:
    """Return one step as a row of `--json`."""
    error = step.failure if step.status in ("failed", "asking", "backing_off") else None
    return StepRow(
        id=step.id,
        status=shown_status(step),
        worker=step.worker,
        attempts=step.attempts,
        error=None
        if error is None
        else StepError(failure_class=error.get("class"), message=error.get("message")),
        verified=False if only_claimed(state, step) else UNSET,
    )


def detailed_step_row(state: State, step: StepState) -> StepRow:
    """Return one step as a row of a run that is shown."""
    row = step_row(state, step)
    row.action, row.reason = step.action, step.reason
    row.findings = list(step.findings)
    row.started = iso(step.started) if step.started else None
    row.ended = iso(step.ended) if step.ended else None
    row.cost, row.money = step.cost, step_money(state, step)
    row.recommendations = list(step.recommendations)
    return row


def _proposed_rows(state: State) -> list[StepRow]:
    """Return the steps of a revision that still waits for a person."""
    if state.pending is None:
        return []
    return [
        StepRow(id=doc["id"], status="proposed", worker=doc["worker"], attempts=0, error=None)
        for doc in state.pending.add
    ]


def shown_status(step: StepState) -> str:
    """Return the status of a step in the words shown to people."""
    words = {"asking": "waiting_for_person", "undecided": "running", "backing_off": "retrying"}
    if step.held and step.status in STARTABLE:
        return "held"
    if step.status == "ready" and step.not_before and not step.ticket:
        return "scheduled"
    return words.get(step.status, step.status)


def duration_s(state: State) -> float:
    """Return the duration of the run in seconds, so far if it is running."""
    return round(((state.ended_at or state.last_at) - state.started_at) / 1e6, 3)


def worked_s(state: State, now: int = 0) -> float:
    """Return how long workers were active, in seconds; for the rest of the time the run waited.

    For people, for a calendar time, for a backoff, for a host or its planner. `now` is the end of
    the interval while an attempt is in flight; default is the time of the last event.
    """
    going = max(0, (now or state.last_at) - state.busy_since) if state.in_flight else 0
    return round((state.worked + going) / 1e6, 3)


@overload
def run_outcome(state: State) -> RunOutcome: ...


@overload
def run_outcome(state: State, kind: type[OutcomeT], **more: Any) -> OutcomeT: ...


def run_outcome(state: State, kind: type[Any] = RunOutcome, **more: Any) -> Any:
    """Return how a run stands, as a `RunOutcome` or a `kind` of it.

    `more` holds the fields that `kind` adds, and values that replace those of `RunOutcome`.
    """
    if "result" not in more:
        more["result"] = run_result(state)
    if "steps" not in more:
        more["steps"] = [step_row(state, step) for step in state.steps.values()]
    more["steps"] += _proposed_rows(state)
    planned = state.started.plan.get("estimated_duration") if state.started else None
    duration, worked = duration_s(state), worked_s(state)
    return kind(
        run=state.run,
        status=run_status(state).replace("stopping", "running"),
        goal=goal_of(state).text,
        cost=round(state.spent, 6),
        money=money_of(state),
        duration=duration,
        reason=state.ended.reason if state.ended else "",
        origin=state.ended.origin if state.ended else "",
        headline=headline(state),
        models=model_rows(state) or UNSET,
        estimated_duration=seconds(planned) if planned is not None else UNSET,
        dropped=dropped_rows(state) or UNSET,
        waiting_for=[inbox_row(state, ident) for ident in state.questions] or UNSET,
        awaiting=awaiting(state) or UNSET,
        worked=worked,
        waited=round(max(0.0, duration - worked), 3),
        **more,
    )


MONEY_KINDS = frozenset({"coder"})
"""Kinds of workers that report their cost in money; all others report units."""


def paid_in_money(state: State, worker: str) -> bool:
    """Return whether a worker reports its cost in money."""
    spec = state.catalog.workers.get(worker)
    return spec is not None and spec.kind in MONEY_KINDS


def money_of(state: State) -> float:
    """Return the cost of a run in dollars: model calls, and workers that report money.

    `State.spent` is counted against the budget: this, and the cost units of all other workers.
    """
    found = sum(tally.cost for tally in state.models.by_model.values())
    if state.spent > found and any(paid_in_money(state, name) for name in state.catalog.workers):
        found += sum(_reported(state, step) for step in state.steps.values())
    return round(found, 6)


def step_money(state: State, step: StepState) -> float:
    """Return the cost of one step in dollars."""
    if not step.cost:
        return 0.0
    return round(_models(state, step) + _reported(state, step), 6)


def _models(state: State, step: StepState) -> float:
    tally = state.models.by_step.get(step.id)
    return tally.cost if tally is not None else 0.0


def _reported(state: State, step: StepState) -> float:
    """Return the money that workers reported for a step, besides model calls."""
    paid = step.cost and paid_in_money(state, step.worker)
    return step.cost - _models(state, step) if paid else 0.0


def dropped_rows(state: State) -> list[DroppedStep]:
    """Return the steps that were given up by name, or with one that was."""
    return [
        DroppedStep(step=step.id, status=step.status, reason=step.dropped)
        for step in state.steps.values()
        if step.dropped
    ]


def model_rows(state: State) -> list[ModelRow]:
    """Return what each model was asked and what that cost, the dearest first."""
    rows = [
        ModelRow(tier=tier, model=model, **msgspec.structs.asdict(each))
        for (tier, _, model), each in (
            (key.partition(" "), each) for key, each in state.models.by_model.items()
        )
    ]
    return sorted(rows, key=lambda row: (-row.cost, row.model, row.tier))


def summary(state: State) -> RunSummary:
    """Return what `leadhand ls` shows of a run, written beside its log at each change of status."""
    started, ended = state.started, state.ended
    plan = started.plan if started else {}
    told = RunSummary(
        status=run_status(state),
        goal=_stored(goal_of(state).text, 500),
        plan=str(plan.get("plan_id", "")),
        steps=len(state.steps),
        settled=settled_steps(state),
        succeeded=state.succeeded,
        failed=_ended_as(state, "failed"),
        replaced=_ended_as(state, "superseded"),
        waiting=len(state.questions),
        awaiting=awaiting(state),
        cost=round(state.spent, 6),
        money=money_of(state),
        library=plan.get("library") or UNSET,
        actor=_stored(started.actor, NAME_MAX) if started else "",
        labels=started.labels if started else (),
        environment=started.environment if started else "",
        ended=(state.ended_at or 1) if ended else 0,  # a simulated clock may show 0
        reason=_stored(ended.reason, REASON_MAX) if ended and ended.status != "succeeded" else "",
        origin=ended.origin if ended else "",
    )
    if ended is not None:
        told.totals = run_totals(state, told)
    elif told.status in ("waiting", "paused"):  # for long, perhaps
        told.so_far, told.seq = run_totals(state, told), state.seq
    return told


def _stored(text: str, limit: int) -> str:
    """Return the beginning of a text as events store it: half characters are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()[:limit]


def settled_steps(state: State) -> int:
    """Return how many steps have ended: all of them, once the run has."""
    return len(state.steps) - (state.unsettled if state.ended is None else 0)


def _ended_as(state: State, status: str) -> int:
    """Return how many steps ended with a status; scans only if some did not succeed."""
    if state.succeeded == settled_steps(state):
        return 0
    return sum(step.status == status for step in state.steps.values())
