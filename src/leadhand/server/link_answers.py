"""Answers through signed links: what a link shows, and the answer as its person's command.

The page of a link and the buttons of a Slack message end here. The rules are those of the other
routes: the role of the person now, the item as it was shown, two different people where a rule
wants two. `core/review/answer_link.py` checks the item again in the turn that records the answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from leadhand.codec.documents import read_value
from leadhand.core.commands import Command
from leadhand.core.review import protected_change
from leadhand.core.review.answer_link import item_digest
from leadhand.core.review.approval import binding
from leadhand.core.review.view import review_document
from leadhand.core.views.inbox import inbox_row, wants_words
from leadhand.core.views.run import run_status
from leadhand.engine.approvals import words_with
from leadhand.errors import Conflict, DocumentError, UsageError
from leadhand.server.app_state import now
from leadhand.server.links import LinkRefused, unknown_link
from leadhand.server.problems import RequestRefused
from leadhand.server.routes.common import Saying, key_of
from leadhand.server.rules import APPROVER, OPERATOR, may

if TYPE_CHECKING:
    from leadhand.core.plan.model import Json
    from leadhand.core.review.view import ReviewDocument
    from leadhand.core.state.model import Now, State
    from leadhand.core.state.records import Question
    from leadhand.core.views.inbox import InboxRow
    from leadhand.server.accounts import Person
    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader
    from leadhand.server.links import Link

STEPS_MAX = 300
"""A larger plan is not approved through a link: its page would not be read."""
ENDS = frozenset(("reject", "abort", "rollback", "stop", "give up"))
"""Answers that end a run: asked once more."""
LABELS = {
    "approve": "Approve",
    "reject": "Reject",
    "request_changes": "Request changes",
    "send_back": "Send back",
    "give up": "Give up",
}
"""The buttons whose label is not the answer with a capital letter."""
CHANGED = "What waits is not what this link was made for."


class LinkItem(NamedTuple):
    """What a link is about, as it stands now."""

    row: InboxRow
    review: ReviewDocument | None
    """Of a review: the plan in full."""
    digest: str
    """What the approval of a review binds; of a protected change the commit; else empty."""


class LinkAnswer(NamedTuple):
    """An answer as a person gave it."""

    choice: str
    text: str = ""


def label_of(choice: str) -> str:
    """Return an answer as a button says it."""
    return LABELS.get(choice, f"{choice[:1].upper()}{choice[1:]}".replace("_", " "))


def least_role(kind: str, choice: str) -> str:
    """Return the least role that may give an answer to a kind of question."""
    decides = kind in ("review", protected_change.KIND) or (kind, choice) == ("hold", "release")
    return APPROVER if decides else OPERATOR


def may_answer(person: Person, row: InboxRow) -> bool:
    """Return whether a person's role is enough for any answer to a question."""
    choices = row.answers or [""]
    return any(may(person.role, least_role(row.kind, choice)) for choice in choices)


def look(desk: CachedReader, link: Link, person: Person) -> LinkItem:
    """Return what a link is about. Raise `LinkRefused` if it is decided, changed, or not theirs."""
    try:
        desk.header(link.run)
    except RequestRefused:
        raise unknown_link() from None
    state = desk.state(link.run)
    if link.id in state.links:
        raise LinkRefused(410, "This link was used: your answer is recorded.")
    question = state.questions.get(link.question)
    if question is None:
        raise LinkRefused(410, f"This was decided already. The run is {run_status(state)}.")
    if item_digest(state, question) != link.item:
        raise LinkRefused(410, f"{CHANGED} A new message follows if you are asked again.")
    row = inbox_row(state, question.id)
    row.words = wants_words(state, question)
    if not may_answer(person, row):
        wanted = least_role(row.kind, row.answers[0] if row.answers else "")
        raise LinkRefused(403, f"This needs the role {wanted}, and {person.name} is {person.role}.")
    row.choices = [c for c in row.choices if _offered(person, row, c.answer)]
    review = review_document(state, now()) if row.kind == "review" else None
    return LinkItem(row, review, _shown(state, question))


def _offered(person: Person, row: InboxRow, choice: str) -> bool:
    too_large = row.kind == "review" and choice == "approve" and row.steps > STEPS_MAX
    return may(person.role, least_role(row.kind, choice)) and not too_large


def _shown(state: State, question: Question) -> str:
    """Return the digest or commit that an approval names as what was shown; empty: none."""
    if question.kind == "review" and state.pending is not None:
        return binding(state, state.pending, 0)
    if question.kind == protected_change.KIND:
        return str(protected_change.change_of(state, question).get("commit", ""))
    return ""


def needs_text(row: InboxRow, choice: str) -> bool:
    """Return whether an answer says nothing without words or data."""
    words = choice in ("", "give", "request_changes", "send_back")
    return words or (choice == "retry" and row.words is True)


async def give_answer(app_state: AppState, link: Link, person: Person, given: LinkAnswer) -> str:
    """Record a person's answer through a link; return the status of the run once it is durable.

    Raise `LinkRefused` if the link opens nothing, `LeadhandError` if the answer is refused. A
    refused answer does not use up the link.
    """
    item = await app_state.cached_readers.read(lambda desk: look(desk, link, person))
    row, choice = item.row, given.choice
    if row.choices and choice not in row.answers:
        raise UsageError(f'"{choice}" is not one of: {", ".join(row.answers)}')
    if needs_text(row, choice) and not given.text.strip():
        raise UsageError("this answer needs a text")
    text, data = _content(row, given)
    key = key_of(person)

    def word(state: State, at: Now) -> Command:
        question = state.questions.get(link.question)
        if question is None:
            raise Conflict(f"question {link.question} is no longer open")
        shown, name = _shown(state, question), person.name
        more = words_with(state, question.id, choice, name, at, key=key, shown=shown)
        details = {"id": question.id, "choice": choice, "text": text, "data": data}
        return Command("answer", name, {**details, "approval": more, "link": link.words})

    supervisor = app_state.supervisor
    hosted = await supervisor.find(link.run)
    await supervisor.update_workers(hosted)
    await hosted.submit_and_wait(Saying(word))
    await supervisor.drive(hosted)
    return run_status(hosted.state)


def _content(row: InboxRow, given: LinkAnswer) -> tuple[str, Json]:
    """Return what was written as words, or as data where data is asked for."""
    takes_data = "give" in row.answers or row.kind == "task"
    if not takes_data or given.choice not in ("give", "done") or not given.text.strip():
        return given.text, None
    try:
        json.loads(given.text)
    except ValueError:
        return "", given.text
    try:
        return "", read_value(given.text, "the answer")
    except DocumentError as error:
        raise UsageError(str(error)) from None
