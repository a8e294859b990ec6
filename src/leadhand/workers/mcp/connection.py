"""One session with an MCP server.

The SDK's session must be left by the task that entered it, so a connection has a task of its own,
its owner; calls are made from whatever task wants something. The owner ends when it is told to, or
when the server hangs up; calls still out then get an error each.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from typing import TYPE_CHECKING, Any, Self

from leadhand.errors import Transient, Unavailable, UsageError, WorkerFailure
from leadhand.ports import is_external_cancellation
from leadhand.workers.mcp.definition import (
    NAME_CHARS_MAX,
    TOOLS_MAX,
    Definition,
    definitions_of,
)
from leadhand.workers.mcp.elicitation import ROUNDS_MAX, declare_elicitation
from leadhand.workers.mcp.failures import failure_of
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import ModuleType

    from mcp import Client
    from mcp_types import CallToolResult, InputRequiredResult


# The official SDK, loaded when a server is first used.


_LOGGERS = ("mcp", "client")


def sdk() -> ModuleType:
    """Return the package `mcp`. Raise `UsageError`, which says how to install it."""
    try:
        found = importlib.import_module("mcp")
    except ImportError:
        raise UsageError(
            "MCP servers need the package `mcp`, which is not installed. "
            "Fix: pip install 'leadhand[mcp]'"
        ) from None
    for name in _LOGGERS:
        # Failures reach the user as reports. Without a handler, Python would also print the
        # SDK's tracebacks; with one that does nothing, whoever wants them can still listen.
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    return found


CLOSE_S = 10.0
WAIT_S, WAIT_MAX_S = 0.05, 1.0
"""The first and the longest pause before a call that the server put off is made again."""
PAGES_MAX = 1_000


class Connection:
    """A session, its owner task, and what the server offered when it began."""

    def __init__(
        self,
        transport: Callable[[Callable[[], None]], AbstractAsyncContextManager[Any]],
        last: object,
    ) -> None:
        """`transport` gets a function to call when the server hangs up."""
        self.name = ""
        """What the server calls itself."""
        self.definitions: dict[str, Definition] = {}
        self.unusable: dict[str, str] = {}
        """Tools that were listed and cannot be used, with the reason."""
        self._transport = _sifted(transport(self.hang_up), self._sift)
        self.last = last
        """What is known of how it ended, for messages."""
        self._refused: dict[str, str] = {}
        self._seen: list[str] = []
        """Names of the tools that were let through to the SDK."""
        self._client: Client | None = None
        self._stale = False
        self._listing = asyncio.Lock()
        self._over = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Return whether the session is over."""
        return self._over.is_set() or self._owner is None or self._owner.done()

    def hang_up(self) -> None:
        """End the session; the owner task cleans up."""
        self._over.set()

    async def open(self, within_s: float) -> None:
        """Begin the session; raises a WorkerFailure."""
        self._owner = asyncio.get_running_loop().create_task(self._own())
        try:
            async with asyncio.timeout(within_s):
                await asyncio.wait({self._ready, self._owner}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            raise Transient(f"it did not answer within {within_s:g} s; {self.last}") from None
        except BaseException:
            await self.close()
            raise
        if not self._ready.done():
            await self.close()
            raise Transient(f"it hung up: {self.last}")
        self._ready.result()

    async def close(self) -> None:
        """End the session, and the program with it."""
        self._over.set()
        if self._owner is None:
            return
        done, _ = await asyncio.wait({self._owner}, timeout=CLOSE_S)
        if not done:
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=CLOSE_S)

    async def definition(self, name: str) -> Definition | None:
        """Return a tool as it is now; list again if the server announced a change."""
        async with self._listing:
            if self._stale and self._client is not None:
                self._stale = False
                await self._list(self._client)
        return self.definitions.get(name)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: Callable[[float, float | None, str | None], None],
        respond: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> CallToolResult:
        """Call a tool; raises the SDK's errors. Being cancelled here cancels it there.

        `respond` answers what the tool asks in place of a result, and may raise. The call is then
        made again, with the answers and with the state that came with the question.
        """
        import mcp_types as types
        from pydantic import TypeAdapter

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            on_progress(progress, total, message)

        assert self._client is not None
        # Not `call_tool`: that checks results with a validator that a server's own schema can
        # keep busy for ever. The engine checks them, in bounded time.
        adapter: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        responses, state = None, None
        for round_ in range(ROUNDS_MAX + 1):
            parameters = types.CallToolRequestParams(
                name=tool, arguments=arguments, input_responses=responses, request_state=state
            )
            result: CallToolResult | InputRequiredResult = await self._client.session.send_request(
                types.CallToolRequest(params=parameters), adapter, progress_callback=progressed
            )
            if isinstance(result, types.CallToolResult):
                return result
            responses, state = None, result.request_state
            if result.input_requests:
                responses = respond(result.input_requests)
            else:  # it asks for nothing but time
                await asyncio.sleep(min(WAIT_S * 2**round_, WAIT_MAX_S))
        raise Unavailable(f"the tool {tool} gave no result in {ROUNDS_MAX} rounds")

    async def _own(self) -> None:
        client_of = sdk().Client
        import mcp_types as types

        us = types.Implementation(name="leadhand", version="0")
        listener: asyncio.Task[None] | None = None
        try:
            async with client_of(
                self._transport, client_info=us, message_handler=self._heard, cache=None
            ) as client:
                self._client = client
                self.name = client.server_info.name if client.server_info else ""
                await self._list(client)
                listener = asyncio.get_running_loop().create_task(self._listen(client))
                self._ready.set_result(None)
                await self._over.wait()
                listener.cancel()
                await asyncio.wait({listener})
        except BaseException as error:
            self._failed(error)
            if is_external_cancellation(error) or not isinstance(
                error, Exception | asyncio.CancelledError
            ):
                raise
        finally:
            self._over.set()

    def _failed(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(_failure(error, self.last))
            self._ready.exception()  # the opening task may be gone

    async def _heard(self, message: object) -> None:
        import mcp_types as types

        if isinstance(message, types.ToolListChangedNotification):
            self._stale = True

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes: servers of the newer protocol announce them on request only."""
        if client.server_capabilities.tools is None:
            return
        # A server that cannot be listened to is compared when it is connected to, as all are.
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:  # what it says comes to `_heard` as well
                    pass

    @property
    def _is_stateless(self) -> bool:
        """Return whether the session speaks 2026-07-28 or later."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        return self._client is not None and (
            self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
        )

    def _sift(self, item: Any) -> Any:
        """Remove those tools from a list for which the SDK would refuse the whole list.

        A result that does not say what it is counts as complete: so the protocol wants it, and the
        SDK would refuse it.
        """
        result: Any = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict) and self._is_stateless:
            result.setdefault("resultType", "complete")
        tools = result.get("tools") if isinstance(result, dict) else None
        if self._client is None or not isinstance(tools, list) or len(tools) > TOOLS_MAX:
            return item
        kept, version = [], self._client.protocol_version
        for place, tool in enumerate(tools):
            if reason := _malformed({**result, "tools": [tool]}, version):
                self._refused[_named(tool, place)] = reason
            else:
                kept.append(tool)
                self._seen.append(_named(tool, place))
        result["tools"] = kept
        return item

    async def _list(self, client: Client) -> None:
        import mcp_types as types

        if client.server_capabilities.tools is None:
            return
        self._refused, self._seen = {}, []
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            asked = types.PaginatedRequestParams(cursor=cursor)
            page = await client.session.list_tools(params=asked)
            found += [
                tool.model_dump(by_alias=True, mode="json", exclude_none=True)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None or len(found) > TOOLS_MAX:
                self.definitions, unusable = definitions_of(found)
                known = {*self.definitions, *unusable}
                dropped = [name for name in self._seen if name not in known]
                self.unusable = dict.fromkeys(dropped, "the protocol does not allow its headers")
                self.unusable |= unusable | self._refused
                return
        raise Unavailable(f"its list of tools has more than {PAGES_MAX} pages")


class DeclaringStream:
    """The stream of messages to a server, each of which declares elicitation where it can."""

    def __init__(self, below: Any) -> None:
        self._below = below

    async def send(self, item: Any) -> None:
        """Send a message. Raise what the stream below raises."""
        declare_elicitation(item)
        await self._below.send(item)

    async def __aenter__(self) -> Self:
        await self._below.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> Any:
        return await self._below.__aexit__(*how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


class SiftedStream:
    """A stream of messages from a server, each of which goes through a sieve first."""

    def __init__(self, below: Any, sieve: Callable[[Any], Any]) -> None:
        self._below, self._sieve = below, sieve

    async def receive(self) -> Any:
        """Return the next message. Raise what the stream below raises."""
        return self._sieve(await self._below.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._sieve(await self._below.__anext__())

    async def __aenter__(self) -> Self:
        await self._below.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> Any:
        return await self._below.__aexit__(*how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


@contextlib.asynccontextmanager
async def _sifted(
    transport: AbstractAsyncContextManager[Any], sieve: Callable[[Any], Any]
) -> AsyncIterator[Any]:
    async with transport as (read, write, *others):
        yield (SiftedStream(read, sieve), DeclaringStream(write), *others)


def _named(tool: Any, place: int) -> str:
    """Return the name under which a tool is left out: its own, if it has one."""
    name = tool.get("name") if isinstance(tool, dict) else None
    return name[:NAME_CHARS_MAX] if isinstance(name, str) and name else f"tool {place + 1}"


def _malformed(listing: dict[str, Any], version: str) -> str:
    """Return why the SDK refuses a list of one tool; empty if it does not."""
    import mcp_types as types
    from mcp_types import methods

    try:
        types.ListToolsResult.model_validate(listing, by_name=False)
        with contextlib.suppress(KeyError):
            methods.validate_server_result("tools/list", version, listing)
    except (ValueError, RecursionError) as problem:
        errors: list[Any] = getattr(problem, "errors", list)()
        at = ".".join(str(each) for each in errors[0]["loc"][2:]) if errors else ""
        why = errors[0]["msg"] if errors else str(problem)
        return bounded_text(f"{at}: {why}" if at else why, 300)
    return ""


def _failure(error: BaseException, last: object) -> WorkerFailure:
    """Return why a session could not begin, as a failure."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, WorkerFailure):
        return error
    from mcp import MCPError

    if isinstance(error, MCPError):
        found = failure_of(error, harmless=True)
        return type(found)(f"{found}; {last}") if str(last) else found
    text = bounded_text(str(error) or type(error).__name__, 500)
    return Unavailable(f"it cannot be spoken to: {text}; {last}")
