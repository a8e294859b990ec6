"""What checks report: a rule, a place, what is wrong, and what to do about it.

The rules themselves stand in `core/lint/rules.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.jsonschema import possible, problems
from leadhand.core.lint.rules import RULES, Level
from leadhand.core.wording import closest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leadhand.core.jsonschema import SchemaProblem
    from leadhand.core.plan.model import Doc, Json


FINDINGS_MAX = 1000
GUESSES_MAX = 100
"""How many misspelt words are looked up in one check: each costs a comparison with many."""


class Finding(NamedTuple):
    """One thing a check has to say."""

    rule: str
    level: Level
    place: str
    message: str
    fix: str = ""
    step: str = ""
    """The id of the step it is about, where it is about one that has an id."""
    line: int = 0
    """Where it stands in the file it was read from, when that is known."""

    @property
    def code(self) -> str:
        """The number of its rule."""
        return RULES[self.rule].code

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        step = f"step {shown(self.step)}" if self.step else ""
        where = ", ".join(part for part in (self.place, line, step) if part)
        at = f" at {where}" if where else ""
        fix = f" {self.fix}" if self.fix else ""
        return f"{self.level}[{self.code} {self.rule}]{at}: {self.message}.{fix}"

    def document(self) -> Doc:
        """As `--json` prints it."""
        doc: Doc = {"id": self.code, "rule": self.rule, "level": self.level, "place": self.place}
        if self.step:
            doc["step"] = self.step
        if self.line:
            doc["line"] = self.line
        return doc | {"message": self.message, "fix": self.fix}


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
        self, rule: str, place: str, message: str, fix: str = "", level: Level | None = None
    ) -> None:
        """Note one finding. Each level has its own room: no crowd of warnings hides an error."""
        level = level or RULES[rule].level
        seen = self._seen[level] = self._seen.get(level, 0) + 1
        if seen <= FINDINGS_MAX:
            self.found.append(Finding(rule, level, place, message, fix))
        else:
            self._cut = True
            self.full = self.full or level == "error"

    def problems(
        self, value: Json, schema: Doc, path: str = "", *, holes: bool = False
    ) -> list[SchemaProblem]:
        """`jsonschema.problems`, or `possible` for a value with holes; guesses count as these."""
        judge = possible if holes else problems
        wrong = judge(value, schema, path, guesses=min(self._guesses_left, 20))
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


_STEP = re.compile(r"steps\[(\d+)\]")


def name_steps(found: list[Finding], doc: Json) -> list[Finding]:
    """The findings with the ids of the steps they are about."""
    return [each._replace(step=_step_at(each.place, doc)) for each in found]


def _step_at(place: str, doc: Json) -> str:
    while place.startswith("rollback_plan.") and isinstance(doc, dict):
        place, doc = place.removeprefix("rollback_plan."), doc.get("rollback_plan")
    match = _STEP.match(place)
    if match is None:
        return ""
    steps = doc.get("steps") if isinstance(doc, dict) else doc
    step = steps[int(match[1])] if isinstance(steps, list) else None
    ident = step.get("id") if isinstance(step, dict) else None
    return ident if isinstance(ident, str) else ""
