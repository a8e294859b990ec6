"""Shared by several commands: options, settings, workers, planners and plans."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadhand import plugins
from leadhand.cli.console import HOSTS
from leadhand.cli.rendering.text import clean
from leadhand.errors import UsageError
from leadhand.settings import Settings, load_settings
from leadhand.settings.product_logs import ProductLog, log_of_run
from leadhand.settings.trust import Trust, looking, remember_named, require, untrusted_entries

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.cli.console import Console
    from leadhand.core.lint.findings import Finding
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.settings.contexts import ContextSettings
    from leadhand.settings.trust import TrustEntry

F = TypeVar("F", bound=Callable[..., Any])

RUNS = ("run", "ident", "what", "a")
"""Arguments that may name a run."""
TRUST = "leadhand.trust"
"""The key in a command's context for `--trust`."""
NO_CATALOG = "no workers are configured, so nothing is said about them; give --workers"


def store_option(function: F) -> F:
    """Add `--store PATH`, and an option for each service that hosts runs, such as `--temporal`."""
    made = click.option(
        "--store",
        metavar="PATH",
        help="The database: a file or postgres://USER@HOST/DATABASE; the default is "
        ".leadhand/leadhand.db.",
    )
    for part in _host_parts():
        service = click.option(
            part.option,
            metavar=part.metavar,
            expose_value=False,
            callback=_remember_host,
            help=part.help,
        )
        function = service(function)
    return made(function)


def _host_parts() -> list[plugins.HostPart]:
    """Return the services of installed packages that host runs."""
    return [part.load() for part in plugins.parts("hosts").values()]


def _remember_host(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember a service for `settings_of`, and for the hints of a command."""
    if value:
        ctx.meta.setdefault(HOSTS, {})[option.opts[0]] = value


def workers_option(function: F) -> F:
    """Add `--workers MODULE`, and `--trust`."""
    made = click.option(
        "--workers",
        "workers",
        multiple=True,
        metavar="MODULE",
        help="A module or .py file with workers; repeat the option for several.",
    )
    return made(trust_option(function))


def trust_option(function: F) -> F:
    """Add `--trust`: load the entries of this folder's settings, in this command only."""
    made = click.option(
        "--trust",
        is_flag=True,
        expose_value=False,
        callback=_remember_trust,
        help="Trust the settings of this folder for this command; `leadhand trust` stores it.",
    )
    return made(function)


def _remember_trust(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's form
    """Remember `--trust` for `settings_of`."""
    ctx.meta[TRUST] = value


def set_option(function: F) -> F:
    """Add `--set K=V`."""
    made = click.option(
        "--set", "sets", multiple=True, metavar="K=V", help="The value of a parameter of the plan."
    )
    return made(function)


def context_option(function: F) -> F:
    """Add `--context NAME`."""
    made = click.option(
        "--context",
        metavar="NAME",
        help="The environment that the plan runs in: [context.NAME] of the settings.",
    )
    return made(function)


def settings_of(
    store: str | None = None,
    workers: Iterable[str] = (),
    planner: str | None = None,
    *,
    context: str | None = None,
    executes: Console | None = None,
    **policy: Any,
) -> Settings:
    """Return the settings with a command's flags.

    A command that executes code or contacts addresses of the settings passes its console as
    `executes`: on a terminal the person is asked to trust new entries, elsewhere `NotTrusted` is
    raised. Every other command gets the settings without them (`not_loaded`).
    """
    flags = {"project.store": store, "project.planner": planner}
    command = click.get_current_context(silent=True)
    hosts = command.meta.get(HOSTS, {}) if command is not None else {}
    flags |= {part.key: hosts.get(part.option) for part in _host_parts()}
    flags["project.workers"] = list(workers) or None  # type: ignore[assignment]
    flags |= {f"policy.{key}": value for key, value in policy.items()}
    found = load_settings(flags, context=context)
    trust = Trust.here(everything=bool(command is not None and command.meta.get(TRUST)))
    found = looking(found, trust) if executes is None else _to_execute(executes, found, trust)
    log = _log_of_named_run()
    store_of_log = log.store(found) if log is not None else None
    return replace(found, store=store_of_log) if store_of_log is not None else found


def _to_execute(console: Console, settings: Settings, trust: Trust) -> Settings:
    """Return the settings, trusted by an earlier answer or by one at the terminal."""
    missing = untrusted_entries(settings, trust)
    if missing and console.can_prompt:
        ask_trust(console, trust, missing)
    found = require(settings, trust)
    remember_named(found)
    return found


class FolderPath(click.Path):
    """A folder; an empty text is refused, for an unset variable must not mean this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not str(value):
            self.fail("is empty; is a variable not set? Fix: write . for this folder", param, ctx)
        return super().convert(value, param, ctx)


def ask_trust(console: Console, trust: Trust, missing: Sequence[TrustEntry]) -> bool:
    """Show what would be executed or contacted, ask, and store a yes; return whether it was one."""
    for folder in dict.fromkeys(each.folder for each in missing):
        known = folder in trust.known()
        what = "has new entries since you trusted it" if known else "is not trusted yet"
        console.say(f"{clean(folder)} {what}. Its settings would execute or contact:")
        for each in missing:
            if each.folder == folder:
                console.say(f"  {clean(each, 300)}")
    from leadhand.cli.terminal import confirm

    if not confirm("Do you trust them?"):
        return False
    trust.remember(missing)
    return True


def say_not_loaded(console: Console, settings: Settings) -> None:
    """Say which entries were left out, and how to include them."""
    missing = settings.not_loaded
    for folder in dict.fromkeys(each.folder for each in missing):
        names = ", ".join(clean(each, 200) for each in missing if each.folder == folder)
        console.say(f"not loaded, since {clean(folder)} is not trusted: {names}")
        console.say(f"  Read them, then: leadhand trust {shlex.quote(folder)}")


def _log_of_named_run() -> ProductLog | None:
    """Return the log of the product's run that the command names; None for the project's own.

    A plan may have the name of a run, so a file is a file, and `run` takes no runs.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.info_name == "run":
        return None
    given = [context.params.get(name) for name in RUNS]
    logs = [log_of_run(each) for each in given if isinstance(each, str) and not Path(each).exists()]
    return next((log for log in logs if log is not None), None)


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return `K=V` texts as a mapping. Raise `UsageError` for a malformed one."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r}: write it as NAME=VALUE")
        if key.strip() in found:
            raise UsageError(f"{option} {key.strip()}: is given twice")
        found[key.strip()] = value
    return found


def json_pairs(texts: Iterable[str], option: str) -> Doc:
    """Return `K=V` texts as a mapping; values that are JSON are read as JSON."""
    from leadhand.codec.documents import is_json, read_value

    return {
        key: read_value(text, f"{option} {key}") if is_json(text) else text
        for key, text in pairs(texts, option).items()
    }


def read_plan(source: str) -> Doc:
    """Read a plan document from a file, or from standard input for `-`."""
    from leadhand.codec.documents import BYTES_MAX, read_document

    if source == "-":
        return read_document(sys.stdin.buffer.read(BYTES_MAX + 1), name="standard input")
    return read_document(Path(source))


def values_of(
    doc: Doc, sets: Mapping[str, str], context: ContextSettings | None = None
) -> tuple[Doc, list[Any]]:
    """Return the plan's parameters with `--set` and the context, and the findings."""
    from leadhand.codec.documents import is_json, read_value
    from leadhand.core.plan.parameters import bind_texts, is_text

    declared = doc.get("params", {})
    declared = declared if isinstance(declared, dict) else {}
    for name, text in sets.items():
        if not is_text(declared.get(name)) and is_json(text):
            read_value(text, f"--set {name}")  # refuses numbers that do not fit, and duplicate keys
    return bind_texts(declared, sets, context.params if context else None)


def told_values(
    doc: Doc, sets: Mapping[str, str], context: ContextSettings | None
) -> tuple[Doc | None, list[Any]]:
    """Return parameters of a plan that need not run yet: without `--set`, some may be missing."""
    if not sets and context is None:
        return None, []
    values, wrong = values_of(doc, sets, context)
    if sets:
        return values, wrong
    kept = [each for each in wrong if each.rule != "param-missing"]
    return (values if len(kept) == len(wrong) else None), kept


def without_echo(wrong: Iterable[Finding], found: Iterable[Finding]) -> list[Finding]:
    """Return all findings; an unreadable parameter is not reported missing too."""
    places = {each.place for each in wrong}
    rest = (each for each in found if each.rule != "param-missing" or each.place not in places)
    return [*wrong, *rest]


@contextlib.contextmanager
def reading(settings: Settings) -> Iterator[Reader]:
    """Open the database for reading, whether it has a host or not."""
    from leadhand.app import reader

    with reader.reading(settings.store) as opened:
        yield opened


def stopped_by(reader: Reader) -> str:
    """Return the person who stopped all runs of the database; "" if none did."""
    shared = reader.host_state()
    return (shared.stopped_by or "somebody") if shared.stopped else ""


def driver_of(settings: Settings, reader: Reader, state: State) -> int:
    """Return the process here that drives a run now, or 0: a host need not drive every run."""
    from leadhand.app.documents import Driver

    return int(Driver.of(settings.store, reader).drives(state))


def actor_of(settings: Settings) -> str:
    """Return the acting person: as configured, else the name of the account.

    In the session of a coding agent it is the agent, whatever is configured.
    """
    import getpass

    from leadhand.engine.agent_session import actor_here

    if agent := actor_here():
        return agent
    if settings.actor:
        return settings.actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def several(given: Iterable[str]) -> tuple[str, ...]:
    """Return the values of an option that may be repeated, or hold several with commas."""
    names = (name.strip() for each in given for name in each.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
