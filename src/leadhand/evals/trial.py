"""One trial: a goal under an arm, in a process and a folder of its own.

    python -m leadhand.evals.trial SPEC RESULT

Reads what to do from SPEC (JSON) and writes a `TrialRun` to RESULT. The working directory is a
fresh copy of the suite: nothing of a trial reaches another one, and what a worker breaks or
forgets to end is gone with its process group.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.app.composition import parts_of
from leadhand.app.lead import Lead
from leadhand.app.store_factory import open_reader
from leadhand.core.plan.model import Goal
from leadhand.core.views.run import RunSummary
from leadhand.errors import LeadhandError, UsageError
from leadhand.evals.suite import EvalGoal, PersonsAnswer
from leadhand.models.recordings import playing, recording
from leadhand.settings import load_settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from leadhand.app.outcome import Outcome
    from leadhand.core.views.inbox import InboxRow
    from leadhand.models.recordings import Tape

STORE = "eval.db"
UNANSWERED = (
    "the tape holds no answer to a question of this trial. Fix: run it again with --record, which "
    "asks the models for the trials that ended in an error"
)
ROUNDS_MAX = 100
"""So often a run may wait for the person of the suite."""


class TrialSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial does."""

    goal: EvalGoal
    planner: str = ""
    mode: str = ""
    plan: str = ""
    tape: str = ""
    record: bool = False
    """Whether models are asked, and their answers kept on the tape."""
    approve: bool = True
    settings: dict[str, Any] = {}


class TrialRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run says of itself."""

    status: str
    """The status of the run; `error` if it could not be started or ended in an error."""
    reason: str = ""
    result: Any = None
    cost: float = 0.0
    money: float = 0.0
    seconds: float = 0.0
    steps: int = 0
    tried: int = 0
    """Steps that were attempted."""
    first_pass: int = 0
    """Steps that succeeded at their first attempt."""
    attempts: int = 0
    planner_calls: int = 0
    questions: int = 0
    """How often a person was needed: reviews and questions."""


async def carry_out(spec: TrialSpec) -> TrialRun:
    """Run the goal in the working directory; return what the run says of itself."""
    flags: dict[str, Any] = {**spec.settings, "project.store": STORE}
    if spec.planner:
        flags["project.planner"] = spec.planner
    settings = load_settings(flags)
    lead = Lead(**parts_of(settings))
    plan = spec.plan or spec.goal.plan
    with _tape(spec) as tape:
        if tape is not None and spec.record:
            tape.write()  # a run that asks no model has a tape too
        if plan:
            outcome = await lead.run(Path(plan), params=spec.goal.params, approve=spec.approve)
        else:
            goal = Goal(text=spec.goal.text, want=spec.goal.want, have=spec.goal.have)
            outcome = await lead.run(goal, mode=spec.mode, approve=spec.approve)
        for _ in range(ROUNDS_MAX):
            if not await _answered(lead, outcome, spec.goal.answers):
                break
            outcome = await lead.resume(outcome.run, approve=spec.approve)
    if tape is not None and tape.unanswered:  # what came of it says nothing of the model
        raise UsageError(f"{tape.path.name}: {UNANSWERED}")
    if tape is not None and tape.exchanges and not any(each.answer for each in tape.exchanges):
        last = tape.exchanges[-1].failed
        raise UsageError(f"no model answered: {last.message if last is not None else ''}")
    return _told(outcome, settings.store)


def _tape(spec: TrialSpec) -> AbstractContextManager[Tape | None]:
    if not spec.tape:
        return nullcontext()
    return recording(spec.tape) if spec.record else playing(spec.tape)


async def _answered(lead: Lead, outcome: Outcome, answers: list[PersonsAnswer]) -> bool:
    """Answer what waits, as the suite's person would; return whether anything was answered."""
    said = False
    for row in outcome.waiting_for:
        found = next((each for each in answers if each.match in f"{row.title}\n{row.text}"), None)
        if found is not None and _fits(row, found):
            await lead.answer(outcome.run, row.id, found.choice, data=found.data)
            said = True
    return said


def _fits(row: InboxRow, answer: PersonsAnswer) -> bool:
    return not row.choices or answer.choice in [each.answer for each in row.choices]


def _told(outcome: Outcome, store: Any) -> TrialRun:
    """Return the figures of a run, by the summary that its host keeps."""
    reader = open_reader(store)
    try:
        header = reader.header(outcome.run)
    finally:
        reader.close_reader()
    assert header is not None, "a run that returned has a log"
    summary = msgspec.json.decode(header.summary, type=RunSummary)
    sums = summary.totals or summary.so_far or {}
    return TrialRun(
        status=outcome.status,
        reason=outcome.reason,
        result=outcome.result,
        cost=outcome.cost,
        money=outcome.money,
        seconds=outcome.duration_s,
        steps=summary.steps,
        tried=sums.get("tried", 0),
        first_pass=sums.get("first_pass", 0),
        attempts=sums.get("attempts", 0),
        planner_calls=sums.get("planner_calls", 0),
        questions=sums.get("questions", 0) + sums.get("approvals", 0),
    )


def main(spec_file: str, result_file: str) -> None:
    """Carry out the trial of a file, and write what came of it to another."""
    spec = msgspec.json.decode(Path(spec_file).read_bytes(), type=TrialSpec)
    try:
        told = asyncio.run(carry_out(spec))
    except LeadhandError as error:
        told = TrialRun(status="error", reason=str(error))
    Path(result_file).write_bytes(msgspec.json.encode(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
