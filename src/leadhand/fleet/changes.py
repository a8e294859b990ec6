"""A change that wants to be on main, and what may become of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leadhand.fleet.gate import Command
from leadhand.fleet.git import shown
from leadhand.fleet.signals import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One commit (`head`) on its base, that wants to be on main."""

    run: str
    task: str
    attempt: int
    base: str
    head: str
    goal: str
    paths: tuple[str, ...] = ()
    """What it may write; nothing said: anything."""
    cleared: tuple[str, ...] = ()
    """Protected paths it may write all the same."""
    bound: str = ""
    """What was approved of it, hashed (`reviewing.digest_of`): what lands must be the same."""
    waived: tuple[str, ...] = ()
    """Tests of main that it may remove or change, as a person has seen."""
    acceptance: tuple[Command, ...] = ()
    trailers: Mapping[str, str] = field(default_factory=dict)
    author: str = ""
    joins: bool = False
    """Whether `head` is history to be kept, and becomes a parent: what people did themselves."""

    @property
    def about(self) -> dict[str, Any]:
        """Whose it is, for notes."""
        return {"run": self.run, "task": self.task, "attempt": self.attempt}


@dataclass(frozen=True, slots=True)
class Landed:
    """On main: its commit, and the tip that was gated with it."""

    sha: str
    tip: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class Ejected:
    """Back to its owner, and why."""

    kind: Kind
    log: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def over(cls, kind: Kind, why: str, paths: Sequence[str]) -> "Ejected":
        """For the sake of these paths."""
        named = [shown(path) for path in paths[:100]]
        return cls(kind, f"{why}: {', '.join(named)}", {"paths": named})
