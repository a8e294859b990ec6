"""Command workers with real processes."""

import asyncio
import json
import os
import signal
import stat
import sys
import time
from pathlib import Path

import msgspec
import pytest

from leadhand.codec.expressions import ExpressionError
from leadhand.workers.commands.worker import fill_argv
from leadhand.workers.declared import declared_workers
from leadhand.workers.processes.runner import Processes
from leadhand.workers.template import Template
from tests.support.attempts import FakeContext, task

PYTHON = sys.executable
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


@pytest.fixture
async def processes():
    async with Processes("test-command") as running:
        yield running


@pytest.fixture
def made(processes, tmp_path):
    def make(command, **table):
        (worker,) = declared_workers({"it": {"command": command, **table}}, tmp_path)
        worker.attach(processes)
        return worker

    return make


async def perform(worker, context=None, **parameters):
    return await worker.perform(task(**parameters), context or FakeContext())


def python(code, *arguments):
    return [PYTHON, "-c", code, *arguments]


# --- arguments ------------------------------------------------------------------------------

TRICKY = [
    "plain",
    "two words",
    "; rm -rf /",
    "$(id)",
    "`id`",
    "$HOME",
    "a'b\"c",
    "*",
    "a\nb",
    "{version}",
    "{{x}}",
    "é—漢字🎉",
    "",
    "\\",
    "a=b",
    "&& true",
    "|",
    ">out",
]


@pytest.mark.parametrize("value", TRICKY)
async def test_each_value_is_exactly_one_argument(made, value):
    worker = made(python(SHOW, "--to={version}", "{version}", "end"), output="json")
    report = await perform(worker, version=value)
    assert report.data == [f"--to={value}", value, "end"]


async def test_numbers_and_truth_are_spelled_as_json_does(made):
    worker = made(python(SHOW, "{a}", "{b}", "{c}", "{d}"), output="json")
    report = await perform(worker, a=7, b=1.5, c=True, d=False)
    assert report.data == ["7", "1.5", "true", "false"]


async def test_lists_only_where_they_are_expected(made):
    worker = made(python(SHOW, "first", "{files...}", "last"), output="json")
    assert (await perform(worker, files=["a b", 2, True])).data == [
        "first",
        "a b",
        "2",
        "true",
        "last",
    ]
    assert (await perform(worker, files=[])).data == ["first", "last"]
    report = await perform(worker, files="a")
    assert (report.error.failure_class, report.error.message) == (
        "permanent",
        "parameter files: needs a list",
    )


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, "a\0b", float("nan"), float("inf")])
async def test_values_that_are_no_argument_are_refused(made, value):
    report = await perform(made(python(SHOW, "{x}"), parameters={"x": "string"}), x=value)
    assert (report.error.failure_class, report.error.effect) == ("permanent", "none")
    assert report.error.message.startswith("parameter x: ")


async def test_unknown_and_missing_parameters_are_refused(made):
    worker = made(python(SHOW, "{x}"))
    assert "parameter x" in (await perform(worker)).error.message
    assert (await perform(worker, x=1, y=2)).error.message == "parameter y: is not known"


@pytest.mark.parametrize(
    ("template", "values", "dash", "fine"),
    [
        (["git", "checkout", "{ref}"], {"ref": "--upload-pack=evil"}, False, False),
        (["git", "checkout", "{ref}"], {"ref": "-"}, False, False),
        (["git", "checkout", "{ref}"], {"ref": -5}, False, False),
        (["git", "checkout", "{ref}"], {"ref": "a-b"}, False, True),
        (["git", "checkout", "{ref}.txt"], {"ref": "-x"}, False, False),
        (["git", "checkout", "{ref}"], {"ref": "--evil"}, True, True),
        (["git", "checkout", "--", "{ref}"], {"ref": "--evil"}, False, True),
        (["git", "checkout", "{ref}", "--"], {"ref": "--evil"}, False, False),
        (["git", "--ref={ref}"], {"ref": "--evil"}, False, True),
        (["tar", "{files...}"], {"files": ["a", "--to-command=evil"]}, False, False),
        (["tar", "--", "{files...}"], {"files": ["a", "--to-command=evil"]}, False, True),
        (["x", "{a}", "{b}"], {"a": "--", "b": "-rf"}, False, False),
    ],
)
def test_a_value_cannot_become_an_option(template, values, dash, fine):
    argv = tuple(Template.of(word) for word in template)
    if fine:
        assert len(fill_argv(argv, values, dash=dash)) >= len(template)
    else:
        with pytest.raises(ValueError, match="begins with a dash"):
            fill_argv(argv, values, dash=dash)


async def test_defaults_are_used(made):
    parameters = {"to": {"type": "string", "default": "staging"}}
    worker = made(python(SHOW, "{to}"), parameters=parameters, output="json")
    assert (await perform(worker)).data == ["staging"]
    assert (await perform(worker, to="production")).data == ["production"]
    assert worker.spec.offers[""].parameters["required"] == []


async def test_parameters_on_standard_input(made):
    worker = made(
        python("import sys; print(sys.stdin.read())"),
        stdin="json",
        output="json",
        parameters={"deep": "object"},
    )
    assert (await perform(worker, deep={"a": [1, None]})).data == {"deep": {"a": [1, None]}}


# --- surroundings ---------------------------------------------------------------------------


async def test_the_environment_is_built_from_nothing(made, monkeypatch):
    for name in ("SECRET_OF_THE_HOST", "WANTED", "LD_PRELOAD_X", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, f"value of {name}")
    monkeypatch.setenv("TZ", "UTC")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    worker = made(python(code), env=["WANTED", "NOT_SET"], set_env={"FIXED": "1"}, output="json")
    found = (await perform(worker)).data
    found.pop("LC_CTYPE", None)
    marker = found.pop("LEADHAND_SPAWN")
    assert marker.startswith("test-command:")
    assert found.pop("PATH") == os.environ["PATH"]
    for name in ("HOME", "LANG", "TMPDIR"):
        assert found.pop(name, None) == os.environ.get(name)
    assert found == {
        "TZ": "UTC",
        "WANTED": "value of WANTED",
        "FIXED": "1",
        "LEADHAND_RUN": "run-1",
        "LEADHAND_STEP": "step-1",
        "LEADHAND_ATTEMPT": "2",
        "LEADHAND_KEY": "key-1",
    }


async def test_the_working_folder(made, tmp_path):
    (tmp_path / "sub").mkdir()
    code = "import os; print(os.getcwd())"
    assert (await perform(made(python(code)))).data["stdout"].strip() == str(tmp_path)
    report = await perform(made(python(code), cwd="sub"))
    assert report.data["stdout"].strip() == str(tmp_path / "sub")


async def test_a_script_beside_the_settings(made, tmp_path):
    script = tmp_path / "deploy.sh"
    script.write_text('#!/bin/sh\necho "deploying $1"\n')
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    worker = made(["./deploy.sh", "{version}"])
    assert (await perform(worker, version="2.1.4")).data["stdout"] == "deploying 2.1.4\n"


async def test_the_process_is_told_to_the_engine(made):
    context = FakeContext()
    report = await perform(made(python("import os; print(os.getpid())"), output="json"), context)
    assert [spawned.pid for spawned in context.processes] == [report.data]
    assert context.processes[0].boot_id


# --- what it says ---------------------------------------------------------------------------


async def test_text_is_the_default(made):
    code = "import sys; print('out'); print('err', file=sys.stderr)"
    report = await perform(made(python(code)))
    assert report.data == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}
    assert report.output == "err\n"


async def test_bytes_become_text_that_json_can_hold(made):
    code = r"import sys; sys.stdout.buffer.write(b'caf\xc3\xa9 \xff \x00 \xed\xa0\x80 \x1b[31m')"
    report = await perform(made(python(code)))
    assert report.data["stdout"] == "café \\xff \\x00 \\xed\\xa0\\x80 \x1b[31m"
    msgspec.json.encode(report.data)


async def test_a_gigabyte_is_bounded(made):
    code = (
        "import sys\nprint('first')\n"
        "for _ in range(1024): sys.stdout.write('x' * (1 << 20))\n"
        "print('\\nlast')"
    )
    report = await perform(made(python(code)))
    assert report.data["truncated"] is True
    assert report.data["stdout_bytes"] == (1 << 30) + len("first\n\nlast\n")
    assert len(report.data["stdout"]) < (1 << 20) + 200
    assert report.data["stdout"].startswith("first\n")
    assert report.data["stdout"].endswith("\nlast\n")
    assert "bytes left out" in report.data["stdout"]


async def test_limits_can_be_set(made):
    worker = made(python("print('x' * 1000)"), stdout_limit=100)
    report = await perform(worker)
    assert (report.data["stdout_bytes"], report.data["truncated"]) == (1001, True)


@pytest.mark.parametrize(
    ("printed", "data"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("7", 7),
        ("", None),
        ("{", None),
        ("{} {}", None),
        ("NaN", None),
        ("[" * 5000, None),
        ("123456789012345678901234567890", None),
    ],
)
async def test_json_output(made, printed, data):
    report = await perform(
        made(python("import sys; sys.stdout.write(sys.argv[1])", "{p}"), output="json"), p=printed
    )
    if data is None:
        assert report.error.failure_class == "invalid_output"
    else:
        assert report.data == data


async def test_json_that_is_cut_is_not_used(made):
    worker = made(python("print('[' + '1,' * 1000 + '1]')"), output="json", stdout_limit=500)
    report = await perform(worker)
    assert report.error.failure_class == "invalid_output"
    assert "larger than 500 bytes" in report.error.message


REPORTS = [
    ({"data": {"n": 1}, "cost": 0.5, "recommendations": ["x"]}, 0, ("succeeded", None)),
    ({"status": "failed", "error": {"class": "rate_limited", "message": "slow"}}, 0,
     ("failed", "rate_limited")),
    ({"error": {"class": "needs_info", "message": "which?"}}, 1, ("failed", "needs_info")),
    ({"status": "succeeded", "data": 1}, 1, ("failed", "unavailable")),
    ({"status": "nonsense"}, 0, ("failed", "invalid_output")),
    ({"status": "nonsense"}, 75, ("failed", "transient")),
    ({"unknown": 1}, 0, ("failed", "invalid_output")),
    ([1], 0, ("failed", "invalid_output")),
    ("text", 3, ("failed", "unavailable")),
]  # fmt: skip


@pytest.mark.parametrize(("doc", "code", "expected"), REPORTS)
async def test_a_whole_report(made, doc, code, expected):
    program = "import sys; sys.stdout.write(sys.argv[1]); sys.exit(int(sys.argv[2]))"
    worker = made(python(program, "{doc}", "{code}"), output="report")
    report = await perform(worker, doc=json.dumps(doc), code=code)
    assert (report.status, report.error and report.error.failure_class) == expected
    if code == 0 and expected[0] == "succeeded":
        assert (report.data, report.cost, report.recommendations) == ({"n": 1}, 0.5, ("x",))


# --- how it ends ----------------------------------------------------------------------------

CODES = [
    (0, None, "succeeded"),
    (1, None, "unavailable"),
    (2, {"2": "success"}, "succeeded"),
    (3, {"3": "permanent"}, "permanent"),
    (75, None, "transient"),
    (75, {"75": "permanent"}, "permanent"),
    (77, None, "denied"),
    (126, None, "unavailable"),
    (127, None, "unavailable"),
    (255, None, "unavailable"),
    (0, {"0": "permanent"}, "permanent"),
]


@pytest.mark.parametrize(("code", "declared", "expected"), CODES)
async def test_exit_codes(made, code, declared, expected):
    program = f"import sys; print('so', 'it', file=sys.stderr); print('goes'); sys.exit({code})"
    table = {"exit_codes": declared} if declared else {}
    report = await perform(made(python(program), **table))
    assert (report.error.failure_class if report.error else report.status) == expected
    assert report.data == {"exit_code": code, "stdout": "goes\n", "stderr": "so it\n"}
    if report.error:
        assert report.error.message == f"exited with {code}: so it"
        assert report.error.effect == "none"


async def test_the_message_falls_back_to_standard_output_and_is_short(made):
    report = await perform(made(python("print('x' * 5000); print('the reason'); exit(1)")))
    assert report.error.message.endswith("the reason")
    assert len(report.error.message) < 1_100


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_death_by_a_signal_nobody_sent_is_lost(made, number):
    report = await perform(made(python(f"import os; os.kill(os.getpid(), {int(number)})")))
    assert (report.error.failure_class, report.error.effect) == ("lost", "unknown")
    assert report.error.message.startswith(f"was killed by {number.name}")


@pytest.mark.parametrize("command", [["./not-there"], ["not-in-the-path-xyz"], ["/etc/passwd"]])
async def test_what_cannot_be_started_is_unavailable(made, command):
    report = await perform(made(command))
    assert (report.error.failure_class, report.error.effect) == ("unavailable", "none")
    assert command[0] in report.error.message


async def test_without_a_supervisor_nothing_is_started(tmp_path):
    (worker,) = declared_workers({"it": {"command": ["true"]}}, tmp_path)
    assert (await perform(worker)).error.failure_class == "unavailable"


async def test_a_lost_supervisor_is_lost(made):
    context = FakeContext()
    running = asyncio.create_task(perform(made(python("import time; time.sleep(60)")), context))
    while not context.processes:
        await asyncio.sleep(0.01)
    status = Path(f"/proc/{context.processes[0].pid}/stat").read_text()
    os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
    error = (await running).error
    assert (error.failure_class, error.effect) == ("lost", "unknown")


# --- cancelling -----------------------------------------------------------------------------


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def cancelled(worker, ready, *, twice=False):
    """Cancel an attempt once a file is there; gives the seconds it took."""
    context = FakeContext()
    running = asyncio.create_task(perform(worker, context, file=str(ready)))
    while not context.processes or not ready.exists() or not ready.read_text():
        await asyncio.sleep(0.01)
    started = time.perf_counter()
    running.cancel()
    if twice:
        await asyncio.sleep(0.05)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return time.perf_counter() - started


async def test_cancelling_ends_the_whole_group(made, tmp_path):
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write('%d %d' % (os.getpid(), child.pid))\n"
        "time.sleep(60)"
    )
    ready = tmp_path / "pids"
    await cancelled(made(python(code, "{file}")), ready)
    assert not any(alive(int(pid)) for pid in ready.read_text().split())


@pytest.mark.parametrize("twice", [False, True])
async def test_who_ignores_term_is_killed_after_the_grace(made, tmp_path, twice):
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    ready = tmp_path / "pid"
    took = await cancelled(made(python(code, "{file}"), grace=0.4), ready, twice=twice)
    assert took > 0.35
    assert not alive(int(ready.read_text()))


async def test_who_hears_term_may_clean_up(made, tmp_path):
    code = (
        "import signal, sys, time\n"
        "def stop(*_):\n"
        "    open(sys.argv[1] + '.clean', 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "open(sys.argv[1], 'w').write('ready')\n"
        "time.sleep(60)"
    )
    ready = tmp_path / "ready"
    await cancelled(made(python(code, "{file}")), ready)
    assert Path(f"{ready}.clean").exists()


async def test_nobody_waits_for_input(made):
    report = await perform(made(python("import sys; print(repr(sys.stdin.read()))")))
    assert report.data["stdout"] == "''\n"


# --- probes and checks ----------------------------------------------------------------------


async def test_probes(made):
    exits = "import sys; print('[1]'); sys.exit(int(sys.argv[1]))"
    worker = made(python("pass", "{code}"), probe=python(exits, "{code}"), output="json")
    assert worker.spec.offers[""].probe
    assert (await worker.probe(task(code=0), FakeContext())).data == [1]
    assert await worker.probe(task(code=1), FakeContext()) is None
    for code in (2, 77, 255):
        with pytest.raises(LookupError, match=f"cannot tell: exited with {code}"):
            await worker.probe(task(code=code), FakeContext())
    with pytest.raises(LookupError, match="declares no probe"):
        await made(["true"]).probe(task(), FakeContext())
    with pytest.raises(LookupError, match="cannot tell"):
        await made(["true", "{a}"], probe=["./gone", "{a}"]).probe(task(a=1), FakeContext())


def test_checks_are_expressions(tmp_path):
    table = {"command": ["true"], "checks": {"green": "data.failed == 0"}, "check": "data.ok"}
    (worker,) = declared_workers({"it": table}, tmp_path)
    assert worker.check("green", "", {"failed": 0}) is True
    assert worker.check("green", "", {"failed": 1}) is False
    assert worker.check("", "", {"ok": True}) is True
    with pytest.raises(ExpressionError):
        worker.check("", "", {"ok": 1})
    with pytest.raises(LookupError):
        worker.check("red", "", {})


async def test_many_at_once(made):
    worker = made(python("import sys; print(int(sys.argv[1]) * 2)", "{n}"), output="json")
    reports = await asyncio.gather(*(perform(worker, n=n) for n in range(40)))
    assert [report.data for report in reports] == [2 * n for n in range(40)]
