"""What the event loop alone can do: a chain, a fan-out, and many sleepers. Nothing is durable.

No engine on asyncio can be faster, so this is the ceiling, and for the sleepers the yardstick:
each step is a coroutine in its own task, awaited by whoever needs it. By hand, from `bench/`:
`python -m limits.asyncio_plain chain --size 1000`.
"""

from __future__ import annotations

import asyncio
import time

from frame import arguments, emit


async def noop() -> None:
    """The step that does nothing."""


async def chain(size: int) -> None:
    """Each step starts when the one before has ended."""
    for _ in range(size):
        await asyncio.create_task(noop())


async def fanout(size: int) -> None:
    """All steps at once."""
    await asyncio.gather(*(noop() for _ in range(size)))


async def sleepers(size: int) -> None:
    """All steps at once, one second each."""
    await asyncio.gather(*(asyncio.sleep(1) for _ in range(size)))


async def main() -> None:
    """Time one shape."""
    shapes = {"chain": chain, "fanout": fanout, "sleepers": sleepers}
    given = arguments(list(shapes))
    began = time.perf_counter()
    await shapes[given.shape](given.size)
    emit(given.size, time.perf_counter() - began)


if __name__ == "__main__":
    asyncio.run(main())
