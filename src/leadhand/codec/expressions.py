"""Safe expressions over a report: `data.failed == 0 and data.coverage >= 0.8`.

Success criteria and checks are written by planners, so an expression is hostile input.
`core/plan/expressions.py`, the only parser, defines the language; its tree, and nothing else, is
evaluated here by simpleeval over JSON values, with these bounds:

1. Names stand for JSON values, and functions are not values. `a.b` looks up the key "b" and nothing
   else: no attribute of any Python object can be reached.
2. Nothing grows: no `**`, no shifts, no repeating or formatting of texts; sums of texts and lists
   have a limit, and so have whole numbers.
3. There are no loops but those of `sum`, `sorted`, `in`, `==` and the like over existing data; the
   total number of values one expression may look at is limited (`_look`), so it ends in a fraction
   of a second.
4. Only True counts as true. A number, a text or a list is an error, and to the engine an error
   means "not shown to hold".
"""

from __future__ import annotations

import ast
import operator
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from simpleeval import (  # type: ignore[import-untyped]
    EvalWithCompoundTypes,
    InvalidExpression,
)

from leadhand.core.plan.expressions import FUNCTIONS, NAMES, parse

ITEMS_MAX = 100_000
BITS_MAX = 4_096
TEXT_CHARS_MAX = 2_000
DIGITS_MAX = 20
LOOKS_MAX = 2_000_000
"""The number of values that one evaluation may look at: a fifth of a second, at worst."""
KEYS_SHOWN_OF = 1_000
PART_CHARS = 100

_CONTAINERS = frozenset({list, tuple, dict})
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


_local = threading.local()
"""For each thread its evaluator, and the looks left for the current evaluation."""


class ExpressionError(Exception):
    """An expression that cannot be parsed, or that gave no answer."""


def _look(value: Any, *, times: int = 1, deep: bool = False) -> None:
    """Count the cost of looking through a value; `deep` includes its nested values."""
    stack = [value]
    while stack:
        found = stack.pop()
        if isinstance(found, str):
            _local.left -= (len(found) >> 3) * times
        elif type(found) in _CONTAINERS:
            _local.left -= (len(found) + 1) * times
            if deep and _local.left >= 0:
                inner = found.values() if type(found) is dict else found
                stack += [each for each in inner if type(each) in _CONTAINERS]
        if _local.left < 0:
            raise ExpressionError("it looks through too much data; write a named check instead")


def _looking(
    apply: Callable[..., Any], *, times: int = 1, deep: bool = False
) -> Callable[..., Any]:
    """Return a function that counts the cost of its arguments before it applies `apply`."""

    def looking(*values: Any) -> Any:
        for each in values:
            _look(each, times=times, deep=deep)
        return apply(*values)

    return looking


def _comparing(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a comparison that counts its cost: at most all values of the smaller container."""

    def comparing(left: Any, right: Any) -> Any:
        if type(left) in _CONTAINERS and type(right) in _CONTAINERS:
            _look(left if len(left) <= len(right) else right, deep=True)
        elif isinstance(left, str) and isinstance(right, str):
            _look(left if len(left) <= len(right) else right)
        return apply(left, right)

    return comparing


def _contains(item: Any, container: Any) -> bool:
    _look(container, deep=type(item) in _CONTAINERS)
    return item in container


def _numbers(name: str, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator for numbers only, with bounded integers."""

    def bounded(*values: Any) -> Any:
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in values):
            raise TypeError(f"{name} is for numbers only")
        if any(isinstance(each, int) and each.bit_length() > BITS_MAX for each in values):
            raise ExpressionError("a number is too large")
        return apply(*values)

    return bounded


def _add(left: Any, right: Any) -> Any:
    if type(left) is type(right) and isinstance(left, str | list):
        if len(left) + len(right) > ITEMS_MAX:
            raise ExpressionError("the result of + is too long")
        _look(left)
        _look(right)
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
    ast.Eq: _comparing(operator.eq),
    ast.NotEq: _comparing(operator.ne),
    ast.Lt: _comparing(operator.lt),
    ast.LtE: _comparing(operator.le),
    ast.Gt: _comparing(operator.gt),
    ast.GtE: _comparing(operator.ge),
    ast.In: _contains,
    ast.NotIn: lambda item, container: not _contains(item, container),
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
    if not {int, float}.issuperset(map(type, values)):
        raise TypeError("sum() is for numbers only")
    return sum(values)


def _round(value: Any, digits: int | None = None) -> Any:
    # round(1, -10**9) would compute ten to the power of a thousand million.
    if digits is not None and not -DIGITS_MAX <= digits <= DIGITS_MAX:
        raise ExpressionError(f"round(): at most {DIGITS_MAX} digits")
    return _numbers("round()", lambda number: round(number, digits))(value)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _numbers("abs()", abs),
    "all": _looking(all),
    "any": _looking(any),
    "bool": bool,
    "float": _scalar("float", float),
    "int": _scalar("int", int),
    "len": len,
    "max": _looking(max, deep=True),
    "min": _looking(min, deep=True),
    "round": _round,
    "sorted": _looking(sorted, times=4, deep=True),
    "str": _scalar("str", str),
    "sum": _looking(_sum),
}
assert _FUNCTIONS.keys() == FUNCTIONS


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    """simpleeval, restricted to the laws above."""

    def __init__(self) -> None:
        super().__init__(operators=_OPERATORS, functions={}, names={})
        self.functions = _FUNCTIONS
        self.whole: ast.expr | None = None

    def _check_disallowed_items(self, item: Any) -> None:
        """Do nothing: values are JSON by law 1, and walking them at each node would be slow."""

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
        values = [self._eval(each) for each in node.args]
        try:
            return self.functions[node.func.id](*values)
        except _UNFIT:
            given = ", ".join(map(_kind_within, values)) or "nothing"
            why = f"{node.func.id}() cannot be used on {given}"
            raise ExpressionError(self._placed(node, why)) from None

    def _eval_compare(self, node: ast.Compare) -> Any:
        holds, left, right = True, node.left, self._eval(node.left)
        for compare, other in zip(node.ops, node.comparators, strict=True):
            value, right = right, self._eval(other)
            holds = self._applied(node, compare, (left, value), (other, right))
            left = other
            if not holds:
                break
        return holds

    def _eval_binop(self, node: ast.BinOp) -> Any:
        pairs = [(each, self._eval(each)) for each in (node.left, node.right)]
        return self._applied(node, node.op, *pairs)

    def _eval_unaryop(self, node: ast.UnaryOp) -> Any:
        return self._applied(node, node.op, (node.operand, self._eval(node.operand)))

    def _applied(self, node: ast.expr, how: ast.AST, *pairs: tuple[ast.expr, Any]) -> Any:
        """Apply an operator to values, each with the part of the expression that gave it."""
        apply = self.operators.get(type(how))
        if apply is None:
            raise ExpressionError(self._placed(node, "this operator is not allowed"))
        try:
            return apply(*(value for _, value in pairs))
        except ZeroDivisionError:
            raise ExpressionError(self._placed(node, "a number is divided by zero")) from None
        except OverflowError:
            raise ExpressionError(self._placed(node, "the result is too large")) from None
        except _UNFIT as error:
            why = str(error) if str(error).endswith("numbers only") else "these do not fit together"
            kinds = ", ".join(f"{_part(each)} is {_kind(value)}" for each, value in pairs)
            raise ExpressionError(self._placed(node, f"{why}: {kinds}")) from None

    def _placed(self, node: ast.expr, why: str) -> str:
        """Return the reason, with the part that it is about unless that is the whole expression."""
        return why if node is self.whole else f"{_part(node)}: {why}"


_UNFIT = (TypeError, ValueError, ArithmeticError, LookupError)
"""What operators and functions raise for values that they cannot take."""


def _part(node: ast.expr) -> str:
    """Return a part of an expression as it is written."""
    text = ast.unparse(node)
    return text if len(text) <= PART_CHARS else f"{text[: PART_CHARS - 1]}…"


def _kind(value: Any) -> str:
    """Return the kind of a value in the words of JSON."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "null")


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a text"),
    ((list, tuple), "a list"),
    (Mapping, "an object"),
)


def _kind_within(value: Any) -> str:
    """Return the kind of a value; of a text the text, of a list the kinds of its first items."""
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if not isinstance(value, list | tuple):
        return _kind(value)
    inner = dict.fromkeys(_kind(each) for each in value[:KEYS_SHOWN_OF])
    return f"a list of {' and '.join(inner)}" if inner else "an empty list"


def _key(container: Any, key: str, shown: str) -> Any:
    if not isinstance(container, Mapping):
        raise ExpressionError(f"{shown}{_kind(container)} has no fields")
    if key not in container:
        some = islice(container, KEYS_SHOWN_OF)
        known = ", ".join(sorted(map(str, some))[:12])[:300] or "nothing"
        raise ExpressionError(f"{shown}there is no {key[:60]!r}; there is {known}")
    return container[key]


def _read(expression: str, names: Iterable[str]) -> ast.expr:
    try:
        return parse(expression, frozenset(names)).body
    except ValueError as problem:
        raise ExpressionError(str(problem)) from None


def check(expression: str, names: Iterable[str] = NAMES) -> None:
    """Check an expression without evaluating it. Raise `ExpressionError` if it is not allowed."""
    _read(expression, names)


def evaluate(expression: str, names: Mapping[str, Any]) -> bool:
    """Return whether an expression holds. Raise `ExpressionError` if it gives no answer."""
    known = {**_CONSTANTS, **names}
    tree = _read(expression, known)
    evaluator: _Evaluator | None = getattr(_local, "evaluator", None)
    if evaluator is None:
        evaluator = _local.evaluator = _Evaluator()
    evaluator.names, evaluator.whole = known, tree
    _local.left = LOOKS_MAX
    try:
        result = evaluator.eval(expression, previously_parsed=tree)
    except ExpressionError:
        raise
    except InvalidExpression as error:
        raise ExpressionError(str(error)[:300]) from None
    except RecursionError:
        raise ExpressionError("it is nested too deeply") from None
    except _UNFIT:
        raise ExpressionError("its values do not fit together") from None
    finally:
        evaluator.names, evaluator.whole = {}, None
    if isinstance(result, bool):
        return result
    raise ExpressionError(f"it gives {_kind(result)}, not true or false")
