"""One attempt as a worker sees it: its task, and a context that remembers what it was told."""

from dataclasses import dataclass, field
from typing import Any

from leadhand.core.report import Failure
from leadhand.ports import Task


@dataclass
class FakeContext:
    """A context as an engine would make it."""

    goal: Any = "the goal"
    run: str = "run-1"
    step: str = "step-1"
    attempt: int = 2
    key: str = "key-1"
    failures: tuple[Failure, ...] = ()
    results: dict[str, Any] = field(default_factory=dict)
    answers: tuple[Any, ...] = ()
    cancelled: bool = False
    said: list[tuple[str, float | None]] = field(default_factory=list)
    processes: list[Any] = field(default_factory=list)

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Remember a remark about progress."""
        self.said.append((message, fraction))

    def spawned(self, spawned: Any) -> None:
        """Remember a process that the worker started."""
        self.processes.append(spawned)


def task(action: str = "", /, **parameters: Any) -> Task:
    """Return the second attempt of step-1 of run-1, with these parameters."""
    return Task("run-1", "step-1", 2, 1, action, parameters, 0)
