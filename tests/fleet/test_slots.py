"""Agents are hostile inside their slot: nothing of theirs runs, and nothing of theirs is lost."""

import asyncio
import ctypes
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.fleet.repository.git import printable_name
from leadhand.fleet.repository.hub import Hub, ref_of
from leadhand.fleet.repository.toolchain import DOWNLOADS
from leadhand.fleet.workspace.capture import CaptureLimits
from leadhand.fleet.workspace.slots import SlotGone, Slots
from tests.fleet.places import commit_all, every_byte, files_of, make_repo, run_git, write


async def clean(slots, base=None):
    """A slot as it is handed over: git finds nothing to say about it."""
    async with slots.lease(base or slots.hub.main()) as slot:
        names = {name for name in every_byte(slot.path) if not name.startswith(b".git")}
        said = run_git(slot.path, "status", "--short", "--ignored")
        return names, said


async def test_a_slot_is_a_checkout_of_its_base(slots):
    """An agent finds an ordinary repository there, without a remote to push to."""
    async with slots.lease(slots.hub.main()) as slot:
        assert run_git(slot.path, "status", "--short") == ""
        assert run_git(slot.path, "log", "--format=%s") == "The beginning"
        assert run_git(slot.path, "remote") == ""
        assert (slot.path / "src/b.txt").read_text().startswith("1\n2\n")
        taken = await slot.take()
    assert (taken.head, taken.changed, taken.left_out, taken.elsewhere) == ("", {}, {}, {})


@pytest.mark.parametrize("way", ["left", "staged", "committed", "branched", "amended", "rebased"])
async def test_how_work_was_left_makes_no_difference(slots, way):
    """Changed, new and removed files are one commit of ours on the base."""
    async with slots.lease(slots.hub.main()) as slot:
        write(slot.path, {"a.txt": "changed\n", "new/file": "new\n"})
        (slot.path / "src/b.txt").unlink()
        if way == "staged":
            run_git(slot.path, "add", "-A")
        elif way == "branched":
            run_git(slot.path, "checkout", "-q", "-b", "feature")
            commit_all(slot.path, "Mine")
        elif way == "amended":
            run_git(slot.path, "add", "-A")
            run_git(slot.path, "commit", "-q", "--amend", "-m", "The beginning is mine")
        elif way == "rebased":
            run_git(slot.path, "checkout", "-q", "--orphan", "other")
            commit_all(slot.path, "No history")
        elif way == "committed":
            commit_all(slot.path, "Mine")
        taken = await slot.take("Done", "Agent Smith <smith@localhost>")
        assert taken.changed == {"a.txt": "M", "new/file": "A", "src/b.txt": "D"}
        assert taken.elsewhere == {}
        hub = slots.hub.git.folder
        assert files_of(hub, taken.head) == {"a.txt": "changed", "new/file": "new"}
        assert run_git(hub, "log", "-1", "--format=%P %an", taken.head) == (
            f"{slot.base} Agent Smith"
        )


async def test_work_on_a_branch_that_was_left_is_found(slots):
    """The files show nothing of it; it is named and kept, not taken for the result."""
    async with slots.lease(slots.hub.main()) as slot:
        run_git(slot.path, "checkout", "-q", "-b", "feature")
        write(slot.path, {"a.txt": "on a branch\n"})
        kept = commit_all(slot.path, "Mine")
        run_git(slot.path, "checkout", "-q", "main")
        write(slot.path, {"src/b.txt": "in a stash\n"})
        run_git(slot.path, "stash", "-q")
        taken = await slot.take()
        assert taken.head == ""
        assert taken.elsewhere["refs/heads/feature"] == kept
        assert set(taken.elsewhere) == {"refs/heads/feature", "refs/stash"}
        saved = await slot.save(ref_of("wip", "run", "task", 1))
    hub = slots.hub.git.folder
    assert kept in run_git(hub, "rev-list", saved).split()
    assert files_of(hub, taken.elsewhere["refs/stash"])["src/b.txt"] == "in a stash"


async def test_only_work_is_found_elsewhere(tmp_path, user):
    """Not an old commit with a new name; and objects that are links lead nowhere."""
    write(user, {"a.txt": "second\n"})
    commit_all(user, "The second")
    hub = await Hub.open(tmp_path / "fleet", user)
    async with hub, Slots(hub, tmp_path / "slots", 1).lease(hub.main()) as slot:
        run_git(slot.path, "branch", "old", "HEAD~1")
        assert (await slot.take()).elsewhere == {}
        run_git(slot.path, "checkout", "-q", "-b", "feature")
        write(slot.path, {"a.txt": "mine\n"})
        sha = commit_all(slot.path, "Mine")
        run_git(slot.path, "checkout", "-q", "main")
        held = slot.path / ".git/objects" / sha[:2] / sha[2:]
        held.rename(tmp_path / "outside")
        held.symlink_to(tmp_path / "outside")
        assert (await slot.take()).elsewhere == {"refs/heads/feature": ""}


async def test_saved_work_outlives_the_slot(slots):
    """Each save is kept, also the one before."""
    ref = ref_of("wip", "run", "a task/with: odd..name.lock", 2)
    async with slots.lease(slots.hub.main()) as slot:
        assert await slot.save(ref) is None
        write(slot.path, {"a.txt": "first\n"})
        first = await slot.save(ref)
        write(slot.path, {"a.txt": "second\n"})
        second = await slot.save(ref)
    assert (await slots.hub.kept("refs/leadhand/wip"))[ref] == second
    assert first in run_git(slots.hub.git.folder, "rev-list", second).split()


def plant_everything(path, marker):
    """All ways in which files make git run a program."""
    script = path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho ran >> {marker}\ncat\n")
    script.chmod(0o755)
    hooks = path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        "pre-commit", "post-checkout", "post-index-change", "reference-transaction", "pre-push",
        "post-commit", "update", "post-update", "pre-auto-gc", "fsmonitor-watchman", "post-merge",
    ):  # fmt: skip
        (hooks / name).write_text(f"#!/bin/sh\necho hook >> {marker}\n")
        (hooks / name).chmod(0o755)
    (path / "included").write_text(f'[alias]\n\tls-files = "!{script}"\n')
    (path / ".git/config").write_text(
        f"""\
[core]
\trepositoryformatversion = 0
\tbare = false
\tworktree = /
\tfsmonitor = {script}
\thooksPath = {hooks}
\tpager = {script}
\teditor = {script}
\tsshCommand = {script}
\talternateRefsCommand = {script}
\tattributesFile = {path}/attributes
[filter "evil"]
\tclean = {script}
\tsmudge = {script}
\tprocess = {script}
\trequired = true
[diff "evil"]
\tcommand = {script}
\ttextconv = {script}
[diff]
\texternal = {script}
[merge "evil"]
\tdriver = {script}
[alias]
\tadd = "!{script}"
\tls-files = "!{script}"
\twrite-tree = "!{script}"
[gpg]
\tprogram = {script}
[uploadpack]
\tpackObjectsHook = {script}
[include]
\tpath = {path}/included
"""
    )
    (path / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (path / ".git/info/attributes").write_text("* filter=evil\n")
    subs = '[submodule "x"]\n\tpath = x\n\turl = ext::sh -c evil\n\tupdate = !evil\n'
    (path / ".gitmodules").write_text(subs)
    (path / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {script}\n")


async def test_nothing_an_agent_plants_ever_runs(tmp_path, slots):
    """Hooks, monitors, filters, drivers, aliases, includes: data, in every call we make."""
    marker = tmp_path / "ran"
    hub = slots.hub
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"a.txt": "mine\n"})
        plant_everything(slot.path, marker)
        taken = await slot.take()
        await slot.save(ref_of("wip", "run", "task", 1))
        merged = await hub.merge(hub.main(), taken.head, slot.base)
        landed = await hub.commit(merged.tree, (hub.main(),), "Landed")
        assert await hub.advance(landed, hub.main())
    await clean(slots)
    await hub.publish("results")
    assert not marker.exists()
    assert taken.changed["a.txt"] == "M"
    # The trap is real: git, let loose in that slot, would have run it.
    async with slots.lease(hub.main()) as slot:
        plant_everything(slot.path, marker)
        subprocess.run(["git", "status"], cwd=slot.path, capture_output=True, check=False)
    assert marker.exists()


async def test_a_linked_git_folder_is_not_followed(tmp_path, user, slots):
    """Neither for reading nor when the slot is cleaned."""
    before = every_byte(user)
    async with slots.lease(slots.hub.main()) as slot:
        subprocess.run(["rm", "-rf", slot.path / ".git"], check=True)
        (slot.path / ".git").symlink_to(user / ".git")
        write(slot.path, {"a.txt": "mine\n"})
        (slot.path / "out").symlink_to(user)
        taken = await slot.take()
    assert taken.changed == {"a.txt": "M", "out": "A"}
    assert await clean(slots) == ({b"a.txt", b"src", b"src/b.txt"}, "")
    assert every_byte(user) == before


@pytest.mark.parametrize("what", ["alternates", "replace", "grafts", "head", "index", "packed"])
async def test_a_broken_git_folder_spoils_nothing(tmp_path, user, slots, what):
    """Whatever is in it, the files are taken, and the next task gets a good one."""
    async with slots.lease(slots.hub.main()) as slot:
        write(slot.path, {"a.txt": "mine\n"})
        git = slot.path / ".git"
        if what == "alternates":
            (git / "objects/info/alternates").write_text(str(user / ".git/objects") + "\n/etc\n")
        elif what == "replace":
            run_git(slot.path, "replace", "-f", slot.base, commit_all(slot.path, "Other"))
        elif what == "grafts":
            (git / "info/grafts").write_text(f"{slot.base} {'1' * 40}\n")
        elif what == "head":
            (git / "HEAD").unlink()
            os.mkfifo(git / "HEAD")
        elif what == "index":
            (git / "index").write_bytes(b"DIRC garbage")
        else:
            (git / "packed-refs").write_text(f"{'f' * 40} refs/heads/lost\n" * 3)
        taken = await slot.take()
        assert taken.changed == {"a.txt": "M"}
        if what == "packed":
            assert taken.elsewhere == {"refs/heads/lost": ""}
    assert (await clean(slots))[1] == ""


async def test_odd_files_are_taken_or_named(slots):
    """Pipes and sockets are no files; odd names, links and repositories inside are taken."""
    odd = [
        "new\nline",
        "tab\there",
        'quote"d',
        " spaces ",
        "back\\slash",
        "-rf",
        "ünïcode",
        ":(top)",
    ]
    raw = b"not-utf8-\xff\xfe"
    async with slots.lease(slots.hub.main()) as slot:
        top = os.fsencode(slot.path)
        write(slot.path, {name: f"{name}\n" for name in odd})
        Path(os.fsdecode(top + b"/" + raw)).write_bytes(b"raw\n")
        os.mkfifo(slot.path / "pipe")
        (slot.path / "src/b.txt").unlink()
        os.mkfifo(slot.path / "src/b.txt")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(os.path.relpath(slot.path / "socket"))
        (slot.path / "a.txt").unlink()
        (slot.path / "a.txt").symlink_to("/etc/passwd")
        write(slot.path, {"inner/kept": "1\n", "born/kept": "2\n", "born/deep/er/x": "3\n"})
        run_git(slot.path / "inner", "init", "-q")
        commit_all(slot.path / "inner", "A repository inside")
        run_git(slot.path / "born/deep", "init", "-q")
        taken = await slot.take()
    assert taken.left_out == {"src/b.txt": "neither a file nor a link"}
    expected = dict.fromkeys((*odd, raw.decode("utf-8", "surrogateescape")), "A")
    expected |= {"inner/kept": "A", "born/kept": "A", "born/deep/er/x": "A"}
    assert taken.changed == expected | {"a.txt": "T", "src/b.txt": "D"}
    assert all(printable_name(name).isprintable() for name in taken.changed)
    held = files_of(slots.hub.git.folder, taken.head)
    assert held["a.txt"] == "/etc/passwd"
    assert held["new\nline"] == "new\nline"
    assert await clean(slots) == ({b"a.txt", b"src", b"src/b.txt"}, "")


async def test_folders_and_files_that_changed_places(slots):
    """A folder where a file was, a file where a folder was, a link in the place of a folder."""
    async with slots.lease(slots.hub.main()) as slot:
        (slot.path / "a.txt").unlink()
        write(slot.path, {"a.txt/inside": "x\n", "other/b.txt": "y\n"})
        (slot.path / "src/b.txt").unlink()
        (slot.path / "src").rmdir()
        (slot.path / "src").symlink_to("other")
        taken = await slot.take()
    assert taken.changed == {
        "a.txt": "D", "a.txt/inside": "A", "other/b.txt": "A", "src": "A", "src/b.txt": "D",
    }  # fmt: skip
    assert await clean(slots) == ({b"a.txt", b"src", b"src/b.txt"}, "")


async def test_what_is_too_large_is_named(tmp_path, slots):
    """A gigabyte that takes no room on disk; many files; many bytes in all."""
    limits = CaptureLimits(file_bytes=1000, total_bytes=1500, files=5)
    small = Slots(slots.hub, tmp_path / "small", 1, limits=limits)
    async with small.lease(slots.hub.main()) as slot:
        with (slot.path / "huge").open("wb") as file:
            file.truncate(1 << 30)
        write(slot.path, {"one": "1" * 900, "two": "2" * 900})
        taken = await slot.take()
        assert taken.changed == {"one": "A"}
        assert set(taken.left_out) == {"huge", "two"}
        assert "1073741824 bytes" in taken.left_out["huge"]
        write(slot.path, {f"many{n}": "x" for n in range(9)})
        taken = await slot.take()
        assert len(taken.changed) <= 5
        assert any("at most 5 are taken" in why for why in taken.left_out.values())
        assert await slot.save(ref_of("wip", "run", "task", 1)), "what can be kept is kept"


async def test_what_is_ignored_is_told(slots):
    """A rule of the project hides it from git; the agent should know that it was not taken."""
    async with slots.lease(slots.hub.main()) as slot:
        write(slot.path, {".gitignore": "build/\n", "build/out": "x", "b": "y"})
        taken = await slot.take()
    assert taken.changed == {".gitignore": "A", "b": "A"}
    assert taken.ignored == ("build/",)


@pytest.mark.parametrize("way", ["removed", "emptied", "linked", "file"])
async def test_a_slot_that_is_gone(tmp_path, slots, way):
    """It is said so, never taken for a change that removes every file; the next task gets one."""
    async with slots.lease(slots.hub.main()) as slot:
        subprocess.run(["rm", "-rf", slot.path], check=True)
        if way == "emptied":
            slot.path.mkdir()
        elif way == "linked":
            (tmp_path / "elsewhere").mkdir()
            write(tmp_path / "elsewhere", {"precious": "x"})
            slot.path.symlink_to(tmp_path / "elsewhere")
        elif way == "file":
            slot.path.write_text("gone")
        with pytest.raises(SlotGone):
            await slot.take()
    assert await clean(slots) == ({b"a.txt", b"src", b"src/b.txt"}, "")
    if way == "linked":
        assert (tmp_path / "elsewhere/precious").read_text() == "x"


async def test_a_slot_is_scrubbed_between_tasks(slots):
    """Nothing stays but what is to be kept: no ignored file, no closed folder, no configuration."""
    slots.keep = ("cache",)
    async with slots.lease(slots.hub.main()) as slot:
        write(slot.path, {".gitignore": "*\n", "deep/er/x": "1", "cache/dep": "2", "a.txt": "3"})
        run_git(slot.path, "config", "alias.st", "!evil")
        (slot.path / "src/b.txt").chmod(0o755)
        (slot.path / "deep/er").chmod(0o000)
        (slot.path / "src").chmod(0o500)
    async with slots.lease(slots.hub.main()) as slot:
        assert sorted(p.name for p in slot.path.iterdir()) == [".git", "a.txt", "cache", "src"]
        assert (slot.path / "a.txt").read_text() == "a\n"
        assert not (slot.path / "src/b.txt").stat().st_mode & stat.S_IXUSR
        assert "evil" not in (slot.path / ".git/config").read_text()
        assert (slot.path / "cache/dep").read_text() == "2"


async def test_a_change_in_the_moment_of_the_checkout_is_seen(slots):
    """Same size, same second: git must look at the bytes."""
    for number in range(5):
        async with slots.lease(slots.hub.main()) as slot:
            (slot.path / "a.txt").write_text(f"{number}\n")
            assert (await slot.take()).changed == {"a.txt": "M"}


async def test_line_ends_nobody_touched_are_no_change(tmp_path):
    """A base that does not follow its own rules; filters that are not there; odd encodings."""
    make_repo(
        tmp_path / "user",
        {
            "dos.txt": b"one\r\ntwo\r\n",
            "plain.txt": b"one\ntwo\n",
            "wide.txt": "grün\n",
            "big.bin": b"version https://git-lfs.github.com/spec/v1\nsize 1\n",
        },
    )
    rules = "*.txt text\nplain.txt eol=crlf\nwide.txt working-tree-encoding=UTF-16LE\n"
    write(tmp_path / "user", {".gitattributes": rules + "*.bin filter=lfs diff=lfs -text\n"})
    run_git(tmp_path / "user", "add", ".gitattributes")
    run_git(tmp_path / "user", "commit", "-q", "-m", "Rules")
    hub = await Hub.open(tmp_path / "fleet", tmp_path / "user")
    slots = Slots(hub, tmp_path / "slots", 1)
    async with slots.lease(hub.main()) as slot:
        assert (slot.path / "plain.txt").read_bytes() == b"one\r\ntwo\r\n"
        assert (slot.path / "wide.txt").read_bytes() == "grün\n".encode("utf-16-le")
        assert (await slot.take()).changed == {}
        write(slot.path, {"plain.txt": b"one\r\nthree\r\n"})
        taken = await slot.take()
    assert taken.changed == {"plain.txt": "M"}
    assert await hub.patch(slot.base, taken.head) == (
        await hub.patch(slot.base, taken.head, ["plain.txt"])
    )
    assert "\r" not in run_git(hub.git.folder, "show", f"{taken.head}:plain.txt")
    hub.close()


async def test_submodules_stay_as_they_are(tmp_path, user):
    """They are not fetched, not run, and not taken for a change."""
    make_repo(tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    run_git(user, *allow, "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    commit_all(user, "A submodule")
    hub = await Hub.open(tmp_path / "fleet", user)
    slots = Slots(hub, tmp_path / "slots", 1)
    for _ in range(2):
        async with slots.lease(hub.main()) as slot:
            assert list((slot.path / "lib").iterdir()) == []
            write(slot.path, {"a.txt": "x\n"})
            assert (await slot.take()).changed == {"a.txt": "M"}
    hub.close()


async def test_leases_wait_for_a_slot(slots):
    """No slot has two holders."""
    held, full = set(), asyncio.Event()

    async def work():
        async with slots.lease(slots.hub.main()) as slot:
            assert slot.name not in held
            held.add(slot.name)
            if len(held) == 3:
                full.set()
            await full.wait()  # the first three hold their slots until all are taken
            await asyncio.sleep(0)
            held.remove(slot.name)

    async with asyncio.timeout(120):
        await asyncio.gather(*(work() for _ in range(12)))
    assert not held


async def test_what_the_setup_made_is_not_the_agents(tmp_path, hub):
    """Unless the agent changed it."""

    async def setup(slot):
        write(slot.path, {"made/one": "1\n", "made/two": "2\n", "a.txt": "by the setup\n"})

    slots = Slots(hub, tmp_path / "slots", 1, setup=setup)
    async with slots.lease(hub.main()) as slot:
        assert (await slot.take()).changed == {}
        write(slot.path, {"mine": "x\n", "made/two": "changed\n"})
        assert (await slot.take()).changed == {"mine": "A", "made/two": "A"}


async def test_what_package_managers_downloaded_is_never_the_agents(tmp_path, hub):
    """Also when a build of the agent has written there; a folder of that name elsewhere is."""

    async def setup(slot):
        write(slot.path, {f"{DOWNLOADS}/cargo/index": "1\n"})

    slots = Slots(hub, tmp_path / "slots", 1, setup=setup)
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {f"{DOWNLOADS}/cargo/index": "2\n", f"{DOWNLOADS}/go/new": "x\n"})
        write(slot.path, {f"inner/{DOWNLOADS}/mine": "x\n"})
        assert (await slot.take()).changed == {f"inner/{DOWNLOADS}/mine": "A"}


async def test_pools_do_not_get_in_each_others_way(tmp_path, hub):
    """The same names in two folders are two slots."""
    one, two = Slots(hub, tmp_path / "one", 1), Slots(hub, tmp_path / "two", 1)
    async with one.lease(hub.main()) as first, two.lease(hub.main()) as second:
        write(first.path, {"a.txt": "first\n"})
        assert (await second.take()).changed == {}
        assert (await first.take()).changed == {"a.txt": "M"}


# --- what is outside of a slot plays no part ------------------------------------------------


async def test_a_folder_that_became_a_link_is_not_read_through(tmp_path, hub):
    """What lies behind it, or does not, makes no difference: the files of the folder are gone."""
    outside = tmp_path / "outside"
    for number, content in enumerate((None, "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "another\n")):
        slots = Slots(hub, tmp_path / f"slots-{number}", 1)
        outside.mkdir(exist_ok=True)
        if content is not None:
            (outside / "b.txt").write_text(content)
        async with slots.lease(hub.main()) as slot:
            shutil.rmtree(slot.path / "src")
            (slot.path / "src").symlink_to(outside)
            taken = await slot.take()
        assert (taken.changed, dict(taken.left_out)) == ({"src/b.txt": "D", "src": "A"}, {})
        shown = run_git(hub.git.folder, "ls-tree", "-r", "--name-only", taken.head).split()
        assert shown == ["a.txt", "src"]


async def test_a_folder_that_was_moved_and_is_a_link_now_is_taken(hub, slots):
    async with slots.lease(hub.main()) as slot:
        (slot.path / "src").rename(slot.path / "new")
        write(slot.path, {"new/b.txt": "changed\n"})
        (slot.path / "src").symlink_to("new")
        taken = await slot.take()
    assert taken.changed == {"new/b.txt": "A", "src/b.txt": "D", "src": "A"}
    assert not taken.left_out


async def test_pipes_that_git_would_open_hold_nobody_up(tmp_path, user):
    """Rules, those of submodules too, and what lies in a repository within the slot."""
    make_repo(tmp_path / "library")
    allow = ("-c", "protocol.file.allow=always")
    run_git(user, *allow, "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    commit_all(user, "A submodule")
    hub = await Hub.open(tmp_path / "fleet", user)
    slots = Slots(hub, tmp_path / "slots", 1)
    async with slots.lease(hub.main()) as slot:
        for place in (slot.path, slot.path / "src"):
            os.mkfifo(place / ".gitignore")
            os.mkfifo(place / ".gitattributes")
        (slot.path / ".gitmodules").unlink()
        os.mkfifo(slot.path / "pipe")
        (slot.path / ".gitmodules").symlink_to("pipe")
        for name in ("objects", "refs"):
            (slot.path / "inner/.git" / name).mkdir(parents=True)
        os.mkfifo(slot.path / "inner/.git/HEAD")
        write(slot.path, {"src/b.txt": "changed\n", "inner/x": "x\n"})
        async with asyncio.timeout(20):
            taken = await slot.take()
    assert {"src/b.txt": "M", "inner/x": "A"}.items() <= taken.changed.items()
    assert set(taken.left_out) == {".gitmodules"}
    hub.close()


@pytest.mark.parametrize("name", ["git~1", "sub/.GIT/x", ".git "])
async def test_a_name_that_git_refuses_is_named_and_not_lost_in_silence(hub, slots, name):
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {name: "work\n", "a.txt": "changed\n"})
        taken = await slot.take()
    assert (taken.changed, list(taken.left_out)) == ({"a.txt": "M"}, [name])


async def test_attributes_that_are_ignored_hold_as_they_do_for_git(hub, slots):
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {".gitignore": ".gitattributes\n", "src/.gitattributes": "* text\n"})
        (slot.path / "src/new.txt").write_bytes(b"one\r\n")
        (slot.path / "plain.txt").write_bytes(b"one\r\n")
        taken = await slot.take()
    show = ("cat-file", "-s")
    assert run_git(hub.git.folder, *show, f"{taken.head}:src/new.txt") == "4"
    assert run_git(hub.git.folder, *show, f"{taken.head}:plain.txt") == "5"


# --- what nobody touched is no matter -----------------------------------------------------------


async def test_large_files_and_many_that_nobody_touched_do_not_count(tmp_path, user):
    """Limits are for what an agent leaves, also when it wrote the same bytes again."""
    write(user, {"big": "x" * 3000, **{f"many/{n}": f"{n}\n" for n in range(60)}})
    commit_all(user, "A large file, and many")
    hub = await Hub.open(tmp_path / "fleet", user)
    slots = Slots(hub, tmp_path / "slots", 1, limits=CaptureLimits(file_bytes=2000, files=50))
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"a.txt": "changed\n"})
        taken = await slot.take()
        assert (taken.changed, dict(taken.left_out)) == ({"a.txt": "M"}, {})
        write(slot.path, {"big": "x" * 3000})
        taken = await slot.take()
        assert (taken.changed, dict(taken.left_out)) == ({"a.txt": "M"}, {})
        write(slot.path, {"big": "y" * 3000})
        assert list((await slot.take()).left_out) == ["big"]
        os.truncate(slot.path / "big", 1 << 40)  # nobody reads a terabyte of nothing
        async with asyncio.timeout(20):
            assert list((await slot.take()).left_out) == ["big"]
    hub.close()


CLOSED = """
import asyncio, os, sys
from pathlib import Path
from leadhand.fleet.repository.hub import Hub
from leadhand.fleet.workspace.slots import Slots

async def main():
    root = Path(sys.argv[1])
    async with await Hub.open(root / "fleet", root / "user") as hub:
        slots = Slots(hub, root / "slots", 1)
        async with slots.lease(hub.main()) as slot:
            (slot.path / "deep").mkdir()
            (slot.path / "deep/new").write_text("new")
            (slot.path / "src/b.txt").write_text("changed")
            (slot.path / "secret").write_text("x")
            (slot.path / "secret").chmod(0)
            os.mkfifo(slot.path / "deep/.gitignore")
            for name, mode in zip(("deep", "src"), sys.argv[2].split(), strict=True):
                (slot.path / name).chmod(int(mode, 8))
            slot.path.chmod(0)
            async with asyncio.timeout(20):
                taken = await slot.take()
            assert taken.changed == {"deep/new": "A", "src/b.txt": "M"}, taken
            assert list(taken.left_out) == ["secret"], taken
            (slot.path / "deep").chmod(0o500)
            (slot.path / "src").chmod(0o500)
        async with slots.lease(hub.main()) as slot:
            assert (await slot.take()).changed == {}
            assert sorted(os.listdir(slot.path)) == [".git", "a.txt", "src"]

asyncio.run(main())
"""


def obey():
    """Root obeys permissions too, from the next program on."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2, 3):  # to override them, to read in spite of them, to own all files
        libc.prctl(24, capability, 0, 0, 0)


@pytest.mark.parametrize("modes", ["0 0", "0 755", "755 400", "500 500"])
async def test_closed_folders_hide_nothing(tmp_path, user, modes):
    """What can be opened is taken, what cannot be read is named."""
    command = [sys.executable, "-c", CLOSED, str(tmp_path), modes]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=obey)
    assert done.returncode == 0, done.stderr
