"""Pauses: what a run waits for, told to the agent that drives it, and answered through it.

An answer that comes through a client is the agent's, also if the client says that its user gave it:
the server cannot see who pressed the key. So the client is asked to decide only where the policy
lets an agent decide. Otherwise its user gets an address without authority, where a person must sign
in, or the command that a person types; and the run goes on when a person has decided there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from mcp import types
from msgspec import UNSET, Struct, UnsetType

from leadhand.app.commands import send_command
from leadhand.core.plan.model import Doc
from leadhand.core.review.agents import OWN, refuse_agent_answer, refuse_agent_approval
from leadhand.core.review.ruling import reach_of
from leadhand.core.review.view import review_document
from leadhand.core.state.model import Now
from leadhand.core.views.inbox import InboxRow, inbox_row
from leadhand.core.views.run import run_status
from leadhand.engine.approvals import approval_words
from leadhand.errors import NotAllowed, UsageError
from leadhand.mcp.server import Unanswered
from leadhand.notify.notifier import public_address

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json
    from leadhand.core.state.model import State
    from leadhand.mcp.runs import Workplace
    from leadhand.mcp.server import Call
    from leadhand.settings import Settings

SUMMARY_STEPS = 20
APPROVE, REJECT, LATER = "approve", "reject", "not now"
WORDS = "(words)"
DECISION: Doc = {
    "decision": {
        "type": "string",
        "enum": [APPROVE, REJECT, LATER],
        "title": "Decision",
        "description": "approve exactly this plan, reject it, or decide later",
    },
    "comment": {"type": "string", "title": "Comment", "maxLength": 1000},
}
SEEN: Doc = {
    "seen": {
        "type": "boolean",
        "title": "I have decided there",
        "description": "Nothing is decided by this form.",
    }
}


class Pause(Struct, kw_only=True):
    """What a run waits for, and who may answer it."""

    question: str
    """The id of the question: RUN/QUESTION."""
    kind: str
    """`review` for an approval of a plan; otherwise the kind of the question."""
    title: str
    """What is to be decided or done, in one line."""
    reason: str
    """Why somebody is asked."""
    summary: list[str]
    """The plan in a few lines, if it is about a plan."""
    digest: str | UnsetType = UNSET
    """Of a plan: the digest of exactly what would be approved."""
    risk: str | None
    """The risk of the steps concerned, or `not declared`."""
    effects: list[str]
    """What the steps change in the world."""
    answers: list[str]
    """The answers that it takes; none: it is answered in words."""
    yours: list[str]
    """The answers that this agent may give with the tool `answer`."""
    for_person: str
    """How a person answers: an address where to sign in, or a command. It carries no authority."""


def pauses_of(state: State, settings: Settings, actor: str) -> list[Pause]:
    """Return everything that a run waits for."""
    return [_pause(state, ident, settings, actor) for ident in state.questions]


def _pause(state: State, ident: str, settings: Settings, actor: str) -> Pause:
    row, question = inbox_row(state, ident), state.questions[ident]
    review = question.kind == "review"
    found = Pause(
        question=row.id,
        kind=question.kind,
        title=row.title,
        reason=row.reason,
        summary=_summary(state) if review else [],
        risk=row.risk,
        effects=row.effects,
        answers=row.answers,
        yours=[each for each in row.answers or [WORDS] if _may(state, ident, each, actor)],
        for_person=way_of_person(settings, row),
    )
    if review:
        found.digest = review_document(state, now_of(state)).digest
    return found


def _summary(state: State) -> list[str]:
    assert state.pending is not None
    steps = state.pending.add
    lines = [
        f"{step['id']}: {step['worker']}" + (f" {step['action']}" if step.get("action") else "")
        for step in steps[:SUMMARY_STEPS]
    ]
    more = len(steps) - SUMMARY_STEPS
    return [*lines, *([f"and {more} more steps"] if more > 0 else [])]


def _may(state: State, ident: str, choice: str, actor: str) -> bool:
    """Return whether an agent may give an answer."""
    question, revision = state.questions[ident], state.pending
    try:
        if (question.kind, choice) == ("review", APPROVE) and revision is not None:
            wanted = reach_of(state, revision.add)
            refuse_agent_approval(state, revision.people, wanted, actor)
            return not state.policy.approvers
        refuse_agent_answer(state, question, choice, actor)
    except NotAllowed:
        return False
    return True


def way_of_person(settings: Settings, row: InboxRow) -> str:
    """Return how a person answers a question: by the page, or in a terminal."""
    address = page_of(settings, row.run)
    if address:
        return f"sign in and decide at {address}"
    if row.kind == "review":
        # The command of the choice names the digest, so that it needs no terminal that can ask.
        way = next(each.command for each in row.choices if each.answer == APPROVE)
        shown = f"`leadhand review {row.run} approve` shows the plan and asks"
        return f"outside of this session: {shown}; where nothing can be asked, `{way}`"
    ways = [f"`{each.command}`" for each in row.choices] or [f"`leadhand answer {row.id} TEXT`"]
    return f"outside of this session: {' or '.join(ways)}"


def only_people(state: State, actor: str) -> bool:
    """Return whether a run waits for people alone: this agent can give no answer that helps it."""
    if run_status(state) != "waiting" or not state.questions:
        return False
    found = (inbox_row(state, ident) for ident in state.questions)
    given = (
        each
        for row in found
        for each in row.answers or [WORDS]
        if each not in OWN and _may(state, row.id.partition("/")[2], each, actor)
    )
    return next(given, None) is None


def page_of(settings: Settings, run: str) -> str:
    """Return the address of a run's plan on the page; empty if no address is configured."""
    address = public_address(settings)
    return f"{address}/#/runs/{run}/plan" if address else ""


def now_of(state: State) -> Now:
    """Return the time for a run that is only looked at."""
    wall = time.time_ns() // 1000
    return Now(max(wall, state.last_at), wall)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """What the client's user is asked, and how the answer counts."""

    key: str
    """The same for the same question about the same plan, and for no other."""
    params: types.ElicitRequestFormParams | types.ElicitRequestURLParams
    pause: Pause
    counts: Literal["decision", "words", ""]
    """Empty: nothing is decided by the answer; a person decides elsewhere."""


def inquiry_of(place: Workplace, call: Call, state: State) -> Inquiry | None:
    """Return what to ask the client's user about a run; None if nothing waits, or it cannot ask.

    Only the first question is passed on: the others follow when it is answered.
    """
    settings = place.settings()
    pause = next(iter(pauses_of(state, settings, call.caller.actor)), None)
    if pause is None:
        return None
    mark = pause.digest if isinstance(pause.digest, str) else str(state.asked)
    key = f"{pause.question}/{mark}"
    if APPROVE in pause.yours and call.forms:
        return Inquiry(key, form(_message(pause), DECISION, ["decision"]), pause, "decision")
    if pause.kind == "planner" and pause.yours and call.forms:
        fields: Doc = {"words": {"type": "string", "title": "Answer", "maxLength": 10_000}}
        if pause.yours != [WORDS]:
            fields["choice"] = {"type": "string", "enum": pause.yours, "title": "Choice"}
        return Inquiry(key, form(_message(pause), fields), pause, "words")
    address = page_of(settings, state.run)
    if address and call.pages:
        ident = None if call.modern else key
        url = types.ElicitRequestURLParams(
            message=_message(pause), url=address, elicitation_id=ident
        )
        return Inquiry(key, url, pause, "")
    if call.forms:
        message = f"{_message(pause)}\n\nA person decides: {pause.for_person}"
        return Inquiry(key, form(message, SEEN), pause, "")
    return None


async def ask_about(place: Workplace, call: Call, state: State) -> bool:
    """Pass what a run waits for to the client's user; return whether something was answered.

    False: the client cannot ask, its user did not answer, or a person must decide elsewhere.
    """
    inquiry = inquiry_of(place, call, state)
    if inquiry is None:
        return False
    try:
        content = await call.elicit(inquiry.key, inquiry.params)
    except Unanswered:
        return False
    return await take_answer(place, call, inquiry, content)


async def take_answer(place: Workplace, call: Call, inquiry: Inquiry, content: Doc) -> bool:
    """Give the answer of the client's user to the run, as the agent's; return whether it was one.

    Raise `NotAllowed` if it is reserved for people.
    """
    pause = inquiry.pause
    if inquiry.counts == "decision":
        choice = str(content.get("decision", ""))
        if choice not in (APPROVE, REJECT):
            return False
        words = str(content.get("comment") or "")[:1000]
        shown = str(pause.digest)
        await give_answer(place, call, pause.question, choice=choice, text=words, shown=shown)
        return True
    if inquiry.counts == "words":
        choice, words = str(content.get("choice") or ""), str(content.get("words") or "")
        if not choice and not words:
            return False
        await give_answer(place, call, pause.question, choice=choice, text=words)
        return True
    return False


def form(message: str, fields: Doc, required: Sequence[str] = ()) -> types.ElicitRequestFormParams:
    """Return a form for the client's user."""
    schema: Doc = {"type": "object", "properties": fields, "required": list(required)}
    return types.ElicitRequestFormParams(message=message, requested_schema=schema)


def _message(pause: Pause) -> str:
    lines = [pause.title, pause.reason, *pause.summary]
    if pause.effects:
        lines.append(f"Effects: {', '.join(pause.effects)}")
    if isinstance(pause.digest, str):
        lines.append(f"Plan digest: {pause.digest}")
    return "\n".join(line for line in lines if line)


async def give_answer(
    place: Workplace,
    call: Call,
    ident: str,
    *,
    choice: str = "",
    text: str = "",
    data: Json = None,
    shown: str = "",
) -> Doc:
    """Give an answer as the calling agent. Raise `NotAllowed` if it is reserved for people."""
    run, slash, name = ident.partition("/")
    if not slash:
        raise UsageError(f"{ident[:100]!r} is no question. Fix: RUN/QUESTION, as list_inbox says")
    state = await place.state(run)
    details: dict[str, Any] = {"id": name, "choice": choice, "text": text}
    if data is not None:
        details["data"] = data
    question = state.questions.get(name)
    if question is not None and (question.kind, choice) == ("review", APPROVE):
        if state.pending is not None:
            wanted = reach_of(state, state.pending.add)
            refuse_agent_approval(state, state.pending.people, wanted, call.caller.actor)
        if not shown:
            raise UsageError(
                "an approval names what it approves. Fix: give `digest`, as show_plan says"
            )
        details["approval"] = approval_words(state, call.caller.actor, now_of(state), shown=shown)
    settings = place.settings()
    answer = await send_command(
        settings.store,
        state.run,
        "answer",
        actor=call.caller.actor,
        anchoring=settings.anchoring,
        **details,
    )
    return {"run": state.run, **msgspec.to_builtins(answer)}
