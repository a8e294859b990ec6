"""The notifier: what a host notices, sent to the channels and addresses of `[notify]`.

These messages hold no signed link: anybody may read them.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import TYPE_CHECKING

from leadhand.notify.channels import LIMIT_S, channels_of, shared_addresses
from leadhand.notify.message import Message, plain, row_lines
from leadhand.notify.outbox import PAUSES_S, Delivery, Outbox
from leadhand.settings.sections import section_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leadhand.core.views.inbox import InboxRow
    from leadhand.settings import Settings

    Rows = Callable[[str], Awaitable[list[InboxRow]]]

KINDS = ("waiting", "ended")
TEXT_MAX = 2000
KEPT_S = 3.0
"""How long the end of a server waits for messages that a file keeps."""
BRIEF_S = (1.0, 3.0)
"""The pauses between tries in a process that ends with its run."""


class Notifier:
    """Sends notices in the background; `finish` waits for those in progress."""

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        *,
        rows: Rows | None = None,
        file: Path | None = None,
    ) -> None:
        """Create a notifier.

        - `say`: told of failures, and of trouble of the host.
        - `rows`: returns the open items of a run, for messages that say more than the notice.
        - `file`: keeps messages across restarts.
        """
        self._settings = settings
        self._say = say
        self._rows = rows
        self._address = public_address(settings)
        self._shared = shared_addresses(settings)
        self._numbers = itertools.count(1)
        self._is_kept = file is not None
        pauses_s = PAUSES_S if self._is_kept else BRIEF_S
        self.outbox = Outbox(channels_of(settings), self.make, say, file, pauses_s)

    def __call__(self, kind: str, run: str, text: str) -> None:
        """Send a notice; called by the host, in its loop."""
        if kind == "trouble":
            self._say(plain(text, TEXT_MAX))
        if kind not in KINDS:
            return
        number = f"{os.getpid()}.{next(self._numbers)}"
        for channel, to in self._shared:
            ident = short_id(kind, run, text, channel, to, number)
            self.outbox.put(Delivery(ident, channel, to, kind, run, plain(text, TEXT_MAX)))

    async def make(self, delivery: Delivery) -> Message | None:
        """Return the message of a delivery to a shared address."""
        rows = await self._rows(delivery.run) if self._rows and delivery.kind == "waiting" else []
        lines = [line for row in rows for line in (f"{row.title}", *row_lines(row), "")]
        title = rows[0].title if rows else f"Run {delivery.run} {delivery.kind}: {delivery.text}"
        return Message(
            id=delivery.id,
            kind=delivery.kind,
            run=delivery.run,
            title=plain(title, 200),
            lines=tuple(lines or [delivery.text]),
            page=run_page(self._address, delivery.run),
            text=delivery.text,
            store=str(self._settings.store),
            items=tuple(rows),
        )

    async def finish(self) -> None:
        """Wait for notices in progress, then stop; the next process sends what a file keeps."""
        await self.outbox.finish(KEPT_S if self._is_kept else LIMIT_S + 1)


def public_address(settings: Settings) -> str:
    """Return the public address of the project's server; empty without `[server] address`."""
    section = section_of("server")
    return str(section.of(settings).address) if section is not None else ""


def run_page(address: str, run: str) -> str:
    """Return the address of a run in the dashboard; it carries no authority."""
    return f"{address}/#/runs/{run}" if address else ""


def short_id(*parts: str) -> str:
    """Return a short name for a delivery."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
