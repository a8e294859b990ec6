"""Looks of a planner at the repository: files to read and texts to search, at main, read-only.

    {"kind": "look", "because": "...", "read": ["src/api.py", "src/big.py:100-180"],
     "search": ["def load_config"]}

A look is answered in the next round, with what was found as untrusted text without secrets. Rounds,
files and characters are bounded; what was looked at is kept in the planner's notes, and so in the
log. Only what is committed on main can be seen: nothing of the machine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leadhand.fleet.repository.git import name_of, printable_name
from leadhand.models.secret_patterns import scrub
from leadhand.planners.model.prompt import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadhand.fleet.planning.reply import Reply
    from leadhand.fleet.planning.survey import Survey
    from leadhand.fleet.repository.hub import Hub

ROUNDS = 4
"""Looks before an answer."""
READS, SEARCHES = 10, 5
"""In one look."""
CHARS = 60_000
"""In all looks before an answer."""
FILE_CHARS = 16_000
FILE_BYTES_MAX = 1 << 20
LINES_FOUND = 40
LINE_CHARS = 200
SEARCH_S = 20.0
SEARCH_CHARS_MAX = 200
_RANGE = re.compile(r"^(?P<path>.+):(?P<first>\d{1,7})-(?P<last>\d{1,7})$")

Doc = dict[str, Any]


class Looker:
    """Answers the looks of one round of planning."""

    def __init__(
        self, hub: Hub, seen: Survey, others: Mapping[str, tuple[Hub, Survey]] | None = None
    ) -> None:
        """Take the main repository, and others by name: `NAME:path` is a file of one of them."""
        self._hub, self._seen, self._others = hub, seen, others or {}
        self.rounds = 0
        self._left = CHARS
        self.record: list[Doc] = []
        """What was looked at, for the log: names and sizes, no contents."""

    def objections(self, reply: Reply) -> list[str]:
        """Return why a look is not answered; none if it is."""
        if not reply.read and not reply.search:
            return ["it looks, and names nothing to read or to search"]
        if self.rounds >= ROUNDS or self._left <= 0:
            return [f"it looked {self.rounds} times, and may not look again; answer without"]
        if len(reply.read) > READS or len(reply.search) > SEARCHES:
            return [f"one look reads {READS} files and searches {SEARCHES} texts at most"]
        if any(not 3 <= len(text) <= SEARCH_CHARS_MAX or "\n" in text for text in reply.search):
            return [f"a text to search has 3 to {SEARCH_CHARS_MAX} characters, on one line"]
        return []

    async def answer(self, reply: Reply) -> list[Doc]:
        """Return what was found, each with the text that was asked for."""
        self.rounds += 1
        found = [await self._read(name) for name in reply.read]
        found += [await self._search(text) for text in reply.search]
        self.record.append(
            {
                "read": [each["path"] for each in found if "path" in each],
                "search": [each["search"] for each in found if "search" in each],
                "characters": sum(len(each["text"]) for each in found),
            }
        )
        return found

    async def _read(self, name: str) -> Doc:
        doc: Doc = {"path": printable_name(name)}
        own, _, rest = name.partition(":")
        hub, seen = self._others.get(own, (self._hub, self._seen))
        name = rest.lstrip("/") if own in self._others else name
        match = None if name in seen.files else _RANGE.match(name)
        path = match["path"] if match else name
        file = seen.files.get(path)
        if file is None:
            return {**doc, "text": "(there is no such file at main)"}
        if file.bytes > FILE_BYTES_MAX:
            return {**doc, "text": f"({file.bytes:,} bytes: too large to read)"}
        data = (await hub.blobs([file.blob])).get(file.blob, b"")
        if b"\0" in data:
            return {**doc, "text": f"({file.bytes:,} bytes that are no text)"}
        lines = data.decode("utf-8", "backslashreplace").splitlines()
        first, last = (int(match["first"]), int(match["last"])) if match else (1, len(lines))
        text = "\n".join(lines[max(0, first - 1) : max(0, last)])
        return {**doc, "lines": len(lines), "text": self._cut(text, FILE_CHARS)}

    async def _search(self, text: str) -> Doc:
        """Search a plain text, regardless of case; no pattern that could take long."""
        lines = await _lines_with(text, self._hub, self._seen, "")
        for name, (hub, seen) in self._others.items():
            lines += await _lines_with(text, hub, seen, f"{name}:")
        more = len(lines) - LINES_FOUND
        told = lines[:LINES_FOUND] + ([f"… {more:,} more lines"] if more > 0 else [])
        found = self._cut("\n".join(told), FILE_CHARS) or "(nothing)"
        return {"search": scrub(clean(text)), "text": found}

    def _cut(self, text: str, most: int) -> str:
        """Return a text without secrets, within what is left of all looks."""
        most = min(most, self._left)
        text = scrub(clean(text))
        self._left -= min(len(text), most)
        more = len(text) - most
        return text if more <= 0 else f"{text[:most]}\n… {more:,} more characters"


async def _lines_with(text: str, hub: Hub, seen: Survey, prefix: str) -> list[str]:
    """Return the lines of one repository that hold a text, each with its place."""
    said = await hub.git(
        "grep", "-n", "-I", "-i", "-F", "-z", "--max-count=5", "-e", text, seen.main,
        codes=(0, 1), time_s=SEARCH_S,
    )  # fmt: skip
    lines = []
    for row in said.out.split(b"\n"):
        parts = row.split(b"\0")
        if len(parts) == 3:
            path = printable_name(name_of(parts[0].partition(b":")[2]))
            words = parts[2].decode("utf-8", "backslashreplace").strip()
            lines.append(f"{prefix}{path}:{parts[1].decode()}: {words[:LINE_CHARS]}")
    return lines
