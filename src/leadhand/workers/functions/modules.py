"""Loading the modules that workers stand in: by name, or by the path of a file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from leadhand.errors import LeadhandError, UsageError
from leadhand.workers.functions.isolation import LOADED_PREFIX
from leadhand.workers.functions.snapshot import SOURCES, file_of, spec_of

OURS = Path(__file__).parents[1]


def load_file(path: str | Path) -> ModuleType:
    """A module from a file. Its folder can be imported from; its name cannot clash.

    Two files with the same stem are two modules, and a file called `json.py` hides nothing:
    the folder is put last on the path, and the module goes by a name of its own.
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
    """A module by name or path; UsageError says in one line what is wrong, and where."""
    is_file = name.endswith(".py") or "/" in name
    if is_file and not Path(name).is_file():
        raise UsageError(f"{name}: there is no such file")
    try:
        return load_file(name) if is_file else _imported(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a file does when it is loaded
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and not is_file and f"{name}.".startswith(f"{missing}."):
            raise UsageError(
                f"{name}: there is no such module; for a file, give its path, as in ./workers.py"
            ) from None
        raise UsageError(f"{name}: {_told(error, name)}") from None


def _imported(name: str) -> ModuleType:
    """Import a module by name, from the snapshot if it is one of the project's."""
    SOURCES.install()
    with SOURCES.loading(name):
        module = importlib.import_module(name)
    if name in SOURCES.met:
        SOURCES.met.setdefault(file_of(module), {}).update(SOURCES.met.pop(name))
    return module


def _told(error: BaseException, name: str = "") -> str:
    """An exception in one line, with the place in the user's file where it was raised.

    `name` is the file that the message names already.
    """
    known = isinstance(error, LeadhandError)
    message = str(error) if known else f"{type(error).__name__}: {error}".rstrip(": ")
    message = " ".join(message.split())
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_line(error.lineno, error.filename, name)}: {type(error).__name__}: {error.msg}"
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if OURS not in Path(frame.filename).parents and not frame.filename.startswith("<frozen")
    ]
    if not outside:
        return message
    return f"{_line(outside[-1].lineno, outside[-1].filename, name)}: {message}"


def _line(number: int | None, file: str, name: str) -> str:
    """Return a place in a file; the file is left out where it was just named."""
    same = bool(name) and Path(file).resolve() == Path(name).resolve()
    return f"line {number}" if same else f"line {number} of {file}"
