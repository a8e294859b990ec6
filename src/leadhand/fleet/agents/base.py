"""Coding agents: the assignment they get, the events they report, the result they claim.

A coder takes an assignment, works in a slot inside a sandbox, and ends. Whether anything came of
it is not for it to say.

Laws
    1. What a coder says is a claim: its exit code, its closing words, its cost. `changed` is what
       we saw of the slot ourselves; acceptance and gate judge the rest elsewhere.
    2. Every run ends: by its result, or by one of the clocks (`process.py`), and when `work`
       returns, or is cancelled, no process of it is left.
    3. Nothing a coder prints can break the reading of it: unknown events are passed over, long
       lines are cut, memory is bounded.
    4. A failure has a class of the core's own (`classify`), so that the ladder answers it as
       it answers any other.

`ended` is how the run came to its end, `failure` what class that is; "" when it ended with a
result. A conversation has an identifier, `session`: given back with the next assignment, the
coder goes on where it was; left empty, it begins anew, with `handoff` for what to know. The
coder's own memory of conversations is in its private home, one for each task, which is kept
from attempt to attempt and forgotten with the task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from leadhand.models.messages import Usage
from leadhand.workers.sandbox.sandbox import Sandbox

EventKind = Literal[
    "session", "text", "tool", "file", "usage", "retry", "limit", "error", "result", "other"
]
Ended = Literal[
    "result",  # it said that it is done
    "crashed",  # it ended without saying so
    "timeout",  # the time of the assignment was over
    "silent",  # neither an event nor a change for too long
    "stalled",  # it talked on, and nothing changed for too long
    "limit",  # turns or cost
    "refused",  # the model would not
    "rate_limited",
    "stopped",  # stopped by an order
    "failed",  # it said that it failed, or could not be started; `failure` says what that is
]


ProviderSaid = Literal["unseen", "refused", "answered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One task for one attempt, and how far the coder may go."""

    run: str
    task: str
    attempt: int = 1
    goal: str = ""
    acceptance: tuple[tuple[str, ...], ...] = ()
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    brief: str
    """What the agent is told."""
    handoff: str = ""
    """What an agent that begins anew must know of those before it; not told to one that goes on."""
    session: str = ""
    """The conversation to go on with; empty: a new one."""
    model: str = ""
    time_s: float = 1800.0
    turns: int = 200
    cost: float = 0.0
    """In US dollars; 0: no limit."""
    silence_s: float = 300.0
    stall_s: float = 0.0
    """How long it may talk while nothing in the slot changes; 0: as long as it has time."""
    person: str = ""
    """Who made the change that lands, `Name <address>`; empty: the agent."""
    alone: bool = False
    """Whether no agent had a part in that person's change."""

    @property
    def about(self) -> dict[str, str | int]:
        """Return which attempt it is, for notes."""
        return {"run": self.run, "task": self.task, "attempt": self.attempt}

    @property
    def told(self) -> str:
        """Return the brief, and the handoff if the conversation is new."""
        if self.session or not self.handoff:
            return self.brief
        return f"{self.brief}\n\n{self.handoff}"


@dataclass(frozen=True, slots=True)
class CoderEvent:
    """Something heard of a coder while it works."""

    kind: EventKind
    text: str = ""
    tool: str = ""
    path: str = ""
    """The file that is touched, as the coder names it."""
    session: str = ""
    cost: float | None = None
    """All that the conversation has cost since the process began."""
    tokens_in: int = 0
    tokens_out: int = 0
    turn: bool = False
    """Whether the model had another turn."""
    total: bool = False
    """Whether the tokens are those of the whole process; otherwise they are added up."""
    failure: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoderResult:
    """How a coder's run ended: a claim, but for `changed`, which we saw."""

    ended: Ended
    failure: str = ""
    """A failure class of the core, or empty."""
    why: str = ""
    said: str = ""
    """Its closing words."""
    session: str = ""
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    turns: int = 0
    retry_after_s: float | None = None
    exit_code: int | None = None
    """None: ended by a signal, or never started. Inside a sandbox 128 + a signal's number."""
    tail: str = ""
    """The last that it printed."""
    changed: bool = False
    """Whether the slot is another than before."""
    seconds: float = 0.0
    stopped: bool = False
    """Whether a person stopped it."""
    provider: ProviderSaid = "unseen"
    """Whether its provider was seen to refuse a request while it worked: its door sees the answers
    of routes. Unseen: what its program prints is all there is."""


Price = Callable[[str, Usage], float]
"""What tokens of a model cost in US dollars; 0 where the price is unknown."""
Heard = Callable[[CoderEvent], None]
Ending = Callable[[str], Awaitable[None]]
"""Awaited before a coder is killed, with the reason: the time to save its work in progress."""


class Workspace(Protocol):
    """A slot, as far as a coder needs to know it."""

    @property
    def path(self) -> Path:
        """Return the folder of its checkout."""


class Coder(Protocol):
    """A coding agent that carries out assignments, any number of them at once."""

    name: str

    async def work(
        self,
        assignment: Assignment,
        slot: Workspace,
        sandbox: Sandbox,
        heard: Heard,
        *,
        ending: Ending | None = None,
    ) -> CoderResult:
        """Carry out one assignment; returns when nothing of the coder is left."""

    def stop(self, assignment: Assignment) -> bool:
        """End the work on an assignment soon; false if there is none."""

    def message(self, assignment: Assignment, text: str) -> bool:
        """Tell the agent something while it works; false if it cannot be told."""

    def forget(self, assignment: Assignment) -> None:
        """Its task is over: nothing of its conversations is kept."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The program to start: arguments, environment, and standard input."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    """None: no input. In either case the end of the input is reached at once."""
    network: bool = True
    session: str = ""
    """The conversation, where it is known before it is heard of."""
    readable: tuple[Path, ...] = ()
    """Where its own program stands, besides what the sandbox shows."""


class AgentOutput(Protocol):
    """Makes events of the documents that a coder prints, one on each line."""

    def read(self, document: Mapping[str, Any]) -> Iterator[CoderEvent]:
        """Yield the events in one document; none if it is irrelevant."""
