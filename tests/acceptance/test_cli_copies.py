"""Older copies of a database, readers that leave, and answers that say nothing."""

import shutil
import subprocess

import pytest

from leadhand.cli.group import execute
from tests.support.cli import PROGRAM, WORKERS, Folder, environment

FILES = {"workers.py": WORKERS}


def test_nothing_goes_on_from_an_older_copy_of_the_database(folder):
    """Its anchor knows better: what the copy would do was done already."""
    assert folder.run("run", folder.plan({"id": "a", "worker": "once"})).code == 0
    home = folder.path / ".leadhand"
    shutil.copy(home / "leadhand.db", folder.path / "old.db")
    assert folder.run("run", folder.plan({"id": "a", "worker": "once"})).code == 0
    shutil.copy(folder.path / "old.db", home / "leadhand.db")
    done = folder.run("run", folder.plan({"id": "a", "worker": "once"}))
    assert (done.code, "older copy" in done.err) == (7, True), str(done)
    assert folder.lines("once.txt") == 2
    (home / "leadhand.db.anchors").unlink()
    assert folder.run("run", folder.plan({"id": "a", "worker": "once"})).code == 0


@pytest.mark.parametrize("words", [["schema"], ["--help"], ["run", "--help"]])
def test_a_reader_that_leaves_is_no_bug(folder, words):
    """`leadhand … | head` ends as if the signal for it had come, without a word."""
    line = " ".join([*PROGRAM, *words])
    done = subprocess.run(
        ["bash", "-c", f"{line} | true; echo ${{PIPESTATUS[0]}}"],
        cwd=folder.path,
        env=environment(folder.path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "", done.stderr
    assert done.stdout.strip() in ("141", "0"), "0 when it was all written before"


def test_an_export_to_stdout_is_the_file(folder):
    """Byte for byte, and nothing of it elsewhere."""
    folder.run("run", folder.plan({"id": "a", "worker": "say"}))
    run = folder.latest()["run"]
    done = subprocess.run(
        [*PROGRAM, "export", run, "-o", "-"],
        cwd=folder.path,
        env=environment(folder.path),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"PK")
    assert b"PK" not in done.stderr


def test_an_approval_does_not_take_the_place_of_its_plan(folder):
    """The file it is written to is another one."""
    plan = folder.plan({"id": "a", "worker": "danger"})
    before = (folder.path / plan).read_text()
    done = folder.run("review", plan, "approve", "-o", plan)
    assert (done.code, "is the plan itself" in done.err) == (2, True), str(done)
    assert (folder.path / plan).read_text() == before


def test_a_copied_project_goes_on_with_its_own_workers(folder, tmp_path):
    """Though the run began elsewhere, and the workers of that place are still there."""
    source = folder.path
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "hello"}}, risk_level="high")
    assert folder.run("run", "plan.json").code == 5
    run = folder.latest()["run"]
    assert folder.run("review", run, "approve").code == 0
    copied = Folder(shutil.copytree(source, tmp_path.parent / f"{tmp_path.name}-copied"))
    done = copied.run("resume", run)
    assert (done.code, done.out.strip()) == (0, "hello"), done


def test_workers_that_stand_in_two_files_are_named_with_both(folder):
    """The message says where to look."""
    text = (folder.path / "workers.py").read_text()
    folder.write("again.py", text)
    folder.plan({"id": "a", "worker": "say", "parameters": {"text": "hello"}})
    done = folder.run("run", "plan.json", "--workers", "workers.py", "--workers", "again.py")
    assert done.code == 2, done
    assert "workers.py:" in done.err
    assert "again.py:" in done.err


def test_a_second_resume_is_told_that_the_run_is_hosted(folder, monkeypatch, capsys):
    """Whoever came a moment too late to see it; another database would be no help."""
    folder.plan({"id": "a", "worker": "nap", "parameters": {"seconds": 30}})
    with folder.start("run", "plan.json", "--quiet") as child:
        folder.until(lambda: folder.lines("naps.txt"), "the step")
        run = folder.latest()["run"]
        monkeypatch.chdir(folder.path)
        monkeypatch.setenv("LEADHAND_TRUST", str(folder.path.resolve()))
        monkeypatch.setattr("leadhand.cli.commands.resume.driver_of", lambda *_args: 0)
        code = execute(["resume", run])
        said = capsys.readouterr().err
        assert code == 7, said
        assert f"run {run} is hosted by process {child.pid} already" in said
        assert "--store" not in said
