"""`leadhand init`: each template is a project that runs as written, without key or network."""

import json
import re
import shlex
import subprocess

import pytest

from leadhand.cli.commands.init import DEFAULT, TEMPLATES, TEMPLATES_FOLDER
from tests.acceptance.test_cli_terminal import typed
from tests.acceptance.test_docs import FENCE, check_line
from tests.fleet.places import run_git
from tests.support.cli import WORKERS, Done, Folder, environment

PLANS = ("release", "pipeline")
TRUSTS_NOTHING = {"LEADHAND_TRUST": ""}


def made(path, template, *options):
    """A project from a template, and what `init --json` said."""
    folder = Folder(path)
    done = folder.run("init", "--template", template, "--json", *options, **TRUSTS_NOTHING)
    assert done.code == 0, done
    return folder, done.doc


def carry_out(folder, line):
    """Run a command that was printed, as a person would type it."""
    program, *words = shlex.split(line)
    if program == "leadhand":
        return folder.run(*words, **TRUSTS_NOTHING)
    known = environment(folder.path)
    done = subprocess.run(
        [program, *words], cwd=folder.path, env=known, capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("template", ["pipeline", "research"])
def test_the_next_commands_work_as_printed(tmp_path, template):
    """All three succeed, in a folder that is trusted because `init` wrote it."""
    folder, said = made(tmp_path, template)
    assert len(said["next"]) == 3
    for line in said["next"]:
        done = carry_out(folder, line)
        assert done.code == 0, f"{line}\n{done}"
    assert folder.latest()["status"] == "succeeded"
    assert folder.run("doctor", **TRUSTS_NOTHING).code == 0
    assert (tmp_path / ".leadhand" / ".gitignore").read_text() == "*\n"


def test_a_release_waits_for_a_person_and_rolls_back(tmp_path):
    """Without an approval nothing is deployed; a version that is not healthy is taken back."""
    folder, said = made(tmp_path, "release")
    for line in said["next"][:2]:
        assert carry_out(folder, line).code == 0, line
    assert said["next"][2] == "leadhand run plan.yaml"
    waits = folder.run("run", "plan.yaml")
    assert waits.code == 5, waits
    assert not (tmp_path / "site").exists()
    done = folder.run("run", "plan.yaml", "--yes")
    assert done.code == 0, done
    assert json.loads(done.out)["version"] == "1.0.0"
    live = tmp_path / "site" / "live"
    assert live.resolve().name == "1.0.0"
    new = ("--set", "version=1.1.0", "--set", "health_ms_max=0")
    failed = folder.run("run", "plan.yaml", "--yes", *new)
    assert failed.code == 1, failed
    assert (tmp_path / "site" / "releases" / "1.1.0").is_dir()
    assert live.resolve().name == "1.0.0", "the version of before is live again"
    folder.write("service.py", "def greeting(name):\n    return name\n")
    red = folder.run("run", "plan.yaml", "--yes", "--set", "version=1.2.0")
    assert red.code == 1, red
    assert not (tmp_path / "site" / "releases" / "1.2.0").exists()


def test_a_pipeline_takes_a_secret_by_reference(tmp_path):
    """The value is nowhere in the project; the first attempt fails and is retried."""
    folder, _ = made(tmp_path, "pipeline")
    value = "a-token-of-27-characters-xx"
    done = folder.run("run", "plan.yaml", "--set", "token=env:ORDERS_TOKEN", ORDERS_TOKEN=value)
    assert done.code == 0, done
    assert "rejected: 1" in done.out
    assert "(transient) → retrying with " in done.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if value.encode() in path.read_bytes()]


def test_beside_settings_that_cannot_be_read_nothing_is_written(tmp_path):
    """All files are written, or none: the second attempt fails like the first."""
    folder = Folder(tmp_path)
    folder.write("pyproject.toml", "[tool.pytest\n")
    run_git(tmp_path, "init", "-q")
    for words in (["init"], ["init", "new"], ["init"], ["fleet", "init"], ["fleet", "init"]):
        if words[0] == "fleet":
            run_git(tmp_path, "add", ".")
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            run_git(tmp_path, *who, "commit", "-qm", "one", "--allow-empty")
        done = folder.run(*words, **TRUSTS_NOTHING)
        assert done.code == 2, done
        assert f"nothing was written: {tmp_path}/pyproject.toml:1: is not TOML" in done.err, done
        there = sorted(each.name for each in tmp_path.iterdir())
        assert [each for each in there if not each.startswith(".")] == ["pyproject.toml"], words


def test_init_writes_only_into_the_folder_that_is_named(tmp_path):
    """An empty name is an unset variable; a link inside the folder may lead elsewhere."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    folder = Folder(here)
    for words in (["init", ""], ["trust", ""], ["fleet", "init", "--repo", ""]):
        done = folder.run(*words)
        assert (done.code, "is empty" in done.err) == (2, True), done
    assert not list(here.iterdir())
    (here / "data").symlink_to(elsewhere)
    done = folder.run("init")
    assert done.code == 4, done
    assert "nothing was written: data: is a link" in done.err
    assert [each.name for each in here.iterdir()] == ["data"]
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("name", ["-y", "a\x1b[2J\nb", "it's \\\t", "two words"])
def test_any_folder_name_is_shown_on_one_line_and_can_be_entered(tmp_path, name):
    done = Folder(tmp_path).run("init", "--", name)
    assert done.code == 0, done
    assert "\x1b" not in done.err
    [line] = [each for each in done.err.splitlines() if each.startswith("  cd ")]
    entered = subprocess.run(
        ["bash", "-c", f"{line} && test -f plan.yaml"], cwd=tmp_path, check=False
    )
    assert entered.returncode == 0, line


def test_doctor_names_the_script_that_makes_the_repository(tmp_path):
    folder, _ = made(tmp_path, "fleet")
    for words in (["doctor"], ["fleet", "start", "--until-idle", "--no-serve"]):
        done = folder.run(*words, **TRUSTS_NOTHING)
        assert "python3 make_repo.py" in f"{done.out}{done.err}", done


@pytest.mark.real
@pytest.mark.slow
def test_a_fleet_merges_the_sample_epic(tmp_path):
    folder, said = made(tmp_path, "fleet")
    for line in said["next"]:
        done = carry_out(folder, line)
        assert done.code == 0, f"{line}\n{done}"
    listed = run_git(tmp_path / "shop", "ls-tree", "-r", "--name-only", "leadhand/main")
    assert {"discount.py", "receipt.py", "tests/test_receipt.py"} <= set(listed.splitlines())
    assert folder.run("doctor", **TRUSTS_NOTHING).code == 0


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_is_commented_and_has_a_short_readme(template):
    """The README names files that exist, and commands and options that exist."""
    place = TEMPLATES_FOLDER / template
    settings = (place / "leadhand.toml").read_text()
    assert settings.count("#") >= 5
    readme = (place / "README.md").read_text()
    assert len(readme.splitlines()) <= 35
    for name in re.findall(r"^\| (`[^|]+`) \|", readme, re.MULTILINE):
        for each in re.findall(r"`([^`]+)`", name):
            assert (place / each).exists(), each
    for block in FENCE.finditer(readme):
        for line in block[2].splitlines():
            if line.startswith("$ ") and "leadhand" in line:
                check_line(re.sub(r" +#.*$", "", line[2:]), line)


@pytest.mark.parametrize("template", PLANS)
def test_lint_finds_nothing_in_a_template(tmp_path, template):
    folder, _ = made(tmp_path, template)
    done = folder.run("lint", "plan.yaml", "--all", "--json")
    assert done.code == 0, done
    assert [each["rule"] for each in done.doc["findings"] if each["level"] != "note"] == []


def test_without_a_terminal_the_default_is_taken_and_said(tmp_path):
    done = Folder(tmp_path).run("init")
    assert done.code == 0, done
    assert f"The template is {DEFAULT}; --template chooses another" in done.err
    assert (tmp_path / "data" / "orders.csv").exists()


@pytest.mark.real
def test_a_terminal_is_asked(tmp_path):
    """A name that is none is asked for again; the answer decides."""
    done = typed(Folder(tmp_path), "init", keys="releases\nresearch\n")
    assert done.code == 0, done
    assert "coding agents on a repository" in done.out
    assert (tmp_path / "sources" / "reviews.txt").exists()
    assert not (tmp_path / "plan.yaml").exists()


def test_an_unknown_template_is_refused_with_the_names(tmp_path):
    done = Folder(tmp_path).run("init", "--template", "nothing")
    assert done.code == 2, done
    assert "release, pipeline, research, fleet" in done.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    """A file, a link and a folder in the way stay as they are; what was kept is named."""
    folder = Folder(tmp_path)
    folder.write("plan.yaml", "mine")
    (tmp_path / "README.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "workers.py").mkdir()
    _, said = made(tmp_path, "pipeline")
    assert set(said["kept"]) == {"README.md", "plan.yaml", "workers.py"}
    assert (tmp_path / "plan.yaml").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    again = folder.run("init", "--template", "pipeline")
    assert again.code == 0, again
    assert "wrote" not in again.err
    assert "Next:" not in again.err


def test_another_folder_is_made(tmp_path):
    told = Folder(tmp_path).run("init", "new/a project", "--template", "pipeline", "--json").doc
    assert told["next"][0] == "cd 'new/a project'"
    assert Folder(tmp_path / "new" / "a project").run("run", "plan.yaml").code == 0


def test_code_that_was_there_before_is_not_trusted(tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS)
    folder, _ = made(tmp_path, "pipeline")
    done = folder.run("run", "plan.yaml", **TRUSTS_NOTHING)
    assert done.code == 4, done
