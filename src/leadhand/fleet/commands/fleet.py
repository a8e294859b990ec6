"""`leadhand fleet`: many coding agents on one repository."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from leadhand.cli.console import Console
from leadhand.cli.group import CommandGroup, command
from leadhand.cli.signals import Signals
from leadhand.errors import UsageError
from leadhand.fleet.commands.capacity import capacity
from leadhand.fleet.commands.check import check
from leadhand.fleet.commands.eval import evaluate
from leadhand.fleet.commands.init import init
from leadhand.fleet.commands.log import log
from leadhand.fleet.commands.service import drain, message, pause, resume, start, stop, submit
from leadhand.fleet.commands.status import report, status
from leadhand.fleet.commands.take_over import give, take

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from leadhand.core.plan.model import Doc


LABELS = {"lost": "tasks lost", "twice": "landed twice"}


@click.group(
    "fleet",
    cls=CommandGroup,
    examples=(
        "leadhand fleet init --repo ../shop",
        "leadhand fleet check",
        "leadhand fleet start",
        "leadhand fleet submit search.md",
        "leadhand fleet simulate --agents 50 --tasks 200 --faults 0.3",
    ),
)
def fleet() -> None:
    """Run coding agents on a repository; merge what passes the gate.

    Every command of this group takes --json.
    """


@command("simulate", "leadhand fleet simulate --agents 50 --tasks 200 --faults 0.3")
@click.option(
    "--agents",
    type=click.IntRange(1, 2000),
    default=20,
    show_default=True,
    help="How many agents run at once.",
)
@click.option(
    "--tasks",
    type=click.IntRange(1, 5000),
    default=100,
    show_default=True,
    help="The number of tasks.",
)
@click.option(
    "--faults",
    type=click.FloatRange(0.0, 0.9),
    default=0.0,
    show_default=True,
    help="The probability that an attempt has a fault.",
)
@click.option(
    "--only",
    multiple=True,
    help="A kind of fault, as the table names it; repeat the option for several.",
)
@click.option(
    "--gate-seconds",
    type=click.FloatRange(0.0, 600.0),
    default=0.0,
    show_default=True,
    help="The duration of one run of the gate.",
)
@click.option(
    "--work-seconds",
    type=click.FloatRange(0.0, 600.0),
    help="How long an agent works; the default is long enough for all agents to run at once.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The seed of all random choices."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Test every commit in the gate, not only the last one of a batch.",
)
@click.option(
    "--gates",
    type=click.IntRange(1, 256),
    default=2,
    show_default=True,
    help="How many gates run at once.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="The most changes in one test of the merge queue.",
)
@click.option(
    "--overlap",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    show_default=True,
    help="The share of tasks that edit one file; twelve other files are shared less.",
)
@click.option(
    "--locks",
    type=click.Choice(["price", "exclusive", "both"]),
    default="price",
    show_default=True,
    help="How tasks share files; 'both' runs the same tasks twice, to compare.",
)
def simulate(console: Console, **options: Any) -> int:
    """Test the fleet with scripted agents on a generated repository.

    Processes, git and the gate are real; your repositories are not touched. The exit code is 1
    if a task was lost, merged twice, merged without passing the gate or reported done without a
    change, or if an agent wrote or executed anything outside of its permissions.
    """
    from leadhand.fleet.trial.scenario import Trial, together_s
    from leadhand.fleet.trial.trial import WRONG
    from leadhand.fleet.trial.trial import simulate as tried

    work_s = options["work_seconds"]
    trial = Trial(
        agents=options["agents"],
        tasks=options["tasks"],
        faults=options["faults"],
        gate_s=options["gate_seconds"],
        work_s=together_s(options["agents"], options["tasks"]) if work_s is None else work_s,
        seed=options["seed"],
        strict=options["strict"],
        gates=options["gates"],
        batch=options["batch"],
        overlap=options["overlap"],
        kinds=_kinds(options["only"]),
    )

    def told(status: Doc) -> None:
        agents = status["agents"]
        console.say(
            f"{status['landed']:>5} landed · {agents['now']} at work · {agents['waiting']} waiting"
            + (f" · {status['held_back']}" if status["held_back"] else "")
        )

    locks = ("price", "exclusive") if options["locks"] == "both" else (options["locks"],)
    trials = [msgspec.structs.replace(trial, exclusive=each == "exclusive") for each in locks]
    runs: dict[str, Doc] = {}
    for each, one in zip(locks, trials, strict=True):
        found = asyncio.run(_unless_ended(tried(one, told, console.say)))
        if isinstance(found, int):
            console.say("ended before its time: the trial's folder and processes are removed")
            return 128 + found
        runs[each] = found
    if console.json:
        console.document(runs if len(runs) > 1 else runs[locks[0]])
    else:
        _show(console, runs)
    wrong = [name for name in WRONG if any(found[name] for found in runs.values())]
    if wrong:
        console.say("wrong: " + ", ".join(name.replace("_", " ") for name in wrong))
    return 1 if wrong else 0


async def _unless_ended(trial: Coroutine[Any, Any, Doc]) -> Doc | int:
    """Return the figures of a trial, or the number of the signal that ended it.

    The trial then removes what it made, as at its own end.
    """
    doing = asyncio.ensure_future(trial)

    def first(_number: int) -> None:
        doing.cancel()

    with Signals(first, lambda: None) as signals:
        try:
            return await doing
        except asyncio.CancelledError:
            if not signals.number:
                raise
            return signals.number


def _show(console: Console, runs: dict[str, Doc]) -> None:
    """Print the figures of one trial, or of two with the same tasks."""
    for locks, found in runs.items():
        if len(runs) > 1:
            console.out(f"\nlocks: {locks}")
        catalogue = found["catalogue"]
        for name, value in found.items():
            if name != "catalogue":
                console.out(f"{LABELS.get(name, name.replace('_', ' ')):<18} {_figure(value)}")
        for line in _catalogue(catalogue):
            console.out(line)


def _figure(value: object) -> str:
    """Return one of a trial's figures for people; --json has the exact value."""
    if isinstance(value, dict):
        if set(value) == {"times", "recovered", "rate"}:
            return f"{value['recovered']} of {value['times']}"
        parts = (f"{str(key).replace('_', ' ')} {_figure(each)}" for key, each in value.items())
        return ", ".join(parts) or "none"
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value)) or "none"
    return "–" if value is None else str(value)


def _kinds(only: tuple[str, ...]) -> tuple[str, ...]:
    from leadhand.fleet.trial.scenario import FAULTS

    unknown = [name for name in only if name not in FAULTS]
    if unknown:
        known = ", ".join(repr(name) for name in FAULTS)
        raise UsageError(f"--only {unknown[0]!r} is no kind of fault. Fix: one of {known}")
    return only or tuple(FAULTS)


def _catalogue(rows: Doc) -> Iterator[str]:
    """Yield lines about the faults that agents made, each with the right and the actual answer."""
    if rows:
        yield ""
        yield f"{'fault':<17} {'catalogue':<9} {'the right answer':<36} times handled  answered by"
    for name, row in rows.items():
        answers = ", ".join(f"{what} {count}" for what, count in sorted(row["answers"].items()))
        counts = f"{row['times']:>5} {row['handled']:>7}"
        yield f"{name:<17} {row['catalogue']:<9} {row['expected']:<36} {counts}  {answers}"


fleet.add_command(simulate)
GROUP = (
    init,
    check,
    capacity,
    evaluate,
    start,
    submit,
    status,
    report,
    pause,
    resume,
    drain,
    stop,
    message,
    log,
    take,
    give,
)
for each in GROUP:
    fleet.add_command(each)
