"""A team on a stand-in of GitHub, with a fleet beside it: an issue, its CI, a reviewer.

CI wants a blue module and says so; the reviewer wants navy. The agent does what it is told, and
nothing it is not told: it learns of blue from the log of a red check, of navy from a review.

    python -m tests.fleet.forge.flow_world FOLDER URL    a fleet in a process of its own
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.forge.github import GitHub
from leadhand.fleet.forge.http import Pace, TokenCredential
from leadhand.fleet.forge.rules import ForgeRules, ForgeSetup
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.service import Fleet, FleetConfig
from tests.fleet.forge.standin.git_host import BareGit
from tests.fleet.forge.standin.github import TOKEN, GitHubStandIn
from tests.fleet.places import make_repo

LABEL = "leadhand"
AGENT = """
import json, pathlib, sys
task, attempt, brief, session, log = sys.argv[1:6]
brief = pathlib.Path(brief).read_text()
place = pathlib.Path("src/colour.py")
before = place.read_text() if place.exists() else ""
colour = "navy" if "> Make it navy" in brief else "blue" if "expected blue" in brief else "red"
with open(log, "a") as file:
    row = {"task": task, "attempt": int(attempt), "session": session, "before": before}
    file.write(json.dumps({**row, "colour": colour, "brief": brief}) + "\\n")
if "needs an answer" in brief and "You asked, and were told" not in brief:
    print("needs: which shade?")
    sys.exit(0)
place.write_text(f"COLOUR = {colour!r}\\n")
print("done")
"""
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('src').glob('*.py')]"


class Team:
    """People and CI on the host; `act` does what is due."""

    def __init__(self, folder, *, asks=True, merges=False):
        make_repo(folder / "user", {"src/b.py": "B = 1\n", "README.md": "A shop.\n"})
        self.git = BareGit(folder / "host.git", folder / "user")
        self.host = GitHubStandIn(self.git)
        self.host.late = 0
        self.host.access |= {"ann": "write", "rev": "maintain", "eve": "read"}
        self.asks, self.merges, self.asked, self.approved = asks, merges, "", set()
        self.tested = set()

    def colour(self, commit):
        return self.git.git("show", f"{commit}:src/colour.py").partition("'")[2].rstrip("'\n ")

    def act(self):
        """Test what is new, review what is green, merge what is approved."""
        host = self.host
        with host.lock:
            main = self.git.head("main")
            for number, pull in host.pulls.items():
                if pull["state"] != "open":
                    continue
                head = host._head(number)
                if self.git.is_merged(head, "main"):  # GitHub notices a push that merges it
                    pull |= {"state": "closed", "merged_at": host.time(), "merge_commit_sha": main}
                    continue
                self._test(head)
                colour = self.colour(head)
                if colour == "blue" and self.asks and not self.asked:
                    self.asked = head
                    remark = ("src/colour.py", 1, "Make it navy, please.")
                    host.review(number, "CHANGES_REQUESTED", "Nearly.", "rev", (remark,))
                wanted = "navy" if self.asks else "blue"
                if colour == wanted and head not in self.approved:
                    self.approved.add(head)
                    host.review(number, "APPROVED", "Good.", "rev")
                if self.merges and head in self.approved:
                    host._merge(number, "squash", pull["title"])
            if host.queue:
                host.merge_from_queue()
            if main not in self.tested:
                self.tested.add(main)
                host.set_check(main, "ci", "success")

    def _test(self, head):
        if head not in self.tested:
            self.tested.add(head)
            colour = self.colour(head)
            red = colour not in ("blue", "navy")
            log = f"AssertionError: expected blue, got {colour}\n" if red else ""
            self.host.set_check(head, "ci", "failure" if red else "success", log)

    async def acting(self):
        while True:
            self.act()
            await asyncio.sleep(0.05)

    # --- what came of it ---

    def is_done(self, number=1):
        """Return whether the issue is closed, with its evidence."""
        said = [each for each in list(self.host.comments.values()) if each["number"] == number]
        return any("Done: main is green" in each["body"] for each in said)

    def judge(self, number=1):
        """Check the laws: one pull request, one merge, one close, nothing said twice."""
        host = self.host
        assert len(set(host.made)) == len(host.made), f"made twice: {host.made}"
        assert host.issues[number]["state"] == "closed"
        assert len(host.pulls) == 1
        (pull,) = host.pulls.values()
        assert pull["merged_at"], "merged"
        landed = self.git.git("log", "--format=%s", "--first-parent", "main").splitlines()
        assert len(landed) == 2, f"merged once: {landed}"
        wanted = "navy" if self.asks else "blue"
        assert self.colour("main") == wanted
        said = [each["body"] for each in host.comments.values() if each["number"] == number]
        assert sum("works on this issue" in each for each in said) == 1
        assert sum("Done: main is green" in each for each in said) == 1
        assert not [each for each in host.pulls if each in host.issues]


def flow_fleet(folder, url, *, rules=None, clock=None, **more):
    """A fleet on the stand-in; call it again to open it again."""
    agent, log = folder / "agent.py", folder / "agents.jsonl"
    agent.write_text(AGENT)
    words = ["{task}", "{attempt}", "{brief_file}", "{session}", str(log)]
    command = [sys.executable, str(agent), *words]

    def coders(processes):
        made = TemplateCoder("scripted", command, processes=processes, homes=folder / "homes")
        return [("coder", made, "s")]

    def connect():
        times = {"pause_s": 0.02, "pause_max_s": 0.1, "settle_s": 0.02, "write_pause_s": 0.0}
        pace = Pace(**times, **({"now": clock.now, "sleep": clock.sleep} if clock else {}))
        signed = TokenCredential(lambda: TOKEN, "authorization", "Bearer {}")
        return GitHub("acme/shop", signed, api=url, pace=pace, log_hosts=("localhost",))

    given = {"checks": ("ci",), "merge": "host", "look_s": 0.1, "writes": ("src/**",)}
    config = {
        "repo": folder / "user",
        "folder": folder / "fleet",
        "gate": GateRules(commands=((sys.executable, "-c", GATE),)),
        "agents": 2,
        "sandbox": "none",
        "limits": AttemptLimits(time_s=30, silence_s=20),
        "policy": Policy(backoff_s=0.01, jitter=0.0),
        "stagger_s": 0.0,
        "forge": ForgeSetup(connect, ForgeRules(**{**given, **(rules or {})})),
    }
    return Fleet(FleetConfig(**{**config, **more}), coders)


def agents(folder):
    """What the agents were told, attempt by attempt."""
    place = folder / "agents.jsonl"
    return [json.loads(each) for each in place.read_text().splitlines()] if place.exists() else []


async def until(condition, fleet=None, time_s=90.0):
    """Wait until a condition holds."""
    end = time.monotonic() + time_s
    while not condition():
        if time.monotonic() > end:
            told = fleet.refused if fleet is not None else ""
            raise AssertionError(f"not within {time_s} s: {told}")
        await asyncio.sleep(0.05)


async def serve(folder, url):
    """Work until somebody ends the process."""
    async with flow_fleet(folder, url):
        (folder / "open").touch()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
