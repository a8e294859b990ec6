"""What a log may say of failures: one decision about each, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core import events as ev
from leadhand.core.catalog import doers
from leadhand.core.plan import failure_action_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.invariants_book import Book, Entry

SAME_AGAIN = frozenset(
    {"transient", "rate_limited", "timeout", "lost", "invalid_output", "criteria_unmet"}
)
"""Classes after which the same worker may try the same again."""

NOBODY_ELSE = frozenset({"needs_info", "permanent", "policy", "budget"})
"""Classes that another worker cannot help either."""

ONCE_MORE = frozenset({"invalid_output", "criteria_unmet"})

ROUNDING = 1e-3

PATIENT = SAME_AGAIN - ONCE_MORE
"""Classes after which the same worker tries again for as long as it has tries left."""


def attempts_max(book: Book, step: Entry) -> int:
    """How often one worker may try a step."""
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
        book.barred.pop(step.id, None)  # A step that has ended is held no longer.
        book.break_promise(step)


def _check_repeat(book: Book, step: Entry, event: ev.RecoveryDecided, kind: str) -> None:
    what = f"{event.strategy} of {step.id}"
    if (step.unseen or step.happened) and not book.idempotent(step, event.worker):
        why = "nobody saw whether it happened" if step.unseen else "it has happened"
        book.wrong("I17", f"{what} though {why}, and the step is not idempotent")
    if event.strategy == "reroute":
        known = doers(step.doc, book.catalog)
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


def _check_park(book: Book, step: Entry, event: ev.RecoveryDecided, asked: Any) -> None:
    what = f"park of {step.id}"
    step.tries[step.worker] = step.tries.get(step.worker, 0) - 1
    if _is_free(book, step, str(step.failure.get("class", ""))):
        return
    if asked is None or float(asked) <= book.policy.park_s:
        book.wrong("I19", f"{what}, and nobody asked for a long wait")
    step.parked_s += (event.until - book.at) / 1e6
    if step.parked_s > book.policy.outage_s + ROUNDING:
        book.wrong("I19", f"{what}, for {step.parked_s:g} s in all by now")


def _is_free(book: Book, step: Entry, kind: str) -> bool:
    """Whether it was lost with its host, and not too often for that to be free."""
    return kind == "lost" and step.unseen and step.restarts <= book.policy.restarts_free


def _could_retry(book: Book, step: Entry, kind: str) -> bool:
    """Whether the same worker may and should try again: nothing else comes before that."""
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
