"""Claude Code, headless: `claude -p` with a stream of JSON events.

What was learned by running it (2.1), and is handled here:

    * The brief comes on standard input, a file whose end is reached: no limit on its length, not
      seen in lists of processes, and nothing to wait for.
    * `--bare` leaves out hooks, plugins, memories and settings of the repository: what the agent
      is told comes from us. Its tools are then Bash, Edit and Read: new files come by the first.
    * With `--bare` it takes a key only. On a login's token it is started without, and with the
      settings of its private home alone: the repository's stay out too, and it has all its tools.
    * Permissions are bypassed, for our sandbox is around it; as root it refuses that unless it is
      told that there is one. Without a sandbox only edits are accepted.
    * It tries a failed request again up to ten times, for minutes. It is told to try less, its
      tries are heard (`api_retry`) and counted.
    * A conversation is kept in its home, and found again from another slot.
    * It may stay after its result: the grace ends it.
    * What it cost it says with its result only. Until then its messages say what they used, and
      `price` what that costs; the tokens of an answer are those known when it began, so that its
      length is looked at too. One that is ended before its result has cost that much.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leadhand.fleet.agents.base import Assignment, CoderEvent, Launch, Price
from leadhand.fleet.agents.process import ProcessCoder, classify, needed_by, retry_after, started
from leadhand.models.messages import Usage
from leadhand.workers.sandbox.sandbox import NoSandbox, Sandbox

RETRIES = 2
TOKENS = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)
TOKEN_CHARS = 4
SAID = ("text", "thinking", "input")
"""What a model wrote, in the blocks of a message."""
SESSION = re.compile(r"[0-9a-fA-F-]{8,64}")
SUBTYPES = {
    "error_max_turns": "too_complex",
    "error_max_budget_usd": "budget",
    "error_max_structured_output_retries": "invalid_output",
}
ERRORS = {
    "authentication_failed": "denied",
    "billing_error": "budget",
    "overloaded": "transient",
    "rate_limit": "rate_limited",
    "server_error": "transient",
}


class ClaudeCoder(ProcessCoder):
    """Claude Code as a coder."""

    def __init__(
        self,
        name: str = "claude",
        program: str | Path = "claude",
        *,
        route: str = "",
        price: Price | None = None,
        readable: Sequence[Path] = (),
        signed_in: bool = False,
        **common: Any,
    ) -> None:
        """`route`: the name of the proxy's route to its provider, which adds the credentials.

        `signed_in`: these are the token of a login, so requests have the form of a login's.
        """
        super().__init__(name, **common)
        self._signed_in = signed_in
        self._program, self._route, self._price = str(program), route, price
        self._readable = tuple(readable)

    def launch(self, assignment: Assignment, slot: Path, home: Path, sandbox: Sandbox) -> Launch:
        """`claude -p`, the brief on its standard input."""
        loose = sandbox.kind != "none"
        own = ("--setting-sources", "user") if self._signed_in else ("--bare",)
        argv = [*started(self._program, sandbox), "-p", *own]
        argv += ["--output-format", "stream-json", "--verbose"]
        argv += ["--permission-mode", "bypassPermissions" if loose else "acceptEdits"]
        argv.append("--strict-mcp-config")
        if assignment.turns:
            argv += ["--max-turns", str(assignment.turns)]
        if assignment.cost:
            argv += ["--max-budget-usd", f"{assignment.cost:.4f}"]
        if assignment.model:
            argv += ["--model", assignment.model]
        if assignment.session:
            if not SESSION.fullmatch(assignment.session):
                raise NoSandbox(f"{assignment.session[:80]!r} is no conversation of Claude Code")
            argv += ["--resume", assignment.session]
        return Launch(
            tuple(argv),
            env=self._surroundings(home, sandbox),
            stdin=assignment.told.encode(),
            readable=(*self._readable, *needed_by(self._program, [self._homes])),
        )

    def reading(self, assignment: Assignment) -> ClaudeReading:
        """Events of `--output-format stream-json`."""
        return ClaudeReading(self._price, assignment.model)

    def _surroundings(self, home: Path, sandbox: Sandbox) -> dict[str, str]:
        env = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": str(RETRIES),
            "CLAUDE_CODE_TMPDIR": str(home / "tmp"),
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "DISABLE_AUTOUPDATER": "1",
        }
        if sandbox.kind != "none":
            env["IS_SANDBOX"] = "1"
        if self._route:
            if not sandbox.gateway:
                raise NoSandbox(f"coder {self.name!r} has a route, and no proxy leads there")
            env["ANTHROPIC_BASE_URL"] = f"{sandbox.gateway}/{self._route}"
            name = "CLAUDE_CODE_OAUTH_TOKEN" if self._signed_in else "ANTHROPIC_API_KEY"
            env[name] = "added-by-the-proxy"
        return env


class ClaudeReading:
    """Reads the events of one process."""

    def __init__(self, price: Price | None = None, model: str = "") -> None:
        self._price, self._model = price, model
        self._message = ""
        self._costs: dict[str, float] = {}
        """Of each message, by its identifier."""
        self._lengths: dict[str, int] = {}

    def read(self, document: Mapping[str, Any]) -> Iterator[CoderEvent]:
        """Yield the events of one document."""
        match document.get("type"), document.get("subtype"):
            case "system", "init":
                yield CoderEvent("session", session=str(document["session_id"]))
            case "system", "api_retry":
                yield _retry(document)
            case "rate_limit_event", _:
                yield _limit(document.get("rate_limit_info") or {})
            case "assistant", _:
                yield from self._assistant(document)
            case "result", _:
                yield _result(document)
            case _:
                yield CoderEvent("other")

    def _assistant(self, document: Mapping[str, Any]) -> Iterator[CoderEvent]:
        message = document["message"]
        # A message is told block by block, each time with the same identifier.
        turn, self._message = message.get("id", "") != self._message, message.get("id", "")
        if kind := document.get("error"):
            text = _text(message)
            failure = classify(text) or ERRORS.get(str(kind), "")
            yield CoderEvent("error", text=text, failure=failure, retry_after_s=retry_after(text))
            return
        used = self._used(message)
        cost = self._cost(message, used)
        if turn:
            into, out = used.input, used.output
            yield CoderEvent("usage", turn=True, cost=cost, tokens_in=into, tokens_out=out)
        elif cost is not None:
            yield CoderEvent("usage", cost=cost)
        if message.get("stop_reason") == "refusal":
            yield CoderEvent("error", text=_text(message) or "the model refused", failure="policy")
        for block in message.get("content") or ():
            match block.get("type"):
                case "text":
                    yield CoderEvent("text", text=block["text"])
                case "tool_use":
                    yield from _tool(block["name"], block.get("input") or {})
                case _:
                    pass

    def _used(self, message: Mapping[str, Any]) -> Usage:
        """Return the tokens that a message used, as far as it says."""
        usage = message.get("usage") or {}
        plain, read, written, out = (int(usage.get(name) or 0) for name in TOKENS)
        name = str(message.get("id", ""))
        said = (block.get(kind) for block in message.get("content") or () for kind in SAID)
        self._lengths[name] = self._lengths.get(name, 0) + sum(
            len(str(each or "")) for each in said
        )
        out = max(out, self._lengths[name] // TOKEN_CHARS)
        return Usage(plain + read + written, out, read, written)

    def _cost(self, message: Mapping[str, Any], used: Usage) -> float | None:
        """Return the cost of all messages so far; None if prices are unknown."""
        if self._price is None:
            return None
        model = str(message.get("model") or self._model)
        self._costs[str(message.get("id", ""))] = self._price(model, used)
        return sum(self._costs.values()) or None


def _tool(name: str, given: Mapping[str, Any]) -> Iterator[CoderEvent]:
    yield CoderEvent("tool", tool=name, text=str(given.get("command", ""))[:2_000])
    path = given.get("file_path") or given.get("notebook_path")
    if path and name in ("Edit", "MultiEdit", "NotebookEdit", "Write"):
        yield CoderEvent("file", tool=name, path=str(path))


def _retry(document: Mapping[str, Any]) -> CoderEvent:
    status, kind = document.get("error_status"), str(document.get("error") or "")
    failure = classify(kind, status if isinstance(status, int) else None)
    waiting = float(document.get("retry_delay_ms") or 0) / 1000
    text = f"{kind or 'no answer'} ({status or 'no status'})"
    failure = failure or ERRORS.get(kind, "transient")
    return CoderEvent("retry", text=text, failure=failure, retry_after_s=waiting or None)


def _limit(told: Mapping[str, Any]) -> CoderEvent:
    """Return the event of a usage limit: one that is reached, unless usage beyond it is paid."""
    ends = told.get("resetsAt")
    if told.get("status") != "rejected" or told.get("isUsingOverage") or not ends:
        return CoderEvent("other")
    waiting = max(0.0, float(ends) - time.time())
    text = f"the usage limit is reached ({told.get('rateLimitType') or 'kind not told'})"
    return CoderEvent("limit", text=text, failure="rate_limited", retry_after_s=waiting)


def _result(document: Mapping[str, Any]) -> CoderEvent:
    subtype, text = str(document.get("subtype")), str(document.get("result") or "")
    failure, waiting = "", None
    if document.get("stop_reason") == "refusal":
        failure = "policy"
    elif document.get("is_error") or subtype != "success":
        text = text or "; ".join(map(str, document.get("errors") or ())) or subtype
        status = document.get("api_error_status")
        failure = SUBTYPES.get(subtype) or classify(
            text, status if isinstance(status, int) else None
        )
        failure, waiting = failure or "transient", retry_after(text)
    usage = document.get("usage") or {}
    said = document.get("total_cost_usd")
    return CoderEvent(
        "result",
        text=text,
        session=str(document.get("session_id") or ""),
        cost=None if said is None else float(said),
        tokens_in=sum(int(usage.get(name) or 0) for name in TOKENS[:3]),
        tokens_out=int(usage.get("output_tokens") or 0),
        total=True,
        failure=failure,
        retry_after_s=waiting,
    )


def _text(message: Mapping[str, Any]) -> str:
    blocks = message.get("content") or ()
    return "".join(str(each.get("text", "")) for each in blocks if isinstance(each, dict))
