"""A code host whose CI is the gate: candidate branches are tested as they are pushed.

`CiWorld.script` says how a check ends, for the files of the tree and the times it was run before.

    python -m tests.fleet.forge.ci_world FOLDER URL    lands changes in a process of its own
"""

import asyncio
import contextlib
import sys
from pathlib import Path

from leadhand.fleet.forge.github import GitHub
from leadhand.fleet.forge.http import Pace, TokenCredential
from leadhand.fleet.forge.remote import HostRepository
from leadhand.fleet.gate.ci_gate import CiGate, CiHost, CiRules
from leadhand.fleet.merge.conductor import Conductor, QueuedChange
from leadhand.fleet.merge.train import Rules
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots
from tests.fleet.forge.standin.git_host import BareGit
from tests.fleet.forge.standin.github import TOKEN, GitHubStandIn
from tests.fleet.places import make_repo, write

NAMESPACE = "leadhand/gate/m1/"
LOG = "AssertionError: a file is bad\n"


def by_files(names, _times):
    """Red where a file is called bad."""
    return "failure" if any(name.startswith("bad") for name in names) else "success"


class CiWorld:
    """The host; CI tests a candidate when the push of its branch has been done."""

    def __init__(self, folder, script=by_files):
        if not (folder / "user").exists():
            make_repo(folder / "user", {"a.txt": "a\n"})
        self.git = BareGit(folder / "host.git", folder / "user")
        self.host = GitHubStandIn(self.git)
        self.script = script
        self.tested, self.trees, self.ended, self.most = [], [], [], 0
        """Commits and trees that CI began with, trees that it gave a result on, and the most
        candidate branches at once."""
        self.held = False
        """Whether checks stay running until `finish`."""
        self.host.on_handled = self.handled

    def candidates(self):
        """Return the candidate branches of now, with their commits."""
        form = "--format=%(refname:short) %(objectname)"
        said = self.git.git("for-each-ref", form, "refs/heads/leadhand/gate")
        return dict(line.split() for line in said.splitlines())

    def handled(self, request, _response):
        if request.method == "POST" and request.path.endswith("git-receive-pack"):
            found = self.candidates()
            self.most = max(self.most, len(found))
            for commit in found.values():
                if commit not in self.tested:
                    self.begin(commit)

    def begin(self, commit):
        self.tested.append(commit)
        self.trees.append(self.git.git("rev-parse", f"{commit}^{{tree}}"))
        if self.held:
            self.host.set_check(commit, "ci", None)
        else:
            self.end(commit)

    def end(self, commit):
        names = self.git.git("ls-tree", "-r", "--name-only", commit).split()
        tree = self.git.git("rev-parse", f"{commit}^{{tree}}")
        self.ended.append(tree)
        said = self.script(names, self.trees.count(tree) - 1)
        if said == "error":
            self.host.set_status(commit, "ci", "error", "no runner")
        elif said:
            self.host.set_check(commit, "ci", said, LOG if said == "failure" else "")

    def finish(self):
        """End all checks that run."""
        with self.host.lock:
            for commit in self.candidates().values():
                if any(each["status"] != "completed" for each in self.host.runs.get(commit, [])):
                    self.end(commit)


def connect(url, clock=None):
    times = {"pause_s": 0.02, "pause_max_s": 0.1, "settle_s": 0.02, "write_pause_s": 0.0}
    pace = Pace(**times, **({"now": clock.now, "sleep": clock.sleep} if clock else {}))
    signed = TokenCredential(lambda: TOKEN, "authorization", "Bearer {}")
    return GitHub("acme/shop", signed, api=url, pace=pace, log_hosts=("localhost",))


@contextlib.asynccontextmanager
async def ci_gate(folder, url, *, hub=None, clock=None, look_s=0.05, notes=None, **rules):
    """A hub and its gate by CI; call it again for the next process."""
    async with contextlib.AsyncExitStack() as stack:
        if hub is None:
            hub = await stack.enter_async_context(
                await Hub.open(folder / "fleet" / "hub", folder / "user")
            )
        forge = connect(url, clock)
        stack.push_async_callback(forge.aclose)
        remote = HostRepository(hub, forge)
        await remote.tip("main")
        more = {"now": clock.now} if clock else {}
        host = CiHost(forge, remote, NAMESPACE, "main", look_s)

        def note(what, **about):
            if notes is not None:
                notes.append((what, about))

        made = CiRules(**{"checks": ("ci",), **rules})
        gate = CiGate(hub, host, made, folder / "fleet" / "ci", note=note, pause_s=0.05, **more)
        yield hub, await stack.enter_async_context(gate)


class Judged:
    """The gate as the merge queue asks it, without a local part."""

    def __init__(self, gate):
        self.gate, self.verdicts = gate, {}

    async def check(self, sha, _acceptance=(), _waived=()):
        verdict = await self.gate.check(sha)
        self.verdicts[sha] = verdict.ok
        return verdict


async def change(slots, task, files, attempt=1):
    """A change of a task."""
    async with slots.lease(slots.hub.main()) as slot:
        write(slot.path, files)
        taken = await slot.take()
    return QueuedChange(
        run="r1", task=task, attempt=attempt, base=slot.base, head=taken.head, goal=f"Do {task}"
    )


async def land(folder, url, count):
    """Land changes, one file each; what landed before is found and not landed again."""
    async with ci_gate(folder, url, candidates=2, tries=20) as (hub, gate):
        slots = Slots(hub, folder / "slots", 2)
        judged = Judged(gate)
        async with Conductor(hub, judged, Rules(slots=2), pause_s=0.05) as conductor:
            wanted = [await change(slots, f"t{n}", {f"f{n}.txt": f"{n}\n"}) for n in range(count)]
            landing = []
            for each in wanted:  # in the same order in each process, so that trees are the same
                landing.append(asyncio.create_task(conductor.land(each)))
                while not (landing[-1].done() or asked(conductor, each)):
                    await asyncio.sleep(0.01)
            await asyncio.gather(*landing)


def asked(conductor, change):
    """Return whether a change is on the train."""
    return any(each.change is change for each in conductor._waiting.values())


if __name__ == "__main__":
    asyncio.run(land(Path(sys.argv[1]), sys.argv[2], 3))
