"""A command on a terminal of its own: what it shows is waited for, and answers are typed."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from contextlib import suppress

from tests.support.cli import PROGRAM, environment

LIMIT_S = 90
INTERRUPT, END = "\x03", "\x04"


def plain(text):
    """Return a text without sequences that move the cursor or colour."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


class Screen:
    """A command on a terminal; a context manager that ends it."""

    def __init__(self, folder, *args, rows=50, columns=120, into="", **env):
        """Start a command; with `into`, its standard output goes into that file."""
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.chdir(folder.path)
            if into:
                os.dup2(os.open(into, os.O_WRONLY | os.O_CREAT, 0o600), 1)
            known = {"TERM": "xterm", "COLUMNS": str(columns)}
            os.execve(PROGRAM[0], [*PROGRAM, *args], environment(folder.path, **known | env))
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.raw = ""
        self._seen = 0
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._file)

    @property
    def text(self):
        """Everything that was shown, without colours."""
        return plain(self.raw)

    def _read(self, until):
        """Read what there is; return False at the end."""
        if time.monotonic() > until:
            raise AssertionError(f"waited too long; seen: {self.text[-3000:]}")
        if not select.select([self._file], [], [], 0.1)[0]:
            return True
        try:
            part = os.read(self._file, 65536)
        except OSError:
            return False
        self.raw += part.decode(errors="replace")
        return bool(part)

    def expect(self, text):
        """Wait until a text is shown after the last one expected; return what stood before it."""
        until = time.monotonic() + LIMIT_S
        while text not in self.text[self._seen :]:
            assert self._read(until), f"ended without {text!r}: {self.text[-3000:]}"
        start = self._seen
        self._seen = self.text.index(text, start) + len(text)
        return self.text[start : self._seen]

    def type(self, keys):
        """Type keys, as a person would after reading."""
        os.write(self._file, keys.encode())

    def ends(self):
        """Wait for the end; return the exit code."""
        until = time.monotonic() + LIMIT_S
        while self._read(until):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        return self.code
