"""`leadhand library`: plans saved under a name, in versions, with their history."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET, to_builtins

from leadhand.app.composition import planner_name, same_planner
from leadhand.cli.commands.diff import print_changes
from leadhand.cli.console import Console
from leadhand.cli.group import CommandGroup, command
from leadhand.cli.options import actor_of, read_plan, reading, settings_of, store_option
from leadhand.cli.plan_source import is_plan, with_lines
from leadhand.cli.rendering.text import clean, moment, table
from leadhand.core.calendar import from_iso
from leadhand.errors import PlanInvalid, UsageError
from leadhand.stores.location import there
from leadhand.stores.postgres.address import Address

if TYPE_CHECKING:
    from leadhand.app.library_history import LibraryRow, VersionRow
    from leadhand.core.library import LibraryState, SavedPlan
    from leadhand.core.plan.model import Doc
    from leadhand.settings import Settings


PLANNERS = ("goal", "hybrid", "model")
"""Names of planners that are worth recording if nothing else is known of them."""


@click.group(
    "library",
    cls=CommandGroup,
    examples=(
        "leadhand library save deploy plan.yaml",
        "leadhand run deploy --set version=v2",
    ),
    epilog="Every command of this group takes --json.",
)
def library() -> None:
    """Save plans under a name; list, show, export and import them.

    Each name has numbered versions, and the library records how the runs of each version ended.
    """


@command(
    "save",
    "leadhand library save deploy plan.yaml\nleadhand library save deploy 7kq3",
)
@click.argument("name")
@click.argument("what", metavar="PLAN|RUN")
@store_option
def save(console: Console, name: str, what: str, store: str | None) -> int:
    """Save a plan, or the plan of a run, under a name.

    The plan becomes the next version of NAME, unless its content is already saved. For a run,
    the plan as last approved is saved; replacement steps get the names of the steps they
    replaced.
    """
    settings = settings_of(store)
    doc, source = (read_plan(what), what) if is_plan(what) else _plan_of_run(settings, what)
    _print_saved(console, _save(settings, name, doc, source))
    return 0


@command(
    "list",
    "leadhand library list",
)
@store_option
def list_(console: Console, store: str | None) -> int:
    """List the saved plans, and how their runs ended."""
    from leadhand.app.library_history import library_rows

    rows: list[LibraryRow] = []
    settings = settings_of(store)
    if there(settings.store):
        with reading(settings) as reader:
            rows = library_rows(reader)
    if console.json:
        console.document(rows)
        return 0
    if not rows:
        console.say(f"the library in {settings.store} is empty")
        console.next("leadhand library save NAME PLAN")
        return 0
    head = ("NAME", "VERSION", "USES", "SUCCEEDED", "MEDIAN", "SAVED", "PARAMETERS", "GOAL")
    for line in table(head, (_cells(row) for row in rows)):
        console.row(line)
    return 0


@command(
    "show",
    "leadhand library show deploy\nleadhand library show deploy@2 --json",
)
@click.argument("name", metavar="NAME[@VERSION]")
@store_option
def show(console: Console, name: str, store: str | None) -> int:
    """Print a saved plan, and its history.

    The plan is printed as YAML. The history lists versions, uses and recoveries.
    """
    from leadhand.app.library_history import library_plan
    from leadhand.codec.documents import write_yaml

    with reading(settings_of(store)) as reader:
        saved = _found(reader.library(), name)
        doc = library_plan(reader, saved)
    if console.json:
        console.document(doc)
        return 0
    console.text(write_yaml(saved.document).rstrip("\n"))
    console.say()
    head = ("VERSION", "SAVED", "BY", "FROM", "USES", "OUTCOMES", "MEDIAN", "RECOVERIES")
    for line in table(head, (_history_cells(row) for row in doc.history)):
        console.say(line)
    return 0


@command(
    "remove",
    "leadhand library remove deploy",
)
@click.argument("name")
@store_option
def remove(console: Console, name: str, store: str | None) -> int:
    """Remove a name with all of its versions.

    Runs that used the plan keep their copy.
    """
    settings = settings_of(store)
    with reading(settings):
        pass
    answer = _say(settings, "remove_plan", name=name)
    if console.json:
        console.document(answer)
    else:
        console.say(f"{clean(name)} was removed")
    return 0


@command(
    "export",
    "leadhand library export deploy -o deploy.plan.json",
)
@click.argument("name", metavar="NAME[@VERSION]")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="The file to write, as JSON or as YAML by its extension; the default is standard output.",
)
@store_option
def export(console: Console, name: str, output: str | None, store: str | None) -> int:
    """Write one version of a plan to a file with its hash.

    `leadhand library import` reads the file.
    """
    from leadhand.app.library_history import saved_row
    from leadhand.codec.documents import write_json, write_yaml
    from leadhand.core.library import export_plan

    with reading(settings_of(store)) as reader:
        saved = _found(reader.library(), name)
    doc = export_plan(saved)
    if output is None or output == "-":
        console.document(doc)
        return 0
    as_yaml = output.lower().endswith((".yaml", ".yml"))
    Path(output).write_text((write_yaml if as_yaml else write_json)(doc), encoding="utf-8")
    if console.json:
        console.document({"file": output, **to_builtins(saved_row(saved)), "saved": saved.at})
    else:
        console.say(f"{saved.label} was written to {output}, hash {saved.hash[:12]}")
    return 0


@command(
    "import",
    "leadhand library import deploy.plan.json",
)
@click.argument("file")
@store_option
def import_(console: Console, file: str, store: str | None) -> int:
    """Import an exported plan.

    A file whose hash does not match is refused with exit code 7. If the name exists, the
    changes are shown, and the plan becomes its next version.
    """
    from leadhand.core.library import import_plan
    from leadhand.core.plan.diff import differences

    settings = settings_of(store)
    name, doc = import_plan(read_plan(file), file)
    before = None
    if there(settings.store):
        with reading(settings) as reader:
            versions = reader.library().plans.get(name)
            before = versions[-1] if versions else None
    answer = _save(settings, name, doc, file)
    changes = differences(before.document, doc) if before else []
    if console.json:
        answer["changes"] = [change.document() for change in changes]
        console.document(answer)
        return 0
    print_changes(console, changes)
    _print_saved(console, answer)
    return 0


for _each in (save, list_, show, remove, export, import_):
    library.add_command(_each)


def _plan_of_run(settings: Settings, run: str) -> tuple[Doc, str]:
    """Return the last plan of a run, as an independent document."""
    from leadhand.core import events as ev
    from leadhand.core.plan.revisions import revisions, standalone

    with reading(settings) as reader:
        ident = reader.resolve(run)
        log = [event for _entry, event in reader.events(ident)]
    approved = [each for each in revisions(log) if each.status == "approved"]
    if not approved:
        raise UsageError(f"run {ident} has no plan that was approved, so there is none to save")
    started = log[0]
    assert isinstance(started, ev.RunStarted)
    doc = standalone(approved[-1].doc, approved[-1].heirs, started.params)
    planner = started.planner_source or started.planner
    known = same_planner(planner, settings.planner)
    if "planner" not in doc and (known or planner in PLANNERS or settings.book.knows(planner)):
        # A document names its planner: a model's plan stays a model's.
        doc["planner"] = planner_name(settings) if known else planner
    doc = {key: value for key, value in doc.items() if key not in ("final", "outlook", "mode")}
    return doc, f"run {ident}"


def _save(settings: Settings, name: str, doc: Doc, source: str) -> Doc:
    from leadhand.core.lint.plan import lint
    from leadhand.settings.folders import make_store_folder

    errors = lint(doc, None, run_refs="warning", advice=False)
    errors = [each for each in errors if each.level == "error"]
    if errors:
        raise PlanInvalid(with_lines(source, errors))
    make_store_folder(settings.store)
    return _say(settings, "save_plan", name=name, document=doc, source=source)


def _say(settings: Settings, verb: str, **details: Any) -> Doc:
    from leadhand.app import commands
    from leadhand.app.hosting_service import hosting_service

    place, actor = settings.store, actor_of(settings)
    service = hosting_service(settings)
    if service is not None and isinstance(place, Address):  # beside its engines
        said = service.send_command(place, "", verb, actor, details)
    else:
        said = commands.send_command(place, "", verb, actor=actor, **details)
    answer = asyncio.run(said)
    return {key: value for key, value in answer.items() if key != "hosted"}


def _print_saved(console: Console, answer: Doc) -> None:
    label = f"{answer['name']}@{answer['version']}"
    if console.json:
        console.document(answer)
    elif answer["new"]:
        console.say(f"saved as {label}, hash {answer['hash'][:12]}")
        console.next(console.command(f"run {answer['name']}"))
    else:
        console.say(f"{label} is the same already; nothing was saved")


def _found(state: LibraryState, name: str) -> SavedPlan:
    from leadhand.core.library import find

    return find(state, name)


def _cells(row: LibraryRow) -> tuple[str, ...]:
    return (
        row.name,
        str(row.version),
        str(row.uses or 0),
        str((row.outcomes or {}).get("succeeded", 0)),
        _span(None if row.median_s is UNSET else row.median_s),
        moment(from_iso(row.saved)),
        clean(" ".join(row.params), 40),
        clean(row.goal, 60),
    )


def _span(seconds: float | None) -> str:
    from leadhand.core.durations import text

    return "" if seconds is None else text(seconds)


def _history_cells(row: VersionRow) -> tuple[str, ...]:
    def told(counts: dict[str, int]) -> str:
        return ", ".join(f"{number} {word}" for word, number in counts.items())

    return (
        str(row.version),
        row.saved[:19].replace("T", " "),
        clean(row.by, 30),
        clean(row.source, 40),
        str(row.uses),
        told(row.outcomes),
        _span(row.median_s),
        told(row.recoveries),
    )
