"""Edits of tests that main has, tests that reach out of themselves, and links in code's place."""

import base64

import pytest

from leadhand.fleet.gate import guard, test_tampering
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.gate.guard import findings, protected_parts
from leadhand.fleet.gate.secret_scan import secrets_in, text_of
from leadhand.fleet.gate.test_runs import Ran
from tests.fleet.hostile_ways import JS_TEST, TEST, UNIT
from tests.fleet.places import write

KEY = "AKIA" + "IOSFODNN7EXAMPLQ"


def edited(old, new, path="tests/test_calc.py"):
    return test_tampering.suspicious_test_edit(path, old.encode(), new.encode())


@pytest.mark.parametrize(
    "new",
    [
        TEST.replace("assert sub(5, 3) == 2", "assert True"),
        TEST.replace("    assert sub", "    return\n    assert sub"),
        TEST.replace("    assert sub", "    sub = max\n    assert sub"),
        TEST.replace("(3, 4), ", ""),
        TEST.replace("(3, 4)", "(0, 0)"),
        TEST.replace("def test_sub", "@pytest.mark.skip\ndef test_sub"),
        TEST + "\n\nadd = max\n",
        TEST + "\n\ndef test_sub():\n    pass\n",
        TEST + "\n\n@pytest.fixture(autouse=True)\ndef mended(monkeypatch):\n    pass\n",
        TEST + "\n\ndef setup_module():\n    pass\n",
        TEST.replace("from calc import add, sub", "from fake import add, sub"),
        "",
    ],
)
def test_an_edit_that_does_more_than_add_to_a_test_is_for_people(new):
    assert edited(TEST, new) == test_tampering.CHANGES


@pytest.mark.parametrize(
    "new",
    [
        TEST,
        "# a remark\n" + TEST,
        TEST.replace("add, sub", "add, mul, sub")
        + "\n\ndef test_mul():\n    assert mul(2, 3) == 6\n",
        TEST.replace("(0, 5)]", "(0, 5), (7, 7)]"),
        TEST.replace("== 2\n", "== 2\n    assert sub(0, 1) == -1\n"),
        "import json\n" + TEST,
    ],
)
def test_an_edit_that_adds_is_not(new):
    assert edited(TEST, new) == ""


def test_methods_may_be_added_and_none_of_the_runners_replaced():
    more = UNIT + "\n    def test_more(self):\n        self.assertEqual(sub(1, 1), 0)\n"
    assert edited(UNIT, more) == ""
    for name in ("assertEqual", "run", "setUp", "__call__"):
        assert edited(UNIT, UNIT + f"\n    def {name}(self, *a):\n        pass\n")


def test_scripts_and_data_are_compared_by_lines():
    script = "test/calc.test.js"
    assert edited(JS_TEST, JS_TEST.replace("assert.equal", "((a) => a)"), script)
    assert edited(JS_TEST, "assert.equal = () => {};\n" + JS_TEST, script)
    assert edited(JS_TEST, JS_TEST + "test('more', () => assert.equal(1, 1));\n", script) == ""
    assert test_tampering.suspicious_test_edit(script, None, JS_TEST.encode()) == ""
    assert edited("1,2,3\n4,5,9\n", "1,2,3\n", "tests/cases.csv") == test_tampering.CHANGES
    assert edited("1,2,3\n", "1,2,3\n4,5,9\n", "tests/cases.csv") == ""
    assert (
        test_tampering.suspicious_test_edit("tests/cases.csv", b"1\n", None)
        == test_tampering.REMOVES
    )


@pytest.mark.parametrize(
    "text",
    [
        "import calc\n\ncalc.add = max\n",
        "import calc as c\n\n\ndef test_it():\n    c.add = max\n",
        "import calc\n\nd = calc\nd.add = max\n",
        "import calc\n\nsetattr(calc, 'add', max)\n",
        "import calc\n\nvars(calc)['add'] = max\n",
        "import calc\n\ncalc.__dict__.update(add=max)\n",
        "import sys\n\nsys.modules['calc'] = None\n",
        "from _pytest.python import Function\n",
        "import os\n\n\ndef test_it():\n    os._exit(0)\n",
        "pytest_plugins = ['plug']\n",
        "def pytest_pyfunc_call(pyfuncitem):\n    return True\n",
        "import pytest\n\npytest.MonkeyPatch().setattr('calc.add', max)\n",
        "from unittest import mock\n\nmock.patch('calc.add', max).start()\n",
    ],
)
def test_a_new_test_that_changes_what_others_see_is_for_people(text):
    assert "changes what other tests see" in test_tampering.suspicious_test_edit(
        "test_a.py", None, text.encode()
    )


def test_a_test_that_puts_things_back_is_not():
    text = (
        "import os\nfrom unittest import mock\n\nimport calc\n\n\ndef test_it(monkeypatch):\n"
        "    monkeypatch.setattr(calc, 'add', max)\n    os.environ['X'] = '1'\n"
        "    with mock.patch('calc.sub'):\n        assert calc.add(1, 2) == 2\n"
        "    made = calc.Calc()\n    made.size = 3\n"
    )
    assert test_tampering.suspicious_test_edit("test_a.py", None, text.encode()) == ""


@pytest.mark.parametrize(
    "text",
    [
        "import os\n\nos.sys.modules['x']",
        "import sys as s\n\ns.modules['x']",
        "from os import sys as s\n\ns.modules['x']",
        "import sys\n\nt = sys\nt.modules",
        "import sys\n\nsys.path.append('lib.zip')",
        "import pkgutil",
        "import pickle",
        "import timeit",
        "import doctest",
        "import __main__ as m",
        "import os\n\nx = 'PY' + 'TEST_CURRENT_TEST' in os.environ",
        "x = ''.join(['py', 'test'])",
        "class A:\n    __eq__ = lambda s, o: True",
        "class A:\n    def __eq__(self, o):\n        return not False",
        "class A:\n    def __eq__(self, o):\n        return o is o",
        "class A:\n    def __eq__(self, o):\n        return self.x",
        "def pytest_pyfunc_call(pyfuncitem):\n    return True",
        "from tests.impl import now",
        "from .tests import impl",
        "import testdata.impl",
        "text = '''" + "#" * 400 + " pytest '''",
    ],
)
def test_other_spellings_of_the_machinery_of_tests_are_seen(text):
    assert test_tampering.suspicious_code("calc.py", b"", text.encode())


@pytest.mark.parametrize("path", ["pytest_asyncio/plugin.py", "pytest_x.py", "anyio.py"])
def test_modules_that_pytest_loads_by_itself_are_gate_files(path):
    assert guard.by_name(path, {"pytest_asyncio"})
    assert guard.by_name(".pytest.toml")


async def test_links_in_the_place_of_code_and_names_by_case_only(hub, slots):
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"impl.txt": "x = 1\n", "readme.md": "a\n", "README.md": "b\n"})
        (slot.path / "calc.py").symlink_to("impl.txt")
        (slot.path / "unittest").symlink_to("docs")
        (slot.path / "impl").symlink_to("tests")
        (slot.path / "notes").symlink_to("impl.txt")
        head = (await slot.take()).head
    rules = GateRules(commands=(("make", "check"),))
    assert {*await protected_parts(hub, rules, hub.main(), head)} == {"calc.py", "unittest", "impl"}
    assert any("by case only" in line for line in await findings(hub, hub.main(), head))


def test_secrets_are_found_in_odd_places():
    pem = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIE\n"
    for text in (
        text_of(f"key {KEY}\n".encode("utf-16")),
        text_of(f"key {KEY}\n".encode("utf-32-le")),
        base64.b64encode(pem.encode()).decode(),
        "x" * 3000 + f" {KEY}",
        "x" * 1990 + f" {KEY}",
        "x y\n" * 400_000 + KEY,
    ):
        assert secrets_in("n.txt", "", text)


def test_runs_of_runners_are_counted():
    one, two = Ran(runs=1), Ran(runs=2)
    one.merge(two)
    assert one.runs == 3
