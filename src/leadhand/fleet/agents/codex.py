"""Codex, headless: `codex exec --json`.

What was learned by running it (0.163), and is handled here:

    * It reads standard input to its end before it begins, and waits for ever for one that stays
      open: the brief comes there, a file.
    * Its own sandbox needs a helper that it will not make where its home is below a temporary
      folder; then every command fails, the model says "Done", and it exits with 0. Our sandbox is
      around it, so its own is not used; and that nothing changed, we see ourselves.
    * A provider of ours is told on the command line: nothing is read from, or written to, a
      configuration that an agent could have changed before.
    * It says how many tokens it used, not what they cost; `price` knows that. And it says so
      when its turn ends, which is when all is done. Until then what was seen of it is counted
      once, by its length: far less than it cost, since it reads all of it again and again.
    * It does not say that a model refused: such a run ends well, without a word. An answer that is
      none is an invalid one.
    * It counts a whole run as one turn. Here a turn is each thing it does or says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leadhand.fleet.agents.base import Assignment, CoderEvent, Launch, Price
from leadhand.fleet.agents.process import ProcessCoder, classify, needed_by, retry_after, started
from leadhand.models.messages import Usage
from leadhand.workers.sandbox.sandbox import NoSandbox, Sandbox

RETRIES = 2
SESSION = re.compile(r"[0-9a-fA-F-]{8,64}")
RECONNECTING = re.compile(r"reconnecting|retrying", re.IGNORECASE)
TOKEN_CHARS = 4
DOINGS = frozenset({"agent_message", "command_execution", "file_change", "mcp_tool_call"})


class CodexCoder(ProcessCoder):
    """Codex as a coder."""

    def __init__(
        self,
        name: str = "codex",
        program: str | Path = "codex",
        *,
        route: str = "",
        price: Price | None = None,
        settings: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        **common: Any,
    ) -> None:
        """`route`: the name of the proxy's route to its provider, which adds the credentials.

        `settings`: more of its configuration, each value as TOML has it.
        """
        super().__init__(name, **common)
        self._program, self._route, self._price = str(program), route, price
        self._readable, self._more = tuple(readable), dict(settings or {})

    def launch(self, assignment: Assignment, slot: Path, home: Path, sandbox: Sandbox) -> Launch:
        """`codex exec`, the brief on its standard input."""
        argv = [*started(self._program, sandbox), "exec"]
        if sandbox.kind == "none":
            argv += ["--sandbox", "workspace-write"]
        if assignment.session:
            if not SESSION.fullmatch(assignment.session):
                raise NoSandbox(f"{assignment.session[:80]!r} is no conversation of Codex")
            argv += ["resume", assignment.session]
        argv += ["--json", "--skip-git-repo-check", "--ignore-user-config", "--ignore-rules"]
        if sandbox.kind != "none":
            argv.append("--dangerously-bypass-approvals-and-sandbox")
        if assignment.model:
            argv += ["--model", assignment.model]
        settings = self._settings(sandbox)
        argv += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        env = {"LEADHAND_PROVIDER_KEY": "added-by-the-proxy"} if self._route else {}
        return Launch(
            (*argv, "-"),
            env=env,
            stdin=assignment.told.encode(),
            readable=(*self._readable, *needed_by(self._program, [self._homes])),
        )

    def reading(self, assignment: Assignment) -> CodexReading:
        """Events of `--json`."""
        return CodexReading(self._price, assignment.model, len(assignment.told))

    def _settings(self, sandbox: Sandbox) -> dict[str, str]:
        settings = {"check_for_update_on_startup": "false", "analytics.enabled": "false"}
        settings |= self._more
        if not self._route:
            return settings
        if not sandbox.gateway:
            raise NoSandbox(f"coder {self.name!r} has a route, and no proxy leads there")
        provider = {
            "name": "Leadhand",
            "base_url": f"{sandbox.gateway}/{self._route}",
            "wire_api": "responses",
            "env_key": "LEADHAND_PROVIDER_KEY",
        }
        named = {f"model_providers.leadhand.{key}": json.dumps(v) for key, v in provider.items()}
        return {
            **settings,
            "model_provider": '"leadhand"',
            **named,
            "model_providers.leadhand.request_max_retries": str(RETRIES),
            "model_providers.leadhand.stream_max_retries": str(RETRIES),
        }


class CodexReading:
    """Reads the events of one process."""

    def __init__(self, price: Price | None = None, model: str = "", told: int = 0) -> None:
        """`told`: how long its brief is."""
        self._price, self._model = price, model
        self._read, self._written = told, 0
        self._said = ""
        self._did = False
        self._cost = 0.0

    def read(self, document: Mapping[str, Any]) -> Iterator[CoderEvent]:
        """Yield the events of one document."""
        match document.get("type"):
            case "thread.started":
                yield CoderEvent("session", session=str(document["thread_id"]))
            case "item.started" | "item.completed" as when:
                yield from self._item(document["item"], over=when == "item.completed")
            case "turn.completed":
                yield from self._completed(document.get("usage") or {})
            case "turn.failed":
                yield _error(document["error"], "result")
            case "error":
                yield _error(document, "error")
            case _:
                yield CoderEvent("other")

    def _item(self, item: Mapping[str, Any], *, over: bool) -> Iterator[CoderEvent]:
        kind = item.get("type")
        if over and kind in DOINGS:
            self._did = True
            yield CoderEvent("usage", turn=True, cost=self._so_far(item))
        match kind:
            case "agent_message" if over:
                self._said = str(item.get("text") or "")
                yield CoderEvent("text", text=self._said)
            case "command_execution" if not over:
                yield CoderEvent("tool", tool="shell", text=str(item.get("command"))[:2_000])
            case "file_change" if over:
                for change in item.get("changes") or ():
                    yield CoderEvent("file", tool="file_change", path=str(change.get("path")))
            case "mcp_tool_call" if not over:
                yield CoderEvent("tool", tool=str(item.get("tool")))
            case "error":
                yield CoderEvent("other", text=str(item.get("message") or ""))
            case _:
                yield CoderEvent("other")

    def _so_far(self, item: Mapping[str, Any]) -> float | None:
        """Return a lower bound of the cost so far; None if prices are unknown."""
        self._read += len(str(item.get("aggregated_output") or ""))
        self._written += len(str(item.get("text") or item.get("command") or ""))
        if self._price is None:
            return None
        seen = Usage(self._read // TOKEN_CHARS, self._written // TOKEN_CHARS)
        return (self._cost + self._price(self._model, seen)) or None

    def _completed(self, usage: Mapping[str, Any]) -> Iterator[CoderEvent]:
        read, written = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
        self._read = self._written = 0
        if self._price is not None:
            cached = min(read, int(usage.get("cached_input_tokens") or 0))
            self._cost += self._price(self._model, Usage(read, written, cached))
        yield CoderEvent(
            "result",
            text=self._said if self._did else "it ended without a word",
            cost=self._cost,
            tokens_in=read,
            tokens_out=written,
            failure="" if self._did else "invalid_output",
        )


def _error(document: Mapping[str, Any], kind: Any) -> CoderEvent:
    text = str(document.get("message") or document)
    if kind == "error" and RECONNECTING.search(text):
        kind = "retry"
    failure = classify(text) or ("permanent" if kind == "result" else "")
    return CoderEvent(kind, text=text, failure=failure, retry_after_s=retry_after(text))
