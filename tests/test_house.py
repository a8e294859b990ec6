"""The house rules that no linter knows: locks, paths, sizes, banned calls, commands."""

import ast
import inspect
import os
import re
import shutil
import socket
import subprocess
import tokenize
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leadhand
import leadhand.testing
from leadhand import ports
from tests import conftest
from tests.support import wheel
from tests.support.need import need

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

FUNCTION_LINES_MAX = 70

TARGETS = [
    "audit",
    "bench",
    "bench-temporal",
    "calibrate",
    "check",
    "clean",
    "demo",
    "docs",
    "evals",
    "fast",
    "help",
    "hostile",
    "image",
    "image-rootfs",
    "lock",
    "mutants",
    "pictures",
    "proof",
    "reference",
    "sim",
    "test",
]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- locks ---------------------------------------------------------------------------------


def pins(lock: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock.read_text(), re.MULTILINE)
    return {normal(name): version for name, version in found}


def test_there_are_locks():
    """The other tests of locks would pass on an empty folder."""
    assert {lock.stem for lock in LOCKS} >= {"base", "build", "dev", "bench", "lock"}


@pytest.mark.parametrize("lock", LOCKS, ids=relative)
def test_every_locked_package_is_pinned_by_hash(lock):
    """An entry is `name==version` with at least one sha256, and there are no other entries."""
    text = re.sub(r"(?m)^\s*#.*\n", "", lock.read_text()).replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line.strip()]
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[a-z0-9._-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry), entry


@pytest.mark.parametrize("lock", LOCKS, ids=relative)
def test_locks_do_not_say_where_packages_come_from(lock):
    """A hash says what a package is; a host or a path would say whose machine wrote the file."""
    outside = r"://|@|--(?!hash=)|index-url|find-links|trusted-host|(?<![\w.-])/\w"
    host = r"\b[a-z0-9-]+\.(?:com|org|net|io|dev|cloud|internal|local|lan)\b"
    found = re.findall(f"(?:{outside}|{host}).*", lock.read_text())
    assert not found


def test_every_dependency_is_locked():
    """Each dependency is in the run lock, and in the dev lock at the same version."""
    base, dev = pins(ROOT / "requirements/base.txt"), pins(ROOT / "requirements/dev.txt")
    declared = [re.match(r"[A-Za-z0-9._-]+", line) for line in PROJECT["project"]["dependencies"]]
    assert {normal(match[0]) for match in declared if match} <= base.keys()
    assert base.items() <= dev.items()


def test_the_build_tool_is_locked_at_one_version():
    """An editable install resolves nothing, so dev must bring what build brings."""
    build, dev = pins(ROOT / "requirements/build.txt"), pins(ROOT / "requirements/dev.txt")
    assert "hatchling" in build
    assert build.items() <= dev.items()


# --- the fast loop -------------------------------------------------------------------------


def test_what_is_quick_exists():
    """A folder or file that was renamed would fall out of `make fast` in silence."""
    assert not [name for name in conftest.QUICK if not (ROOT / "tests" / name).exists()]


def test_new_places_are_slow_until_they_are_listed():
    """Where a test stands decides: a listed folder, a listed file, or slow; `real` is slow."""
    tests = ROOT / "tests"
    slow = conftest.is_slow
    assert not slow(tests / "core" / "test_new.py")
    assert slow(tests / "core" / "test_new.py", real=True)
    assert slow(tests / "somewhere" / "test_new.py")
    assert slow(tests / "test_new.py")
    assert not slow(tests / "acceptance" / "test_cli_newcomers.py", real=True)


# --- paths ---------------------------------------------------------------------------------


def tracked() -> list[Path]:
    """Files git knows or would add."""
    need(shutil.which("git") and (ROOT / ".git").exists(), "a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in files if path.is_file()]


def test_no_path_of_a_machine_is_tracked():
    """Not this checkout's place, not this home folder, nobody's home folder."""
    places = [re.escape(str(place)) for place in (ROOT, Path.home()) if len(place.parts) > 1]
    homes = [r"/(?:home|Users)/[\w.-]+", "/" + "root", r"[A-Z]:\\Users\\"]
    pattern = re.compile(rf"(?<![\w.*}}$-])(?:{'|'.join(places + homes)})(?=[/\\])")
    found = [
        f"{relative(path)}: {match[0]}"
        for path in tracked()
        for match in pattern.finditer(path.read_text(errors="replace"))
        if path != Path(__file__).resolve()
    ]
    assert not found


# --- sizes and calls -----------------------------------------------------------------------


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(), filename=str(path)))


def test_functions_stay_short():
    """A function that outgrows the cap is split; there is no list of exceptions."""
    assert not [
        f"{relative(path)}:{node.lineno}: {node.name} has {length} lines"
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


THEIRS = {"json.py", "pytest.py", "src/main.py", "workers.py"}
"""Files of users and of Python that comments of ours speak of."""


NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")


def modules_named(path: Path) -> set[str]:
    """Return the files that a module's comments and docstrings name."""
    if not NAMED.search(path.read_text()):
        return set()
    with path.open("rb") as file:
        return {
            name
            for token in tokenize.tokenize(file.readline)
            if token.type == tokenize.COMMENT or token.string.startswith('"""')
            for name in NAMED.findall(token.string)
        }


def test_modules_that_comments_name_exist():
    """A comment or docstring that names `fold.py` or `engine/fold.py` outlives no move."""
    known = [f"/{relative(each)}" for each in (*SOURCES, *(ROOT / "tests").rglob("*.py"))]
    assert not [
        f"{relative(path)} names {name}"
        for path in SOURCES
        for name in modules_named(path) - THEIRS
        if not any(each.endswith(f"/{name}") for each in known)
    ]


BANNED_MODULES = {"dill", "marshal", "pickle", "shelve"}
BANNED_CALLS = {"eval", "exec", "os.popen", "os.system", "yaml.load", "yaml.full_load"}
SQL_CALLS = {"execute", "executemany", "executescript"}


def offences(tree: Iterator[ast.AST]) -> Iterator[str]:
    for node in tree:
        match node:
            case ast.Import(names=names):
                yield from (n.name for n in names if n.name.split(".")[0] in BANNED_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in BANNED_MODULES:
                yield module
            case ast.Call(func=func, args=args, keywords=keywords):
                name = ast.unparse(func)
                if name in BANNED_CALLS:
                    yield f"{name}()"
                if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in keywords):
                    yield f"{name}(shell=)"
                if name.split(".")[-1] in SQL_CALLS and args and pasted(args[0]):
                    yield f"{name}: SQL put together from pieces"


def pasted(node: ast.expr) -> bool:
    """Whether a text is an f-string, or made by `+`, `%` or `format`."""
    return isinstance(node, ast.JoinedStr | ast.BinOp) or (
        isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".format")
    )


def test_no_banned_call():
    """Stored data is never code, commands are never shell strings, SQL is never pasted."""
    assert not [
        f"{relative(path)}: {offence}" for path in SOURCES for offence in offences(nodes(path))
    ]


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from shelve import open",
        "import marshal as m",
        "eval('1')",
        "exec('x = 1')",
        "yaml.load(text)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "db.execute(f'DELETE FROM {table}')",
        "db.execute('DELETE FROM %s' % table)",
        "db.executescript('DROP TABLE {}'.format(table))",
    ],
)
def test_the_ban_has_teeth(code):
    """A rule that cannot fail protects nothing."""
    assert len(list(offences(ast.walk(ast.parse(code))))) == 1


# --- docstrings of the public API ----------------------------------------------------------


PORTS = [each for each in vars(ports).values() if getattr(each, "_is_protocol", False)]


def public_api() -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions that users import or implement, by name."""
    own = [name for name, each in vars(ports).items() if each.__class__ and name[0] != "_"]
    own = [
        name for name in own if getattr(getattr(ports, name), "__module__", "") == ports.__name__
    ]
    homes = [(leadhand, leadhand.__all__), (leadhand.testing, leadhand.testing.__all__)]
    for module, names in (*homes, (ports, own)):
        for name in names:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties written in a class, and its constructor."""
    for name, value in vars(kind).items():
        found = getattr(value, "fget", None) or getattr(value, "__func__", value)
        written = inspect.isfunction(found) and found.__code__.co_filename.startswith(str(ROOT))
        bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("asyncio")]
        foreign = any(name in vars(base) for base in bases)
        if written and not foreign and (name[0] != "_" or name in ("__init__", "__call__")):
            yield name, found


def undocumented(name: str, found: Any) -> Iterator[str]:
    """Yield what the docstrings of a class or function leave out.

    Each class, function, method and property has a docstring, and each parameter is named in the
    docstring of its function, of the class, of the constructor, or of the port that it implements.
    """
    several, around = [("", found)], ""
    if inspect.isclass(found):
        several = list(methods(found))
        around = f"{vars(found).get('__doc__')} {found.__init__.__doc__}"
        if not vars(found).get("__doc__"):
            yield f"{name} has no docstring"
    for method, function in several:
        place = f"{name}.{method}" if method else name
        own = function.__doc__ or ""
        if not own and method != "__init__":
            yield f"{place} has no docstring"
        port = [vars(each)[method].__doc__ for each in PORTS if method in vars(each)]
        words = set(re.findall(r"\w+", " ".join(filter(None, (own, around, *port)))))
        for each in inspect.signature(function).parameters:
            if each not in ("self", "cls", *words) and each[0] != "_":
                yield f"{place} does not say what {each} is"


def test_the_public_api_has_docstrings_that_name_its_parameters():
    """A user reads them in an editor; nothing else tells what an argument means."""
    assert not [missing for name, found in public_api() for missing in undocumented(name, found)]


NO_VERB = re.compile(
    r"(?:An?|The|All|Each|Every|Everything|Some|One|It|This|These|Those|Until|Nothing|Nobody"
    r"|What|Whatever|Whether|Who|Whoever|Whose|Which|How|Where|When|Why)\b"
)
"""Words that begin the description of a thing, or a riddle, and no instruction."""

SHOWN = ("property", "setter", "command", "group", "click.", "router.", "worker")
"""Decorators of functions whose docstrings name a thing, or are printed for users."""


def undirected(tree: ast.AST) -> Iterator[str]:
    """Yield the functions of a module whose docstring does not begin with what they do."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorated = " ".join(map(ast.unparse, node.decorator_list))
        if NO_VERB.match(ast.get_docstring(node) or "") and not any(
            each in decorated for each in SHOWN
        ):
            yield node.name


def test_docstrings_of_functions_begin_with_what_they_do():
    """`Return the goal with …`, not `The goal that …`: callers read what a function does."""
    assert not [
        f"{relative(path)}: {name}"
        for path in SOURCES
        for name in undirected(ast.parse(path.read_text()))
    ]


def test_a_docstring_without_a_verb_is_found():
    """A rule that cannot fail protects nothing."""
    found = 'def a(): "The sum."\ndef b(): "Return it."\n@property\ndef c(): "The sum."'
    assert list(undirected(ast.parse(found))) == ["a"]


def test_a_missing_docstring_is_found():
    """A rule that cannot fail protects nothing."""

    class Bare:
        def silent(self, count): ...

        def told(self, count, more):
            """Tell how `count` is used."""

    assert list(undocumented("Bare", Bare)) == [
        "Bare has no docstring",
        "Bare.silent has no docstring",
        "Bare.silent does not say what count is",
        "Bare.told does not say what more is",
    ]


# --- commands and package ------------------------------------------------------------------


def test_make_help_lists_every_command():
    """`make` alone says all that can be done."""
    need(shutil.which("make"), "make")
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make"], cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=60
    )
    listed = re.findall(r"^  make ([a-z-]+) +\S", done.stdout, re.MULTILINE)
    assert sorted(listed) == TARGETS
    assert not done.stderr


DEMO = ("leadhand.toml", "server.py", "workers.py")


def test_the_wheel_holds_code_and_data(tmp_path):
    """SQL, templates and the typing marker are part of the package, not only of the checkout."""
    held = set(zipfile.ZipFile(wheel.build(tmp_path)).namelist())
    wanted = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and (path.suffix in {".py", ".sql"} or "templates" in path.parts)
        if "__pycache__" not in path.parts
    }
    assert "leadhand/audit/templates/export.html" in wanted
    assert "leadhand/cli/templates/release/plan.yaml" in wanted
    assert wanted | {"leadhand/py.typed"} <= held
    assert {f"leadhand/examples/research/{name}" for name in DEMO} <= held
    assert not [name for name in held if "__pycache__" in name]


# --- the tests themselves ------------------------------------------------------------------


def test_what_is_needed_and_missing_skips_here_and_fails_on_ci(monkeypatch):
    """A skip is a notice to a person; CI has none to read it."""
    need(condition=True, why="nothing")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="a tool"):
        need(condition=False, why="a tool")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="a tool"):
        need(condition=False, why="a tool")


def test_tests_cannot_leave_this_machine():
    """The address is one that is reserved for documentation: nothing would answer anyway."""
    with socket.socket() as sock, pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
        sock.connect(("192.0.2.1", 80))
