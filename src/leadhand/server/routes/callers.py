"""Steps of an agent that drives a run: the next one, its report, and more time for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from leadhand.app.callers import (
    ELSEWHERE,
    NextStep,
    StepLease,
    StepReceipt,
    extend_step,
    next_step,
    report_step,
)
from leadhand.core.callers import account_caller
from leadhand.engine.callers import CallerReport
from leadhand.errors import Conflict, UsageError
from leadhand.server.app_state import answer, app_state_of, person_of
from leadhand.server.request_forms import LeaseForm, NextStepForm, StepReportForm
from leadhand.server.routes.common import done

if TYPE_CHECKING:
    from leadhand.app.callers import Ask
    from leadhand.core.plan.model import Doc

router = APIRouter(tags=["callers"])


@router.post("/runs/{run}/next-step", responses=done(NextStep))
async def hand_out(request: Request, run: str, form: NextStepForm) -> Response:
    """Hand the next step with `worker: caller` out to an agent."""
    ask = await _asking(request, run, form.caller)
    return answer(await next_step(ask, form.lease, form.wait))


@router.post("/runs/{run}/steps/{step}/report", responses=done(StepReceipt))
async def report(request: Request, run: str, step: str, form: StepReportForm) -> Response:
    """Take the report of an agent; the criteria of the step decide."""
    ask = await _asking(request, run, form.caller)
    said: dict[str, Any] = form.model_dump(exclude={"caller", "attempt"})
    return answer(await report_step(ask, step, form.attempt, CallerReport(**said)))


@router.post("/runs/{run}/steps/{step}/extend", responses=done(StepLease))
async def extend(request: Request, run: str, step: str, form: LeaseForm) -> Response:
    """Extend the lease of an agent that is still at work on a step."""
    ask = await _asking(request, run, form.caller)
    told = await extend_step(ask, step, form.attempt, form.lease, form.message, form.fraction)
    return answer(told)


async def _asking(request: Request, run: str, caller: str) -> Ask:
    """Return the function that sends requests of a caller to a run that this server drives."""
    app_state, actor = app_state_of(request), account_caller(caller, person_of(request).name)
    await app_state.cached_readers.read(lambda desk: desk.header(run))
    supervisor = app_state.supervisor
    if supervisor.lead.is_elsewhere:
        raise UsageError(ELSEWHERE)

    async def ask(verb: str, details: Doc) -> Doc:
        await supervisor.drive(await supervisor.find(run))
        told = await supervisor.send_command(run, verb, actor, details)
        if not told.get("driven"):
            raise Conflict(supervisor.unhosted.get(run) or f"no process drives run {run}")
        return told

    return ask
