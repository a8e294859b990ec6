"""Python functions, and any other worker, as tools of an agent.

A function is called as a worker of the same declaration would be: in its thread, its process or on
the loop, its arguments checked by its signature, its exceptions read by the same table. A plain
function needs no `@worker`; with it, effects and risk are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.errors import WorkerFailure
from leadhand.ports import Task
from leadhand.workers.functions.decorator import MARK, Declaration, declare
from leadhand.workers.functions.worker import FunctionAction, FunctionWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leadhand.core.catalog import Offer
    from leadhand.core.report import Failure
    from leadhand.ports import Context, Worker
    from leadhand.workers.processes.processes import Processes

ANYTHING: dict[str, Any] = {"type": "object", "additionalProperties": True}


class ToolFailure(WorkerFailure):
    """What a worker that is used as a tool reported."""

    failure_class: str = "unavailable"  # type: ignore[misc]  # here it belongs to the instance

    def __init__(self, failure: Failure, data: Any = None) -> None:
        super().__init__(failure.message, effect=failure.effect, data=data)
        self.failure_class = failure.failure_class


class WorkerTool:
    """One action of a worker, as a tool."""

    def __init__(self, worker: Worker, action: str = "", *, own: bool = False) -> None:
        """`own`: the worker is nobody else's, so it is attached and closed with the tool."""
        offer = worker.spec.offer(action)
        assert offer is not None, f"{worker.spec.name} offers no {action!r}"
        self.worker, self.action, self._own = worker, action, own
        self._offer: Offer = offer
        self.name = f"{worker.spec.name}_{action}" if action else worker.spec.name
        self.description = worker.spec.description

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of its parameters."""
        return self._offer.parameters or ANYTHING

    @property
    def effects(self) -> tuple[str, ...] | None:
        """As its worker declares."""
        return self._offer.effects

    @property
    def writes(self) -> tuple[str, ...]:
        """As its worker declares."""
        return self._offer.writes

    @property
    def risk(self) -> str:
        """As its worker declares, or the default of its kind."""
        return self._offer.risk or self.worker.spec.default_risk()

    @property
    def version(self) -> str:
        """Its worker's."""
        return self.worker.spec.version

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Variables whose values must not get into the log."""
        return tuple(getattr(self.worker, "secret_names", ()))

    @property
    def given_values(self) -> dict[str, str]:
        """Variables that its worker is given, with their values."""
        return dict(getattr(self.worker, "given_values", {}))

    def attach(self, processes: Processes) -> None:
        """Give it the means to start programs."""
        attach = getattr(self.worker, "attach", None)
        if self._own and attach is not None:
            attach(processes)

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Let the worker do it; what it reported as a failure is raised."""
        task = Task(context.run, context.step, context.attempt, 0, self.action, arguments, 0)
        report = await self.worker.perform(task, context)
        if report.error is not None:
            raise ToolFailure(report.error, report.data)
        return report.data

    async def close(self) -> None:
        """Close the worker, if it is its own."""
        if self._own:
            await self.worker.close()


def function_tool(function: Callable[..., Any]) -> WorkerTool:
    """A tool from a function, declared with `@worker` or not."""
    declared = getattr(function, MARK, None)
    declaration = declared if isinstance(declared, Declaration) else declare(function, {})
    action = FunctionAction(declaration, function)
    return WorkerTool(FunctionWorker(declaration.name, [action]), declaration.actions[0], own=True)


def worker_tools(worker: Worker, *, own: bool = False) -> Iterator[WorkerTool]:
    """Each action of a worker as a tool."""
    for action in worker.spec.offers:
        yield WorkerTool(worker, action, own=own)
