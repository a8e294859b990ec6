"""Rules about steps: their starts, reports, failures, and recoveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.catalog import able_workers
from leadhand.core.hashing import canonical, digest
from leadhand.core.logcheck.book import Book, InFlight, StepRecord, task_key, uses
from leadhand.core.logcheck.permissions import check_start
from leadhand.core.logcheck.plan import drop_questions
from leadhand.core.plan import graph, references
from leadhand.core.plan.model import failure_action_of
from leadhand.core.plan.parameters import with_secrets
from leadhand.core.plan.references import Artifact, Ref, Unresolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.logcheck.book import Book, StepRecord
    from leadhand.core.plan.model import Json


# Rules about failures: exactly one decision about each, and which.


SAME_AGAIN = frozenset(
    {"transient", "rate_limited", "timeout", "lost", "invalid_output", "criteria_unmet"}
)
"""Classes after which the same worker may retry."""

NOBODY_ELSE = frozenset({"needs_info", "permanent", "policy", "budget"})
"""Classes that another worker cannot help with either."""

ONCE_MORE = frozenset({"invalid_output", "criteria_unmet"})

PARKED_ROUNDING_S = 1e-3

PATIENT = SAME_AGAIN - ONCE_MORE
"""Classes after which the same worker retries until its attempts are used up."""


def attempts_max(book: Book, step: StepRecord) -> int:
    """Return how often one worker may try a step."""
    own = step.doc.get("retry")
    if isinstance(own, int):
        return own
    return int((own or {}).get("attempts", book.policy.attempts_max))


def _recovery_decided(book: Book, event: ev.RecoveryDecided) -> None:
    step = book.step(event.step, "a decision")
    if step is None:
        return
    if step.status != "open":
        book.wrong("I21", f"a decision about {event.step}, which is {step.status}")
        return
    kind = str(step.failure.get("class", ""))
    if event.attempt != step.attempts or event.failure_class != kind:
        book.wrong("I21", f"the decision about {event.step} speaks of another failure")
    free = event.strategy == "park" and _is_free(book, step, kind)
    if event.strategy != "retry" and not free and _could_retry(book, step, kind):
        book.wrong("I21", f"{event.strategy} of {event.step}, and it had tries left")
    match event.strategy:
        case "retry" | "reroute" | "park":
            _check_repeat(book, step, event, kind)
            step.status, step.worker, step.until = "again", event.worker, event.until
        case "probe":
            step.status, book.expect = "probing", ("ProbeStarted", step.id)
        case "ask":
            step.status, book.expect = "asking", ("QuestionAsked", step.id)
        case "replan" | "simplify":
            if not (book.start.splits or (book.start.replans and event.strategy == "replan")):
                book.wrong("I21", f"{event.step} was left to a planner that cannot do that")
            if event.strategy == "simplify":
                step.depth += 1
                if step.depth > book.policy.splits_max:
                    book.wrong("I31", f"{event.step} was split {step.depth} times over")
            step.status = "failed"
            book.left_to_planner(step)
        case "continue":
            if failure_action_of(step.doc.get("failure_action")) != "continue":
                book.wrong("L5", f"the run goes on without {event.step}, and no plan says so")
            step.status, step.tolerated = "failed", True
        case "abort":
            step.status, book.expect = "failed", ("StopDecided", "")
            book.back_wanted = failure_action_of(step.doc.get("failure_action")) == "rollback"
        case "abandon":
            if not book.stopping:
                book.wrong("I21", f"{event.step} was abandoned though the run is not stopping")
            step.status = "failed"
        case _:
            book.wrong("form", f"{event.strategy} is no decision")
    if step.settled:
        book.barred.pop(step.id, None)  # A step that has ended is no longer held.
        book.break_promise(step)


def _check_repeat(book: Book, step: StepRecord, event: ev.RecoveryDecided, kind: str) -> None:
    what = f"{event.strategy} of {step.id}"
    if (step.unseen or step.happened) and not book.idempotent(step, event.worker):
        why = "its outcome is unknown" if step.unseen else "it already took effect"
        book.wrong("I17", f"{what} though {why}, and the step is not idempotent")
    if event.strategy == "reroute":
        known = able_workers(step.doc, book.catalog)
        if event.worker == step.worker or event.worker not in known:
            book.wrong("I21", f"{what} to {event.worker}, which the plan does not name for it")
        if kind in NOBODY_ELSE:
            book.wrong("I20", f"{what} after {kind}")
        return
    if event.worker != step.worker:
        book.wrong("I21", f"{what} by {event.worker}, and {step.worker} had failed")
    if kind not in SAME_AGAIN and event.strategy != "park":
        book.wrong("I20", f"{what} after {kind}")
    tries, most = step.tries.get(step.worker, 0), attempts_max(book, step)
    asked = step.failure.get("retry_after")
    if event.strategy == "park":
        _check_park(book, step, event, asked)
    elif tries >= (min(2, most) if kind in ONCE_MORE else most):
        book.wrong("I19", f"{what} after {tries} attempts")
    if asked is not None and event.until < book.at + int(float(asked) * 1e6):
        book.wrong("I19", f"{what} does not wait the {asked:g} s it was asked to")


def _check_park(book: Book, step: StepRecord, event: ev.RecoveryDecided, asked: Any) -> None:
    what = f"park of {step.id}"
    step.tries[step.worker] = step.tries.get(step.worker, 0) - 1
    if _is_free(book, step, str(step.failure.get("class", ""))):
        return
    if asked is None or float(asked) <= book.policy.park_s:
        book.wrong("I19", f"{what}, and no long wait was requested")
    step.parked_s += (event.until - book.at) / 1e6
    if step.parked_s > book.policy.outage_s + PARKED_ROUNDING_S:
        book.wrong("I19", f"{what}, for {step.parked_s:g} s in all by now")


def _is_free(book: Book, step: StepRecord, kind: str) -> bool:
    """Return whether it was lost with its host, within the number of free restarts."""
    return kind == "lost" and step.unseen and step.restarts <= book.policy.restarts_free


def _could_retry(book: Book, step: StepRecord, kind: str) -> bool:
    """Return whether the same worker may retry, which then precedes any other recovery."""
    asked = step.failure.get("retry_after")
    if kind not in PATIENT or book.stopping or (asked or 0) > book.policy.park_s:
        return False
    if step.failure.get("effect", "none") != "none" and not book.idempotent(step, step.worker):
        return False
    return 0 < step.tries.get(step.worker, 0) < attempts_max(book, step)


def _model_called(book: Book, event: ev.ModelCalled) -> None:
    book.spent += event.cost
    if event.step:
        book.step(event.step, "a call of a model")


RECOVERY_CHECKS: dict[type[ev.Event], Callable[[Book, Any], None]] = {
    ev.RecoveryDecided: _recovery_decided,
    ev.ModelCalled: _model_called,
}


ROUNDING = 1e-6


# Starts.


def _attempt_started(book: Book, event: ev.AttemptStarted) -> None:
    book.next_epoch(event.epoch, f"attempt {event.attempt} of {event.step}")
    step = book.steps.get(event.step)
    if step is None:
        book.wrong("I24", f"step {event.step} started, and no approved revision has it")
        return
    _check_turn(book, step, event)
    if event.step in book.barred:
        book.wrong("I24", f"{event.step} started though it is held")
    check_start(book, event.step)
    if book.is_for_people(event.worker) and not step.done_by:
        book.wrong("L5", f"{event.step} was started, and no person said that it is done")
    step.done_by = ""
    _check_allowed(book, step, event)
    _check_gates(book, step, event)
    _check_inputs(book, step, event)
    _check_limits(book, step, event.worker)
    if step.id in book.live:
        book.remove_in_flight(step)
    step.status = "attempt"
    book.done_before.add(task_key(step.doc))
    step.worker = event.worker
    step.attempts = max(step.attempts, event.attempt)
    price = book.price(step, event.worker)
    live = (event.attempt, event.epoch, event.worker, event.deadline, book.owner, price)
    _check_caller(book, event)
    book.add_in_flight(step, InFlight("attempt", *live, event.caller, event.limit))


def _check_caller(book: Book, event: ev.AttemptStarted) -> None:
    """Check that a step of a caller was handed out to one, and no other step was."""
    what, spec = f"attempt {event.attempt} of {event.step}", book.catalog.get(event.worker)
    if (spec is not None and spec.kind == "caller") != bool(event.caller):
        to = f"was handed out to {event.caller}" if event.caller else "was started by the host"
        book.wrong("I56", f"{what} {to}, and its worker is {event.worker}")
    elif event.caller and not event.caller.startswith("agent:"):
        book.wrong("I56", f"{what} was handed out to {event.caller}, which is not an agent")
    if event.caller and event.deadline > event.limit:
        book.wrong("I56", f"{what} has a lease beyond its timeout")


def _lease_extended(book: Book, event: ev.LeaseExtended) -> None:
    step = _in_flight(book, event.step, "attempt", event.attempt, event.epoch)
    if step is None:
        return
    live, what = book.live[event.step], f"the lease of attempt {event.attempt} of {event.step}"
    if not live.caller:
        book.wrong("I56", f"{what} was extended, and it was not handed out")
    elif book.at >= live.deadline:
        book.wrong("I56", f"{what} was extended after it had ended")
    elif not live.deadline < event.deadline <= live.limit:
        book.wrong("I56", f"{what} was extended to a time that it cannot have")
    book.live[event.step] = live._replace(deadline=event.deadline)


def _check_turn(book: Book, step: StepRecord, event: ev.AttemptStarted) -> None:
    """Check that the step may start, and that this is its next attempt."""
    what = f"attempt {event.attempt} of {step.id}"
    if step.status == "succeeded":
        book.wrong("I10", f"{what} started though the step has succeeded")
    elif step.id in book.live:
        book.wrong("I11", f"{what} started while attempt {book.live[step.id].attempt} runs")
    elif step.status == "open":
        book.wrong("I21", f"{what} started before anything was decided about the last one")
    elif step.status not in ("planned", "again"):
        book.wrong("I21", f"{what} started though the step is {step.status}")
    if event.attempt != step.attempts + 1:
        book.wrong("I11", f"{what} follows attempt {step.attempts}")
    if event.deadline <= book.at:
        book.wrong("L3", f"{what} has no time: its deadline is not after its start")
    if book.paused or book.stopping or book.finish:
        state = book.stopping or ("paused" if book.paused else "finished")
        book.wrong("I18", f"{what} started while the run is {state}")
    wall_s = book.policy.wall_s
    if wall_s is not None and book.at > book.started_at + wall_s * 1e6 + 1:
        book.wrong("I31", f"{what} started after the run's time of {wall_s} s")


def _check_allowed(book: Book, step: StepRecord, event: ev.AttemptStarted) -> None:
    """Check that this worker may try it now, after the earlier attempts."""
    what = f"attempt {event.attempt} of {step.id}"
    if event.worker != step.worker:
        book.wrong("I21", f"{what} went to {event.worker}, and {step.worker} was decided on")
    if (step.unseen or step.happened) and not book.idempotent(step, event.worker):
        why = (
            "the outcome of the last one is unknown"
            if step.unseen
            else "the last one had its effect"
        )
        book.wrong("I17", f"{what} started though {why}, and the step is not idempotent")
    most = attempts_max(book, step)
    if step.tries.get(event.worker, 0) >= most:
        book.wrong("I19", f"{what}: {event.worker} has had its {most} attempts")
    if book.at < step.until:
        early = (step.until - book.at) / 1e6
        book.wrong("I19", f"{what} started {early:.6f} s before it was allowed to")


def _check_gates(book: Book, step: StepRecord, event: ev.AttemptStarted) -> None:
    """Report L13 unless the flags that a step needs are true."""
    if closed := book.closed_gates(step, event.worker):
        what = f"attempt {event.attempt} of {step.id}"
        book.wrong("L13", f"{what} started, and {closed[0]} is not true")


def _check_inputs(book: Book, step: StepRecord, event: ev.AttemptStarted) -> None:
    """Check that the dependencies are done, and that the hashes match the log."""
    what = f"attempt {event.attempt} of {step.id}"
    for name, tolerant in graph.dependencies(step.doc).items():
        other = book.follow(name)
        if other is None:
            book.wrong("I14", f"{what} depends on {name}, which is not in the plan")
        elif other.status != "succeeded" and not (tolerant and book.ended_once(name)):
            book.wrong("I14", f"{what} started though {other.id} is {other.status}")
    spec = book.catalog.get(event.worker)
    if spec is None or spec.offer(step.doc.get("action", "")) is None:
        book.wrong("I15", f"{what} went to {event.worker}, which does not offer it")
        return
    spec_hash = digest(canonical(step.doc), spec.name, spec.version)
    if event.spec != spec_hash:
        book.wrong("I24", f"{what} is not the step that was approved: its hash differs")
    template = step.doc.get("parameters") or {}
    try:
        parameters = references.resolve(template, _lookup(book))
    except Unresolved as error:
        book.wrong("I14", f"{what}: {error}")
        return
    resolved = "" if parameters is template else digest(spec_hash, canonical(parameters))
    if event.exec != resolved:
        book.wrong("I14", f"{what} was given other inputs than the log says")


def _lookup(book: Book) -> Callable[[Ref], Json]:
    def lookup(ref: Ref) -> Json:
        if ref.kind == "params":
            return with_secrets(book.start.plan, book.start.params)[ref.name]
        step = book.follow(ref.name)
        if step is None or step.status != "succeeded":
            raise LookupError(f"step {ref.name} has no data")
        return book.data[step.id]

    return lookup


def _check_limits(book: Book, step: StepRecord, worker: str) -> None:
    policy, spec = book.policy, book.catalog.get(worker)
    if len(book.live) >= policy.max_concurrency:
        book.wrong("I16", f"{step.id} is one more than {policy.max_concurrency} at once")
    limits = [policy.worker_concurrency.get(worker), spec.max_concurrency if spec else None]
    limit = min((each for each in limits if each is not None), default=None)
    if limit is not None and book.busy.get(worker, 0) >= limit:
        book.wrong("I16", f"{step.id} is one more than {limit} at once for {worker}")
    for name, amount in uses(step.doc).items():
        capacity = policy.resources.get(name, amount)
        if book.held.get(name, 0) + amount > capacity:
            held = book.held.get(name, 0)
            book.wrong("I16", f"{step.id} takes {amount} of {name}: {held} of {capacity} are held")
    if policy.budget is not None:
        total = book.spent + book.reserved + book.price(step, worker)
        if total > policy.budget + ROUNDING:
            book.wrong("I30", f"{step.id} brings the cost to {total:g} of {policy.budget:g}")


# Reports.


def _in_flight(book: Book, ident: str, kind: str, attempt: int, epoch: int) -> StepRecord | None:
    """Return the step, if this is its attempt and epoch in flight."""
    step = book.step(ident, f"a word on {kind} {attempt}")
    if step is None:
        return None
    live = book.live.get(ident)
    if live is None or (live.kind, live.attempt, live.epoch) != (kind, attempt, epoch):
        book.wrong("I12", f"{kind} {attempt} of {ident}, epoch {epoch}, is not in flight")
        return None
    return step


def _attempt_spawned(book: Book, event: ev.AttemptSpawned) -> None:
    live = book.live.get(event.step)
    if live is None or live.epoch != event.epoch:
        book.wrong("I12", f"a process for epoch {event.epoch} of {event.step}: not in flight")


def _attempt_reported(book: Book, event: ev.AttemptReported) -> None:
    book.spent += event.cost
    step = _in_flight(book, event.step, "attempt", event.attempt, event.epoch)
    if step is None:
        return
    live = book.remove_in_flight(step)
    if live is not None and live.caller:
        _check_said(book, event, live)
    elif live is not None and live.owner != book.owner:
        book.wrong("I12", f"attempt {event.attempt} of {event.step} outlived its host")
    if event.met:
        if event.failure is not None or event.findings:
            book.wrong("L5", f"{event.step} counts as met in spite of a failure or findings")
        _succeed(book, step, event.data, event.data_ref)
        return
    failure = event.failure or {}
    if not failure.get("class"):
        book.wrong("I21", f"attempt {event.attempt} of {event.step} failed without a class")
    step.tries[step.worker] = step.tries.get(step.worker, 0) + 1
    step.status, step.failure = "open", failure
    if failure.get("class") in ("invalid_output", "criteria_unmet"):
        step.broken.append(failure)
    step.unseen = step.unseen or failure.get("effect") == "unknown"
    step.happened = step.happened or failure.get("effect") == "done"


def _check_said(book: Book, event: ev.AttemptReported, live: InFlight) -> None:
    """Check that the report of a caller came within its lease."""
    what = f"attempt {event.attempt} of {event.step}"
    if not event.said:
        book.wrong("I56", f"{what} was reported, and not by {live.caller}")
    if book.at >= live.deadline:
        book.wrong("I56", f"{what} was reported after its lease had ended")


def _succeed(book: Book, step: StepRecord, data: Json, data_ref: str) -> None:
    book.succeed(step, Artifact(data_ref) if data_ref else data)


def _report_ignored(book: Book, event: ev.ReportIgnored) -> None:
    book.spent += event.cost
    step = book.step(event.step, "a late report")
    live = book.live.get(event.step)
    if live is not None and (live.kind, live.epoch) == ("attempt", event.epoch):
        book.wrong("I12", f"the report of {event.step} was ignored, and it is the current one")
    if step is not None and event.attempt > step.attempts:
        book.wrong("I6", f"a late report of attempt {event.attempt} of {event.step}")


def _attempt_lost(book: Book, event: ev.AttemptLost) -> None:
    step = _in_flight(book, event.step, "attempt", event.attempt, event.epoch)
    if step is None:
        return
    live = book.remove_in_flight(step)
    if live is not None:
        gone = live.owner != book.owner and not live.caller
        given_up = book.cancel_by is not None and book.at >= book.cancel_by
        if event.failure_class == "timeout" and book.at < live.deadline:
            early = (live.deadline - book.at) / 1e6
            book.wrong("I40", f"{event.step} timed out {early:.6f} s before its deadline")
        elif event.failure_class != "timeout" and not gone and not given_up:
            book.wrong("I12", f"{event.step} was lost though its host is still there")
    step.tries[step.worker] = step.tries.get(step.worker, 0) + 1
    step.restarts += event.failure_class == "lost"
    step.status, step.unseen = "open", True
    step.failure = {"class": event.failure_class, "effect": "unknown"}
    if book.is_for_people(step.worker):
        step.done_by = "a person"  # their answer is not lost with the host


def _probe_started(book: Book, event: ev.ProbeStarted) -> None:
    book.next_epoch(event.epoch, f"a probe of {event.step}")
    step = book.step(event.step, "a probe")
    if step is None:
        return
    if step.status != "probing" or event.attempt != step.attempts or step.id in book.live:
        book.wrong("I21", f"a probe of attempt {event.attempt} of {event.step}: not decided")
    offer = book.offer(step.worker, step.doc.get("action", ""))
    if offer is None or not offer.probe:
        book.wrong("I6", f"a probe of {event.step}, and {step.worker} has none")
    if event.deadline <= book.at:
        book.wrong("L3", f"the probe of {event.step} has no time")
    step.status = "probe"
    price = book.price(step, step.worker)
    live = (event.attempt, event.epoch, step.worker, event.deadline, book.owner, price)
    book.add_in_flight(step, InFlight("probe", *live))


def _probe_reported(book: Book, event: ev.ProbeReported) -> None:
    step = _in_flight(book, event.step, "probe", event.attempt, event.epoch)
    if step is None:
        return
    live = book.remove_in_flight(step)
    # Lost with its host, or with the remote machine that ran it.
    if live is not None and live.owner != book.owner and event.outcome != "lost":
        book.wrong("I12", f"the probe of {event.step} is {event.outcome}: its host says otherwise")
    if event.outcome == "done" and event.met:
        if event.findings:
            book.wrong("L5", f"{event.step} counts as met in spite of findings")
        _succeed(book, step, event.data, event.data_ref)
        return
    step.status = "open"
    step.unseen = event.outcome not in ("done", "not_done")
    step.happened = event.outcome == "done" or (step.happened and event.outcome != "not_done")
    if event.outcome == "done":
        step.failure = {**step.failure, "class": "criteria_unmet"}


def _step_refused(book: Book, event: ev.StepRefused) -> None:
    step = book.step(event.step, "a refusal")
    if step is None:
        return
    if step.status not in ("planned", "again"):
        book.wrong("I21", f"{event.step} could not start, and it is {step.status}")
    step.status = "open"
    step.failure = {"class": event.failure_class, "effect": "none"}


def _step_skipped(book: Book, event: ev.StepSkipped) -> None:
    step = book.step(event.step, "a skip")
    if step is None:
        return
    if step.settled or step.id in book.live:
        book.wrong("I14", f"{event.step} was skipped though it is {step.status}")
        return
    if book.said.pop(event.step, "") != "skip":
        if event.tolerated:
            book.wrong("L5", f"{event.step} was skipped and tolerated, and no answer said so")
        found = graph.dependencies(step.doc).items()
        others = [book.follow(name) for name, tolerant in found if not tolerant]
        if not any(o is not None and o.settled and o.status != "succeeded" for o in others):
            book.wrong("I14", f"{event.step} was skipped, and all it depends on is well")
    step.status, step.tolerated = "skipped", event.tolerated
    drop_questions(book, event.step)


def _step_cancelled(book: Book, event: ev.StepCancelled) -> None:
    step = book.step(event.step, "a cancellation")
    if step is None:
        return
    if step.settled or step.id in book.live:
        book.wrong("I15", f"{event.step} was cancelled though it is {step.status}")
    step.status = "cancelled"
    drop_questions(book, event.step)


STEP_CHECKS: dict[type[ev.Event], Callable[[Book, Any], None]] = {
    ev.AttemptStarted: _attempt_started,
    ev.AttemptSpawned: _attempt_spawned,
    ev.LeaseExtended: _lease_extended,
    ev.AttemptReported: _attempt_reported,
    ev.ReportIgnored: _report_ignored,
    ev.AttemptLost: _attempt_lost,
    ev.ProbeStarted: _probe_started,
    ev.ProbeReported: _probe_reported,
    ev.StepRefused: _step_refused,
    **RECOVERY_CHECKS,
    ev.StepSkipped: _step_skipped,
    ev.StepCancelled: _step_cancelled,
}
