"""How many changes of a real history could be at work at once: exclusive locks against a price.

    python -m bench.overlap [REPOSITORY] [WINDOWS]

Each window is 100 successive commits of at most 20 files, taken as tasks that are pending at the
commit before the first of them, with the files that they really changed as the paths they name.
"exclusive" is how many start if no two may share a file (changelogs excepted), "price" how many
start by the fleet's own decision, "expected" how many of those are expected to be redone. "tried"
is how many of those can be put on that commit at all (the others build on earlier ones of the
window), and "conflicts" how many of them conflict when they are merged one after the other.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from leadhand.fleet.boundaries import Sharing, clash
from leadhand.fleet.overlap_price import OverlapPrice, any_of, runs_at_once
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.settings import APPEND, LOCK_FILES

TASKS = 100
FILES_MAX = 20
SHARING = Sharing(APPEND, LOCK_FILES, price=True)


def commits_of(repo: Path) -> list[tuple[str, str, str]]:
    """Return the commits with one parent, oldest first: name, parent, subject."""
    argv = ["git", "-C", str(repo), "log", "--reverse", "--no-merges", "--format=%H %P %s"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    rows = [line.split(" ", 2) for line in said.splitlines()]
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3 and len(row[1]) == 40]


async def window(hub: Hub, commits: list[tuple[str, str, str]]) -> dict[str, int | float]:
    """Return the figures of the first 100 of these commits that are small enough."""
    base, tasks = commits[0][1], []
    price = OverlapPrice(SHARING)
    await price.refresh(hub, at=base)
    for sha, parent, subject in commits:
        paths = SHARING.reserved(await hub.changed(parent, sha))
        if 0 < len(paths) <= FILES_MAX:
            tasks.append((sha, parent, subject, paths))
        if len(tasks) == TASKS:
            break
    alone: list[list[str]] = []
    begun: list[tuple[str, str, str, list[str]]] = []
    expected = 0.0
    for task in tasks:
        _sha, _parent, subject, paths = task
        if not any(clash(paths, other) for other in alone):
            alone.append(paths)
        ahead = [each for each in begun if clash(paths, each[3])]
        chances = [price.chance(paths, subject, each[3], each[2]) for each in ahead]
        if runs_at_once(chances, len(chances)):
            begun.append(task)
            expected += any_of(chances)
    tried = conflicts = 0
    main = base
    for sha, parent, subject, _paths in begun:
        own = await hub.merge(base, sha, parent)
        if own.tree is None:
            continue
        tried += 1
        head = await hub.commit(own.tree, (base,), subject)
        merged = await hub.merge(main, head, base)
        if merged.tree is None:
            conflicts += 1
        else:
            main = await hub.commit(merged.tree, (main,), subject)
    return {
        "tasks": len(tasks),
        "exclusive": len(alone),
        "price": len(begun),
        "expected": round(expected, 1),
        "tried": tried,
        "conflicts": conflicts,
    }


async def main(repo: Path, windows: int) -> None:
    """Print a line for each window, the newest last."""
    commits = commits_of(repo)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.git"
        subprocess.run(["git", "clone", "-q", "--bare", str(repo), str(copy)], check=True)
        async with await Hub.open(Path(folder) / "hub", copy) as hub:
            step = TASKS + TASKS // 5
            for start in range(max(0, len(commits) - windows * step), len(commits), step):
                some = commits[start : start + 2 * TASKS]
                if len(some) >= TASKS:
                    found = await window(hub, some)
                    print(some[0][1][:10], *(f"{key} {value}" for key, value in found.items()))


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(Path(given[0] if given else "."), int(given[1]) if len(given) > 1 else 4))
