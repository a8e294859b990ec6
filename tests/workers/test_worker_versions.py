"""What the version of a Python worker covers, and that what was hashed is what runs."""

import hashlib
import importlib
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
import zipimport
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadhand import Lead
from leadhand.errors import Conflict
from leadhand.ports import Task
from leadhand.stores.memory import MemoryStore
from leadhand.workers.functions import snapshot
from leadhand.workers.functions.snapshot import SOURCES, load_file
from leadhand.workers.registry import Registry

WORKER = """from leadhand import worker
{top}

@worker(effects=[])
async def one() -> int:
    {body}
"""
CACHING = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
HELPER = "def go():\n    return 1\n"


def project(**more: str) -> dict[str, str]:
    """Files that every project of these tests has, and some more."""
    return {"helper.py": HELPER, "unused.py": "x = 1\n", **more}


def written(place: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


@pytest.fixture
def loaded(monkeypatch):
    """Loads worker files as a new process would, and forgets them afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before, path = set(sys.modules), [*sys.path]

    def load(*files: Path) -> Registry:
        for name in set(sys.modules) - before:
            if snapshot.is_project(snapshot.file_of(sys.modules[name])):
                del sys.modules[name]
        sys.path[:] = path
        SOURCES.files.clear()
        SOURCES.met.clear()
        SOURCES.covered.clear()
        importlib.invalidate_caches()
        return Registry([load_file(str(each)) for each in files])

    yield load
    load()


def version(registry: Registry, name: str = "one") -> str:
    return registry.catalog().workers[name].version


TOP = ("workers.py", WORKER.format(top="import helper", body="return helper.go()"))
WAYS = {
    "its own body": (project(**dict([TOP])), "workers.py", "helper.go()", "helper.go() + 1"),
    "imported at the top": (project(**dict([TOP])), "helper.py", "1", "2"),
    "imported inside the function": (
        project(**{
            "workers.py": WORKER.format(top="", body="from pack.core import go; return go()"),
            "pack/__init__.py": "",
            "pack/core.py": HELPER,
        }),
        "pack/core.py", "1", "2",
    ),
    "a package's __init__": (
        project(**{
            "workers.py": WORKER.format(top="import pack.core", body="return pack.A"),
            "pack/__init__.py": "A = 1\n",
            "pack/core.py": HELPER,
        }),
        "pack/__init__.py", "1", "2",
    ),
    "imported relatively": (
        project(**{
            "workers.py": WORKER.format(top="from pack import core", body="return core.go()"),
            "pack/__init__.py": "from . import other\n",
            "pack/core.py": "from .other import go\n",
            "pack/other.py": HELPER,
        }),
        "pack/other.py", "1", "2",
    ),
    "import *": (
        project(**{"workers.py": WORKER.format(top="from helper import *", body="return go()")}),
        "helper.py", "1", "2",
    ),
    "import * of a package's modules": (
        project(**{
            "workers.py": WORKER.format(top="from pack import *", body="return core.go()"),
            "pack/__init__.py": "__all__ = ['core']\n",
            "pack/core.py": HELPER,
        }),
        "pack/core.py", "1", "2",
    ),
    "a helper that is not UTF-8": (
        {"workers.py": TOP[1], "helper.py": b"# coding: latin-1\n# \xe9\n" + HELPER.encode()},
        "helper.py", "return 1", "return 2",
    ),
    "a dict changed at module level": (
        project(**{"workers.py": WORKER.format(
            top="T = {}\nT['prod'] = 1", body="return T['prod']")}),
        "workers.py", "= 1\n", "= 2\n",
    ),
    "a list changed at module level": (
        project(**{"workers.py": WORKER.format(top="H = []\nH.append(1)", body="return H[0]")}),
        "workers.py", "append(1)", "append(2)",
    ),
    "a module patched at module level": (
        project(**{"workers.py": WORKER.format(
            top="import helper\nhelper.go = lambda: 1", body="return helper.go()")}),
        "workers.py", "lambda: 1", "lambda: 2",
    ),
    "a closure": (
        project(**{"workers.py": WORKER.format(
            top="def make(n):\n    return lambda: n\ngo = make(1)", body="return go()")}),
        "workers.py", "make(1)", "make(2)",
    ),
    "a global set by a call": (
        project(**{"workers.py": WORKER.format(
            top="import helper\nhelper.setup(1)", body="return helper.N"),
            "helper.py": "def setup(n):\n    global N\n    N = n\n"}),
        "workers.py", "setup(1)", "setup(2)",
    ),
    "imported by a computed name at the top": (
        project(**{"workers.py": WORKER.format(
            top="import importlib\nh = importlib.import_module('hel' + 'per')",
            body="return h.go()")}),
        "helper.py", "1", "2",
    ),
    "a helper in a folder above": (
        {"sub/workers.py": WORKER.format(
            top="import sys, pathlib\n"
            "sys.path.append(str(pathlib.Path(__file__).parent.parent))\nimport above",
            body="return above.go()"), "above.py": HELPER},
        "above.py", "1", "2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_a_change_of_what_runs_is_another_version(loaded, tmp_path, way):
    """Table 3.2 of the field report: each of these ran with the approval of the old version."""
    files, name, old, new = WAYS[way]
    found, answers = [], []
    for place in (tmp_path / "a", tmp_path / "b", tmp_path / "c"):
        written(place, files)
        if place.name == "c":
            path = place / name
            raw = path.read_bytes()
            assert old.encode() in raw
            path.write_bytes(raw.replace(old.encode(), new.encode()))
        main = next(place.rglob("workers.py"))
        registry = loaded(main)
        found.append(version(registry))
        function = next(iter(registry)).perform.__self__._all[0].function
        answers.append(await function())
    assert answers == [1, 1, 2]
    assert found[0] == found[1] != found[2]


async def test_harmless_changes_are_the_same_version(loaded, tmp_path):
    """Files no worker uses, caches, times, an environment inside the project, moving it."""
    place = written(tmp_path / "here", dict(project(**dict([TOP]))))
    before = version(loaded(place / "workers.py"))
    (place / "unused.py").write_text("x = 2\n")
    (place / "notes.txt").write_text("n")
    os.utime(place / "helper.py", (1, 1))
    written(place, {".venv/pyvenv.cfg": "", ".venv/lib/python3/site-packages/other.py": "y = 1"})
    (place / "__pycache__").mkdir(exist_ok=True)
    (place / "__pycache__" / "helper.cpython-311.pyc").write_bytes(b"anything")
    assert version(loaded(place / "workers.py")) == before
    place.rename(tmp_path / "there")
    assert version(loaded(tmp_path / "there" / "workers.py")) == before


def test_an_environment_in_the_projects_own_folder_leaves_its_files_covered(loaded, tmp_path):
    """`python -m venv .`, or no more than a file of that name."""
    place = written(tmp_path, dict(project(**dict([TOP]))))
    written(place, {"pyvenv.cfg": "home = /usr/bin\n"})
    before = version(loaded(place / "workers.py"))
    written(place, {"lib/python3/site-packages/other.py": "y = 1"})
    assert version(loaded(place / "workers.py")) == before
    (place / "helper.py").write_text((place / "helper.py").read_text() + "# x\n")
    assert version(loaded(place / "workers.py")) != before


def test_a_module_in_an_archive_counts(loaded, tmp_path):
    archive, found = tmp_path / "lib.zip", []
    for word in ("1", "2"):
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("zipped_helper.py", f"N = {word}\n")
        place = written(tmp_path / "place", project(**dict([TOP])))
        top = f"import sys\nsys.path.insert(0, {str(archive)!r})\nimport zipped_helper\n"
        (place / "workers.py").write_text(top + (place / "workers.py").read_text())
        found.append(version(loaded(place / "workers.py")))
        sys.modules.pop("zipped_helper", None)
        zipimport._zip_directory_cache.pop(str(archive), None)
        sys.path_importer_cache.pop(str(archive), None)
    assert found[0] != found[1]


def test_another_worker_file_that_patches_counts(loaded, tmp_path):
    """It shares the process: by a module of the project, or by one of Python's own."""
    other = "from leadhand import worker\n{top}\n\n@worker(effects=[])\nasync def two(): ...\n"
    for number, (top, changed) in enumerate((
        ("import helper\nN = 1", True),
        ("import json\njson.dumps = lambda v: '1'", True),
        ("N = 1", False),
    )):  # fmt: skip
        place = written(tmp_path / str(number), project(**dict([TOP])))
        found = []
        for word in ("1", "2"):
            (place / "other.py").write_text(other.format(top=top.replace("1", word)))
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(json, "dumps", json.dumps)
                found.append(version(loaded(place / "workers.py", place / "other.py")))
        assert (found[0] != found[1]) is changed, top


READS = {
    "environ[...]": ("import os", "return os.environ['MODE']"),
    "environ.get": ("import os", "return os.environ.get('MODE', 'safe')"),
    "environ.get with a keyword": ("import os", "return os.environ.get(key='MODE')"),
    "environ.setdefault": ("import os", "return os.environ.setdefault('MODE', 'safe')"),
    "in environ": ("import os", "return 'MODE' in os.environ"),
    "not in environ": ("import os", "return 'MODE' not in os.environ"),
    "getenv": ("import os", "return os.getenv('MODE')"),
    "environb": ("import os", "return os.environb[b'MODE']"),
    "os by another name": ("import os as system", "return system.getenv('MODE')"),
    "from os import": ("from os import environ, getenv", "return environ['MODE'] + getenv('X')"),
    "environ by another name": ("from os import environ as e", "return e['MODE']"),
    "getenv by another name": ("from os import getenv as g", "return g('MODE')"),
    "a name for environ": ("import os\nE = os.environ", "return E['MODE']"),
    "a name for a method": ("import os\nget = os.environ.get", "return get('MODE')"),
    "a copy": ("import os\nE = os.environ.copy()", "return E['MODE']"),
    "a dict": ("import os\nE = dict(os.environ)", "return E.get('MODE')"),
    "an unpacked dict": ("import os\nE = {**os.environ, 'A': '1'}", "return E['MODE']"),
    "an attribute": ("import os\nclass C: ...\nC.env = os.environ", "return C.env['MODE']"),
    "a constant": ("import os\nNAME = 'MODE'", "return os.environ[NAME]"),
    "an annotated constant": ("import os\nNAME: str = 'MODE'", "return os.environ[NAME]"),
    "a loop": ("import os", "return [os.environ.get(n) for n in ('X', 'MODE')]"),
    "a loop over a constant": (
        "import os\nNAMES = ['X', 'MODE']\nfor name in NAMES:\n    os.getenv(name)", "return 1",
    ),
    "at the top of a helper": ("import helper", "return helper.MODE"),
}  # fmt: skip


@pytest.mark.parametrize("way", READS)
def test_the_values_of_variables_that_a_file_reads_count(loaded, tmp_path, monkeypatch, way):
    top, body = READS[way]
    helper = "import os\nMODE = os.environ['MODE']\n"
    files = {"helper.py": helper, "workers.py": WORKER.format(top=top, body=body)}
    place, found = written(tmp_path, files), []
    for mode in ("safe", "evil-canary", "safe", None):
        monkeypatch.setenv("MODE", mode) if mode else monkeypatch.delenv("MODE")
        if mode is None and way == "at the top of a helper":  # it cannot be loaded without
            monkeypatch.setenv("MODE", "")
        registry = loaded(place / "workers.py")
        found.append(version(registry))
        told = repr(registry.coverage())
        assert "MODE" in told
        assert "canary" not in told
    safe, evil, again, none = found
    assert safe == again
    assert len({safe, evil, none}) == 3


def test_variables_that_are_not_read_do_not_count(loaded, tmp_path, monkeypatch):
    """Others, those only written, computed names, those of the machine: as documented."""
    body = (
        "os.environ['SET'] = '1'; {}['MODE'] if 0 else 0; n = 'MO'; os.getenv(n + 'DE');"
        " os.getenv('PATH'); os.getenv('TERM'); os.getenv('LC_ALL'); os.getenv('HOSTNAME');"
        " 'PYTEST_CURRENT_TEST' in os.environ; os.getenv('LEADHAND_ACTOR'); os.getenv('a=b');"
        " os.getenv('\\ud800'); return 1"
    )
    place = written(tmp_path, {"workers.py": WORKER.format(top="import os", body=body)})
    before = loaded(place / "workers.py")
    for name in ("SET", "MODE", "PATH", "TERM", "LC_ALL", "HOSTNAME", "LEADHAND_ACTOR", "OTHER"):
        monkeypatch.setenv(name, f"{os.environ.get(name, '')}:/another")
    after = loaded(place / "workers.py")
    assert version(after) == version(before)
    assert "values of" not in repr(after.coverage())


def test_a_file_that_reads_no_variable_costs_no_slow_digest(loaded, tmp_path, monkeypatch):
    def slow(*_args: object, **_more: object) -> bytes:
        raise AssertionError("a slow digest")

    monkeypatch.setattr(hashlib, "scrypt", slow)
    place = written(tmp_path / "a", dict(project(**dict([TOP]))))
    assert version(loaded(place / "workers.py"))
    reads = WORKER.format(top="import os", body="return os.environ['UNIQUE_TO_THIS_TEST']")
    with pytest.raises(AssertionError, match="slow digest"):  # or nothing was measured above
        loaded(written(tmp_path / "b", {"workers.py": reads}) / "workers.py")


def test_a_variable_that_is_not_utf8_has_a_version(loaded, tmp_path, monkeypatch):
    reads = WORKER.format(top="import os", body="return os.environ['MODE']")
    place, found = written(tmp_path, {"workers.py": reads}), set()
    for mode in (b"\xff", b"\xfe"):
        monkeypatch.setitem(os.environb, b"MODE", mode)
        found.add(version(loaded(place / "workers.py")))
    assert len(found) == 2


SHIPS = """import os
from leadhand import worker
{more}

@worker(risk="critical", effects=["prod"], secrets={secrets})
async def one() -> str:
    return os.environ["MODE"] + os.environ.get("TOKEN", "")
"""
SHIP = {"goal": "Ship", "steps": [{"id": "one", "worker": "one"}]}


async def test_an_approval_with_one_value_does_not_run_with_another(loaded, tmp_path, monkeypatch):
    place = written(tmp_path, {"workers.py": SHIPS.format(more="", secrets=["TOKEN"])})
    monkeypatch.setenv("MODE", "safe")
    monkeypatch.setenv("TOKEN", "first-secret-of-many")
    lead = Lead(loaded(place / "workers.py"), store=MemoryStore(), actor="ann")
    given = [lead.approve(SHIP, expires="8 hours") for _ in range(2)]
    async with lead.hosting():
        monkeypatch.setenv("MODE", "evil")
        lead.registry = loaded(place / "workers.py")
        with pytest.raises(Conflict, match=r"changed since: worker"):
            await lead.run(SHIP, approval=given[0])
        monkeypatch.setenv("MODE", "safe")
        monkeypatch.setenv("TOKEN", "second-secret-of-many")  # a declared secret may rotate
        lead.registry = loaded(place / "workers.py")
        outcome = await lead.run(SHIP, approval=given[1])
    assert outcome.ok, outcome
    assert "second-secret" not in str(outcome.result)


def test_a_secret_of_another_worker_may_rotate(loaded, tmp_path, monkeypatch):
    """A helper reads it for both, and one declares it; declaring one is another version."""
    one = WORKER.format(top="import helper", body="return helper.TOKEN")
    two = "\n@worker(effects=[], secrets={})\nasync def two(): ...\n"
    helper = "import os\nTOKEN = os.environ['TOKEN']\n"
    found = []
    for number, (secrets, token) in enumerate(
        ((["TOKEN"], "first"), (["TOKEN"], "second"), ([], "first"), ([], "second"))
    ):
        monkeypatch.setenv("TOKEN", token)
        other = "from leadhand import worker\n" + two.format(secrets)
        files = {"workers.py": one, "helper.py": helper, "other.py": other}
        place = written(tmp_path / str(number), files)
        found.append(version(loaded(place / "workers.py", place / "other.py")))
    assert found[0] == found[1]
    assert len(set(found)) == 3


async def test_what_is_imported_late_is_what_was_hashed(loaded, tmp_path):
    """The file is changed under the living process, before the function imports it."""
    body = "import helper; return helper.go()"
    place = written(tmp_path, project(**{"workers.py": WORKER.format(top="", body=body)}))
    registry = loaded(place / "workers.py")
    before = version(registry)
    (place / "helper.py").write_text(HELPER.replace("1", "2"))
    function = next(iter(registry))._all[0]
    assert await function.function() == 1
    assert version(registry) == before != version(loaded(place / "workers.py"))


def test_a_poisoned_cache_is_not_read(loaded, tmp_path):
    """Its source says 1, its bytecode 2, times and sizes as Python wants them."""
    place = written(tmp_path, project(**dict([TOP])))
    stat = (place / "helper.py").stat()
    (place / "helper.py").write_text(HELPER.replace("1", "2"))
    os.utime(place / "helper.py", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    subprocess.run([sys.executable, "-c", "import helper"], cwd=place, env=CACHING, check=True)
    (place / "helper.py").write_text(HELPER)
    os.utime(place / "helper.py", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    said = subprocess.run(
        [sys.executable, "-c", "import helper; print(helper.go())"],
        cwd=place, env=CACHING, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert said.stdout == "2\n", "Python itself falls for it"
    loaded(place / "workers.py")
    assert sys.modules["helper"].go() == 1


def test_a_module_from_a_poisoned_cache_is_another_version(loaded, tmp_path, monkeypatch):
    """Where a program imported its workers itself, Python's own loader read the cache."""
    code = "import workers; from leadhand.workers.registry import Registry as R; "
    code += "print(R([workers]).catalog().workers['one'].version)"
    place = written(tmp_path, project(**dict([TOP])))

    def said() -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=place, env=CACHING, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    path = place / "helper.py"
    before, stat = said(), path.stat()
    assert said() == before
    path.write_text(HELPER.replace("1", "2"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for each in (place / "__pycache__").glob("helper*"):
        each.unlink()
    subprocess.run([sys.executable, "-c", "import helper"], cwd=place, env=CACHING, check=True)
    path.write_text(HELPER)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert said() != before


async def test_a_module_that_no_version_covers_is_refused(loaded, tmp_path):
    """Written later, or found by a computed name: no approval is of it."""
    body = "import importlib; return importlib.import_module('la' + 'te').go()"
    place = written(tmp_path, project(**{"workers.py": WORKER.format(top="", body=body)}))
    registry = loaded(place / "workers.py")
    assert version(registry)
    (place / "late.py").write_text(HELPER)
    importlib.invalidate_caches()
    task = Task("run", "step", 1, 1, "", {}, 0)
    report = await next(iter(registry)).perform(task, SimpleNamespace(cancelled=False))
    assert report.error is not None
    assert "no worker's version covers it" in report.error.message


def test_an_installed_worker_is_covered_by_its_distribution(tmp_path):
    """Whose files change counts; what else is installed does not."""
    site = tmp_path / "lib" / "site-packages"
    written(site, {
        "tools/__init__.py": "",
        "tools/workers.py": "from leadhand import worker\nfrom tools import inner\n"
        "@worker(effects=[])\nasync def one(): return inner.N\n",
        "tools/inner.py": "N = 1\n",
        "tools-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: tools\nVersion: 1\n",
        "tools-1.dist-info/RECORD": "tools/__init__.py,,\ntools/workers.py,,\ntools/inner.py,,\n",
        "other/__init__.py": "N = 1\n",
    })  # fmt: skip
    code = "import tools.workers as w; from leadhand.workers.registry import Registry as R; "
    code += "f = next(iter(R([w]))); print(f.spec.version); print(*f.coverage.files)"

    def said() -> list[str]:
        env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=env, cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    first = said()
    assert "tools 1: tools/inner.py" in first[1]
    (site / "other" / "__init__.py").write_text("N = 2\n")
    assert said() == first
    (site / "tools" / "inner.py").write_text("N = 2\n")
    assert said()[0] != first[0]


def test_methods_cover_their_class(loaded, tmp_path):
    """Whatever else is called on self stands in it, or in a class below it."""
    base = (
        "from leadhand import worker\n\n\nclass Shop:\n    @worker(effects=[])\n"
        "    async def buy(self) -> int:\n        return self.price()\n"
    )
    for word in ("1", "2"):
        written(tmp_path / word, {
            "base.py": base,
            "shop.py": "from base import Shop\n\n\nclass Mine(Shop):\n"
            f"    def price(self):\n        return {word}\n\n\nshop = Mine()\n",
        })  # fmt: skip
    found = []
    for word in ("1", "2"):
        loaded()
        module = load_file(str(tmp_path / word / "shop.py"))
        found.append(version(Registry([module.shop]), "buy"))
    assert found[0] != found[1]


def test_a_child_runs_what_was_hashed(tmp_path):
    """Attack 1: the module of a function with effects is swapped under a living host."""
    text = (
        "from leadhand import worker\n\n\n@worker(effects=['x'], name='one')\n"
        "def one() -> int:\n    import helper\n    return helper.go()\n"
    )
    place = written(tmp_path, project(**{"workers.py": text}))
    code = """
import asyncio, pathlib
from leadhand import Lead
from leadhand.workers.registry import Registry, load_workers

registry = Registry(load_workers("workers.py"))
lead = Lead(registry, store="a.db")
print(lead.run_sync({"goal": "g", "steps": [{"id": "a", "worker": "one"}]}, approve=True).result)
for name in ("workers.py", "helper.py"):
    path = pathlib.Path(name)
    path.write_text(path.read_text().replace("return 1", "return 2").replace(".go()", ".go() + 5"))
print(lead.run_sync({"goal": "g", "steps": [{"id": "a", "worker": "one"}]}, approve=True).result)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place, env=CACHING, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "1\n1\n", done.stderr


def test_folders_of_python_are_known_before_the_finder_is_asked(monkeypatch):
    """From Python 3.13 on, finding them imports a module, which asks every finder."""
    found = snapshot.Snapshot()
    real = sysconfig.get_paths

    def paths():
        assert found not in sys.meta_path
        return real()

    snapshot._others.cache_clear()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(snapshot.sysconfig, "get_paths", paths)
    found.install()
    assert found in sys.meta_path
    assert snapshot._others.cache_info().currsize == 1
