"""Whether main passes its own gate, seen before the first agent is sent.

A gate that is red on a main that nobody has touched is red for every change: a command that is
mistyped, a tool that is not in the sandbox, a repository that is broken. Every agent would be paid
to fail, and blamed for it. So nobody starts until main was seen green once, with these rules. From
then on the train keeps it so. What was seen is written down: a restart does not look again.
"""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leadhand.fleet.gate.gate import Gate
    from leadhand.fleet.repository.hub import Hub


AGAIN_S = 300.0
"""A main that is red is looked at again when it has moved, or after this long."""
TROUBLE_S = 10.0
"""A main that could not be tested is looked at again after this long."""
LOOK_S = 1.0
TRIES = 3
SAID_CHARS = 1200
LOOKING = "main is being tested before anybody starts"


class Soundness:
    """Looks at main, and tells what speaks against starting agents."""

    def __init__(
        self, hub: Hub, gate: Gate, folder: Path, note: Callable[..., None] | None = None
    ) -> None:
        self._hub, self._gate, self._path = hub, gate, folder / "sound.json"
        self._note = note or (lambda _what, **_more: None)
        self.log = ""
        """What the gate printed, where main is red."""
        self.against = "" if self._seen_green() else LOOKING

    async def watch(self) -> None:
        """Look until main is green; then there is nothing left to do."""
        while self.against:
            main = self._hub.main()
            pause = AGAIN_S
            try:
                await self._look(main)
            except Exception as error:  # noqa: BLE001 - nobody would ever start: it is said
                self.against = f"main could not be tested: {str(error) or type(error).__name__}"
                pause = TROUBLE_S
            waited = 0.0
            while self.against and waited < pause and self._hub.main() == main:
                await asyncio.sleep(LOOK_S)
                waited += LOOK_S

    async def _look(self, main: str) -> None:
        for _ in range(TRIES):  # gates are flaky; what is broken is red each time
            verdict = await self._gate.check(main)
            about = {"ok": verdict.ok, "failed": verdict.failed, "tests": verdict.tests}
            self._note("looked", sha=main, **about)
            if verdict.ok:
                break
        if verdict.ok:
            self._write(main)
            self.against = self.log = ""
            return
        self.log = verdict.log[-SAID_CHARS:]
        self.against = (
            f"main itself does not pass {verdict.failed}, so no change could; nobody is sent"
        )

    def _rules(self) -> str:
        rules = self._gate.rules
        about = [rules.commands, rules.setup, rules.gate_paths, dict(rules.env)]
        return sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def _seen_green(self) -> bool:
        """By an earlier fleet, with the same rules; what came since came by the train."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return bool(found["rules"] == self._rules())
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _write(self, main: str) -> None:
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps({"rules": self._rules(), "main": main}), encoding="utf-8")
            fresh.replace(self._path)
        except OSError:
            return  # the next start looks again
