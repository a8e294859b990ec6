"""A task as it stands in a plan, what an agent left of it, and how that is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.report import Failure, Report
from leadhand.models.guard import scrub

if TYPE_CHECKING:
    from leadhand.fleet.coder.base import CoderResult

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "acceptance": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "writes": {"type": "array", "items": {"type": "string"}},
        "reads": {"type": "array", "items": {"type": "string"}},
        "brief": {"type": "string"},
        "budget": {"type": "number"},
        "priority": {"type": "integer"},
    },
    "required": ["goal", "writes"],
    "additionalProperties": False,
}
RETURNS: dict[str, Any] = {
    "type": "object",
    "properties": {"commit": {"type": "string"}, "files": {"type": "array"}},
    "required": ["commit", "files"],
}


class Given(msgspec.Struct, frozen=True):
    """A task as it stands in the plan."""

    goal: str
    writes: list[str]
    acceptance: list[list[str]] = []
    reads: list[str] = []
    brief: str = ""
    budget: float = 0.0
    priority: int = 0


class Left(NamedTuple):
    """What an agent left, as a commit on its base."""

    base: str
    head: str


class Paid:
    """Reports of one attempt, each with what the agent cost."""

    def __init__(self, result: CoderResult) -> None:
        self._cost = result.cost
        self._output = scrub(result.tail)

    def add(self, cost: float) -> None:
        """Somebody else worked on it too."""
        self._cost += cost

    def failed(
        self, kind: str, words: str, retry_after_s: float | None, details: dict[str, Any]
    ) -> Report:
        """Nothing of it is on main."""
        failure = Failure(kind, scrub(words), "none", retry_after_s, details)
        return Report("failed", error=failure, cost=self._cost, output=self._output)

    def landed(self, sha: str, files: list[str], flaky: tuple[str, ...]) -> Report:
        """It is on main."""
        data: dict[str, Any] = {"commit": sha, "files": files}
        if flaky:
            data["flaky"] = list(flaky)
        return Report(data=data, cost=self._cost, output=self._output)
