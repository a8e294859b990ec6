"""`leadhand init`: settings, two workers and a plan that run as they are."""

from __future__ import annotations

from pathlib import Path

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.errors import NotAllowed
from leadhand.settings.trust import trust_written

SETTINGS = """\
# Settings of this project. `leadhand doctor` shows what is in force, and from where.

[project]
workers = ["workers.py"]          # modules or files that hold workers
# store = ".leadhand/leadhand.db" # the database
# planner = "planning:next_step"  # for `leadhand run "a goal"`

[policy]
# concurrency = 100               # steps at once
# attempts = 3                    # tries of one step by one worker
# timeout = "1 hour"              # for steps that name none
# auto_risk = "medium"            # what runs without a person: low, medium, high, critical
# budget = 5.0                    # stop when this much was spent

# A command or a webhook for when something waits for a person, or a run ends.
# [notify]
# command = ["notify-send", "{kind}", "{run}: {text}"]
# webhook = "https://example.com/hooks/leadhand"

# A worker without Python. Each {value} becomes one argument; there is no shell.
# [workers.disk-usage]
# command = ["du", "-sh", "{folder}"]
"""

WORKERS = '''\
"""Workers: plain functions that plans may call.

A worker gets the parameters of its step and returns data. What it raises becomes a failure
with a class (`from leadhand import Transient, Permanent, ...`), which decides what follows.
"""

from leadhand import Context, worker


@worker(name="counter", checks={"found_something": lambda data: data["words"] > 0})
def count_words(text: str) -> dict[str, int]:
    """Count words and letters. `found_something` is a check that plans can ask for."""
    words = text.split()
    return {"words": len(words), "letters": sum(len(word) for word in words)}


@worker(name="reporter", idempotent=True)
async def write_report(words: int, letters: int, context: Context) -> str:
    """Put it into a sentence. A worker may take a Context: the goal, earlier failures, ..."""
    context.progress("writing", 0.5)
    return f"{words} words with {letters} letters."
'''

PLAN = """\
# A plan: who does what, with what, after what, and how we know that it is done.
# `leadhand lint plan.yaml` checks it, `leadhand show plan.yaml --graph` draws it.

plan_id: count-words
goal: Count the words of a sentence
params:
  sentence: one lead plans and many hands work
steps:
  - id: count
    worker: counter
    parameters:
      text: ${{ params.sentence }}
    success_criteria: found_something
    failure_action: abort

  - id: report
    worker: reporter
    parameters:
      words: ${{ steps.count.data.words }}
      letters: ${{ steps.count.data.letters }}
    depends_on: [count]
"""

FILES = {"leadhand.toml": SETTINGS, "workers.py": WORKERS, "plan.yaml": PLAN}
NEXT = ("leadhand lint plan.yaml", "leadhand run plan.yaml")


@command("init", "leadhand init")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def init(console: Console, folder: Path) -> int:
    """Write leadhand.toml, a worker stub and an example plan.

    Existing files are not changed.
    """
    written, kept = [], []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in FILES.items():
            try:
                with (folder / name).open("x", encoding="utf-8") as file:
                    file.write(content)
                written.append(name)
            except FileExistsError:
                kept.append(name)
    except OSError as error:
        raise NotAllowed(f"{folder}: cannot be written to ({error.strerror})") from None
    if {"leadhand.toml", "workers.py"} <= set(written):
        trust_written(folder)
    commands = list(NEXT) if folder == Path() else [f"cd {folder}", *NEXT]
    if console.json:
        console.document({"written": written, "kept": kept, "next": commands})
        return 0
    for name in written:
        console.say(f"wrote {folder / name}")
    for name in kept:
        console.say(f"kept  {folder / name} (it was there already)")
    if not kept:
        console.say("Now try:")
        for line in commands:
            console.say(f"  {line}")
    return 0
