"""Every key of the settings: its table, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from leadhand.core.durations import seconds
from leadhand.core.plan.model import RISKS
from leadhand.models.names import TIERS
from leadhand.settings.models import read_model, tier
from leadhand.settings.review import person_name, reviewers, rules

STYLES = ("whole", "next_step", "list")
"""How a model plans; the same as in `ModelPlanner`."""


class KeyKind(NamedTuple):
    """How one key is read."""

    read: Callable[[Any], Any]
    field: str = ""
    """The field of Policy it sets."""


# The values of each key. Readers raise ValueError with the end of a sentence.


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError("must be a list of texts")
    return tuple(value)


def _argv(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError('must be a list of arguments, as in ["notify-send", "{text}"]')
    return _texts(value)


def _webhook(value: Any) -> str:
    text = _text(value)
    if not text.startswith(("https://", "http://")):
        raise ValueError("must be an address that begins with https:// or http://")
    return text


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a whole number from 1")
    return value


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError("must be a table of whole numbers")  # noqa: TRY004 - the end of a sentence
    return {name: _count(each) for name, each in value.items()}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError("must be a number that is not negative")
    return float(value)


def _money(value: Any) -> float | None:
    if value == "none":
        return None
    if isinstance(value, str) or not _number(value):
        raise ValueError('must be a number above 0, or "none"')
    return float(value)


def _share(value: Any) -> float:
    if _number(value) > 1:
        raise ValueError("must be a number from 0 to 1")
    return float(value)


def _factor(value: Any) -> float:
    if _number(value) < 1:
        raise ValueError("must be a number from 1")
    return float(value)


def _duration(value: Any) -> float:
    found = seconds(value)
    if found <= 0:
        raise ValueError("must be longer than nothing")
    return found


def _risk(value: Any) -> str:
    if value not in RISKS:
        raise ValueError(f"must be one of {', '.join(RISKS)}")
    return str(value)


def _style(value: Any) -> str:
    if value not in STYLES:
        raise ValueError(f"must be one of {', '.join(STYLES)}")
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - the end of a sentence
    return value


KEYS: dict[str, dict[str, KeyKind]] = {
    "project": {
        key: KeyKind(_texts if key == "workers" else _text)
        for key in ("store", "workers", "planner")
    }
    | {"actor": KeyKind(person_name)},
    "policy": {
        "concurrency": KeyKind(_count, "max_concurrency"),
        "workers": KeyKind(_counts, "worker_concurrency"),
        "resources": KeyKind(_counts, "resources"),
        "attempts": KeyKind(_count, "attempts_max"),
        "backoff": KeyKind(_duration, "backoff_s"),
        "backoff_factor": KeyKind(_factor, "backoff_factor"),
        "backoff_max": KeyKind(_duration, "backoff_max_s"),
        "park": KeyKind(_duration, "park_s"),
        "outage": KeyKind(_duration, "outage_s"),
        "restarts": KeyKind(_count, "restarts_free"),
        "splits": KeyKind(_count, "splits_max"),
        "jitter": KeyKind(_share, "jitter"),
        "timeout": KeyKind(_duration, "timeout_s"),
        "planner_timeout": KeyKind(_duration, "planner_timeout_s"),
        "probe_timeout": KeyKind(_duration, "probe_timeout_s"),
        "planner_calls": KeyKind(_count, "planner_calls_max"),
        "planner_rounds": KeyKind(_count, "planner_rounds_max"),
        "replans_idle": KeyKind(_count, "replans_idle_max"),
        "steps": KeyKind(_count, "steps_max"),
        "wall_time": KeyKind(_duration, "wall_s"),
        "budget": KeyKind(_number, "budget"),
        "auto_risk": KeyKind(_risk, "auto_risk"),
        "review": KeyKind(_flag, "review"),
        "no_input": KeyKind(_flag, "no_input"),
        "cancel_grace": KeyKind(_duration, "cancel_grace_s"),
    },
    "review": {
        "rules": KeyKind(rules, "rules"),
        "reviewers": KeyKind(reviewers, "reviewers"),
        "expires": KeyKind(_duration, "approval_s"),
        "key": KeyKind(_text),
    },
    "planner": {
        "style": KeyKind(_style),
        "prompts": KeyKind(_text),
        "rounds": KeyKind(_count),
        "tokens": KeyKind(_count),
        "idle": KeyKind(_count),
        "budget": KeyKind(_money),
        "calls": KeyKind(_count),
    },
    "telemetry": {"enabled": KeyKind(_flag), "contents": KeyKind(_flag)},
    "tiers": {name: KeyKind(tier) for name in TIERS},
    "notify": {"command": KeyKind(_argv), "webhook": KeyKind(_webhook)},
    "audit": {"anchor": KeyKind(_text), "every": KeyKind(_duration), "key": KeyKind(_text)},
}
NAMED: dict[str, Callable[[str, str, Any], Any]] = {
    "models": read_model,
}
"""Tables of tables: readers by file, name and content."""
TABLES = (*KEYS, "approvers", *NAMED, "workers", "agents", "mcp", "context")
