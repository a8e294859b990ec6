"""What starts is what was approved: changes of a project on disk, and changes that are harmless.

`APPROVALS=1000 pytest tests/engine/test_changed_workers.py` draws 1,000 changes of which none runs
and 1,000 harmless ones that all run; without it a slice is drawn. `SEED` draws others. The plan
document itself is changed by `test_plan_approvals.py`, with the same variables.
"""

import contextlib
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from leadhand import Lead, worker
from leadhand.engine import host
from leadhand.errors import Conflict, LeadhandError
from leadhand.stores.memory import MemoryStore
from leadhand.workers.declared import declared_workers
from leadhand.workers.functions.snapshot import SOURCES
from leadhand.workers.registry import Registry, load_workers

COUNT = int(os.environ.get("APPROVALS", "48"))
SEED = int(os.environ.get("SEED", "1"))

FILES = {
    "workers.py": """
import os
from pathlib import Path

from leadhand import worker
import top_helper
from star_helper import *
from latin_helper import accent

HERE = Path(__file__).parent
TARGETS = {}
TARGETS["prod"] = "prod"


def make(target):
    return lambda: target


target = make("prod")


@worker(risk="critical", effects=["prod"])
async def ship() -> str:
    from pack.late import go

    done = [go(), top_helper.go(), star(), accent(), target(), TARGETS["prod"], os.environ["ZONE"]]
    done += [os.getenv("TERM", ""), os.getenv("LEADHAND_ACTOR", "")]
    with (HERE / "ran").open("a") as file:
        file.write(" ".join(done) + "\\n")
    return "done"
""",
    "other.py": (
        "from leadhand import worker\nimport top_helper\n\n"
        "@worker(effects=[])\nasync def idle(): ...\n"
    ),
    "top_helper.py": "def go():\n    return 'top'\n",
    "star_helper.py": "def star():\n    return 'star'\n",
    "latin_helper.py": "# coding: latin-1\ndef accent():\n    return 'é'\n",
    "pack/__init__.py": "X = 1\n",
    "pack/late.py": "from .deep import go\n",
    "pack/deep.py": "def go():\n    return 'deep'\n",
    "deploy.sh": "#!/bin/sh\n. ./common.sh\nrun deploy\n",
    "common.sh": 'run() { echo "$1" >> ran; }\n',
    "second.sh": "#!/bin/sh\necho second >> ran\n",
    "scripts/v1.sh": "echo v1 >> ran\n",
    "scripts/v2.sh": "echo v2 >> ran\n",
    "tool.py": "import tool_helper\nopen('ran', 'a').write(tool_helper.WORD)\n",
    "tool_helper.py": "WORD = 'tool'\n",
    "settings.cfg": "mode = safe\n",
    "unused.py": "x = 1\n",
    "notes.txt": "nothing\n",
}  # fmt: skip
TABLES = {
    "deploy": {"command": ["./deploy.sh"], "env": ["REGION"], "set_env": {"MODE": "safe"}},
    "linked": {"command": ["./link.sh"]},
    "chosen": {"command": ["sh", "scripts/{version}.sh"]},
    "tool": {"command": [sys.executable, "tool.py", "--config=settings.cfg"]},
}
VARIABLES = {"REGION": "eu", "ZONE": "a", "TERM": "xterm", "LEADHAND_ACTOR": "ann"}
PLAN = {
    "goal": "Ship",
    "steps": [
        {"id": "ship", "worker": "ship"},
        {"id": "deploy", "worker": "deploy"},
        {"id": "linked", "worker": "linked"},
        {"id": "chosen", "worker": "chosen", "parameters": {"version": "v1"}},
        {"id": "tool", "worker": "tool"},
    ],
}
FUNCTION = {"goal": "Ship", "steps": [{"id": "ship", "worker": "ship"}]}


class Project:
    """A project on disk, put back to what it was before each change."""

    def __init__(self, place: Path) -> None:
        self.place, self.tables, self.environ = place, dict(TABLES), dict(VARIABLES)
        self.restore()

    def restore(self) -> None:
        for each in self.place.iterdir() if self.place.exists() else ():
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        for name, text in FILES.items():
            path = self.place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="latin-1")
            path.chmod(0o755 if path.suffix == ".sh" else 0o644)
        (self.place / "link.sh").symlink_to("deploy.sh")
        self.tables, self.environ = dict(TABLES), dict(VARIABLES)

    def registry(self) -> Registry:
        """Load everything as a new process would."""
        os.environ.update(self.environ)
        names = [str(self.place / name) for name in ("workers.py", "other.py")]
        with SOURCES.reloading():
            functions = [each for name in names for each in load_workers(name)]
            tables = {
                name: {"effects": ["prod"], "risk": "critical", **table}
                for name, table in self.tables.items()
            }
            found = Registry([*functions, *declared_workers(tables, self.place)])
            found.catalog()
        return found

    @property
    def ran(self) -> str:
        path = self.place / "ran"
        return path.read_text() if path.exists() else ""

    def edit(self, name: str, rng: random.Random) -> None:
        path = self.place / name
        text = path.read_text("latin-1")
        kept = path.stat()
        match rng.randrange(4):
            case 0:
                text += f"# {rng.random()}\n"
            case 1:
                text = text.replace("prod", "EVIL", 1).replace("return '", "return 'EVIL", 1)
                text += "\n"
            case 2:
                text = text.replace("\n", "\n\n", 1)
            case _:
                text = f"{text} "
        path.write_text(text, encoding="latin-1")
        if rng.randrange(2):
            os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTHER", "0")
    yield Project(tmp_path / "project")
    SOURCES.files.clear()
    SOURCES.covered.clear()
    for name in ("top_helper", "star_helper", "latin_helper", "pack", "pack.late", "pack.deep"):
        sys.modules.pop(name, None)


PYTHON = ("workers.py", "top_helper.py", "star_helper.py", "latin_helper.py", "other.py",
          "pack/__init__.py", "pack/late.py", "pack/deep.py")  # fmt: skip
SCRIPTS = ("deploy.sh", "common.sh", "scripts/v1.sh", "scripts/v2.sh", "tool.py", "tool_helper.py",
           "settings.cfg")  # fmt: skip


def sources(project: Project, rng: random.Random) -> dict:
    project.edit(rng.choice(PYTHON), rng)
    return {}


def scripts(project: Project, rng: random.Random) -> dict:
    project.edit(rng.choice(SCRIPTS), rng)
    return {}


def links(project: Project, rng: random.Random) -> dict:
    (project.place / "link.sh").unlink()
    target = rng.choice(["second.sh", "scripts/v2.sh", "common.sh"])
    (project.place / "link.sh").symlink_to(target)
    return {}


def new_files(project: Project, rng: random.Random) -> dict:
    """A file that takes the place of another, or of one that may be named."""
    name = rng.choice(["scripts/v3.sh", "tool_helper/__init__.py", "pack/late/__init__.py"])
    path = project.place / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("def go():\n    return 'EVIL'\n")
    return {}


def environment(project: Project, rng: random.Random) -> dict:
    if rng.randrange(2):
        project.environ[rng.choice(["REGION", "ZONE"])] = rng.choice(["us", "", "eu "])
    else:
        project.tables["deploy"] = {**TABLES["deploy"], "set_env": {"MODE": f"{rng.random()}"}}
    return {}


def context(_project: Project, rng: random.Random) -> dict:
    return {"context": rng.choice(["", "production", "Staging"])}


MUTATIONS = (sources, sources, scripts, scripts, links, new_files, environment, context)
OTHERS = ("replay", "clock", "copy", "live")


async def refused(project: Project, lead: Lead, approval: object, **more: object) -> None:
    """Nothing runs, and the reason is one that people can read."""
    with pytest.raises(Conflict, match=r"changed since: (worker|the context)"):
        await lead.run(PLAN, approval=approval, **{"context": "staging", **more})
    assert not project.ran, project.ran


@pytest.mark.slow
async def test_nothing_that_changed_runs(project, tmp_path, monkeypatch):
    """Sources, modules, scripts, links, variables, context, clock, copies, replays."""
    rng, kinds = random.Random(SEED), Counter()
    for number in range(COUNT):
        project.restore()
        lead = Lead(project.registry(), store=MemoryStore(), actor="ann")
        given = lead.approve(PLAN, context="staging", expires="8 hours")
        name = [each.__name__ for each in MUTATIONS]
        kind = [*name, *OTHERS][number % (len(name) + len(OTHERS))]
        kinds[kind] += 1
        if kind in OTHERS:
            await globals()[f"_{kind}"](project, lead, rng, tmp_path / str(number), monkeypatch)
            continue
        more = dict(zip(name, MUTATIONS, strict=True))[kind](project, rng)
        lead.registry = project.registry()
        async with lead.hosting():
            await refused(project, lead, given, **more)
    assert sum(kinds.values()) == COUNT
    print(f"{COUNT} changes, none ran: {dict(kinds)}")


async def _replay(project, lead, _rng, _place, _monkeypatch) -> None:
    given = lead.approve(FUNCTION)
    async with lead.hosting():
        assert (await lead.run(FUNCTION, approval=given)).ok
        (project.place / "ran").unlink()
        with pytest.raises(LeadhandError, match="was used by run"):
            await lead.run(FUNCTION, approval=given)
    assert not project.ran


async def _clock(project, lead, rng, place, monkeypatch) -> None:
    """An approval has ended, the log says so, and the clock is set back."""
    place.mkdir()
    lead = Lead(lead.registry, store=place / "a.db", actor="ann")
    given = lead.approve(FUNCTION, expires="1 hour")
    real = time.time_ns
    with monkeypatch.context() as patched:
        patched.setattr(host.time, "time_ns", lambda: real() + 2 * 3600 * 10**9)
        assert (await lead.run(FUNCTION, approve=True)).ok  # the log knows of this time
    (project.place / "ran").unlink()
    with pytest.raises(LeadhandError):
        await lead.run(FUNCTION, approval=given)
    assert not project.ran


async def _copy(project, lead, rng, place, _monkeypatch) -> None:
    """An older copy in the place of the database: the approval is not used in it yet."""
    place.mkdir()
    store = place / "a.db"
    lead = Lead(lead.registry, store=store, actor="ann")
    waits = await lead.run(FUNCTION)
    given = lead.approve(FUNCTION)
    shutil.copy(store, place / "copy.db")
    await lead.answer(waits.run, "review-1", "approve")
    assert (await lead.resume(waits.run)).ok
    assert (await lead.run(FUNCTION, approval=given)).ok
    (project.place / "ran").unlink()
    for end in ("-wal", "-shm"):
        store.with_name(f"a.db{end}").unlink(missing_ok=True)
    shutil.copy(place / "copy.db", store)
    again = Lead(lead.registry, store=store, actor="ann")
    with pytest.raises(LeadhandError):
        await again.resume(waits.run)
    with contextlib.suppress(LeadhandError):
        await again.run(FUNCTION, approval=given)
    assert not project.ran


async def _live(project, lead, rng, _place, _monkeypatch) -> None:
    """A step of the approved run changes what the next was approved with: no changed code runs."""
    name = rng.choice(["deploy.sh", "common.sh", "pack/deep.py", "top_helper.py", "workers.py"])
    words = {"deploy.sh": "run EVIL\n", "common.sh": "echo EVIL >> ran\n"}
    evil = words.get(name, "def go():\n    return 'EVIL'\n")

    @worker(name="first", effects=["x"])
    async def first() -> None:
        with (project.place / name).open("a") as file:
            file.write(evil)

    lead = Lead([first, *lead.registry], store=MemoryStore(), actor="ann")
    after = [{**PLAN["steps"][index], "depends_on": ["first"]} for index in (0, 1)]
    plan = {"goal": "g", "steps": [{"id": "first", "worker": "first"}, *after]}
    async with lead.hosting():
        await lead.run(plan, approve=True)
    assert "EVIL" not in project.ran, (name, project.ran)


# --- harmless ------------------------------------------------------------------------------


def unused(project: Project, rng: random.Random) -> None:
    (project.place / rng.choice(["unused.py", "notes.txt", "new.py", "pack/more.txt"])).write_text(
        f"y = {rng.random()}\n"
    )


def touched(project: Project, rng: random.Random) -> None:
    os.utime(project.place / rng.choice([*PYTHON, *SCRIPTS]), (rng.randrange(10**9),) * 2)


def caches(project: Project, rng: random.Random) -> None:
    for folder in ("", "pack"):
        cache = project.place / folder / "__pycache__"
        cache.mkdir(exist_ok=True)
        name = rng.choice(["top_helper", "deep", "workers"])
        (cache / f"{name}.{sys.implementation.cache_tag}.pyc").write_bytes(rng.randbytes(50))


def packages(project: Project, rng: random.Random) -> None:
    """An environment inside the project: made, filled, moved."""
    name = rng.choice([".venv", "venv", "env"])
    site = project.place / name / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    (project.place / name / "pyvenv.cfg").write_text("home = /usr\n")
    (site / "requests.py").write_text(f"N = {rng.random()}\n")


def moved(project: Project, _rng: random.Random) -> None:
    """The whole project in another folder."""
    other = project.place.with_name(f"moved-{_rng.randrange(10**9)}")
    project.place.rename(other)
    project.place = other


def rewritten(project: Project, rng: random.Random) -> None:
    """The same content by another way: saved again, copied and put back."""
    path = project.place / rng.choice([*PYTHON, *SCRIPTS])
    mode, raw = path.stat().st_mode, path.read_bytes()
    path.unlink()
    path.write_bytes(raw)
    path.chmod(mode)


def variables(project: Project, rng: random.Random) -> None:
    """A variable that no worker reads, or one of machine, terminal or Leadhand's settings."""
    project.environ[rng.choice(["OTHER", "TERM", "LEADHAND_ACTOR"])] = f"{rng.random()}"


HARMLESS = (unused, touched, caches, packages, moved, rewritten, variables)


@pytest.mark.slow
async def test_everything_harmless_runs(project):
    """Files and variables no worker uses, times, caches, another folder; key order of the plan."""
    rng, kinds = random.Random(SEED), Counter()
    project.restore()
    lead = Lead(project.registry(), store=MemoryStore(), actor="ann")
    async with lead.hosting():
        for number in range(COUNT):
            project.restore()
            whole = PLAN if number % 50 == 0 else FUNCTION  # programs take their time
            lead.registry = project.registry()
            given = lead.approve(PLAN, expires="8 hours") if whole is PLAN else None
            given = given or lead.approve(FUNCTION, expires="8 hours")
            change = HARMLESS[number % len(HARMLESS)]
            kinds[change.__name__] += 1
            change(project, rng)
            lead.registry = project.registry()
            keys = rng.sample(list(whole), len(whole))
            outcome = await lead.run({key: whole[key] for key in keys}, approval=given)
            assert outcome.ok, (change.__name__, outcome)
            assert project.ran.count("\n") >= 1
    print(f"{COUNT} harmless changes, all ran: {dict(kinds)}")
