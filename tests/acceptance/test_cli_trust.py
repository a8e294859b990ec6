"""Looking at a folder runs nothing of it: its settings are trusted first, by the person."""

import sys

import pytest

from tests.support.cli import Folder

pytestmark = pytest.mark.real

MARKED = """
from pathlib import Path
(Path(__file__).parent / "marks.txt").open("a").write("{name}\\n")
"""
WORKERS = (
    MARKED.format(name="workers")
    + """
from leadhand import worker

@worker(name="say", idempotent=True)
def say(text: str = "hello") -> str:
    return text

def planner(state):
    return None

def reviewer(view):
    return None
"""
)
SERVER = MARKED.format(name="mcp")
SETTINGS = f"""
[project]
workers = ["workers.py"]
planner = "planning.py:planner"

[review]
reviewers = ["planning:reviewer"]

[mcp.files]
command = ["{sys.executable}", "server.py"]
connect_timeout = 5

[notify]
command = ["{sys.executable}", "server.py"]

[coders.mine]
kind = "claude"
program = "./agent.sh"
"""
NO = {"LEADHAND_TRUST": ""}
LOOKS = [
    ("lint", "plan.json"),
    ("lint", "plan.json", "--json"),
    ("show", "plan.json"),
    ("show", "plan.json", "--graph"),
    ("review", "plan.json"),
    ("review", "plan.json", "--json"),
    ("doctor",),
    ("doctor", "plan.json"),
    ("ls",),
    ("ls", "workers"),
    ("ls", "workers", "--json"),
    ("diff", "plan.json", "plan.json"),
    ("run", "plan.json", "--dry-run"),
    ("apply", "plan.json", "--dry-run"),
    ("inbox",),
    ("metrics",),
    ("library", "list"),
    ("schema",),
    ("verify", "--all"),
    ("fleet", "status"),
]
EXECUTES = [
    ("run", "plan.json"),
    ("run", "plan.json", "--detach"),
    ("apply", "plan.json"),
    ("plan", "a goal", "--want", "x"),
    ("run", "a goal", "--want", "x", "--dry-run"),
    ("review", "plan.json", "approve"),
    ("serve", "--port", "0"),
    ("worker", "--engine"),
    ("mcp", "tools"),
    ("fleet", "start", "--repo", "."),
]


FILES = {
    "workers.py": WORKERS,
    "planning.py": WORKERS.replace("workers\\n", "planning\\n"),
    "server.py": SERVER,
}


@pytest.fixture
def folder(folder):
    folder.write("agent.sh", "#!/bin/sh\necho agent >> marks.txt\n").chmod(0o755)
    folder.write("leadhand.toml", SETTINGS)
    folder.plan({"id": "a", "worker": "say"})
    return folder


def marks(folder):
    path = folder.path / "marks.txt"
    return set(path.read_text().split()) if path.exists() else set()


@pytest.mark.parametrize("below", [False, True], ids=["here", "below"])
def test_looking_runs_no_code(folder, below):
    """Also from a folder below the one with the settings."""
    where = folder
    if below:
        (folder.path / "deep").mkdir()
        where = Folder(folder.path / "deep")
        where.plan({"id": "a", "worker": "say"})
    for command in LOOKS:
        done = where.run(*command, **NO)
        codes = (0, 1, 2) if command[0] in ("fleet", "verify", "metrics") else (0,)
        assert done.code in codes, (command, done)
        assert not marks(folder), (command, done)


def test_executing_needs_trust_where_nobody_can_be_asked(folder):
    for command in EXECUTES:
        done = folder.run(*command, **NO)
        assert done.code == 4, (command, done)
        assert "is not trusted" in done.err, (command, done)
        assert "leadhand trust" in done.err, (command, done)
        assert "LEADHAND_TRUST" in done.err, (command, done)
        assert not marks(folder), (command, done)
    assert not (folder.path / ".leadhand").exists()


def test_what_is_not_loaded_is_named(folder):
    done = folder.run("lint", "plan.json", **NO)
    assert "not loaded" in done.err
    assert "workers.py" in done.err
    assert "files" in done.err
    assert "only the plan itself was checked" in done.err
    doc = folder.run("lint", "plan.json", "--json", **NO).doc
    assert (doc["valid"], doc["checked_workers"]) == (True, False)
    assert any("workers.py" in each for each in doc["not_loaded"])
    assert "say (not loaded)" in folder.run("show", "plan.json", **NO).out
    review = folder.run("review", "plan.json", **NO).out
    assert "Plan digest: none, since workers are not loaded" in review
    assert "the policy counts it as" not in review, "what the workers declare is not known"
    assert "say, version not loaded" in review
    doc = folder.run("review", "plan.json", "--json", **NO).doc
    assert (doc["binding"], doc["policy_risk"]) == (None, None)
    assert "workers.py']   (source: " in folder.run("doctor", **NO).out
    assert folder.run("ls", "workers", "--json", **NO).doc["digest"] is None
    assert "is not trusted" in folder.run("doctor", **NO).out


SIMPLE = "[project]\nworkers = ['workers.py']\n"


def test_trust_is_kept_until_an_entry_is_new(folder):
    folder.write("leadhand.toml", SIMPLE)
    assert folder.run("run", "plan.json", **NO).code == 4
    assert "workers.py" in folder.run("trust", **NO).out
    assert folder.run("run", "plan.json", **NO).code == 0
    assert marks(folder) == {"workers"}
    kept = folder.path / ".state" / "leadhand" / "trust.json"
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    # An edit of a worker's code, or another setting, is the developer's everyday work.
    folder.write("workers.py", WORKERS + "\n# edited\n")
    folder.write("leadhand.toml", SIMPLE + "[policy]\nattempts = 2\n")
    assert folder.run("run", "plan.json", **NO).code == 0
    # A new source, and an MCP server, are asked about; so is a command that changed.
    folder.write("more.py", WORKERS.replace('"say"', '"more"'))
    folder.write("leadhand.toml", "[project]\nworkers = ['workers.py', 'more.py']\n")
    done = folder.run("run", "plan.json", **NO)
    assert (done.code, "more.py" in done.err, "workers.py" in done.err) == (4, True, False)
    mcp = f"[mcp.files]\ncommand = ['{sys.executable}', 'server.py', 'X']\n"
    folder.write("leadhand.toml", SIMPLE + mcp.replace("X", "one"))
    folder.run("trust", **NO)
    folder.write("leadhand.toml", SIMPLE + mcp.replace("X", "two"))
    done = folder.run("run", "plan.json", **NO)
    assert (done.code, "server.py two" in done.err) == (4, True)
    assert "mcp" not in marks(folder)
    # An entry that is taken out leaves the rest trusted.
    folder.write("leadhand.toml", SIMPLE)
    assert folder.run("run", "plan.json", **NO).code == 0


def test_revoke_and_list(folder):
    folder.write("leadhand.toml", SIMPLE)
    folder.run("trust", **NO)
    (row,) = folder.run("trust", "--list", "--json", **NO).doc
    assert row["folder"] == str(folder.path.resolve())
    assert str(folder.path) in folder.run("trust", "--list", **NO).out
    assert folder.run("trust", "--revoke", "--json", **NO).doc["revoked"]
    assert folder.run("run", "plan.json", **NO).code == 4
    assert folder.run("trust", "--list", "--json", **NO).doc == []


def test_trust_for_ci(folder):
    folder.write("leadhand.toml", SIMPLE)
    assert folder.run("run", "plan.json", "--trust", **NO).code == 0
    assert folder.run("run", "plan.json", **NO).code == 4  # of that command only
    assert folder.run("run", "plan.json", LEADHAND_TRUST=str(folder.path.parent)).code == 0
    done = folder.run("run", "plan.json", LEADHAND_TRUST=".")
    assert (done.code, "no absolute path" in done.err) == (2, True)
    assert folder.run("run", "plan.json", LEADHAND_TRUST=str(folder.path / "other")).code == 4


def test_what_the_person_names_is_trusted(folder):
    """A flag and a variable are the person's own words; the run can be taken up again."""
    (folder.path / "leadhand.toml").unlink()
    assert folder.run("lint", "plan.json", "--workers", "workers.py", **NO).code == 0
    assert folder.run("ls", "workers", LEADHAND_WORKERS="workers.py", **NO).code == 0
    folder.plan({"id": "a", "worker": "say"}, name="held.json")
    done = folder.run("run", "held.json", "--review", "--workers", "workers.py", **NO)
    assert done.code == 5, done
    done = folder.run("resume", folder.latest()["run"], "--yes", **NO)
    assert done.code == 0, done


def test_sources_that_a_log_names_are_trusted_first(folder):
    """A folder may come with a database; `resume` of its runs loads nothing of it."""
    (folder.path / "leadhand.toml").unlink()
    folder.run("run", "plan.json", "--review", "--workers", "workers.py", **NO)
    (folder.path / "marks.txt").unlink()
    elsewhere = {"XDG_STATE_HOME": str(folder.path / "another"), **NO}
    done = folder.run("resume", folder.latest()["run"], "--yes", **elsewhere)
    assert (done.code, "is not trusted" in done.err) == (2, True), done
    assert not marks(folder)


def test_a_planner_is_the_file_beside_its_settings(folder):
    """A planner named in a parent's settings is not looked for in the folder of the command."""
    folder.write("leadhand.toml", "[project]\nplanner = 'planning.py:planner'\n")
    folder.run("trust", **NO)
    deep = folder.path / "deep"
    deep.mkdir()
    (deep / "planning.py").write_text(WORKERS.replace("workers\\n", "evil\\n"))
    Folder(deep).run("plan", "a goal", XDG_STATE_HOME=str(folder.path / ".state"), **NO)
    assert not (deep / "marks.txt").exists()


def test_trust_that_others_could_write_is_none(folder):
    folder.write("leadhand.toml", SIMPLE)
    folder.run("trust", **NO)
    kept = folder.path / ".state" / "leadhand" / "trust.json"
    kept.chmod(0o666)
    assert folder.run("run", "plan.json", **NO).code == 4
    kept.write_text("{")
    kept.chmod(0o600)
    assert folder.run("run", "plan.json", **NO).code == 4


def test_a_remote_database_and_temporal_are_not_contacted(folder):
    folder.write("leadhand.toml", "[project]\nstore = 'postgres://a@127.0.0.1:1/x'\n")
    done = folder.run("ls", **NO)
    assert (done.code, "is not trusted" in done.err) == (4, True)
    folder.write("leadhand.toml", "[temporal]\naddress = '127.0.0.1:1'\napi_key = 'SECRET'\n")
    assert folder.run("ls", SECRET="s3cret", **NO).code == 0
    assert folder.run("run", "plan.json", "--workers", "workers.py", **NO).code == 4


def test_init_trusts_what_it_wrote(tmp_path):
    folder = Folder(tmp_path)
    assert folder.run("init", **NO).code == 0
    assert folder.run("run", "plan.yaml", **NO).code == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "workers.py").write_text(WORKERS)  # not ours
    there = Folder(other)
    there.run("init", **NO)
    assert there.run("lint", "plan.yaml", **NO).code == 0
    assert not marks(there)
