"""What the gate depends on, what must not land, which tests ran: each told from files alone."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from leadhand.fleet.commands import doctor
from leadhand.fleet.gate import guard, test_runs, test_tampering
from leadhand.fleet.gate.gate import GateRules
from leadhand.fleet.gate.guard import findings, own_files, protected_parts
from leadhand.fleet.gate.secret_scan import secrets_in
from leadhand.fleet.gate.test_runs import Ran, Reports, parse_junit, parse_test_output
from leadhand.fleet.workspace.process_limits import TreeLimits, excess
from tests.fleet.places import write
from tests.support.need import need

RULES = GateRules(commands=(("make", "check"), ("python3", "-m", "unittest")))


@pytest.mark.parametrize(
    "path",
    [
        *("GNUmakefile", "sub/makefile", "x.mk", "conftest.py", "tests/unit/conftest.py"),
        *("pytest.ini", "tox.ini", "setup.cfg", "sitecustomize.py", "src/usercustomize.py"),
        *("a.pth", "unittest.py", "pytest.py", "tests/json.py", "src/os.py", "json.so"),
        *("__pycache__/a.pyc", "x.egg-info/entry_points.txt", "node_modules/a/b.js"),
        *(".mocharc.yml", "jest.config.js", "vitest.config.ts", ".npmrc", ".envrc"),
        *(".gitattributes", "docs/.gitattributes", ".gitmodules", "go.work", "build.rs"),
    ],
)
def test_a_file_that_configures_or_shadows_is_a_gate_file(path):
    assert guard.by_name(path)


@pytest.mark.parametrize(
    "path",
    [
        *("calc.py", "src/pkg/json.py", "README.md", "tests/test_json.py", "docs/conf.md"),
        *("pkg/unittest.py", "lib/tests.py", "Makefile.md", "src/test/java/A.java"),
        *("package-lock.json", "src/logging.js", "test/x.py"),
    ],
)
def test_work_is_none(path):
    assert not guard.by_name(path, packages={"src/pkg", "pkg"})


def test_what_main_has_already_shadows_nothing_new():
    packages = {"attr", "src/attr"}
    assert guard.by_name("attr/make.py", packages)
    assert not guard.by_name("attr/make.py", packages, known={"attr"})


@pytest.mark.parametrize(
    ("name", "before", "after", "counts"),
    [
        ("pyproject.toml", "[project]\nversion='1'", "[project]\nversion='2'", False),
        ("pyproject.toml", "", "[tool.pytest.ini_options]\naddopts='--co'", True),
        ("pyproject.toml", "", "not toml [", True),
        ("package.json", '{"version": "1"}', '{"version": "2"}', False),
        ("package.json", "{}", '{"scripts": {"test": "true"}}', True),
        ("package.json", "{}", "[]", True),
    ],
)
def test_of_some_files_only_parts_count(name, before, after, counts):
    found = guard.part_that_counts(f"sub/{name}", before.encode(), after.encode())
    assert found is counts


async def test_makefiles_and_what_they_include_are_the_gates_own(hub, slots):
    files = {"Makefile": "check:\n\ttrue\n-include a.mk b/c.mk\n", "a.mk": "include d.inc\n"}
    async with slots.lease(hub.main()) as slot:
        write(slot.path, files)
        assert await hub.advance((await slot.take()).head, hub.main())
    own = await own_files(hub, RULES, hub.main())
    assert {"Makefile", "a.mk", "b/c.mk", "d.inc", "GNUmakefile", "unittest.py"} <= {*own}
    async with slots.lease(hub.main()) as slot:
        write(
            slot.path, {"b/c.mk": "x", "calc.py": "import os\nos._exit(0)\n", "fine.py": "x = 1\n"}
        )
        head = (await slot.take()).head
    found = await protected_parts(hub, RULES, hub.main(), head)
    assert {*found} == {"b/c.mk", "calc.py"}
    assert found["calc.py"] == "line 2 ends the process at once"


async def test_tests_and_links_are_guarded_where_tampering_is_allowed(hub, slots):
    """`tampering = false` is for code: a weakened test is still for a person to see."""
    whole = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"test_calc.py": whole, "impl.txt": "x = 1\n"})
        assert await hub.advance((await slot.take()).head, hub.main())
    async with slots.lease(hub.main()) as slot:
        weak = whole.replace("assert add(1, 2) == 3", "assert True")
        write(slot.path, {"test_calc.py": weak, "sums.py": "import os\nos._exit(0)\n"})
        (slot.path / "calc.py").symlink_to("impl.txt")
        head = (await slot.take()).head
    loose = replace(RULES, tampering=False)
    assert {*await protected_parts(hub, loose, hub.main(), head)} == {"test_calc.py", "calc.py"}


async def test_links_commands_filters_and_secrets_are_found_and_no_secret_is_told(hub, slots):
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    async with slots.lease(hub.main()) as slot:
        write(
            slot.path,
            {
                "a.py": f"x = 1\nkey = '{key}'\n",
                ".gitmodules": '[submodule "x"]\n\tupdate = !sh\n',
                "sub/.gitattributes": "* text=auto\n*.py filter=evil\n*.bin filter=lfs diff=lfs\n",
                "fine.txt": "-----BEGIN CERTIFICATE-----\nd41d8cd98f00b204e9800998ecf8427e\n",
            },
        )
        (slot.path / "out").symlink_to("/etc/passwd")
        (slot.path / "up").symlink_to("../x")
        (slot.path / "in").symlink_to("a.py")
        head = (await slot.take()).head
    found = await findings(hub, hub.main(), head)
    assert {line.partition(" ")[0] for line in found} == {
        *("a.py:2:", ".gitmodules:2:", "sub/.gitattributes:2:", "out:", "up:")
    }
    assert key not in "".join(found)


def test_only_what_is_added_is_looked_at_for_secrets():
    need(__import__("importlib").util.find_spec("detect_secrets"), "detect-secrets")
    line = "token = 'ghp_" + "a1B2c3D4e5F6" * 3 + "'"
    assert secrets_in("a.py", "", f"x\n{line}\n") == ["a.py:2: a secret (GitHub Token)"]
    assert secrets_in("a.py", line, f"x\n{line}\n") == []
    url = "postgres://app:" + "hunter2pass@db/x"
    assert secrets_in("a.py", "", url) == ["a.py:1: a secret (Basic Auth Credentials)"]
    lock = '"integrity": "sha512-' + "q8Zt" * 20 + '=="\nsha256:' + "ab12" * 16
    assert secrets_in("package-lock.json", "", lock) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos._exit(0)",
        "from os import _exit",
        "import atexit",
        "import sys\nsys.modules['calc']",
        "import sys\nsys._getframe(1)",
        "import os\nx = os.environ.get('PYTEST_CURRENT_TEST')",
        "import unittest",
        "__import__('o' + 's')",
        "exec('x')",
        "import os\ngetattr(os, 'x')",
        "class A:\n    def __eq__(self, o):\n        return True",
    ],
)
def test_code_that_reaches_for_the_machinery_of_tests_is_seen(text):
    assert test_tampering.suspicious_code("calc.py", b"", text.encode())
    assert not test_tampering.suspicious_code(
        "calc.py", text.encode(), text.encode() + b"\nx = 1\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        '"""Run the tests with pytest."""\nimport os, sys\n\nprint(os.getcwd(), sys.argv)\n',
        "class A:\n    def __eq__(self, o):\n        return self.x == o.x\n",
        "import json, re, asyncio\n\n\ndef main():\n    raise SystemExit(2)\n",
    ],
)
def test_plain_code_is_not(text):
    assert not test_tampering.suspicious_code("calc.py", b"", text.encode())


def test_scripts_are_looked_at_too():
    assert (
        test_tampering.suspicious_code("a.js", b"", b"process.exit(0)")
        == "line 1 ends the process at once"
    )
    assert not test_tampering.suspicious_code("a.js", b"", b"exports.add = (a, b) => a + b")
    assert not test_tampering.suspicious_code("a.rs", b"", b"process.exit(0)")


# --- which tests ran ---


def run(folder, *command, files, check=True):
    write(folder, files)
    reports = Reports(folder / "home", os.urandom(32))
    env = reports.env({"PATH": os.environ["PATH"], "HOME": str(folder)})
    subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, check=False
    )
    return reports, reports.read()


UNIT = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        {}\n"
TEST = "import pytest\n\n\n@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x):\n    {}\n"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.parametrize(
    ("command", "name", "text", "times"),
    [
        (("-m", "unittest"), "test_x.T.test_a", UNIT, 1),
        (PYTEST, "test_x.py::test_a", TEST, 2),
    ],
)
@pytest.mark.parametrize("how", ["pass", "1 / 0", "exits", "skips"])
def test_runners_report_from_inside(tmp_path, command, name, text, times, how):
    body = {
        "exits": "__import__('os')._exit(0)",
        "skips": "import unittest\n    raise unittest.SkipTest('x')",
    }
    if how == "skips" and times == 1:
        body["skips"] = "self.skipTest('x')"
    _reports, ran = run(tmp_path, *command, files={"test_x.py": text.format(body.get(how, how))})
    assert ran.counted
    match how:
        case "pass":
            assert (dict(ran.passed), ran.problems) == ({name: times}, [])
            assert ran.lost({name: times}) == []
            assert ran.lost({name: times + 1}) == [name]
        case "1 / 0":
            assert (dict(ran.failed), ran.problems) == ({name: times}, [])
        case "exits":
            assert ran.problems == ["a test run began, and ended before it was over"]
        case "skips":
            assert (dict(ran.skipped), ran.lost({name: 1})) == ({name: times}, [name])


def test_a_report_that_was_changed_or_taken_away_is_seen(tmp_path):
    reports, ran = run(tmp_path, *PYTEST, files={"test_x.py": TEST.format("pass")})
    assert not ran.problems
    log = reports.place / "00.log"
    lines = log.read_bytes().splitlines(keepends=True)
    for changed in (
        [lines[0], lines[-1]],
        lines[:-1],
        [*lines, lines[1]],
        [line.replace(b"passed", b"failed") for line in lines],
        [json.dumps(["begin", "pytest", ""]).encode() + b" 00\n"],
        [b"nonsense\n"],
    ):
        log.write_bytes(b"".join(changed))
        assert reports.read().problems
    log.unlink()
    assert reports.read().problems == ["a test run began, and its report is gone"]


def test_what_others_print_is_read():
    tap = "TAP version 13\n# Subtest: a\n    # Subtest: b\n    ok 1 - b\n    1..1\nok 1 - a\n"
    ran = parse_test_output(f"$ npm test\n{tap}not ok 2 - c\nok 3 - d # SKIP\n1..3\n")
    assert dict(ran.passed) == {"a > b": 1, "a": 1}
    assert (dict(ran.failed), dict(ran.skipped)) == ({"c": 1}, {"d": 1})
    assert not parse_test_output("ok 1 - half of it\n").counted, (
        "without a plan it may have been cut off"
    )
    lines = [{"Action": a, "Test": t, "Package": "p"} for a, t in (("pass", "A"), ("skip", "B"))]
    go = parse_test_output("\n".join(json.dumps(each) for each in lines))
    assert (dict(go.passed), dict(go.skipped)) == ({"p.A": 1}, {"p.B": 1})
    assert not parse_test_output("all is well\n").counted
    assert parse_test_output("").words == "tests not counted"


def test_junit_is_read_without_entities():
    ran = parse_junit(
        b"<testsuites><testsuite><testcase classname='a' name='b[1]'/><testcase name='c'>"
        b"<failure/></testcase><testcase name='d'><skipped/></testcase></testsuite></testsuites>"
    )
    assert (dict(ran.passed), dict(ran.failed), dict(ran.skipped)) == (
        {"a b": 1},
        {"c": 1},
        {"d": 1},
    )
    assert parse_junit(b"<!DOCTYPE x [<!ENTITY a 'b'>]><testsuite/>").problems
    assert parse_junit(b"<testsuite").problems
    assert Ran().words == "tests not counted"
    assert test_runs.some_names({"b", "a"}) == "a, b"


async def test_all_processes_of_an_attempt_count_together():
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", "for n in 1 2 3 4 5 6; do sleep 60 & done; wait", start_new_session=True
    )
    try:
        said = await asyncio.wait_for(excess(child.pid, TreeLimits(processes=4)), 60)
        assert "processes, and 4 are the limit" in said
        said = await asyncio.wait_for(excess(child.pid, TreeLimits(0, 1000)), 20)
        assert "MB are the limit" in said
    finally:
        os.killpg(child.pid, 9)
        await child.wait()


def test_doctor_says_when_only_a_few_patterns_are_looked_for(monkeypatch):
    monkeypatch.setattr("leadhand.fleet.gate.secret_scan.find_spec", lambda _name: None)
    look = doctor._secrets()
    assert (look.value, look.warning) == ("a few patterns", True)
    monkeypatch.undo()
    assert doctor._secrets().value
