"""Code that reaches for the machinery of tests: what a reader would want to see before it lands.

No gate can prove that code behaves the same whether a test calls it or not. What can be seen are
the ways to find out, and the ways to end or bend a test run from inside: ending the process at
once, hooks at its end, looking at the stack, at loaded modules, at variables that runners set,
at the runner's own modules, running text as code. Code that *adds* one of these, in a file that
is no test, is shown to a person with the reason. What main has already is not looked at.

It is a sieve, not a proof: a name that is put together from pieces is found only where it is run
as code (`exec`, `__import__`, `getattr` of the modules above), and of languages other than
Python and JavaScript nothing is looked at. `docs/fleet.md` says what is caught and what is not.
"""

from __future__ import annotations

import ast
import re

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
_TEXTS = re.compile(
    r"PYTEST|pytest|unittest|JEST_WORKER|VITEST|NODE_TEST|LEADHAND|/proc/(self|[0-9*]+)|_pytest|"
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


def reason(path: str, before: bytes, after: bytes) -> str:
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
    for node in ast.walk(tree):
        if id(node) in notes and isinstance(node, ast.Constant):
            continue  # a docstring
        for why in _meant(node):
            found.setdefault(why, []).append(getattr(node, "lineno", 1))
    return {why: sorted(lines) for why, lines in found.items()}


def _meant(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            heads = (each.name.partition(".")[0] for each in names)
            return [MODULES[head] for head in heads if head in MODULES]
        case ast.ImportFrom(module=module, names=names, level=0):
            head = (module or "").partition(".")[0]
            found = [MODULES[head]] if head in MODULES else []
            if head in OWNERS:
                found += [NAMES[each.name] for each in names if each.name in NAMES]
                found += ["imports all of a module that can end the process"] * any(
                    each.name == "*" for each in names
                )
            return found
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OWNERS:
            return [NAMES[name]] if name in NAMES else []
        case ast.Attribute(attr=name) if name in ("_exit", "_getframe", "f_back", "f_globals"):
            return ["looks at who calls it" if name != "_exit" else "ends the process at once"]
        case ast.Attribute(attr=name) if name in ("__subclasses__", "__globals__", "__builtins__"):
            return ["reaches into the interpreter"]
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            return [CALLS[name]]
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[ast.Name(id=owner), *_]) if (
            owner in OWNERS
        ):
            return ["reaches for a part of the system by name"]
        case ast.Name(id="__builtins__" | "__loader__" | "__spec__"):
            return ["reaches into the interpreter"]
        case ast.Constant(value=str(text)) if _TEXTS.search(text) and len(text) < 400:
            return ["names a test runner"]
        case ast.FunctionDef(name="__eq__") | ast.FunctionDef(name="__bool__"):
            return _always_true(node)
        case _:
            return []


def _always_true(node: ast.FunctionDef) -> list[str]:
    """An object that is equal to everything passes every comparison of a test."""
    body = [each for each in node.body if not isinstance(each, ast.Expr)]
    match body:
        case [ast.Return(value=ast.Constant(value=True))]:
            return ["is equal to everything"]
        case _:
            return []


def _script(source: bytes) -> dict[str, list[int]]:
    text = source.decode("utf-8", "replace")
    found: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, why in _SCRIPT.items():
            if re.search(pattern, line):
                found.setdefault(why, []).append(number)
    return found
