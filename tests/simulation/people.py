"""The people of a simulated world: they pause, resume, cancel and answer.

While things go wrong they say whatever comes to mind, whenever. Once the world is healed they
are patient and thorough: they wait until a run says that it needs them, and answer all of it.
What anybody was told is done must be on disk at that moment (I1).
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from leadhand.core import events as ev
from leadhand.core.review import protected_change
from leadhand.core.review.answer_link import item_digest
from leadhand.core.review.approval import binding
from leadhand.engine.host_socket import perform_command
from leadhand.errors import LeadhandError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.records import Question
    from leadhand.engine.run import Run
    from tests.simulation.host import SimHost
    from tests.simulation.world import World

ENDED = frozenset({"succeeded", "failed", "cancelled", "rejected"})


def say_something(world: World, verb: str) -> None:
    """A person says something to the host that is there, if one is."""
    host = world.hosts.get(world.current)
    if host is None or not world.loop.alive(world.current) or world.over:
        return
    runs = list(host.runs.values())
    run = world.random.choice(runs) if runs else None
    if verb in ("stop_all", "lift"):
        world.loop.run_in(world.current, _say(world, host, None, verb, {}))
    elif run is None:
        return
    elif verb == "answer":
        questions = list(run.state.questions.values())
        if questions:
            question = world.random.choice(questions)
            details: Doc = {"id": question.id, "choice": _whatever(world, question)}
            if question.facts:
                details["data"] = {fact: {"v": 2} for fact in question.facts}
            world.loop.run_in(world.current, _say(world, host, run, verb, details))
    elif verb in ("hold", "redo"):
        failed = [step.id for step in run.state.steps.values() if step.status == "failed"]
        chosen = failed if verb == "redo" and failed else list(run.state.steps)
        ident = world.random.choice(chosen or ["nobody"])
        wish = {"steps": [ident], "step": ident, "reason": "a whim"}
        world.loop.run_in(world.current, _say_and_stay(world, host, run, verb, wish))
    else:
        for _ in range(world.random.choice((1, 1, 2))):  # two people may have the same idea
            world.loop.run_in(world.current, _say(world, host, run, verb, {}))


async def _say_and_stay(world: World, host: SimHost, run: Run, verb: str, details: Doc) -> None:
    """Whoever reopens a run that has ended sees to it."""
    before = len(world.log(run.id))
    await _say(world, host, run, verb, details)
    # The log decides, not the state when it was said: the run may have ended on the way.
    reopened = any(isinstance(event, ev.RunReopened) for _, event in world.log(run.id)[before:])
    if reopened and run.state.ended is None:
        plan = next(plan for plan in world.scenario.runs if plan.ident == run.id)
        await world.host_run(host, plan, run.workers)


def _whatever(world: World, question: Question) -> str:
    return world.random.choice(question.choices) if question.choices else "go on"


async def _say(world: World, host: SimHost, run: Run | None, verb: str, details: Doc) -> None:
    """Say it, and look at the disk when told that it is done."""
    name = run.id if run else ""
    number = max(world.unanswered, default=0) + 1
    world.unanswered[number] = f"{verb} {details} to {name or 'the host'} {host.process}"
    before = world.log(name)
    world.note(f"a person says {verb} {details or ''} to {name or 'the host'}")
    try:
        await perform_command(
            host, run, verb, world.random.choice(("person", "person", "other")), details
        )
    except LeadhandError as error:
        world.note(f"the person hears: {error}")
        del world.unanswered[number]
        return
    del world.unanswered[number]
    if run is not None and not _durable(world, name, verb, details, len(before)):
        world.wrong(f"I1: {verb} {details} to {name} was acknowledged and is not on disk")


def _durable(world: World, run: str, verb: str, details: Doc, before: int) -> bool:
    """Whether the log shows what was said, or had shown it already."""
    log = [event for _, event in world.log(run)]
    kinds: tuple[type[ev.Event], ...]
    match verb:
        case "pause" | "resume":
            kinds = (ev.RunPaused,) if verb == "pause" else (ev.RunResumed,)
            if any(isinstance(event, kinds) for event in log[before:]):
                return True
            return _paused(log[:before]) == (verb == "pause")
        case "hold" | "redo":
            kinds = (ev.StepsHeld, ev.RedoRequested)
            return any(isinstance(event, kinds) for event in log[before:])
        case "cancel":
            return any(isinstance(event, ev.CancelRequested) for event in log)
        case _:
            return _answered(log, str(details.get("id", "")))


def _answered(log: list[ev.Event], ident: str) -> bool:
    kinds: tuple[type[ev.Event], ...]
    if ident.startswith("review-"):
        number = int(ident.removeprefix("review-"))
        kinds = (ev.ApprovalGiven, ev.RevisionRejected, ev.ChangesRequested)
        return any(isinstance(event, kinds) and event.number == number for event in log)
    if any(isinstance(event, ev.ReleaseGiven) and event.question == ident for event in log):
        return True  # The first of two people has spoken.
    if any(isinstance(event, ev.ChangeApproved) and event.question == ident for event in log):
        return True
    return any(isinstance(event, ev.QuestionAnswered) and event.id == ident for event in log)


def _paused(log: list[ev.Event]) -> bool:
    words = [event for event in log if isinstance(event, (ev.RunPaused, ev.RunResumed))]
    return bool(words) and isinstance(words[-1], ev.RunPaused)


async def attend(world: World, host: SimHost, run: Run) -> None:
    """Wait for a run as `leadhand run` does, and once healed see it to its end."""
    while True:
        status = await run.wait_idle()
        if status in ENDED:
            log = world.log(run.id)
            if not log or not isinstance(log[-1][1], ev.RunEnded):
                world.wrong(f"I1: {run.id} was said to have {status}, and the disk does not say so")
            return
        if not world.healed:
            await asyncio.sleep(world.random.choice((0.5, 3.0)))
            continue
        if host.shared.stopped:
            await _say(world, host, None, "lift", {})
        if run.state.paused:
            await _say(world, host, run, "resume", {})
        for question in list(run.state.questions.values()):
            details = _through(world, run, question, _sensible(world, run, question))
            await _say(world, host, run, "answer", details)
        await asyncio.sleep(0.5)


def _looked(world: World, run: Run, question: Question) -> Doc:
    """What goes with an approval: by some the hash of all that they were shown. Has own dice."""
    random = Random(f"{world.scenario.seed}/{run.id}/{question.id}")
    revision = run.state.pending
    if revision is None or random.random() < 0.4:
        return {}
    world.looked.add((run.id, question.id))
    return {"shown": binding(run.state, revision, 0)}


def _through(world: World, run: Run, question: Question, details: Doc) -> Doc:
    """An answer, by some through a signed link. Has own dice."""
    sent = len(world.log(run.id))
    if Random(f"{world.scenario.seed}/{run.id}/{question.id}/{sent}").random() < 0.7:
        return details
    words = {"id": f"{question.id}-{sent}", "item": item_digest(run.state, question)}
    return {**details, "link": {**words, "channel": "email"}}


def _sensible(world: World, run: Run, question: Question) -> Doc:
    """What somebody would answer who has looked."""
    details: Doc = {"id": question.id}
    if question.kind == "review":
        choice = "approve" if world.random.random() < 0.85 else "reject"
        if choice == "approve":
            details["approval"] = _looked(world, run, question)
    elif question.kind == protected_change.KIND:
        choice = world.random.choice(question.choices)
        details["approval"] = {"shown": protected_change.change_of(run.state, question)["commit"]}
        details["text"] = "not like this"
    elif question.kind == "hold":
        choice = "release" if world.random.random() < 0.9 else "abort"
    elif not question.choices:
        choice = "go on"
    elif question.facts:
        choice = "give" if world.random.random() < 0.8 else "stop"
        details["data"] = {fact: {"v": 1, "ok": True} for fact in question.facts}
    elif question.kind == "task":
        choice = "done" if world.random.random() < 0.8 else "cannot"
        details["data"] = {"v": world.random.choice((1, 1, 1, -1)), "ok": True}
    elif question.step:
        happened = bool(world.effects.get((run.id, question.step)))
        if "done" in question.choices and happened:
            choice = "done"
            details["data"] = {"v": 1, "ok": True}
        elif sum(answer["step"] == question.step for answer in run.state.answers) < 3:
            choice = "retry"
        else:
            choice = world.random.choice(("skip", "abort"))
    else:
        choice = world.random.choice(question.choices)
    return {**details, "choice": choice}
