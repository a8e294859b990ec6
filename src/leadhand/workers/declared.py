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

Tables under `actions` inherit what their worker's table says. All problems are found at once,
each named by its table and key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from leadhand.core.catalog import WorkerSpec
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.wording import closest
from leadhand.errors import UsageError
from leadhand.workers.commands.worker import OUTPUT_BYTES, CommandAction, CommandWorker
from leadhand.workers.coverage import VERSION_CHARS
from leadhand.workers.declaration import DeclarationTable, read_checks, read_offer, read_parameters
from leadhand.workers.functions.decorator import NAME
from leadhand.workers.functions.isolation import GRACE_S
from leadhand.workers.http.declared import HTTP_KEYS, read_call
from leadhand.workers.http.request import HttpAction
from leadhand.workers.http.worker import HttpWorker
from leadhand.workers.sandbox.confinement import Confinement
from leadhand.workers.template import Template

WORKER_KEYS = {"description", "version", "max_concurrency", "trusted", "action", "actions"}
OFFER_KEYS = {
    "parameters",
    "returns",
    "timeout",
    "est",
    "idempotent",
    "risk",
    "effects",
    "reads",
    "writes",
    "needs",
    "gives",
    "drops",
    "cost",
    "checks",
    "check",
    "probe",
}
COMMAND_KEYS = {
    "command",
    "cwd",
    "env",
    "secrets",
    "set_env",
    "public",
    "output",
    "exit_codes",
    "stdin",
    "stdout_limit",
    "stderr_limit",
    "allow_dash",
    "grace",
    "sandbox",
}
KINDS = {"command": COMMAND_KEYS, "url": HTTP_KEYS}
"""The key that says what kind of worker it is, and the keys of that kind."""


def declared_workers(
    tables: Mapping[str, Any], folder: Path | str = "."
) -> list[CommandWorker | HttpWorker]:
    """The workers of these tables; UsageError lists everything that is wrong with them."""
    problems: list[str] = []
    workers = [
        worker
        for name, table in tables.items()
        if (worker := _worker(name, table, Path(folder), problems)) is not None
    ]
    if problems:
        raise UsageError("\n".join(problems))
    return workers


def _worker(
    name: str, given: Any, folder: Path, problems: list[str]
) -> CommandWorker | HttpWorker | None:
    place = f"workers.{name}"
    if not NAME.match(name):
        problems.append(f"{place}: is not a name; use letters, digits, _ . -")
    if not isinstance(given, Mapping):
        problems.append(f"{place}: must be a table")
        return None
    before = len(problems)
    top = DeclarationTable(place, given, problems)
    tables = _actions(top)
    kinds = {
        "command" if "command" in each.values else "url"
        for each in tables.values()
        if not KINDS.keys().isdisjoint(each.values)
    }
    for each in tables.values():
        if ("command" in each.values) == ("url" in each.values):
            each.problem("", "needs `command` or `url`, and not both")
    if len(kinds) > 1:
        top.problem("actions", "a worker's actions are all commands or all HTTP calls")
    kind = "command" if kinds == {"command"} else "http"
    known = OFFER_KEYS.union(*(KINDS[word] for word in kinds or KINDS))
    for each in tables.values():
        _known_keys(each, known)
    programs: dict[str, CommandAction] = {}
    calls: dict[str, HttpAction] = {}
    if len(problems) == before:
        for action, each in tables.items():
            if kind == "command":
                programs[action] = _program(each, folder)
            else:
                calls[action] = read_call(each)
    spec = WorkerSpec(
        name=name,
        kind=kind,
        version=top.text("version") or "",
        description=top.text("description") or "",
        max_concurrency=top.count("max_concurrency"),
        trusted=top.flag("trusted"),
    )
    if len(problems) > before:
        return None
    offers = {key: each.offer for key, each in (programs or calls).items()}
    walls = sorted(f"{action} {each.sandbox}" for action, each in programs.items() if each.sandbox)
    version = spec.version
    if version and walls:  # an author's version says nothing of the walls
        version += f"+{hashlib.sha256(msgspec.json.encode(walls)).hexdigest()[:8]}"
    spec = msgspec.structs.replace(spec, offers=offers, version=version)
    table = msgspec.json.encode(given, order="sorted", enc_hook=str)
    if programs:
        return CommandWorker(spec, programs, declared=(table, folder))
    version = spec.version or hashlib.sha256(table).hexdigest()[:VERSION_CHARS]
    return HttpWorker(msgspec.structs.replace(spec, version=version), calls)


def _actions(top: DeclarationTable) -> dict[str, DeclarationTable]:
    """The table of each action: its own, over what the worker's table says."""
    own = top.values.get("actions")
    common = {key: value for key, value in top.values.items() if key not in WORKER_KEYS}
    if own is None:
        action = top.text("action") or ""
        if action and not NAME.match(action):
            top.problem("action", f"{action!r} is not a name")
        return {action: DeclarationTable(top.place, common, top.problems)}
    tables: dict[str, DeclarationTable] = {}
    if not isinstance(own, Mapping) or not own or "action" in top.values:
        top.problem("actions", "must be tables, one for each action, and no `action` beside it")
        return {}
    for action, values in own.items():
        place = f"{top.place}.actions.{action}"
        if not NAME.match(action) or not isinstance(values, Mapping):
            top.problems.append(f"{place}: must be a table with a name as its key")
            continue
        tables[action] = DeclarationTable(place, {**common, **values}, top.problems)
    return tables


def _known_keys(table: DeclarationTable, known: set[str]) -> None:
    for key in table.values:
        if key not in known:
            guess = closest(key, known | WORKER_KEYS - {key})
            table.problem(key, "is not known" + (f"; did you mean {guess}?" if guess else ""))


def _program(table: DeclarationTable, folder: Path) -> CommandAction:
    argv = _argv(table, "command")
    probe = _argv(table, "probe") if "probe" in table.values else ()
    holes = {hole.name: hole for word in argv for hole in word.holes}
    stdin = table.choice("stdin", ("none", "json")) or "none"
    schema = read_parameters(table, holes, frozenset(), open_ended=stdin == "json")
    for word in probe:
        for hole in word.holes:
            if hole.name not in schema["properties"]:
                table.problem("probe", f"{{{hole.name}}} is no parameter of the command")
    checks, check = read_checks(table)
    offer = read_offer(table, schema, checks, check, probe=bool(probe), idempotent=False)
    cwd = folder / (table.text("cwd") or ".")
    if not cwd.is_dir():
        table.problem("cwd", f"{cwd} is no folder")
    walls = _sandbox(table, folder)
    if walls is not None:
        offer = msgspec.structs.replace(offer, sandbox=str(walls), missing=walls.missing())
    return CommandAction(
        sandbox=walls,
        argv=argv,
        cwd=cwd.resolve(),
        env=table.texts("env"),
        secrets=table.texts("secrets"),
        set_env=table.text_map("set_env"),
        public=table.texts("public"),
        output=cast("Any", table.choice("output", ("text", "json", "report")) or "text"),
        exit_codes=_exit_codes(table),
        stdin=cast("Any", stdin),
        stdout_limit=table.count("stdout_limit") or OUTPUT_BYTES,
        stderr_limit=table.count("stderr_limit") or OUTPUT_BYTES,
        allow_dash=table.flag("allow_dash"),
        grace_s=table.seconds("grace") if "grace" in table.values else GRACE_S,
        probe=probe,
        checks=checks,
        check=check,
        offer=offer,
    )


def _sandbox(table: DeclarationTable, folder: Path) -> Confinement | None:
    try:
        walls = Confinement.of(table.values.get("sandbox"), folder.resolve())
    except ValueError as problem:
        table.problem("sandbox", str(problem))
        return None
    if walls is not None and walls.env:
        table.problem("sandbox", "env is for functions; a command has `env` of its own")
    return walls


def _argv(table: DeclarationTable, key: str) -> tuple[Template, ...]:
    words = table.values.get(key)
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        table.problem(key, "must be a list of texts: the program and each argument")
        return ()
    argv: list[Template] = []
    for index, word in enumerate(words):
        try:
            template = Template.of(word)
        except ValueError as problem:
            table.problem(f"{key}[{index}]", str(problem))
            continue
        if "\0" in word or (index == 0 and not word):
            table.problem(f"{key}[{index}]", "must not be empty or hold a NUL character")
        if index == 0 and template.holes:
            table.problem(f"{key}[0]", "the program must be fixed, without placeholders")
        if any(hole.splat for hole in template.holes) and template.only is None:
            table.problem(f"{key}[{index}]", "{name...} must be an argument of its own")
        argv.append(template)
    return tuple(argv)


def _exit_codes(table: DeclarationTable) -> dict[int, str]:
    codes: dict[int, str] = {}
    for code, meaning in table.text_map("exit_codes").items():
        if not (code.isascii() and code.isdigit() and int(code) < 256):
            table.problem("exit_codes", f"{code!r} is no exit code")
        elif meaning != "success" and meaning not in FAILURE_CLASSES:
            guess = closest(meaning, ("success", *FAILURE_CLASSES))
            hint = f"; did you mean {guess}?" if guess else f": {', '.join(FAILURE_CLASSES)}"
            table.problem(f"exit_codes.{code}", f"{meaning!r} is no failure class{hint}")
        else:
            codes[int(code)] = meaning
    return codes
