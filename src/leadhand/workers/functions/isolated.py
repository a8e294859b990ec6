"""The child's side of `isolation`: `python -m leadhand.workers.functions.isolated MODULE
QUALNAME`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from leadhand.codec.values import progress_note
from leadhand.core.report import Failure, Report
from leadhand.workers.functions.decorator import MARK
from leadhand.workers.functions.snapshot import SOURCES, load_file
from leadhand.workers.functions.worker import FunctionAction
from leadhand.workers.reports import report_doc, report_of


@dataclass(slots=True)
class ChildContext:
    """The context as the child knows it."""

    _out: int
    goal: Any = None
    run: str = ""
    step: str = ""
    attempt: int = 0
    key: str = ""
    failures: tuple[Failure, ...] = ()
    results: dict[str, Any] = field(default_factory=dict)
    answers: tuple[Any, ...] = ()
    cancelled: bool = False

    def progress(self, message: str = "", fraction: float | None = None) -> None:
        """Say how far it is."""
        text, share = progress_note(message, fraction)
        _write(self._out, {"progress": {"message": text, "fraction": share}})


def _write(descriptor: int, doc: dict[str, Any]) -> None:
    rest = memoryview(msgspec.json.encode(doc) + b"\n")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _find(module: str, file: str, qualname: str) -> Any:
    """Return the function: by its module's name if that can be imported, else by its file."""
    try:
        found: Any = load_file(file) if module == file else importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not file or (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        found = load_file(file)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _stop(_number: int, _frame: object) -> NoReturn:
    raise SystemExit("it was told to stop")


def main() -> None:
    """Read the request, call the function, write the report."""
    module, qualname = sys.argv[1:3]
    with os.fdopen(0, "rb", closefd=False) as stdin:
        request = msgspec.json.decode(stdin.read())
    # From here on standard output belongs to the answer; prints go to standard error.
    out = os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    signal.signal(signal.SIGTERM, _stop)
    sys.path[:] = request["path"]
    os.environ.pop("PYTHONPATH", None)
    if request["pythonpath"] is not None:
        os.environ["PYTHONPATH"] = request["pythonpath"]
    SOURCES.restore(
        {
            name: (path, package, b64decode(data))
            for name, (path, package, data) in request["sources"].items()
        }
    )
    SOURCES.install()
    try:
        function = _find(module, request["file"], qualname)
        context = None
        if request["context"] is not None:
            told = request["context"]
            told["failures"] = tuple(Failure(**each) for each in told["failures"])
            told["answers"] = tuple(told["answers"])
            context = ChildContext(out, **told)
        action = FunctionAction(getattr(function, MARK), function)
        report: Report = action.run_here(request["parameters"], context)
    except BaseException as error:  # noqa: BLE001 - any error is reported to the host
        report = report_of(error)
    sys.stdout.flush()
    sys.stderr.flush()
    _write(out, {"report": report_doc(report)})


if __name__ == "__main__":
    main()
