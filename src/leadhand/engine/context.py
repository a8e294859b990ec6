"""What a worker is told beyond its parameters: the goal, this attempt, what its `context` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadhand.codec.values import progress_note
from leadhand.core import commands
from leadhand.core import events as ev
from leadhand.core.decide.effects import Move
from leadhand.core.hashing import canonical
from leadhand.core.plan import graph, references
from leadhand.core.views.run import failure_of, fresh, goal_of
from leadhand.engine.results import data_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadhand.core.report import Failure
    from leadhand.core.state.model import Now, State, StepState
    from leadhand.engine.run import Run
    from leadhand.models.meter import Call
    from leadhand.ports import Spawned


LIVE_CHARS = 16_000
"""Of what an attempt printed so far that those who watch it are shown: the last."""
LIVE_READ = 4 * LIVE_CHARS
"""What is looked through for secrets: one that begins before what is shown is found too."""
SUMMARY_CHARS = 400
"""Of a result that is told in brief."""


def _brief(data: Any) -> str | None:
    if data is None:
        return None
    text = data if isinstance(data, str) else canonical(data).decode()
    more = len(text) - SUMMARY_CHARS
    return f"{text[:SUMMARY_CHARS]} … ({more:,} more characters)" if more > 0 else text


class AttemptContext:
    """One attempt's context. Cheap to make: everything is looked up when asked for."""

    __slots__ = ("_printed", "_run", "attempt", "begun", "cancelled", "epoch", "paid", "step")

    def __init__(self, run: Run, step: str, attempt: int, epoch: int) -> None:
        self._run = run
        self.step = step
        self.attempt = attempt
        self.epoch = epoch
        self.cancelled = False
        self._printed: Callable[[int], str] | None = None
        self.begun = False
        """Whether its task runs; one that is cancelled before never gets to say so."""
        self.paid = False
        """Whether it asked a model: then what it costs is what those calls cost."""

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def goal(self) -> Any:
        """The goal the run pursues."""
        return goal_of(self._run.state)

    @property
    def key(self) -> str:
        """The same for every attempt of this step: use it as an idempotency key."""
        return f"{self._run.id}:{self.step}"

    @property
    def tier(self) -> str:
        """Which tier of models the plan wants for this step, if it says."""
        return str(self._run.state.steps[self.step].doc.get("tier") or "")

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Why earlier attempts of this step failed."""
        docs = self._run.state.steps[self.step].failures
        return tuple(failure for doc in docs if (failure := failure_of(doc)) is not None)

    @property
    def answers(self) -> tuple[dict[str, Any], ...]:
        """What people answered about this step."""
        answers = self._run.state.answers
        return tuple(fresh(answer) for answer in answers if answer["step"] == self.step)

    @property
    def quoted(self) -> frozenset[str]:
        """Parameters of the step that hold what other steps gave."""
        planned = self._run.state.steps[self.step].doc.get("parameters") or {}
        return frozenset(
            name
            for name, value in planned.items()
            if any(ref.kind == "steps" for ref in references.find(value))
        )

    @property
    def results(self) -> dict[str, Any]:
        """Results of the steps named in the step's `context`."""
        return {
            name: data_of(self._run.host.store, step)
            for name, step, summary in self._named()
            if not summary and step.status == "succeeded"
        }

    @property
    def summaries(self) -> dict[str, dict[str, Any]]:
        """What the steps did whose summaries the step's `context` names, each in brief.

        Of each: worker, action, status, `data` as a text that may be cut, recommendations, and the
        error of one that failed.
        """
        found: dict[str, dict[str, Any]] = {}
        for name, step, summary in self._named():
            if summary:
                data = data_of(self._run.host.store, step) if step.status == "succeeded" else None
                error = failure_of(step.failure) if step.status == "failed" else None
                found[name] = {
                    "worker": step.worker,
                    "action": step.action,
                    "status": step.status,
                    "data": _brief(data),
                    "recommendations": list(step.recommendations),
                    "error": None if error is None else f"{error.failure_class}: {error.message}",
                }
        return found

    def _named(self) -> list[tuple[str, StepState, bool]]:
        state = self._run.state
        named = graph.context_of(state.steps[self.step].doc).items()
        found = [(name, state.follow(name), summary) for name, summary in named]
        return [(name, step, summary) for name, step, summary in found if step is not None]

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Say how far it is; shown live, never kept in the log."""
        text, share = progress_note(message, fraction)
        if self._run.secrets is not None:
            text = self._run.secrets.text(text)
        self._run.note_progress(self.step, text, share)

    def printing(self, tail: Callable[[int], str]) -> None:
        """A worker tells how to read the last characters of what it printed so far."""
        self._printed = tail

    def live(self) -> dict[str, Any]:
        """How far the attempt is, and the last of what it printed, without secrets."""
        message, fraction = self._run.progress.get(self.step, ("", None))
        text = self._printed(LIVE_READ) if self._printed is not None else ""
        if self._run.secrets is not None:
            text = self._run.secrets.unfinished(text)
        return {
            "attempt": self.attempt,
            "message": message,
            "fraction": fraction,
            "output": text[-LIVE_CHARS:],
        }

    def hide(self, value: Any) -> Any:
        """A text, or JSON-like data, without the secrets of the run: for what goes elsewhere."""
        return value if self._run.secrets is None else self._run.secrets.value(value)

    def spawned(self, process: Spawned) -> None:
        """A command tells which process carries out the attempt, if it is still the current one."""
        step, epoch = self.step, self.epoch
        event = ev.AttemptSpawned(step, epoch, *process)

        def spawned(state: State, _now: Now) -> Move:
            current = commands.is_current(state, step, epoch)
            return Move([event] if current else [], [])

        self._run.say(spawned)

    async def reserve(self, wanted: float, least: float) -> float:
        """Money for a call of a model; what this attempt holds already is its own."""
        state = self._run.state
        held = state.price(state.steps[self.step])
        self.paid = True
        return await self._run.purse.reserve(wanted, least, held)

    def settle(self, reserved: float, call: Call) -> None:
        """A call of a model ended."""
        self._run.purse.settle(reserved, call, self.step, self.attempt)
