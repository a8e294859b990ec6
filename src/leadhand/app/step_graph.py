"""A run's steps for a page: the graph with the status of each step, and one step in detail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict

from leadhand.core import events as ev
from leadhand.core.calendar import iso
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.graph import dependencies
from leadhand.core.plan.model import Doc, Json
from leadhand.core.plan.references import Unresolved, resolve
from leadhand.core.state.evolve import evolve
from leadhand.core.state.model import State, StepState
from leadhand.core.state.records import Tally
from leadhand.core.views.inbox import InboxRow, inbox_row
from leadhand.core.views.run import deep_copy, paid_in_money, shown_status, step_money
from leadhand.core.views.step import (
    StepInput,
    StepOrigin,
    outcome_sentence,
    step_inputs,
    step_origin,
    whole_value,
)
from leadhand.engine.results import data_of, load_artifact
from leadhand.engine.verdict import CriterionRow, judged_criteria
from leadhand.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leadhand.app.reader import Reader
    from leadhand.ports import Entry


TAIL_CHARS = 4000
"""The length of a step's output shown with it; the rest is a separate document."""


class StepNode(Struct, kw_only=True):
    """A step in the graph of a run."""

    id: str
    """The id of the step."""
    worker: str
    """The worker of the step."""
    action: str
    """The action of the worker."""
    status: str
    """The status of the step."""
    attempts: int
    """The number of attempts so far."""
    started: str | None
    """When its first attempt started, in ISO 8601."""
    ended: str | None
    """When it ended, in ISO 8601."""
    cost: float
    """Its cost so far: US dollars and cost units together."""
    money: float
    """The part of the cost that is money, in US dollars."""
    reason: str
    """Why it has this status."""
    outlook: bool
    """Whether it is only expected."""
    held: str | None
    """The question that a release answers."""
    superseded_by: str | None
    """The id of the step that replaces it."""


class GraphDocument(Struct, kw_only=True):
    """All steps of a run, and which waits for which."""

    run: str
    """The id of the run."""
    nodes: list[StepNode]
    """The steps."""
    edges: list[tuple[str, str]]
    """The second step waits for the first."""
    replaces: list[tuple[str, str]]
    """A step that was given up, and the step that took its place."""
    revision: int
    """The number of the current revision."""


class AttemptFailure(Struct, kw_only=True):
    """Why an attempt failed."""

    failure_class: str | None = field(name="class")
    """The failure class."""
    message: str | None
    """What went wrong."""


class AttemptRecovery(Struct, kw_only=True):
    """What was decided when an attempt had failed."""

    strategy: str
    """The recovery strategy."""
    reason: str
    """Why this strategy was chosen."""
    worker: str | None
    """The worker of the next attempt, if it is another one."""
    until: str | None
    """When the next attempt may start, in ISO 8601."""
    delay: float
    """The pause before the next attempt, in seconds."""


class AttemptRow(Struct, kw_only=True):
    """One attempt of a step."""

    attempt: int
    """The number of the attempt, from 1."""
    worker: str
    """The worker of the attempt."""
    started: str
    """When it started, in ISO 8601."""
    ended: str | None
    """When it ended, in ISO 8601; null while it runs."""
    deadline: str | None
    """When its report is due, in ISO 8601."""
    status: str
    """The status of the attempt."""
    failure: AttemptFailure | None
    """Why it failed, if it did."""
    findings: list[str]
    """The criteria that did not hold, and why."""
    recommendations: list[str]
    """What the worker recommends."""
    recovery: AttemptRecovery | None
    """The recovery that followed its failure."""
    probe: str | None
    """The outcome of the probe, if there was one."""
    cost: float
    """Its cost: US dollars and cost units together."""
    money: float
    """The part of the cost that is money, in US dollars."""
    model_calls: int
    """The number of calls of models."""
    artifacts: list[str]
    """References of its artifacts."""
    output_bytes: int
    """The size of its printed output in bytes, if the log holds it; 0 for a longer one."""


class StepDocument(StepNode, kw_only=True):
    """All there is of a step."""

    run: str
    """The id of the run."""
    planned: Doc
    """The step as the plan has it."""
    outcome: str
    """How it stands, in one sentence."""
    inputs: list[StepInput]
    """Its parameters: the values that the last attempt's worker got, or that are known so far."""
    criteria: list[CriterionRow]
    """What its result is judged by, and how the last report was judged."""
    origin: StepOrigin
    """The revision that added it, and the steps that it replaces."""
    revision: int
    """The number of the revision that added it."""
    depends_on: list[str]
    """The ids of the steps that it waits for."""
    dependents: list[str]
    """The ids of the steps that wait for it."""
    replaces: list[str]
    """The ids of the steps that it replaces."""
    error: Doc | None
    """Why it failed, if it did."""
    findings: list[str]
    """The criteria that did not hold, and why."""
    recommendations: list[str]
    """What its last report recommends, whether it succeeded or not."""
    questions: list[InboxRow]
    """The open questions about it."""
    attempts_made: list[AttemptRow]
    """Its attempts, in order."""
    others: list[str]
    """Other workers that could do it."""
    models: Tally | None
    """Its calls of models, in total."""
    data: Json
    """Its result."""
    output: str
    """The end of what its last attempt printed."""


def graph_document(state: State) -> GraphDocument:
    """Return all steps and dependencies; proposed and expected steps are marked.

    `replaces` holds pairs of steps: the superseded one, and its successor.
    """
    nodes = [node_row(state, step) for step in state.steps.values()]
    edges = [(name, ident) for ident, names in run_edges(state).items() for name in names]
    known = {node.id for node in nodes}
    for status, steps in (
        ("proposed", state.pending.add if state.pending else []),
        ("outlook", state.outlook),
    ):
        for doc in steps:
            if isinstance(doc, str):  # a text describes what may follow, and names no step
                continue
            ident = str(doc.get("id", ""))
            if ident and ident not in known:
                known.add(ident)
                nodes.append(_planned_row(doc, status))
                edges += [(_heir(state, name), ident) for name in _waits_for(doc)]
    edges = [edge for edge in edges if edge[0] in known]
    return GraphDocument(
        run=state.run,
        nodes=nodes,
        edges=edges,
        replaces=replacements(state),
        revision=state.revision,
    )


def run_edges(state: State) -> dict[str, list[str]]:
    """Return the dependencies of each step of a run, then or now.

    A superseded step keeps the edges of its plan. A step that outlived the replacement of its
    dependency waits for the replacement.
    """
    return {
        step.id: list(dict.fromkeys(_waited(state, step, name) for name in dependencies(step.doc)))
        for step in state.steps.values()
    }


def replacements(state: State) -> list[tuple[str, str]]:
    """Return each superseded step with its successor."""
    steps = state.steps.values()
    return [(step.id, step.superseded_by) for step in steps if step.superseded_by]


def _waited(state: State, step: StepState, name: str) -> str:
    """Return the step behind a name that `step` waits for, as far as it can be known."""
    found = state.steps.get(name)
    while found is not None and found.superseded_by:
        heir = state.steps[found.superseded_by]
        if step.superseded_by and state.steps[step.superseded_by].revision <= heir.revision:
            break  # it was superseded before there was another step to wait for
        if step.started and not (heir.ended and heir.ended <= step.started):
            break
        if step.settled and not step.started and not heir.started:
            break
        found = heir
    return found.id if found is not None else name


def node_row(state: State, step: StepState) -> StepNode:
    """Return how one step stands."""
    failure = step.failure or {}
    return StepNode(
        id=step.id,
        worker=step.worker,
        action=step.action,
        status=shown_status(step),
        attempts=step.attempts,
        started=iso(step.started) if step.started else None,
        ended=iso(step.ended) if step.ended else None,
        cost=round(step.cost, 6),
        money=step_money(state, step),
        reason=step.reason or str(failure.get("message", "")),
        outlook=False,
        held=step.held or None,
        superseded_by=step.superseded_by or None,
    )


def _planned_row(doc: Doc, status: str) -> StepNode:
    return StepNode(
        id=str(doc["id"]),
        worker=str(doc.get("worker", "")),
        action=str(doc.get("action", "")),
        status=status,
        attempts=0,
        started=None,
        ended=None,
        cost=0.0,
        money=0.0,
        reason=str(doc.get("because", "")),
        outlook=status == "outlook",
        held=None,
        superseded_by=None,
    )


def _waits_for(doc: Doc) -> list[str]:
    """Return the dependencies of a step; none for an expected step that is not in a step's form."""
    try:
        return [*dependencies(doc)]
    except (TypeError, KeyError, AttributeError):  # the form of an outlook is not checked
        return []


def _heir(state: State, name: str) -> str:
    found = state.follow(name)
    return found.id if found is not None else name


def step_document(reader: Reader, state: State, step: StepState) -> StepDocument:
    """Return one step: as planned, every attempt with its recovery, its result and output."""
    events = reader.events(state.run)
    log = [(e, event) for e, event in events if _concerns(event, step.id)]
    failure = step.failure
    tally = state.models.by_step.get(step.id)
    edges = run_edges(state)
    questions = [each.id for each in state.questions.values() if each.step == step.id]
    if step.held:
        questions.append(step.held)
    return StepDocument(
        **asdict(node_row(state, step)),
        run=state.run,
        planned=deep_copy(step.doc),
        outcome=outcome_sentence(state, step),
        inputs=inputs_of(reader, state, step, log),
        criteria=judged_criteria(
            step.doc,
            state.catalog.offer(step.worker, step.action),
            step.worker,
            last_judged(step, log),
        ),
        origin=step_origin(state, step, (event for _e, event in events)),
        revision=step.revision,
        depends_on=edges.get(step.id) or [_heir(state, name) for name in _waits_for(step.doc)],
        dependents=[name for name, waited in edges.items() if step.id in waited],
        replaces=[old for old, new in replacements(state) if new == step.id],
        error=deep_copy(failure) if failure else None,
        findings=list(step.findings),
        recommendations=list(step.recommendations),
        questions=[inbox_row(state, ident) for ident in dict.fromkeys(questions)],
        attempts_made=attempts_of(log, partial(paid_in_money, state)),
        others=others_for(state, step),
        models=tally,
        data=_data(reader, step),
        output=output_of(reader, log)[-TAIL_CHARS:],
    )


def proposed_step(state: State, ident: str) -> StepState | None:
    """Return a step of the revision that waits for approval; None if it has no such step."""
    pending = state.pending
    doc = next((each for each in pending.add if each["id"] == ident), None) if pending else None
    if pending is None or doc is None:
        return None
    step = StepState(doc, 0, str(doc.get("worker", "")), status="proposed")
    step.revision, step.reason = pending.number, str(doc.get("because", ""))
    return step


def last_judged(
    step: StepState, log: Iterable[tuple[Entry, ev.Event]]
) -> ev.AttemptReported | ev.ProbeReported | None:
    """Return the last report of a step that was judged, unless another attempt runs."""
    if step.status == "running":
        return None
    judged = (ev.AttemptReported, ev.ProbeReported)
    return next((event for _e, event in reversed([*log]) if isinstance(event, judged)), None)


def inputs_of(
    reader: Reader, state: State, step: StepState, log: Iterable[tuple[Entry, ev.Event]]
) -> list[StepInput]:
    """Return the inputs of a step; large ones by their size."""
    template = step.doc.get("parameters") or {}
    given = _given(reader, state, template, log)
    return step_inputs(template, given, state.lookup, partial(_loaded, reader))


def input_of(reader: Reader, state: State, step: StepState, name: str) -> Json:
    """Return the whole value of one input. Raise `LookupError` if it has none."""
    template = step.doc.get("parameters") or {}
    log = ((e, event) for e, event in reader.events(state.run) if _concerns(event, step.id))
    given = _given(reader, state, template, log)
    found = resolve(template[name], state.lookup) if given is None else given[name]
    return whole_value(found, partial(_loaded, reader))


def _loaded(reader: Reader, ref: str) -> Json:
    try:
        return load_artifact(reader.store, ref)
    except StoreError as error:
        return {"$unreadable": str(error)}


def _given(
    reader: Reader, state: State, template: Doc, log: Iterable[tuple[Entry, ev.Event]]
) -> Doc | None:
    """Return the resolved parameters of the last attempt; None before the first attempt."""
    started = [event for _entry, event in log if isinstance(event, ev.AttemptStarted)]
    if not started:
        return None
    last = started[-1]
    if not last.exec:
        return template
    found = _resolved(state, template)
    if found is None or digest(last.spec, canonical(found)) != last.exec:
        then = State()  # its references have changed since
        for entry, event in reader.events(state.run):
            if event == last:
                break
            evolve(then, event, entry.at)
        found = _resolved(then, template)
    return found


def _resolved(state: State, template: Doc) -> Doc | None:
    try:
        found: Doc = resolve(template, state.lookup)
    except Unresolved:
        return None
    return found


def others_for(state: State, step: StepState) -> list[str]:
    """Return other workers that could do a step.

    These are its alternatives, workers with the same action by name, and for an unnamed action
    workers that give the same facts.
    """
    own = state.catalog.offer(step.worker, step.action)
    found = dict.fromkeys(step.doc.get("alternatives", ()))
    for name, spec in sorted(state.catalog.workers.items()):
        offer = spec.offers.get(step.action)
        gives = own is not None and offer is not None and {*own.gives} <= {*offer.gives}
        if offer is not None and (step.action or (gives and own is not None and own.gives)):
            found[name] = None
    found.pop(step.worker, None)
    return list(found)


def _data(reader: Reader, step: StepState) -> Any:
    if step.status != "succeeded":
        return None
    try:
        return deep_copy(data_of(reader.store, step))
    except StoreError as error:
        return {"$unreadable": str(error)}


def _concerns(event: ev.Event, step: str) -> bool:
    return getattr(event, "step", None) == step


def attempts_of(
    log: Iterable[tuple[Entry, ev.Event]], paid: Callable[[str], bool] = lambda _worker: False
) -> list[AttemptRow]:
    """Return every attempt of a step, oldest first, each with the recovery if it failed.

    `paid` tells whether a worker reports its cost in money.
    """
    found: dict[int, AttemptRow] = {}
    current = 0
    for entry, event in log:
        match event:
            case ev.AttemptStarted():
                current = event.attempt
                found[current] = _begun(event, entry.at)
            case ev.AttemptReported() if event.attempt in found:
                _reported(found[event.attempt], event, entry.at, paid)
            case ev.AttemptLost() if event.attempt in found:
                row = found[event.attempt]
                row.status, row.ended = "lost", iso(entry.at)
                row.failure = AttemptFailure(
                    failure_class=event.failure_class, message=event.reason
                )
            case ev.ProbeReported() if event.attempt in found:
                found[event.attempt].probe = event.outcome
            case ev.RecoveryDecided() if event.attempt in found:
                found[event.attempt].recovery = AttemptRecovery(
                    strategy=event.strategy,
                    reason=event.reason,
                    worker=event.worker or None,
                    until=iso(event.until) if event.until else None,
                    delay=max(0.0, round((event.until - entry.at) / 1e6, 3)),
                )
            case ev.ModelCalled() if current in found:
                row = found[current]
                row.model_calls += 1
                row.cost = round(row.cost + event.cost, 6)
                row.money = round(row.money + event.cost, 6)
            case _:
                pass
    return list(found.values())


def _begun(event: ev.AttemptStarted, at: int) -> AttemptRow:
    return AttemptRow(
        attempt=event.attempt,
        worker=event.worker,
        started=iso(at),
        ended=None,
        deadline=iso(event.deadline) if event.deadline else None,
        status="running",
        failure=None,
        findings=[],
        recommendations=[],
        recovery=None,
        probe=None,
        cost=0.0,
        money=0.0,
        model_calls=0,
        artifacts=[],
        output_bytes=0,
    )


def _reported(
    row: AttemptRow, event: ev.AttemptReported, at: int, paid: Callable[[str], bool]
) -> None:
    failure = event.failure
    money = event.cost if event.cost and paid(row.worker) else 0.0
    row.status, row.ended = "verified" if event.met else "failed", iso(at)
    row.findings, row.recommendations = list(event.findings), list(event.recommendations)
    row.cost, row.money = round(row.cost + event.cost, 6), round(row.money + money, 6)
    row.artifacts = list(event.artifacts)
    row.output_bytes = len(event.output.encode("utf-8", "replace"))
    if failure is not None:
        row.failure = AttemptFailure(
            failure_class=failure.get("class"), message=failure.get("message")
        )


def output_of(
    reader: Reader, log: Iterable[tuple[Entry, ev.Event]], attempt: int | None = None
) -> str:
    """Return the output of a step, in one attempt or in its last; loaded if stored separately."""
    text = ""
    for _entry, event in log:
        if isinstance(event, ev.AttemptReported) and attempt in (None, event.attempt):
            text = event.output
            if event.output_ref:
                try:
                    raw = reader.store.get_artifact(event.output_ref)
                except StoreError as error:
                    text = f"(its output cannot be read: {error})"
                else:
                    text = raw.decode("utf-8", "replace")
    return text
