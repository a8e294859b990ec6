"""The server layer: tools, resources and prompts of ours as an MCP server of the official SDK.

Laws:

1. A caller is an agent, whatever it calls itself: its name is recorded as `agent:NAME`.
2. Arguments are checked by their types before anything happens; a mistake comes back as a result
   that says what is wrong, so that the agent can correct it.
3. A pause travels through the caller: `Call.ask` returns the answer of the client, over whichever
   way the client has, or raises `Unanswered`. The answer is the agent's.
4. No traceback and no secret leaves the server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec
from mcp import types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from leadhand.codec.field_docs import field_texts
from leadhand.core.review.agents import agent_name
from leadhand.errors import LeadhandError, PlanInvalid, UsageError
from leadhand.mcp.tasks import EXTENSION, Task, TaskSource, serve_tasks

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from leadhand.core.plan.model import Doc

VIEWER, OPERATOR = "viewer", "operator"
TEXT_CHARS = 200_000
"""The length of a result as text; what is longer is cut, and says so."""
SUGGESTED = 100
CACHED: tuple[CacheableMethod, ...] = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "server/discover",
)
CACHE_MS = 0
"""For how long clients may keep lists: settings and runs may change at any moment."""
URI_MISSING = -32002
"""The code for a resource that does not exist, in versions with a handshake."""


class Unanswered(Exception):
    """The client cannot answer now, or did not: the pause is reported as a result."""


class InputNeeded(Exception):
    """The client must fulfil these requests, and then send its own request again."""

    def __init__(self, requests: Mapping[str, Any], state: str | None = None) -> None:
        super().__init__()
        self.requests = dict(requests)
        self.state = state
        """Comes back with the answers, as it was."""


@dataclass(frozen=True, slots=True)
class Client:
    """The program at the other end."""

    client: str
    """What it calls itself; anybody can call itself anything."""
    version: str = ""
    account: str = ""
    """The account whose token it has; empty on standard input and output."""
    role: str = OPERATOR

    @property
    def actor(self) -> str:
        """The name under which it is recorded."""
        return agent_name(self.client, self.account)

    @property
    def may_act(self) -> bool:
        """Whether it may do more than look."""
        return self.role != VIEWER

    def document(self) -> Doc:
        """Return the caller as it is recorded with a run."""
        found = {"client": self.client, "version": self.version, "account": self.account}
        return {"protocol": "mcp", **{key: value for key, value in found.items() if value}}


class Call:
    """One request of a client."""

    def __init__(
        self,
        ctx: ServerRequestContext[Any, Any],
        caller: Client,
        responses: Mapping[str, Any] | None = None,
        state: str | None = None,
    ) -> None:
        self.ctx = ctx
        self.caller = caller
        self.responses = dict(responses or {})
        """Answers to what was asked before, by key."""
        self.state = state
        """What was sent along with the questions asked before."""

    @property
    def modern(self) -> bool:
        """Whether the protocol has no connection: pauses are results, answers are new requests."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def forms(self) -> bool:
        """Whether the client shows forms."""
        found = self._elicitation()
        return found is not None and (found.form is not None or found.url is None)

    @property
    def pages(self) -> bool:
        """Whether the client opens addresses for its user."""
        found = self._elicitation()
        return found is not None and found.url is not None

    @property
    def tasks(self) -> bool:
        """Whether the client takes a task as an answer."""
        found = self.ctx.session.client_capabilities
        return self.modern and found is not None and EXTENSION in (found.extensions or {})

    def _elicitation(self) -> types.ElicitationCapability | None:
        found = self.ctx.session.client_capabilities
        return found.elicitation if found is not None else None

    async def elicit(
        self, key: str, params: types.ElicitRequestFormParams | types.ElicitRequestURLParams
    ) -> Doc:
        """Ask the client's user; return what was filled in.

        Raise `Unanswered` if the client cannot ask so, or its user did not answer; and
        `InputNeeded`, which the server turns into a result, if the client is to ask and come again.
        """
        is_form = isinstance(params, types.ElicitRequestFormParams)
        if not (self.forms if is_form else self.pages):
            raise Unanswered
        request = types.ElicitRequest(params=params)
        if self.modern:
            if key not in self.responses:
                raise InputNeeded({key: request})
            answer = types.ElicitResult.model_validate(self.responses[key], from_attributes=True)
        else:
            related = ServerMessageMetadata(related_request_id=self.ctx.request_id)
            answer = await self.ctx.session.send_request(
                request, types.ElicitResult, metadata=related
            )
        if answer.action != "accept":
            raise Unanswered
        return dict(answer.content or {})

    async def progress(self, done: float, total: float | None, text: str) -> None:
        """Tell the client how far the request is, if it wants to know."""
        token = (self.ctx.meta or {}).get("progress_token")
        if token is None:
            return
        params = types.ProgressNotificationParams(
            progress_token=token, progress=done, total=total, message=text
        )
        await self.ctx.session.send_notification(
            types.ProgressNotification(params=params), related_request_id=self.ctx.request_id
        )


Answer = Any
"""A document; a task, if the client takes tasks; or a result of the SDK, as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: its arguments as a struct, or as a schema and unchecked."""

    name: str
    title: str
    description: str
    run: Callable[[Call, Any], Awaitable[Answer]]
    arguments: type[msgspec.Struct] | None = None
    schema: Doc | None = None
    role: str = VIEWER
    """The least role of an account that may call it."""
    hints: Mapping[str, bool] = field(default_factory=dict)
    """What clients are told of its effects: `readOnlyHint` and others."""

    def input_schema(self) -> Doc:
        """Return the schema of the arguments."""
        if self.arguments is None:
            return self.schema or {"type": "object", "properties": {}}
        return schema_of(self.arguments)

    def definition(self) -> types.Tool:
        """Return the tool as clients see it."""
        return types.Tool(
            name=self.name,
            title=self.title or None,
            description=self.description,
            input_schema=self.input_schema(),
            annotations=types.ToolAnnotations.model_validate(self.hints) if self.hints else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What can be read by address."""

    list: Callable[[Call, str | None], Awaitable[types.ListResourcesResult]]
    templates: Sequence[types.ResourceTemplate] = ()
    read: Callable[[Call, str], Awaitable[types.ReadResourceResult]]
    """Raises `LookupError` for an address that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt, and its messages for given arguments."""

    definition: types.Prompt
    messages: Callable[[Call, Mapping[str, str]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that a server offers."""

    tools: Sequence[Tool] = ()
    resources: Resources | None = None
    prompts: Sequence[Prompt] = ()
    caller: Callable[[ServerRequestContext[Any, Any]], Client] | None = None
    """Who calls; by default the client, as it calls itself."""
    complete: Callable[[Call, types.CompleteRequestParams], Awaitable[Sequence[str]]] | None = None
    """Suggests values for arguments of prompts and of addresses."""
    tasks: TaskSource | None = None
    """Finds tasks that tools have answered with."""


def build_server(name: str, version: str, instructions: str, parts: Parts) -> Server[Any]:
    """Return the MCP server of these parts; nothing is opened."""
    layer = _Layer(parts)
    resources = parts.resources
    server: Server[Any] = Server(
        name,
        version=version,
        title=name.capitalize(),
        instructions=instructions or None,
        get_tool_input_schema=layer.schema_of,
        on_list_tools=layer.list_tools,
        on_call_tool=layer.call_tool,
        on_list_resources=layer.list_resources if resources else None,
        on_list_resource_templates=layer.list_templates if resources else None,
        on_read_resource=layer.read_resource if resources else None,
        on_list_prompts=layer.list_prompts if parts.prompts else None,
        on_get_prompt=layer.get_prompt if parts.prompts else None,
        on_completion=layer.complete if parts.complete else None,
        cache_hints=dict.fromkeys(CACHED, CacheHint(ttl_ms=CACHE_MS)),
    )
    # The state of a pause goes through the client: sealed, so that it comes back as it was.
    server.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=name)
    )
    if parts.tasks is not None:
        serve_tasks(server, parts.tasks, layer.call_of)
    return server


class _Layer:
    """The handlers of the SDK, over the parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tools = {tool.name: tool for tool in parts.tools}
        self._prompts = {each.definition.name: each for each in parts.prompts}

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, by which the SDK checks headers."""
        tool = self._tools.get(name)
        return tool.input_schema() if tool is not None else None

    def call_of(self, ctx: ServerRequestContext[Any, Any], params: Any = None) -> Call:
        make = self._parts.caller or client_of
        responses = getattr(params, "input_responses", None)
        return Call(ctx, make(ctx), responses, getattr(params, "request_state", None))

    async def list_tools(
        self, ctx: ServerRequestContext[Any, Any], _params: Any
    ) -> types.ListToolsResult:
        caller = self.call_of(ctx).caller
        may = [tool for tool in self._tools.values() if may_call(caller, tool)]
        return types.ListToolsResult(tools=[tool.definition() for tool in may])

    async def call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        call, tool = self.call_of(ctx, params), self._tools.get(params.name)
        if tool is None or not may_call(call.caller, tool):
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]}")
        try:
            given = _read(tool, params.arguments or {})
            answer = await tool.run(call, given)
        except InputNeeded as needed:
            return types.InputRequiredResult(
                input_requests=needed.requests, request_state=needed.state
            )
        except LeadhandError as error:
            return failed(error)
        if isinstance(answer, Task):
            return cast("types.CallToolResult", answer.created_document())
        return answer if isinstance(answer, types.CallToolResult) else result_of(answer)

    async def list_resources(
        self, ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        assert self._parts.resources is not None
        cursor = params.cursor if params is not None else None
        try:
            return await self._parts.resources.list(self.call_of(ctx), cursor)
        except ValueError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None

    async def list_templates(
        self, _ctx: ServerRequestContext[Any, Any], _params: Any
    ) -> types.ListResourceTemplatesResult:
        assert self._parts.resources is not None
        templates = list(self._parts.resources.templates)
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, ctx: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        assert self._parts.resources is not None
        call, uri = self.call_of(ctx, params), str(params.uri)
        try:
            return await self._parts.resources.read(call, uri)
        except LookupError:
            code = types.INVALID_PARAMS if call.modern else URI_MISSING
            raise MCPError(code, f"there is no resource {uri[:200]}", {"uri": uri}) from None
        except LeadhandError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None

    async def complete(
        self, ctx: ServerRequestContext[Any, Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        assert self._parts.complete is not None
        found = list(await self._parts.complete(self.call_of(ctx), params))
        shown = types.Completion(
            values=found[:SUGGESTED], total=len(found), has_more=len(found) > SUGGESTED
        )
        return types.CompleteResult(completion=shown)

    async def list_prompts(
        self, _ctx: ServerRequestContext[Any, Any], _params: Any
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[e.definition for e in self._prompts.values()])

    async def get_prompt(
        self, ctx: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name[:100]}")
        given = params.arguments or {}
        wanted = [each.name for each in prompt.definition.arguments or () if each.required]
        if missing := [name for name in wanted if name not in given]:
            raise MCPError(types.INVALID_PARAMS, f"the prompt needs {', '.join(missing)}")
        call = self.call_of(ctx, params)
        try:
            messages = await prompt.messages(call, given)
        except InputNeeded as needed:
            return types.InputRequiredResult(
                input_requests=needed.requests, request_state=needed.state
            )
        except LeadhandError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        return types.GetPromptResult(
            description=prompt.definition.description, messages=list(messages)
        )


def client_of(ctx: ServerRequestContext[Any, Any]) -> Client:
    """Return the client as it calls itself."""
    params = ctx.session.client_params
    info = params.client_info if params is not None else None
    if info is None:
        return Client("")
    return Client(info.name[:200], str(info.version or "")[:60])


def may_call(caller: Client, tool: Tool) -> bool:
    """Return whether the role of a caller is sufficient."""
    return tool.role == VIEWER or caller.may_act


def schema_of(kind: type[msgspec.Struct]) -> Doc:
    """Return the JSON Schema of a tool's arguments, each with its description."""
    (found,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root: Doc = dict(parts.pop(found["$ref"].rpartition("/")[2]))
    texts = field_texts(kind)
    for name, each in root.get("properties", {}).items():
        if name in texts:
            each["description"] = " ".join(texts[name].split())
    root.pop("title", None)
    root.pop("description", None)
    return {**root, "$defs": parts} if parts else root


def _read(tool: Tool, given: Doc) -> Any:
    """Return the arguments as the tool's struct. Raise `UsageError` if they are no such ones."""
    if tool.arguments is None:
        return given
    try:
        return msgspec.convert(given, tool.arguments)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the arguments of {tool.name} are wrong: {error}. Fix: it takes "
            f"{_fields_text(tool.arguments)}"
        ) from None


def _fields_text(kind: type[msgspec.Struct]) -> str:
    """Return the names of a tool's arguments, and which of them are required."""
    fields = msgspec.structs.fields(kind)
    names = [each.encode_name + (" (required)" if each.required else "") for each in fields]
    return ", ".join(names) or "no arguments"


def result_of(answer: Any, *, error: bool = False) -> types.CallToolResult:
    """Return a document as the result of a tool: structured, and the same as text."""
    doc = msgspec.to_builtins(answer)
    text = json.dumps(doc, ensure_ascii=False, default=str)
    if len(text) > TEXT_CHARS:
        text = f"{text[:TEXT_CHARS]}… (cut; {len(text):,} characters in all)"
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=doc if isinstance(doc, dict) else {"items": doc},
        is_error=error,
    )


def failed(error: LeadhandError) -> types.CallToolResult:
    """Return an error as the result of a tool: its message with the fix, and its exit code."""
    doc: Doc = {"error": str(error), "code": error.exit_code, "kind": type(error).__name__}
    if isinstance(error, PlanInvalid):
        rows = [
            each.document() if hasattr(each, "document") else str(each) for each in error.findings
        ]
        doc["findings"] = msgspec.to_builtins(rows)
    return result_of(doc, error=True)
