"""Notifications outside: a command or a webhook, when a person is awaited or a run ends.

Failures here are reported on stderr and never harm the run.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leadhand.cli.rendering.text import clean

if TYPE_CHECKING:
    from leadhand.settings import Settings


KINDS = ("waiting", "ended")
LIMIT_S = 10.0
TEXT_MAX = 2000

_HOLE = re.compile(r"\{(kind|run|text|store)\}")


class Notifier:
    """Sends notices in the background; `finish` waits for those in progress."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, kind: str, run: str, text: str) -> None:
        """Send a notice; called by the host, in its loop."""
        if kind == "trouble":
            self._say(clean(text, TEXT_MAX))
        if kind not in KINDS:
            return
        values = {
            "kind": kind,
            "run": run,
            "text": clean(text, TEXT_MAX),
            "store": str(self._settings.store),
        }
        if self._settings.notify_command:
            self._start(self._command(values))
        if self._settings.notify_webhook:
            self._start(self._webhook(values))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"notify: {type(error).__name__}: {clean(error, 300)}")

    async def finish(self) -> None:
        """Wait for notices in progress; each has its own limit."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LIMIT_S + 1)

    async def _command(self, values: Mapping[str, str]) -> None:
        argv = [fill_placeholders(word, values) for word in self._settings.notify_command]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self._settings.root,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"notify: {argv[0]}: {error.strerror}")
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                _, stderr = await process.communicate()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
            self._say(f"notify: {argv[0]}: took longer than {LIMIT_S:g}s and was stopped")
            return
        if process.returncode:
            said = clean(stderr.decode("utf-8", "replace").strip(), 300)
            self._say(f"notify: {argv[0]}: exit {process.returncode}: {said}")

    async def _webhook(self, values: Mapping[str, str]) -> None:
        import httpx2

        address = self._settings.notify_webhook
        try:
            async with httpx2.AsyncClient(timeout=LIMIT_S, trust_env=True) as client:
                answer = await client.post(address, json=dict(values))
            if answer.status_code >= 300:
                self._say(f"notify: the webhook answered {answer.status_code}")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            # Not the address: it may hold a token.
            self._say(f"notify: the webhook failed: {type(error).__name__}: {clean(error, 200)}")


def fill_placeholders(word: str, values: Mapping[str, str]) -> str:
    """Return one argument with its placeholders filled; a value never becomes an option."""
    found = _HOLE.sub(lambda hole: values[hole[1]], word)
    return f" {found}" if found.startswith("-") and word.startswith("{") else found
