"""Commands as a tool, with an allow list: the agent says the arguments, the list says which.

    CommandTool(allow=[["git", "status"], ["git", "log"]])

A call is a list of arguments, never a line for a shell. It is run when it begins with one of the
allowed lists, word for word. What follows is the model's to choose, options included: allow whole
commands that can do no harm, not programs. It runs under the host's supervisor, with an
environment built from nothing, bounded in output and time; whatever ends the call ends the command
and all that it started.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.core.durations import seconds
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan import worst
from leadhand.core.report import Failure
from leadhand.errors import Denied, UsageError
from leadhand.workers.agent.functions import ToolFailure
from leadhand.workers.command import INHERITED
from leadhand.workers.isolation import followed, text_of
from leadhand.workers.processes import ProcessError, SpawnError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.ports import Context
    from leadhand.workers.processes import Processes

OUTPUT_BYTES = 64 << 10
TIMEOUT_S = 60.0
GRACE_S = 2.0


class CommandTool:
    """Runs commands that begin with an allowed list of arguments."""

    def __init__(
        self,
        allow: Iterable[Sequence[str]],
        *,
        name: str = "command",
        cwd: str | Path = ".",
        env: Iterable[str] = (),
        effects: Iterable[str] | None = None,
        risk: str = "medium",
        timeout: float | str = TIMEOUT_S,
        output_bytes: int = OUTPUT_BYTES,
    ) -> None:
        """`env` names variables to pass on; `effects=()` says that no command changes anything."""
        self.name = name
        given = list(allow)
        self.allow = tuple(tuple(each) for each in given)
        if not self.allow or not all(self.allow):
            raise UsageError(
                f"{name}: allow: name at least one command, as a list of arguments that each call "
                'must begin with: allow=[["git", "status"]]'
            )
        if any(isinstance(each, str) for each in given) or not all(
            isinstance(word, str) and word for each in self.allow for word in each
        ):
            raise UsageError(f"{name}: allow: each command is a list of texts, not one text")
        self.cwd = Path(cwd).resolve()
        self.env = tuple(env)
        self.effects = None if effects is None else tuple(effects)
        self.risk: str = worst(risk)
        self.timeout_s = seconds(timeout)
        self.output_bytes = output_bytes
        self._processes: Processes | None = None
        known = "; ".join(" ".join(each) for each in self.allow)
        self.description = f"Run a command. It must begin with one of: {known}"
        self.parameters: dict[str, Any] = {
            "type": "object",
            "properties": {
                "argv": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": 200,
                    "description": "The program and each of its arguments. There is no shell.",
                }
            },
            "required": ["argv"],
            "additionalProperties": False,
        }

    @property
    def version(self) -> str:
        """A digest of what it may run, and where."""
        return digest(canonical([self.allow, str(self.cwd), self.env]))[:16]

    def attach(self, processes: Processes) -> None:
        """Give it the means to start programs."""
        self._processes = processes

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Run one command and see it end."""
        argv = [str(word) for word in arguments["argv"]]
        if not any(tuple(argv[: len(each)]) == each for each in self.allow):
            raise Denied(f"{' '.join(argv)[:200]!r} is not allowed. {self.description}")
        if self._processes is None:
            raise Denied("no process can be started here")
        changes = self.effects is None or bool(self.effects)
        passed = (*INHERITED, *self.env)
        try:
            process = await self._processes.spawn(
                argv,
                cwd=self.cwd,
                env={name: os.environ[name] for name in passed if name in os.environ},
                stdout_limit=self.output_bytes,
                stderr_limit=self.output_bytes,
            )
        except SpawnError as error:
            raise ToolFailure(Failure("unavailable", str(error))) from None
        try:
            async with asyncio.timeout(self.timeout_s):
                finished = await followed(process, context, GRACE_S)
        except TimeoutError:
            message = f"it did not end within {self.timeout_s:g} s and was killed"
            effect = Failure("timeout", message, "unknown" if changes else "none")
            raise ToolFailure(effect) from None
        except ProcessError as error:
            raise ToolFailure(Failure("lost", str(error), "unknown")) from None
        return {
            "exit_code": finished.exit_code if finished.signal is None else -finished.signal,
            "stdout": text_of(finished.stdout, self.output_bytes),
            "stderr": text_of(finished.stderr, self.output_bytes),
        }
