"""Findings of checks: a rule, a place, the problem, and the fix.

`core/lint/rules.py` defines the rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from leadhand.core.jsonschema import possible, problems
from leadhand.core.lint.rules import RULES, Level
from leadhand.core.wording import closest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leadhand.core.jsonschema import SchemaProblem
    from leadhand.core.plan.model import Doc, Json


FINDINGS_MAX = 1000
GUESSES_MAX = 100
"""The number of misspelt words looked up in one check: each is compared with many candidates."""


class FindingRow(Struct, kw_only=True):
    """Something that is wrong with a plan, and its fix, as documents show it."""

    id: str | UnsetType = UNSET
    """The number of its rule."""
    rule: str
    """The name of its rule."""
    level: Level
    """How serious it is."""
    place: str
    """The place in the document, such as `steps[1].depends_on[0]`."""
    step: str | UnsetType = UNSET
    """The id of the step that it is about."""
    file: str | UnsetType = UNSET
    """The file that the plan was read from."""
    line: int | UnsetType = UNSET
    """Its line in that file."""
    message: str
    """What is wrong."""
    fix: str
    """How to fix it."""


class Finding(NamedTuple):
    """One finding: rule, level, place, message and fix."""

    rule: str
    level: Level
    place: str
    message: str
    fix: str = ""
    step: str = ""
    """The id of the step the finding is about, if any."""
    line: int = 0
    """The line in the source file, if known; else 0."""
    file: str = ""
    """The file that the plan was read from, if it was read from one."""

    @property
    def code(self) -> str:
        """The code of its rule, such as LH101."""
        return RULES[self.rule].code

    def __str__(self) -> str:
        source = f"{self.file}:{self.line}: " if self.file and self.line else ""
        if self.file and not self.line:
            source = f"{self.file}: "
        step = f"step {shown(self.step)}" if self.step else ""
        where = ", ".join(part for part in (self.place, step) if part)
        at = f" at {where}" if where else ""
        fix = f" {self.fix}" if self.fix else ""
        return f"{source}{self.level}[{self.code} {self.rule}]{at}: {self.message}.{fix}"

    def document(self) -> FindingRow:
        """Return the finding in the form that `--json` prints."""
        return FindingRow(
            id=self.code,
            rule=self.rule,
            level=self.level,
            place=self.place,
            step=self.step or UNSET,
            file=self.file or UNSET,
            line=self.line or UNSET,
            message=self.message,
            fix=self.fix,
        )


class Findings:
    """A collection of findings up to a limit. Once it is `full`, checks can stop."""

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
        """Add one finding. Limits count per level, so that warnings cannot crowd out an error."""
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
        """Return `jsonschema.problems` (`possible` for a value with holes); count the guesses."""
        judge = possible if holes else problems
        wrong = judge(value, schema, path, guesses=min(self._guesses_left, 20))
        self._guesses_left -= min(len(wrong), self._guesses_left)
        return wrong

    def guess(self, word: object, candidates: Iterable[str]) -> str:
        """Return 'Did you mean "x"?', or "" once the allowance for guesses is used up."""
        if self._guesses_left <= 0:
            return ""
        self._guesses_left -= 1
        meant = closest(word, candidates)
        return f'Did you mean "{meant}"?' if meant else ""

    def done(self) -> list[Finding]:
        """Return all findings, with a note if some were cut."""
        if self._cut:
            message = f"there are more than {FINDINGS_MAX} findings; the rest is not shown"
            return [*self.found, Finding("findings-cut", "note", "", message)]
        return self.found


class CandidateIds:
    """The ids of a proposal and some ids of the run, for guessing; iterated without a copy."""

    def __init__(self, new: Iterable[str], known: Iterable[str]) -> None:
        self.new, self.known = new, known

    def __iter__(self) -> Iterator[str]:
        yield from self.new
        yield from self.known


_STEP = re.compile(r"steps\[(\d+)\]")


def name_steps(found: list[Finding], doc: Json) -> list[Finding]:
    """Return the findings with the ids of the steps they are about."""
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
