"""`leadhand doctor`: what is installed and configured, and problems with their fixes."""

from __future__ import annotations

import asyncio
import functools
import os
import platform
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.app.composition import planner_of, planner_problem, registry_of
from leadhand.app.documents import setting_rows, settings_table
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import read_plan, settings_of, store_option, workers_option
from leadhand.cli.plan_source import with_lines
from leadhand.cli.rendering.requirements import taking_of, taking_rows
from leadhand.cli.rendering.text import clean, count
from leadhand.core.plan.parameters import declaration, is_secret
from leadhand.errors import LeadhandError, UsageError
from leadhand.settings import Settings
from leadhand.settings.sections import section_of
from leadhand.settings.trust import entries_of
from leadhand.workers.requirements import program_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leadhand.core.plan.model import Doc
    from leadhand.core.policy import Policy
    from leadhand.stores.location import StoreLocation
    from leadhand.workers.registry import Registry
    from leadhand.workers.requirements import Requirement


# `leadhand doctor PLAN`: whether the requirements of a plan are met. Nothing is called.


def fitness(doc: Doc, registry: Registry, policy: Policy) -> Iterator[DoctorCheck]:
    """Yield one check for each requirement of the plan."""
    yield from _plan_workers(doc, registry)
    taking = taking_of(doc, registry)
    for each in taking.needed:
        yield _CHECKS[each.kind](each)
    pools = {**policy.resources, **(doc.get("resources") or {})}
    for name, amount in taking.resources.items():
        there = pools.get(name)
        problem = ""
        if there is None:
            problem = "not declared in the plan or in the settings"
        elif there < amount:
            problem = f"a step needs {amount} at once; available: {there}"
        fix = f'Add it to "resources" of the plan, as in {{"{name}": {amount}}}.' if problem else ""
        yield DoctorCheck("resource", f"{name}: {'?' if there is None else there}", problem, fix)
    base = doc.get("base")
    if base and base != registry.catalog().digest():
        yield DoctorCheck(
            "base",
            "the workers have changed since the plan was made",
            "`leadhand apply` refuses the plan",
            "Plan again, or review the plan and remove `base`.",
            warning=True,
        )
    for name, value in taking_rows(taking):
        if name in ("time", "cost"):
            yield DoctorCheck(name, value)


def _plan_workers(doc: Doc, registry: Registry) -> Iterator[DoctorCheck]:
    """Check each worker once, with the actions that the plan uses."""
    wanted: dict[str, dict[str, bool]] = {}
    for step in doc["steps"]:
        action = step.get("action", "")
        wanted.setdefault(step["worker"], {})[action] = True
        for name in step.get("alternatives", ()):
            wanted.setdefault(name, {}).setdefault(action, False)
    for name, actions in wanted.items():
        worker = registry.get(name)
        if worker is None:
            fix = "Give --workers MODULE, or configure the worker in leadhand.toml."
            must = any(actions.values())
            yield DoctorCheck("worker", name, "not loaded", fix, warning=not must)
            continue
        missing = [action for action in actions if worker.spec.offer(action) is None]
        problem = f"does not offer {', '.join(map(repr, missing))}" if missing else ""
        offered = ", ".join(filter(None, worker.spec.offers))
        fix = f"Actions of this worker: {offered}." if problem else ""
        if not problem:
            offers = [worker.spec.offer(action) for action in actions]
            said = next((each.missing for each in offers if each and each.missing), "")
            problem, _, fix = said.partition(" Fix: ")
        kinds = f"{name} ({worker.spec.kind})"
        yield DoctorCheck("worker", kinds, problem, fix)


def _program(need: Requirement) -> DoctorCheck:
    found = program_path(need)
    problem = "" if found else f"program not found; worker {need.worker} needs it"
    fix = "" if found else "Install the program, or correct its path or permissions."
    return DoctorCheck("tool", found or need.name, problem, fix)


def _environment(need: Requirement) -> DoctorCheck:
    problem = "" if need.name in os.environ else f"not set; worker {need.worker} uses it"
    fix = f"export {need.name}=…" if problem else ""
    return DoctorCheck("secret", need.name, problem, fix, warning=not need.must)


def _host(need: Requirement) -> DoctorCheck:
    problem = ""
    try:
        socket.getaddrinfo(need.name, need.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        problem = f"host name does not resolve ({reason}); worker {need.worker} calls it"
    fix = "Correct the URL, or check the network." if problem else ""
    return DoctorCheck("host", f"{need.name}:{need.port}", problem, fix)


def _person(need: Requirement) -> DoctorCheck:
    return DoctorCheck("person", f"{need.name} is asked during the run: see `leadhand inbox`")


_CHECKS = {
    "program": _program,
    "environment": _environment,
    "host": _host,
    "person": _person,
}


SPACE_MIN_BYTES = 100_000_000
WAL_FIXED = (3, 51, 3)
"""Earlier versions can corrupt a file with two writing connections; Leadhand has one."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check."""

    what: str
    value: str
    problem: str = ""
    fix: str = ""
    warning: bool = False


@command("doctor", "leadhand doctor\nleadhand doctor plan.yaml")
@click.argument("plan", required=False)
@click.option(
    "--fix", is_flag=True, help="Fix what can be fixed: install the dashboard's files with npm."
)
@workers_option
@store_option
def doctor(
    console: Console,
    plan: str | None,
    fix: bool,  # noqa: FBT001 - an option
    workers: tuple[str, ...],
    store: str | None,
) -> int:
    """Check the installation, the settings and everything a plan needs.

    The command shows what is installed and configured, the source of each setting, and every
    problem with its fix. With a PLAN it also checks that the plan can run here: its workers
    load and offer the actions it uses, programs exist, environment variables are set, resources
    are declared, and host names resolve. Nothing is called and nothing is executed.
    """
    looks = [*_machine()] if plan is None else []
    settings: Settings | None = None
    try:
        settings = settings_of(store, workers)
    except LeadhandError as error:
        looks.append(_broken("settings", error))
    if settings is not None:
        about = (_store, _settings, _approvals, _trust)
        parts = (*about, _models, _mcp, _workers, _notify, functools.partial(_products, fix=fix))
        if plan is not None:
            parts = (functools.partial(_plan, plan),)  # type: ignore[assignment]
        for part in parts:
            looks += _safely(part, settings)
    return _told(console, looks, settings)


def _told(console: Console, looks: list[DoctorCheck], settings: Settings | None) -> int:
    bad = [look for look in looks if look.problem and not look.warning]
    if console.json:
        console.document(_document(looks, settings, healthy=not bad))
        return 1 if bad else 0
    for look in looks:
        mark = "ok" if not look.problem else "warn" if look.warning else "fail"
        console.out(f"{mark:<4}  {look.what:<14} {clean(look.value)}")
        if look.problem:
            console.out(f"      {clean(look.problem)}")
        if look.fix:
            console.out(f"      {clean(look.fix)}")
    return 1 if bad else 0


def _plan(plan: str, settings: Settings) -> Iterator[DoctorCheck]:
    """Check the requirements of a plan; errors of the plan itself come first."""
    from leadhand.core.lint.plan import lint

    doc = read_plan(plan)
    check = functools.partial(planner_problem, settings=settings)
    pools = settings.policy.resources
    found = lint(doc, None, resources=pools, planners=check, advice=False)
    # Resources are requirements: they are checked with the rest.
    errors = [each for each in found if each.level == "error"]
    wrong = [each for each in errors if not each.rule.startswith("resource")]
    for each in with_lines(plan, wrong):
        place = f"{each.file}:{each.line}: {each.place}" if each.file else each.place
        yield DoctorCheck("plan", place, each.message, each.fix)
    if not wrong:
        yield DoctorCheck("plan", f"{plan}: {count(len(doc['steps']), 'step')}")
        yield from _plan_secrets(doc)
        if settings.not_loaded:
            yield from _trust(settings)
            return
        yield from fitness(doc, registry_of(settings), settings.policy)
        yield from _safely(functools.partial(_planner, str(doc.get("planner") or "")), settings)


def _plan_secrets(doc: Doc) -> Iterator[DoctorCheck]:
    """Check that each parameter that is a secret has its value on this machine."""
    from leadhand.core.plan.parameters import bind_texts
    from leadhand.engine.secrets import check_secrets

    declared = doc.get("params") or {}
    values, _wrong = bind_texts(declared, {}, None)
    for name, entry in declared.items():
        if not is_secret(entry):
            continue
        if not values.get(name):
            if not declaration(entry).required:
                continue
            problem = "the plan does not say where its value is"
            fix = f"Give it to the run: --set {name}=env:VARIABLE."
            yield DoctorCheck("secret", f"parameter {name}", problem, fix, warning=True)
            continue
        problem = fix = ""
        try:
            check_secrets({"params": {name: entry}}, {name: values[name]})
        except UsageError as error:
            problem, _, fix = str(error).partition(" Fix: ")
        yield DoctorCheck("secret", f"parameter {name} ({values[name]})", problem, fix)


def _planner(name: str, settings: Settings) -> Iterator[DoctorCheck]:
    """Check that the planner of a plan can be loaded."""
    if name:
        planner_of(name, settings)
        yield DoctorCheck("planner", name)


def _document(looks: list[DoctorCheck], settings: Settings | None, *, healthy: bool) -> Doc:
    checks = []
    for look in looks:
        status = "ok" if not look.problem else "warning" if look.warning else "problem"
        row: Doc = {"what": look.what, "value": look.value, "status": status}
        checks.append(row | {"problem": look.problem or None, "fix": look.fix or None})
    doc: Doc = {"healthy": healthy, "checks": checks}
    if settings is not None:
        doc["settings"] = settings_table(settings)
    return doc


def _broken(what: str, error: LeadhandError) -> DoctorCheck:
    message, _, fix = str(error).partition(" Fix: ")
    return DoctorCheck(what, "not usable", message, fix)


def _safely(
    part: Callable[[Settings], Iterator[DoctorCheck]], settings: Settings
) -> list[DoctorCheck]:
    looks: list[DoctorCheck] = []
    try:
        looks.extend(part(settings))
    except LeadhandError as error:
        looks.append(_broken(getattr(part, "__name__", "plan").lstrip("_"), error))
    return looks


def _machine() -> Iterator[DoctorCheck]:
    import sqlite3

    yield DoctorCheck("python", f"{platform.python_version()} ({sys.executable})")
    version = sqlite3.sqlite_version
    old = tuple(map(int, version.split("."))) < WAL_FIXED
    fixed = ".".join(map(str, WAL_FIXED))
    bug = f" (has a WAL bug, fixed in {fixed}; not affected: single writer)" if old else ""
    yield DoctorCheck("sqlite", f"{version}{bug}")
    yield from _extras()
    yield from _walls()


EXTRAS = {
    "models": ("pydantic_ai", "language models"),
    "mcp": ("mcp", "tools of MCP servers; `leadhand mcp serve`, `leadhand connect`"),
    "server": ("fastapi", "`leadhand serve`"),
    "postgres": ("psycopg", "a store on PostgreSQL"),
    "temporal": ("temporalio", "runs hosted by Temporal"),
    "sign": ("cryptography", "signed approvals, checkpoints and exports"),
    "archive": ("zstandard", "archives of old runs"),
    "slack": ("websockets", "answers from Slack through a socket"),
    "telemetry": ("opentelemetry.exporter.otlp", "spans and metrics"),
    "fleet": ("detect_secrets", "a search for secrets in changes of agents"),
    "map": ("tree_sitter", "symbols in the fleet's repository map"),
}
"""The optional parts of the package: a module of each, and what it is for."""


def _extras() -> Iterator[DoctorCheck]:
    """List the optional parts that are installed, and how to get each of the others.

    A part that the settings use and that is missing is a problem of the check that needs it.
    """
    found = [name for name, (module, _) in EXTRAS.items() if _is_installed(module)]
    yield DoctorCheck("extras", f"installed: {', '.join(found) or 'none'}")
    for name, (_, purpose) in EXTRAS.items():
        if name not in found:
            yield DoctorCheck("", f"not installed: {name}, for {purpose}: {_install(name)}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def _install(extra: str) -> str:
    """Return the command that adds an optional part to this installation."""
    return f"{shlex.quote(sys.executable)} -m pip install 'leadhand[{extra}]'"


def _walls() -> Iterator[DoctorCheck]:
    """Check that workers with `sandbox` can run, and explain a missing sandbox."""
    from leadhand.workers.sandbox.confinement import FIX, Confinement

    missing = Confinement(folder=Path.cwd()).missing().partition(". Fix: ")[0]
    yield DoctorCheck(
        "worker sandbox",
        "workers with `sandbox` can run" if not missing else "not available",
        missing and f"workers with `sandbox` cannot run: {missing}",
        FIX if missing else "",
        warning=True,
    )


def _store(settings: Settings) -> Iterator[DoctorCheck]:
    from leadhand.app.store_factory import host_info
    from leadhand.stores.postgres.address import Address

    place = settings.store
    if isinstance(place, Path):
        yield from _file(place)
        if not place.exists():
            return
    else:
        yield DoctorCheck("store", str(place))
    if isinstance(place, Address):
        if find_spec("psycopg") is None:
            fix = "pip install 'leadhand[postgres]'"
            yield DoctorCheck("driver", "psycopg", "not installed", fix)
            return
        from leadhand.stores.postgres.health import look

        for seen in look(place):
            yield DoctorCheck(*seen)
    holder = host_info(place)
    machine = f" on {holder['machine']}" if holder and "machine" in holder else ""
    said = f"process {holder['pid']}{machine}" if holder else "none running"
    if holder and holder.get("engines"):
        said = f"Temporal; {count(holder['engines'], 'process', 'processes')} here connected"
    yield DoctorCheck("host", said)
    yield from _content(place)


def _file(path: Path) -> Iterator[DoctorCheck]:
    from leadhand.stores.permissions import open_to_others
    from leadhand.stores.sqlite.connection import refuse_network

    yield DoctorCheck(
        "store",
        str(path),
        "" if path.exists() else "does not exist yet; the first run creates it",
        warning=True,
    )
    folder = next(each for each in (path.parent, *path.parent.parents) if each.exists())
    refuse_network(path)
    if not os.access(folder, os.W_OK):
        yield DoctorCheck(
            "folder", str(folder), "not writable for this account", f"chmod u+w {folder}"
        )
    exposed = open_to_others(path)
    yield DoctorCheck(
        "permissions",
        ", ".join(map(str, exposed)) or "only your account can read the stored data",
        "readable by other accounts of this machine: plans, outputs, questions" if exposed else "",
        f"chmod go-rwx {shlex.join(map(str, exposed))}; the next run does this" if exposed else "",
        warning=True,
    )
    free = shutil.disk_usage(folder).free
    yield DoctorCheck(
        "disk",
        f"{_size(free)} free",
        f"less than {_size(SPACE_MIN_BYTES)}" if free < SPACE_MIN_BYTES else "",
        "Free disk space." if free < SPACE_MIN_BYTES else "",
    )


def _size(count: int) -> str:
    """Return a number of bytes as people say it, in powers of ten as disks are sold."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count // 10**6} MB"


def _content(place: StoreLocation) -> Iterator[DoctorCheck]:
    import asyncio

    from leadhand.app.reader import Reader
    from leadhand.app.store_factory import schema_version
    from leadhand.core.views.totals import LAST_DAY

    reader = Reader(place)
    try:
        newest = schema_version(place)
        runs = reader.store.totals(0, LAST_DAY).get("runs", 0) + len(reader.open_runs())
        yield DoctorCheck("schema", f"version {newest}, {count(runs, 'run')}")
        if reader.store.copied():
            fix = "Repeat the same `leadhand migrate`: it continues where it stopped."
            yield DoctorCheck("copy", "not finished", "no run can be hosted", fix)
        shared = reader.host_state()
        if shared.stopped:
            yield DoctorCheck(
                "stop-all",
                f"active, by {shared.stopped_by}",
                "no step starts",
                "leadhand stop-all --lift",
                warning=True,
            )
    finally:
        asyncio.run(reader.close())


def _settings(settings: Settings) -> Iterator[DoctorCheck]:
    files = ", ".join(map(str, settings.files)) or "none; see `leadhand init`"
    yield DoctorCheck("settings", files)
    for key, value, origin in setting_rows(settings):
        if origin != "default":
            yield DoctorCheck("", f"{key} = {value}   (source: {origin})")
    if settings.contexts:
        yield DoctorCheck("contexts", ", ".join(settings.contexts))


def _approvals(settings: Settings) -> Iterator[DoctorCheck]:
    """Report the approvers, and what programs of one account can circumvent."""
    people = sorted(settings.policy.approvers)
    if not people:
        yield DoctorCheck("approvals", "not signed: the log cannot prove who approved")
        return
    yield DoctorCheck("approvals", f"signed by {', '.join(people)}")
    if settings.approver_key is None:
        return
    note = "programs of this account, workers included, can use the key and change settings"
    fix = "Keep the key on another account or machine, or run workers in a sandbox."
    yield DoctorCheck("approver's key", str(settings.approver_key), note, fix, True)


def _trust(settings: Settings) -> Iterator[DoctorCheck]:
    """Report entries of project files that were left out because they are not trusted."""
    missing = settings.not_loaded
    for folder in dict.fromkeys(each.folder for each in missing):
        names = ", ".join(str(each) for each in missing if each.folder == folder)
        yield DoctorCheck(
            "trust",
            f"not loaded: {names}",
            f"{folder} is not trusted, so no code named in its settings was executed",
            f"Read them, then: leadhand trust {folder}",
            warning=True,
        )
    if not missing and settings.trust is not None and entries_of(settings):
        yield DoctorCheck("trust", "all code named in the settings is trusted")


def _models(settings: Settings) -> Iterator[DoctorCheck]:
    """Check each configured tier and its keys; no model is called."""
    if not settings.tiers:
        return
    from leadhand.models.names import key_variable, parse_model

    if find_spec("pydantic_ai") is None:
        missing_packages = "packages not installed"
        yield DoctorCheck(
            "models", "not usable", missing_packages, "pip install 'leadhand[models]'"
        )
    for tier, words in settings.tiers.items():
        names = [settings.models.get(word) or parse_model(word) for word in words]
        wanted = [variable for name in names if (variable := key_variable(name))]
        missing = [name for name in dict.fromkeys(wanted) if not os.environ.get(name)]
        yield DoctorCheck(
            "tier",
            f"{tier}: {', '.join(map(str, names))}",
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
            if missing
            else "",
            "Set it to the API key where runs are hosted." if missing else "",
            warning=len(missing) < len(names),
        )


def _mcp(settings: Settings) -> Iterator[DoctorCheck]:
    """Check each configured MCP server: whether it answers, and as pinned."""
    if not settings.mcp:
        return
    from leadhand.cli.commands.mcp import compare_pins

    for look in compare_pins(settings):
        yield DoctorCheck(
            "mcp", f"{look.server}: {look.said}", look.problem, look.fix, look.warning
        )
        for tool, why in look.left_out.items():
            what = f"{look.server}: the tool {tool} is left out"
            fix = "Correct its definition in the server; the other tools are not affected."
            yield DoctorCheck("mcp", what, why, fix, warning=True)


def _workers(settings: Settings) -> Iterator[DoctorCheck]:
    registry = registry_of(settings)
    names = ", ".join(worker.spec.name for worker in registry)
    # A fleet's folder needs no other workers; untrusted entries were reported before.
    found = [each for each in map(section_of, settings.sections) if each is not None]
    others = any(each.has_workers(each.of(settings)) for each in found)
    named = bool(len(registry) or others or settings.not_loaded)
    missing = "" if named else "plans need workers to run"
    fix = "" if named else "Set [project] workers in leadhand.toml, or give --workers."
    yield DoctorCheck(
        "workers", f"{len(registry)}: {names}" if names else "none", missing, fix, warning=True
    )
    if len(registry):
        told = (
            "compared with the approved versions at each start; details: `leadhand ls workers -v`"
        )
        yield DoctorCheck("versions", told)
    yield from _unconfined(registry)


def _unconfined(registry: Registry) -> Iterator[DoctorCheck]:
    """Report what one account of the operating system cannot separate."""
    free = [
        each.spec.name
        for each in registry
        if each.spec.kind in ("function", "command")
        and not all(offer.sandbox for offer in each.spec.offers.values())
    ]
    if free:
        more = f" and {len(free) - 8} more" if free[8:] else ""
        yield DoctorCheck(
            "no sandbox",
            f"{', '.join(free[:8])}{more}",
            "these workers run as your account: they can read the token, keys and database, "
            "and send commands as any person. Approvals do not protect against their code",
            "Set `sandbox = true` for workers that you do not trust, or run them elsewhere.",
            warning=True,
        )


def _products(settings: Settings, *, fix: bool) -> Iterator[DoctorCheck]:
    """Run the checks of installed products; `fix`: repair what can be repaired."""
    from leadhand import plugins

    for part in plugins.parts("doctor").values():
        try:
            yield from part.load()(settings, fix=fix)
        except Exception as error:
            if part.package == "leadhand":
                raise
            what = f"the check failed: {type(error).__name__}: {error}"
            fix_it = f"Update the package {part.package}, or remove it."
            yield DoctorCheck(part.name, f"of the package {part.package}", what, fix_it)


def _notify(settings: Settings) -> Iterator[DoctorCheck]:
    notify = settings.notify
    if notify.command:
        program = notify.command[0]
        found = (
            shutil.which(program, path=os.environ.get("PATH")) or (settings.root / program).exists()
        )
        problem = "" if found else "program not found"
        yield DoctorCheck(
            "notify",
            f"command {program}",
            problem,
            "" if found else "Install the program, or correct the path.",
        )
    yield from asyncio.run(_reached(settings))
    if notify.is_empty:
        yield DoctorCheck(
            "notify",
            "no notifications configured",
            "no message is sent when a run waits for a person or ends",
            "Set [notify] command or webhook in leadhand.toml.",
            warning=True,
        )


async def _reached(settings: Settings) -> list[DoctorCheck]:
    """Reach the service of each channel without a message."""
    from leadhand.notify.channels import NotDelivered, channels_of

    found = []
    for name, channel in channels_of(settings).items():
        if name == "command":
            continue
        try:
            found.append(DoctorCheck("notify", f"{name}: {await channel.check()}"))
        except NotDelivered as error:
            fix = f"Correct [notify] {name}, then: leadhand notify test --channel {name}"
            found.append(DoctorCheck("notify", name, str(error), fix))
    return found
