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
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from leadhand.core.amend import ID_MAX
from leadhand.core.refs import Ref, Secret, resolve
from leadhand.core.revisions import with_references
from leadhand.core.views import goal_of
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.plan import Doc, Json
    from leadhand.core.state import State, StepState

SUFFIX = "-rollback"
_NO_PATH = re.compile(r"[^\w ,.:;'-]+")


class Rollback(NamedTuple):
    """A plan document, and the values of its parameters."""

    plan: Doc
    params: Doc
    undos: bool = False
    """Whether it was made of the undos of steps, rather than given."""


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
        plan = dict(library(named) if isinstance(named, str) else named)
        return _titled(state, plan, _given(state, plan.get("params", {})))
    undone = _undone(state)
    if not undone:
        raise UsageError(f"run {state.run} has nothing to take back: no step of it says how")
    return _undo_plan(state, undone)


def _undone(state: State) -> list[StepState]:
    """Steps that succeeded and can be undone, the last first."""
    done = [s for s in state.steps.values() if s.status == "succeeded" and "undo" in s.doc]
    return sorted(done, key=lambda step: (step.ended, step.order), reverse=True)


def _undo_plan(state: State, steps: list[StepState]) -> Rollback:
    head = state.started.plan if state.started else {}
    declared: Doc = dict(head.get("params", {}))
    values = _given(state, declared)
    docs: list[Doc] = []
    for number, step in enumerate(steps, 1):
        undo: Doc = dict(step.doc["undo"])

        def known(ref: Ref, ident: str = step.id) -> str:
            """A result is known by now, and becomes a parameter; a secret stays where it is."""
            taken = {**declared, **state.params}
            name = next(n for i in count(1) if (n := f"undo_{i}") not in taken)
            declared[name] = {"description": f"{ref.text.strip('${ }')}, to take {ident} back"}
            values[name], path = _known(state, ref)
            return f"${{{{ params.{name}{path} }}}}"

        given = with_references(undo.get("parameters") or {}, known)
        name = _named(step.id, number)
        doc = {**undo, "id": name, **({"parameters": given} if given else {})}
        if docs:  # One that a person lets go leaves the others to be undone.
            doc["depends_on"] = [{"step": docs[-1]["id"], "if": "finished"}]
        docs.append(doc)
    plan: Doc = {"steps": docs, **({"params": declared} if declared else {})}
    return _titled(state, plan, values)._replace(undos=True)


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
        return resolve(ref.text, state.lookup), ""
    except LookupError as error:
        why = _NO_PATH.sub(" ", str(error).partition("has no value: ")[2] or str(error))
        return None, f'["{why[:100].strip()}"]'


def _titled(state: State, plan: Doc, params: Doc) -> Rollback:
    plan.setdefault("plan_id", rollback_id(str(plan.get("plan_id") or state.run)))
    text = goal_of(state).text
    what = f"Take back what run {state.run} did" + (f": {text}" if text else "")
    plan.setdefault("goal", what[:500])
    return Rollback(plan, params)
