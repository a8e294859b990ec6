"""What a plan is held against: what others changed, and the programs that the gate finds."""

import sys
from pathlib import Path

import pytest

from leadhand.fleet.planning.choice import is_there
from leadhand.fleet.planning.survey import changes_since
from leadhand.workers.sandbox.sandbox import Sandbox
from tests.fleet.places import write


async def land(hub, slots, run, files):
    """A commit of somebody on main."""
    main = hub.main()
    async with slots.lease(main) as slot:
        write(slot.path, files)
        taken = await slot.take("x")
    about = {"Leadhand-Run": run, "Leadhand-Task": "t"}
    tree = (await hub.git("rev-parse", f"{taken.head}^{{tree}}")).text
    sha = await hub.commit(tree, [main], ", ".join(files), about)
    assert await hub.advance(sha, main)


@pytest.mark.parametrize(
    ("writes", "subjects"),
    [
        (["src/*.py"], ["src/a.py"]),
        (["**/*.md"], ["docs/x.md"]),
        (["src/?.py", "docs"], ["src/a.py", "docs/x.md"]),
        (["src/deep/"], ["src/deep/b.txt"]),
        (["src/*.toml", "lib/**"], []),
        (["odd*.txt"], ["odd*1.txt"]),
        (["own.py"], []),
        (["**"], ["src/a.py", "src/deep/b.txt", "docs/x.md", "odd*1.txt"]),
    ],
)
async def test_drift_is_what_others_changed_of_what_the_paths_really_mean(
    hub, slots, writes, subjects
):
    since = hub.main()
    for name in ("src/a.py", "src/deep/b.txt", "docs/x.md", "odd*1.txt"):
        await land(hub, slots, "other", {name: "x\n"})
    await land(hub, slots, "mine", {"own.py": "x\n"})
    assert [each["subject"] for each in await changes_since(hub, "mine", since, writes)] == subjects


async def test_what_was_changed_and_put_back_is_no_drift(hub, slots):
    since = hub.main()
    await land(hub, slots, "other", {"a.txt": "b\n"})
    await land(hub, slots, "other", {"a.txt": "a\n"})
    assert await changes_since(hub, "mine", since, ["a.txt"]) == []


async def test_however_many_files_others_changed_git_is_asked(hub, slots, monkeypatch):
    monkeypatch.setattr("leadhand.fleet.planning.survey.PATHS_AT_ONCE", 2)
    since = hub.main()
    await land(hub, slots, "other", {f"many/{n}.txt": "x\n" for n in range(5)})
    assert len(await changes_since(hub, "mine", since, ["many"])) == 1


def test_programs_are_looked_for_where_the_gate_runs(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "own-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "bin" / "linked").symlink_to(tool)
    boxed, shown = Sandbox(kind="landlock"), Sandbox(kind="landlock", readable=(tmp_path,))
    path = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    assert is_there("own-tool", shown, path)
    assert is_there("linked", shown, path)
    assert is_there(str(tool), shown, {})
    assert is_there("own-tool", Sandbox(kind="none"), path)
    assert not is_there("own-tool", boxed, path), "it is not to be seen in there"
    assert not is_there(str(tool), boxed, path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert not is_there("own-tool", shown, {}), "our own PATH is not the gate's"
    assert is_there("sh", boxed, {})
    assert not is_there("sh", boxed, {"PATH": str(tmp_path)})
    assert is_there(str(Path(sys.executable).resolve()), boxed, {})
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "own-tool").symlink_to(tool)
    half = Sandbox(kind="landlock", readable=(tmp_path / "seen",))
    assert not is_there("own-tool", half, {"PATH": f"{tmp_path}/seen"}), "a link that leads out"
