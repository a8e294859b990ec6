"""Signed links in a run: which item a link is bound to, and its single use.

The server signs links and checks their signature, person and expiry (`server/links.py`). Here, in
the turn of the run that records the answer, a link is checked against the item that is open at that
moment, and used up by an event in the same commit as the answer: so neither a restart, nor another
store, nor a second request at the same time allows a second use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.core import events as ev
from leadhand.core.hashing import canonical, digest
from leadhand.core.review import protected_change
from leadhand.core.review.approval import binding
from leadhand.core.review.holds import bound_release
from leadhand.errors import Conflict, UsageError

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Question

FORM = "leadhand link 1"


class LinkWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The details of an answer that was given through a signed link."""

    id: str
    """The id of the link."""
    item: str
    """The digest of the item that the link was made for: `item_digest`."""
    channel: str
    """The channel that carried the link to the person: `email`, `slack` or `ntfy`."""


def item_digest(state: State, question: Question) -> str:
    """Return one hash of everything that an answer to an open question covers.

    Of a review it changes with the plan digest, of a protected change with the commit, of held
    steps with the steps and their workers, of any other question with its text and its choices.
    """
    if question.kind == "review" and state.pending is not None:
        covered = binding(state, state.pending, 0)
    elif question.kind == protected_change.KIND:
        covered = canonical(dict(protected_change.change_of(state, question))).decode()
    elif question.kind == "hold":
        covered = bound_release(state, question.id, 0)
    else:
        asked = [question.text, question.choices, question.step, question.facts]
        covered = canonical(asked).decode()
    return digest(FORM, state.run, question.id, question.kind, str(question.at), covered)


def use_link(state: State, question: Question, actor: str, given: Doc) -> ev.LinkUsed:
    """Return the event that uses up the link of an answer.

    Raise `Conflict` if the link was used, or was made for something else than what is open now.
    """
    try:
        said = msgspec.convert(given, LinkWords)
    except msgspec.ValidationError as error:
        raise UsageError(f"this is not a signed link: {error}") from None
    if said.id in state.links:
        raise Conflict("this link was used, and is good for one answer")
    if said.item != item_digest(state, question):
        raise Conflict("what waits is not what this link was made for; a new message follows")
    return ev.LinkUsed(said.id, question.id, actor, said.channel)
