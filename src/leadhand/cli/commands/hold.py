"""`leadhand hold`, `release` and `redo`: hold a step, release it, retry it."""

from __future__ import annotations

import shlex

import click

from leadhand.cli.commands.control import send_command
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import actor_of, reading, settings_of, store_option
from leadhand.cli.rendering.outcome import still_held
from leadhand.cli.rendering.text import clean


@command("hold", "leadhand hold 7kq3 step-3 --reason 'not before the meeting'")
@click.argument("run")
@click.argument("steps", nargs=-1, required=True, metavar="STEP...")
@click.option("--reason", default="", help="The reason; it is recorded in the log.")
@store_option
def hold(console: Console, run: str, steps: tuple[str, ...], reason: str, store: str | None) -> int:
    """Hold steps that have not started, until you release them.

    All other steps continue. The hold is listed in `leadhand inbox`, and `leadhand release RUN
    STEP` ends it.
    """
    settings = settings_of(store)
    ident, answer = send_command(settings, run, "hold", steps=list(steps), reason=reason)
    question = f"{ident}/{answer['question']}"
    if console.json:
        console.document({"run": ident, **answer, "steps": list(steps), "question": question})
        return 0
    console.say(f"run {ident} stops before {clean(', '.join(steps))}")
    way = console.command(f"release {ident} {shlex.quote(steps[0])}")
    console.say(f"Release it with: {way}")
    return 0


@command("release", "leadhand release 7kq3 step-3 --reason 'the meeting is over'")
@click.argument("run")
@click.argument("steps", nargs=-1, required=True, metavar="STEP...")
@click.option("--reason", default="", help="The reason; it is recorded in the log.")
@store_option
def release(
    console: Console, run: str, steps: tuple[str, ...], reason: str, store: str | None
) -> int:
    """Release held steps.

    Steps that were held together are released together. A step that is held because an approval
    is missing needs the same number of different people as that approval: each of them runs
    this command. If the settings name approvers, only approvers can release it, and each signs
    with [review] key.
    """
    from leadhand.app.approvals import approver_key, moment
    from leadhand.engine.approvals import signed_releases

    settings, names = settings_of(store), list(steps)
    with reading(settings) as reader:
        state = reader.state(reader.resolve(run))
    key = approver_key(settings.approver_key)
    signed = signed_releases(state, names, actor_of(settings), moment(state), key)
    ident, answer = send_command(
        settings, run, "release", steps=names, reason=reason, signed=signed
    )
    if console.json:
        console.document({"run": ident, **answer})
        return 0
    if not answer["steps"]:
        with reading(settings) as reader:
            waits = still_held(reader.state(ident), names)
        console.say(f"released by {clean(actor_of(settings))}. It still waits: {clean(waits)}")
        return 0
    console.say(f"run {ident} may start {clean(', '.join(answer['steps']))}")
    _say_how(console, ident, hosted=answer["hosted"])
    return 0


@command("redo", "leadhand redo 7kq3 step-3 --reason 'the disk was full'")
@click.argument("run")
@click.argument("step")
@click.option(
    "--reason", required=True, help="Why the step should work now; it is recorded in the log."
)
@store_option
def redo(console: Console, run: str, step: str, reason: str, store: str | None) -> int:
    """Retry a failed step; a failed run is reopened.

    The step gets all of its attempts again. Finished steps stay finished, limits stay as they
    are, and the log records the person and the reason.
    """
    settings = settings_of(store)
    ident, answer = send_command(settings, run, "redo", step=step, reason=reason)
    if console.json:
        console.document({"run": ident, **answer, "step": step})
        return 0
    console.say(f"step {clean(step)} of run {ident} is tried again")
    with reading(settings) as reader:
        others = [each.id for each in reader.state(ident).steps.values() if each.status == "failed"]
    if others:
        console.say(f"Failed too, and not tried again: {clean(', '.join(others[:8]))}")
    _say_how(console, ident, hosted=answer["hosted"])
    return 0


def _say_how(console: Console, ident: str, *, hosted: bool) -> None:
    if not hosted:
        console.say(f"No process is running it. Continue with: {console.way_on(ident)}")
