"""The last step of an issue: closed with evidence, when the branch has it and is green."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.fleet.forge.context import write_durably
from leadhand.fleet.forge.description import one_line, quoted
from leadhand.fleet.forge.errors import ForgeConflict
from leadhand.fleet.forge.origin import issue_of
from leadhand.fleet.forge.rules import key_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.state.model import State
    from leadhand.fleet.forge.context import ForgeContext
    from leadhand.fleet.forge.delivery import Delivery
    from leadhand.fleet.forge.port import Check

PASSED = frozenset({"passed", "neutral"})
WORDS_CHARS = 4_000


class IssueClosure:
    """Closes issues whose runs have ended well, and says when one ended otherwise."""

    def __init__(self, context: ForgeContext, delivery: Delivery) -> None:
        self._forge, self._rules, self._remote = context.forge, context.rules, context.remote
        self._delivery, self._note = delivery, context.note
        # The file spares questions to the host: without it, nothing is written twice either.
        self._place = context.folder / "closed.json"
        self.waiting: dict[str, str] = {}
        """Issues that are not closed yet, and why."""
        try:
            self._done = set(msgspec.json.decode(self._place.read_bytes(), type=list[str]))
        except (OSError, msgspec.DecodeError):
            self._done = set()

    async def look(self, states: Iterable[State]) -> None:
        """Deal with runs that have ended."""
        for state in states:
            issue = issue_of(state)
            if issue is None or state.ended is None or state.run in self._done:
                continue
            number = int(issue["number"])
            if state.ended.status == "succeeded":
                over = await self._close(state, number)
            else:
                over = await self._tell(state, number)
            if over:
                self.waiting.pop(f"issue {number}", None)
                self._over(state.run)

    def _over(self, run: str) -> None:
        self._done.add(run)
        write_durably(self._place, msgspec.json.encode(sorted(self._done)))

    async def _close(self, state: State, number: int) -> bool:
        tip = await self._remote.tip(self._rules.base)
        checks = {each.name: each for each in await self._forge.checks(tip)}
        if why := self._not_green(tip, checks):
            self.waiting[f"issue {number}"] = why
            return False
        try:
            await self._forge.close_issue(
                number, self._evidence(state, tip, checks), key_for("close", state.run)
            )
        except ForgeConflict as error:
            if error.reason != "reopened":
                raise
        self._note("issue closed", run=state.run, said=f"issue {number}")
        return True

    def _not_green(self, tip: str, checks: dict[str, Check]) -> str:
        """Return why the branch is not green; empty if it is."""
        names = self._rules.checks or tuple(checks)
        open_ = [
            f"{name} {checks[name].status if name in checks else 'is missing'}"
            for name in names
            if name not in checks or checks[name].status not in PASSED
        ]
        if not self._rules.checks:  # none is required: what was skipped is no objection
            open_ = [each for each in open_ if not each.endswith(" skipped")]
        return f"{self._rules.base} at {tip[:12]} is not green: {', '.join(open_)}" if open_ else ""

    def _evidence(self, state: State, tip: str, checks: dict[str, Check]) -> str:
        found: Any = state.ended.result if state.ended is not None else None
        result = found if isinstance(found, dict) else {}
        parts = [f"Done: {self._rules.base} is green at {tip}."]
        if result.get("summary"):
            parts.append(quoted(str(result["summary"]), WORDS_CHARS))
        rows = []
        for step in state.steps.values():
            record = self._delivery.record(state.run, step.id)
            data: Any = step.data if isinstance(step.data, dict) else {}
            if record is not None and step.status == "succeeded":
                commit = str(data.get("commit", ""))[:12]
                tests = f", {one_line(record.tests)}" if record.tests else ""
                rows.append(f"- #{record.number} as {commit}: attempt {step.attempts}{tests}")
        parts += ["\n".join(rows)] if rows else []
        shown = [f"- {one_line(name)}: {each.status}" for name, each in sorted(checks.items())]
        parts += ["Checks:\n\n" + "\n".join(shown)] if shown else []
        parts.append(f"Leadhand-Run: {state.run}")
        return "\n\n".join(parts)

    async def _tell(self, state: State, number: int) -> bool:
        """Say that a run ended without success; the issue stays open."""
        if state.ended is None:
            return False
        words = [f"`{state.run}` ended: {state.ended.status}. The issue stays open."]
        if state.ended.reason:
            words.append(quoted(state.ended.reason, WORDS_CHARS))
        await self._forge.comment(number, "\n\n".join(words), key_for("ended", state.run))
        self._note("issue left open", run=state.run, said=f"issue {number}")
        return True
