"""What was said and done in one attempt of an agent, as text that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadhand.models.secret_patterns import scrub
from leadhand.workers.agent.untrusted import as_text, shortened

if TYPE_CHECKING:
    from leadhand.models.messages import Answer, ToolCall

PIECE_CHARS_MAX = 2_000
CHARS_MAX = 400_000


class Transcript:
    """Lines, bounded: of a very long attempt the beginning is kept, and what ended it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._chars = 0
        self._left_out = 0

    def turn(self, number: int, answer: Answer) -> None:
        """One answer of the model, with its tokens."""
        used = answer.usage
        cached = f" ({used.cache_read} cached)" if used.cache_read else ""
        cost = f", {answer.cost:.6f} spent" if answer.cost else ""
        tokens = f"{used.input} tokens in{cached}, {used.output} out"
        self.add(f"turn {number}: {answer.model}, {tokens}{cost}")
        if answer.text.strip():
            self.add(_indented(answer.text))

    def called(self, call: ToolCall, result: str) -> None:
        """A tool that was called, or was not to be, and what came of it."""
        self.add(f"  {call.tool} {shortened(as_text(call.arguments), PIECE_CHARS_MAX)}")
        self.add(_indented(result, "    "))

    def add(self, line: str, *, always: bool = False) -> None:
        """One line more."""
        if self._chars + len(line) > CHARS_MAX and not always:
            self._left_out += 1
            return
        self._chars += len(line)
        self._lines.append(line)

    def ended(self, how: str) -> str:
        """The whole text, with its end."""
        if self._left_out:
            self.add(f"[… {self._left_out} entries left out …]", always=True)
        self.add(how, always=True)
        return scrub("\n".join(self._lines)) + "\n"


def _indented(text: str, by: str = "  ") -> str:
    lines = shortened(text.strip(), PIECE_CHARS_MAX).splitlines()
    return "\n".join(by + line for line in lines)
