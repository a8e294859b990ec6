"""`leadhand rerun`: run the plan or the goal of a run again, as a new run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.contexts import goal_registry
from leadhand.app.resumable_run import workers_of
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import actor_of, reading, settings_of, store_option, workers_option
from leadhand.core.plan.model import Goal
from leadhand.stores.location import spelled

if TYPE_CHECKING:
    from leadhand.app.lead import Lead
    from leadhand.core.plan.model import Doc
    from leadhand.core.rerun import Rerun
    from leadhand.core.state.model import State
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry


@command("rerun", "leadhand rerun 7kq3 --from deploy")
@click.argument("run")
@click.option(
    "--from",
    "from_step",
    metavar="STEP",
    default="",
    help="Run only this step and the steps that wait for it; take over the results of the others.",
)
@workers_option
@click.option("--planner", metavar="M:F", help="The planner of the run, as module:function.")
@click.option("--yes", is_flag=True, help="Approve every review of the new run in your own name.")
@click.option("--detach", is_flag=True, help="Start the new run in the background.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the outcome, no progress.")
@store_option
def rerun(console: Console, run: str, from_step: str, **options: Any) -> int:
    """Run a run again, as a new run.

    The new run has the plan that was last accepted and the same parameters; a run of a goal is
    planned again. It needs its approvals again: none is taken over. With --from, verified results
    of the other steps become parameters of the new plan, and its log names the run, the attempt
    and the digest of each. The command exits with the code of the new run.
    """
    from leadhand.app.rerun import prepare_rerun

    with reading(settings_of(options["store"])) as reader:
        ident = reader.resolve(run)
        state, found = prepare_rerun(reader.store, ident, from_step)
    context = found.origin.get("context")
    settings = settings_of(
        options["store"], options["workers"], options["planner"], context=context, executes=console
    )
    actor = actor_of(settings)
    request = {
        "rerun": ident,
        "from": from_step,
        "context": context,
        "planner": options["planner"] or "",
        "workers": list(options["workers"]),
        "store": spelled(settings.store),
        "actor": actor,
        "approve": options["yes"],
    }
    if options["detach"]:
        from leadhand.cli.background import start_background

        return start_background(console, settings, request)
    from leadhand.cli.foreground import host

    job = job_of(settings, state, found, request)
    if not options["quiet"]:
        start = f" from step {from_step}" if from_step else ""
        console.say(f"Running {ident} again{start}, as a new run")
    return host(console, replace(job, quiet=options["quiet"], request=request))


def job_of(settings: Settings, state: State, found: Rerun, request: Doc) -> Any:
    """Return a re-run as a job for the host."""
    from leadhand.app.composition import planner_of, registry_of, reviewers_of
    from leadhand.app.hosting_service import hosting_service
    from leadhand.app.lead import Lead
    from leadhand.app.rerun import start_rerun
    from leadhand.cli.foreground import HostedJob

    workers, actor = tuple(request["workers"]), request["actor"]
    registry: Registry = registry_of(settings, workers) if workers else workers_of(settings, state)
    named = request["planner"] or _planner_name(settings, state, found)
    if isinstance(found.what, Goal) and not workers and "context" in found.origin:
        registry = goal_registry(settings)
    planner = planner_of(named, settings) if named and named != "goal" else None

    def lead(on_notice: Any) -> Lead:
        return Lead(
            registry,
            planner,
            settings.store,
            policy=settings.policy,
            actor=actor,
            on_notice=on_notice,
            anchoring=settings.anchoring,
            reviewers=reviewers_of(settings),
            key=settings.approver_key if request["approve"] else None,
            models=settings.book,
            service=hosting_service(settings),
            planners={named: planner} if planner is not None else None,
            environment=settings.environment,
        )

    async def begin(made: Lead, opened: Any) -> Any:
        sources = workers or (state.started.workers if state.started else ())
        return await start_rerun(made, opened, found, sources=sources)

    return HostedJob(
        settings=settings,
        lead=lead,
        begin=begin,
        approve_as=actor if request["approve"] else "",
        actor=actor,
    )


def _planner_name(settings: Settings, state: State, found: Rerun) -> str:
    """Return the planner of a re-run: the plan's own, that of the goal's run, or the configured.

    A plan does not choose code to be loaded: that is left out here, and refused by the check.
    """
    from leadhand.app.composition import planner_problem

    if not isinstance(found.what, Goal):
        named = str(found.what.get("planner") or "")
        return named if named and planner_problem(named, settings) is None else ""
    started = state.started
    assert started is not None
    known = "goal" if started.planner == "goal" else ""
    return started.planner_source or known or settings.planner
