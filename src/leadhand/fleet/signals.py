"""What a train is told, and what it asks for. PURE."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["red", "conflict", "foreign", "empty", "protected", "stale"]


# --- what happens --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Added:
    """A change came."""

    change: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nobody wants it any more."""

    change: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A test ended."""

    test: int
    green: bool


@dataclass(frozen=True, slots=True)
class Trouble:
    """A test ended without a verdict."""

    test: int


@dataclass(frozen=True, slots=True)
class Unmerged:
    """A change of a test cannot be put on those before it; `final`: nor on main."""

    test: int
    change: str
    kind: Kind
    final: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """Main is not where it was thought to be; these did not land after all."""

    back: tuple[str, ...] = ()


Event = Added | Withdrawn | Verdict | Trouble | Unmerged | Moved


# --- what is to be done --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probe:
    """Put these changes on main, in this order, and gate what comes out."""

    test: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody needs the answer any more."""

    test: int


@dataclass(frozen=True, slots=True)
class Land:
    """Move main over these changes; `test` is the one that was green."""

    changes: tuple[str, ...]
    test: int


@dataclass(frozen=True, slots=True)
class Eject:
    """Give it back; `test` is the one that tells why."""

    change: str
    kind: Kind
    test: int


Action = Probe | Cancel | Land | Eject
