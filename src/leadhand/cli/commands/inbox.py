"""`leadhand inbox` and `leadhand answer`: open questions, and their answers."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from leadhand.app.documents import inbox_rows
from leadhand.app.reader import LogAccess
from leadhand.cli.commands.control import send_command
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.options import reading, settings_of, store_option
from leadhand.cli.rendering.outcome import (
    answer_line,
    print_change,
    still_held,
    still_needs,
    way_on,
    ways,
)
from leadhand.cli.rendering.review import AUTHORS
from leadhand.cli.rendering.text import clean, clean_lines, hanging_lines
from leadhand.cli.terminal import confirm, prompt
from leadhand.codec.documents import read_value
from leadhand.core.durations import text as duration
from leadhand.core.review.protected_change import KIND as PROTECTED
from leadhand.errors import StoreError, UsageError
from leadhand.settings.product_logs import product_logs
from leadhand.stores.location import there

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.app.reader import Reader
    from leadhand.core.views.inbox import InboxRow
    from leadhand.settings import Settings


INBOX_LINES = 200
"""The length of a diff in the inbox; `leadhand answer` prints all of it."""


@command("inbox", "leadhand inbox")
@store_option
def inbox(console: Console, store: str | None) -> int:
    """List open approvals, questions and tasks.

    Each item is shown with the command that answers it. Questions of the project's fleet are
    included, unless --store names another database.
    """
    settings = settings_of(store)
    rows: list[InboxRow] = []
    others = [log.store(settings) for log in product_logs()]
    for place in (settings.store, *others):
        if place is not None and there(place):
            with reading(replace(settings, store=place)) as reader:
                rows += inbox_rows(reader, _left_out(console))
    for row in rows:
        for choice in row.choices:
            choice.command = console.command(choice.command.removeprefix("leadhand "))
    if console.json:
        for row in rows:
            row.words = UNSET
        console.document(rows)
        return 0
    if not rows:
        console.say("The inbox is empty.")
    for row in rows:
        _print_row(console, row)
    return 0


def _print_row(console: Console, row: InboxRow) -> None:
    """Print what waits: its subject, goal, age and author, and the command for each answer."""
    review = row.kind == "review"
    why = f"; {clean(row.reason, 500)}" if review else ""
    console.out(f"{row.id}  {console.paint_data(clean(row.title, 400), 'bold')}{why}")
    if not review:
        console.out(f"    {hanging_lines(row.text, 1000)}")
    for line in _about(row):
        console.out(f"    {line}")
    if review:
        console.out(f"    Show the plan: {console.command(f'review {row.run}')}")
    if row.kind == PROTECTED:
        print_change(console, row, INBOX_LINES, data=True)
    wide = max((len(choice.answer) for choice in row.choices), default=0)
    for choice in row.choices:
        console.out(f"    {clean(choice.answer, 40):<{wide}}  {clean(choice.command, 400)}")
        console.out(f"    {'':<{wide}}  ({clean(choice.leads_to, 300)})")
    if row.default and row.until:
        told = f"without an answer by {_second(row.until)}: {clean(row.default, 40)}"
        console.out(f"    {told}")
    if not row.choices:
        console.out(f"    {answer_line(console, row.id, row.answers, words=bool(row.words))}")


def _second(at: str) -> str:
    """Return an instant to the second, with its zone."""
    return f"{at[:19]}{at[26:]}"


def _about(row: InboxRow) -> list[str]:
    """Return the goal of a row, its risk and effects; who started the run, and how long it waits.

    A review's title has the risk and the effects already.
    """
    goal = [f"Goal: {clean(row.goal, 300)}"] if row.goal else []
    if row.plan:
        goal.append(f"Plan: {clean(row.plan, 200)}")
    if row.risk is not None and row.kind != "review":
        goal.append(f"Risk {row.risk}, effects {clean(', '.join(row.effects) or 'none', 300)}")
    if row.cost:
        goal.append(f"Cost {row.cost:g}")
    waited = max(0.0, time.time() - datetime.fromisoformat(row.since).timestamp())
    author = AUTHORS.get(row.asked_by, f"by {clean(row.asked_by, 60)}")
    asker = f"{author if row.kind == 'review' else f'Asked by {clean(row.asked_by, 60)}'}, "
    asker = asker if row.asked_by else ""
    starter = f"run started by {clean(row.started_by, 60)}, " if row.started_by else ""
    told = f"{asker}{starter}waiting for {duration(waited)} (since {_second(row.since)})"
    return [*goal, told[0].upper() + told[1:]]


def _left_out(console: Console) -> Callable[[StoreError], None]:
    return lambda error: console.say(f"left out: {clean(error, 500)}")


@command("answer", "leadhand answer 7kq3/review-1 approve\nleadhand answer q1 --text 'use staging'")
@click.argument("ident", metavar="ID")
@click.argument("choice", required=False)
@click.option("--text", default="", help="The answer as text, or a comment on the choice.")
@click.option("--data", help="The answer as JSON.")
@click.option("--commit", default="", help="For a protected change: the commit that you have seen.")
@store_option
def answer(
    console: Console,
    ident: str,
    choice: str | None,
    text: str,
    data: str | None,
    commit: str,
    store: str | None,
) -> int:
    """Answer a question or a review.

    ID is RUN/QUESTION as `leadhand inbox` prints it. The run may be shortened, and may be
    omitted if only one open question has that name. On a terminal the command asks for the
    answer. A protected change is shown with its diff, and is approved by its commit.
    """
    settings = settings_of(store)
    with LogAccess(settings.store) as access:
        row = find(inbox_rows(access.reader, _left_out(console)), access.reader, ident)
        return _answer(console, settings, access, row, (choice, text, data, commit))


def _answer(
    console: Console,
    settings: Settings,
    access: LogAccess,
    row: InboxRow,
    given: tuple[str | None, str, str | None, str],
) -> int:
    """Answer a question with what was given: a choice, a text, data, and a commit."""
    choice, text, data, commit = given
    shown = ""
    state = access.reader.state(row.run)
    if console.can_prompt:  # a person takes long
        access.close()
    if row.kind == PROTECTED:
        choice, text, commit = _about_change(console, row, choice, text, commit)
    asks = choice is None and not (text or data) and console.can_prompt
    if row.kind == "review" and asks:
        from leadhand.cli.commands.review import show_pending

        shown = show_pending(console, state)
    chosen = _choice(console, row, choice, said=bool(text or data))
    if not row.choices and chosen:
        chosen, text = "", text or chosen  # a question without choices is answered by text
    details: dict[str, Any] = {"id": row.id.partition("/")[2], "choice": chosen, "text": text}
    if data is not None:
        details["data"] = read_value(data, "--data")
    if (row.kind, chosen) in (("review", "approve"), ("hold", "release")):
        from leadhand.cli.commands.review import approval_words, say_not_shown
        from leadhand.core.review.approval import binding

        if row.kind == "review" and not shown and state.pending is not None:
            say_not_shown(console, state)
            # Bound to what waits at this moment: what replaces it meanwhile is not approved.
            shown = binding(state, state.pending, 0, widens=False)
        more = {"question": details["id"], "choice": chosen, "shown": shown}
        details["approval"] = approval_words(settings, state, **more)
    if (row.kind, chosen) == (PROTECTED, "approve"):
        from leadhand.cli.commands.review import approval_words

        more = {"question": details["id"], "choice": chosen, "shown": commit}
        details["approval"] = approval_words(settings, state, **more)
    run, answered = send_command(settings, row.run, "answer", access=access, **details)
    if console.json:
        console.document({"id": row.id, "choice": chosen, **answered, "run": run})
        return 0
    console.say(f"answered {row.id}: {clean(chosen or text or data)}")
    now = access.state(run)
    waits = still_needs(now) if row.kind == "review" else ""
    question = now.questions.get(details["id"])
    if row.kind == PROTECTED and question is not None:
        waits = "another person must approve it too"
    if question is not None and question.kind == "hold" and question.releases:
        waits = still_held(now, [n for n in now.held if now.steps[n].held == question.id])
    if waits:
        console.say(f"It still waits: {waits}")
    elif not answered["hosted"]:
        way = way_on(console, now)
        what = "End it" if (row.kind, chosen) == ("review", "reject") else "Continue"
        console.say(f"No process is running it. {what} with: {way}")
    return 0


def _about_change(
    console: Console, row: InboxRow, choice: str | None, text: str, commit: str
) -> tuple[str | None, str, str]:
    """Show a protected change and ask about it on a terminal; else use the given answer.

    Return the choice, the text, and the commit that was seen. Raise `UsageError` for an approval
    that names no commit and was not asked about.
    """
    if not console.can_prompt:
        if choice == "approve" and not commit:
            raise UsageError(
                f"an approval names the commit that you saw. Fix: {ways(console, row)[0]}"
            )
        return choice, text, commit
    if choice is None or (choice == "approve" and not commit):
        console.say(clean_lines(row.text))
        print_change(console, row)
    if choice is None:
        choice = prompt("Your answer", row.answers)
    if choice == "send_back" and not text:
        text = prompt("What is to be different")
    if choice == "approve" and not commit:
        if not confirm(f"Approve exactly commit {(row.commit or '')[:12]}?"):
            raise UsageError("nothing was approved")
        commit = row.commit or ""
    return choice, text, commit


def find(rows: list[InboxRow], reader: Reader, ident: str) -> InboxRow:
    """Return the open question of an id. Raise `UsageError` if there is none."""
    run, slash, name = ident.partition("/")
    if slash:
        full = reader.resolve(run)
        found = [row for row in rows if row.id == f"{full}/{name}"]
    else:
        found = [row for row in rows if row.id.partition("/")[2] == ident]
        # A run alone is enough if it has one open question.
        found = found or [row for row in rows if row.run.startswith(ident)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{ident} could be any of: {', '.join(row.id for row in found[:8])}")
    known = ", ".join(row.id for row in rows[:8]) or "nothing"
    raise UsageError(f'No open question "{ident}". Open: {known}')


def _choice(console: Console, row: InboxRow, choice: str | None, *, said: bool) -> str:
    choices = row.answers
    if choice is not None:
        if choices and choice not in choices:
            raise UsageError(
                f'"{choice}" is not one of: {", ".join(choices)}. Fix: words go into '
                f'--text, as in: {choices[0]} --text "…"'
            )
        return choice
    if not choices and said:
        return ""
    if not console.can_prompt:
        wanted = f"one of {', '.join(choices)}" if choices else "--text or --data"
        raise UsageError(f"{row.id} needs an answer: {wanted}")
    console.say(clean_lines(row.text))
    return prompt("Your answer", choices)
