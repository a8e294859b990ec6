"""How long a killed run takes to go on, against the least it could take: reading its own log.

A run is killed (SIGKILL) in its last step. From copies of what it left, fresh processes either
resume it, timed from the making of the lead to the call of the step that was in flight, or only
read and decode the log. Both find the files in the page cache and the WAL not yet recovered.
Medians of three each, in turn. Imports are outside both.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import median

from frame import Result, arguments, emit, run_case

KILLED = -9


def copy(left: Path, folder: Path) -> None:
    """A copy of all that was left but sockets, which cannot be copied."""

    def sockets(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(parent) / name).is_socket()]

    shutil.copytree(left, folder, ignore=sockets)


def main() -> None:
    """Leave a log, then read and resume copies of it."""
    given = arguments(["resume"], module={"default": "leadhand_cases"})

    def case(shape: str, folder: Path) -> Result:
        args = [shape, "--size", str(given.size), "--dir", str(folder)]
        return run_case(given.module, args)

    left = given.dir / "left"
    killed = case("unfinished", left)
    if killed.get("exit") != KILLED:
        raise SystemExit(f"the run to be resumed was not killed in its last step: {killed}")
    seconds: dict[str, list[float]] = {"read": [], "resume": []}
    for turn in range(3):
        for shape, taken in seconds.items():
            folder = given.dir / f"{shape}-{turn}"
            copy(left, folder)
            result = case(shape, folder)
            shutil.rmtree(folder)
            if "error" in result:
                raise SystemExit(f"{shape}: {result['error']}")
            taken.append(result["seconds"])
    read, resumed = median(seconds["read"]), median(seconds["resume"])
    emit(given.size, resumed, ratio=round(resumed / read, 3), read_s=read, resume_s=resumed)


if __name__ == "__main__":
    main()
