"""Output of commands: data to stdout, everything else to stderr.

While a command runs, file descriptor 1 points at stderr and the real stdout is kept under another
number. So output of workers, their imports or their children can never mix with the data that a
script reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

import msgspec

from leadhand.cli.rendering.text import clean_lines, escaped_json

HOSTS = "leadhand.hosts"
"""The key in a command's context of the services that its options name: address by option."""
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "magenta": 35, "dim": 2, "bold": 1}


class Console:
    """The output of one command."""

    def __init__(
        self,
        data: IO[str],
        *,
        as_json: bool,
        store: str = "",
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self._data = self.data = data
        """The real standard output."""
        self.store = store
        """The database if it is not the default one: suggested commands must name it."""
        self.hosts = hosts or {}
        """The same for services elsewhere that host runs: the address by option."""
        self.json = as_json
        self.terminal = _is_terminal(sys.stderr) and not os.environ.get("CI")
        """Whether a person sees stderr live: cursor movement and a `Next:` line make sense."""
        self.can_prompt = (
            self.terminal and not as_json and _is_terminal(sys.stdin) and not _is_agents()
        )
        self.can_ask = self.can_prompt and _is_terminal(data)
        """Whether a run may ask a person in the middle: nothing of it goes into a file or pipe."""
        self.colour = wants_colour()

    def out(self, text: str) -> None:
        """Print a line of data."""
        try:
            self._data.write(f"{text}\n")
            self._data.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from None

    def row(self, text: str) -> None:
        """Print a line of a table: on a terminal no longer than its width."""
        if _is_terminal(self._data):
            wide = os.get_terminal_size(self._data.fileno()).columns
            text = text if len(text) <= wide or wide < 2 else text[: wide - 1] + "…"
        self.out(text)

    def text(self, text: str) -> None:
        """Print a text of others byte for byte; on a terminal with control characters shown."""
        self.out(clean_lines(text) if _is_terminal(self._data) else text)

    def document(self, doc: Any) -> None:
        """Print the document of `--json`."""
        self._json(json.dumps(doc, indent=2, ensure_ascii=False, default=_plain))

    def record(self, doc: Any) -> None:
        """Print one line of a `--json` stream."""
        self._json(json.dumps(doc, ensure_ascii=False, separators=(",", ":"), default=_plain))

    def _json(self, text: str) -> None:
        self.out(escaped_json(text) if _is_terminal(self._data) else text)

    def say(self, text: str = "") -> None:
        """Print a line for a person; never data."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def next(self, text: str) -> None:
        """Print a suggestion what to do next, for a person."""
        if self.terminal and not self.json:
            self.say(f"Next: {text}")

    def command(self, words: str) -> str:
        """Return a command to be typed, with `--store` if needed."""
        store = f" --store {shlex.quote(self.store)}" if self.store else ""
        there = "".join(f" {option} {shlex.quote(at)}" for option, at in self.hosts.items())
        return f"leadhand {words}{store}{there}"

    def way_on(self, run: str) -> str:
        """Return the command that resumes a run: its product's, for a product's run."""
        from leadhand.settings.product_logs import log_of_run

        log = log_of_run(run)
        return log.resumed_by if log is not None else self.command(f"resume {run}")

    def restart(self, words: Sequence[str]) -> NoReturn:
        """Replace this process by another command, on the same terminal."""
        place = ["--store", self.store] if self.store else []
        there = [word for option, at in self.hosts.items() for word in (option, at)]
        self._data.flush()
        os.dup2(self._data.fileno(), 1)
        # -P: a file of the project must not shadow a module of ours.
        program = [sys.executable, "-P", "-m", "leadhand.cli"]
        os.execv(program[0], [*program, *words, *place, *there])  # noqa: S606 - no shell

    def bytes(self, data: bytes) -> None:
        """Write binary data."""
        self._data.flush()
        raw = self._data.fileno()
        while data:
            data = data[os.write(raw, data) :]

    @property
    def data_width(self) -> int:
        """The columns of the terminal that data goes to; 0 if it goes elsewhere."""
        return os.get_terminal_size(self._data.fileno()).columns if _is_terminal(self._data) else 0

    @property
    def data_colour(self) -> bool:
        """Whether data may have colours: stdout may be a file."""
        return wants_colour(self._data)

    def paint(self, text: str, colour: str) -> str:
        """Return the text in a colour, if colours are enabled."""
        return painted(text, colour) if self.colour else text

    def paint_data(self, text: str, colour: str) -> str:
        """Return data in a colour, if enabled for stdout, which may be a file."""
        return painted(text, colour) if self.data_colour else text


def painted(text: str, colour: str) -> str:
    """Return the text in a colour."""
    return f"\033[{_COLOURS[colour]}m{text}\033[0m"


@contextlib.contextmanager
def stdout_guard(
    *, as_json: bool, store: str = "", hosts: Mapping[str, str] | None = None
) -> Iterator[Console]:
    """Keep the real stdout for data while all other output goes to stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # closed by the caller: the data is not wanted
        kept = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    data = os.fdopen(kept, "w", encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        yield Console(data, as_json=as_json, store=store, hosts=hosts)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        with contextlib.suppress(OSError):  # each line was flushed, or its failure reported
            data.close()


def fill_closed_streams() -> None:
    """Open closed standard streams on /dev/null.

    Otherwise the next file we open gets that number, and a stray print would be written into it:
    into the database, say.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for life
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for life


def error_line(message: str) -> str:
    """Return an error as a line for stderr."""
    word = "\033[1;31merror\033[0m" if wants_colour() else "error"
    return f"leadhand: {word}: {clean_lines(message)}"


def wants_colour(stream: IO[str] | None = None) -> bool:
    """Return whether a stream may have colours: NO_COLOR and dumb terminals say no."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or _is_terminal(stream or sys.stderr)


def _is_agents() -> bool:
    """Return whether the terminal is one that a coding agent has opened: no person reads there."""
    from leadhand.engine.agent_session import agent_session

    return bool(agent_session())


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        dumb = os.environ.get("TERM") == "dumb"
        return stream is not None and stream.isatty() and not dumb
    except ValueError:  # closed
        return False


def _plain(value: Any) -> Any:
    """Return a document as JSON-like data, and any other value that JSON does not know as text."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, enc_hook=str)
    return str(value)
