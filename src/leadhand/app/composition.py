"""From settings to the parts of a Lead: workers, planners, reviewers, MCP servers."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand import plugins
from leadhand.core.catalog import Catalog
from leadhand.core.plan.model import GOAL_PLANNER
from leadhand.core.wording import closest, listed, shown
from leadhand.errors import UsageError
from leadhand.settings import Settings, source_of
from leadhand.settings.folders import FOLDER
from leadhand.settings.notify import secret_files
from leadhand.settings.sections import section_of
from leadhand.settings.trust import refuse_code, require, state_folder
from leadhand.stores.location import home
from leadhand.stores.permissions import kept_by

if TYPE_CHECKING:
    from leadhand.core.lint.rules import Level
    from leadhand.core.plan.model import Doc
    from leadhand.workers.mcp.server import McpServer
    from leadhand.workers.registry import Registry

PLANNER_FIELDS = ("name", "replans", "splits", "consult")
"""What a run reads of its planner beside `decide`: see `ports.Planner`."""


def parts_of(settings: Settings) -> Doc:
    """Return the arguments of a `Lead` that these settings configure, but for a service elsewhere.

    This imports the modules that the settings name and may start MCP servers. Raise `UsageError`
    for a part that cannot be loaded.
    """
    return {
        "workers": registry_of(settings),
        "planner": planner_of(settings.planner, settings) if settings.planner else None,
        "store": settings.store,
        "policy": settings.policy,
        "actor": settings.actor,
        "environment": settings.environment,
        "anchoring": settings.anchoring,
        "reviewers": reviewers_of(settings),
        "key": settings.approver_key,
        "models": settings.book,
    }


def registry_of(settings: Settings, sources: Iterable[str] | None = None) -> Registry:
    """Return the configured workers: from modules, and declared in settings files.

    Raise `NotTrusted` for a source named by neither trusted settings nor the person.
    """
    from leadhand.workers.declared import declared_workers
    from leadhand.workers.registry import Registry, load_workers

    chosen = settings.workers if sources is None else tuple(sources)
    for source in chosen:
        refuse_code(settings, "workers", source_of(source, Path.cwd()))
    if chosen or settings.trust is None or not settings.not_loaded:
        _importable(settings.root)
    found: list[Any] = []
    for source in chosen:
        found += load_workers(source)
    found += _declared(settings, "workers", settings.declared, settings.folders, declared_workers)
    left_out: dict[str, str] = {}
    if settings.mcp:
        from leadhand.workers.mcp.declared import declared_tools

        tools = partial(declared_tools, left_out=left_out, tokens=state_folder(os.environ))
        found += _declared(settings, "mcp", settings.mcp, settings.mcp_folders, tools)
    registry = Registry(found)
    registry.left_out = left_out
    if settings.agents:
        from leadhand.workers.agent.declared import declared_agents

        make = partial(declared_agents, registry=registry)
        registry.add(_declared(settings, "agents", settings.agents, settings.agent_folders, make))
    registry.use_models(settings.book)
    registry.hidden = tuple(_private(settings))
    return registry


def _private(settings: Settings) -> Iterable[Path]:
    """Yield the files that would let a process act on behalf of a person."""
    keys = [settings.approver_key, settings.anchoring.key, settings.anchoring.file]
    yield from (key for key in keys if key is not None)
    yield from secret_files(settings.notify)
    for section in map(section_of, settings.sections):
        yield from section.private(section.of(settings)) if section is not None else ()
    yield state_folder(os.environ)
    yield settings.root / FOLDER
    yield from kept_by(home(settings.store).resolve())


def known_catalog(settings: Settings, registry: Registry) -> Catalog:
    """Return the catalog to check a plan against: empty if configured workers are not loaded."""
    return Catalog(()) if settings.not_loaded else registry.catalog()


def mcp_servers_of(settings: Settings) -> dict[str, McpServer]:
    """Return the configured MCP servers by name; none of them is contacted."""
    from leadhand.workers.mcp.declared import declared_servers

    made = _declared(
        settings,
        "mcp",
        settings.mcp,
        settings.mcp_folders,
        lambda tables, folder: [
            *declared_servers(tables, folder, state_folder(os.environ)).values()
        ],
    )
    return {server.name: server for server in made}


def _declared(
    settings: Settings,
    table: str,
    declared: Mapping[str, Doc],
    folders: Mapping[str, Path],
    make: Callable[[dict[str, Doc], Path], list[Any]],
) -> list[Any]:
    """Return the declarations of all files; errors name the file they are in."""
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


def planner_of(name: str, settings: Settings) -> Any:
    """Return the planner of a name. Raise `UsageError` if there is none.

    `name`: `goal`, a model or a tier, `module:function` or `file.py:function`, or the name of a
    planner that an installed package provides (entry points `leadhand.planners`).
    """
    if name == "goal":
        from leadhand.planners.goal.planner import GoalPlanner

        return GoalPlanner()
    from leadhand.models.names import TIERS, is_model_name

    if is_model_name(name, (*TIERS, *settings.models)):
        from leadhand.app.planner_choice import model_planner

        settings.book.refuse_unready(name)
        return model_planner(name, settings.book, **settings.planning)
    if (part := plugins.part("planners", name)) is not None:
        refuse_code(settings, "planner", name)
        return _as_planner(part.load(), name, f"planner {name} of the package {part.package}")
    from leadhand.workers.functions.snapshot import load_module

    module_name, _, function = name.rpartition(":")
    if not module_name or not function.isidentifier():
        known = plugins.parts("planners")
        others = f", one of an installed package ({listed(known)})" if known else ""
        raise UsageError(
            f"{name!r} does not name a planner. "
            f"Fix: write goal, a model as in anthropic:claude-opus-4-5{others}, or MODULE:FUNCTION."
        )
    place = source_of(module_name, Path.cwd())
    refuse_code(settings, "planner", f"{place}:{function}")
    _importable(settings.root)
    planner = getattr(load_module(place), function, None)
    if planner is None:
        raise UsageError(f"{module_name} has no {function!r}")
    return _as_planner(planner, f"{place}:{function}", name)


def _as_planner(found: Any, source: str, what: str) -> Any:
    """Return a loaded object as a planner: a planner, a class of planners, or a function."""
    from leadhand.planners.script import ScriptPlanner

    if not callable(found) and not hasattr(found, "decide"):
        raise UsageError(f"{what} is neither a function nor a planner")
    if isinstance(found, type) and hasattr(found, "decide"):
        found = found()
    made = found if hasattr(found, "decide") else ScriptPlanner(found)
    if missing := [name for name in PLANNER_FIELDS if not hasattr(made, name)]:
        raise UsageError(f"{what} lacks {listed(missing)}. Fix: see leadhand.ports.Planner")
    if hasattr(made, "source"):
        made.source = source  # a resumed run finds it there
    return made


def planner_problem(
    name: str, settings: Settings, *, running: bool = True, served: bool = False
) -> tuple[str, str, Level] | None:
    """Return why a plan document cannot name this planner here, a fix and a level; or None.

    A document may come from anywhere: it chooses neither code to be loaded nor an address to be
    contacted. Those are named by `--planner` or by settings. Nothing is loaded here. `running`:
    whether the plan is about to run. `served`: whether it came in a request: then only models of
    the settings are allowed.
    """
    if name == GOAL_PLANNER or same_planner(name, settings.planner):
        return None
    known = settings.book.names
    level: Level = "error" if running else "warning"
    trust = f"If you trust it, give --planner {name}, or set [project] planner in leadhand.toml."
    if settings.book.knows(name):
        if name in known or not (served or "@http" in name):
            return None
        what = f"the plan names the model {shown(name)}, which no setting names"
        return what, f"Name it in [models] of leadhand.toml. {trust}", level
    part = plugins.part("planners", name)
    module_name, _, function = name.rpartition(":")
    if part is not None or (module_name and function.isidentifier()):
        what = (
            f"the plan names code as its planner, {shown(name)}, and no plan chooses what is loaded"
        )
        return what, trust, level
    meant = closest(name, (GOAL_PLANNER, *known))
    fix = "Write goal, a model as in anthropic:claude-opus-4-5, a tier, or MODULE:FUNCTION."
    guess = f'Did you mean "{meant}"? ' if meant else ""
    return f"{shown(name)} does not name a planner", f"{guess}{fix}", "error"


def planner_name(settings: Settings) -> str:
    """Return the name of the configured planner, as plans and runs record it.

    As given, if that finds it from the working folder; else with its file's full path.
    """
    given = settings.planner_given
    return given if same_planner(given, settings.planner) else settings.planner


def same_planner(one: str, other: str) -> bool:
    """Return whether two names are of the same planner; files are compared by their paths."""
    return bool(one) and _placed(one) == _placed(other)


def _placed(name: str) -> str:
    module_name, _, function = name.rpartition(":")
    return f"{source_of(module_name, Path.cwd())}:{function}" if module_name else name


def telemetry_of(settings: Settings) -> None:
    """Enable the export of spans, if the settings say so."""
    if settings.telemetry.get("contents"):
        from leadhand.models.call_record import record_contents

        record_contents(on=True)
    if settings.telemetry.get("enabled"):
        from leadhand.models.telemetry import export

        export(contents=bool(settings.telemetry.get("contents")))


def reviewers_of(settings: Settings) -> dict[str, Any]:
    """Return the automatic reviewers of the settings, by name."""
    from leadhand.workers.functions.snapshot import load_module

    found: dict[str, Any] = {}
    if settings.trust is not None:
        require(settings, settings.trust)
    for name in settings.policy.reviewers:
        if (part := plugins.part("reviewers", name)) is not None:
            found[name] = part.load()
            continue
        module_name, _, function = name.rpartition(":")
        _importable(settings.root)
        reviewer = getattr(load_module(source_of(module_name, settings.root)), function, None)
        if not callable(reviewer):
            raise UsageError(f"[review] reviewers: {module_name} has no function {function!r}")
        found[name] = reviewer
    return found


def _importable(root: Path) -> None:
    """Make modules importable beside the settings that name them, as with `python -m`."""
    for folder in (str(root), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.append(folder)
    importlib.invalidate_caches()
