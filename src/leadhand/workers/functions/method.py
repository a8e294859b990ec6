"""`@method`: how a task that turned out too complex splits into smaller ones.

    @method("table")
    def clean_in_parts():
        return ["split_raw", "clean_part*", "merge_table"]

A method names workers, first to last; the last one gives the fact. Each is handed what the one
before it gave; `name*` is one step for each item of a list, and the one after it gets the list
of their results. The function may take facts by name, to decide by them.

Nothing is registered: give the function to a `Lead` among the workers, or stand it in their
module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from leadhand.core.catalog import Method
from leadhand.errors import UsageError

F = TypeVar("F", bound=Callable[..., Sequence[str]])

METHOD = "__leadhand_method__"


def method(fact: str, /, *, name: str = "") -> Callable[[F], F]:
    """Declare a way to give `fact` in several smaller steps; see the top of this module.

    `name` is the name shown to people; the function's by default. Return the function itself. Raise
    `UsageError` if `fact` is malformed or the function cannot be a method.
    """
    if not isinstance(fact, str) or not fact:
        raise UsageError('@method: say which fact it gives, as in @method("table")')

    def decorate(function: F) -> F:
        setattr(function, METHOD, _declared(function, fact, name))
        return function

    return decorate


def method_of(given: Any) -> Method | None:
    """The method a function was declared to be, or None."""
    found = getattr(given, METHOD, None)
    return found if isinstance(found, Method) else None


def _declared(function: Callable[..., Sequence[str]], fact: str, name: str) -> Method:
    label = name or getattr(function, "__name__", "")
    where = f"@method on {label or function!r}"
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise UsageError(f"{where}: a method is an ordinary function that names workers")
    kinds = inspect.Parameter
    takes = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD, kinds.POSITIONAL_ONLY):
            raise UsageError(f"{where}: it takes facts by name; {parameter} cannot be filled")
        if parameter.default is kinds.empty:
            takes.append(parameter.name)
    return Method(fact=fact, name=label, takes=tuple(takes), stages=function)
