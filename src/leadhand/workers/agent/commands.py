"""Commands as a tool: the agent chooses the arguments, an allow list bounds them.

    CommandTool(allow=[["git", "status"], ["git", "log"]], options=["--oneline", "--max-count=*"])

A call is a list of arguments, never a line for a shell. It is run when it begins with one of the
allowed lists, word for word, and when every option after that is listed in `options`. Most programs
have an option that writes a file or starts a program (`git log --output=FILE`, `find -exec`, `tar
--to-command`, `curl -o`), spelt in more ways than a list of bad ones could hold (`-oFILE`,
`--outp`), so none passes unless it is listed. The same holds for words that programs read as more
than a name: `@FILE` (arguments from a file), `+COMMAND` (editors and pagers) and `NAME=VALUE`
(variables of make, `of=` of dd). Other words are the model's to choose: names of files, branches,
texts to look for. It runs under the host's supervisor, with an environment built from nothing,
bounded in output and time; whatever ends the call ends the command and all that it started.
"""

from __future__ import annotations

import asyncio
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.core.durations import seconds
from leadhand.core.hashing import canonical, digest
from leadhand.core.plan.model import worst
from leadhand.core.report import Failure
from leadhand.errors import Denied, UsageError
from leadhand.workers.agent.tools import ToolFailure
from leadhand.workers.commands.worker import given_values
from leadhand.workers.coverage import INHERITED
from leadhand.workers.functions.isolation import followed, text_of
from leadhand.workers.processes.leftovers import ProcessError
from leadhand.workers.processes.runner import SpawnError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadhand.ports import Context
    from leadhand.workers.processes.runner import Processes

OUTPUT_BYTES = 64 << 10
TIMEOUT_S = 60.0
GRACE_S = 2.0
LISTED = re.compile(r"[-+@]|[A-Za-z_][A-Za-z0-9_.-]*=", re.DOTALL)
"""How words begin that programs read as more than a name; they must be listed."""


class CommandTool:
    """A tool for agents that runs commands from an allow-list, without a shell.

    - `allow`: lists of arguments, one of which every call must begin with.
    - `options`: the options that may follow, each as written (`--oneline`) or with `*` for any text
      (`--since=*`); the same for words that begin with `@` or `+`, or `NAME=`.
    - `name`: the name that the model uses.
    - `cwd`: the working folder of the commands.
    - `env`: the names of variables to pass on.
    - `effects`: the declared effects; `()` says that no command changes anything.
    - `risk`: low, medium, high or critical.
    - `timeout`: the time limit of one command.
    - `output_bytes`: the part of stdout and stderr that is kept, each.
    """

    def __init__(  # noqa: PLR0913 - each with a default
        self,
        allow: Iterable[Sequence[str]],
        *,
        options: Iterable[str] = (),
        name: str = "command",
        cwd: str | Path = ".",
        env: Iterable[str] = (),
        effects: Iterable[str] | None = None,
        risk: str = "medium",
        timeout: float | str = TIMEOUT_S,
        output_bytes: int = OUTPUT_BYTES,
    ) -> None:
        """Create the tool. Raise `UsageError` for malformed commands or options."""
        self.name = name
        if isinstance(options, str):
            raise UsageError(f"{name}: options: must be a list of texts, not one text")
        self.options = tuple(options)
        if not all(isinstance(each, str) and LISTED.match(each) for each in self.options):
            raise UsageError(
                f"{name}: options: each is written as it is given, dashes included: "
                'options=["--oneline", "--max-count=*"]'
            )
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
        options_known = ", ".join(self.options) or "none"
        self.description = (
            f"Run a command. It must begin with one of: {known}. Options that may follow: "
            f"{options_known}"
        )
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
        """Return a digest of the commands that are allowed, and of the folder."""
        return digest(canonical([self.allow, self.options, str(self.cwd), self.env]))[:16]

    @property
    def given_values(self) -> dict[str, str]:
        """Variables that commands are given, with their values."""
        return given_values(self.env, {}, os.environ)

    def attach(self, processes: Processes) -> None:
        """Enable it to start programs with `processes`."""
        self._processes = processes

    def _fits(self, argv: list[str], allowed: tuple[str, ...]) -> bool:
        """Return whether a call begins as allowed and has listed options and plain words only."""
        rest = argv[len(allowed) :]
        return tuple(argv[: len(allowed)]) == allowed and all(map(self._may_follow, rest))

    def _may_follow(self, word: str) -> bool:
        # A lone dash is standard input, which is empty; two end the options of most programs.
        plain = word in ("-", "--") or not LISTED.match(word)
        return plain or any(fnmatchcase(word, each) for each in self.options)

    async def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Run one command and wait for its end.

        The entry `argv` of `arguments` is the command, `context` that of the attempt. Return its
        exit code and output. Raise `Denied` if the command is not allowed.
        """
        argv = [str(word) for word in arguments["argv"]]
        if not any(self._fits(argv, each) for each in self.allow):
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
