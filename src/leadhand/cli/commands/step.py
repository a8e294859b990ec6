"""`leadhand step`: the steps of an agent that drives a run: ask for the next one, and report it."""

from __future__ import annotations

import asyncio
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from leadhand.app.resumable_run import load_resumable
from leadhand.cli.console import Console
from leadhand.cli.group import CommandGroup, command
from leadhand.cli.options import (
    actor_of,
    driver_of,
    reading,
    settings_of,
    store_option,
    workers_option,
)
from leadhand.cli.rendering.text import clean, clean_lines
from leadhand.codec.documents import read_value
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.views.inbox import InboxRow, inbox_row
from leadhand.core.views.run import ENDED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leadhand.app.callers import HandedStep, NextStep
    from leadhand.app.lead import Lead
    from leadhand.settings import Settings

EXIT_CODES = {"succeeded": 0, "failed": 1, "rejected": 3, "waiting": 5, "cancelled": 9}
STILL_RUNNING = 8
AT_MOST = 500
"""The length of a text in the terminal."""


@click.group(
    "step",
    cls=CommandGroup,
    examples=(
        "leadhand step next 7kq3 --caller claude",
        "leadhand step report 7kq3 tests --attempt 1 --caller claude --data true",
    ),
    epilog="Every command of this group takes --json.",
)
def step() -> None:
    """Hand steps out to an agent, and take its reports.

    These are the steps with `worker: caller` of a plan: the agent that drives the run carries
    them out, one at a time. Leadhand holds the plan, asks for approval, and checks each result
    by the criteria of its step.
    """


def caller_option(body: Any) -> Any:
    """Add `--caller`."""
    return click.option(
        "--caller",
        default="shell",
        show_default=True,
        metavar="NAME",
        help="The name of the agent; it is recorded as agent:NAME.",
    )(body)


def lease_option(body: Any) -> Any:
    """Add `--lease`."""
    return click.option(
        "--lease", metavar="TIME", help="How long the agent may work on the step; 15m by default."
    )(body)


@command("next", "leadhand step next 7kq3 --caller claude --json")
@click.argument("run")
@caller_option
@lease_option
@click.option(
    "--wait", default=0.0, metavar="SECONDS", help="Wait this long while other workers are at work."
)
@workers_option
@store_option
def next_(console: Console, run: str, **options: Any) -> int:
    """Ask for the next step.

    The step belongs to the agent until it reports, or until the lease ends; an agent that has a
    step gets the same step again. If no process runs RUN, this command does, until nothing more
    happens without the agent or a person. The exit code is 0 with a step, else that of the run.
    """

    def ask(lead: Lead, ident: str) -> Awaitable[NextStep]:
        return lead.next_step(
            ident, caller=options["caller"], lease=options["lease"], wait_s=options["wait"]
        )

    ident, told = _with_lead(console, run, options, ask)
    if console.json:
        console.document(told)
    elif told.step is not None:
        _print_step(console, ident, told.step, options["caller"])
    else:
        _print_none(console, told)
    return 0 if told.step is not None else EXIT_CODES.get(told.status, STILL_RUNNING)


@command("report", "leadhand step report 7kq3 tests --attempt 1 --data '{\"passed\": 12}'")
@click.argument("run")
@click.argument("ident", metavar="STEP")
@click.option("--attempt", type=int, required=True, help="The attempt, as `step next` said.")
@caller_option
@click.option(
    "--status",
    type=click.Choice(["succeeded", "failed"]),
    default="succeeded",
    show_default=True,
    help="What the agent says; the criteria of the step decide.",
)
@click.option("--data", help="The result as JSON.")
@click.option("--error", default="", help="Why it failed.")
@click.option(
    "--class",
    "failure_class",
    type=click.Choice(FAILURE_CLASSES),
    metavar="CLASS",
    help="The failure class, which decides what follows; unavailable by default.",
)
@click.option(
    "--effect",
    type=click.Choice(["none", "done", "unknown"]),
    default="unknown",
    show_default=True,
    help="Whether the failed attempt changed anything.",
)
@click.option("--recommend", multiple=True, metavar="TEXT", help="A hint for the planner.")
@click.option("--cost", type=float, default=0.0, help="What the attempt cost.")
@workers_option
@store_option
def report(console: Console, run: str, ident: str, **options: Any) -> int:
    """Report a step that was handed out.

    The result is checked by the success criteria of the step: what the agent says is not enough.
    The same report again changes nothing. A report after the lease, or of another attempt, is
    refused. The exit code is 1 if the agent reports success and the criteria do not hold.
    """
    data = None if options["data"] is None else read_value(options["data"], "--data")
    status: Literal["succeeded", "failed"] = options["status"]

    def tell(lead: Lead, full: str) -> Awaitable[Any]:
        return lead.report_step(
            full,
            ident,
            attempt=options["attempt"],
            caller=options["caller"],
            status=status,
            data=data,
            error=options["error"],
            failure_class=options["failure_class"] or "",
            effect=options["effect"],
            recommendations=options["recommend"],
            cost=options["cost"],
        )

    full, told = _with_lead(console, run, options, tell)
    if console.json:
        console.document(told)
    else:
        again = " (reported before)" if told.repeated else ""
        claimed = "accepted, not verified: no criterion looks at the result"
        done = "accepted: its report meets the criteria" if told.verified else claimed
        word = done if told.met else "not verified" if status == "succeeded" else "failed"
        console.say(f"step {clean(ident)} of run {full}: {word}{again}")
        for finding in told.findings:
            console.say(f"  {clean(finding, AT_MOST)}")
        _print_state(console, full, told.status, told.awaiting, told.reason)
    return 0 if told.met or status == "failed" else 1


@command("extend", "leadhand step extend 7kq3 tests --attempt 1 --message 'half of it done'")
@click.argument("run")
@click.argument("ident", metavar="STEP")
@click.option("--attempt", type=int, required=True, help="The attempt, as `step next` said.")
@caller_option
@lease_option
@click.option("--message", default="", help="How far the agent is; shown, and not logged.")
@click.option("--fraction", type=float, help="The completed share, from 0 to 1.")
@workers_option
@store_option
def extend(console: Console, run: str, ident: str, **options: Any) -> int:
    """Say that the agent is still at work on a step.

    The lease then ends later, but never after the timeout of the step, which is a day unless the
    plan says otherwise.
    """

    def ask(lead: Lead, full: str) -> Awaitable[Any]:
        return lead.extend_step(
            full,
            ident,
            attempt=options["attempt"],
            caller=options["caller"],
            lease=options["lease"],
            message=options["message"],
            fraction=options["fraction"],
        )

    full, told = _with_lead(console, run, options, ask)
    if console.json:
        console.document(told)
    elif told.cancelled:
        console.say(f"run {full} is being stopped: stop, and report what was done")
    else:
        console.say(f"the lease of step {clean(ident)} ends at {told.deadline}")
    return 0


for each in (next_, report, extend):
    step.add_command(each)


def _with_lead(
    console: Console, run: str, options: Any, work: Callable[[Lead, str], Awaitable[Any]]
) -> tuple[str, Any]:
    """Do something with a run that another process drives, or that this one does; return both."""
    from leadhand.app.hosting_service import hosting_service
    from leadhand.app.lead import Lead
    from leadhand.cli.commands.resume import job_of
    from leadhand.notify.notifier import Notifier

    settings = settings_of(options["store"], options["workers"], executes=console)
    with reading(settings) as reader:
        ident = reader.resolve(run)
        state = reader.state(ident)
        service = hosting_service(settings)
        driver = 0 if service is not None else driver_of(settings, reader, state)

    async def rows(noticed: str) -> list[InboxRow]:
        return await asyncio.to_thread(_open_items, settings, noticed)

    async def done() -> Any:
        notifier = Notifier(settings, partial(console.say), rows=rows)
        if driver or service is not None or state.ended is not None:
            lead = Lead([], store=settings.store, actor=actor_of(settings), service=service)
        else:
            found = load_resumable(settings, state, options["workers"])
            lead = job_of(found, actor_of(settings), approve=False).lead(notifier)
        try:
            return await work(lead, ident)
        finally:
            await notifier.finish()

    return ident, asyncio.run(done())


def _open_items(settings: Settings, run: str) -> list[InboxRow]:
    with reading(settings) as reader:
        state = reader.state(run)
    return [inbox_row(state, each) for each in state.questions]


def _print_step(console: Console, run: str, handed: HandedStep, caller: str) -> None:
    console.say(f"step {clean(handed.id)}, attempt {handed.attempt}, until {handed.deadline}")
    for label, text in (("Action", handed.action), ("Task", handed.description)):
        if text:
            console.say(f"{label}: {clean_lines(text)}")
    for label, value in (("Parameters", handed.parameters), ("Results", handed.results)):
        if value:
            console.say(f"{label}: {clean(msgspec.json.encode(value).decode(), 4 * AT_MOST)}")
    for criterion in handed.success_criteria:
        console.say(f"Checked: {clean(criterion, AT_MOST)}")
    for failure in handed.failures:
        console.say(f"Failed before: {clean(failure['message'], AT_MOST)}")
    words = f"step report {run} {shlex.quote(handed.id)} --attempt {handed.attempt}"
    console.say(
        f"Report with: {console.command(f'{words} --caller {shlex.quote(caller)} --data …')}"
    )


def _print_none(console: Console, told: NextStep) -> None:
    console.say(f"no step now: run {told.run} is {told.status}")
    _print_state(console, told.run, told.status, told.awaiting, told.reason)


def _print_state(console: Console, run: str, status: str, awaiting: str, reason: str) -> None:
    if reason:
        console.say(clean(reason, AT_MOST))
    if awaiting in ("approval", "input"):
        way = f"review {run}" if awaiting == "approval" else "inbox"
        console.say(f"It waits for a person: {console.command(way)}")
    elif status in ENDED:
        console.say(f"the run ended: {status}")
