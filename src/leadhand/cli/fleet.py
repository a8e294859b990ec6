"""`leadhand fleet`: many coding agents on one repository."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.console import Console
from leadhand.cli.fleet_figures import report, status
from leadhand.cli.fleet_service import drain, log, message, start, stop, submit
from leadhand.cli.group import command

if TYPE_CHECKING:
    from leadhand.core.plan import Doc


class _Fleet(click.Group):
    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write("  leadhand fleet start --repo ../shop\n")
        formatter.write("  leadhand fleet submit search.md\n")
        formatter.write("  leadhand fleet simulate --agents 50 --tasks 200 --faults 0.3\n")
        super().format_help_text(ctx, formatter)


@click.group("fleet", cls=_Fleet, context_settings={"help_option_names": ["-h", "--help"]})
def fleet() -> None:
    """Many coding agents on one repository, and only what passed its gate on main.

    Every command of it takes --json.
    """


@command("simulate", "leadhand fleet simulate --agents 50 --tasks 200 --faults 0.3")
@click.option("--agents", type=click.IntRange(1, 2000), default=20, show_default=True)
@click.option("--tasks", type=click.IntRange(1, 5000), default=100, show_default=True)
@click.option(
    "--faults",
    type=click.FloatRange(0.0, 0.9),
    default=0.0,
    show_default=True,
    help="The chance that an attempt goes wrong.",
)
@click.option("--gate-seconds", type=click.FloatRange(0.0, 600.0), default=0.0, show_default=True)
@click.option("--work-seconds", type=click.FloatRange(0.0, 600.0), default=0.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--strict", is_flag=True, help="Gate every commit, not only the tip of a batch.")
def simulate(console: Console, **options: Any) -> int:
    """Scripted agents on a generated repository: real processes, real git, a real gate.

    Nothing of yours is touched. Exits with 1 when something was lost, landed twice, is
    red, or a hook that an agent planted was run.
    """
    from leadhand.app.fleet_trial import Trial
    from leadhand.app.fleet_trial import simulate as tried

    trial = Trial(
        agents=options["agents"],
        tasks=options["tasks"],
        faults=options["faults"],
        gate_s=options["gate_seconds"],
        work_s=options["work_seconds"],
        seed=options["seed"],
        strict=options["strict"],
    )

    def told(status: Doc) -> None:
        agents = status["agents"]
        console.say(
            f"{status['landed']:>5} landed · {agents['now']} at work · {agents['waiting']} waiting"
            + (f" · {status['held_back']}" if status["held_back"] else "")
        )

    found = asyncio.run(tried(trial, told))
    if console.json:
        console.document(found)
    else:
        for name, value in found.items():
            console.out(f"{name.replace('_', ' '):<18} {value}")
    wrong = ("lost", "twice", "red_commits", "hooks_run")
    return 1 if any(found[name] for name in wrong) else 0


fleet.add_command(simulate)
for each in (start, submit, status, report, drain, stop, message, log):
    fleet.add_command(each)
