"""Amending a plan: edits by path, and the delta that makes a running run follow an edited plan.

    doc, heirs = plan_of(state)                    # core/plan/revisions.py: the plan as it stands
    doc = edit(doc, [("steps.step-3.not_before", "02:00 America/New_York")], heirs=heirs)
    delta = amendment(state, doc)                  # add, cancel, final, head

A path names a step by its id: `steps.step-3.parameters.version`, `budget`, `goal.text`,
`steps.a.parameters["a key"][0]`. `steps.step-9={...}` adds a step, unsetting one takes it out.

A step that has started cannot change. A step that has not started is changed by a step with a new
id that `supersedes` it; references to the old id then mean the new one (`State.follow`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.plan.canonical import (
    canonical_plan,
    canonical_step,
    follow,
    heirs_of,
    named_steps,
    same_json,
)
from leadhand.core.plan.diff import diff, lines
from leadhand.core.plan.graph import written_dependencies
from leadhand.core.plan.references import describe
from leadhand.core.plan.revisions import plan_of, rename_references
from leadhand.core.state.model import MOVABLE, REPLACEABLE
from leadhand.core.visible import visible_key
from leadhand.core.wording import closest, escaped, listed, shown
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import State


MISSING: Any = type("Missing", (), {"__repr__": lambda _self: "MISSING"})()
"""Returned by `look` when the path leads to no value."""

ID_MAX = 100
FAILED = ("failed", "skipped")
"""Statuses of steps that ended without a result: an edit may take such steps out."""
_PART = re.compile(r"""\.?([^.\[\]="'\s]+)|\[(\d{1,9})\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\]""")
_HEIR = re.compile(r"(.+)\.\d+")


class Delta(NamedTuple):
    """The content of a revision that makes a run follow an edited plan."""

    add: list[Doc]
    cancel: list[str]
    final: bool
    head: Doc
    """Changed fields beside the steps, with their new values; None for a field that was taken
    out."""
    renamed: dict[str, str]
    """Changed steps: old id to new id."""
    drop: list[str]
    """Failed and skipped steps that are taken out."""

    @property
    def empty(self) -> bool:
        """Whether no step changed. Ignores `final`, which the caller compares."""
        return not (self.add or self.cancel or self.drop or self.head)


# Edits by path.


def value_at(plan: Doc, path: str, heirs: Mapping[str, str] | None = None) -> Json:
    """Return the value at `path`, or MISSING."""
    try:
        holder, key = _Walk(plan, path, heirs).end(make=False)
    except UsageError:
        return MISSING
    return holder[key] if _holds(holder, key) else MISSING


def step_at(
    plan: Doc, path: str, heirs: Mapping[str, str] | None = None
) -> tuple[Doc | None, list[str | int]]:
    """Return the step that `path` leads into, or None, and the rest of the path.

    Raise `UsageError` if `path` is malformed.
    """
    walk = _Walk(plan, path, heirs)
    parts, steps = walk.parts, plan.get("steps")
    if parts[0] != "steps" or len(parts) < 2 or not isinstance(steps, list):
        return None, parts
    if isinstance(parts[1], int):
        found = (parts[1], 1) if parts[1] < len(steps) else None
    else:
        found = walk._found(steps, 1)  # noqa: SLF001 - its own module
    if found is None or not isinstance(steps[found[0]], dict):
        return None, parts
    return steps[found[0]], parts[1 + found[1] :]


def edit(
    plan: Doc,
    sets: Iterable[tuple[str, Json | Callable[[Doc], Json]]] = (),
    unset: Iterable[str] = (),
    *,
    heirs: Mapping[str, str] | None = None,
) -> Doc:
    """Return a copy of `plan` with the values of `sets` put in and the paths of `unset` taken out.

    A value may be a function of the plan after the edits before it. `heirs` maps superseded step
    ids to their successors. Raise `UsageError`, which names the path
    and the keys present there, for a path that does not fit the plan.
    """
    found: Doc = _copy(plan)
    for path, given in sets:
        value: Json = given(found) if callable(given) else given
        walk = _Walk(found, path, heirs)
        if walk.adds_step(value):
            continue
        holder, key = walk.end(make=True)
        if isinstance(holder, list) and not _holds(holder, key):
            raise UsageError(f"{path}: there is no item [{key}]; the list has {len(holder)}")
        own = {"id": holder[key]["id"]} if walk.is_step and isinstance(value, dict) else {}
        holder[key] = _copy({**own, **value} if own else value)
    for path in unset:
        walk = _Walk(found, path, heirs)
        holder, key = walk.end(make=False)
        if not _holds(holder, key):
            raise UsageError(f"{path}: is not there. {walk.there(holder)}")
        del holder[key]
    return found


def parts_of(path: str) -> list[str | int]:
    """Split a path into keys and list indexes. Raise `UsageError` if it is malformed."""
    found: list[str | int] = []
    at = 0
    for match in _PART.finditer(path):
        if match.start() != at:
            break
        at = match.end()
        name, index, double, single = match.groups()
        quoted = re.sub(r"\\(.)", r"\1", double) if double is not None else single
        found.append(int(index) if index is not None else name if name is not None else quoted)
    if not found or at != len(path):
        raise UsageError(
            f"{path[:100]!r} is not a path. Fix: write it as steps.ID.FIELD, "
            'steps.ID.parameters.NAME, budget, or with ["a key"] and [0].'
        )
    return found


class _Walk:
    """A walk along a path into a plan."""

    def __init__(self, plan: Doc, path: str, heirs: Mapping[str, str] | None) -> None:
        self.plan, self.path = plan, path
        self.parts = parts_of(path)
        self.heirs = {**heirs_of(plan), **(heirs or {})}
        self.is_step = False
        """Whether the path ends at a step."""

    def end(self, *, make: bool) -> tuple[Any, Any]:
        """Return the container of the last part, and its key; `make` creates objects on the way."""
        holder: Any = self.plan
        i, here = 0, ""
        while True:
            key: Any = self.parts[i]
            used = 1
            by_id = isinstance(holder, list) and isinstance(key, str) and here.endswith("steps")
            if by_id:
                key, used = self._step(holder, i)
            elif isinstance(key, str) != isinstance(holder, dict):
                raise self._no_inside(here, holder)
            if i + used == len(self.parts):
                self.is_step = by_id
                return holder, key
            named = f".{holder[key]['id']}" if by_id else f"[{key}]"
            here = (here + (visible_key(key) if isinstance(key, str) else named)).removeprefix(".")
            if not _holds(holder, key):
                if not make or isinstance(holder, list):
                    raise UsageError(f"{self.path}: {here} is not there. {self.there(holder)}")
                holder[key] = {}
            holder = holder[key]
            if not isinstance(holder, dict | list):
                raise self._no_inside(here, holder)
            i += used

    def adds_step(self, value: Json) -> bool:
        """Add `value` as a new step if the path names one that does not exist.

        Return whether it did.
        """
        steps = self.plan.get("steps")
        words = [part for part in self.parts if isinstance(part, str)]
        if self.parts[0] != "steps" or len(words) != len(self.parts) or len(words) < 2:
            return False
        ident = ".".join(words[1:])
        if not isinstance(steps, list) or not isinstance(value, dict) or "worker" not in value:
            return False
        if self._found(steps, 1) is not None:
            return False
        steps.append({"id": ident, **_copy(value)})
        return True

    def there(self, holder: Any) -> str:
        """Return a sentence that lists the keys of `holder`, or says how long the list is."""
        if isinstance(holder, dict):
            return f"There are: {listed(holder, 40)}." if holder else "There is nothing."
        return f"The list has {len(holder)}."

    def _found(self, steps: list[Any], i: int) -> tuple[int, int] | None:
        """Return the index of the step whose id begins at part `i`, and the parts its id takes."""
        places = {each.get("id"): at for at, each in enumerate(steps) if isinstance(each, dict)}
        words: list[str] = []
        found = None
        for part in self.parts[i:]:
            if not isinstance(part, str):
                break
            words.append(part)
            name = ".".join(words)
            at = places.get(name, places.get(follow(name, self.heirs)))
            if at is not None:
                found = at, len(words)
        return found

    def _step(self, steps: list[Any], i: int) -> tuple[int, int]:
        found = self._found(steps, i)
        if found is not None:
            return found
        ids = [each["id"] for each in steps if isinstance(each, dict) and "id" in each]
        meant = closest(self.parts[i], ids)
        hint = f"Did you mean {shown(meant)}? " if meant else ""
        known = f"The plan has: {listed(ids, 40)}." if ids else "The plan has no steps."
        raise UsageError(
            f"{escaped(self.path)}: there is no step {shown(self.parts[i])}. {hint}{known} "
            "To add a step, set the whole step, with its worker."
        )

    def _no_inside(self, here: str, holder: Any) -> UsageError:
        what = f"{here or 'a plan'} {describe(holder)}"
        if not isinstance(holder, dict | list):
            what += f" ({shown(holder)})"
        return UsageError(f"{self.path}: {what}, so there is no such place in it; set it whole")


def _holds(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


# From an edited plan to a revision.


def amendment(state: State, after: Doc) -> Delta:
    """Return the delta that makes a run follow an edited plan. It replaces a pending revision."""
    before, heirs = plan_of(state, pending=False)
    statuses = {ident: step.status for ident, step in state.steps.items()}
    return changes(before, after, statuses, heirs=heirs)


def changes(
    before: Doc,
    after: Doc,
    started: Mapping[str, str] | Collection[str],
    *,
    heirs: Mapping[str, str] | None = None,
) -> Delta:
    """Return the delta from plan `before` to plan `after`.

    `started` maps every step of the run to its status (see `state.steps`), or is a collection of
    the ids that have started. Raise `UsageError`, which names every step that cannot change.
    """
    known = started if hasattr(started, "get") else dict.fromkeys(started, "running")
    return _Edited(before, after, known, heirs or {}).delta()  # type: ignore[arg-type]


class _Edited:
    """A plan before and after an edit."""

    def __init__(
        self, before: Doc, after: Doc, started: Mapping[str, str], heirs: Mapping[str, str]
    ) -> None:
        self.before, self.after = before, after
        self.started, self.heirs = started, heirs
        self.old = named_steps(before.get("steps")) or {}
        new = named_steps(after.get("steps"))
        if new is None:
            raise UsageError("steps: must be a list of steps, each with an id of its own")
        self.new = new
        self.wrong: list[str] = []
        self.taken = {*self.old, *self.new, *started, *heirs}

    def delta(self) -> Delta:
        add, renamed = [], {}
        for ident, step in self.new.items():
            old = ident if ident in self.old else self._ancestor(ident)
            if old:
                changed = self._changed(ident, old, step)
                if changed is not None:
                    add.append(changed)
                    renamed[old] = changed["id"]
            elif ident in self.started:
                self.wrong.append(f"the run had a step {ident} before: take another id")
            else:
                add.append(step)
        replaced = {step["supersedes"] for step in add if step.get("supersedes")}
        cancel = self._cancelled(replaced)
        if self.wrong:
            raise UsageError("; ".join(self.wrong))
        final = self.after.get("final", True) is not False
        gone = [ident for ident in cancel if self.started[ident] in FAILED]
        cancel = [ident for ident in cancel if ident not in gone]
        return Delta(add, cancel, final, self._head(), renamed, gone)

    def _ancestor(self, ident: str) -> str:
        """Return the current step behind an older name, or "" if `ident` is no older name."""
        heir = follow(ident, self.heirs)
        return heir if heir != ident and heir in self.old and heir not in self.new else ""

    def _changed(self, ident: str, old: str, step: Doc) -> Doc | None:
        before, after = self.old[old], {**step, "id": old}
        if ident != old and "supersedes" in before:
            after["supersedes"] = before["supersedes"]
        if same_json(canonical_step(before, self.heirs), canonical_step(after, self.heirs)):
            return None
        status = self.started.get(old)
        if status is not None and status not in REPLACEABLE:
            what = diff({"steps": [before]}, {"steps": [after]}, self.heirs)
            told = "; ".join(line.text.removeprefix("steps.") for line in lines(what))
            self.wrong.append(f"step {old} is {status} and cannot change any more ({told})")
            return None
        new = {**after, "id": self._fresh(before), "supersedes": old}
        if "undo" in new:  # It may refer to its own result, which has a new name.
            new["undo"] = rename_references(new["undo"], {old: new["id"], ident: new["id"]})
        return new

    def _fresh(self, step: Doc) -> str:
        """Return an id not used before: step-3.2, then step-3.3."""
        ident: str = step["id"]
        heir = _HEIR.fullmatch(ident) if "supersedes" in step else None
        root = (heir[1] if heir else ident)[: ID_MAX - 6]
        number = 2
        while f"{root}.{number}" in self.taken:
            number += 1
        self.taken.add(f"{root}.{number}")
        return f"{root}.{number}"

    def _cancelled(self, replaced: Collection[str]) -> list[str]:
        cancel = []
        for ident in self.old:
            stays = ident in self.new or any(self._ancestor(name) == ident for name in self.new)
            if stays or ident in replaced:
                continue
            status = self.started.get(ident, "waiting")
            if status not in MOVABLE and status not in FAILED:
                self.wrong.append(f"step {ident} is {status} and cannot be taken out any more")
            elif ident in self.started:
                cancel.append(ident)
        gone = set(cancel)
        for ident, step in self.new.items():
            for name, tolerant in written_dependencies(step).items():
                heir = follow(name, self.heirs)
                if heir in gone and not tolerant:
                    self.wrong.append(f"step {ident} waits for {name}, which was taken out")
        return cancel

    def _head(self) -> Doc:
        before, after = (
            {
                key: value
                for key, value in canonical_plan(doc).items()
                if key not in ("steps", "final")
            }
            for doc in (self.before, self.after)
        )
        names = [*before, *(name for name in after if name not in before)]
        return {
            name: self.after.get(name)
            for name in names
            if name not in before or name not in after or not same_json(before[name], after[name])
        }
