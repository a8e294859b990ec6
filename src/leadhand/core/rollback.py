"""The plan that undoes a run: a run of its own, linked to the first.

If the plan names a `rollback_plan`, that plan is used. Otherwise every step that succeeded and
declares an `undo` is undone, the last one first, one after the other: a step is undone before the
steps it was built on. Steps that did not succeed are not undone; an unknown outcome is resolved as
ever, in the original run.

The rollback of run R is the run R-rollback: there can be only one, so repeated requests and crashes
in between still do each undo once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.plan.amend import ID_MAX
from leadhand.core.plan.references import Ref, Secret, resolve
from leadhand.core.plan.revisions import replace_references
from leadhand.core.views.run import goal_of
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.state.model import State, StepState

SUFFIX = "-rollback"
_NO_PATH = re.compile(r"[^\w ,.:;'-]+")


class Rollback(NamedTuple):
    """A plan document, and the values of its parameters."""

    plan: Doc
    params: Doc
    lenient: bool = False
    """Whether it holds results of the run: a result that does not fit fails only when used."""


def rollback_id(run: str) -> str:
    """Return the id of the rollback of a run."""
    return f"{run}{SUFFIX}"


def rollback_of(state: State, library: Callable[[str], Doc]) -> Rollback:
    """Return the rollback of a run that has ended; `library` returns a plan by its name.

    Raise `Conflict` if the run has not ended, `UsageError` if it is itself a rollback.
    """
    started = state.started
    if started is None or state.ended is None:
        raise Conflict(f"run {state.run} has not ended: cancel it before it is rolled back")
    if state.run.endswith(SUFFIX):
        raise UsageError(f"run {state.run} is a rollback itself. Fix: leadhand resume {state.run}")
    named = started.plan.get("rollback_plan")
    if named is not None:
        return _given_plan(state, dict(library(named) if isinstance(named, str) else named))
    undone = _undone(state)
    if not undone:
        raise UsageError(f"run {state.run} has nothing to roll back: {nothing_to_undo(state)}")
    return _undo_plan(state, undone)


def can_roll_back(state: State) -> bool:
    """Return whether there is a rollback plan, or a completed step with an undo."""
    named = state.started is not None and state.started.plan.get("rollback_plan") is not None
    return (named or state.undoable > 0) and not state.run.endswith(SUFFIX)


def to_roll_back(state: State) -> bool:
    """Return whether a run ended with a rollback due, and there is something to undo."""
    return state.ended is not None and state.ended.rollback and can_roll_back(state)


def nothing_to_undo(state: State) -> str:
    """Explain why a run has nothing to undo."""
    if any("undo" in step.doc for step in state.steps.values()):
        return "no step that can be undone has completed"
    return "no step has an undo, and the plan has no rollback_plan"


def _given_plan(state: State, plan: Doc) -> Rollback:
    """Return a rollback plan with the results it refers to as parameters."""
    declared: Doc = dict(plan.get("params", {}))
    values = given_params(state, declared)
    kept = _Kept(state, declared, values, "run", {**declared})
    tasks = ("parameters", "undo")
    plan["steps"] = [
        {
            **step,
            **{key: replace_references(step[key], kept, "run") for key in tasks if key in step},
        }
        for step in plan["steps"]
    ]
    if kept.count:
        plan["params"] = declared
    return _titled(state, plan, values)._replace(lenient=bool(kept.count))


def _undone(state: State) -> list[StepState]:
    """Return the steps that succeeded and have an undo, the last first."""
    done = [s for s in state.steps.values() if s.status == "succeeded" and "undo" in s.doc]
    return sorted(done, key=lambda step: (step.ended, step.order), reverse=True)


def _undo_plan(state: State, steps: list[StepState]) -> Rollback:
    head = state.started.plan if state.started else {}
    declared: Doc = dict(head.get("params", {}))
    values = given_params(state, declared)
    docs: list[Doc] = []
    kept = _Kept(state, declared, values, "undo", {**declared, **state.params})
    for number, step in enumerate(steps, 1):
        undo: Doc = dict(step.doc["undo"])
        kept.purpose = f", to take {step.id} back"
        given = replace_references(undo.get("parameters") or {}, kept)
        name = _named(step.id, number)
        doc = {**undo, "id": name, **({"parameters": given} if given else {})}
        if docs:  # If a person skips one undo, the others still run.
            doc["depends_on"] = [{"step": docs[-1]["id"], "if": "finished"}]
        docs.append(doc)
    plan: Doc = {"steps": docs, **({"params": declared} if declared else {})}
    return _titled(state, plan, values)._replace(lenient=True)


class _Kept:
    """Turns references to results of the original run into parameters of its rollback."""

    def __init__(
        self, state: State, declared: Doc, values: Doc, prefix: str, taken: Container[str]
    ) -> None:
        """Add parameters to `declared` and `values`, avoiding the names in `taken`."""
        self._state, self._declared, self._values = state, declared, values
        self._prefix, self._taken = prefix, taken
        self.count = 0
        self.purpose = ""

    def __call__(self, ref: Ref) -> str:
        """Declare a parameter with the value of `ref`; return the reference to it."""
        while True:
            self.count += 1
            name = f"{self._prefix}_{self.count}"
            if name not in self._taken:
                break
        what = ref.text.strip("${ }")
        self._declared[name] = {"description": f"{what}{self.purpose or ' of the run'}"}
        self._values[name], path = _known(self._state, ref)
        return f"${{{{ params.{name}{path} }}}}"


def _named(ident: str, number: int) -> str:
    """Return the id of an undo: its step's id with a prefix, cut to the maximum length."""
    name = f"undo-{ident}"
    return name if len(name) <= ID_MAX else f"undo-{ident[: ID_MAX - 20]}.{number}"


def given_params(state: State, declared: Doc) -> Doc:
    """Return the run's own parameter values; for a secret, its source."""
    found = {name: state.params[name] for name in declared if name in state.params}
    return {name: v.source if isinstance(v, Secret) else v for name, v in found.items()}


def _known(state: State, ref: Ref) -> tuple[Json, str]:
    """Return the value of a reference and "", or None and a path that carries the reason.

    That path leads nowhere, so only this undo is asked about, and the others still run.
    """
    try:
        return resolve(ref.text, lambda each: state.lookup(each._replace(kind="steps"))), ""
    except LookupError as error:
        why = _NO_PATH.sub(" ", str(error).partition("has no value: ")[2] or str(error))
        return None, f'["{why[:100].strip()}"]'


def _titled(state: State, plan: Doc, params: Doc) -> Rollback:
    plan.setdefault("plan_id", rollback_id(str(plan.get("plan_id") or state.run)))
    text = goal_of(state).text
    what = f"Roll back run {state.run}" + (f": {text}" if text else "")
    plan.setdefault("goal", what[:500])
    return Rollback(plan, params)
