"""The examiner: runs an epic's own acceptance commands on main, through the gate.

Red is "permanent": the same commit will not become green by trying again, so the planner is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Failure, Report
from leadhand.fleet.gate.gate import GateTrouble
from leadhand.fleet.planning.progress import EXAMINER
from leadhand.fleet.repositories import unknown_repository
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.fleet.gate.gate import Gate
    from leadhand.fleet.repository.hub import Hub
    from leadhand.ports import Context
    from leadhand.ports import Task as Attempt

LOG_CHARS = 3000
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "commands": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "landed": {"type": "integer"},
        "repositories": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["commands"],
    "additionalProperties": False,
}
RETURNS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "commit": {"type": "string"},
        "commands": {"type": "integer"},
        "others": {"type": "object"},
    },
    "required": ["commit", "commands"],
}


class Examiner:
    """A worker; it changes nothing."""

    def __init__(
        self, hub: Hub, gate: Gate, others: Mapping[str, tuple[Hub, Gate]] | None = None
    ) -> None:
        """Take the main repository, where the commands run, and the others by name."""
        self._hub, self._gate, self._others = hub, gate, others or {}
        offer = Offer(
            parameters=PARAMETERS,
            returns=RETURNS,
            effects=(),
            risk="low",
            idempotent=True,
            timeout_s=gate.rules.time_s * 20 + 600,
        )
        self.spec = WorkerSpec(
            name=EXAMINER,
            kind="gate",
            version="1",
            description="runs an epic's acceptance commands on main, in the gate",
            offers={"": offer},
            trusted=False,
        )

    async def perform(self, task: Attempt, _context: Context) -> Report:
        """Look at main as it is now, and at the mains of other repositories that were changed."""
        wanted = [tuple(argv) for argv in task.parameters["commands"]]
        report, commits = await self._look(self._hub, self._gate, wanted), {}
        for name in task.parameters.get("repositories", ()):
            if report.error is not None:
                return report
            if name not in self._others:
                words = unknown_repository(name, list(self._others))
                return Report("failed", error=Failure("permanent", words, "none"))
            other = await self._look(*self._others[name], [], name)
            if other.error is not None:
                return other
            commits[name] = dict(other.data)["commit"]
        return replace(report, data={**report.data, "others": commits}) if commits else report

    async def _look(
        self, hub: Hub, gate: Gate, wanted: list[tuple[str, ...]], name: str = ""
    ) -> Report:
        main = hub.main()
        try:
            verdict = await gate.check(main, wanted)
        except GateTrouble as trouble:
            return Report("failed", error=Failure("transient", str(trouble), "none"))
        log = scrub(verdict.log)
        if verdict.ok:
            return Report(data={"commit": main, "commands": len(wanted)}, output=log)
        where = f"main of {name}" if name else "main"
        words = f"{verdict.failed} fails on {where} at {main[:12]}:\n{log[-LOG_CHARS:]}"
        failure = Failure("permanent", words, "none", None, {"commit": main})
        return Report("failed", error=failure, output=log)

    async def probe(self, _task: Attempt, _context: Context) -> Report | None:
        """Looking twice does no harm."""
        return None

    def check(self, _name: str, _action: str, _data: Any) -> bool:
        """There are no named checks."""
        return False

    async def close(self) -> None:
        """Do nothing: there are no resources."""
