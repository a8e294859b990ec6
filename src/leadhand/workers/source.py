"""What a function runs, as text: approvals are bound to a digest of it.

That is the function's own source; of the file it stands in, each statement that gives a name it
uses, and so on from there (the functions, classes and constants it calls on, the whole of its own
class); and every file that is imported on the way and lies in the folder of its own, or below.
What others installed, what is read while it runs and what is looked up by name is not in it.

Nothing is run or imported to find that out.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType

FILES_MAX = 200
"""So many files are looked at; whoever needs more declares a version."""
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


class _File(NamedTuple):
    """A file, taken apart."""

    lines: list[str]
    top: list[ast.stmt]

    def text(self, node: ast.stmt) -> str:
        """The lines of a statement, decorators included."""
        before = [each.lineno for each in getattr(node, "decorator_list", ())]
        return "".join(self.lines[min([node.lineno, *before]) - 1 : node.end_lineno])


def source_of(function: Callable[..., Any]) -> bytes:
    """The text of all that a function runs; its code where there is none to read."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return repr(type(function)).encode()
    linecache.checkcache(code.co_filename)
    first, last = code.co_firstlineno, last_line(code)
    lines = linecache.getlines(code.co_filename)[first - 1 : last]
    if not lines:
        constants = [each for each in code.co_consts if not inspect.iscode(each)]
        return bytes(code.co_code) + repr((constants, code.co_names)).encode()
    module = str(getattr(inspect.unwrap(function), "__module__", ""))
    more = _around(Path(code.co_filename), module, first, last)
    return "".join([*lines, *more]).encode("utf-8", "backslashreplace")


def last_line(code: CodeType) -> int:
    """The last line of a function."""
    ends = [end or 0 for _, end, _, _ in code.co_positions()]
    starts = [line or 0 for _, _, line in code.co_lines()]  # all there is without debug ranges
    inner = [last_line(each) for each in code.co_consts if inspect.iscode(each)]
    return max(ends + starts + inner)


def _around(path: Path, module: str, first: int, last: int) -> Iterator[str]:
    """What the lines of a file use: of that file, and of files in its folder."""
    file = _taken_apart(path)
    if file is None:
        return
    inside = [node for node in file.top if node.lineno <= last and first <= (node.end_lineno or 0)]
    own = [node for top in inside for node in ast.walk(top) if _between(node, first, last)]
    used = _reached(file, {node.id for node in own if isinstance(node, ast.Name)})
    used += [node for node in inside if isinstance(node, ast.ClassDef) and node not in used]
    used = [node for node in used if not (isinstance(node, _DEFINES[:2]) and node in inside)]
    yield from (file.text(node) for node in sorted(used, key=lambda node: node.lineno))
    imports = [n for n in own if isinstance(n, _IMPORTS)]
    imports += [n for top in used for n in ast.walk(top) if isinstance(n, _IMPORTS)]
    yield from _imported(path, module, imports)


def _between(node: ast.AST, first: int, last: int) -> bool:
    return first <= getattr(node, "lineno", 0) <= last


def _reached(file: _File, names: set[str]) -> list[ast.stmt]:
    """The statements of a file that give these names, and what those use in turn."""
    found: list[ast.stmt] = []
    while new := [n for n in file.top if n not in found and not names.isdisjoint(_given(n))]:
        found += new
        names = {n.id for top in new for n in ast.walk(top) if isinstance(n, ast.Name)}
    return found


def _given(statement: ast.stmt) -> set[str]:
    """The names that a statement gives to a module."""
    found: set[str] = set()
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, _DEFINES):
            found.add(node.name)
            continue  # what is inside of it is its own
        if isinstance(node, _IMPORTS):
            found |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        stack += ast.iter_child_nodes(node)
    return found


def _imported(path: Path, module: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The files that statements import, and those that these import, from a folder and below."""
    folder, found = path.resolve().parent, {path.resolve(): list[str]()}
    waiting = {name for node in nodes for name in _named(node, module)}
    while waiting and len(found) < FILES_MAX:
        name = waiting.pop()
        there = _file_of(name)
        if there is None or there in found or not there.is_relative_to(folder):
            continue
        file = _taken_apart(there)
        found[there] = file.lines if file is not None else []
        tops = file.top if file is not None else []
        more = (n for top in tops for n in ast.walk(top) if isinstance(n, _IMPORTS))
        waiting |= {each for node in more for each in _named(node, name)}
    for there, lines in sorted(found.items()):
        if lines:
            yield f"\n{there.relative_to(folder).as_posix()}\n"
            yield from lines


def _named(node: ast.AST, module: str) -> Iterator[str]:
    """The modules that a statement may import: what is taken from a package may be one."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = module.rsplit(".", node.level)[0] if node.level else ""
        base = ".".join(part for part in (above, node.module or "") if part)
        yield base
        yield from (f"{base}.{each.name}" for each in node.names)


def _file_of(name: str) -> Path | None:
    """Where a module stands, if it is known, or can be found without importing anything."""
    origin = getattr(sys.modules.get(name), "__file__", None)
    try:
        if origin is None and name not in sys.modules and "." not in name:
            spec = find_spec(name)
            origin = spec.origin if spec is not None else None
    except (ImportError, ValueError):
        return None
    return Path(origin).resolve() if origin and origin.endswith(".py") else None


def _taken_apart(path: Path) -> _File | None:
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return _parsed(str(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=FILES_MAX)
def _parsed(path: str, _changed: int, _size: int) -> _File | None:
    try:
        text = Path(path).read_text("utf-8")
        return _File(text.splitlines(keepends=True), ast.parse(text).body)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
