"""Safe expressions over a report: `data.failed == 0 and data.coverage >= 0.8`.

Success criteria and checks are written by planners, so an expression is hostile input. What may
be written is said by `core.expressions`, the one reader; its tree, and nothing else, is
evaluated here by simpleeval over JSON values, with these bounds:

1. Names stand for JSON values, and functions are not values. `a.b` looks up the key "b" and
   nothing else: no attribute of any Python object can be reached.
2. Nothing grows: no `**`, no shifts, no repeating or formatting of texts; sums of texts and
   lists have a limit, and so have whole numbers.
3. There are no loops but those of `sum`, `sorted` and their like over data that is there, and
   the reader limits the number of nodes, so it ends quickly.
4. Only True counts as true. A number, a text or a list is not an answer: that is an error,
   and to the engine an error means "not shown to hold".
"""

from __future__ import annotations

import ast
import operator
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from simpleeval import (  # type: ignore[import-untyped]
    EvalWithCompoundTypes,
    InvalidExpression,
)

from leadhand.core.expressions import FUNCTIONS, NAMES, parse

ITEMS_MAX = 100_000
BITS_MAX = 4_096
TEXT_CHARS_MAX = 2_000
DIGITS_MAX = 20

_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


class ExpressionError(Exception):
    """An expression that cannot be read, or that gave no answer."""


def _numbers(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    """An operator for numbers only, whose whole results stay small."""

    def bounded(*values: Any) -> Any:
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
            raise ExpressionError(f"{name} is for numbers only")
        if any(isinstance(each, int) and each.bit_length() > BITS_MAX for each in values):
            raise ExpressionError("a number is too large")
        return apply(*values)

    return bounded


def _add(left: Any, right: Any) -> Any:
    if type(left) is type(right) and isinstance(left, str | list):
        if len(left) + len(right) > ITEMS_MAX:
            raise ExpressionError("the result of + is too long")
        return left + right
    return _numbers("+", operator.add)(left, right)


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _add,
    ast.Sub: _numbers("-", operator.sub),
    ast.Mult: _numbers("*", operator.mul),
    ast.Div: _numbers("/", operator.truediv),
    ast.FloorDiv: _numbers("//", operator.floordiv),
    ast.Mod: _numbers("%", operator.mod),
    ast.USub: _numbers("-", operator.neg),
    ast.UAdd: _numbers("+", operator.pos),
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def _scalar(name: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        if isinstance(value, list | tuple | dict):
            raise ExpressionError(f"{name}() takes a text, a number or a truth value")
        if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
            raise ExpressionError(f"{name}(): the text is too long")
        return convert(value)

    return call


def _sum(values: Iterable[Any]) -> Any:
    total: Any = 0
    for each in values:
        total = _numbers("sum()", operator.add)(total, each)
    return total


def _round(value: Any, digits: int | None = None) -> Any:
    # round(1, -10**9) would compute ten to the power of a thousand million.
    if digits is not None and not -DIGITS_MAX <= digits <= DIGITS_MAX:
        raise ExpressionError(f"round(): at most {DIGITS_MAX} digits")
    return _numbers("round()", lambda number: round(number, digits))(value)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _numbers("abs()", abs),
    "all": all,
    "any": any,
    "bool": bool,
    "float": _scalar("float", float),
    "int": _scalar("int", int),
    "len": len,
    "max": max,
    "min": min,
    "round": _round,
    "sorted": sorted,
    "str": _scalar("str", str),
    "sum": _sum,
}
assert _FUNCTIONS.keys() == FUNCTIONS


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    """simpleeval, narrowed as the laws above say."""

    def __init__(self) -> None:
        super().__init__(operators=_OPERATORS, functions={}, names={})
        self.functions = _FUNCTIONS

    def _check_disallowed_items(self, item: Any) -> None:
        """Values are JSON by law 1; walking through all of them at each node would be slow."""

    def _eval_name(self, node: ast.Name) -> Any:
        return _key(self.names, node.id, "")

    def _eval_attribute(self, node: ast.Attribute) -> Any:
        return _key(self._eval(node.value), node.attr, f"{ast.unparse(node)}: ")

    def _eval_subscript(self, node: ast.Subscript) -> Any:
        container = self._eval(node.value)
        key = self._eval(node.slice)
        shown = f"{ast.unparse(node)}: "
        if isinstance(key, str):
            return _key(container, key, shown)
        if not isinstance(container, str | list | tuple) or type(key) is not int:
            raise ExpressionError(f"{shown}cannot be looked up")
        if not -len(container) <= key < len(container):
            raise ExpressionError(f"{shown}there are only {len(container)}")
        return container[key]

    def _eval_call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise ExpressionError("only functions by name can be called")
        return self.functions[node.func.id](*(self._eval(each) for each in node.args))


def _key(container: Any, key: str, shown: str) -> Any:
    if not isinstance(container, Mapping):
        kind = "null" if container is None else f"a {type(container).__name__}"
        raise ExpressionError(f"{shown}{kind} has no fields")
    if key not in container:
        known = ", ".join(sorted(map(str, container))[:12])[:300] or "nothing"
        raise ExpressionError(f"{shown}there is no {key[:60]!r}; there is {known}")
    return container[key]


def _read(expression: str, names: Iterable[str]) -> ast.expr:
    try:
        return parse(expression, frozenset(names)).body
    except ValueError as problem:
        raise ExpressionError(str(problem)) from None


def check(expression: str, names: Iterable[str] = NAMES) -> None:
    """Find what is wrong with an expression without evaluating it; raises ExpressionError."""
    _read(expression, names)


_local = threading.local()


def evaluate(expression: str, names: Mapping[str, Any]) -> bool:
    """Whether an expression holds for these names; ExpressionError when it gives no answer."""
    known = {**_CONSTANTS, **names}
    tree = _read(expression, known)
    evaluator: _Evaluator | None = getattr(_local, "evaluator", None)
    if evaluator is None:
        evaluator = _local.evaluator = _Evaluator()
    evaluator.names = known
    try:
        result = evaluator.eval(expression, previously_parsed=tree)
    except ExpressionError:
        raise
    except InvalidExpression as error:
        raise ExpressionError(str(error)[:300]) from None
    except RecursionError:
        raise ExpressionError("it is nested too deeply") from None
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ExpressionError(f"{type(error).__name__}: {error}"[:300]) from None
    finally:
        evaluator.names = {}
    if isinstance(result, bool):
        return result
    kind = "null" if result is None else f"a {type(result).__name__}"
    raise ExpressionError(f"it gives {kind}, not true or false")
