"""Questions of planners and agents as comments on the issue, and answers from there.

A question has a code of its own, and an answer names it:

    /answer q3f9a1c2 retry Use the blue one.

So an answer belongs to one question, and is used once: an answered question is no longer open.
Only people who may start work are heard, and not by a comment that was edited. What needs an
approval (plans, protected files, held steps) is not answered by a comment: a comment has no
signature and shows no diff.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leadhand.core import commands
from leadhand.errors import LeadhandError
from leadhand.fleet.forge.description import quoted
from leadhand.fleet.forge.intake import plain_text
from leadhand.fleet.forge.origin import issue_of
from leadhand.fleet.forge.rules import key_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.state.records import Question
    from leadhand.fleet.forge.context import ForgeContext
    from leadhand.fleet.forge.port import IssueComment
    from leadhand.ports import RunHandle

ANSWER = re.compile(r"^/answer[ \t]+(q[0-9a-f]{8})\b[ \t]*(.*)", re.DOTALL)
BY_COMMENT = frozenset({"review", "protected_change", "hold"})
"""Kinds of questions that a comment does not answer."""
FREE = ("give", "retry", "again", "continue")
"""Choices that an answer without a choice stands for, the first that there is."""
TEXT_CHARS = 6_000
REFUSED_MAX = 20
"""Ignored answers that `fleet status` names: every account of the host can comment."""
TAKEN = """Leadhand works on this issue as `{run}`. Questions come as comments here, the change as a
pull request. The issue is closed when the change is merged and the branch is green."""
APPROVAL = "It needs an approval, which a comment cannot give. Decide with `leadhand inbox`."
HOW = """To answer, write a comment that begins with:

```text
/answer {code} {example}
```

{choices}"""


def code_of(run: str, question: str) -> str:
    """Return the code that an answer names."""
    return "q" + key_for("question", run, question).partition(":")[2][:8]


class Conversation:
    """Asks on the issue, and listens there."""

    def __init__(self, context: ForgeContext) -> None:
        self._forge, self._people, self._note = context.forge, context.people, context.note
        self._said: set[str] = set()
        self._ignored: set[int] = set()
        self.refused: dict[str, str] = {}
        """Answers that were not taken, and why."""

    async def look(self, runs: Iterable[RunHandle]) -> None:
        """Ask what is open, and take answers, for runs that were begun for an issue."""
        for run in runs:
            issue = issue_of(run.state)
            if issue is None or run.state.ended is not None:
                continue
            number = int(issue["number"])
            await self.say(number, TAKEN.format(run=run.id), key_for("taken", run.id))
            open_ = list(run.state.questions.values())
            for question in open_:
                await self._ask(run, number, question)
            if any(each.kind not in BY_COMMENT for each in open_):
                await self._listen(run, number)

    async def say(self, number: int, body: str, key: str) -> None:
        """Write a comment once."""
        if key not in self._said:
            await self._forge.comment(number, body, key)
            self._said.add(key)

    async def _ask(self, run: RunHandle, number: int, question: Question) -> None:
        code = code_of(run.id, question.id)
        about = f"Task `{question.step}` asks" if question.step else "The planner asks"
        parts = [f"{about} (`{code}`):", quoted(question.text, TEXT_CHARS)]
        if question.kind in BY_COMMENT:
            parts.append(APPROVAL)
        else:
            named = ", ".join(f"`{each}`" for each in question.choices)
            listed = f"Choices: {named}; words may follow." if named else ""
            example = question.choices[0] if question.choices else "your answer"
            parts.append(HOW.format(code=code, example=example, choices=listed))
        await self.say(number, "\n\n".join(parts), key_for("question", run.id, question.id))

    async def _listen(self, run: RunHandle, number: int) -> None:
        codes = {code_of(run.id, each.id): each for each in run.state.questions.values()}
        own = await self._people.own()
        for comment in await self._forge.comments(number):
            found = ANSWER.match(comment.body.lstrip())
            question = codes.get(found[1]) if found else None
            if found is None or question is None or comment.author == own:
                continue
            if question.kind in BY_COMMENT or comment.id in self._ignored:
                continue
            if not await self._people.may(comment.author):
                self._ignore(comment, "its author may not answer")
                continue
            if comment.is_edited:  # another account may have changed it
                self._ignore(comment, "it was edited; answer by a new comment")
                continue
            if await self._answer(run, question, comment, found[2]):
                codes.pop(found[1])

    def _ignore(self, comment: IssueComment, why: str) -> None:
        self._ignored.add(comment.id)
        words = f"ignored: {why}"
        self.refused[f"comment {comment.id} of {comment.author}"] = words
        for oldest in list(self.refused)[:-REFUSED_MAX]:
            del self.refused[oldest]
        self._note("comment ignored", said=f"{comment.url or comment.id}: {words}")

    async def _answer(
        self, run: RunHandle, question: Question, comment: IssueComment, words: str
    ) -> bool:
        """Hand an answer to the run; return whether it was taken."""
        choice, text = read_answer(words, question.choices)
        actor = f"{self._forge.name.partition('/')[0]}:{comment.author}"
        told: dict[str, Any] = {"text": plain_text(text, TEXT_CHARS)}
        try:
            await run.submit_and_wait(
                lambda state, now: commands.answer(state, question.id, choice, actor, now, **told)
            )
        except LeadhandError as error:
            self._ignore(comment, str(error))
            return False
        self._note("answered", run=run.id, said=comment.url, by=comment.author)
        return True


def read_answer(words: str, choices: Iterable[str]) -> tuple[str, str]:
    """Return the choice of an answer, and the text that follows it."""
    given = words.strip()
    known = sorted(choices, key=len, reverse=True)
    for choice in known:
        rest = given[len(choice) :]
        if given[: len(choice)].lower() == choice.lower() and not rest[:1].isalnum():
            return choice, rest.lstrip(" :,.\n")
    return next((each for each in FREE if each in known), ""), given
