"""What a change does to tests that main has, and what a test does to others: for a person to see.

A test that is weakened while the code is still right is green, with main's tests too; the change
that comes after it breaks the code, and nothing objects. So an edit of a test that main has may
only add: a new test, an assertion more, an import, a case more in a list. Whatever else it does to
what is there (another assertion, a `return` before it, a `try` around it, a case less, other data)
is a protected change. And a test that reaches out of itself, by putting something in the place of
code, of a module or of the runner, changes what all tests after it see, from the next change on.

Python is compared as a tree, JavaScript and everything else by lines. It is a sieve for what tests
do to others, as `tamper_scan.py` is for code.
"""

from __future__ import annotations

import ast
import re
import unittest
from collections.abc import Iterator, Sequence

CHANGES = "changes a test that main has, and does more than add to it"
REMOVES = "removes a file of tests that main has"
_SCRIPT_BLOCK = re.compile(r"\s*((it|test|describe)\b|import\b|(const|let)\b.*\brequire\(|//|$)")
_SCRIPT_REACH = re.compile(
    r"\bassert\w*(\.\w+)+\s*=[^=>]|process\s*\.\s*(exit|reallyExit)|require\s*\.\s*cache|"
    r"Module\s*\.\s*_|require\([^)]*\)\.\w+\s*=[^=>]|prototype\.\w+\s*=[^=>]"
)
_RUNNERS = frozenset({"_pytest", "atexit", "gc", "ctypes", "builtins", "pluggy", "marshal"})
_ENDS = frozenset({"_exit", "abort", "kill", "execv", "execve", "execl", "execlp"})
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SPECIAL = re.compile(
    r"set_?up.*|tear_?down.*|pytest_.*|load_tests|__.*__|collect_ignore.*|test", re.IGNORECASE
)


def reason(path: str, before: bytes | None, after: bytes | None) -> str:
    """Return why a person should look at a changed file of tests; empty when there is nothing.

    `before` and `after` are what stands in the file, None where it is not there.
    """
    if after is None:
        return REMOVES
    if path.endswith((".py", ".pyi")):
        return _python(before, after)
    text = after.decode("utf-8", "replace")
    if re.search(r"\.[cm]?[jt]sx?$", path):
        for number, line in enumerate(text.splitlines(), 1):
            old = () if before is None else before.decode("utf-8", "replace").splitlines()
            if _SCRIPT_REACH.search(line) and line not in old:
                return f"line {number} changes what other tests see"
        return "" if before is None or _script_adds(before, after) else CHANGES
    if before is None:
        return ""
    return "" if _lines_stay(before.splitlines(), after.splitlines()) else CHANGES


def _lines_stay(old: Sequence[bytes], new: Sequence[bytes]) -> bool:
    rest = iter(new)
    return all(line in rest for line in old)


def _script_adds(before: bytes, after: bytes) -> bool:
    """Whether what was put in are whole tests and imports; lines that were there stay in order."""
    old = before.decode("utf-8", "replace").splitlines()
    new, at = after.decode("utf-8", "replace").splitlines(), 0
    block: list[str] = []
    for line in new:
        if at < len(old) and line == old[at] and _balanced(block):
            if not _whole(block):
                return False
            block, at = [], at + 1
        else:
            block.append(line)
    return at == len(old) and _whole(block)


def _balanced(block: Sequence[str]) -> bool:
    text = "".join(block)
    return all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}"))


def _whole(block: Sequence[str]) -> bool:
    first = next((line for line in block if line.strip()), "")
    return _balanced(block) and bool(_SCRIPT_BLOCK.match(first))


def _python(before: bytes | None, after: bytes) -> str:
    try:
        old, new = ast.parse(before or b""), ast.parse(after)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "cannot be read as Python"
    known = [ast.dump(each) for each in _reaching(old)]
    for node in _reaching(new):
        if (said := ast.dump(node)) in known:
            known.remove(said)
        else:
            return f"line {getattr(node, 'lineno', 1)} changes what other tests see"
    if before is None or _Edit(old).adds(old.body, new.body):
        return ""
    return CHANGES


class _Edit:
    """An edit of a file of tests: whether it only adds."""

    def __init__(self, old: ast.Module) -> None:
        walked = [*ast.walk(old)]
        self._used = {each.id for each in walked if isinstance(each, ast.Name)}
        self._used |= {each.attr for each in walked if isinstance(each, ast.Attribute)}
        self._used |= {each.name for each in walked if isinstance(each, _DEFS)}
        self._used |= {each.arg for each in walked if isinstance(each, ast.arg)}
        self._used |= {*dir(unittest.TestCase)}

    def adds(self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], inside: str = "") -> bool:
        """Whether each statement is still there, in order, and what is new may be added."""
        at = 0
        for each in new:
            if at < len(old) and self._stays(old[at], each):
                at += 1
            elif not self._may_add(each, inside):
                return False
        return at == len(old)

    def _stays(self, old: ast.stmt, new: ast.stmt) -> bool:
        if ast.dump(old) == ast.dump(new):
            return True
        match old, new:
            case ((ast.ImportFrom() | ast.Import()), (ast.ImportFrom() | ast.Import())):
                mine = {(each.name, each.asname) for each in old.names}
                more = {(each.name, each.asname) for each in new.names} - mine
                same = _place(old) == _place(new) and len(new.names) == len(mine) + len(more)
                return same and not {alias or name for name, alias in more} & self._used
            case ast.FunctionDef(), ast.FunctionDef():
                return self._def_stays(old, new)
            case ast.AsyncFunctionDef(), ast.AsyncFunctionDef():
                return self._def_stays(old, new)
            case ast.ClassDef(), ast.ClassDef():
                heads = [(each.name, *map(ast.dump, each.bases)) for each in (old, new)]
                same = heads[0] == heads[1] and not new.keywords and not old.keywords
                marks = [[*map(ast.dump, each.decorator_list)] for each in (old, new)]
                return same and marks[0] == marks[1] and self.adds(old.body, new.body, "class")
            case ast.Assign(), ast.Assign():
                names = [[*map(ast.dump, each.targets)] for each in (old, new)]
                return names[0] == names[1] and _grows(old.value, new.value)
            case _:
                return False

    def _def_stays(self, old: _Function, new: _Function) -> bool:
        same = old.name == new.name and ast.dump(old.args) == ast.dump(new.args)
        marks = old.decorator_list, new.decorator_list
        same = same and len(marks[0]) == len(marks[1])
        return (
            same
            and all(_grows(a, b) for a, b in zip(*marks, strict=True))
            and self.adds(old.body, new.body, "def")
        )

    def _may_add(self, node: ast.stmt, inside: str) -> bool:
        match node:
            case ast.Assert():
                return inside == "def" and not any(
                    isinstance(each, ast.NamedExpr) for each in ast.walk(node)
                )
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
                return inside == "def" and name.startswith("assert")
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound = {each.asname or each.name.partition(".")[0] for each in names}
                return not bound & self._used and "*" not in bound
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                text = "".join(map(ast.dump, node.decorator_list))
                return inside != "def" and self._free(name) and "autouse" not in text
            case ast.ClassDef(name=name):
                return inside != "def" and self._free(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                return self._free(name)
            case _:
                return False

    def _free(self, name: str) -> bool:
        return name not in self._used and not _SPECIAL.fullmatch(name)


def _place(node: ast.Import | ast.ImportFrom) -> object:
    return (node.module, node.level) if isinstance(node, ast.ImportFrom) else None


def _grows(old: ast.expr, new: ast.expr) -> bool:
    """Whether an expression is the same, but for lists of cases that have more of them."""
    if ast.dump(old) == ast.dump(new):
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, ast.Call) and isinstance(new, ast.Call):
        keys = [[ast.dump(each) for each in call.keywords] for call in (old, new)]
        same = ast.dump(old.func) == ast.dump(new.func) and keys[0] == keys[1]
        pairs = [*zip(old.args, new.args, strict=False)]
        return same and len(old.args) == len(new.args) and all(_grows(a, b) for a, b in pairs)
    if isinstance(old, _LITERALS) and isinstance(new, _LITERALS):
        rest = iter(_cases(new))
        return all(case in rest for case in _cases(old))
    return False


def _cases(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Dict):
        keys = [ast.dump(key) if key else "**" for key in node.keys]
        return [f"{a}: {ast.dump(b)}" for a, b in zip(keys, node.values, strict=True)]
    return [*map(ast.dump, getattr(node, "elts", []))]


def _reaching(tree: ast.Module) -> Iterator[ast.AST]:
    """What changes something that other tests see, too."""
    imported = {
        each.asname or each.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
    for node in ast.walk(tree):  # another name for the same
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _root(value) in imported:
                imported.add(name)
            case _:
                pass
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case _:
                targets = []
        if any(_reached(target, imported) for target in targets) or _reaches(node, imported):
            yield node


def _reached(target: ast.expr, imported: set[str]) -> bool:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(_reached(each, imported) for each in parts)
        case ast.Subscript(value=ast.Attribute(attr="environ")):
            return False
        case ast.Attribute() | ast.Subscript():
            return _root(target) in imported
        case ast.Name(id="pytest_plugins"):
            return True
        case _:
            return False


def _reaches(node: ast.AST, imported: set[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return any(each.name.partition(".")[0] in _RUNNERS for each in names)
        case ast.ImportFrom(module=module, level=0):
            return (module or "").partition(".")[0] in _RUNNERS
        case ast.FunctionDef(name=name) if name.startswith("pytest_"):
            return True
        case ast.Attribute(attr=name) if name in _ENDS or name in ("__dict__", "meta_path"):
            return _root(node) in imported
        case ast.Call(func=ast.Name(id="setattr" | "delattr" | "vars"), args=[first, *_]):
            return _root(first) in imported
        case ast.Call(func=ast.Name(id="exec" | "eval" | "__import__" | "globals")):
            return True
        case ast.Call(func=ast.Attribute(attr="MonkeyPatch") | ast.Name(id="MonkeyPatch")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Call(func=made), attr="start")):
            return "patch" in ast.dump(made)
        case _:
            return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
