"""`leadhand fleet log`: what the agent of a task says and does."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.rendering.text import clean, clean_lines
from leadhand.errors import UsageError
from leadhand.fleet.commands.service import folder_option, settings_for

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc


@command("log", "leadhand fleet log query -f")
@click.argument("task", required=False)
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the transcript until the agent has ended."
)
@click.option(
    "--attempt", type=click.IntRange(min=1), help="The attempt; the default is the last one."
)
@folder_option
def log(
    console: Console,
    task: str | None,
    follow: bool,  # noqa: FBT001 - an option
    attempt: int | None,
    folder: str | None,
) -> int:
    """Show the transcript of the agent that works on a task.

    TASK may be written RUN/TASK. The transcript is shown live, or afterwards. Without TASK the
    command lists the tasks that have a transcript.
    """
    from leadhand.fleet.agents import transcripts
    from leadhand.fleet.configuration import fleet_folder
    from leadhand.fleet.status.evidence import live_of

    home = fleet_folder(settings_for(folder))
    place = home / "transcripts"
    if task is None:
        return _list(console, place)
    path, among = _transcript(place, task, attempt)
    if attempt is None and among > 1:
        console.say(f"attempt {int(path.stem)}, the last of {among}; --attempt N shows another")
    shown = 0
    older, _end = transcripts.lines(path.with_suffix(transcripts.OLDER))
    for line in older:
        _say_line(console, line)
    left = not follow
    while True:
        fresh, shown = transcripts.lines(path, shown)
        for line in fresh:
            _say_line(console, line)
        if left or any(line.get("kind") == "ended" for line in fresh):
            return 0
        if path.stat().st_size < shown:
            shown = 0  # it was full, and begun again
        if live_of(home) is None or transcripts.is_over(path):
            console.say("the agent has ended; the transcript is complete")
            left = True  # once more: its last words may have come just now
        time.sleep(0.3)


def _list(console: Console, place: Path) -> int:
    """Print the tasks, the most recently active last."""
    from urllib.parse import unquote

    folders = [each for each in place.glob("*/*") if each.is_dir()]
    folders.sort(key=lambda each: each.stat().st_mtime)
    names = [f"{unquote(each.parent.name)}/{unquote(each.name)}" for each in folders]
    if console.json:
        console.document(names)
    else:
        for name in names:
            console.out(clean(name))
    if not names:
        console.say("no transcripts yet")
    return 0


def _transcript(place: Path, task: str, attempt: int | None) -> tuple[Path, int]:
    """Return the file of an attempt, and how many the task has."""
    from urllib.parse import unquote

    from leadhand.fleet.agents import transcripts

    run, _, step = task.rpartition("/")
    folders = [each for each in place.glob("*/*") if each.is_dir() and unquote(each.name) == step]
    found = [each for each in folders if unquote(each.parent.name).startswith(run)]
    if not found:
        raise UsageError(
            f"no transcript of {task}. Fix: `leadhand fleet log` lists the tasks that have one"
        )
    if len(found) > 1:
        names = ", ".join(sorted(f"{unquote(each.parent.name)}/{step}" for each in found)[:8])
        raise UsageError(f"{task} could be any of: {names}")
    files = transcripts.attempts(place, unquote(found[0].parent.name), step)
    wanted = [each for each in files if attempt in (None, int(each.stem))]
    if not wanted:
        raise UsageError(f"no transcript of attempt {attempt} of {task}")
    return wanted[-1], len(files)


def _say_line(console: Console, line: Doc) -> None:
    if console.json:
        console.record(line)
        return
    words = " ".join(
        str(line[key]) for key in ("tool", "path", "text") if line.get(key) not in (None, "")
    )
    if isinstance(cost := line.get("cost"), int | float):
        words = f"{words} ${cost:.4g}".lstrip()
    try:
        moment = time.strftime("%H:%M:%S", time.localtime(int(line.get("at", 0)) / 1e6))
    except (ArithmeticError, OSError, TypeError, ValueError):
        moment = "--:--:--"  # a line that was spoilt
    kind = str(line.get("kind", ""))
    console.out(f"{moment} {kind:<7} {clean_lines(words)}".rstrip())
    sys.stderr.flush()
