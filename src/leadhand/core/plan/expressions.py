"""The language of success criteria, and its only parser.

A criterion is the name of a check (`all_tests_pass`: a bare word) or an expression over the report
(`data.failed == 0 and len(data.rows) > 3`). Expressions come from planners and from untrusted
documents, so the language is an allow-list: literals, a few names, `.key` and `[index]`,
comparisons, and/or/not, in, + - * / // %, and calls of a few functions. No attribute that begins
with an underscore, no `**`, no comprehension, no f-string, no keyword argument.

`parse` returns the checked tree; an evaluator must evaluate that tree and nothing else. The core
never evaluates.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

LENGTH_MAX = 2000
NODES_MAX = 500
DEPTH_MAX = 40

NAMES = frozenset(
    {"data", "status", "error", "cost", "artifacts", "recommendations", "true", "false", "null"}
)
GOAL_NAMES = frozenset({"result", "data", "steps", "true", "false", "null"})
"""The names available to the acceptance criteria of a goal."""
FUNCTIONS = frozenset(
    {
        "len",
        "min",
        "max",
        "sum",
        "abs",
        "round",
        "any",
        "all",
        "str",
        "int",
        "float",
        "bool",
        "sorted",
    }
)
_ALLOWED: tuple[type[ast.AST], ...] = (
    ast.Expression,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Attribute,
    ast.Subscript,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Call,
    ast.List,
    ast.Tuple,
    ast.boolop,
    ast.cmpop,
)
_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Not,
    ast.USub,
    ast.UAdd,
)
_WORDS = {
    ast.Lambda: "a lambda",
    ast.IfExp: "an if",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.Slice: "a slice",
    ast.Starred: "a star",
    ast.Set: "a set",
    ast.Dict: "an object",
    ast.Pow: "a power",
    ast.Await: "an await",
}
_CHECK_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def is_check_name(text: str) -> bool:
    """Return whether a criterion is a check name: a bare word. Anything else is an expression."""
    return _CHECK_NAME.fullmatch(text.strip()) is not None


def reads(text: str) -> frozenset[str]:
    """Return the names of the report that an expression reads; none if it cannot be parsed."""
    try:
        tree = parse(text)
    except ValueError:
        return frozenset()
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return frozenset(found & NAMES)


@lru_cache(maxsize=1024)
def parse(text: str, names: frozenset[str] = NAMES) -> ast.Expression:
    """Parse an expression over the given names.

    Raise `ValueError` for any construct not allowed.
    """
    if len(text) > LENGTH_MAX:
        raise ValueError(
            f"an expression may have at most {LENGTH_MAX} characters, this one has {len(text)}"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"it is not an expression: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise ValueError("it is not an expression") from None
    _check(tree, names)
    return tree


def _check(tree: ast.Expression, names: frozenset[str]) -> None:
    count = 0
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        count += 1
        if depth > DEPTH_MAX or count > NODES_MAX:
            raise ValueError("it is too complicated; write a named check instead")
        _check_node(node, names)
        if isinstance(node, ast.Call):  # A function name is not a value; it is checked above.
            stack += ((child, depth + 1) for child in node.args)
        else:
            stack += ((child, depth + 1) for child in ast.iter_child_nodes(node))


def _check_node(node: ast.AST, names: frozenset[str]) -> None:
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return
        case ast.Call(func=ast.Name(id=name)):
            raise ValueError(
                f"{name}(…) cannot be called so; the functions are {', '.join(sorted(FUNCTIONS))}"
            )
        case ast.Call():
            raise ValueError("only functions by name can be called, no methods")
        case ast.Name(id=name) if name not in names:
            raise ValueError(f'"{name}" is not a known name; use {", ".join(sorted(names))}')
        case ast.Attribute(attr=name) if name.startswith("_"):
            raise ValueError(f'"{name}" begins with an underscore, which is not allowed')
        case ast.Constant(value=value) if not isinstance(
            value, (str, int, float, bool, type(None))
        ):
            raise ValueError(f"a {type(value).__name__} cannot stand in an expression")
        case _ if isinstance(node, _ALLOWED + _OPERATORS):
            return
        case _:
            what = _WORDS.get(type(node), f"{type(node).__name__}")
            raise ValueError(f"{what} cannot stand in an expression")
