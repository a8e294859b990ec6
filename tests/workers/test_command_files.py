"""What the version of a command covers, and that it is compared at the start of each attempt."""

import os
import sys
from pathlib import Path

import pytest

from leadhand import Lead, worker
from leadhand.workers.commands.version import digest_of
from leadhand.workers.commands.worker import fill_argv
from leadhand.workers.declared import declared_workers
from leadhand.workers.registry import Registry

FILES = {
    "deploy.sh": "#!/bin/sh\n. ./lib.sh\nsh tools/more.sh\necho v1\n",
    "lib.sh": "echo lib\n",
    "tools/more.sh": "echo more\n",
    "tool.py": "import help_tool\nprint(1)\n",
    "help_tool.py": "from pack import part\n",
    "pack/__init__.py": "",
    "pack/part.py": "N = 1\n",
    "pack/__main__.py": "from . import part\n",
    "settings.cfg": "a = 1\n",
    "scripts/v1.sh": "echo v1\n",
    "scripts/v2.sh": "echo v2\n",
    "notes.txt": "n\n",
    "Makefile": "ship:\n\tsh tools/more.sh\n",
    "beside.sh": '#!/bin/sh\nexec "$(dirname "$0")"/tools/more.sh\n',
    "modules.sh": "python3 -B -m pack\n",
    "surroundings/pyvenv.cfg": "home = /usr/bin\n",
    "surroundings/deploy.sh": "#!/bin/sh\necho v1\n",
    "own/interpreter": '#!/bin/sh\nexec sh "$@"\n',
}


@pytest.fixture
def place(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "link.sh").symlink_to("deploy.sh")
    (tmp_path / "here").symlink_to("tools")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "prod").symlink_to("../tools")
    return tmp_path


def made(place, **table):
    return declared_workers({"w": table}, place)[0]


def append(name):
    return lambda place, _env: (place / name).write_text((place / name).read_text() + "# x\n")


def relink(place, _env):
    (place / "link.sh").unlink()
    (place / "link.sh").symlink_to("lib.sh")


def refolder(place, _env):
    (place / "here").unlink()
    (place / "here").symlink_to("scripts")


def keeping_times(place, _env):
    path = place / "deploy.sh"
    stat = path.stat()
    path.write_text(path.read_text().replace("v1", "v2"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size


def shadowing(place, _env):
    (place / "shadow" / "git").parent.mkdir()
    (place / "shadow" / "git").write_text("#!/bin/sh\n")
    (place / "shadow" / "git").chmod(0o755)
    _env["PATH"] = f"{place / 'shadow'}:{os.environ['PATH']}"


def other_value(_place, env):
    env["REGION"] = "us"


def new_module(place, _env):
    (place / "help_tool").mkdir()
    (place / "help_tool" / "__init__.py").write_text("")


def shadowed(name):
    """A library imports that module by itself, and Python looks beside the script first."""
    return lambda place, _env: (place / name).write_text("print('not approved')\n")


def behind_linked_folder(place, _env):
    (place / "tools" / "more.sh").write_text("echo another\n")


CHANGES = {
    "the script": ({"command": ["./deploy.sh"]}, append("deploy.sh")),
    "the script, times and size kept": ({"command": ["./deploy.sh"]}, keeping_times),
    "a script behind a link": ({"command": ["./link.sh"]}, append("deploy.sh")),
    "the link": ({"command": ["./link.sh"]}, relink),
    "sh SCRIPT": ({"command": ["sh", "deploy.sh"]}, append("deploy.sh")),
    "a script that it sources": ({"command": ["./deploy.sh"]}, append("lib.sh")),
    "a script that it starts": ({"command": ["./deploy.sh"]}, append("tools/more.sh")),
    "python SCRIPT": ({"command": [sys.executable, "tool.py"]}, append("tool.py")),
    "what it imports": ({"command": ["python3", "tool.py"]}, append("help_tool.py")),
    "what that imports": ({"command": ["python3", "tool.py"]}, append("pack/part.py")),
    "a module that shadows another": ({"command": ["python3", "tool.py"]}, new_module),
    "python -m": ({"command": ["python3", "-m", "pack"]}, append("pack/__main__.py")),
    "what -m imports": ({"command": ["python3", "-m", "pack"]}, append("pack/part.py")),
    "--config=FILE": ({"command": ["cat", "--config=settings.cfg"]}, append("settings.cfg")),
    "a file as an argument": ({"command": ["cat", "settings.cfg"]}, append("settings.cfg")),
    "a path with placeholders": ({"command": ["sh", "scripts/{v}.sh"]}, append("scripts/v2.sh")),
    "cwd": ({"command": ["ls"], "cwd": "here"}, refolder),
    "a variable": ({"command": ["ls"], "env": ["REGION"]}, other_value),
    "PATH": ({"command": ["git", "status"]}, shadowing),
    "the probe": ({"command": ["ls"], "probe": ["./deploy.sh"]}, append("deploy.sh")),
    "an interpreter of its own": (
        {"command": ["own/interpreter", "lib.sh"]}, append("own/interpreter")
    ),
    "a script behind an option that begins like one for output": (
        {"command": ["bash", "--login", "deploy.sh"]}, append("deploy.sh")
    ),
    "a script that the worker may write": (
        {"command": ["./deploy.sh"], "writes": ["**"]}, append("deploy.sh")
    ),
    "what such a script sources": (
        {"command": ["sh", "deploy.sh"], "writes": ["**"]}, append("lib.sh")
    ),
    "sh -c": ({"command": ["sh", "-c", "./deploy.sh prod"]}, append("deploy.sh")),
    "sh -c, with a placeholder": ({"command": ["sh", "-ec", "./deploy.sh {to}"]}, append("lib.sh")),
    "sh -c, sourced, no script by its looks": (
        {"command": ["sh", "-c", ". ./notes.txt; go"]}, append("notes.txt")
    ),
    "a program behind another": ({"command": ["timeout", "9", "./deploy.sh"]}, append("lib.sh")),
    "python -m behind another": (
        {"command": ["nice", "python3", "-m", "pack"]}, append("pack/part.py")
    ),
    "python -mMODULE": ({"command": ["python3", "-mpack"]}, append("pack/part.py")),
    "python -Bm MODULE": ({"command": ["python3", "-Bm", "pack"]}, append("pack/part.py")),
    "python -c": ({"command": ["python3", "-c", "import help_tool"]}, append("help_tool.py")),
    "python -m in a script": ({"command": ["sh", "modules.sh"]}, append("pack/part.py")),
    "a module that a library imports": (
        {"command": ["python3", "tool.py"]}, shadowed("gettext.py")
    ),
    "a compiled one": ({"command": ["python3", "-m", "pack"]}, shadowed("gettext.pyc")),
    "a compiled one for one of its own": (
        {"command": ["python3", "tool.py"]}, shadowed("help_tool.abi3.so")
    ),
    "a module that an installed one imports": (
        {"command": [sys.executable, "tool.py"]}, shadowed("msgspec.py")
    ),
    "placeholders behind a linked folder": (
        {"command": ["sh", "linked/{v}/more.sh"]}, behind_linked_folder
    ),
    "a script beside the script": ({"command": ["./beside.sh"]}, append("tools/more.sh")),
    "make": ({"command": ["make", "ship"]}, append("Makefile")),
    "what make starts": ({"command": ["nice", "make", "ship"]}, append("tools/more.sh")),
    "a file that make takes first": ({"command": ["make"]}, shadowed("GNUmakefile")),
    "a file beside the settings of an environment": (
        {"command": ["surroundings/deploy.sh"]}, append("surroundings/deploy.sh")
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", CHANGES)
def test_a_change_is_another_version_at_the_next_look(place, way, monkeypatch):
    """In a living process (`renewed`), and in the next."""
    table, change = CHANGES[way]
    monkeypatch.setenv("REGION", "eu")
    found = made(place, **table)
    before = found.spec.version
    assert found.renewed().version == before
    with monkeypatch.context() as patched:
        env = {}
        change(place, env)
        for name, value in env.items():
            patched.setenv(name, value)
        if way != "cwd":  # it was resolved when it was declared, and stays what was approved
            assert found.renewed().version != before
        assert made(place, **table).spec.version != before


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ({"command": ["./deploy.sh"]}, append("notes.txt")),
        ({"command": ["./deploy.sh"]}, lambda place, _: os.utime(place / "deploy.sh", (1, 1))),
        ({"command": ["cp", "x", "settings.cfg"], "writes": ["settings.cfg"]},
         append("settings.cfg")),
        ({"command": ["cc", "-o", "notes.txt"]}, append("notes.txt")),
        ({"command": ["cc", "--output=notes.txt"]}, append("notes.txt")),
        ({"command": ["cc", "--log-file", "notes.txt"]}, append("notes.txt")),
        ({"command": ["cc", "-o", "deploy.sh", "lib.sh"]}, append("deploy.sh")),
        ({"command": ["ruff", "format", "tool.py"], "writes": ["**"]}, append("tool.py")),
        ({"command": ["python3", "tool.py"]}, lambda place, _: (place / "new.py").write_text("")),
    ],
)  # fmt: skip
def test_what_is_harmless_is_the_same_version(place, table, change):
    found = made(place, **table)
    before = found.spec.version
    change(place, {})
    assert found.renewed().version == before == made(place, **table).spec.version


def test_files_above_the_bound_count_too(place, monkeypatch):
    monkeypatch.setattr("leadhand.workers.commands.version.FILES_MAX", 1)
    found = made(place, command=["sh", "scripts/{v}.sh"])
    before = found.spec.version
    assert found.renewed().version == before
    (place / "scripts" / "v2.sh").write_text("echo v3\n")
    assert found.renewed().version != before


@pytest.mark.parametrize("value", ["../lib", "x/../../lib", ".."])
def test_a_value_does_not_leave_the_folder_in_front_of_it(place, value):
    found = made(place, command=["sh", "scripts/{v}.sh"])
    program = next(iter(found._programs.values()))
    with pytest.raises(ValueError, match="leads out of its folder"):
        fill_argv(program.argv, {"v": f"{value}/y"}, dash=False)
    assert fill_argv(program.argv, {"v": "a..b/c"}, dash=False) == ["sh", "scripts/a..b/c.sh"]


def test_the_same_project_elsewhere_is_the_same_version(place, tmp_path_factory):
    before = made(place, command=["./link.sh"], cwd="here", env=["HOME"]).spec.version
    other = tmp_path_factory.mktemp("other") / "moved"
    place.rename(other)
    assert made(other, command=["./link.sh"], cwd="here", env=["HOME"]).spec.version == before


def test_values_of_variables_stand_nowhere(place, monkeypatch):
    monkeypatch.setenv("REGION", "canary-value")
    found = made(place, command=["ls"], env=["REGION"], set_env={"A": "canary-value"})
    assert "canary" not in repr(found.coverage)
    assert any("REGION" in each for each in found.coverage.to_doc()["values"])


def test_a_value_that_is_not_utf8_counts(place, monkeypatch):
    found = set()
    for value in (b"\xff", b"\xfe"):
        monkeypatch.setitem(os.environb, b"REGION", value)
        found.add(made(place, command=["ls"], env=["REGION"]).spec.version)
    assert len(found) == 2


def test_a_file_that_changed_just_now_is_read_again(tmp_path):
    """Times have grains: two writes may lie in one."""
    path = tmp_path / "a"
    seen = set()
    for number in range(200):
        path.write_text(str(number % 10))
        seen.add((number, digest_of(str(path))))
    assert len({digest for _, digest in seen}) == 10


def runs(place: Path, change: str, **table: object) -> Lead:
    """A lead whose first step changes something, and whose second is the one that was approved."""
    (place / "change.sh").write_text(f"#!/bin/sh\n{change}\n")
    (place / "change.sh").chmod(0o755)
    tables = {
        "change": {"command": ["./change.sh"], "effects": ["files"]},
        "deploy": {"risk": "critical", "effects": ["x"], **table},
    }
    return Lead(declared_workers(tables, place), store=place / "a.db", actor="ann")


PLAN = {
    "goal": "g",
    "steps": [
        {"id": "a", "worker": "change"},
        {"id": "b", "worker": "deploy", "depends_on": ["a"]},
    ],
}


@pytest.mark.parametrize(
    ("change", "command"),
    [
        ("printf '#!/bin/sh\\necho EVIL >> ran' > deploy.sh", ["./deploy.sh"]),
        ("echo 'echo EVIL >> ran' > deploy.sh", ["sh", "deploy.sh"]),
        ("printf '#!/bin/sh\\necho EVIL >> ran' > lib.sh; ln -sf lib.sh link.sh", ["./link.sh"]),
        ("echo 'open(\"ran\", \"w\").write(\"EVIL\")' > help_tool.py", ["python3", "tool.py"]),
    ],
)  # fmt: skip
async def test_a_script_swapped_under_a_living_host_is_held(place, change, command):
    """Attack 1: it ran with the approval of the script it replaced."""
    lead = runs(place, change, command=command)
    async with lead.hosting():
        outcome = await lead.run(PLAN, approve=True)
        assert outcome.status == "waiting"
        assert not (place / "ran").exists()
        assert "deploy changed after the approval" in outcome.waiting_for[0].text
        ident = outcome.waiting_for[0].id.rpartition("/")[2]
        await lead.answer(outcome.run, ident, "release")
        again = await lead.resume(outcome.run)
        assert again.status in ("succeeded", "waiting", "failed")
        assert (place / "ran").read_text().strip() == "EVIL", "a person has allowed the new one"


async def test_a_command_that_the_policy_allows_goes_on_and_the_log_says_so(place):
    lead = runs(place, "echo '#!/bin/sh\necho 2 >> ran' > deploy.sh", command=["./deploy.sh"])
    tables = {
        "change": {"command": ["./change.sh"], "effects": ["files"]},
        "deploy": {"command": ["./deploy.sh"], "risk": "low"},
    }
    lead = Lead(declared_workers(tables, place), store=place / "b.db", actor="ann")
    async with lead.hosting() as host:
        outcome = await lead.run({**PLAN, "risk_level": "low"})
        assert outcome.ok, outcome
        log = b"\n".join(entry.body for entry in host.store.read(outcome.run))
    assert b"WorkersChanged" in log


@worker(effects=[])
async def one() -> int:
    return 1


async def test_functions_cost_nothing_to_compare():
    """They are what was loaded; nothing is read at a start."""
    registry = Registry([one])
    assert not hasattr(next(iter(registry)), "renewed")
