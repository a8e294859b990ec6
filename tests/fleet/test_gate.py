"""The gate: exactly one commit, main's own copy of the gate, and no process left behind."""

import asyncio
import os
import shlex
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadhand.fleet.gate.gate import MORE_RUNS, Flakes, Gate, GateRules, GateTrouble, KnownTests
from leadhand.fleet.gate.guard import own_files
from leadhand.fleet.gate.test_runs import Ran
from leadhand.fleet.workspace.process_limits import TreeLimits
from leadhand.fleet.workspace.slots import Slots
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import NoSandbox, choose
from tests.fleet.places import write
from tests.support.need import need

RUN = ("sh", "gate.sh")


@pytest.fixture
async def processes():
    async with Processes("gate-test") as made:
        yield made


@pytest.fixture
def make(tmp_path, hub, processes):
    """A gate with some rules."""
    slots = Slots(hub, tmp_path / "gates", 2, prefix="gate")

    def made(**rules):
        given = GateRules(**{"commands": (RUN,), "time_s": 20.0, **rules})
        return Gate(hub, slots, given, processes=processes, sandbox=choose("none"))

    return made


async def commit(hub, slots, files):
    """A commit on main with these files."""
    async with slots.lease(hub.main()) as slot:
        write(slot.path, files)
        return (await slot.take()).head


def pid_lives(pid):
    return Path(f"/proc/{pid}").exists()


async def test_green_and_red(hub, slots, make):
    """By the exit code of every command; the log shows what was run and what it said."""
    gate = make()
    green = await gate.check(await commit(hub, slots, {"gate.sh": "echo fine; exit 0\n"}))
    assert green.ok
    assert green.log == "$ sh gate.sh\nfine\nexit 0\n"
    red = await gate.check(await commit(hub, slots, {"gate.sh": "echo no >&2; exit 3\n"}))
    assert (red.ok, red.failed, red.flaky) == (False, "sh gate.sh", ())
    assert red.log == "$ sh gate.sh\nno\nexit 3\n"


async def test_the_checkout_is_exactly_the_commit(hub, slots, make):
    """Nothing of the run before is there: not its files, not its home."""
    script = 'test ! -e left && test ! -e "$HOME/left" && touch left "$HOME/left" extra.txt\n'
    sha = await commit(hub, slots, {"gate.sh": script})
    gate = make()
    for _ in range(4):
        assert (await gate.check(sha)).ok


async def test_tests_that_main_gained_since_are_not_lost(hub, slots, make):
    """A change is judged by the main that it was made on; the train judges it on today's."""
    test = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    gate = make(commands=(("python3", "-m", "unittest"),))
    assert await hub.advance(await commit(hub, slots, {"test_a.py": test}), hub.main())
    change = await commit(hub, slots, {"x.py": "x = 1\n"})
    assert await hub.advance(await commit(hub, slots, {"test_b.py": test}), hub.main())
    verdict = await gate.check(change)
    assert verdict.ok, verdict.log
    assert verdict.tests == "1 test passed"
    gone = await commit(hub, slots, {"test_b.py": ""})
    assert (await gate.check(gone)).removed == ("test_b.T.test_it",)


async def test_the_gates_own_files_are_those_of_main(tmp_path, user, hub, slots, make):
    """Changed, removed or added by a change: main's copy counts."""
    sha = await commit(hub, slots, {"gate.sh": "test ! -e bad\n", "ci/helper": "1\n"})
    assert await hub.advance(sha, hub.main())
    gate = make(gate_paths=("gate.sh", "ci"), commands=(RUN, ("test", "-f", "ci/helper")))
    async with slots.lease(hub.main()) as slot:
        write(slot.path, {"bad": "x", "gate.sh": "exit 0\n", "ci/conftest": "evil\n"})
        (slot.path / "ci/helper").unlink()
        tampered = (await slot.take()).head
    assert (await gate.check(tampered, [("test", "-e", "missing")])).failed == "test -e missing"
    assert (await gate.check(tampered)).failed == "test -f ci/helper", "by its own copy"
    told = await make(gate_paths=("gate.sh",)).check(tampered, [("test", "-e", "ci/conftest")])
    assert (told.ok, told.failed) == (False, "sh gate.sh"), "by main's"
    assert "as they are on main" in told.log


async def test_the_gates_files_are_read_off_its_commands(hub, slots, make):
    """A script that the command names, a Makefile; not folders, not what main has not."""
    files = {"gate.sh": "test ! -e bad\n", "Makefile": "test:\n\ttest ! -e bad\n", "tests/a": "1\n"}
    assert await hub.advance(await commit(hub, slots, files), hub.main())
    for changed, command in (("gate.sh", RUN), ("gate.sh", ("sh", "./gate.sh"))):
        tampered = await commit(hub, slots, {"bad": "x\n", changed: "exit 0\n"})
        verdict = await make(commands=(command,)).check(tampered)
        assert verdict.failed == " ".join(command)
    gate = make(commands=(("sh", "-c", "test -e tests/a"), ("ls", "tests", "--", "-x/../..")))
    assert await own_files(hub, gate.rules, hub.main()) == ()
    made = await own_files(hub, GateRules(commands=(("make", "test"), RUN)), hub.main())
    assert made == ("Makefile", "gate.sh", *sorted(("GNUmakefile", "makefile", "test")))


MADE = {"Makefile": "check:\n\ttest ! -e bad\n", "sub/Makefile": "check:\n\ttest ! -e ../bad\n"}
GREEN = "check:\n\ttrue\n"


@pytest.mark.parametrize(
    ("command", "added"),
    [
        ("make check", {"GNUmakefile": GREEN}),
        ("make check", {"makefile": GREEN}),
        ("make check", {"check": "up to date\n"}),
        ("make check", {"check/x": "up to date\n"}),
        ("make -C sub check", {"sub/GNUmakefile": GREEN}),
        ("make -Csub check", {"sub/check": ""}),
        ("python3 -m unittest -q", {"unittest.py": "pass\n"}),
        ("python3 -m unittest -q", {"unittest/__main__.py": "", "unittest/__init__.py": ""}),
    ],
)
@pytest.mark.parametrize("paths", [(), ("gate.sh",)])
async def test_nothing_that_is_added_comes_before_the_gate(hub, slots, make, command, added, paths):
    """Red work stays red, whatever a change puts in front of the files that judge it."""
    need(shutil.which("make"), "make")
    test = "import os, unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
    test += "        assert not os.path.exists('bad')\n"
    assert await hub.advance(await commit(hub, slots, {**MADE, "test_a.py": test}), hub.main())
    gate = make(commands=(tuple(command.split()),), gate_paths=paths)
    verdict = await gate.check(await commit(hub, slots, {"bad": "x\n", **added}))
    assert verdict.failed == command
    assert "as they are on main" in verdict.log or "unittest" in command
    assert (await gate.check(await commit(hub, slots, {"good": "x\n"}))).ok


async def test_folders_that_a_command_names_are_not_the_gates_own(hub, slots, make):
    """Nor is all that lies in them: `.` is everything."""
    files = {"gate.sh": "true\n", "src/a.py": "1\n"}
    assert await hub.advance(await commit(hub, slots, files), hub.main())
    rules = GateRules(commands=(("ls", ".", "./", "src/", "src/../.."),))
    assert await own_files(hub, rules, hub.main()) == ()


async def test_a_broken_gate_does_not_get_to_main(hub, slots, make):
    """Main's copy passes; the change's own would be red for everybody after it."""
    sha = await commit(hub, slots, {"gate.sh": "test ! -e bad\n"})
    assert await hub.advance(sha, hub.main())
    broken = await commit(hub, slots, {"gate.sh": "test ! -e bad && (\n"})
    assert not (await make(gate_paths=("gate.sh",)).check(broken)).ok
    better = await commit(hub, slots, {"gate.sh": "test ! -e bad && test ! -e worse\n"})
    assert (await make(gate_paths=("gate.sh",)).check(better)).ok


async def test_acceptance_comes_first_and_counts(hub, slots, make):
    """A change that passes the gate and not its own criteria is red."""
    sha = await commit(hub, slots, {"gate.sh": "exit 0\n", "made": "x\n"})
    gate = make(setup=(("touch", "prepared"),))
    assert (await gate.check(sha, [("test", "-f", "made"), ("test", "-f", "prepared")])).ok
    missing = await gate.check(sha, [("test", "-f", "missing")])
    assert missing.failed == "test -f missing"
    assert "gate.sh" not in missing.log
    unknown = await gate.check(sha, [("no-such-program",)])
    assert "no-such-program" in unknown.log
    assert not unknown.ok


async def test_too_long_is_red_and_leaves_nothing(tmp_path, hub, slots, make):
    """Also of what it started in the background."""
    pids = tmp_path / "pids"
    script = f"setsid sleep 60 & echo $! > {pids}\nsleep 60\n"
    sha = await commit(hub, slots, {"gate.sh": script})
    verdict = await make(time_s=0.5).check(sha)
    assert not verdict.ok
    assert "not done after 0.5 s" in verdict.log
    assert not pid_lives(int(pids.read_text()))


async def test_a_cancelled_gate_leaves_nothing(tmp_path, hub, slots, make):
    """No process, no home, and the slot is free again."""
    pids = tmp_path / "pids"
    sha = await commit(
        hub, slots, {"gate.sh": f"echo $$ > {pids}.new; mv {pids}.new {pids}; sleep 60\n"}
    )
    gate = make()
    task = asyncio.create_task(gate.check(sha))
    while not pids.exists():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not pid_lives(int(pids.read_text()))
    assert not list((tmp_path / "gates").glob("home-*"))
    assert gate._slots.free == 2


async def test_output_is_bounded(hub, slots, make):
    """A gate that prints for ever fills no memory; the end of it is kept."""
    sha = await commit(hub, slots, {"gate.sh": "yes | head -c 5000000; echo the end; exit 1\n"})
    verdict = await make().check(sha)
    assert len(verdict.log) < 600_000
    assert "bytes left out" in verdict.log
    assert "the end\n" in verdict.log


async def test_a_known_flake_is_tried_again_in_front_of_everybody(tmp_path, hub, slots, make):
    """Once; both runs are in the log; a failure that is not known is red."""
    counter = tmp_path / "count"
    script = f'echo x >> {counter}; test "$(wc -l < {counter})" -gt 1 && exit 0\n'
    script += 'echo "FAILED t::a"; exit 1\n'
    sha = await commit(hub, slots, {"gate.sh": script})
    gate = make(failures=r"^FAILED (\S+)", flaky=("t::a",))
    verdict = await gate.check(sha)
    assert verdict.ok
    assert verdict.flaky == ("t::a",)
    assert verdict.log.count("$ sh gate.sh") == 2
    assert "tried once more: t::a" in verdict.log
    assert Flakes(hub.path / "flakes.jsonl").sightings["t::a"] >= 1
    always = await commit(hub, slots, {"gate.sh": 'echo "FAILED t::a"; exit 1\n'})
    red = await gate.check(always)
    assert (red.ok, red.flaky, red.log.count("$ sh gate.sh")) == (False, ("t::a",), 2)
    both = await commit(hub, slots, {"gate.sh": 'echo "FAILED t::a"; echo "FAILED t::b"; exit 1\n'})
    other = await gate.check(both)
    assert (other.ok, other.flaky, other.log.count("$ sh gate.sh")) == (False, (), 1)


async def test_flakes_are_learned_from_one_tree_seen_red_and_green(tmp_path, hub, slots, make):
    """And are remembered by the next process."""
    flag = tmp_path / "flag"
    sha = await commit(hub, slots, {"gate.sh": f"test -e {flag}\n"})
    gate = make()
    assert not (await gate.check(sha)).ok
    flag.touch()
    assert (await gate.check(sha)).ok
    record = hub.path / "flakes.jsonl"
    record.write_text(record.read_text() + '{"name": "cut o')
    assert Flakes(record).known(["sh gate.sh"])
    assert not Flakes(record).known([])
    Flakes(record).record(["another"], sha, green=True)
    assert Flakes(record).known(["sh gate.sh", "another"])


async def test_trouble_is_no_verdict(hub, slots, make, monkeypatch):
    """No room, no supervisor: nothing is said of the change."""
    sha = await commit(hub, slots, {"gate.sh": "exit 0\n"})
    gate = make()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
        with pytest.raises(GateTrouble, match="too little"):
            await gate.check(sha)
    await gate._processes.close()
    with pytest.raises(GateTrouble, match="could not be run"):
        await gate.check(sha)


async def test_the_environment_is_made_from_nothing(hub, slots, make, monkeypatch):
    """No secret of ours reaches a gate."""
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    sha = await commit(hub, slots, {"gate.sh": "env; exit 1\n"})
    verdict = await make(env={"MODE": "test"}).check(sha)
    assert "hush" not in verdict.log
    assert "MODE=test" in verdict.log
    assert str(Path.home()) not in verdict.log.replace(os.environ["PATH"], "")


async def test_in_a_real_sandbox(tmp_path, hub, slots, processes):
    """Git works there as in any checkout, and nothing outside can be written."""
    try:
        sandbox = choose("auto")
    except NoSandbox as error:
        need(condition=False, why=str(error))
    script = f"git log --format=%s | head -1; touch {tmp_path}/outside; touch inside; ls\n"
    sha = await commit(hub, slots, {"gate.sh": script})
    pool = Slots(hub, tmp_path / "gates", 1)
    rules = GateRules(commands=(RUN,))
    gate = Gate(hub, pool, rules, processes=processes, sandbox=sandbox)
    verdict = await gate.check(sha)
    assert verdict.ok, verdict.log
    assert "Work of an agent" in verdict.log
    assert "inside" in verdict.log
    assert not (tmp_path / "outside").exists()


async def test_a_report_with_another_runs_key_is_for_people(hub, slots, make):
    """Code that claims a free key can report tests that never ran; main has one run, not two."""
    forge = (
        "import glob, hashlib, hmac, json, os, unittest\n"
        "for k in glob.glob(os.path.expanduser('~/r*/reports/15.key')):\n"
        "    key, c = open(k, 'rb').read(), b''\n    os.unlink(k)\n"
        "    with open(k[:-4] + '.log', 'wb') as f:\n"
        "        rows = (['begin', '', ''], ['test', 'test_a.T.test', 'passed'], ['end', '', ''])\n"
        "        for row in rows:\n"
        "            b = json.dumps(row).encode()\n"
        "            c = hmac.new(key, c + b, hashlib.sha256).hexdigest().encode()\n"
        "            f.write(b + b' ' + c + b'\\n')\nraise unittest.SkipTest\n"
    )
    test = (
        "import unittest, code_a\nclass T(unittest.TestCase):\n    def test(self):\n        pass\n"
    )
    files = {"code_a.py": "x = 1\n", "test_a.py": test}
    assert await hub.advance(await commit(hub, slots, files), hub.main())
    gate = make(commands=(("python3", "-m", "unittest", "-q"),))
    sha = await commit(hub, slots, {"code_a.py": forge})
    assert (await gate.check(sha)).altered == (MORE_RUNS,)
    assert (await gate.check(sha, (), (MORE_RUNS,))).altered == ()
    assert (await gate.check(await commit(hub, slots, {"code_a.py": "x = 2\n"}))).altered == ()


async def test_all_processes_of_a_command_together_are_limited(tmp_path, hub, slots, make):
    """A command that starts more than the limit is ended with all of them, and is red."""
    pids = tmp_path / "pids"
    start = f"for n in 1 2 3 4 5 6; do sleep 600 & echo $! >> {pids}; done; wait\n"
    sha = await commit(hub, slots, {"gate.sh": start})
    verdict = await make(tree=TreeLimits(processes=4), time_s=120.0).check(sha)
    assert (verdict.ok, verdict.failed) == (False, "sh gate.sh")
    assert "processes, and 4 are the limit" in verdict.log
    assert "not done after" not in verdict.log
    assert not [pid for pid in pids.read_text().split() if pid_lives(pid)]


UNCOUNTED = ("sh", "-c", "for each in tests/*.sh; do sh $each || exit 1; done")
OLD = {"value": "1\n", "tests/a.sh": "grep -q 1 value\n"}
NEW = {"value": "2\n", "tests/a.sh": "grep -q 2 value\n"}


async def test_an_approved_change_of_tests_passes_also_where_tests_are_not_counted(
    hub, slots, make
):
    """The names that a person was shown are the ones that are waived."""
    assert await hub.advance(await commit(hub, slots, OLD), hub.main())
    gate = make(commands=(UNCOUNTED,))
    sha = await commit(hub, slots, NEW)
    verdict = await gate.check(sha)
    assert (verdict.ok, verdict.altered) == (True, (shlex.join(UNCOUNTED),))
    assert (await gate.check(sha, (), verdict.altered)).altered == ()
    assert (await gate.check(sha)).altered == verdict.altered, "an approval is of one change"


async def test_a_flaky_command_must_pass_with_mains_tests_too(hub, slots, make):
    """Flaky: it is tried once more. Only a person lets it fail."""
    assert await hub.advance(await commit(hub, slots, OLD), hub.main())
    gate = make(commands=(UNCOUNTED,), flaky=(shlex.join(UNCOUNTED),))
    verdict = await gate.check(await commit(hub, slots, NEW))
    assert verdict.altered == verdict.flaky == (shlex.join(UNCOUNTED),)


UNIT = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        pass\n"


async def test_a_red_command_with_mains_tests_is_for_people_though_no_counted_test_fails(
    hub, slots, make
):
    """Some commands count their tests and others do not: each must pass with main's tests."""
    files = {**OLD, "tests/test_a.py": UNIT}
    assert await hub.advance(await commit(hub, slots, files), hub.main())
    gate = make(commands=(("python3", "-m", "unittest", "-q", "tests/test_a.py"), UNCOUNTED))
    sha = await commit(hub, slots, NEW)
    verdict = await gate.check(sha)
    assert (verdict.ok, verdict.tests) == (True, "1 test passed")
    assert verdict.altered == (shlex.join(UNCOUNTED),)
    assert (await gate.check(sha, (), verdict.altered)).altered == ()


async def test_one_approval_covers_tests_of_main_that_can_no_longer_be_imported(hub, slots, make):
    """The file that cannot be imported is no test of main: the red command is named with them."""
    test = "import one\n" + UNIT
    assert await hub.advance(
        await commit(hub, slots, {"one.py": "", "test_a.py": test}), hub.main()
    )
    command = ("python3", "-m", "unittest", "-q")
    gate = make(commands=(command,))
    async with slots.lease(hub.main()) as slot:
        (slot.path / "one.py").rename(slot.path / "two.py")
        write(slot.path, {"test_a.py": test.replace("one", "two")})
        sha = (await slot.take()).head
    verdict = await gate.check(sha)
    assert (verdict.ok, len(verdict.altered)) == (True, 2)
    assert shlex.join(command) in verdict.altered
    assert (await gate.check(sha, (), verdict.altered)).altered == ()


JUNIT = "<testsuite><testcase classname='a' name='b'/></testsuite>"


async def test_a_report_that_a_commit_brings_along_is_none(hub, slots, make):
    """It would tell of tests that did not run."""
    assert await hub.advance(
        await commit(hub, slots, {"run.sh": f'mkdir -p out; echo "{JUNIT}" > out/a.xml\n'}),
        hub.main(),
    )
    gate = make(commands=(("sh", "run.sh"),), reports=("out/*.xml",))
    assert (await gate.check(hub.main())).tests == "1 test passed"
    silent = make(commands=(("true",),), reports=("out/*.xml",))
    sha = await commit(hub, slots, {"out/a.xml": JUNIT})
    assert (await silent.check(sha, (), None)).tests == "tests not counted"


@pytest.mark.parametrize("made", ["ln -s {0} out", "mkdir out; ln -s {0}/a.xml out/a.xml"])
async def test_no_report_is_read_or_removed_outside_of_the_checkout(
    tmp_path, hub, slots, make, made
):
    """The code under test can put a link in the place of a report, or of its folder."""
    outside = tmp_path / "outside"
    write(outside, {"a.xml": JUNIT})
    script = made.format(outside) + "; ln -s b.xml out/b.xml || true\n"
    sha = await commit(hub, slots, {"gate.sh": script})
    verdict = await make(reports=("out/*.xml",)).check(sha)
    assert (verdict.ok, verdict.tests) == (True, "tests not counted"), verdict.log
    assert (outside / "a.xml").exists()


async def test_a_report_that_cannot_be_removed_is_red(hub, slots, make, monkeypatch):
    """The next command's tests could not be told from it."""
    unlink = Path.unlink

    def refused(path, *args, **more):
        if path.name == "a.xml":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, *args, **more)

    sha = await commit(hub, slots, {"gate.sh": f'mkdir out; echo "{JUNIT}" > out/a.xml\n'})
    monkeypatch.setattr(Path, "unlink", refused)
    verdict = await make(reports=("out/*.xml",)).check(sha)
    assert (verdict.ok, verdict.failed) == (False, "sh gate.sh")
    assert "cannot be read or removed" in verdict.log


async def test_green_trees_are_remembered_in_bounds(tmp_path, monkeypatch):
    """The oldest is forgotten first, and checked again."""
    monkeypatch.setattr("leadhand.fleet.gate.gate.REMEMBERED", 2)
    known = KnownTests(tmp_path / "tests.json")
    for tree in ("a", "b", "c"):
        known.keep_green(tree)
    assert [known.is_green(tree) for tree in ("a", "b", "c")] == [False, True, True]


async def test_which_tests_ran_on_main_outlives_the_process(tmp_path):
    """A file that cannot be read is none."""
    path = tmp_path / "tests.json"
    KnownTests(path).keep("a", Ran(Counter({"t": 2}), counted=True, runs=1))
    assert KnownTests(path).of("a") == Ran(Counter({"t": 2}), counted=True, runs=1)
    path.write_text('{"tree": "a"}')
    assert KnownTests(path).of("a") is None
