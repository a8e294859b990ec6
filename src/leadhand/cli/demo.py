"""`leadhand demo`: a goal, a plan, work, four things that go wrong, and a summary all the same.

What it plays is `examples/research`, copied into a folder of its own. Every command it shows is
really run, as a process of its own, with the words shown.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click

import leadhand
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.cli.stage import Stage, place_of, program
from leadhand.errors import Bug
from leadhand.settings.trust import trust_written

FILES = ("leadhand.toml", "server.py", "workers.py")
GOAL = "Where do the bicycles run out?"
RECOVERED = {"retry", "reroute", "simplify"}


@command("demo", "leadhand demo\nleadhand demo --crash")
@click.option(
    "--folder", metavar="PATH", help="Keep the demo there; by default a temporary folder."
)
@click.option("--crash", is_flag=True, help="Another one: a deployment killed with kill -9.")
def demo(console: Console, folder: str | None, *, crash: bool) -> int:
    """See a goal become a plan, and the plan survive what goes wrong.

    A server on this machine plays an unreliable source: one request is refused for now, one
    address is gone, one task is too much at once, and somebody who is asked says nothing. No
    key, no account, no network beyond this machine; about twenty seconds.
    """
    stage = Stage(console, place_of(folder))
    try:
        if crash:
            from leadhand.cli.demo_crash import play_crash

            play_crash(stage)
        else:
            _play(stage)
    finally:
        stage.end()
    if console.json:
        place = str(stage.place)
        console.document({"folder": place, "run": stage.run, "commands": stage.commands})
    return 0


def example(name: str) -> Path:
    """An example's folder: beside the package in a checkout, inside it when it is installed."""
    package = Path(leadhand.__file__).resolve().parent
    for folder in (package / "examples" / name, package.parents[1] / "examples" / name):
        if (folder / "workers.py").exists():
            return folder
    raise Bug(f"the example {name} is not part of this installation")


def _play(stage: Stage) -> None:
    for name in FILES:
        shutil.copy(example("research") / name, stage.place / name)
    trust_written(stage.place)
    stage.tell(
        f"The goal: {GOAL}\n"
        "Nobody has written a plan. Workers say what they need and what they give; the planner\n"
        "finds the way. A small server on this machine plays the town, and it is moody:"
    )
    api = _serve(stage)
    goal = (GOAL, "--have", f"api={api}", "--want", "summary")
    stage.tell("What it would do, and why. Nothing runs yet.")
    stage.do("plan", *goal)
    stage.tell(
        "Now run it. Four things will go wrong, and each is answered in its own way:\n"
        "  too many requests    retry, after the pause that was asked for\n"
        "  an address is gone   reroute, to a worker that gives the same\n"
        "  too much at once     simplify: the planner splits the step\n"
        "  nobody answers       a question has a default, which counts after 4 seconds"
    )
    stage.do("run", *goal, "--why")
    stage.run = stage.latest()["run"]
    stage.tell("When it happened, and what each recovery was worth.")
    stage.do("show", stage.run, "--timeline")
    _judge(stage)
    stage.tell("The proof: every hash of the log, and every rule over it.")
    stage.do("verify", stage.run)
    log = stage.place / ".leadhand" / "leadhand.db"
    stage.tell(f"The log is {log}")
    stage.console.say(f"  {program()} logs {stage.run} --intent    what was decided, and why")
    stage.list_commands()
    stage.console.say(
        f"\nThe workers are in {stage.place / 'workers.py'}: change them, and run it again.\n"
        f"Another piece, with kill -9 in the middle: {program()} demo --crash"
    )


def _serve(stage: Stage) -> str:
    """Start the town; its address."""
    server = stage.spawn("server.py", stdout=subprocess.PIPE)
    assert server.stdout is not None
    address = server.stdout.readline().decode().strip()
    if not address:
        raise Bug("the demo's server did not start")
    port = address.rpartition(":")[2]
    stage.show(f"{shlex.quote(sys.executable)} server.py {port} &")
    return address


def _judge(stage: Stage) -> None:
    """Say what was seen, after looking."""
    told = stage.ask("show", stage.run)
    won = {each["strategy"] for each in told["recovery"]["answers"] if each["won"]}
    if told["status"] != "succeeded" or not won >= RECOVERED:
        raise Bug(f"the demo ended {told['status']}, having recovered by {sorted(won)}")
