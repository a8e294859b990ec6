"""The plan that takes back what a run did: a run of its own, linked to the first.

Where the plan names a `rollback_plan`, that is it. Otherwise every step that succeeded and says how
to undo it is undone, the last one first, one after the other: what was built on something is gone
before that is. Steps that did not succeed have nothing to take back; what nobody saw is asked about
as ever, in the run that did it.

The rollback of run R is the run R-rollback: there can be only one, so however often it is asked for
and whatever dies in between, each undo is done once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.plan.amend import ID_MAX
from leadhand.core.plan.references import Ref, Secret, resolve
from leadhand.core.plan.revisions import with_references
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
    """Whether it holds results of the run: one that does not fit fails when its turn comes."""


def rollback_id(run: str) -> str:
    """The run that takes back what a run did."""
    return f"{run}{SUFFIX}"


def rollback_of(state: State, library: Callable[[str], Doc]) -> Rollback:
    """How to take back what a run did; `library` finds a plan by its name."""
    started = state.started
    if started is None or state.ended is None:
        raise Conflict(f"run {state.run} has not ended: cancel it before it is rolled back")
    if state.run.endswith(SUFFIX):
        raise UsageError(f"run {state.run} is a rollback itself: take it up again with resume")
    named = started.plan.get("rollback_plan")
    if named is not None:
        return _given_plan(state, dict(library(named) if isinstance(named, str) else named))
    undone = _undone(state)
    if not undone:
        raise UsageError(f"run {state.run} has nothing to take back: {nothing_to_undo(state)}")
    return _undo_plan(state, undone)


def can_roll_back(state: State) -> bool:
    """Whether there is something to take back: a plan for it, or a completed step with an undo."""
    named = state.started is not None and state.started.plan.get("rollback_plan") is not None
    return (named or state.undoable > 0) and not state.run.endswith(SUFFIX)


def to_roll_back(state: State) -> bool:
    """Whether a run ended so that what it did is to be taken back, and there is something."""
    return state.ended is not None and state.ended.rollback and can_roll_back(state)


def nothing_to_undo(state: State) -> str:
    """The reason why a run has nothing to take back, in words."""
    if any("undo" in step.doc for step in state.steps.values()):
        return "no step that can be undone has completed"
    return "no step of it says how it is undone, and its plan has no rollback_plan"


def _given_plan(state: State, plan: Doc) -> Rollback:
    """A rollback plan with the results that it refers to put in as parameters."""
    declared: Doc = dict(plan.get("params", {}))
    values = _given(state, declared)
    kept = _Kept(state, declared, values, "run", {**declared})
    tasks = ("parameters", "undo")
    plan["steps"] = [
        {**step, **{key: with_references(step[key], kept, "run") for key in tasks if key in step}}
        for step in plan["steps"]
    ]
    if kept.count:
        plan["params"] = declared
    return _titled(state, plan, values)._replace(lenient=bool(kept.count))


def _undone(state: State) -> list[StepState]:
    """Steps that succeeded and can be undone, the last first."""
    done = [s for s in state.steps.values() if s.status == "succeeded" and "undo" in s.doc]
    return sorted(done, key=lambda step: (step.ended, step.order), reverse=True)


def _undo_plan(state: State, steps: list[StepState]) -> Rollback:
    head = state.started.plan if state.started else {}
    declared: Doc = dict(head.get("params", {}))
    values = _given(state, declared)
    docs: list[Doc] = []
    kept = _Kept(state, declared, values, "undo", {**declared, **state.params})
    for number, step in enumerate(steps, 1):
        undo: Doc = dict(step.doc["undo"])
        kept.purpose = f", to take {step.id} back"
        given = with_references(undo.get("parameters") or {}, kept)
        name = _named(step.id, number)
        doc = {**undo, "id": name, **({"parameters": given} if given else {})}
        if docs:  # One that a person lets go leaves the others to be undone.
            doc["depends_on"] = [{"step": docs[-1]["id"], "if": "finished"}]
        docs.append(doc)
    plan: Doc = {"steps": docs, **({"params": declared} if declared else {})}
    return _titled(state, plan, values)._replace(lenient=True)


class _Kept:
    """Turns references to results of a run that has ended into parameters of its rollback."""

    def __init__(
        self, state: State, declared: Doc, values: Doc, prefix: str, taken: Container[str]
    ) -> None:
        """`declared` and `values` are added to; names in `taken` are not used."""
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
    """The id of an undo: that of its step, as far as there is room for it."""
    name = f"undo-{ident}"
    return name if len(name) <= ID_MAX else f"undo-{ident[: ID_MAX - 20]}.{number}"


def _given(state: State, declared: Doc) -> Doc:
    """The run's own values of parameters; of a secret, where it is."""
    found = {name: state.params[name] for name in declared if name in state.params}
    return {name: v.source if isinstance(v, Secret) else v for name, v in found.items()}


def _known(state: State, ref: Ref) -> tuple[Json, str]:
    """What a reference stands for, and the path from there: where it stands for nothing, one that
    leads nowhere and says why, so that this undo is asked about, and keeps no other from running.
    """
    try:
        return resolve(ref.text, lambda each: state.lookup(each._replace(kind="steps"))), ""
    except LookupError as error:
        why = _NO_PATH.sub(" ", str(error).partition("has no value: ")[2] or str(error))
        return None, f'["{why[:100].strip()}"]'


def _titled(state: State, plan: Doc, params: Doc) -> Rollback:
    plan.setdefault("plan_id", rollback_id(str(plan.get("plan_id") or state.run)))
    text = goal_of(state).text
    what = f"Take back what run {state.run} did" + (f": {text}" if text else "")
    plan.setdefault("goal", what[:500])
    return Rollback(plan, params)
