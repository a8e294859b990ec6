"""Which files decide what a gate's command does: its own, and those that shadow or configure it.

A change of a file that decides what "green" means could make everything green: at once, or for
the change that comes after it. So these files are protected (`fleet/review.py`): a person reads
such a change. And main's copy of them is what a change is judged by (`gate.py`).

    named       a script or Makefile that a command names, what a Makefile includes, `gate_paths`
    shadowing   GNUmakefile beside Makefile, a file of the name of a make target, `pytest.py`, a
                module of the name of one of the standard library's where it would be imported
    configuring conftest.py, pytest.ini, package.json's scripts, .npmrc, sitecustomize.py, *.pth, …
    tools       programs in folders that are on the PATH, node_modules, virtual environments
    git         .gitattributes, .gitmodules: they run programs, and decide what a checkout holds

Of some files only parts count: of pyproject.toml what is below `tool` and `build-system`, of
package.json what is run or configures a runner. A version or a description is no gate file.

`is_test` tells tests by their names. They are no gate files, since tests are what agents write; how
a change of tests is judged stands in `gate.py`.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")
NAMES = frozenset(
    {
        *MAKEFILES,
        *(
            "conftest.py",
            "pytest.ini",
            ".pytest.ini",
            "pytest.toml",
            ".pytest.toml",
            "tox.ini",
            "tox.toml",
        ),
        *("setup.cfg", "noxfile.py", ".coveragerc", "nose2.cfg", "unittest.cfg", "setup.py"),
        *("sitecustomize.py", "usercustomize.py", "pyvenv.cfg", ".python-version"),
        *(".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "pnpm-workspace.yaml"),
        *("lerna.json", "nx.json", "turbo.json", "karma.conf.js", ".taprc", ".swcrc"),
        *("go.work", "build.rs", "Justfile", "justfile", ".justfile", "Taskfile.yml"),
        *("Taskfile.yaml", "Rakefile", ".rspec", "CMakeLists.txt", "meson.build", "phpunit.xml"),
        *("build.gradle", "build.gradle.kts", "settings.gradle", "pom.xml", "phpunit.xml.dist"),
        *(".envrc", ".env", "mise.toml", ".mise.toml", ".tool-versions", "shell.nix", "flake.nix"),
        *(".gitattributes", ".gitmodules", ".gitconfig", ".lfsconfig"),
    }
)
PATTERNS = re.compile(
    r"""(?x) .*\.(mk|mak|pth|egg-link|pyc|pyo|so|pyd|dylib|dll|node)
    | (\.mocharc|\.babelrc|\.nycrc|\.c8rc|\.eslintrc|\.jestrc)(\..*)?
    | (jest|vitest|vite|babel|playwright|cypress|ava|tap|mocha|webpack|rollup|wdio)
      [.\-](config|setup|preset|workspace|global)(\..*)?
    | (setupTests|jest\.setup|vitest\.setup|test[-_]setup)\..* | tsconfig(\..*)?\.json
    | .*\.(cmake|bazel|bzl) | WORKSPACE | BUILD"""
)
FOLDERS = re.compile(
    r"(^|/)(node_modules|\.venv|venv|site-packages|__pycache__|\.cargo|"
    r"__mocks__|[^/]+\.(egg-info|dist-info))/"
)
RUNNERS = frozenset(
    {
        *("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup"),
        *("tomli", "attr", "attrs", "nose", "nose2", "coverage", "pytest_cov", "xdist", "execnet"),
        *("hypothesis", "tox", "nox", "virtualenv", "pip", "setuptools", "pkg_resources", "wheel"),
        *("anyio", "sniffio", "pygments", "colorama", "typing_extensions", "execnet", "mock"),
        *("_distutils_hack", "distutils", "trial", "twisted", "zope", "behave", "robot"),
    }
)
"""Modules of test runners and what they import, which a file of the same name would come before."""
NO_MODULES = frozenset({"this", "antigravity", "idlelib", "turtledemo", "test"})
"""Modules of the standard library that no runner imports, and that projects have of their own."""
PACKAGE_KEYS = frozenset(
    {
        *("scripts", "type", "jest", "mocha", "ava", "tap", "c8", "nyc", "babel", "vitest", "bin"),
        *("imports", "workspaces", "overrides", "resolutions", "pnpm", "packageManager", "engines"),
        *("husky", "lint-staged", "wireit", "eslintConfig", "gypfile", "binary", "os", "cpu"),
    }
)
_PLUGIN = re.compile(r"_?pytest|.*_pytest|_hypothesis")
"""Modules that pytest loads by itself are called so."""
_INCLUDE = re.compile(rb"^\s*-?s?include\s+(.+)$", re.MULTILINE)
_TEST = re.compile(
    r"""(?x) (^|.*/)(tests?|__tests__|spec|specs|testdata|__snapshots__)/.*
    | (^|.*/)(test_[^/]*|[^/]*_test|tests)\.(py|rb|sh|php|lua)
    | (^|.*/)[^/]*[._-](test|spec)\.[cm]?[jt]sx? | (^|.*/)test\.[cm]?[jt]sx? | (^|.*/)[^/]*_test\.go
    | (^|.*/)[^/]*(Test|Tests|Spec|IT)\.(java|kt|scala|cs|swift) | (^|.*/)[^/]*_spec\.rb
    | .*\.(snap|bats|t)"""
)
IS_NAMED = "a command of the gate names it"
SHADOWS = "it would be taken in place of what the gate runs"
CONFIGURES = "it configures what the gate runs"


def is_test(path: str) -> bool:
    """Whether a path is one of a test, or of what tests read, by its name."""
    return bool(_TEST.fullmatch(path))


def named(argv: tuple[str, ...]) -> list[str]:
    """Words of a command that may be files of the repository."""
    words = [*argv]
    if _makes(argv):
        words += [posixpath.join(_place(argv), name) for name in MAKEFILES]
    return _inside(words)


def shadowing(argv: tuple[str, ...]) -> list[str]:
    """What would come before the thing that a command means, if it were there."""
    return [word for word in _inside(_shadowing(argv)) if not {*word} & {*"*?"}]


def on_path(env: Mapping[str, str]) -> list[str]:
    """Folders of the repository that variables make a place of programs or modules."""
    names = ("PATH", "PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB")
    parts = [part for name in names for part in env.get(name, "").split(":")]
    found = [posixpath.normpath(part) for part in parts if part and not part.startswith("/")]
    return [each for each in found if each != "." and ".." not in each.split("/")]


def included(text: bytes, place: str = "") -> list[str]:
    """Files that a Makefile includes, as far as their names stand in it."""
    words = [
        word for line in _INCLUDE.findall(text) for word in line.decode("utf-8", "replace").split()
    ]
    plain = [word for word in words if "$" not in word and not word.startswith("#")]
    return _inside(posixpath.join(place, word) for word in plain)


def by_name(path: str, packages: Iterable[str] = (), known: Iterable[str] = ()) -> str:
    """Why a path is a gate file by its name alone; empty when it is none.

    `packages` are the folders that hold an `__init__.py`: a module in one of them shadows nothing.
    `known` are modules and packages that main has: they shadow nothing that they did not before.
    """
    folder, _, name = path.rpartition("/")
    if name in NAMES or PATTERNS.fullmatch(name):
        return CONFIGURES
    if FOLDERS.search(f"{folder}/" if folder else ""):
        return CONFIGURES
    head = path.split("/")
    inner = {*packages}
    for depth, part in enumerate(head):
        place = "/".join(head[:depth])
        last = depth == len(head) - 1
        stem = part.partition(".")[0] if last and part.endswith((".py", ".pyi", ".so")) else part
        if last and stem == part:
            continue  # no module
        shadowed = (
            stem in RUNNERS
            or _PLUGIN.match(stem)
            or (stem in sys.stdlib_module_names and stem not in NO_MODULES)
        )
        here = "/".join(head[: depth + 1])
        if shadowed and here not in known and place not in inner and (last or here in inner):
            return SHADOWS
    return ""


def part_that_counts(path: str, before: bytes, after: bytes) -> bool | None:
    """Whether a change of a file touches the part of it that a gate reads; None: no such file."""
    name = path.rpartition("/")[2]
    if name == "pyproject.toml":
        keys = ("tool", "build-system")
        return _differ(_toml(before), _toml(after), keys)
    if name == "package.json":
        return _differ(_json(before), _json(after), PACKAGE_KEYS)
    return None


def _differ(before: Any, after: Any, keys: Iterable[str]) -> bool:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return True
    return any(before.get(key) != after.get(key) for key in keys)


def _toml(data: bytes) -> Any:
    try:
        return tomllib.loads(data.decode()) if data else {}
    except (ValueError, RecursionError):
        return None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return None


def _shadowing(argv: tuple[str, ...]) -> Iterator[str]:
    if _makes(argv):
        goals = [word for word in argv[1:] if word[:1] != "-" and "=" not in word]
        for name in (*MAKEFILES, *goals):
            yield posixpath.join(_place(argv), name)
    elif PYTHON.fullmatch(posixpath.basename(argv[0])) and "-m" in argv[:-1]:
        module = argv[argv.index("-m") + 1].partition(".")[0]
        yield from (module, f"{module}.py")


def _inside(words: Iterable[str]) -> list[str]:
    """Those that can be paths in the repository, and more than all of it."""
    found = (posixpath.normpath(word) for word in words if word and word[0] not in "-:/")
    return [word for word in found if word != "." and ".." not in word.split("/")]


def _makes(argv: tuple[str, ...]) -> bool:
    return posixpath.basename(argv[0]) in ("make", "gmake")


def _place(argv: tuple[str, ...]) -> str:
    """The folder that make is told to go to."""
    for at, word in enumerate(argv):
        if word in ("-C", "--directory") and at + 1 < len(argv):
            return argv[at + 1]
        for start in ("--directory=", "-C"):
            if word.startswith(start) and word != start:
                return word.removeprefix(start)
    return ""
