"""Which steps of a plan can start now, and what each of the others waits for.

A plan is a sequence; its partial order keeps only what matters: a step waits for the one that
gives what it needs, and two steps that would disturb each other keep their order. They disturb
each other when one drops what the other needs or gives, or writes what the other writes or reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leadhand.core import paths

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Touching(Protocol):
    """Whatever needs, gives, drops, reads and writes: an operator, or a step under way."""

    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def gives(self) -> tuple[str, ...]: ...
    @property
    def drops(self) -> tuple[str, ...]: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def writes(self) -> tuple[str, ...]: ...


def disturb(one: Touching, other: Touching) -> bool:
    """Whether two steps must not run side by side."""
    if one.drops and not {*other.needs, *other.gives}.isdisjoint(one.drops):
        return True
    if other.drops and not {*one.needs, *one.gives}.isdisjoint(other.drops):
        return True
    if one.writes and overlap(one.writes, (*other.writes, *other.reads)):
        return True
    return bool(other.writes) and overlap(other.writes, one.reads)


def overlap(some: Collection[str], others: Collection[str]) -> bool:
    """Whether any place of one list may be a place of the other."""
    return any(
        paths.overlap(paths.parts(one), paths.parts(each)) for one in some for each in others
    )


def waits(plan: Sequence[Touching], true: Collection[str]) -> list[list[int]]:
    """For each step of a plan the earlier ones it must wait for, from facts that are true."""
    giver: dict[str, int | None] = dict.fromkeys(true)
    found: list[list[int]] = []
    for i, step in enumerate(plan):
        before = {giver[fact] for fact in step.needs if giver.get(fact) is not None}
        before |= {j for j in range(i) if disturb(plan[j], step)}
        found.append(sorted(each for each in before if each is not None))
        for fact in step.drops:
            giver.pop(fact, None)
        for fact in step.gives:
            giver.setdefault(fact, i)
    return found
