"""The version of a command worker: the files and values that decide what it does.

Looked at when workers are loaded and again at the start of each attempt (`look`):

- its declaration, and the working directory with links followed, seen from its settings' folder;
- the path that its program resolves to, and, for files that are no part of the system or of a
  virtual environment, the content behind all links; of a script also its interpreter;
- every file of the settings' folder that an argument names, alone or behind `=`, every script
  wherever it lies, and what a path with placeholders may name (`scripts/{version}.sh`); not what
  the worker `writes`, nor the value of an option for output (`-o`, `--out…`);
- what a Python script, `-m` module or `-c` code imports of its own folders, and what lies there
  under the name of an installed module; the scripts that a shell script or `sh -c` names. What is
  executed counts also where the worker `writes` it;
- the values of the variables in `env` and `set_env`, in one slow digest.

What a program reads besides, what it downloads, and programs of the system are not in it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.core.paths import overlap, parts
from leadhand.workers.coverage import Coverage, variables_covered
from leadhand.workers.functions.snapshot import INSTALLED, environment, signature
from leadhand.workers.functions.version import imports_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.workers.commands.worker import CommandAction
    from leadhand.workers.template import Template


SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib64", "/usr", "/opt", "/nix", "/snap"),
    *("/proc", "/sys", "/dev", sys.base_prefix),
)
LOCAL = ("/usr/local", "/opt")
"""Parts of the system where people put scripts of their own."""
SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".rb", ".pl", ".js", ".mjs", ".ts", ".lua", ".php", ".r")
FILES_MAX = 5_000
"""Above so many files of a command, inode and times count instead of content."""
MODULES = (*EXTENSION_SUFFIXES, ".py", ".pyc")
RACY_NS = 200_000_000
"""A file that changed this shortly before it was read could change again unseen."""
_OUTPUT = re.compile(
    r"(-o|--?(out|output|log|report|junit|dest|destination|save|write|cache)"
    r"([-_]?(file|dir|directory|folder|path|name|to|xml))?)\Z",
    re.IGNORECASE,
)
_PYTHON = re.compile(r"python[0-9.]*(\.exe)?\Z|pypy[0-9.]*\Z")
_SHELL = re.compile(r"(ba|da|z|k|mk|a)?sh\Z")
_INTERPRETER = re.compile(
    r"(node|deno|bun|ruby|perl|php|lua|Rscript|pwsh|tclsh|osascript)[0-9.]*\Z"
)
_WRAPPER = re.compile(
    r"(env|nice|ionice|timeout|nohup|setsid|stdbuf|time|xargs|sudo|doas|flock|taskset|chrt|strace"
    r"|unshare|uv|poetry|pipenv|pdm|hatch|rye|npx|busybox|systemd-run|caffeinate)\Z"
)
"""Programs that start the program which their arguments name."""
_MODULE = re.compile(r"-[bBdEhiIOPqsSuvVx]*m(.*)\Z", re.DOTALL)
_CODE = re.compile(r"-[bBdEhiIOPqsSuvVx]*c(.*)\Z", re.DOTALL)
_STARTS = re.compile(
    rb"""(?:^|[\s;&|({`])(?:\.|source|exec|(?:ba|da|z|k)?sh|(python)[0-9.]*)"""
    rb"""((?:[ \t]+-[^\s;|&]*)*)[ \t]+["']?([^\s"'`;|&<>()]+)""",
    re.MULTILINE,
)
"""In a script: what it sources, or hands to an interpreter."""
_WORD = re.compile(rb"""[^\s"'`;|&<>()$={}\[\]]+""")

IMPLIED = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "npm": ("package.json",),
    "npx": ("package.json",),
    "pnpm": ("package.json",),
    "yarn": ("package.json",),
    "composer": ("composer.json",),
    "rake": ("Rakefile", "rakefile"),
    "tox": ("tox.ini", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "fab": ("fabfile.py",),
    "invoke": ("tasks.py",),
    "inv": ("tasks.py",),
}
"""What programs execute from the working directory without being told."""

_digests: dict[str, tuple[tuple[int, ...], str]] = {}


def digest_of(path: str) -> str:
    """Return the digest of a file as it is now; read again only if the system says it changed.

    Raises OSError when it cannot be read.
    """
    now = signature(path)
    known = _digests.get(path)
    if known is not None and known[0] == now:
        return known[1]
    found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if signature(path) == now and time.time_ns() - now[-1] > RACY_NS:
        _digests[path] = (now, found)
    return found


def is_own(path: str) -> bool:
    """Return whether a file's content counts: it is the user's own, not part of an installation."""
    if environment(os.path.dirname(path)):  # noqa: PTH120
        return False
    if not _below(path, SYSTEM):
        return True
    return _below(path, LOCAL) and _head(path).startswith(b"#!")


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{each}/") for each in folders)


def _head(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(256)
    except OSError:
        return b""


class VersionScan:
    """One scan of the files and values that a program's version covers."""

    def __init__(self, program: CommandAction, folder: Path, environ: Mapping[str, str]) -> None:
        self.files: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self._program, self._environ = program, environ
        self._folder = os.path.realpath(folder)
        self._cwd = os.path.realpath(program.cwd)
        self._python = (program.argv[0].fill({}) if not program.argv[0].holes else "") or "python3"
        self._more = hashlib.sha256()
        self.values["working directory"] = self._label(self._cwd)
        for argv in (program.argv, program.probe):
            if argv:
                self._command(argv)

    def _label(self, path: str) -> str:
        return Path(os.path.relpath(path, self._folder)).as_posix()

    def _command(self, argv: tuple[Template, ...]) -> None:
        """Cover a command: its program, the programs it runs, and the files in its arguments."""
        words = [None if word.holes else word.fill({}) for word in argv]
        name = self._program_file(words[0] or "")
        kind = _kind(words[0] or "") or _kind(name)
        for each in words:
            self._implied(os.path.basename(each or ""))  # noqa: PTH119
        script = ""
        for index, word in enumerate(argv[1:], 1):
            before, text = words[index - 1] or "", words[index]
            if kind == "wrapper" and not script and text and _kind(text):
                kind, self._python = _kind(text), text
                continue
            if not script and text is not None and (found := self._code(kind, before, text)):
                script = found
                continue
            runs = bool(kind) and not script
            named = list(self._named(word, text)) if runs or not _OUTPUT.match(before) else []
            for path in named:
                if not script or self._in_project(path) or _is_script(path):
                    self._file(path, python=kind == "python" and not script, runs=runs)
                    if runs and kind == "python":
                        self._shadows(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
                    if kind != "wrapper" or _is_script(path):
                        script = script or path
            if not named and not (kind == "python" and script == "-c"):
                fixed = "".join(p if isinstance(p, str) else "\0" for p in word.pieces)
                if len(fixed.split()) > 1:
                    self._mentions(fixed.encode(), [self._cwd])

    def _implied(self, program: str) -> None:
        """Cover files that a program executes by itself, and the scripts that they name."""
        for name in IMPLIED.get(program, ()):
            path = os.path.join(self._cwd, name)  # noqa: PTH118
            if os.path.isfile(path):  # noqa: PTH113
                self._file(path, python=False, runs=True)
                self._mentioned(path)
                included = Path(self._cwd).glob("*.mk") if program.endswith("make") else ()
                for each in sorted(included):
                    self._file(str(each), python=False, runs=True)
                    self._mentioned(str(each))

    def _code(self, kind: str, before: str, text: str) -> str:
        """Cover what an option passes to an interpreter: a module, or code; empty for neither."""
        if kind == "shell" and re.match(r"-[a-z]*c\Z", before):
            self._mentions(text.encode(), [self._cwd])
            return "-c"
        if kind != "python":
            return ""
        for flag in (_MODULE, _CODE):
            joined, alone = flag.match(text), flag.match(before)
            value = joined[1] if joined else text if alone and not alone[1] else ""
            if not value:
                continue
            self._shadows(self._cwd)
            if flag is _MODULE:
                self._python_module(value)
                return value
            self._imports(value.encode(), self._cwd, [self._cwd])
            return "-c"
        return ""

    def _in_project(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._folder + os.sep)

    def _program_file(self, name: str) -> str:
        """Cover the program itself; gives back its path."""
        path = self._environ.get("PATH", os.defpath)
        if self._program.set_env.get("PATH"):
            path = self._program.set_env["PATH"]
        found = os.path.join(self._cwd, name) if "/" in name else shutil.which(name, path=path)  # noqa: PTH118
        if not found or not os.path.exists(found):  # noqa: PTH110
            self.values[f"program {name}"] = "missing"
            return name
        real = os.path.realpath(os.path.join(self._cwd, found))  # noqa: PTH118
        self.values[f"program {name}"] = self._where(real)
        if is_own(real):
            self._file(real, python=False, runs=True)
        return real

    def _where(self, path: str) -> str:
        """Return where a file lies: in an environment, the system, or the settings' folder."""
        if place := environment(os.path.dirname(path)):  # noqa: PTH120
            return f"environment: {Path(path).relative_to(place)}"
        return path if _below(path, SYSTEM) else self._label(path)

    def _named(self, word: Template, text: str | None) -> Iterator[str]:
        """Yield the files that an argument names, with placeholders those that it may name."""
        if text is not None:
            option, _, value = text.partition("=")
            for each in (text, value if not _OUTPUT.match(option) else ""):
                path = os.path.join(self._cwd, each)  # noqa: PTH118
                if each and "\0" not in each and os.path.isfile(path):  # noqa: PTH113
                    yield path
            return
        if word.only is not None:
            return
        pattern = "".join(p if isinstance(p, str) else "\0" for p in word.pieces)
        option, mark, value = pattern.partition("=")
        if mark and "\0" not in option:
            pattern = "" if _OUTPUT.match(option) else value
        if not pattern.strip("\0/.") or pattern.startswith("-") or "/" not in pattern:
            return
        folder = pattern.partition("\0")[0].rpartition("/")[0]
        sure = re.escape(pattern).replace("\\\0", ".*").replace("\0", ".*")
        yield from self._matching(folder, re.compile(sure, re.DOTALL))

    def _matching(self, folder: str, pattern: re.Pattern[str]) -> Iterator[str]:
        start = os.path.join(self._cwd, folder)  # noqa: PTH118
        seen: set[str] = set()
        for place, folders, names in os.walk(start, followlinks=True):
            seen.add(os.path.realpath(place))
            folders[:] = sorted(
                each
                for each in folders
                if os.path.realpath(os.path.join(place, each)) not in seen  # noqa: PTH118
            )
            for name in sorted(names):
                path = os.path.join(place, name)  # noqa: PTH118
                shown = os.path.relpath(path, self._cwd)
                if any(map(pattern.fullmatch, (shown, f"./{shown}", path))):
                    yield path

    def _file(self, path: str, *, python: bool, runs: bool = False) -> None:
        """Cover the content of a file, and of a script the files that it uses.

        A file that `runs` counts even if the worker declares that it writes it.
        """
        real = os.path.realpath(path)
        label = self._label(real)
        if label in self.files or (not runs and self._written(path, real)):
            return
        if not is_own(real):
            self.values[f"file {self._label(path)}"] = self._where(real)
            return
        try:
            if len(self.files) >= FILES_MAX:
                self._more.update(f"{label}\0{signature(real)}\0".encode())
                self.values[f"files above {FILES_MAX}"] = self._more.hexdigest()
                return
            self.files[label] = digest_of(real)
        except OSError:
            self.values[f"file {label}"] = "unreadable"
            return
        head = _head(real)
        interpreter = self._interpreter(head) if head.startswith(b"#!") else ""
        if runs and _PYTHON.match(interpreter):
            self._shadows(os.path.dirname(real))  # noqa: PTH120
        if python or real.endswith(".py") or _PYTHON.match(interpreter):
            self._python_file(real, [os.path.dirname(real)])  # noqa: PTH120
        elif head.startswith(b"#!") or real.endswith(SCRIPTS):
            self._mentioned(real)

    def _written(self, path: str, real: str) -> bool:
        """Return whether the worker declares that it writes this file itself."""
        patterns = self._program.offer.writes
        shown = {os.path.relpath(each, self._cwd) for each in (path, real)}
        return any(overlap(parts(p), parts(each)) for p in patterns for each in shown)

    def _interpreter(self, head: bytes) -> str:
        """Cover the interpreter that a script names; gives back its name."""
        words = head[2:].split(b"\n")[0].decode("utf-8", "replace").split()
        if words and words[0].endswith("/env"):
            words = [each for each in words[1:] if not each.startswith("-") and "=" not in each]
        if not words:
            return ""
        found = shutil.which(words[0], path=self._environ.get("PATH", os.defpath)) or words[0]
        real = os.path.realpath(os.path.join(self._cwd, found))  # noqa: PTH118
        self.values[f"interpreter {words[0]}"] = self._where(real)
        if is_own(real) and os.path.isfile(real):  # noqa: PTH113
            self._file(real, python=False, runs=True)
        return os.path.basename(words[0])  # noqa: PTH119

    def _python_module(self, name: str) -> None:
        """Cover `-m NAME`, where it lies in the working directory or on the path it is given."""
        for path in self._module_files(name, [self._cwd, *self._python_path()]):
            self._file(path, python=True, runs=True)

    def _python_path(self) -> list[str]:
        named = "PYTHONPATH" in (*self._program.env, *self._program.secrets)
        found = self._program.set_env.get("PYTHONPATH") or (
            self._environ.get("PYTHONPATH", "") if named else ""
        )
        return [os.path.join(self._cwd, each) for each in found.split(os.pathsep) if each]  # noqa: PTH118

    def _python_file(self, path: str, roots: list[str]) -> None:
        """Cover the modules that a Python file imports from the user's folders."""
        try:
            data = Path(path).read_bytes()
        except OSError:
            return
        self._imports(data, path, roots)

    def _imports(self, data: bytes, path: str, roots: list[str]) -> None:
        for name in imports_of(data):
            if name.startswith("."):
                above = Path(path).parents[max(0, len(name) - len(name.lstrip(".")) - 1)]
                places, name = [str(above)], name.lstrip(".")  # noqa: PLW2901
            else:
                places = [*roots, self._cwd, *self._python_path()]
            for found in self._module_files(name, places):
                self._file(found, python=True, runs=True)

    def _module_files(self, name: str, roots: list[str]) -> Iterator[str]:
        for root in dict.fromkeys(roots):
            place = root
            for part in name.split("."):
                place = os.path.join(place, part)  # noqa: PTH118
                for end in (*MODULES, *(f"/__init__{each}" for each in MODULES), "/__main__.py"):
                    if os.path.isfile(place + end):  # noqa: PTH113
                        yield place + end

    def _shadows(self, root: str) -> None:
        """Cover modules of a folder that Python prefers to installed ones of the same name.

        Python looks into the script's folder first, also for imports of a library.
        """
        taken = sys.stdlib_module_names.union(*map(_names_in, self._sites()))
        for folder in dict.fromkeys([root, *self._python_path()]):
            try:
                found = sorted({each.partition(".")[0] for each in os.listdir(folder)} & taken)  # noqa: PTH208
            except OSError:
                continue
            for name in found if is_own(f"{folder}/_") else ():
                for path in self._module_files(name, [folder]):
                    self._file(path, python=True, runs=True)

    def _sites(self) -> set[str]:
        """Return the folders in which packages of the command's Python are installed."""
        name = self._python if _PYTHON.match(os.path.basename(self._python)) else "python3"  # noqa: PTH119
        path = self._program.set_env.get("PATH") or self._environ.get("PATH", os.defpath)
        found = os.path.join(self._cwd, name) if "/" in name else shutil.which(name, path=path)  # noqa: PTH118
        homes = (
            {Path(each).parent.parent for each in (found, os.path.realpath(found))} if found else ()
        )
        return {
            str(site)
            for home in homes
            for kind in INSTALLED
            for site in home.glob(f"lib/python3*/{kind}")
        }

    def _mentioned(self, path: str) -> None:
        """Cover the scripts that a script sources or starts."""
        try:
            data = Path(path).read_bytes()
        except OSError:
            return
        self._mentions(data, [self._cwd, os.path.dirname(path)])  # noqa: PTH120

    def _mentions(self, data: bytes, roots: list[str]) -> None:
        """Cover scripts that shell lines name, and code that they pass to an interpreter."""
        for word in sorted(set(_WORD.findall(data))):
            text = word.decode("utf-8", "replace")
            if "/" in text or text.endswith(SCRIPTS):
                for found in self._places(text, roots):
                    if _is_script(found):
                        self._file(found, python=False, runs=True)
        for python, options, target in sorted(set(_STARTS.findall(data))):
            text, flags = target.decode("utf-8", "replace"), options.decode("utf-8", "replace")
            modules = [each[1] or text for each in map(_MODULE.match, flags.split()) if each]
            if python and modules:
                self._shadows(self._cwd)
                self._python_module(modules[0])
                continue
            for found in self._places(text, roots):
                self._file(found, python=bool(python), runs=True)
                if python:
                    self._shadows(os.path.dirname(os.path.realpath(found)))  # noqa: PTH120

    def _places(self, text: str, roots: list[str]) -> Iterator[str]:
        """Yield the files that a word of a script may mean, seen from each of some folders."""
        if "\0" in text or len(text) > 500:
            return
        ways = [os.path.join(self._cwd, text)]  # noqa: PTH118
        ways += [os.path.join(root, text.lstrip("/")) for root in roots]  # noqa: PTH118 - "$HERE/x.sh"
        for found in dict.fromkeys(ways):
            if os.path.isfile(found):  # noqa: PTH113
                yield found


def _kind(name: str) -> str:
    """Return the kind of a program that runs what its arguments name; empty for other programs."""
    base = os.path.basename(name)  # noqa: PTH119
    kinds = {"python": _PYTHON, "shell": _SHELL, "other": _INTERPRETER, "wrapper": _WRAPPER}
    return next((kind for kind, pattern in kinds.items() if pattern.match(base)), "")


def _names_in(site: str) -> frozenset[str]:
    try:
        return _names_of(site, Path(site).stat().st_mtime_ns)
    except OSError:
        return frozenset()


@lru_cache(maxsize=16)
def _names_of(site: str, _changed_ns: int) -> frozenset[str]:
    return frozenset(each.partition(".")[0] for each in os.listdir(site) if "-" not in each)  # noqa: PTH208


def _is_script(path: str) -> bool:
    return path.endswith(SCRIPTS) or os.access(path, os.X_OK) or _head(path).startswith(b"#!")


def look(
    declaration: bytes,
    programs: Mapping[str, CommandAction],
    folder: Path,
    environ: Mapping[str, str],
) -> Coverage:
    """Return what the version of a command worker covers at this moment."""
    files: dict[str, str] = {}
    values = {"declaration": hashlib.sha256(declaration).hexdigest()}
    given: dict[str, dict[str, str | None]] = {}
    for action, program in programs.items():
        seen = VersionScan(program, folder, environ)
        files |= seen.files
        values |= {f"{action}: {k}" if action else k: v for k, v in seen.values.items()}
        if program.env or program.set_env:
            named = {name: environ.get(name) for name in program.env}
            given[action] = {**named, **program.set_env}
    if given:
        names = {name for each in given.values() for name in each}
        values |= variables_covered(names, given)
    return Coverage(files, values)
