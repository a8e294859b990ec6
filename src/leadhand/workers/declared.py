"""Workers declared without Python, in the `[workers.NAME]` tables of leadhand.toml.

    [workers.deploy]
    command = ["./deploy.sh", "--to={environment}", "{version}"]
    parameters = {environment = {type = "string", enum = ["staging", "production"]}}
    timeout = "10 minutes"
    probe = ["./deployed.sh", "{version}"]

    [workers.tickets]
    url = "https://tickets.example.com/api/v1/tickets/{id}"
    headers = {Authorization = {env = "TICKETS_TOKEN", prefix = "Bearer "}}

    [workers.database.actions.migrate]
    command = ["./migrate", "{target}"]

`command` and `url` say what kind of worker it is; an installed package can bring other kinds, by
the entry points `leadhand.workers`. Tables under `actions` inherit what their worker's table says.
All problems are found at once, each named by its table and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadhand.codec.tables import Table, keys
from leadhand.core.catalog import WorkerSpec
from leadhand.core.wording import closest
from leadhand.errors import LeadhandError, UsageError
from leadhand.ports import Worker
from leadhand.workers.declaration import (
    ActionDeclaration,
    ActionTable,
    WorkerDeclaration,
    WorkerKind,
    WorkerTable,
    kind_keys,
    kind_of,
)
from leadhand.workers.functions.decorator import NAME


def declared_workers(tables: Mapping[str, Any], folder: Path | str = ".") -> list[Worker]:
    """Return the workers of these tables. Raise UsageError with everything that is wrong."""
    problems: list[str] = []
    workers = [
        worker
        for name, table in tables.items()
        if (worker := _worker(name, table, Path(folder), problems)) is not None
    ]
    if problems:
        raise UsageError("\n".join(problems))
    return workers


def _worker(name: str, given: Any, folder: Path, problems: list[str]) -> Worker | None:
    place = f"workers.{name}"
    if not NAME.match(name):
        problems.append(f"{place}: is not a name; use letters, digits, _ . -")
    if not isinstance(given, Mapping):
        problems.append(f"{place}: must be a table")
        return None
    found: list[str] = []
    own = {key: value for key, value in given.items() if key in keys(WorkerTable)}
    top = Table(place, own, found)
    common = {key: value for key, value in given.items() if key not in own}
    values = top.read(WorkerTable) or WorkerTable()
    tables = _actions(top, values, common)
    kind = _kind(top, tables)
    worker = None
    if kind is not None:
        spec = WorkerSpec(
            name=name,
            kind=kind.name,
            version=values.version,
            description=values.description,
            max_concurrency=values.max_concurrency,
            trusted=values.trusted,
        )
        actions = {
            key: ActionDeclaration(each, read)
            for key, each in tables.items()
            if (read := _read(each, kind)) is not None
        }
        if len(actions) == len(tables):
            table = msgspec.json.encode(given, order="sorted", enc_hook=str)
            worker = _made(kind, WorkerDeclaration(spec, actions, folder, table, found))
    problems += found
    return None if found else worker


def _made(kind: WorkerKind, declared: WorkerDeclaration) -> Worker | None:
    """Return the worker that `kind` makes; note what its code raises as a problem of the table."""
    try:
        worker = kind.make(declared)
        if worker is None and not declared.problems:
            raise ValueError("it made no worker and says no reason")
    except LeadhandError:
        raise
    except Exception as error:  # noqa: BLE001 - a kind may be code of another package
        place = f"workers.{declared.spec.name}"
        declared.problems.append(
            f"{place}: the kind {kind.name} failed: {type(error).__name__}: {error}. "
            "Fix: update the package that provides it, or remove the table"
        )
        return None
    return worker


def _read(table: Table, kind: WorkerKind) -> ActionTable | None:
    """Return an action by the schema of its kind; None when that is not the table's, as noted."""
    also = keys(WorkerTable)
    if any(key in table.values for key in kind_keys()):
        return table.read(kind.schema, also)
    table.known(kind.schema, also)
    return None


def _kind(top: Table, tables: Mapping[str, Table]) -> WorkerKind | None:
    """Return the kind that all actions are of; None when there is none, which is noted."""
    known = kind_keys()
    marks = {
        place: [key for key in known if key in table.values] for place, table in tables.items()
    }
    for place, table in tables.items():
        if len(marks[place]) == 1:
            continue
        one_of = " or ".join(f"`{key}`" for key in known)
        table.problem("", f"needs {one_of}, and only one")
        for key in table.values:
            guess = "" if key in (*keys(ActionTable), *known) else closest(key, known)
            if guess:
                table.problem(key, f"is not known; did you mean {guess}?")
    kinds = {key for each in marks.values() for key in each}
    if len(kinds) > 1 and all(len(each) == 1 for each in marks.values()):
        top.problem("actions", f"a worker's actions are all of one kind: {' or '.join(known)}")
    return kind_of(kinds.pop()) if len(kinds) == 1 else None


def _actions(top: Table, values: WorkerTable, common: Mapping[str, Any]) -> dict[str, Table]:
    """Return the table of each action: its own, over what the worker's table says."""
    if values.actions is None:
        action = values.action or ""
        if action and not NAME.match(action):
            top.problem("action", f"{action!r} is not a name")
        return {action: Table(top.place, common, top.problems)}
    tables: dict[str, Table] = {}
    if not values.actions or values.action is not None:
        top.problem("actions", "must be tables, one for each action, and no `action` beside it")
        return {}
    for action, own in values.actions.items():
        place = f"{top.place}.actions.{action}"
        if not NAME.match(action) or not isinstance(own, Mapping):
            top.problems.append(f"{place}: must be a table with a name as its key")
            continue
        tables[action] = Table(place, {**common, **own}, top.problems)
    return tables
