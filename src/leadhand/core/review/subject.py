"""What a person is asked to approve, in one line: the plan's name, its size, its reach. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core.catalog import NOT_DECLARED
from leadhand.core.visible import visible
from leadhand.core.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.events import RunStarted
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.review.ruling import PlanReach


NAME_CHARS = 120
EFFECTS_NAMED = 6
UNDECLARED = "undeclared:"


def plan_name(plan: Doc, goal: Json = "") -> str:
    """Return the name of a plan: its id, else its goal in words; "" if it has neither."""
    aim = goal or plan.get("goal") or ""
    text = str(plan.get("plan_id") or (aim.get("text", "") if isinstance(aim, dict) else aim))
    return text if len(text) <= NAME_CHARS else text[: NAME_CHARS - 1] + "…"


def name_of_run(started: RunStarted | None) -> str:
    """Return the name of the plan that a run was started with, or its goal."""
    return plan_name(started.plan, started.goal) if started is not None else ""


def subject_of(name: str, number: int, steps: int, wanted: PlanReach) -> str:
    """Return `plan "release" (3 steps, medium risk; effects cluster, payments)`.

    `number` is that of the revision, named if it is not the first.
    """
    what = f"plan {visible(name)}" if name else "a plan without a name"
    what = f"revision {number} of {what}" if number > 1 else what
    size = f"{steps} step{'s' if steps != 1 else ''}"
    undeclared = wanted.declared == NOT_DECLARED
    risk = "risk not declared" if undeclared else f"{wanted.declared or wanted.risk} risk"
    return f"{what} ({size}, {risk}; {effects_text(wanted.effects)})"


def request_text(name: str, number: int, steps: int, wanted: PlanReach, why: str) -> str:
    """Return the text that asks people to approve a revision, with its subject and the reason."""
    return f"Approve {subject_of(name, number, steps, wanted)}; {why}"


def reason_in(text: str, name: str, number: int, steps: int, wanted: PlanReach) -> str:
    """Return the reason in a text of `request_text`; another text is its own reason."""
    return text.removeprefix(request_text(name, number, steps, wanted, ""))


def effects_text(effects: Iterable[str]) -> str:
    """Return `effects cluster, payments; quick declares none`."""
    found = sorted(effects)
    known = [each for each in found if not each.startswith(UNDECLARED)]
    silent = [each.removeprefix(UNDECLARED) for each in found if each.startswith(UNDECLARED)]
    text = f"effects {listed(known, EFFECTS_NAMED)}" if known else ""
    if not found:
        return "no effects"
    if not silent:
        return text
    verb = "declares" if len(silent) == 1 else "declare"
    missing = f"{listed(silent, EFFECTS_NAMED)} {verb} no effects"
    return f"{text}; {missing}" if text else missing
