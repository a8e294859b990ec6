"""A task of a plan, the work that an agent left, and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from leadhand.core.report import Failure, Report
from leadhand.fleet.boundaries import outside
from leadhand.fleet.repository.git import printable_name
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from leadhand.fleet.agents.base import CoderResult
    from leadhand.fleet.merge.conductor import Ejected
    from leadhand.fleet.workspace.capture import CapturedWork

CHANGES_TOLD = 8
OTHERS_TOLD = 3
PATHS_CHARS = 600

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": {"type": "string"},
        "acceptance": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "writes": {"type": "array", "items": {"type": "string"}},
        "reads": {"type": "array", "items": {"type": "string"}},
        "brief": {"type": "string"},
        "budget": {"type": "number"},
        "time_s": {"type": "number"},
        "priority": {"type": "integer"},
        "base": {"type": "string"},
        "may_remove_tests": {"type": "boolean"},
        "repository": {"type": "string"},
    },
    "required": ["goal", "writes"],
    "additionalProperties": False,
}
RETURNS: dict[str, Any] = {
    "type": "object",
    "properties": {"commit": {"type": "string"}, "files": {"type": "array"}},
    "required": ["commit", "files"],
}


class PlannedTask(msgspec.Struct, frozen=True):
    """A task as it stands in the plan."""

    goal: str
    writes: list[str]
    acceptance: list[list[str]] = []
    reads: list[str] = []
    brief: str = ""
    budget: float = 0.0
    time_s: float = 0.0
    """How long its agent may work, if the task says so; waiting does not count."""
    priority: int = 0
    base: str = ""
    """Where main was when it was planned, where that matters."""
    may_remove_tests: bool = False
    """Whether tests of main may be gone afterwards: a person then looks at the change."""
    repository: str = ""
    """The repository that it belongs to; empty: the main one."""


class Left(NamedTuple):
    """The work of an agent, as a commit on its base."""

    base: str
    head: str


class Paid:
    """Reports of one attempt, each with the agent's cost."""

    def __init__(self, result: CoderResult) -> None:
        self._cost = result.cost
        self._output = scrub(result.tail)

    @property
    def cost(self) -> float:
        """Return the cost so far."""
        return self._cost

    def add(self, cost: float) -> None:
        """Add the cost of another agent."""
        self._cost += cost

    def failed(
        self,
        kind: str,
        words: str,
        retry_after_s: float | None,
        details: dict[str, Any],
        change: dict[str, Any] | None = None,
    ) -> Report:
        """Return the report of a failure; `change` is what people must approve first."""
        failure = Failure(kind, scrub(words), "none", retry_after_s, details, change)
        return Report("failed", error=failure, cost=self._cost, output=self._output)

    def landed(
        self,
        sha: str,
        files: list[str],
        flaky: tuple[str, ...],
        remarks: tuple[str, ...] = (),
        *,
        same: bool = False,
        tests: str = "",
    ) -> Report:
        """Return the report of a landed change; the agent's remarks go to the planner.

        `same`: it went on with a conversation that had failed before.
        """
        data: dict[str, Any] = {"commit": sha, "files": files}
        if same:
            data["conversation"] = "same"
        if flaky:
            data["flaky"] = list(flaky)
        if tests:
            data["tests"] = tests
        return Report(data=data, recommendations=remarks, cost=self._cost, output=self._output)


def overtaken_report(others: list[dict[str, Any]]) -> Report:
    """Return the report for a task that must not be done as planned: the planner looks again."""
    told = "; ".join(f"{each['sha']} {each['subject']}" for each in others[-CHANGES_TOLD:])
    words = f"drift: others changed what it was going to write since it was planned: {told}"
    details = {"drift": others[-CHANGES_TOLD:]}
    return Report("failed", error=Failure("permanent", scrub(words), "none", None, details))


def conflict_in(outcome: Ejected, left: Left) -> dict[str, Any]:
    """Return where both differences of a conflict can be found: they are too long for the log."""
    details, room = outcome.details, PATHS_CHARS
    paths: list[str] = []
    for path in details.get("paths", ()):
        room -= len(path)
        paths += [path] if room > 0 else []
    others = [
        {"task": str(each["task"])[:80], "goal": scrub(str(each["goal"]))[:200]}
        for each in list(details.get("others", ()))[-OTHERS_TOLD:]
    ]
    onto = str(details.get("onto", ""))
    return {"base": left.base, "head": left.head, "onto": onto, "paths": paths, "others": others}


def wrong_with(taken: CapturedWork, given: PlannedTask) -> str:
    """Return why an agent's work is not the task; empty if it may be."""
    if not taken.head and not taken.left_out:
        hidden = f" (but for {printable_name(min(taken.elsewhere))})" if taken.elsewhere else ""
        return f"the agent says that it is done, and has changed nothing{hidden}"
    beyond = outside(sorted(taken.changed), given.writes)
    if beyond:
        named = ", ".join(map(printable_name, beyond[:5]))
        return f"it changed {named}, which is outside of {', '.join(given.writes)}"
    if taken.left_out:
        path, why = next(iter(taken.left_out.items()))
        return f"{printable_name(path)} cannot be taken: {why}"
    return ""
