"""A job of 90 agents in three phases, killed at random: no agent that has finished runs again.

The shape of a long job of coding agents: 60 agents look, 20 work on what three of them found, 10
conclude from two of those. An agent is a scripted program that `leadhand` runs as a command. It
leaves its result in a file of its own and a line in a journal, both outside the database; an agent
that starts although its result is there writes `again`. So the world counts, not the log.

`leadhand run` is killed with SIGKILL after a number of journal lines that a seed draws, then
`leadhand resume` goes on, until the kills are used up; the last process ends the run. As soon as no
more agents are left than kills are due, a process is killed at its first line, so that all kills
fall into the job.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.proof.table import ROOT, Figure, Row, of

PROGRAM = [sys.executable, "-P", "-m", "leadhand.cli"]
PHASES = (60, 20, 10)
FEEDS = (0, 3, 2)
"""How many agents of the phase before an agent builds on."""
AT_ONCE = 6
LIFE_SECONDS_MAX = 300
LINES_MAX = 5
"""The most journal lines that a process may live to see before it is killed."""
PAUSE_S = 0.3
"""The most time that it lives on after those lines."""

RETRY = {"attempts": 100, "backoff": "0.1 seconds", "factor": 1}
"""An attempt that was lost with its host counts as one, so there must be more than kills."""

AGENT = """\
cd "$1" || exit 9
test ! -e "results/$2" || echo "again $2" >> journal
echo "start $2" >> journal
sleep "$3"
echo "result of $2" > "results/.$2.$$"
mv "results/.$2.$$" "results/$2"
echo "end $2" >> journal
cat "results/$2"
"""


class Outcome(NamedTuple):
    """What the world says after the job."""

    agents: int
    kills: int
    finished: int
    again: int
    starts: int
    status: str
    verified: bool


def plan(phases: tuple[int, ...], nap: float) -> dict[str, Any]:
    """Return the plan: phases of agents, each after some of the phase before."""
    steps: list[dict[str, Any]] = []
    for phase, count in enumerate(phases):
        for number in range(count):
            name = f"p{phase}-{number}"
            before = [
                f"p{phase - 1}-{(number * FEEDS[phase] + index) % phases[phase - 1]}"
                for index in range(FEEDS[phase])
            ]
            after = {"depends_on": before} if before else {}
            values = {"agent": name, "nap": f"{nap:g}"}
            step = {"id": name, "worker": "agent", "parameters": values, "retry": RETRY}
            steps.append({**step, **after})
    return {"goal": "Do the work of many agents", "steps": steps}


class Job:
    """A folder with settings, a plan, a database and the world of the agents."""

    def __init__(self, folder: Path, phases: tuple[int, ...] = PHASES, nap: float = 0.3) -> None:
        """Write the settings, the agent and the plan."""
        self.folder, self.world, self.phases = folder / "project", folder / "world", phases
        self.run = ""
        self.folder.mkdir()
        (self.world / "results").mkdir(parents=True)
        self.journal = self.world / "journal"
        self.journal.touch()
        (self.folder / "agent.sh").write_text(AGENT)
        (self.folder / "plan.json").write_text(json.dumps(plan(phases, nap)))
        act = ["/bin/sh", "agent.sh", str(self.world), "{agent}", "{nap}"]
        probe = ["cat", f"{self.world}/results/{{agent}}"]
        lines = ["[project]", 'actor = "ann"', "[policy]", f"concurrency = {AT_ONCE}"]
        lines += ["[workers.agent]", f"command = {json.dumps(act)}", f"probe = {json.dumps(probe)}"]
        lines += ['effects = ["results"]', 'risk = "low"']
        (self.folder / "leadhand.toml").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        """Return the command that starts or continues the job."""
        run = self.run_id()
        return ["resume", run, "--quiet"] if run else ["run", "plan.json", "--quiet"]

    def environment(self) -> dict[str, str]:
        """Return an environment without settings of the person who tests."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LEADHAND")}
        home = str(self.folder / "home")
        return {**kept, "HOME": home, "PYTHONPATH": str(ROOT / "src"), "CI": "1"}

    def leadhand(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end."""
        return subprocess.run(
            [*PROGRAM, *args],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=LIFE_SECONDS_MAX,
            check=False,
        )

    def run_id(self) -> str:
        """Return the id of the run, or nothing if none was recorded yet."""
        if self.run or not (self.folder / ".leadhand" / "leadhand.db").exists():
            return self.run
        found = json.loads(self.leadhand("ls", "--json").stdout or "{}")
        rows = found["runs"] if isinstance(found, dict) else found
        self.run = str(rows[0]["run"]) if rows else ""
        return self.run

    def results(self) -> list[str]:
        """Return the agents that have finished."""
        return [each.name for each in (self.world / "results").glob("p*")]

    def unfinished(self) -> int:
        """Return how many agents have not finished."""
        return sum(self.phases) - len(self.results())

    def lines(self) -> list[str]:
        """Return the journal."""
        return self.journal.read_text().splitlines()

    def live_and_die(self, lines: int, pause_s: float) -> bool:
        """Run until so many journal lines have come, then kill; return whether it was killed."""
        before = len(self.lines())
        with (self.folder / "output").open("ab") as output:
            child = subprocess.Popen(
                [*PROGRAM, *self.command()],
                cwd=self.folder,
                env=self.environment(),
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + LIFE_SECONDS_MAX
        while child.poll() is None and len(self.lines()) - before < lines:
            if time.monotonic() > deadline:
                child.kill()
                raise TimeoutError((self.folder / "output").read_text()[-2000:])
            time.sleep(0.01)
        time.sleep(pause_s)
        if child.poll() is not None:
            return False
        child.send_signal(signal.SIGKILL)
        child.wait()
        return True

    def outcome(self, kills: int) -> Outcome:
        """Let the last process end the run, and count."""
        ended = self.leadhand(*self.command())
        if ended.returncode not in (0, 5, 6):
            raise RuntimeError(ended.stderr[-2000:])
        shown = json.loads(self.leadhand("show", self.run_id(), "--json").stdout)
        verified = self.leadhand("verify", "--all").returncode == 0
        count = Counter(line.split()[0] for line in self.lines())
        return Outcome(
            agents=sum(self.phases),
            kills=kills,
            finished=len(self.results()),
            again=count["again"],
            starts=count["start"],
            status=shown["status"],
            verified=verified,
        )


def carry_out(folder: Path, kills: int, seed: int, phases: tuple[int, ...] = PHASES) -> Outcome:
    """Run the job, killed so many times; return what the world says."""
    draw = random.Random(seed)
    job = Job(folder, phases)
    done = 0
    while done < kills:
        lines, pause_s = draw.randint(1, LINES_MAX), draw.uniform(0, PAUSE_S)
        if job.unfinished() <= kills - done:
            # As many kills are due as agents are left: each life ends with its first line, or the
            # job would be over before the kills are.
            lines, pause_s = 1, 0.0
        if not job.live_and_die(lines, pause_s):
            break
        done += 1
    return job.outcome(done)


def row(kills: int = 50, seed: int = 21) -> Row:
    """Run the whole job once."""
    with tempfile.TemporaryDirectory() as folder:
        found = carry_out(Path(folder), kills, seed)
    figures = [
        Figure("kills of the host (SIGKILL)", str(found.kills), str(kills), found.kills == kills),
        Figure(
            "agents that have finished",
            of(found.finished, found.agents),
            str(found.agents),
            found.finished == found.agents,
        ),
        Figure("finished agents that ran again", str(found.again), "0", found.again == 0),
        Figure("starts of agents, with those cut off by a kill", str(found.starts)),
        Figure("the run", found.status, "succeeded", found.status == "succeeded"),
        Figure("log verifies", str(found.verified).lower(), "true", found.verified),
    ]
    return Row(
        name="A job of 90 agents in three phases",
        source="Public reports on workflows of a coding agent: 28 starts for the work of 7 agents; "
        "70 finished of 90 became 46 after an interruption",
        version=f"phases {', '.join(map(str, PHASES))}; {AT_ONCE} at once; seed {seed}",
        left_out="The rival is not run: it needs an account. The agents are scripted programs.",
        figures=figures,
        repeat="make proof ARGS=workflow",
        notes="Results and journal are files outside the database. A probe tells Leadhand whether "
        "an agent whose process died with the host had finished; without a probe it asks a person. "
        f"Steps have {RETRY['attempts']} attempts, since one that is lost with its host counts; "
        "with the default of three a person is asked after three losses of one agent.",
    )
