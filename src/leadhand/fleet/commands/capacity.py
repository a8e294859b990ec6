"""`leadhand fleet capacity`: what a fleet of a size would land, before there is one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.group import command
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.fleet.capacity import Capacity, CapacityPlan


AGENTS_MAX = 20_000
SHARE = click.FloatRange(0.0, 0.95)
TIME = click.FloatRange(0.1, 86_400.0)
MANY = click.IntRange(1, 1024)


@command("capacity", "leadhand fleet capacity --agents 100,1000,10000 --gate-seconds 300")
@click.option(
    "--agents",
    default="100,1000,10000",
    show_default=True,
    help="The number of agents, or several numbers to compare.",
)
@click.option(
    "--hours",
    type=click.FloatRange(0.1, 168.0),
    default=8.0,
    show_default=True,
    help="The simulated period.",
)
@click.option(
    "--work-seconds",
    type=TIME,
    default=900.0,
    show_default=True,
    help="The average duration of an attempt.",
)
@click.option(
    "--gate-seconds",
    type=TIME,
    default=300.0,
    show_default=True,
    help="The duration of one run of the gate.",
)
@click.option(
    "--gates",
    type=MANY,
    default=16,
    show_default=True,
    help="How many gates test the changes of agents at once.",
)
@click.option(
    "--train-gates",
    type=MANY,
    default=16,
    show_default=True,
    help="How many gates test the merge queue at once.",
)
@click.option(
    "--batch",
    type=MANY,
    default=16,
    show_default=True,
    help="The most changes in one test of the merge queue.",
)
@click.option(
    "--unsound",
    type=SHARE,
    default=0.3,
    show_default=True,
    help="The share of attempts that fail the gate on their own.",
)
@click.option(
    "--clashing",
    type=SHARE,
    default=0.02,
    show_default=True,
    help="The share of changes that fail only together with other changes.",
)
@click.option(
    "--cost", type=click.FloatRange(0.0), default=0.0, help="The average cost of an attempt."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Test every commit in the gate, not only the last one of a batch.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The seed of all random choices."
)
def capacity(console: Console, **options: Any) -> int:
    """Estimate the throughput and the bottleneck of fleets, by size.

    The merge queue's real decisions are run in virtual time: seconds for ten thousand agents
    and a day. Git's own time, outages and dependencies between tasks are not included, so the
    estimate is an upper bound.
    """
    from leadhand.fleet.capacity import CapacityPlan
    from leadhand.fleet.capacity import capacity as tried

    rows: list[tuple[CapacityPlan, Capacity]] = []
    for agents in _sizes(options["agents"]):
        plan = CapacityPlan(
            agents=agents,
            hours=options["hours"],
            work_s=options["work_seconds"],
            gate_s=options["gate_seconds"],
            gates=options["gates"],
            tracks=options["train_gates"],
            unsound=options["unsound"],
            clashing=options["clashing"],
            strict=options["strict"],
            batch_max=options["batch"],
            cost=options["cost"],
        )
        draw = random.Random(options["seed"])  # noqa: S311 - times, not secrets
        rows.append((plan, tried(plan, draw)))
    if console.json:
        console.document([{**plan._asdict(), **found._asdict()} for plan, found in rows])
        return 0
    costs = options["cost"] > 0
    console.out(
        "agents  merged/h   busy  gates  queue  gate wait p50     queue p50    queue p95 "
        f" gate runs{'   cost' * costs}  bottleneck"
    )
    for plan, found in rows:
        cost = f"  {found.cost:>5.2f}" if costs else ""
        console.out(
            f"{plan.agents:>6}  {found.per_hour:>8,.0f}  {found.working:>5.0%}"
            f"  {found.gates_busy:>5.0%}  {found.tracks_busy:>5.0%}  {_time(found.gate_wait_s):>13}"
            f"  {_time(found.train_s):>12}  {_time(found.train_late_s):>11}"
            f"  {found.gate_runs:>9.2f}{cost}  {found.limit}"
        )
    console.out(
        "busy, gates, queue: the share of time in which agents, gates and merge queue gates "
        "are busy"
    )
    return 0


def _sizes(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--agents {text}: not a list of numbers. Fix: --agents 100,1000"
        ) from None
    if not all(1 <= size <= AGENTS_MAX for size in found):
        raise UsageError(f"--agents {text}: each must be from 1 to {AGENTS_MAX}")
    return found


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
