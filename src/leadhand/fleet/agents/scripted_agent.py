"""A scripted agent: a real process that does a task, or fails as its script says.

    python scripted_agent.py TASK ATTEMPT FOLDER

Standard library only and nothing of ours: it is started thousands of times, and stands where a
coding agent would, in its slot, in its sandbox. What it cannot do itself (kill the engine, fill the
disk, commit beside it) it asks for by a file in its own `.git`, and waits until it was done.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ASKED = Path(".git/deed.json")
DONE = Path(".git/deed.done")
DEEDS = ("engine killed", "disk full", "merge conflict")


def good(task: str, claim: str, edits: list[tuple[str, int]]) -> None:
    """Write the module that the task is about, its edits of shared files, and its test."""
    line = f'CLAIM = "{claim}"\n' if claim and not claimed(task, claim) else ""
    write(
        f"modules/{task}.py",
        f'"""Made for {task}."""\n\n{line}\n\ndef name() -> str:\n    return "{task}"\n',
    )
    check = f"from modules.{task} import name\n\nassert name() == '{task}'\n"
    for path, number in edits:
        text, end = Path(path).read_text(encoding="utf-8"), f"    ]  # end {number:03}\n"
        write(path, text.replace(end, f"        '{task}',\n{end}"))
        module, name = path.removesuffix(".py").replace("/", "."), f"{Path(path).stem}_{number:03}"
        check += f"\nfrom {module} import {name}\n\nassert '{task}' in {name}()\n"
    write(f"checks/{task}.py", check)


def claimed(task: str, claim: str) -> bool:
    """Return whether another module claims it already."""
    others = [path for path in Path("modules").glob("*.py") if path.stem != task]
    return any(f'CLAIM = "{claim}"' in path.read_text(encoding="utf-8") for path in others)


def write(path: str, text: str) -> None:
    """Write a file in the slot."""
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def write_flaky_test(task: str) -> None:
    """Write a test that fails at first and then passes, as long as it is the newest one."""
    count = len(list(Path("checks").glob("*.py"))) + (not Path(f"checks/{task}.py").exists())
    with Path(f"checks/{task}.py").open("a", encoding="utf-8") as file:
        file.write(
            "\nfrom pathlib import Path\n\nseen = Path('wobbled')\n"
            f"if len(list(Path('checks').glob('*.py'))) <= {count} and not seen.exists():\n"
            "    seen.touch()\n    raise SystemExit('FAILED wobbles')\n"
        )


def ask(task: str, attempt: int, deed: str) -> None:
    """Have the referee of the trial do something, and wait for it."""
    fresh = ASKED.with_suffix(".new")
    fresh.write_text(json.dumps({"task": task, "attempt": attempt, "deed": deed}), encoding="utf-8")
    fresh.rename(ASKED)
    for _ in range(1200):
        if DONE.exists():
            return
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        time.sleep(0.25)


def trespass(outside: str) -> None:
    """Try to write where it may not: beside its slot, in the hub, in the user's files."""
    slot = Path.cwd()
    hub = slot.parent.parent / "hub"
    for place in (Path(outside), slot.parent / "README.md", hub / "hub.git" / "HEAD"):
        try:
            with place.open("a", encoding="utf-8") as file:
                file.write("written by an agent\n")
        except OSError:
            continue


def rewrite_history() -> None:
    """Leave another history behind than it was given."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "checkout", "-q", "--orphan", "gone"], check=False)
    subprocess.run([*git, "commit", "-q", "-am", "all new"], check=False)


def plant_hooks(outside: str) -> None:
    """Plant programs that git would start for its next user here."""
    for hook in ("pre-commit", "post-checkout", "reference-transaction"):
        write(f".git/hooks/{hook}", f"#!/bin/sh\necho 'a hook ran' >> '{outside}'\n")
        Path(f".git/hooks/{hook}").chmod(0o755)


def half(task: str) -> None:
    """Do some of the work, not all of it."""
    write(f"modules/{task}.py", '"""Half of it."""\n')


def main() -> None:
    """Run one attempt."""
    task, attempt, folder = sys.argv[1:4]
    told = json.loads((Path(folder) / f"{task}.json").read_text(encoding="utf-8"))
    fault = told["faults"][int(attempt) - 1] if int(attempt) <= len(told["faults"]) else ""
    time.sleep(told["work_s"])
    if fault in ("crash", "hang", "engine killed"):
        half(task)
    if fault in DEEDS:
        ask(task, int(attempt), fault)
    if fault not in ("false done", "deletes its slot", "crash", "hang"):
        good(task, told["claim"], told["edits"])
    match fault:
        case "crash":
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "false done":
            sys.stdout.write("Done. All tests pass.\n")
        case "bad diff":
            write("README.md", "rewritten by an agent\n")
        case "gate red":
            write(f"modules/{task}.py", "def name() -> str:\n    return 'something else'\n")
        case "flaky test":
            write_flaky_test(task)
        case "deletes its slot":
            for each in Path().iterdir():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        case "writes outside":
            trespass(told["outside"])
        case "rewrites history":
            rewrite_history()
        case "plants a hook":
            plant_hooks(told["outside"])
        case _:
            pass


if __name__ == "__main__":
    main()
