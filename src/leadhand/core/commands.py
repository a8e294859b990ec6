"""Commands of people and reports of workers, turned into events.

Each function checks a command against the state and returns the move that records it, or raises an
error with a message for the sender. Reports are fenced here: a report of an outdated epoch becomes
a record of its cost and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from leadhand.core import callers
from leadhand.core import events as ev
from leadhand.core.decide.effects import SECOND, Effect, Move, StopAttempt
from leadhand.core.decide.planner_answer import findings, propose, unseen_repeats
from leadhand.core.events import Event, ReleaseGiven, StepsHeld, StepsReleased
from leadhand.core.facts import broken_promises, is_flag, unfit_answer
from leadhand.core.plan.model import Doc
from leadhand.core.promises import facts_given
from leadhand.core.review import answer_link, decisions, holds, protected_change
from leadhand.core.review.agents import refuse_agent_answer, refuse_agent_command
from leadhand.core.review.decisions import (
    NO_PERSON,
    answer_events,
    approve,
    reject,
    request_changes,
)
from leadhand.core.review.identity import same_person_key
from leadhand.core.state.evolve import REDOABLE
from leadhand.core.state.model import Now, State
from leadhand.core.visible import visible
from leadhand.core.wording import did_you_mean
from leadhand.errors import Conflict, NotAllowed, PlanInvalid, UsageError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.review.decisions import ApprovalWords
    from leadhand.core.state.records import Question, Revision


# A command to a run as data: a verb, the actor, and details.
#
# Every transport carries the same commands: the socket of the embedded host, the command line,
# HTTP, and the updates of a Temporal workflow. Here they become moves.


class Command(msgspec.Struct, frozen=True):
    """One command of a person to a run."""

    verb: str
    actor: str
    details: dict[str, Any] = {}

    def __call__(self, state: State, now: Now) -> Move:
        """Return the move for this command. Raise for the sender if the state does not allow it."""
        return move_of(self.verb, self.actor, self.details)(state, now)


def move_of(verb: str, actor: str, details: Doc) -> Callable[[State, Now], Move]:
    """Return the function that turns a state into the move for `verb`."""
    make = _move_of(verb, actor, details)

    def move(state: State, now: Now) -> Move:
        refuse_agent_command(state, verb, actor)
        return make(state, now)

    return move


def _move_of(verb: str, actor: str, details: Doc) -> Callable[[State, Now], Move]:
    reason = str(details.get("reason", ""))
    match verb:
        case "pause":
            return lambda state, _now: pause(state, actor, reason)
        case "resume":
            return lambda state, _now: resume(state, actor)
        case "cancel":
            return lambda state, now: cancel(state, actor, reason, now)
        case "answer":
            return lambda state, now: answer(
                state,
                str(details.get("id", "")),
                str(details.get("choice", "")),
                actor,
                now,
                text=str(details.get("text", "")),
                data=details.get("data"),
                approval=details.get("approval"),
                link=details.get("link"),
            )
        case "claim":
            return lambda state, now: callers.claim(state, now, actor, _lease(details))
        case "extend":
            return lambda state, now: callers.extend(
                state, now, str(details["step"]), int(details["attempt"]), actor, _lease(details)
            )
        case "hold":
            return lambda state, _now: hold(state, details["steps"], actor, reason)
        case "redo":
            return lambda state, now: redo(state, str(details["step"]), actor, reason, now)
        case "release":
            return lambda state, now: release(
                state, details["steps"], actor, now, reason, details.get("signed")
            )
        case "amend":
            return lambda state, now: amend(state, details["revision"], actor, now)
        case _:
            raise UsageError(f'"{verb}" is not a command for a run')


def _lease(details: Doc) -> float:
    return float(details.get("lease_s") or callers.LEASE_S)


def command_result(events: Sequence[Event]) -> Doc:
    """Return the result for the sender: the question of the held steps, or the released steps."""
    held = [event for event in events if isinstance(event, StepsHeld)]
    if held:
        return {"question": held[0].question}
    if not any(isinstance(event, ReleaseGiven) for event in events):
        return {}
    return {"steps": [s for e in events if isinstance(e, StepsReleased) for s in e.steps]}


def is_current(state: State, step: str, epoch: int) -> bool:
    """Return whether `epoch` is the one in flight for a step."""
    return state.in_flight.get(step) == epoch


def report(state: State, reported: ev.AttemptReported) -> Move:
    """Record a verified report, or its lateness; nothing once the run has ended."""
    if state.ended is not None:
        return Move([], [])
    if is_current(state, reported.step, reported.epoch):
        return Move([reported], [])
    late = ev.ReportIgnored(reported.step, reported.attempt, reported.epoch, reported.cost)
    return Move([late], [])


def pause(state: State, actor: str, reason: str = "") -> Move:
    """Pause the run: no new attempts start."""
    _open(state)
    return Move([] if state.paused else [ev.RunPaused(actor, reason)], [])


def resume(state: State, actor: str) -> Move:
    """Resume the run: attempts may start again."""
    _open(state)
    return Move([ev.RunResumed(actor)] if state.paused else [], [])


def cancel(state: State, actor: str, reason: str, now: Now) -> Move:
    """Cancel the run: no new attempts start, and attempts in flight are stopped."""
    _open(state)
    if state.stopping is not None and state.stopping.status == "cancelled":
        return Move([], [])
    deadline = now.at + int(state.policy.cancel_grace_s * SECOND)
    stops: list[Effect] = [
        StopAttempt(step, state.steps[step].attempts, epoch, "cancelled")
        for step, epoch in state.in_flight.items()
    ]
    if state.planner.epoch:
        stops.append(StopAttempt("", state.planner.calls, state.planner.epoch, "cancelled"))
    return Move([ev.CancelRequested(actor, deadline, reason)], stops)


def answer(  # noqa: PLR0913 - all that an answer says
    state: State,
    ident: str,
    choice: str,
    actor: str,
    now: Now,
    *,
    text: str = "",
    data: Json = None,
    approval: Doc | None = None,
    link: Doc | None = None,
) -> Move:
    """Answer a question or a review. `approval` holds the expiry and signature of an approval.

    `data` of a request for changes holds the comments on single steps: `{"comments": [...]}`.
    `link` is the signed link that the answer came through: its use is recorded with the answer.
    """
    question = _asked(state, ident, choice)
    said = _answer(state, question, choice, actor, now, text, data, approval)
    if link is None:
        return said
    return Move([answer_link.use_link(state, question, actor, link), *said.events], said.effects)


def _asked(state: State, ident: str, choice: str) -> Question:
    """Return an open question. Raise unless it takes this answer."""
    _open(state)
    question = state.questions.get(ident)
    if question is None:
        known = ", ".join(state.questions) or "none"
        raise Conflict(f'No open question "{ident}" in run {state.run}. Open: {known}')
    if question.choices and choice not in question.choices:
        raise UsageError(f'"{choice}" is not one of: {", ".join(question.choices)}')
    return question


def _answer(
    state: State,
    question: Question,
    choice: str,
    actor: str,
    now: Now,
    text: str,
    data: Json,
    approval: Doc | None,
) -> Move:
    refuse_agent_answer(state, question, choice, actor)
    more = _words(approval)
    if question.kind == "review":
        if choice == "request_changes":
            revision = _under_review(state, question)
            return Move(request_changes(state, revision, actor, text, _comments(data)), [])
        return _review(state, question, choice, actor, text, now, more)
    if question.kind == protected_change.KIND:
        said = protected_change.answer_change(state, question, choice, actor, text, more)
        return Move(said, [])
    if question.kind == "hold" and choice == "release":
        return Move(list(holds.release(state, question, actor, text, now, more)), [])
    if choice == "give" and not text and data is None:
        raise UsageError(
            "the answer has no value. Fix: give it with --data as JSON, or with --text"
        )
    if choice == "give" and question.facts:
        _refuse_misgiven(question.facts, text if data is None else data)
    if choice == "done" and question.kind == "unseen":
        _vouched(state, question.step, data)
    if choice == "done" and question.kind == "task":
        _vouched(state, question.step, (text or None) if data is None else data, denies=True)
    return Move(answer_events(state, question, choice, actor, text, data), [])


def hold(state: State, steps: list[str], actor: str, reason: str = "") -> Move:
    """Hold steps: they do not start until a person releases them."""
    _open(state)
    return Move(list(holds.hold(state, steps, actor, reason)), [])


def release(
    state: State,
    steps: list[str],
    actor: str,
    now: Now,
    reason: str = "",
    words: Doc | None = None,
) -> Move:
    """Release held steps, with the steps that were held together with them.

    `words` holds the expiry and signature for each question.
    """
    _open(state)
    events: list[ev.Event] = []
    for ident in holds.questions(state, steps):
        more = _words((words or {}).get(ident))
        events += holds.release(state, state.questions[ident], actor, reason, now, more)
    return Move(events, [])


def redo(state: State, ident: str, actor: str, reason: str, now: Now) -> Move:
    """Retry a failed step on request of a person; a failed run is reopened."""
    step = state.steps.get(ident)
    if step is None:
        raise UsageError(
            f"there is no step {ident} in run {state.run}. {did_you_mean(ident, state.steps)}"
        )
    if not reason:
        raise UsageError("a reason is required. Fix: add --reason TEXT")
    stopping = state.stopping is not None and state.ended is None
    if step.status not in REDOABLE or step.failure is None or stopping:
        why = "the run is stopping" if stopping else f"it is {step.status}"
        raise Conflict(f"step {ident} cannot be retried: {why}")
    wish = ev.RedoRequested(ident, actor, reason)
    if state.ended is None:
        return Move([wish], [])
    _refuse_final(state, state.ended, now)
    held, effects = holds.hold_again(state, actor)
    return Move([ev.RunReopened(ident, actor, reason), wish, *held], effects)


def _refuse_final(state: State, ended: ev.RunEnded, now: Now) -> None:
    """Raise `Conflict`, with a fix, if a run that has ended cannot be reopened."""
    again = "Fix: run the plan again"
    if ended.status != "failed":
        raise Conflict(
            f"run {state.run} has ended ({ended.status}), and only a failed run can be "
            f"reopened. {again}"
        )
    if ended.rollback:
        raise Conflict(f"run {state.run} was rolled back, so it cannot be reopened. {again}")
    wall_s = state.policy.wall_s
    late = wall_s is not None and now.at >= state.started_at + int(wall_s * SECOND)
    if ended.limit or late:
        limit = ended.reason if ended.limit else f"its time limit of {wall_s:g} s"
        raise Conflict(f"run {state.run} has reached its limits ({limit}). {again}, with more")


def record_examination(state: State, number: int, found: list[str], failed: str, now: Now) -> Move:
    """Record the findings of the automatic reviewers; the run may have ended or moved on."""
    revision = state.pending
    if state.ended is not None or revision is None:
        return Move([], [])
    events, effects = decisions.record_examination(state, number, found, failed, now)
    if not any(isinstance(event, ev.RevisionApproved) for event in events):
        return Move(events, effects)
    stale = _stale(state, revision)
    if not stale:
        return Move(events, effects)
    reason = f"it was approved, but no longer fits: {'; '.join(stale)}"
    refused = ev.RevisionRejected(revision.number, revision.hash, "policy", reason)
    return Move([events[0], refused, ev.ProposalRefused(state.planner.calls, stale)], [])


def amend(state: State, answer: Doc, actor: str, now: Now) -> Move:
    """Apply a person's own revision: of the pending one, or of the current plan."""
    _open(state)
    planners = (state.started.planner, state.planner_name) if state.started is not None else ()
    if same_person_key(actor) in NO_PERSON or actor in planners:
        raise NotAllowed(f"{visible(actor)} is not a person, and cannot amend a plan")
    waiting, events = state.pending, []
    seen, now_there = answer.get("base"), waiting.hash if waiting is not None else state.head
    if seen is not None and seen != now_there:
        raise Conflict("the plan has changed since it was read. Fix: read it again, then amend it")
    if waiting is not None:
        gone = ev.RevisionRejected(waiting.number, waiting.hash, actor, "amended")
        events.append(gone)
    found = findings(
        state,
        answer.get("steps", []),
        answer.get("cancel", []),
        answer.get("drop"),
        final=bool(answer.get("final")),
    )
    if found:
        raise PlanInvalid([f"the amended plan does not fit: {'; '.join(found)}"])
    if answer.get("final") and not answer.get("steps") and not _left(state, answer):
        empty = "the amended plan has no step left, and would succeed without doing anything"
        raise PlanInvalid([f"{empty}. Fix: cancel the run, or reject what waits"])
    proposed, effects = propose(state, actor, answer, now)
    return Move([*events, *proposed], effects)


def _stale(state: State, revision: Revision) -> list[str]:
    """Return the findings against a revision that has waited, in the current state of the run."""
    found = findings(state, revision.add, revision.cancel, revision.drop, final=revision.final)
    by_planner = revision.author == state.planner_name
    return found or (unseen_repeats(state, revision.add) if by_planner else [])


def _left(state: State, answer: Doc) -> bool:
    """Return whether a run has any step left that an amendment does not take out."""
    gone = {*answer.get("cancel", ()), *(answer.get("drop") or ())}
    return any(
        step.id not in gone and step.status not in ("cancelled", "superseded")
        for step in state.steps.values()
    )


def _refuse_misgiven(facts: list[str], value: Json) -> None:
    """Refuse data that does not fit the facts asked for: later it would only fail the run."""
    wrong = unfit_answer(facts, value)
    if wrong:
        form = ", ".join(f'"{fact}": …' for fact in facts)
        raise UsageError(
            f"{wrong}; asked for: {', '.join(facts)}. Fix: give it as --data '{{{form}}}'"
        )


def _vouched(state: State, ident: str, data: Json, *, denies: bool = False) -> None:
    """Require the facts a step promises when a person marks it done; `denies` allows to refuse."""
    step = state.steps[ident]
    offer = state.catalog.offer(step.worker, step.action)
    promised = facts_given(step.doc, offer, widened=step.widened)
    if denies:
        promised = tuple(fact for fact in promised if not is_flag(fact))
    broken = broken_promises(promised, data) if promised else []
    if broken:
        raise UsageError(
            f"step {ident} gives {', '.join(promised)}, and others may need it: "
            f"{'; '.join(broken)}. Fix: give it with --data"
        )


def _words(approval: Doc | None) -> ApprovalWords:
    try:
        return msgspec.convert(approval or {}, decisions.ApprovalWords)
    except msgspec.ValidationError as error:
        raise UsageError(f"this is not an approval: {error}") from None


def _review(
    state: State,
    question: Question,
    choice: str,
    actor: str,
    text: str,
    now: Now,
    more: ApprovalWords,
) -> Move:
    revision = _under_review(state, question)
    if choice != "approve":
        return Move(reject(state, revision, actor, text), [])
    stale = _stale(state, revision)
    if stale:
        reason = f"{actor} approved it, but it no longer fits: {'; '.join(stale)}"
        refused = ev.RevisionRejected(revision.number, revision.hash, "policy", reason)
        return Move([refused, ev.ProposalRefused(state.planner.calls, stale)], [])
    return Move(approve(state, revision, actor, text, now, more), [])


def _comments(data: Json) -> list[Doc]:
    """Return the comments in the data of a request for changes."""
    given = data.get("comments", []) if isinstance(data, dict) else []
    try:
        return msgspec.convert(given, list[dict[str, str]])
    except msgspec.ValidationError as error:
        raise UsageError(f"comments are a list of objects with step and text: {error}") from None


def _under_review(state: State, question: Question) -> Revision:
    """Return the revision that a question is about. Raise `Conflict` if it no longer waits."""
    revision = state.pending
    if revision is None or revision.number != question.revision:
        raise Conflict(f"revision {question.revision} no longer waits")
    return revision


def _open(state: State) -> None:
    if state.ended is not None:
        raise Conflict(f"run {state.run} has ended ({state.ended.status})")
