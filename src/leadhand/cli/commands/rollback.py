"""`leadhand rollback`: undo a run, in a run of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.documents import rollback_status
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import actor_of, reading, settings_of, store_option, workers_option
from leadhand.cli.rendering.outcome import outcome_document, print_outcome
from leadhand.core.rollback import SUFFIX, can_roll_back, nothing_to_undo, rollback_id
from leadhand.core.views.run import ENDED, exit_code, run_status
from leadhand.errors import Conflict
from leadhand.stores.location import spelled

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.state.model import State
    from leadhand.settings import Settings


@command("rollback", "leadhand rollback 7kq3")
@click.argument("run")
@workers_option
@click.option("--yes", is_flag=True, help="Approve every review of the run in your own name.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the outcome, no progress.")
@store_option
def rollback(console: Console, run: str, **options: Any) -> int:
    """Roll back a run that has ended.

    The rollback plan of the run is used, or the undo actions of its steps. The rollback is the
    run RUN-rollback, which is reviewed and logged like any other. If the rollback exists
    already, the command continues it: a step that was undone is not undone again. If there is
    nothing to roll back, the command says so and exits with the code of the run.
    """
    from leadhand.cli.foreground import host

    settings = settings_of(options["store"], options["workers"], executes=console)
    actor = actor_of(settings)
    with reading(settings) as reader:
        ident = reader.resolve(run)
        state = reader.state(ident)
        over = rollback_status(reader, state) in ENDED
        done = reader.state(rollback_id(ident)) if over else None
    if run_status(state) not in ENDED:
        cancel, resume = (console.command(f"{word} {ident}") for word in ("cancel", "resume"))
        status = "being cancelled" if state.cancel_deadline else run_status(state)
        way = resume if state.cancel_deadline or state.stopping else f"{cancel}, then {resume}"
        raise Conflict(f"run {ident} is {status}. Fix: end it first: {way}")
    if done is not None:
        return _done(console, ident, done)
    if not can_roll_back(state) and not ident.endswith(SUFFIX):
        return _nothing(console, state)
    job = job_of(settings, state, options["workers"], actor, options["yes"])
    return host(console, replace(job, quiet=options["quiet"]))


def job_of(
    settings: Settings,
    state: State,
    workers: tuple[str, ...],
    actor: str,
    approve: bool,  # noqa: FBT001 - a field of the request
) -> Any:
    """Return the rollback of a run as a job for the host."""
    from leadhand.app.resumable_run import load_resumable
    from leadhand.app.rollback import roll_back
    from leadhand.cli.commands import resume

    found = load_resumable(settings, state, workers)
    sources = state.started.workers if state.started else ()

    async def begin(made: Lead, opened: Any) -> Any:
        return await roll_back(made, opened, state.run, sources)

    request = {
        "rollback": state.run,
        "workers": list(workers),
        "store": spelled(settings.store),
        "actor": actor,
        "approve": approve,
    }
    job = resume.job_of(found, actor, approve=approve)
    return replace(job, begin=begin, after=0, resumes="", request=request)


def _nothing(console: Console, state: State) -> int:
    """Say that there is nothing to undo; return the exit code of the run."""
    why = nothing_to_undo(state)
    if console.json:
        doc = outcome_document(console, state, None)
        doc.rollback, doc.rollback_reason = None, why
        console.document(doc)
    else:
        console.say(f"run {state.run} has nothing to roll back: {why}")
    return exit_code(state)


def _done(console: Console, run: str, back: State) -> int:
    """Say that it was already rolled back, or that this failed; return that run's exit code."""
    if console.json:
        console.document(outcome_document(console, back, None))
        return exit_code(back)
    console.say(f"run {run} was rolled back already, in run {back.run}:")
    print_outcome(console, back)
    return exit_code(back)
