"""`leadhand resume`: host a run again, where its log ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.composition import reviewers_of, telemetry_of
from leadhand.app.documents import rollback_status
from leadhand.app.hosting_service import hosting_service, service_in_log, without_service
from leadhand.app.resumable_run import ResumableRun, load_resumable
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    actor_of,
    driver_of,
    reading,
    settings_of,
    store_option,
    workers_option,
)
from leadhand.cli.rendering.outcome import outcome_document, print_outcome
from leadhand.core.commands import Command
from leadhand.core.rollback import to_roll_back
from leadhand.core.views.run import ENDED, run_status
from leadhand.errors import UsageError
from leadhand.settings.product_logs import log_of_run
from leadhand.stores.location import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.app.reader import Reader
    from leadhand.core.state.model import State
    from leadhand.settings import Settings


@command("resume", "leadhand resume 7kq3")
@click.argument("run")
@workers_option
@click.option("--planner", metavar="M:F", help="The planner of the run, as module:function.")
@click.option("--yes", is_flag=True, help="Approve every review of the run in your own name.")
@click.option("--detach", is_flag=True, help="Continue the run in the background.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the outcome, no progress.")
@click.option("--here", is_flag=True, help="Move all runs from Temporal to this machine.")
@click.option(
    "--from-log",
    is_flag=True,
    help="On Temporal: abandon the run's workflow and start a new one from the log.",
)
@click.option(
    "--reason", default="", help="The reason for --here or --from-log; it is recorded in the log."
)
@store_option
def resume(console: Console, run: str, **options: Any) -> int:
    """Resume a run, or continue one that is paused.

    The run continues from the end of its log. Finished steps are not run again. A step that was
    running when its process died is repeated only if it is idempotent; otherwise its worker
    checks whether the step took effect, or you are asked. Workers are loaded from where the run
    loaded them before, and from leadhand.toml. On a terminal, a plan that needs an approval is
    shown, and the command asks `Approve?`.
    """
    settings = settings_of(
        options["store"], options["workers"], options["planner"], executes=console
    )
    actor = actor_of(settings)
    with reading(settings) as reader:
        ident = reader.resolve(run)
    if options["here"]:
        settings = _taken_back(console, settings, actor, options["reason"])
    with reading(settings) as reader:
        state = reader.state(ident)
        if run_status(state) in ENDED and not _to_take_back(reader, state):
            return _ended(console, reader, state)
        driver = 0 if hosting_service(settings) else driver_of(settings, reader, state)
    if driver:
        lifted = _lift(console, settings, state, actor, driver, told=options["detach"])
        if options["detach"]:
            return lifted
        from leadhand.cli.guest_run import follow

        asks_as = "" if options["yes"] else actor
        told = {"after": state.seq, "quiet": options["quiet"], "asks_as": asks_as}
        return follow(console, settings, ident, driver, **told)
    log = log_of_run(ident)
    if log is not None and settings.store == log.store(settings):
        raise UsageError(
            f"{ident}: `resume` takes no run of kind {log.kind}. Fix: {log.resumed_by}"
        )
    if options["from_log"]:
        _give_up_workflow(settings, ident, actor, options["reason"])
    found = load_resumable(settings, state, options["workers"], options["planner"] or "")
    request = {
        "resume": ident,
        "workers": list(options["workers"]),
        "planner": options["planner"] or "",
        "store": spelled(settings.store),
        "actor": actor,
        "approve": options["yes"],
    }
    if options["detach"]:
        from leadhand.cli.background import start_background

        return start_background(console, settings, request)
    from leadhand.cli.foreground import host

    job = job_of(found, actor, approve=options["yes"])
    again = [word for path in options["workers"] for word in ("--workers", path)]
    again += ["--planner", options["planner"]] if options["planner"] else []
    more = {"quiet": options["quiet"], "request": request, "resume_options": tuple(again)}
    return host(console, replace(job, **more))


def _taken_back(console: Console, settings: Settings, actor: str, reason: str) -> Settings:
    """Return the settings without a service elsewhere: from now on runs are hosted here."""
    configured = hosting_service(settings)
    with reading(settings) as reader:
        service = configured or service_in_log(reader.host_state())
    if service is None:
        return settings
    taken = asyncio.run(service.take_back(settings.store, actor, reason, console.say))
    if taken and configured is not None:
        place = settings.origin(configured.setting)
        table, _, key = configured.setting.partition(".")
        console.say(f"Take [{table}] {key} out of {place}: these runs are hosted here now")
    return without_service(settings)


def _give_up_workflow(settings: Settings, run: str, actor: str, reason: str) -> None:
    service = hosting_service(settings)
    if service is None:
        raise UsageError(
            "--from-log is for runs that Temporal hosts. Fix: leave it out; a run that is hosted "
            "here always goes on from its log"
        )
    asyncio.run(service.give_up(settings.store, run, actor, reason))


def job_of(found: ResumableRun, actor: str, *, approve: bool) -> Any:
    """Return a loaded run as a job for the host."""
    from leadhand.app.lead import Lead
    from leadhand.cli.foreground import HostedJob

    settings = found.settings

    def lead(on_notice: Callable[[str, str, str], None]) -> Lead:
        telemetry_of(settings)
        return Lead(
            found.registry,
            found.planner,
            settings.store,
            policy=settings.policy,
            actor=actor,
            on_notice=on_notice,
            anchoring=settings.anchoring,
            reviewers=reviewers_of(settings),
            key=settings.approver_key if approve else None,
            models=settings.book,
            service=hosting_service(settings),
            planners={found.named: found.planner} if found.named else None,
        )

    async def begin(made: Lead, opened: Any) -> Any:
        hosted = await made.resume_on(opened, found.run)
        if hosted.state.paused and hosted.state.ended is None:
            await hosted.submit_and_wait(Command("resume", actor))
        return hosted

    return HostedJob(
        settings=settings,
        lead=lead,
        begin=begin,
        approve_as=actor if approve else "",
        after=found.seq,
        resumes=found.run,
        actor=actor,
    )


def _lift(
    console: Console, settings: Settings, state: State, actor: str, driver: int, *, told: bool
) -> int:
    """Lift the pause of a run that another process drives: nothing else is needed.

    `told`: whether the document of `--json` is about that, since nothing is followed.
    """
    from leadhand.app.commands import send_command

    ident = state.run
    answer = asyncio.run(send_command(settings.store, ident, "resume", actor=actor))
    if console.json and told:
        console.document({"run": ident, "status": answer.get("status"), "host": driver})
    elif not console.json:
        said = "resumed, and goes on in" if state.paused else "hosted by"
        console.say(f"run {ident} is {said} process {driver} ({answer.get('status')})")
        console.next(console.command(f"watch {ident}"))
    return 0


def _to_take_back(reader: Reader, state: State) -> bool:
    """Return whether a run failed, asks for a rollback, and that has not ended yet."""
    return to_roll_back(state) and rollback_status(reader, state) not in ENDED


def _ended(console: Console, reader: Reader, state: State) -> int:
    """Say that there is nothing to resume; return the exit code."""
    from leadhand.core.views.run import exit_code
    from leadhand.engine.results import result_of

    console.say(f"run {state.run} has ended; there is nothing to go on with")
    print_outcome(console, state)
    if console.json:
        result = result_of(reader.store, state)
        console.document(outcome_document(console, state, result))
    return exit_code(state)
