"""`leadhand worker`: carry out steps of runs that a Temporal server hosts, on any machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    settings_of,
    several,
    store_option,
    workers_option,
)
from leadhand.cli.signals import Signals, first_of
from leadhand.errors import UsageError
from leadhand.plugins import parts
from leadhand.settings.folders import make_store_folder
from leadhand.temporal.settings import cluster_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from leadhand.temporal.service import RunningService, ServiceOptions


EXAMPLE = """leadhand worker --temporal temporal.example:7233 --workers workers.py
leadhand worker --kinds research,http --concurrency 20 --health 8080
leadhand worker --kinds coder
leadhand worker --engine --store postgres://leadhand@db/leadhand"""


AWAY_S = 1.0
AWAY = "does not answer; running steps continue, and the connection is retried"


@command("worker", EXAMPLE)
@workers_option
@click.option(
    "--kinds",
    multiple=True,
    metavar="NAMES",
    help="The workers to serve, by name or kind, separated by commas; the default is all "
    "loaded workers.",
)
@click.option("--engine", is_flag=True, help="Also host runs: their planners and the log.")
@click.option("--engine-only", is_flag=True, help="Host runs, and run no steps.")
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, metavar="N",
    help="Run at most N attempts of each worker at once.",
)  # fmt: skip
@click.option("--drain", "drain_s", type=float, default=3600.0, metavar="SECONDS",
              help="How long running steps may take after a request to stop.")  # fmt: skip
@click.option("--health", type=click.IntRange(0, 65535), metavar="PORT",
              help="The port for /livez and /readyz, on this machine only.")  # fmt: skip
@click.option(
    "--health-bind",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="The address for /livez and /readyz.",
)
@store_option
def worker(console: Console, **options: Any) -> int:
    """Run steps for a Temporal server.

    The process takes steps from the task queues of its workers, runs them and reports the
    results. Any number of machines may serve the same workers. Ctrl-C takes no new steps and
    lets running steps finish; a second Ctrl-C ends the process at once, and the runs then
    recover the steps that were lost. --kinds coder runs coding agents for the fleet whose
    address [fleet.machines] names. With --engine the process also hosts the runs; one such
    process, or `leadhand serve --temporal`, must be running.
    """
    from leadhand.temporal.service import ServiceOptions

    settings = settings_of(options["store"], options["workers"], executes=console)
    engine = options["engine"] or options["engine_only"]
    if options["engine_only"] and options["kinds"]:
        raise UsageError("--engine-only serves no steps, so --kinds does not go with it")
    if engine:
        make_store_folder(settings.store)
    cluster = cluster_of(settings)
    if cluster is None:
        raise UsageError(
            "which Temporal server? Fix: give --temporal HOST:PORT, or set [temporal] address"
        )
    wanted = ServiceOptions(
        settings=settings,
        cluster=cluster,
        kinds=several(options["kinds"]),
        steps=not options["engine_only"],
        engine=engine,
        concurrency=options["concurrency"],
        drain_s=options["drain_s"],
        notice=lambda kind, run, text: console.say(f"{run} {kind}: {text}"),
    )
    return asyncio.run(_serve(console, wanted, options["health"], options["health_bind"]))


async def _serve(console: Console, wanted: ServiceOptions, health: int | None, bind: str) -> int:
    from leadhand.temporal.health import answering_health

    serve = _service_of(wanted)

    with Signals(lambda number: _draining(console, number), lambda: None) as signals:
        up: RunningService | None = None
        async with AsyncExitStack() as stack:
            port = None
            if health is not None:
                is_ready = _ready(lambda: up, signals)
                port = await stack.enter_async_context(answering_health(bind, health, is_ready))
            up = await stack.enter_async_context(serve(wanted))
            what = [*up.names, *(["engine"] if wanted.engine else [])]
            if console.json:
                console.record({"serving": what, "health": port})
            console.say(f"serving {', '.join(what)}")
            telling = asyncio.create_task(_tell_away(console, up))
            stack.callback(telling.cancel)
            await first_of(signals.came.wait(), up.failed())
    return 128 + signals.number if signals.number == 15 else 0


def _service_of(
    wanted: ServiceOptions,
) -> Callable[[ServiceOptions], AbstractAsyncContextManager[RunningService]]:
    """Return what serves these kinds: steps of runs, or a product's own kind by itself.

    Raise `UsageError` if both are wanted of one process.
    """
    from leadhand.temporal.service import running_service

    products = parts("machines")
    own = [kind for kind in wanted.kinds if kind in products]
    if not own:
        return running_service
    if len(wanted.kinds) > 1 or wanted.engine:
        raise UsageError(
            f"--kinds {own[0]} needs a process of its own. Fix: start another `leadhand worker` "
            "for the rest"
        )
    found: Callable[[ServiceOptions], AbstractAsyncContextManager[RunningService]]
    found = products[own[0]].load()
    return found


async def _tell_away(console: Console, up: RunningService) -> None:
    """Say once when the server is unreachable, and once when it is back."""
    there = True
    while True:
        await asyncio.sleep(AWAY_S)
        if up.serving.reachable != there:
            there = not there
            console.say(f"the Temporal server {'answers again' if there else AWAY}")


def _ready(up: Callable[[], RunningService | None], signals: Signals) -> Callable[[], bool]:
    """Return a function that tells whether work is taken."""

    def look() -> bool:
        found = up()
        return found is not None and found.ready and not signals.came.is_set()

    return look


def _draining(console: Console, number: int) -> None:
    word = "Ctrl-C" if number == 2 else "SIGTERM"
    console.say(f"{word}: no new steps are taken; waiting for running steps. Repeat to end now.")
