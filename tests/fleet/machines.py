"""A fleet with other machines, each a process in a network namespace of its own.

    python -m tests.fleet.machines --tasks 48 --gate-seconds 12       root, for the namespaces

Home is `leadhand fleet start` without agents of its own; each machine is `leadhand worker --kinds
coder`, with two agents and two gates, and reaches nothing but home: the Temporal server, and the
hub by HTTPS. The gate waits and computes nothing: machines that share a processor here would share
a bottleneck otherwise. The same epic runs with one machine and then with four, and

    every task has landed once, in its first attempt
    every position of main passes the gate on an independent checkout
    the rate of four machines is at least three times that of one

Ends with 1 if anything is wrong. Figures are printed as JSON.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from leadhand.fleet.repository.hub import LEASES, Hub
from leadhand.fleet.status.journal import read as read_journal
from tests.chaos.namespaces import Net, net, possible
from tests.chaos.temporal import until
from tests.fleet.git_server import TOKEN, GitServer
from tests.support import temporal as hosting
from tests.support.cli import PROGRAM, environment

WANTED = 3.0
LIMIT_S = 240.0
GATE = """
sleep "$1"
for file in modules/*.txt; do
  name=$(basename "$file" .txt)
  [ "$(cat "$file")" = "made $name" ] || { echo "FAILED $name"; exit 1; }
done
"""
AGENT = """
echo '{"type": "text", "text": "at work"}'
while [ -e "$2/wait" ]; do sleep 0.1; done
mkdir -p modules
echo "made $1" > "modules/$1.txt"
echo '{"type": "text", "text": "wrote it", "cost": 0.01}'
"""
SETTINGS = """
[temporal]
address = "{temporal}"
prefix = "{prefix}"
heartbeat = "{heartbeat} s"

[fleet]
repo = "../repo"
gate = ["sh gate.sh {gate_s}"]
agents = {agents}
gates = {gates}
screen = "always"
stagger = 0
load = 1000
certificates = "{certificate}"

[fleet.machines]
{machines}

[coders.scripted]
kind = "command"
command = ["sh", "{{root}}/agent.sh", "{{task}}", "{{root}}/told"]
readable = ["told"]
"""


class Stage:
    """Home, its machines, and what lies between them."""

    def __init__(
        self, root: Path, links: Net, server: hosting.Server, gate_s: float, heartbeat_s: float
    ) -> None:
        self.root, self.links, self.server, self.gate_s = root, links, server, gate_s
        self.home = root / "home"
        self.folder = self.home / ".leadhand" / "fleet"
        self.prefix = f"machines-{os.getpid()}-{root.name}"
        self.heartbeat_s = heartbeat_s
        self.processes: list[subprocess.Popen[bytes]] = []
        self.git = GitServer(root, self.folder / "hub", links.address)

    def lay_out(self, machines: int, tasks: int) -> None:
        """Write the repository, the settings of home and machines, and the epic."""
        repo = self.root / "repo"
        (repo / "modules").mkdir(parents=True)
        (repo / "modules" / "first.txt").write_text("made first\n")
        (repo / "gate.sh").write_text(GATE)
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        for words in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-qm", "begin")):
            subprocess.run(["git", *words], cwd=repo, check=True)
        self._settings(self.home, f"agents = {2 * machines}", agents=0)
        for number in range(machines):
            table = f'hub = "{self.git.url}"\ntoken = "env:HUB_TOKEN"\nname = "m{number}"'
            self._settings(self.root / f"m{number}", table, agents=2)
        lines = [
            f"  - {{id: t{n}, goal: write the module of t{n}, writes: [modules/t{n}.txt]}}"
            for n in range(tasks)
        ]
        epics = self.folder / "epics"
        epics.mkdir(parents=True)
        (epics / "epic.md").write_text(
            "# Modules\n\nModules.\n\n```yaml\ntasks:\n" + "\n".join(lines) + "\n```\n"
        )

    def _settings(self, folder: Path, machines: str, *, agents: int) -> None:
        (folder / "told").mkdir(parents=True)
        (folder / "agent.sh").write_text(AGENT)
        text = SETTINGS.format(
            temporal=self.server.address,
            prefix=self.prefix,
            heartbeat=self.heartbeat_s,
            gate_s=self.gate_s,
            agents=agents,
            gates=2,
            certificate=self.git.certificate,
            machines=machines,
        )
        (folder / "leadhand.toml").write_text(text)

    def _start(self, command: list[str], folder: Path, **more: str) -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as out:
            started = subprocess.Popen(
                command,
                cwd=folder,
                env=environment(folder, **more),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.processes.append(started)
        return started

    def start_home(self) -> subprocess.Popen[bytes]:
        """Start the fleet; it ends when the epic has."""
        command = [*PROGRAM, "fleet", "start", "--no-serve", "--until-idle"]
        return self._start(command, self.home)

    def start_machine(self, number: int) -> subprocess.Popen[bytes]:
        """Start a machine in its namespace."""
        command = [*self.links.within(number), *PROGRAM, "worker", "--kinds", "coder"]
        folder = self.root / f"m{number}"
        return self._start([*command, "--drain", "5"], folder, HUB_TOKEN=TOKEN)

    def serves(self, number: int) -> bool:
        """Whether a machine takes orders."""
        log = self.root / f"m{number}" / "log"
        return "serving coder" in log.read_text(errors="replace")

    def live(self) -> dict[str, Any]:
        """What home says of itself."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "live.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def agents_on(self, number: int) -> list[str]:
        """The tasks whose agents work on a machine and have spoken."""
        name, agents = f"m{number}", self.live().get("agents", [])
        return [each["task"] for each in agents if each["machine"] == name and each["words"]]

    def held(self, number: int) -> list[Path]:
        """Notes of slots that a machine has handed to agents."""
        return [*(self.root / f"m{number}").glob(".leadhand/fleet/machine/hub/index/*.held")]

    def hold_agents(self, number: int, *, wait: bool) -> None:
        """Let the agents of a machine wait, or go on."""
        place = self.root / f"m{number}" / "told" / "wait"
        if wait:
            place.touch()
        else:
            place.unlink(missing_ok=True)

    def finish(self, home: subprocess.Popen[bytes], limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait until home has ended, and say how it went."""
        try:
            code = home.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = -1
        return {"exit": code, **asyncio.run(self._figures())}

    async def _figures(self) -> dict[str, Any]:
        hub = await Hub.look(self.folder / "hub")
        commits = [commit.trailers for commit in await hub.commits()]
        landed = Counter(each["Leadhand-Task"] for each in commits if "Leadhand-Task" in each)
        notes = read_journal(self.folder)
        began = [note["at"] for note in notes if note["what"] == "agent"]
        ended = [note["at"] for note in notes if note["what"] == "landed"]
        took_s = (max(ended) - min(began)) / 1e6 if began and ended else 0.0
        return {
            "landed": len(landed),
            "twice": sum(count > 1 for count in landed.values()),
            "attempts": sorted({each["Leadhand-Attempt"] for each in commits if each}),
            "red": await self._red(hub),
            "leases": len(await hub.kept(f"{LEASES}/")),
            "seconds": round(took_s, 1),
            "per_hour": round(3600 * len(landed) / took_s) if took_s else 0,
            "agents": len(began),
            "lost": sorted({note["machine"] for note in notes if note["what"] == "machine lost"}),
        }

    async def _red(self, hub: Hub) -> int:
        """Positions of main whose checkout does not pass."""
        red = 0
        for number, tip in enumerate(await hub.tips()):
            place = self.root / "tips" / str(number)
            place.mkdir(parents=True)
            files = ("read-tree", "-u", "--reset", tip)
            await hub.git(*files, files=place, index=place.with_suffix(".index"))
            ran = subprocess.run(["sh", "gate.sh", "0"], cwd=place, check=False)
            red += ran.returncode != 0
        return red

    def close(self) -> None:
        """End everything that was started here."""
        for each in self.processes:
            if each.poll() is None:
                each.send_signal(signal.SIGTERM)
        for each in self.processes:
            try:
                each.wait(30)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait(30)

    def logs(self) -> str:
        """The ends of all logs."""
        found = [self.home / "log", *sorted(self.root.glob("m*/log"))]
        return "\n".join(
            f"--- {file}\n{file.read_text(errors='replace')[-3000:]}"
            for file in found
            if file.exists()
        )


@contextlib.contextmanager
def stage(
    root: Path,
    links: Net,
    server: hosting.Server,
    machines: int,
    tasks: int,
    gate_s: float,
    heartbeat_s: float = 30.0,
) -> Iterator[Stage]:
    """A fleet that was laid out and has not begun."""
    root.mkdir()
    made = Stage(root, links, server, gate_s, heartbeat_s)
    made.lay_out(machines, tasks)
    with made.git:
        try:
            yield made
        finally:
            made.close()


def rate(
    root: Path, links: Net, server: hosting.Server, machines: int, tasks: int, gate_s: float
) -> dict[str, Any]:
    """Let an epic run on some machines; return its figures."""
    with stage(root, links, server, machines, tasks, gate_s) as fleet:
        for number in range(machines):
            fleet.start_machine(number)
        for number in range(machines):
            until(lambda number=number: fleet.serves(number), f"machine {number}", LIMIT_S)
        found = fleet.finish(fleet.start_home(), LIMIT_S + tasks * (gate_s + 4) / machines)
        wrong = wrong_with(found, tasks)
        return {
            **found,
            "machines": machines,
            "wrong": wrong,
            "logs": fleet.logs() if wrong else "",
        }


def wrong_with(found: dict[str, Any], tasks: int) -> list[str]:
    """What is not as it should be."""
    wanted = {"exit": 0, "landed": tasks, "twice": 0, "attempts": ["1"], "red": 0, "leases": 0}
    return [
        f"{key} {found[key]}, not {value}" for key, value in wanted.items() if found[key] != value
    ]


@contextlib.contextmanager
def place(count: int) -> Iterator[tuple[Net, hosting.Server]]:
    """Namespaces for machines, and a Temporal server that they reach."""
    with net(count) as links:
        server = hosting.Server(ip=links.address)
        server.start()
        try:
            yield links, server
        finally:
            server.stop()


def main() -> int:
    """Run both, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--gate-seconds", type=float, default=12.0)
    given = parser.parse_args()
    if not possible():
        sys.stderr.write("needed and missing: network namespaces (root, and `ip` of iproute2)\n")
        return 1
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="leadhand-machines-") as folder,
        place(given.machines) as (links, server),
    ):
        for machines in (1, given.machines):
            began = time.monotonic()
            root = Path(folder) / f"with-{machines}"
            each = rate(root, links, server, machines, given.tasks, given.gate_seconds)
            print(json.dumps({**each, "all_s": round(time.monotonic() - began)}), flush=True)
            found.append(each)
    ratio = found[1]["per_hour"] / max(1, found[0]["per_hour"])
    ok = ratio >= WANTED and not any(each["wrong"] for each in found)
    print(json.dumps({"ratio": round(ratio, 2), "wanted": WANTED, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
