"""The terminal as a place to ask: one question at a time, with all other output held back.

While a question is open, file descriptors 1 and 2 point at a temporary file, so that nothing that a
worker prints can stand between the question and its answer, or look like either. What was held back
is printed afterwards, with control characters escaped. Keys that were pressed before a question was
printed are discarded: they answer nothing. Every question of every command is asked from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import click

from leadhand.cli.console import wants_colour
from leadhand.cli.rendering.text import clean_lines, wrapped
from leadhand.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leadhand.cli.signals import Signals


KEYBOARD = 0
LOOK_S = 0.3
SETTLE_S = 1.0
"""How long a plan that replaced another one is on the screen before keys count."""
HELD_BYTES_MAX = 1 << 16
"""How much of the output that was held back is printed: its end."""
LINE_BYTES_MAX = 4096
EDITORS = ("sensible-editor", "editor", "nano", "vim", "vi")


def is_foreground() -> bool:
    """Return whether this process may read its terminal: a background job would be stopped."""
    try:
        return os.tcgetpgrp(KEYBOARD) == os.getpgrp()
    except OSError:
        return False


def discard_keys() -> None:
    """Discard the keys that were pressed and not read: they were for something else."""
    import termios

    with contextlib.suppress(termios.error, OSError, ValueError):
        termios.tcflush(KEYBOARD, termios.TCIFLUSH)


def confirm(question: str) -> bool:
    """Ask a question on the terminal that is answered by yes or no; the default is no."""
    discard_keys()
    return click.confirm(question, err=True)


def prompt(question: str, choices: Sequence[str] = (), default: str | None = None) -> str:
    """Ask for a text on the terminal, or for one of several."""
    kind = click.Choice(list(choices)) if choices else None
    discard_keys()
    return str(click.prompt(question, type=kind, default=default, err=True))


async def settle() -> None:
    """Wait until a person can have seen what was printed just now."""
    await asyncio.sleep(SETTLE_S)


class Overtaken(Exception):
    """The question was settled elsewhere while it was open here."""


class Terminal:
    """The terminal while a question is open. A context manager."""

    def __init__(self, signals: Signals | None = None) -> None:
        self._signals = signals
        self._interrupted = asyncio.Event()
        self._saved: list[int] = []
        self._held: IO[bytes] | None = None
        self.colour = wants_colour()

    def __enter__(self) -> Self:
        sys.stdout.flush()
        sys.stderr.flush()
        self._held = tempfile.TemporaryFile()
        self._saved = [os.dup(1), os.dup(2)]
        for number in (1, 2):
            os.dup2(self._held.fileno(), number)
        if self._signals is not None:
            self._signals.intercept = self._interrupted.set
        return self

    def __exit__(self, *_: object) -> None:
        if self._signals is not None:
            self._signals.intercept = None
        assert self._held is not None
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        for number, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, number)
            os.close(saved)
        with self._held as held:
            size = held.seek(0, os.SEEK_END)
            held.seek(max(0, size - HELD_BYTES_MAX))
            said = held.read().decode("utf-8", "replace")
        if said.strip():
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(clean_lines(said.rstrip("\n")) + "\n")
                sys.stderr.flush()

    @property
    def _screen(self) -> int:
        return self._saved[1]

    def write(self, text: str) -> None:
        """Print text to the terminal."""
        data = text.encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._screen, data) :]

    def say(self, text: str = "") -> None:
        """Print a line, broken at the terminal's width; only its beginning stands at column 0."""
        try:
            width = os.get_terminal_size(self._screen).columns
        except OSError:
            width = 0
        self.write("".join(f"{line}\n" for line in wrapped(text, width)))

    async def line(
        self, question: str, overtaken: Callable[[], bool], *, replaced: bool = False
    ) -> str | None:
        """Print a question and return the line that answers it.

        `replaced`: whether what is asked about took the place of something else just now; then keys
        count only after a moment. None at the end of input, after Ctrl-C, and if the line was not
        ended by Enter. Raise `Overtaken` once `overtaken` returns True: then there is nothing to
        answer any more.
        """
        if replaced:
            await settle()
        self._interrupted.clear()
        loop, ready, back = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(signal.SIGCONT, back.set)
        discard_keys()
        self.write(question)
        loop.add_reader(KEYBOARD, ready.set)
        waits = [asyncio.create_task(each.wait()) for each in (ready, self._interrupted)]
        try:
            first = asyncio.FIRST_COMPLETED
            while not (await asyncio.wait(waits, timeout=LOOK_S, return_when=first))[0]:
                if overtaken():
                    self.say()
                    raise Overtaken
                if back.is_set() and is_foreground():  # after Ctrl-Z and fg
                    back.clear()
                    discard_keys()
                    self.write(f"\n{question}")
        finally:
            loop.remove_reader(KEYBOARD)
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGCONT)
            for each in waits:
                each.cancel()
        typed = b""
        if not self._interrupted.is_set():
            with contextlib.suppress(OSError):
                typed = os.read(KEYBOARD, LINE_BYTES_MAX)
        if not typed.endswith(b"\n"):
            self.say()
            return None
        return typed.decode("utf-8", "replace").strip()

    async def edited(self, text: str, suffix: str) -> str | None:
        """Return a text as a person saves it in the editor; None if it was not saved."""
        return await asyncio.to_thread(edit_text, text, suffix, screen=self._screen)


def edit_text(text: str, suffix: str, *, screen: int | None = None) -> str | None:
    """Return a text as a person leaves it in $VISUAL or $EDITOR; None if it was not saved.

    The editor is started as an argument list, without a shell. `screen` is the file descriptor of
    its terminal, if that is not standard output. Raise `UsageError` if it cannot be started, or
    fails.
    """
    with tempfile.TemporaryDirectory(prefix="leadhand-") as folder:
        file = Path(folder, f"plan{suffix}")
        file.write_text(text, encoding="utf-8")
        before = file.stat().st_mtime_ns
        command = [*editor(), str(file)]
        try:
            done = subprocess.run(command, stdout=screen, stderr=screen, check=False)
        except OSError as error:
            raise UsageError(
                f"the editor {command[0]!r} cannot be started: {error.strerror}. "
                "Fix: set EDITOR to a program, as in EDITOR=nano"
            ) from None
        if done.returncode:
            raise UsageError(f"the editor {command[0]!r} ended with exit code {done.returncode}")
        try:
            after = file.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it deleted the file
            return None
        return None if after == text and file.stat().st_mtime_ns == before else after


def editor() -> list[str]:
    """Return the person's editor as an argument list: $VISUAL, $EDITOR, or a usual one."""
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(name, ""))
        except ValueError as error:
            raise UsageError(f"{name} is not a command: {error}") from None
        if words:
            return words
    found = next((each for each in EDITORS if shutil.which(each)), "")
    if not found:
        raise UsageError("no editor was found. Fix: set EDITOR to a program, as in EDITOR=nano")
    return [found]
