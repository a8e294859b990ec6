"""A suite: goals, each with a check of its own, and the arms that are compared on them.

A suite is a folder with `leadhand.toml` (workers, models) and a TOML file:

    [suite]
    repeat = 5

    [[goal]]
    name = "report"
    want = ["report"]
    have = { topic = "tea" }
    check = ["python", "check.py"]

    [factors.planner]
    goal  = { planner = "goal" }
    model = { planner = "lead", tape = "tapes/{goal}-{trial}.json.gz" }
    flat  = { mode = "direct", tape = "tapes/flat-{goal}.json.gz" }

Every combination of one level of each factor is an arm. The check decides whether the goal was
reached: a command of the suite that looks at the folder, whatever the run says of itself.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.model import MODES
from leadhand.core.wording import listed
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

TRIALS_MAX = 100_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class PersonsAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the person of a suite answers to a question."""

    match: str
    """A text that the question holds; empty: every question."""
    choice: str
    data: Any = None


class EvalGoal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One goal, and how to tell whether it was reached."""

    name: str
    check: list[str]
    """The command that decides: exit code 0 if the goal was reached, 1 if not."""
    text: str = ""
    """The goal in words."""
    want: list[str] = []
    """The facts that should be true at the end."""
    have: dict[str, Any] = {}
    """The facts that are true already, with their values."""
    plan: str = ""
    """A plan to run instead of a goal: a file of the suite."""
    params: dict[str, Any] = {}
    """The parameters of the plan."""
    answers: list[PersonsAnswer] = []
    """What the person answers; the first that matches counts."""


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One level of a factor: what it changes."""

    planner: str = ""
    mode: str = ""
    plan: str = ""
    """A plan that takes the place of the goal's."""
    tape: str = ""
    """Recorded model traffic. In `plan` and `tape`, `{goal}` and `{trial}` stand for the goal's
    name and the repetition, `{FACTOR}` for the arm's level of a factor."""
    settings: dict[str, Any] = {}
    """Settings by their dotted names, as in `"policy.review" = true`."""
    env: dict[str, str] = {}
    """Environment variables of the trial."""


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str = ""
    about: str = ""
    root: str = "."
    repeat: int = 3
    timeout_s: float = 300.0
    approve: bool = True
    seed: int = 1
    tape: str = ""


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    suite: _Head = _Head()
    goal: list[EvalGoal]
    factors: dict[str, dict[str, Level]] = {}


class Arm(msgspec.Struct, frozen=True):
    """One combination of levels."""

    name: str
    levels: dict[str, str]
    """The level of each factor."""
    planner: str
    mode: str
    plan: str
    tape: str
    settings: dict[str, Any]
    env: dict[str, str]

    def fill(self, text: str, goal: str, trial: int) -> str:
        """Return `text` with the names of a trial in the place of `{goal}`, `{trial}`, ..."""
        names = {**self.levels, "goal": goal, "trial": str(trial)}
        return re.sub(r"\{([^{}]*)\}", lambda found: names.get(found[1], found[0]), text)


class Suite(msgspec.Struct, frozen=True):
    """A suite as read."""

    file: Path
    root: Path
    """The folder that each trial gets a copy of."""
    name: str
    about: str
    """What readers of the results should know, such as who answered on the tapes."""
    repeat: int
    timeout_s: float
    approve: bool
    """Whether the person approves reviews."""
    seed: int
    goals: list[EvalGoal]
    arms: list[Arm]
    factors: dict[str, list[str]]
    digest: str
    """The digest of the document: results of another one are not continued."""

    @property
    def folder(self) -> Path:
        """The folder of the suite."""
        return self.file.parent


def read_suite(path: Path) -> Suite:
    """Read a suite: a TOML file, or a folder that holds `suite.toml`.

    Raises:
        UsageError: the file cannot be read, or something in it is wrong; the message names it.
    """
    file = path / "suite.toml" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
        document = msgspec.convert(tomllib.loads(text), _Document)
    except OSError as error:
        raise UsageError(
            f"{file}: {(error.strerror or 'cannot be read').lower()}. Fix: give a suite (a TOML "
            "file), or a folder that holds suite.toml"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{file}: {_place(str(error))}") from None
    head = document.suite
    folder = file.resolve().parent
    root = (folder / head.root).resolve()
    problems = [*_head_problems(head, folder, root), *_goal_problems(document)]
    problems += _factor_problems(document)
    if problems:
        raise UsageError("\n".join(f"{file}: {each}" for each in problems))
    return Suite(
        file=file.resolve(),
        root=root,
        name=head.name or folder.name,
        about=head.about,
        repeat=head.repeat,
        timeout_s=head.timeout_s,
        approve=head.approve,
        seed=head.seed,
        goals=document.goal,
        arms=_arms(document),
        factors={name: list(levels) for name, levels in document.factors.items()},
        digest=digest(canonical(msgspec.to_builtins(document))),
    )


def chosen(suite: Suite, *, repeat: int | None, arms: Iterable[str], goals: Iterable[str]) -> Suite:
    """Return the suite with only some of its arms and goals, and its own number of repetitions.

    Raise `UsageError` for a name that the suite does not have.
    """
    wanted_arms = _named(suite, "arm", [arm.name for arm in suite.arms], [*arms])
    wanted_goals = _named(suite, "goal", [goal.name for goal in suite.goals], [*goals])
    kept = [arm for arm in suite.arms if arm.name in wanted_arms]
    levels = {
        factor: [level for level in known if any(arm.levels[factor] == level for arm in kept)]
        for factor, known in suite.factors.items()
    }
    return msgspec.structs.replace(
        suite,
        repeat=repeat or suite.repeat,
        arms=kept,
        goals=[goal for goal in suite.goals if goal.name in wanted_goals],
        factors=levels,
    )


def _named(suite: Suite, what: str, known: list[str], wanted: list[str]) -> list[str]:
    for name in wanted:
        if name not in known:
            raise UsageError(f"{suite.file}: has no {what} {name!r}. There are: {listed(known)}")
    return wanted or known


def _place(message: str) -> str:
    """Return a message of msgspec with the place as it stands in the file."""
    text, _, place = message.partition(" - at `$")
    return f"{place.rstrip('`').lstrip('.')}: {text}" if place else text


def _head_problems(head: _Head, folder: Path, root: Path) -> list[str]:
    found = []
    if not folder.is_relative_to(root):
        found.append(f"suite.root: {head.root} does not hold the folder of the suite")
    if not 1 <= head.repeat <= 1000:
        found.append("suite.repeat: from 1 to 1000")
    if not 0 < head.timeout_s <= 86_400:
        found.append("suite.timeout_s: more than 0, at most 86400")
    return found


def _goal_problems(document: _Document) -> list[str]:
    found = [] if document.goal else ["no [[goal]] is there. Fix: add one"]
    names = [each.name for each in document.goal]
    for number, goal in enumerate(document.goal):
        place = f"goal[{number}]"
        if not NAME.fullmatch(goal.name):
            found.append(f"{place}.name: letters, digits, `.`, `_` and `-` only")
        if names.count(goal.name) > 1:
            found.append(f"{place}.name: {goal.name} is there twice")
        if not goal.check:
            found.append(f"{place}.check: is empty. Fix: name the command that decides")
        if not (goal.text or goal.want or goal.plan):
            found.append(f"{place}: needs text, want or plan")
    return found


def _factor_problems(document: _Document) -> list[str]:
    found = []
    count = len(document.goal) * document.suite.repeat
    for factor, levels in document.factors.items():
        count *= len(levels)
        odd = [name for name in (factor, *levels) if not NAME.fullmatch(name)]
        found += [f"factors: {name!r}: letters, digits, `.`, `_` and `-` only" for name in odd]
        if factor in ("goal", "trial", "arm"):
            found.append(f"factors.{factor}: is the name of something else. Fix: rename it")
        if not levels:
            found.append(f"factors.{factor}: has no level")
        for name, level in levels.items():
            place = f"factors.{factor}.{name}"
            if level.mode and level.mode not in MODES:
                known = listed(MODES)
                found.append(f"{place}.mode: {level.mode!r} is none of {known}")
            found += _hole_problems(f"{place}.tape", level.tape, document)
            found += _hole_problems(f"{place}.plan", level.plan, document)
    found += _hole_problems("suite.tape", document.suite.tape, document)
    found += _shared_problems(document.factors)
    if count > TRIALS_MAX:
        found.append(f"{count} trials; at most {TRIALS_MAX}")
    return found


def _hole_problems(place: str, text: str, document: _Document) -> list[str]:
    """Return a finding for each `{name}` that stands for nothing."""
    known = ("goal", "trial", *document.factors)
    holes = re.findall(r"\{([^{}]*)\}", text)
    return [
        f"{place}: {{{hole}}} stands for nothing. There are: {listed(known)}"
        for hole in holes
        if hole not in known
    ]


def _shared_problems(factors: dict[str, dict[str, Level]]) -> list[str]:
    """Return a finding for each thing that two factors set: one would undo the other."""
    setting: dict[str, list[str]] = {}
    for factor, levels in factors.items():
        names = {
            name
            for level in levels.values()
            for name in (
                *(f for f in ("planner", "mode", "plan", "tape") if getattr(level, f)),
                *level.settings,
                *level.env,
            )
        }
        for name in sorted(names):
            setting.setdefault(name, []).append(factor)
    return [
        f"factors: {listed(those)} all set {name}; one factor may"
        for name, those in setting.items()
        if len(those) > 1
    ]


def _arms(document: _Document) -> list[Arm]:
    """Return every combination of levels."""
    factors, made = document.factors, []
    for chosen in itertools.product(*(levels.items() for levels in factors.values())):
        levels = dict(zip(factors, (name for name, _ in chosen), strict=True))
        merged: dict[str, Any] = {}
        env: dict[str, str] = {}
        fields = {"planner": "", "mode": "", "plan": "", "tape": document.suite.tape}
        for _, level in chosen:
            merged |= level.settings
            env |= level.env
            fields = {name: getattr(level, name) or value for name, value in fields.items()}
        name = "/".join(levels.values()) or "only"
        made.append(Arm(name, levels, **fields, settings=merged, env=env))
    return made
