"""What the version of a command covers: the files and values that decide what it does.

Looked at when workers are loaded and again at the start of each attempt (`look`):

- its declaration, and the working directory with links followed, seen from its settings' folder;
- the path that its program resolves to, and, for files that are no part of the system or of a
  virtual environment, the content behind all links; of a script also its interpreter;
- every file of the settings' folder that an argument names, alone or behind `=`, every script
  wherever it lies, and what a path with placeholders may name (`scripts/{version}.sh`); not what
  the worker `writes`, nor the value of an option for output (`-o`, `--out…`);
- what a Python script or `-m` module imports of its own folders, and the scripts that a shell
  script names;
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
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from leadhand.core.paths import overlap, parts
from leadhand.workers.coverage import Coverage
from leadhand.workers.snapshot import ENVIRONMENTS, signature
from leadhand.workers.source import imports_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leadhand.workers.command import Program
    from leadhand.workers.template import Template

SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib64", "/usr", "/opt", "/nix", "/snap"),
    *("/proc", "/sys", "/dev", sys.base_prefix),
)
LOCAL = ("/usr/local", "/opt")
"""Parts of the system where people put scripts of their own."""
SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".rb", ".pl", ".js", ".mjs", ".ts", ".lua", ".php", ".r")
FILES_MAX = 500
RACY_NS = 200_000_000
"""A file that changed this shortly before it was read could change again unseen."""
_OUTPUT = re.compile(r"-o\Z|--?(out|output|log|report|junit|dest|save|write|cache)", re.IGNORECASE)
_PYTHON = re.compile(r"python[0-9.]*(\.exe)?\Z|pypy[0-9.]*\Z")
_WORD = re.compile(rb"""[^\s"'`;|&<>()$={}\[\]]+""")

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
    """Whether the content of a file counts: it belongs to people, not to what is installed."""
    if _environment(os.path.dirname(path)):  # noqa: PTH120
        return False
    if not _below(path, SYSTEM):
        return True
    return _below(path, LOCAL) and _head(path).startswith(b"#!")


@cache
def _environment(folder: str) -> str:
    """Return the virtual environment that a folder belongs to; empty for none.

    What a process has found once stays: nobody makes files uncovered by making an environment.
    """
    place = Path(folder)
    for each in (place, *place.parents):
        if any((each / name).exists() for name in ENVIRONMENTS):
            return str(each)
    return ""


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{each}/") for each in folders)


def _head(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(256)
    except OSError:
        return b""


class Look:
    """One look at what a program's version covers."""

    def __init__(self, program: Program, folder: Path, environ: Mapping[str, str]) -> None:
        self.files: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self._program, self._environ = program, environ
        self._folder = os.path.realpath(folder)
        self._cwd = os.path.realpath(program.cwd)
        self.values["working directory"] = self._label(self._cwd)
        for argv in (program.argv, program.probe):
            if argv:
                self._command(argv)

    def _label(self, path: str) -> str:
        return Path(os.path.relpath(path, self._folder)).as_posix()

    def _command(self, argv: tuple[Template, ...]) -> None:
        words = [None if word.holes else word.fill({}) for word in argv]
        first = words[0] or ""
        name = self._program_file(first)
        python = bool(_PYTHON.match(os.path.basename(first) or name))  # noqa: PTH119
        script = "-c" if "-c" in words else ""
        for index, word in enumerate(argv[1:], 1):
            before, text = words[index - 1] or "", words[index]
            if python and before == "-m" and text and not script:
                script = text
                self._python_module(text)
            elif not _OUTPUT.match(before):
                for path in self._named(word, text):
                    if not script or self._in_project(path) or _is_script(path):
                        self._file(path, python=python and not script)
                        script = script or path

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
            self._file(real, python=False)
        return real

    def _where(self, path: str) -> str:
        """Where a file lies: in an environment, in the system, or seen from the settings."""
        if place := _environment(os.path.dirname(path)):  # noqa: PTH120
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
        count = 0
        for place, _, names in os.walk(start):
            for name in sorted(names):
                path = os.path.join(place, name)  # noqa: PTH118
                shown = os.path.relpath(path, self._cwd)
                if any(map(pattern.fullmatch, (shown, f"./{shown}", path))):
                    count += 1
                    yield path
            if count > FILES_MAX:
                self.values["more files than are looked at"] = str(FILES_MAX)
                return

    def _file(self, path: str, *, python: bool) -> None:
        """Cover the content of a file, and of a script what it is made of."""
        real = os.path.realpath(path)
        label = self._label(real)
        if label in self.files or len(self.files) >= FILES_MAX or self._written(path, real):
            return
        if not is_own(real):
            self.values[f"file {self._label(path)}"] = self._where(real)
            return
        try:
            self.files[label] = digest_of(real)
        except OSError:
            self.values[f"file {label}"] = "unreadable"
            return
        head = _head(real)
        interpreter = self._interpreter(head) if head.startswith(b"#!") else ""
        if python or real.endswith(".py") or _PYTHON.match(interpreter):
            self._python_file(real, [os.path.dirname(real)])  # noqa: PTH120
        elif head.startswith(b"#!") or real.endswith(SCRIPTS):
            self._mentioned(real)

    def _written(self, path: str, real: str) -> bool:
        """Whether the worker says that it writes this file itself."""
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
            self._file(real, python=False)
        return os.path.basename(words[0])  # noqa: PTH119

    def _python_module(self, name: str) -> None:
        """Cover `-m NAME`, where it lies in the working directory or on the path it is given."""
        for path in self._module_files(name, [self._cwd, *self._python_path()]):
            self._file(path, python=True)

    def _python_path(self) -> list[str]:
        named = "PYTHONPATH" in (*self._program.env, *self._program.secrets)
        found = self._program.set_env.get("PYTHONPATH") or (
            self._environ.get("PYTHONPATH", "") if named else ""
        )
        return [os.path.join(self._cwd, each) for each in found.split(os.pathsep) if each]  # noqa: PTH118

    def _python_file(self, path: str, roots: list[str]) -> None:
        """Cover what a Python file imports of folders that are its own."""
        try:
            names = imports_of(Path(path).read_bytes())
        except OSError:
            return
        for name in names:
            if name.startswith("."):
                above = Path(path).parents[max(0, len(name) - len(name.lstrip(".")) - 1)]
                places, name = [str(above)], name.lstrip(".")  # noqa: PLW2901
            else:
                places = [*roots, self._cwd, *self._python_path()]
            for found in self._module_files(name, places):
                self._file(found, python=True)

    def _module_files(self, name: str, roots: list[str]) -> Iterator[str]:
        for root in dict.fromkeys(roots):
            place = root
            for part in name.split("."):
                place = os.path.join(place, part)  # noqa: PTH118
                for each in (f"{place}.py", f"{place}/__init__.py", f"{place}/__main__.py"):
                    if os.path.isfile(each):  # noqa: PTH113
                        yield each

    def _mentioned(self, path: str) -> None:
        """Cover the scripts that a script names: those it sources or starts."""
        try:
            words = set(_WORD.findall(Path(path).read_bytes()))
        except OSError:
            return
        for word in sorted(words):
            text = word.decode("utf-8", "replace")
            if "\0" in text or not ("/" in text or text.endswith(SCRIPTS)) or len(text) > 500:
                continue
            for root in (self._cwd, os.path.dirname(path)):  # noqa: PTH120
                found = os.path.join(root, text.lstrip("/") if root != self._cwd else text)  # noqa: PTH118
                if os.path.isfile(found) and _is_script(found):  # noqa: PTH113
                    self._file(found, python=False)


def _is_script(path: str) -> bool:
    return path.endswith(SCRIPTS) or os.access(path, os.X_OK) or _head(path).startswith(b"#!")


def look(
    declaration: bytes, programs: Mapping[str, Program], folder: Path, environ: Mapping[str, str]
) -> Coverage:
    """Return what the version of a command worker covers, as it is now."""
    files: dict[str, str] = {}
    values = {"declaration": hashlib.sha256(declaration).hexdigest()}
    given: dict[str, dict[str, str | None]] = {}
    for action, program in programs.items():
        seen = Look(program, folder, environ)
        files |= seen.files
        values |= {f"{action}: {k}" if action else k: v for k, v in seen.values.items()}
        if program.env or program.set_env:
            named = {name: environ.get(name) for name in program.env}
            given[action] = {**named, **program.set_env}
    if given:
        names = sorted({name for each in given.values() for name in each})
        text = msgspec.json.encode(given, order="sorted")
        values[f"values of {', '.join(names)}"] = _slow(text)
    return Coverage(files, values)


@cache
def _slow(text: bytes) -> str:
    """Digest values that may be secret: one for all, and too slow to try many."""
    salt = b"leadhand variables"
    return hashlib.scrypt(text, salt=salt, n=1 << 14, r=8, p=1, dklen=32).hex()
