"""Collecting workers: from modules, files and objects, with clear words when that fails."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from leadhand.errors import UsageError
from leadhand.workers.declared import declared_workers
from leadhand.workers.functions.snapshot import load_file
from leadhand.workers.registry import Registry, load_workers

WORKERS = """
from leadhand import worker

@worker
async def one() -> int:
    return 1

@worker(name="two", action="a")
def two_a(): ...

@worker(name="two", action="b")
def two_b(): ...

def not_a_worker(): ...
"""


@pytest.fixture
def write(tmp_path):
    def put(text, name="workers.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return str(file)

    return put


def test_a_file(write):
    registry = Registry(load_workers(write(WORKERS)))
    assert sorted(worker.spec.name for worker in registry) == ["one", "two"]
    assert sorted(registry.get("two").spec.offers) == ["a", "b"]
    assert registry.get("three") is None
    catalog = registry.catalog()
    assert catalog.offer("one", "anything") is not None
    assert catalog.offer("two", "c") is None


def test_files_with_the_same_stem_are_two_modules(write):
    one = write(
        "from leadhand import worker\n@worker\ndef first(): ...\n",
        "a/workers.py",
    )
    two = write(
        "from leadhand import worker\n@worker\ndef second(): ...\n",
        "b/workers.py",
    )
    names = [worker.spec.name for worker in Registry([*load_workers(one), *load_workers(two)])]
    assert names == ["first", "second"]
    assert load_file(one) is load_file(one)


def test_the_folder_of_a_file_can_be_imported_from_but_hides_nothing(write):
    write("VALUE = 3\n", "beside_this_test.py")
    write("raise RuntimeError('hides the standard library')\n", "colorsys.py")
    file = write(
        """
        import colorsys
        from beside_this_test import VALUE
        from leadhand import worker

        @worker
        def one(): return VALUE
        """
    )
    assert load_workers(file)[0]() == 3


def test_modules_and_other_workers(write, tmp_path):
    module = load_file(write(WORKERS))
    commands = declared_workers({"command": {"command": ["true"]}}, tmp_path)
    registry = Registry([module, *commands, module.one])
    assert [worker.spec.name for worker in registry] == ["command", "one", "two"]
    assert registry.get("command").spec.kind == "command"


def test_names_are_given_once(write, tmp_path):
    module = load_file(write(WORKERS))
    commands = declared_workers({"one": {"command": ["true"]}}, tmp_path)
    with pytest.raises(UsageError, match="worker 'one' is declared twice"):
        Registry([module, *commands])


BROKEN = [
    ("def broken(:\n", "workers.py:1: SyntaxError: "),
    ("x = 1\n\nraise ValueError('no good')\n", "workers.py:3: "),
    ("def f():\n    return 1 / 0\nf()\n", "workers.py:2: "),
    ("import not_installed_anywhere\n", "No module named 'not_installed_anywhere'"),
    ("from leadhand import not_there_at_all\n", "not_there_at_all"),
    ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    ("x = 1\n", "holds no workers; mark functions with @worker"),
    (
        "from leadhand import worker\n@worker(risk='x')\ndef f(): ...\n",
        "risk: must be one of",
    ),
]


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=[row[1][:30] for row in BROKEN])
def test_a_file_that_cannot_be_loaded_is_explained_in_one_line(write, text, message):
    file = write(text)
    with pytest.raises(UsageError) as caught:
        load_workers(file)
    said = str(caught.value)
    assert message in said
    assert "Traceback" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./not/there.py", "there is no such file"),
        ("no_such_module_xyz", "there is no such module; for a file, give its path"),
        ("no_such.module_xyz", "there is no such module"),
        ("json", "holds no workers"),
    ],
)
def test_what_is_not_there_is_said_to_be_not_there(name, message):
    with pytest.raises(UsageError, match=message):
        load_workers(name)


def test_a_decorator_error_names_the_file_it_stands_in(write):
    file = write("from leadhand import worker\n\n@worker(risk='x')\ndef f(): ...\n")
    with pytest.raises(UsageError, match=r"workers\.py:3: @worker on 'f': risk"):
        load_workers(file)


def run_script(file):
    return subprocess.run(
        [sys.executable, file],
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_workers_of_a_script_do_not_run_it_again(write):
    """Without a guard a child would do all that the script does; so a thread is the default."""
    file = write(
        """
        import os
        from leadhand import Lead, worker

        print("the script runs")

        @worker(effects="x", idempotent=True)
        def here() -> int:
            return os.getpid()

        plan = {"steps": [{"id": "a", "worker": "here"}]}
        outcome = Lead(workers=[here], store=__file__ + ".db").run_sync(plan)
        assert outcome.result == os.getpid(), outcome
        """
    )
    done = run_script(file)
    assert (done.returncode, done.stdout) == (0, "the script runs\n"), done.stderr


def test_workers_in_the_main_script_run_in_processes_if_they_say_so(write):
    file = write(
        """
        import asyncio, os
        from types import SimpleNamespace
        from leadhand.ports import Task
        from leadhand import worker
        from leadhand.workers.processes.runner import Processes
        from leadhand.workers.registry import Registry

        @worker(effects="x", isolate="process")
        def double(n: int) -> list:
            return [2 * n, os.getpid()]

        async def main():
            context = SimpleNamespace(cancelled=False, progress=print)
            async with Processes("main-test") as processes:
                made = Registry([double], processes=processes).get("double")
                report = await made.perform(Task("r", "s", 1, 1, "", {"n": 4}, 0), context)
                assert report.data and report.data[0] == 8, report
                assert report.data[1] != os.getpid()
                print("fine")

        if __name__ == "__main__":
            asyncio.run(main())
        """
    )
    done = run_script(file)
    assert done.stdout == "fine\n", done.stderr
