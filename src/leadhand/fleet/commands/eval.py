"""`leadhand fleet eval`: planners compared on the epics that this fleet has landed."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from leadhand.cli.group import command
from leadhand.cli.options import trust_option
from leadhand.cli.rendering.text import clean
from leadhand.errors import Conflict, UsageError
from leadhand.fleet.commands.service import folder_option, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leadhand.cli.console import Console
    from leadhand.fleet.planning.comparison import PlannerFigures, Ratio
    from leadhand.fleet.planning.planner import EpicPlanner
    from leadhand.fleet.repository.hub import Hub
    from leadhand.settings import Settings

EPICS = 30


@command(
    "eval",
    "leadhand fleet eval --planner lead --planner plan.py:next_wave",
)
@click.option(
    "--planner",
    "planners",
    multiple=True,
    help="A planner, as [fleet] planner names it; again for others. The default is that of the "
    "settings.",
)
@click.option(
    "--epics",
    type=click.IntRange(1, 1000),
    default=EPICS,
    show_default=True,
    help="How many of the last landed epics are planned again.",
)
@click.option(
    "--budget",
    type=click.FloatRange(0.0),
    default=5.0,
    show_default=True,
    help="US dollars for models; no further epic is planned when they are spent.",
)
@trust_option
@folder_option
def evaluate(
    console: Console, planners: tuple[str, ...], folder: str | None, *, epics: int, budget: float
) -> int:
    """Compare planners on the epics that this fleet has landed.

    Each planner is asked for the first wave of each epic, on the commit of main that the epic was
    planned on, with the same limits and lint. What it means to change is compared with what the
    epic really changed. Nothing is executed, and a fleet may be at work meanwhile.
    """
    from leadhand.fleet.settings import fleet_of

    settings = settings_for(folder, console)
    named = [words_of(each) for each in planners] or [tuple(fleet_of(settings).planner)]
    if not any(named):
        raise UsageError("which planner? Fix: give --planner NAME, or write [fleet] planner")
    found = asyncio.run(_compare(settings, named, epics, budget, console.say))
    if console.json:
        console.document({"planners": [document(each) for each in found]})
    else:
        for line in lines(found):
            console.out(line)
    return 0


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a planner: a JSON list, a command line, or one name."""
    if text.startswith("["):
        try:
            return tuple(msgspec.json.decode(text, type=list[str]))
        except msgspec.DecodeError:
            raise UsageError(f'--planner {text}: no list. Fix: ["python", "plan.py"]') from None
    return tuple(shlex.split(text)) if " " in text else (text,)


async def _compare(
    settings: Settings,
    named: Sequence[tuple[str, ...]],
    most: int,
    budget: float,
    said: Callable[[str], None],
) -> list[PlannerFigures]:
    from leadhand.fleet.configuration import coders_by_tier, config_of
    from leadhand.fleet.planning.backends import backend_of
    from leadhand.fleet.planning.choice import planner_at, planner_named
    from leadhand.fleet.planning.comparison import compare_planner, recorded_epics
    from leadhand.workers.processes.runner import Processes
    from leadhand.workers.sandbox.proxy import open_doors
    from leadhand.workers.sandbox.sandbox import PLANNER, choose

    config, spent = config_of(settings), [0.0]
    epics = await recorded_epics(config.folder, most)
    tiers = [coder.name for coder in coders_by_tier(settings)][1:]

    def paid(cost: float) -> None:
        spent[0] += cost

    async with AsyncExitStack() as stack:
        doors = {name: door for name, door in config.doors.items() if name == PLANNER}
        opened = await open_doors(stack, doors)
        sandbox = choose(config.sandbox, readable=config.readable, doors=opened)
        processes = await stack.enter_async_context(Processes("fleet-eval", strict=True))
        cache = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "map.jsonl"
        shown = sandbox.through(PLANNER)
        found = []
        for words in named:
            backend = backend_of(
                planner_named(settings, words),
                config.models,
                processes,
                shown,
                network=config.planning.network,
                paid=paid,
            )

            async def made(hub: Hub, backend: Any = backend) -> EpicPlanner:
                if budget and spent[0] >= budget:
                    raise Conflict(f"{spent[0]:.2f} dollars are spent. Fix: a larger --budget")
                return planner_at(config, hub, backend, sandbox, tiers, cache)

            name = words[0] if len(words) == 1 else json.dumps(words)
            append = config.sharing.append
            found.append(
                await compare_planner(
                    name, config.folder, epics, made, lambda: spent[0], shared=append, said=said
                )
            )
    return found


def document(figures: PlannerFigures) -> dict[str, Any]:
    """Return the figures with precision and recall."""
    doc: dict[str, Any] = msgspec.to_builtins(figures)
    for name in ("files", "overlaps"):
        ratio: Ratio = getattr(figures, name)
        doc[name] |= {"precision": ratio.precision, "recall": ratio.recall}
    return doc


def lines(found: Sequence[PlannerFigures]) -> Iterator[str]:
    """Yield a table for people."""
    yield f"{found[0].epics} epics that landed, each planned again on the commit it began with"
    yield ""
    yield (
        f"{'planner':<28} planned  asked  tasks  usable    files: P    R   overlaps: P    R"
        "      cost"
    )
    for each in found:
        usable = f"{each.usable}/{each.answers}"
        yield (
            f"{clean(each.planner)[:28]:<28} {each.planned:>7} {each.asked:>6} {each.tasks:>6} "
            f"{usable:>7}    {_two(each.files):>11}   {_two(each.overlaps):>14} "
            f"{each.cost:>9.2f}"
        )


def _two(ratio: Ratio) -> str:
    shown = (f"{part:.2f}" if part is not None else "-" for part in (ratio.precision, ratio.recall))
    return " ".join(f"{part:>4}" for part in shown)
