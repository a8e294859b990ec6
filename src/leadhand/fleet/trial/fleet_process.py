"""The engine of a trial: a fleet in its own process, which may be killed at any moment.

    python -m leadhand.fleet.trial.fleet_process FOLDER

It prints a line of JSON each second, and ends with 0 when every task has landed or waits for a
person. Started again in the same folder it goes on; nothing is handed from one life to the next.
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
        waiting = asyncio.get_running_loop().create_task(fleet.idle())
        while not waiting.done():
            await asyncio.wait([waiting], timeout=1.0)
            status = await fleet.status()
            sys.stdout.write(json.dumps(status) + "\n")
            sys.stdout.flush()
        await waiting


if __name__ == "__main__":
    asyncio.run(live(Places(Path(sys.argv[1]))))
