"""The engine of a trial: a fleet in its own process, which may be killed at any moment.

    python -m leadhand.fleet.trial.fleet_process FOLDER

It prints a line of JSON each second, and ends with 0 when every task has landed or waits for a
person. Started again in the same folder it goes on; nothing is handed from one life to the next.
It ends with its agents when its standard input does: when the trial that started it is gone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from leadhand.fleet.service import Fleet
from leadhand.fleet.trial.scenario import Places, coders, config_of


async def live(places: Places) -> None:
    """Run until all tasks are done."""
    trial = places.trial()
    async with Fleet(config_of(places, trial), coders(places)) as fleet:
        gone = asyncio.create_task(_input_ended())
        gone.add_done_callback(lambda _task: waiting.cancel())
        waiting = asyncio.get_running_loop().create_task(fleet.idle())
        while not waiting.done():
            await asyncio.wait([waiting], timeout=1.0)
            status = await fleet.status()
            sys.stdout.write(json.dumps(status) + "\n")
            sys.stdout.flush()
        gone.cancel()
        await waiting


async def _input_ended() -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()


if __name__ == "__main__":
    asyncio.run(live(Places(Path(sys.argv[1]))))
