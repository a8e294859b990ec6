"""Epics and tasks as people submit them, and the plan made of them.

    # Add a search                      <- the first heading is the title
    What is wanted, in words.           <- all of it is the goal that the planner reads

    ```yaml
    priority: 5
    acceptance: [["python", "-m", "pytest", "-q"]]
    tasks:                              <- optional: with tasks nobody needs to plan
      - id: index
        goal: Build an index of words.
        writes: [src/index.py, tests/test_index.py]
        acceptance: ["python -m pytest -q tests/test_index.py"]
      - id: query
        goal: Answer queries from the index.
        writes: [src/query.py]
        depends_on: [index]
    ```

A task is a step of the worker `coder`. Whether two tasks that write the same run at once is decided
when they start (`boundaries`). Where sharing is never worth it (`Sharing.ordered`) tasks of one
epic are put in order, whether or not the first succeeds. A command is a list of arguments, or a
line that is split into one: no shell ever reads it.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadhand.codec.documents import DocumentForm, read_document
from leadhand.core import paths
from leadhand.core.durations import seconds
from leadhand.core.plan.graph import StepOrder
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.fleet.boundaries import EXCLUSIVE, Sharing
from leadhand.fleet.repositories import qualified, unknown_repository
from leadhand.fleet.status.ladder import CODER, MAIN_REPOSITORY

EPIC_BYTES_MAX = 1 << 20
TASKS_MAX = 5000
GOAL_CHARS_MIN = 10
BARRED = frozenset({"..", ".git"})
WRITES_MAX = 20
"""More paths than this in one task: it is too large to be given to one agent."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)

HEAD = DocumentForm("the head of an epic is an object", 'Write "priority:", "tasks:" and so on.')

Command = tuple[str, ...]


class EpicTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bounded change, by one agent."""

    id: str
    goal: str
    acceptance: list[str | list[str]] = []
    """Commands that must succeed on the result."""
    writes: list[str] = []
    """Paths it may change; everything else is out of bounds."""
    reads: list[str] = []
    depends_on: list[str] = []
    tier: str = ""
    budget: float | None = None
    timeout: str | float | None = None
    """How long its agent may work; waiting in line, gate and train do not count."""
    may_remove_tests: bool = False
    """Whether tests of main may be gone afterwards, once a person has seen the change."""
    brief: str = ""
    """What the agent should know besides the goal."""
    repository: str = ""
    """The repository that it belongs to, and that its paths are relative to; empty: the main one
    (`repositories.py`)."""


class Epic(msgspec.Struct, frozen=True, kw_only=True):
    """An epic as it was submitted."""

    name: str
    title: str
    text: str
    priority: int = 0
    acceptance: tuple[Command, ...] = ()
    tasks: tuple[EpicTask, ...] = ()
    budget: float | None = None


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    priority: int = 0
    acceptance: list[str | list[str]] = []
    tasks: list[EpicTask] = []
    budget: float | None = None


def read_epic(path: Path) -> Epic:
    """Return the epic in a file. Raise `UsageError`, which names every mistake."""
    try:
        if path.stat().st_size > EPIC_BYTES_MAX:
            raise UsageError(f"{path}: an epic has at most {EPIC_BYTES_MAX:,} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the epic cannot be read ({error})") from None
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-")[:60] or "epic"
    return parse_epic(text, name, str(path))


def text_of(data: bytes) -> str:
    """Return the text of a file, with line endings and byte order mark normalised."""
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def parse_epic(text: str, name: str, place: str) -> Epic:
    """Return the epic in a text. Raise `UsageError`, which names every mistake and `place`."""
    block = _BLOCK.search(text)
    head = _Head()
    if block is not None:
        try:
            doc = read_document(block[1].encode(), name=f"{place}, its yaml block", form=HEAD)
            head = msgspec.convert(doc, _Head)
        except msgspec.ValidationError as error:
            words = _wrong_task(doc.get("tasks")) or str(error)
            raise UsageError(f"{place}: in its yaml block: {words}") from None
    title = _TITLE.search(text)
    words = (text[: block.start()] + text[block.end() :] if block else text).strip()
    if not words:
        raise UsageError(f"{place}: says nothing. Fix: write a heading, and what is wanted.")
    epic = Epic(
        name=name.encode("utf-8", "replace").decode(),
        title=(title[1].strip() if title else words.splitlines()[0])[:200],
        text=words,
        priority=head.priority,
        acceptance=commands(head.acceptance, f"{place}: acceptance"),
        tasks=tuple(head.tasks),
        budget=head.budget,
    )
    wrong = [f"{place}: {finding}" for finding in lint_wave(epic.tasks)]
    if epic.budget is not None and not epic.budget > 0:
        wrong.append(f"{place}: its budget is not above 0")
    if wrong:
        raise UsageError("\n".join(wrong))
    return epic


def _wrong_task(tasks: Any) -> str:
    """Return which of the tasks is no task, in plain words; empty if each looks like one."""
    if not isinstance(tasks, list):
        return "tasks must be a list" if tasks else ""
    for at, task in enumerate(tasks):
        if not isinstance(task, dict) or not {"id", "goal"} <= task.keys():
            return f"tasks[{at}] must be a mapping with id, goal and writes"
    return ""


def commands(given: list[str | list[str]], place: str) -> tuple[Command, ...]:
    """Commands as argument lists."""
    found = []
    for each in given:
        try:
            argv = shlex.split(each) if isinstance(each, str) else list(each)
        except ValueError as error:
            raise UsageError(f"{place}: {each!r} cannot be split ({error})") from None
        if not "".join(argv[:1]) or any("\0" in word for word in argv):
            raise UsageError(f"{place}: {each!r} names no program")
        if any(word in ("|", "&&", "||", ";", ">", "<") for word in argv):
            raise UsageError(
                f"{place}: {each!r} needs a shell, and none reads it. Fix: put it into a script."
            )
        found.append(tuple(argv))
    return tuple(found)


def lint_wave(tasks: tuple[EpicTask, ...]) -> list[str]:
    """Return the objections to a wave of tasks: size, boundaries, order."""
    wrong: list[str] = []
    seen: set[str] = set()
    if len(tasks) > TASKS_MAX:
        return [f"{len(tasks):,} tasks at once are too many; {TASKS_MAX:,} is the most"]
    for task in tasks:
        here = f"task {task.id!r}"
        if not _ID.fullmatch(task.id):
            wrong.append(f"{here}: an id has letters, digits, - and _")
        if task.id in seen:
            wrong.append(f"{here}: stands twice")
        seen.add(task.id)
        if len(task.goal.strip()) < GOAL_CHARS_MIN:
            wrong.append(f"{here}: its goal says too little; write a sentence")
        if not task.writes:
            wrong.append(f'{here}: has no "writes". Fix: name the paths that it may change.')
        if len(task.writes) > WRITES_MAX:
            wrong.append(f"{here}: may change {len(task.writes)} paths; split it")
        wrong += [f"{here}: {path!r} {_elsewhere(task)}" for path in _outside(task)]
        for path in task.writes:
            if not paths.parts(path):
                words = f"{path!r} is the whole repository; name what it may change"
                wrong.append(f"{here}: {words}")
        wrong += _wrong_commands(task, here)
        wrong += [f"{here}: {words}" for words in _wrong_limits(task)]
    for task in tasks:
        unknown = [name for name in task.depends_on if name not in seen]
        if unknown:
            wrong.append(f"task {task.id!r}: waits for {listed(unknown)}, which is no task")
    order = StepOrder({task.id: tuple(task.depends_on) for task in tasks})
    if not wrong and not order.complete:
        circle = [task.id for task in tasks if task.id not in order.number]
        wrong.append(f"tasks wait for each other in a circle: {listed(circle)}")
    return wrong


def refuse_tiers(epic: Epic, tiers: Sequence[str]) -> None:
    """Raise `UsageError` for a task that asks for a tier which this fleet does not have."""
    named = ", ".join(map(repr, tiers)) or "no tier but the first"
    wrong = [
        f"task {task.id!r}: its tier {task.tier!r} is none of this fleet's. "
        f"Fix: leave it out, or name one of [coders.NAME]: {named}."
        for task in epic.tasks
        if task.tier and task.tier not in tiers
    ]
    if wrong:
        raise UsageError("\n".join(wrong))


def refuse_repositories(epic: Epic, names: Sequence[str]) -> None:
    """Raise `UsageError` for a task of a repository that this fleet does not have."""
    wrong = [
        f"task {task.id!r}: {words}"
        for task in epic.tasks
        if (words := unknown_repository(task.repository, names))
    ]
    if wrong:
        raise UsageError("\n".join(wrong))


def repository_named(task: EpicTask) -> str:
    """Return the repository of a task, as a plan names it: the main one is ""."""
    return "" if task.repository == MAIN_REPOSITORY else task.repository


def _elsewhere(task: EpicTask) -> str:
    """Return what is wrong with a path that leads out of a task's repository, and the fix."""
    if not task.repository:
        return "is outside the repository"
    return (
        f"is outside the repository {task.repository!r}. Fix: write it relative to that one; what "
        "is in another is a task of its own"
    )


def _outside(task: EpicTask) -> list[str]:
    """Paths that lead out of the repository, or into git's own folder, or are no paths at all."""
    every = [*task.writes, *task.reads]
    return [p for p in every if p[:1] == "/" or "\0" in p or BARRED & set(p.lower().split("/"))]


def _wrong_limits(task: EpicTask) -> Iterator[str]:
    if task.budget is not None and not task.budget > 0:
        yield "its budget is not above 0"
    try:
        if task.timeout is not None and not seconds(task.timeout) > 0:
            yield "its timeout is not above 0"
    except ValueError as error:
        yield f"its timeout {error}"


def _wrong_commands(task: EpicTask, here: str) -> list[str]:
    try:
        commands(task.acceptance, here)
    except UsageError as error:
        return [str(error)]
    return []


def plan_of(
    epic: Epic,
    tasks: tuple[EpicTask, ...] | None = None,
    sharing: Sharing = EXCLUSIVE,
    others: Mapping[str, Sharing] | None = None,
) -> dict[str, Any]:
    """Return the plan document of an epic with tasks.

    Tasks that write the same wait for each other where `sharing` puts them in order; `others` is
    the same for further repositories, by name.
    """
    chosen = epic.tasks if tasks is None else tasks
    by_name = {"": sharing, **(others or {})}
    steps = [step_of(task, epic.priority, by_name[repository_named(task)]) for task in chosen]
    for step, extra in zip(steps, in_turn(chosen, sharing, others), strict=True):
        step["depends_on"] += [{"step": name, "if": "finished"} for name in extra]
    doc: dict[str, Any] = {
        "plan_id": epic.name,
        "goal": {"text": epic.title},
        "steps": steps,
        "final": True,
    }
    return doc if epic.budget is None else {**doc, "budget": epic.budget}


def step_of(task: EpicTask, priority: int = 0, sharing: Sharing = EXCLUSIVE) -> dict[str, Any]:
    """Return a task as a step, which reserves what it writes but for what may be shared."""
    parameters: dict[str, Any] = {
        "goal": task.goal,
        "acceptance": [list(argv) for argv in commands(task.acceptance, task.id)],
        "writes": list(task.writes),
        "reads": list(task.reads),
    }
    if priority:
        parameters["priority"] = priority
    if task.brief:
        parameters["brief"] = task.brief
    if task.budget is not None:
        parameters["budget"] = task.budget
    if task.timeout is not None:
        parameters["time_s"] = seconds(task.timeout)
    if task.may_remove_tests:
        parameters["may_remove_tests"] = True
    if repository := repository_named(task):
        parameters["repository"] = repository
    step: dict[str, Any] = {
        "id": task.id,
        "worker": CODER,
        "parameters": parameters,
        "depends_on": list(task.depends_on),
        "writes": qualified(repository, sharing.ordered(task.writes)),
    }
    if task.tier:
        step["tier"] = task.tier
    return step


def in_turn(
    tasks: tuple[EpicTask, ...],
    sharing: Sharing = EXCLUSIVE,
    others: Mapping[str, Sharing] | None = None,
) -> list[list[str]]:
    """Return for each task the earlier ones that write the same and that it does not wait for yet.

    "Earlier" is a topological order of the dependencies; so no cycle is made. Tasks of different
    repositories never write the same; `others` says what further ones share, by name.
    """
    order = StepOrder({task.id: tuple(task.depends_on) for task in tasks})
    found: dict[str, dict[str, None]] = {task.id: {} for task in tasks}
    for name, shared in {"": sharing, **(others or {})}.items():
        writers: dict[str, list[str]] = {}
        own = (task for task in tasks if repository_named(task) == name)
        for task in sorted(own, key=lambda task: order.number[task.id]):
            for path in shared.ordered(task.writes):
                writers.setdefault(path, []).append(task.id)
        for one, other in paths.overlaps(writers, writers):
            numbers = [order.number[ident] for ident in writers[one]]
            for second in writers[other]:
                place = bisect_left(numbers, order.number[second])
                # The last one before it: that waits for those before it in the same way.
                if place and not order.before(first := writers[one][place - 1], second):
                    found[second][first] = None
    return [list(names) for names in found.values()]
