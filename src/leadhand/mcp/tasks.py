"""The tasks extension of MCP (`io.modelcontextprotocol/tasks`): long work with a handle.

A tool answers a client that declares the extension with a `Task`; the client then asks for it with
`tasks/get`, answers what it waits for with `tasks/update`, and may end it with `tasks/cancel`. A
task is only a view of something durable, which a `TaskSource` finds by its id: so a task survives
the client and this server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from mcp import types
from mcp.shared.exceptions import MCPError
from msgspec import Struct
from pydantic import Field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server

    from leadhand.core.plan.model import Doc
    from leadhand.mcp.server import Call

EXTENSION = "io.modelcontextprotocol/tasks"
NEEDED: Doc = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
POLL_MS = 2000
NAME_HEADER = "mcp-name"
HEADER_MISMATCH = -32020


class Task(Struct, kw_only=True):
    """Work that goes on, or has ended."""

    id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    created: str
    """ISO 8601, as `updated`."""
    updated: str
    message: str = ""
    poll_ms: int = POLL_MS
    requests: dict[str, Any] = {}
    """What the client must answer, by key, while input is required."""
    result: types.CallToolResult | None = None
    """The result of the tool, once completed."""
    error: Doc | None = None
    """The error of the protocol, once failed."""

    def created_document(self) -> Doc:
        """Return the task as the answer to the call that has started it."""
        return {**self._head(), "resultType": "task"}

    def document(self) -> Doc:
        """Return the task as the answer to `tasks/get`."""
        doc = {**self._head(), "resultType": "complete"}
        if self.status == "input_required":
            doc["inputRequests"] = {key: _plain(each) for key, each in self.requests.items()}
        if self.status == "completed" and self.result is not None:
            doc["result"] = _plain(self.result)
        if self.status == "failed":
            doc["error"] = self.error or {"code": types.INTERNAL_ERROR, "message": "it failed"}
        return doc

    def _head(self) -> Doc:
        head: Doc = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": None,
            "pollIntervalMs": self.poll_ms,
        }
        return head | ({"statusMessage": self.message} if self.message else {})


def _plain(model: Any) -> Doc:
    found: Doc = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return found


class TaskSource(Protocol):
    """Finds tasks by their ids. Each method raises `LookupError` for an id that is none."""

    async def get(self, call: Call, ident: str) -> Task:
        """Return the task as it is now."""
        ...

    async def update(self, call: Call, ident: str, responses: Mapping[str, Any]) -> None:
        """Take answers to what the task waits for; unknown keys are ignored."""
        ...

    async def cancel(self, call: Call, ident: str) -> None:
        """End the task, if it has not ended."""
        ...


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(alias="taskId", min_length=1, max_length=200)


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


def serve_tasks(
    server: Server[Any],
    source: TaskSource,
    call_of: Callable[[ServerRequestContext[Any, Any]], Call],
) -> None:
    """Add the methods of the extension to a server."""

    def checked(ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Call:
        call = call_of(ctx)
        require_tasks(call)
        headers = ctx.request.headers if call.modern and ctx.request is not None else None
        if headers is not None and headers.get(NAME_HEADER) != params.task_id:
            raise MCPError(HEADER_MISMATCH, "the Mcp-Name header is not the id of the task")
        return call

    async def get(ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Doc:
        call = checked(ctx, params)
        try:
            return (await source.get(call, params.task_id)).document()
        except LookupError:
            raise _unknown(params) from None

    async def update(ctx: ServerRequestContext[Any, Any], params: UpdateParams) -> Doc:
        call = checked(ctx, params)
        _require_operator(call)
        try:
            await source.update(call, params.task_id, params.input_responses)
        except LookupError:
            raise _unknown(params) from None
        return {}

    async def cancel(ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Doc:
        call = checked(ctx, params)
        _require_operator(call)
        try:
            await source.cancel(call, params.task_id)
        except LookupError:
            raise _unknown(params) from None
        return {}

    server.extensions[EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", UpdateParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)


def _require_operator(call: Call) -> None:
    """Raise `MCPError` for an account that may only look, as the tools are kept from it."""
    if not call.caller.may_act:
        raise MCPError(types.INVALID_REQUEST, "the account of this token may only look at runs")


def _unknown(params: TaskParams) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"there is no task {params.task_id[:100]}")


def require_tasks(call: Call) -> None:
    """Raise `MCPError` unless the client declared the extension with this request."""
    if not call.tasks:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY, "the client must support tasks", NEEDED
        )
