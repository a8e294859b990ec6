"""Commands with click, loaded when used, behind one boundary for errors.

A command is a function `(console, **options) -> exit code or None`. It raises for every failure;
here, and only here, errors become a message, a document and an exit code.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from leadhand import plugins
from leadhand.cli.console import HOSTS, error_line, fill_closed_streams, stdout_guard
from leadhand.cli.main import COMMANDS, HIDDEN, help_text
from leadhand.cli.rendering.text import clean_lines
from leadhand.errors import Bug, DocumentError, LeadhandError, PlanInvalid, UsageError

Body = Callable[..., int | None]
ELSEWHERE = {("run", "--approval"): "`leadhand apply PLAN --approval FILE` runs what was approved."}
"""Options that people look for at the wrong command."""


class ConsoleCommand(click.Command):
    """A command that gets a console; its help begins with an example."""

    def __init__(self, *args: Any, example: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.example = example

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example first: most people need no more."""
        formatter.write_paragraph()
        for line in self.example.strip().splitlines():
            formatter.write(f"  {line}\n")
        super().format_help_text(ctx, formatter)

    def invoke(self, ctx: click.Context) -> int:
        """Run the command with stdout kept for data."""
        as_json = bool(ctx.params.pop("as_json", False))
        assert self.callback is not None
        store = _store_to_name(ctx.params.get("store"))
        with stdout_guard(as_json=as_json, store=store, hosts=ctx.meta.get(HOSTS)) as console:
            body = functools.partial(self.callback, console)
            try:
                return ctx.invoke(body, **ctx.params) or 0
            except BaseException as error:
                if as_json and (doc := error_document(error)) is not None:
                    console.document(doc)
                raise


class CommandGroup(click.Group):
    """A group of commands: examples first, then each command with its whole first sentence."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **more: Any) -> None:
        more.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        more.setdefault("subcommand_metavar", "COMMAND")
        super().__init__(*args, **more)
        self.examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples first."""
        formatter.write_paragraph()
        for line in self.examples:
            formatter.write(f"  {line}\n")
        super().format_help_text(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command with its summary: wrapped where click would cut it."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, summary(each)) for name, each in found if each and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def summary(made: click.Command) -> str:
    """Return the first sentence of a command's help, without its period."""
    return " ".join((made.help or "").split("\n\n")[0].split()).removesuffix(".")


def _store_to_name(flag: str | None) -> str:
    """Return the database that hints must name: unless the settings files already name it."""
    given = flag or os.environ.get("LEADHAND_STORE") or ""
    if not given:
        return ""
    from leadhand.settings import load_settings
    from leadhand.stores.location import public

    env = {key: value for key, value in os.environ.items() if key != "LEADHAND_STORE"}
    try:
        known = load_settings(environ=env).store
        same = load_settings({"project.store": given}, environ=env).store == known
        return "" if same else public(given)
    except LeadhandError:  # the command will report the problem
        return public(given)


def command(name: str, example: str, **more: Any) -> Callable[[Body], click.Command]:
    """Make a function a command with `--json`."""

    def decorate(body: Body) -> click.Command:
        made = click.command(name, cls=ConsoleCommand, example=example, **more)(body)
        made.params.append(
            click.Option(
                ["--json", "as_json"], is_flag=True, help="Print machine-readable output (JSON)."
            )
        )
        return made

    return decorate


class LazyGroup(click.Group):
    """A group that knows its commands by name, and loads one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS, *(name for name in plugins.parts("commands") if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load and return a command; None if there is none of this name."""
        name = HIDDEN.get(cmd_name) or COMMANDS.get(cmd_name, ("",))[0]
        if not name:
            return _brought(cmd_name)
        module = importlib.import_module(name if "." in name else f"leadhand.cli.commands.{name}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Resolve a command; raise with a suggestion for an unknown name."""
        if args and not self._knows(args[0]):
            from leadhand.core.wording import closest

            meant = closest(args[0], (*COMMANDS, *plugins.parts("commands")))
            if args[0].lower().endswith((".json", ".yaml", ".yml")):
                meant = f"run {args[0]}"
            fix = f"Did you mean `leadhand {meant}`?" if meant else "`leadhand --help` lists them."
            raise click.UsageError(f"there is no command {args[0]!r}. {fix}")
        return super().resolve_command(ctx, args)

    def _knows(self, name: str) -> bool:
        return name in COMMANDS or name in HIDDEN or plugins.part("commands", name) is not None

    def get_help(self, ctx: click.Context) -> str:
        """Return the text of `leadhand --help`."""
        return help_text()


def _brought(name: str) -> click.Command | None:
    """Return a command of a product or plugin; None if no package provides it."""
    part = plugins.part("commands", name)
    if part is None:
        return None
    found = part.load()
    if isinstance(found, plugins.CommandPart):
        module, _, attribute = found.target.partition(":")
        found = part._replace(module=module, attribute=attribute).load()
    if not isinstance(found, click.Command):
        raise UsageError(
            f"{name} of the package {part.package} is no command. "
            f"Fix: let {part.module}:{part.attribute} be a click.Command or a CommandPart"
        )
    return found


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's form
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"leadhand {version('leadhand')}")
    except PackageNotFoundError:
        click.echo("leadhand, run from its source")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version.",
)
def group() -> None:
    """All commands."""


def execute(args: list[str]) -> int:
    """Run one command; every error ends here as a message and an exit code."""
    fill_closed_streams()
    try:
        result = group.main(args, prog_name="leadhand", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("\n")
        return 130
    except BrokenPipeError:
        _forget_stdout()
        return 128 + 13  # as if SIGPIPE had ended it, as the reader expects
    except SystemExit as error:
        # click ends a command like this when its reader has left; it wraps stdout then, and gives
        # no reason.
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            _tell(error)
            return exit_code_of(error)
        _forget_stdout()
        return 128 + 13
    except click.ClickException as error:
        if "--json" in args and not isinstance(error, click.exceptions.NoArgsIsHelpError):
            _print_document(error)
        _tell_usage(error)
        return 2
    except BaseException as caught:  # noqa: BLE001 - the boundary: nothing ends us but what is above
        told = (exit_code_of(caught) == 70 and plugins.fault_of_package(caught)) or caught
        _tell(told)
        if told is not caught and os.environ.get("LEADHAND_DEBUG"):
            traceback.print_exception(caught)
        return exit_code_of(told)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an error."""
    if isinstance(error, LeadhandError):
        return error.exit_code
    if isinstance(error, OSError) and error.errno is not None:
        denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        return 4 if denied else 1
    return 70


def error_document(error: BaseException) -> dict[str, Any] | None:
    """Return an error as the document of `--json`."""
    if isinstance(error, BrokenPipeError | KeyboardInterrupt | click.exceptions.Exit | click.Abort):
        return None
    message, fix = message_of(error)
    doc: dict[str, Any] = {"code": _code(error), "exit": exit_code_of(error), "message": message}
    if isinstance(error, click.ClickException):
        doc["exit"] = 2
    if fix:
        doc["fix"] = fix
    if isinstance(error, PlanInvalid):
        doc["findings"] = [finding_document(each) for each in error.findings]
    return {"error": doc}


def finding_document(finding: Any) -> Any:
    """Return a finding in the form of `--json`."""
    return finding.document() if hasattr(finding, "document") else str(finding)


def message_of(error: BaseException) -> tuple[str, str]:
    """Return the message of an error, and its fix if it names one."""
    if isinstance(error, DocumentError) and hasattr(error, "place"):
        return f"{error.place}: {error.message}", error.fix
    if isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, LeadhandError):
        text = str(error)
    elif isinstance(error, OSError) and error.errno is not None:
        name = f"{error.filename}: " if error.filename else ""
        text = f"{name}{error.strerror}"
    else:
        text = f"{type(error).__name__}: {error}"
    message, _, fix = text.partition(" Fix: ")
    return message, fix


def _code(error: BaseException) -> str:
    if isinstance(error, click.ClickException):
        return "usage-error"
    if isinstance(error, LeadhandError):
        name = type(error).__name__
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
    return "os-error" if exit_code_of(error) != 70 else "bug"


def _tell(error: BaseException) -> None:
    message, fix = message_of(error)
    bug = exit_code_of(error) == 70
    if isinstance(error, PlanInvalid):
        _write(clean_lines(message))
        total = len(error.findings)
        message = f"the plan has {total} error{'' if total == 1 else 's'}; {error.done}"
    if bug:
        fix = "Set LEADHAND_DEBUG=1 to see where, and please report it."
        message = f"this is a bug in Leadhand: {message}"
    _write(error_line(message))
    if fix:
        _write(f"  {fix}")
    if os.environ.get("LEADHAND_DEBUG") and (bug or not isinstance(error, LeadhandError | Bug)):
        traceback.print_exception(error)


def _tell_usage(error: click.ClickException) -> None:
    message, fix = message_of(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        _write(message)  # the help itself
        return
    _write(error_line(message))
    ctx = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        fix = fix or ELSEWHERE.get((ctx.info_name or "", error.option_name), "")
    if fix:
        _write(f"  {fix}")
    if ctx is not None and ctx.parent is not None:
        _write(f"  `{ctx.command_path} --help` says more.")


def _print_document(error: click.ClickException) -> None:
    with stdout_guard(as_json=True) as console:
        console.document(error_document(error))


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{text}\n")


def _forget_stdout() -> None:
    """Detach from a reader that has left, so that nothing complains at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
