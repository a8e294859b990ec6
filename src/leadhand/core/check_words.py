"""Notes on the wording of descriptions.

They help a worker that reads its task (a person, a model) and prove nothing: on plans that are
known to be good these rules fire as often as on bad ones. So they are notes, never more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadhand.core.wording import shown

if TYPE_CHECKING:
    from leadhand.core.findings import Findings
    from leadhand.core.whole import Whole

TASKS_MIN = 3
CHARS_MAX = 2000
"""How much of a description is read."""

_PRONOUN = re.compile(
    r"^\W*(?:\w+\W+){1,3}(it|them|this|these|those)"
    r"(?=\s*(?:[.,;:!?]|$)|\s+(?:and|as|at|by|for|from|in|into|on|to|with)\b)",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"\b(as above|see above|the above|as before|same as (?:above|before)|previous step"
    r"|repeat (?:the |this )?(?:process|procedure|steps?)|and so on)\b",
    re.IGNORECASE,
)
_VAGUE_VERB = re.compile(
    r"^\W*(handle|manage|process|address|improve|support|optimi[sz]e|deal with|take care of"
    r"|look into|work on|sort out|figure out|do)\b",
    re.IGNORECASE,
)
_VAGUE_MEASURE = re.compile(
    r"\b(appropriate(?:ly)?|as (?:needed|necessary|required)|etc|if possible|properly|suitabl[ey]"
    r"|reasonabl[ey]|adequate(?:ly)?|various|user-friendly|and/or|good enough)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;.]|\band\b|\bthen\b", re.IGNORECASE)
_TASKS = """
    add analyse analyze apply archive assemble back build calculate call check clean collect
    combine compare compile compute configure convert copy create delete deploy design document
    download draft enable evaluate export extract fetch file filter find fix format gather generate
    implement import install integrate load measure merge migrate move notify open order parse pay
    plan post prepare print publish pull push read refactor remove rename render replace report
    research restart restore review rewrite run save scan schedule search select send set sort
    split start stop store submit summarise summarize sync tag test train transform translate
    update upload validate verify visit wait write
"""
_VERBS = frozenset(_TASKS.split())


def check_words(whole: Whole, out: Findings) -> None:
    """What the descriptions of steps leave open."""
    for ident, step in whole.steps.items():
        text = step.get("description", "")[:CHARS_MAX]
        if not text:
            continue
        place = whole.place(ident, "description")
        for rule, pattern, what, fix in _RULES:
            match = pattern.search(text)
            if match is not None:
                out.add(rule, place, f"{shown(match[1])} {what}", fix)
        tasks = sum(_first_word(clause) in _VERBS for clause in _CLAUSE.split(text))
        if tasks >= TASKS_MIN:
            message = f"step {shown(ident)} is about {tasks} tasks in one"
            out.add("step-coarse", place, message, "Smaller steps fail, and are repeated, alone.")


_RULES = (
    ("pronoun", _PRONOUN, "stands for something that is not named", "Name it."),
    ("back-reference", _BACK, "points at a text that the worker may not see", "Write it out."),
    ("verb-vague", _VAGUE_VERB, "does not say what is done", "Say what is there afterwards."),
    ("qualifier-vague", _VAGUE_MEASURE, "leaves open how much is enough", "Give a measure."),
)


def _first_word(clause: str) -> str:
    words = clause.split(maxsplit=1)
    return words[0].lower() if words else ""
