"""Commands to the host of a log in PostgreSQL, from any machine.

The host of a file listens on a socket beside the file. Here the only place that all machines can
reach is the database: a sender inserts a message into a table and notifies (NOTIFY), the host takes
it, carries it out, and stores the answer. A command is durable when it is answered, since it is an
append to the log like any other; the table itself holds nothing that outlives its reader.

A message that the host has not taken when the sender's timeout ends is withdrawn: then it is
certain that nothing was done. A role that may write to the table may act as any person, as with the
socket: it is the writers' role, not the readers'.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from leadhand.errors import Conflict, LeadhandError, UsageError
from leadhand.stores.postgres.schema import HOSTING
from leadhand.stores.postgres.session import (
    PAUSE_S,
    explain,
    lost,
    options_of,
    pass_on_cancel,
    queries,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.stores.postgres.address import Address


LOOK_S = 2.0
"""The interval at which both sides look without a notification, and for a host."""
WORD_BYTES_MAX = 16 << 20


async def ask(address: Address, word: bytes, wait_s: float) -> bytes | None:
    """Send a message to the host; return its answer, or None if there is no host."""
    said = False
    try:
        async with await _connected(address, "speaker") as connection:
            if not await _hosted(connection):
                return None
            if len(word) > WORD_BYTES_MAX:
                raise UsageError("the message is larger than 16 MiB")
            await connection.execute("LISTEN leadhand_answers")
            said = True
            ((ident,),) = await _rows(connection, "say", (word,))
            await connection.execute(queries()["call_host"])
            return await _answer(connection, address, ident, wait_s)
    except psycopg.Error as error:
        pass_on_cancel()
        if said and (error.sqlstate is None or lost(error)):
            raise Conflict(
                f"the connection to {address} was lost before the host answered. The "
                "command may still be carried out."
            ) from None
        raise explain(error, address) from None


async def _answer(
    connection: psycopg.AsyncConnection[Any], address: Address, ident: int, wait_s: float
) -> bytes | None:
    deadline = time.monotonic() + wait_s
    while True:
        rows = await _rows(connection, "answer_of", (ident,))
        if rows and rows[0][0] is not None:
            await _rows(connection, "withdraw", (ident,))
            return bytes(rows[0][0])
        alive = await _hosted(connection)
        if not rows or not alive or time.monotonic() > deadline:
            left = await _rows(connection, "withdraw", (ident,))
            if left and not left[0][0]:
                if not alive:
                    return None
                raise Conflict(f"the host of {address} did not answer; nothing was done")
            raise Conflict(
                f"the host of {address} ended or was busy before it answered. The command "
                "may still be carried out."
            )
        async for _ in connection.notifies(timeout=LOOK_S, stop_after=1):
            pass


class CommandService:
    """Answers messages for one host, while it is open."""

    def __init__(self, address: Address, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._address = address
        self._answer = answer
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start to listen; return once no later message can be missed."""
        self._connection = await self._listening()
        self._task = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Stop listening; messages already taken are answered first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._let_go()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _listening(self) -> psycopg.AsyncConnection[Any]:
        connection = await _connected(self._address, "listener")
        try:
            await connection.execute("LISTEN leadhand_words")
            await connection.execute(queries()["forget_words"])
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _serve(self) -> None:
        pause = PAUSE_S[0]
        while True:
            try:
                if self._connection is None:
                    self._connection = await self._listening()
                await self._take_words(self._connection)
                pause = PAUSE_S[0]
            except (psycopg.Error, LeadhandError):
                pass_on_cancel()
                await self._let_go()
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_S[1])

    async def _take_words(self, connection: psycopg.AsyncConnection[Any]) -> None:
        for ident, word in await _rows(connection, "take_words"):
            task = asyncio.create_task(self._carry_out(ident, bytes(word)))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        async for _ in connection.notifies(timeout=LOOK_S, stop_after=1):
            pass

    async def _carry_out(self, ident: int, word: bytes) -> None:
        answer = await self._answer(word)
        # An answer that cannot be stored affects only its sender, who is told so.
        with suppress(psycopg.Error):
            async with await _connected(self._address, "answerer") as connection:
                await _rows(connection, "answer", (answer, ident))
                await _rows(connection, "call_asker", (str(ident),))


async def _hosted(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Return whether there is a host; engines of runs on Temporal take no messages here."""
    return any(alone for _pid, alone in await _rows(connection, "lock_holder", (HOSTING,)))


async def _connected(address: Address, name: str) -> psycopg.AsyncConnection[Any]:
    options = options_of(address, name)
    return await psycopg.AsyncConnection.connect(**options, autocommit=True)


async def _rows(
    connection: psycopg.AsyncConnection[Any], name: str, values: tuple[Any, ...] = ()
) -> list[Any]:
    cursor = connection.cursor(binary=True)
    await cursor.execute(queries()[name], values)
    return await cursor.fetchall() if cursor.description else []
