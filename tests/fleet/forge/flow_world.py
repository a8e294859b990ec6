"""A team on a stand-in of GitHub or GitLab, with a fleet beside it: an issue, its CI, a reviewer.

CI wants a blue module and says so; the reviewer wants navy. The agent does what it is told, and
nothing it is not told: it learns of blue from the log of a red check, of navy from a review.

    python -m tests.fleet.forge.flow_world FOLDER URL KIND    a fleet in a process of its own
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
from leadhand.fleet.forge.gitlab import GitLab
from leadhand.fleet.forge.http import Pace, TokenCredential
from leadhand.fleet.forge.rules import ForgeRules, ForgeSetup
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.service import Fleet, FleetConfig
from tests.fleet.forge.standin import gitlab as gitlab_standin
from tests.fleet.forge.standin.git_host import BareGit
from tests.fleet.forge.standin.github import TOKEN, GitHubStandIn
from tests.fleet.forge.standin.gitlab import GitLabStandIn
from tests.fleet.places import make_repo

LABEL = "leadhand"
AGENT = """
import json, pathlib, re, sys
task, attempt, brief, session, log = sys.argv[1:6]
brief = pathlib.Path(brief).read_text()
place = pathlib.Path("src/colour.py")
before = place.read_text() if place.exists() else ""
colour = "navy" if "> Make it navy" in brief else "blue" if "expected blue" in brief else "red"
with open(log, "a") as file:
    row = {"task": task, "attempt": int(attempt), "session": session, "before": before}
    row["files"] = sorted(map(str, pathlib.Path("src").iterdir()))
    file.write(json.dumps({**row, "colour": colour, "brief": brief}) + "\\n")
if "needs an answer" in brief and "You asked, and were told" not in brief:
    print("needs: which shade?")
    sys.exit(0)
for path in re.findall(r"(?m)^- (src/[a-z]+[.]py)$", brief.partition("# Look at")[0]):
    pathlib.Path(path).write_text(f"NAME = {path!r}\\n")
    place = None
if place is not None:
    place.write_text(f"COLOUR = {colour!r}\\n")
print("done")
"""
GATE = "import pathlib, runpy; [runpy.run_path(str(p)) for p in pathlib.Path('src').glob('*.py')]"


class Team:
    """People and CI on a stand-in of GitHub; `act` does what is due."""

    kind = "github"
    looks_before = 0
    """How often the fleet must have asked for reviews of a good head before it is approved."""

    def __init__(self, folder, *, asks=True, merges=False):
        make_repo(folder / "user", {"src/b.py": "B = 1\n", "README.md": "A shop.\n"})
        self.git = BareGit(folder / "host.git", folder / "user")
        self.host = self.make_host()
        self.host.late = 0
        self.asks, self.merges, self.asked, self.approved = asks, merges, "", set()
        self.tested, self.queued, self.since = set(), set(), {}
        """Commits that CI tested, and those of candidate branches among them."""
        self.holds = False
        """Whether the reviewer takes their time."""

    def make_host(self):
        host = GitHubStandIn(self.git)
        host.access |= {"ann": "write", "rev": "maintain", "eve": "read"}
        return host

    def colour(self, commit):
        if not self.git.git("ls-tree", commit, "src/colour.py"):
            return ""
        return self.git.git("show", f"{commit}:src/colour.py").partition("'")[2].rstrip("'\n ")

    def act(self):
        """Test what is new, review what is green, merge what is approved."""
        with self.host.lock:
            main = self.git.head("main")
            for number, head in self.open_pulls():
                if self.git.is_merged(head, "main"):  # the host notices a push that merges it
                    self.pushed_to_main(number, main)
                    continue
                self._test(head)
                colour = self.colour(head)
                if colour == "blue" and self.asks and not self.asked:
                    self.asked = head
                    self.ask(number, "src/colour.py", 1, "Make it navy, please.")
                wanted = "navy" if self.asks else "blue"
                ready = head not in self.approved and not self.holds
                if colour == wanted and ready and self._looked(head):
                    self.approved.add(head)
                    self.approve(number)
                if self.merges and head in self.approved:
                    self.merge(number)
            for head in self.candidates().values():
                self.queued.add(head)
                self._test(head)
            self.serve_queue()
            if main not in self.tested:
                self.tested.add(main)
                self.set_check(main, red=False)

    def _looked(self, head):
        """Return whether the fleet asked for reviews often enough since this head was seen."""
        asked = sum(path.endswith(self.reviews_path) for _, path, _ in self.host.log)
        return asked - self.since.setdefault(head, asked) >= self.looks_before

    def commit(self, name, text):
        """Push a commit of a person to main; return it."""
        with self.host.lock:
            blob = self.git.path.parent / "blob"
            blob.write_text(text)
            blob_sha, index = (
                self.git.git("hash-object", "-w", str(blob)),
                {"GIT_INDEX_FILE": str(self.git.path.parent / "index")},
            )
            old = self.git.head("main")
            self.git.git("read-tree", old, env=index)
            row = f"100644,{blob_sha},{name}"
            self.git.git("update-index", "--add", "--cacheinfo", row, env=index)
            tree = self.git.git("write-tree", env=index)
            made = self.git.git("commit-tree", tree, "-p", old, "-m", "By a person")
            self.git.git("update-ref", "refs/heads/main", made, old)
            return made

    def candidates(self):
        """Return the candidate branches of the merge queue, with their commits."""
        form = "--format=%(refname:short) %(objectname)"
        said = self.git.git("for-each-ref", form, "refs/heads/leadhand/gate")
        return dict(line.split() for line in said.splitlines())

    def _test(self, head):
        if head not in self.tested:
            self.tested.add(head)
            colour = self.colour(head)
            red = colour not in ("", "blue", "navy")
            self.set_check(head, red=red, log=f"AssertionError: expected blue, got {colour}\n")

    # --- the host ---

    reviews_path = "/reviews"

    def open_pulls(self):
        """Return number and head of each open pull request."""
        found = [number for number, each in self.host.pulls.items() if each["state"] == "open"]
        return [(number, self.host._head(number)) for number in found]

    def pushed_to_main(self, number, main):
        made = {"state": "closed", "merged_at": self.host.time(), "merge_commit_sha": main}
        self.host.pulls[number] |= made

    def set_check(self, commit, *, red, log=""):
        self.host.set_check(commit, "ci", "failure" if red else "success", log if red else "")

    def ask(self, number, path, line, words):
        self.host.review(number, "CHANGES_REQUESTED", "Nearly.", "rev", ((path, line, words),))

    def approve(self, number):
        self.host.review(number, "APPROVED", "Good.", "rev")

    def merge(self, number):
        self.host._merge(number, "squash", self.host.pulls[number]["title"])

    def serve_queue(self):
        if self.host.queue:
            self.host.merge_from_queue()

    def is_open(self, number):
        return self.host.issues[number]["state"] == "open"

    def said(self, number=1):
        """Return the comments on an issue."""
        rows = list(self.host.comments.values())
        return [each["body"] for each in rows if each["number"] == number]

    def pulls(self):
        """Return each pull request: whether it is merged, and its title and text."""
        return [
            {"merged": bool(each["merged_at"]), "title": each["title"], "body": each["body"]}
            for each in self.host.pulls.values()
        ]

    def replies(self):
        return [each["body"] for each in self.host.remarks.values() if "Reworked" in each["body"]]

    async def acting(self):
        while True:
            self.act()
            await asyncio.sleep(0.05)

    # --- what came of it ---

    def is_done(self, number=1):
        """Return whether the issue is closed, with its evidence."""
        return any("Done: main is green" in each for each in self.said(number))

    def judge(self, number=1):
        """Check the laws: one pull request, one merge, one close, nothing said twice."""
        made = self.host.made
        assert len(set(made)) == len(made), f"made twice: {made}"
        assert not self.is_open(number)
        (pull,) = self.pulls()
        assert pull["merged"]
        landed = self.git.git("log", "--format=%s", "--first-parent", "main").splitlines()
        assert len(landed) == 2, f"merged once: {landed}"
        wanted = "navy" if self.asks else "blue"
        assert self.colour("main") == wanted
        said = self.said(number)
        assert sum("works on this issue" in each for each in said) == 1
        assert sum("Done: main is green" in each for each in said) == 1


class AgreeingTeam(Team):
    """CI and reviewers for whom every change is good."""

    def colour(self, commit):
        return "blue"


class GitLabTeam(Team):
    """The same people on a stand-in of GitLab; a change is asked for by an open thread.

    One of them approves the first version, whatever it is: GitLab keeps that approval.
    """

    kind = "gitlab"
    reviews_path = "/approvals"
    looks_before = 3

    def make_host(self):
        host = GitLabStandIn(self.git)
        host.members |= {"ann": 30, "rev": 40, "hasty": 30, "eve": 10}
        for name in host.members:
            host.person(name)
        host.only_resolved = True
        return host

    def open_pulls(self):
        found = [
            (number, self.host._shown(kind, number)["sha"])
            for (kind, number), each in self.host.items.items()
            if kind == "merge_requests" and each["state"] == "opened"
        ]
        for number, _head in found:
            if "hasty" not in self.host.approved.get(number, {}):
                self.host.approve(number, "hasty")
        return found

    def pushed_to_main(self, number, main):
        made = {"state": "merged", "merge_commit_sha": main}
        self.host.items["merge_requests", number] |= made

    def set_check(self, commit, *, red, log=""):
        self.host.set_status(commit, "ci", "failed" if red else "success", log if red else "")

    def ask(self, number, path, line, words):
        self.thread = self.host.remark(number, path, line, words, "rev")

    def approve(self, number):
        if self.asked:
            self.host.resolve(number, self.thread)
        self.host.approve(number, "rev")

    def merge(self, number):
        self.host.merge(number, self.host.items["merge_requests", number]["title"], "squash")

    def serve_queue(self):
        return

    def is_open(self, number):
        return self.host.items["issues", number]["state"] == "opened"

    def said(self, number=1):
        notes = list(self.host.notes.get(("issues", number), ()))
        return [each["body"] for each in notes if not each["system"]]

    def pulls(self):
        return [
            {
                "merged": each["state"] == "merged",
                "title": each["title"],
                "body": each["description"],
            }
            for (kind, _number), each in self.host.items.items()
            if kind == "merge_requests"
        ]

    def replies(self):
        threads = [each for rows in self.host.threads.values() for each in rows]
        notes = [note["body"] for each in threads for note in each["notes"]]
        return [each for each in notes if "Reworked" in each]

    def judge(self, number=1):
        super().judge(number)
        assert self.approved, "merged on the approval of an earlier version"


TEAMS = {"github": Team, "gitlab": GitLabTeam}


def connected(kind, url, pace):
    """Return a client for a stand-in."""
    if kind == "gitlab":
        signed = TokenCredential(lambda: gitlab_standin.TOKEN, "private-token")
        return GitLab(gitlab_standin.PROJECT, signed, api=url, pace=pace)
    signed = TokenCredential(lambda: TOKEN, "authorization", "Bearer {}")
    return GitHub("acme/shop", signed, api=url, pace=pace, log_hosts=("localhost",))


def flow_fleet(folder, url, *, kind="github", rules=None, clock=None, **more):
    """A fleet on a stand-in; call it again to open it again."""
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
        return connected(kind, url, pace)

    given = {"checks": ("ci",), "merge": "host", "look_s": 0.1, "writes": ("src/**",)}
    config = {
        "repo": folder / "user",
        "folder": folder / "fleet",
        "gate": GateRules(commands=((sys.executable, "-c", GATE),)),
        "agents": 2,
        "sandbox": "none",
        "limits": AttemptLimits(time_s=300, silence_s=240),
        "policy": Policy(backoff_s=0.01, jitter=0.0),
        "stagger_s": 0.0,
        "forge": ForgeSetup(connect, ForgeRules(**{**given, **(rules or {})})),
    }
    return Fleet(FleetConfig(**{**config, **more}), coders)


def agents(folder):
    """What the agents were told, attempt by attempt."""
    place = folder / "agents.jsonl"
    return [json.loads(each) for each in place.read_text().splitlines()] if place.exists() else []


async def until(condition, fleet=None, time_s=480.0):
    """Wait until a condition holds."""
    end = time.monotonic() + time_s
    while not condition():
        if time.monotonic() > end:
            told = fleet.refused if fleet is not None else ""
            raise AssertionError(f"not within {time_s} s: {told}")
        await asyncio.sleep(0.05)


async def serve(folder, url, kind):
    """Work until somebody ends the process."""
    async with flow_fleet(folder, url, kind=kind):
        (folder / "open").touch()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), *sys.argv[2:]))
