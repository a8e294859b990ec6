"""One tool of a server: a worker of its own, and a tool for agents.

What it is called with is its input schema, what it returns its output schema; structured content
is the data, else its text. Risk, effects and whether it may be repeated are what the user declares;
the server's hints only add to that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.codec.values import plain
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.durations import seconds
from leadhand.core.plan.model import RISKS
from leadhand.core.report import Report
from leadhand.errors import InvalidOutput, Permanent, UsageError, WorkerFailure
from leadhand.ports import is_external_cancellation
from leadhand.workers.functions.decorator import NAME
from leadhand.workers.mcp.definition import (
    Definition,
    input_schema,
    output_schema,
    raised_effects,
    raised_risk,
    worker_name,
)
from leadhand.workers.reports import bounded_text, holds, report_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leadhand.ports import Context, Task
    from leadhand.workers.mcp.server import McpServer
    from leadhand.workers.processes.runner import Processes

MODEL_NAME_CHARS = 64


class McpTool:
    """A tool of an MCP server. Made by `McpServer.tool`; described when it is first looked at."""

    def __init__(  # noqa: PLR0913 - what can be said of a worker, by name
        self,
        server: McpServer,
        tool: str,
        *,
        name: str = "",
        description: str = "",
        risk: str | None = None,
        effects: str | Iterable[str] | None = None,
        idempotent: bool = False,
        needs: str | Iterable[str] | None = None,
        gives: str | Iterable[str] = (),
        drops: str | Iterable[str] = (),
        reads: str | Iterable[str] = (),
        writes: str | Iterable[str] = (),
        timeout: str | float | None = None,
        est: str | float | None = None,
        cost: float = 0.0,
        checks: Mapping[str, str] | None = None,
        check: str | None = None,
        max_concurrency: int | None = None,
        trusted: bool = False,
    ) -> None:
        if name and not NAME.match(name):
            raise UsageError(f"{server.name}.{tool}: {name!r} is not a name")
        if risk is not None and risk not in RISKS:
            raise UsageError(f"{server.name}.{tool}: risk must be one of {', '.join(RISKS)}")
        self.server = server
        self.tool = tool
        self._checks, self._check = dict(checks or {}), check
        self._timeout_s = server.timeout_s if timeout is None else seconds(timeout)
        self._needs = None if needs is None else _names(needs)
        self._offer = Offer(
            checks=tuple(self._checks),
            result_check=check is not None,
            risk=risk,
            effects=None if effects is None else _names(effects),
            reads=_names(reads),
            writes=_names(writes),
            idempotent=idempotent,
            timeout_s=None if timeout is None else self._timeout_s,
            est_s=None if est is None else seconds(est),
            cost=cost,
            gives=_names(gives),
            drops=_names(drops),
        )
        self._described = WorkerSpec(
            name=name or worker_name(server.name, tool),
            kind="mcp",
            description=description,
            max_concurrency=max_concurrency,
            trusted=trusted,
        )
        self._definition: Definition | None = None
        self._spec: WorkerSpec | None = None
        self._parameters: dict[str, Any] | None = None

    @property
    def definition(self) -> Definition:
        """Return the server's definition. Raise `UsageError` if it has no such tool."""
        if self._definition is None:
            listing = self.server.listing()
            tools = listing.tools
            if self.tool in listing.unusable:
                why = bounded_text(listing.unusable[self.tool], 300)
                raise UsageError(f"mcp {self.server.name}: a tool cannot be used: {why}")
            if self.tool not in tools:
                known = ", ".join(sorted(tools)[:20]) or "none"
                raise UsageError(
                    f"mcp {self.server.name}: has no tool {bounded_text(self.tool, 60)!r}; it has: "
                    f"{bounded_text(known, 500)}"
                )
            self._definition = tools[self.tool]
        return self._definition

    @property
    def spec(self) -> WorkerSpec:
        """Return the description for planners and plans."""
        if self._spec is None:
            definition, name = self.definition, self._described.name
            offer = msgspec.structs.replace(
                self._offer,
                parameters=self.parameters,
                returns=_checked(definition.returns, self.tool),
                risk=raised_risk(self._offer.risk, definition.hints),
                effects=raised_effects(
                    self._offer.effects, definition.hints, name, self.server.name
                ),
                needs=_required(definition.parameters) if self._needs is None else self._needs,
            )
            self._spec = msgspec.structs.replace(
                self._described,
                description=self._described.description or definition.shown,
                version=definition.digest(self.server.identity),
                offers={"": offer},
            )
        return self._spec

    # As a worker.

    async def perform(self, task: Task, context: Context) -> Report:
        """Call it and report."""
        try:
            return Report("succeeded", await self.call(task.parameters, context))
        except WorkerFailure as error:
            return report_of(error)

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Raise `LookupError`: MCP has no question for the outcome of an earlier call."""
        raise LookupError(f"{self.spec.name} declares no probe")

    def check(self, name: str, action: str, data: Any) -> bool:
        """Return whether a declared expression holds for `data`."""
        return holds(self._checks.get(name) if name else self._check, name, data)

    def attach(self, processes: Processes) -> None:
        """Give its server the means to start a program."""
        self.server.attach(processes)

    async def detach(self) -> None:
        """Hang up, since the host ends. The server is shared: its next user connects again."""
        await self.server.close()

    async def close(self) -> None:
        """Hang up, as `detach` does."""
        await self.server.close()

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the variables whose values must not get into the log."""
        return self.server.secret_names

    @property
    def given_values(self) -> dict[str, str]:
        """Variables that its server is given, with their values."""
        return self.server.given_values

    # As a tool of an agent.

    @property
    def name(self) -> str:
        """Return the name in letters that every provider of models takes."""
        return re.sub(r"[^A-Za-z0-9_-]", "_", self._described.name)[:MODEL_NAME_CHARS]

    @property
    def description(self) -> str:
        """Return the server's text, with invisible characters escaped."""
        return self.spec.description

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""
        if self._parameters is None:
            self._parameters = input_schema(self.definition.parameters, self.tool)
        return self._parameters

    @property
    def effects(self) -> tuple[str, ...] | None:
        """Return what it changes outside; None if that is not declared."""
        return self.spec.offers[""].effects

    @property
    def risk(self) -> str | None:
        """Return the declared risk, raised by the server's hints; None means medium."""
        return self.spec.offers[""].risk

    @property
    def version(self) -> str:
        """Return a digest of its definition and of how its server is reached."""
        return self.spec.version

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Structured content, or text; raises a WorkerFailure."""
        harmless = self.effects == ()

        def progressed(done: float, total: float | None, message: str | None) -> None:
            context.progress(message or "", done / total if total else None)

        try:
            result = await self.server.call(
                self.definition,
                arguments,
                timeout_s=self._timeout_s,
                harmless=harmless,
                on_progress=progressed,
                answers=context.answers,
            )
        except (WorkerFailure, UsageError) as error:
            if isinstance(error, UsageError):
                raise Permanent(str(error)) from None
            raise
        except Exception as error:
            if is_external_cancellation(error):
                raise
            text = bounded_text(str(error) or type(error).__name__, 500)
            raise InvalidOutput(
                f"{self.server.name}: the answer cannot be used: {text}",
                effect="none" if harmless else "done",
            ) from None
        return self._data(result, harmless=harmless)

    def _data(self, result: Any, *, harmless: bool) -> Any:
        """Return the data of a result. Raise `WorkerFailure` for a tool's own error."""
        try:
            blocks = plain([_block(each) for each in result.content])
            structured = plain(result.structured_content)
        except ValueError as problem:
            effect = "none" if harmless else "done"
            raise InvalidOutput(f"{self.server.name}: {problem}", effect=effect) from None
        if redactor := self.server.redactor:
            blocks, structured = redactor.value(blocks), redactor.value(structured)
        if result.is_error:
            text = bounded_text(_text(blocks) or "it did not say why")
            raise Permanent(f"{self.server.name}: the tool failed: {text}", data=structured)
        if structured is not None:
            return structured
        return _text(blocks) if all(isinstance(each, str) for each in blocks) else blocks


def _block(content: Any) -> Any:
    """Return a text as it is, any other content as its document."""
    if content.type == "text":
        return content.text
    return content.model_dump(by_alias=True, mode="json", exclude_none=True)


def _text(blocks: Any) -> str:
    return "\n".join(each for each in blocks if isinstance(each, str))


def _checked(returns: dict[str, Any] | None, tool: str) -> dict[str, Any] | None:
    return None if returns is None else output_schema(returns, tool)


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    required = schema.get("required")
    return tuple(map(str, required)) if isinstance(required, list) else ()


def _names(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
