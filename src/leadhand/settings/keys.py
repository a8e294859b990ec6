"""Every key of the settings: its table, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from leadhand.core.durations import seconds
from leadhand.core.plan.model import RISKS
from leadhand.models.names import TIERS
from leadhand.settings import fleet, server
from leadhand.settings.models import read_model, tier
from leadhand.settings.review import person_name, reviewers, rules

STYLES = ("whole", "next_step", "list")
"""How a model plans; `ModelPlanner` knows the same."""


class Kind(NamedTuple):
    """How one key is read."""

    read: Callable[[Any], Any]
    field: str = ""
    """The field of Policy it fills."""


# What each key may hold. Readers raise ValueError with the end of a sentence.


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


KEYS: dict[str, dict[str, Kind]] = {
    "project": {
        key: Kind(_texts if key == "workers" else _text) for key in ("store", "workers", "planner")
    }
    | {"actor": Kind(person_name)},
    "policy": {
        "concurrency": Kind(_count, "max_concurrency"),
        "workers": Kind(_counts, "worker_concurrency"),
        "resources": Kind(_counts, "resources"),
        "attempts": Kind(_count, "attempts_max"),
        "backoff": Kind(_duration, "backoff_s"),
        "backoff_factor": Kind(_factor, "backoff_factor"),
        "backoff_max": Kind(_duration, "backoff_max_s"),
        "park": Kind(_duration, "park_s"),
        "outage": Kind(_duration, "outage_s"),
        "restarts": Kind(_count, "restarts_free"),
        "splits": Kind(_count, "splits_max"),
        "jitter": Kind(_share, "jitter"),
        "timeout": Kind(_duration, "timeout_s"),
        "planner_timeout": Kind(_duration, "planner_timeout_s"),
        "probe_timeout": Kind(_duration, "probe_timeout_s"),
        "planner_calls": Kind(_count, "planner_calls_max"),
        "planner_rounds": Kind(_count, "planner_rounds_max"),
        "replans_idle": Kind(_count, "replans_idle_max"),
        "steps": Kind(_count, "steps_max"),
        "wall_time": Kind(_duration, "wall_s"),
        "budget": Kind(_number, "budget"),
        "auto_risk": Kind(_risk, "auto_risk"),
        "review": Kind(_flag, "review"),
        "no_input": Kind(_flag, "no_input"),
        "cancel_grace": Kind(_duration, "cancel_grace_s"),
    },
    "review": {
        "rules": Kind(rules, "rules"),
        "reviewers": Kind(reviewers, "reviewers"),
        "expires": Kind(_duration, "approval_s"),
        "key": Kind(_text),
    },
    "planner": {
        "style": Kind(_style),
        "prompts": Kind(_text),
        "rounds": Kind(_count),
        "tokens": Kind(_count),
        "idle": Kind(_count),
        "budget": Kind(_money),
        "calls": Kind(_count),
    },
    "telemetry": {"enabled": Kind(_flag), "contents": Kind(_flag)},
    "tiers": {name: Kind(tier) for name in TIERS},
    "notify": {"command": Kind(_argv), "webhook": Kind(_webhook)},
    "server": {
        "bind": Kind(_text),
        "port": Kind(server.port),
        "hosts": Kind(server.hosts),
        "people": Kind(server.people),
    },
    "audit": {"anchor": Kind(_text), "every": Kind(_duration), "key": Kind(_text)},
    "temporal": {
        "address": Kind(_text),
        "namespace": Kind(_text),
        "prefix": Kind(_text),
        "heartbeat": Kind(_duration),
        "tls": Kind(_flag),
        "ca": Kind(_text),
        "cert": Kind(_text),
        "key": Kind(_text),
        "api_key": Kind(_text),
    },
    "fleet": {key: Kind(read) for key, read in fleet.READERS.items()},
}
NAMED: dict[str, Callable[[str, str, Any], Any]] = {
    "models": read_model,
    "coders": fleet.read_coder,
}
"""Tables of tables: by place, name and content."""
TABLES = (*KEYS, "approvers", *NAMED, "workers", "agents", "mcp", "context")
