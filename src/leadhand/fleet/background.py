"""Background work of a fleet: loops that survive errors, and work that survives cancellation.

`watch` repeats a check for ever. A loop that ended with its first error would leave a fleet that
looks alive and does nothing, so errors end here: the message is put into `told` under the name of
the loop, where `fleet status` shows it, and the check runs again after a pause. The next success
removes the message.

`to_the_end` awaits work that must not be left halfway. Cancelling a task does not stop the thread
that cleans a folder for it, and a cancelled save has saved nothing; so the work is awaited first,
and the cancellation is passed on afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any


LOOK_S = 1.0
"""How often the folder of epics and the user's branch are looked at."""
AGAIN_S = 5.0
"""The pause after a look that failed: what is short of something is not pressed for it."""


NUDGE_S = 1.0
"""The least pause between two looks, however often a loop is nudged."""


async def watch(
    name: str,
    look: Callable[[], Awaitable[None]],
    told: dict[str, str],
    every_s: float = LOOK_S,
    nudged: asyncio.Event | None = None,
) -> None:
    """Call `look` every `every_s` seconds for ever; keep its last error's message in `told`.

    With `nudged`, the next look comes as soon as that is set.
    """
    while True:
        try:
            await look()
        except Exception as error:  # noqa: BLE001 - a loop is a boundary: it goes on
            told[name] = f"{str(error) or type(error).__name__}; it is tried again"
            await asyncio.sleep(max(every_s, AGAIN_S))
        else:
            told.pop(name, None)
            await _pause(every_s, nudged)


async def _pause(every_s: float, nudged: asyncio.Event | None) -> None:
    """Wait for a time, or until `nudged` is set."""
    if nudged is None or every_s <= NUDGE_S:
        await asyncio.sleep(every_s)
        return
    await asyncio.sleep(NUDGE_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(every_s - NUDGE_S):
            await nudged.wait()
    nudged.clear()


async def stop(watching: asyncio.Task[None]) -> None:
    """Cancel a loop and wait until it has ended."""
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


T = TypeVar("T")


async def finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, even if the caller is cancelled meanwhile, and return its result.

    Raise the `CancelledError` of the caller once `work` has ended.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()  # its outcome is no longer needed
        raise cancelled
    return task.result()
