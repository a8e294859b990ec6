"""`leadhand demo`: a deployment, killed in the middle before your eyes, and finished all the same.

Every command it shows is really run, as a process of its own, with the words shown. Nothing is
acted out here; what is acted out stands in `demo_plan.py`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.console import Console
from leadhand.cli.demo_plan import BACKUP, COUNT, FILES, KILL_AT
from leadhand.cli.group import command
from leadhand.errors import Bug, UsageError

if TYPE_CHECKING:
    from leadhand.core.plan import Doc

WAIT_S = 60.0
LOOK_S = 0.05


@command("demo", "leadhand demo")
@click.option(
    "--folder", metavar="PATH", help="Keep the demo there; by default a temporary folder."
)
def demo(console: Console, folder: str | None) -> int:
    """See a deployment killed half-way with kill -9, and finished all the same.

    No key, no account, no network; about ten seconds.
    """
    place = _place(folder)
    stage = _Stage(console, place)
    try:
        stage.play()
    finally:
        stage.end()
    if console.json:
        console.document({"folder": str(place), "run": stage.run, "commands": stage.commands})
    return 0


def _place(folder: str | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="leadhand-demo-"))
    place = Path(folder)
    if place.exists() and any(place.iterdir()):
        raise UsageError(f"{place} is not empty. Fix: name a folder that is, or none.")
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


class _Stage:
    """Runs commands in the demo's folder, in front of the audience."""

    def __init__(self, console: Console, place: Path) -> None:
        self._console = console
        self._place = place
        self._child: subprocess.Popen[bytes] | None = None
        self.commands = [f"cd {shlex.quote(str(place))}"]
        self.run = ""

    def play(self) -> None:
        """The whole piece."""
        for name, content in FILES.items():
            (self._place / name).write_text(content, encoding="utf-8")
        self._tell("A deployment in three steps: test, back up the database, deploy.")
        self._do("show", "plan.json")
        self._tell("Check it before anything runs.")
        self._do("lint", "plan.json")
        self._tell("Run it, and kill the process with SIGKILL in the middle of step-2.")
        self._run_and_kill()
        self._tell("Nothing was lost. The log as it stands, read from the database:")
        self._do("logs", self.run)
        self._tell(
            "step-2 was under way, and nobody saw how it ended. It must not be repeated blindly:\n"
            "its worker has a probe, which looks whether the backup is there. Go on:"
        )
        self._do("resume", self.run)
        self._judge()
        self._tell("And the proof: every hash of the log, and every rule over it.")
        self._do("verify", self.run)
        self._tell("The commands that were run; repeat any of them:")
        for line in self.commands:
            self._console.say(f"  {line}")

    def end(self) -> None:
        """Leave nothing running."""
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()

    def _tell(self, text: str) -> None:
        self._console.say(f"\n{self._console.paint(text, 'bold')}")

    def _start(self, *args: str) -> subprocess.Popen[bytes]:
        line = f"{program()} {shlex.join(args)}"
        self.commands.append(line)
        self._console.say(f"{self._console.paint('$', 'dim')} {self._console.paint(line, 'cyan')}")
        env = {k: v for k, v in os.environ.items() if not _is_setting(k)}
        # What it prints as data is part of the show, unless somebody reads our own data.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "leadhand.cli", *args],
            cwd=self._place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
        )
        return self._child

    def _do(self, *args: str) -> None:
        code = self._start(*args).wait(WAIT_S)
        if code:
            raise Bug(f"the demo's `leadhand {args[0]}` ended with {code}")

    def _run_and_kill(self) -> None:
        child = self._start("run", "plan.json")
        until = time.monotonic() + WAIT_S
        while not (self._place / BACKUP).exists():
            if child.poll() is not None or time.monotonic() > until:
                raise Bug("the demo's run did not get as far as its backup")
            time.sleep(LOOK_S)
        time.sleep(0.6)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.returncode != -signal.SIGKILL:
            raise Bug("the demo's run was over before it could be killed")
        if self._console.colour:
            self._console.say("\033[?25h")  # the live view hid the cursor and cannot show it again
        killed = self._console.paint(f"kill -9 {child.pid}", "red")
        self._console.say(f"{killed}   (it was in the middle of {KILL_AT})")
        self.run = self._latest()["run"]

    def _latest(self) -> Doc:
        line = [sys.executable, "-P", "-m", "leadhand.cli", "ls", "--json"]
        found = subprocess.run(
            line, cwd=self._place, capture_output=True, check=True, timeout=WAIT_S
        )
        latest: Doc = json.loads(found.stdout)[0]
        return latest

    def _judge(self) -> None:
        """Say what was seen, after looking."""
        made = (self._place / COUNT).read_text(encoding="utf-8").splitlines()
        status = self._latest()["status"]
        if status != "succeeded" or len(made) != 1:
            raise Bug(f"the demo ended {status}, with {len(made)} backups")
        good = self._console.paint("succeeded", "green")
        self._console.say(
            f"\n{good}: the backup was there, so step-2 was adopted as done, not made again;\n"
            "step-1 was not repeated, and step-3 followed."
        )


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
