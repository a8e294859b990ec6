"""What several commands share: options, settings, workers, planners and plans."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadhand.errors import UsageError
from leadhand.settings import Settings, load_settings, source_of

if TYPE_CHECKING:
    from leadhand.app.reader import Reader
    from leadhand.core.findings import Finding
    from leadhand.core.plan import Doc
    from leadhand.core.state import State
    from leadhand.models.book import Book
    from leadhand.settings.contexts import Context
    from leadhand.workers.mcp.server import McpServer
    from leadhand.workers.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])

NO_CATALOG = "no workers are configured, so nothing is said about them; give --workers"


def store_option(function: F) -> F:
    """`--store PATH`."""
    made = click.option(
        "--store", metavar="PATH", help="The database; default .leadhand/leadhand.db."
    )
    return made(function)


def workers_option(function: F) -> F:
    """`--workers MODULE`."""
    made = click.option(
        "--workers",
        "workers",
        multiple=True,
        metavar="MODULE",
        help="A module or .py file that holds workers; may be given several times.",
    )
    return made(function)


def set_option(function: F) -> F:
    """`--set K=V`."""
    made = click.option(
        "--set", "sets", multiple=True, metavar="K=V", help="A value for a parameter of the plan."
    )
    return made(function)


def context_option(function: F) -> F:
    """`--context NAME`."""
    made = click.option(
        "--context", metavar="NAME", help="The place it runs in: [context.NAME] of the settings."
    )
    return made(function)


def settings_of(
    store: str | None = None,
    workers: Iterable[str] = (),
    planner: str | None = None,
    *,
    context: str | None = None,
    **policy: Any,
) -> Settings:
    """Settings with a command's flags put in."""
    flags = {"project.store": store, "project.planner": planner}
    flags["project.workers"] = list(workers) or None  # type: ignore[assignment]
    flags |= {f"policy.{key}": value for key, value in policy.items()}
    return load_settings(flags, context=context)


def registry_of(settings: Settings, sources: Iterable[str] | None = None) -> Registry:
    """The workers that are configured: from modules, and declared in settings files."""
    from leadhand.workers.declared import declared_workers
    from leadhand.workers.registry import Registry, load_workers

    _importable(settings.root)
    found: list[Any] = []
    for source in settings.workers if sources is None else sources:
        found += load_workers(source)
    found += _declared(settings, "workers", settings.declared, settings.folders, declared_workers)
    if settings.mcp:
        from leadhand.workers.mcp.declared import declared_tools

        found += _declared(settings, "mcp", settings.mcp, settings.mcp_folders, declared_tools)
    registry = Registry(found)
    if settings.agents:
        from leadhand.workers.agent.declared import declared_agents

        make = partial(declared_agents, registry=registry)
        registry.add(_declared(settings, "agents", settings.agents, settings.agent_folders, make))
    registry.use_models(settings.book)
    return registry


def mcp_servers_of(settings: Settings) -> dict[str, McpServer]:
    """The MCP servers that are configured, by name; none of them is spoken to."""
    from leadhand.workers.mcp.declared import declared_servers

    made = _declared(
        settings,
        "mcp",
        settings.mcp,
        settings.mcp_folders,
        lambda tables, folder: [*declared_servers(tables, folder).values()],
    )
    return {server.name: server for server in made}


def _declared(
    settings: Settings,
    table: str,
    declared: Mapping[str, Doc],
    folders: Mapping[str, Path],
    make: Callable[[dict[str, Doc], Path], list[Any]],
) -> list[Any]:
    """What the tables of all files declare; what is wrong is said with the file it stands in."""
    found: list[Any] = []
    for origin in dict.fromkeys(settings.origin(f"{table}.{name}") for name in declared):
        tables = {
            name: each
            for name, each in declared.items()
            if settings.origin(f"{table}.{name}") == origin
        }
        try:
            found += make(tables, folders[next(iter(tables))])
        except UsageError as error:
            lines = (f"{origin}: {line}" for line in str(error).split("\n"))
            raise UsageError("\n".join(lines)) from None
    return found


def planner_of(name: str, root: Path, book: Book | None = None) -> Any:
    """A planner: `goal`, a model or a tier by name, `module:function` or `file.py:function`."""
    if name == "goal":
        from leadhand.planners.goal.planner import GoalPlanner

        return GoalPlanner()
    from leadhand.models.names import TIERS, is_model_name

    if is_model_name(name, book.names if book is not None else TIERS):
        from leadhand.app.planning import model_planner

        return model_planner(name, book)
    from leadhand.planners.script import ScriptPlanner
    from leadhand.workers.loading import load_module

    module_name, _, function = name.rpartition(":")
    if not module_name or not function.isidentifier():
        raise UsageError(
            f"{name!r} does not name a planner. "
            "Fix: write MODULE:FUNCTION, as in planning:next_step, or goal."
        )
    _importable(root)
    place = source_of(module_name, Path.cwd())
    planner = getattr(load_module(place), function, None)
    if planner is None:
        raise UsageError(f"{module_name} has no {function!r}")
    if not callable(planner) and not hasattr(planner, "decide"):
        raise UsageError(f"{name} is neither a function nor a planner")
    made = planner if hasattr(planner, "decide") else ScriptPlanner(planner)
    if hasattr(made, "source"):
        made.source = f"{place}:{function}"  # a run that is taken up again finds it there
    return made


def reviewers_of(settings: Settings) -> dict[str, Any]:
    """The automatic reviewers that the settings name, by those names."""
    from leadhand.workers.loading import load_module

    found: dict[str, Any] = {}
    for name in settings.policy.reviewers:
        module_name, _, function = name.rpartition(":")
        _importable(settings.root)
        reviewer = getattr(load_module(source_of(module_name, settings.root)), function, None)
        if not callable(reviewer):
            raise UsageError(f"[review] reviewers: {module_name} has no function {function!r}")
        found[name] = reviewer
    return found


def _importable(root: Path) -> None:
    """Modules named in settings are found beside them, as with `python -m`."""
    for folder in (str(root), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.append(folder)
    importlib.invalidate_caches()


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`K=V` texts as a mapping."""
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
    """`K=V` texts whose values are JSON where they can be read so, else texts."""
    from leadhand.codec.documents import is_json, read_value

    return {
        key: read_value(text, f"{option} {key}") if is_json(text) else text
        for key, text in pairs(texts, option).items()
    }


def read_plan(source: str) -> Doc:
    """A plan document from a file, or from standard input for `-`."""
    from leadhand.codec.documents import BYTES_MAX, read_document

    if source == "-":
        return read_document(sys.stdin.buffer.read(BYTES_MAX + 1), name="standard input")
    return read_document(Path(source))


def values_of(
    doc: Doc, sets: Mapping[str, str], context: Context | None = None
) -> tuple[Doc, list[Any]]:
    """The plan's parameters with `--set` and the context put in, and what is wrong with them."""
    from leadhand.codec.documents import is_json, read_value
    from leadhand.core.check import bind_texts
    from leadhand.core.params import is_text

    declared = doc.get("params", {})
    declared = declared if isinstance(declared, dict) else {}
    for name, text in sets.items():
        if not is_text(declared.get(name)) and is_json(text):
            read_value(text, f"--set {name}")  # numbers that do not fit, keys that stand twice
    return bind_texts(declared, sets, context.params if context else None)


def told_values(
    doc: Doc, sets: Mapping[str, str], context: Context | None
) -> tuple[Doc | None, list[Any]]:
    """The same for a plan that need not run yet: without `--set`, values may be missing."""
    if not sets and context is None:
        return None, []
    values, wrong = values_of(doc, sets, context)
    if sets:
        return values, wrong
    kept = [each for each in wrong if each.rule != "param-missing"]
    return (values if len(kept) == len(wrong) else None), kept


def without_echo(wrong: Iterable[Finding], found: Iterable[Finding]) -> list[Finding]:
    """All findings; a parameter whose value could not be read is not reported missing too."""
    places = {each.place for each in wrong}
    rest = (each for each in found if each.rule != "param-missing" or each.place not in places)
    return [*wrong, *rest]


@contextlib.contextmanager
def reading(settings: Settings) -> Iterator[Reader]:
    """The database, for reading, whether it has a host or not."""
    import asyncio

    from leadhand.app.reader import Reader

    reader = Reader(settings.store)
    try:
        yield reader
    finally:
        asyncio.run(reader.close())


def driver_of(settings: Settings, reader: Reader, state: State) -> int:
    """The process that drives a run now, or 0: a database may have a host that does not."""
    from leadhand.app.door import host_info

    holder = host_info(settings.store)
    if holder is None or state.owner != reader.host_state().owner:
        return 0
    return int(holder["pid"])


def actor_of(settings: Settings) -> str:
    """Who speaks: as configured, else the name the operating system knows."""
    import getpass

    if settings.actor:
        return settings.actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def several(given: Iterable[str]) -> tuple[str, ...]:
    """The values of an option that may be repeated, or hold several with commas between them."""
    names = (name.strip() for each in given for name in each.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
