"""What the planner hands itself from one call to the next, in the log. Small, and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from leadhand.planners.goal.methods import Split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.plan.model import Doc, Json
    from leadhand.core.report import PlannerView

SEEN_MAX = 20

GIVE, RETRY, STOP = "give", "retry", "stop"
"""What a person may answer: here it is, try again, it is not worth it."""


class AskedQuestion(msgspec.Struct):
    """A question that was put to a person."""

    question: str
    facts: list[str]
    failures: int = 0
    """How many attempts had failed by then."""
    results: int = 0
    """How many steps had succeeded by then."""


class GoalNotes(msgspec.Struct, omit_defaults=True):
    """The planner's memory that is not in the log otherwise."""

    prices: str = ""
    """A digest of what the last plan was made for."""
    way: list[str] = []
    """The operators of the last plan."""
    seen: list[str] = []
    """Digests of where it stood when nothing was under way."""
    asked: list[AskedQuestion] = []
    splits: dict[str, Split] = {}
    heard: int = 0
    """How many recommendations were answered."""

    def parts(self) -> set[str]:
        """The steps that methods put into the run."""
        return {ident for split in self.splits.values() for ids in split.steps for ident in ids}

    def to_doc(self) -> Doc:
        """As it is logged."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def read(notes: Json) -> GoalNotes:
    """The notes of the last call; those of another planner are as good as none."""
    try:
        return msgspec.convert(notes or {}, GoalNotes)
    except msgspec.ValidationError:
        return GoalNotes()


class PersonAnswers(msgspec.Struct):
    """What people answered to the planner's questions."""

    forgiven: int = 0
    """How many of the failed attempts no longer count."""
    stop: str = ""
    """Who said that it is not worth going on."""


def said(view: PlannerView, notes: GoalNotes) -> PersonAnswers:
    """Match the answers to the questions, each to its own where the same was asked again."""
    found = PersonAnswers()
    unanswered = list(notes.asked)
    for answer in view.answers:
        own = (each for each in unanswered if each.question == answer.get("question", ""))
        asked = next(own, None)
        if asked is None:
            continue
        unanswered.remove(asked)
        if answer.get("choice") == STOP:
            found.stop = str(answer.get("actor") or "a person")
        if answer.get("choice") == RETRY:
            found.forgiven = max(found.forgiven, asked.failures)
    return found


def awaited(view: PlannerView, facts: Iterable[str]) -> bool:
    """Whether a person has been asked for these facts, and the question is still open."""
    return any(set(facts) <= set(each.get("facts") or ()) for each in view.questions)
