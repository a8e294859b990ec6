"""What the log of one epic says about its tasks. PURE.

An epic is a run, a task a step, so this is read out of the run's events and of the state they
fold to. Times are microseconds since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core import events as ev
from leadhand.core.review.decisions import NOBODY
from leadhand.core.views.recovery_stats import RecoveryOutcome, recoveries
from leadhand.core.views.run import run_status
from leadhand.fleet.status.ladder import CODER, ladder, roots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.core.state.model import State, StepState


WHY_CHARS = 500
ATTEMPTS = (ev.AttemptStarted, ev.AttemptReported, ev.AttemptLost)


class TaskFacts(msgspec.Struct, kw_only=True):
    """One task."""

    run: str
    task: str
    goal: str = ""
    status: str = "waiting"
    """The step's."""
    worker: str = ""
    attempts: int = 0
    started: int = 0
    ended: int = 0
    commit: str = ""
    cost: float = 0.0
    failures: list[tuple[int, str]] = []
    """When, and of which class."""
    lost: dict[int, int] = {}
    """Attempts that ended with their fleet, and when."""
    person: bool = False
    """A person answered for it, or is asked."""
    question: str = ""
    settled: bool = False
    """Nobody is waited for any more: it was dropped, or its epic has ended."""
    why: str = ""
    root: str = ""
    """The first task of its line, where it took another's place; else its own name."""

    @property
    def name(self) -> str:
        """Its name among all epics."""
        return f"{self.run}/{self.task}"

    @property
    def line(self) -> str:
        """The line's name among all epics: a task and whatever took its place."""
        return f"{self.run}/{self.root or self.task}"


class EpicFacts(msgspec.Struct, kw_only=True):
    """One epic."""

    run: str
    title: str = ""
    status: str = "running"
    started: int = 0
    ended: int = 0
    tasks: dict[str, TaskFacts] = {}
    attempts: dict[tuple[str, int], tuple[int, int]] = {}
    """By task and number: when it began and ended (0: it goes on)."""
    spent: list[tuple[int, float]] = []
    paid: set[tuple[str, int]] = set()
    """Attempts whose cost the log knows; not those that were lost, cancelled or broke off."""
    answers: list[tuple[int, RecoveryOutcome]] = []
    """Every answer to a failure, with when it was given."""
    ladder: list[dict[str, Any]] = []
    """What each line of tasks took (`ladder.py`)."""
    questions: list[str] = []
    """The ids of everything that waits for a person: of tasks, of the planner, reviews."""


def facts_of(state: State, log: Sequence[tuple[int, ev.Event]]) -> EpicFacts:
    """Everything that figures need of a run."""
    goal: Any = state.started.goal if state.started is not None else ""
    title = str(goal.get("text", "")) if isinstance(goal, dict) else str(goal)
    found = EpicFacts(run=state.run, title=title, status=run_status(state))
    found.started = log[0][0] if log else 0
    found.questions = list(state.questions)
    found.tasks = {
        step.id: _task(state, step)
        for step in state.steps.values()
        if step.worker.partition("@")[0] == CODER  # not looks at the epic's acceptance
    }
    asked: dict[str, str] = {}
    for at, event in log:
        if not isinstance(event, ATTEMPTS) or event.step in found.tasks:
            _take(found, asked, at, event)
    for name in found.tasks if found.ended else _dropped(event for _at, event in log):
        if name in found.tasks:
            found.tasks[name].settled = True
    found.ladder = ladder(event for _at, event in log)
    for task, root in roots(event for _at, event in log).items():
        if task in found.tasks:
            found.tasks[task].root = root
    times = [at for at, event in log if isinstance(event, ev.RecoveryDecided)]
    found.answers = list(zip(times, recoveries(event for _at, event in log), strict=True))
    return found


def _dropped(log: Iterable[ev.Event]) -> list[str]:
    """Tasks that the planner or a person let go, by the notes that stand in the log."""
    found: Any = ()
    for event in log:
        if isinstance(event, ev.PlannerAnswered) and isinstance(event.decision.get("notes"), dict):
            found = event.decision["notes"].get("dropped")
    return [str(name) for name in found] if isinstance(found, list) else []


def _task(state: State, step: StepState) -> TaskFacts:
    parameters = step.doc.get("parameters") or {}
    data = step.data if isinstance(step.data, dict) else {}
    failure = step.failure or {}
    return TaskFacts(
        run=state.run,
        task=step.id,
        goal=str(parameters.get("goal", ""))[:WHY_CHARS],
        status=step.status,
        worker=step.worker,
        attempts=step.attempts,
        commit=str(data.get("commit", "")),
        cost=step.cost,
        question=step.question,
        person=bool(step.question),
        why=_short(str(failure.get("message", "") or step.reason)),
        failures=[],
        lost={},
    )


def _short(why: str) -> str:
    """The beginning says what it is; the point of a log is in its last lines."""
    if len(why) <= WHY_CHARS:
        return why
    return f"{why[: WHY_CHARS // 3]}\n…\n{why[-2 * WHY_CHARS // 3 :]}"


def _take(found: EpicFacts, asked: dict[str, str], at: int, event: ev.Event) -> None:
    match event:
        case ev.AttemptStarted():
            found.attempts[event.step, event.attempt] = (at, 0)
            task = found.tasks.get(event.step)
            if task is not None and not task.started:
                task.started = at
        case ev.AttemptReported():
            _ended(found, event.step, event.attempt, at)
            _paid(found, event, at)
            task = found.tasks.get(event.step)
            if task is not None and event.met:
                task.ended = at
            elif task is not None:
                kind = (event.failure or {}).get("class") or "criteria_unmet"
                task.failures.append((at, str(kind)))
        case ev.AttemptLost():
            _ended(found, event.step, event.attempt, at)
            if event.step in found.tasks:
                found.tasks[event.step].failures.append((at, event.failure_class))
                found.tasks[event.step].lost[event.attempt] = at
        case ev.ProbeReported() if event.met and event.step in found.tasks:
            found.tasks[event.step].ended = at
        case ev.ReportIgnored():
            _paid(found, event, at)
        case ev.PlannerAnswered() | ev.ModelCalled() if event.cost:
            found.spent.append((at, event.cost))
        case ev.QuestionAsked() if event.step:
            asked[event.id] = event.step
        case ev.QuestionAnswered() if event.id in asked and event.actor != NOBODY:
            if asked[event.id] in found.tasks:
                found.tasks[asked[event.id]].person = True
        case ev.RunEnded():
            found.ended = at
        case ev.RunReopened():
            found.ended = 0
        case _:
            pass


def _paid(found: EpicFacts, event: ev.AttemptReported | ev.ReportIgnored, at: int) -> None:
    if event.cost:
        found.spent.append((at, event.cost))
        found.paid.add((event.step, event.attempt))


def _ended(found: EpicFacts, step: str, attempt: int, at: int) -> None:
    began = found.attempts.get((step, attempt), (at, 0))[0]
    found.attempts[step, attempt] = (began, at)
