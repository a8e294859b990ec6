"""Parts of other packages, found by entry points; the kernel without a product."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import leadhand

SOURCE = Path(leadhand.__file__).resolve().parent
PLAN = {"steps": [{"id": "one", "worker": "hello"}]}
WORKERS = """
from leadhand import worker

@worker
def hello():
    return 1
"""


def leadhand_at(
    source: Path, folder: Path, *args: str, path: str = ""
) -> subprocess.CompletedProcess:
    """Run the command line of one copy of the package."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(source), path)))}
    command = [sys.executable, "-m", "leadhand.cli", *args]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "workers.py").write_text(WORKERS)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    return folder


PRODUCTS = {"fleet": "fleet", "server": "serve", "temporal": "worker"}
"""The folder of each product, and its command."""


@pytest.fixture(scope="module", params=PRODUCTS)
def without(request, tmp_path_factory):
    """A copy of the package without one product, and a project."""
    place = tmp_path_factory.mktemp(request.param)
    left = shutil.ignore_patterns("__pycache__", "_npm")
    shutil.copytree(SOURCE, place / "leadhand", ignore=left)
    shutil.rmtree(place / "leadhand" / request.param)
    return request.param, place, project(place / "project")


BUILT_ON = {
    "server": ["leadhand.mcp.http"],
    "temporal": ["leadhand.fleet.machines.dispatch", "leadhand.fleet.machines.service"],
}
"""Modules of one product that need another: MCP over HTTP has the accounts of the server, and
Temporal brings orders to a fleet's other machines."""


def test_everything_else_imports_without_a_product(without):
    """Every module that is left can be imported."""
    product, place, folder = without
    code = (
        "import importlib, pkgutil, sys, leadhand\n"
        "names = [m.name for m in pkgutil.walk_packages(leadhand.__path__, 'leadhand.')]\n"
        "names = [n for n in names if '.web' not in n and not n.endswith(('__main__', 'inside'))]\n"
        f"names = [n for n in names if n not in {BUILT_ON.get(product, [])!r}]\n"
        "assert len(names) > 300, len(names)\n"
        "for name in names: importlib.import_module(name)\n"
        f"assert not [n for n in sys.modules if n.startswith('leadhand.{product}')]\n"
    )
    env = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_kernel_works_without_a_product(without):
    """One command less, one clear refusal of its table, and everything else."""
    product, place, folder = without
    gone = PRODUCTS[product]
    shown = leadhand_at(place, folder, "--help")
    assert shown.returncode == 0
    assert "  run " in shown.stdout
    assert f"  {gone} " not in shown.stdout
    words = ("run", "plan.json", "--workers", "workers.py", "--trust", "--json")
    ran = leadhand_at(place, folder, *words)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["status"] == "succeeded"
    for words in (("ls",), ("inbox",), ("doctor",), ("verify", "--all")):
        done = leadhand_at(place, folder, *words)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 1), done
    refused = leadhand_at(place, folder, gone)
    assert refused.returncode == 2
    assert f"there is no command '{gone}'" in refused.stderr
    (folder / "leadhand.toml").write_text(f"[{product}]\n")
    refused = leadhand_at(place, folder, "ls")
    (folder / "leadhand.toml").unlink()
    assert refused.returncode == 2
    assert f'has no table "{product}"' in refused.stderr


def package(folder: Path, entries: str, code: str) -> Path:
    """Lay a package out as pip does."""
    place = folder / "site"
    info = place / "acme_leadhand-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-leadhand\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    (place / "acme_leadhand.py").write_text(code)
    return place


COMMAND = """
import click
from leadhand.plugins import CommandPart

LINE = CommandPart("acme_leadhand:report", "A report for Acme", "Acme")
TEXT = "no command"

@click.command()
@click.argument("name")
def report(name):
    click.echo(f"report for {name}")
"""


@pytest.fixture
def acme(tmp_path):
    entries = (
        "[leadhand.commands]\nreport = acme_leadhand:LINE\nplain-report = acme_leadhand:report\n"
        "broken = acme_leadhand:missing\nraising = acme_raising:COMMAND\n"
        "leaving = acme_leaving:COMMAND\nboth = acme_leadhand:report\n"
        "run = acme_leadhand:report\ntext = acme_leadhand:TEXT\n"
    )
    place = package(tmp_path, entries, COMMAND)
    (place / "acme_raising.py").write_text("raise ValueError('no licence')")
    (place / "acme_leaving.py").write_text("raise SystemExit('no licence')")
    rival = place / "rival-1.0.dist-info"
    rival.mkdir()
    (rival / "entry_points.txt").write_text("[leadhand.commands]\nboth = acme_leadhand:report\n")
    return place, project(tmp_path / "project")


@pytest.mark.parametrize("name", ["report", "plain-report"])
def test_a_package_brings_a_command(acme, name):
    """Described or not."""
    place, folder = acme
    done = leadhand_at(SOURCE.parent, folder, name, "june", path=str(place))
    assert (done.returncode, done.stdout) == (0, "report for june\n"), done.stderr


def test_help_lists_commands_of_packages_without_importing_them(acme):
    """A package that takes long to import, or cannot be, does not keep anybody from help."""
    place, folder = acme
    (place / "acme_leadhand.py").write_text("raise SystemExit('imported')")
    done = leadhand_at(SOURCE.parent, folder, "--help", path=str(place))
    assert done.returncode == 0, done.stderr
    assert "Plugins:" in done.stdout
    assert "  report     of acme-leadhand" in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "broken of the package acme-leadhand cannot be loaded"),
        (
            "raising",
            "raising of the package acme-leadhand cannot be loaded: ValueError: no licence",
        ),
        ("leaving", "leaving of the package acme-leadhand cannot be loaded: SystemExit"),
        ("both", "both is provided by the packages acme-leadhand and rival."),
        ("text", "text of the package acme-leadhand is no command"),
        ("reprot", "Did you mean `leadhand report`?"),
    ],
)
def test_a_command_that_cannot_be_had_is_named(acme, name, said):
    """One message with the package and the fix, no traceback."""
    place, folder = acme
    done = leadhand_at(SOURCE.parent, folder, name, path=str(place))
    assert done.returncode == 2, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_cannot_take_the_place_of_a_command(acme):
    """`leadhand run` is ours, whatever is installed."""
    place, folder = acme
    done = leadhand_at(SOURCE.parent, folder, "run", "june", path=str(place))
    assert "report for" not in done.stdout


@pytest.mark.real
def test_the_example_works_when_it_is_installed(tmp_path):
    """A planner and a command from a package of its own, through pip."""
    example = SOURCE.parents[1] / "examples" / "plugin"
    copy, site = tmp_path / "plugin", tmp_path / "site"
    shutil.copytree(example, copy)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--no-index", "--quiet", "--target", str(site), str(copy)], check=True, timeout=300
    )
    words = ("run", "abc", "--planner", "alphabet", "--workers", "workers.py", "--trust", "--json")
    ran = leadhand_at(SOURCE.parent, copy, *words, path=str(site))
    assert ran.returncode == 0, ran.stderr
    doc = json.loads(ran.stdout)
    assert (doc["status"], doc["result"]) == ("succeeded", "ABC")
    said = leadhand_at(SOURCE.parent, copy, "shout", doc["run"], path=str(site))
    assert (said.returncode, said.stdout) == (0, "ABC\n"), said.stderr
    missing = leadhand_at(SOURCE.parent, copy, *words)
    assert missing.returncode == 2
    assert "'alphabet' does not name a planner" in missing.stderr


REVIEW = """
def look(revision):
    return "Acme says no"
"""


def test_a_package_brings_a_reviewer(tmp_path):
    """Named in the settings like a function, trusted like one; what it finds waits for a person."""
    entries = "[leadhand.reviewers]\nacme = acme_leadhand:look\n"
    place, folder = package(tmp_path, entries, REVIEW), project(tmp_path / "project")
    (folder / "leadhand.toml").write_text('[review]\nreviewers = ["acme"]\n')
    words = ("run", "plan.json", "--workers", "workers.py", "--json")
    refused = leadhand_at(SOURCE.parent, folder, *words, path=str(place))
    assert refused.returncode == 4
    assert "is not trusted" in refused.stderr
    ran = leadhand_at(SOURCE.parent, folder, *words, "--trust", path=str(place))
    assert ran.returncode == 5, (ran.stdout, ran.stderr)
    assert "Acme says no" in ran.stdout + ran.stderr


KIND = """
from pathlib import Path

from leadhand.codec.tables import Count
from leadhand.core.report import Report
from leadhand.workers.declaration import ActionTable, WorkerKind


class SayTable(ActionTable, kw_only=True):
    say: str
    times: Count = 1


class SayWorker:
    def __init__(self, spec, texts):
        self.spec, self.texts = spec, texts

    async def perform(self, task, context):
        return Report(data=self.texts[task.action] + task.parameters.get("end", ""))

    async def probe(self, task, context):
        raise LookupError

    def check(self, name, action, data):
        return True

    async def close(self):
        pass


def make(declared):
    offers, texts = {}, {}
    for action, (table, values) in declared.actions.items():
        if values.say == "bye":
            table.problem("say", "is not polite")
        if values.say == "raise":
            raise ValueError("no voice")
        if values.say == "none":
            return None
        offers[action] = values.offer({"type": "object", "properties": {"end": {"type": "string"}}})
        texts[action] = values.say * values.times
    return SayWorker(declared.spec_with(offers, "1"), texts)


SAY = WorkerKind("say", SayTable, make)
TEXT = "no kind"
"""


@pytest.fixture
def kinds(tmp_path):
    """A package with a kind of worker, one that is none, and one with a name of ours."""
    entries = "[leadhand.workers]\nsay = acme_leadhand:SAY\ntext = acme_leadhand:TEXT\n"
    entries += "timeout = acme_leadhand:TEXT\n"  # a key of all workers
    place = package(tmp_path, f"{entries}command = acme_leadhand:TEXT\n", KIND)
    folder = project(tmp_path / "project")
    step = {"id": "two", "worker": "greeter", "parameters": {"end": "!"}}
    shell = {"id": "one", "worker": "shell"}
    (folder / "plan.json").write_text(json.dumps({"steps": [shell, step]}))
    return place, folder


SHELL = "[workers.shell]\ncommand = ['true']\n"


def test_a_package_brings_a_kind_of_worker(kinds):
    """Declared in leadhand.toml by its key, as commands are, which no package replaces."""
    place, folder = kinds
    table = "[workers.greeter]\nsay = 'hello '\ntimes = 2\ntimeout = '5 s'\nrisk = 'low'\n"
    (folder / "leadhand.toml").write_text(f"{SHELL}{table}")
    words = ("run", "plan.json", "--yes", "--json")
    ran = leadhand_at(SOURCE.parent, folder, *words, path=str(place))
    assert ran.returncode == 0, ran.stderr
    doc = json.loads(ran.stdout)
    assert doc["status"] == "succeeded"
    shown = leadhand_at(SOURCE.parent, folder, "show", doc["run"], "two", path=str(place))
    assert "hello hello !" in shown.stdout, shown
    listed = leadhand_at(SOURCE.parent, folder, "ls", "workers", "--json", path=str(place))
    kinds = {each["worker"]: each["kind"] for each in json.loads(listed.stdout)["workers"]}
    assert (kinds["greeter"], kinds["shell"]) == ("say", "command")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("say = 3", "workers.greeter.say: must be a text"),
        ("say = 'a'\ntime = 2", "workers.greeter.time: is not known; did you mean times?"),
        ("say = 'bye'", "workers.greeter.say: is not polite"),
        ("say = 'none'", "workers.greeter: the kind say failed: ValueError: it made no worker"),
        ("say = 'raise'", "workers.greeter: the kind say failed: ValueError: no voice"),
        ("syy = 'a'", "workers.greeter.syy: is not known; did you mean say?"),
        ("risk = 'low'", ", and only one"),
        ("say = 'a'\ncommand = ['a']", ", and only one"),
        ("text = 'a'", "acme_leadhand:TEXT of the package acme-leadhand is no WorkerKind"),
    ],
)
def test_mistakes_in_a_table_of_a_packages_kind_are_named(kinds, table, said):
    """With the file, the place, and what was probably meant."""
    place, folder = kinds
    (folder / "leadhand.toml").write_text(f"[workers.greeter]\n{table}\n")
    done = leadhand_at(SOURCE.parent, folder, "ls", "workers", path=str(place))
    assert done.returncode == 2, done
    assert f"{folder / 'leadhand.toml'}: " in done.stderr
    assert said in done.stderr


STORE = """
from pathlib import Path

from leadhand.errors import UsageError
from leadhand.stores.location import StoreAddress, StoreKind
from leadhand.stores.sqlite.connection import begun
from leadhand.stores.sqlite.lock import HostLock
from leadhand.stores.sqlite.reader import SqliteReader
from leadhand.stores.sqlite.store import SqliteStore


class Shelf(StoreKind):
    def address_of(self, text, folder):
        name = text.partition("://")[2].rpartition("@")[2]
        if not name.isalnum():
            raise UsageError("the address of the shelf cannot be read")
        return StoreAddress(text, f"shelf://{name}", folder / f"shelf-{name}")

    def is_there(self, place):
        return begun(place.home)

    def open(self, place, *, socket, beside, check):
        lock = HostLock(place.home)
        lock.acquire(socket)
        store = SqliteStore(place.home)
        check(store)
        return store, lock

    def reader(self, place):
        return SqliteReader(place.home)


KIND = Shelf()
TEXT = "no kind"
"""


def test_a_package_brings_a_store(tmp_path):
    """Runs are kept there, and every command that reads a log finds them."""
    entries = "[leadhand.stores]\nshelf = acme_leadhand:KIND\ntext = acme_leadhand:TEXT\n"
    place = package(tmp_path, entries, STORE)
    folder = project(tmp_path / "project")

    def run(*words, store="shelf://me:secret@archive", found=0):
        done = leadhand_at(SOURCE.parent, folder, *words, "--store", store, path=str(place))
        assert done.returncode == found, done
        assert "secret" not in done.stdout + done.stderr
        return done.stdout if "--json" in words else done.stdout + done.stderr

    ran = run("run", "plan.json", "--workers", "workers.py", "--trust", "--json")
    ident = json.loads(ran)["run"]
    assert ident in run("ls")
    assert "succeeded" in run("show", ident)
    assert json.loads(run("verify", "--all", "--json"))["valid"]
    assert "shelf://archive" in run("doctor")
    moved = leadhand_at(SOURCE.parent, folder, "migrate", "shelf://archive", path=str(place))
    assert "only logs in files and in PostgreSQL" in moved.stderr
    assert (folder / ".leadhand" / "shelf-archive").exists()
    said = run("ls", store="shelv://archive", found=2)
    assert "no kind of store is called 'shelv'" in said
    assert "begins with one of postgres, postgresql, shelf, text" in said
    assert 'Did you mean "shelf"?' in said
    said = run("ls", store="text://archive", found=2)
    assert "acme_leadhand:TEXT of the package acme-leadhand is no StoreKind" in said


FAULTY = """
from leadhand.stores.location import StoreKind


class Partial(StoreKind):
    pass


class Raising(StoreKind):
    def address_of(self, text, folder):
        raise RuntimeError(f"cannot read {text}")

    is_there = open = reader = address_of


class Nameless:
    async def decide(self, view):
        return None


def partial():
    return Partial()


RAISING = Raising()
"""


def test_the_fault_of_a_package_is_told_as_its_fault(tmp_path):
    """Not as a bug of Leadhand, and without the text, which may hold a password."""
    entries = (
        "[leadhand.stores]\nraising = acme_leadhand:RAISING\npartial = acme_partial:KIND\n"
        "[leadhand.planners]\nnameless = acme_leadhand:Nameless\n"
    )
    place, folder = package(tmp_path, entries, FAULTY), project(tmp_path / "project")
    (place / "acme_partial.py").write_text("import acme_leadhand\nKIND = acme_leadhand.partial()\n")

    def refused(*words):
        done = leadhand_at(SOURCE.parent, folder, *words, path=str(place))
        assert done.returncode == 2, done
        assert "secret" not in done.stdout + done.stderr
        return done.stderr

    said = refused("ls", "--store", "raising://me:secret@archive")
    assert "the package acme-leadhand failed with RuntimeError" in said
    said = refused("ls", "--store", "partial://me:secret@archive")
    assert "partial of the package acme-leadhand cannot be loaded" in said
    assert "abstract method" in said
    said = refused("run", "do it", "--planner", "nameless", "--workers", "workers.py", "--trust")
    assert "planner nameless of the package acme-leadhand lacks name" in said


def test_a_package_that_lies_in_the_project_brings_nothing(tmp_path):
    """Looking at a project runs none of its code, though `python -m` finds its modules."""
    folder = project(tmp_path / "project")
    entries = (
        "[leadhand.commands]\nreport = acme_leadhand:LINE\n"
        "[leadhand.settings]\nacme = acme_leadhand:SECTION\n"
        "[leadhand.runs]\nrun = acme_leadhand:LOG\n"
    )
    site = package(tmp_path, entries, "open('ran', 'w').close()\n")
    for each in site.iterdir():
        shutil.move(each, folder)
    (folder / "leadhand.toml").write_text("[acme]\nkey = 1\n")
    for words in (("ls",), ("report",), ("show", "run-1"), ("inbox",), ("doctor",), ("--help",)):
        done = leadhand_at(SOURCE.parent, folder, *words)
        assert "acme-leadhand" not in done.stdout
        assert not (folder / "ran").exists(), words
    refused = leadhand_at(SOURCE.parent, folder, "ls")
    assert refused.returncode == 2
    assert 'has no table "acme"' in refused.stderr


def test_a_check_of_a_package_that_fails_is_one_row_of_doctor(tmp_path):
    """It names the package, and the other checks are shown."""
    code = "def checks(settings):\n    yield from ()\n"
    place = package(tmp_path, "[leadhand.doctor]\nacme = acme_leadhand:checks\n", code)
    folder = project(tmp_path / "project")
    done = leadhand_at(SOURCE.parent, folder, "doctor", path=str(place))
    assert done.returncode == 1, done
    assert "of the package acme-leadhand" in done.stdout + done.stderr
    assert "unexpected keyword argument 'fix'" in done.stdout + done.stderr
    assert "python" in done.stdout
