"""`leadhand run` and `leadhand apply`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from leadhand.app.composition import (
    known_catalog,
    planner_name,
    planner_of,
    planner_problem,
    registry_of,
    reviewers_of,
    same_planner,
    telemetry_of,
)
from leadhand.app.contexts import goal_registry, in_context
from leadhand.app.hosting_service import hosting_service
from leadhand.app.run_filters import run_labels
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import (
    actor_of,
    context_option,
    json_pairs,
    pairs,
    say_not_loaded,
    set_option,
    settings_of,
    several,
    store_option,
    values_of,
    workers_option,
)
from leadhand.cli.plan_source import find_plan, in_library, is_plan, library_plans, with_lines
from leadhand.cli.rendering.text import clean
from leadhand.core.catalog import Catalog, WorkerSpec
from leadhand.core.events import RunStarted
from leadhand.core.plan.model import MODES
from leadhand.core.wording import closest, listed
from leadhand.errors import Conflict, PlanInvalid, UsageError
from leadhand.stores.location import spelled, there

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings
    from leadhand.workers.registry import Registry


# Whether a plan still fits the workers it was made for, and the changes if not.


RUNS_LOOKED_AT = 20


def refuse_stale(doc: Doc, catalog: Catalog, settings: Settings) -> None:
    """Raise `Conflict` if the plan's `base` is not the digest of these workers."""
    base = doc.get("base")
    if not base or base == catalog.digest():
        return
    known = _known(base, settings)
    if known is None:
        now = ", ".join(f"{s.name} {s.version[:12]}" for s in catalog.workers.values()) or "none"
        changed = f"No run here was made with those workers, so only today's are known: {now}."
    else:
        changed = "; ".join(differences(known, catalog)) + "."
    raise Conflict(
        f"the plan is stale: its workers have changed since it was made. {changed} "
        f"Fix: look at it again, then set base to {catalog.digest()} or leave it out."
    )


def differences(old: Catalog, new: Catalog) -> list[str]:
    """Return the changes from one set of workers to another, in words."""
    found = [f"{name} is gone" for name in sorted(old.workers.keys() - new.workers.keys())]
    found += [f"{name} is new" for name in sorted(new.workers.keys() - old.workers.keys())]
    for name in sorted(old.workers.keys() & new.workers.keys()):
        found += _changed(old.workers[name], new.workers[name])
    return found


def _changed(old: WorkerSpec, new: WorkerSpec) -> list[str]:
    if old == new:
        return []
    if old.version != new.version:
        return [f"{old.name} changed from version {old.version[:12]} to {new.version[:12]}"]
    return [f"{old.name} declares something else under the same version"]


def _known(base: str, settings: Settings) -> Catalog | None:
    """Return the workers of a digest, if one of the latest runs was started with them."""
    if not there(settings.store):
        return None
    from leadhand.app.reader import Reader
    from leadhand.ports import RunQuery

    reader = Reader(settings.store)
    for header in reader.find_runs(RunQuery(limit=RUNS_LOOKED_AT)).headers:
        entries = reader.events(header.run)[:1]
        event = entries[0][1] if entries else None
        if isinstance(event, RunStarted):
            catalog = Catalog(event.catalog)
            if catalog.digest() == base:
                return catalog
    return None


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `run` and `apply`."""
    options = [
        workers_option,
        set_option,
        context_option,
        click.option(
            "--label",
            "labels",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="A label to find the run by; repeat the option for several.",
        ),
        click.option("--review", is_flag=True, help="Wait for approval, whatever the risk."),
        click.option(
            "--yes", is_flag=True, help="Approve every review of the run in your own name."
        ),
        click.option("--dry-run", is_flag=True, help="Show what would run, and execute nothing."),
        click.option(
            "--detach", is_flag=True, help="Run in the background, and print the id of the run."
        ),
        click.option(
            "--budget",
            type=float,
            metavar="N",
            help="The most that the run may cost; it stops there.",
        ),
        click.option("--concurrency", type=int, metavar="N", help="Run at most N steps at once."),
        click.option(
            "--why", is_flag=True, help="Print every decision with its reason, also on a terminal."
        ),
        click.option(
            "--no-input",
            is_flag=True,
            help="End the run instead of asking a person about a failure or a plan.",
        ),
        click.option("--quiet", "-q", is_flag=True, help="Print only the outcome, no progress."),
        store_option,
    ]
    for option in reversed(options):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """The result of all checks before a start."""

    settings: Settings
    registry: Registry
    sources: tuple[str, ...]
    actor: str
    doc: Doc | None = None
    values: Doc | None = None
    goal: Any = None
    planner: str = ""
    origin: Doc | None = None
    """The origin of the plan, recorded with the run."""
    approvals: tuple[Doc, ...] = ()
    """Approvals of the plan, given before."""
    linted: bool = False
    """Whether the plan was linted in this process, with these workers."""
    labels: tuple[str, ...] = ()
    """The labels of the run."""
    run_id: str = ""
    """The id of the run; empty: a new one."""


@command("run", "leadhand run plan.yaml --set version=v2.1.4")
@click.argument("what", metavar="PLAN|GOAL")
@_common
@click.option(
    "--planner",
    metavar="M:F",
    help="For a goal: the planner, as module:function, or goal (built in). For a plan: the "
    "planner that the plan names.",
)
@click.option(
    "--have",
    multiple=True,
    metavar="K=V",
    help="For a goal: a fact that is true already, with its value.",
)
@click.option(
    "--want",
    multiple=True,
    metavar="FACT",
    help="For a goal: a fact that should be true at the end; repeat the option or use commas.",
)
@click.option("--mode", type=click.Choice(MODES), help="For a goal: how far ahead to plan.")
def run(console: Console, what: str, **options: Any) -> int:
    """Run a plan, or plan and run a goal.

    PLAN is a JSON or YAML file, - for standard input, or the name of a plan in the library
    (NAME or NAME@VERSION). Any other text is a goal: name the facts that should be true at the
    end with --want, or give your own planner with --planner. A plan is checked first, and all
    of its errors are reported at once. The result is printed on standard output, and progress
    on standard error. On a terminal, a plan that needs an approval is shown, and the command
    asks `Approve?`; Enter leaves the run waiting (exit code 5). Ctrl-C lets running steps
    finish and prints the command that continues the run; a second Ctrl-C ends it at once.
    """
    for_goal = any(options[name] for name in ("have", "want", "mode"))
    if is_plan(what) or (not for_goal and in_library(_settings(console, options), what)):
        for name in ("have", "want", "mode"):
            if options[name]:
                raise UsageError(f"--{name} goes with a goal, and {what} is a plan")
        return _execute(console, prepare_plan(console, what, options), options)
    return _execute(console, _prepare_goal(console, what, options), options)


@command("apply", "leadhand apply plan.yaml")
@click.argument("plan")
@click.option(
    "--approval",
    "approvals",
    multiple=True,
    metavar="FILE",
    help="Run only if this approval is for exactly this plan; an approval is used once. "
    "Repeat the option for several approvals.",
)
@click.option(
    "--planner", metavar="M:F", help="The planner that the plan names, as module:function."
)
@_common
def apply(console: Console, plan: str, **options: Any) -> int:
    """Run an approved plan; fail if anything changed.

    A plan with a `base` was made for certain versions of its workers. If a worker has changed
    since, nothing is run, the exit code is 7, and the message says what changed. The same
    applies to an approval written by `leadhand review PLAN approve`: a changed plan, an expired
    approval or one that was used before is refused.
    """
    from leadhand.cli.commands.review import read_approval

    prepared = prepare_plan(console, plan, options)
    assert prepared.doc is not None
    refuse_stale(prepared.doc, prepared.registry.catalog(), prepared.settings)
    given = tuple(read_approval(path) for path in options["approvals"])
    return _execute(console, replace(prepared, approvals=given), options)


def _settings(
    console: Console, options: dict[str, Any], *, executes: bool | None = None
) -> Settings:
    """Return the settings of a run, loaded once; `executes`: whether it needs the folder's code.

    None: unless `--dry-run` was given.
    """
    needs_code = not options.get("dry_run") if executes is None else executes
    loaded: dict[bool, Settings] = options.setdefault("settings", {})
    if needs_code in loaded:
        return loaded[needs_code]
    policy = {"budget": options["budget"], "concurrency": options["concurrency"]}
    if options["review"]:
        policy["review"] = True
    if options["no_input"]:
        policy["no_input"] = True
    loaded[needs_code] = settings_of(
        options["store"],
        options["workers"],
        options.get("planner"),
        context=options["context"],
        executes=console if needs_code else None,
        **policy,
    )
    return loaded[needs_code]


def prepare_plan(
    console: Console, plan: str, options: dict[str, Any], *, running: bool = True
) -> CheckedPlan:
    """Read and check a plan. Raise `PlanInvalid` with all its errors.

    `running`: whether it is about to run, so that its planner must be available too. Without the
    workers of an untrusted folder only the plan itself is checked.
    """
    from leadhand.core.lint.plan import lint
    from leadhand.workers.requirements import missing_programs

    executes = None if running else options.get("approves", False)
    settings = _settings(console, options, executes=executes)
    doc, origin = find_plan(console, settings, plan)
    _refuse_other_planner(doc, options.get("planner"))
    registry = registry_of(settings)
    doc, place = in_context(settings, doc, known_catalog(settings, registry))
    if doc.get("planner"):  # its planner chooses among the workers of this context
        registry = goal_registry(settings)
    values, wrong = values_of(doc, pairs(options["sets"], "--set"), settings.context)
    checked = None if wrong else values
    pools = settings.policy.resources
    told = lint(
        doc,
        None if settings.not_loaded else registry.catalog(),
        params=checked,
        resources=pools,
        library=library_plans(settings),
        planners=partial(planner_problem, settings=settings, running=running),
        advice=False,
    )
    found = [*wrong, *told]
    errors = [each for each in found if each.level == "error"]
    if not errors and hosting_service(settings) is None:
        found += missing_programs(doc, registry)
        errors = [each for each in found if each.level == "error"]
    if errors:
        raise PlanInvalid(with_lines(plan, errors))
    for each in with_lines(plan, found):
        console.say(clean(each))
    planner = str(doc.get("planner") or "")
    if planner and running and not settings.not_loaded:
        planner_of(planner, settings)
    return CheckedPlan(
        settings,
        registry,
        settings.workers,
        actor_of(settings),
        doc,
        values,
        planner=planner,
        origin=origin | place,
        linted=True,
    )


def _refuse_other_planner(doc: Doc, given: str | None) -> None:
    """Raise `UsageError` if `--planner` is not the planner that a plan names."""
    named = doc.get("planner")
    if not given or (isinstance(named, str) and same_planner(given, named)):
        return
    if named is None:
        raise UsageError(
            "a plan is revised only by the planner that it names, and this one names none. "
            f"Fix: write planner: {given} into the plan, so that it is reviewed with it, or leave "
            "--planner out."
        )
    raise UsageError(
        f"the plan names the planner {clean(named, 100)}, and --planner says {clean(given, 100)}. "
        "Fix: leave --planner out, or change the plan."
    )


def _meant(settings: Settings, text: str) -> str:
    """Suggest a plan of the library for a word that was taken for a goal."""
    close = closest(text, library_plans(settings))
    return f'did you mean "{close}"? Else: ' if close else ""


def wanted_facts(registry: Registry, command: str) -> str:
    """Explain how a goal names wanted facts: what they are, which there are, and an example."""
    offers = (o for spec in registry.catalog().workers.values() for o in spec.offers.values())
    given = list(dict.fromkeys(fact for offer in offers for fact in offer.gives))
    what = (
        "name the facts that should be true at the end with --want. A fact is the name of "
        'something that a worker makes true; the worker declares it with gives="NAME".'
    )
    if not given:
        return f"{what} No worker here declares a fact."
    return f"{what} Workers here give: {listed(given, 8)}. Example: {command} --want {given[0]}."


def _prepare_goal(console: Console, text: str, options: dict[str, Any]) -> CheckedPlan:
    from leadhand.core.plan.model import Goal
    from leadhand.planners.direct import agents_of

    settings = _settings(console, options, executes=True)  # a planner of the folder is called
    if options["sets"]:
        raise UsageError(
            f"{clean(text, 60)!r} is neither a file nor a plan of the library, so it is taken for "
            f"a goal, and --set goes with a plan. Fix: {_meant(settings, text)}"
            "what a goal has is said with --have K=V."
        )
    registry = goal_registry(settings)
    name = planner_name(settings) or ("goal" if options["want"] else "")
    if not name and options["mode"] != "direct" and len(agents_of(registry.catalog())) != 1:
        raise UsageError(
            f"{clean(text, 60)!r} is neither a file nor a plan of the library, so it is taken "
            f"for a goal. Fix: {_meant(settings, text)}"
            f"{wanted_facts(registry, f'leadhand run {shlex.quote(clean(text, 60))}')} "
            "Or give --planner MODULE:FUNCTION, or the path of a plan."
        )
    context = settings.context
    have = {**(context.params if context else {}), **json_pairs(options["have"], "--have")}
    goal = Goal(
        text=text,
        want=several(options["want"]),
        have=have,
        budget=options["budget"],
        mode=options["mode"],
    )
    if name:
        planner_of(name, settings)
    return CheckedPlan(
        settings,
        registry,
        settings.workers,
        actor_of(settings),
        goal=goal,
        planner=name,
        origin={"context": context.name} if context else None,
    )


def _execute(console: Console, prepared: CheckedPlan, options: dict[str, Any]) -> int:
    prepared = replace(prepared, labels=run_labels(options["labels"]))
    if options["dry_run"]:
        return _dry_run(console, prepared)
    if not options["quiet"]:
        say_limits(console, prepared)
    service = hosting_service(prepared.settings)
    if options["detach"] and service is not None:
        raise UsageError(
            f"a run that {service.name} hosts is in no process of ours: leave out --detach"
        )
    request = request_of(prepared, options["yes"])
    if options["detach"]:
        from leadhand.cli.background import start_background

        return start_background(console, prepared.settings, request)
    from leadhand.cli.foreground import host

    job = job_of(prepared, approve=options["yes"])
    job = replace(job, quiet=options["quiet"], why=options["why"], request=request)
    return host(console, job)


def say_limits(console: Console, prepared: CheckedPlan) -> None:
    """Print before the start how much a run that calls models may spend."""
    from leadhand.app.lead import Lead
    from leadhand.app.run_limits import limits_text

    if prepared.goal is None and not prepared.planner:
        return
    settings, book = prepared.settings, prepared.settings.book
    planner = planner_of(prepared.planner, settings) if prepared.planner else None
    if getattr(planner, "calls", None) is None and not prepared.registry.agents:
        return
    known = {prepared.planner: planner} if planner is not None else None
    policy = settings.policy
    lead = Lead(prepared.registry, planner, policy=policy, models=book, planners=known)
    console.say(limits_text(lead.policy_for(prepared.goal or prepared.doc or {})))


def job_of(prepared: CheckedPlan, *, approve: bool = False) -> Any:
    """Return a prepared run as a job for the host."""
    from leadhand.app.lead import Lead
    from leadhand.cli.foreground import HostedJob

    settings = prepared.settings

    def lead(on_notice: Callable[[str, str, str], None]) -> Lead:
        planner = planner_of(prepared.planner, settings) if prepared.planner else None
        telemetry_of(settings)
        return Lead(
            prepared.registry,
            planner,
            settings.store,
            policy=settings.policy,
            actor=prepared.actor,
            on_notice=on_notice,
            anchoring=settings.anchoring,
            reviewers=reviewers_of(settings),
            key=settings.approver_key if approve else None,
            models=settings.book,
            service=hosting_service(settings),
            environment=settings.environment,
            planners={prepared.planner: planner} if planner is not None else None,
        )

    async def begin(made: Lead, opened: Any) -> Any:
        what = prepared.goal if prepared.doc is None else prepared.doc
        linted = prepared.linted and prepared.doc is not None
        return await made.begin(
            opened,
            what,
            params=prepared.values,
            run_id=prepared.run_id,
            sources=prepared.sources,
            origin=prepared.origin,
            approvals=prepared.approvals,
            labels=prepared.labels,
            checked=made.linted(what, prepared.values or {}) if linted else None,
        )

    return HostedJob(
        settings=settings,
        lead=lead,
        begin=begin,
        approve_as=prepared.actor if approve else "",
        actor=prepared.actor,
    )


def request_of(prepared: CheckedPlan, approve: bool) -> Doc:  # noqa: FBT001 - a field of the request
    """Return a prepared run as a document for the background host."""
    import msgspec

    settings = prepared.settings
    return {
        "doc": prepared.doc,
        "values": prepared.values,
        "goal": None if prepared.goal is None else prepared.goal.to_doc(),
        "planner": prepared.planner,
        "workers": list(prepared.sources),
        "store": spelled(settings.store),
        "policy": msgspec.to_builtins(settings.policy),
        "actor": prepared.actor,
        "approve": approve,
        "origin": prepared.origin,
        "approvals": list(prepared.approvals),
        "labels": list(prepared.labels),
        "run": prepared.run_id,
        "context": settings.context.name if settings.context else None,
    }


def _dry_run(console: Console, prepared: CheckedPlan) -> int:
    from leadhand.cli.commands.show import show_checked

    catalog, policy = known_catalog(prepared.settings, prepared.registry), prepared.settings.policy
    doc = prepared.doc
    say_not_loaded(console, prepared.settings)
    if doc is None:
        import asyncio

        from leadhand.app.lead import Lead

        name, book = prepared.planner, prepared.settings.book
        planner = planner_of(name, prepared.settings) if name else None
        lead = Lead(prepared.registry, planner, policy=policy, actor=prepared.actor, models=book)
        doc = asyncio.run(lead.plan(prepared.goal)).to_doc()
        console.say("The planner's first steps; it would be asked again after them.")
    return show_checked(console, doc, catalog, policy, prepared.values)
