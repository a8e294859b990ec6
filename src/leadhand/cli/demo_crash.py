"""`leadhand demo --crash`: a deployment, killed in the middle, and finished all the same.

Nothing is acted out here; what is acted out stands in `demo_plan.py`.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from leadhand.cli.demo_plan import BACKUP, COUNT, FILES, KILL_AT
from leadhand.cli.stage import WAIT_S
from leadhand.errors import Bug
from leadhand.settings.trust import trust_written

if TYPE_CHECKING:
    from leadhand.cli.stage import Stage

LOOK_S = 0.05


def play_crash(stage: Stage) -> None:
    """The whole piece."""
    for name, content in FILES.items():
        (stage.place / name).write_text(content, encoding="utf-8")
    trust_written(stage.place)
    stage.tell("A deployment in three steps: test, back up the database, deploy.")
    stage.do("show", "plan.json")
    stage.tell("Check it before anything runs.")
    stage.do("lint", "plan.json")
    stage.tell("Run it, and kill the process with SIGKILL in the middle of step-2.")
    _run_and_kill(stage)
    stage.tell("Nothing was lost. The log as it stands, read from the database:")
    stage.do("logs", stage.run)
    stage.tell(
        "step-2 was under way, and nobody saw how it ended. It must not be repeated blindly:\n"
        "its worker has a probe, which looks whether the backup is there. Go on:"
    )
    stage.do("resume", stage.run)
    _judge(stage)
    stage.tell("And the proof: every hash of the log, and every rule over it.")
    stage.do("verify", stage.run)
    stage.list_commands()


def _run_and_kill(stage: Stage) -> None:
    child = stage.start("run", "plan.json")
    until = time.monotonic() + WAIT_S
    while not (stage.place / BACKUP).exists():
        if child.poll() is not None or time.monotonic() > until:
            raise Bug("the demo's run did not get as far as its backup")
        time.sleep(LOOK_S)
    time.sleep(0.6)
    child.send_signal(signal.SIGKILL)
    child.wait()
    if child.returncode != -signal.SIGKILL:
        raise Bug("the demo's run was over before it could be killed")
    if stage.console.colour:
        stage.console.say("\033[?25h")  # the live view hid the cursor and cannot show it again
    killed = stage.console.paint(f"kill -9 {child.pid}", "red")
    stage.console.say(f"{killed}   (it was in the middle of {KILL_AT})")
    stage.run = stage.latest()["run"]


def _judge(stage: Stage) -> None:
    """Say what was seen, after looking."""
    made = (stage.place / COUNT).read_text(encoding="utf-8").splitlines()
    status = stage.latest()["status"]
    if status != "succeeded" or len(made) != 1:
        raise Bug(f"the demo ended {status}, with {len(made)} backups")
    good = stage.console.paint("succeeded", "green")
    stage.console.say(
        f"\n{good}: the backup was there, so step-2 was adopted as done, not made again;\n"
        "step-1 was not repeated, and step-3 followed."
    )
