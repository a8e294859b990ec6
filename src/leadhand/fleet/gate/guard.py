"""The guard: gate files and tests that a change touches, and content that must not land.

Two answers, both from git alone, before anything of the change is run:

    guarded     paths that a person must look at, each with the reason: gate files, code
                that reaches for the machinery of tests, tests of main that are changed and tests
                that change others (`test_tampering.py`), links in code's place
    findings    what is refused and goes back to the agent, each by file and line: links that
                leave the repository, commands in .gitmodules, filters in .gitattributes, names
                that differ from others by case only, secrets. A secret itself is never part of
                a finding.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from leadhand.fleet.boundaries import within
from leadhand.fleet.gate import test_tampering
from leadhand.fleet.gate.secret_scan import secrets_in, text_of
from leadhand.fleet.repository.git import printable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadhand.fleet.gate.gate import GateRules
    from leadhand.fleet.merge.same_change import TreeEntry
    from leadhand.fleet.repository.hub import Hub


# Gate files: the files that decide what a gate's command does, or shadow or configure it.
#
# A change of a file that decides what "green" means could make everything green: at once, or for
# the change that comes after it. So these files are protected (`fleet/review.py`): a person reads
# such a change. And main's copy of them is what a change is judged by (`gate.py`).
#
#     named       a script or Makefile that a command names, what a Makefile includes, `gate_paths`
#     shadowing   GNUmakefile beside Makefile, a file of the name of a make target, `pytest.py`, a
#                 module of the name of one of the standard library's where it would be imported
#     configuring conftest.py, pytest.ini, package.json's scripts, .npmrc, sitecustomize.py, *.pth,
# …
#     tools       programs in folders that are on the PATH, node_modules, virtual environments
#     git         .gitattributes, .gitmodules: they run programs, and decide what a checkout holds
#
# Of some files only parts count: of pyproject.toml what is below `tool` and `build-system`, of
# package.json what is run or configures a runner. A version or a description is no gate file.
#
# `is_test` tells tests by their names. They are no gate files, since tests are what agents write;
# how a change of tests is judged stands in `gate.py`.


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
    """Return whether a path belongs to a test, or to a file that tests read, by its name."""
    return bool(_TEST.fullmatch(path))


def files_in_command(argv: tuple[str, ...]) -> list[str]:
    """Words of a command that may be files of the repository."""
    words = [*argv]
    if _makes(argv):
        words += [posixpath.join(_place(argv), name) for name in MAKEFILES]
    return _inside(words)


def shadowing(argv: tuple[str, ...]) -> list[str]:
    """Return the files that would be found before the one that a command means."""
    return [word for word in _inside(_shadowing(argv)) if not {*word} & {*"*?"}]


def on_path(env: Mapping[str, str]) -> list[str]:
    """Folders of the repository that variables make a place of programs or modules."""
    names = ("PATH", "PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB")
    parts = [part for name in names for part in env.get(name, "").split(":")]
    found = [posixpath.normpath(part) for part in parts if part and not part.startswith("/")]
    return [each for each in found if each != "." and ".." not in each.split("/")]


def makefile_includes(text: bytes, place: str = "") -> list[str]:
    """Files that a Makefile includes, as far as their names stand in it."""
    words = [
        word for line in _INCLUDE.findall(text) for word in line.decode("utf-8", "replace").split()
    ]
    plain = [word for word in words if "$" not in word and not word.startswith("#")]
    return _inside(posixpath.join(place, word) for word in plain)


def by_name(path: str, packages: Iterable[str] = (), known: Iterable[str] = ()) -> str:
    """Return why a path is a gate file by its name alone; empty if it is none.

    `packages` are the folders that hold an `__init__.py`: a module in one of them shadows nothing.
    `known` are modules and packages that main has: they shadow nothing new.
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
    """Return whether a change touches the part of a file that a gate reads; None: no such file."""
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
    """Return the words that can be paths in the repository, other than its root."""
    found = (posixpath.normpath(word) for word in words if word and word[0] not in "-:/")
    return [word for word in found if word != "." and ".." not in word.split("/")]


def _makes(argv: tuple[str, ...]) -> bool:
    return posixpath.basename(argv[0]) in ("make", "gmake")


def _place(argv: tuple[str, ...]) -> str:
    """Return the folder that make is told to go to."""
    for at, word in enumerate(argv):
        if word in ("-C", "--directory") and at + 1 < len(argv):
            return argv[at + 1]
        for start in ("--directory=", "-C"):
            if word.startswith(start) and word != start:
                return word.removeprefix(start)
    return ""


LINK, FILES = "120000", ("100644", "100755")
READ_BYTES = 20 << 20
"""As much as is taken of one file from a slot."""
_COMMAND = re.compile(r"^\s*update\s*=\s*!", re.MULTILINE | re.IGNORECASE)
_REMOTE = re.compile(r"^\s*url\s*=\s*(-|ext::|fd::)", re.MULTILINE | re.IGNORECASE)
_FILTER = re.compile(r"(?:^|\s)(filter|merge|diff)=(?!lfs\b)([A-Za-z0-9_-]+)", re.MULTILINE)
BUILT_IN = frozenset(
    {"text", "union", "binary", "ours", "python", "markdown", "html", "css", "java"}
)
"""Drivers of git's own, which run no program."""


async def protected_parts(hub: Hub, rules: GateRules, base: str, head: str) -> dict[str, str]:
    """Return the paths of a change that a person must look at, each with the reason."""
    entries = await hub.entries(base, head)
    if not entries:
        return {}
    found = await _gate_files(hub, rules, base, head, entries)
    blobs = await _contents(hub, entries)
    for entry in entries:
        if entry.path not in found and (why := _reason(entry, blobs, code=rules.tampering)):
            found[entry.path] = why
    return found


def _reason(entry: TreeEntry, blobs: Mapping[str, bytes], *, code: bool) -> str:
    """Return why a person should look at a file that is none of the gate's own.

    `code`: whether suspicious code counts; links and edits of tests always do.
    """
    path, old, new = entry.path, blobs.get(entry.old_blob), blobs.get(entry.blob)
    if entry.mode == LINK:
        return _link_to_code(path, new or b"")
    if is_test(path):
        return test_tampering.suspicious_test_edit(
            path, old, None if entry.status == "D" else new or b""
        )
    return test_tampering.suspicious_code(path, old or b"", new or b"") if code else ""


def _link_to_code(path: str, data: bytes) -> str:
    """Return why a link is suspicious: it is code, or leads to tests, and its name hides that."""
    target = data.decode("utf-8", "replace")
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    codes = any(test_tampering.is_code(each) or is_test(each) for each in (path, end))
    if codes or is_test(f"{end}/x"):
        return "a link in the place of code"
    return by_name(f"{path}/__init__.py", {path})


async def judged_by(
    hub: Hub, rules: GateRules, main: str, tree: str
) -> tuple[list[TreeEntry], list[TreeEntry]]:
    """Return how the gate's own files, and the tests, differ from main's."""
    entries = await hub.entries(main, tree)
    own = await _gate_files(hub, rules, main, tree, entries) if entries else {}
    return (
        [entry for entry in entries if entry.path in own],
        [entry for entry in entries if entry.path not in own and is_test(entry.path)],
    )


async def _gate_files(
    hub: Hub, rules: GateRules, base: str, head: str, entries: Sequence[TreeEntry]
) -> dict[str, str]:
    own = await own_files(hub, rules, base)
    there, before = await _names(hub, head), await _names(hub, base)
    packages = {posixpath.dirname(name) for name in there if name.endswith("/__init__.py")}
    known = _modules(before)
    blobs = await _contents(hub, entries)
    found: dict[str, str] = {}
    for entry in entries:
        why = by_name(entry.path, packages, known)
        old, new = blobs.get(entry.old_blob, b""), blobs.get(entry.blob, b"")
        counts = part_that_counts(entry.path, old, new)
        if within(entry.path, own):
            why = IS_NAMED
        elif counts is not None:
            why = CONFIGURES if counts else ""
        if why:
            found[entry.path] = why
    gone = _uncovered(entries, there)
    changed = {entry.path for entry in entries}
    return found | {name: SHADOWS for name in gone if name in changed}


async def own_files(hub: Hub, rules: GateRules, base: str) -> tuple[str, ...]:
    """Return the gate's own files: configured, named by its commands, shadowing, included."""
    commands = (*rules.commands, *rules.setup)
    words = {name for argv in commands for name in files_in_command(argv)}
    kinds = await kinds_of(hub, base, words)
    found = [name for name, kind in kinds.items() if kind == "blob"]
    shadows = {name for argv in commands for name in shadowing(argv)}
    shadows -= {*await kinds_of(hub, base, shadows)}
    makefiles = [name for name in found if name.rpartition("/")[2] in MAKEFILES]
    seen: set[str] = set()
    while makefiles:
        name = makefiles.pop()
        if name in seen:
            continue
        seen.add(name)
        text = await _text(hub, base, name)
        more = makefile_includes(text, "")
        makefiles += more
        found += more
    return tuple(dict.fromkeys([*rules.gate_paths, *found, *sorted(shadows), *on_path(rules.env)]))


async def kinds_of(hub: Hub, commit: str, names: Iterable[str]) -> dict[str, str]:
    """Return which of these names exist, with the type of each."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    said = await hub.git("ls-tree", "-z", commit, "--", *wanted)
    lines = [line.partition("\t") for line in said.names()]
    return {name: about.split(" ")[1] for about, _, name in lines}


async def findings(hub: Hub, base: str, head: str) -> list[str]:
    """Return what must not land, one line each with file and line, and never the secret."""
    entries = [entry for entry in await hub.entries(base, head) if entry.status != "D"]
    blobs = await _contents(hub, entries)
    found = _by_case(await _names(hub, head), entries) if entries else []
    for entry in entries:
        data = blobs.get(entry.blob, b"")
        found += secrets_in("the name of a file", "", entry.path)
        if entry.mode == LINK:
            found += _link(entry.path, data)
            found += secrets_in(printable_name(entry.path), "", text_of(data))
        elif entry.mode in FILES:
            text = text_of(data[:READ_BYTES])
            found += _git_file(entry.path, text)
            old = text_of(blobs.get(entry.old_blob, b"")[:READ_BYTES])
            found += await asyncio.to_thread(secrets_in, printable_name(entry.path), old, text)
    return found


def _by_case(there: Sequence[str], entries: Sequence[TreeEntry]) -> list[str]:
    """New names that differ from others by case only: on some machines they are one file."""
    seen: dict[str, set[str]] = {}
    for name in there:
        seen.setdefault(name.casefold(), set()).add(name)
    return [
        f"{printable_name(entry.path)}: a name that differs from another one by case only"
        for entry in entries
        if entry.status == "A" and len(seen[entry.path.casefold()]) > 1
    ]


def _link(path: str, data: bytes) -> list[str]:
    target = data.decode("utf-8", "replace")
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    leaves = target.startswith("/") or end.split("/")[0] == ".." or ".git" in end.split("/")
    return [f"{printable_name(path)}: a link that leaves the repository"] if leaves else []


def _git_file(path: str, text: str) -> list[str]:
    name, where = posixpath.basename(path), printable_name(path)
    if name == ".gitmodules":
        pairs = ((_COMMAND, "a submodule that runs a command"), (_REMOTE, "such an address"))
        return [f"{where}:{_line(text, m.start())}: {w}" for p, w in pairs if (m := p.search(text))]
    if name == ".gitattributes":
        return [
            f"{where}:{_line(text, match.start())}: a {match[1]} that runs a program"
            for match in _FILTER.finditer(text)
            if match[2] not in BUILT_IN
        ]
    return []


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at + 1) + 1


async def _contents(hub: Hub, entries: Sequence[TreeEntry]) -> dict[str, bytes]:
    """Return the contents of a change's files, before and after; submodules have none."""
    shas = [
        sha
        for entry in entries
        for sha, mode in ((entry.old_blob, entry.old_mode), (entry.blob, entry.mode))
        if mode in (LINK, *FILES)
    ]
    return await hub.blobs(dict.fromkeys(shas)) if shas else {}


async def _names(hub: Hub, commit: str) -> list[str]:
    return (await hub.git("ls-tree", "-r", "-z", "--name-only", commit)).names()


async def _text(hub: Hub, commit: str, name: str) -> bytes:
    said = await hub.git("cat-file", "blob", f"{commit}:{name}", codes=(0, 128))
    return said.out if said.code == 0 else b""


def _modules(names: Iterable[str]) -> set[str]:
    """Files and packages, by their paths."""
    found: set[str] = set()
    for name in names:
        found.add(name)
        if name.endswith("/__init__.py"):
            found.add(posixpath.dirname(name))
    return found


def _uncovered(entries: Sequence[TreeEntry], there: Sequence[str]) -> list[str]:
    """Modules that begin to shadow something since the `__init__.py` beside them is gone."""
    gone = {
        posixpath.dirname(entry.path)
        for entry in entries
        if entry.status == "D" and entry.path.endswith("/__init__.py")
    }
    return [name for name in there if posixpath.dirname(name) in gone and by_name(name)]
