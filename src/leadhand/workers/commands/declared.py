"""Commands from the `[workers.NAME]` tables of leadhand.toml."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from leadhand.codec.tables import Count, Misplaced, Seconds, Table, Text, Texts, reader
from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.core.wording import closest
from leadhand.workers.commands.worker import OUTPUT_BYTES, CommandAction, CommandWorker
from leadhand.workers.declaration import (
    ActionTable,
    WorkerDeclaration,
    WorkerKind,
    parameter_schema,
)
from leadhand.workers.functions.isolation import GRACE_S
from leadhand.workers.sandbox.confinement import Confinement
from leadhand.workers.template import Template

ARGV = "a list of texts: the program and each argument"


def _argv(words: Any) -> tuple[Template, ...]:
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise ValueError(f"must be {ARGV}")
    argv: list[Template] = []
    for index, word in enumerate(words):
        try:
            template = Template.of(word)
        except ValueError as problem:
            raise Misplaced((index,), str(problem)) from None
        if "\0" in word or (index == 0 and not word):
            raise Misplaced((index,), "must not be empty or hold a NUL character")
        if index == 0 and template.holes:
            raise Misplaced((0,), "the program must be fixed, without placeholders")
        if any(hole.splat for hole in template.holes) and template.only is None:
            raise Misplaced((index,), "{name...} must be an argument of its own")
        argv.append(template)
    return tuple(argv)


def _exit_codes(value: Any) -> dict[int, str]:
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise ValueError("must be a table of texts")
    for code, meaning in value.items():
        if not (code.isascii() and code.isdigit() and int(code) < 256):
            raise ValueError(f"{code!r} is no exit code")
        if meaning != "success" and meaning not in FAILURE_CLASSES:
            guess = closest(meaning, ("success", *FAILURE_CLASSES))
            hint = f"; did you mean {guess}?" if guess else f": {', '.join(FAILURE_CLASSES)}"
            raise Misplaced((code,), f"{meaning!r} is no failure class{hint}")
    return {int(code): meaning for code, meaning in value.items()}


if TYPE_CHECKING:
    Argv: TypeAlias = tuple[Template, ...]
    ExitCodes: TypeAlias = dict[int, str]
else:
    Argv = reader(_argv, ARGV)
    ExitCodes = reader(_exit_codes, "a table of texts")


class CommandTable(ActionTable, kw_only=True):
    """The keys of an action that is a program."""

    command: Argv
    """The program and its arguments; `{name}` is replaced by a parameter and `{name...}` by a list
    of arguments."""
    probe: Argv = ()
    """A command that finds out whether an attempt took effect: exit code 0 yes (its output is the
    result), 1 no, any other cannot tell."""
    cwd: Text = "."
    """The working directory, relative to the settings file."""
    env: Texts = ()
    """Names of environment variables that are passed on."""
    secrets: Texts = ()
    """Names of environment variables that are passed on and whose values never get into the log."""
    set_env: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables with their values."""
    public: Texts = ()
    """Names of variables of `env` and `set_env` whose values may be shown."""
    output: Literal["text", "json", "report"] = "text"
    """How standard output is read: as text, as JSON data, or as a whole report."""
    exit_codes: ExitCodes = msgspec.field(default_factory=dict)
    """The meaning of exit codes: `success` or a failure class."""
    stdin: Literal["none", "json"] = "none"
    """Whether all parameters are given to the program as one JSON object on standard input."""
    stdout_limit: Count = OUTPUT_BYTES
    """The number of bytes of standard output that are kept."""
    stderr_limit: Count = OUTPUT_BYTES
    """The number of bytes of standard error that are kept."""
    allow_dash: bool = False
    """Whether the value of a parameter may begin with `-`."""
    grace: Seconds = GRACE_S
    """The time from SIGTERM to SIGKILL when an attempt is stopped."""
    sandbox: Any = None
    """`true`, or a table with `writable`, `readable` and `hosts`: the program runs in a sandbox."""


def _program(table: Table, values: CommandTable, folder: Path) -> CommandAction:
    holes = {hole.name: hole for word in values.command for hole in word.holes}
    schema = parameter_schema(table, values, holes, open_ended=values.stdin == "json")
    for word in values.probe:
        for hole in word.holes:
            if hole.name not in schema["properties"]:
                table.problem("probe", f"{{{hole.name}}} is no parameter of the command")
    offer = values.offer(schema)
    cwd = folder / values.cwd
    if not cwd.is_dir():
        table.problem("cwd", f"{cwd} is no folder")
    walls = _sandbox(table, values, folder)
    if walls is not None:
        offer = msgspec.structs.replace(offer, sandbox=str(walls), missing=walls.missing())
    return CommandAction(
        sandbox=walls,
        argv=values.command,
        cwd=cwd.resolve(),
        env=values.env,
        secrets=values.secrets,
        set_env=values.set_env,
        public=values.public,
        output=values.output,
        exit_codes=values.exit_codes,
        stdin=values.stdin,
        stdout_limit=values.stdout_limit,
        stderr_limit=values.stderr_limit,
        allow_dash=values.allow_dash,
        grace_s=values.grace,
        probe=values.probe,
        checks=values.checks,
        check=values.check,
        offer=offer,
    )


def _sandbox(table: Table, values: CommandTable, folder: Path) -> Confinement | None:
    try:
        walls = Confinement.of(values.sandbox, folder.resolve())
    except ValueError as problem:
        table.problem("sandbox", str(problem))
        return None
    if walls is not None and walls.env:
        table.problem("sandbox", "env is for functions; a command has `env` of its own")
    return walls


def _make(it: WorkerDeclaration) -> CommandWorker | None:
    programs = {
        name: _program(each.table, each.values, it.folder) for name, each in it.actions.items()
    }
    if it.problems:
        return None
    walls = sorted(f"{action} {each.sandbox}" for action, each in programs.items() if each.sandbox)
    spec = it.spec_with({name: each.offer for name, each in programs.items()})
    if spec.version and walls:  # an author's version says nothing of the walls
        mark = hashlib.sha256(msgspec.json.encode(walls)).hexdigest()[:8]
        spec = msgspec.structs.replace(spec, version=f"{spec.version}+{mark}")
    return CommandWorker(spec, programs, declared=(it.table, it.folder))


KIND = WorkerKind("command", CommandTable, _make)
