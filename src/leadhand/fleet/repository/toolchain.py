"""The toolchain of a repository: how its files say that it is set up, tested and deployed.

Only names and texts of files are read, out of one commit; nothing of the repository is executed,
and no link is followed. What is found is a proposal for `leadhand.toml`, each part with the file
that it comes from. A text of the repository never becomes a command: commands are those of this
module, and a path is put into one only if it has nothing but letters, digits and `._/@+-`.

What package managers download for a checkout goes to a folder of the checkout (`download_folders`):
set-up, gate and agent have different homes, and each must find it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SAFE_PATH = re.compile(r"(?!-)[A-Za-z0-9._@+][A-Za-z0-9._/@+-]*")
TEXT_BYTES_MAX = 256 << 10
"""A larger file is not read."""
READ_MAX = 300
DEPTH_MAX = 3
PARTS_MAX = 6
"""The most sub-projects of a repository that has nothing at its root."""
SAMPLES_MAX = 40
"""The most files of tests that are read to find out which runner they are for."""
CI_LINES_MAX = 8
CI_CHARS_MAX = 100

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
JUSTFILES = ("justfile", "Justfile", ".justfile")
CI_FILES = (
    ".gitlab-ci.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
    ".travis.yml",
    "bitbucket-pipelines.yml",
)
GRADLE_BUILDS = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
MANIFESTS = (
    "package.json",
    "go.mod",
    "Cargo.toml",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "pom.xml",
    *GRADLE_BUILDS,
)
LOCKFILES = {
    "uv.lock": "Python",
    "poetry.lock": "Python",
    "pdm.lock": "Python",
    "Pipfile.lock": "Python",
    "package-lock.json": "Node",
    "npm-shrinkwrap.json": "Node",
    "yarn.lock": "Node",
    "pnpm-lock.yaml": "Node",
    "bun.lock": "Node",
    "bun.lockb": "Node",
    "go.sum": "Go",
    "Cargo.lock": "Rust",
    "Gemfile.lock": "Ruby",
    "composer.lock": "PHP",
}
LANGUAGES = {
    "py": "Python",
    "js": "JavaScript",
    "mjs": "JavaScript",
    "jsx": "JavaScript",
    "ts": "TypeScript",
    "tsx": "TypeScript",
    "go": "Go",
    "rs": "Rust",
    "java": "Java",
    "kt": "Kotlin",
    "rb": "Ruby",
    "php": "PHP",
    "cs": "C#",
    "c": "C",
    "cc": "C++",
    "cpp": "C++",
    "swift": "Swift",
    "sh": "shell",
}
DEPLOYMENT = (
    "deploy",
    "deployment",
    "infra",
    "terraform",
    "k8s",
    "kubernetes",
    "helm",
    "charts",
    "ansible",
)
MIGRATIONS = ("migrations", "migrate")
TEST_PY = re.compile(r"(?:.*/)?(?:test_[^/]*|[^/]*_test)\.py")
TEST_JAVA = re.compile(
    r"(?:.*/)?src/test/(?:java|kotlin)/(?:.*/)?((?:Test[^/]*|[^/]*Tests?|[^/]*TestCase))\.(?:java|kt)"
)
"""The classes that Maven takes for tests by their names."""
TEST_JS = re.compile(r"(?:.*/)?[^/]*\.(?:test|spec)\.[cm]?[jt]sx?|(?:.*/)?__tests__/[^/]+")
NO_TEST = re.compile(r"|true|:|exit 0|echo\b[^&|;]{0,200}|echo\b.{0,200}no test specified.{0,200}")
"""Scripts of package.json that cannot fail, and the one that `npm init` writes."""
NETWORK_SCRIPT = re.compile(r"\b(?:npx|audit|aud|publish|codecov|coveralls)\b")
"""Words of scripts that ask a registry or a service, which a gate cannot reach."""
LINE_CHARS_MAX = 2_000
DOWNLOADS = ".leadhand-downloads"
"""The folder of a checkout that holds what its package managers downloaded; no work of an agent."""


def download_folders(checkout: Path) -> dict[str, str]:
    """Return the environment that leads downloads of package managers into a checkout.

    Those that install into the checkout anyway (npm, a virtual environment) need nothing.
    """
    folder = checkout / DOWNLOADS
    return {
        "CARGO_HOME": str(folder / "cargo"),
        "GOFLAGS": "-modcacherw",  # else the modules could not be removed
        "GOMODCACHE": str(folder / "go"),
        "GRADLE_USER_HOME": str(folder / "gradle"),
        "MAVEN_OPTS": f"-Dmaven.repo.local={folder / 'maven'}",
    }


class ToolCommand(NamedTuple):
    """A command of the gate or of the set-up, and why it is proposed."""

    argv: tuple[str, ...]
    why: str


class PathPattern(NamedTuple):
    """A pattern of paths, and why it is proposed."""

    pattern: str
    why: str


@dataclass(slots=True)
class Toolchain:
    """What was found. `todo` holds sentences about what is missing or could not be read."""

    languages: list[str] = field(default_factory=list)
    setup: list[ToolCommand] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    """Which programs of the set-up download packages, each with its file. The hosts are a matter of
    the machine (a mirror, a private index), so none is guessed from what the repository holds."""
    checks: list[ToolCommand] = field(default_factory=list)
    """Lint and type checks."""
    tests: list[ToolCommand] = field(default_factory=list)
    protected: list[PathPattern] = field(default_factory=list)
    reports: list[PathPattern] = field(default_factory=list)
    """JUnit XML that the tests write."""
    ci: list[tuple[str, str]] = field(default_factory=list)
    """Commands of CI files, as they stand there: for a comment, never to be executed."""
    notes: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Files that should tell more and could not be read."""
    todo: list[str] = field(default_factory=list)

    def take(self, other: Toolchain, *, tests: bool = True) -> None:
        """Add what was found elsewhere in the repository; `tests=False`: no gate commands."""
        here = {each.argv for each in self.setup}
        self.setup += [each for each in other.setup if each.argv not in here]
        self.downloads += [each for each in other.downloads if each not in self.downloads]
        self.notes += other.notes
        self.unreadable += other.unreadable
        if tests:
            self.checks += other.checks
            self.tests += other.tests
            self.reports += [each for each in other.reports if each not in self.reports]
            self.todo += other.todo

    @property
    def gate(self) -> list[ToolCommand]:
        """Return the commands of the gate; none where no tests were found."""
        return [*self.checks, *self.tests] if self.tests else []


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """The regular files of a commit: their sizes, and the texts of those that were read."""

    sizes: Mapping[str, int]
    texts: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return the text of a file; empty if there is none, or it was not read."""
        return self.texts.get(name, "")

    def first(self, names: Iterable[str], folder: str = "") -> str:
        """Return the path of the first of these names that is in a folder, or an empty text."""
        return next((each for name in names if (each := join(folder, name)) in self.sizes), "")

    def below(self, folder: str) -> Iterator[str]:
        """Yield the paths below a folder."""
        start = f"{folder}/" if folder else ""
        return (name for name in self.sizes if name.startswith(start))


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def wanted_texts(sizes: Mapping[str, int]) -> list[str]:
    """Return the files whose text `detect` looks at, the most important ones first."""
    named = {*MAKEFILES, *JUSTFILES, *MANIFESTS, *CI_FILES, "tox.ini", "pytest.ini", ".pytest.ini"}
    named |= {"ruff.toml", ".ruff.toml", "mypy.ini", "noxfile.py", "package-lock.json"}
    named |= {"rust-toolchain", "rust-toolchain.toml"}
    ranked: list[tuple[int, str]] = []
    samples: Counter[str] = Counter()
    for name, size in sizes.items():
        base, depth = name.rpartition("/")[2], name.count("/")
        if not 0 < size <= TEXT_BYTES_MAX:
            continue
        if depth <= DEPTH_MAX and (base in named or _is_requirements(base) or _is_workflow(name)):
            ranked.append((depth, name))
        elif TEST_PY.fullmatch(name) or base.endswith(".rs") or TEST_JAVA.fullmatch(name):
            kind = base.rpartition(".")[2]
            samples[kind] += 1
            if samples[kind] <= SAMPLES_MAX:
                ranked.append((100, name))
    return [name for _, name in sorted(ranked)[:READ_MAX]]


def detect(files: CommitFiles) -> Toolchain:
    """Return what the files of a commit say about set-up, tests, lint and protected paths."""
    found = Toolchain(languages=languages(files))
    _root(files, found)
    if not found.tests and not found.checks:
        for folder in _sub_projects(files):
            for part in (_node, _go, _rust, _java, _python):
                found.take(part(files, folder))
    found.protected = list(_protected(files))
    found.ci = list(_ci(files))
    if not found.tests:
        found.todo.insert(0, "no tests were found, so there is no gate yet")
    return found


def _root(files: CommitFiles, found: Toolchain) -> None:
    """Look at the root: the targets of make or just come before what languages propose."""
    made = _make(files)
    for part in (_node, _go, _rust, _java, _python):
        found.take(part(files, ""), tests=not made.tests)
    if made.setup:
        found.setup = made.setup
    found.checks += made.checks
    found.tests += made.tests
    found.unreadable += made.unreadable


def _sub_projects(files: CommitFiles) -> list[str]:
    """Return the folders that hold a project of their own, the topmost ones."""
    folders = {
        name.rpartition("/")[0]
        for name in files.sizes
        if name.rpartition("/")[2] in MANIFESTS and 0 < name.count("/") <= DEPTH_MAX
    }
    top = [
        each
        for each in sorted(folders)
        if SAFE_PATH.fullmatch(each)
        and not {"node_modules", "vendor", "third_party", "examples", "testdata"}
        & {*each.split("/")}
        and not any(each.startswith(f"{other}/") for other in folders)
    ]
    return top[:PARTS_MAX]


def languages(files: CommitFiles) -> list[str]:
    """Return the languages of a commit, the most frequent first; at most four."""
    found: Counter[str] = Counter()
    for name in files.sizes:
        base = name.rpartition("/")[2]
        if "." in base and (language := LANGUAGES.get(base.rpartition(".")[2].lower())):
            found[language] += 1
    return [name for name, _ in found.most_common(4)]


# Make and just.


def _make(files: CommitFiles) -> Toolchain:
    found = Toolchain()
    for program, names in (("make", MAKEFILES), ("just", JUSTFILES)):
        file = files.first(names)
        if not file:
            continue
        rules = targets(files.text(file))
        if not files.text(file) and files.sizes[file]:
            found.unreadable.append(f"{file}: it is too large, or not a text")
        there = [name for name in ("lint", "check", "test") if name in rules]
        for name in there:
            if any(name in rules[other] for other in there):
                continue  # another target runs it
            command = ToolCommand((program, name), f"{file} has the target {name}")
            (found.checks if name == "lint" else found.tests).append(command)
        for goal in ("setup", "bootstrap", "deps", "install-deps"):
            if goal in rules and not found.setup:
                found.setup = [ToolCommand((program, goal), f"{file} has the target {goal}")]
        if found.tests:
            break
    return found


def targets(text: str) -> dict[str, set[str]]:
    """Return the targets of a Makefile or justfile with their prerequisites, by a plain look."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        head, colon, rest = line[:LINE_CHARS_MAX].partition(":")
        words = head.split()
        if not colon or rest.startswith("=") or not head[:1].isalnum():
            continue
        if "=" in words[0] or any(word.endswith("=") for word in words):
            continue  # a variable
        rest = rest.removeprefix(":").partition("#")[0].partition(";")[0]
        if rest.startswith("="):
            continue
        for name in words:
            found.setdefault(name, set()).update(rest.split())
    return found


# Node.


def _node(files: CommitFiles, folder: str) -> Toolchain:
    found, file = Toolchain(), join(folder, "package.json")
    if file not in files.sizes:
        return found
    package = _json(files, file, found)
    if package is None:
        return found
    manager, lock = _node_manager(files, folder, package)
    where = ("--prefix", folder) if folder and manager == "npm" else ()
    if folder and manager != "npm":
        where = ("--cwd", folder) if manager in ("yarn", "bun") else ("--dir", folder)
    if _table(package, "dependencies") or _table(package, "devDependencies"):
        words = {
            "npm": ("ci",) if lock else ("install", "--no-audit"),
            "yarn": ("install", "--frozen-lockfile"),
            "pnpm": ("install", "--frozen-lockfile"),
            "bun": ("install", "--frozen-lockfile"),
        }[manager]
        found.setup.append(ToolCommand((manager, *where, *words), lock or file))
        found.downloads.append(f"{manager} downloads packages ({lock or file})")
    scripts = _table(package, "scripts")
    for name in ("lint", "typecheck", "type-check"):
        if _is_script(scripts.get(name)):
            why = f'{file} has the script "{name}"'
            found.checks.append(ToolCommand((manager, *where, "run", name), why))
    test = scripts.get("test")
    if _is_script(test):
        words = ("run", "test") if manager == "bun" else ("test",)
        why = f'{file} has the script "test"'
        around = [n for n in ("pretest", "posttest") if NETWORK_SCRIPT.search(str(scripts.get(n)))]
        if around and manager == "npm":
            words = (*words, "--ignore-scripts")
            why = f"{why}; left out: {' and '.join(around)}, which would need the network"
        found.tests.append(ToolCommand((manager, *where, *words), why))
    elif test is not None:
        found.todo.append(f'the script "test" of {file} tests nothing')
    hooks = [n for n in ("preinstall", "install", "postinstall", "prepare") if n in scripts]
    if hooks and found.setup:
        found.notes.append(f"{file} has scripts that run during set-up: {', '.join(hooks)}")
    return found


def _node_manager(files: CommitFiles, folder: str, package: Mapping[str, Any]) -> tuple[str, str]:
    """Return the package manager, by the lockfile or by `packageManager`, and the lockfile."""
    locks = {
        "pnpm": ("pnpm-lock.yaml",),
        "yarn": ("yarn.lock",),
        "bun": ("bun.lock", "bun.lockb"),
        "npm": ("package-lock.json", "npm-shrinkwrap.json"),
    }
    for manager, names in locks.items():
        if lock := files.first(names, folder):
            return manager, lock
    said = package.get("packageManager")
    name = said.partition("@")[0] if isinstance(said, str) else ""
    return (name if name in locks else "npm"), ""


def _is_script(value: object) -> bool:
    return isinstance(value, str) and not NO_TEST.fullmatch(value.strip()[:LINE_CHARS_MAX])


# Go and Rust.


def _go(files: CommitFiles, folder: str) -> Toolchain:
    found, file = Toolchain(), join(folder, "go.mod")
    if file not in files.sizes:
        return found
    where = ("-C", folder) if folder else ()
    if re.search(r"^[ \t]*require\b", files.text(file), re.MULTILINE):
        found.setup.append(
            ToolCommand(("go", *where, "mod", "download"), f"{file} has requirements")
        )
        found.downloads.append(f"go downloads modules ({file})")
    found.checks.append(ToolCommand(("go", *where, "vet", "./..."), file))
    if any(name.endswith("_test.go") for name in files.below(folder)):
        why = f"{file}, *_test.go; -json: tests are counted by name"
        found.tests.append(ToolCommand(("go", *where, "test", "-json", "./..."), why))
    return found


def _rust(files: CommitFiles, folder: str) -> Toolchain:
    found, file = Toolchain(), join(folder, "Cargo.toml")
    if file not in files.sizes:
        return found
    manifest = _toml(files, file, found)
    if manifest is None:
        return found
    where = ("--manifest-path", file) if folder else ()
    locked = ("--locked",) if files.first(("Cargo.lock",), folder) else ()
    needs = re.search(
        r"^\[(?:[\w.-]+\.)?(?:dev-|build-)?dependencies", files.text(file), re.MULTILINE
    )
    if needs or "workspace" in manifest:
        found.setup.append(ToolCommand(("cargo", "fetch", *where, *locked), file))
        found.downloads.append(f"cargo downloads crates ({file})")
    if lint := files.first(("rustfmt.toml", ".rustfmt.toml"), folder):
        found.checks.append(ToolCommand(("cargo", "fmt", *where, "--check"), lint))
    sources = [name for name in files.below(folder) if name.endswith(".rs")]
    own = any(name.startswith(join(folder, "tests/")) for name in sources)
    if own or any("#[test]" in files.text(name) for name in sources):
        why = f"{file}; tests are not counted by name, so exit codes decide"
        found.tests.append(ToolCommand(("cargo", "test", *where, *locked), why))
    return found


# Java.


def _java(files: CommitFiles, folder: str) -> Toolchain:
    """Look at a build by Maven, else by Gradle."""
    classes = {
        found[1]: "@Test" in files.text(name)
        for name in sorted(files.below(folder))
        if (found := TEST_JAVA.fullmatch(name))
    }
    if pom := files.first(("pom.xml",), folder):
        return _maven(files, folder, pom, classes)
    if build := files.first(GRADLE_BUILDS, folder):
        return _gradle(files, folder, build, classes)
    return Toolchain()


def _maven(files: CommitFiles, folder: str, pom: str, classes: Mapping[str, bool]) -> Toolchain:
    """Propose Maven; `classes` says of each test class whether it was seen to hold a test."""
    found = Toolchain()
    start = ("mvn", "-B", "-ntp", *(("-f", pom) if folder else ()))
    # The engine of the tests is loaded when a test runs, which `dependency:go-offline` does not do:
    # so set-up runs one test, whatever becomes of it.
    named = (name for name, is_test in classes.items() if is_test)
    safe = next((name for name in named if re.fullmatch(r"[A-Za-z0-9_]+", name)), "")
    one = (f"-Dtest={safe}", "-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false")
    ignore = "-Dmaven.test.failure.ignore=true"
    why = f"{pom}; one test is run, since that loads what tests need"
    found.setup.append(ToolCommand((*start, *(one if safe else ()), ignore, "test"), why))
    found.downloads.append(f"Maven downloads plugins and libraries ({pom})")
    if files.first(("mvnw",), folder):
        found.notes.append("mvn of this machine is used: mvnw would download Maven itself")
    if classes:
        found.tests.append(ToolCommand((*start, "-o", "test"), f"{pom}, src/test"))
        reports = join(folder, "**/target/surefire-reports/TEST-*.xml")
        found.reports.append(PathPattern(reports, "Surefire's reports: tests are counted by name"))
    return found


def _gradle(files: CommitFiles, folder: str, build: str, classes: Mapping[str, bool]) -> Toolchain:
    found = Toolchain()
    wrapper = files.first(("gradlew",), folder)
    where = ("-p", folder) if folder else ()
    start = (f"./{wrapper}" if wrapper else "gradle", *where, "--no-daemon", "--console=plain")
    why = f"{build}; the tests are run, since that loads what they need"
    found.setup.append(ToolCommand((*start, "test"), why))
    found.downloads.append(f"Gradle downloads plugins and libraries ({build})")
    if wrapper:
        found.notes.append(f"{wrapper} downloads Gradle itself")
    if classes:
        argv = (*start, "--offline", "test", "--rerun-tasks")
        found.tests.append(ToolCommand(argv, f"{build}, src/test; not taken from set-up's run"))
        reports = join(folder, "**/build/test-results/test/TEST-*.xml")
        found.reports.append(PathPattern(reports, "Gradle's reports: tests are counted by name"))
    return found


# Python.


def _python(files: CommitFiles, folder: str) -> Toolchain:
    found = Toolchain()
    others = () if folder else tuple(f"{each}/" for each in _sub_projects(files))
    own = (name for name in files.below(folder) if not name.startswith(others))
    tests = sorted(name for name in own if TEST_PY.fullmatch(name) and "node_modules" not in name)
    manifest = files.first(("pyproject.toml", "setup.py", "setup.cfg"), folder)
    asked = sorted(
        name
        for name in files.below(folder)
        if name.rpartition("/")[0] == folder and _is_requirements(name.rpartition("/")[2])
    )
    if not (manifest or asked or tests):
        return found
    project: Mapping[str, Any] = {}
    if manifest.endswith("pyproject.toml"):
        project = _toml(files, manifest, found) or {}
    runner, why = _python_runner(files, folder, tests, [*asked, *([manifest] if manifest else [])])
    start = _python_setup(files, folder, found, PythonProject(project, manifest, asked, runner))
    listed = " ".join(files.text(name) for name in (*asked, manifest) if name)
    for tool, words in (("ruff", ("check", ".")), ("mypy", (".",))):
        configured = tool in _table(project, "tool") or files.first(_configs(tool), folder)
        if configured and re.search(
            rf"\b{tool}\b", re.sub(r"\[tool\.[^\]\n]{0,200}\]", "", listed)
        ):
            shown = configured if isinstance(configured, str) else manifest
            where = (folder,) if folder else words[-1:]
            argv = (*start, "-m", tool, *words[:-1], *where)
            found.checks.append(ToolCommand(argv, f"{shown} configures {tool}"))
    if not tests:
        return found
    if runner == "pytest":
        argv = (*start, "-m", "pytest", "-q", *((folder,) if folder else ()))
    else:
        top = tests[0].partition("/")[0] if "/" in tests[0] and not folder else folder
        argv = (*start, "-m", "unittest", "discover", *(("-s", top) if top else ()))
        if top and not SAFE_PATH.fullmatch(top):
            found.todo.append("the folder of the tests has a name that is not put into a command")
            return found
    found.tests.append(ToolCommand(argv, why))
    return found


class PythonProject(NamedTuple):
    """The manifest of a Python project, its files of requirements, and its test runner."""

    table: Mapping[str, Any]
    manifest: str
    asked: Sequence[str]
    runner: str


def _python_runner(
    files: CommitFiles, folder: str, tests: Sequence[str], manifests: Sequence[str]
) -> tuple[str, str]:
    """Return pytest or unittest, and the file that says so."""
    if file := files.first(
        ("pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py"), folder
    ):
        return "pytest", file
    for name in (*manifests, *(files.first((each,), folder) for each in ("tox.ini", "setup.cfg"))):
        if name and re.search(r"\bpytest\b", files.text(name)):
            return "pytest", f"{name} names pytest"
    for name in tests:
        if re.search(r"^[ \t]*(?:import|from) pytest\b", files.text(name), re.MULTILINE):
            return "pytest", f"{name} imports pytest"
    for name in tests:
        if re.search(r"^[ \t]*(?:import|from) unittest\b", files.text(name), re.MULTILINE):
            return "unittest", f"{name} imports unittest"
    return "pytest", f"{tests[0]} has functions" if tests else ""


def _python_setup(
    files: CommitFiles, folder: str, found: Toolchain, project: PythonProject
) -> tuple[str, ...]:
    """Add the set-up commands; return the words that start Python in the gate."""
    if lock := files.first(("uv.lock",), folder):
        where = ("--project", folder) if folder else ()
        found.setup.append(ToolCommand(("uv", "sync", *where, "--frozen"), lock))
        found.downloads.append(f"uv downloads packages ({lock})")
        return ("uv", "run", *where, "--no-sync", "python")
    if lock := files.first(("poetry.lock",), folder):
        where = ("-C", folder) if folder else ()
        found.setup.append(ToolCommand(("poetry", *where, "install", "--no-interaction"), lock))
        found.downloads.append(f"poetry downloads packages ({lock})")
        return ("poetry", *where, "run", "python")
    words = list(_pip_words(files, folder, project))
    if not words:
        return ("python3",)
    why = ", ".join((*project.asked, *([project.manifest] if project.manifest else []))) or "pytest"
    found.setup.append(ToolCommand(("python3", "-m", "venv", ".venv"), f"packages of {why}"))
    if "--group" in words:
        upgrade = (".venv/bin/python", "-m", "pip", "install", "pip>=25.1")
        found.setup.append(ToolCommand(upgrade, "--group needs pip 25.1"))
    found.setup.append(ToolCommand((".venv/bin/python", "-m", "pip", "install", *words), why))
    found.downloads.append(f"pip downloads packages ({why})")
    return (".venv/bin/python",)


def _pip_words(files: CommitFiles, folder: str, project: PythonProject) -> Iterator[str]:
    """Yield what pip installs: files of requirements, the project itself, its test runner."""
    for name in project.asked:
        if SAFE_PATH.fullmatch(name):
            yield from ("-r", name)
    about = _table(project.table, "project")
    needs = about.get("dependencies") or "setup.py" in project.manifest
    extras = [
        name for name in ("dev", "test", "tests") if name in _table(about, "optional-dependencies")
    ]
    groups = [
        name
        for name in ("dev", "test", "tests")
        if name in _table(project.table, "dependency-groups")
    ]
    if needs or extras or "build-system" in project.table:
        yield "-e"
        yield f"./{folder}{'[' + ','.join(extras) + ']' if extras else ''}"
    for name in groups:
        yield from ("--group", f"{join(folder, 'pyproject.toml')}:{name}")
    listed = " ".join(files.text(name) for name in project.asked)
    named = re.search(r"\bpytest\b", listed) or extras or groups
    if project.runner == "pytest" and not named:
        yield "pytest"


def _configs(tool: str) -> tuple[str, ...]:
    return (f"{tool}.toml", f".{tool}.toml") if tool == "ruff" else ("mypy.ini", ".mypy.ini")


def _is_requirements(base: str) -> bool:
    names = r"requirements(?:[-_.](?:dev|test|tests))?\.txt|(?:dev|test)[-_]requirements\.txt"
    return re.fullmatch(names, base) is not None


# Protected paths and CI.


def _protected(files: CommitFiles) -> Iterator[PathPattern]:
    """Yield the paths whose changes a person should see; only such as exist."""
    if any(map(_is_workflow, files.sizes)):
        yield PathPattern(".github/**", "CI: GitHub Actions run with the repository's secrets")
    for name in CI_FILES:
        if name in files.sizes:
            yield PathPattern(name, "CI runs with the repository's secrets")
    if name := files.first(("CODEOWNERS", "docs/CODEOWNERS")):
        yield PathPattern(name, "says who reviews what")
    folders = {name.rpartition("/")[0] for name in files.sizes}
    parents = {
        "/".join(parts[: n + 1])
        for parts in (f.split("/") for f in folders)
        for n in range(len(parts))
    }
    for folder in sorted(parents):
        depth, base = folder.count("/"), folder.rpartition("/")[2]
        if not SAFE_PATH.fullmatch(folder) or depth > DEPTH_MAX or "node_modules" in folder:
            continue
        if depth == 0 and base in DEPLOYMENT:
            yield PathPattern(f"{folder}/**", "deployment")
        if base in MIGRATIONS:
            yield PathPattern(f"{folder}/**", "migrations of a database")
    for name in sorted(files.sizes):
        base = name.rpartition("/")[2]
        if name.count("/") > DEPTH_MAX or not SAFE_PATH.fullmatch(name) or "node_modules" in name:
            continue
        if base in LOCKFILES:
            yield PathPattern(name, f"lockfile: which packages {LOCKFILES[base]} installs")
        elif "/" not in name and re.fullmatch(
            r"(?:Dockerfile|docker-compose|compose)(?:[.-].*)?", base
        ):
            yield PathPattern(name, "how the image is built or started")


def _is_workflow(name: str) -> bool:
    return re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", name) is not None


def _ci(files: CommitFiles) -> Iterator[tuple[str, str]]:
    """Yield the first one-line commands of CI files; for people to read."""
    told = 0
    for name in sorted(files.texts):
        if not (_is_workflow(name) or name == ".gitlab-ci.yml"):
            continue
        for line in files.text(name).splitlines():
            words = line[:LINE_CHARS_MAX].strip().removeprefix("-").strip()
            command = words.removeprefix("run:").strip()
            if command == words and ("/" in name or not line.lstrip().startswith("- ")):
                continue  # only `run:` of GitHub, and items of lists of GitLab
            if command and command[0] not in "|>" and told < CI_LINES_MAX:
                told += 1
                yield name, command[:CI_CHARS_MAX]


# Documents of the repository, which may be anything.


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _json(files: CommitFiles, name: str, found: Toolchain) -> Mapping[str, Any] | None:
    try:
        document = json.loads(files.text(name))
    except (ValueError, RecursionError):
        document = None
    return _document(document, name, found)


def _toml(files: CommitFiles, name: str, found: Toolchain) -> Mapping[str, Any] | None:
    try:
        document = tomllib.loads(files.text(name))
    except (ValueError, RecursionError):
        document = None
    return _document(document, name, found)


def _document(document: object, name: str, found: Toolchain) -> Mapping[str, Any] | None:
    if isinstance(document, dict):
        return document
    found.unreadable.append(f"{name}: it is too large, or not valid")
    return None
