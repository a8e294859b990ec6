"""The difference of two plans, by meaning.

    changes = diff(old, new)         # empty when they mean the same
    apply(old, changes)              # the new plan, in its normal form

Plans are compared in canonical form (`core/plan/canonical.py`), so white space, the order of keys
and of steps, and YAML instead of JSON make no difference. A step that `supersedes` another is the
same step under a new name: references to the old name mean the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from leadhand.core.hashing import canonical
from leadhand.core.plan.canonical import (
    GOAL_SETS,
    STEP_SETS,
    canonical_plan,
    canonical_step,
    follow,
    heirs_of,
    named_steps,
    same_json,
)
from leadhand.core.plan.graph import ancestors, written_dependencies
from leadhand.core.plan.model import Json
from leadhand.core.visible import visible_key, visible_pair, visible_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.core.plan.model import Doc


Kind = Literal["added", "removed", "changed", "entries", "renamed", "order", "hold"]
Path = tuple[str | int, ...]
MARKS: dict[str, str] = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "entries": "~",
    "renamed": ">",
    "order": "!",
    "hold": "!",
}
"""`order` and `hold` describe consequences of other changes: they are shown, and never applied."""
POLICY = "policy"
"""The actor of holds placed for a missing approval: see `core/review/holds.py`."""


class ChangeRow(Struct, kw_only=True):
    """A difference between two plans, as documents show it."""

    kind: Kind
    """The kind of change."""
    path: str
    """The place in the plan."""
    text: str | UnsetType = UNSET
    """Of `order` and `hold`: a sentence."""
    removed: Json | UnsetType = UNSET
    """Of `entries`, as `added`: the entries of a list that went."""
    added: Json | UnsetType = UNSET
    """The added value."""
    old: Json | UnsetType = UNSET
    """The old value; of `renamed` the old id."""
    new: Json | UnsetType = UNSET
    """The new value; of `renamed` the new id."""


class Change(NamedTuple):
    """One difference. Steps stand in paths by id: ("steps", "deploy", "parameters", "version")."""

    kind: Kind
    path: Path
    old: Json = None
    """The old value; for `entries` the removed entries, for `renamed` the old id."""
    new: Json = None
    """The new value; for `entries` the added entries, for `renamed` the new id; for `order` and
    `hold` a sentence."""

    @property
    def place(self) -> str:
        """The path as text, such as `steps.deploy.parameters.version`."""
        return path_text(self.path)

    def document(self) -> ChangeRow:
        """Return the change in the form that `--json` prints."""
        row = ChangeRow(kind=self.kind, path=self.place)
        if self.kind in ("order", "hold"):
            row.text = self.new
        elif self.kind == "entries":
            row.removed, row.added = self.old, self.new
        else:
            row.old = UNSET if self.kind == "added" else self.old
            row.new = UNSET if self.kind == "removed" else self.new
        return row


class DiffLine(NamedTuple):
    """One line for people; `mark` is one of + - ~ > !."""

    mark: str
    text: str


def diff(old: Doc, new: Doc, heirs: Mapping[str, str] | None = None) -> list[Change]:
    """Return the changes that turn `old` into `new`.

    `heirs` adds renames that the plans do not show.
    """
    known = {**(heirs or {}), **heirs_of(new)}
    renames = _renames(old, new, known)
    return list(
        _plan(
            canonical_plan(old, {**_past(old, known), **renames}),
            canonical_plan(new, heirs),
            (),
            renames,
        )
    )


def differences(
    old: Doc,
    new: Doc,
    heirs: Mapping[str, str] | None = None,
    held: Mapping[str, str] | None = None,
) -> list[Change]:
    """Return `diff` and its consequences: dependencies between steps that disappear or appear.

    A step also waits for the steps whose results it uses, so a changed text may remove a
    dependency. `held` maps each held step to the actor of its hold.
    """
    changes = diff(old, new, heirs)
    return [*changes, *_led_to(old, new, heirs or {}, held or {})] if changes else []


def _led_to(
    old: Doc, new: Doc, heirs: Mapping[str, str], held: Mapping[str, str]
) -> Iterator[Change]:
    known = {**heirs, **heirs_of(new)}
    before, after = (_waits(each, known) for each in (old, new))
    for name in after:
        if name not in before or not before[name].keys() ^ after[name].keys():
            continue
        for other in before[name]:
            if other not in after[name] and other not in ancestors(after, name):
                why = ", which is held" if before[name][other] in held else ""
                gone = "" if other in after else ", which is taken out"
                text = f"{name} no longer waits for {other}{gone or why}"
                yield Change("order", ("steps", name), new=text)
        for other in after[name]:
            known_before = other in before and other not in before[name]
            if known_before and other not in ancestors(before, name):
                yield Change("order", ("steps", name), new=f"{name} now waits for {other}")
    for name, by in held.items():
        heir = follow(name, known)
        if heir not in after:
            text = f"{name} is no longer held: it is taken out"
            yield Change("hold", ("steps", name), new=text)
        elif heir != name and by == POLICY:
            text = f"{heir} is no longer held once this is approved"
            yield Change("hold", ("steps", heir), new=text)


def _waits(plan: Doc, heirs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the dependencies of each step by current names, each with the name as written."""
    steps = named_steps(plan.get("steps")) or {}
    return {
        follow(name, heirs): {follow(other, heirs): other for other in written_dependencies(step)}
        for name, step in steps.items()
    }


def _past(old: Doc, heirs: Mapping[str, str]) -> dict[str, str]:
    """Return the steps replaced before `old` was made: old name to the step that stands for it.

    A step that names another as one that it waits for, or is told of, did not stand for it yet.
    """
    steps = named_steps(old.get("steps")) or {}
    gone = {name: heir for name, heir in heirs.items() if name not in steps}
    past = {name: heir for name in gone if (heir := follow(name, gone)) in steps}
    return {name: heir for name, heir in past.items() if not _names(steps[heir], name)}


def _names(step: Doc, other: str) -> bool:
    """Return whether a step refers to another by its id."""
    found = canonical_step(step)
    entries = [*_listed(found.get("depends_on")), *_listed(found.get("context"))]
    return any(
        other in (each, each.get("step") if isinstance(each, dict) else "") for each in entries
    )


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def path_text(path: Path) -> str:
    """Return a path as text: `steps.deploy.parameters.version`."""
    text = ""
    for i, part in enumerate(path):
        if isinstance(part, int):
            text += f"[{part}]"
        elif i and path[i - 1] == "steps" and all(c.isalnum() or c in "_.-" for c in part):
            text += f".{part}" if part.isascii() else visible_key(part)
        else:
            text += visible_key(part)
    return text.removeprefix(".")


def lines(changes: Iterable[Change]) -> Iterator[DiffLine]:
    """Yield the changes as lines for people: complete, with invisible characters made visible."""
    for change in changes:
        mark, place = MARKS[change.kind], change.place
        match change.kind:
            case "order" | "hold":
                yield DiffLine(mark, str(change.new))
            case "renamed":
                yield DiffLine(mark, f"{place} is now {path_text((*change.path[:-1], change.new))}")
            case "changed":
                old, new = visible_pair(change.old, change.new)
                yield DiffLine(mark, f"{place}: {old} → {new}")
            case "entries":
                went = [f"- {visible_value(each)}" for each in change.old]
                came = [f"+ {visible_value(each)}" for each in change.new]
                yield DiffLine(mark, f"{place}: {', '.join([*came, *went])}")
            case _:
                value = change.new if change.kind == "added" else change.old
                if len(change.path) > 1 and change.path[-2] == "steps" and isinstance(value, dict):
                    yield DiffLine(mark, place)
                    yield from (DiffLine(mark, f"  {line}") for line in _leaves(value))
                else:
                    yield DiffLine(mark, f"{place}: {visible_value(value)}")


def _leaves(step: Doc) -> Iterator[str]:
    for key, value in step.items():
        if key == "id" or (key == "depends_on" and not value):
            continue
        if key == "parameters" and isinstance(value, dict):
            for name, each in value.items():
                yield f"{path_text((key, name))}: {visible_value(each)}"
        else:
            yield f"{path_text((key,))}: {visible_value(value)}"


# Comparing normal forms.


def _renames(old: Doc, new: Doc, heirs: Mapping[str, str]) -> dict[str, str]:
    """Return the steps of the old plan that have another name in the new one: old id to new."""
    before, after = named_steps(old.get("steps")), named_steps(new.get("steps"))
    found: dict[str, str] = {}
    for ident in before or ():
        heir = follow(ident, heirs)
        if before and after and ident not in after and heir in after and heir not in before:
            found.setdefault(heir, ident)
    return {ident: heir for heir, ident in found.items()}


def _plan(old: Doc, new: Doc, path: Path, renames: Mapping[str, str]) -> Iterator[Change]:
    for key in [*old, *(key for key in new if key not in old)]:
        here = (*path, key)
        if key not in new:
            yield Change("removed", here, old=old[key])
        elif key not in old:
            yield Change("added", here, new=new[key])
        elif not isinstance(old[key], dict) or not isinstance(new[key], dict):
            yield from _value(old[key], new[key], here)
        elif key == "steps":
            yield from _steps(old[key], new[key], here, renames)
        elif key == "rollback_plan":
            yield from _plan(old[key], new[key], here, {})
        elif key == "goal":
            yield from _fields(old[key], new[key], here, GOAL_SETS)
        else:
            yield from _value(old[key], new[key], here)


def _steps(old: Doc, new: Doc, path: Path, renames: Mapping[str, str]) -> Iterator[Change]:
    renamed = {heir: ident for ident, heir in renames.items()}
    for ident, step in new.items():
        here = (*path, ident)
        if ident in old:
            yield from _fields(old[ident], step, here, STEP_SETS)
        elif ident in renamed:
            before = renamed[ident]
            yield Change("renamed", (*path, before), old=before, new=ident)
            taken = {**old[before], "id": ident, "supersedes": before}
            yield from _fields(taken, step, here, STEP_SETS)
        else:
            yield Change("added", here, new=step)
    for ident, step in old.items():
        if ident not in new and ident not in renames:
            yield Change("removed", (*path, ident), old=step)


def _fields(old: Doc, new: Doc, path: Path, sets: frozenset[str]) -> Iterator[Change]:
    for key in [*old, *(key for key in new if key not in old)]:
        here = (*path, key)
        if key not in new:
            yield Change("removed", here, old=old[key])
        elif key not in old:
            yield Change("added", here, new=new[key])
        elif key in sets and isinstance(old[key], list) and isinstance(new[key], list):
            yield from _entries(old[key], new[key], here)
        elif key == "undo" and isinstance(old[key], dict) and isinstance(new[key], dict):
            yield from _fields(old[key], new[key], here, STEP_SETS)
        else:
            yield from _value(old[key], new[key], here)


def _entries(old: list[Json], new: list[Json], path: Path) -> Iterator[Change]:
    before, after = ({canonical(each): each for each in entries} for entries in (old, new))
    went = [each for key, each in before.items() if key not in after]
    came = [each for key, each in after.items() if key not in before]
    if len(went) == len(came) == len(old) == len(new) == 1 and path[-1] != "depends_on":
        yield from _value(old, new, path)
    elif went or came:
        yield Change("entries", path, old=went, new=came)


def _value(old: Json, new: Json, path: Path) -> Iterator[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _fields(old, new, path, frozenset())
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _value(one, other, (*path, i))
    elif not same_json(old, new):
        yield Change("changed", path, old=old, new=new)
