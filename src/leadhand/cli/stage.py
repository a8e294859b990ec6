"""A stage for demonstrations: every command that is shown is really run, with the words shown."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from leadhand.errors import Bug, UsageError
from leadhand.settings.trust import VARIABLE

if TYPE_CHECKING:
    from leadhand.cli.console import Console
    from leadhand.core.plan.model import Doc

WAIT_S = 60.0


def place_of(folder: str | None) -> Path:
    """An empty folder: the one that was named, or a temporary one."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="leadhand-demo-"))
    place = Path(folder)
    if place.exists() and any(place.iterdir()):
        raise UsageError(f"{place} is not empty. Fix: name a folder that is, or none.")
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


class Stage:
    """Runs commands in the demo's folder, in front of the audience."""

    def __init__(self, console: Console, place: Path) -> None:
        self.console = console
        self.place = place
        self._children: list[subprocess.Popen[bytes]] = []
        self.commands = [f"cd {shlex.quote(str(place))}"]
        self.run = ""

    def end(self) -> None:
        """Leave nothing running."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()

    def tell(self, text: str) -> None:
        """What the narrator says."""
        self.console.say(f"\n{self.console.paint(text, 'bold')}")

    def show(self, line: str) -> None:
        """A command, as it will stand in the list at the end."""
        self.commands.append(line)
        dollar, words = self.console.paint("$", "dim"), self.console.paint(line, "cyan")
        self.console.say(f"{dollar} {words}")

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Begin a `leadhand` command."""
        self.show(f"{program()} {shlex.join(args)}")
        # What it prints as data is part of the show, unless somebody reads our own data.
        return self.spawn("-m", "leadhand.cli", *args, stdout=sys.stderr.fileno())

    def spawn(self, *args: str, stdout: int) -> subprocess.Popen[bytes]:
        """Begin a Python process that ends with us."""
        child = subprocess.Popen(
            [sys.executable, "-P", *args],
            cwd=self.place,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
        )
        self._children.append(child)
        return child

    def _environment(self) -> dict[str, str]:
        """Ours without settings; the folder was written by us, so it is trusted."""
        kept = {k: v for k, v in os.environ.items() if not _is_setting(k)}
        return {**kept, VARIABLE: str(self.place.resolve())}

    def do(self, *args: str) -> None:
        """Run a `leadhand` command to its end, which must be a good one."""
        code = self.start(*args).wait(WAIT_S)
        if code:
            raise Bug(f"the demo's `leadhand {args[0]}` ended with {code}")

    def ask(self, *args: str) -> Doc:
        """What a `leadhand` command tells machines; the audience does not see it."""
        line = [sys.executable, "-P", "-m", "leadhand.cli", *args, "--json"]
        done = subprocess.run(
            line,
            cwd=self.place,
            env=self._environment(),
            capture_output=True,
            check=True,
            timeout=WAIT_S,
        )
        found: Doc = json.loads(done.stdout)
        return found

    def latest(self) -> Doc:
        """The last run."""
        found: Doc = self.ask("ls")[0]  # type: ignore[index]
        return found

    def list_commands(self) -> None:
        """All that was run."""
        self.tell("The commands that were run; repeat any of them:")
        for line in self.commands:
            self.console.say(f"  {line}")


def program() -> str:
    """How to call leadhand from where the reader sits."""
    beside = Path(sys.executable).with_name("leadhand")
    found = shutil.which("leadhand")
    if found is not None and Path(found) == beside:
        return "leadhand"
    if beside.exists():
        return shlex.quote(str(beside))
    return f"{shlex.quote(sys.executable)} -m leadhand.cli"


def _is_setting(name: str) -> bool:
    return name.startswith("LEADHAND_") and name != "LEADHAND_DEBUG"
