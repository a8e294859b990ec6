"""What a message tells: the item that waits, its goal, risk and side effects, and its choices."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.core.review.subject import effects_text
from leadhand.core.visible import escape_deceptive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadhand.core.views.inbox import InboxRow

LINE_MAX = 1000
TITLE_MAX = 200


class MessageButton(NamedTuple):
    """A choice that can be made in the message itself."""

    answer: str
    label: str
    leads_to: str
    token: str
    """The signed link that the answer goes through."""
    ends: bool = False
    """Whether the answer ends the run, so that it is asked once more."""


class Message(NamedTuple):
    """One message, for every channel."""

    id: str
    """The same for each repetition of the message."""
    kind: str
    """`waiting`, `ended` or `test`."""
    run: str
    title: str
    lines: tuple[str, ...] = ()
    link: str = ""
    """The signed link of the person that it goes to."""
    page: str = ""
    """The address of the run in the dashboard, which needs a sign-in."""
    buttons: tuple[MessageButton, ...] = ()
    text: str = ""
    """The notice in one line, for commands."""
    store: str = ""
    items: tuple[Any, ...] = ()
    """The rows of the inbox that it is about, for programs."""

    @property
    def body(self) -> str:
        """The message as plain text."""
        parts = list(self.lines)
        if self.link:
            parts += ["", "Read and decide (one answer, for you only; do not forward):", self.link]
        if self.page:
            parts += ["", "In the dashboard (needs a sign-in):", self.page]
        return "\n".join(parts)


def plain(value: object, limit: int = LINE_MAX) -> str:
    """Return a text of others as one line, without characters that hide or reverse."""
    text = str(value)
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return escape_deceptive("".join(map(_shown, text)))


def _shown(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return f"\\u{ord(char):04x}" if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") else char


def row_lines(row: InboxRow, digest: str = "", plan: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what a person reads before a decision: goal, risk, side effects and choices.

    `plan`: lines about the plan that is to be approved.
    """
    lines = [f"Goal: {plain(row.goal or row.plan or '(no goal)')}"]
    if row.risk:
        lines += [f"Risk: {row.risk}"]
        lines += [f"Side effects: {plain(effects_text(row.effects)).removeprefix('effects ')}"]
    if row.cost:
        lines += [f"Declared cost: {row.cost:g} cost units"]
    if row.reason:
        lines += [f"Reason: {plain(row.reason)}"]
    lines += [f"Run: {row.run}, started by {plain(row.started_by or 'unknown')}"]
    if digest:
        lines += [f"Plan digest: {digest}"]
    lines += [plain(each) for each in plan]
    if row.choices:
        lines += ["", "Choices:"]
        lines += [f"- {plain(c.answer)}: {plain(c.leads_to)}" for c in row.choices]
    if row.default and row.until:
        lines += [f"Without an answer by {row.until}: {plain(row.default)}"]
    return tuple(lines)
