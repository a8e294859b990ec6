"""Conflicts settled by programs: files that are made anew, and a merge driver; always gated."""

import sys

import pytest

from leadhand.fleet.gate.gate import Gate, GateRules
from leadhand.fleet.merge.conductor import Conductor, Ejected, Landed, QueuedChange
from leadhand.fleet.merge.resolution import ConflictResolution, ResolutionRules
from leadhand.fleet.workspace.slots import Slots
from leadhand.workers.processes.runner import Processes
from leadhand.workers.sandbox.sandbox import choose
from tests.fleet.places import commit_all, files_of, write

LOCK = (
    "import pathlib; needs = sorted(pathlib.Path('needs').iterdir());"
    "pathlib.Path('app.lock').write_text('lock ' + ' '.join(n.name for n in needs) + '\\n');"
    "pathlib.Path('stray.txt').write_text('not taken')"
)
CHECK = (
    "import pathlib; names = sorted(n.name for n in pathlib.Path('needs').iterdir());"
    "assert pathlib.Path('app.lock').read_text().split()[1:] == names, 'the lock is stale'"
)
DRIVER = (
    "import sys; base, ours, theirs = [open(p).read().split() for p in sys.argv[1:4]];"
    "open(sys.argv[4], 'w').write(' '.join(sorted({*ours, *theirs})) + '\\n')"
)
PYTHON = (sys.executable, "-c")
MERGE = (*PYTHON, DRIVER, "{base}", "{ours}", "{theirs}", "{output}")


def long(**changed):
    """A file of many lines, some of them changed."""
    return "".join(f"{changed.get(f'l{n}', n)}\n" for n in range(30))


@pytest.fixture
def user(user):
    """A repository with a lock file and a line of words."""
    write(user, {"needs/a": "", "app.lock": "lock a\n", "words.txt": "a b\n", "big.lock": long()})
    commit_all(user, "a lock")
    return user


@pytest.fixture
async def landing(tmp_path, hub, slots):
    """Lands two changes that were made on the same main, with these rules."""

    async def land(rules, *changes):
        base = hub.main()
        async with Processes("test-resolution") as processes:
            pool = Slots(hub, tmp_path / "gates", 2, prefix="gate")
            checks = GateRules(commands=((*PYTHON, CHECK),))
            gate = Gate(hub, pool, checks, processes=processes, sandbox=choose("none"))
            resolution = ConflictResolution(hub, gate, rules)
            async with Conductor(hub, gate, resolution=resolution) as conductor:
                return [
                    await conductor.land(await _change(slots, base, number, files))
                    for number, files in enumerate(changes)
                ]

    return land


async def _change(slots, base, number, files):
    async with slots.lease(base) as slot:
        write(slot.path, files)
        taken = await slot.take()
    about = {"run": "r", "task": f"t{number}", "attempt": 1, "goal": f"change {number}"}
    return QueuedChange(**about, base=base, head=taken.head, paths=tuple(files))


def needing(name):
    return {f"needs/{name}": "", "app.lock": f"lock a {name}\n"}


async def test_a_lock_file_is_made_anew_from_the_merged_inputs(hub, landing):
    rules = ResolutionRules({"*.lock": (*PYTHON, LOCK)})
    told = await landing(rules, needing("b"), needing("c"))
    assert [type(each) for each in told] == [Landed, Landed], told
    files = files_of(hub.git.folder, hub.main())
    assert files["app.lock"] == "lock a b c"
    assert "stray.txt" not in files, "only the conflicting file is taken"


async def test_a_lock_file_that_both_changed_is_made_anew_though_its_lines_merge(hub, landing):
    made = (*PYTHON, "import pathlib; pathlib.Path('big.lock').write_text('made anew\\n')")
    changes = {"big.lock": long(l2="two")}, {"big.lock": long(l25="last")}
    told = await landing(ResolutionRules({"big.lock": made}), *changes)
    assert [type(each) for each in told] == [Landed, Landed], told
    assert files_of(hub.git.folder, hub.main())["big.lock"] == "made anew"


async def test_a_command_that_fails_sends_the_change_back_with_its_words(hub, landing):
    rules = ResolutionRules({"*.lock": (*PYTHON, "raise SystemExit('no registry today')")})
    first, second = await landing(rules, needing("b"), needing("c"))
    assert isinstance(first, Landed)
    assert isinstance(second, Ejected)
    assert second.kind == "conflict"
    assert "no registry today" in second.log
    assert second.details["paths"] == ["app.lock"]


async def test_what_is_made_anew_must_pass_the_gate(hub, landing):
    wrong = "import pathlib; pathlib.Path('app.lock').write_text('lock nothing\\n')"
    rules = ResolutionRules({"app.lock": (*PYTHON, wrong)})
    first, second = await landing(rules, needing("b"), needing("c"))
    assert isinstance(first, Landed)
    assert isinstance(second, Ejected)
    assert second.kind == "red"
    assert "the lock is stale" in second.log


async def test_a_driver_merges_what_git_cannot(hub, landing):
    rules = ResolutionRules(driver=MERGE)
    told = await landing(rules, {"words.txt": "a b c\n"}, {"words.txt": "a b d\n"})
    assert [type(each) for each in told] == [Landed, Landed], told
    assert files_of(hub.git.folder, hub.main())["words.txt"] == "a b c d"


@pytest.mark.parametrize(
    "driver",
    [
        (*PYTHON, "pass", "{output}"),
        (*PYTHON, "raise SystemExit(1)"),
        ("no-such-driver",),
        (*PYTHON, "import sys; open(sys.argv[1], 'w').write('<<<<<<< a\\n')", "{output}"),
        (*PYTHON, "import os, sys; os.symlink('/etc/hostname', sys.argv[1])", "{output}"),
    ],
)
async def test_a_driver_that_settles_nothing_leaves_the_conflict_to_its_owner(landing, driver):
    changes = {"words.txt": "a b c\n"}, {"words.txt": "a b d\n"}
    first, second = await landing(ResolutionRules(driver=driver), *changes)
    assert isinstance(first, Landed)
    assert isinstance(second, Ejected)
    assert second.kind == "conflict"
    assert "merge driver" in second.log


async def test_without_programs_a_conflict_goes_back(landing):
    first, second = await landing(ResolutionRules(), needing("b"), needing("c"))
    assert isinstance(first, Landed)
    assert isinstance(second, Ejected)
    assert second.kind == "conflict"
