"""The world of the suite: an archive of records, drawn from the seed of the trial.

A record holds an amount and a check digit (the last digit of the sum of its digits), so that a slip
of the pen can be noticed, though not every one. There is a set of records for each goal; the first
letter of a record says which.
"""

from __future__ import annotations

import os
from random import Random

SETS = {
    "a": 1,
    "b": 1,
    "c": 3,
    "d": 6,
    "e": 12,
    "f": 18,
    "g": 4,
    "h": 8,
    "i": 4,
    "j": 8,
    "k": 4,
    "l": 8,
}
"""How many records each set has."""
CHAINS = "gh"
"""Sets of which each record names the next."""
MOVED = "ij"
"""Sets of which one record was moved to the annex."""


class Moved(LookupError):
    """The record is in the annex."""


def ids(kind: str) -> list[str]:
    """Return the names of a set, in the order in which a chain leads through them."""
    names = [f"{kind}{number:02}" for number in range(1, SETS[kind] + 1)]
    if kind in CHAINS:
        rest = names[1:]
        _chance(f"chain {kind}").shuffle(rest)
        return [names[0], *rest]
    return names


def amount(name: str) -> int:
    """Return the true amount of a record."""
    return _chance(name).randint(1000, 9999)


def digit(value: int) -> int:
    """Return the check digit of an amount."""
    return sum(map(int, str(value))) % 10


def read(name: str, *, annex: bool = False) -> dict[str, object]:
    """Return a record. Raise `Moved` if it is in the annex, `KeyError` if there is none."""
    kind = name[:1]
    if kind not in SETS or name not in ids(kind):
        raise KeyError(name)
    if kind in MOVED and not annex and name == _chance(f"moved {kind}").choice(ids(kind)):
        raise Moved(name)
    found: dict[str, object] = {"amount": amount(name), "digit": digit(amount(name))}
    if kind in CHAINS:
        chain = ids(kind)
        found["next"] = [*chain, ""][chain.index(name) + 1]
    return found


def missing(names: list[str]) -> list[str]:
    """Return the records of the same set that are not among `names`."""
    return sorted(set(ids(names[0][0])) - set(names)) if names else []


def _chance(of: str) -> Random:
    return Random(f"{os.environ.get('LEADHAND_EVAL_SEED', '1')}/{of}")  # noqa: S311 - to be repeated
