"""The project's Python sources, read once: what is hashed is what is compiled.

`SOURCES` is a finder on `sys.meta_path`. A module of the project is compiled from the bytes that
were read when its file was first met, by an import or by the digest of a worker, and never from a
`.pyc`. So a file that changes under a living process changes nothing that this process runs, and
a digest of those bytes is a digest of the code.

A child process gets the same bytes from its host (`Snapshot.restore`) and reads no file of the
project itself.

While a worker runs, a module of the project that no version covers is refused (`NotCovered`): an
import by a computed name, or of a file that was written later. What code reads and executes by
itself (`exec`, `runpy.run_path`) is not seen here.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from leadhand.errors import LeadhandError, UsageError
from leadhand.workers.functions.isolation import LOADED_PREFIX
from leadhand.workers.processes.capture import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, ModuleType


OURS = str(Path(__file__).resolve().parents[2])
INSTALLED = ("site-packages", "dist-packages")
ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")
"""What the folder of a virtual environment holds."""
FILLED = ("bin", "Scripts", "Lib", "include", "share", "etc")
"""Folders of an environment, besides `lib/python…`."""
PROJECT = ("leadhand.toml", "pyproject.toml", ".git")
"""What the folder of a project holds."""

_loading: ContextVar[str] = ContextVar("loading", default="")
"""The file that is being loaded, with its imports."""


class Module(NamedTuple):
    """Where a module of the project stands."""

    path: str
    package: bool


class NotCovered(ImportError):
    """A worker imports a module of the project that no version covers."""


class Source(NamedTuple):
    """One file as it was read."""

    data: bytes
    digest: str
    signature: tuple[int, ...]


def signature(path: str) -> tuple[int, ...]:
    """Return the file's status, which changes with its content even if its times are kept.

    Size and modification time can be set by anyone; the time of the inode's last change cannot.
    """
    found = os.stat(path)  # noqa: PTH116 - this is asked before every attempt
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_project(path: str) -> bool:
    """Return whether a file is the project's own: not Python's, not installed, not Leadhand's."""
    return path.endswith((".py", ".pyc", ".so", ".pyd")) and _own_folder(str(Path(path).parent))


@cache
def _own_folder(folder: str) -> bool:
    if any(folder == each or folder.startswith(each + os.sep) for each in _others()):
        return False
    return not any(part in INSTALLED for part in Path(folder).parts) and not environment(folder)


@cache
def environment(folder: str) -> str:
    """Return the virtual environment that a folder belongs to; empty for none.

    An environment consists of what its tools fill: `lib/python…`, `bin` and the like. Other folders
    beside its `pyvenv.cfg` are the project's, and so is `bin` if the project stands in the same
    folder (`python -m venv .`): a file of that name must not leave sources uncovered.

    A result stays the same for the life of the process, so that creating an environment later
    cannot leave files uncovered.
    """
    place = Path(folder)
    for each in (place, *place.parents):
        if not any((each / name).exists() for name in ENVIRONMENTS):
            continue
        inside = place.relative_to(each).parts
        if inside[:1] in (("lib",), ("lib64",)):
            if inside[1:] and inside[1].startswith(("python", "pypy")):
                return str(each)
        elif inside[:1] and inside[0] in FILLED and not any((each / m).exists() for m in PROJECT):
            return str(each)
    return ""


@cache
def _others() -> tuple[str, ...]:
    """Return the folders of Python itself, of installed packages, and of Leadhand."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [*site.getsitepackages(), site.getusersitepackages(), OURS]
    if sys.prefix != sys.base_prefix:
        found.append(sys.prefix)
    return tuple(dict.fromkeys(str(Path(each).resolve()) for each in found))


class Snapshot(MetaPathFinder):
    """The sources of a process, and the finder that compiles from them."""

    def __init__(self) -> None:
        self.files: dict[str, Source] = {}
        self.covered: set[str] = set()
        """The files that versions of workers cover."""
        self.met: dict[str, dict[str, Module]] = {}
        """By file: the modules that were imported, by name, while that file was loaded."""
        self._given: dict[str, Module] = {}
        """In a child: the modules that its host has covered."""

    def install(self) -> None:
        """Insert the finder before that of files, and behind those that others put first."""
        if self not in sys.meta_path:
            # Finding its own folders, Python 3.13 imports a module: done before the finder is asked
            # about that import, since the finder would ask for the same folders.
            _others()
            last = PathFinder in sys.meta_path
            place = sys.meta_path.index(PathFinder) if last else len(sys.meta_path)
            sys.meta_path.insert(place, self)

    def take(self, path: str) -> Source:
        """Return a file as it was when first met; read it now if this is the first time.

        Raises OSError when it cannot be read.
        """
        found = self.files.get(path)
        if found is None:
            found = self.files[path] = _read(path)
        return found

    def renew(self, path: str) -> None:
        """Forget a file that has changed, for modules that Python's own loader has loaded."""
        known = self.files.get(path)
        try:
            if known is not None and known.signature != signature(path):
                del self.files[path]
        except OSError:
            return

    def stale(self) -> bool:
        """Return whether a covered file has changed or is gone."""
        for path in self.covered:
            known = self.files.get(path)
            try:
                if known is not None and known.signature != signature(path):
                    return True
            except OSError:
                return True
        return False

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Read the project's files anew and import its modules again; all or nothing.

        Functions that were loaded before keep their modules, and must not run any more: their late
        imports would be new.
        """
        kept = self.files, self.met, self.covered
        modules = {
            name: module
            for name, module in list(sys.modules.items())
            if isinstance(loader_of(module), SnapshotLoader)
        }
        self.files, self.met, self.covered = {}, {}, set()
        for name in modules:
            del sys.modules[name]
        invalidate_caches()
        try:
            yield
        except BaseException:
            for name, module in list(sys.modules.items()):
                if isinstance(loader_of(module), SnapshotLoader):
                    del sys.modules[name]
            self.files, self.met, self.covered = kept
            sys.modules.update(modules)
            raise

    def restore(self, sources: Mapping[str, tuple[str, bool, bytes]]) -> None:
        """Take a host's sources over, by module name: path, whether a package, content."""
        for name, (path, package, data) in sources.items():
            self.files[path] = Source(data, hashlib.sha256(data).hexdigest(), ())
            self._given[name] = Module(path, package)
            self.covered.add(path)

    @contextmanager
    def loading(self, path: str) -> Iterator[None]:
        """Cover every import of a file while it is loaded."""
        token = _loading.set(path)
        try:
            yield
        finally:
            _loading.reset(token)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as Python does, and have the project's own compiled from here."""
        if (given := self._given.get(fullname)) is not None:
            return spec_of(fullname, given.path, package=given.package)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not spec.has_location or spec.origin is None:
            return spec
        real = os.path.realpath(spec.origin)
        if not is_project(real):
            return spec
        self._admit(fullname, Module(real, bool(spec.submodule_search_locations)))
        if type(spec.loader) is SourceFileLoader and (
            real in self.files or _loading.get() or self._given
        ):
            spec.loader = SnapshotLoader(fullname, spec.origin)
        return spec

    def _admit(self, name: str, module: Module) -> None:
        """Refuse, while a worker runs, an import that no version covers."""
        path = module.path
        if entry := _loading.get():
            self.met.setdefault(entry, {})[name] = module
            return
        if path in self.covered or not (self._given or current.get() is not None):
            return
        raise NotCovered(
            f"module {name} ({path}) belongs to the project, and no worker's version covers it: "
            "it was not there when workers were loaded, or is imported by a computed name. "
            f"Fix: import it at the top of the worker's file, as in `import {name}`",
            name=name,
            path=path,
        )


class SnapshotLoader(SourceFileLoader):
    """Compiles a module from the snapshot."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Compile the bytes that are hashed; no cache of bytecode is read or written."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code

    def get_data(self, path: str) -> bytes:
        """Return the module's source as it was read; other files as they are."""
        return SOURCES.take(os.path.realpath(path)).data if path == self.path else _bytes(path)


def spec_of(name: str, file: str, *, package: bool = False) -> ModuleSpec | None:
    """Return the spec of a module that is compiled from the snapshot."""
    folders = [str(Path(file).parent)] if package else None
    loader = SnapshotLoader(name, file)
    return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


def loader_of(module: Any) -> Any:
    """Return the loader of a module, or None."""
    return getattr(getattr(module, "__spec__", None), "loader", None)


def file_of(module: Any) -> str:
    """Return the real path of a module's file, without importing it; empty if it has none."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return os.path.realpath(file) if isinstance(file, str) and file else ""


def _read(path: str) -> Source:
    """Read a file; again if it changed meanwhile: content and signature belong together."""
    while True:
        before = signature(path)
        data = _bytes(path)
        if signature(path) == before:
            return Source(data, hashlib.sha256(data).hexdigest(), before)


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


SOURCES = Snapshot()
"""The sources of this process."""


# Loading the modules of workers: by name, or by the path of a file.


WORKERS_FOLDER = Path(__file__).parents[1]


def load_file(path: str | Path) -> ModuleType:
    """Load a module from a file. Its folder can be imported from; its name cannot clash.

    Two files with the same stem are two modules, and a file called `json.py` hides nothing: the
    folder is put last on the path, and the module gets a name of its own.
    """
    file = Path(path).resolve()
    mark = hashlib.sha256(str(file).encode()).hexdigest()[:12]
    name = f"{LOADED_PREFIX}{file.stem}_{mark}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_of(name, str(file)) if file.suffix == ".py" else None
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: is not a Python file")
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    SOURCES.install()
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with SOURCES.loading(str(file)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_module(name: str) -> ModuleType:
    """Load a module by name or path.

    Raise `UsageError` with the mistake and its place in one line.
    """
    is_file = name.endswith(".py") or "/" in name
    if is_file and not Path(name).is_file():
        raise UsageError(f"{name}: there is no such file")
    try:
        return load_file(name) if is_file else _imported(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a file may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and not is_file and f"{name}.".startswith(f"{missing}."):
            raise UsageError(
                f"{name}: there is no such module; for a file, give its path, as in ./workers.py"
            ) from None
        raise UsageError(f"{name}{_told(error, name)}") from None


def _imported(name: str) -> ModuleType:
    """Import a module by name, from the snapshot if it is one of the project's."""
    SOURCES.install()
    with SOURCES.loading(name):
        module = importlib.import_module(name)
    if name in SOURCES.met:
        SOURCES.met.setdefault(file_of(module), {}).update(SOURCES.met.pop(name))
    return module


def _told(error: BaseException, name: str = "") -> str:
    """Return the end of a message that begins with `name`: the line, and the exception.

    Another file is named only if the exception was raised there.
    """
    known = isinstance(error, LeadhandError)
    message = str(error) if known else f"{type(error).__name__}: {error}".rstrip(": ")
    message = " ".join(message.split())
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_line(error.lineno, error.filename, name)}: {type(error).__name__}: {error.msg}"
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if WORKERS_FOLDER not in Path(frame.filename).parents
        and not frame.filename.startswith("<frozen")
    ]
    if not outside:
        return f": {message}"
    return f"{_line(outside[-1].lineno, outside[-1].filename, name)}: {message}"


def _line(number: int | None, file: str, name: str) -> str:
    """Return a place after the name of a file or module: in that file, or in another one."""
    same = bool(name) and Path(file).resolve() == Path(name).resolve()
    return f":{number}" if same else f": {file}:{number}"
