"""A server that is a program: JSON-RPC over stdin and stdout, one message per line.

The SDK can start programs too. Ours differs in what Leadhand promises of every program:

1. It is started by the host's supervisor (`workers/processes`), so it dies with the host, however
   that dies, with everything it started. The SDK's would outlive a host that is killed.
2. Its environment is exactly what was named.
3. One message is bounded. Of a longer one the beginning and the end are kept, where its id
   stands, and the call it answers fails; the rest of the connection goes on. The same holds for
   an answer that cannot be read, as one that is nested too deeply.
4. Its stderr is kept, bounded, for the message that says how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadhand.errors import Unavailable
from leadhand.workers.functions.isolation import text_of
from leadhand.workers.mcp.failures import edge_error
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.runner import Finished, Process, Processes
from leadhand.workers.reports import bounded_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

LEAVE_S = 2.0
"""How long a server may take to leave once its stdin is closed; then TERM, then KILL."""
STDERR_BYTES = 64 << 10
READ_BYTES = 64 << 10
EDGE_BYTES = 256
_ID = rb'"id"\s*:\s*(\d{1,18})'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ID_LAST = re.compile(_ID + rb"\s*\}\s*\Z")


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """The program to start, with its arguments, folder and variables."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(repr=False)


@dataclass(slots=True)
class Last:
    """The last that was heard of a program, for messages."""

    stray: str = ""
    """The first line on stdout that was no message."""
    how: str = ""

    def __str__(self) -> str:
        said = f"{self.how}; it printed {self.stray!r}" if self.stray else self.how
        return said or "it says nothing"


class LineSplitter:
    """Splits input into lines; of a line that is too long it keeps only the two ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._head: bytes | None = None

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the complete lines; None stands before the ends of one that is too long."""
        found: list[bytes | None] = []
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._add(piece)
            if self._head is not None:
                found += [None, self._head + b" " + bytes(self._line)]
            else:
                found.append(bytes(self._line))
            self._line, self._head = bytearray(), None
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self._line += piece
        if self._head is None and len(self._line) > self._limit:
            self._head = bytes(self._line[:EDGE_BYTES])
        if self._head is not None:
            del self._line[:-EDGE_BYTES]


@asynccontextmanager
async def stdio(
    processes: Processes, program: ServerProgram, limit: int, last: Last, on_end: Callable[[], None]
) -> AsyncIterator[Any]:
    """Open the two streams of a session with a program; `on_end()` is called when it hangs up."""
    import anyio
    from mcp.shared.message import SessionMessage

    process, reader, writer = await _started(processes, program)
    into, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)

    async def read() -> None:
        lines = LineSplitter(limit)
        with contextlib.suppress(*gone):
            async with into:
                while chunk := await reader.read(READ_BYTES):
                    for message in _messages(lines.feed(chunk), limit, last):
                        await into.send(message)
        on_end()

    async def write() -> None:
        with contextlib.suppress(*gone):
            async with out_of:
                async for message in out_of:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode() + b"\n")
                    await writer.drain()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield read_stream, write_stream
        finally:
            with anyio.CancelScope(shield=True):
                writer.close()
                last.how = await _left(process)
            tasks.cancel_scope.cancel()
            for stream in (into, read_stream, write_stream, out_of):
                stream.close()
            reader._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - no other way


async def _started(
    processes: Processes, program: ServerProgram
) -> tuple[Process, asyncio.StreamReader, asyncio.StreamWriter]:
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    try:
        process = await processes.spawn(
            program.argv,
            cwd=program.cwd,
            env=program.env,
            ends=(theirs_in, theirs_out),
            stderr_limit=STDERR_BYTES,
        )
    except BaseException as error:
        os.close(ours_in)
        os.close(ours_out)
        if isinstance(error, ProcessError):
            raise Unavailable(f"it cannot be started: {error}") from None
        raise
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(ours_out, "wb", 0),
    )
    return process, reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _left(process: Process) -> str:
    """Let it go, and see it gone, however often we are cancelled; gives back how it ended."""
    ending = asyncio.ensure_future(_leave(process))
    while not ending.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ending)
    return ending.result()


async def _leave(process: Process) -> str:
    try:
        try:
            async with asyncio.timeout(LEAVE_S):
                finished = await process.wait()
        except TimeoutError:
            finished = await process.end(LEAVE_S)
    except ProcessError as error:
        return str(error)
    return _how(finished)


def _how(finished: Finished) -> str:
    how = (
        f"it was ended by signal {finished.signal}"
        if finished.signal is not None
        else f"it exited with {finished.exit_code}"
    )
    lines = text_of(finished.stderr).strip().splitlines()[-5:]
    return bounded_text(f"{how}: " + "\n".join(lines), 1_000) if lines else how


def _messages(lines: list[bytes | None], limit: int, last: Last) -> list[Any]:
    """Return the messages of the lines; other lines are noted and left out."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    found: list[Any] = []
    cut = False
    for line in lines:
        if line is None:
            cut = True
            continue
        text, cut = _too_long(line, limit) if cut else line, False
        try:
            # Half a character is refused by the parser with all of the line, by Python's it is not:
            # then only the tool or the result that holds it cannot be used.
            doc = json.loads(text) if _HALF.search(text) else None
            found.append(
                SessionMessage(
                    jsonrpc_message_adapter.validate_json(text, by_name=False)
                    if doc is None
                    else jsonrpc_message_adapter.validate_python(doc, by_name=False)
                )
            )
        except (ValueError, RecursionError):
            if (answer := _unreadable(line)) is not None:
                found.append(SessionMessage(answer))
            elif line.strip() and not last.stray:
                last.stray = bounded_text(line.decode("utf-8", "backslashreplace"), 200)
    return found


def _unreadable(line: bytes) -> Any:
    """Return an answer in place of a malformed one, such as one that is nested too deeply.

    Return None if it cannot be told which call it answers, if any.
    """
    from mcp_types import jsonrpc_message_adapter

    ends = line[:EDGE_BYTES] + b" " + line[-EDGE_BYTES:]
    found = _ID_FIRST.match(ends) or _ID_LAST.search(ends)
    if found is None or b'"method"' in ends:
        return None
    error = edge_error("invalid_output", "the answer is nested too deeply, or is no JSON-RPC")
    doc = {"jsonrpc": "2.0", "id": int(found[1]), "error": error}
    return jsonrpc_message_adapter.validate_python(doc, by_name=False)


def _too_long(ends: bytes, limit: int) -> bytes:
    """Return an answer in place of one that is too long; hang up if its call is unknown."""
    found = _ID_FIRST.match(ends) or _ID_LAST.search(ends)
    if found is None:
        raise ConnectionAbortedError(f"a message is larger than {limit:,} bytes")
    error = edge_error("invalid_output", f"the result is larger than {limit:,} bytes")
    return json.dumps({"jsonrpc": "2.0", "id": int(found[1]), "error": error}).encode()
