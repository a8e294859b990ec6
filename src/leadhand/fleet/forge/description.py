"""Texts for a code host: titles, descriptions, evidence. Pure.

Words of agents, planners and issues are quoted in a block of code: there a host makes no mention,
no link and no picture of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core.visible import invisible
from leadhand.fleet.repository.git import message_of as commit_message
from leadhand.models.secret_patterns import scrub

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.fleet.forge.delivery import PullRecord

TITLE_CHARS = 120
GOAL_CHARS = 4_000
TASKS_SHOWN = 50
FILES_SHOWN = 50
_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Sequences of terminals."""


def one_line(text: str, most: int = TITLE_CHARS) -> str:
    """Return a text as one line that mentions no account."""
    plain = " ".join(scrub(text).split()).lstrip("-#> ")
    return re.sub(r"@(?=\w)", "@ ", plain)[:most].strip()


def quoted(text: str, most: int = GOAL_CHARS) -> str:
    """Return a text as a block of code that nothing inside can end."""
    plain = scrub(text)[:most].strip()
    longest = max((len(each) for each in re.findall(r"`+", plain)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{plain}\n{fence}"


def shown(text: str) -> str:
    """Return a text without what a person would not see: hidden markup, invisible characters."""
    plain = _HIDDEN.sub("", _COLOURS.sub("", text))
    return scrub("".join(each for each in plain if each in "\n\t" or not invisible(each)))


def log_end(text: str, most: int) -> str:
    """Return the end of a log without sequences of terminals and invisible characters."""
    plain = _COLOURS.sub("", text[-4 * most :])
    plain = "".join(each for each in plain if each in "\n\t" or not invisible(each))
    return scrub(plain).strip()[-most:]


def title_of(record: PullRecord) -> str:
    """Return the title of a pull request."""
    return one_line(record.queued.goal) or record.task


def trailers_of(record: PullRecord) -> dict[str, str]:
    """Return the trailers that say where a change comes from."""
    own = {"Leadhand-Run": record.run, "Leadhand-Task": record.task}
    return {**record.queued.trailers, **own, "Leadhand-Attempt": str(record.attempt)}


def shown_trailers(trailers: Mapping[str, str]) -> dict[str, str]:
    """Return the trailers of a commit on a branch of ours.

    The commit that lands has `Leadhand-Task`: a task is on main once, however many attempts a pull
    request showed.
    """
    found = dict(trailers)
    task = found.pop("Leadhand-Task", "")
    return {"Leadhand-Change": task, **found} if task else found


def message_of(record: PullRecord) -> str:
    """Return the message of the commit that merges a pull request."""
    return commit_message(one_line(record.queued.goal), trailers_of(record))


def body_of(record: PullRecord, tasks: Sequence[tuple[str, str]] = ()) -> str:
    """Return the description of a pull request; `tasks` are those of its run, with their status."""
    change = record.queued
    parts = [quoted(change.goal)]
    if record.issue:
        parts.append(f"Part of #{record.issue}. The issue is closed when its branch is green.")
    if len(tasks) > 1:
        rows = [
            f"- [{'x' if status == 'succeeded' else ' '}] `{task}`"
            + " (this one)" * (task == record.task)
            for task, status in tasks[:TASKS_SHOWN]
        ]
        parts.append("### Plan\n\n" + "\n".join(rows))
    evidence = ["the fleet's gate passed on this change"]
    if record.tests:
        evidence.append(one_line(record.tests))
    if change.acceptance:
        evidence.append(f"{len(change.acceptance)} acceptance commands succeeded")
    if record.flaky:
        evidence.append("flaky: " + one_line(", ".join(record.flaky)))
    if record.attempt > 1:
        evidence.append(f"attempt {record.attempt}")
    if record.heard:
        evidence.append(f"answers {len(record.heard)} reviews")
    parts.append("### Evidence\n\n" + "\n".join(f"- {each}" for each in evidence))
    if record.files:
        parts.append("### Files\n\n" + quoted("\n".join(record.files[:FILES_SHOWN])))
    parts.append(
        _lines(f"{name}: {one_line(value)}" for name, value in trailers_of(record).items())
    )
    return "\n\n".join(parts)


def _lines(rows: Iterable[str]) -> str:
    return "\n".join(rows)
