"""The planner that `[fleet] planner` names: a tier, a model, a function or a command."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.errors import UsageError
from leadhand.fleet.budget import DAY_S
from leadhand.fleet.planning.backends import backend_of
from leadhand.fleet.planning.lint import PlanRules
from leadhand.fleet.planning.planner import EpicPlanner, FurtherRepository, PlannerSources
from leadhand.fleet.repositories import repository_folder
from leadhand.fleet.settings import fleet_of
from leadhand.settings import source_of
from leadhand.workers.functions.snapshot import load_module
from leadhand.workers.sandbox.sandbox import PATH, PLANNER, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leadhand.core.policy import Policy
    from leadhand.fleet.budget import DailyBudget
    from leadhand.fleet.context import FleetContext, RepositoryConfig
    from leadhand.fleet.gate.gate import GateRules
    from leadhand.fleet.planning.backends import Backend
    from leadhand.fleet.planning.record import PlannedEpic
    from leadhand.fleet.repository.hub import Hub
    from leadhand.fleet.service import FleetConfig
    from leadhand.settings import Settings
    from leadhand.workers.processes.runner import Processes
    from leadhand.workers.sandbox.sandbox import Sandbox


# Programs that acceptance commands can start: in the gate's PATH and inside its sandbox.


def is_there(name: str, sandbox: Sandbox, env: Mapping[str, str]) -> bool:
    """Return whether the gate can start a program of this name or at this absolute path."""
    places = [each for each in env.get("PATH", PATH).split(os.pathsep) if each.startswith("/")]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        return False
    if sandbox.kind == "none":
        return True
    shown = [*SYSTEM, sys.base_prefix, *map(str, sandbox.readable)]
    # A link is followed inside too: both its place and its end must be there.
    return all(_below(path, shown) for path in (Path(found), Path(found).resolve()))


def _below(path: Path, folders: Iterable[str]) -> bool:
    return any(
        path.is_relative_to(folder) or path.is_relative_to(Path(folder).resolve())
        for folder in folders
    )


IDLE_MAX = 1000
"""Revisions without a new result: an epic's own counters end it long before."""
RESTARTS_FREE = 50
PLANNER_S = 2.0 * DAY_S
"""For one decision. Backends have clocks of their own, and troubles that pass are waited out for a
bounded time: some hours in all. But the day's money may be back only after midnight."""


MAP_FILE = "map.jsonl"
"""What files of the repository hold, in the fleet's folder."""


def planner_of(settings: Settings) -> Any:
    """Return the value for `FleetConfig.planner`. Raise `UsageError` for a missing part."""
    return planner_named(settings, fleet_of(settings).planner)


def planner_named(settings: Settings, wanted: Sequence[str]) -> Any:
    """Return the planner that words name as `[fleet] planner` does; None for no words.

    Raise `UsageError` if there is none of that name.
    """
    if not wanted:
        return None
    if len(wanted) > 1:
        return [_found(word, settings.root) for word in wanted]
    (name,) = wanted
    if settings.book.knows(name):
        settings.book.refuse_unready(name)
        return name
    place, _, function = name.rpartition(":")
    if not place or not function.isidentifier():
        raise UsageError(
            f"[fleet] planner: {name!r} names no planner. Fix: write a tier or a model, as in "
            '"lead"; a function, as in "plan.py:next_wave"; or a command, as in ["python", "p.py"].'
        )
    found = getattr(load_module(source_of(place, settings.root)), function, None)
    if not callable(found):
        raise UsageError(f"[fleet] planner: {place} has no function {function!r}")
    return found


def _found(word: str, root: Path) -> str:
    """Return the absolute name of a file of the project: a command runs in another folder."""
    place = root / word
    return str(place) if not word.startswith("-") and place.is_file() else word


def epic_planner(
    config: FleetConfig,
    shop: FleetContext,
    processes: Processes,
    purse: DailyBudget,
    tiers: Sequence[str],
    past: Callable[[], list[PlannedEpic]],
    others: Mapping[str, FleetContext] | None = None,
) -> EpicPlanner | None:
    """Return the planner of a fleet's epics; None if there is none.

    `others` are further repositories, by name.
    """
    if config.planner is None:
        return None
    backend = backend_of(
        config.planner,
        config.models,
        processes,
        shop.sandbox.through(PLANNER),
        network=config.planning.network,
        paid=lambda cost: shop.note("planned", cost=cost),
        purse=purse,
    )
    return EpicPlanner(
        shop.hub,
        backend,
        config.planning,
        protected=config.protected,
        tiers=tiers,
        sources=PlannerSources(past, _commands(config.gate), config.folder / MAP_FILE),
        has_program=lambda name: is_there(name, shop.sandbox, config.gate.env),
        others={
            name: _further(config.repositories[name], each, config.folder)
            for name, each in (others or {}).items()
        },
    )


def planner_at(
    config: FleetConfig,
    hub: Hub,
    backend: Backend,
    sandbox: Sandbox,
    tiers: Sequence[str],
    cache: Path,
) -> EpicPlanner:
    """Return a planner for another state of the main repository, and for no other repository.

    It is not told what came of earlier plans: they may be those that it is asked for.
    """
    return EpicPlanner(
        hub,
        backend,
        config.planning,
        protected=config.protected,
        tiers=tiers,
        sources=PlannerSources(gate=_commands(config.gate), cache=cache),
        has_program=lambda name: is_there(name, sandbox, config.gate.env),
    )


def _further(config: RepositoryConfig, shop: FleetContext, folder: Path) -> FurtherRepository:
    return FurtherRepository(
        shop.hub,
        config.sharing,
        config.protected,
        config.plan_paths,
        _commands(config.gate),
        repository_folder(folder, shop.name) / MAP_FILE,
        lambda name: is_there(name, shop.sandbox, config.gate.env),
    )


def _commands(gate: GateRules) -> tuple[dict[str, Any], ...]:
    """Return the commands of set-up and gate, as a planner is told them."""
    named = (("set-up", gate.setup), ("gate", gate.commands))
    return tuple({"for": what, "command": list(argv)} for what, argvs in named for argv in argvs)


def epic_policy(policy: Policy, agents: int) -> Policy:
    """Return the constants an epic is started with.

    Only few more tasks begin than there are places: a waiting task would lose an attempt when the
    fleet ends. Such a lost attempt uses up no try. A planner has the time that its rounds and the
    day's money take: three late answers would end the epic as failed.
    """
    return msgspec.structs.replace(
        policy,
        replans_idle_max=IDLE_MAX,
        planner_timeout_s=max(policy.planner_timeout_s, PLANNER_S),
        restarts_free=max(policy.restarts_free, RESTARTS_FREE),
        max_concurrency=min(policy.max_concurrency, 2 * agents + 4),
    )


def plan_rules(settings: Settings) -> PlanRules:
    """Return the limits of waves."""
    fleet = fleet_of(settings)
    return PlanRules(
        tasks=fleet.plan_tasks,
        files=fleet.plan_files,
        waves=fleet.plan_waves,
        paths=fleet.plan_paths,
        programs=fleet.plan_programs,
        network=bool(fleet.plan_hosts),
        sharing=fleet.sharing,
        changelog=fleet.changelog,
    )
