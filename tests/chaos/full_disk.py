"""A PostgreSQL whose disk really fills up under runs, and then has space again.

    unshare --mount python -m tests.chaos.full_disk

Needs the right to mount: the server's files lie on a small file system in memory that only this
process sees. A file is grown until nothing fits; runs stand still; the file is removed. The
server may have ended meanwhile (it does when its own log cannot grow), and is then started again.
Every run must end with the right result, every step have been carried out once, and what was
acknowledged be there: the same questions as `tests.chaos.postgres` asks.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

from leadhand import Lead
from tests.chaos.postgres import Campaign, compare, run_all, working_as
from tests.support.postgres import Server, find_programs, reachable

SIZE_MB = 160
FULL_S = 8.0


def fill(file: Path) -> int:
    """Grow a file until nothing fits; how large it became."""
    with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    opened.write(bytes(size))
    return file.stat().st_size


def fill_log(server: Server) -> None:
    """Make the server's own log grow until it cannot: it ends itself then."""
    with contextlib.suppress(psycopg.Error), server.connect() as connection:
        for _ in range(200):
            connection.execute("SELECT pg_logical_emit_message(true, '', repeat('x', 100000))")


async def trouble(server: Server, filler: Path, seen: dict[str, Any]) -> None:
    """Twice full, twice freed; the second time its own log is full too."""
    for log_too in (False, True):
        await asyncio.sleep(2)
        seen["filled_mb"] = await asyncio.to_thread(fill, filler) >> 20
        end = time.monotonic() + FULL_S
        while time.monotonic() < end:  # whatever the server frees is taken at once
            await asyncio.to_thread(fill, filler)
            if log_too:
                await asyncio.to_thread(fill_log, server)
            await asyncio.sleep(0.2)
        filler.unlink()
        if not server.running():
            seen["server_ended"] += 1
            await asyncio.to_thread(server.start)


async def main_in(folder: Path, programs: Path) -> dict[str, Any]:
    server = Server(programs, folder, sync=True, small=True)
    server.start()
    campaign = Campaign(120, (0, 0), (0.1, 1.0), 12, 1)
    seen: dict[str, Any] = {"server_ended": 0}
    with tempfile.TemporaryDirectory() as own:
        try:
            address = working_as(server, Path(own))
            async with Lead([], store=address).hosting():
                pass
            task = asyncio.create_task(trouble(server, folder / "filler", seen))
            await run_all(campaign, address)
            await task
            events = compare(campaign, address)
            said = (folder / "log").read_text()
        finally:
            server.stop()
    return {
        "runs": campaign.ended,
        "events": len(events),
        **seen,
        "no_space_said_by_server": said.count("No space left on device"),
        "panics": said.count("PANIC"),
        "longest_run_s": round(campaign.longest_s, 1),
        "wrong": campaign.wrong,
    }


def main() -> int:
    with reachable(find_programs()) as programs, tempfile.TemporaryDirectory() as mounted:
        folder = Path(mounted)
        options = f"size={SIZE_MB}m,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
        folder.chmod(0o755)
        try:
            figures = asyncio.run(main_in(folder, programs))
        finally:
            subprocess.run(["umount", folder], check=False)
    print(json.dumps(figures, indent=2))
    return 1 if figures["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
