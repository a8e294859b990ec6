"""Recovery after a failed attempt: the ladder, as a pure function.

A failure has a class (from the report, never parsed from prose) and an effect: none (nothing
happened outside), done (it happened all the same) or unknown (not observed). The class selects a
row of LADDER; the rungs are tried from left to right, and the first possible one is taken. When no
rung is left, the step's failure action decides; if it has none, the planner is asked to plan around
the failure if it can, else a person.

Two rules stand above the ladder:
- An unknown effect is never repeated blindly. Unless the step is idempotent, the worker's probe is
  asked first, and without a probe a person is.
- An effect is not caused twice: after effect "done", only an idempotent step may be retried or
  given to another worker.

`choose` returns a small value; `decide` writes it into the log with its reason.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.catalog import able_workers
from leadhand.core.durations import SECONDS_MAX, seconds, text
from leadhand.core.plan.model import failure_action_of
from leadhand.core.promises import is_idempotent

if TYPE_CHECKING:
    from collections.abc import Container

    from leadhand.core.catalog import Offer
    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.core.state.model import State, StepState


LADDER: dict[str, tuple[str, ...]] = {
    "transient": ("park", "retry", "reroute", "simplify"),
    "rate_limited": ("park", "retry", "reroute", "simplify"),
    "timeout": ("retry", "reroute", "simplify"),
    "lost": ("retry", "reroute", "simplify"),
    "unavailable": ("park", "reroute"),
    "denied": ("reroute",),
    "too_complex": ("simplify", "reroute"),
    "context_overflow": ("simplify", "reroute"),
    "ambiguous": ("simplify", "reroute"),
    "invalid_output": ("retry_once", "reroute", "simplify"),
    "criteria_unmet": ("retry_once", "reroute", "simplify"),
    "needs_info": (),
    "permanent": (),
    "policy": (),
    "budget": (),
}


HARMLESS = ("abort", "rollback", "continue")
"""Failure actions that repeat nothing, so they need not know the effect."""


class Recovery(NamedTuple):
    """One recovery decision: strategy, reason, time and worker."""

    strategy: str
    """retry, reroute, park, simplify, probe, ask, replan, continue, abort, abandon."""
    reason: str
    wait_s: float = 0.0
    worker: str = ""
    rollback: bool = False
    """With abort: completed steps are to be undone."""


class Retry(NamedTuple):
    """A step's retry policy: its own settings, completed by the run's policy."""

    attempts: int
    backoff_s: float
    factor: float
    max_s: float


def retry_policy(step: Doc, policy: Policy) -> Retry:
    """Return how often and with which backoff one worker may try a step."""
    own = step.get("retry")
    if own is None:
        own = {}
    elif isinstance(own, int):
        own = {"attempts": own}
    return Retry(
        attempts=own.get("attempts", policy.attempts_max),
        backoff_s=seconds(own.get("backoff", policy.backoff_s)),
        factor=float(own.get("factor", policy.backoff_factor)),
        max_s=seconds(own.get("max_backoff", policy.backoff_max_s)),
    )


def backoff(run: str, step: str, attempt: int, tries: int, retry: Retry, jitter: float) -> float:
    """Return the seconds to wait before the next attempt; the jitter is derived from the names."""
    try:
        wait = min(retry.max_s, retry.backoff_s * retry.factor ** (tries - 1))
    except OverflowError:
        wait = retry.max_s
    seed = hashlib.sha256(f"{run}\0{step}\0{attempt}".encode()).digest()
    share = int.from_bytes(seed[:8], "big") / 2**64
    return wait * (1 + jitter * share)


def choose(state: State, step: StepState) -> Recovery:
    """Return the recovery for a step whose last attempt failed."""
    failure = step.failure or {}
    kind = str(failure.get("class", "unavailable"))
    message = str(failure.get("message", "")) or kind
    if state.stopping is not None:
        return Recovery("abandon", f"{message}; the run is stopping ({state.stopping.reason})")
    if failure.get("change"):
        return Recovery("ask", f"{message}; a person must approve the change")
    offer = state.catalog.offer(step.worker, step.action)
    repeatable = idempotent(step, offer)
    if failure.get("effect") == "unknown" and not repeatable:
        return _unseen(state, step, message, offer)
    if repeatable and lost_with_host(failure) and _restarts(step) <= state.policy.restarts_free:
        return Recovery("park", f"{message}; this does not count as an attempt", 0.0, step.worker)
    if failure.get("effect") != "done" or repeatable:
        for rung in LADDER.get(kind, ("reroute",)):
            recovery = _RUNGS[rung](state, step, message)
            if recovery is not None:
                return recovery
    return _last(state, step, kind, message)


def lost_with_host(failure: Doc) -> bool:
    """Return whether the outcome is unknown because the host of the attempt died."""
    return failure.get("class") == "lost" and failure.get("effect") == "unknown"


def _restarts(step: StepState) -> int:
    """Return how often it was lost with its host since a person last restarted it."""
    return sum(map(lost_with_host, step.failures[step.forgiven :]))


def idempotent(step: StepState, offer: Offer | None) -> bool:
    """Return whether running it twice has the same effect as once: see `core/promises.py`."""
    return is_idempotent(step.doc, offer, widened=step.widened)


def may_have_happened(step: StepState) -> bool:
    """Return whether any attempt since a person last looked may have taken effect.

    The last failure alone does not tell: it may have had no effect, after one that did.
    """
    return any(each.get("effect", "none") != "none" for each in step.failures[step.forgiven :])


def _unseen(state: State, step: StepState, message: str, offer: Offer | None) -> Recovery:
    failure = step.failure or {}
    if offer is not None and offer.probe and not failure.get("probed"):
        return Recovery("probe", f"{message}; asking {step.worker} whether it took effect")
    if failure_action_of(step.doc.get("failure_action")) in HARMLESS:
        kind = str(failure.get("class", ""))
        return _last(state, step, kind, f"{message}; it is unknown whether it took effect")
    return Recovery(
        "ask", f"{message}; it is unknown whether it took effect, so it is not repeated unasked"
    )


def _retry(
    state: State, step: StepState, message: str, attempts_max: int | None = None
) -> Recovery | None:
    retry = retry_policy(step.doc, state.policy)
    if attempts_max is not None:
        retry = retry._replace(attempts=min(retry.attempts, attempts_max))
    tries = step.failures_by(step.worker)
    if tries >= retry.attempts or not tries:
        return None
    wait = backoff(state.run, step.id, step.attempts, tries, retry, state.policy.jitter)
    asked = (step.failure or {}).get("retry_after")
    if asked is not None and float(asked) > state.policy.park_s:
        return None  # a long outage beyond the time a step may be parked
    if asked is not None:
        wait = max(wait, min(float(asked), SECONDS_MAX))
    when = f" in {text(wait)}" if wait else ""
    why = f"{message}; attempt {tries + 1} of {retry.attempts}{when}"
    return Recovery("retry", why, wait, step.worker)


def _retry_once(state: State, step: StepState, message: str) -> Recovery | None:
    offer = state.catalog.offer(step.worker, step.action)
    return _retry(state, step, message, 2) if idempotent(step, offer) else None


def _park(state: State, step: StepState, message: str) -> Recovery | None:
    """Handle a long outage without using an attempt: another worker does it, or the step parks."""
    asked = (step.failure or {}).get("retry_after")
    if asked is None or not float(asked) > state.policy.park_s:  # false for NaN, too
        return None
    wait = min(float(asked), SECONDS_MAX)
    if step.parked_s + wait > state.policy.outage_s:
        return None
    why = f"{message}; unavailable for {text(wait)}, so the step is parked and no attempt is used"
    return _reroute(state, step, message) or Recovery("park", why, wait, step.worker)


def _reroute(state: State, step: StepState, message: str) -> Recovery | None:
    offer = state.catalog.offer(step.worker, step.action)
    unmet = (step.failure or {}).get("class") in ("invalid_output", "criteria_unmet")
    declared = step.doc.get("effects") or (offer.effects if offer else None)
    if unmet and declared and not idempotent(step, offer):
        return None
    worker = alternative(state, step, state.open_circuits) or alternative(state, step)
    if not worker:
        return None
    return Recovery("reroute", f"{message}; {worker} can do it instead", 0.0, worker)


def alternative(state: State, step: StepState, down: Container[str] = ()) -> str:
    """Return the first other worker that may do a step, has not tried it, and is not `down`."""
    happened = may_have_happened(step)
    for worker in able_workers(step.doc, state.catalog.workers)[1:]:
        theirs = state.catalog.offer(worker, step.action)
        if theirs is None or worker == step.worker or step.failures_by(worker) or worker in down:
            continue
        # A possible effect is repeated only by a worker that is idempotent.
        if not happened or idempotent(step, theirs):
            return str(worker)
    return ""


def _simplify(state: State, step: StepState, message: str) -> Recovery | None:
    if state.started is None or not state.started.splits or step.depth >= state.policy.splits_max:
        return None
    return Recovery("simplify", f"{message}; the planner is asked to split it")


_RUNGS = {
    "park": _park,
    "retry": _retry,
    "retry_once": _retry_once,
    "reroute": _reroute,
    "simplify": _simplify,
}


def _last(state: State, step: StepState, kind: str, message: str) -> Recovery:
    action = failure_action_of(step.doc.get("failure_action"))
    replans = state.started is not None and state.started.replans
    if action is None:
        action = "replan" if replans else "escalate"
    match action:
        case "abort":
            return Recovery("abort", message)
        case "rollback":
            return Recovery("abort", f"{message}; the run will be rolled back", rollback=True)
        case "continue":
            return Recovery("continue", f"{message}; the plan says to continue")
        case "replan" if replans:
            return Recovery("replan", message)
        case _:
            apart = "\n" if "\n" in message else " "  # printed output keeps its lines
            return Recovery("ask", f"{message}{apart}({kind}); no recovery left")
