"""What the version of a worker covers: all that it runs of its own project."""

import sys

import pytest

from leadhand.workers.loading import load_file
from leadhand.workers.registry import Registry

FILE = """
from leadhand import worker
import os
from helping import assist
LIMIT = 5
UNUSED = 1
if os.name:
    SHIFT = 1


def inner(x):
    return x + SHIFT


class Tool:
    RATE = 2

    def use(self, x):
        return x * self.RATE


@worker(effects=[])
def one(x: int) -> int:
    return assist(inner(x)) + LIMIT + Tool().use(x)


@worker(effects=[])
def other(x: int) -> int:
    from late import slow

    return slow(x)
"""
FILES = {
    "workers.py": FILE,
    "helping.py": "from deeper import dig\n\n\ndef assist(x):\n    return dig(x)\n",
    "deeper.py": "def dig(x):\n    return x\n",
    "late.py": "def slow(x):\n    return x\n",
}


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """The versions of both workers, with some texts in their files changed."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def found(folder, **changes):
        place = tmp_path / folder
        place.mkdir()
        for name, text in FILES.items():
            for old, new in changes.get(name.removesuffix(".py"), ()):
                assert old in text
                text = text.replace(old, new)  # noqa: PLW2901 - one change after the other
            (place / name).write_text(text)
        specs = Registry([load_file(str(place / "workers.py"))]).catalog().workers
        for name in ("helping", "deeper", "late"):
            sys.modules.pop(name, None)
        sys.path.remove(str(place))
        return specs["one"].version, specs["other"].version

    return found


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("workers", "LIMIT = 5", "LIMIT = 6", (True, False)),
        ("workers", "SHIFT = 1", "SHIFT = 2", (True, False)),
        ("workers", "return x + SHIFT", "return x - SHIFT", (True, False)),
        ("workers", "RATE = 2", "RATE = 3", (True, False)),
        ("workers", "UNUSED = 1", "UNUSED = 2", (False, False)),
        ("helping", "return dig(x)", "return dig(x) + 1", (True, False)),
        ("deeper", "return x", "return -x", (True, False)),
        ("late", "return x", "return -x", (False, True)),
        ("workers", "return slow(x)", "return slow(x + 1)", (False, True)),
    ],
)
def test_the_version_follows_all_that_runs(versions, file, old, new, changed):
    """And nothing else: what a worker does not use may change."""
    before, after = versions("before"), versions("after", **{file: [(old, new)]})
    assert tuple(a != b for a, b in zip(before, after, strict=True)) == changed


def test_the_same_files_elsewhere_are_the_same_version(versions):
    """An approval is of what runs, not of where it stands."""
    assert versions("here") == versions("there")


def test_methods_cover_their_class(tmp_path):
    """Whatever else is called on self stands in it."""
    text = """
from leadhand import worker


class Shop:
    def price(self):
        return 1

    @worker(effects=[])
    def buy(self) -> int:
        return self.price()


shop = Shop()
"""
    found = []
    for number in ("1", "2"):
        path = tmp_path / f"shop{number}.py"
        path.write_text(text.replace("return 1", f"return {number}"))
        module = load_file(str(path))
        found.append(Registry([module.shop]).catalog().workers["buy"].version)
    assert found[0] != found[1]
