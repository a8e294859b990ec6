"""The limits of an approval, and how a run's limits may be looser.

An approver allows a plan under the limits shown: a budget, a number of concurrent steps, a number
of attempts, two people for risky steps. A run under tighter limits does no more than was allowed; a
run under looser limits was not allowed. Each constant of a policy is of one of four kinds:

    MOST     a number; more is looser, and none at all is loosest
    POOLS    numbers by name; a missing name has no limit
    WORD     review requirements; each has its own notion of less
    PACE     waiting times: they allow nothing, and may differ
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core.durations import text
from leadhand.core.plan.model import RISKS, worst
from leadhand.core.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.plan.model import Doc, Json


MOST = (
    "budget",
    "wall_s",
    "max_concurrency",
    "attempts_max",
    "timeout_s",
    "outage_s",
    "restarts_free",
    "splits_max",
    "steps_max",
    "planner_calls_max",
    "planner_rounds_max",
    "replans_idle_max",
    "approval_s",
)
POOLS = ("worker_concurrency", "resources")
AGENTS = "agent_risk"
"""Listed only where it is set: by default an agent approves nothing."""
WORD = ("auto_risk", AGENTS, "review", "rules", "reviewers", "approvers")
PACE = (
    "backoff_s",
    "backoff_factor",
    "backoff_max_s",
    "jitter",
    "park_s",
    "planner_timeout_s",
    "probe_timeout_s",
    "cancel_grace_s",
    "inline_bytes",
    "no_input",
)


def limits_of(policy: Policy) -> Doc:
    """Return all constants of a policy that allow more or less, in full: defaults may change."""
    found: Doc = {name: _number(getattr(policy, name)) for name in MOST}
    words = [name for name in (*POOLS, *WORD) if name != AGENTS or policy.agent_risk]
    return found | {name: msgspec.to_builtins(getattr(policy, name)) for name in words}


def _number(value: float | None) -> float | None:
    """Return one spelling for equal numbers, however they are serialized."""
    return int(value) if value is not None and value == int(value) else value


def loosened_limits(before: Doc, policy: Policy) -> list[str]:
    """Return a phrase for each way in which a policy allows more than `before`."""
    after = {AGENTS: "", **limits_of(policy)}
    known = {name: value for name, value in {AGENTS: "", **before}.items() if name in after}
    found: list[str] = []
    for name, value in known.items():
        if name in MOST:
            found += _more(_words(name), value, after[name])
        elif name in POOLS:
            for each, most in value.items():
                found += _more(f"{_words(name)} of {each}", most, after[name].get(each))
        elif not _as_strict(name, value, after[name]):
            found.append(f"{_words(name)} ask for less than they did")
    return found


def changed_limits(limits: Doc) -> Iterator[tuple[str, Json]]:
    """Yield the limits that differ from the defaults; the budget always."""
    usual = limits_of(Policy())
    for name, value in limits.items():
        if name == "budget" or value != usual.get(name):
            yield _words(name), text(value) if name.endswith("_s") and value is not None else value


def _words(name: str) -> str:
    known = {
        "max_concurrency": "concurrency",
        "wall_s": "wall time",
        "rules": "review rules",
        "approval_s": "approval expiry",
    }
    return known.get(name, name.removesuffix("_max").removesuffix("_s").replace("_", " "))


def _more(what: str, before: float | None, after: float | None) -> list[str]:
    if before is None or (after is not None and after <= before):
        return []
    return [f"{what} {'without limit' if after is None else f'{after:g}'} instead of {before:g}"]


def _as_strict(name: str, before: Json, after: Json) -> bool:
    match name:
        case "auto_risk":
            return RISKS.index(worst(after)) <= RISKS.index(worst(before))
        case "agent_risk":
            return not after or (bool(before) and RISKS.index(after) <= RISKS.index(before))
        case "review":
            return after or not before
        case "reviewers":
            return set(before) <= set(after)
        case "approvers":
            return not before or (bool(after) and after.items() <= before.items())
        case _:
            return _rules_hold(before, after)


def _rules_hold(before: list[Doc], after: list[Doc]) -> bool:
    """Return whether the rules demand no less: the first match decides, so the order must stay.

    Only a rule that allows may be gone, and only a rule that refuses or demands the most people may
    be new: in any place it demands no less.
    """
    kept = [rule for rule in after if rule in before or rule.get("then") not in ("two", "refuse")]
    wanted = [rule for rule in before if rule in after or rule.get("then") != "allow"]
    return kept == wanted
