"""Awaiting to the end what must not be left halfway.

Whoever is cancelled while a thread cleans a folder does not stop the thread; whoever is cancelled
while work is being saved has not saved it. So both are awaited first, and the cancellation is
passed on afterwards.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any


T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of something that is over in any case when this returns or raises."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()  # whatever came of it, nobody waits for it any more
        raise cancelled
    return task.result()
