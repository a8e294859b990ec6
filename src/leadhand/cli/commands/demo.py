"""`leadhand demo`: a goal, a plan, work, four things that go wrong, and a summary all the same.

What it plays is `examples/research`, copied into a folder of its own. Every command it shows is
really run, as a process of its own, with the words shown.
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

import leadhand
from leadhand.cli.console import Console
from leadhand.cli.group import command
from leadhand.errors import Bug, UsageError
from leadhand.settings.trust import VARIABLE

if TYPE_CHECKING:
    from leadhand.core.plan.model import Doc


# The plan of `leadhand demo --crash`, and three workers that act it out.
#
# The workers only write small files into the demo's own folder and take their time. The second one
# is the point: it does its work, and is killed before it can report. It has a probe, so the engine
# does not repeat it blindly: it looks.


PLAN = """\
{
  "plan_id": "deploy-auth-service-v2.1.4",
  "goal": "Deploy authentication service update to production",
  "steps": [
    {
      "id": "step-1",
      "action": "run_tests",
      "worker": "test-runner",
      "parameters": {
        "test_suite": "full",
        "environment": "staging"
      },
      "success_criteria": "all_tests_pass",
      "failure_action": "abort_deployment"
    },
    {
      "id": "step-2",
      "action": "backup_database",
      "worker": "db-manager",
      "parameters": {
        "database": "auth_prod",
        "backup_type": "full"
      },
      "depends_on": ["step-1"]
    },
    {
      "id": "step-3",
      "action": "deploy_service",
      "worker": "k8s-deployer",
      "parameters": {
        "service": "auth-service",
        "version": "v2.1.4",
        "strategy": "blue_green"
      },
      "depends_on": ["step-2"]
    }
  ],
  "rollback_plan": "rollback-auth-service-v2.1.3",
  "estimated_duration": "15 minutes",
  "risk_level": "medium"
}
"""

WORKERS = (
    '"""Three workers that act out a deployment. They only write files into this '
    'folder."""\n\nimport asyncio\nfrom pathlib import Path\n\nfrom leadhand import '
    "Context, worker\n\nHERE = Path(__file__).parent\n\n\n@worker(\n    "
    'name="test-runner",\n    action="run_tests",\n    checks={"all_tests_pass": '
    'lambda data: data["failed"] == 0},\n    idempotent=True,\n    est="1.5s",\n)\nasync '
    "def run_tests(test_suite: str, environment: str, context: Context) -> dict[str, int]:\n "
    '   """Run a test suite."""\n    for done in range(1, 6):\n        await '
    'asyncio.sleep(0.3)\n        context.progress(f"{done * 40} of 200 tests", done / 5)\n '
    '   return {"passed": 200, "failed": 0}\n\n\ndef backup_exists(database: str, '
    'backup_type: str) -> dict[str, str] | None:\n    """The probe: whether an attempt '
    'with an unknown outcome did make the backup."""\n    file = HERE / '
    'f"{database}.{backup_type}.backup"\n    return {"file": file.name} if file.exists() '
    'else None\n\n\n@worker(\n    name="db-manager",\n    action="backup_database",\n    '
    'effects="writes a backup",\n    probe=backup_exists,\n    est="3s",\n)\nasync def '
    "backup_database(database: str, backup_type: str, context: Context) -> dict[str, str]:\n "
    '   """Back up a database. Doing it twice is not the same as doing it once."""\n   '
    ' file = HERE / f"{database}.{backup_type}.backup"\n    with (HERE / '
    '"backups-made.txt").open("a") as count:\n        count.write(f"attempt '
    '{context.attempt}\\n")\n    await asyncio.sleep(0.5)\n    file.write_text("all the '
    'rows")\n    for done in range(1, 6):\n        context.progress("checking what was '
    'written", done / 5)\n        await asyncio.sleep(0.5)\n    return {"file": '
    'file.name}\n\n\n@worker(name="k8s-deployer", action="deploy_service", '
    'effects="deploys", est="1.5s")\nasync def deploy_service(\n    service: str, '
    'version: str, strategy: str, context: Context\n) -> dict[str, str]:\n    """Deploy a '
    'service."""\n    for colour in ("green is up", "traffic is moving", "blue is '
    'gone"):\n        context.progress(colour)\n        await asyncio.sleep(0.5)\n    '
    'return {"deployed": f"{service} {version}", "strategy": strategy}\n'
)

SETTINGS = """\
[project]
workers = ["workers.py"]
"""

CRASH_FILES = {"plan.json": PLAN, "workers.py": WORKERS, "leadhand.toml": SETTINGS}
BACKUP = "auth_prod.full.backup"
"""The file that proves that step-2 has done its work."""
COUNT = "backups-made.txt"
KILL_AT = "step-2"


# The stage of demonstrations: every command shown is really run, exactly as shown.


WAIT_S = 60.0


def place_of(folder: str | None) -> Path:
    """Return an empty folder: the given one, or a temporary one."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="leadhand-demo-"))
    place = Path(folder)
    if place.exists() and any(place.iterdir()):
        raise UsageError(f"{place} is not empty. Fix: name a folder that is, or none.")
    place.mkdir(parents=True, exist_ok=True)
    return place.resolve()


class DemoStage:
    """Runs commands in the demo's folder, visibly."""

    def __init__(self, console: Console, place: Path) -> None:
        self.console = console
        self.place = place
        self._children: list[subprocess.Popen[bytes]] = []
        # No trust is written down for a folder that may be gone tomorrow.
        self.commands = [f"cd {shlex.quote(str(place))}", f'export {VARIABLE}="$PWD"']
        self.run = ""

    def end(self) -> None:
        """End all processes."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()

    def tell(self, text: str) -> None:
        """Print a text of the narrator."""
        self.console.say(f"\n{self.console.paint(text, 'bold')}")

    def show(self, line: str) -> None:
        """Show a command, and add it to the list at the end."""
        self.commands.append(line)
        dollar, words = self.console.paint("$", "dim"), self.console.paint(line, "cyan")
        self.console.say(f"{dollar} {words}")

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start a `leadhand` command."""
        self.show(f"{program()} {shlex.join(args)}")
        # Its data is part of the show, unless a program reads our own data.
        return self.spawn("-m", "leadhand.cli", *args, stdout=sys.stderr.fileno())

    def spawn(self, *args: str, stdout: int) -> subprocess.Popen[bytes]:
        """Start a Python process that ends with us."""
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
        """Return our environment without settings; the folder is ours, so it is trusted."""
        kept = {k: v for k, v in os.environ.items() if not _is_setting(k)}
        return {**kept, VARIABLE: str(self.place.resolve())}

    def do(self, *args: str) -> None:
        """Run a `leadhand` command to its end, which must be a success."""
        code = self.start(*args).wait(WAIT_S)
        if code:
            raise Bug(f"the demo's `leadhand {args[0]}` ended with {code}")

    def ask(self, *args: str) -> Doc:
        """Return the `--json` document of a `leadhand` command, run invisibly."""
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
        """Return the last run."""
        found: Doc = self.ask("ls")[0]  # type: ignore[index]
        return found

    def list_commands(self) -> None:
        """List all commands that were run."""
        self.tell("The commands that were run; repeat any of them:")
        for line in self.commands:
            self.console.say(f"  {line}")


def program() -> str:
    """Return how to call leadhand from the reader's shell."""
    beside = Path(sys.executable).with_name("leadhand")
    found = shutil.which("leadhand")
    if found is not None and Path(found) == beside:
        return "leadhand"
    if beside.exists():
        return shlex.quote(str(beside))
    return f"{shlex.quote(sys.executable)} -m leadhand.cli"


def _is_setting(name: str) -> bool:
    return name.startswith("LEADHAND_") and name != "LEADHAND_DEBUG"


# `leadhand demo --crash`: a deployment, killed in the middle, and finished all the same.
#
# Everything here really runs; only PLAN and WORKERS above act something out.


LOOK_S = 0.05


def play_crash(stage: DemoStage) -> None:
    """Play the whole demonstration."""
    for name, content in CRASH_FILES.items():
        (stage.place / name).write_text(content, encoding="utf-8")
    stage.tell("A deployment in three steps: test, back up the database, deploy.")
    stage.do("show", "plan.json")
    stage.tell("Check it before anything runs.")
    stage.do("lint", "plan.json")
    stage.tell("Run it, and kill the process with SIGKILL in the middle of step-2.")
    _run_and_kill(stage)
    stage.tell("Nothing was lost. The log as it stands, read from the database:")
    stage.do("logs", stage.run)
    stage.tell(
        "step-2 was running when the process was killed: its outcome is unknown, and it "
        "must not\nbe repeated blindly. Its worker has a probe, which checks whether the "
        "backup exists. Resume:"
    )
    stage.do("resume", stage.run)
    _judge_crash(stage)
    stage.tell("And the proof: every hash of the log, and every rule over it.")
    stage.do("verify", stage.run)
    stage.list_commands()


def _run_and_kill(stage: DemoStage) -> None:
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


def _judge_crash(stage: DemoStage) -> None:
    """Check the result, and say what was seen."""
    made = (stage.place / COUNT).read_text(encoding="utf-8").splitlines()
    status = stage.latest()["status"]
    if status != "succeeded" or len(made) != 1:
        raise Bug(f"the demo ended {status}, with {len(made)} backups")
    good = stage.console.paint("succeeded", "green")
    stage.console.say(
        f"\n{good}: the backup was there, so step-2 was adopted as done, not made again;\n"
        "step-1 was not repeated, and step-3 followed."
    )


FILES = ("leadhand.toml", "server.py", "workers.py")
GOAL = "Where do the bicycles run out?"
RECOVERED = {"retry", "reroute", "simplify"}


@command("demo", "leadhand demo\nleadhand demo --crash")
@click.option(
    "--folder",
    metavar="PATH",
    help="The folder for the demo's files; the default is a temporary folder.",
)
@click.option(
    "--crash", is_flag=True, help="Show a deployment that is killed with kill -9 and resumed."
)
def demo(console: Console, folder: str | None, *, crash: bool) -> int:
    """Run a short demonstration; no API key and no network are needed.

    A goal becomes a plan, and the plan survives four failures. A small server on this machine
    plays an unreliable data source: one request is rate limited, one address is gone, one task
    is too large, and one question gets no answer. It takes about twenty seconds.
    """
    stage = DemoStage(console, place_of(folder))
    try:
        if crash:
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
    """Return an example's folder: beside the package in a checkout, inside it when installed."""
    package = Path(leadhand.__file__).resolve().parent
    for folder in (package / "examples" / name, package.parents[1] / "examples" / name):
        if (folder / "workers.py").exists():
            return folder
    raise Bug(f"the example {name} is not part of this installation")


def _play(stage: DemoStage) -> None:
    for name in FILES:
        shutil.copy(example("research") / name, stage.place / name)
    stage.tell(
        f"The goal: {GOAL}\nThere is no plan yet. Workers declare what they need and what "
        "they produce; the planner\nmakes a plan from that. A small server on this "
        "machine plays the town, and it is moody:"
    )
    api = _serve(stage)
    goal = (GOAL, "--have", f"api={api}", "--want", "summary")
    stage.tell("What it would do, and why. Nothing runs yet.")
    stage.do("plan", *goal)
    stage.tell(
        "Now run it. Four things will go wrong, and each is answered in its own way:\n  "
        "too many requests    retry, after the pause that was asked for\n  an address is "
        "gone   reroute, to a worker that gives the same\n  too much at once     "
        "simplify: the planner splits the step\n  no answer            a question has a "
        "default, which is used after 4 seconds"
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


def _serve(stage: DemoStage) -> str:
    """Start the example's server; return its address."""
    server = stage.spawn("server.py", stdout=subprocess.PIPE)
    assert server.stdout is not None
    address = server.stdout.readline().decode().strip()
    if not address:
        raise Bug("the demo's server did not start")
    port = address.rpartition(":")[2]
    stage.show(f"{shlex.quote(sys.executable)} server.py {port} &")
    return address


def _judge(stage: DemoStage) -> None:
    """Check the result, and say what was seen."""
    told = stage.ask("show", stage.run)
    won = {each["strategy"] for each in told["recovery"]["answers"] if each["won"]}
    if told["status"] != "succeeded" or not won >= RECOVERED:
        raise Bug(f"the demo ended {told['status']}, having recovered by {sorted(won)}")
