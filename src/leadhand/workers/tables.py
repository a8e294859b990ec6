"""Reading a table of the settings: each value has a type, each mistake a place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from leadhand.codec import expressions
from leadhand.core import durations


class Table:
    """One table; what is wrong with it is added to `problems`, and a harmless value returned."""

    def __init__(self, place: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self.place = place
        self.values = dict(values)
        self.problems = problems

    def problem(self, key: str, message: str) -> None:
        """Note what is wrong with a key."""
        text = f"{self.place}.{key}: {message}" if key else f"{self.place}: {message}"
        if text not in self.problems:
            self.problems.append(text)

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            self.problem(key, "must be a text")
            return None
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single one stands for a list of one."""
        value = self.values.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(each, str) and each for each in items):
            self.problem(key, "must be a list of texts")
            return ()
        return tuple(items)

    def mapping(self, key: str) -> dict[str, Any]:
        """A table inside."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.problem(key, "must be a table")
            return {}
        return dict(value)

    def text_map(self, key: str) -> dict[str, str]:
        """A table of texts."""
        value = self.mapping(key)
        if not all(isinstance(each, str) for each in value.values()):
            self.problem(key, "must be a table of texts")
            return {}
        return value

    def choice(self, key: str, choices: Iterable[str]) -> str | None:
        """One of a few words."""
        value = self.values.get(key)
        known = tuple(choices)
        if value is not None and value not in known:
            self.problem(key, f"must be one of {', '.join(known)}")
            return None
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.problem(key, "must be true or false")
            return default
        return value

    def count(self, key: str) -> int | None:
        """A whole number from 1."""
        value = self.values.get(key)
        if value is not None and (type(value) is not int or value < 1):
            self.problem(key, "must be a whole number from 1")
            return None
        return value

    def number(self, key: str) -> float:
        """A number that is not negative; 0 if it is not given."""
        value = self.values.get(key, 0.0)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < math.inf
        ):
            self.problem(key, "must be a number that is not negative")
            return 0.0
        return float(value)

    def seconds(self, key: str) -> float:
        """A duration; 0 if it is not given."""
        if key not in self.values:
            return 0.0
        try:
            return durations.seconds(self.values[key])
        except ValueError as problem:
            self.problem(key, str(problem))
            return 0.0

    def expression(self, key: str, text: str) -> None:
        """Check an expression over a report."""
        try:
            expressions.check(text)
        except expressions.ExpressionError as problem:
            self.problem(key, f"{text!r}: {problem}")
