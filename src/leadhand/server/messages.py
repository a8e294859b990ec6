"""Messages to each person who may answer, through their own channels, with signed links.

For every open item and every person of the settings whose role is enough, one message goes to each
of the person's own addresses. The items are read from the log: when the server starts, it also
sends what was asked while it was away. A message that arrived is not sent again; an item that
changed is a new item with a new link.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from leadhand.core.calendar import iso
from leadhand.core.review.answer_link import item_digest
from leadhand.core.views.inbox import inbox_row
from leadhand.errors import LeadhandError
from leadhand.notify.channels import channels_of
from leadhand.notify.message import LINE_MAX, Message, MessageButton, plain, row_lines
from leadhand.notify.notifier import run_page, short_id
from leadhand.notify.outbox import Delivery, Outbox
from leadhand.server.link_answers import ENDS, label_of, look, may_answer, needs_text
from leadhand.server.links import CHANNELS, LinkRefused
from leadhand.stores.location import home

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from leadhand.core.review.view import ReviewDocument
    from leadhand.core.state.model import State
    from leadhand.core.views.inbox import InboxRow
    from leadhand.server.accounts import Person
    from leadhand.server.app_state import AppState
    from leadhand.server.cached_reader import CachedReader
    from leadhand.server.link_answers import LinkItem
    from leadhand.server.links import Link
    from leadhand.stores.location import StoreLocation

BUTTON_STEPS_MAX = 20
"""A larger plan is approved on the page of its link, where all of it is shown."""
SWEEP_S = 5.0


def outbox_file(store: StoreLocation, kind: str) -> Path:
    """Return the file of messages to `people`, or to `shared` addresses."""
    path = home(store)
    return path.with_name(f"{path.name}.outbox-{kind}")


class PersonalMessages:
    """Tells people what waits for them."""

    def __init__(self, app_state: AppState, tell: Callable[[str], None]) -> None:
        self._app_state = app_state
        self._tell = tell
        settings = app_state.settings
        own = {name: each for name, each in channels_of(settings).items() if name in CHANNELS}
        file = outbox_file(settings.store, "people") if own else None
        self.outbox = Outbox(own, self._make, tell, file)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Send what an earlier process left, and look for what waits, also of other processes."""
        if self._is_on:
            self.outbox.load()
            self._start(self._sweep())

    async def close(self) -> None:
        """Stop; what was not sent is sent by the next process."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.outbox.close()

    @property
    def _is_on(self) -> bool:
        return bool(self.outbox.channels and self._app_state.links.address)

    @property
    def _takes_buttons(self) -> bool:
        """Whether answers come back from Slack: through a socket, or the endpoint."""
        slack = self._app_state.settings.notify.slack
        return slack is not None and bool(slack.app_token or slack.signing_secret)

    def __call__(self, kind: str, run: str, _text: str) -> None:
        """Handle a notice of the host, in its loop."""
        if kind == "waiting" and self._is_on:
            self._start(self._ask(run))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        """Look for runs that wait whenever the log has grown: not every host gives notice."""
        seen = -1
        while True:
            try:
                now, waiting = await self._app_state.cached_readers.read(_waiting_since(seen))
            except LeadhandError as error:
                self._tell(f"notify: {error}")
                now, waiting = seen, []
            for run in waiting:
                await self._ask(run)
            seen = now
            await asyncio.sleep(SWEEP_S)

    async def _ask(self, run: str) -> None:
        """Put a message about each open item of a run into the outbox."""
        try:
            found = await self._app_state.cached_readers.read(lambda desk: _items(desk, run))
        except LeadhandError as error:
            self._tell(f"notify: run {run}: {error}")
            return
        for row, item, answered in found:
            for person in self._app_state.people.everyone():
                if person.name not in answered and may_answer(person, row):
                    self._put(row, item, person)

    def _put(self, row: InboxRow, item: str, person: Person) -> None:
        question = row.id.partition("/")[2]
        for channel, to in person.addresses.items():
            ident = short_id(row.run, question, item, person.name, person.account, channel, to)
            self.outbox.put(
                Delivery(
                    id=ident,
                    channel=channel,
                    to=to,
                    kind="waiting",
                    run=row.run,
                    question=question,
                    item=item,
                    person=person.name,
                )
            )

    async def _make(self, delivery: Delivery) -> Message | None:
        """Return a person's message; None if it is no longer theirs to answer."""
        links = self._app_state.links
        people = self._app_state.people.everyone()
        person = next((each for each in people if each.name == delivery.person), None)
        if person is None or person.addresses.get(delivery.channel) != delivery.to:
            return None
        link = links.made_for(
            delivery.run, delivery.question, delivery.item, person, delivery.channel, delivery.to
        )
        try:
            item = await self._app_state.cached_readers.read(lambda desk: look(desk, link, person))
        except LinkRefused:
            return None
        return self._message(delivery, link, item)

    def _message(self, delivery: Delivery, link: Link, item: LinkItem) -> Message:
        links, row = self._app_state.links, item.row
        slack = delivery.channel == "slack"
        plan = plan_lines(item.review) if slack and item.review else []
        lines = row_lines(row, item.digest if item.review else "", plan)
        in_full = (bool(plan) or item.review is None) and len(row.goal or "") <= LINE_MAX
        ends = f"The link is valid until {iso(link.expires * 1_000_000)}."
        return Message(
            id=delivery.id,
            kind=delivery.kind,
            run=delivery.run,
            title=plain(row.title, 200),
            lines=(*lines, "", ends),
            link=links.url(link),
            page=run_page(links.address, delivery.run),
            buttons=_buttons(row, links.token(link))
            if slack and in_full and self._takes_buttons
            else (),
            text=plain(row.text),
            store=str(self._app_state.settings.store),
        )


def _buttons(row: InboxRow, token: str) -> tuple[MessageButton, ...]:
    """Return the choices that need no words; their subject must be in the message in full."""
    if row.kind not in ("review", "hold", "failure", "unseen", "planning", "planner"):
        return ()
    return tuple(
        MessageButton(
            each.answer, label_of(each.answer), each.leads_to, token, ends=each.answer in ENDS
        )
        for each in row.choices
        if not needs_text(row, each.answer) and each.answer != "done"
    )


def plan_lines(review: ReviewDocument) -> list[str]:
    """Return all that a plan would do, a line for each step; none if it does not fit a message."""
    if len(review.steps) > BUTTON_STEPS_MAX or review.cancel or review.drop:
        return []
    lines = [f"Parameters: {_written(review.params)}"] if review.params else []
    for step in review.steps:
        said = {key: value for key, value in step.items() if key not in ("id", "description")}
        risk = review.risks.get(step["id"], "not declared")
        about = f" {step['description']}" if step.get("description") else ""
        lines.append(f"Step {step['id']}:{about} (risk {risk}) {_written(said)}")
    whole = all(len(line) <= LINE_MAX for line in lines)
    return lines if whole else []


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _waiting_since(seen: int) -> Callable[[CachedReader], tuple[int, list[str]]]:
    """Return a look at the runs that wait; none if the log ends where it did."""

    def looked(desk: CachedReader) -> tuple[int, list[str]]:
        now = desk.store.last_position()
        return now, [] if now == seen else [header.run for header in desk.waiting_runs()]

    return looked


def _items(desk: CachedReader, run: str) -> list[tuple[InboxRow, str, set[str]]]:
    """Return the open items of a run: row, digest, and the people who have answered already."""
    state = desk.state(run)
    return [
        (inbox_row(state, each.id), item_digest(state, each), _answered(state, each.id))
        for each in state.questions.values()
    ]


def open_rows(desk: CachedReader, run: str) -> list[InboxRow]:
    """Return the open items of a run as the inbox shows them."""
    state = desk.state(run)
    return [inbox_row(state, each) for each in state.questions]


def _answered(state: State, ident: str) -> set[str]:
    question = state.questions[ident]
    names = {each.actor for each in question.approvals} | {e.actor for e in question.releases}
    if question.kind == "review" and state.pending is not None:
        names |= {each.actor for each in state.pending.approvals}
    return names
