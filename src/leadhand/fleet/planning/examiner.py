"""The examiner: runs an epic's own acceptance commands on main, through the gate.

Red is "permanent": the same commit will not become green by trying again, so the planner is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Failure, Report
from leadhand.fleet.gate.gate import GateTrouble
from leadhand.fleet.planning.progress import EXAMINER
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
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
    },
    "required": ["commands"],
    "additionalProperties": False,
}
RETURNS: dict[str, Any] = {
    "type": "object",
    "properties": {"commit": {"type": "string"}, "commands": {"type": "integer"}},
    "required": ["commit", "commands"],
}


class Examiner:
    """A worker; it changes nothing."""

    def __init__(self, hub: Hub, gate: Gate) -> None:
        self._hub, self._gate = hub, gate
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
        """Look at main as it is now."""
        wanted = [tuple(argv) for argv in task.parameters["commands"]]
        main = self._hub.main()
        try:
            verdict = await self._gate.check(main, wanted)
        except GateTrouble as trouble:
            return Report("failed", error=Failure("transient", str(trouble), "none"))
        log = scrub(verdict.log)
        if verdict.ok:
            return Report(data={"commit": main, "commands": len(wanted)}, output=log)
        words = f"{verdict.failed} fails on main at {main[:12]}:\n{log[-LOG_CHARS:]}"
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
