"""One step for people: its outcome in a sentence, its inputs, its origin in the plan. Pure.

Inputs are computed by the functions with which the engine starts an attempt (`resolve`,
`load_apart`), so that the values shown are the values that the worker got. Secrets are shown by
their names; a value that is known only later stays an expression, and is marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.core import events as ev
from leadhand.core.durations import text as duration
from leadhand.core.hashing import canonical
from leadhand.core.plan.model import Json
from leadhand.core.plan.references import Unresolved, find, load_apart, resolve, resolve_known
from leadhand.core.promises import only_claimed
from leadhand.core.state.model import MOVABLE
from leadhand.core.views.ledger import actor_words
from leadhand.core.views.run import shown_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leadhand.core.plan.model import Doc
    from leadhand.core.plan.references import Artifact, Ref, Secret
    from leadhand.core.state.model import State, StepState


INPUT_BYTES_SHOWN = 16_000
"""The largest value of an input that is shown with its step; a larger one by its size."""
WAITS_NAMED = 5
"""The number of steps that a sentence names."""


class StepInput(Struct, kw_only=True):
    """One parameter of a step."""

    name: str
    """The name of the parameter."""
    value: Json
    """The value that the worker gets; secrets by name. Null if it is too large to be shown."""
    expression: Json
    """The parameter as planned, if it contains references; else null."""
    later: bool
    """Whether a part of the value is known only when the step starts."""
    bytes: int
    """The size of the value as JSON, in bytes."""
    cut: bool
    """Whether the value is too large to be shown here."""


class StepOrigin(Struct, kw_only=True):
    """The origin of a step in the plan."""

    revision: int
    """The number of the revision that added the step."""
    author: str
    """The planner or the person who proposed that revision."""
    reason: str
    """Why the step, or its revision, was proposed."""
    approved_by: str
    """The person who approved that revision, or `policy`."""
    replaces: dict[str, str]
    """The ids of the steps that it replaces, each with the reason why it ended."""


def step_inputs(
    template: Doc, given: Doc | None, lookup: Callable[[Ref], Json], load: Callable[[str], Json]
) -> list[StepInput]:
    """Return the inputs of a step, one for each parameter of `template`.

    - `given`: the parameters that the last attempt got, as `resolve` returned them; None before
      the first attempt: then the references are resolved as far as they are known.
    - `load`: returns the content of an artifact.
    """
    rows = []
    for name, planned in template.items():
        later = False
        try:
            found = resolve(planned, lookup) if given is None else given[name]
            value = whole_value(found, load)
        except Unresolved:
            known = resolve_known(planned, lookup, name)
            value, later = known.value, given is None
        size = len(canonical(value))
        cut = size > INPUT_BYTES_SHOWN
        row = StepInput(
            name=name,
            value=None if cut else value,
            expression=planned if find(planned) else None,
            later=later,
            bytes=size,
            cut=cut,
        )
        rows.append(row)
    return rows


def whole_value(value: Json, load: Callable[[str], Json]) -> Json:
    """Return a resolved value with large results put in, and secrets as `[secret:NAME]`."""

    def loaded(artifact: Artifact) -> Json:
        return load(artifact.ref)

    return load_apart(value, loaded, _secret_name)


def _secret_name(secret: Secret) -> str:
    return f"[secret:{secret.name}]"


def step_origin(state: State, step: StepState, log: Iterable[ev.Event]) -> StepOrigin:
    """Return the revision that added a step, its author and its reason."""
    author = reason = approved = ""
    for event in log:
        if isinstance(event, ev.RevisionProposed) and event.number == step.revision:
            author, reason = event.author, event.because
        elif isinstance(event, ev.RevisionApproved) and event.number == step.revision:
            approved = event.actor
    replaced = (each for each in state.steps.values() if each.superseded_by == step.id)
    return StepOrigin(
        revision=step.revision,
        author=author,
        reason=str(step.doc.get("because") or reason),
        approved_by=approved,
        replaces={each.id: _ended_because(each) for each in replaced},
    )


def _ended_because(step: StepState) -> str:
    last = step.failures[-1] if step.failures else step.failure or {}
    return str(last.get("message", "")) or step.reason


def outcome_sentence(state: State, step: StepState) -> str:
    """Return how a step stands, in one sentence; its reason is told separately."""
    status, made = shown_status(step), step.attempts
    if step.held and step.status in MOVABLE:
        status = "held"
    failed = f" ({str(step.failure.get('class', '')).replace('_', ' ')})" if step.failure else ""
    took = f" in {duration((step.ended - step.started) / 1e6)}" if step.ended > step.started else ""
    tries = "" if made < 2 else f" on attempt {made}"
    word = f", not verified: only {step.caller} says so" if only_claimed(state, step) else ""
    sentences = {
        "succeeded": f"Succeeded{tries}{took if step.started else ''}{word}.",
        "failed": f"Failed after {made} {'attempt' if made == 1 else 'attempts'}{failed}."
        if made
        else f"Failed before its first attempt{failed}.",
        "running": f"Attempt {made} is running with worker {step.worker}.",
        "probing": f"The outcome of attempt {made} is unknown and is being checked.",
        "retrying": f"Attempt {made} failed{failed}; the next attempt is scheduled.",
        "parked": f"Attempt {made} failed{failed}; the step is parked until the outage ends.",
        "held": f"Held by {actor_words(step.held_by)}: it does not start until it is released.",
        "waiting_for_person": f"Waiting for input{_after(made, failed)}.",
        "scheduled": "Ready; it starts at its scheduled time or later.",
        "ready": "Ready to start.",
        "waiting": f"Not started{_waits(state, step)}.",
        "proposed": f"Proposed in revision {step.revision}, which waits for approval.",
        "skipped": "Skipped.",
        "cancelled": "Cancelled.",
        "superseded": f"Replaced by {step.superseded_by}{_after(made, failed)}.",
    }
    return sentences.get(status, f"{status[:1].upper()}{status[1:].replace('_', ' ')}.")


def _after(made: int, failed: str) -> str:
    return f" after attempt {made} failed{failed}" if made and failed else ""


def _waits(state: State, step: StepState) -> str:
    """Return the steps that a step waits for, to stand after "Not started"."""
    names = [
        each.id
        for each in state.steps.values()
        if each.status != "succeeded" and any(name == step.id for name, _ in each.dependents)
    ]
    if not names:
        return ""
    more = len(names) - WAITS_NAMED
    return f": it waits for {', '.join(names[:WAITS_NAMED])}" + (f" and {more} more" * (more > 0))
