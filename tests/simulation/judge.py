"""What is checked of a simulated world: at any moment, and when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.audit.chain import verify, verify_batches, verify_head
from leadhand.codec.events import decode
from leadhand.core import events as ev
from leadhand.core import host_events as hosting
from leadhand.core.logcheck.checker import check
from leadhand.core.views.run import run_status
from leadhand.engine.fold import fold
from leadhand.errors import Bug
from tests.simulation.scenario import IDLE_CRITERION
from tests.simulation.snapshot import difference

if TYPE_CHECKING:
    from leadhand.core.state.model import State
    from leadhand.ports import Entry
    from tests.simulation.scenario import RunPlan
    from tests.simulation.world import World


def judge(world: World) -> None:
    """Everything that only the end can show."""
    if world.current in world.hosts:
        judge_live(world)
    for plan in world.scenario.runs:
        _judge_log(world, plan)
        _judge_claims(world, plan)
        _judge_effects(world, plan)
    _judge_order(world)
    _judge_circuits(world)
    judge_troubles(world)


def judge_troubles(world: World) -> None:
    """What was raised and nobody caught."""
    for trouble in world.loop.troubles:
        # What a killed host never looked at, it could not.
        if world.booted == 1 or "never retrieved" not in trouble:
            world.wrong(f"nobody caught: {trouble}")


def judge_live(world: World) -> None:
    """I4: what a host has in memory is what its log amounts to."""
    for run in world.hosts[world.current].runs.values():
        if run._outstanding or run._inputs or run._folding or run._scheduled:
            continue
        entries = world.disk.logs.get(run.id, [])
        folded = _fold(world, entries)
        if folded and (found := difference(run.state, folded)):
            world.wrong(f"I4: {run.id} in memory differs from its log: {found}")


def _fold(world: World, entries: list[Entry]) -> State | None:
    """The state of a log, if it makes sense at all."""
    try:
        return fold(entries) if entries else None
    except Bug as error:
        world.wrong(f"I4: {entries[0].run} cannot be folded: {error}")
        return None


def _judge_log(world: World, plan: RunPlan) -> None:
    run = plan.ident
    entries = world.disk.logs.get(run, [])
    header = world.disk.headers.get(run)
    if header is None:
        world.wrong(f"{run} was never started")
        return
    for problem in [*verify(entries), *verify_head(entries, header)]:
        world.wrong(f"I3: {problem}")
    for violation in check(world.log(run)):
        world.wrong(f"{run} {violation}")
    state, again = _fold(world, entries), _fold(world, entries)
    if state is None or again is None:
        return
    if found := difference(state, again):
        world.wrong(f"I4: {run} folds in two ways: {found}")
    if state.ended is None:
        world.wrong(f"I9: {run} did not come to an end: {run_status(state)}")
    told = msgspec.json.decode(header.summary)["status"]
    if told != run_status(state):
        world.wrong(f"I4: {run} is listed as {told}, and it is {run_status(state)}")


GOOD = frozenset({"ok", "hang", "big"})
"""Acts after which a worker reports what it should."""


def _judge_claims(world: World, plan: RunPlan) -> None:
    """L5: what counts as success was one; and the net under `decide` caught nothing."""
    docs = {}
    said = {}
    workers: dict[str, str] = {}
    tasks: dict[str, str] = {}
    for _, event in world.log(plan.ident):
        if isinstance(event, ev.RevisionProposed):
            docs.update({doc["id"]: doc for doc in event.add})
        elif isinstance(event, ev.QuestionAsked) and event.kind == "task":
            tasks[event.id] = event.step
        elif isinstance(event, ev.QuestionAnswered) and event.id in tasks:
            good = isinstance(event.data, dict) and event.data.get("v", -1) >= 0
            said[tasks[event.id]] = "nothing" if event.choice != "done" else ("lie", "ok")[good]
        elif isinstance(event, ev.AttemptStarted):
            workers[event.step] = event.worker
        elif isinstance(event, ev.AttemptReported) and event.met:
            claim = world.claims.get((plan.ident, event.epoch), said.get(event.step, "nothing"))
            criteria = docs[event.step].get("success_criteria", IDLE_CRITERION)
            offer = world.scenario.catalog.offer(workers[event.step], "")
            unchecked = criteria == IDLE_CRITERION and not (offer and offer.result_check)
            if claim not in GOOD and not (claim == "lie" and unchecked):
                world.wrong(f"L5: {plan.ident} {event.step} counts as done after {claim}")
        elif isinstance(event, ev.ApprovalGiven) and event.widens:
            if (plan.ident, f"review-{event.number}") not in world.looked:
                world.wrong(f"L13: {event.actor} allowed claims in {plan.ident} that nobody saw")
        elif isinstance(event, ev.StopDecided) and "cannot come" in event.reason:
            world.wrong(f"{plan.ident} got stuck: {event.reason}")


def _judge_effects(world: World, plan: RunPlan) -> None:
    """I17: an effect that may not be repeated happened once, or as often as a person allowed."""
    questions: dict[str, str] = {}
    allowed: dict[str, int] = {}
    widened: set[str] = set()
    docs = {}
    for _, event in world.log(plan.ident):
        if isinstance(event, ev.QuestionAsked):
            questions[event.id] = event.step
        elif isinstance(event, ev.QuestionAnswered) and event.choice == "retry":
            step = questions.get(event.id, "")
            allowed[step] = allowed.get(step, 0) + 1
        elif isinstance(event, ev.RedoRequested):
            allowed[event.step] = allowed.get(event.step, 0) + 1
        elif isinstance(event, ev.RevisionProposed):
            docs.update({doc["id"]: doc for doc in event.add})
        elif isinstance(event, ev.RevisionApproved) and event.actor != "policy":
            widened.update(event.widens)
    catalog = world.scenario.catalog
    for (run, step), calls in world.effects.items():
        if run != plan.ident:
            continue
        repeats = 0
        for call in calls[1:]:
            own = docs[step].get("idempotent")
            offer = catalog.offer(call.worker, "")
            theirs = bool(offer and offer.idempotent) or (own is True and step in widened)
            repeats += not (theirs and own is not False)
        if repeats > allowed.get(step, 0):
            tries = [call.task.attempt for call in calls]
            world.wrong(f"I17: {run} {step} happened {len(calls)} times (attempts {tries})")


def _judge_order(world: World) -> None:
    """What holds over all runs together: the batch chain, and stop-all."""
    disk = world.disk
    positions = [(place, entry.hash) for place, entry in enumerate(disk.order, 1)]
    for problem in verify_batches(disk.batches, positions):
        world.wrong(f"I3: {problem}")
    shared = hosting.HostState()
    for entry in disk.order:
        event = decode(entry.version, entry.body)
        if entry.run == hosting.HOST_STREAM:
            hosting.evolve_host(shared, event)
        elif shared.stopped and isinstance(event, ev.AttemptStarted):
            world.wrong(f"I29: {entry.run} {event.step} started after stop-all")


def _judge_circuits(world: World) -> None:
    """A worker whose circuit is open is left alone, then tried by one attempt.

    What was decided in the same moment may be stored in any order, so ties prove nothing.
    """
    events = [(each, decode(each.version, each.body)) for each in world.disk.order]
    events.sort(key=lambda pair: (pair[0].at, isinstance(pair[1], ev.AttemptStarted)))
    over = {
        (entry.run, event.epoch): entry.at
        for entry, event in events
        if isinstance(event, (ev.AttemptReported, ev.AttemptLost))
    }
    for host in world.hosts.values():
        for attempt, at in host.heard.items():
            over[attempt] = min(at, over.get(attempt, at))
    shared = hosting.HostState()
    opened: dict[str, int] = {}
    trials: dict[str, tuple[str, int]] = {}
    for entry, event in events:
        if entry.run == hosting.HOST_STREAM:
            hosting.evolve_host(shared, event)
        if isinstance(event, hosting.HostOpened):
            trials.clear()
        elif isinstance(event, hosting.CircuitOpened):
            opened[event.worker] = entry.at
            trials.pop(event.worker, None)
        elif isinstance(event, ev.AttemptStarted) and event.worker in shared.circuits:
            if entry.at <= opened[event.worker]:
                continue  # it was decided before the circuit opened
            what = f"circuit: {entry.run} {event.step} was given to {event.worker}"
            trial = trials.get(event.worker)
            if entry.at < shared.circuits[event.worker].until:
                world.wrong(f"{what}, which is to be left alone")
            elif trial is not None and over.get(trial, entry.at + 1) > entry.at:
                world.wrong(f"{what}, which {trial[0]} epoch {trial[1]} is trying")
            trials[event.worker] = (entry.run, event.epoch)
