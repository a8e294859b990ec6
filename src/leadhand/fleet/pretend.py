"""A scripted agent: a real process that does a task, or goes wrong as it is told to.

    python pretend.py TASK ATTEMPT FAULTS.json

Standard library only and nothing of ours: it is started hundreds of times, and stands where a
coding agent would, in its slot, in its sandbox.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path


def good(task: str) -> None:
    """The module that the task is about, and its test."""
    write(
        f"modules/{task}.py",
        f'"""Made for {task}."""\n\n\ndef name() -> str:\n    return "{task}"\n',
    )
    write(f"checks/{task}.py", f"from modules.{task} import name\n\nassert name() == '{task}'\n")


def write(path: str, text: str) -> None:
    """A file in the slot."""
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def main() -> None:
    """One attempt."""
    task, attempt, file = sys.argv[1:4]
    told = json.loads(Path(file).read_text(encoding="utf-8"))
    faults = told["faults"].get(task, [])
    fault = faults[int(attempt) - 1] if int(attempt) <= len(faults) else ""
    time.sleep(told.get("work_s", 0.0))
    match fault:
        case "crash":
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "false done":
            sys.stdout.write("Done. All tests pass.\n")
        case "bad diff":
            good(task)
            write("README.md", "rewritten by an agent\n")
        case "gate red":
            good(task)
            write(f"modules/{task}.py", "def name() -> str:\n    return 'something else'\n")
        case "deletes its slot":
            for each in Path().iterdir():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        case "rewrites history":
            good(task)
            git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
            subprocess.run([*git, "checkout", "-q", "--orphan", "gone"], check=False)
            subprocess.run([*git, "commit", "-q", "-am", "all new"], check=False)
        case "plants a hook":
            good(task)
            for hook in ("pre-commit", "post-checkout", "reference-transaction"):
                write(f".git/hooks/{hook}", f"#!/bin/sh\necho ran >> '{told['marker']}'\n")
                Path(f".git/hooks/{hook}").chmod(0o755)
        case _:
            good(task)


if __name__ == "__main__":
    main()
