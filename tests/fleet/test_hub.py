"""The hub: made without touching the user's repository, moved forward only, opened again always."""

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

from leadhand.errors import Bug, Conflict, StoreCorrupt, UsageError
from leadhand.fleet.repository import git as git_module
from leadhand.fleet.repository import hub as locking
from leadhand.fleet.repository.git import (
    GitFailed,
    GitResult,
    check_version,
    message_of,
    printable_name,
    trailers_of,
)
from leadhand.fleet.repository.hub import MAIN, SEAL, SEAL_KEY, Hub, ref_of
from leadhand.fleet.repository.user_repository import User
from leadhand.fleet.workspace.slots import Slots
from tests.fleet.places import commit_all, every_byte, files_of, make_repo, run_git, write

TRAILERS = {"Leadhand-Task": "t1", "Leadhand-Run": "r1", "Leadhand-Attempt": "1"}


async def change(hub, slots, files, base=None):
    """A commit with a change to some files; None removes one."""
    async with slots.lease(base or hub.main()) as slot:
        for name, text in files.items():
            if text is None:
                (slot.path / name).unlink()
            else:
                write(slot.path, {name: text})
        return (await slot.take()).head


async def land(hub, slots, files, **trailers):
    """The same, and main moves."""
    head = await change(hub, slots, files)
    tree = await hub.tree(head)
    sha = await hub.commit(tree, (hub.main(),), "Landed", {**TRAILERS, **trailers})
    assert await hub.advance(sha, hub.main())
    return sha


# --- the user's repository -----------------------------------------------------------------


def odd(user, way, tmp_path):
    """Make a user's repository one of the many that exist."""
    if way == "configured":
        for number in range(3):  # packs enough to make git collect, if it may
            write(user, {"a.txt": f"{number}\n"})
            commit_all(user, "More")
            run_git(user, "repack", "-q", "-d")
        marker = tmp_path / "ran"
        evil = tmp_path / "evil"
        evil.write_text(f"#!/bin/sh\necho ran >> {marker}\n")
        evil.chmod(0o755)
        for hook in ("post-update", "post-receive", "reference-transaction", "post-checkout",
                     "update", "pre-receive", "pre-auto-gc", "post-index-change"):  # fmt: skip
            (user / ".git/hooks").mkdir(exist_ok=True)
            (user / ".git/hooks" / hook).symlink_to(evil)
        for name, value in (
            ("core.fsmonitor", str(evil)),
            ("receive.denyCurrentBranch", "updateInstead"),
            ("core.alternateRefsCommand", str(evil)),
            ("uploadpack.packObjectsHook", str(evil)),
            ("gc.auto", "1"),
            ("gc.autoPackLimit", "1"),
            ("alias.fetch", f"!{evil}"),
            ("fetch.prune", "true"),
            ("core.autocrlf", "true"),
            ("filter.lfs.process", str(evil)),
            ("filter.lfs.required", "true"),
        ):
            run_git(user, "config", name, value)
        write(user, {".git/info/attributes": "* filter=lfs\n"})
        make_repo(tmp_path / "lender")
        lent = str(tmp_path / "lender/.git/objects")
        write(user, {".git/objects/info/alternates": lent + "\n"})
    elif way == "dirty":
        write(user, {"a.txt": "being edited\n", "untracked": "x\n"})
        run_git(user, "add", "untracked")
        (user / ".git/MERGE_HEAD").write_text(run_git(user, "rev-parse", "HEAD") + "\n")
    elif way == "detached":
        run_git(user, "checkout", "-q", "--detach")
    elif way == "worktrees":
        run_git(user, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
        return tmp_path / "linked"
    elif way == "packed":
        for number in range(20):
            write(user, {"a.txt": f"{number}\n"})
            commit_all(user, f"Number {number}")
        run_git(user, "gc", "-q")
    elif way == "shallow":
        for number in range(5):
            write(user, {"a.txt": f"{number}\n"})
            commit_all(user, f"Number {number}")
        run_git(tmp_path, "clone", "-q", "--depth=2", f"file://{user}", "shallow")
        return tmp_path / "shallow"
    elif way == "bare":
        run_git(tmp_path, "clone", "-q", "--bare", str(user), "bare.git")
        return tmp_path / "bare.git"
    elif way == "inside":
        return user / "src"
    return user


WAYS = ["plain", "configured", "dirty", "detached", "worktrees", "packed", "shallow", "bare"]


@pytest.mark.parametrize("way", [*WAYS, "inside"])
async def test_the_users_repository_is_as_it_was(tmp_path, user, way):
    """Byte for byte, in all its folders; the branch of results and its objects aside."""
    repo = odd(user, way, tmp_path)
    places = [place for place in tmp_path.iterdir() if place.is_dir()]
    before = {place: every_byte(place) for place in places}
    async with await Hub.open(tmp_path / "fleet", repo) as hub:
        slots = Slots(hub, tmp_path / "slots", 1)
        assert (await hub.fetch_user()).relation == "same"
        landed = await land(hub, slots, {"a.txt": "landed\n"})
        assert (await hub.fetch_user()).relation == "behind"
        assert {place: every_byte(place) for place in places} == before
        await hub.publish("leadhand/results")
        await land(hub, slots, {"a.txt": "again\n"})
        await hub.publish("leadhand/results")
    assert not (tmp_path / "ran").exists()
    assert run_git(repo, "rev-parse", "leadhand/results~1") == landed
    assert run_git(repo, "fsck", "--strict", "--no-dangling", check=False) == ""
    for place in places:
        now = {
            name: what
            for name, what in every_byte(place).items()
            if b"leadhand" not in name and b"objects/" not in name
        }
        then = {name: what for name, what in before[place].items() if b"objects/" not in name}
        assert now == then


async def test_results_never_overwrite_anything(tmp_path, user, hub, slots):
    """Not a branch that is checked out, not one with other commits, not a name that is none."""
    await land(hub, slots, {"a.txt": "landed\n"})
    before = every_byte(user)
    with pytest.raises(Conflict, match="checked out"):
        await hub.publish("main")
    for name in ("", "-f", "a..b", "x.lock", "@{-1}", "HEAD"):
        with pytest.raises(UsageError):
            await hub.publish(name)
    assert every_byte(user) == before
    run_git(user, "branch", "taken")
    run_git(user, "checkout", "-q", "taken")
    write(user, {"own": "work\n"})
    own = commit_all(user, "Own work")
    run_git(user, "checkout", "-q", "main")
    with pytest.raises(Conflict, match="holds commits"):
        await hub.publish("taken")
    assert run_git(user, "rev-parse", "taken") == own


async def test_a_user_who_goes_on_is_seen(user, hub, slots):
    """Ahead, when only the user worked; diverged, when both did."""
    write(user, {"user": "1\n"})
    tip = commit_all(user, "By the user")
    seen = await hub.fetch_user()
    assert (seen.tip, seen.relation) == (tip, "ahead")
    await land(hub, slots, {"a.txt": "landed\n"})
    assert (await hub.fetch_user()).relation == "diverged"


@pytest.mark.parametrize("what", ["folder", "nothing", "empty", "branch"])
async def test_what_cannot_be_used_is_said_in_words(tmp_path, user, what):
    """No folder, no repository, no commit, no such branch."""
    if what != "folder":
        (tmp_path / "none").mkdir()
    if what == "empty":
        run_git(tmp_path / "none", "init", "-q")
    repo = user if what == "branch" else tmp_path / "none"
    with pytest.raises(UsageError, match=r"in no git repository|has no branch|there is no"):
        await Hub.open(tmp_path / "fleet", repo, "nosuch" if what == "branch" else "")


# --- merging -------------------------------------------------------------------------------


async def test_two_changes_to_one_file_merge(hub, slots):
    """In memory, without a working tree; the result holds both."""
    base = hub.main()
    one = await change(hub, slots, {"src/b.txt": "ONE\n2\n3\n4\n5\n6\n7\n8\n9\n"}, base)
    two = await change(hub, slots, {"src/b.txt": "1\n2\n3\n4\n5\n6\n7\n8\nTWO\n"}, base)
    merged = await hub.merge(one, two, base)
    both = await hub.commit(merged.tree, (one,), "Both")
    assert files_of(hub.git.folder, both)["src/b.txt"] == "ONE\n2\n3\n4\n5\n6\n7\n8\nTWO"
    assert await hub.changed(base, both) == {"src/b.txt": "M"}


@pytest.mark.parametrize(
    ("one", "two", "where"),
    [
        ({"a.txt": "one\n"}, {"a.txt": "two\n"}, ("a.txt",)),
        ({"a.txt": None}, {"a.txt": "two\n"}, ("a.txt",)),
        ({"n\nl": "one\n"}, {"n\nl": "two\n"}, ("n\nl",)),
        ({"a.txt": None, "moved": "a\n"}, {"a.txt": "edited\n"}, ("moved", "a.txt")),
    ],
)
async def test_a_conflict_names_its_paths(hub, slots, one, two, where):
    """Changed by both, removed by one, made by both, renamed by one: no side is picked."""
    base = hub.main()
    first, second = await change(hub, slots, one, base), await change(hub, slots, two, base)
    merged = await hub.merge(first, second, base)
    assert (merged.tree, merged.conflicts) == (None, where)


async def test_a_change_is_merged_from_its_own_base(hub, slots):
    """Whatever the history says: the base given is the one that counts."""
    start = hub.main()
    await land(hub, slots, {"a.txt": "second\n"})
    head = await change(hub, slots, {"src/b.txt": "mine\n"})
    told_wrong = await hub.merge(hub.main(), head, start)
    assert told_wrong.tree == await hub.tree(head)
    odd_history = await hub.commit(await hub.tree(head), (start,), "Says it comes from the start")
    merged = await hub.merge(hub.main(), odd_history, hub.main())
    assert merged.tree == await hub.tree(head)
    back = await hub.commit(await hub.tree(start), (start,), "Says it changes nothing")
    undone = await hub.merge(hub.main(), back, hub.main())
    assert undone.tree == await hub.tree(start), "from main it is a change, and a wanted one"


async def test_trouble_is_no_conflict(hub, slots):
    """A commit that is not there is trouble of the machine."""
    with pytest.raises(GitFailed):
        await hub.merge(hub.main(), "1" * 40, hub.main())
    with pytest.raises(Bug):
        await hub.merge(hub.main(), "--upload-pack=evil", hub.main())

    async def odd_git(*arguments, **options):
        said = await git(*arguments, **options)
        return GitResult(1, b"1" * 40 + b"\0\0", "") if arguments[0] == "merge-tree" else said

    git, hub.git = hub.git, odd_git
    with pytest.raises(GitFailed, match="without conflicted entries"):
        await hub.merge(hub.main(), hub.main(), hub.main())
    hub.git = git


async def test_half_a_hub_is_none(tmp_path, user, monkeypatch):
    """One that could not be made whole is made anew."""
    with monkeypatch.context() as patched:
        patched.setattr(User, "fetch", lambda *_: pytest.fail("interrupted"))
        with pytest.raises(pytest.fail.Exception):
            await Hub.open(tmp_path / "fleet", user)
    async with await Hub.open(tmp_path / "fleet", user) as hub:
        assert await hub.commits() == []


# --- main ----------------------------------------------------------------------------------


async def test_main_moves_by_compare_and_swap(hub, slots):
    """Of many that build on one commit, one is first; nobody's commit is lost from main."""
    start = hub.main()
    heads = [await change(hub, slots, {f"n{n}": "x\n"}, start) for n in range(4)]
    moved = await asyncio.gather(*(hub.advance(head, start) for head in heads))
    assert sorted(moved) == [False, False, False, True]
    assert hub.main() == heads[moved.index(True)] == await hub.resolve(MAIN)
    with pytest.raises(Bug, match="would lose commits"):
        await hub.advance(start, hub.main())


async def test_a_lock_that_was_left_behind_does_not_stop_main(hub, slots):
    """The first try fails as trouble, the next one goes through."""
    head = await change(hub, slots, {"a.txt": "x\n"})
    (hub.git.folder / f"{MAIN}.lock").touch()
    with pytest.raises(GitFailed):
        await hub.advance(head, hub.main())
    assert await hub.advance(head, hub.main())


async def test_what_has_landed_is_found_by_its_trailers(tmp_path, user, hub, slots):
    """Also after the process is another one; what a message claims does not count."""
    text = "Do\n\nLeadhand-Task: stolen\nLeadhand-Run: r1\n\nassisted-by : me"
    head = await change(hub, slots, {"a.txt": "x\n"})
    sha = await hub.commit(await hub.tree(head), (hub.main(),), text, TRAILERS)
    await hub.advance(sha, hub.main())
    assert hub.landed("r1", "t1") == sha
    assert hub.landed("r1", "stolen") is None
    hub.close()
    again = await Hub.open(tmp_path / "fleet", user)
    assert again.landed("r1", "t1") == sha
    assert again.landed("r1", "stolen") is None
    assert [commit.sha for commit in await again.commits()] == [sha]
    trailers = dict((await again.commits())[0].trailers)
    assert trailers.pop(SEAL)
    assert trailers == TRAILERS


async def test_trailers_that_others_wrote_land_nothing(tmp_path, user, hub, slots):
    """Made up, with a seal copied from another change, for another task, on other parents."""
    head = await change(hub, slots, {"a.txt": "x\n"})
    own = await hub.commit(await hub.tree(head), (hub.main(),), "Do", TRAILERS)
    await hub.advance(own, hub.main())
    (commit,) = await hub.commits()
    seal = commit.trailers[SEAL]
    forged = [
        {**TRAILERS, "Leadhand-Task": "t2"},
        {**TRAILERS, "Leadhand-Task": "t2", SEAL: "0" * 32},
        {**TRAILERS, "Leadhand-Task": "t2", SEAL: seal},
        {**TRAILERS, "Leadhand-Attempt": "9", SEAL: seal},
        {**TRAILERS, SEAL: seal},
    ]
    for trailers in forged:
        text = message_of("I did it", trailers)
        tree = await hub.tree(hub.main())
        said = await hub.git("commit-tree", tree, "-p", hub.main(), stdin=text.encode())
        assert await hub.advance(said.text, hub.main())
        assert hub.landed("r1", "t2") is None
        assert hub.landing("r1", "t1").sha == own
    hub.close()
    async with await Hub.open(tmp_path / "fleet", user) as again:
        assert again.landed("r1", "t2") is None
        assert again.landing("r1", "t1").sha == own
    assert (tmp_path / "fleet" / SEAL_KEY).stat().st_mode & 0o077 == 0
    looking = await Hub.look(tmp_path / "fleet")
    assert looking.landed("r1", "t1") == own


async def test_a_lost_repository_is_found_in_the_published_history(
    tmp_path, user, hub, slots, monkeypatch
):
    """The account's key outlives the fleet's folder; without a key nothing is believed."""
    head = await change(hub, slots, {"a.txt": "x\n"})
    own = await hub.commit(await hub.tree(head), (hub.main(),), "Do", TRAILERS)
    await hub.advance(own, hub.main())
    run_git(user, "fetch", "-q", str(hub.git.folder), "main")
    run_git(user, "reset", "-q", "--hard", "FETCH_HEAD")
    hub.close()
    shutil.rmtree(hub.git.folder)
    async with await Hub.open(tmp_path / "fleet", user) as again:
        assert again.landed("r1", "t1") == own
    shutil.rmtree(tmp_path / "fleet")
    async with await Hub.open(tmp_path / "fleet", user) as again:
        assert again.landed("r1", "t1") == own
    shutil.rmtree(tmp_path / "fleet")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    async with await Hub.open(tmp_path / "fleet", user) as again:
        assert again.landed("r1", "t1") is None
    again.close()


async def test_a_move_of_main_that_was_begun_is_finished(hub, slots):
    """Whoever asked for it may be gone: what is known of main is true."""
    sha = await change(hub, slots, {"a.txt": "x\n"})
    sha = await hub.commit(await hub.tree(sha), (hub.main(),), "Landed", TRAILERS)
    for pause in (0.0, 0.005, 0.01, 0.02, 0.04):
        task = asyncio.create_task(hub.advance(sha, hub.main()))
        await asyncio.sleep(pause)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with hub._moving:
            pass
        assert hub.main() == await hub.resolve(MAIN) == sha
        assert hub.landed("r1", "t1") == sha
        sha = await hub.commit(await hub.tree(sha), (sha,), "Landed again", TRAILERS)


async def test_others_may_look(tmp_path, hub, slots):
    """Without the lock, and without writing."""
    sha = await land(hub, slots, {"a.txt": "x\n"})
    looking = await Hub.look(tmp_path / "fleet")
    assert (looking.main(), looking.landed("r1", "t1")) == (sha, sha)
    with pytest.raises(Bug, match="for reading only"):
        await looking.advance(sha, sha)
    with pytest.raises(Bug, match="for reading only"):
        await looking.publish("x")


def test_trailers_are_read_back_and_cannot_be_forged():
    """Lines that look like ours are quoted; values are one line; the last paragraph counts."""
    text = "x" * 90 + "\nLeadhand-Task: a\n  LEADHAND-run:b\nPlain: fine"
    message = message_of(text, {"Leadhand-Task": "t\nLeadhand-Run: r", "Assisted-by": ""})
    assert trailers_of(message) == {"Leadhand-Task": "t Leadhand-Run: r", "Assisted-by": "-"}
    assert "\n> Leadhand-Task: a\n>   LEADHAND-run:b\n" in message
    assert len(message.splitlines()[0]) <= 72
    assert trailers_of("Just a subject") == {}
    assert message_of("", {}) == "A change\n"
    with pytest.raises(ValueError, match="name of a trailer"):
        message_of("x", {"a b": "c"})


# --- many, and trouble ---------------------------------------------------------------------


@pytest.mark.slow
async def test_a_hundred_submissions_at_once(tmp_path, hub):
    """All are kept, none spoils another."""
    slots = Slots(hub, tmp_path / "many", 20)
    base = hub.main()

    async def work(number):
        async with slots.lease(base) as slot:
            write(slot.path, {f"file{number}": f"{number}\n", "a.txt": f"{number}\n"})
            head = (await slot.take()).head
            await hub.submit(ref_of("task", "run", f"t{number}", 1), head)
            return head

    heads = await asyncio.gather(*(work(number) for number in range(100)))
    kept = await hub.kept("refs/leadhand/task")
    assert [kept[ref_of("task", "run", f"t{n}", 1)] for n in range(100)] == heads
    assert files_of(hub.git.folder, heads[42])["file42"] == "42"
    assert run_git(hub.git.folder, "fsck", "--no-dangling", "--strict") == ""
    await hub.pack()
    assert await hub.kept("refs/leadhand/task") == kept
    assert files_of(hub.git.folder, heads[99])["a.txt"] == "99"


async def test_one_owner_at_a_time(tmp_path, user, hub, monkeypatch):
    """A second process is told so."""
    monkeypatch.setattr(locking, "WAIT_S", 0.2)
    monkeypatch.setattr(locking.hold, "__defaults__", (0.2,))
    with pytest.raises(Conflict, match="in use"):
        await Hub.open(tmp_path / "fleet", user)


async def test_what_a_killed_git_left_is_taken_away(tmp_path, user, hub, slots):
    """Lock files, half objects, half a hub: the hub opens, and nothing submitted is lost."""
    head = await change(hub, slots, {"a.txt": "x\n"})
    ref = ref_of("task", "r", "t", 1)
    await hub.submit(ref, head)
    hub.close()
    folder = hub.git.folder
    left = ["packed-refs.lock", "refs/heads/main.lock", "config.lock", "HEAD.lock",
            f"{ref}.lock", "objects/pack/tmp_pack_x", "objects/aa/tmp_obj_y"]  # fmt: skip
    (folder / "objects/aa").mkdir(exist_ok=True)
    for name in left:
        (folder / name).write_bytes(b"half")
    (tmp_path / "fleet/hub.new").mkdir()
    again = await Hub.open(tmp_path / "fleet", user)
    assert not [name for name in left if (folder / name).exists()]
    assert (await again.kept())[ref] == head
    assert await again.advance(head, again.main())
    await again.submit(ref, again.main())
    again.close()


async def test_a_hub_without_a_readable_main_says_so(tmp_path, user, hub):
    """It is never made anew over what may still be there."""
    hub.close()
    (hub.git.folder / MAIN).write_text("")
    with pytest.raises(StoreCorrupt, match="no readable main"):
        await Hub.open(tmp_path / "fleet", user)


@contextlib.contextmanager
def full_disk(room):
    """No file may get longer than this, for this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_trouble_and_passes(hub, slots):
    """Nothing lands, nothing is lost, and when there is room again all goes on."""
    head = await change(hub, slots, {"a.txt": "x\n"})
    start = hub.main()
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"big.txt": os.urandom(300_000), "small": "y\n"})
        with full_disk(10_000), pytest.raises(OSError, match="too large"):
            await slot.take()
        with full_disk(10):
            with pytest.raises(GitFailed):
                await hub.commit(await hub.tree(head), (start,), "No room")
            with pytest.raises(GitFailed):
                await hub.advance(head, start)
            with pytest.raises(GitFailed):
                await hub.submit(ref_of("task", "r", "t", 1), head)
        assert await hub.resolve(MAIN) == start == hub.main()
        await hub.submit(ref_of("task", "r", "t", 1), head)
        assert set((await slot.take()).changed) == {"big.txt", "small"}
    assert await hub.advance(head, start)


CHILD = """
import asyncio, os, sys
from pathlib import Path
from leadhand.fleet.repository.hub import Hub, ref_of
from leadhand.fleet.workspace.slots import Slots

async def main():
    root = Path(sys.argv[1])
    hub = await Hub.open(root / "fleet", root / "user")
    slots = Slots(hub, root / "slots", 2)
    for number in range(int(sys.argv[2]), 10_000):
        async with slots.lease(hub.main()) as slot:
            (slot.path / f"f{number}").write_text(str(number))
            taken = await slot.take()
            await hub.submit(ref_of("task", "r", f"t{number}", 1), taken.head)
            print(f"submitted {number} {taken.head}", flush=True)
            merged = await hub.merge(hub.main(), taken.head, slot.base)
            names = {"Leadhand-Run": "r", "Leadhand-Task": f"t{number}"}
            sha = await hub.commit(merged.tree, (hub.main(),), "Landed", names)
            assert await hub.advance(sha, hub.main())
            print(f"landed {number} {sha}", flush=True)

asyncio.run(main())
"""


@pytest.mark.real
@pytest.mark.slow
async def test_kill_at_any_moment_loses_nothing(tmp_path, user):
    """What was said to be submitted or landed is there afterwards, and the hub goes on."""
    number = 0
    for moment in (0.0, 0.03, 0.1, 0.3, 0.45):
        command = [sys.executable, "-c", CHILD, str(tmp_path), str(number)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        first = child.stdout.readline()
        time.sleep(moment)
        child.send_signal(signal.SIGKILL)
        said = [line.split() for line in (first + child.communicate()[0]).splitlines()]
        async with await Hub.open(tmp_path / "fleet", user) as hub:
            kept = await hub.kept("refs/leadhand/task")
            for what, task, sha in said:
                if what == "submitted":
                    assert kept[ref_of("task", "r", f"t{task}", 1)] == sha
                else:
                    assert hub.landed("r", f"t{task}") == sha
                number = max(number, int(task) + 1)
            assert run_git(hub.git.folder, "fsck", "--strict", "--no-dangling") == ""
            slots = Slots(hub, tmp_path / "slots", 2)
            await land(hub, slots, {f"after{moment}": "x\n"})


# --- git itself ----------------------------------------------------------------------------


async def test_git_is_bounded(hub, monkeypatch):
    """In time, in what it prints; and what it leaves when cancelled is no process and no lock."""
    with pytest.raises(GitFailed, match="did not end in time") as caught:
        await hub.git("cat-file", "--batch", stdin=b"x" * 10, time_s=0.0)
    assert caught.value.code is None
    monkeypatch.setattr(git_module, "OUTPUT_BYTES_MAX", 10)
    with pytest.raises(GitFailed, match="too much"):
        await hub.git("cat-file", "-p", "HEAD")


async def test_a_machine_without_room_for_git_is_its_trouble(hub, tmp_path, monkeypatch):
    """In the one error that callers know; a folder that is gone is its owner's to explain."""
    with pytest.raises(FileNotFoundError):
        await hub.git("status", files=tmp_path / "gone")

    async def no_room(*_words, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_room)
    with pytest.raises(GitFailed, match="could not be run") as caught:
        await hub.git("cat-file", "-p", "HEAD")
    assert caught.value.full
    with pytest.raises(GitFailed, match="could not be run"):
        await check_version()


async def test_an_old_git_is_refused(monkeypatch, tmp_path):
    """With the version that is needed."""
    assert await check_version()
    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)
    monkeypatch.setattr(git_module, "program", lambda: str(old))
    with pytest.raises(UsageError, match=r"2\.38 or newer is needed; this is 2\.20\.1"):
        await check_version()


async def test_other_object_names(tmp_path):
    """A repository with SHA-256 names works as any other."""
    (tmp_path / "user").mkdir()
    run_git(tmp_path / "user", "init", "-q", "--object-format=sha256", "-b", "main")
    write(tmp_path / "user", {"a.txt": "a\n"})
    commit_all(tmp_path / "user", "The beginning")
    async with await Hub.open(tmp_path / "fleet", tmp_path / "user") as hub:
        slots = Slots(hub, tmp_path / "slots", 1)
        head = await change(hub, slots, {"a.txt": "b\n", "c": "d\n"})
        assert len(head) == 64
        assert await hub.advance(head, hub.main())
        await land(hub, slots, {"a.txt": None})
        await hub.publish("results")


def test_names_can_be_shown():
    """Whatever bytes they are."""
    assert printable_name("a\nb\udcff") == "a\\nb\\xff"
    assert printable_name("grün") == "grün"


async def test_a_partial_clone_is_refused_until_it_has_its_objects(tmp_path):
    """One message with the fix, which mends it; nothing is downloaded by the fleet itself."""
    make_repo(tmp_path / "origin")
    write(tmp_path / "origin", {"a.txt": "again\n"})
    commit_all(tmp_path / "origin", "more")
    run_git(tmp_path / "origin", "config", "uploadpack.allowfilter", "true")
    source, part = f"file://{tmp_path}/origin", tmp_path / "part"
    run_git(tmp_path, "clone", "-q", "--filter=blob:none", source, "part")
    with pytest.raises(UsageError, match=r"a partial clone, .* missing \(1\)\. Fix: ") as told:
        await Hub.open(tmp_path / "fleet", part)
    for line in str(told.value).partition("Fix: ")[2].split("; "):
        run_git(tmp_path, *line.split()[1:])
    async with await Hub.open(tmp_path / "fleet", part) as hub:
        assert hub.main() == run_git(part, "rev-parse", "HEAD")
