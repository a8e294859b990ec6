"""Commands as workers: argument lists, never a shell.

1. Each value becomes one argument, or part of one; it cannot become two, nor a command.
2. A value where an argument begins must not begin with `-`: it would be read as an option
   (git's `--upload-pack`, tar's `--to-command`; CVE-2026-5366). `--` before it in the template,
   or `allow_dash`, says that this is understood.
3. The environment is built from nothing: a few harmless names, the ones that were declared,
   and which attempt it is. Secrets of the host are not inherited.
4. Death by a signal nobody here sent is "lost", with an unknown effect; a process that is
   cancelled is seen dead before `perform` returns.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadhand.audit.redaction import SECRET_NAME
from leadhand.codec.values import plain
from leadhand.core.catalog import Offer, WorkerSpec
from leadhand.core.report import Effect, Failure, Report
from leadhand.workers.commands.version import look
from leadhand.workers.coverage import INHERITED, Coverage
from leadhand.workers.functions.isolation import GRACE_S, followed, text_of
from leadhand.workers.processes.capture import LiveStreams, shown_live
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.runner import Finished, Processes, SpawnError
from leadhand.workers.reports import bounded_text, holds, report_from_doc
from leadhand.workers.sandbox.confinement import Confinement, program_folders
from leadhand.workers.sandbox.sandbox import NoSandbox
from leadhand.workers.template import Template, TemplateSlot, spell, with_defaults

if TYPE_CHECKING:
    from leadhand.ports import Context, Task


NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})
"""Why a process cannot be started just now: files, processes or memory are used up."""
OUTPUT_BYTES = 1 << 20
STDERR_CHARS = 8_192
EXIT_CODES = {0: "success", 75: "transient", 77: "denied", 126: "unavailable", 127: "unavailable"}
"""What exit codes mean unless declared otherwise (sysexits.h); the rest is "unavailable"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAction:
    """One action of a command worker: the program to run, and how to read its output."""

    argv: tuple[Template, ...]
    cwd: Path
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Variables that are passed on like those of `env`, and kept out of the log."""
    set_env: Mapping[str, str] = field(default_factory=dict)
    public: tuple[str, ...] = ()
    """Variables whose values may be shown: they are no secrets."""
    output: Literal["text", "json", "report"] = "text"
    exit_codes: Mapping[int, str] = field(default_factory=dict)
    stdin: Literal["none", "json"] = "none"
    """"json" hands all parameters to the command as one JSON object."""
    stdout_limit: int = OUTPUT_BYTES
    stderr_limit: int = OUTPUT_BYTES
    allow_dash: bool = False
    grace_s: float = GRACE_S
    probe: tuple[Template, ...] = ()
    """A command that ends with 0 when the thing happened and with 1 when it did not."""
    checks: Mapping[str, str] = field(default_factory=dict)
    check: str | None = None
    offer: Offer = field(default_factory=Offer)
    sandbox: Confinement | None = None
    """The walls that it runs behind; None: it may do what the host may."""

    @property
    def holes(self) -> dict[str, TemplateSlot]:
        """Return the placeholders it needs, in the order of their first use."""
        return {hole.name: hole for word in self.argv for hole in word.holes}


def fill_argv(argv: tuple[Template, ...], values: Mapping[str, Any], *, dash: bool) -> list[str]:
    """Return the argument list.

    Raise `ValueError`, which names the parameter that cannot be passed.
    """
    words: list[str] = []
    for word in argv:
        hole = word.only
        if hole is not None and hole.splat:
            items = values.get(hole.name)
            if not isinstance(items, list):
                raise ValueError(f"parameter {hole.name}: needs a list")
            new = [spell(f"{hole.name}[{index}]", item) for index, item in enumerate(items)]
        else:
            new = [word.fill(values)]
            _refuse_leaving(word, new[0])
        first = word.pieces[0]
        if isinstance(first, TemplateSlot) and not dash and "--" not in words:
            for text in new:
                if text.startswith("-"):
                    raise ValueError(
                        f"parameter {first.name}: {text[:40]!r} begins with a dash and would be "
                        "read as an option"
                    )
        words += new
    return words


def _refuse_leaving(word: Template, text: str) -> None:
    """Raise `ValueError` for values that lead out of the folder in front of them.

    A version covers what `scripts/{version}.sh` can mean inside of `scripts`, and nothing else.
    """
    if word.only is not None or not word.holes:
        return
    fixed = "".join(piece if isinstance(piece, str) else "x" for piece in word.pieces)
    if "/" in fixed and text.split("/").count("..") > fixed.split("/").count(".."):
        raise ValueError(
            f"parameter {word.holes[0].name}: {text[:80]!r} leads out of its folder by `..`"
        )


def given_values(
    names: Iterable[str], fixed: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that are passed on or set, with their values."""
    return {**{name: environ[name] for name in names if name in environ}, **fixed}


class CommandWorker:
    """A worker whose actions are programs."""

    def __init__(
        self,
        spec: WorkerSpec,
        programs: Mapping[str, CommandAction],
        *,
        declared: tuple[bytes, Path] | None = None,
    ) -> None:
        """`declared` is its table, and the folder of the settings that it stands in.

        Without a version of its own, the version follows both: see `command_files`.
        """
        self.spec = spec
        self.processes: Processes | None = None
        self._programs = dict(programs)
        self._declared = declared if not spec.version else None
        self.coverage = Coverage(declared=spec.version)
        self.renewed()

    def renewed(self) -> WorkerSpec:
        """Look at its files and values again; gives back its description as it is now."""
        if self._declared is not None:
            table, folder = self._declared
            self.coverage = look(table, self._programs, folder, os.environ)
            if self.coverage.version != self.spec.version:
                self.spec = msgspec.structs.replace(self.spec, version=self.coverage.version)
        return self.spec

    def attach(self, processes: Processes) -> None:
        """Give it the means to start programs."""
        self.processes = processes

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the secret variables: declared ones, and those named like a secret."""
        programs = self._programs.values()
        passed = (
            name
            for program in programs
            for name in program.env
            if SECRET_NAME.search(name) and name not in program.public
        )
        return (*(name for program in programs for name in program.secrets), *passed)

    @property
    def given_values(self) -> dict[str, str]:
        """Return every variable that its programs are given, by name, except public ones."""
        return {
            name: value
            for program in self._programs.values()
            for name, value in given_values(program.env, program.set_env, os.environ).items()
            if name not in program.public
        }

    async def perform(self, task: Task, context: Context) -> Report:
        """Run the program and report how it ended."""
        program = self.program(task.action)
        if program is None:
            return Report.failed("permanent", f"{self.spec.name} offers no {task.action!r}")
        try:
            finished = await self._run(program, program.argv, task, context)
        except ValueError as problem:
            return Report.failed("permanent", bounded_text(str(problem)))
        except (SpawnError, NoSandbox) as error:
            # The machine has no room for one more process now; another time it may have.
            short = isinstance(error, SpawnError) and error.errno in NO_ROOM
            return Report.failed("transient" if short else "unavailable", bounded_text(str(error)))
        except ProcessError as error:
            return Report.failed("lost", bounded_text(str(error)), effect="unknown")
        return report_on(program, finished)

    async def probe(self, task: Task, context: Context) -> Report | None:
        """Run the declared probe. Raise `LookupError` if there is none."""
        program = self.program(task.action)
        if program is None or not program.probe:
            raise LookupError(f"{self.spec.name} declares no probe")
        try:
            finished = await self._run(program, program.probe, task, context)
        except (ValueError, ProcessError, NoSandbox) as problem:
            raise LookupError(f"the probe cannot tell: {problem}") from None
        if finished.exit_code == 1:
            return None
        if finished.exit_code != 0:
            raise LookupError(f"the probe cannot tell: {_ended(finished)}")
        report = report_on(program, finished)
        if report.error:
            raise LookupError(f"the probe cannot tell: {report.error.message}")
        return report

    def check(self, name: str, action: str, data: Any) -> bool:
        """Return whether a declared expression holds for `data`."""
        program = self.program(action)
        expression = (program.checks.get(name) if name else program.check) if program else None
        return holds(expression, name, data)

    async def close(self) -> None:
        """Do nothing: the processes belong to the host."""

    def program(self, action: str) -> CommandAction | None:
        """Return the program of an action; the unnamed one serves any action."""
        return self._programs.get(action) or self._programs.get("")

    async def _run(
        self, program: CommandAction, argv: tuple[Template, ...], task: Task, context: Context
    ) -> Finished:
        if self.processes is None:
            raise SpawnError(0, f"{self.spec.name}: no process can be started here")
        values = with_defaults(program.offer.parameters, task.parameters)
        known = (program.offer.parameters or {}).get("properties", program.holes)
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(f"parameter {unknown[0]}: is not known")
        words = fill_argv(argv, values, dash=program.allow_dash)
        env = self._environment(program, task, context)
        live = LiveStreams()
        shown_live(context, live.sink)
        async with AsyncExitStack() as stack:
            if program.sandbox is not None:
                seen = program_folders(words[0], program.cwd, env.get("PATH", ""))
                hidden = self.processes.hidden
                walls = program.sandbox.around(
                    words, program.cwd, env, hidden=hidden, readable=seen
                )
                wrapped = await stack.enter_async_context(walls)
                words, env = [*wrapped.argv], wrapped.env
            process = await self.processes.spawn(
                words,
                cwd=program.cwd,
                env=env,
                stdin=msgspec.json.encode(values) if program.stdin == "json" else None,
                stdout_limit=program.stdout_limit,
                stderr_limit=program.stderr_limit,
                on_output=live,
            )
            return await followed(process, context, program.grace_s)

    def _environment(self, program: CommandAction, task: Task, context: Context) -> dict[str, str]:
        names = (*INHERITED, *program.env, *program.secrets)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        attempt = {
            "LEADHAND_RUN": task.run,
            "LEADHAND_STEP": task.step,
            "LEADHAND_ATTEMPT": str(task.attempt),
            "LEADHAND_KEY": context.key,
        }
        return {**inherited, **program.set_env, **attempt}


def report_on(program: CommandAction, finished: Finished) -> Report:
    """Return the report on a program that ended."""
    stderr = text_of(finished.stderr, program.stderr_limit)
    data = _text_data(program, finished, stderr)
    if finished.signal is not None:
        failure = Failure("lost", _ended(finished), "unknown")
        return Report("failed", data, failure, output=stderr)
    code = finished.exit_code or 0
    meanings = {**EXIT_CODES, **program.exit_codes}
    meaning = meanings.get(code, "unavailable")
    if program.output == "report":
        report = _own_report(program, finished)
        readable = report.error is None or report.error.failure_class != "invalid_output"
        # An exit code that says "failed" outweighs a report of success, or one nobody can read.
        if meaning == "success" or (report.error and readable):
            return replace(report, output=stderr)
    if meaning != "success":
        reading = None if code in meanings else _exit_readers(program)
        failure = Failure(meaning, _ended(finished), exit_read_by=reading)
        return Report("failed", data, failure, output=stderr)
    if program.output == "json":
        return replace(_json(program, finished), output=stderr)
    return Report("succeeded", data, output=stderr)


def _exit_readers(program: CommandAction) -> tuple[str, ...] | None:
    """Return the names of the checks that read the exit code; None where the data holds none."""
    if program.output != "text":
        return None  # the data is what the command printed
    checks = {**program.checks, "": program.check or ""}
    return tuple(name for name, expression in checks.items() if "exit_code" in expression)


def _text_data(program: CommandAction, finished: Finished, stderr: str) -> dict[str, Any]:
    out = finished.stdout
    data: dict[str, Any] = {
        "exit_code": finished.exit_code,
        "stdout": text_of(out, program.stdout_limit),
        "stderr": stderr[-STDERR_CHARS:],
    }
    if out.truncated:
        data |= {"stdout_bytes": out.total, "truncated": True}
    return data


def _decoded(finished: Finished, limit: int) -> Any:
    if finished.stdout.truncated:
        raise ValueError(f"the output is larger than {limit:,} bytes")
    try:
        return plain(msgspec.json.decode(finished.stdout.data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"the output is not JSON: {problem}") from None


def _json(program: CommandAction, finished: Finished) -> Report:
    try:
        return Report("succeeded", _decoded(finished, program.stdout_limit))
    except ValueError as problem:
        return Report.failed("invalid_output", bounded_text(str(problem)), effect=_done(program))


def _own_report(program: CommandAction, finished: Finished) -> Report:
    try:
        doc = _decoded(finished, program.stdout_limit)
    except ValueError as problem:
        return Report.failed("invalid_output", bounded_text(str(problem)), effect=_done(program))
    return report_from_doc(doc, effects=bool(program.offer.effects))


def _done(program: CommandAction) -> Effect:
    return "done" if program.offer.effects else "none"


def _ended(finished: Finished) -> str:
    """Return how a program ended, with its last output."""
    if finished.signal is not None:
        try:
            name = signal.Signals(finished.signal).name
        except ValueError:
            name = f"signal {finished.signal}"
        how = f"was killed by {name}"
    else:
        how = f"exited with {finished.exit_code}"
    for stream in (finished.stderr, finished.stdout):
        lines = text_of(stream).strip().splitlines()[-5:]
        if lines:
            return bounded_text(f"{how}: " + "\n".join(lines), 1_000)
    return how
