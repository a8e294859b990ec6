"""A scripted endpoint as a process of its own.

    python -m leadhand.testing.endpoint SCRIPT.json [--port N] [--log FILE]

It prints its address and answers until it is told to end (SIGTERM, SIGINT) or, with
--while-read, until its standard input is closed: it then ends with whoever started it. The log
gets one JSON document a line for each request, without secrets. See `documents` for scripts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path

from leadhand.testing.endpoint.replies import Reply, script_from
from leadhand.testing.endpoint.request import Request
from leadhand.testing.endpoint.server import Answering, Endpoint, in_order


def main(arguments: list[str] | None = None) -> int:
    """Run until told to end; 2 when the script is not one."""
    parser = argparse.ArgumentParser(
        prog="python -m leadhand.testing.endpoint",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("script", type=Path, metavar="SCRIPT.json")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="0: any that is free")
    parser.add_argument("--log", type=Path, metavar="FILE", help="where requests are written")
    parser.add_argument("--while-read", action="store_true", help="end with the standard input")
    options = parser.parse_args(arguments)
    try:
        script = script_from(json.loads(options.script.read_text()))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.script}: {error}\n")
        return 2
    answering = in_order(script)
    if options.log:
        answering = _logged(answering, options.log)
    asyncio.run(_serve(answering, options.port, while_read=options.while_read))
    return 0


async def _serve(answering: Answering, port: int, *, while_read: bool) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with Endpoint(answering, port=port) as endpoint:
        sys.stdout.write(endpoint.url + "\n")
        sys.stdout.flush()
        if while_read:
            loop.add_reader(sys.stdin.fileno(), _ended, over)
        await over.wait()


def _ended(over: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        over.set()


def _logged(answering: Answering, log: Path) -> Answering:
    def logged(request: Request) -> Reply | Awaitable[Reply]:
        entry = {
            "number": request.number,
            "protocol": request.protocol,
            "path": request.path,
            "headers": request.headers.shown(),
            "body": request.body,
        }
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return answering(request)

    return logged


if __name__ == "__main__":
    sys.exit(main())
