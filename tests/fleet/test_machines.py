"""Agents on other machines: leases by git, and real machines that die, are cut off and return."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from leadhand.fleet.agents.base import Assignment
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.machines.lease import HubRemote, LeaseLost, git_access, lease_ref
from leadhand.fleet.machines.messages import rules_digest, session_of, session_on
from leadhand.fleet.repository.git import GitFailed
from leadhand.fleet.repository.hub import LEASES, MAIN, Hub
from tests.chaos.namespaces import possible
from tests.chaos.temporal import until
from tests.fleet.git_server import TOKEN, GitServer
from tests.fleet.machines import LIMIT_S, place, stage, wrong_with
from tests.support.cli import Folder
from tests.support.need import need


@pytest.fixture
async def pair(tmp_path):
    """A hub, and a mirror of it that reaches it by HTTPS."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "a.txt").write_text("a\n")
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*who, "commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=repo, check=True)
    with GitServer(tmp_path, tmp_path / "hub", "127.0.0.1") as server:
        async with (
            await Hub.open(tmp_path / "hub", repo) as hub,
            await Hub.mirror(tmp_path / "mirror") as mirror,
        ):
            remote = HubRemote(mirror, server.url, TOKEN, server.certificate)
            yield hub, mirror, remote, server


async def changed(hub: Hub, base: str, name: str = "b.txt") -> str:
    """A commit on `base` with one more file."""
    blob = (await hub.git("hash-object", "-w", "--stdin", stdin=b"new\n")).text
    tree = await hub.replaced(await hub.tree(base), [("100644", blob, name)])
    return await hub.commit(tree, (base,), "work")


async def test_work_is_handed_in_once_under_its_lease(pair):
    """A mirror brings main, pushes under the lease, and a second result is refused."""
    hub, mirror, remote, _server = pair
    base = hub.main()
    await hub.submit(lease_ref("one"), base)
    await remote.fetch(base)
    assert mirror.main() == base
    made, other = await changed(mirror, base), await changed(mirror, base, "c.txt")
    await remote.hand_in("one", base, made)
    await remote.hand_in("one", base, made)  # the answer was lost: what was done is done
    with pytest.raises(LeaseLost):
        await remote.hand_in("one", base, other)
    assert await hub.drop(lease_ref("one"), made)
    assert await hub.changed(base, made) == {"b.txt": "A"}


async def test_a_lease_that_has_ended_refuses_the_push(pair):
    """A machine that was given up cannot hand in, neither before nor after another has."""
    hub, mirror, remote, _server = pair
    base = hub.main()
    await hub.submit(lease_ref("gone"), base)
    await remote.fetch(base)
    assert await hub.drop(lease_ref("gone"))
    with pytest.raises(LeaseLost):
        await remote.hand_in("gone", base, await changed(mirror, base))
    assert await hub.kept(f"{LEASES}/") == {}


async def test_home_accepts_only_what_the_ref_is_at(pair):
    """A result that names another commit than the one that was pushed does not end the lease."""
    hub, mirror, remote, _server = pair
    base = hub.main()
    await hub.submit(lease_ref("one"), base)
    await remote.fetch(base)
    made = await changed(mirror, base)
    await remote.hand_in("one", base, made)
    assert not await hub.drop(lease_ref("one"), base)
    assert (await hub.kept(f"{LEASES}/"))[lease_ref("one")] == made


@pytest.mark.parametrize("ref", [MAIN, "refs/leadhand/start", "refs/leadhand/wip/r/t/1"])
async def test_a_machine_moves_no_other_ref_of_the_hub(pair, ref):
    """The hub's git refuses pushes to main and to the fleet's own refs."""
    hub, mirror, remote, server = pair
    base = hub.main()
    await remote.fetch(base)
    made = await changed(mirror, base)
    env = git_access(server.url, TOKEN, server.certificate)
    with pytest.raises(GitFailed, match="hidden ref"):
        await mirror.git("push", server.url, f"{made}:{ref}", env=env)
    assert await hub.resolve(MAIN) == base


async def test_a_wrong_password_is_told_without_it(pair):
    """A machine whose password is wrong says so, and the password is in no message."""
    hub, mirror, _remote, server = pair
    wrong = HubRemote(mirror, server.url, "not-the-password", server.certificate)
    with pytest.raises(GitFailed) as error:
        await wrong.fetch(hub.main())
    assert "not-the-password" not in str(error.value)
    assert not server.asked
    assert server.refused


async def test_a_mirror_keeps_nothing_of_earlier_attempts(pair):
    """What a process left is collected when the next one begins; main stays."""
    hub, mirror, remote, _server = pair
    base = hub.main()
    await remote.fetch(base)
    kept, gone = await changed(mirror, base), await changed(mirror, base, "c.txt")
    await mirror.submit("refs/leadhand/wip/r/kept/1", kept)
    await mirror.submit("refs/leadhand/wip/r/gone/1", gone)
    await mirror.collect(["refs/leadhand/wip/r/kept/1"])
    assert await mirror.resolve("refs/leadhand/wip/r/kept/1") == kept
    said = await mirror.git("cat-file", "-e", gone, codes=(0, 1, 128))
    assert said.code
    assert await mirror.resolve(MAIN) == base


def test_a_conversation_belongs_to_the_machine_that_had_it():
    """Another machine, and home, begin a new one."""
    kept = session_on("m1", "4f2a")
    assert session_of("m1", kept) == "4f2a"
    assert session_of("m2", kept) == ""
    assert session_of("", kept) == ""
    assert session_of("", "4f2a") == "4f2a"
    assert session_of("m1", "4f2a") == ""
    assert session_on("m1", "") == ""
    told = replace(Assignment(run="r", task="t", brief="do it", handoff="known"), session="")
    assert "known" in told.told


def test_rules_differ_by_what_the_gate_runs_and_not_by_the_environment():
    """A machine has its own paths in the environment, and the fleet's commands."""
    rules = GateRules(commands=(("make", "check"),), env={"PATH": "/usr/bin"})
    assert rules_digest(rules) == rules_digest(replace(rules, env={"PATH": "/opt"}))
    assert rules_digest(rules) != rules_digest(replace(rules, commands=(("true",),)))


MACHINE = """
[temporal]
address = "127.0.0.1:1"
[fleet]
gate = ["true"]
[coders.house]
kind = "command"
command = ["true"]
[fleet.machines]
"""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", "which fleet?"),
        ('hub = "https://user:secret@home.example/hub.git"', "without a password"),
        ('hub = "ext::sh -c evil"', "address for git"),
        ('hub = "http://home.example/hub.git"', "ssh:// or https://"),
        ('hub = "ssh://home.example/hub.git"\nname = "a b"', "letters, digits"),
        ('hub = "ssh://home.example/hub.git"\nfleet = ""', "letters, digits"),
    ],
)
def test_mistakes_of_a_machine_are_named(tmp_path, settings, words):
    """`leadhand worker --kinds coder` says what is wrong with the settings before it begins."""
    folder = Folder(tmp_path)
    folder.write("leadhand.toml", MACHINE + settings)
    done = folder.run("worker", "--kinds", "coder")
    assert done.code == 2, done
    assert words in done.err
    assert "secret" not in done.err


def test_coders_have_a_process_of_their_own(tmp_path):
    """A process that serves coders serves nothing else."""
    folder = Folder(tmp_path)
    folder.write("leadhand.toml", MACHINE + 'hub = "ssh://home.example/hub.git"')
    done = folder.run("worker", "--kinds", "coder,say")
    assert done.code == 2, done
    assert "a process of its own" in done.err


def test_no_agents_at_home_needs_other_machines(tmp_path):
    """`agents = 0` without machines would wait for ever, and is refused."""
    (tmp_path / "repo").mkdir()
    folder = Folder(tmp_path)
    text = MACHINE.replace("[fleet.machines]\n", "").replace("[fleet]\n", "[fleet]\nagents = 0\n")
    folder.write("leadhand.toml", text)
    done = folder.run("fleet", "start", "--repo", "repo", "--no-serve")
    assert done.code == 2, done
    assert "no other machines" in done.err


def _text(folder: Path, task: str) -> str:
    files = folder.glob(f"transcripts/*/{task}/1.jsonl")
    return "".join(file.read_text() for file in files)


@pytest.mark.real
@pytest.mark.slow
def test_machines_that_die_or_are_cut_off_lose_their_tasks(tmp_path):
    """Kill -9 and a partition: each task lands once, in its first attempt; who returns cleans up.

    Machine 0 gets the first task and is killed; machine 1 gets both tasks and is cut off; machine 0
    begins again and lands them. Then machine 1 returns, and finds its lease gone.
    """
    need(possible(), "network namespaces: root, and the `ip` of iproute2")
    root = tmp_path / "s"
    with place(2) as (links, server), stage(root, links, server, 2, 2, 0.1, 8.0) as fleet:
        try:
            _die_and_return(fleet, links)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{fleet.live()}\n{fleet.logs()}") from error


def _die_and_return(fleet, links):
    for number in (0, 1):
        fleet.hold_agents(number, wait=True)
    first = fleet.start_machine(0)
    until(lambda: fleet.serves(0), "machine 0", LIMIT_S)
    home = fleet.start_home()
    until(lambda: len(fleet.agents_on(0)) == 2, "agents on machine 0", LIMIT_S)
    first.kill()
    first.wait()
    fleet.start_machine(1)
    until(lambda: len(fleet.agents_on(1)) == 2, "agents on machine 1", LIMIT_S)
    assert fleet.held(0)  # its slots still hold what its agents left
    links.link(1, is_up=False)
    fleet.hold_agents(0, wait=False)
    fleet.start_machine(0)
    found = fleet.finish(home)
    assert not wrong_with(found, 2), found
    assert {"m0", "m1"} <= {*found["lost"]}, found
    until(lambda: not fleet.held(0), "machine 0 to free its slots", LIMIT_S)
    links.link(1, is_up=True)
    until(lambda: not fleet.held(1), "machine 1 to clean up", LIMIT_S)
    assert "wrote it" in _text(fleet.folder, "t0")
    assert TOKEN not in fleet.logs()


@pytest.mark.real
@pytest.mark.slow
def test_a_fleet_without_agents_of_its_own_lands_an_epic(tmp_path):
    """Two machines, each in a namespace of its own, do an epic: the short slice of the campaign."""
    need(possible(), "network namespaces: root, and the `ip` of iproute2")
    with place(2) as (links, server), stage(tmp_path / "s", links, server, 2, 4, 0.1) as fleet:
        for number in (0, 1):
            fleet.start_machine(number)
        for number in (0, 1):
            until(lambda number=number: fleet.serves(number), f"machine {number}", LIMIT_S)
        found = fleet.finish(fleet.start_home())
        assert not wrong_with(found, 4), (found, fleet.logs())
        assert any("git-receive-pack" in path for path in fleet.git.asked)
