"""Any command line as a coder: an argument list with placeholders.

    command = ["aider", "--yes", "--message-file", "{brief_file}", "--model", "{model}"]

Places: {brief_file}, {slot}, {home}, {session}, {model}, {gateway} (the proxy's address inside the
sandbox), {run}, {task}, {attempt}. Each fills part of one argument and never becomes two; `{{` is a
brace. The session is a name of our own making, the same for every attempt that goes on with it.

To end with 0 is its claim to be done. What it prints is text; a line that is a JSON object with a
`type` of ours is an event, for programs that know more of themselves:

    {"type": "file", "path": "a.py"}        {"type": "usage", "cost": 0.02, "turn": true}
    {"type": "result", "text": "done"}      {"type": "error", "failure": "rate_limited", ...}
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from leadhand.core.plan.model import FAILURE_CLASSES
from leadhand.errors import UsageError
from leadhand.fleet.agents.base import Assignment, CoderEvent, EventKind, Launch
from leadhand.fleet.agents.process import ProcessCoder
from leadhand.workers.sandbox.sandbox import Sandbox

KINDS = frozenset(get_args(EventKind))
PLACES = (
    "attempt",
    "brief_file",
    "gateway",
    "home",
    "model",
    "run",
    "session",
    "slot",
    "task",
)


class TemplateCoder(ProcessCoder):
    """A coder by its command line."""

    plain = True

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        network: bool = False,
        readable: Sequence[Path] = (),
        **common: Any,
    ) -> None:
        super().__init__(name, **common)
        self._command = tuple(command)
        self._network, self._readable = network, tuple(readable)
        self.talks = any("{session}" in word for word in command)
        if not command:
            raise UsageError(f"coder {name!r} has no command")
        for word in command:
            _fill(word, dict.fromkeys(PLACES, ""))

    def launch(self, assignment: Assignment, slot: Path, home: Path, sandbox: Sandbox) -> Launch:
        """Its command line, filled in; the brief is a file that it can only read."""
        brief = self.given(assignment) / "brief.md"
        brief.write_bytes(assignment.told.encode("utf-8", "backslashreplace"))
        places = {
            "attempt": str(assignment.attempt),
            "brief_file": str(brief),
            "gateway": sandbox.gateway,
            "home": str(home),
            "model": assignment.model,
            "run": assignment.run,
            "session": assignment.session or secrets.token_hex(8),
            "slot": str(slot),
            "task": assignment.task,
        }
        argv = tuple(_fill(word, places) for word in self._command)
        session = places["session"] if self.talks else ""
        return Launch(
            argv, session=session, network=self._network, readable=(*self._readable, brief.parent)
        )

    def reading(self, assignment: Assignment) -> TemplateReading:
        """Events in our own form."""
        return TemplateReading()


class TemplateReading:
    """Reads events that a program states in our own form."""

    def read(self, document: Mapping[str, Any]) -> Iterator[CoderEvent]:
        """Yield the event in a document, if it is one of ours."""
        if document.get("type") not in KINDS:
            yield CoderEvent("other")
            return
        yield CoderEvent(
            document["type"],
            text=str(document.get("text", "")),
            tool=str(document.get("tool", "")),
            path=str(document.get("path", "")),
            session=str(document.get("session", "")),
            cost=_number(document.get("cost")),
            tokens_in=int(document.get("tokens_in", 0)),
            tokens_out=int(document.get("tokens_out", 0)),
            turn=document.get("turn") is True,
            failure=_failure(document.get("failure")),
            retry_after_s=_number(document.get("retry_after_s")),
        )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _failure(value: Any) -> str:
    return str(value) if value in FAILURE_CLASSES else ""


def _fill(word: str, places: Mapping[str, str]) -> str:
    try:
        return word.format_map(places)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(
            f"{word!r} has a place that nothing fills ({error}); there are {', '.join(PLACES)}"
        ) from None
