"""Comments of reviewers on a revision, and how the next one answers them. Pure.

A planner says of each comment whether it addressed it; that is a claim. Whether the commented step
changed is a fact, which is shown beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from leadhand.core.calendar import iso
from leadhand.core.visible import visible_name

if TYPE_CHECKING:
    from leadhand.core.events import CommentAnswer, StepComment
    from leadhand.core.plan.model import Doc
    from leadhand.core.state.model import State
    from leadhand.core.state.records import Comment

NOT_ANSWERED = "not answered"
COMMENTS_MAX = 50
"""The most comments of one request for changes."""
COMMENT_CHARS = 2000
"""The longest comment: a planner is told all of it."""
ROWS_MAX = 100
"""The most comments that a review shows: the newest."""


class CommentRow(Struct, kw_only=True):
    """A comment on an earlier revision, with its answer."""

    id: str
    """The id by which a planner answers it."""
    step: str | None
    """The step that it is about; null: the whole revision."""
    text: str
    """The comment."""
    by: str
    """The reviewer."""
    at: str
    """When it was made, in ISO 8601."""
    revision: int
    """The revision that it is about."""
    status: str
    """`addressed` or `not addressed`, as the planner says; `not answered` if it says nothing."""
    reason: str
    """What the planner says about it."""
    fact: str
    """What became of the commented step, by comparison: `changed`, `unchanged` or `removed`; of
    the plan, for a comment on the whole revision."""


def comment_line(comment: StepComment) -> str:
    """Return a comment with its step and its id, in one line."""
    step = f"step {visible_name(comment.step)}: " if comment.step else ""
    return f"{comment.id}: {step}{comment.text}"


def answer_line(answer: CommentAnswer) -> str:
    """Return how a comment is answered: `c1 addressed (uses staging now)`."""
    return f"{answer.comment} {answer.status}" + (f" ({answer.reason})" if answer.reason else "")


def comment_rows(state: State) -> list[CommentRow]:
    """Return the newest comments since the last approved revision."""
    docs = {ident: step.doc for ident, step in state.steps.items()}
    if state.pending is not None:
        docs |= {str(step["id"]): step for step in state.pending.add}
        for ident in state.pending.cancel:
            docs.pop(ident, None)
    told = [each for each in state.comments if each.revision > state.revision]
    return [
        CommentRow(
            id=each.id,
            step=each.step or None,
            text=each.text,
            by=each.actor,
            at=iso(each.at),
            revision=each.revision,
            status=each.answer.status if each.answer else NOT_ANSWERED,
            reason=each.answer.reason if each.answer else "",
            fact=_fact(each, docs, state),
        )
        for each in told[-ROWS_MAX:]
    ]


def _fact(comment: Comment, docs: dict[str, Doc], state: State) -> str:
    if not comment.step:
        same = state.pending is not None and state.pending.hash == comment.hash
        return "unchanged" if same else "changed"
    now = docs.get(comment.step)
    if now is None:
        return "removed"
    return "unchanged" if now == comment.doc else "changed"
