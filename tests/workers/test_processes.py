"""Commands run for real: what they are given, what they print, how they end."""

import asyncio
import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from leadhand.workers.processes.runner import Processes, SpawnError, SupervisorLost
from tests.support.commands import (
    ENV,
    PYTHON,
    bounded,
    children_of,
    run,
    running,
    start_daemon,
    start_ready,
)
from tests.support.need import need

need(Path("/proc/self/task").is_dir(), "Linux")
pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def limit():
    with bounded():
        yield


@pytest.fixture
async def processes():
    async with Processes(f"test-{os.getpid()}") as started:
        yield started


# --- what goes in and comes out -------------------------------------------------------------


async def test_output_of_both_streams_is_captured(processes):
    """Each stream is kept whole and apart when it is within its limit."""
    finished = await run(processes, ["sh", "-c", "echo out; echo err >&2"])
    assert (finished.exit_code, finished.signal) == (0, None)
    assert (finished.stdout.data, finished.stdout.total) == (b"out\n", 4)
    assert (finished.stderr.data, finished.stderr.truncated) == (b"err\n", False)


@pytest.mark.parametrize("code", [0, 1, 42, 255])
async def test_exit_codes(processes, code):
    assert (await run(processes, ["sh", "-c", f"exit {code}"])).exit_code == code


async def test_death_by_a_signal_is_told_from_an_exit(processes):
    finished = await run(processes, ["sh", "-c", "kill -SEGV $$"])
    assert (finished.exit_code, finished.signal) == (None, signal.SIGSEGV)


@pytest.mark.parametrize("limit", [0, 1, 3, 100, 9_999, 10_000, 10_001])
async def test_the_first_quarter_and_the_last_three_are_kept(processes, limit):
    """And the whole, if it fits; the total is true in any case."""
    whole = b"".join(b"%04d\n" % number for number in range(2_000))
    finished = await run(processes, ["cat"], stdin=whole, stdout_limit=limit)
    kept = finished.stdout
    head, tail = limit // 4, limit - limit // 4
    expected = whole if limit >= len(whole) else whole[:head] + whole[len(whole) - tail :]
    assert kept.data == expected
    assert (kept.total, kept.truncated) == (len(whole), limit < len(whole))
    assert kept.data[: kept.head] == whole[: kept.head]


async def test_memory_stays_flat_while_200_mb_are_printed(processes):
    """Sampled while it is read; the limit is a megabyte."""
    sizes = []

    def sample(_name, _chunk):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE"))

    argv = ["head", "-c", "200000000", "/dev/zero"]
    finished = await run(processes, argv, on_output=sample)
    assert (finished.stdout.total, len(finished.stdout.data)) == (200_000_000, 1 << 20)
    assert max(sizes) - sizes[0] < 16 << 20


async def test_stdin_is_what_is_given_or_nothing(processes):
    """More than a pipe holds; unread input harms nobody."""
    given = bytes(range(256)) * 8_000
    assert (await run(processes, ["cat"], stdin=given, stdout_limit=1 << 22)).stdout.data == given
    assert (await run(processes, ["cat"])).stdout.data == b""
    assert (await run(processes, ["true"], stdin=given)).exit_code == 0


async def test_the_environment_is_exactly_what_is_given_plus_the_marker(processes):
    """Bytes that are no text pass as they are, in variables and in arguments."""
    odd = os.fsdecode(b"\xff\xfe \xc3\xa4")
    finished = await run(processes, ["env", "-0"], env={**ENV, "ODD": odd, "LEADHAND_SPAWN": "x"})
    found = dict(entry.split(b"=", 1) for entry in finished.stdout.data.split(b"\0") if entry)
    assert found.pop(b"LEADHAND_SPAWN").startswith(f"test-{os.getpid()}:".encode())
    assert found == {b"PATH": os.fsencode(ENV["PATH"]), b"ODD": b"\xff\xfe \xc3\xa4"}
    assert (await run(processes, ["printf", "%s", odd])).stdout.data == b"\xff\xfe \xc3\xa4"


async def test_a_command_starts_clean(processes, tmp_path):
    """Its own session, no signal ignored or blocked, no descriptor but the three, its directory."""
    script = (
        "import os; print(os.getsid(0) == os.getpid(), os.getcwd(), os.listdir('/proc/self/fd'))"
    )
    finished = await run(processes, [*PYTHON, script], cwd=tmp_path)
    assert finished.stdout.data.decode().strip() == f"True {tmp_path} ['0', '1', '2', '3']"
    status = (await run(processes, ["cat", "/proc/self/status"])).stdout.data.decode()
    masks = [
        line.split()[1] for line in status.splitlines() if line.startswith(("SigIgn", "SigBlk"))
    ]
    ours = ~(0b11 << 31)  # 32 and 33 belong to the C library: nobody can reset them
    assert [int(mask, 16) & ours for mask in masks] == [0, 0]


@pytest.mark.parametrize(
    ("argv", "options", "number", "words"),
    [
        (["no-such-program"], {}, errno.ENOENT, "cannot run 'no-such-program'"),
        (["/etc/passwd"], {}, errno.EACCES, "Permission denied"),
        (["true"], {"cwd": "/no/such/place"}, errno.ENOENT, "working directory of 'true'"),
        (["true"], {"env": {"PATH": "/no/such/place"}}, errno.ENOENT, "cannot run 'true'"),
        ([], {}, errno.EINVAL, "no program"),
        (["a\0b"], {}, errno.EINVAL, "NUL"),
        (["true"], {"env": {"A=B": ""}}, errno.EINVAL, "'='"),
        (["true", "x" * 200_000], {}, errno.E2BIG, "cannot run 'true'"),
        (["true", *["x" * 100_000] * 200], {}, errno.E2BIG, "bytes to start 'true' with"),
    ],
)
async def test_what_cannot_be_started_says_why(processes, argv, options, number, words):
    """And does not disturb what comes after it."""
    with pytest.raises(SpawnError, match=words) as raised:
        await run(processes, argv, **options)
    assert raised.value.errno == number
    assert (await run(processes, ["true"])).exit_code == 0


async def test_a_failing_listener_does_not_stop_the_reading(processes):
    """It is reported to the loop, once, and not called again."""
    heard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    argv = ["head", "-c", "1000000", "/dev/zero"]
    finished = await run(processes, argv, on_output=lambda *_: 1 / 0)
    assert finished.stdout.total == 1_000_000
    assert [type(context["exception"]) for context in heard] == [ZeroDivisionError]


async def test_300_commands_with_8_in_flight(processes):
    """No thread per command, no descriptor lost."""
    await run(processes, ["true"])
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    todo = iter(range(300))

    async def take():
        for number in todo:
            finished = await run(processes, ["/bin/echo", str(number)])
            assert finished.stdout.data == f"{number}\n".encode()

    await asyncio.gather(*(take() for _ in range(8)))
    # Fewer is fine: threads of tests before this one may end while it runs.
    assert threading.active_count() <= threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


# --- ending -----------------------------------------------------------------------------------


async def test_end_asks_first(processes):
    """A command that obeys TERM ends as it likes, and the grace is not waited out."""
    script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    process = await start_ready(processes, ["sh", "-c", script])
    async with asyncio.timeout(120):
        assert (await process.end(3600)).exit_code == 7


async def test_term_ignored_then_killed(processes):
    script = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    process = await start_ready(processes, ["sh", "-c", script])
    start = time.monotonic()
    assert (await process.end(0.2)).signal == signal.SIGKILL
    assert time.monotonic() - start >= 0.2


async def test_a_stopped_command_can_be_ended(processes):
    """And wakes to do what it does on TERM."""
    script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    process = await start_ready(processes, ["sh", "-c", script])
    process.send_signal(signal.SIGSTOP)
    assert (await process.end(30)).exit_code == 7


async def test_the_group_keeps_its_grace_when_the_main_process_leaves_first(processes, tmp_path):
    """The shell dies of TERM at once; what it ran may still clean up."""
    trap = f"trap 'sleep 0.1; echo > {tmp_path}/cleaned; exit' TERM"
    inner = f"{trap}; echo ready; while :; do sleep 0.01; done"
    process = await start_ready(processes, ["sh", "-c", f'sh -c "{inner}" & sleep 1000'])
    assert (await process.end(30)).signal == signal.SIGTERM
    assert (tmp_path / "cleaned").exists()


async def test_a_signal_reaches_the_whole_group(processes):
    script = (
        "trap 'echo got' USR1; (trap 'exit 3' USR1; while :; do sleep 0.01; done) & echo on; wait"
    )
    process = await start_ready(processes, ["sh", "-c", f"{script}; wait $!; exit $?"])
    await asyncio.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    finished = await process.wait()
    assert (finished.exit_code, finished.stdout.data) == (3, b"on\ngot\n")


async def test_a_background_job_dies_with_its_step(processes):
    """It holds the pipe, so without that the wait would last 1000 s."""
    finished = await run(processes, ["sh", "-c", "sleep 1000 & echo $!"])
    assert not running(int(finished.stdout.data))


async def test_a_cancelled_spawn_leaves_nothing(processes, tmp_path):
    await run(processes, ["true"])
    argv = ["sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 1000"]
    for wait_s in (0, 0.001, 0.002):
        task = asyncio.create_task(processes.spawn(argv, cwd="/", env=ENV))
        await asyncio.sleep(wait_s)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().end(0)
        supervisor = processes._supervision._supervisor.pid
        assert children_of(supervisor) == []


async def test_close_kills_what_runs(tmp_path):
    async with Processes(f"closing-{os.getpid()}") as processes:
        process, daemon = await start_daemon(processes, tmp_path / "pid")
    assert not running(process.pid)
    assert not running(daemon)
    with pytest.raises(SupervisorLost, match="closed"):
        await process.wait()
