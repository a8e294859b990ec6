"""Steps that must not start until a person says so, and why: held by hand, or no longer allowed.

A hold is a question like any other: it stands in the inbox, and its answer releases the steps or
ends the run. Three things make one: a person ("stop before step-3"), an approval whose time is up,
and a worker that is no longer the one that was approved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.catalog import Catalog, doers
from leadhand.core.effects import Effect, Notify
from leadhand.core.review import ENDS_SINCE, reach_of, ruling, standing, without
from leadhand.core.reviewing import reconsidered
from leadhand.core.state import SETTLED
from leadhand.core.wording import listed, meant
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.catalog import WorkerSpec
    from leadhand.core.plan import Doc
    from leadhand.core.review import Ruling
    from leadhand.core.state import State, StepState

Moves = tuple[list[ev.Event], list[Effect]]
POLICY = "policy"
CHOICES = ["release", "abort"]


def _held(state: State, steps: list[StepState], reason: str, actor: str) -> Moves:
    ident = f"q{state.asked + 1}"
    names = [step.id for step in steps]
    text = f"Held before {listed(names)}: {reason}. Answer release to go on."
    held = ev.StepsHeld(names, reason, actor, ident)
    asked = ev.QuestionAsked(id=ident, kind="hold", text=text, choices=CHOICES)
    return [held, asked], [Notify("waiting", text)]


def hold(state: State, names: Iterable[str], actor: str, reason: str) -> list[ev.Event]:
    """A person wants steps not to start."""
    steps = []
    for name in dict.fromkeys(names):
        step = state.follow(name)
        if step is None:
            raise UsageError(
                f"there is no step {name} in run {state.run}. {meant(name, state.steps)}"
            )
        if step.status in SETTLED or step.id in state.in_flight:
            status = "running" if step.id in state.in_flight else step.status
            raise Conflict(f"step {name} is {status}: only what has not started can be held")
        if step.held:
            raise Conflict(f"step {name} is held already ({step.held})")
        steps.append(step)
    if not steps:
        raise UsageError("name the steps to hold")
    return _held(state, steps, reason or f"{actor} said so", actor)[0]


def questions(state: State, names: Iterable[str]) -> list[str]:
    """The questions that hold steps, each once."""
    found = []
    for name in names:
        step = state.follow(name)
        if step is None:
            raise UsageError(
                f"there is no step {name} in run {state.run}. {meant(name, state.steps)}"
            )
        if not step.held:
            raise Conflict(f"step {name} is not held: it is {step.status}")
        found.append(step.held)
    if not found:
        raise UsageError("name the steps to release")
    return list(dict.fromkeys(found))


def again(state: State, actor: str) -> Moves:
    """A run that a person ended where it was held is reopened: the hold is asked about anew."""
    held = [
        step
        for ident, step in state.steps.items()
        if step.held
        and step.held not in state.cut.questions
        and not state.cut.given_up(ident, step.question)
    ]
    return _held(state, held, "it was held when the run ended", actor) if held else ([], [])


def released(state: State, ident: str) -> list[str]:
    """The steps that a question holds."""
    return [name for name in state.steps if name in state.held and state.steps[name].held == ident]


def lapsed(state: State, first: StepState) -> Moves:
    """An approval's time is up: what it allowed and has not started waits for another."""
    over = [
        step
        for step in state.steps.values()
        if step.expires == first.expires and step.status not in SETTLED and not step.held
    ]
    waiting = [step for step in over if step.id not in state.in_flight]
    return _held(state, waiting, "the time of its approval is up", POLICY)


def workers_changed(state: State, specs: list[WorkerSpec], wall: int = 0) -> Moves:
    """Workers are no longer what they were: what people allowed of them is void.

    That goes for steps, for a revision that waits, and for the envelope. What the policy let
    through goes on only where it would let the new worker through too.
    """
    events: list[ev.Event] = [ev.WorkersChanged(specs)]
    effects: list[Effect] = []
    names = {spec.name for spec in specs}
    what = f"{listed(sorted(names))} changed since it was allowed"
    for moved, more in (_void(state, specs, names, what, wall), _anew(state, specs, what, wall)):
        events += moved
        effects += more
    return events, effects


def _void(state: State, specs: list[WorkerSpec], names: set[str], what: str, wall: int) -> Moves:
    """The steps that a change of workers holds."""
    touched = [
        step
        for step in state.steps.values()
        if step.status not in SETTLED
        and not step.held
        and not names.isdisjoint(doers(step.doc, state.catalog.workers))
    ]
    docs = [step.doc for step in touched if not step.approved]
    if docs:
        found = _ruling(state, docs, specs, wall)
        if not found.people and not found.refused:
            touched = [step for step in touched if step.approved]
    return _held(state, touched, what, POLICY) if touched else ([], [])


def _anew(state: State, specs: list[WorkerSpec], what: str, wall: int) -> Moves:
    """A revision that waits, and whose workers are others than those who looked at it saw."""
    revision, started = state.pending, state.started
    if revision is None or started is None or started.decide_version < ENDS_SINCE:
        return [], []
    names = {name for doc in revision.add for name in doers(doc, state.catalog.workers)}
    asked = f"review-{revision.number}" in state.questions
    if not asked or names.isdisjoint(spec.name for spec in specs):
        return [], []
    return reconsidered(state, revision, _ruling(state, revision.add, specs, wall), what)


def _ruling(state: State, docs: list[Doc], specs: list[WorkerSpec], wall: int) -> Ruling:
    """Who must allow steps by workers as they are now."""
    catalog = Catalog({**state.catalog.workers, **{s.name: s for s in specs}}.values())
    envelope = without(standing(state.permits, wall), {spec.name for spec in specs})
    return ruling(state, reach_of(state, docs, catalog), envelope)
