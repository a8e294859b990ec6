"""Requests of callers: the agent that drives a run asks for its next step, and reports it.

What may happen is decided by `core/callers.py`. Here the report is judged by the criteria of its
step, as the report of every worker is, before it is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadhand.codec.values import plain, progress_note
from leadhand.core import events as ev
from leadhand.core.callers import agent_name, heard_before, step_with, with_caller
from leadhand.core.commands import move_of
from leadhand.core.decide.effects import Move, StartAttempt
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.plan.references import Artifact, Secret, Unresolved, load_apart, resolve
from leadhand.core.promises import is_checked
from leadhand.core.report import Failure, Report
from leadhand.core.review.holds import workers_changed
from leadhand.core.views.inbox import inbox_row
from leadhand.core.views.run import ENDED, awaiting, goal_of, run_status
from leadhand.engine import perform
from leadhand.engine.results import result_of
from leadhand.engine.reviewers import changed_spec
from leadhand.engine.verdict import as_list
from leadhand.errors import StoreError, UsageError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import Now, State, StepState
    from leadhand.engine.host import EmbeddedHost
    from leadhand.engine.run import Run


VERBS = ("claim", "extend", "report")
"""What callers say to a run."""
CONTEXT_BYTES_MAX = 1 << 20
"""Results of other steps that are larger are given as references to artifacts."""


class CallerReport(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The report of a caller: what it says about the attempt of one step."""

    status: Literal["succeeded", "failed"]
    """What the caller claims. A success counts once the criteria of the step were checked."""
    data: Any = None
    """The result."""
    error: str = ""
    """Why it failed."""
    failure_class: str = ""
    """The class of the failure, which decides what follows; `unavailable` by default."""
    effect: Literal["none", "done", "unknown"] = "unknown"
    """Whether a failed attempt changed anything."""
    recommendations: list[str] = []
    """What the caller recommends."""
    cost: float = 0.0
    """What the attempt cost."""
    output: str = ""
    """Printed output, kept for readers of the log."""


async def take_request(host: EmbeddedHost, run: Run, verb: str, actor: str, details: Doc) -> Doc:
    """Carry out one request of a caller; return its answer once it is durable.

    The answer of a run that no process drives says so, and nothing is done: its steps could not be
    followed by anything.
    """
    caller = agent_name(actor)
    if not run.driven and run.state.ended is None:
        return {"run": run.id, "driven": False}
    if verb == "claim":
        return await _claim(host, run, caller, details)
    step, attempt = str(details.get("step", "")), int(details.get("attempt") or 0)
    if verb == "extend":
        return await _extend(run, caller, step, attempt, details)
    return await _report(host, run, caller, step, attempt, details.get("report"))


async def _claim(host: EmbeddedHost, run: Run, caller: str, details: Doc) -> Doc:
    make = move_of("claim", caller, details)

    def claimed(state: State, now: Now) -> Move:
        if host.draining or host.shared.stopped or not run.admitted:
            return Move([], [])
        move = make(state, now)
        for event in move.events:
            spec = None
            if isinstance(event, ev.AttemptStarted):
                spec = changed_spec(state, run.workers, event.worker)
            if spec is not None:
                return Move(*workers_changed(state, [spec], now.latest))
        return move

    before = step_with(run.state, caller)
    if run.state.ended is None:
        await run.submit_and_wait(claimed)
    state = run.state
    step = step_with(state, caller)
    told = _run_doc(run) | {"stopped": host.shared.stopped}
    if step is None:
        return told
    again = before is not None and before.id == step.id
    return told | {"step": await _handed(run, step) | {"again": again}}


def _run_doc(run: Run) -> Doc:
    """Return the state of a run, for a caller: its status, and what it waits for."""
    state, status = run.state, run_status(run.state)
    busy = [step for step in map(state.steps.__getitem__, state.in_flight) if step.with_caller]
    doc: Doc = {
        "run": run.id,
        "driven": True,
        "status": status,
        "awaiting": awaiting(state) if status == "waiting" else "",
        "reason": state.ended.reason if state.ended is not None else "",
        "busy": [{"step": step.id, "caller": step.caller} for step in busy],
        "waiting_for": [inbox_row(state, ident) for ident in state.questions],
    }
    if status in ENDED:
        doc["result"] = result_of(run.host.store, state)
    return doc


async def _handed(run: Run, step: StepState) -> Doc:
    """Return all that a caller needs for a step that was handed out to it."""
    context = perform.AttemptContext(run, step.id, step.attempts, step.epoch)
    doc = step.doc
    return {
        "id": step.id,
        "attempt": step.attempts,
        "caller": step.caller,
        "deadline": step.deadline,
        "limit": step.limit,
        "key": context.key,
        "goal": goal_of(run.state).to_doc(),
        "action": step.action,
        "description": str(doc.get("description", "")),
        "parameters": await _parameters(run, step),
        "success_criteria": as_list(doc.get("success_criteria")),
        "effects": list(doc.get("effects") or ()),
        "results": _bounded(run, context.results),
        "summaries": context.summaries,
        "failures": [
            {"class": each.failure_class, "message": each.message, "effect": each.effect}
            for each in context.failures
        ],
        "answers": list(context.answers),
    }


async def _parameters(run: Run, step: StepState) -> Doc:
    """Return the parameters of a step, with large results put in; a secret stays hidden."""

    def load(artifact: Artifact) -> Json:
        return msgspec.json.decode(run.host.store.get_artifact(artifact.ref))

    def hidden(secret: Secret) -> str:
        return f"[secret:{secret.name}]"

    try:
        found = resolve(step.doc.get("parameters") or {}, run.state.lookup)
        whole = await run.host.blocking(load_apart, found, load, hidden)
    except (Unresolved, StoreError) as error:
        raise UsageError(f"the parameters of step {step.id} cannot be read: {error}") from None
    plain_: Doc = msgspec.json.decode(msgspec.json.encode(whole))
    return plain_


def _bounded(run: Run, results: dict[str, Any]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, data in results.items():
        step, raw = run.state.follow(name), msgspec.json.encode(data)
        large = len(raw) > CONTEXT_BYTES_MAX and step is not None and step.data_ref
        found[name] = {"artifact": step.data_ref} if large and step is not None else data
    return found


async def _extend(run: Run, caller: str, step: str, attempt: int, details: Doc) -> Doc:
    if run.state.ended is None:
        make = move_of("extend", caller, {**details, "step": step, "attempt": attempt})
        await run.submit_and_wait(make)
    state = run.state
    found = with_caller(state, run.host.time(), step, attempt, caller)
    if details.get("message") or details.get("fraction") is not None:
        text, share = progress_note(str(details.get("message", "")), details.get("fraction"))
        run.note_progress(step, run.secrets.text(text) if run.secrets else text, share)
    told = {"step": step, "attempt": attempt, "deadline": found.deadline, "limit": found.limit}
    return _run_doc(run) | told | {"cancelled": state.stopping is not None}


async def _report(
    host: EmbeddedHost, run: Run, caller: str, ident: str, attempt: int, given: Any
) -> Doc:
    report = _as_report(given)
    try:
        said = digest(caller, canonical(plain(msgspec.to_builtins(report), "report")))
    except (TypeError, ValueError) as error:
        raise UsageError(f"this is not a report: {error}") from None
    if heard_before(run.state, ident, attempt, said):
        return _receipt(run, ident, attempt, repeated=True)
    step = with_caller(run.state, host.time(), ident, attempt, caller)
    claimed = _claimed(report)
    if run.secrets is not None:
        claimed = run.secrets.report(claimed)
    effect = StartAttempt(ident, attempt, step.epoch, step.worker, step.action, {}, 0)
    judged = await perform.judged(run, effect, claimed, paid=False)
    event = msgspec.structs.replace(judged, said=said)
    repeated: list[bool] = []

    def reported(state: State, now: Now) -> Move:
        if heard_before(state, ident, attempt, said):  # the same report came twice at once
            repeated.append(True)
            return Move([], [])
        with_caller(state, now, ident, attempt, caller)
        return Move([event], [])

    await run.submit_and_wait(reported)
    return _receipt(run, ident, attempt, repeated=bool(repeated))


def _as_report(given: Any) -> CallerReport:
    try:
        report = msgspec.convert(given, CallerReport)
    except msgspec.ValidationError as error:
        raise UsageError(f"this is not a report: {error}") from None
    if report.failure_class and report.failure_class not in FAILURE_CLASSES:
        raise UsageError(
            f"{report.failure_class!r} is not a failure class. Fix: take one of "
            f"{', '.join(FAILURE_CLASSES)}"
        )
    if report.status == "failed" and not report.error.strip():
        raise UsageError("a failure needs its reason. Fix: give it as the error")
    if report.status == "succeeded" and (report.error or report.failure_class):
        raise UsageError("a report of success has no error. Fix: report it as failed, or leave it")
    return report


def _claimed(report: CallerReport) -> Report:
    failure = None
    if report.status == "failed":
        failure = Failure(report.failure_class or "unavailable", report.error, report.effect)
    return Report(
        report.status,
        report.data,
        failure,
        tuple(report.recommendations),
        cost=report.cost,
        output=report.output,
    )


def _receipt(run: Run, ident: str, attempt: int, *, repeated: bool) -> Doc:
    """Return what became of a report."""
    step = run.state.steps[ident]
    event = step.report
    known = event is not None and event.attempt == attempt
    return _run_doc(run) | {
        "step": ident,
        "attempt": attempt,
        "repeated": repeated,
        "met": bool(known and event is not None and event.met),
        "verified": bool(known and event is not None and event.met)
        and is_checked(step.doc, run.state.catalog.offer(step.worker, step.action)),
        "findings": list(event.findings) if known and event is not None else [],
        "step_status": step.status,
    }
