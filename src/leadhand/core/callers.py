"""Steps that are handed out: the worker is the agent that drives the run, and asks for its steps.

Laws of this file
1. One step at a time: while a caller has a step, no caller gets another step of that run.
2. A step is handed out by an event that is durable before the caller hears of it. It belongs to
   that caller until the caller reports, or until the lease ends. The end of a host changes nothing.
3. The number of the attempt is the fence: a report of another attempt, of another caller or after
   the lease changes nothing, and is refused.
4. The same report again is accepted and changes nothing.
5. A lease that ends is a lost attempt, whose outcome is unknown: what follows is decided as for
   every other worker (`core/decide/recovery.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.decide.decide import Claim, hand_out
from leadhand.core.decide.effects import SECOND, Move
from leadhand.core.durations import text
from leadhand.core.review import agents
from leadhand.core.review.agents import PREFIX as AGENT
from leadhand.core.visible import visible
from leadhand.core.wording import did_you_mean
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from leadhand.core.state.model import Now, State, StepState


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ /@+-]{0,78}[A-Za-z0-9]|[A-Za-z0-9]")
LEASE_S = 900.0
"""The lease of a caller that does not say how long it needs."""
LEASE_MIN_S = 1.0
RENEWED = 4
"""A lease is extended in the log once a quarter of it has passed; earlier it is long enough."""


def agent_name(caller: str) -> str:
    """Return the name under which a caller is recorded, `agent:NAME`.

    Raise `UsageError` if it cannot be a name.
    """
    name = caller.removeprefix(AGENT)
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{visible(caller)[:100]!r} cannot be the name of a caller. Fix: take at most 80 "
            "letters, digits, spaces and . _ / @ + -"
        )
    return f"{AGENT}{name}"


def account_caller(caller: str, account: str) -> str:
    """Return the name under which a caller that uses an account is recorded.

    It ends with the account, `agent:NAME of ACCOUNT`, also if the caller gives that whole name: no
    caller of one account can report, extend or take a step of another account's. Raise `UsageError`
    if `caller` cannot be a name.
    """
    name = agent_name(caller).removeprefix(AGENT)
    whose = agents.agent_name("x", account).removeprefix(f"{AGENT}x")
    return agents.agent_name(name.removesuffix(whose), account)


def step_with(state: State, caller: str) -> StepState | None:
    """Return the step that a caller has, or None."""
    if not state.handed_out:
        return None
    busy = [state.steps[step] for step in state.in_flight]
    return next((step for step in busy if step.with_caller and step.caller == caller), None)


def claim(state: State, now: Now, caller: str, lease_s: float) -> Move:
    """Hand the next step out to a caller; nothing if there is none now, or it has one already."""
    if lease_s < LEASE_MIN_S:
        raise UsageError(f"a lease takes at least {text(LEASE_MIN_S)}")
    if step_with(state, caller) is not None:
        return Move([], [])
    return hand_out(state, now, Claim(caller, lease_s)) or Move([], [])


def extend(state: State, now: Now, ident: str, attempt: int, caller: str, lease_s: float) -> Move:
    """Extend the lease of a caller, up to the timeout of its step.

    Raise `Conflict` if the step is not, or no longer, with that caller.
    """
    if lease_s < LEASE_MIN_S:
        raise UsageError(f"a lease takes at least {text(LEASE_MIN_S)}")
    step = with_caller(state, now, ident, attempt, caller)
    until = min(step.limit, now.at + int(lease_s * SECOND))
    gained = until - step.deadline
    early = until < step.limit and gained * RENEWED < lease_s * SECOND
    if state.stopping is not None or gained <= 0 or early:
        return Move([], [])
    return Move([ev.LeaseExtended(ident, attempt, step.epoch, until)], [])


def with_caller(state: State, now: Now, ident: str, attempt: int, caller: str) -> StepState:
    """Return a step if this attempt of it is with that caller now. Raise `Conflict` if not."""
    step = _step(state, ident)
    again = "Nothing was recorded. Fix: ask for the next step"
    if state.ended is not None:
        raise Conflict(f"run {state.run} has ended ({state.ended.status}). Nothing was recorded")
    if attempt > step.attempts or attempt < 1:
        raise Conflict(f"step {ident} has no attempt {attempt}. {again}")
    if attempt < step.attempts:
        raise Conflict(
            f"attempt {attempt} of step {ident} is over: attempt {step.attempts} came after it. "
            f"{again}"
        )
    if step.caller and step.caller != caller:
        raise Conflict(f"step {ident} was handed out to {step.caller}, not to {caller}. {again}")
    if not step.with_caller:
        why = _why_over(step)
        raise Conflict(f"attempt {attempt} of step {ident} is over: {why}. {again}")
    if now.at >= step.deadline:
        raise Conflict(
            f"the lease of attempt {attempt} of step {ident} ended at {iso(step.deadline)}. {again}"
        )
    return step


def _why_over(step: StepState) -> str:
    if not step.caller:
        return "it was not handed out to a caller"
    if step.failure is not None and step.failure.get("effect") == "unknown":
        return str(step.failure.get("message", "")) or "its lease ended"
    return f"the step is {step.status}"


def heard_before(state: State, ident: str, attempt: int, said: str) -> bool:
    """Return whether this very report was accepted already.

    Raise `Conflict` if another report of the attempt was.
    """
    step = _step(state, ident)
    known = (step.said or {}).get(str(attempt))
    if known is not None and known != said:
        raise Conflict(
            f"attempt {attempt} of step {ident} was reported already, otherwise than now. The "
            "first report counts"
        )
    return known is not None


def _step(state: State, ident: str) -> StepState:
    step = state.steps.get(ident)
    if step is None:
        raise UsageError(
            f"there is no step {visible(ident)[:100]} in run {state.run}. "
            f"{did_you_mean(ident, state.steps)}"
        )
    return step
