"""`leadhand pause`, `cancel` and `stop-all`: commands to a run, or to all of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.hosting_service import HostingService, hosting_service
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import actor_of, driver_of, reading, settings_of, store_option
from leadhand.cli.rendering.text import count
from leadhand.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from leadhand.app.reader import LogAccess
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings


WITHDRAWN = "withdrawn"
"""The status of a run that was cancelled before an engine started it."""


@command("pause", "leadhand pause 7kq3")
@click.argument("run")
@click.option("--reason", default="", help="The reason; it is recorded in the log.")
@store_option
def pause(console: Console, run: str, reason: str, store: str | None) -> int:
    """Pause a run: running steps finish, and no new ones start.

    `leadhand resume` continues the run.
    """
    settings = settings_of(store)
    ident, answer = send_command(settings, run, "pause", reason=reason)
    _print(console, ident, answer, f"run {ident} is paused")
    console.next(console.command(f"resume {ident}"))
    return 0


@command("cancel", "leadhand cancel 7kq3 --reason 'wrong version'")
@click.argument("run")
@click.option("--reason", default="", help="The reason; it is recorded in the log.")
@store_option
def cancel(console: Console, run: str, reason: str, store: str | None) -> int:
    """Cancel a run: no step starts, and running steps are ended.

    If no process runs it, the request is recorded, and `leadhand resume` carries it out.
    """
    settings = settings_of(store)
    ident, answer = send_command(settings, run, "cancel", reason=reason)
    waited = answer.get("status") == WITHDRAWN
    text = "is withdrawn: no engine had begun it" if waited else "is being cancelled"
    _print(console, ident, answer, f"run {ident} {text}")
    if not answer.get("hosted"):
        way = console.way_on(ident)
        console.say(f"No process is running it. Carry it out with: {way}")
    return 0


@command("stop-all", "leadhand stop-all --reason 'incident 42'\nleadhand stop-all --lift")
@click.option("--lift", is_flag=True, help="Lift the stop, so that runs start steps again.")
@click.option("--reason", default="", help="The reason; it is recorded in the log.")
@store_option
def stop_all(console: Console, lift: bool, reason: str, store: str | None) -> int:  # noqa: FBT001 - click passes it
    """Emergency stop for all runs.

    No run of the database starts another step, also after restarts, until `leadhand stop-all
    --lift`.
    """
    from leadhand.app import commands

    settings = settings_of(store)
    with reading(settings):  # without a database there is nothing to stop
        pass
    verb = "lift" if lift else "stop_all"
    details: dict[str, Any] = {} if lift else {"reason": reason}
    place, actor = settings.store, actor_of(settings)
    service = hosting_service(settings)
    if service is not None:
        said = service.send_command(place, "", verb, actor, details)
    else:
        said = commands.send_command(
            place, "", verb, actor=actor, anchoring=settings.anchoring, **details
        )
    answer = asyncio.run(said)
    unreached = answer.get("unreached") or []
    if console.json:
        console.document(answer)
    elif unreached:
        console.say("it was said to all runs, and not all of them have confirmed it")
    elif lift:
        console.say("lifted: runs may start steps again")
    else:
        console.say("stopped: no step starts in any run on this database")
        console.next(console.command("stop-all --lift"))
    if unreached:
        many = ", ".join(unreached[:10]) + (", …" if len(unreached) > 10 else "")
        again = console.command("stop-all --lift" if lift else "stop-all")
        console.say(
            f"not confirmed by {count(len(unreached), 'run')}, which may not have heard it: {many}"
        )
        console.say(f"  Say it again: {again}; what keeps them: leadhand show RUN, leadhand doctor")
        return Unreachable.exit_code
    return 0


def send_command(
    settings: Settings, run: str, verb: str, *, access: LogAccess | None = None, **details: Any
) -> tuple[str, Doc]:
    """Send a command to a run named by a prefix; durable on return.

    `access`: the database, if the caller reads it too.
    """
    from leadhand.app import commands
    from leadhand.app.reader import LogAccess

    if access is None:
        with LogAccess(settings.store) as own:
            return send_command(settings, run, verb, access=own, **details)

    service = hosting_service(settings)
    if service is not None:
        return _say_elsewhere(service, settings, run, verb, details)
    ident = access.reader.resolve(run)
    state = access.reader.state(ident)
    driver = driver_of(settings, access.reader, state)
    place, actor = settings.store, actor_of(settings)
    if verb == "amend":  # an amendment may name workers that are new since the run started
        from leadhand.app.resumable_run import workers_of

        details["workers"] = partial(workers_of, settings, state)
    said = commands.send_command(
        place, ident, verb, actor=actor, anchoring=settings.anchoring, access=access, **details
    )
    answer = asyncio.run(said)
    return ident, {**answer, "hosted": bool(driver)}


def _say_elsewhere(
    service: HostingService, settings: Settings, run: str, verb: str, details: Doc
) -> tuple[str, Doc]:
    """Send a command to a run that a service hosts."""
    place, actor = settings.store, actor_of(settings)
    try:
        with reading(settings) as reader:
            ident = reader.resolve(run)
    except UsageError:
        # The log does not know a run that waits for an engine, and nothing can receive the command.
        reason = str(details.get("reason", ""))
        waits = verb == "cancel" and service.withdraw(place, run, actor, reason)
        if not waits or not asyncio.run(waits):
            raise
        return run, {"status": WITHDRAWN, "hosted": True}
    said = service.send_command(place, ident, verb, actor, details)
    return ident, {**asyncio.run(said), "hosted": True}


def _print(console: Console, ident: str, answer: Doc, text: str) -> None:
    if console.json:
        console.document({"run": ident, **answer})
    else:
        console.say(text)
