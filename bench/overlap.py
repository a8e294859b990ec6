"""How many changes of a real history could be at work at once: exclusive locks against a price.

    python -m bench.overlap [REPOSITORY] [--successive] [--half first|second]

Each window is 100 commits of at most 20 files, taken as tasks that are pending at the commit before
the first of them, with the files that they really changed as the paths they name and their subjects
as goals. A change of a file that another change of the window creates cannot be pending beside it,
and is left out; `--successive` takes every commit. A stretch of 200 commits ends a window early.

    exclusive    how many start if no two may share a file (files that only grow excepted)
    price        how many start by the fleet's own decision, which knows nothing after that commit
    expected     how many of those are expected to conflict
    touching     how many of those touch the lines of another one that started: real conflicts
    rewriting    how many more rewrite lines of another one that started. Made by one author after
                 the other they say nothing of two authors at once: the true share of conflicts
                 lies between `touching` alone and both
    redone       the share of all changes that is redone until all have landed, by both counts
    rounds       how often agents work until all have landed, each round as long as a task;
                 by the price and by exclusive locks

The constants of the price were chosen on the windows of the first half of the history of this
repository; `--half second` are the windows that it is judged by. Nothing is gated here.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadhand.fleet.boundaries import Sharing, clash
from leadhand.fleet.edit_history import (
    COMMITS_MAX,
    REWRITING,
    TOUCHING,
    CommitEdits,
    EditHistory,
    edits_of,
)
from leadhand.fleet.overlap_price import OverlapPrice, any_of
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.settings import APPEND, LOCK_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable

TASKS = 100
FILES_MAX = 20
STRETCH = 200
LEAST = 60
"""The fewest tasks of a window that is counted."""
SHARING = Sharing(APPEND, LOCK_FILES, price=True)


class Task(NamedTuple):
    """A change that is pending."""

    name: str
    goal: str
    paths: list[str]


class Started(NamedTuple):
    """The tasks that start at once, and how many of them are expected to conflict."""

    tasks: list[Task]
    expected: float = 0.0


def window(
    commits: list[CommitEdits], goals: dict[str, str], sharing: Sharing, *, every: bool
) -> tuple[list[Task], int]:
    """Return the pending changes at the head of these commits, and how many commits they span."""
    tasks: list[Task] = []
    created: set[str] = set()
    for number, commit in enumerate(commits):
        if len(tasks) == TASKS or (not every and number == STRETCH):
            return tasks, number
        touched = {*commit.files, *commit.renamed.values()}
        paths = sharing.reserved(sorted(touched))
        if 0 < len(paths) <= FILES_MAX and (every or created.isdisjoint(paths)):
            tasks.append(Task(commit.name, goals[commit.name], paths))
        created |= {*commit.created, *commit.renamed}
    return tasks, len(commits)


def started(tasks: Iterable[Task], price: OverlapPrice | None) -> Started:
    """Return the tasks that start beside each other, in their order; None: exclusive locks."""
    begun: list[Task] = []
    expected = 0.0
    for task in tasks:
        ahead = [each for each in begun if clash(task.paths, each.paths)]
        if price is None:
            if not ahead:
                begun.append(task)
            continue
        chances = [price.chance(task.paths, task.goal, each.paths, each.goal) for each in ahead]
        if price.allows(chances, len(chances)):
            begun.append(task)
            expected += any_of(chances)
    return Started(begun, expected)


def conflicts(tasks: list[Task], pairs: dict[tuple[str, str], int], least: int) -> set[str]:
    """Return the tasks that meet an earlier one of them at least so."""
    names = {task.name for task in tasks}
    return {b for (a, b), how in pairs.items() if how >= least and a in names and b in names}


def replay(
    tasks: list[Task], price: OverlapPrice | None, pairs: dict[tuple[str, str], int]
) -> tuple[int, int, int]:
    """Land all tasks in rounds; return the rounds, and how often one was redone by both counts.

    A task that conflicts works once more in the next round, beside the others, on their result.
    The price learns from each round, as it does in a fleet.
    """
    left, rounds, touching, both = list(tasks), 0, 0, 0
    while left:
        rounds += 1
        begun = started(left, price).tasks
        touching += len({b for b in conflicts(begun, pairs, TOUCHING) if _only(b, begun, pairs)})
        redo = conflicts(begun, pairs, TOUCHING)
        both += len(redo)
        for task in begun if price is not None else ():
            others = [path for each in begun if each is not task for path in each.paths]
            met = [path for path in task.paths if path in others]
            price.record.add(met, conflict=task.name in redo)
        landed = {task.name for task in begun} - redo
        left = [task for task in left if task.name not in landed]
        pairs = {pair: how for pair, how in pairs.items() if landed.isdisjoint(pair)}
    return rounds, touching, both


def _only(name: str, begun: list[Task], pairs: dict[tuple[str, str], int]) -> bool:
    names = {task.name for task in begun}
    found = [how for (a, b), how in pairs.items() if b == name and a in names]
    return REWRITING not in found


def _merged(commit: CommitEdits, sharing: Sharing) -> CommitEdits:
    """Return a commit without the files whose merges keep all lines."""
    kept = sharing.reserved(commit.files)
    return commit._replace(files={path: commit.files[path] for path in kept})


async def figures(
    hub: Hub, commits: list[CommitEdits], at: int, goals: dict[str, str], *, every: bool
) -> tuple[dict[str, object], int]:
    """Return the figures of the window that begins at a commit, and how many commits it spans."""
    past = EditHistory(commits[max(0, at - COMMITS_MAX) : at])
    sharing = SHARING.learning(past.append_files())
    price = OverlapPrice(sharing, (), past)
    await price.refresh(hub, at=commits[at - 1].name)
    tasks, span = window(commits[at:], goals, sharing, every=every)
    truth = EditHistory((_merged(each, sharing) for each in commits[at : at + span]), span)
    begun, alone = started(tasks, price), started(tasks, None)
    touching = conflicts(begun.tasks, truth.pairs, TOUCHING)
    rewriting = {b for b in touching if not _only(b, begun.tasks, truth.pairs)}
    rounds, least, most = replay(tasks, price, truth.pairs)
    locked, *_ = replay(tasks, None, truth.pairs)
    count = max(1, len(tasks))
    return {
        "tasks": len(tasks),
        "exclusive": len(alone.tasks),
        "price": len(begun.tasks),
        "expected": round(begun.expected, 1),
        "touching": len(touching - rewriting),
        "rewriting": len(rewriting),
        "redone": f"{least / count:.0%} to {most / count:.0%}",
        "rounds": f"{rounds} against {locked}",
    }, span


async def main(repo: Path, half: str, *, every: bool) -> None:
    """Print a line for each window, the newest last."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.git"
        subprocess.run(["git", "clone", "-q", "--bare", str(repo), str(copy)], check=True)
        async with await Hub.open(Path(folder) / "hub", copy) as hub:
            commits = await edits_of(hub.git, hub.main(), 100_000)
            said = await hub.git("log", "--format=%H %s", hub.main())
            goals = dict(line.partition(" ")[::2] for line in said.text.splitlines())
            middle = len(commits) // 2
            at, end = {"first": (1, middle), "second": (middle, len(commits))}.get(
                half, (1, len(commits))
            )
            while at < end:
                found, span = await figures(hub, commits[:end], at, goals, every=every)
                enough = int(str(found["tasks"])) >= (TASKS if every else LEAST)
                if enough:
                    print(commits[at - 1].name[:10], *(f"{k} {v}" for k, v in found.items()))
                at += span if enough else max(1, STRETCH // 10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", nargs="?", default=".", type=Path)
    parser.add_argument("--successive", action="store_true")
    parser.add_argument("--half", choices=["first", "second", "both"], default="both")
    given = parser.parse_args()
    asyncio.run(main(given.repository, given.half, every=given.successive))
