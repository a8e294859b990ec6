"""Signs of tampering with tests, which a person must see before the change lands.

`suspicious_code` looks at code that is no test, `suspicious_test_edit` at tests.

No gate can prove that code behaves the same whether a test calls it or not. What can be seen are
the ways to find out, and the ways to end or bend a test run from inside: ending the process at
once, hooks at its end, looking at the stack, at loaded modules, at variables that runners set,
at the runner's own modules, running text as code. Code that *adds* one of these, in a file that
is no test, is shown to a person with the reason. What main has already is not looked at.

It is a sieve, not a proof: a name that is put together from pieces is found only where it is run
as code (`exec`, `__import__`, `getattr` of the modules above), and of languages other than
Python and JavaScript nothing is looked at. `docs/reference/fleet.md` says what is caught and
what is not.
"""

from __future__ import annotations

import ast
import re
import unittest
from collections.abc import Iterator, Sequence

MODULES = {
    "_pytest": "uses a test runner's modules",
    "pytest": "uses a test runner's modules",
    "unittest": "uses a test runner's modules",
    "nose2": "uses a test runner's modules",
    "atexit": "runs something when the process ends",
    "ctypes": "reaches into memory",
    "gc": "looks through the interpreter's objects",
    "inspect": "looks at who calls it",
    "traceback": "looks at who calls it",
    "marshal": "runs code that cannot be read",
    "importlib": "imports modules by name",
    "imp": "imports modules by name",
    "builtins": "changes what every module sees",
    "faulthandler": "acts when the process ends",
    "signal": "acts on signals",
    "pickle": "runs code that cannot be read",
    "_pickle": "runs code that cannot be read",
    "dill": "runs code that cannot be read",
    "cloudpickle": "runs code that cannot be read",
    "shelve": "runs code that cannot be read",
    "zipimport": "runs code that cannot be read",
    "code": "runs text as code",
    "codeop": "runs text as code",
    "timeit": "runs text as code",
    "cProfile": "runs text as code",
    "profile": "runs text as code",
    "pdb": "runs text as code",
    "bdb": "follows what is run",
    "trace": "follows what is run",
    "runpy": "imports modules by name",
    "pkgutil": "imports modules by name",
    "pydoc": "imports modules by name",
    "site": "changes how modules are found",
    "pluggy": "uses a test runner's modules",
    "doctest": "uses a test runner's modules",
    "__main__": "looks at what runs it",
    "coverage": "uses a test runner's modules",
}
NAMES = {
    "_exit": "ends the process at once",
    "abort": "ends the process at once",
    "_getframe": "looks at who calls it",
    "_current_frames": "looks at who calls it",
    "settrace": "follows what is run",
    "setprofile": "follows what is run",
    "addaudithook": "follows what is run",
    "excepthook": "acts when something fails",
    "modules": "looks at which modules are loaded",
    "meta_path": "changes how modules are found",
    "path_hooks": "changes how modules are found",
    "killpg": "ends other processes",
    "kill": "ends other processes",
    "execv": "becomes another program",
    "execve": "becomes another program",
    "execvp": "becomes another program",
    "fork": "makes a copy of the process",
    "dup2": "redirects what is printed",
    "execl": "becomes another program",
    "execle": "becomes another program",
    "execlp": "becomes another program",
    "execlpe": "becomes another program",
    "execvpe": "becomes another program",
    "forkpty": "makes a copy of the process",
    "getppid": "looks at what runs it",
    "unraisablehook": "acts when something fails",
    "monitoring": "follows what is run",
    "orig_argv": "looks at what runs it",
    "path_importer_cache": "changes how modules are found",
    "__dict__": "reaches for a part of the system by name",
}
"""Attributes of `sys`, `os` and `threading` that count."""
OWNERS = frozenset({"os", "sys", "posix", "threading", "_thread"})
CALLS = {
    "exec": "runs text as code",
    "eval": "runs text as code",
    "compile": "runs text as code",
    "__import__": "imports modules by name",
    "breakpoint": "stops a debugger",
    "exit": "ends the process",
    "quit": "ends the process",
}
PATHS = "changes where modules are found"
_TESTS = re.compile(r"tests?|testdata|specs?|__tests__|test_.*|.*_test")
_TEXTS = re.compile(
    r"PYTEST|__eq__|__builtins__|pytest|unittest|JEST_WORKER|VITEST|NODE_TEST|LEADHAND|/proc/(self|[0-9*]+)|_pytest|"
    r"conftest|sitecustomize|PYTHONSTARTUP|junit"
)
_SCRIPT = {
    r"process\s*\.\s*(exit|reallyExit|abort|kill)\b": "ends the process at once",
    r"process\s*\.\s*exitCode": "sets the exit code",
    r"process\s*\.\s*(on|once|addListener|prependListener)\s*\(": "acts when the process ends",
    r"process\s*\.\s*(binding|dlopen)": "reaches into the runtime",
    r"\b(eval|Function)\s*\(": "runs text as code",
    r"""['"](node:)?(test|vm|module|inspector|child_process|worker_threads|v8|repl)['"]""": (
        "uses modules that can bend a test run"
    ),
    r"""['"](jest|vitest|mocha|ava|tap|chai|assert|node:assert)['"]""": (
        "uses a test runner's modules"
    ),
    r"require\s*\.\s*(cache|main|extensions)|Module\s*\.\s*_": "changes how modules are found",
    r"""['"][^'"]*/(tests?|__tests__|specs?)/|['"][^'"]*[._-](test|spec)(\.[cm]?[jt]sx?)?['"]""": (
        "imports from tests"
    ),
    r"(JEST_WORKER_ID|VITEST|NODE_TEST_CONTEXT|npm_lifecycle)": "looks whether a test runs it",
    r"new\s+Error\s*\([^)]*\)\s*\.\s*stack|captureStackTrace|prepareStackTrace": (
        "looks at who calls it"
    ),
    r"\bglobalThis\s*\.\s*(describe|it|test|expect)\b|typeof\s+(describe|it|jest|vi|expect)\b": (
        "looks whether a test runs it"
    ),
}
SCRIPTS = re.compile(r".*\.[cm]?[jt]sx?$")
PYTHONS = re.compile(r".*\.pyi?$|.*\.pyw$")


def is_code(path: str) -> bool:
    """Return whether a path is code that is checked, by its name."""
    return bool(PYTHONS.fullmatch(path) or SCRIPTS.fullmatch(path))


def suspicious_code(path: str, before: bytes, after: bytes) -> str:
    """Return why a person should look at a changed file of code; empty when nothing was added."""
    if not after:
        return ""
    if PYTHONS.fullmatch(path):
        old, new = _python(before), _python(after)
    elif SCRIPTS.fullmatch(path):
        old, new = _script(before), _script(after)
    else:
        return ""
    added = [
        (place, why) for (why, places) in new.items() for place in places[len(old.get(why, ())) :]
    ]
    return f"line {added[0][0]} {added[0][1]}" if added else ""


def _python(source: bytes) -> dict[str, list[int]]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"cannot be read as Python": [1]} if source else {}
    found: dict[str, list[int]] = {}
    notes = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    owners = _owners(tree)
    for node in ast.walk(tree):
        if id(node) in notes and isinstance(node, ast.Constant):
            continue  # a docstring
        for why in (*_meant(node), *_owned(node, owners)):
            found.setdefault(why, []).append(getattr(node, "lineno", 1))
    return {why: sorted(lines) for why, lines in found.items()}


def _meant(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            heads = (each.name.partition(".")[0] for each in names)
            parts = [part for each in names for part in each.name.split(".")]
            tests = any(_TESTS.fullmatch(part) for part in parts)
            found = [MODULES[head] for head in heads if head in MODULES]
            return [*found, *["imports from tests"] * tests]
        case ast.ImportFrom(module=module, names=names, level=level):
            head = (module or "").partition(".")[0]
            found = [MODULES[head]] if head in MODULES and not level else []
            parts = [*(module or "").split("."), *(each.name for each in names if not module)]
            if any(_TESTS.fullmatch(each) for each in parts):
                found.append("imports from tests")
            if head in OWNERS:
                found += [NAMES[each.name] for each in names if each.name in NAMES]
                found += ["imports all of a module that can end the process"] * any(
                    each.name == "*" for each in names
                )
                found += [PATHS] * (head == "sys" and any(each.name == "path" for each in names))
            return found
        case ast.Attribute(attr=name) if name in ("_exit", "_getframe", "f_back", "f_globals"):
            return ["looks at who calls it" if name != "_exit" else "ends the process at once"]
        case ast.Attribute(attr=name) if name in ("__subclasses__", "__globals__", "__builtins__"):
            return ["reaches into the interpreter"]
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            return [CALLS[name]]
        case ast.Name(id="__builtins__" | "__loader__" | "__spec__"):
            return ["reaches into the interpreter"]
        case ast.Constant(value=str(text)) if _TEXTS.search(text):
            return ["names a test runner"]
        case ast.BinOp() | ast.JoinedStr() | ast.Call(func=ast.Attribute(attr="join")):
            return ["names a test runner"] if _TEXTS.search(_folded(node)) else []
        case ast.FunctionDef(name="__eq__") | ast.FunctionDef(name="__bool__"):
            return _always_true(node)
        case ast.FunctionDef(name=name) if name.startswith("pytest_"):
            return ["is a hook of a test runner"]
        case ast.Assign(targets=[ast.Name(id="__eq__")]):
            return ["is equal to everything"]
        case ast.Assign(targets=[ast.Name(id="pytest_plugins")]):
            return ["is a hook of a test runner"]
        case _:
            return []


def _owners(tree: ast.Module) -> dict[str, str]:
    """Names under which a file knows the modules that count: also `import sys as s`, `s = sys`."""
    found = {name: name for name in OWNERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {
                each.asname: each.name for each in node.names if each.asname and each.name in OWNERS
            }
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _owner(value, found):
                found[name] = _owner(value, found)
    return found


def _owner(node: ast.AST, owners: dict[str, str]) -> str:
    """Return which of the watched modules an expression is: `sys`, or `os.sys`."""
    match node:
        case ast.Name(id=name):
            return owners.get(name, "")
        case ast.Attribute(attr=name) if name in OWNERS:
            return name
        case _:
            return ""


def _owned(node: ast.AST, owners: dict[str, str]) -> list[str]:
    """Return what a node does with one of the watched modules."""
    match node:
        case ast.Attribute(value=value, attr=name) if owner := _owner(value, owners):
            if owner == "sys" and name == "path":
                return [PATHS]
            return [NAMES[name]] if name in NAMES else []
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "vars"), args=[first, *_]) if _owner(
            first, owners
        ):
            return ["reaches for a part of the system by name"]
        case ast.Call(args=[*given]) if any(_owner(each, owners) for each in given):
            return ["hands a part of the system on"]
        case _:
            return []


def _folded(node: ast.AST) -> str:
    """Return a text that is concatenated from literal pieces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return _folded(left) + _folded(right)
        case ast.JoinedStr(values=parts):
            return "".join(map(_folded, parts))
        case ast.FormattedValue(value=value):
            return _folded(value)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(glue))),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
        ):
            return glue.join(map(_folded, parts))
        case _:
            return ""


def _always_true(node: ast.FunctionDef) -> list[str]:
    """Return objects that are equal to everything: they pass every comparison of a test."""
    other = node.args.args[1].arg if len(node.args.args) > 1 else ""
    for each in ast.walk(node):
        if not isinstance(each, ast.Return) or each.value is None:
            continue
        match each.value:
            case ast.Constant(value=value) if value:
                return ["is equal to everything"]
            case ast.UnaryOp(op=ast.Not(), operand=ast.Constant(value=value)) if not value:
                return ["is equal to everything"]
            case ast.Compare(left=left, comparators=[right]) if ast.dump(left) == ast.dump(right):
                return ["is equal to everything"]
    used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return ["is equal to everything"] if other and other not in used else []


def _script(source: bytes) -> dict[str, list[int]]:
    text = source.decode("utf-8", "replace")
    found: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, why in _SCRIPT.items():
            if re.search(pattern, line):
                found.setdefault(why, []).append(number)
    return found


# Edits of main's tests, and tests that influence others.
#
# A test that is weakened while the code is still right is green, with main's tests too; the change
# that comes after it breaks the code, and nothing objects. So an edit of a test that main has may
# only add: a new test, an assertion more, an import, a case more in a list. Whatever else it does
# to what is there (another assertion, a `return` before it, a `try` around it, a case less, other
# data) is a protected change. And a test that reaches out of itself, by putting something in the
# place of code, of a module or of the runner, changes what all tests after it see, from the next
# change on.
#
# Python is compared as a tree, JavaScript and everything else by lines. It is a sieve for what
# tests do to others, as `suspicious_code` is for code.


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


def suspicious_test_edit(path: str, before: bytes | None, after: bytes | None) -> str:
    """Return why a person should look at a changed file of tests; empty if there is no reason.

    `before` and `after` are the contents of the file, None where it does not exist.
    """
    if after is None:
        return REMOVES
    if path.endswith((".py", ".pyi")):
        return _python_test(before, after)
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
    """Return whether only whole tests and imports were added, and other lines stay in order."""
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


def _python_test(before: bytes | None, after: bytes) -> str:
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
        """Return whether each statement is still there, in order, and the new ones may be added."""
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
    """Return whether an expression is the same except for longer lists of cases."""
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
    """Yield the nodes that change something which other tests see."""
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
