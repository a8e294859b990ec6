"""Lint of a wave before its agents start: size, boundaries, overlap, commands, order.

The first findings go back to whoever planned it. Nothing here reads prose: what a planner was told
by files of the repository cannot widen what it may do.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from leadhand.core import paths
from leadhand.core.wording import listed
from leadhand.errors import UsageError
from leadhand.fleet.boundaries import EXCLUSIVE, Sharing, clash, within
from leadhand.fleet.epics import EpicTask, commands, in_turn, lint_wave, repository_named
from leadhand.fleet.planning.overlaps import Claim, predicted_conflicts
from leadhand.fleet.planning.progress import MOVABLE, REPLACEABLE, EpicProgress
from leadhand.fleet.planning.record import PlanningRecord, too_large
from leadhand.fleet.planning.repository_map import RepositoryMap
from leadhand.fleet.repositories import (
    qualified,
    repository_of,
    unknown_repository,
)
from leadhand.fleet.status.ladder import MAIN_REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leadhand.core.report import StepView
    from leadhand.fleet.planning.reply import Planned, Reply
    from leadhand.fleet.planning.survey import SurveyedFile


# Limits of an epic planner, from the settings alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Limits of waves."""

    tasks: int = 20
    """Tasks in one wave."""
    writes: int = 20
    """Paths that one task may write."""
    files: int = 100
    """Files of main that these may mean."""
    kilobytes: int = 2000
    """What those files may hold in all: an agent has to read them."""
    waves: int = 50
    rounds: int = 3
    """How often an answer that cannot be used is sent back before a person is asked."""
    paths: tuple[str, ...] = ()
    """Where planned tasks may write; nothing said: everywhere but what is protected."""
    programs: tuple[str, ...] = ()
    """The programs that acceptance commands may start; nothing said: any that is there."""
    network: bool = False
    """Whether a planner that is a command may use the network."""
    sharing: Sharing = EXCLUSIVE
    """Which paths several tasks may write at once."""
    changelog: str = ""
    """A file that gets an entry by a task of its own in the end; nothing said: none."""
    reds: int = 3
    """How often the epic's acceptance may fail before the epic is given up."""


SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "cmd", "powershell"}
)
TOLD = 5
"""Findings that are sent back at once."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that a wave is checked against."""

    rules: PlanRules
    standing: EpicProgress
    statuses: Mapping[str, str]
    """Every step of the run, by id."""
    files: Mapping[str, SurveyedFile] = field(default_factory=dict)
    map: RepositoryMap = field(default_factory=lambda: RepositoryMap({}))
    protected: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    budget_left: float | None = None
    waves: int = 0
    has_program: Callable[[str], bool] = lambda name: shutil.which(name) is not None
    """Whether the gate finds a program: by its name, or at its whole path."""
    record: PlanningRecord = field(default_factory=PlanningRecord)
    """How planned tasks went so far."""
    others: Mapping[str, GroundOf] = field(default_factory=dict)
    """What tasks of further repositories are checked against, by name."""

    def of(self, task: EpicTask) -> Ground:
        """Return what a task is checked against: that of its own repository."""
        found = self.others.get(repository_named(task))
        if found is None:
            return self
        rules = replace(self.rules, sharing=found.sharing, paths=found.paths)
        return replace(
            self,
            rules=rules,
            files=found.files,
            map=found.map,
            protected=found.protected,
            has_program=found.has_program,
        )


@dataclass(frozen=True, slots=True)
class GroundOf:
    """The part of the ground that differs from repository to repository."""

    files: Mapping[str, SurveyedFile]
    map: RepositoryMap
    sharing: Sharing
    protected: tuple[str, ...]
    paths: tuple[str, ...]
    """Where planned tasks may write; nothing said: everywhere but what is protected."""
    has_program: Callable[[str], bool]


def lint_reply(reply: Reply, ground: Ground) -> list[str]:
    """Return the first mistakes of an answer; none if it can be accepted."""
    match reply.kind:
        case "wave":
            found = _wave(reply, ground)
        case "done":
            found = _done(ground)
        case "ask":
            found = [] if reply.question.strip() else ["it asks, and says no question"]
        case _:
            found = [] if reply.reason.strip() else ["it gives up, and says no reason"]
    return found[:TOLD]


def warn_reply(reply: Reply, ground: Ground) -> list[str]:
    """Return conflicts that are predicted between tasks that do not wait for each other, and tasks
    that are too large by history.

    They are told once: the planner may know better, and answer the same again.
    """
    tasks, found = reply.tasks if reply.kind == "wave" else (), list[str]()
    for task in tasks:
        if why := too_large(ground.record, task.writes):
            found.append(
                f"task {task.id!r} is probably too large: {why}. Split it, or answer the same "
                "again if it is one"
            )
    waits = {task.id: _all_waits(task, tasks) for task in tasks}
    for task, other in combinations(tasks, 2):
        if task.id in waits[other.id] or other.id in waits[task.id]:
            continue
        if repository_named(task) != repository_named(other):
            continue
        own = ground.of(task)
        a, b = (Claim(each.id, each.goal, each.writes) for each in (task, other))
        found += [
            f"tasks {a.id!r} and {b.id!r} will probably conflict: {each.why}. Have one wait for "
            "the other, make them one task, or answer the same again if they are apart"
            for each in predicted_conflicts(own.map, a, b, own.rules.sharing.append)[:1]
        ]
    return found[:TOLD]


def _done(ground: Ground) -> list[str]:
    standing = ground.standing
    found = []
    if standing.open:
        found.append(f"it is not done: {listed([s.id for s in standing.open])} are still open")
    found += [f"it is not done: {_unsettled(each.step)}" for each in standing.matters]
    last = standing.check
    if last is not None and last.error is not None and not _newer(standing, last):
        found.append("it is not done: the epic's acceptance fails, and nothing is new since")
    return found


def _newer(standing: EpicProgress, check: StepView) -> bool:
    """Return whether anything has landed since a check of the acceptance."""
    then = check.planned.get("parameters", {}).get("landed", 0)
    return len(standing.landed) > int(then)


def _wave(reply: Reply, ground: Ground) -> list[str]:
    standing, tasks = ground.standing, reply.tasks
    if ground.waves >= ground.rules.waves and tasks:
        return [f"{ground.waves} waves were planned, which is the most"]
    if not (tasks or reply.answers or reply.drop or standing.open):
        return ["it proposes nothing, and nothing is under way"]
    if len(tasks) > ground.rules.tasks:
        return [f"{len(tasks)} tasks in one wave; {ground.rules.tasks} is the most"]
    new = {task.id for task in tasks}
    known = [name for name in ground.statuses if name not in new]
    found = [
        f"task {task.id!r}: the run has a step of that name"
        for task in tasks
        if _taken(task, ground)
    ]
    found += lint_wave(tuple(_alone(task, new) for task in tasks)) if tasks else []
    for task in tasks:
        own = ground.of(task)
        beside = [each for each in tasks if repository_named(each) == repository_named(task)]
        found += [f"task {task.id!r}: {each}" for each in _task(task, own, tasks, known)]
        found += [f"task {task.id!r}: {each}" for each in _commands(task, own, beside)]
    found += _places(reply, ground)
    if found:
        return found
    return _overlaps(tasks, ground, frozenset(reply.drop)) + _money(tasks, ground)


def _taken(task: Planned, ground: Ground) -> bool:
    return task.id in ground.statuses


def _alone(task: Planned, new: set[str]) -> EpicTask:
    """Return the task with dependencies on tasks of the same wave only."""
    waits = [name for name in task.depends_on if name in new]
    return EpicTask(
        id=task.id,
        goal=task.goal,
        acceptance=task.acceptance,
        writes=task.writes,
        reads=task.reads,
        depends_on=waits,
        repository=task.repository,
    )


def _task(
    task: Planned, ground: Ground, tasks: Sequence[Planned], known: Sequence[str]
) -> Iterable[str]:
    rules, new = ground.rules, {each.id for each in tasks}
    if words := unknown_repository(task.repository, list(ground.others)):
        yield words
    elif before := _moved(task, ground):
        yield before
    for name in task.depends_on:
        if name not in new and name not in known:
            yield f"waits for {name}, which is no task"
        elif name == task.replaces:
            yield f"waits for {name}, which it replaces"
    if len(task.writes) > rules.writes:
        yield f"may change {len(task.writes)} paths, {rules.writes} is the most; split it"
    for path in task.writes:
        if not paths.parts(path):
            continue  # it is said already
        if ".git" in path.lower().split("/"):
            yield f"{path!r} is git's own"
        elif rules.paths and not within(path.rstrip("/"), rules.paths):
            yield f"{path!r} is outside of {listed(rules.paths)}"
    kept = [path for path in task.writes if clash([path], ground.protected)]
    if kept:
        yield f"{listed(kept)} is protected; a person has to be asked for that"
    yield from _size(task, ground)
    if task.tier and task.tier not in ground.tiers:
        yield f"tier {task.tier!r} is none of: {listed(ground.tiers) or 'none'}"
    if task.budget is not None and not task.budget > 0:
        yield "its budget is not above 0"
    if not task.acceptance:
        yield "has no acceptance. Fix: name a command that succeeds when it is done."


def _moved(task: Planned, ground: Ground) -> str:
    """Return what is wrong with replacing a task by one of another repository; empty: nothing."""
    for step in ground.standing.tasks if task.replaces else ():
        before = repository_of(step.planned)
        if step.id == task.replaces and before != repository_named(task):
            named = before or MAIN_REPOSITORY
            return (
                f"replaces {step.id!r}, which belongs to the repository {named!r}. Fix: write "
                f"repository: {named}, or drop that one and plan a new task"
            )
    return ""


def _size(task: Planned, ground: Ground) -> Iterable[str]:
    """Yield objections to a task's size.

    A path without wildcards may be a folder: its files count.
    """
    meant = [each for path, each in ground.files.items() if within(path, task.writes)]
    if len(meant) > ground.rules.files:
        yield f"may change {len(meant)} files, {ground.rules.files} is the most; split it"
    size = sum(each.bytes for each in meant) // 1000
    if size > ground.rules.kilobytes:
        yield f"is about {size} kB of files, {ground.rules.kilobytes} is the most; split it"


def _commands(task: Planned, ground: Ground, tasks: Sequence[Planned]) -> Iterable[str]:
    try:
        wanted = commands(task.acceptance, "acceptance")
    except UsageError:
        return  # it is said already
    for argv in wanted:
        if _shell(argv):
            yield f"acceptance: {argv[0]!r} is handed a shell's words. Fix: name the program."
        elif ground.rules.programs and argv[0] not in ground.rules.programs:
            yield f"acceptance: {argv[0]!r} may not be used; {listed(ground.rules.programs)} may"
        elif not _exists(argv[0], ground, tasks):
            yield f"acceptance: there is no program {argv[0]!r} here"


def _shell(argv: Sequence[str]) -> bool:
    """Return whether a shell is given a text, in any form: `env -S`, `sudo sh -c`."""
    names = [PurePosixPath(word).name.removesuffix(".exe") for word in argv]
    texts = [word.startswith("-") and "c" in word.lower() for word in argv]
    given = any(name in SHELLS and any(texts[at + 1 :]) for at, name in enumerate(names))
    return given or (names[0] == "env" and any(word.startswith("-S") for word in argv))


def _exists(name: str, ground: Ground, tasks: Sequence[Planned]) -> bool:
    if "/" not in name or name.startswith("/"):
        return ground.has_program(name)
    plain = "/".join(paths.parts(name))
    return plain in ground.files or any(within(plain, task.writes) for task in tasks)


def _places(reply: Reply, ground: Ground) -> list[str]:
    """Return the mistakes in replacing and dropping tasks; every failed one must be settled."""
    standing, found = ground.standing, []
    questions = {each.step.id for each in standing.matters if each.kind == "question"}
    for task in reply.tasks:
        status = ground.statuses.get(task.replaces, "unknown")
        if task.replaces and status not in REPLACEABLE:
            found.append(f"task {task.id!r} replaces {task.replaces!r}, which is {status}")
        if task.replaces and task.replaces in reply.drop:
            found.append(f"{task.replaces!r} is replaced and dropped")
    failed = {each.step.id: each for each in standing.matters}
    for name in reply.drop:
        status = ground.statuses.get(name, "unknown")
        if name not in failed and status not in MOVABLE:
            found.append(f"it drops {name!r}, which is {status}")
    for each in reply.answers:
        if each.task not in questions:
            found.append(f"it answers {each.task!r}, which asks nothing")
        elif not each.text.strip():
            found.append(f"its answer to {each.task!r} says nothing")
    settled = {task.replaces for task in reply.tasks} | {each.task for each in reply.answers}
    for name, matter in failed.items():
        if name not in settled and name not in reply.drop:
            found.append(_unsettled(matter.step))
        elif matter.kind == "failed":
            heirs = [task for task in reply.tasks if task.replaces == name]
            found += [
                f"task {t.id!r} is {name!r} again, which failed"
                for t in heirs
                if _same(t, matter.step)
            ]
    return found


def _unsettled(step: StepView) -> str:
    kind = step.error.failure_class if step.error is not None else "failed"
    what = "asks, and is not answered" if kind == "needs_info" else "failed"
    return f"task {step.id!r} {what}; replace it, or drop it"


def _same(task: Planned, step: StepView) -> bool:
    before = step.planned.get("parameters", {})
    return (
        task.goal == before.get("goal")
        and sorted(task.writes) == sorted(before.get("writes", ()))
        and (task.tier or "") == step.planned.get("worker", "").partition("@")[2]
        and (task.brief or "") == before.get("brief", "")
    )


def _overlaps(tasks: Sequence[Planned], ground: Ground, dropped: frozenset[str]) -> list[str]:
    found = []
    new = {task.id for task in tasks}
    plain = tuple(_alone(task, new) for task in tasks)
    shared = {name: each.sharing for name, each in ground.others.items()}
    for task, others in zip(tasks, in_turn(plain, ground.rules.sharing, shared), strict=True):
        found += [
            f"tasks {other!r} and {task.id!r} may write the same, and neither waits for the other"
            for other in others
        ]
    waits = {task.id: _all_waits(task, tasks) for task in tasks}
    for step in ground.standing.open:
        writes = step.planned.get("writes") or ()
        for task in tasks:
            own = repository_named(task)
            apart = step.id in dropped or step.id == task.replaces or step.id in waits[task.id]
            apart = apart or own != repository_of(step.planned)
            alone = qualified(own, ground.of(task).rules.sharing.ordered(task.writes))
            if not apart and clash(alone, writes):
                found.append(
                    f"task {task.id!r} may write what {step.id!r} may, which is open; wait for it"
                )
    return found


def _all_waits(task: Planned, tasks: Sequence[Planned]) -> set[str]:
    """Return all direct and indirect dependencies within the wave."""
    by_id = {each.id: each for each in tasks}
    found: set[str] = set()
    stack = list(task.depends_on)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += by_id[name].depends_on if name in by_id else []
    return found


def _money(tasks: Sequence[Planned], ground: Ground) -> list[str]:
    wanted = sum(task.budget or 0.0 for task in tasks)
    left = ground.budget_left
    if left is None or wanted <= left + 1e-9:
        return []
    return [f"its tasks may cost {wanted:g}, and {left:g} is left of the epic's budget"]
