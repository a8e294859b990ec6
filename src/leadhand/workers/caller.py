"""The worker that is the agent which drives the run: `worker: caller` in a plan, with no code.

A step of it is not started here. It is handed out when the agent asks for one, and the agent's
report is judged as every report is: `core/callers.py` has the laws, `engine/callers.py` takes the
reports. Every run knows this worker without a declaration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.core.catalog import CALLER, Offer, WorkerSpec
from leadhand.core.report import Report

if TYPE_CHECKING:
    from leadhand.ports import Context, Task

NAME = "caller"
TIMEOUT_S = 86_400.0
"""How long a caller may have one step, however often it extends its lease."""


class Caller:
    """The agent that drives the run, as a worker."""

    def __init__(self) -> None:
        self.spec = WorkerSpec(
            name=NAME,
            kind=CALLER,
            version="1",
            description="The agent that drives the run: it asks for its steps and reports them.",
            offers={"": Offer(timeout_s=TIMEOUT_S)},
            max_concurrency=1,
            trusted=False,
        )

    async def perform(self, _task: Task, _context: Context) -> Report:
        """Report that nothing was done: a caller asks for its steps."""
        return Report.failed("unavailable", "a caller asks for its steps, and is never called")

    async def probe(self, _task: Task, _context: Context) -> Report | None:
        """Raise `LookupError`: only the caller knows the outcome."""
        raise LookupError("only the caller knows")

    def check(self, _name: str, _action: str, _data: Any) -> bool:
        """Return False: a caller has no checks; the criteria of the step are all there is."""
        return False

    async def close(self) -> None:
        """Do nothing: there are no resources."""
