"""The repositories of a fleet: the main one, and further ones by name.

    [fleet]                            the main repository, which tasks mean that name none
    [fleet.repositories.lib]           another one; a task says `repository: lib`

Laws
    1. A step belongs to exactly one repository. Its paths are relative to it, its commands run in
       it, its commit lands on its branch.
    2. Each has a hub, slots, a gate and a merge queue of its own. The log of the runs, the places
       of agents, usage limits and budgets are the fleet's: there is one of each.
    3. Paths of two repositories never overlap, whatever they are called.
    4. A dependency across repositories is one like any other: a task begins when the change that it
       waits for is on the branch of its own repository. Git says so, not a message.

The hubs of a fleet with several repositories can be read by its gates and agents, as bare
repositories of git, under `LEADHAND_REPOSITORY_NAME`. What a gate takes from another one is named
by a commit in the files that it tests: so the same tree has the same verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadhand.core.wording import closest, listed
from leadhand.fleet.status.ladder import MAIN_REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from leadhand.core.state.model import State

FOLDER = "repositories"
VARIABLE = "LEADHAND_REPOSITORY_"


def repository_folder(folder: Path, name: str) -> Path:
    """Return the folder of one repository below a fleet's folder, or below that of checkouts."""
    return folder / FOLDER / name if name else folder


def hub_folders(folder: Path) -> dict[str, Path]:
    """Return the hubs of a fleet that exist, by the name of the repository; the main one is ""."""
    others = sorted((folder / FOLDER).glob("*")) if (folder / FOLDER).is_dir() else []
    found = {"": folder / "hub"} | {each.name: each / "hub" for each in others}
    return {name: hub for name, hub in found.items() if (hub / "hub.git").is_dir()}


def variables(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the environment that tells gates and agents where the hubs are; {} if there is one."""
    every = {name: repository_folder(folder, name) / "hub" / "hub.git" for name in ("", *names)}
    if len(every) == 1:
        return {}
    return {variable_of(name): str(path) for name, path in every.items()}


def variable_of(name: str) -> str:
    """Return the environment variable that holds the path of a repository's hub."""
    return VARIABLE + (name or MAIN_REPOSITORY).upper().replace("-", "_")


def repository_of(step: Mapping[str, Any]) -> str:
    """Return the repository of a step, by its document; the main one is ""."""
    given = step.get("parameters")
    return str(given.get("repository", "")) if isinstance(given, Mapping) else ""


def qualified(repository: str, paths: Iterable[str]) -> list[str]:
    """Return paths as a plan reserves them: those of other repositories begin with their name."""
    return [f"{repository}:/{path}" if repository else path for path in paths]


def unknown_repository(name: str, names: Sequence[str]) -> str:
    """Return what is wrong with the name of a repository, and the fix; empty if it is one."""
    if name in ("", MAIN_REPOSITORY, *names):
        return ""
    if not names:
        fix = "Fix: leave it out, or configure it as [fleet.repositories.NAME]"
        return f"its repository {name!r} is none of this fleet's, which has one. {fix}"
    meant = closest(name, names)
    fix = f"did you mean {meant!r}?" if meant else f"there are: {listed((MAIN_REPOSITORY, *names))}"
    return f"its repository {name!r} is none of this fleet's; {fix}"


# What landed where.


def repositories_in(state: State) -> list[str]:
    """Return the repositories that the tasks of a run belong to, in the order of the plan."""
    found = (repository_of(step.doc) for step in state.steps.values())
    return list(dict.fromkeys(found)) or [""]


def landed_words(landed: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Return in one sentence what is on which branch: tasks with their commits, by repository."""
    parts = [
        f"{name or MAIN_REPOSITORY}: "
        + (", ".join(f"{task} as {sha[:12]}" for task, sha in tasks) or "nothing")
        for name, tasks in landed.items()
    ]
    return f"Landed: {'; '.join(parts)}."


def landed_in(state: State) -> dict[str, list[tuple[str, str]]]:
    """Return the tasks of a run that have landed, with their commits, by repository."""
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in repositories_in(state)}
    for step in state.steps.values():
        data: Any = step.data
        if step.status == "succeeded" and isinstance(data, dict) and data.get("files") is not None:
            row = (step.id, str(data.get("commit", "")))
            found.setdefault(repository_of(step.doc), []).append(row)
    return found
