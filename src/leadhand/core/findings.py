"""What checks report: a rule, a place, what is wrong, and what to do about it.

A rule's id is for ever: people put it into scripts and searches. All rules stand in RULES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from leadhand.core.shape import problems
from leadhand.core.wording import closest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leadhand.core.plan import Doc, Json
    from leadhand.core.shape import Problem

Level = Literal["error", "warning", "note"]

FINDINGS_MAX = 1000
GUESSES_MAX = 100
"""How many misspelt words are looked up in one check: each costs a comparison with many."""

RULES: dict[str, str] = {
    "action-unknown": "the worker does not offer this action",
    "alternative-unfit": "an alternative worker cannot do what the step asks",
    "check-unknown": "the worker has no check of this name",
    "cycle": "steps wait for each other in a circle",
    "dependency-failed": "a step depends on one that has already failed",
    "dependency-missing": "a step depends on one that is not in the plan",
    "dependency-self": "a step depends on itself",
    "duration-wrong": "not a duration",
    "expression-wrong": "a criterion is not an expression that is allowed",
    "failure-action-unknown": "not something that can follow a failure",
    "field-later": "a field that this version does not act on yet",
    "field-missing": "a field that must be there is not",
    "field-unknown": "a field that plans do not have",
    "field-wrong": "a field holds something it cannot",
    "findings-cut": "there is more to report than is shown",
    "id-duplicate": "two steps have one id",
    "id-taken": "a new step has the id of one that is in the run already",
    "id-unclear": "an id that references could not name",
    "param-missing": "a parameter of the plan has no value",
    "param-unknown": "a value for a parameter that the plan does not have",
    "param-wrong": "a parameter of the plan has a value it cannot have",
    "parameter-missing": "the worker needs a parameter that the step does not give",
    "parameter-unknown": "the worker does not know this parameter",
    "parameter-wrong": "a parameter is not what the worker takes",
    "reference-misplaced": "a reference stands where none can",
    "reference-uncertain": "a reference to the result of a step that may have failed",
    "reference-unresolved": "a reference to something that is not there",
    "reference-wrong": "not a reference",
    "resource-exceeded": "a step uses more of a resource than there is",
    "resource-unknown": "a step uses a resource that is not declared",
    "risk-unknown": "not a risk level",
    "rollback-absent": "a step asks for a rollback, and there is nothing to roll back with",
    "steps-too-many": "the plan has more steps than the limit",
    "supersedes-unknown": "a step takes the place of one that is not there",
    "time-wrong": "not a moment or a window",
    "worker-unknown": "no worker of this name is registered",
    "zone-fixed": "a time zone that does not follow the seasons",
}


class Finding(NamedTuple):
    """One thing a check has to say."""

    rule: str
    level: Level
    place: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""
        fix = f" {self.fix}" if self.fix else ""
        return f"{self.level}[{self.rule}]{where}: {self.message}.{fix}"


class Findings:
    """Collects findings up to a limit; once `full`, there is no point in looking further."""

    __slots__ = ("_cut", "_guesses_left", "_seen", "found", "full")

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.full = False
        self._cut = False
        self._seen: dict[str, int] = {}
        self._guesses_left = GUESSES_MAX

    def add(
        self, rule: str, place: str, message: str, fix: str = "", level: Level = "error"
    ) -> None:
        """Note one finding. Each level has its own room: no crowd of warnings hides an error."""
        seen = self._seen[level] = self._seen.get(level, 0) + 1
        if seen <= FINDINGS_MAX:
            self.found.append(Finding(rule, level, place, message, fix))
        else:
            self._cut = True
            self.full = self.full or level == "error"

    def problems(self, value: Json, schema: Doc, path: str = "") -> list[Problem]:
        """`shape.problems`, its guesses counted as these."""
        wrong = problems(value, schema, path, guesses=min(self._guesses_left, 20))
        self._guesses_left -= min(len(wrong), self._guesses_left)
        return wrong

    def guess(self, word: object, candidates: Iterable[str]) -> str:
        """'Did you mean "x"?', as long as guessing stays cheap."""
        if self._guesses_left <= 0:
            return ""
        self._guesses_left -= 1
        meant = closest(word, candidates)
        return f'Did you mean "{meant}"?' if meant else ""

    def done(self) -> list[Finding]:
        """Everything that was found."""
        if self._cut:
            message = f"there are more than {FINDINGS_MAX} findings; the rest is not shown"
            return [*self.found, Finding("findings-cut", "note", "", message)]
        return self.found


class Either:
    """The ids of a proposal and some of the run's, for guessing; nothing is copied."""

    def __init__(self, new: Iterable[str], known: Iterable[str]) -> None:
        self.new, self.known = new, known

    def __iter__(self) -> Iterator[str]:
        yield from self.new
        yield from self.known
