"""The version of a Python worker: it covers whole files of the project.

That is the file a function stands in; every module of the project that this file imports, at the
top, inside functions or by `import *`, and what those import in turn, packages' `__init__` files
included; and, since functions share one process, the other worker files that were loaded with it
where those touch the same modules or can patch what is not theirs. Of environment variables that
these files read by a constant name, it covers the values that they had when workers were loaded.

Never Python's own library, nor what is installed, wherever the virtual environment lies. A worker
that is defined in an installed package is covered by the files of that distribution.

Nothing is run or imported to find that out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.workers.coverage import Coverage, is_machine_variable, variables_covered
from leadhand.workers.functions.snapshot import (
    SOURCES,
    Module,
    SnapshotLoader,
    file_of,
    is_project,
    loader_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


PARSED_MAX = 2_000
"""So many files are kept parsed."""
_REACHING = {
    *("setattr", "delattr", "exec", "eval", "compile", "globals", "vars", "locals", "__import__"),
    *("__dict__", "__globals__", "__code__", "__builtins__", "builtins", "modules"),
    *("import_module", "patch", "monkeypatch", "gc", "ctypes"),
}
"""Names by which code changes what is not its own."""
_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}
"""Names of `os` by which code reads environment variables."""


class Import(NamedTuple):
    """One import statement: `from base import names`, or `import base`."""

    level: int
    base: str
    names: tuple[str, ...]


class ParsedSource(NamedTuple):
    """The imports and variables of a source file, found without running it."""

    imports: tuple[Import, ...]
    reaches: bool
    """Whether it can change what belongs to other modules."""
    variables: frozenset[str] = frozenset()
    """Environment variables that it reads by a constant name."""


def modules_of(path: str, module: str = "") -> dict[str, Module]:
    """Return the modules of the project that a file consists of, by name; its own comes first.

    `module` is the name that the file was loaded under.
    """
    path = os.path.realpath(path)
    package = Path(path).name == "__init__.py"
    found = {module: Module(path, package)}
    rest = [(module, Module(path, package))]
    known: dict[str, tuple[str, tuple[str, ...]] | None] = {}
    while rest:
        name, here = rest.pop()
        for each in parsed(here.path).imports:
            for wanted in _wanted(each, name, package=here.package):
                place = None if wanted in found else _located(wanted, known)
                if place is not None and place[0] and is_project(place[0]):
                    found[wanted] = Module(place[0], bool(place[1]))
                    rest.append((wanted, found[wanted]))
        if not rest:  # what was imported by a computed name while the file was loaded
            more = SOURCES.met.get(path, {})
            rest += [(name, each) for name, each in more.items() if name not in found]
            found |= dict(rest)
    return found


def parsed(path: str) -> ParsedSource:
    """Return the imports of a source file; none if it is no source or cannot be read."""
    try:
        source = SOURCES.take(path)
    except OSError:
        return ParsedSource((), reaches=False)
    return _read_text(source.data) if path.endswith(".py") else ParsedSource((), reaches=True)


def imports_of(data: bytes) -> list[str]:
    """Return the names that a source imports, relative ones with their leading dots."""
    found: list[str] = []
    for each in _read_text(data).imports:
        base = "." * each.level + each.base
        found.append(base)
        joined = base if not each.base else f"{base}."
        found += [f"{joined}{name}" for name in each.names if name != "*"]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=PARSED_MAX)
def _read_text(data: bytes) -> ParsedSource:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return ParsedSource((), reaches=True)
    imports: list[Import] = []
    names: set[str] = set()
    stored: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [Import(0, each.name, ()) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            taken = tuple(each.name for each in node.names)
            imports.append(Import(node.level, node.module or "", taken))
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            stored.append(node)
    given = {name for each in imports for name in (*each.names, each.base.partition(".")[0])}
    given |= {each.asname for n in ast.walk(tree) for each in _aliases(n) if each.asname}
    top = {id(n) for each in tree.body for n in _outside_functions(each)}
    reaches = any(id(node) in top or _root(node) in given for node in stored)
    return ParsedSource(
        tuple(dict.fromkeys(imports)),
        reaches=reaches or not names.isdisjoint(_REACHING),
        variables=_variables(tree) if names & _ENVIRONMENT or given & _ENVIRONMENT else frozenset(),
    )


def _variables(tree: ast.AST) -> frozenset[str]:
    """Return the environment variables that code reads by a constant name.

    Found are `os.environ["NAME"]`, its methods, `"NAME" in os.environ` and `os.getenv("NAME")`,
    also where `os`, `environ`, a copy of it, one of its methods, `getenv` or the constant go by
    another name in this file, and where a loop goes through constants.
    """
    nodes = list(ast.walk(tree))
    readers = {*_ENVIRONMENT}
    readers |= {
        each.asname
        for node in nodes
        for each in _aliases(node)
        if each.asname and each.name in _ENVIRONMENT
    }
    texts: dict[str, set[str]] = {}
    for name, value in filter(None, map(_bound, nodes)):
        if _is_reader(value, readers):
            readers.add(name)
        else:
            texts.setdefault(name, set()).update(_texts(value, texts))
    return frozenset(
        text
        for node in nodes
        for base, key in _lookups(node)
        if _is_reader(base, readers)
        for text in _texts(key, texts)
        if text.isprintable() and text and "=" not in text
    )


def _is_reader(node: ast.expr, readers: set[str]) -> bool:
    """Return whether an expression is the environment, a copy of it, or a lookup function of it."""
    match node:
        case ast.Attribute(value=base, attr=name):
            return name in readers or _is_reader(base, readers)
        case ast.Name(id=name):
            return name in readers
        case ast.Call(func=ast.Attribute(value=base, attr="copy"), args=[]):
            return _is_reader(base, readers)
        case ast.Call(func=ast.Name(id="dict"), args=[base]):
            return _is_reader(base, readers)
        case ast.Dict(keys=keys, values=values):  # {**os.environ}
            pairs = zip(keys, values, strict=True)
            return any(key is None and _is_reader(base, readers) for key, base in pairs)
        case _:
            return False


def _bound(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return the name that a statement binds, with its value or the iterable of a loop."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=value):
            return name, value
        case ast.AnnAssign(
            target=ast.Name(id=name) | ast.Attribute(attr=name), value=ast.expr() as value
        ):
            return name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            return name, value
        case ast.For(target=ast.Name(id=name), iter=value):
            return name, value
        case ast.comprehension(target=ast.Name(id=name), iter=value):
            return name, value
        case _:
            return None


def _lookups(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield possible lookups of an expression: the mapping or function, and the key."""
    match node:
        case ast.Subscript(value=base, slice=key, ctx=ast.Load() | ast.Del()):
            yield base, key
        case ast.AugAssign(target=ast.Subscript(value=base, slice=key)):
            yield base, key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[base]):
            yield base, key
        case ast.Call(func=function, args=args, keywords=keywords):
            keys = [*args[:1], *(each.value for each in keywords if each.arg == "key")]
            yield from ((function, key) for key in keys)
        case _:
            pass


def _texts(node: ast.expr, known: Mapping[str, set[str]]) -> set[str]:
    """Return the constant texts that an expression may be, or hold."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return {os.fsdecode(node.value)}
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {text for each in node.elts for text in _texts(each, known)}
    return known.get(_last_name(node), set())


def _last_name(node: ast.AST) -> str:
    """Return `environ` for `os.environ` and for `environ`; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a module is loaded."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for each in ast.iter_child_nodes(node):
            yield from _outside_functions(each)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _wanted(each: Import, module: str, *, package: bool) -> Iterator[str]:
    """Yield the modules that a statement may import: a name from a package may be one."""
    base = each.base
    if each.level:
        parts = module.split(".") if package else module.split(".")[:-1]
        parts = parts[: len(parts) - (each.level - 1)]
        base = ".".join([*parts, base] if base else parts)
    parts = base.split(".") if base else []
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
    for name in each.names:
        if name != "*":
            yield f"{base}.{name}" if base else name
        else:  # what `__all__` names may be modules
            yield from (f"{base}.{each}" for each in _inside(base))


def _inside(package: str) -> Iterator[str]:
    place = _located(package, {})
    for folder in place[1] if place is not None else ():
        if is_project(f"{folder}/__init__.py"):
            yield from sorted(each.stem for each in Path(folder).glob("*.py"))
            yield from sorted(each.parent.name for each in Path(folder).glob("*/__init__.py"))


def _located(
    name: str, known: dict[str, tuple[str, tuple[str, ...]] | None]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the file of a module and the folders of its submodules, importing nothing.

    None if it is not to be found, or belongs to a package that is not the project's.
    """
    if name not in known:
        known[name] = _looked_up(name, known)
    return known[name]


def _looked_up(
    name: str, known: dict[str, tuple[str, tuple[str, ...]] | None]
) -> tuple[str, tuple[str, ...]] | None:
    loaded = getattr(sys.modules.get(name), "__dict__", None)
    if loaded is not None and (loaded.get("__file__") or loaded.get("__path__")):
        return file_of(sys.modules[name]), _folders(loaded.get("__path__"))
    above = None
    if "." in name:
        parent = _located(name.rpartition(".")[0], known)
        if parent is None or not parent[1] or (parent[0] and not is_project(parent[0])):
            return None
        above = list(parent[1])
    for finder in sys.meta_path:
        if finder is SOURCES or not hasattr(finder, "find_spec"):
            continue
        spec = None
        with suppress(Exception):  # a finder of others may raise whatever it likes
            spec = finder.find_spec(name, above)
        if spec is not None:
            file = spec.origin if spec.has_location and spec.origin else ""
            return os.path.realpath(file) if file else "", _folders(spec.submodule_search_locations)
    return None


def _folders(found: Any) -> tuple[str, ...]:
    try:
        return tuple(str(each) for each in found or ())
    except (KeyError, TypeError):  # a namespace whose parent is gone
        return ()


# What a function covers.


def files_of(functions: Iterable[Any]) -> dict[str, str]:
    """Return the files that functions stand in, with the names of their modules."""
    found: dict[str, str] = {}
    for function in functions:
        for each in _chain(function):
            code = getattr(each, "__code__", None)
            if code is not None and not code.co_filename.startswith("<"):
                module = sys.modules.get(str(getattr(each, "__module__", "") or ""))
                path = file_of(module) or os.path.realpath(code.co_filename)
                if os.path.isfile(path):  # noqa: PTH113 - a text already
                    found.setdefault(path, getattr(module, "__name__", "") if module else "")
    return found


def _chain(function: Any) -> Iterator[Any]:
    """Yield a function, the functions it wraps, and the classes behind a bound method."""
    for _ in range(100):
        plain = getattr(function, "__func__", function)
        yield plain
        owner = getattr(function, "__self__", None)
        for kind in type(owner).__mro__ if owner is not None else ():
            for each in vars(kind).values():
                if inspect.isfunction(each):
                    yield each
        function = getattr(plain, "__wrapped__", None) or getattr(plain, "func", None)
        if function is None:
            return


def covered(
    functions: list[Any],
    beside: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
) -> Coverage:
    """Return what the version of a worker made of these functions covers.

    `beside` are the files of the workers that were loaded with it, with their modules' names.
    `secrets` are variables whose values may change: keys are replaced now and then.
    """
    SOURCES.install()
    entries = files_of(functions)
    folder = str(Path(next(iter(entries), "./_")).parent)
    modules: dict[str, str] = {}
    files: dict[str, str] = {}
    for path, name in entries.items():
        if not is_project(path):
            files |= _installed(path)
        modules |= _project_files(path, name)
    for path, name in (beside or {}).items():
        other = {} if path in entries else _project_files(path, name)
        if not modules.keys().isdisjoint(other) or any(parsed(each).reaches for each in other):
            modules |= other
    values: dict[str, str] = {}
    for path, name in sorted(modules.items()):
        files |= _digest_of(path, sys.modules.get(name), _label(path, folder), values)
    read = {name for path in modules for name in parsed(path).variables}
    if named := {each for each in read.difference(secrets) if not is_machine_variable(each)}:
        values |= variables_covered(named, {name: os.environ.get(name) for name in named})
    for number, function in enumerate(functions):
        if not files_of([function]):
            values[f"code {number}"] = hashlib.sha256(_code_of(function)).hexdigest()
    values["which functions of these files"] = ", ".join(map(_place, functions))
    return Coverage(files, values)


def _place(function: Any) -> str:
    """Return which function of its file it is: several may go by one name."""
    plain = inspect.unwrap(function) if callable(function) else function
    line = getattr(getattr(plain, "__code__", None), "co_firstlineno", 0)
    return f"{getattr(plain, '__qualname__', type(plain).__name__)}:{line}"


def _project_files(path: str, module: str) -> dict[str, str]:
    """Return the project's files that a file consists of, with the names of their modules."""
    found = modules_of(path, module)
    return {each.path: name for name, each in found.items() if is_project(each.path)}


def _label(path: str, folder: str) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _digest_of(path: str, module: Any, label: str, values: dict[str, str]) -> dict[str, str]:
    """Return the digest of a file, which is covered from now on; empty if the file is gone."""
    loaded = module is not None and file_of(module) == path
    if loaded and not isinstance(loader_of(module), SnapshotLoader):
        SOURCES.renew(path)
        if other := _other_bytecode(path, module):
            values[f"bytecode of {label}"] = other
    try:
        found = SOURCES.take(path).digest
    except OSError:
        return _archived(path, label)
    SOURCES.covered.add(path)
    return {label: found}


def _archived(path: str, label: str) -> dict[str, str]:
    """Return the digest of the archive that a module lies in; nothing if it is gone."""
    for above in Path(path).parents:
        if above.is_file():
            SOURCES.renew(str(above))
            return {label: SOURCES.take(str(above)).digest}
    return {}


def _other_bytecode(path: str, module: Any) -> str:
    """Return a digest of the cache that a module was loaded from, if its source differs."""
    loader, cached = loader_of(module), getattr(module, "__dict__", {}).get("__cached__")
    if type(loader) is not SourceFileLoader or not cached:
        return ""
    try:
        code = loader.get_code(module.__name__)  # from the cache, as the import took it
        name = code.co_filename if code is not None else path
        if code == compile(SOURCES.take(path).data, name, "exec", dont_inherit=True):
            return ""
        return hashlib.sha256(Path(cached).read_bytes()).hexdigest()
    except (OSError, ValueError, ImportError, SyntaxError, EOFError):
        return ""


def _code_of(function: Any) -> bytes:
    """Return the code of a function that stands in no file."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return (function if isinstance(function, str) else repr(type(function))).encode()
    constants = [each for each in code.co_consts if not inspect.iscode(each)]
    return bytes(code.co_code) + repr((constants, code.co_names)).encode()


def _installed(path: str) -> dict[str, str]:
    """Return the digests of the distribution that a file was installed with."""
    found: dict[str, str] = {}
    for label, file in _distribution(path):
        try:
            SOURCES.renew(str(file))
            found[label] = SOURCES.take(str(file)).digest
        except OSError:
            found[label] = "missing"
    return found


@cache
def _distribution(path: str) -> tuple[tuple[str, Path], ...]:
    """Return the files of the distribution that brought a file; that file alone if none says so."""
    from importlib import metadata

    here = Path(path)
    for folder in here.parents:
        if folder.name not in ("site-packages", "dist-packages"):
            continue
        for each in metadata.distributions(path=[str(folder)]):
            files = each.files or []
            if any(Path(os.path.realpath(str(each.locate_file(f)))) == here for f in files):
                name = f"{each.metadata['Name']} {each.version}"
                return tuple(
                    (f"{name}: {f}", Path(str(each.locate_file(f))))
                    for f in sorted(map(str, files))
                    if f.endswith((".py", ".so", ".pyd", "/METADATA"))
                )
    return ((f"{here.parent.name}/{here.name}", here),)


def source_bytes(function: Callable[..., Any]) -> dict[str, tuple[str, bool, bytes]]:
    """Return the modules that a child process needs, by name: path, whether a package, content."""
    found: dict[str, tuple[str, bool, bytes]] = {}
    for path, module in files_of([function]).items():
        for name, each in modules_of(path, module).items():
            if is_project(each.path) and each.path.endswith(".py"):
                found[name] = (each.path, each.package, SOURCES.take(each.path).data)
    return found
